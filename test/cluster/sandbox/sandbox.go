// Package sandbox starts a cluster for the operator on this machine, without root: a real control plane, pods simulated by kwok, nodes
// simulated by package simnode, and the manager's binary with the rights of its manifests.
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/simnode"
)

const (
	// PoolLabel is the label by which profiles select the sandbox's nodes.
	PoolLabel = "agentpool"
	// Pool is the value of PoolLabel.
	Pool = "azfiles"
	// PoolNumberLabel contains the number of a node's pool, starting from 0.
	PoolNumberLabel = "sandbox-pool"
	// defaultZones is the default number of zones.
	defaultZones = 3
	// readyTimeout bounds the wait for new Nodes.
	readyTimeout = 2 * time.Minute
)

// Options are the options for Start.
type Options struct {
	controlplane.Options
	// Root is the root of the repository, which contains config. From an empty directory no object is installed.
	Root string
	// Manager is the path of the manager's binary.
	Manager string
	// Nodes is the number of nodes.
	Nodes int
	// Zones is the number of zones over which the nodes are spread. Default 3.
	Zones int
	// BootTime is the duration of a simulated boot.
	BootTime time.Duration
	// Light simulates only the API writes of nodes, for thousands of them. Fleet is nil then. Mounts is the number of mounts that each
	// node reports.
	Light  bool
	Mounts int
	// Pools is the number of pools over which the nodes are spread, by their label PoolNumberLabel. Default 1.
	Pools int
	// Progress is called for each step of the start. May be nil.
	Progress func(format string, args ...any)
}

// Sandbox is a running cluster without a manager.
type Sandbox struct {
	// Client has all rights and no cache.
	Client client.WithWatch
	// Plane is the control plane.
	Plane *controlplane.ControlPlane
	// Fleet holds the machines. Nil if the nodes are light.
	Fleet *simnode.Fleet
	// Names are the nodes' names, in the order of their creation.
	Names []string

	// Light simulates the API writes of nodes. Nil if the nodes are machines.
	Light *simnode.LightFleet

	options   Options
	stopFleet context.CancelFunc
	fleetDone chan struct{}
}

// Start starts the control plane and the nodes, and installs the operator's manifests.
func Start(ctx context.Context, options Options) (*Sandbox, error) {
	if options.Progress == nil {
		options.Progress = func(string, ...any) {}
	}
	if options.Zones == 0 {
		options.Zones = defaultZones
	}
	debug.SetGCPercent(relaxedGC)
	if err := os.Setenv("GOGC", strconv.Itoa(relaxedGC)); err != nil {
		return nil, err
	}
	s := &Sandbox{options: options}
	options.Progress("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok")
	var err error
	if s.Plane, err = controlplane.Start(options.Options); err != nil {
		return nil, err
	}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Sandbox) setUp(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	var err error
	if s.Client, err = client.NewWithWatch(s.Plane.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.options.Progress("installing the operator: definitions, roles, and the policies on agents, manager, approvals and limits")
	if err := s.installManifests(ctx); err != nil {
		return err
	}
	if err := s.addNodes(ctx); err != nil {
		return err
	}
	fleetCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopFleet, s.fleetDone = stop, make(chan struct{})
	go func() {
		defer close(s.fleetDone)
		// The only possible error comes from a handler on a stopped informer.
		if s.Light != nil {
			_ = s.Light.Run(fleetCtx)
			return
		}
		_ = s.Fleet.Run(fleetCtx)
	}()
	return s.awaitSchedulable(ctx)
}

// Stop stops all processes.
func (s *Sandbox) Stop() error {
	if s.stopFleet != nil {
		s.stopFleet()
		<-s.fleetDone
	}
	return s.Plane.Stop()
}

func (s *Sandbox) installManifests(ctx context.Context) error {
	for _, pattern := range []string{
		"config/crd/bases/*.yaml", "config/*/namespace.yaml", "config/manager/trial_namespace.yaml", "config/agent/*.yaml", "config/rbac/*.yaml",
		"config/manager/policies.yaml", "config/manager/flowcontrol.yaml",
		"test/cluster/sandbox/ceilings.yaml", "config/components/guardrails/policy.yaml", "config/components/network-policies/network_policies.yaml",
	} {
		files, err := filepath.Glob(filepath.Join(s.options.Root, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			base := filepath.Base(file)
			if base == "kustomization.yaml" || base == "namespace.yaml" && !strings.Contains(pattern, "*/") {
				continue
			}
			if err := s.ApplyFile(ctx, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// ApplyFile creates the objects of a file of YAML documents.
func (s *Sandbox) ApplyFile(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("apply %s: %w", file, err)
		}
	}
}

func (s *Sandbox) addNodes(ctx context.Context) error {
	what := "kernel, GRUB and boots are simulated, the agent on them is the real one"
	var err error
	if s.options.Light {
		what = "only what their agents and kubelets write is played"
		s.Light, err = simnode.NewLightFleet(s.Plane.Config, s.Client.Scheme(), s.options.BootTime, s.options.Mounts)
	} else {
		s.Fleet, err = simnode.NewFleet(s.Plane.Config, s.options.BootTime)
	}
	if err != nil {
		return err
	}
	for i := range s.options.Nodes {
		s.Names = append(s.Names, fmt.Sprintf("node-%d", i+1))
	}
	if err := s.registerNodes(ctx); err != nil {
		return err
	}
	s.options.Progress("%d nodes registered; %s", s.options.Nodes, what)
	return nil
}

// registerNodes adds several nodes in parallel, because most of the time is spent on responses of the API server.
func (s *Sandbox) registerNodes(ctx context.Context) error {
	const registering = 8
	next, errs := make(chan int), make(chan error)
	for range registering {
		go func() {
			var err error
			for i := range next {
				if err == nil {
					err = s.addNode(ctx, i)
				}
			}
			errs <- err
		}()
	}
	for i := range s.Names {
		next <- i
	}
	close(next)
	var failed error
	for range registering {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

func (s *Sandbox) addNode(ctx context.Context, i int) error {
	node := nodeObject(s.Names[i], i%s.options.Zones)
	node.Labels[PoolNumberLabel] = strconv.Itoa(i % max(s.options.Pools, 1))
	if s.Light != nil {
		return s.Light.Add(ctx, node)
	}
	dir := filepath.Join(s.options.Dir, s.Names[i])
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	machine, err := simnode.NewMachine(dir, simnode.Options{})
	if err != nil {
		return err
	}
	return s.Fleet.Add(ctx, node, machine)
}

func nodeObject(name string, zone int) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				PoolLabel: Pool, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelHostname: name,
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", zone+1),
			},
			Annotations: map[string]string{controlplane.NodeAnnotation: "fake"},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// awaitSchedulable waits until the controller manager has removed the taints from new Nodes.
func (s *Sandbox) awaitSchedulable(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, time.Second/2, patience.Of(readyTimeout), true, func(ctx context.Context) (bool, error) {
		nodes := &corev1.NodeList{}
		if err := s.Client.List(ctx, nodes); err != nil {
			return false, err
		}
		tainted := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 })
		return !tainted, nil
	})
}

// relaxedGC and managerGC are values of GOGC. The processes that simulate the cluster use relaxedGC, which leaves more CPU time to the
// measured processes. The manager uses the default. managerMemory is the limit of its container in config/manager, in bytes.
const (
	relaxedGC     = 400
	managerGC     = 100
	managerMemory = 1 << 30
)

// StartManager runs the manager outside the cluster, as its own service account.
func (s *Sandbox) StartManager(ctx context.Context, flags ...string) (*controlplane.Process, error) {
	return s.StartManagerAs(ctx, "manager", flags...)
}

// StartManagerAs does the same as StartManager for one of several managers.
func (s *Sandbox) StartManagerAs(ctx context.Context, name string, flags ...string) (*controlplane.Process, error) {
	kubeconfig, err := s.ManagerConfig(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.Plane.RunAs(name, append([]string{
		"env", fmt.Sprintf("GOGC=%d", managerGC), fmt.Sprintf("CONTAINER_MEMORY_LIMIT=%d", managerMemory), s.options.Manager, "--kubeconfig=" + kubeconfig, "--health-probe-bind-address=0",
		// The profiles set the pace of live changes.
		"--min-live-soak=0s", "--max-concurrent-live=100%",
	}, flags...)...)
}

// ManagerConfig writes the kubeconfig of the manager's service account, for the manager of this name, and returns its path.
func (s *Sandbox) ManagerConfig(ctx context.Context, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](6 * 3600)}}
	if err := s.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("request the manager's token: %w", err)
	}
	kubeconfig := filepath.Join(s.options.Dir, name+".kubeconfig")
	return kubeconfig, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"sandbox": {Server: s.Plane.Config.Host, CertificateAuthorityData: s.Plane.Config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"manager": {Token: request.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"sandbox": {Cluster: "sandbox", AuthInfo: "manager"}},
		CurrentContext: "sandbox",
	}, kubeconfig)
}

// ManagerLog returns the end of each running manager's log.
func (s *Sandbox) ManagerLog() string {
	const most = 15
	var end []string
	for _, process := range s.Plane.Processes() {
		if !strings.HasPrefix(process.Name, "manager") || !process.Running() {
			continue
		}
		log, err := process.Log()
		if err != nil {
			log = err.Error()
		}
		lines := strings.Split(strings.TrimSpace(log), "\n")
		end = append(append(end, process.Name+":"), lines[max(0, len(lines)-most):]...)
	}
	return strings.Join(end, "\n")
}
