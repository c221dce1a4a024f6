package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/storageclient/operator/test/simnode"
)

const (
	// bootTime is how long a simulated boot takes.
	bootTime = 3 * time.Second
	pool     = "azfiles"
)

// stage is where the demo plays.
type stage struct {
	began time.Time
	nodes int
	dir   string
	plane *controlplane.ControlPlane
	k8s   client.Client
	fleet *simnode.Fleet
	// boots are the machines' boot IDs at the beginning, by node.
	boots map[string]string
}

func (s *stage) say(who, format string, args ...any) {
	fmt.Printf("%5.1fs  %-8s %s\n", time.Since(s.began).Seconds(), who, fmt.Sprintf(format, args...))
}

// setUp makes the cluster what a user would have before the operator's first profile.
func (s *stage) setUp(ctx, fleetCtx context.Context, fleetDone chan struct{}, manager string) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		close(fleetDone)
		return err
	}
	var err error
	if s.k8s, err = client.New(s.plane.Config, client.Options{Scheme: scheme}); err != nil {
		close(fleetDone)
		return err
	}
	s.say("", "installing the operator: config/crd, config/agent with its admission policy, config/rbac")
	if err := s.install(ctx); err != nil {
		close(fleetDone)
		return err
	}
	if err := s.addNodes(ctx); err != nil {
		close(fleetDone)
		return err
	}
	go func() {
		defer close(fleetDone)
		_ = s.fleet.Run(fleetCtx) // its only error is that of a handler on a stopped informer
	}()
	if err := s.apply(ctx, filepath.Join("test", "demo", "workload.yaml")); err != nil {
		return err
	}
	return s.startManager(ctx, manager)
}

func (s *stage) install(ctx context.Context) error {
	for _, pattern := range []string{"crd/bases/*.yaml", "manager/namespace.yaml", "agent/*.yaml", "rbac/*.yaml"} {
		files, err := filepath.Glob(filepath.Join("config", pattern))
		if err != nil {
			return err
		}
		slices.SortStableFunc(files, func(a, b string) int { return rank(a) - rank(b) })
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue
			}
			if err := s.apply(ctx, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// rank puts namespaces before what is in them.
func rank(file string) int {
	if filepath.Base(file) == "namespace.yaml" {
		return 0
	}
	return 1
}

func (s *stage) apply(ctx context.Context, file string) error {
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
		if err := s.k8s.Create(ctx, object); err != nil {
			return fmt.Errorf("apply %s: %w", file, err)
		}
	}
}

func (s *stage) addNodes(ctx context.Context) error {
	fleet, err := simnode.NewFleet(s.plane.Config, bootTime)
	if err != nil {
		return err
	}
	s.fleet, s.boots = fleet, map[string]string{}
	for i := range s.nodes {
		name := fmt.Sprintf("node-%d", i+1)
		dir := filepath.Join(s.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		machine, err := simnode.New(dir, simnode.Options{})
		if err != nil {
			return err
		}
		if err := fleet.Add(ctx, nodeObject(name), machine); err != nil {
			return err
		}
		s.boots[name] = machine.BootID()
	}
	s.say("", "%d nodes registered; kernel, GRUB and boots are simulated, the agent on them is the real one", s.nodes)
	return s.awaitSchedulable(ctx)
}

// awaitSchedulable waits until the controller manager has taken the taints of a new Node off.
func (s *stage) awaitSchedulable(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, lookEvery, timeout, true, func(ctx context.Context) (bool, error) {
		nodes := &corev1.NodeList{}
		if err := s.k8s.List(ctx, nodes); err != nil {
			return false, err
		}
		tainted := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 })
		return !tainted, nil
	})
}

func nodeObject(name string) *corev1.Node {
	capacity := corev1.ResourceList{"cpu": resourceOf("4"), "memory": resourceOf("16Gi"), "pods": resourceOf("110")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"agentpool": pool, "kubernetes.io/os": "linux", "kubernetes.io/hostname": name},
			Annotations: map[string]string{controlplane.NodeAnnotation: "fake"},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// startManager runs the manager outside the cluster, as its own service account.
func (s *stage) startManager(ctx context.Context, manager string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](6 * 3600)}}
	if err := s.k8s.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("request the manager's token: %w", err)
	}
	kubeconfig := filepath.Join(s.dir, "manager.kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"demo": {Server: s.plane.Config.Host, CertificateAuthorityData: s.plane.Config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"manager": {Token: request.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"demo": {Cluster: "demo", AuthInfo: "manager"}},
		CurrentContext: "demo",
	}, kubeconfig)
	if err != nil {
		return err
	}
	_, err = s.plane.Run(manager, "--kubeconfig="+kubeconfig, "--agent-image=storageclient/node-agent:demo",
		"--max-unavailable=2", "--health-probe-bind-address=0")
	return err
}

func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
