// Package simulation runs the manager's rollout and node controller against an in-memory API server, on random schedules with faults.
// After each write, an independent observer asserts the numbered invariants of the design. It does not use the planner's code. Stories play one
// rollout each in the same world, without random faults.
package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/apiclock"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// Writers. The first two are the manager, all others belong to the simulated world.
const (
	byRollout = "rollout"
	byNodes   = "node controller"
	byAgent   = "agent"
	byKubelet = "kubelet"
	byCluster = "cluster"
	// byTainter is the node lifecycle controller, which taints cordoned nodes. Its writes affect no decision.
	byTainter = "tainter"
	byPeople  = "people"
)

// world is a cluster: the objects of the API server, the machines behind them, and all random events.
type world struct {
	rng      *rand.Rand
	now      time.Time
	api      *memapi.Server
	machines map[string]*machine
	apps     []*app
	manager  *process
	*observer

	// maxUnavailable is the cluster's budget, managerNode the manager's node.
	maxUnavailable intstr.IntOrString
	managerNode    string
	// clock is the manager's clock, skew the lead of the API server to which it speaks: a cluster may have several.
	clock *apiclock.Clock
	skew  time.Duration
	// workers is the number of nodes that the manager handles concurrently. With one, a seed always plays the same schedule.
	workers int
	// lenient is set once the claims were lost, or a second manager has worked in the middle of a pass.
	lenient bool
	// intercept decides about the calls of a story's manager. Nil: all of them succeed.
	intercept func(memapi.Call) (memapi.Fate, error)
	// stopAt is the time at which a story continues.
	stopAt time.Time
	// limits are the limits on live changes in the whole cluster.
	limits plan.Limits
	// heat, rejections and ailing are odds. One in heat calls of the manager meets a fault, one in rejections permits is rejected, and three
	// in ailing boots go wrong.
	heat, rejections, ailing int
	// versions counts the changes of each profile.
	versions map[string]int
	zones    int
	serial   int
	// quiet ends all faults. calmAt is the time of their end.
	quiet  bool
	calmAt time.Time
	// verbose keeps the log. brief keeps only the steps of the rollout in it.
	verbose, brief bool
	log            []string
	// broken is the first invariant that did not hold.
	broken error
}

// newWorld returns a cluster without nodes, profiles, workloads and a manager.
func newWorld(seed uint64) *world {
	w := &world{
		rng:      rand.New(rand.NewPCG(seed, 17)),
		now:      time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC),
		machines: map[string]*machine{},
		versions: map[string]int{},
		workers:  1,
	}
	w.api = memapi.NewServer(func() time.Time { return w.now })
	w.observer = newObserver(w)
	w.api.Observe = w.observe
	w.api.Add(byPeople, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace}})
	return w
}

// chance returns true once in oneIn calls on average.
func (w *world) chance(oneIn int) bool { return w.rng.IntN(oneIn) == 0 }

func (w *world) seconds(most int) time.Duration {
	return time.Duration(w.rng.IntN(most+1)) * time.Second
}

func (w *world) narrate(format string, args ...any) {
	if w.verbose {
		w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
		w.narrate("BROKEN: %v", w.broken)
	}
}

// populate creates a random cluster, usually a small one: small clusters find as much in less time.
func (w *world) populate() {
	nodes, profiles := 3+w.rng.IntN(5), 1+w.rng.IntN(2)
	switch {
	case w.chance(40):
		nodes, profiles = 20+w.rng.IntN(21), 2+w.rng.IntN(5)
	case w.chance(6):
		nodes, profiles = 6+w.rng.IntN(7), 1+w.rng.IntN(3)
	}
	w.maxUnavailable = intstr.FromInt(1 + w.rng.IntN(3))
	if w.chance(3) {
		w.maxUnavailable = intstr.FromString(strconv.Itoa(5+w.rng.IntN(60)) + "%")
	}
	w.limits = plan.Limits{MaxConcurrentLive: *w.anyShare(), MinSoak: w.seconds(60), UntunedTaint: v1alpha1.UntunedTaint}
	w.heat, w.rejections, w.ailing = []int{60, 150, 400}[w.rng.IntN(3)], 12, 16
	if w.chance(3) {
		w.ailing = 5
	}
	if w.chance(8) {
		w.rejections = 1
	}
	if w.chance(2) {
		w.skew = w.seconds(20) - 10*time.Second
	}
	w.zones = w.rng.IntN(3)
	controlPlanes := [...]int{0, 0, 1, 3}[w.rng.IntN(4)]
	for i := range nodes {
		w.addNode("n"+strconv.Itoa(10+i), i >= nodes-controlPlanes)
	}
	w.managerNode = "n" + strconv.Itoa(10+w.rng.IntN(nodes))
	for i := range profiles {
		w.addProfile("p" + strconv.Itoa(i))
	}
	w.addApps(nodes)
	if w.chance(5) {
		w.bindManager()
	}
}

// bindManager lets the manager's Pod start on no other node than its own.
func (w *world) bindManager() {
	w.changeNode(byPeople, w.managerNode, func(n *corev1.Node) { n.Labels["only"] = "yes" })
	w.addManagerPod(map[string]string{"only": "yes"})
}

// addManagerPod adds the manager's Pod to its node.
func (w *world) addManagerPod(nodeSelector map[string]string) {
	pod := (&app{name: "manager"}).pod("manager", "ReplicaSet")
	pod.Namespace = v1alpha1.ManagerNamespace
	pod.Labels = map[string]string{"app.kubernetes.io/name": "storage-client-operator", "app.kubernetes.io/component": "manager"}
	pod.Spec.NodeName, pod.Spec.NodeSelector = w.managerNode, nodeSelector
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, readyCondition(true)
	w.api.Add(byCluster, pod)
}

// isManagerBound reports whether a node is the only one for the manager's Pod, which runs on it.
func (w *world) isManagerBound(name string) bool {
	pod, exists := w.api.Get(memapi.Pods, v1alpha1.ManagerNamespace, "manager").(*corev1.Pod)
	return exists && name == w.managerNode && pod.Spec.NodeSelector != nil
}

// newMachine returns a machine that is up, and its Node.
func (w *world) newMachine(name string) (*machine, *corev1.Node) {
	w.serial++
	m := &machine{
		name:     name,
		boot:     name + "-boot-" + strconv.Itoa(w.serial),
		inForce:  map[string]string{},
		staged:   map[string]string{},
		used:     map[string]string{},
		reboots:  map[string]int{},
		ailments: map[string]ailment{},
		stuck:    map[string]bool{},
		up:       true,
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	node.Status.NodeInfo.BootID = m.boot
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
	return m, node
}

// register adds a machine and its Node.
func (w *world) register(m *machine, node *corev1.Node) {
	w.machines[m.name] = m
	m.uid = w.api.Add(byKubelet, node).GetUID()
}

// addNode registers a random machine.
func (w *world) addNode(name string, controlPlane bool) {
	m, node := w.newMachine(name)
	if w.chance(5) {
		// A user has edited the boot menu.
		m.stuck["kernelArgument/ihash_entries"], m.stuck["kernelArgument/dhash_entries"] = true, true
	}
	if w.chance(2) {
		m.skew = w.anyLead()
	}
	if w.chance(8) {
		w.failStorage(m, w.seconds(1800))
	}
	node.Labels["pool"] = [...]string{"a", "b"}[w.rng.IntN(2)]
	if controlPlane {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	if w.zones > 0 {
		node.Labels[corev1.LabelTopologyZone] = [...]string{"x", "y"}[w.rng.IntN(w.zones)]
	}
	if w.chance(3) {
		node.Labels["canary"] = "yes"
	}
	if w.chance(5) {
		node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
	w.register(m, node)
}

// addProfile declares kernel arguments and live values for some nodes.
func (w *world) addProfile(name string) {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.Priority = w.rng.Int32N(4)
	p.Spec.IncludeControlPlane = w.chance(2)
	p.Spec.NodeSelector, p.Spec.AllNodes = w.anySelector()
	p.Spec.Rollout = w.anyRollout()
	p.Spec.Node = w.anySettings(name)
	if w.chance(8) {
		p.Spec.DeletionPolicy = v1alpha1.DeletionRetain
	}
	w.checkProfile(p)
	w.api.Add(byPeople, p)
}

// checkProfile checks that the manager would accept the profiles of the world.
func (w *world) checkProfile(p *v1alpha1.StorageClientProfile) {
	for _, problem := range nodesettings.Validate(p, catalogue.AllowList{}) {
		if !problem.Warning {
			panic(problem.String())
		}
	}
}

func (w *world) anySelector() (selector metav1.LabelSelector, allNodes bool) {
	switch w.rng.IntN(4) {
	case 0:
		return metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, false
	case 1:
		return metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}, false
	}
	return metav1.LabelSelector{}, true
}

// anySettings returns the settings of a profile: usually at least one kernel argument, and one to three live values. Profiles share keys.
func (w *world) anySettings(profile string) *v1alpha1.NodeTuning {
	w.versions[profile]++
	number := strconv.Itoa(1<<15 + int(profile[1]-'0')*1000 + w.versions[profile])
	out := &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}}
	for i, key := range []string{"net.core.somaxconn", "net.core.netdev_max_backlog", "vm.dirty_expire_centisecs"} {
		if i == 0 || w.chance(3) {
			out.Sysctls[key] = v1alpha1.SettingText(number)
		}
	}
	if w.chance(10) {
		return out
	}
	names := []string{"ihash_entries", "dhash_entries"}
	first := w.rng.IntN(2)
	out.KernelArguments = append(out.KernelArguments, v1alpha1.KernelArgument(names[first]+"="+number))
	if w.chance(3) {
		out.KernelArguments = append(out.KernelArguments, v1alpha1.KernelArgument(names[1-first]+"="+number))
	}
	return out
}

// windowSets are short, so that they open and close during a schedule.
var windowSets = [][]v1alpha1.Window{
	{{Schedule: "*/20 * * * *", DurationSeconds: 400}},
	{{Schedule: "*/30 * * * *", DurationSeconds: 600, TimeZone: "Europe/Berlin"}},
	{{Schedule: "10 * * * *", DurationSeconds: 900, TimeZone: "Asia/Kolkata"}, {Schedule: "0 0-22/2 * * *", DurationSeconds: 1200}},
}

func (w *world) anyWindows() []v1alpha1.Window {
	if !w.chance(4) {
		return nil
	}
	return windowSets[w.rng.IntN(len(windowSets))]
}

func (w *world) anyShare() *intstr.IntOrString {
	if w.chance(3) {
		return ptr.To(intstr.FromString(strconv.Itoa(10+w.rng.IntN(70)) + "%"))
	}
	return ptr.To(intstr.FromInt(1 + w.rng.IntN(3)))
}

func (w *world) anyRollout() v1alpha1.Rollout {
	r := v1alpha1.Rollout{
		MaxUnavailable: w.anyShare(), MaxConcurrentLive: w.anyShare(),
		Canary:           &v1alpha1.Canary{Nodes: ptr.To(1 + w.rng.Int32N(2)), SoakSeconds: ptr.To(w.rng.Int32N(300))},
		FailureThreshold: ptr.To(1 + w.rng.Int32N(3)),
		SettleSeconds:    ptr.To(w.rng.Int32N(150)),
		Windows:          w.anyWindows(),
	}
	r.Drain.TimeoutSeconds = ptr.To(60 + w.rng.Int32N(900))
	r.Reboot.TimeoutSeconds = ptr.To(200 + w.rng.Int32N(600))
	r.Reboot.RestoreReboot = w.chance(2)
	if r.Reboot.Policy = v1alpha1.RebootAutomatic; w.chance(5) {
		r.Reboot.Policy = v1alpha1.RebootOnApproval
	}
	if w.chance(3) {
		r.Drain.ExcludeFromLoadBalancersSeconds = 1 + w.rng.Int32N(120)
	}
	if w.chance(3) {
		r.Drain.LookAhead = v1alpha1.LookAheadCordonFirst
	}
	r.Drain.DeleteEmptyDirData = w.chance(2)
	if w.chance(3) {
		r.Canary.Nodes, r.Canary.NodeSelector = nil, &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
	}
	return r
}

// node returns a Node, nil if there is none. Never change the objects that the world returns.
func (w *world) node(name string) *corev1.Node {
	return find[*corev1.Node](w.api.All(memapi.Nodes), name)
}

func (w *world) clientNode(name string) *v1alpha1.StorageClientNode {
	return find[*v1alpha1.StorageClientNode](w.api.All(memapi.ClientNodes), name)
}

func (w *world) profile(name string) *v1alpha1.StorageClientProfile {
	return find[*v1alpha1.StorageClientProfile](w.api.All(memapi.Profiles), name)
}

// find returns a cluster-wide object by its name, nil if there is none.
func find[T client.Object](all []client.Object, name string) T {
	at, found := slices.BinarySearchFunc(all, name, func(o client.Object, name string) int {
		switch {
		case o.GetName() < name:
			return -1
		case o.GetName() > name:
			return 1
		}
		return 0
	})
	var none T
	if !found {
		return none
	}
	return all[at].(T)
}

// names returns the names of all objects of a kind, for callers that change the objects in a loop.
func (w *world) names(kind memapi.Kind) []string {
	all := w.api.All(kind)
	out := make([]string, len(all))
	for i, o := range all {
		out[i] = o.GetName()
	}
	return out
}

// claims returns the entries of the budget's ConfigMap. Do not change them.
func (w *world) claims() map[string]string {
	if object := w.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap); object != nil {
		return object.(*corev1.ConfigMap).Data
	}
	return nil
}

func (w *world) changeNode(actor, name string, change func(*corev1.Node)) {
	if node := w.node(name); node != nil {
		memapi.Change(w.api, actor, node, change)
	}
}

// managerTime returns the time of the manager's clock.
func (w *world) managerTime() time.Time { return w.clock.Now() }

// anyLead returns the lead of a machine's clock: up to ten minutes in both directions, in half of the cases none.
func (w *world) anyLead() time.Duration {
	if w.chance(2) {
		return 0
	}
	return w.seconds(1200) - 10*time.Minute
}

// machineClock is the clock of the manager's machine. The world has the API server's time.
type machineClock struct {
	*world
	lead time.Duration
}

func (c machineClock) Now() time.Time                  { return c.now.Add(c.lead) }
func (c machineClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// RoundTrip acts as the API server.
func (w *world) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{"Date": {w.now.Add(w.skew).UTC().Format(http.TimeFormat)}}, Body: http.NoBody}, nil
}

// hear lets the manager read the date of a response, as each of its requests does.
func (w *world) hear() {
	if response, err := w.clock.Wrap(w).RoundTrip(nil); err == nil {
		_ = response.Body.Close()
	}
}

// playSeed runs one schedule. The first part has faults; in some schedules it is long enough that nodes boot, fail and are tried again. The
// second part has no faults, and at its end all work must be done.
func playSeed(seed uint64, workers int, verbose bool) *world {
	w := newWorld(seed)
	w.workers, w.verbose = workers, verbose
	w.populate()
	w.manager = w.startManager()
	defer func() { w.manager.end() }()
	for range 50 + w.rng.IntN(100) {
		if w.takeTurn(); w.broken != nil {
			return w
		}
	}
	if w.chance(3) {
		for range 50 + w.rng.IntN(100) {
			if w.takeBusyTurn(); w.broken != nil {
				return w
			}
		}
	}
	w.endFaults()
	for range 4000 {
		if w.playCalmly(); w.broken != nil {
			return w
		}
		if w.unfinishedWork() == "" {
			w.tidy()
			w.upgrade()
			return w
		}
	}
	w.fail("livelock: %s", w.unfinishedWork())
	return w
}

// tidy lets the manager clear records that are no longer needed: it may rest when the last node is done.
func (w *world) tidy() {
	for range 3 {
		w.playCalmly()
	}
}

// upgrade is invariant 13: after all work is done, another manager does not change anything.
func (w *world) upgrade() {
	before := w.steps
	w.narrate("another version of the manager starts")
	w.manager.end()
	w.manager = w.startManager()
	for range 4 {
		w.playCalmly()
	}
	if w.steps != before {
		w.fail("invariant 13: another manager changes completed work")
	}
}

// takeTurn runs one random event.
func (w *world) takeTurn() {
	w.api.RunLate()
	switch w.rng.IntN(13) {
	case 0, 1, 2:
		w.manager.seeSome()
		w.manager.runRollout()
		if w.chance(2) {
			w.manager.runEvictions()
		}
	case 3, 4:
		w.manager.seeSome()
		w.manager.runNodes(false)
	case 5, 6:
		w.runAgents()
	case 7, 8:
		w.passTime(time.Second + w.seconds(80))
	case 9, 10:
		w.runControllers()
	case 11:
		w.manager.runEvictions()
	default:
		w.causeMishap()
	}
	w.replaceManager()
}

// takeBusyTurn is a turn in which the rollout progresses: due steps run and time passes until the next one. In the meantime machines, users and
// the API server continue to fail.
func (w *world) takeBusyTurn() {
	w.api.RunLate()
	if w.chance(8) {
		w.causeMishap()
	}
	w.playCalmly()
	w.replaceManager()
}

func (w *world) replaceManager() {
	if w.manager.dead() {
		w.narrate("another manager starts")
		w.manager = w.startManager()
	}
}

// playCalmly runs a turn without faults: due steps run, and time passes.
func (w *world) playCalmly() {
	before := w.writes
	w.manager.cache.Sync()
	w.manager.runNodes(true)
	w.runAgents()
	w.runControllers()
	w.manager.cache.Sync()
	w.manager.runRollout()
	w.manager.runEvictions()
	if w.writes != before {
		w.passTime(2 * time.Second)
		return
	}
	w.passTime(w.idleTime())
}

// idleTime returns the time until the next event.
func (w *world) idleTime() time.Duration {
	end := w.now.Add(time.Hour)
	earlier := func(t time.Time) {
		if t.After(w.now) && t.Before(end) {
			end = t
		}
	}
	earlier(w.stopAt)
	earlier(w.manager.rolloutAt)
	for _, at := range w.manager.nodeAt {
		earlier(at)
	}
	for _, m := range w.machines {
		earlier(m.unreadyAt)
		earlier(m.upAt)
		earlier(m.silentUntil)
		earlier(m.mounted)
		earlier(m.outage.until)
	}
	for _, a := range w.apps {
		earlier(a.blockedUntil)
	}
	for _, o := range w.api.All(memapi.Pods) {
		earlier(w.podEvent(o.(*corev1.Pod)))
	}
	return max(end.Sub(w.now), 2*time.Second)
}

// passTime advances the clock: machines go down and come up.
func (w *world) passTime(d time.Duration) {
	w.now = w.now.Add(d)
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		w.advanceMachine(w.machines[name])
	}
}
