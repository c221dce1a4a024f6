package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/apiclock"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// errDied is the panic of a manager that dies.
var errDied = errors.New("the manager died")

// poison is the option that a server may reject.
const poison = "nordirplus"

// declaredLists are the options that profiles declare, by version.
var declaredLists = [][]string{{"nocto"}, {"nocto", poison}, {"nconnect=4", "nocto"}, {"noresvport"}}

// world is a cluster in memory: the objects of the API server, and the kubelets that mount volumes. It checks the invariants at
// every write.
type world struct {
	now      time.Time
	rng      *rand.Rand
	volumes  map[string]*simVolume
	profiles map[string]*v1alpha1.StorageClientProfile
	paused   bool
	// mounts contains the options that each volume is mounted with. The only node with an agent has the mount. If bare is true, a node
	// without an agent has it. idle contains the mounts without any use yet. skew is the clock lead of the node with the agent.
	mounts     map[string][]string
	bare, idle map[string]bool
	skew       time.Duration
	// lies is true if a node without any pod reports mounts of all volumes with their current options.
	lies bool
	// mountedLists are the options of the operator that worked: a volume was mounted with them.
	mountedLists [][]string
	// failures are the failed mounts. kinds are the names of their kinds.
	failures []failure
	kinds    map[string]string
	// failed contains all failed mounts since the start. abandoned contains the volumes that had no waiting pod at some time.
	failed    map[failedOnce]bool
	abandoned map[string]bool
	// If poisoned is set, mounts with the option poison fail. If outspoken is set, the error names the options as the cause.
	// Volumes in unwell cannot be mounted with any options. mountedAt is the time of the last mount of a volume.
	poisoned, outspoken bool
	unwell              map[string]bool
	mountedAt           map[string]time.Time
	serial              int
	// waited are the pods that waited for a volume before they mounted it, by volume. kubelets decides for the pods that wait: the random numbers of
	// the other events stay the same.
	waited   map[string]failure
	kubelets *rand.Rand
	// changes counts the changes by users and other controllers.
	changes int

	// stripped is set after a user removes marks. Without a mark, every mount with the current options is evidence, whatever its age.
	stripped bool
	// pages are the ConfigMaps of the ledger.
	pages      map[string]*corev1.ConfigMap
	pageReader ledger.Reader
	// reservations are the ConfigMaps of canaries that were reserved at creation.
	reservations map[string]*corev1.ConfigMap

	// canaries contains the batches that started with an unproven option set, and that set.
	canaries map[string]string

	verbose bool
	// random is true in a schedule, which has more random events than a story.
	random bool
	log    []string
	// lenient is set after two managers overlap. The invariants of batches do not apply then.
	lenient bool
	// intrude is called before every read and write of a manager. May be nil.
	intrude func()
	// concurrent is true if a pass writes several volumes at a time.
	concurrent bool
	mutex      sync.Mutex
	broken     error
}

// simVolume is a volume with its history in the world.
type simVolume struct {
	pv *corev1.PersistentVolume
	// own contains the options before the operator's first write, written the options of its last write.
	own, written []string
	// carried is true from a write by the operator until the volume is restored or released. profiles are the profiles of that write.
	// putBack is true if the operator has restored annotations that a user removed.
	carried  bool
	profiles []string
	// declared are the names of the options that profiles declared at the last write.
	declared []string
	putBack  bool
	// lost is true if both annotations and ledger entry were lost at some time. A manager may still have an earlier read in memory.
	lost bool
	// manifest contains the options at creation.
	manifest []string
	// protected is true if a policy rejects every write of the operator.
	protected bool
	// former are the options before the last write of the operator, at changed.
	former  []string
	changed time.Time
}

type failedOnce struct{ volume, kind string }

// failure is a failed mount by a pod, which waits until its volume can be mounted or until it is gone.
type failure struct {
	volume, pod, message string
	at                   time.Time
	// last is the last attempt of the same pod. Zero if there was only one.
	last              time.Time
	kind              string
	isRefused, isGone bool
}

// The kinds of failures.
const refusedOption, sickServer = "refused option", "sick server"

func newWorld(seed uint64) *world {
	return &world{
		now: time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC), rng: rand.New(rand.NewPCG(seed, 0)),
		volumes: map[string]*simVolume{}, profiles: map[string]*v1alpha1.StorageClientProfile{}, mounts: map[string][]string{}, canaries: map[string]string{},
		pages: map[string]*corev1.ConfigMap{}, reservations: map[string]*corev1.ConfigMap{}, outspoken: true, unwell: map[string]bool{}, mountedAt: map[string]time.Time{}, bare: map[string]bool{}, idle: map[string]bool{},
		waited: map[string]failure{}, kubelets: rand.New(rand.NewPCG(seed, 1)), failed: map[failedOnce]bool{}, kinds: map[string]string{}, abandoned: map[string]bool{},
	}
}

func (w *world) logf(format string, args ...any) {
	if w.verbose {
		w.log = append(w.log, w.now.Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
		w.logf("BROKEN: %v", w.broken)
	}
}

func (w *world) version() string {
	w.serial++
	return strconv.Itoa(w.serial)
}

func (w *world) addVolume(name string, options ...string) *simVolume {
	pv := builders.NFSVolume(options, builders.Named(name))
	pv.UID, pv.ResourceVersion, pv.CreationTimestamp = types.UID(w.version()), w.version(), metav1.NewTime(w.now)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: name, UID: types.UID("claim-" + name)}
	w.volumes[name] = &simVolume{pv: pv, manifest: options}
	return w.volumes[name]
}

func (w *world) addProfile(name string, list []string, change ...func(*v1alpha1.StorageClientProfile)) *v1alpha1.StorageClientProfile {
	p := builders.NFSProfile(name, list)
	p.UID = types.UID(w.version())
	p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{Probe: v1alpha1.ProbeNever}
	for _, c := range change {
		c(&p)
	}
	w.profiles[name] = &p
	w.edited(&p)
	return &p
}

// edited gives a profile that was changed in place a new version.
func (w *world) edited(p *v1alpha1.StorageClientProfile) {
	changed := p.DeepCopy()
	changed.ResourceVersion = w.version()
	w.profiles[p.Name] = changed
	w.changes++
}

func declare(p *v1alpha1.StorageClientProfile, list []string) {
	p.Spec.Volumes[0].MountOptions = nil
	for _, o := range list {
		p.Spec.Volumes[0].MountOptions = append(p.Spec.Volumes[0].MountOptions, v1alpha1.MountOption(o))
	}
}

// change changes a volume as a user.
func (w *world) change(v *simVolume, do func(*corev1.PersistentVolume)) {
	pv := v.pv.DeepCopy()
	do(pv)
	pv.ResourceVersion = w.version()
	v.pv = pv
	w.changes++
}

func (w *world) names() []string { return slices.Sorted(maps.Keys(w.volumes)) }

// mount makes a kubelet mount a volume again, which binds the volume.
func (w *world) mount(name string) {
	v := w.volumes[name]
	if isUnused(v.pv) {
		w.change(v, func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound })
	}
	waiter, list := w.waiterFor(v)
	kind := ""
	if w.poisoned && slices.Contains(list, poison) {
		kind = refusedOption
	}
	if w.unwell[name] {
		kind = sickServer
	}
	if kind != "" {
		w.logf("a pod cannot mount %s with %s: %s", name, strings.Join(list, ","), kind)
		if waiter != nil && kind == w.kinds[waiter.kind] {
			waiter.last = w.now
			return
		}
		f := failure{volume: name, pod: fmt.Sprintf("%s-%s", name, w.version()), message: "exit status 1", at: w.now, isRefused: kind == refusedOption}
		switch {
		case f.isRefused && w.outspoken:
			f.message = "mount.nfs: an incorrect mount option was specified"
		case f.isRefused:
			f.message = "exit status 32"
		}
		f.kind = (&failedMount{message: f.message}).kindOn(v.pv)
		w.failed[failedOnce{name, f.kind}], w.kinds[f.kind] = true, kind
		w.failures = append(w.failures, f)
		return
	}
	if delete(w.waited, name); waiter != nil {
		w.waited[name] = *waiter
	}
	w.stopWaiting(name)
	w.mountedAt[name] = w.now
	if !slices.Equal(w.mounts[name], list) || w.mounts[name] == nil {
		w.logf("a pod mounts %s with %s", name, strings.Join(list, ","))
	}
	w.mounts[name] = append([]string{}, list...)
	if mark := judge.MarkOf(v.pv); slices.Equal(list, v.pv.Spec.MountOptions) && mark != nil && judge.RecordOf(v.pv).HasAppliedOptions(v.pv) {
		if !slices.ContainsFunc(w.mountedLists, func(mounted []string) bool { return slices.Equal(mounted, list) }) {
			w.mountedLists = append(w.mountedLists, list)
		}
	}
	w.bare[name], w.idle[name] = w.random && w.rng.IntN(3) == 0 && waiter == nil, w.random && w.rng.IntN(8) == 0
}

// waiterFor returns the pod that mounts a volume now, if it waits for it, and the options that its kubelet has read: at random, those before the last
// write. Nil for a new pod.
func (w *world) waiterFor(v *simVolume) (waiter *failure, list []string) {
	list = v.pv.Spec.MountOptions
	i := slices.IndexFunc(w.failures, func(f failure) bool { return f.volume == v.pv.Name && !f.isGone })
	if !w.random || i < 0 || w.kubelets.IntN(3) == 0 {
		return nil, list
	}
	waiter = &w.failures[i]
	if waiter.at.Before(v.changed) && w.now.Before(v.changed.Add(retryWithin)) && w.kubelets.IntN(2) == 0 {
		list = v.former
	}
	w.logf("pod %s waits for %s, and its kubelet has read %s", waiter.pod, v.pv.Name, strings.Join(list, ","))
	return waiter, list
}

// tryAgain makes the pods that wait for a volume fail again: the kubelet updates their events.
func (w *world) tryAgain(volume string) {
	w.logf("the pod of %s fails again", volume)
	for i := range w.failures {
		if f := &w.failures[i]; f.volume == volume && !f.isGone {
			f.last = w.now
		}
	}
}

// stopWaiting removes the pods that wait for a volume.
func (w *world) stopWaiting(volume string) {
	for i := range w.failures {
		w.failures[i].isGone = w.failures[i].isGone || w.failures[i].volume == volume
	}
}

func (w *world) isAwaited(volume string) bool {
	return slices.ContainsFunc(w.failures, func(f failure) bool { return f.volume == volume && !f.isGone })
}

// create acts as the API server with the webhook, which may be unavailable.
func (w *world) create(name string, webhook bool, options ...string) {
	v := w.addVolume(name, options...)
	if w.random {
		v.pv.Spec.NFS.Server = []string{"filer", "other"}[w.rng.IntN(2)]
	}
	w.changes++
	if !webhook {
		w.logf("%s is created", name)
		return
	}
	s := w.live()
	s.Volumes = slices.DeleteFunc(s.Volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == name })
	verdict, leftOut, isUnproven := judge.EvaluateNew(judge.Evaluate(judge.Input{Volume: v.pv, Profiles: s.Profiles}), judge.NewVolumeIndex(s.Volumes),
		func(set, _ string) *optionset.Record { return w.records()[set] })
	if isUnproven && w.reserve(s, v.pv, verdict) {
		verdict.IsCanary, leftOut = true, ""
	}
	if w.random && w.rng.IntN(6) == 0 {
		w.logf("the creation of %s is rejected", name)
		delete(w.volumes, name)
		if w.rng.IntN(2) == 0 {
			w.create(name, webhook, options...)
		}
		return
	}
	if leftOut != "" || verdict.Action != judge.ActionWrite {
		w.logf("%s is created, and left as it is", name)
		return
	}
	declared := declaredBy(w.profiles, verdict.Profiles)
	if !verdict.IsCanary && !w.isMounted(verdict.Options, declared) && !w.stripped {
		w.fail("%s was created with options that no mount has proven", name)
	}
	v.own, v.written, v.carried, v.profiles, v.declared = options, verdict.Options, true, verdict.Profiles, declared
	v.pv.Spec.MountOptions = verdict.Options
	maps.Copy(v.pv.Annotations, judge.AnnotationsOfCreation(verdict, ""))
	w.logf("%s is created with %s", name, strings.Join(verdict.Options, ","))
}

// reserve acts as the webhook and the API server for the reservation of a canary. It reports whether the volume has it.
func (w *world) reserve(s plan.Snapshot, pv *corev1.PersistentVolume, verdict judge.Verdict) bool {
	own := judge.ReservationFor(pv, verdict.Set)
	for _, known := range w.reservations {
		if known.Data["set"] == verdict.Set {
			return maps.Equal(known.Data, own.Data)
		}
	}
	if plan.SourceOfEvidence(s, verdict.Set) != "" {
		return false
	}
	declared := declaredBy(w.profiles, verdict.Profiles)
	own.Annotations = map[string]string{"values": fmt.Sprintf("%q %s", verdict.Rules, valuesOf(verdict.Options, declared))}
	for _, known := range w.reservations {
		if known.Annotations["values"] == own.Annotations["values"] {
			w.fail("%s was reserved as the canary although %s is, with the same values", pv.Name, known.Data["volume"])
		}
	}
	if carriers := w.carriersOf(pv, verdict.Rules, verdict.Options, declared, w.verdicts()); len(carriers) > 0 {
		w.fail("%s was reserved as the canary although %q have its options", pv.Name, carriers)
	}
	own.UID, own.CreationTimestamp = types.UID(w.version()), metav1.NewTime(w.now)
	w.reservations[own.Name] = own
	w.logf("%s is reserved as the canary", pv.Name)
	return true
}

// live returns the current state of the cluster.
func (w *world) live() plan.Snapshot {
	s := plan.Snapshot{Now: w.now, Profiles: new(judge.Compiler).Compile(lists.Pointers(w.profileList()), catalogue.AllowList{}, w.paused, nil), ClientNodes: w.clientNodes(), Ledger: w.readLedger()}
	for _, name := range w.names() {
		s.Volumes = append(s.Volumes, w.volumes[name].pv.DeepCopy())
	}
	return s
}

// readLedger returns the current ledger.
func (w *world) readLedger() *ledger.Ledger {
	return w.pageReader.Read(w.configMaps())
}

func (w *world) profileList() []v1alpha1.StorageClientProfile {
	var out []v1alpha1.StorageClientProfile
	for _, name := range slices.Sorted(maps.Keys(w.profiles)) {
		out = append(out, *w.profiles[name])
	}
	return out
}

func (w *world) clientNodes() []*v1alpha1.StorageClientNode {
	node := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for _, name := range slices.Sorted(maps.Keys(w.mounts)) {
		if w.bare[name] {
			continue
		}
		state := v1alpha1.MountStale
		if v := w.volumes[name]; v != nil && slices.Equal(v.pv.Spec.MountOptions, w.mounts[name]) {
			state = v1alpha1.MountEffective
		}
		node.Status.Mounts = append(node.Status.Mounts, v1alpha1.MountStatus{
			State:      state,
			MountPoint: "/" + name, Volume: name, Protocol: "NFSv4.1", Options: append([]string{"rw", "vers=4.1"}, w.mounts[name]...),
			Connections: int32(connectionsOf(w.mounts[name])), Since: ptr.To(metav1.NewTime(w.mountedAt[name].Add(w.skew))), Used: !w.idle[name],
			PodUIDs: []string{cmp.Or(w.waited[name].pod, "of-"+name)},
		})
	}
	if !w.lies {
		return []*v1alpha1.StorageClientNode{node}
	}
	liar := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "liar"}}
	for _, name := range w.names() {
		list := w.volumes[name].pv.Spec.MountOptions
		liar.Status.Mounts = append(liar.Status.Mounts, v1alpha1.MountStatus{
			State: v1alpha1.MountEffective, MountPoint: "/" + name, Volume: name, Protocol: "NFSv4.1", Options: append([]string{"rw", "vers=4.1"}, list...),
			Connections: int32(connectionsOf(list)), Since: ptr.To(metav1.NewTime(w.now)), Used: true,
		})
	}
	return []*v1alpha1.StorageClientNode{node, liar}
}

// connectionsOf returns the number of connections that a mount opens.
func connectionsOf(list []string) int {
	n, requested := mountoptions.NFS.Nconnect(list)
	if !requested {
		return 1
	}
	return n
}

// finishDeletions removes the finalizers, as the profile controller does.
func (w *world) finishDeletions() {
	for _, name := range slices.Sorted(maps.Keys(w.profiles)) {
		p := w.profiles[name]
		if p.DeletionTimestamp != nil && (!p.Spec.Paused && !w.paused || p.Spec.DeletionPolicy == v1alpha1.DeletionRetain) && len(plan.Summarize(name, w.live()).Unrestored) == 0 {
			w.logf("profile %s is gone", name)
			delete(w.profiles, name)
			w.changes++
		}
	}
}

// manager is a manager from its start to its death.
type manager struct {
	*world
	*Reconciler
	// api is the manager's clock. The clock of its machine leads the API server's.
	api *apiclock.Clock
	// stale returns an earlier version of a volume, nil if the cache does not contain the volume.
	stale func(*simVolume) *corev1.PersistentVolume
	// changesBefore is world.changes at the start of the pass.
	changesBefore int
	// unmountable contains the volumes with a known failed mount at the last inspection, and the start of their batch. isInspected is true after the
	// inspection for the current plan.
	unmountable map[string]time.Time
	isInspected bool
	steps       int
	// planned are the steps of the last plan, by volume. plans is the number of plans.
	planned map[string]plan.Step
	plans   int
	// proven contains the options with evidence before the first write of the pass. seen are the profiles that the pass has read.
	proven map[string]bool
	seen   map[string]*v1alpha1.StorageClientProfile
}

func newManager(w *world) *manager {
	local := machineClock{world: w}
	if w.random {
		local.lead = skews[w.rng.IntN(len(skews))]
	}
	m := &manager{world: w, api: &apiclock.Clock{Local: local}}
	m.Reconciler = &Reconciler{Client: server{manager: m, cached: true}, APIReader: server{manager: m}, Recorder: reporter{manager: m}, Clock: m.api}
	m.fillDefaults()
	return m
}

// machineClock is the clock of one machine. The world has the API server's time.
type machineClock struct {
	*world
	lead time.Duration
}

func (c machineClock) Now() time.Time                  { return c.now.Add(c.lead) }
func (c machineClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// RoundTrip acts as the API server.
func (w *world) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{"Date": {w.now.Format(http.TimeFormat)}}, Body: http.NoBody}, nil
}

// pass makes one pass and survives the death of the process.
func (m *manager) pass(workers int) (next time.Time, died bool) {
	defer func() {
		if cause := recover(); cause != nil {
			if err, ok := cause.(error); !ok || !errors.Is(err, errDied) {
				panic(cause)
			}
			m.logf("the manager dies")
			died = true
		}
	}()
	m.happen()
	m.steps, m.plans, m.proven, m.isInspected = 0, 0, map[string]bool{}, false
	m.changesBefore, m.unmountable, m.seen = m.changes, map[string]time.Time{}, maps.Clone(m.profiles)
	out := loop.Outcome{Clock: m.api, Pause: passInterval}
	ctx := log.IntoContext(context.Background(), logr.Discard())
	arm := (&scope{Reconciler: m.Reconciler, now: m.api.Now(), workers: workers}).arm()
	arm.Plan = func(s plan.Snapshot) plan.Plan {
		if m.plans++; m.plans > 2 {
			m.fail("got %d plans in one pass, want at most 2", m.plans)
		}
		out := plan.For(s)
		m.planned = lists.Map(out.Steps, func(step plan.Step) (string, plan.Step) { return step.Target().Name, step })
		return out
	}
	arm.Pass(ctx, &out)
	result, err := out.Result()
	if err != nil {
		m.logf("the pass returns: %v", err)
		result.RequeueAfter = passInterval
	}
	if result.RequeueAfter == 0 {
		return time.Time{}, false
	}
	return m.now.Add(result.RequeueAfter), false
}

func (m *manager) happen() {
	if response, err := m.api.Wrap(m.world).RoundTrip(nil); err == nil {
		_ = response.Body.Close()
	}
	if m.intrude != nil {
		m.intrude()
	}
}

// reporter notices the steps that need no write.
type reporter struct{ *manager }

func (r reporter) Eventf(object, _ runtime.Object, _, _, _, _ string, _ ...any) {
	defer r.lock()()
	step := r.planned[object.(*corev1.PersistentVolume).Name]
	if step == nil || patchFor(step) != nil {
		return
	}
	delete(r.planned, step.Target().Name)
	if _, records := step.(plan.RecordSet); records {
		r.logf("%s", step)
		return
	}
	r.logf("%s, as it is", step)
	r.steps++
	if v := r.volumes[step.Target().Name]; v != nil && v.pv.ResourceVersion == step.Target().ResourceVersion {
		v.carried = false
	}
}

func (m *manager) lock() (unlock func()) {
	if !m.concurrent {
		return func() {}
	}
	m.mutex.Lock()
	return m.mutex.Unlock
}

// server acts as the API server for one manager, or as its cache. The kubelets of two nodes, of which n has an agent, write pods and events.
type server struct {
	client.Client
	*manager
	cached bool
}

func (s server) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	defer s.lock()()
	switch object := object.(type) {
	case *corev1.Namespace:
		if s.paused {
			object.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
		}
		return nil
	case *corev1.PersistentVolume:
		if v := s.volumes[key.Name]; v != nil {
			v.pv.DeepCopyInto(object)
			return nil
		}
	case *corev1.Node:
		return nil
	case *v1alpha1.StorageClientNode:
		for _, clientNode := range s.clientNodes() {
			if clientNode.Name == key.Name {
				clientNode.DeepCopyInto(object)
				return nil
			}
		}
	case *corev1.Pod:
		for _, pod := range s.pods() {
			if pod.Name == key.Name {
				pod.DeepCopyInto(object)
				return nil
			}
		}
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
}

func (s server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	defer s.lock()()
	if !s.cached {
		s.happen()
		if s.random && s.intrude != nil && s.rng.IntN(40) == 0 {
			return apierrors.NewServiceUnavailable("the API server is slow")
		}
	}
	switch list := list.(type) {
	case *corev1.PersistentVolumeList:
		list.Items = s.staleVolumes()
	case *metav1.PartialObjectMetadataList:
		s.isInspected = false
		for _, name := range s.names() {
			if list.Kind == "PersistentVolumeList" {
				list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: s.volumes[name].pv.ResourceVersion}})
			}
		}
	case *v1alpha1.StorageClientProfileList:
		list.Items = s.profileList()
	case *v1alpha1.StorageClientNodeList:
		for _, clientNode := range s.clientNodes() {
			list.Items = append(list.Items, *clientNode)
		}
	case *corev1.ConfigMapList:
		list.Items = s.configMaps()
	case *corev1.EventList:
		s.inspect()
		list.Items = s.events()
	case *corev1.PodList:
		for _, pod := range s.pods() {
			list.Items = append(list.Items, *pod)
		}
		if options := (&client.ListOptions{}).ApplyOptions(opts); options.FieldSelector != nil {
			list.Items = s.pendingPods()
		}
	}
	return nil
}

// staleVolumes returns the volumes as in the cache.
func (m *manager) staleVolumes() (out []corev1.PersistentVolume) {
	for _, name := range m.names() {
		pv := m.volumes[name].pv
		if m.stale != nil {
			pv = m.stale(m.volumes[name])
		}
		if pv != nil {
			out = append(out, *pv)
		}
	}
	if m.stale != nil {
		m.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// inspect records the failed mounts that the manager is about to see. A rollback check reads the events again. At random, the pods that wait for a
// volume are deleted.
func (m *manager) inspect() {
	for _, name := range m.names() {
		if m.random && m.rng.IntN(20) == 0 {
			m.stopWaiting(name)
		}
	}
	for _, r := range m.records() {
		for _, b := range r.Blames {
			m.abandoned[b.Volume] = m.abandoned[b.Volume] || !m.isAwaited(b.Volume)
		}
	}
	if m.isInspected {
		return
	}
	m.isInspected = true
	for name, v := range m.volumes {
		mark := judge.MarkOf(v.pv)
		if mark != nil && slices.ContainsFunc(m.failures, func(f failure) bool {
			return f.volume == name && f.isRefused && !f.isGone && !f.at.Before(mark.Since)
		}) {
			m.unmountable[name] = mark.Since
		}
	}
}

// events returns the events of failed mounts, with the times of the kubelet.
func (w *world) events() (out []corev1.Event) {
	for _, f := range w.failures {
		if f.isGone {
			continue
		}
		e := kubeletEvent(f.pod, "eda", f.message, f.at.Add(w.skew))
		e.CreationTimestamp, e.LastTimestamp = metav1.NewTime(f.at), metav1.NewTime(cmp.Or(f.last, f.at).Add(w.skew))
		e.InvolvedObject.Name, e.InvolvedObject.UID = f.pod, types.UID(f.pod)
		out = append(out, *e)
	}
	return out
}

// pods returns a pod for each mounted volume, and the pods that wait.
func (w *world) pods() (out []*corev1.Pod) {
	add := func(name, volume, node string, at time.Time, skew time.Duration, isRunning bool) {
		pod := podOn(node, volume, at, time.Time{})
		if isRunning {
			pod = podOn(node, volume, at, at.Add(skew))
		}
		pod.Name, pod.UID, pod.CreationTimestamp = name, types.UID(name), metav1.NewTime(at)
		pod.Status.StartTime = ptr.To(metav1.NewTime(at.Add(skew)))
		out = append(out, pod)
	}
	for _, name := range slices.Sorted(maps.Keys(w.mounts)) {
		if w.bare[name] {
			add("of-"+name, name, "bare", w.mountedAt[name], 0, true)
		} else {
			waited := w.waited[name]
			add(cmp.Or(waited.pod, "of-"+name), name, "n", cmp.Or(waited.at, w.mountedAt[name]), w.skew, true)
			out[len(out)-1].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(w.mountedAt[name].Add(w.skew))
		}
	}
	for _, f := range w.failures {
		if !f.isGone {
			add(f.pod, f.volume, "n", f.at, w.skew, false)
		}
	}
	return out
}

// pendingPods returns pods that are about to mount random volumes. The selection affects only the order of the writes.
func (m *manager) pendingPods() (out []corev1.Pod) {
	for _, name := range m.names() {
		if m.random && m.rng.IntN(4) == 0 {
			out = append(out, *podOn("n", name, m.now, time.Time{}))
		}
	}
	return out
}

// configMaps returns the pages of the ledger and the reservations.
func (w *world) configMaps() (out []corev1.ConfigMap) {
	for _, objects := range []map[string]*corev1.ConfigMap{w.pages, w.reservations} {
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			out = append(out, *objects[name])
		}
	}
	return out
}

func (s server) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return s.writePage(object.(*corev1.ConfigMap))
}

func (s server) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return s.writePage(object.(*corev1.ConfigMap))
}

// writePage accepts a page of the ledger only if its version is unchanged since the read.
func (s server) writePage(page *corev1.ConfigMap) error {
	defer s.lock()()
	s.happen()
	current := s.pages[page.Name]
	if (current == nil) != (page.ResourceVersion == "") || current != nil && current.ResourceVersion != page.ResourceVersion {
		s.logf("conflict: %s", page.Name)
		return apierrors.NewConflict(corev1.Resource("configmaps"), page.Name, nil)
	}
	s.steps++
	before := s.records()
	page.ResourceVersion = s.version()
	s.pages[page.Name] = page.DeepCopy()
	s.checkRecords(before, s.records())
	return nil
}

// Delete deletes a reservation.
func (s server) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	defer s.lock()()
	s.happen()
	current := s.reservations[object.GetName()]
	if current == nil || current.UID != object.GetUID() {
		return apierrors.NewNotFound(corev1.Resource("configmaps"), object.GetName())
	}
	s.logf("the reservation of %s ends", current.Data["volume"])
	delete(s.reservations, object.GetName())
	return nil
}

// Patch writes a volume and checks the invariants.
func (s server) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	defer s.lock()()
	s.happen()
	v, step := s.volumes[object.GetName()], s.planned[object.GetName()]
	data, err := patch.Data(object)
	switch {
	case err != nil:
		return err
	case v == nil || v.pv.UID != step.Target().UID:
		return apierrors.NewNotFound(corev1.Resource("persistentvolumes"), object.GetName())
	case !strings.Contains(string(data), `"resourceVersion":`+strconv.Quote(v.pv.ResourceVersion)):
		if strings.Count(string(data), `"resourceVersion":"`) != 1 {
			s.fail("patch without a resourceVersion: %s", data)
		}
		s.logf("conflict: %s", step)
		return apierrors.NewConflict(corev1.Resource("persistentvolumes"), object.GetName(), nil)
	case v.protected:
		return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), object.GetName(), nil)
	}
	s.logf("%s", step)
	s.steps++
	s.checkBefore(v, step)
	before := v.pv
	if v.pv = merged(v.pv, data); !slices.Equal(v.pv.Spec.MountOptions, before.Spec.MountOptions) {
		v.former, v.changed = before.Spec.MountOptions, s.now
	}
	v.pv.ResourceVersion = s.version()
	s.checkAfter(v, before, step)
	return nil
}

// records returns the records of the option sets in the ledger.
func (w *world) records() map[string]*optionset.Record {
	return optionset.Decode(w.readLedger().Sets())
}

// merged returns a volume after a JSON merge patch.
func merged(pv *corev1.PersistentVolume, data []byte) *corev1.PersistentVolume {
	var patch struct {
		Metadata struct {
			Annotations map[string]*string
		}
		Spec map[string][]string
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		panic(err)
	}
	out := pv.DeepCopy()
	for key, value := range patch.Metadata.Annotations {
		delete(out.Annotations, key)
		if value != nil {
			out.Annotations[key] = *value
		}
	}
	if patch.Spec != nil {
		out.Spec.MountOptions = patch.Spec["mountOptions"]
	}
	return out
}

var ours = []string{
	v1alpha1.OriginalMountOptionsAnnotation, v1alpha1.AppliedMountOptionsAnnotation, v1alpha1.ProfilesAnnotation,
	v1alpha1.MountOptionsStepAnnotation, v1alpha1.FailedMountOptionsAnnotation,
}

const trackedByFlux = "kustomize.toolkit.fluxcd.io/name"

// checkBefore checks a step against the current state. It skips the check if the state changed during the pass.
func (m *manager) checkBefore(v *simVolume, step plan.Step) {
	if m.changesBefore != m.changes || m.lenient {
		return
	}
	name := v.pv.Name
	if m.paused {
		m.fail("%s was written while all profiles were paused", name)
	}
	if v.pv.Annotations[v1alpha1.IgnoreAnnotation] == v1alpha1.True {
		m.fail("%s was written although it has the ignore annotation", name)
	}
	for _, carried := range judge.CarriedProfiles(v.pv) {
		p := m.profiles[carried]
		released := p != nil && p.DeletionTimestamp != nil && p.Spec.DeletionPolicy == v1alpha1.DeletionRetain
		if p != nil && !released && (p.Spec.Paused || p.DeletionTimestamp == nil && p.Spec.Mode == v1alpha1.ModePlan) {
			m.fail("%s was written while profile %s was paused or in mode Plan", name, carried)
		}
	}
	_, inGit := v.pv.Labels[trackedByFlux]
	reportsOnly := func(profile string) bool {
		p := m.profiles[profile]
		return p == nil || p.Spec.Volumes[0].GitOpsOwned != v1alpha1.GitOpsPatch
	}
	if step, writes := step.(plan.WriteOptions); writes {
		if inGit && slices.ContainsFunc(step.Verdict.Profiles, reportsOnly) {
			m.fail("%s was written although Git declares it", name)
		}
		for _, profile := range step.Verdict.Profiles {
			if p := m.profiles[profile]; p == nil || p.DeletionTimestamp != nil || p.Spec.Paused || p.Spec.Mode == v1alpha1.ModePlan {
				m.fail("%s was written for profile %s, which is deleted, paused or in mode Plan", name, profile)
			} else if step.Mark != nil {
				m.checkBatch(v, step, p)
			}
		}
		if step.Mark != nil {
			m.checkFailures(v, step)
		}
		if step.Mark == nil && !slices.Equal(step.Verdict.Options, v.pv.Spec.MountOptions) {
			m.fail("the options of %s changed outside a batch", name)
		}
	}
}

// checkBatch checks a write against the earlier writes, as the marks of the volumes show them, with a separate calculation.
func (m *manager) checkBatch(v *simVolume, step plan.WriteOptions, p *v1alpha1.StorageClientProfile) {
	rollout, verdicts := p.Spec.WithDefaults().Rollout.Volumes, m.verdicts()
	declared := declaredBy(m.profiles, step.Verdict.Profiles)
	soak := time.Duration(*rollout.SoakSeconds) * time.Second
	selected, mates, proven := 0, 0, false
	m.checkStopped(v, step, declared)
	for _, name := range m.names() {
		u := m.volumes[name]
		if u.pv.Annotations[v1alpha1.IgnoreAnnotation] == "" {
			selected++
		}
		mark := judge.MarkOf(u.pv)
		if !mark.IsBatchOf(p.Name) || u.pv.Annotations[v1alpha1.IgnoreAnnotation] != "" || !slices.Contains(m.actingOn(u), p.Name) {
			continue
		}
		switch isOver := !m.now.Before(mark.Since.Add(soak)); {
		case mark.Since.Equal(step.Mark.Since):
			mates++
		case isOver && !verdicts[name].ChangesOptions(u.pv) && (isUnused(v.pv) || !isUnused(u.pv)):
			// A soak shows the options that a volume has, whatever the rules declare for it since. A withheld nconnect is not declared.
			names := slices.DeleteFunc(slices.Clone(declared), func(name string) bool { return name == "nconnect" && step.Verdict.Contested })
			proven = proven || u.hasListOf(step.Mark.Rules, step.Verdict.Options, declared) || u.hasListOf(step.Mark.Rules, step.Verdict.Options, names)
		case !isOver && u.isCurrent(verdicts[name], declaredBy(m.profiles, verdicts[name].Profiles)):
			m.fail("%s was written for profile %s during the soak of the batch of %s", v.pv.Name, p.Name, mark.Since.UTC().Format(time.TimeOnly))
		}
	}
	if limit := v1alpha1.ResolveShare(*rollout.MaxPerStep, selected); mates+1 > limit {
		m.fail("got %d volumes in a batch of profile %s, want at most %d", mates+1, p.Name, limit)
	}
	proven = m.checkEvidence(v, step, p, verdicts) || proven && rollout.OnNoEvidence == v1alpha1.NoEvidenceProceed
	// This pass may write the volume that proved the set.
	set := fmt.Sprintf("%s:%q:%s:%t", p.Name, step.Mark.Rules, valuesOf(step.Verdict.Options, declared), isUnused(v.pv))
	m.proven[set] = m.proven[set] || proven
	if !m.proven[set] && mates > 0 && !m.stripped {
		m.fail("%s was written in the same batch as a canary of profile %s", v.pv.Name, p.Name)
	}
	batch := fmt.Sprintf("%s %d", p.Name, step.Mark.Since.Unix())
	if canary, ok := m.canaries[batch]; ok && mates > 0 && !m.proven[canary] && !m.stripped {
		m.fail("%s was written in the same batch as the canary of another option set of profile %s", v.pv.Name, p.Name)
	}
	if !m.proven[set] {
		m.canaries[batch] = set
	}
}

// checkEvidence checks that no second volume gets options before a pod has mounted the first volume with the same values, unless the profile
// allows it. It reports whether a volume was mounted with these values. It compares the written and the mounted options, not the manager's hashes.
func (m *manager) checkEvidence(v *simVolume, step plan.WriteOptions, p *v1alpha1.StorageClientProfile, verdicts map[string]*judge.Verdict) bool {
	declared := declaredBy(m.profiles, step.Verdict.Profiles)
	carriers := m.carriersOf(v.pv, step.Mark.Rules, step.Verdict.Options, declared, verdicts)
	mounted := m.isMounted(step.Verdict.Options, declared)
	waits := p.Spec.WithDefaults().Rollout.Volumes.OnNoEvidence == v1alpha1.NoEvidenceWait
	if len(carriers) > 0 && !mounted && waits && !m.stripped {
		m.fail("%s was written for profile %s before any of %q was mounted with the options", v.pv.Name, p.Name, carriers)
	}
	if evidence := step.Mark.Evidence; evidence != "" && !mounted && !m.stripped {
		m.fail("%s was written with evidence %q, but no volume was mounted with the options", v.pv.Name, evidence)
	}
	return mounted
}

// isMounted reports whether a volume was mounted with the same values of all declared options.
func (w *world) isMounted(options, declared []string) bool {
	return slices.ContainsFunc(w.mountedLists, func(list []string) bool { return valuesOf(list, declared) == valuesOf(options, declared) })
}

// wasMounted reports whether a volume was mounted with the options of the last write, if it still has them.
func (w *world) wasMounted(v *simVolume) bool {
	return v == nil || !v.carried || w.isMounted(v.written, v.declared)
}

// checkStopped checks that no volume gets options that a recorded failed mount stops.
func (m *manager) checkStopped(v *simVolume, step plan.WriteOptions, declared []string) {
	profiles := new(judge.Compiler).Compile(lists.Pointers(m.profileList()), catalogue.AllowList{}, m.paused, nil)
	for _, r := range m.records() {
		isSame := func(b optionset.Blame) bool {
			return valuesOf(b.Options, declared) == valuesOf(step.Verdict.Options, declared)
		}
		if slices.Equal(r.Rules, step.Mark.Rules) && profiles.Declare(r) && slices.ContainsFunc(r.Blames, isSame) {
			m.fail("%s was written after a failed mount of %s with the same options", v.pv.Name, r.BlamedVolume())
		}
	}
}

// declaredBy returns the names of the options that profiles declare, and of the options that always count.
func declaredBy(all map[string]*v1alpha1.StorageClientProfile, profiles []string) []string {
	names := []string{"vers", "proto", "sec", "xprtsec"}
	for _, profile := range profiles {
		if p := all[profile]; p != nil {
			for _, o := range p.Spec.Volumes[0].MountOptions {
				name, _, _ := strings.Cut(string(o), "=")
				names = append(names, name)
			}
		}
	}
	return names
}

// valuesOf returns the options with the given names.
func valuesOf(options, names []string) string {
	return strings.Join(slices.Sorted(slices.Values(lists.Filter(options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(names, name)
	}))), ",")
}

// hasListOf reports whether the volume was written for these rules, with the same values of all declared options.
func (v *simVolume) hasListOf(rules, options, declared []string) bool {
	mark, current := judge.MarkOf(v.pv), v.pv.Spec.MountOptions
	return mark != nil && judge.RecordOf(v.pv).HasAppliedOptions(v.pv) && slices.Equal(mark.Rules, rules) &&
		valuesOf(current, v.declared) == valuesOf(current, declared) && valuesOf(current, declared) == valuesOf(options, declared)
}

// isCurrent reports whether the volume was written for its current rules and values.
func (v *simVolume) isCurrent(verdict *judge.Verdict, declared []string) bool {
	mark, current := judge.MarkOf(v.pv), v.pv.Spec.MountOptions
	return mark != nil && judge.RecordOf(v.pv).HasAppliedOptions(v.pv) && slices.Equal(mark.Rules, verdict.Rules) &&
		!verdict.ChangesOptions(v.pv) && valuesOf(current, v.declared) == valuesOf(current, declared)
}

// carriersOf returns the other volumes of which one must be mounted before this one gets the options. A volume that Git declares since, and for which
// the rules declare other options, is none: its mount would prove options that no rule declares for it.
func (w *world) carriersOf(pv *corev1.PersistentVolume, rules, options, declared []string, verdicts map[string]*judge.Verdict) []string {
	var carriers []string
	for _, name := range w.names() {
		u, mark := w.volumes[name], judge.MarkOf(w.volumes[name].pv)
		if name != pv.Name && u.hasListOf(rules, options, declared) && verdicts[name] != nil && u.isCurrent(verdicts[name], declared) &&
			slices.Equal(verdicts[name].Desired, u.pv.Spec.MountOptions) && (!mark.Created || mark.Unproven) && (isUnused(pv) || !isUnused(u.pv)) {
			carriers = append(carriers, name)
		}
	}
	return carriers
}

func isUnused(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeAvailable }

// checkFailures checks that no volume gets the options of a set with a known failed mount, whatever the age of that batch.
func (m *manager) checkFailures(v *simVolume, step plan.WriteOptions) {
	for _, name := range m.names() {
		u := m.volumes[name]
		mark := judge.MarkOf(u.pv)
		// The manager skips volumes in Git and does not inspect ignored ones.
		_, inGit := u.pv.Labels[trackedByFlux]
		if mark == nil || inGit || u.pv.Annotations[v1alpha1.IgnoreAnnotation] != "" || !judge.RecordOf(u.pv).HasAppliedOptions(u.pv) || len(m.actingOn(u)) == 0 {
			continue
		}
		if since, failed := m.unmountable[name]; failed && since.Equal(mark.Since) && u.hasListOf(step.Mark.Rules, step.Verdict.Options, declaredBy(m.profiles, step.Verdict.Profiles)) {
			m.fail("%s was written after a known failed mount of %s with the same options", v.pv.Name, name)
		}
	}
}

// verdicts returns the verdict on each volume.
func (w *world) verdicts() map[string]*judge.Verdict {
	s, servers, judged := w.live(), judge.NewServers(), map[string]*judge.Evaluation{}
	for i := range s.Volumes {
		j := judge.Evaluate(judge.Input{Volume: s.Volumes[i], Profiles: s.Profiles, Entry: s.Ledger.EntryOf(s.Volumes[i].UID)})
		judged[j.Volume.Name] = j
		servers.Add(j)
	}
	out := map[string]*judge.Verdict{}
	for name, j := range judged {
		out[name] = servers.Evaluate(j)
	}
	return out
}

// actingOn returns the profiles that select a volume and are neither deleted, paused nor in mode Plan.
func (w *world) actingOn(v *simVolume) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.profiles)) {
		p := w.profiles[name]
		classes := p.Spec.Volumes[0].Selector.StorageClassNames
		if p.DeletionTimestamp == nil && !p.Spec.Paused && p.Spec.Mode != v1alpha1.ModePlan && (len(classes) == 0 || slices.Contains(classes, v.pv.Spec.StorageClassName)) {
			out = append(out, name)
		}
	}
	return out
}

// blameBefore returns the failed mount of a volume from a previous record. If the page of the ledger is damaged, the annotation contains it.
func (w *world) blameBefore(previous *optionset.Record, volume string) *optionset.Blame {
	if b := previous.BlameOf(volume); b != nil {
		return b
	}
	v := w.volumes[volume]
	if v == nil {
		return nil
	}
	f := judge.FailedMountOf(v.pv)
	if f == nil || f.Set != previous.Set {
		return nil
	}
	r := &optionset.Record{Identity: f.Identity}
	r.Import(optionset.Earlier{Volume: volume, Failed: f})
	return r.BlameOf(volume)
}

// holdsCleared reports whether an annotation contains a failure as cleared. An earlier step checked that result.
func (w *world) holdsCleared(set, failure string) bool {
	return slices.ContainsFunc(w.names(), func(name string) bool {
		f := judge.FailedMountOf(w.volumes[name].pv)
		return f != nil && f.Cleared && f.Set == set && f.Failure == failure
	})
}

// checkRecords checks the observations behind a change of the records. A failure needs a failed mount by a kubelet. A final result needs
// an observation after the restore of the original options. A failure stays recorded as long as a profile declares its options.
func (m *manager) checkRecords(before, after map[string]*optionset.Record) {
	for set, r := range after {
		previous := before[set]
		if previous == nil {
			previous = &optionset.Record{Identity: r.Identity}
		}
		if r.Evidence != nil && previous.Evidence == nil && !m.stripped && !m.wasMounted(m.volumes[r.Evidence.Volume]) {
			m.fail("the ledger has evidence for the options of volume %s, which were never mounted: %s", r.Evidence.Volume, r.Evidence.Text)
		}
		for _, b := range r.Blames {
			if !m.failed[failedOnce{b.Volume, b.Failure}] {
				m.fail("the ledger has a failed mount of %s that no kubelet reported: %+v", b.Volume, b)
			}
			known := m.blameBefore(previous, b.Volume)
			isMade := known != nil && !m.mountedAt[b.Volume].Before(cmp.Or(known.RevertedAt, b.RevertedAt)) && !slices.Equal(m.mounts[b.Volume], b.Options)
			// The world forgets the mounts of a volume that was deleted during the pass.
			if b.Settled && b.Unclear && !isMade && m.volumes[b.Volume] != nil && (known == nil || !known.Settled) {
				m.fail("the options of %s are recorded as the cause before a mount with its original options: %+v", b.Volume, b)
			}
		}
		for _, kind := range r.Cleared {
			again := func(f failure) bool {
				b := m.blameBefore(previous, f.volume)
				return b != nil && b.Failure == kind && f.kind == kind && !b.RevertedAt.IsZero() && !cmp.Or(f.last, f.at).Before(b.RevertedAt)
			}
			if previous.Counts(kind) && !slices.ContainsFunc(m.failures, again) && !m.holdsCleared(set, kind) {
				m.fail("failure %q of set %s is cleared without a failed mount with the original options", kind, set)
			}
		}
	}
	if m.changesBefore != m.changes || m.lenient {
		return
	}
	profiles := new(judge.Compiler).Compile(lists.Pointers(m.profileList()), catalogue.AllowList{}, m.paused, nil)
	for set, previous := range before {
		for _, b := range previous.Blames {
			now, v := after[set].BlameOf(b.Volume), m.volumes[b.Volume]
			switch {
			case now != nil && (now.Settled || !b.Settled), !profiles.Declare(previous):
			case b.Settled:
				m.fail("the failure of set %s on %s is no longer recorded although a profile declares the set", set, b.Volume)
			case after[set].Stops() && after[set].Blames[0].Settled, v == nil || b.UID != "" && b.UID != v.pv.UID, m.abandoned[b.Volume], after[set] != nil && !after[set].Counts(b.Failure):
			case judge.RecordOf(v.pv).IsWhole():
			case len(b.Options) > 0 && slices.Equal(v.pv.Spec.MountOptions, b.Options): // A user has set the failed options.
			case !judge.IsAnnotated(v.pv) && v.pv.Annotations[v1alpha1.IgnoreAnnotation] != "": // Its owner has taken it from the operator.
			default:
				m.fail("the failed mount of %s is no longer recorded, and has no result", b.Volume)
			}
		}
	}
}

// retains reports whether a deleted profile leaves its options on a volume.
func (w *world) retains(v *simVolume, staying []string) bool {
	return slices.ContainsFunc(v.profiles, func(name string) bool {
		p := w.profiles[name]
		return p != nil && p.Spec.DeletionPolicy == v1alpha1.DeletionRetain && !slices.Contains(staying, name)
	})
}

// checkAfter compares a volume after a step with the volume before it.
func (m *manager) checkAfter(v *simVolume, before *corev1.PersistentVolume, step plan.Step) {
	name, record := v.pv.Name, judge.RecordOf(v.pv)
	if slices.Equal(before.Spec.MountOptions, v.pv.Spec.MountOptions) && maps.Equal(before.Annotations, v.pv.Annotations) {
		m.fail("a write did not change %s", name)
	}
	switch step := step.(type) {
	case plan.WriteOptions:
		switch {
		case !v.carried && v.lost && slices.Equal(record.Original, v.own):
		case !v.carried:
			v.own, v.putBack = before.Spec.MountOptions, false
		case !judge.RecordOf(before).IsWhole() && v.putBack:
			m.fail("the annotations of %s were restored a second time", name)
		case !judge.RecordOf(before).IsWhole() && m.readLedger().EntryOf(before.UID).Pending: // the first write was not observed
			v.own, v.putBack = before.Spec.MountOptions, false
		case !judge.RecordOf(before).IsWhole() && !slices.Equal(before.Spec.MountOptions, v.written):
			m.fail("%s was written although a user replaced it", name)
		case !judge.RecordOf(before).IsWhole():
			v.putBack = true
		}
		if v.carried && m.retains(v, step.Verdict.Profiles) {
			v.own = record.Original
			if slices.ContainsFunc(record.Original, func(o string) bool {
				return !slices.Contains(before.Spec.MountOptions, o) && !slices.Contains(judge.RecordOf(before).Original, o)
			}) {
				m.fail("got original options %q for %s, want only options of %q", record.Original, name, before.Spec.MountOptions)
			}
		}
		v.written, v.carried, v.lost, v.profiles = v.pv.Spec.MountOptions, true, false, step.Verdict.Profiles
		if step.Mark != nil {
			v.declared = declaredBy(m.seen, step.Verdict.Profiles)
		}
		if record.Broken != "" || !slices.Equal(record.Original, v.own) || !slices.Equal(record.Applied, v.written) || !slices.Equal(record.Profiles, step.Verdict.Profiles) {
			m.fail("got record %+v for %s, want original options %q", record, name, v.own)
		}
	case plan.RestoreOptions:
		if !slices.Equal(v.pv.Spec.MountOptions, v.own) || !slices.Equal(before.Spec.MountOptions, v.written) {
			m.fail("%s was restored from %q to %q, want from %q to %q", name, before.Spec.MountOptions, v.pv.Spec.MountOptions, v.written, v.own)
		}
		if failed := judge.FailedMountOf(v.pv); (failed == nil) != (step.FailedMount == nil) {
			m.fail("got recorded failed mount %+v for %s, want %+v", failed, name, step.FailedMount)
		}
	case plan.ReleaseVolume:
		if !slices.Equal(v.pv.Spec.MountOptions, before.Spec.MountOptions) {
			m.fail("the release of %s changed its options", name)
		}
	}
	if _, records := step.(plan.RecordSet); records {
		if !slices.Equal(v.pv.Spec.MountOptions, before.Spec.MountOptions) {
			m.fail("a write of the record of %s changed its options", name)
		}
		return
	}
	if _, written := step.(plan.WriteOptions); !written {
		v.carried = false
		for _, key := range ours {
			if _, left := v.pv.Annotations[key]; left && key != v1alpha1.FailedMountOptionsAnnotation {
				m.fail("%s still has annotation %s", name, key)
			}
		}
	}
}
