package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// witnesses verifies failed mounts that events report. The API server verifies neither the content nor the source of an event, and the
// built-in role "edit" may write and delete events. Thus an event counts only if it matches the data of other writers:
//
//   - the Pod exists, by its UID, is bound to the node that the event names, and uses the volume's claim: the scheduler binds Pods,
//     or a user who may create them in that namespace;
//   - the Node exists;
//   - the Pod's status, which its kubelet writes, shows no container that started after the event: a kubelet starts none before
//     all volumes are mounted (SyncPod of kubernetes pkg/kubelet/kubelet.go waits in WaitForAttachAndMount);
//   - the node's agent reports no mount of that volume for that Pod since the node's boot.
//
// A risk remains. A user who may create Pods and write events in a namespace can fake a failed mount. It affects a volume that is bound to a
// claim of that namespace, and needs a Pod that does not start. They can also delete events of a kubelet, or report the failure of a batch
// before it starts. No volume of another namespace is reverted for that reason. But volumes that wait for the batch keep waiting until the
// profile's volume rules change.
type witnesses struct {
	reader client.Reader
	pods   map[types.NamespacedName]*podFacts
	nodes  map[string]*nodeFacts
}

type podFacts struct {
	uid  types.UID
	node string
	// volumes are the pod's names of its volumes, by claim.
	volumes map[string][]string
	// started is the start of its most recently started container, by the node's clock. Zero if it has not started any. accepted is the time at
	// which the kubelet first saw the pod, by the same clock.
	started, accepted time.Time
	// first is the earliest start of a container in the pod's status. Zero if it has not started any.
	first time.Time
	// arrived is the time at which the pod was bound to its node, by the API server's clock.
	arrived time.Time
	// completed is true if the kubelet unmounts the volumes, even if the pod stays. finished is true if the pod cannot start another container.
	completed, finished bool
}

type nodeFacts struct {
	exists   bool
	hasAgent bool
	// mounts are the mounts that its agent has reported since the node's boot.
	mounts []v1alpha1.MountStatus
}

func newWitnesses(reader client.Reader) *witnesses {
	return &witnesses{reader: reader, pods: map[types.NamespacedName]*podFacts{}, nodes: map[string]*nodeFacts{}}
}

// ClaimUsers returns the nodes on which the API server shows a pod with a claim, by claim. A node's word about the mount of a volume counts only
// for these nodes. The result is valid with an error, but incomplete.
func ClaimUsers(ctx context.Context, reader client.Reader, claims []types.NamespacedName) (map[types.NamespacedName]sets.Set[string], error) {
	out, namespaces := map[types.NamespacedName]sets.Set[string]{}, sets.New[string]()
	for _, volumeClaim := range claims {
		out[volumeClaim] = sets.New[string]()
		namespaces.Insert(volumeClaim.Namespace)
	}
	w := newWitnesses(reader)
	var failed []error
	for namespace := range namespaces {
		failed = append(failed, w.listPods(ctx, namespace, nil))
	}
	for key, pod := range w.pods {
		for name := range pod.volumes {
			volumeClaim := types.NamespacedName{Namespace: key.Namespace, Name: name}
			if nodes := out[volumeClaim]; nodes != nil && pod.isUserOf(key, volumeClaim) && !pod.completed {
				nodes.Insert(pod.node)
			}
		}
	}
	return out, errors.Join(failed...)
}

// isUserOf reports whether the API server shows the pod on a node, with a claim. A kubelet cannot create such a pod.
func (p *podFacts) isUserOf(key, volumeClaim types.NamespacedName) bool {
	return p.node != "" && key.Namespace == volumeClaim.Namespace && len(p.volumes[volumeClaim.Name]) > 0
}

func readPods(ctx context.Context, reader client.Reader, namespaces []string) (*witnesses, error) {
	w := newWitnesses(reader)
	for _, namespace := range namespaces {
		if err := w.listPods(ctx, namespace, nil); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// readNamedPods reads the pods that events name. It reads a whole namespace if events name too many pods there. Anyone can write many events: with a
// fixed limit of lookups, forged events could hide a real one.
func readNamedPods(ctx context.Context, reader client.Reader, failedMounts []*failedMount) (*witnesses, error) {
	w := newWitnesses(reader)
	pods := map[string]sets.Set[string]{}
	for _, f := range failedMounts {
		if pods[f.pod.Namespace] == nil {
			pods[f.pod.Namespace] = sets.New[string]()
		}
		pods[f.pod.Namespace].Insert(f.pod.Name)
	}
	lookups := maxPodLookups
	for _, namespace := range slices.Sorted(maps.Keys(pods)) {
		names := pods[namespace]
		if names.Len() > lookups {
			if err := w.listPods(ctx, namespace, names); err != nil {
				return nil, err
			}
			continue
		}
		lookups -= names.Len()
		for name := range names {
			if err := w.getPod(ctx, types.NamespacedName{Namespace: namespace, Name: name}); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

func (w *witnesses) getPod(ctx context.Context, key types.NamespacedName) error {
	var pod corev1.Pod
	found, err := read.Find(ctx, w.reader, key, &pod)
	if found {
		w.pods[key] = factsOf(&pod)
	}
	return err
}

// listPods reads the named pods of a namespace, or all if names is nil.
func (w *witnesses) listPods(ctx context.Context, namespace string, names sets.Set[string]) error {
	for token := ""; ; {
		var page corev1.PodList
		if err := w.reader.List(ctx, &page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token)); err != nil {
			return fmt.Errorf("list Pods in namespace %q: %w", namespace, err)
		}
		for i := range page.Items {
			if pod := &page.Items[i]; names == nil || names.Has(pod.Name) {
				w.pods[client.ObjectKeyFromObject(pod)] = factsOf(pod)
			}
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

func factsOf(pod *corev1.Pod) *podFacts {
	facts := &podFacts{
		uid: pod.UID, node: pod.Spec.NodeName, volumes: map[string][]string{}, arrived: arrivalOf(pod),
		accepted:  ptr.Deref(pod.Status.StartTime, metav1.Time{}).Time,
		completed: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	facts.finished = facts.completed || !pod.DeletionTimestamp.IsZero()
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			facts.volumes[v.PersistentVolumeClaim.ClaimName] = append(facts.volumes[v.PersistentVolumeClaim.ClaimName], v.Name)
		case v.Ephemeral != nil:
			facts.volumes[pod.Name+"-"+v.Name] = append(facts.volumes[pod.Name+"-"+v.Name], v.Name)
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			facts.addStart(state)
		}
	}
	return facts
}

// addStart records the start in a state of a container. The state before a restart has an earlier one.
func (p *podFacts) addStart(state corev1.ContainerState) {
	start := cmp.Or(ptr.Deref(state.Running, corev1.ContainerStateRunning{}).StartedAt.Time, ptr.Deref(state.Terminated, corev1.ContainerStateTerminated{}).StartedAt.Time)
	if start.After(p.started) {
		p.started = start
	}
	if p.first.IsZero() || !start.IsZero() && start.Before(p.first) {
		p.first = start
	}
}

// volumesOf returns the watched volumes that a pod uses, if it exists.
func (w *witnesses) volumesOf(key types.NamespacedName, byClaim map[types.NamespacedName][]plan.Watched) []plan.Watched {
	pod := w.pods[key]
	if pod == nil {
		return nil
	}
	var out []plan.Watched
	for volumeClaim := range pod.volumes {
		out = append(out, byClaim[types.NamespacedName{Namespace: key.Namespace, Name: volumeClaim}]...)
	}
	return out
}

// confirm reports whether a failed mount may really concern a volume.
func (w *witnesses) confirm(ctx context.Context, f *failedMount, pv *corev1.PersistentVolume) (bool, error) {
	pod := w.pods[f.pod]
	if pod == nil || pod.uid != f.podUID || pod.node != f.node || !pod.waitsFor(f, pv) || pod.startedAfter(f.last) {
		return false, nil
	}
	node, err := w.factsOfNode(ctx, pod.node)
	if err != nil {
		return false, err
	}
	return node.exists && !node.reports(pv, pod), nil
}

// reports reports whether the node's agent shows a mount of a volume for a pod.
func (n *nodeFacts) reports(pv *corev1.PersistentVolume, pod *podFacts) bool {
	return slices.ContainsFunc(n.mounts, func(mount v1alpha1.MountStatus) bool {
		return mount.Volume == pv.Name && slices.Contains(mount.PodUIDs, string(pod.uid))
	})
}

// waitsFor reports whether the pod uses a volume, and the event concerns it. An event without volume names may concern any.
func (p *podFacts) waitsFor(f *failedMount, pv *corev1.PersistentVolume) bool {
	volumeClaim, _ := judge.ClaimOf(pv)
	return slices.ContainsFunc(p.volumes[volumeClaim.Name], func(name string) bool {
		return f.unmounted == nil || slices.Contains(f.unmounted, name)
	})
}

// startedAfter reports whether the pod has started since a time by its node's clock.
func (p *podFacts) startedAfter(at time.Time) bool {
	return !p.started.IsZero() && !p.started.Before(at)
}

// hasFirstStartedSince reports whether the pod's first known start was not before a time by the API server's clock. Its volumes were mounted before.
// A kubelet sees a pod right after it was bound. A pod of unknown age on its node counts as started when it was bound.
func (p *podFacts) hasFirstStartedSince(at time.Time) bool {
	started := p.arrived
	if !p.accepted.IsZero() {
		started = started.Add(p.first.Sub(p.accepted))
	}
	return !p.first.IsZero() && !started.Before(at)
}

func (w *witnesses) factsOfNode(ctx context.Context, name string) (*nodeFacts, error) {
	if known := w.nodes[name]; known != nil {
		return known, nil
	}
	facts, key := &nodeFacts{}, types.NamespacedName{Name: name}
	var node corev1.Node
	var clientNode v1alpha1.StorageClientNode
	var err error
	if facts.exists, err = read.Find(ctx, w.reader, key, &node); err != nil {
		return nil, err
	}
	if facts.hasAgent, err = read.Find(ctx, w.reader, key, &clientNode); err != nil {
		return nil, err
	}
	if clientNode.Status.BootID == node.Status.NodeInfo.BootID {
		facts.mounts = clientNode.Status.Mounts
	}
	w.nodes[name] = facts
	return facts, nil
}

// arrivalOf returns the time at which a pod was bound to its node, from the API server: no kubelet knew it before.
func arrivalOf(pod *corev1.Pod) time.Time {
	arrived := pod.CreationTimestamp.Time
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue && condition.LastTransitionTime.After(arrived) {
			arrived = condition.LastTransitionTime.Time
		}
	}
	return arrived
}
