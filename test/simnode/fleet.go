package simnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/apiclient"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
)

// tokenSeconds is the lifetime of the token of an agent's pod. It is longer than a demo or test.
const tokenSeconds = 3 * 3600

// Fleet simulates the kubelets of simulated machines. It runs the loop of the agent on a machine while a pod of the agent's DaemonSet is
// bound to its Node. The agent has a token that is bound to that pod. Fleet also reports reboots to the API.
type Fleet struct {
	config   *rest.Config
	client   kubernetes.Interface
	bootTime time.Duration

	mu    sync.Mutex
	nodes map[string]*node
	wg    sync.WaitGroup
}

// node is one machine and the agent on it.
type node struct {
	fleet   *Fleet
	name    string
	machine *Machine

	// pod is the pod of the agent. Nil if there is none. stop stops its agent.
	pod  *corev1.Pod
	stop context.CancelFunc
	// booting is true from the reboot to the end of the boot.
	booting bool
}

// NewFleet returns a fleet without machines. bootTime is the duration of a simulated boot.
func NewFleet(config *rest.Config, bootTime time.Duration) (*Fleet, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build client of the simulated kubelets: %w", err)
	}
	return &Fleet{config: config, client: client, bootTime: bootTime, nodes: map[string]*node{}}, nil
}

// Add adds a machine to the fleet and registers its Node as Ready. It must be called before Run.
func (f *Fleet) Add(ctx context.Context, object *corev1.Node, machine *Machine) error {
	if _, err := f.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register Node %s: %w", object.Name, err)
	}
	status := object.Status
	status.NodeInfo = nodeInfo(machine.BootID())
	status.Conditions = []corev1.NodeCondition{readyCondition(true)}
	if err := patchNodeStatus(ctx, f.client, object.Name, status); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[object.Name] = &node{fleet: f, name: object.Name, machine: machine}
	return nil
}

// Machine returns the machine of a Node. Nil if there is none.
func (f *Fleet) Machine(name string) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		return n.machine
	}
	return nil
}

// Disconnect stops the agent of a machine and reports its Node as not Ready. The files of the machine are unchanged.
func (f *Fleet) Disconnect(ctx context.Context, name string) error {
	f.mu.Lock()
	n := f.nodes[name]
	n.stopAgent()
	f.mu.Unlock()
	return n.reportReady(ctx, false)
}

// Reconnect reverts Disconnect.
func (f *Fleet) Reconnect(ctx context.Context, name string) error {
	f.mu.Lock()
	n := f.nodes[name]
	n.startAgent(ctx)
	f.mu.Unlock()
	return n.reportReady(ctx, true)
}

// Run simulates the kubelets until the context is done.
func (f *Fleet) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(v1alpha1.AgentNamespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.podChanged(ctx, object, true) },
		UpdateFunc: func(_, object any) { f.podChanged(ctx, object, true) },
		DeleteFunc: func(object any) { f.podChanged(ctx, object, false) },
	})
	if err != nil {
		return fmt.Errorf("watch the agent's pods: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	f.wg.Wait()
	return nil
}

func (f *Fleet) podChanged(ctx context.Context, object any, exists bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.ServiceAccountName != v1alpha1.AgentServiceAccount {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[pod.Spec.NodeName]
	switch {
	case n == nil:
	case exists && pod.DeletionTimestamp == nil && (n.pod == nil || n.pod.UID != pod.UID):
		n.stopAgent()
		n.pod = pod
		n.startAgent(ctx)
	case n.pod != nil && n.pod.UID == pod.UID && (!exists || pod.DeletionTimestamp != nil):
		n.stopAgent()
		n.pod = nil
	}
}

// startAgent starts the agent of n.pod, unless the machine is booting. The fleet's lock is held.
func (n *node) startAgent(ctx context.Context) {
	if n.pod == nil || n.booting || ctx.Err() != nil {
		return
	}
	lifetime := ctx
	ctx, n.stop = context.WithCancel(ctx)
	pod := n.pod
	n.fleet.wg.Go(func() {
		if err := n.runAgent(ctx, lifetime, pod); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "The agent stopped", "node", n.name)
		}
	})
}

func (n *node) stopAgent() {
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

// runAgent runs the loop of a node agent. A reboot that the agent requests continues after it stops.
func (n *node) runAgent(ctx, lifetime context.Context, pod *corev1.Pod) error {
	config, err := n.fleet.agentConfig(ctx, pod)
	if err != nil {
		return err
	}
	api, err := apiclient.New(config, n.name, clock.RealClock{})
	if err != nil {
		return err
	}
	fs, err := host.OpenFS(n.machine.dir)
	if err != nil {
		return err
	}
	defer fs.Close()
	machine := agent.NewHost(fs, commands{machine: n.machine}, rebooter{node: n, ctx: lifetime},
		mounts.DefaultKubeletDir)
	// Servers of simulated mounts respond. The API server is a real one.
	machine.AskServer = func(context.Context, connect.Server) error { return nil }
	a, err := agent.New(agent.Config{Host: machine, API: api, Clock: clock.RealClock{}})
	if err != nil {
		return err
	}
	a.Run(ctx)
	return nil
}

// agentConfig returns the client configuration that a kubelet gives a pod, with a token that is bound to the pod and its node.
func (f *Fleet) agentConfig(ctx context.Context, pod *corev1.Pod) (*rest.Config, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](tokenSeconds),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	response, err := f.client.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, v1alpha1.AgentServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token for Pod %s: %w", pod.Name, err)
	}
	config := rest.AnonymousClientConfig(f.config)
	config.BearerToken = response.Status.Token
	config.QPS, config.Burst = 20, 50
	return config, nil
}

// rebooter simulates logind on the machine. It implements permit.Rebooter.
type rebooter struct {
	node *node
	ctx  context.Context //nolint:containedctx // a reboot outlives the agent that requested it
}

// FindHolders implements permit.Rebooter. No package manager runs on a simulated machine.
func (r rebooter) FindHolders(context.Context) ([]string, error) { return nil, nil }

// Reboot starts a reboot and stops the agent.
func (r rebooter) Reboot(context.Context) error {
	f := r.node.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.node.booting {
		return errors.New("a shutdown is already in progress")
	}
	r.node.booting = true
	r.node.stopAgent()
	f.wg.Go(func() {
		if err := r.node.rebootMachine(r.ctx); err != nil && r.ctx.Err() == nil {
			logr.FromContextOrDiscard(r.ctx).Error(err, "The simulated boot failed", "node", r.node.name)
		}
	})
	return nil
}

// rebootMachine reports the Node as not Ready, boots the machine, and reports the Node as Ready with the new boot ID.
func (n *node) rebootMachine(ctx context.Context) error {
	if err := n.reportReady(ctx, false); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(n.fleet.bootTime):
	}
	if err := n.machine.Boot(); err != nil {
		return err
	}
	if err := n.reportReady(ctx, true); err != nil {
		return err
	}
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.booting = false
	n.startAgent(ctx)
	return nil
}

func (n *node) reportReady(ctx context.Context, ready bool) error {
	return patchNodeStatus(ctx, n.fleet.client, n.name, bootStatus(n.machine.BootID(), ready))
}

func nodeInfo(bootID string) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		BootID: bootID, KernelVersion: KernelVersion, OperatingSystem: "linux", Architecture: "amd64",
		OSImage: "Debian GNU/Linux 12 (simulated)", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "simulated://0",
	}
}

// bootStatus returns the status that a kubelet reports when its machine shuts down or starts.
func bootStatus(bootID string, ready bool) any {
	return map[string]any{
		"conditions": []corev1.NodeCondition{readyCondition(ready)},
		"nodeInfo":   map[string]any{"bootID": bootID},
	}
}

// patchNodeStatus patches the status, so that concurrent writes of controllers do not conflict.
func patchNodeStatus(ctx context.Context, client kubernetes.Interface, name string, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode the status of Node %s: %w", name, err)
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report Node %s: %w", name, err)
	}
	return nil
}

func readyCondition(ready bool) corev1.NodeCondition {
	now := metav1.Now()
	condition := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if !ready {
		condition.Status, condition.Reason = corev1.ConditionFalse, "KubeletNotReady"
	}
	return condition
}
