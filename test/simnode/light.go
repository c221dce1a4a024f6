package simnode

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/standing"
)

// LightFleet simulates nodes without a machine or an agent. It only makes the API writes of the agent and the kubelet of a node, at the
// same rate. One process can simulate thousands of nodes. Package scale compares them with real agents.
type LightFleet struct {
	client   kubernetes.Interface
	follow   client.WithWatch
	writer   rest.Interface
	bootTime time.Duration
	// Mounts is the number of mounts that each node reports.
	Mounts int

	mu    sync.Mutex
	nodes map[string]*lightNode
	// loses is true while the next node to shut down must not return. lost is the node that did not return.
	loses bool
	lost  string
	wg    sync.WaitGroup
}

// lightNode is one node. Its own lock is held while it writes, so that writes do not overlap.
type lightNode struct {
	fleet *LightFleet
	name  string
	work  sync.Mutex

	// The lock of the fleet guards the following fields.
	clientNode *v1alpha1.StorageClientNode
	pod        *corev1.Pod
	bootID     string
	booting    bool
	dirty      bool
	busy       bool

	// work guards the following fields.
	// inForce are the effective values, confirmed the effective values that new connections have confirmed.
	inForce, confirmed map[string]string
	usedPermit         string
	reboot             *v1alpha1.RebootStatus
	last               *v1alpha1.StorageClientNodeStatus
}

// NewLightFleet returns a fleet without nodes.
func NewLightFleet(config *rest.Config, scheme *runtime.Scheme, bootTime time.Duration, mounts int) (*LightFleet, error) {
	f := &LightFleet{bootTime: bootTime, Mounts: mounts, nodes: map[string]*lightNode{}}
	var err error
	if f.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("build client of the light nodes: %w", err)
	}
	if f.follow, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("build watch of the light nodes: %w", err)
	}
	f.writer = f.client.CoreV1().RESTClient()
	return f, nil
}

// Add registers a Node as Ready.
func (f *LightFleet) Add(ctx context.Context, object *corev1.Node) error {
	if _, err := f.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register Node %s: %w", object.Name, err)
	}
	n := &lightNode{fleet: f, name: object.Name, bootID: newUUID(), inForce: map[string]string{}, confirmed: map[string]string{}}
	status := object.Status
	status.NodeInfo = nodeInfo(n.bootID)
	status.Conditions = []corev1.NodeCondition{readyCondition(true)}
	if err := patchNodeStatus(ctx, f.client, object.Name, status); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[object.Name] = n
	return nil
}

// Run simulates the nodes until the context is done.
func (f *LightFleet) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(v1alpha1.AgentNamespace))
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.podChanged(ctx, object, true) },
		UpdateFunc: func(_, object any) { f.podChanged(ctx, object, true) },
		DeleteFunc: func(object any) { f.podChanged(ctx, object, false) },
	})
	if err != nil {
		return fmt.Errorf("watch the agent's pods: %w", err)
	}
	factory.Start(ctx.Done())
	clientNodes := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.StorageClientNodeList{}
			return list, f.follow.List(ctx, list, &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return f.follow.Watch(ctx, &v1alpha1.StorageClientNodeList{}, &client.ListOptions{Raw: &options})
		},
	}, &v1alpha1.StorageClientNode{}, 0, nil)
	_, err = clientNodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.clientNodeChanged(ctx, object, true) },
		UpdateFunc: func(_, object any) { f.clientNodeChanged(ctx, object, true) },
		DeleteFunc: func(object any) { f.clientNodeChanged(ctx, object, false) },
	})
	if err != nil {
		return fmt.Errorf("watch the StorageClientNodes: %w", err)
	}
	clientNodes.RunWithContext(ctx)
	factory.Shutdown()
	f.wg.Wait()
	return nil
}

func (f *LightFleet) podChanged(ctx context.Context, object any, exists bool) {
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
		n.pod = pod
		n.wake(ctx)
	case n.pod != nil && n.pod.UID == pod.UID && (!exists || pod.DeletionTimestamp != nil):
		n.pod = nil
	}
}

func (f *LightFleet) clientNodeChanged(ctx context.Context, object any, exists bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	clientNode, ok := object.(*v1alpha1.StorageClientNode)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[clientNode.Name]
	if n == nil {
		return
	}
	if n.clientNode = clientNode; !exists {
		n.clientNode = nil
	}
	n.wake(ctx)
}

// wake makes the node read its StorageClientNode, once more if it is already reading. The lock of the fleet must be held.
func (n *lightNode) wake(ctx context.Context) {
	n.dirty = true
	if n.busy || n.booting || n.pod == nil || n.clientNode == nil || ctx.Err() != nil {
		return
	}
	n.busy = true
	n.fleet.wg.Go(func() { n.look(ctx) })
}

func (n *lightNode) look(ctx context.Context) {
	for {
		n.fleet.mu.Lock()
		if !n.dirty || n.booting || n.clientNode == nil || n.pod == nil || ctx.Err() != nil {
			n.busy = false
			n.fleet.mu.Unlock()
			return
		}
		n.dirty = false
		clientNode, pod, bootID := n.clientNode, n.pod, n.bootID
		n.fleet.mu.Unlock()
		if err := n.report(ctx, clientNode, pod, bootID); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "The light agent cannot report", "node", n.name)
			n.wakeIn(ctx, time.Second)
		}
	}
}

func (n *lightNode) wakeIn(ctx context.Context, delay time.Duration) {
	time.AfterFunc(delay, func() {
		n.fleet.mu.Lock()
		defer n.fleet.mu.Unlock()
		n.wake(ctx)
	})
}

// proofJitter is the maximum delay of a proof, as in the real agent.
const proofJitter = 5 * time.Second

// report makes the writes of an agent: one if settings apply at once, two if new connections prove them, and one before a reboot.
func (n *lightNode) report(ctx context.Context, clientNode *v1alpha1.StorageClientNode, pod *corev1.Pod, bootID string) error {
	n.work.Lock()
	defer n.work.Unlock()
	if permit := clientNode.Spec.RebootPermit; permit != nil && permit.ID != n.usedPermit && permit.BootID == bootID {
		n.usedPermit = permit.ID
		n.reboot = &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootStarted}
		if err := n.write(ctx, n.statusOf(clientNode, bootID), pod); err != nil {
			n.usedPermit = ""
			return err
		}
		n.fleet.mu.Lock()
		n.booting = true
		n.fleet.mu.Unlock()
		n.fleet.wg.Go(func() {
			if err := n.rebootNode(ctx, clientNode); err != nil && ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Error(err, "The light boot failed", "node", n.name)
			}
		})
		return nil
	}
	status := n.statusOf(clientNode, bootID)
	if err := n.write(ctx, status, pod); err != nil {
		return err
	}
	if standing.Read(&clientNode.Spec, &status, "").Has(standing.Proving, standing.Unproven) {
		for _, s := range clientNode.Spec.Settings {
			n.confirmed[s.Key] = s.Value
		}
		n.wakeIn(ctx, rand.N(proofJitter))
	}
	return nil
}

func (n *lightNode) statusOf(clientNode *v1alpha1.StorageClientNode, bootID string) v1alpha1.StorageClientNodeStatus {
	status := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: clientNode.Generation, Hash: clientNode.Spec.Hash, BootID: bootID, KernelVersion: KernelVersion,
		Bootloader: &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Proven: true}, Reboot: n.reboot.DeepCopy(), Restored: clientNode.Spec.Release,
		Mounts: n.mounts(),
	}
	if clientNode.Spec.Release {
		return status
	}
	for _, s := range clientNode.Spec.Settings {
		setting := v1alpha1.SettingStatus{
			Key: s.Key, Desired: s.Value, Observed: s.Value, Original: "0", TakesEffect: catalogue.Effect(s.Key), State: v1alpha1.SettingInSync,
		}
		switch {
		case setting.TakesEffect == v1alpha1.EffectReboot && n.inForce[s.Key] != s.Value:
			setting.State, setting.Observed = v1alpha1.SettingPending, n.inForce[s.Key]
			status.RebootRequired = true
			status.RebootRequiredBy = append(status.RebootRequiredBy, s.Key)
		case catalogue.NeedsConfirmation(s.Key) && n.confirmed[s.Key] != s.Value:
			setting.State, setting.WaitsFor, setting.Message = v1alpha1.SettingPending, v1alpha1.WaitsForProof, "set, proving over new connections (simulated)"
		}
		status.Settings = append(status.Settings, setting)
	}
	slices.SortFunc(status.Settings, func(a, b v1alpha1.SettingStatus) int { return strings.Compare(a.Key, b.Key) })
	slices.Sort(status.RebootRequiredBy)
	return status
}

func (n *lightNode) mounts() []v1alpha1.MountStatus {
	var out []v1alpha1.MountStatus
	for i := range n.fleet.Mounts {
		uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)
		out = append(out, v1alpha1.MountStatus{
			MountPoint: "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pvc-" + uid + "/mount", PodUIDs: []string{uid}, Volume: fmt.Sprintf("pvc-%05d", i),
			Server: fmt.Sprintf("filer-%d.example.com", i%4), Protocol: "NFSv4.1", Options: []string{
				"rw", "relatime", "vers=4.1", "rsize=1048576", "wsize=1048576", "namlen=255", "hard", "proto=tcp", "nconnect=4", "timeo=600", "retrans=2", "sec=sys",
			}, Connections: 4, SlotLimit: 64, ReadAheadKiB: 1024, Used: true, State: v1alpha1.MountEffective,
		})
	}
	return out
}

// write writes as the agent of the node. It impersonates the agent with the names of the node and the Pod, as in a token that is bound to
// the Pod.
func (n *lightNode) write(ctx context.Context, status v1alpha1.StorageClientNodeStatus, pod *corev1.Pod) error {
	if n.last != nil && equalStatus(*n.last, status) {
		return nil
	}
	body, err := json.Marshal(&v1alpha1.StorageClientNode{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "StorageClientNode"}, ObjectMeta: metav1.ObjectMeta{Name: n.name}, Status: status,
	})
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", n.name, err)
	}
	options := &metav1.PatchOptions{FieldManager: v1alpha1.AgentFieldManager, Force: ptr.To(true)}
	err = n.fleet.writer.Patch(types.ApplyPatchType).AbsPath("/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "storageclientnodes", n.name, "status").
		SetHeader("Impersonate-User", "system:serviceaccount:"+v1alpha1.AgentNamespace+":"+v1alpha1.AgentServiceAccount).
		SetHeader("Impersonate-Group", "system:serviceaccounts", "system:serviceaccounts:"+v1alpha1.AgentNamespace, "system:authenticated").
		SetHeader("Impersonate-Extra-Authentication.kubernetes.io%2fnode-Name", n.name).
		SetHeader("Impersonate-Extra-Authentication.kubernetes.io%2fpod-Name", pod.Name).
		SetHeader("Content-Type", string(types.ApplyPatchType)).
		VersionedParams(options, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", n.name, err)
	}
	n.last = &status
	return nil
}

func equalStatus(a, b v1alpha1.StorageClientNodeStatus) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// rebootNode reports the Node as not Ready, and then as Ready with a new boot ID.
func (n *lightNode) rebootNode(ctx context.Context, clientNode *v1alpha1.StorageClientNode) error {
	if err := patchNodeStatus(ctx, n.fleet.client, n.name, bootStatus(n.bootID, false)); err != nil {
		return err
	}
	back := time.After(n.fleet.bootTime)
	if n.fleet.isLost(n.name) {
		back = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-back:
	}
	bootID := newUUID()
	n.work.Lock()
	if clientNode != nil {
		for _, s := range clientNode.Spec.Settings {
			n.inForce[s.Key], n.confirmed[s.Key] = s.Value, s.Value
		}
	}
	n.work.Unlock()
	if err := patchNodeStatus(ctx, n.fleet.client, n.name, bootStatus(bootID, true)); err != nil {
		return err
	}
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.bootID, n.booting = bootID, false
	n.wake(ctx)
	return nil
}

// Reboot simulates a reboot that the agent of the node did not request. It returns when the node is Ready again.
func (f *LightFleet) Reboot(ctx context.Context, name string) error {
	f.mu.Lock()
	n := f.nodes[name]
	f.mu.Unlock()
	if n == nil {
		return fmt.Errorf("reboot %s: no such node", name)
	}
	return n.rebootNode(ctx, nil)
}

// LoseFirst makes the next node that shuts down not return.
func (f *LightFleet) LoseFirst() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loses = true
}

// LostNode returns the node that did not return. Empty if there is none.
func (f *LightFleet) LostNode() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *LightFleet) isLost(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loses {
		f.loses, f.lost = false, name
	}
	return f.lost == name
}
