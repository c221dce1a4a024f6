package simulation

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/windows"
)

type memObject = client.Object

const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// anyNode returns a random node. It prefers nodes that the rollout has cordoned.
func (w *world) anyNode() (*corev1.Node, *machine) {
	all := w.api.All(memapi.Nodes)
	var node *corev1.Node
	for range 3 {
		if node = all[w.rng.IntN(len(all))].(*corev1.Node); node.Annotations[v1alpha1.DisruptionAnnotation] != "" {
			break
		}
	}
	return node, w.machines[node.Name]
}

// causeMishap runs a random event caused by users, machines or clouds.
func (w *world) causeMishap() {
	node, m := w.anyNode()
	name := node.Name
	switch w.rng.IntN(32) {
	case 31:
		names := w.names(memapi.Nodes)
		w.failStorage(w.machines[names[w.rng.IntN(len(names))]], w.seconds(1800))
	case 30:
		w.deleteObjects(node)
	case 29:
		w.narrate("%s is being deleted", name)
		w.changeNode(byPeople, name, func(n *corev1.Node) { n.Finalizers = []string{"example.com/termination"} })
		w.api.Delete(byPeople, w.node(name))
	case 28:
		if w.chance(4) {
			w.narrate("hours or days pass")
			w.passTime(w.seconds([...]int{20000, 300000}[w.rng.IntN(2)]))
		}
	case 27:
		w.hangPod(name)
	case 0, 1:
		w.narrate("a user cordons or uncordons %s", name)
		w.changeNode(byPeople, name, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
	case 2:
		w.narrate("a user removes the annotation of %s", name)
		w.changeNode(byPeople, name, func(n *corev1.Node) { delete(n.Annotations, v1alpha1.DisruptionAnnotation) })
	case 3, 4:
		w.narrate("the agent of %s falls silent", name)
		w.silence(m)
	case 5:
		w.narrate("the agent of %s starts again", name)
		m.going, m.decided = "", nil
	case 6:
		w.narrate("a user reboots %s", name)
		m.ends = bootWell
		w.takeDown(m, time.Minute)
	case 7:
		w.narrate("%s is not Ready for a while", name)
		m.ends = bootHangs
		w.takeDown(m, w.seconds(600))
	case 8:
		w.narrate("a mount of %s remains", name)
		m.mounted = w.now.Add(w.seconds(1200))
	case 9:
		w.narrate("boot drift on %s", name)
		m.inForce = map[string]string{}
		m.foul++
	case 10:
		w.toggle(node, [...]string{v1alpha1.NeverDisruptAnnotation, v1alpha1.PausedAnnotation}[w.rng.IntN(2)])
	case 11:
		w.toggle(w.api.Get(memapi.Namespaces, "", v1alpha1.ManagerNamespace), v1alpha1.PausedAnnotation)
	case 12, 13, 14, 15:
		w.editProfile()
	case 16, 17:
		w.scaleDown(node)
	case 18:
		if !isReadyNode(node) {
			w.narrate("a cloud repairs %s", name)
			w.replaceNode(node, w.chance(3))
		}
	case 19:
		if w.chance(3) {
			w.narrate("%s is removed without notice", name)
			w.replaceNode(node, w.chance(3))
		}
	case 20:
		if w.chance(2) && len(w.machines) < 45 {
			w.serial++
			w.narrate("the pool grows by s%d", w.serial)
			w.addNode("s"+strconv.Itoa(w.serial), false)
		}
	case 23:
		w.narrate("packages are installed on %s", name)
		m.locked = w.now.Add(w.seconds(900))
	case 21:
		w.requestRetry(name)
	case 22:
		pool := [...]string{"a", "b"}[w.rng.IntN(2)]
		w.narrate("%s moves to pool %s", name, pool)
		w.changeNode(byPeople, name, func(n *corev1.Node) { n.Labels["pool"] = pool })
	default:
		w.ailAnything(m)
	}
}

// deleteObjects acts as a user who deletes the claims, or the StorageClientNode of a failed node.
func (w *world) deleteObjects(node *corev1.Node) {
	if c := w.present().clientNode(node.Name); c != nil && hasFailed(c) && c.Spec.RebootPermit == nil {
		w.narrate("a user deletes the StorageClientNode of %s", node.Name)
		w.api.Delete(byPeople, c)
		return
	}
	if claims := w.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap); claims != nil && w.chance(4) {
		w.narrate("the claims are lost")
		w.lenient = true
		w.api.Delete(byPeople, claims)
	}
}

// upsetMachine changes a machine just before the manager writes about it, and its agent reports the change. A machine whose boot went
// wrong may go down again.
func (w *world) upsetMachine(m *machine) {
	if m.foul > 0 && m.up && w.chance(2) {
		m.ends = bootHangs
		w.takeDown(m, w.seconds(600))
		return
	}
	switch w.rng.IntN(3) {
	case 0:
		w.narrate("a mount of %s remains", m.name)
		m.mounted = w.now.Add(w.seconds(300))
	case 1:
		w.ailAnything(m)
	}
	w.runAgent(m)
}

// failAgain may take a machine down again when the rollout has detected its failure.
func (w *world) failAgain(write memapi.Write) {
	before, _ := write.Before.(*v1alpha1.StorageClientNode)
	after, _ := write.After.(*v1alpha1.StorageClientNode)
	if w.quiet || write.Actor != byRollout || before == nil || after == nil || hasFailed(before) || !hasFailed(after) {
		return
	}
	if m := w.machines[after.Name]; m != nil && w.chance(2) {
		m.flaps = w.now
	}
}

// toggle sets or removes an annotation.
func (w *world) toggle(object memObject, key string) {
	w.narrate("a user sets or removes %s on %s", key, object.GetName())
	change := func(o memObject) {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		if all[key] != "" {
			delete(all, key)
		} else {
			all[key] = v1alpha1.True
		}
		o.SetAnnotations(all)
	}
	memapi.Change(w.api, byPeople, object, change)
}

// editProfile changes a profile, or deletes it.
func (w *world) editProfile() {
	names := w.names(memapi.Profiles)
	if len(names) == 0 {
		w.addProfile("p" + strconv.Itoa(w.rng.IntN(5)))
		return
	}
	name := names[w.rng.IntN(len(names))]
	what := w.rng.IntN(12)
	w.narrate("a user edits profile %s (%d)", name, what)
	p := w.profile(name)
	if what <= 4 || what == 8 {
		w.clearBackOffs()
	}
	switch what {
	case 0:
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = !p.Spec.Paused })
	case 1:
		mode := [...]v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModePlan}[w.rng.IntN(2)]
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = mode })
	case 2:
		policy := [...]v1alpha1.RebootPolicy{v1alpha1.RebootAutomatic, v1alpha1.RebootNever, v1alpha1.RebootOnApproval}[w.rng.IntN(3)]
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.Policy = policy })
	case 3:
		if w.chance(3) {
			w.api.Delete(byPeople, p)
		}
	case 4:
		selector, allNodes := w.anySelector()
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.NodeSelector, p.Spec.AllNodes = selector, allNodes })
	case 5:
		set := w.anyWindows()
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Windows = set })
	case 6, 7:
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.ApprovedPlan = nodesettings.PlanHash(p) })
	case 8:
		if len(names) < 6 && w.chance(2) {
			for i := range 6 {
				if fresh := "p" + strconv.Itoa(i); !slices.Contains(names, fresh) {
					w.addProfile(fresh)
					return
				}
			}
		}
	default:
		settings := w.anySettings(name)
		memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = settings })
	}
}

// scaleDown acts as an autoscaler that taints a node, and later deletes it or removes the taint.
func (w *world) scaleDown(node *corev1.Node) {
	marked := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	switch {
	case !marked:
		w.narrate("an autoscaler taints %s", node.Name)
		now := metav1.NewTime(w.now)
		w.changeNode(byCluster, node.Name, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: autoscalerTaint, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
		})
	case w.chance(2):
		w.narrate("an autoscaler removes %s", node.Name)
		w.replaceNode(node, w.chance(2))
	default:
		w.narrate("an autoscaler keeps %s after all", node.Name)
		w.removeTaint(node.Name)
	}
}

func (w *world) removeTaint(name string) {
	w.changeNode(byCluster, name, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	})
}

// replaceNode deletes a Node with its machine, and registers a new Node with the same name unless forGood is set.
func (w *world) replaceNode(node *corev1.Node, forGood bool) {
	w.noteLoss(node)
	labels := node.Labels
	w.api.Remove(byCluster, node)
	delete(w.machines, node.Name)
	if w.quiet || w.chance(2) {
		w.collectGarbage()
	}
	_, controlPlane := labels["node-role.kubernetes.io/control-plane"]
	if forGood && !controlPlane && len(w.machines) > 2 {
		return
	}
	w.addNode(node.Name, controlPlane)
	w.changeNode(byKubelet, node.Name, func(n *corev1.Node) {
		for _, key := range []string{"pool", corev1.LabelTopologyZone} {
			if value, set := labels[key]; set {
				n.Labels[key] = value
			}
		}
	})
}

// requestRetry acts as a user who requests a retry of one node or of all nodes.
func (w *world) requestRetry(node string) {
	names := w.names(memapi.Profiles)
	if len(names) == 0 {
		return
	}
	w.serial++
	value := strconv.Itoa(w.serial)
	if w.chance(2) {
		value += "/" + node
	}
	p := w.profile(names[w.rng.IntN(len(names))])
	w.narrate("a user requests a retry of %s: %s", p.Name, value)
	memapi.Change(w.api, byPeople, p, func(p *v1alpha1.StorageClientProfile) {
		p.Annotations = map[string]string{v1alpha1.RetryAnnotation: value}
	})
	w.allowRetries()
}

// endFaults ends all faults: users revert their changes, and broken machines are replaced.
func (w *world) endFaults() {
	w.narrate("the faults end")
	w.quiet = true
	w.api.RunLate()
	if w.manager.dead() {
		w.manager = w.startManager()
	}
	memapi.Change(w.api, byPeople, w.api.Get(memapi.Namespaces, "", v1alpha1.ManagerNamespace), func(o memObject) { o.SetAnnotations(nil) })
	for _, name := range w.names(memapi.Nodes) {
		w.repair(name)
	}
	w.collectGarbage()
	w.reconcileProfiles()
	w.admitPods()
	for _, o := range slices.Clone(w.api.All(memapi.Pods)) {
		if o.GetLabels()["app"] == "bare" {
			w.api.Remove(byPeople, o)
		}
	}
	for _, a := range w.apps {
		a.local = false
		a.atLeast = min(a.atLeast, a.replicas-1)
		if a.tolerates {
			// Its pods stay on a node that reboots, so the budget must let all of them go down.
			a.atLeast = min(a.atLeast, 0)
		}
	}
	for _, o := range slices.Clone(w.api.All(memapi.Pods)) {
		if len(o.(*corev1.Pod).Spec.Volumes) > 0 {
			w.api.Remove(byPeople, o)
		}
	}
	w.calmSince, w.calmAt = w.writes, w.now
	w.noteKept()
}

// admitPods removes the startup taint from Nodes that no profile selects, so that they accept the pods of the last node of a profile.
func (w *world) admitPods() {
	for _, name := range w.names(memapi.Nodes) {
		if w.declared(w.node(name)) == nil {
			w.changeNode(byPeople, name, func(n *corev1.Node) {
				n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.UntunedTaint })
			})
		}
	}
}

// repair has users remove the obstacles to a node's completion.
func (w *world) repair(name string) {
	node, m := w.node(name), w.machines[name]
	leaving := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	if (leaving && w.chance(2)) || (!m.up && m.ends == bootNever) || node.DeletionTimestamp != nil {
		w.replaceNode(node, false)
		return
	}
	if m.ends == bootWithoutEffect {
		m.ends = bootWell // of a boot in progress
	}
	w.removeTaint(name)
	m.silentUntil, m.mounted, m.locked, m.outage = time.Time{}, time.Time{}, time.Time{}, outage{}
	for _, key := range slices.Sorted(maps.Keys(m.ailments)) {
		if ails := m.ailments[key]; isBlocking(ails.state, ails.effect) || ails.state == v1alpha1.SettingDrifted {
			delete(m.ailments, key)
		}
	}
	clear(m.stuck)
	w.changeNode(byPeople, name, func(n *corev1.Node) {
		delete(n.Annotations, v1alpha1.NeverDisruptAnnotation)
		delete(n.Annotations, v1alpha1.PausedAnnotation)
		if n.Annotations[v1alpha1.DisruptionAnnotation] == "" {
			n.Spec.Unschedulable = false
		}
	})
	w.setAgentReady(name, m.up)
	c := w.present().clientNode(name)
	if m.up && c != nil && c.Status.Rollout != nil && c.Status.Rollout.Phase == v1alpha1.RolloutFailed && c.Status.Rollout.Reason == v1alpha1.RolloutReasonRebootTimedOut {
		w.narrate("a user reboots %s manually, as its note recommends", name)
		// The user reboots the node only after the agent has staged the repaired settings.
		m.stage(c)
		m.ends = bootWell
		w.takeDown(m, time.Minute)
	}
}

// reconcileProfiles changes the profiles so that all of them can complete: windows overlap, the canary has nodes, and failures are over. If no
// setting that requires a reboot changes, the user retries, as the note of a stopped profile recommends.
func (w *world) reconcileProfiles() {
	var sets []windows.Set
	for _, name := range w.names(memapi.Profiles) {
		set, err := windows.ParseSet(w.profile(name).Spec.Rollout.Windows)
		if err != nil {
			panic(err)
		}
		sets = append(sets, set)
	}
	open, again := windows.Meet(sets, w.now)
	for _, name := range w.names(memapi.Profiles) {
		settings := w.anySettings(name)
		memapi.Change(w.api, byPeople, w.profile(name), func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Paused, p.Spec.Mode, p.Spec.Rollout.Reboot.Policy = false, v1alpha1.ModeEnforce, v1alpha1.RebootAutomatic
			if before, after := ptr.Deref(p.Spec.Node, v1alpha1.NodeTuning{}), ptr.Deref(settings, v1alpha1.NodeTuning{}); slices.Equal(before.KernelArguments, after.KernelArguments) {
				w.serial++
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.RetryAnnotation, strconv.Itoa(w.serial))
			}
			p.Spec.Node = settings
			if canary := p.Spec.Rollout.Canary; canary.NodeSelector != nil {
				canary.Nodes, canary.NodeSelector = ptr.To[int32](1), nil
			}
			if !open && again.IsZero() {
				p.Spec.Rollout.Windows = nil
			}
			if slices.ContainsFunc(w.apps, func(a *app) bool { return a.moves }) {
				p.Spec.Rollout.Drain.LookAhead = v1alpha1.LookAheadCordonFirst
			}
		})
	}
	w.allowRetries()
}
