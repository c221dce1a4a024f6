package simulation

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
)

// app is a workload whose pods are recreated on other nodes. One budget covers its pods on all nodes.
type app struct {
	name     string
	owner    string
	replicas int
	// atLeast is the minAvailable of its budget; -1 means that it has no budget.
	atLeast int
	// local gives its pods an emptyDir.
	local bool
	// tolerates lets its pods start on cordoned nodes. moves is true if its owner lifts the budget only while a node of its pods is cordoned.
	tolerates, moves bool
	// uncounted is true if the disruption controller cannot count its pods, for example because their owner has no scale subresource.
	uncounted bool
	// blockedUntil is the time until which its budget lets no pod go. unseen is true if a webhook rejects dry runs, so that no dry run shows that.
	blockedUntil time.Time
	unseen       bool
}

const workloads = "work"

func (w *world) addApps(nodes int) {
	for i := range 1 + w.rng.IntN(3) {
		a := &app{name: "app" + strconv.Itoa(i), owner: "ReplicaSet", replicas: 1 + w.rng.IntN(1+nodes/2), atLeast: -1, local: w.chance(8)}
		switch {
		case w.chance(2):
			a.atLeast = w.rng.IntN(a.replicas)
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: a.name}}
			budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}}
			w.api.Add(byPeople, budget)
			a.moves = w.chance(4)
		case w.chance(3):
			a.owner = "Job"
		}
		a.tolerates = a.owner != "Job" && !a.moves && w.chance(6)
		w.apps = append(w.apps, a)
	}
	for _, name := range w.names(memapi.Nodes) {
		if w.chance(3) {
			w.addPod("daemon-"+name, name, "DaemonSet", &app{name: "daemon"})
		}
		if w.chance(4) {
			w.addPod("mirror-"+name, name, "", &app{name: "mirror"})
		}
		if w.chance(30) {
			w.addPod("bare-"+name, name, "", &app{name: "bare"})
		}
	}
	w.schedule()
	w.countBudgets()
}

func (w *world) addPod(name, node, owner string, a *app) {
	pod := a.pod(name, owner)
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = readyCondition(true)
	w.api.Add(byCluster, pod)
}

// pod returns a pod of the app that has no node yet.
func (a *app) pod(name, owner string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name, Labels: map[string]string{"app": a.name}}}
	if owner != "" {
		api := "apps/v1"
		if owner == "Job" {
			api = "batch/v1"
		}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: api, Kind: owner, Name: a.name, UID: types.UID(a.name), Controller: ptr.To(true)}}
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](40)
	if a.tolerates {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if a.name == "mirror" {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if a.local {
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	return pod
}

// runControllers runs the cluster's controllers: at random during the faults, all of them afterwards.
func (w *world) runControllers() {
	for _, run := range []func(){w.placeAgents, w.taintCordoned, w.collectGarbage, w.endPods, w.schedule, w.countBudgets, w.finishProfiles} {
		if w.quiet || !w.chance(3) {
			run()
		}
	}
}

// placeAgents acts as the DaemonSet controller.
func (w *world) placeAgents() {
	for _, o := range slices.Clone(w.api.All(memapi.Nodes)) {
		node := o.(*corev1.Node)
		desired := node.Labels[v1alpha1.ManagedLabel] == v1alpha1.True
		pod := w.api.Get(memapi.Pods, v1alpha1.AgentNamespace, "agent-"+node.Name)
		switch m := w.machines[node.Name]; {
		case desired && pod == nil:
			agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: v1alpha1.AgentNamespace, Name: "agent-" + node.Name, Labels: map[string]string{"app.kubernetes.io/component": "node-agent"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "owner", Controller: ptr.To(true)}},
			}}
			agent.Spec.NodeName = node.Name
			agent.Status.Conditions = readyCondition(m.up && !w.now.Before(m.silentUntil))
			w.api.Add(byCluster, agent)
		case !desired && pod != nil:
			w.api.Remove(byCluster, pod)
		}
	}
}

// taintCordoned acts as the node lifecycle controller.
func (w *world) taintCordoned() {
	for _, o := range slices.Clone(w.api.All(memapi.Nodes)) {
		node := o.(*corev1.Node)
		at := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		if (at >= 0) == node.Spec.Unschedulable {
			continue
		}
		w.changeNode(byTainter, node.Name, func(n *corev1.Node) {
			if at >= 0 {
				n.Spec.Taints = slices.Delete(n.Spec.Taints, at, at+1)
				return
			}
			now := metav1.NewTime(w.now)
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
		})
	}
}

// collectGarbage removes the objects of deleted Nodes.
func (w *world) collectGarbage() {
	for _, o := range slices.Clone(w.api.All(memapi.ClientNodes)) {
		node := w.node(o.GetName())
		if node == nil || !isOwned(o.(*v1alpha1.StorageClientNode), node) {
			w.api.Remove(byCluster, o)
		}
	}
	for _, o := range slices.Clone(w.api.All(memapi.Pods)) {
		if w.node(o.(*corev1.Pod).Spec.NodeName) == nil {
			w.api.Remove(byCluster, o)
		}
	}
}

func isOwned(c *v1alpha1.StorageClientNode, node *corev1.Node) bool {
	return len(c.OwnerReferences) == 1 && c.OwnerReferences[0].UID == node.UID
}

// podEvent returns the time of the next event of a pod, zero if there is none.
func (w *world) podEvent(pod *corev1.Pod) time.Time {
	switch {
	case pod.DeletionTimestamp != nil && pod.Annotations[hangs] != "" && !w.quiet:
		return time.Time{}
	case pod.DeletionTimestamp != nil && w.machines[pod.Spec.NodeName] != nil && w.now.Before(w.machines[pod.Spec.NodeName].outage.until):
		return w.machines[pod.Spec.NodeName].outage.until
	case pod.DeletionTimestamp != nil:
		return pod.DeletionTimestamp.Add(time.Duration(3+len(pod.Name)%5*8) * time.Second)
	case pod.Annotations[endsAt] != "" && pod.Status.Phase == corev1.PodRunning:
		at, _ := time.Parse(time.RFC3339, pod.Annotations[endsAt])
		return at
	case len(pod.OwnerReferences) == 1 && pod.OwnerReferences[0].Kind == "Job" && pod.Status.Phase == corev1.PodRunning:
		return pod.CreationTimestamp.Add(time.Duration(60+len(pod.UID)*60) * time.Second)
	}
	return time.Time{}
}

// endPods acts as the kubelets: terminating pods end if the machine is up.
func (w *world) endPods() {
	for _, o := range slices.Clone(w.api.All(memapi.Pods)) {
		pod := o.(*corev1.Pod)
		at := w.podEvent(pod)
		if m := w.machines[pod.Spec.NodeName]; at.IsZero() || w.now.Before(at) || m == nil || !m.up {
			continue
		}
		if pod.DeletionTimestamp != nil {
			w.api.Remove(byKubelet, pod)
			continue
		}
		memapi.Change(w.api, byKubelet, pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	}
}

// openNodes returns the nodes on which the scheduler would place a pod, by the scheduler's own helpers. A pod that tolerates a cordon may start on a
// cordoned node.
func (w *world) openNodes(pod *corev1.Pod) []string {
	var open []string
	for _, o := range w.api.All(memapi.Nodes) {
		node := o.(*corev1.Node)
		taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return w.quiet && t.Key == v1alpha1.UntunedTaint })
		if node.Spec.Unschedulable {
			// The scheduler reads the field as well as the taint.
			taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
		_, isKeptOff := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), taints, pod.Spec.Tolerations, nil, true)
		matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		if !isKeptOff && matches && err == nil && isReadyNode(node) {
			open = append(open, node.Name)
		}
	}
	return open
}

// schedule creates the missing pods of workloads.
func (w *world) schedule() {
	for _, a := range w.apps {
		open := w.openNodes(a.pod("", a.owner))
		if len(open) == 0 {
			continue
		}
		count := 0
		for _, o := range w.api.All(memapi.Pods) {
			if pod := o.(*corev1.Pod); pod.Labels["app"] == a.name && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				count++
			}
		}
		for ; count < a.replicas && (a.owner != "Job" || !w.quiet); count++ {
			w.serial++
			w.addPod(a.name+"-"+strconv.Itoa(w.serial), open[w.rng.IntN(len(open))], a.owner, a)
		}
	}
}

// countBudgets acts as the disruption controller.
func (w *world) countBudgets() {
	for _, o := range slices.Clone(w.api.All(memapi.Budgets)) {
		budget := o.(*policyv1.PodDisruptionBudget)
		healthy := 0
		for _, o := range w.api.All(memapi.Pods) {
			pod := o.(*corev1.Pod)
			if m := w.machines[pod.Spec.NodeName]; pod.Labels["app"] == budget.Name && isReadyPod(pod) && m != nil && m.up {
				healthy++
			}
		}
		at := slices.IndexFunc(w.apps, func(a *app) bool { return a.name == budget.Name })
		if w.apps[at].uncounted {
			memapi.Change(w.api, byCluster, budget, failSync)
			continue
		}
		allowed := int32(max(0, healthy-w.apps[at].atLeast))
		if w.apps[at].moves && !w.isCordoned(budget.Name) || w.now.Before(w.apps[at].blockedUntil) {
			allowed = 0
		}
		memapi.Change(w.api, byCluster, budget, func(b *policyv1.PodDisruptionBudget) {
			b.Status.ObservedGeneration = b.Generation
			b.Status.DisruptionsAllowed, b.Status.CurrentHealthy, b.Status.DesiredHealthy = allowed, int32(healthy), int32(w.apps[at].atLeast)
		})
	}
}

// isUnseen reports whether a call is a dry run about a pod whose budget no dry run shows.
func (w *world) isUnseen(call memapi.Call) bool {
	return call.DryRun && slices.ContainsFunc(w.apps, func(a *app) bool { return a.unseen && a.name == call.Name })
}

// failSync acts as failSafe of the disruption controller (pkg/controller/disruption/disruption.go).
func failSync(b *policyv1.PodDisruptionBudget) {
	b.Status.DisruptionsAllowed = 0
	b.Status.Conditions = []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
		Message: "runners.actions.example.com does not implement the scale subresource", LastTransitionTime: b.CreationTimestamp,
	}}
}

// isCordoned reports whether a node with a pod of an app is cordoned.
func (w *world) isCordoned(app string) bool {
	return slices.ContainsFunc(w.api.All(memapi.Pods), func(o memObject) bool {
		pod := o.(*corev1.Pod)
		node := w.node(pod.Spec.NodeName)
		return pod.Labels["app"] == app && node != nil && node.Spec.Unschedulable
	})
}

// endsAt is the annotation with the time at which a pod of a story's Job finishes.
const endsAt = "ends-at"

// hangs is the annotation of pods that never terminate.
const hangs = "hangs"

// hangPod lets a user delete a pod that does not terminate, for example because of a finalizer.
func (w *world) hangPod(node string) {
	for _, o := range slices.Clone(w.api.All(memapi.Pods)) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == node && mustLeave(pod) && pod.DeletionTimestamp == nil {
			w.narrate("pod %s on %s does not terminate", pod.Name, node)
			memapi.Change(w.api, byPeople, pod, func(p *corev1.Pod) {
				p.Annotations = map[string]string{hangs: "yes"}
				p.DeletionTimestamp = &metav1.Time{Time: w.now}
			})
			return
		}
	}
}

// finishProfiles acts as the profile controller: it removes the finalizer after the last node has lost the profile's settings.
func (w *world) finishProfiles() {
	for _, o := range slices.Clone(w.api.All(memapi.Profiles)) {
		profile := o.(*v1alpha1.StorageClientProfile)
		if profile.DeletionTimestamp == nil {
			continue
		}
		carried := slices.ContainsFunc(w.api.All(memapi.ClientNodes), func(o memObject) bool {
			return slices.ContainsFunc(o.(*v1alpha1.StorageClientNode).Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Profile == profile.Name })
		})
		if !carried {
			memapi.Change(w.api, byCluster, profile, func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil })
		}
	}
}
