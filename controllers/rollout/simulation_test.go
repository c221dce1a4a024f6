package rollout

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/windows"
)

var (
	schedules = flag.Int("schedules", 0, "number of random schedules to play; 0 plays at least 1000, and more until -for has passed")
	playFor   = flag.Duration("for", 20*time.Second, "how long to play without -schedules")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first of them")
)

// leastSchedules is the minimum number of schedules that the test plays without -schedules, even on a slow machine.
const leastSchedules = 1000

// isWanted returns a function that reports whether the schedule of a seed must be played.
func isWanted() func(seed uint64) bool {
	deadline := time.Now().Add(*playFor)
	return func(seed uint64) bool {
		number := seed - *firstSeed
		if *schedules > 0 {
			return number < uint64(*schedules)
		}
		return number < leastSchedules || time.Now().Before(deadline)
	}
}

// TestRandomSchedules plays random schedules with faults. Each schedule must end without any trace of the operator.
func TestRandomSchedules(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1600))
	var next atomic.Uint64
	var wait sync.WaitGroup
	next.Store(*firstSeed)
	wanted := isWanted()
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for seed := next.Add(1) - 1; wanted(seed) && !t.Failed(); seed = next.Add(1) - 1 {
				if w := play(seed, 1, false); w.broken != nil {
					w = play(seed, 1, true)
					t.Errorf("seed %d: %v\n%s", seed, w.broken, strings.Join(w.log, "\n"))
				}
			}
		})
	}
	wait.Wait()
	played := next.Load() - *firstSeed - uint64(runtime.GOMAXPROCS(0)) // each worker stops at a seed that it does not play
	t.Logf("played %d schedules, seeds %d to %d", played, *firstSeed, *firstSeed+played-1)
}

// TestSchedulesOfManyWorkers plays schedules in which a pass handles several nodes at a time. The order of events in a pass is
// random, so a seed determines only the start of the schedule.
func TestSchedulesOfManyWorkers(t *testing.T) {
	const played = 400
	for seed := *firstSeed; seed < *firstSeed+played; seed++ {
		if w := play(seed, 4, true); w.broken != nil {
			t.Fatalf("seed %d: %v\n%s", seed, w.broken, strings.Join(w.log, "\n"))
		}
	}
}

// play plays one schedule: first a period with faults, then a period without faults, which must finish all work.
func play(seed uint64, workers int, verbose bool) *world {
	w := newWorld(seed)
	w.workers, w.verbose = workers, verbose
	w.addNodesAndProfiles()
	faults := &faults{world: w}
	for range 60 + w.rng.IntN(120) {
		if faults.runEvent(); w.broken != nil {
			return w
		}
	}
	w.endFaults()
	for range 3000 {
		if w.playWithoutFaults(); w.broken != nil || w.remainingWork() == "" {
			return w
		}
	}
	w.fail("livelock: %s", w.remainingWork())
	return w
}

func (w *world) addNodesAndProfiles() {
	var all []string
	for i := range 3 + w.rng.IntN(4) {
		all = append(all, fmt.Sprintf("n%d", i))
	}
	w.budget, w.rejectOneIn, w.failThreeBootsIn, w.interruptOneIn, w.zones = 1+w.rng.IntN(3), 12, 16, 40, w.rng.IntN(len(labelSets))
	if w.rng.IntN(4) == 0 {
		w.failThreeBootsIn = 5
	}
	if w.rng.IntN(6) == 0 {
		w.rejectOneIn = 1
	}
	if w.rng.IntN(3) == 0 {
		w.interruptOneIn = 8
	}
	// In a third of the schedules, most nodes are control-plane nodes. Three of them, with two out of service, would be rare
	// otherwise.
	plenty := [...]int{1, 1, 4}[w.rng.IntN(3)]
	for _, name := range all {
		n := w.addNode(name)
		n.Manager = name == "n1"
		n.Untuned = w.rng.IntN(4) == 0
		n.ControlPlane = w.rng.IntN(5) < plenty
		n.Labels = w.anyLabels()
	}
	if w.controlPlanes() == 1 {
		w.nodes[all[0]].ControlPlane = false
		for _, n := range w.nodes {
			n.ControlPlane = false
		}
	}
	w.addProfile("alpha", w.anyRollout, all...).Windows = w.anyWindows()
	if w.rng.IntN(2) == 0 {
		w.addProfile("beta", w.anyRollout, all[:1+w.rng.IntN(len(all))]...).Windows = w.anyWindows()
	}
	for _, name := range all {
		if w.rng.IntN(3) == 0 {
			w.changeRandomAilment(w.nodes[name])
		}
	}
}

// labelSets are the possible labels of nodes: with or without a zone, and with or without the canary label.
var labelSets = []map[string]string{
	nil,
	{corev1.LabelTopologyZone: "x"},
	{corev1.LabelTopologyZone: "y"},
	{corev1.LabelTopologyZone: "y", "canary": "yes"},
	{corev1.LabelTopologyZone: "x", "canary": "yes"},
}

// anyLabels returns random labels. Some schedules have more zones than others.
func (w *world) anyLabels() map[string]string {
	return labelSets[w.rng.IntN(1+w.zones)]
}

// windowSets contains short windows, which open and close during a schedule.
var windowSets = func() []windows.Set {
	var out []windows.Set
	for _, list := range [][]v1alpha1.Window{
		{{Schedule: "*/20 * * * *", DurationSeconds: 400}},
		{{Schedule: "*/30 * * * *", DurationSeconds: 600, TimeZone: "Europe/Berlin"}},
		{{Schedule: "10 * * * *", DurationSeconds: 900, TimeZone: "Asia/Kolkata"}, {Schedule: "0 0-22/2 * * *", DurationSeconds: 1200}},
	} {
		set, err := windows.ParseSet(list)
		if err != nil {
			panic(err)
		}
		out = append(out, set)
	}
	return out
}()

func (w *world) anyWindows() windows.Set {
	if w.rng.IntN(3) > 0 {
		return nil
	}
	return windowSets[w.rng.IntN(len(windowSets))]
}

func (w *world) controlPlanes() int {
	count := 0
	for _, n := range w.nodes {
		if n.ControlPlane {
			count++
		}
	}
	return count
}

func (w *world) anyRollout(r *v1alpha1.Rollout) {
	r.MaxUnavailable = ptr.To(intstr.FromInt(1 + w.rng.IntN(2)))
	r.Canary = &v1alpha1.Canary{Nodes: ptr.To(1 + w.rng.Int32N(2)), SoakSeconds: ptr.To(w.rng.Int32N(90))}
	r.FailureThreshold = ptr.To(1 + w.rng.Int32N(3))
	r.SettleSeconds = ptr.To(w.rng.Int32N(60))
	r.Drain.TimeoutSeconds = ptr.To(60 + w.rng.Int32N(900))
	r.Reboot.TimeoutSeconds = ptr.To(200 + w.rng.Int32N(600))
	r.Reboot.RestoreReboot = w.rng.IntN(2) == 0
	if w.rng.IntN(3) == 0 {
		r.Drain.ExcludeFromLoadBalancersSeconds = 1 + w.rng.Int32N(120)
	}
	if w.rng.IntN(4) == 0 {
		r.Canary.Nodes, r.Canary.NodeSelector = nil, &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
	}
}

// faults adds random events to a world.
type faults struct {
	*world
	// old contains former versions of the nodes.
	old map[string][]*simNode
	// nested is true while a second manager works inside a pass of the first.
	nested bool
}

// runEvent runs one random event.
func (f *faults) runEvent() {
	f.recordOldNodes()
	switch f.rng.IntN(10) {
	case 0, 1, 2, 3:
		f.runManager("m")
	case 4, 5, 6:
		f.runAgents()
	case 7, 8:
		f.passTime(time.Duration(1+f.rng.IntN(90)) * time.Second)
	default:
		f.causeMishap()
	}
	if !f.lenient {
		f.check()
	}
	f.checkOneControlPlane()
}

func (f *faults) runAgents() {
	for _, name := range f.nodeNames {
		if f.rng.IntN(3) > 0 {
			f.followProfiles(f.nodes[name])
		}
		if f.rng.IntN(3) > 0 {
			f.runAgent(f.nodes[name])
		}
	}
}

func (f *faults) recordOldNodes() {
	if f.old == nil {
		f.old = map[string][]*simNode{}
	}
	for name, n := range f.nodes {
		f.old[name] = append(f.old[name], copyNode(n))
		f.old[name] = f.old[name][max(0, len(f.old[name])-6):]
	}
}

// runManager makes a pass with a stale cache. The manager may die or be overtaken at any read or write.
func (f *faults) runManager(name string) {
	m := &manager{world: f.world, name: name}
	if f.rng.IntN(2) == 0 {
		m.stale = func(n *simNode) *simNode {
			versions := f.old[n.Name]
			if len(versions) == 0 || f.rng.IntN(2) == 0 {
				return n
			}
			return versions[f.rng.IntN(len(versions))]
		}
	}
	before := f.interrupt
	defer func() { f.interrupt = before }()
	f.interrupt = func(string) { f.interruptPass() }
	m.makePass()
}

// interruptPass runs at reads and writes of a pass.
func (f *faults) interruptPass() {
	switch f.rng.IntN(f.interruptOneIn) {
	case 0:
		panic(errDied)
	case 1:
		f.runAgents()
		f.runDrains()
	case 2:
		f.causeMishap()
	case 4:
		f.narrate("time passes")
		f.passTime(time.Duration(f.rng.IntN(300)) * time.Second)
	case 3:
		if !f.nested {
			f.nested, f.lenient = true, true
			f.narrate("two managers overlap")
			f.runManager("second")
			f.nested = false
			delete(f.drains, "second")
		}
	}
}

// makePass makes one pass. It returns normally even if the process of the manager dies.
func (m *manager) makePass() (next time.Time) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if err, ok := cause.(error); !ok || !errors.Is(err, errDied) {
			panic(cause)
		}
		m.narrate("%s dies", m.name)
		delete(m.drains, m.name)
	}()
	next, unfinished, err := runPass(context.Background(), m, m.workers)
	if err == nil && !unfinished {
		for name, n := range m.seen {
			if live := m.nodes[name]; live != nil && live.ClientNode != nil && live.ClientNode.Spec.RebootPermit != nil {
				live.known = n.cordonChanges
			}
		}
	}
	if err != nil && !errors.Is(err, errDied) {
		m.narrate("%s: %v", m.name, err)
	}
	return next
}

// causeMishap runs one action of a user, a machine or a cloud.
func (f *faults) causeMishap() {
	name := f.nodeNames[f.rng.IntN(len(f.nodes))]
	n := f.nodes[name]
	switch f.rng.IntN(25) {
	case 24:
		f.failStorage(n, time.Duration(f.rng.IntN(1800))*time.Second)
	case 22, 23:
		f.changeRandomAilment(n)
	case 0:
		f.narrate("somebody cordons or uncordons %s", name)
		n.Unschedulable = !n.Unschedulable
		if n.UnavailableSince = nil; n.Unschedulable || !n.Ready {
			n.UnavailableSince = ptr.To(f.now)
		}
		n.cordonChanges++
		n.nodeRV++
	case 1:
		f.narrate("somebody takes the mark off %s", name)
		n.Mark = nil
		n.cordonChanges++
		n.nodeRV++
	case 2:
		f.narrate("the agent of %s falls silent", name)
		n.machine.silentUntil = f.now.Add(time.Duration(f.rng.IntN(3000)) * time.Second)
		n.AgentReady = false
		n.nodeRV++
	case 3:
		f.narrate("%s is not Ready for a while", name)
		f.makeUnready(n)
		if n.machine.downUntil.IsZero() {
			n.machine.downUntil, n.machine.boot = f.now.Add(time.Duration(f.rng.IntN(600))*time.Second), bootOldID
		}
	case 4:
		f.narrate("somebody reboots %s", name)
		f.makeUnready(n)
		n.machine.downUntil, n.machine.boot, n.machine.registered = f.now.Add(time.Minute), bootWell, false
	case 5:
		f.narrate("a mount of %s stays", name)
		n.machine.mounted = f.now.Add(time.Duration(f.rng.IntN(1200)) * time.Second)
	case 6:
		f.narrate("boot drift on %s", name)
		n.machine.inForce = map[string]string{}
		n.machine.worsened++
	case 7:
		n.NeverDisrupt = !n.NeverDisrupt
		n.nodeRV++
		f.narrate("never-disrupt of %s: %t", name, n.NeverDisrupt)
	case 8:
		f.paused = !f.paused
		f.narrate("paused: %t", f.paused)
	case 9:
		f.editProfiles()
	case 10:
		f.deleteNode(n)
	case 11:
		if f.rng.IntN(4) == 0 {
			f.lenient = true
			f.narrate("the claims are lost")
			f.claims = map[string]v1alpha1.Disruption{}
			f.claimsRV++
		}
	case 12:
		n.Paused = !n.Paused
		n.nodeRV++
		f.narrate("paused %s: %t", name, n.Paused)
	case 13:
		f.narrate("new pod on %s, whatever its cordon", name)
		if !n.Unschedulable {
			n.pods = append(n.pods, f.newPod())
		}
	case 14:
		f.scaleDown(n)
	case 15, 16, 17:
		if n = f.pickTroubledNode(n); !n.Ready || f.hasFailed(n) {
			f.renames = f.rng.IntN(2) == 0
			f.repairMachine(n)
		}
	case 19:
		if n = f.pickTroubledNode(n); f.rng.IntN(3) == 0 {
			f.narrate("%s is taken away without a word", n.Name)
			f.replaceNode(n)
		}
	case 20:
		f.scaleDown(f.pickTroubledNode(n))
	case 21:
		if f.rng.IntN(3) == 0 {
			f.requestRetry(name)
		}
	case 18:
		if f.hasFailed(n) && n.ClientNode.Spec.RebootPermit == nil {
			f.narrate("somebody deletes the StorageClientNode of %s", name)
			n.ClientNode = nil
			n.clientNodeRV++
		}
	}
}

// editProfiles changes or deletes a profile.
func (f *faults) editProfiles() {
	for _, name := range f.profileNames {
		p := f.profiles[name]
		if f.rng.IntN(2) == 0 {
			continue
		}
		switch f.rng.IntN(7) {
		case 6:
			p.Windows = f.anyWindows()
		case 0:
			p.Paused = [...]string{"", v1alpha1.ReasonPausedByField}[f.rng.IntN(2)]
		case 1:
			p.Inert = [...]string{"", v1alpha1.ReasonPlanMode}[f.rng.IntN(2)]
		case 2:
			p.Rollout.Reboot.Policy = [...]v1alpha1.RebootPolicy{v1alpha1.RebootAutomatic, v1alpha1.RebootNever, v1alpha1.RebootOnApproval}[f.rng.IntN(3)]
		case 3:
			p.Deleting = p.Deleting || f.rng.IntN(2) == 0
		default:
			p.version++
		}
		f.narrate("profile %s: version %d, paused %q, inert %q, policy %s, deleting %t", p.Name, p.version, p.Paused, p.Inert, p.Rollout.Reboot.Policy, p.Deleting)
	}
}

// scaleDown is an autoscaler that taints a node. Later it deletes the node or removes the taint.
func (f *faults) scaleDown(n *simNode) {
	switch {
	case n.Leaving == "":
		n.Leaving, n.machine.markedReady = "ToBeDeletedByClusterAutoscaler", n.Ready
		f.narrate("an autoscaler taints %s", n.Name)
	case f.rng.IntN(3) > 0:
		f.replaceNode(n)
		return
	default:
		// A user may have uncordoned the node in the meantime.
		n.Leaving = ""
		n.cordonChanges++
		f.narrate("an autoscaler keeps %s after all", n.Name)
	}
	n.nodeRV++
}

// deleteNode deletes a Node with its objects, and may create a new Node of the same name.
func (f *faults) deleteNode(n *simNode) {
	if f.rng.IntN(3) > 0 {
		return
	}
	if !n.Deleting {
		f.narrate("%s is being deleted", n.Name)
		n.Deleting = true
		n.cordonChanges++
		n.nodeRV++
		return
	}
	f.replaceNode(n)
}

func (w *world) replaceNode(n *simNode) {
	w.loseNode(n)
	if len(w.nodes) > 3 && !n.ControlPlane && w.rng.IntN(3) == 0 {
		w.narrate("%s is gone", n.Name)
		delete(w.nodes, n.Name)
		w.nodeNames = slices.Sorted(maps.Keys(w.nodes))
		return
	}
	w.narrate("%s is gone, and a new one comes", n.Name)
	rv := n.nodeRV
	fresh := w.addNode(n.Name)
	fresh.nodeRV, fresh.clientNodeRV = rv+1, n.clientNodeRV+1
	fresh.Manager, fresh.ControlPlane = n.Manager, n.ControlPlane
	fresh.Labels, fresh.Untuned = n.Labels, w.rng.IntN(2) == 0
}

// endFaults ends all faults: users undo their changes, and a cloud replaces broken machines.
func (w *world) endFaults() {
	w.quiet, w.paused, w.interrupt = true, false, nil
	w.narrate("the faults end")
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		n.NeverDisrupt, n.Paused = false, false
		n.machine.silentUntil, n.machine.mounted, n.machine.busyUntil = time.Time{}, time.Time{}, time.Time{}
		n.machine.storage = outage{}
		w.endAilments(n)
		if n.Unschedulable && n.Mark == nil {
			n.Unschedulable = false
			n.cordonChanges++
		}
		for i := range n.pods {
			n.pods[i].blockedUntil = time.Time{}
			n.pods[i].runsUntil = time.Time{}
		}
		if !n.machine.downUntil.IsZero() && n.machine.boot != bootNever {
			w.comeUp(n)
		}
		n.AgentReady = n.Ready
		n.nodeRV++
		isRemoved := n.Leaving != "" && w.rng.IntN(2) == 0
		if n.Leaving = ""; isRemoved || n.Deleting || n.machine.boot == bootNever && !n.machine.downUntil.IsZero() {
			w.replaceNode(n)
		}
	}
	w.reconcilePeople()
}

// reconcilePeople changes the profiles so that all of them can finish: windows overlap, and at least one node is the canary.
func (w *world) reconcilePeople() {
	var sets []windows.Set
	for _, name := range w.profileNames {
		p := w.profiles[name]
		p.Paused, p.Inert, p.Rollout.Reboot.Policy = "", "", v1alpha1.RebootAutomatic
		p.version += 100
		if canary := p.Rollout.Canary; canary.NodeSelector != nil {
			p.Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: canary.SoakSeconds}
		}
		sets = append(sets, p.Windows)
	}
	if open, again := windows.Meet(sets, w.now); !open && again.IsZero() {
		for _, p := range w.profiles {
			p.Windows = nil
		}
	}
}

// playWithoutFaults plays a turn without faults: due steps run, and time passes.
func (w *world) playWithoutFaults() {
	before := w.countWrites()
	m := &manager{world: w, name: "m"}
	next := m.makePass()
	w.check()
	w.checkOneControlPlane()
	w.checkClosed()
	w.checkGuards()
	w.checkKept()
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		w.followProfiles(n)
		w.runAgent(n)
		if w.hasFailed(n) && n.ClientNode.Spec.Release && n.ClientNode.Status.RebootRequired && n.machine.downUntil.IsZero() {
			// A change of a profile cannot help a node that no profile selects any longer.
			w.narrate("somebody reboots %s, which has failed", name)
			w.makeUnready(n)
			n.machine.downUntil, n.machine.boot = w.now.Add(time.Minute), bootWell
		}
	}
	if w.countWrites() != before {
		w.passTime(5 * time.Second)
		return
	}
	w.passTime(w.idleTime(next))
}

// countWrites returns the number of writes so far.
func (w *world) countWrites() int {
	sum := w.claimsRV + w.failuresRV
	for _, n := range w.nodes {
		sum += n.nodeRV + n.clientNodeRV
	}
	return sum
}

// idleTime returns the time until the next event: the next pass, or the next change of a machine, an agent or a pod.
func (w *world) idleTime(next time.Time) time.Duration {
	const least, most = 5 * time.Second, time.Hour
	end := w.now.Add(most)
	earlier := func(t time.Time) {
		if t.After(w.now) && t.Before(end) {
			end = t
		}
	}
	earlier(next)
	for _, n := range w.nodes {
		earlier(n.machine.downUntil)
		earlier(n.machine.silentUntil)
		earlier(n.machine.mounted)
		earlier(n.machine.busyUntil)
		earlier(n.machine.storage.until)
		if w.repairAfter > 0 && !n.Ready {
			earlier(n.ReadySince.Add(w.repairAfter))
		}
		for _, p := range n.pods {
			earlier(p.goneAt)
			earlier(p.runsUntil)
		}
	}
	return max(end.Sub(w.now), least)
}

// checkClosed checks that a closing window ends a drain. A permit outlives the window until its end. A node may keep its state for a
// moment after its agent has rejected a permit.
func (w *world) checkClosed() {
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		if n.Mark == nil || n.Deleting || n.ClientNode == nil || n.ClientNode.Spec.RebootPermit != nil || w.hasFailed(n) || n.noteReason() == v1alpha1.RolloutReasonPermitRefused {
			continue
		}
		for _, profile := range n.budgetsNeeded(w) {
			if open, _ := w.profiles[profile].Windows.At(w.now); !open {
				w.fail("invariant 2: the drain of %s continues outside the windows of profile %s", name, profile)
			}
		}
	}
}

// noteReason returns the reason of the node's note, or an empty string without a note.
func (n *simNode) noteReason() string {
	if note := n.ClientNode.Status.Rollout; note != nil {
		return note.Reason
	}
	return ""
}

// checkGuards checks that no guard outlives the disruption annotation, except on a node that is about to be cordoned or may still go down.
func (w *world) checkGuards() {
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		_, claimed := w.claims[name]
		permitted := n.ClientNode != nil && n.ClientNode.Spec.RebootPermit != nil
		if n.Guarded && n.Mark == nil && !claimed && !permitted && !n.Deleting {
			w.fail("invariant 5: guards remain on %s", name)
		}
	}
}

// remainingWork returns the remaining work, empty if there is none.
func (w *world) remainingWork() string {
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		settings, _ := w.desiredSettings(n)
		switch {
		case n.Mark != nil || n.Unschedulable:
			return name + " is cordoned"
		case n.Guarded:
			return name + " has guards"
		case n.Maintenance != plan.MaintenanceNone:
			return name + " has conditions of the operator"
		case len(settings) == 0 && n.ClientNode != nil:
			return name + " is not released"
		case n.ClientNode == nil:
			continue
		case n.Untuned && !w.keepsTaint(n):
			return name + " has the taint"
		case n.ClientNode.Spec.RebootPermit != nil:
			return name + " has a permit"
		case n.ClientNode.Status.Rollout == nil || n.ClientNode.Status.Rollout.Phase != v1alpha1.RolloutUpToDate:
			return fmt.Sprintf("%s is not done: %+v", name, n.ClientNode.Status.Rollout)
		}
		for _, s := range settings {
			if isBootKey(s.Key) && n.machine.inForce[s.Key] != s.Value && !n.isUnsupported(s.Key) {
				return name + " is without " + s.Key
			}
		}
	}
	if len(w.claims) > 0 {
		return fmt.Sprintf("claims are left: %v", w.claims)
	}
	return ""
}
