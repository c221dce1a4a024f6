package simulation

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// machine is the real state of a node, which the API may not show.
type machine struct {
	name string
	uid  types.UID
	// boot is the boot ID.
	boot string
	// inForce are the effective settings that require a reboot, staged their values for the next boot.
	inForce, staged map[string]string
	up              bool
	// unreadyAt is the time at which the cluster notices that the machine is down, upAt the end of its boot.
	unreadyAt, upAt time.Time
	ends            bootEnd
	// always is the result of the boots of a story's machine.
	always bootEnd
	// flaps is the time of another failure of a machine whose boot went wrong.
	flaps time.Time
	// silentUntil is the return of the agent, mounted the end of a pod's mount, locked the end of work that must not be interrupted.
	silentUntil, mounted, locked time.Time
	// outage is the time in which the machine's storage server does not respond. No pod terminates in it.
	outage outage
	// used maps the permits in the journal to the boots that they were used in, reboots counts the reboots of each permit.
	used    map[string]string
	reboots map[string]int
	// going is the permit of a reboot that the agent has announced.
	going string
	// decided is the object with the permit of a reboot that the agent has decided on and not announced yet.
	decided *v1alpha1.StorageClientNode
	// ailments are the causes that keep settings from their values, by key. stuck are the settings that cannot be removed from the boot
	// menu.
	ailments map[string]ailment
	stuck    map[string]bool
	// unrestored are the stuck settings that the boot menu still has and the spec no longer requests.
	unrestored []string
	// skew is the lead of the kubelet's clock, turned the true time of the last change of the Node's readiness.
	skew   time.Duration
	turned time.Time
	// foul counts the problems with the machine's settings. foulSeen is the count at the agent's last report, foulThen the count of the
	// report that the last permit was based on.
	foul, foulSeen, foulThen int
	// seen are the effective settings at the agent's last report, ailed the ailments at that time. reported is the write of its last
	// report that contained a change.
	seen     map[string]string
	ailed    map[string]ailment
	reported int
}

// outage is a time in which a storage server does not respond to a machine.
type outage struct{ since, until time.Time }

// servers returns the servers that the agent reports.
func (o outage) servers(now time.Time) []v1alpha1.ServerStatus {
	if o.until.IsZero() {
		return nil
	}
	server := v1alpha1.ServerStatus{Server: "filer1", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering}
	if now.Before(o.until) {
		server.State, server.Since = v1alpha1.ServerSilent, &metav1.Time{Time: o.since}
	}
	return []v1alpha1.ServerStatus{server}
}

// failStorage makes the storage server of a machine, or the network to it, unavailable for a while.
func (w *world) failStorage(m *machine, d time.Duration) {
	w.narrate("the storage server of %s does not respond", m.name)
	m.outage = outage{since: w.now, until: w.now.Add(d)}
}

// bootEnd is the result of a boot.
type bootEnd int

const (
	bootWell bootEnd = iota
	bootNever
	bootHangs
	bootWithoutEffect
)

// ailment is the cause that keeps a setting from its desired value on a machine, as its agent reports it.
type ailment struct {
	state  v1alpha1.SettingState
	effect v1alpha1.SettingEffect
}

var liveAilments = []ailment{
	{v1alpha1.SettingFailed, v1alpha1.EffectLive}, {v1alpha1.SettingDrifted, v1alpha1.EffectLive}, {v1alpha1.SettingClamped, v1alpha1.EffectLive},
	{v1alpha1.SettingUnsupported, v1alpha1.EffectLive}, {v1alpha1.SettingShadowed, v1alpha1.EffectLive}, {v1alpha1.SettingPending, v1alpha1.EffectNewTransport},
}

var bootAilments = []ailment{
	{v1alpha1.SettingFailed, v1alpha1.EffectReboot}, {v1alpha1.SettingDrifted, v1alpha1.EffectReboot}, {v1alpha1.SettingShadowed, v1alpha1.EffectReboot},
	{v1alpha1.SettingClamped, v1alpha1.EffectReboot}, {v1alpha1.SettingUnsupported, v1alpha1.EffectReboot},
}

// isBlocking reports whether a reboot cannot apply a setting in this state.
func isBlocking(state v1alpha1.SettingState, effect v1alpha1.SettingEffect) bool {
	boots := effect == v1alpha1.EffectReboot
	return state == v1alpha1.SettingFailed || boots && (state == v1alpha1.SettingShadowed || state == v1alpha1.SettingDrifted)
}

func isBootKey(key string) bool { return nodesettings.TakesEffectAtBoot(key) }

func (w *world) runAgents() {
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		if m := w.machines[name]; w.quiet || !w.chance(3) {
			w.runAgent(m)
		}
	}
}

// runAgent is one round of a node's agent: it reads its spec, stages, reports, and responds to a permit.
func (w *world) runAgent(m *machine) {
	node := w.node(m.name)
	if node == nil || !m.up || w.now.Before(m.silentUntil) || node.Labels[v1alpha1.ManagedLabel] != v1alpha1.True {
		return
	}
	if m.going != "" {
		w.goDown(m)
		return
	}
	c := w.clientNode(m.name)
	if c == nil {
		return
	}
	m.stage(c)
	status := w.observeStatus(m, c)
	if permit := c.Spec.RebootPermit; permit != nil && m.decided == nil {
		status.Reboot = w.respondToPermit(m, c, &status)
		if r := status.Reboot; r.Phase == v1alpha1.RebootStarted && m.used[r.PermitID] == "" {
			m.used[r.PermitID], m.decided = m.boot, c
			if !w.quiet && w.chance(6) {
				w.narrate("the agent of %s stands still before it announces its reboot", m.name)
				w.silence(m)
				return
			}
		}
	}
	if !w.quiet && w.chance(12) {
		m.decided = nil
		return // The API server rejected its report.
	}
	decided := m.decided
	m.decided = nil
	if decided != nil && (c.UID != decided.UID || c.Generation != decided.Generation || w.isOver(c.Spec.RebootPermit)) {
		// The object has changed or the permit has expired since the agent decided.
		status.Reboot, decided = nil, nil
		if permit := c.Spec.RebootPermit; permit != nil {
			status.Reboot = w.respondToPermit(m, c, &status)
		}
	} else if decided != nil {
		status.Reboot = &v1alpha1.RebootStatus{PermitID: c.Spec.RebootPermit.ID, Phase: v1alpha1.RebootStarted}
		w.checkAnnouncement(m, c)
	}
	w.report(m, c, status)
	if decided != nil {
		m.going = decided.Spec.RebootPermit.ID
		if w.chance(2) {
			w.goDown(m)
		}
	}
}

// silence stops an agent for minutes, hours or days.
func (w *world) silence(m *machine) {
	m.silentUntil = w.now.Add(w.seconds([...]int{2000, 20000, 300000}[w.rng.IntN(3)]))
	w.setAgentReady(m.name, false)
}

// isOver reports whether a permit has expired, by the API server's clock.
func (w *world) isOver(permit *v1alpha1.RebootPermit) bool {
	return permit.NotAfter != nil && w.now.After(permit.NotAfter.Time)
}

// stage writes the boot menu.
func (m *machine) stage(c *v1alpha1.StorageClientNode) {
	staged, desired := map[string]string{}, map[string]bool{}
	for _, s := range c.Spec.Settings {
		if !isBootKey(s.Key) || c.Spec.Release && s.OnRemoval != v1alpha1.DeletionRetain {
			continue
		}
		desired[s.Key] = true
		if _, ails := m.ailments[s.Key]; !ails {
			staged[s.Key] = s.Value
		}
	}
	m.unrestored = nil
	for _, key := range slices.Sorted(maps.Keys(m.stuck)) {
		if value, found := m.staged[key]; found && !desired[key] {
			staged[key] = value
			m.unrestored = append(m.unrestored, key)
		}
	}
	m.staged = staged
}

func (w *world) report(m *machine, c *v1alpha1.StorageClientNode, status v1alpha1.StorageClientNodeStatus) {
	status.Rollout = c.Status.Rollout
	m.seen, m.ailed, m.foulSeen = maps.Clone(m.inForce), maps.Clone(m.ailments), m.foul
	if !equality.Semantic.DeepEqual(status, c.Status) {
		memapi.Change(w.api, byAgent, c, func(c *v1alpha1.StorageClientNode) { c.Status = status })
		m.reported = w.writes
	}
}

func (w *world) observeStatus(m *machine, c *v1alpha1.StorageClientNode) v1alpha1.StorageClientNodeStatus {
	status := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: c.Generation, Hash: c.Spec.Hash, BootID: m.boot, Restored: c.Spec.Release,
	}
	for _, key := range slices.Sorted(maps.Keys(m.inForce)) {
		if _, staged := m.staged[key]; !staged && (c.Spec.Release || !wants(c, key)) {
			status.RebootRequiredBy = append(status.RebootRequiredBy, key)
		}
	}
	for _, s := range c.Spec.Settings {
		observed := v1alpha1.SettingStatus{Key: s.Key, TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingInSync}
		if isBootKey(s.Key) {
			observed.TakesEffect = v1alpha1.EffectReboot
		}
		ails, isIll := m.ailments[s.Key]
		switch {
		case c.Spec.Release:
		case isIll:
			observed.State, observed.TakesEffect, observed.Message = ails.state, ails.effect, "so it is"
		case isBootKey(s.Key) && m.inForce[s.Key] != s.Value:
			observed.State = v1alpha1.SettingPending
			status.RebootRequiredBy = append(status.RebootRequiredBy, s.Key)
		}
		status.Settings = append(status.Settings, observed)
	}
	for _, key := range m.unrestored {
		failed := v1alpha1.SettingStatus{Key: key, TakesEffect: v1alpha1.EffectReboot, State: v1alpha1.SettingFailed, Message: "cannot restore"}
		status.Settings = append(slices.DeleteFunc(status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == key }), failed)
		status.Restored = false
	}
	status.RebootRequired = len(status.RebootRequiredBy) > 0
	status.Servers = m.outage.servers(w.now)
	if w.now.Before(m.mounted) {
		status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/var/lib/kubelet/pods/x"}}
	}
	return status
}

func wants(c *v1alpha1.StorageClientNode, key string) bool {
	return slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
}

// respondToPermit decides on a permit like the agent: the decision is final.
func (w *world) respondToPermit(m *machine, c *v1alpha1.StorageClientNode, status *v1alpha1.StorageClientNodeStatus) *v1alpha1.RebootStatus {
	permit := c.Spec.RebootPermit
	respond := func(phase v1alpha1.RebootPhase, message string) *v1alpha1.RebootStatus {
		return &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: phase, Message: message}
	}
	if boot, used := m.used[permit.ID]; used && boot == m.boot {
		return respond(v1alpha1.RebootFailed, "used, not rebooted")
	} else if used {
		return respond(v1alpha1.RebootStarted, "")
	}
	if previous := c.Status.Reboot; previous != nil && previous.PermitID == permit.ID && previous.Phase != v1alpha1.RebootWaiting {
		return previous
	}
	// The agent checks these obstacles too: see agent/permit.go.
	obstacles := standing.Read(&c.Spec, status, "").Obstacles()
	switch {
	case w.isOver(permit), permit.BootHash != c.Spec.BootHash, permit.BootID != m.boot, !status.RebootRequired, len(status.BusyMounts) > 0, len(obstacles) > 0:
		return respond(v1alpha1.RebootRefused, "no longer right")
	case w.now.Before(m.locked):
		return respond(v1alpha1.RebootWaiting, "packages are being installed")
	case !w.quiet && w.chance(w.rejections):
		return respond(v1alpha1.RebootRefused, "a mount came in between")
	}
	return respond(v1alpha1.RebootStarted, "")
}

// goDown starts a reboot that the agent requested.
func (w *world) goDown(m *machine) {
	permit := m.going
	m.going = ""
	w.checkReboot(m, permit)
	m.reboots[permit]++
	m.ends = m.always
	if !w.quiet {
		switch w.rng.IntN(w.ailing) {
		case 0:
			m.ends = bootNever
		case 1:
			m.ends = bootHangs
		case 2:
			m.ends = bootWithoutEffect
		}
	}
	w.takeDown(m, 20*time.Second+w.seconds(200))
}

// takeDown ends the boot of a machine. The cluster may notice late, or never.
func (w *world) takeDown(m *machine, boot time.Duration) {
	w.narrate("machine %s goes down", m.name)
	m.decided = nil
	m.up, m.going, m.upAt, m.unreadyAt, m.flaps = false, "", w.now.Add(boot), w.now, time.Time{}
	if w.chance(2) {
		m.unreadyAt = w.now.Add(w.seconds(60))
	}
	w.advanceMachine(m)
}

// advanceMachine runs the due events of a machine.
func (w *world) advanceMachine(m *machine) {
	if !m.silentUntil.IsZero() && m.up && !w.now.Before(m.silentUntil) {
		m.silentUntil = time.Time{}
		w.setAgentReady(m.name, true)
	}
	if m.up && !m.flaps.IsZero() && !w.now.Before(m.flaps) && !w.quiet {
		m.ends = bootHangs
		w.takeDown(m, w.seconds(300))
	}
	if m.up {
		return
	}
	if !m.unreadyAt.IsZero() && !w.now.Before(m.unreadyAt) {
		m.unreadyAt = time.Time{}
		w.setReady(m, false)
	}
	if w.now.Before(m.upAt) || m.ends == bootNever {
		return
	}
	m.up, m.upAt, m.unreadyAt = true, time.Time{}, time.Time{}
	if m.ends != bootHangs {
		w.serial++
		m.boot = m.name + "-boot-" + strconv.Itoa(w.serial)
		if m.ends == bootWithoutEffect {
			m.foul++
		} else {
			m.inForce = maps.Clone(m.staged)
		}
		if !w.quiet && w.chance(8) {
			w.ailAnything(m)
		}
	} else {
		m.foul++
	}
	if m.ends != bootWell && !w.quiet && w.chance(3) {
		m.flaps = w.now.Add(w.seconds(120))
	}
	w.narrate("machine %s is up as %s", m.name, m.boot)
	w.changeNode(byKubelet, m.name, func(n *corev1.Node) { n.Status.NodeInfo.BootID = m.boot })
	w.setReady(m, true)
}

// setReady sets the readiness that the cluster reports for a machine, by its kubelet's clock.
func (w *world) setReady(m *machine, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	w.changeNode(byKubelet, m.name, func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != status {
				c.Status, c.LastTransitionTime, m.turned = status, metav1.NewTime(w.now.Add(m.skew)), w.now
			}
		}
	})
	w.setAgentReady(m.name, ready && !w.now.Before(m.silentUntil))
}

func isAgent(pod *corev1.Pod) bool { return pod.Namespace == v1alpha1.AgentNamespace }

func isReadyPod(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func isReadyNode(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (w *world) setAgentReady(node string, ready bool) {
	if o := w.api.Get(memapi.Pods, v1alpha1.AgentNamespace, "agent-"+node); o != nil {
		memapi.Change(w.api, byKubelet, o.(*corev1.Pod), func(pod *corev1.Pod) { pod.Status.Conditions = readyCondition(ready) })
	}
}

func readyCondition(ready bool) []corev1.PodCondition {
	if ready {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

// ailAnything adds or removes an ailment: a file of a user, a tool that changes values back, or a full disk.
func (w *world) ailAnything(m *machine) {
	c := w.clientNode(m.name)
	if c == nil || len(c.Spec.Settings) == 0 {
		return
	}
	key := c.Spec.Settings[w.rng.IntN(len(c.Spec.Settings))].Key
	if isBootKey(key) && w.chance(4) {
		w.narrate("%s: %s can be removed from the boot menu: %t", m.name, key, m.stuck[key])
		if m.stuck[key] = !m.stuck[key]; !m.stuck[key] {
			delete(m.stuck, key)
		}
		return
	}
	choice := liveAilments
	if isBootKey(key) {
		if choice = bootAilments; w.chance(2) {
			return
		}
	}
	if w.chance(3) {
		if _, ailed := m.ailments[key]; ailed && isBootKey(key) {
			// If the ailment prevented staging before a boot in progress, the setting is not effective after that boot.
			m.foul++
		}
		delete(m.ailments, key)
		return
	}
	m.ailments[key] = choice[w.rng.IntN(len(choice))]
	m.foul++
	w.narrate("%s: %s is %s", m.name, key, m.ailments[key].state)
}
