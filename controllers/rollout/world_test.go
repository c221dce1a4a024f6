package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/shadow"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// world is a cluster in memory: the objects in the API server, the machines, and their agents. Every write checks the invariants.
type world struct {
	now      time.Time
	rng      *rand.Rand
	budget   int
	paused   bool
	claims   map[string]v1alpha1.Disruption
	claimsRV int
	// failures are the recorded failures of nodes, by profile.
	failures     map[string]v1alpha1.ProfileFailures
	failuresRV   int
	profiles     map[string]*simProfile
	nodes        map[string]*simNode
	declarations map[string]*declaration
	// nodeNames and profileNames are sorted. Neither set changes once it is filled.
	nodeNames, profileNames []string
	serial                  int
	// log is the narrative. It is recorded only if verbose is set.
	verbose bool
	log     []string
	// lenient is set once the claims were lost, or another manager has overtaken a manager.
	lenient bool
	// quiet ends all faults. Until then, agents reject one permit in rejectOneIn and delay another. Three boots in failThreeBootsIn
	// fail, and one read or write in interruptOneIn interrupts a pass.
	quiet                                         bool
	rejectOneIn, failThreeBootsIn, interruptOneIn int
	// zones is the number of label sets that nodes have.
	zones int
	// deterministic omits random events.
	deterministic bool
	// workers is the number of nodes that a manager handles at a time. With one worker, a schedule can be replayed.
	workers int
	// interrupt runs before every read and write of a manager. It may be nil.
	interrupt func(where string)
	// ineffective contains the objects and targets whose settings were withheld after a reboot without effect.
	ineffective sets.Set[string]
	// broken is the first violation of an invariant.
	broken error
	// drains are the drains in progress in the background, by manager and node.
	drains map[string]map[string]*simDrain
	// wastedEvictions counts the evictions of drains that timed out.
	wastedEvictions int32
	// costOfAttempts counts the evictions of drains that timed out after a node was cordoned first.
	costOfAttempts int32
	// losses are the machines that were deleted while they had a permit or had failed.
	losses []*loss
	// repairAfter is the time after which a cloud replaces a machine that is down. Zero means never. renames gives the new
	// machine another name.
	repairAfter time.Duration
	renames     bool
}

// simProfile declares a kernel argument and a module parameter for the listed nodes. The value of the kernel argument is the
// version.
type simProfile struct {
	plan.Profile
	version int
	nodes   []string
	// bootsAs determines how boots with this kernel argument end when they are not random.
	bootsAs bootKind
}

func (p *simProfile) key() string { return "kernelArgument/" + p.Name }

func (p *simProfile) moduleKey() string { return "module/" + p.Name }

func (p *simProfile) settings() []v1alpha1.NodeSetting {
	return []v1alpha1.NodeSetting{
		{Key: p.key(), Value: strconv.Itoa(p.version), Profile: p.Name, OnRemoval: v1alpha1.DeletionRestore},
		{Key: p.moduleKey(), Value: "1", Profile: p.Name, OnRemoval: v1alpha1.DeletionRestore},
	}
}

// rules returns the profile as a manager reads it.
func (p *simProfile) rules() plan.Profile {
	out := p.Profile
	hash := fmt.Sprintf("%s%d", p.Name, p.version)
	if p.Deleting {
		hash += " released"
	}
	out.SettingsHash = hash
	if out.PlanHash = hash; len(p.Windows) > 0 {
		out.PlanHash += " in windows"
	}
	return out
}

// simNode is a Node with its StorageClientNode and its machine.
type simNode struct {
	plan.Node
	nodeRV, clientNodeRV int
	// cordonChanges counts changes of the cordon by others: earlier reads of a manager are then out of date. known is the number of
	// those changes that a manager has handled in a complete pass.
	cordonChanges, known int
	machine              machine
	pods                 []simPod
	// lookedAfterFaults is true if the last look before a claim took place without faults.
	lookedAfterFaults bool
}

type machine struct {
	// inForce contains the effective kernel arguments, and staged the arguments for the next boot.
	inForce, staged map[string]string
	// downUntil is the end of the current boot. Zero if the machine is up.
	downUntil time.Time
	// registered is true once the kubelet has reported the boot. The node becomes Ready later.
	registered bool
	boot       bootKind
	// always determines how boots end when they are not random.
	always bootKind
	// silentUntil is the time from which the agent reports again.
	silentUntil time.Time
	// used contains the permits in the journal, with the boot that used each of them.
	used map[string]string
	// reboots counts the reboots by permit.
	reboots map[string]int
	// permits contains the permits that the node got, by target.
	permits map[string]sets.Set[string]
	// seen contains the effective values in the agent's last report.
	seen map[string]string
	// mounted is the end of a mount by a pod, busyUntil the end of the work of a package manager.
	mounted, busyUntil time.Time
	// storage is the period in which the machine's storage server does not respond. No pod terminates in this period.
	storage outage
	// ailments are the causes that keep settings from their values, by key. worsened counts the ailments that became worse,
	// reportedWorse the number in the agent's last report, and worsenedAtPermit the number in the report before the last permit.
	ailments                                  map[string]ailment
	worsened, reportedWorse, worsenedAtPermit int
	// markedReady is true if the machine was ever Ready while others had marked it for removal.
	markedReady bool
}

type bootKind int

const (
	bootWell bootKind = iota
	bootNever
	bootOldID
	bootWithoutEffect
)

type simPod struct {
	name string
	// blockedUntil is the time until which its budget rejects evictions. goneAt is the end of an evicted pod.
	blockedUntil, goneAt time.Time
	// unseen is true if dry runs do not show the obstacle, for example because a webhook rejects dry runs.
	unseen bool
	// owned is true if its owner lifts the budget only while the node is cordoned.
	owned bool
	// runsUntil is the end of a pod that runs to completion. Zero for other pods.
	runsUntil time.Time
}

func newWorld(seed uint64) *world {
	return &world{
		now:          time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC),
		rng:          rand.New(rand.NewPCG(seed, 0)),
		budget:       1,
		workers:      1,
		claims:       map[string]v1alpha1.Disruption{},
		failures:     map[string]v1alpha1.ProfileFailures{},
		profiles:     map[string]*simProfile{},
		nodes:        map[string]*simNode{},
		declarations: map[string]*declaration{},
		ineffective:  sets.New[string](),
		drains:       map[string]map[string]*simDrain{},
	}
}

func (w *world) addProfile(name string, change func(*v1alpha1.Rollout), nodes ...string) *simProfile {
	spec := v1alpha1.StorageClientProfileSpec{}
	spec.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
	rollout := spec.WithDefaults().Rollout
	if change != nil {
		change(&rollout)
	}
	p := &simProfile{Profile: plan.Profile{Name: name, Rollout: rollout}, version: 1, nodes: nodes}
	p.BootKeys = sets.New(p.key())
	w.profiles[name] = p
	w.profileNames = slices.Sorted(maps.Keys(w.profiles))
	return p
}

func (w *world) addNode(name string) *simNode {
	w.serial++
	n := &simNode{}
	n.Name, n.UID, n.Created = name, fmt.Sprintf("node-%d", w.serial), w.now.Add(time.Duration(w.serial)*time.Second)
	n.BootID = fmt.Sprintf("%s-boot-%d", name, w.serial)
	n.Ready, n.AgentReady = true, true
	n.machine = machine{
		inForce: map[string]string{}, staged: map[string]string{},
		used: map[string]string{}, reboots: map[string]int{}, permits: map[string]sets.Set[string]{}, ailments: map[string]ailment{},
	}
	w.nodes[name] = n
	w.nodeNames = slices.Sorted(maps.Keys(w.nodes))
	return n
}

func (w *world) narrate(format string, args ...any) {
	if !w.verbose {
		return
	}
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
		w.narrate("BROKEN: %v", w.broken)
	}
}

// followProfiles does the work of controllers/node: it writes the declared settings to the StorageClientNode, or releases it.
func (w *world) followProfiles(n *simNode) {
	if n.Deleting {
		return
	}
	settings, hash := w.desiredSettings(n)
	managed := len(settings) > 0
	switch {
	case n.ClientNode == nil && managed:
		w.serial++
		n.ClientNode = &plan.ClientNode{UID: fmt.Sprintf("uid-%d", w.serial), Generation: 1}
		n.ClientNode.Spec = v1alpha1.StorageClientNodeSpec{Settings: settings, Hash: hash, BootHash: hash}
		n.clientNodeRV++
	case n.ClientNode == nil:
	case managed && (n.ClientNode.Spec.Hash != hash || n.ClientNode.Spec.Release):
		w.changeSpec(n, func(s *v1alpha1.StorageClientNodeSpec) {
			s.Settings, s.Hash, s.BootHash, s.Release = settings, hash, hash, false
		})
	case managed:
		w.withholdSettings(n, settings)
	case !n.ClientNode.Spec.Release:
		w.changeSpec(n, func(s *v1alpha1.StorageClientNodeSpec) { s.Release = true })
	default:
		w.removeClientNode(n)
	}
}

// withholdSettings removes settings that a permitted reboot did not apply from the StorageClientNode, or adds them again. The
// hash stays the same.
func (w *world) withholdSettings(n *simNode, settings []v1alpha1.NodeSetting) {
	_, hash := w.desiredSettings(n)
	keys := withheld(n, settings, hash)
	kept := slices.DeleteFunc(slices.Clone(settings), func(s v1alpha1.NodeSetting) bool { return slices.Contains(keys, s.Key) })
	if len(kept) == len(n.ClientNode.Spec.Settings) {
		return
	}
	if len(keys) > 0 {
		w.narrate("%s is no longer given %v", n.Name, keys)
		w.ineffective.Insert(n.ClientNode.UID + " " + target(n.ClientNode))
	}
	w.changeSpec(n, func(s *v1alpha1.StorageClientNodeSpec) { s.Settings = kept })
}

// withheld calls the production code.
func withheld(n *simNode, settings []v1alpha1.NodeSetting, hash string) []string {
	clientNode := v1alpha1.StorageClientNode{Spec: n.ClientNode.Spec, Status: n.ClientNode.Status}
	return fleet.WithheldSettings(&clientNode, nodesettings.Result{Settings: settings, Hash: hash, BootHash: hash})
}

// changeSpec writes the spec of a StorageClientNode. Earlier copies do not change.
func (w *world) changeSpec(n *simNode, change func(*v1alpha1.StorageClientNodeSpec)) {
	c := *n.ClientNode
	change(&c.Spec)
	c.Generation++
	n.ClientNode = &c
	n.clientNodeRV++
}

// removeClientNode deletes the StorageClientNode of a node that is restored and no longer disrupted.
func (w *world) removeClientNode(n *simNode) {
	c := n.ClientNode
	held := n.Mark != nil || c.Spec.RebootPermit != nil
	if r := c.Status.Rollout; r != nil {
		held = held || !slices.Contains([]v1alpha1.RolloutPhase{
			v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate, v1alpha1.RolloutWaiting, v1alpha1.RolloutFailed,
		}, r.Phase)
	}
	if !c.Status.Restored || c.Status.ObservedGeneration < c.Generation || held {
		return
	}
	restore := slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool {
		p := w.profiles[s.Profile]
		return p != nil && p.Rollout.Reboot.RestoreReboot
	})
	if c.Status.RebootRequired && restore {
		return
	}
	n.ClientNode = nil
	n.clientNodeRV++
}

// declaration contains the settings that profiles declare for a node, and the profile versions.
type declaration struct {
	versions int
	settings []v1alpha1.NodeSetting
	hash     string
}

// desiredSettings returns the settings that the profiles declare for a node. They are cached because they are read often and
// change rarely.
func (w *world) desiredSettings(n *simNode) ([]v1alpha1.NodeSetting, string) {
	versions := 0
	for _, name := range w.profileNames {
		if p := w.profiles[name]; p.Deleting {
			versions *= 10000
		} else {
			versions = versions*10000 + p.version
		}
	}
	known := w.declarations[n.Name]
	if known == nil || known.versions != versions {
		known = w.mergeProfiles(n)
		known.versions = versions
		w.declarations[n.Name] = known
	}
	return known.settings, known.hash
}

func (w *world) mergeProfiles(n *simNode) *declaration {
	out := &declaration{}
	var parts []string
	for _, name := range w.profileNames {
		p := w.profiles[name]
		if !p.Deleting && slices.Contains(p.nodes, n.Name) {
			out.settings = append(out.settings, p.settings()...)
			parts = append(parts, p.Name+strconv.Itoa(p.version))
		}
	}
	out.hash = strings.Join(parts, ",")
	return out
}

// runAgent runs a node's agent once.
func (w *world) runAgent(n *simNode) {
	if n.ClientNode == nil || !n.machine.downUntil.IsZero() || w.now.Before(n.machine.silentUntil) {
		return
	}
	c := n.ClientNode
	n.machine.staged = map[string]string{}
	if !c.Spec.Release {
		for _, s := range c.Spec.Settings {
			if _, ails := n.machine.ailments[s.Key]; isBootKey(s.Key) && !ails {
				n.machine.staged[s.Key] = s.Value
			}
		}
	}
	status := w.observeStatus(n)
	if permit := c.Spec.RebootPermit; permit != nil {
		if status.Reboot = w.respondToPermit(n, permit, status); status.Reboot.Phase == v1alpha1.RebootStarted {
			status.ObservedGeneration, status.Reboot = c.Generation, &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootStarted}
			w.reportStatus(n, status)
			w.goDown(n, permit)
			return
		}
	}
	w.reportStatus(n, status)
}

func (w *world) reportStatus(n *simNode, status v1alpha1.StorageClientNodeStatus) {
	status.Rollout = n.ClientNode.Status.Rollout
	n.machine.seen, n.machine.reportedWorse = n.machine.inForce, n.machine.worsened
	if reflect.DeepEqual(status, n.ClientNode.Status) {
		return
	}
	c := *n.ClientNode
	c.Status = status
	n.ClientNode = &c
	n.clientNodeRV++
}

func (w *world) observeStatus(n *simNode) v1alpha1.StorageClientNodeStatus {
	c := n.ClientNode
	status := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: c.Generation, Hash: c.Spec.Hash, BootID: n.BootID, Restored: c.Spec.Release,
	}
	for _, key := range slices.Sorted(maps.Keys(n.machine.inForce)) {
		wanted := slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key && !c.Spec.Release })
		if _, staged := n.machine.staged[key]; !staged && !wanted {
			status.RebootRequiredBy = append(status.RebootRequiredBy, key)
		}
	}
	for _, s := range c.Spec.Settings {
		observed := v1alpha1.SettingStatus{Key: s.Key, TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingInSync}
		if isBootKey(s.Key) {
			observed.TakesEffect = v1alpha1.EffectReboot
		}
		value, there := n.machine.inForce[s.Key]
		switch ails := n.machine.ailments[s.Key]; {
		case c.Spec.Release:
		case ails != ailment{}:
			observed.State, observed.TakesEffect = ails.state, ails.effect
		case isBootKey(s.Key) && (!there || value != s.Value):
			observed.State = v1alpha1.SettingPending
		}
		if observed.State == v1alpha1.SettingPending && observed.TakesEffect == v1alpha1.EffectReboot {
			status.RebootRequiredBy = append(status.RebootRequiredBy, s.Key)
		}
		status.Settings = append(status.Settings, observed)
	}
	status.RebootRequired = len(status.RebootRequiredBy) > 0
	status.Servers = n.machine.storage.servers(w.now)
	if w.now.Before(n.machine.mounted) {
		status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/var/lib/kubelet/pods/x"}}
	}
	return status
}

// respondToPermit responds to a permit as the agent does.
func (w *world) respondToPermit(n *simNode, permit *v1alpha1.RebootPermit, status v1alpha1.StorageClientNodeStatus) *v1alpha1.RebootStatus {
	if boot, used := n.machine.used[permit.ID]; used {
		if boot == n.BootID {
			return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootFailed, Message: "used, not rebooted"}
		}
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootRefused, Message: "used"}
	}
	unstaged := slices.ContainsFunc(status.Settings, func(s v1alpha1.SettingStatus) bool {
		notStaged := []v1alpha1.SettingState{v1alpha1.SettingFailed, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed}
		return s.TakesEffect == v1alpha1.EffectReboot && slices.Contains(notStaged, s.State)
	})
	switch {
	case permit.BootHash != n.ClientNode.Spec.BootHash, permit.BootID != n.BootID, !status.RebootRequired, len(status.BusyMounts) > 0, unstaged:
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootRefused, Message: "no longer right"}
	case w.now.Before(n.machine.busyUntil):
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootWaiting, Message: "a package manager is at work"}
	case w.quiet:
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootStarted}
	}
	switch w.rng.IntN(w.rejectOneIn) {
	case 0:
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootRefused, Message: "a mount came in between"}
	case 1:
		n.machine.busyUntil = w.now.Add(time.Duration(w.rng.IntN(2000)) * time.Second)
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootWaiting, Message: "a package manager has begun"}
	}
	return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootStarted}
}

func (w *world) goDown(n *simNode, permit *v1alpha1.RebootPermit) {
	// If a user has taken over the cordon, the permit is withdrawn only when the agent responds.
	if n.cordonChanges == n.known && !n.Unschedulable && !n.Deleting && n.Leaving == "" {
		w.fail("invariant 2: reboot of %s, which is not cordoned", n.Name)
	}
	n.machine.used[permit.ID] = n.BootID
	n.machine.reboots[permit.ID]++
	if n.machine.reboots[permit.ID] > 1 {
		w.fail("invariant 3: two reboots of %s with permit %s", n.Name, permit.ID)
	}
	n.machine.downUntil = w.now.Add(time.Duration(20+w.rng.IntN(200)) * time.Second)
	n.machine.boot = n.machine.always
	for _, name := range w.profileNames {
		if kind := w.profiles[name].bootsAs; n.machine.staged[w.profiles[name].key()] != "" && kind != bootWell {
			n.machine.boot = kind
		}
	}
	if !w.quiet {
		switch w.rng.IntN(w.failThreeBootsIn) {
		case 0:
			n.machine.boot = bootNever
		case 1:
			n.machine.boot = bootOldID
		case 2:
			n.machine.boot = bootWithoutEffect
		}
	}
	w.makeUnready(n)
	w.narrate("machine %s goes down", n.Name)
}

func (w *world) makeUnready(n *simNode) {
	since := w.now
	n.Ready, n.AgentReady, n.ReadySince, n.OutSince, n.UnavailableSince = false, false, since, since, &since
	n.nodeRV++
}

// registerBoot has the kubelet report the boot a while before the node is Ready.
func (w *world) registerBoot(n *simNode) {
	w.newBoot(n)
	n.machine.registered, n.machine.downUntil = true, w.now.Add(time.Duration(w.rng.IntN(120))*time.Second)
	n.nodeRV++
	w.narrate("machine %s has booted as %s", n.Name, n.BootID)
}

func (w *world) newBoot(n *simNode) {
	if n.machine.boot == bootOldID {
		return
	}
	w.bootAilments(n)
	w.serial++
	n.BootID = fmt.Sprintf("%s-boot-%d", n.Name, w.serial)
	if n.machine.boot != bootWithoutEffect {
		n.machine.inForce = n.machine.staged
	}
}

// comeUp ends the boot of a machine.
func (w *world) comeUp(n *simNode) {
	if !n.machine.registered {
		w.newBoot(n)
	}
	n.machine.downUntil, n.machine.registered = time.Time{}, false
	n.Ready, n.AgentReady, n.ReadySince, n.UnavailableSince = true, true, w.now, nil
	n.nodeRV++
	w.narrate("machine %s is back as %s", n.Name, n.BootID)
}

// advanceBoot moves the boot of a machine to its next stage when it is due.
func (w *world) advanceBoot(n *simNode) {
	switch {
	case n.machine.downUntil.IsZero(), w.now.Before(n.machine.downUntil), n.machine.boot == bootNever:
	case !w.quiet && !n.machine.registered && w.rng.IntN(2) == 0:
		w.registerBoot(n)
	default:
		w.comeUp(n)
	}
}

// passTime lets time pass: machines boot, and pods terminate.
func (w *world) passTime(d time.Duration) {
	w.now = w.now.Add(d)
	w.repairMachines()
	w.runDrains()
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		w.advanceBoot(n)
		n.machine.markedReady = n.Leaving != "" && (n.Ready || n.machine.markedReady)
		n.pods = slices.DeleteFunc(n.pods, func(p simPod) bool {
			return !n.machine.storage.lastsAt(w.now) && (hasPassed(p.goneAt, w.now) || hasPassed(p.runsUntil, w.now))
		})
		if !w.deterministic && !n.Unschedulable && n.Ready && w.rng.IntN(3) == 0 && len(n.pods) < 3 {
			n.pods = append(n.pods, w.newPod())
		}
	}
}

func hasPassed(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// repairMachines is a cloud that replaces machines that have been down for long.
func (w *world) repairMachines() {
	for _, name := range slices.Clone(w.nodeNames) {
		n := w.nodes[name]
		if w.repairAfter > 0 && !n.Ready && !w.now.Before(n.ReadySince.Add(w.repairAfter)) {
			w.repairMachine(n)
		}
	}
}

// repairMachine replaces a machine.
func (w *world) repairMachine(n *simNode) {
	w.loseNode(n)
	name := n.Name
	if w.renames {
		w.serial++
		name = fmt.Sprintf("new-%d", w.serial)
		for _, p := range w.profiles {
			if slices.Contains(p.nodes, n.Name) {
				p.nodes = append(p.nodes, name)
			}
		}
		delete(w.nodes, n.Name)
		w.nodeNames = slices.Sorted(maps.Keys(w.nodes))
	}
	w.narrate("a cloud replaces %s by %s", n.Name, name)
	fresh := w.addNode(name)
	fresh.nodeRV, fresh.clientNodeRV = n.nodeRV+1, n.clientNodeRV+1
	fresh.Manager, fresh.ControlPlane, fresh.Labels = n.Manager, n.ControlPlane, n.Labels
}

func (w *world) newPod() simPod {
	w.serial++
	pod := simPod{name: fmt.Sprintf("pod-%d", w.serial)}
	if !w.quiet && w.rng.IntN(6) == 0 {
		pod.blockedUntil, pod.unseen = w.now.Add(time.Duration(w.rng.IntN(7200))*time.Second), w.rng.IntN(2) == 0
	}
	if !w.quiet && w.rng.IntN(8) == 0 {
		pod.runsUntil = w.now.Add(time.Duration(w.rng.IntN(3600)) * time.Second)
	}
	return pod
}

func (w *world) isUnavailable(n *simNode) bool {
	return isDown(&n.Node) || (n.Unschedulable && n.Mark == nil)
}

func target(c *plan.ClientNode) string {
	if c.Spec.Release {
		return "release-" + c.Spec.BootHash
	}
	return c.Spec.BootHash
}

// hasFailed reports whether a node has failed. After an unused permit, it no longer counts as failed once its retry is due.
func (w *world) hasFailed(n *simNode) bool {
	if n.ClientNode == nil || n.ClientNode.Status.Rollout == nil {
		return false
	}
	note := n.ClientNode.Status.Rollout
	isRetryDue := n.Mark == nil && note.Reason == v1alpha1.RolloutReasonRebootTimedOut && note.RetryAfter != nil && !w.now.Before(note.RetryAfter.Time)
	return note.Phase == v1alpha1.RolloutFailed && note.BootHash == target(n.ClientNode) && !isRetryDue
}

// copyNode returns a node as an API read does. Marks and StorageClientNodes are never changed in place.
func copyNode(n *simNode) *simNode {
	out := *n
	out.pods, out.machine = nil, machine{}
	return &out
}

// manager is one process of the operator. It keeps only the objects that it has read in its current pass.
type manager struct {
	*world
	// mutex is held while a worker reads or writes. dead is true once the process has died.
	mutex sync.Mutex
	dead  bool
	name  string
	// stale returns an old version of a node from the cache.
	stale  func(*simNode) *simNode
	seen   map[string]*simNode
	seenRV int
	// rules, pausedAtRead, known and declarationsAtRead contain the state at the last read: profiles, the general pause, claims and
	// declared settings.
	rules        map[string]plan.Profile
	pausedAtRead bool
	// ruledAt is the time of the last read of the rules.
	ruledAt            time.Time
	known              map[string]v1alpha1.Disruption
	recalled           map[string]v1alpha1.ProfileFailures
	recalledRV         int
	declarationsAtRead map[string]declaration
	// lossesSeen is the number of losses at the last live read of all nodes.
	lossesSeen int
	// out contains the nodes that were unavailable at the last live read of all nodes, and vacant the nodes without workload.
	out, vacant map[string]bool
	// progress is the progress of drains in this pass. reported contains the nodes as the planner knows them.
	progress map[string]*plan.DrainProgress
	reported map[string]plan.Node
}

// errDied ends a process in the middle of a pass.
var errDied = errors.New("the manager died")

// Now implements clock.PassiveClock.
func (w *world) Now() time.Time { return w.now }

// Since implements clock.PassiveClock.
func (w *world) Since(t time.Time) time.Duration { return w.now.Sub(t) }

// runPass makes a pass. It returns the time of the next one, zero if it only depends on changes of objects, and whether work is left to do at once.
func runPass(ctx context.Context, c cluster, workers int) (next time.Time, unfinished bool, err error) {
	world := c.(clock.PassiveClock)
	out := &loop.Outcome{Pause: retryDelay, Clock: world}
	newPass(c, workers, out).arm().Pass(ctx, out)
	for _, err := range out.Skipped() {
		unfinished = unfinished || err == nil
	}
	result, err := out.Result()
	if result.RequeueAfter > 0 {
		next = world.Now().Add(result.RequeueAfter)
	}
	return next, unfinished, err
}

// passWith returns a pass that has read a session.
func passWith(c cluster, workers int, session *plan.Session) *pass {
	p := newPass(c, workers, &loop.Outcome{Pause: retryDelay})
	p.session = session
	return p
}

func (m *manager) interruptAt(where string) {
	if m.dead {
		panic(errDied)
	}
	if m.interrupt != nil {
		m.dead = true
		m.interrupt(where)
		m.dead = false
	}
}

// turnOfWorker starts a read or write of a worker. Other workers may run first. The returned function ends it.
func (m *manager) turnOfWorker() func() {
	if m.workers > 1 {
		runtime.Gosched()
	}
	m.mutex.Lock()
	return m.mutex.Unlock
}

func (m *manager) readSnapshot(context.Context) (plan.Snapshot, error) {
	m.interruptAt("snapshot")
	m.readCommon()
	m.seen, m.vacant, m.progress, m.reported = map[string]*simNode{}, map[string]bool{}, map[string]*plan.DrainProgress{}, nil
	for _, name := range m.nodeNames {
		n := m.nodes[name]
		if m.stale != nil {
			n = m.stale(n)
		}
		m.seen[name] = copyNode(n)
		m.vacant[name] = n.Untuned
	}
	return m.news(), nil
}

// news returns the changes since the last snapshot for the planner.
func (m *manager) news() plan.Snapshot {
	s := m.currentSnapshot()
	before := m.reported
	m.reported = map[string]plan.Node{}
	for _, n := range s.Nodes {
		m.reported[n.Name] = n
	}
	s.Nodes = slices.DeleteFunc(s.Nodes, func(n plan.Node) bool {
		known, found := before[n.Name]
		return found && reflect.DeepEqual(known, n)
	})
	for name := range before {
		if _, found := m.reported[name]; !found {
			s.Gone = append(s.Gone, name)
		}
	}
	return s
}

func (m *manager) shadow(session *plan.Session) {
	if diff := shadow.Diff(session, m.currentSnapshot()); diff != "" {
		m.fail("the updated session differs from a new one:\n%s", diff)
	}
}

func (m *manager) currentNote(node string) v1alpha1.RolloutStatus {
	defer m.turnOfWorker()()
	if n := m.seen[node]; n != nil && n.ClientNode != nil && n.ClientNode.Status.Rollout != nil {
		return *n.ClientNode.Status.Rollout
	}
	return v1alpha1.RolloutStatus{}
}

func (m *manager) refreshNodes(_ context.Context, names sets.Set[string]) error {
	m.interruptAt("refresh")
	m.readCommon()
	if names == nil {
		m.lossesSeen = len(m.losses)
		names = sets.KeySet(m.nodes).Union(sets.KeySet(m.seen))
	}
	m.out = map[string]bool{}
	for name := range names {
		delete(m.seen, name)
		if n := m.nodes[name]; n != nil {
			m.seen[name] = copyNode(n)
			m.out[name] = m.isUnavailable(n)
			m.vacant[name] = n.Untuned && len(n.pods) == 0
		}
	}
	return nil
}

// readCommon reads the state that does not belong to a single node.
func (m *manager) readCommon() {
	m.seenRV, m.known, m.pausedAtRead, m.ruledAt = m.claimsRV, maps.Clone(m.claims), m.paused, m.now
	m.recalled, m.recalledRV = m.failures, m.failuresRV
	m.rules, m.declarationsAtRead = map[string]plan.Profile{}, map[string]declaration{}
	for _, name := range m.profileNames {
		m.rules[name] = m.profiles[name].rules()
	}
	for _, name := range m.nodeNames {
		settings, hash := m.desiredSettings(m.nodes[name])
		m.declarationsAtRead[name] = declaration{settings: settings, hash: hash}
	}
}

// readRules reads the current rules that users have set.
func (m *manager) readRules(_ context.Context, nodes []string) (plan.Rules, error) {
	defer m.turnOfWorker()()
	m.interruptAt("rules")
	m.pausedAtRead, m.ruledAt = m.paused, m.now
	out := plan.Rules{Now: m.now, Paused: m.paused, DesiredBootHashes: map[string]string{}}
	for _, name := range m.profileNames {
		m.rules[name] = m.profiles[name].rules()
		out.Profiles = append(out.Profiles, m.rules[name])
	}
	for _, name := range nodes {
		if n := m.nodes[name]; n != nil {
			_, out.DesiredBootHashes[name] = m.desiredSettings(n)
		}
	}
	return out, nil
}

func (m *manager) currentSnapshot() plan.Snapshot {
	s := plan.Snapshot{Now: m.now, Budget: m.budget, Paused: m.pausedAtRead, Claims: maps.Clone(m.known), Failures: m.recalled}
	for _, name := range m.profileNames {
		s.Profiles = append(s.Profiles, m.rules[name])
	}
	for _, name := range m.nodeNames {
		n := m.seen[name]
		if n == nil {
			continue
		}
		profiles := m.profilesOf(n)
		read := n.Node
		read.Profiles, read.Vacant, read.Evicted, read.Drain = profiles, m.vacant[name], m.evictedFrom(name), m.progress[name]
		if n.ClientNode != nil {
			c := *n.ClientNode
			declaration := m.declarationsAtRead[name]
			c.DesiredBootHash = declaration.hash
			c.Withheld = withheld(n, declaration.settings, declaration.hash)
			read.ClientNode = &c
		}
		s.Nodes = append(s.Nodes, read)
	}
	return s
}

func conflict(name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, name, errors.New("changed"))
}

// nodeToWrite returns the node to write to, if it has not changed since the decision.
func (m *manager) nodeToWrite(name string, ofClientNode bool) (*simNode, error) {
	n, seen := m.nodes[name], m.seen[name]
	if n == nil || seen == nil || (ofClientNode && n.ClientNode == nil) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, name)
	}
	if (ofClientNode && n.clientNodeRV != seen.clientNodeRV) || (!ofClientNode && n.nodeRV != seen.nodeRV) {
		return nil, conflict(name)
	}
	return n, nil
}

// recordWrite records the result of a write to a Node or its StorageClientNode.
func (m *manager) recordWrite(n *simNode, ofClientNode bool) {
	seen, now := m.seen[n.Name], copyNode(n)
	if ofClientNode {
		seen.ClientNode, seen.clientNodeRV = now.ClientNode, now.clientNodeRV
		return
	}
	now.ClientNode, now.clientNodeRV = seen.ClientNode, seen.clientNodeRV
	m.seen[n.Name] = now
}

func (m *manager) addClaims(_ context.Context, steps []plan.AddClaim) error {
	defer m.turnOfWorker()()
	for _, step := range steps {
		m.checkAllowed(step)
	}
	m.interruptAt("claim")
	if m.seenRV != m.claimsRV {
		return conflict("claims")
	}
	for _, step := range steps {
		// A node that has just been deleted may be claimed. The next pass releases it.
		if !step.Missing && m.nodes[step.Node] != nil {
			m.checkBudget(step)
			m.checkThreshold(step)
			m.checkTurn(step)
		}
		m.claims[step.Node], m.known[step.Node] = step.Claim, step.Claim
		m.narrate("%s: %s", m.name, describe(step))
	}
	m.claimsRV++
	m.seenRV = m.claimsRV
	return nil
}

// checkBudget is invariant 1. Nodes that became unavailable after the last read do not count.
func (m *manager) checkBudget(step plan.AddClaim) {
	for _, profile := range append(m.nodes[step.Node].budgetsNeeded(m.world), "") {
		limit, count := m.budget, 0
		if profile != "" {
			limit = int(m.rules[profile].Rollout.MaxUnavailable.IntVal)
		}
		for name, n := range m.nodes {
			if profile != "" && !slices.Contains(m.profiles[profile].nodes, name) {
				continue
			}
			if m.isDisrupted(n) || m.hasFailed(n) || (m.isUnavailable(n) && m.out[name]) {
				count++
			}
		}
		if count >= limit {
			m.fail("invariant 1: %s added while %d of %d are disrupted (profile %q)", describe(step), count, limit, profile)
		}
	}
}

// isDisrupted reports whether the rollout has disrupted a node.
func (w *world) isDisrupted(n *simNode) bool {
	_, claimed := w.claims[n.Name]
	return claimed || n.Mark != nil
}

// profilesOf returns the profiles that select a node or whose settings are in its StorageClientNode.
func (w *world) profilesOf(n *simNode) []string {
	var out []string
	for _, name := range w.profileNames {
		carried := n.ClientNode != nil && slices.ContainsFunc(n.ClientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Profile == name })
		if carried || slices.Contains(w.profiles[name].nodes, n.Name) {
			out = append(out, name)
		}
	}
	return out
}

// checkTurn checks the order of nodes: windows, zones, the selected canary and the control plane.
func (m *manager) checkTurn(step plan.AddClaim) {
	n := m.nodes[step.Node]
	m.checkWindows(n, step)
	for _, name := range m.nodeNames {
		other, seen := m.nodes[name], m.seen[name]
		if other == n || seen == nil || seen.nodeRV != other.nodeRV || seen.clientNodeRV != other.clientNodeRV {
			continue
		}
		for _, profile := range n.budgetsNeeded(m.world) {
			m.checkZone(n, other, profile)
			m.checkCanary(n, other, profile)
		}
	}
	m.checkControlPlane(n, step)
	m.checkLeaving(n, step)
	m.checkAcceptance(n, step)
	m.checkStorage(n, step)
}

// checkLeaving checks that no disruption starts on a node that others are about to remove. It ignores taints that are newer than
// the last look.
func (m *manager) checkLeaving(n *simNode, step plan.Step) {
	if seen := m.seen[n.Name]; seen != nil && seen.Leaving != "" && n.Leaving != "" {
		m.fail("invariant 18: %s, a node that others are about to remove (taint %s)", step, n.Leaving)
	}
}

// checkControlPlane is the part of invariant 18 about the control plane. No control-plane node is claimed while another one is
// out. Nodes that went down after the last read do not count.
func (m *manager) checkControlPlane(n *simNode, step plan.Step) {
	if !n.ControlPlane {
		return
	}
	others := 0
	for _, name := range m.nodeNames {
		other := m.nodes[name]
		if other == n || !other.ControlPlane {
			continue
		}
		others++
		seen := m.seen[name]
		if m.isDisrupted(other) || m.hasFailed(other) || (seen != nil && isDown(&seen.Node) && isDown(&other.Node)) {
			m.fail("invariant 18: %s while control-plane node %s is out", step, name)
		}
	}
	if others == 0 {
		m.fail("invariant 18: %s, the only control-plane node in service", describe(step))
	}
}

// isLastControlPlane reports whether a node is the only control-plane node in service, as the manager saw the nodes. The rollout
// skips such a node.
func (m *manager) isLastControlPlane(n *simNode) bool {
	return n.ControlPlane && !slices.ContainsFunc(m.nodeNames, func(name string) bool {
		other, seen := m.nodes[name], m.seen[name]
		return name != n.Name && other.ControlPlane && seen != nil && !isDown(&seen.Node) && !m.isDisrupted(other) && !m.hasFailed(other)
	})
}

// isDown reports whether a node is out of service for a reason other than a cordon. A cordon does not affect its static pods.
func isDown(n *plan.Node) bool {
	return !n.Ready || n.Deleting || n.Leaving != ""
}

// checkWindows is the part of invariant 2 about windows.
func (m *manager) checkWindows(n *simNode, step plan.Step) {
	for _, profile := range n.budgetsNeeded(m.world) {
		if open, _ := m.rules[profile].Windows.At(m.ruledAt); !open {
			m.fail("invariant 2: %s outside the windows of profile %s", step, profile)
		}
	}
}

// checkZone checks that the rollout does not disrupt two zones of a profile at the same time. The check ends with the time limits
// of the profiles.
func (m *manager) checkZone(n, other *simNode, profile string) {
	zone := func(n *simNode) string { return n.Labels[corev1.LabelTopologyZone] }
	if zone(n) == zone(other) || m.vacant[n.Name] || m.vacant[other.Name] || !slices.Contains(m.profilesOf(other), profile) ||
		!m.isDisrupted(other) || m.hasFailed(other) {
		return
	}
	since := m.claims[other.Name].Since
	if other.Mark != nil {
		since = other.Mark.Since
	}
	for _, name := range m.profileNames {
		r := m.rules[name].Rollout
		limit := min(*r.Drain.TimeoutSeconds, int32(plan.ZonePatience/time.Second))
		if other.ClientNode != nil && other.ClientNode.Spec.RebootPermit != nil {
			limit = *r.Drain.TimeoutSeconds + *r.Reboot.TimeoutSeconds + *r.SettleSeconds
		}
		if !m.now.Before(since.Add(time.Duration(limit) * time.Second)) {
			return
		}
	}
	m.fail("zones: %s of zone %s claimed while %s of zone %s is out of service", n.Name, zone(n), other.Name, zone(other))
}

// checkCanary checks that no node is claimed before a selected canary that could be claimed.
func (m *manager) checkCanary(n, other *simNode, profile string) {
	if m.rules[profile].Rollout.Canary.NodeSelector == nil || n.Labels["canary"] != "" || other.Labels["canary"] == "" || other.ClientNode == nil {
		return
	}
	_, wanted := m.desiredSettings(n)
	_, same := m.desiredSettings(other)
	note := other.ClientNode.Status.Rollout
	left := note != nil && note.RetryAfter != nil
	fit := !left && !isDown(&other.Node) && !other.NeverDisrupt && !other.Paused && (!other.Unschedulable || other.Mark != nil) &&
		len(inTheWay(&other.Node)) == 0 && !m.isLastControlPlane(other) && !slices.ContainsFunc(other.ClientNode.Status.Servers, fleet.IsFailing)
	status := other.ClientNode.Status
	if wanted == same && fit && !n.ClientNode.Spec.Release && other.ClientNode.Spec.BootHash == same && status.BootID == other.BootID &&
		status.Hash == other.ClientNode.Spec.Hash && slices.Contains(status.RebootRequiredBy, m.profiles[profile].key()) {
		m.fail("invariant 11: %s claimed before the canary %s", n.Name, other.Name)
	}
}

// budgetsNeeded returns the profiles whose budgets a node needs.
func (n *simNode) budgetsNeeded(w *world) []string {
	var out []string
	for name, p := range w.profiles {
		if n.ClientNode != nil && !n.ClientNode.Spec.Release && slices.Contains(n.ClientNode.Status.RebootRequiredBy, p.key()) && !p.Deleting {
			out = append(out, name)
		}
	}
	return out
}

func (m *manager) writeNote(_ context.Context, node string, status v1alpha1.RolloutStatus) error {
	defer m.turnOfWorker()()
	m.interruptAt("note")
	n, err := m.nodeToWrite(node, true)
	if err != nil {
		return err
	}
	m.checkFailure(n, status)
	c := *n.ClientNode
	c.Status.Rollout = &status
	n.ClientNode = &c
	n.clientNodeRV++
	m.recordWrite(n, true)
	m.narrate("%s: note %s: %s %s", m.name, node, status.Phase, status.Reason)
	return nil
}

func (m *manager) applyStep(_ context.Context, step plan.Step) error {
	defer m.turnOfWorker()()
	m.checkAllowed(step)
	m.interruptAt(describe(step))
	switch step := step.(type) {
	case plan.ReleaseClaim:
		return m.releaseClaim(step)
	case plan.UpdateClaim:
		return m.updateClaim(step)
	}
	_, permit := step.(plan.GivePermit)
	_, spent := step.(plan.ClearPermit)
	n, err := m.nodeToWrite(step.NodeName(), permit || spent)
	if err != nil {
		return err
	}
	m.narrate("%s: %s", m.name, describe(step))
	switch step := step.(type) {
	case plan.Cordon:
		if n.Unschedulable && n.Mark == nil {
			m.fail("invariant 5: cordon of %s, which another user has cordoned", n.Name)
		}
		m.checkLeaving(n, step)
		if n.ClientNode != nil && n.ClientNode.Spec.RebootPermit == nil {
			m.checkAcceptance(n, step)
		}
		n.Guarded = true
		n.Unschedulable, n.Mark = true, &v1alpha1.Disruption{
			Profile: step.Mark.Profile, BootHash: step.Mark.BootHash, Since: step.Mark.Since, CordonFirst: step.Mark.CordonFirst,
		}
	case plan.Uncordon:
		m.checkUncordon(n, step)
		m.checkLeaving(n, step)
		n.Unschedulable, n.Mark, n.Guarded = false, nil, false
	case plan.RemoveGuards:
		if n.Mark != nil {
			m.fail("removed guards of %s while the rollout disrupts it", n.Name)
		}
		n.Guarded = false
	case plan.SetMaintenance:
		n.Maintenance = step.State
	case plan.RemoveTaint:
		n.Untuned = false
	case plan.GivePermit:
		m.checkPermit(n, step.Permit)
		m.checkClaimedPermit(n)
		m.checkWindows(n, step)
		m.checkLeaving(n, step)
		m.checkAcceptance(n, step)
		m.checkStorage(n, step)
		n.machine.worsenedAtPermit = n.machine.reportedWorse
		m.changeSpec(n, func(s *v1alpha1.StorageClientNodeSpec) { s.RebootPermit = &step.Permit })
	case plan.ClearPermit:
		m.checkClear(n)
		m.changeSpec(n, func(s *v1alpha1.StorageClientNodeSpec) { s.RebootPermit = nil })
	}
	if !permit && !spent {
		n.nodeRV++
	}
	m.recordWrite(n, permit || spent)
	return nil
}

func (m *manager) updateClaim(step plan.UpdateClaim) error {
	if m.seenRV != m.claimsRV {
		return conflict("claims")
	}
	m.claims[step.Node], m.known[step.Node] = step.Claim, step.Claim
	m.claimsRV++
	m.seenRV = m.claimsRV
	m.narrate("%s: %s", m.name, describe(step))
	return nil
}

func (m *manager) releaseClaim(step plan.ReleaseClaim) error {
	if m.seenRV != m.claimsRV {
		return conflict("claims")
	}
	delete(m.claims, step.Node)
	delete(m.known, step.Node)
	m.claimsRV++
	m.seenRV = m.claimsRV
	m.narrate("%s: %s", m.name, describe(step))
	return nil
}

// checkPermit checks invariants 2 and 3.
func (m *manager) checkPermit(n *simNode, permit v1alpha1.RebootPermit) {
	if m.seen[n.Name].cordonChanges == n.cordonChanges {
		switch {
		case !n.Unschedulable || n.Mark == nil:
			m.fail("invariant 2: permit for %s, which is not cordoned by the rollout", n.Name)
		case len(n.pods) > 0:
			m.fail("invariant 2: permit for %s, which has %d pods", n.Name, len(n.pods))
		}
	}
	c := n.ClientNode
	switch {
	case permit.BootHash != c.Spec.BootHash, permit.BootID != c.Status.BootID, !c.Status.RebootRequired, len(c.Status.BusyMounts) > 0:
		m.fail("invariant 2: invalid permit for %s", n.Name)
	case c.Spec.RebootPermit != nil:
		m.fail("invariant 3: second permit for %s", n.Name)
	case m.ineffective.Has(c.UID + " " + target(c)):
		m.fail("invariant 3: permit for %s at %q, which had no effect and was withheld", n.Name, target(c))
	}
	m.checkRules(n)
	key := c.UID + " " + target(c)
	if n.machine.permits[key] == nil {
		n.machine.permits[key] = sets.New[string]()
	}
	if n.machine.permits[key].Insert(permit.ID).Len() > plan.MaxAttempts {
		m.fail("invariant 3: %d permits for %s at %q", plan.MaxAttempts+1, n.Name, target(c))
	}
}

// checkRules is the part of invariant 2 about the rules that users set: pauses, approvals and policies.
func (m *manager) checkRules(n *simNode) {
	seen := m.seen[n.Name]
	if m.pausedAtRead || seen.Paused || seen.NeverDisrupt {
		m.fail("invariant 2: permit for %s, which must be skipped", n.Name)
	}
	for _, name := range n.budgetsNeeded(m.world) {
		if rule := m.rules[name]; rule.Paused != "" || rule.Inert != "" || rule.Rollout.Reboot.Policy != v1alpha1.RebootAutomatic {
			m.fail("invariant 2: permit for %s against the rules of profile %s", n.Name, name)
		}
	}
}

// checkAllowed is the part of invariants 2 and 18 about timing. The rules of users and the windows must allow a step when it is
// sent. With several workers, another one may have run in between.
func (m *manager) checkAllowed(step plan.Step) {
	n, seen := m.nodes[step.NodeName()], m.seen[step.NodeName()]
	if m.workers > 1 || n == nil || seen == nil || n.ClientNode == nil || seen.nodeRV != n.nodeRV || seen.clientNodeRV != n.clientNodeRV {
		return
	}
	switch step := step.(type) {
	case plan.AddClaim:
		if step.Missing {
			return
		}
	case plan.Cordon:
		if n.ClientNode.Spec.RebootPermit != nil {
			return
		}
	case plan.GivePermit:
	default:
		return
	}
	if m.paused {
		m.fail("invariant 2: %s while everything is paused", describe(step))
	}
	for _, name := range n.budgetsNeeded(m.world) {
		p := m.profiles[name]
		if open, _ := p.Windows.At(m.now); !open || p.Paused != "" || p.Inert != "" || p.Rollout.Reboot.Policy != v1alpha1.RebootAutomatic {
			m.fail("invariant 2: %s against the current rules of profile %s", step, name)
		}
	}
}

// checkClear checks the rules for the withdrawal of a permit.
func (m *manager) checkClear(n *simNode) {
	c := n.ClientNode
	permit := c.Spec.RebootPermit
	if permit == nil || n.BootID != permit.BootID {
		return
	}
	response := c.Status.Reboot
	if response != nil && response.PermitID == permit.ID && response.Phase == v1alpha1.RebootStarted {
		m.fail("permit of %s withdrawn although the reboot has started", n.Name)
	}
	if response == nil || response.PermitID != permit.ID || response.Phase != v1alpha1.RebootFailed {
		// The permit was not used, so it does not count as an attempt.
		for _, given := range n.machine.permits {
			given.Delete(permit.ID)
		}
	}
}

// checkUncordon checks invariants 4 and 5. A node that may still go down must not return to service.
func (m *manager) checkUncordon(n *simNode, step plan.Uncordon) {
	if n.Mark == nil {
		m.fail("invariant 5: uncordon of %s, which the rollout has not cordoned", n.Name)
	}
	c := n.ClientNode
	if c == nil {
		return
	}
	m.checkWastedEvictions(n, step)
	if permit := c.Spec.RebootPermit; permit != nil && permit.BootID == n.BootID {
		m.fail("invariant 2: uncordon of %s, which may still reboot", n.Name)
	}
	if step.Reason != v1alpha1.RolloutReasonAccepted || m.seen[n.Name].clientNodeRV != n.clientNodeRV {
		return
	}
	due := slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool {
		return !c.Spec.Release && slices.Contains(c.Status.RebootRequiredBy, s.Key)
	})
	if c.Spec.Release && c.Status.RebootRequired {
		due = slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool {
			return m.rules[s.Profile].Rollout.Reboot.RestoreReboot
		})
	}
	if !n.Ready || c.Status.BootID != n.BootID || due {
		m.fail("invariant 4: accepted %s, which is not healthy", n.Name)
	}
	for _, s := range c.Spec.Settings {
		if !c.Spec.Release && isBootKey(s.Key) && n.machine.seen[s.Key] != s.Value && c.Status.Hash == c.Spec.Hash && !n.isUnsupported(s.Key) {
			m.fail("invariant 4: accepted %s without %s", n.Name, s.Key)
		}
	}
}

// check checks the invariants that hold while no manager is in the middle of a pass.
func (w *world) check() {
	w.checkLosses()
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		if _, claimed := w.claims[name]; !claimed && n.Mark != nil && n.Unschedulable {
			w.fail("invariant 1: %s is cordoned by the rollout without a claim", name)
		}
	}
}

// checkOneControlPlane checks that the rollout takes at most one control-plane node out of service.
func (w *world) checkOneControlPlane() {
	if w.lenient {
		return
	}
	var out []string
	for _, name := range w.nodeNames {
		if n := w.nodes[name]; n.ControlPlane && w.isDisrupted(n) {
			out = append(out, name)
		}
	}
	if len(out) > 1 {
		w.fail("invariant 18: control-plane nodes %v are disrupted together", out)
	}
}
