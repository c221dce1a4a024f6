package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/internal/builders"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// errDied is the panic of a manager that dies.
var errDied = errors.New("the manager died")

// poison is the option that a server may refuse.
const poison = "nordirplus"

// declaredLists are what profiles declare, by version.
var declaredLists = [][]string{{"nocto"}, {"nocto", poison}, {"nconnect=4", "nocto"}, {"noresvport"}}

// world is a cluster in memory: what the API server holds, and the kubelets that mount volumes. It checks the invariants at
// every write.
type world struct {
	now      time.Time
	rng      *rand.Rand
	volumes  map[string]*simVolume
	profiles map[string]*v1alpha1.StorageClientProfile
	paused   bool
	// mounts are the lists that volumes are mounted with: on the one node that has an agent, or, where bare is true, on one that has
	// none. skew is by how much the clock of the former is ahead, and idle are the mounts that nobody has used yet.
	mounts     map[string][]string
	bare, idle map[string]bool
	skew       time.Duration
	// shown are the sets of options with which a volume was mounted while it carried a list of theirs.
	shown map[string]bool
	// failures are the events of failed mounts.
	failures []failure
	// failed are the failed mounts that there have ever been, as volume and kind, abandoned the volumes that no pod waited for at one time.
	failed    map[failedOnce]bool
	abandoned map[string]bool
	// poisoned is whether mounts with that option fail, outspoken whether that is said to be for the options, and unwell are
	// volumes that cannot be mounted with any list. mountedAt is when a volume was mounted last.
	poisoned, outspoken bool
	unwell              map[string]bool
	mountedAt           map[string]time.Time
	serial              int
	// changes counts what anybody but a manager changed.
	changes int

	// stripped is set once somebody took marks off: of these volumes, mounts count that have what is in force, whenever they were made.
	stripped bool
	// pages are the ConfigMaps of the ledger.
	pages      map[string]*corev1.ConfigMap
	pageReader ledger.Reader

	// canaries are the batches that began with an option set that nothing showed to work, with that set.
	canaries map[string]string

	verbose bool
	// random is true in a schedule, in which more is left to chance than in a story.
	random bool
	log    []string
	// lenient is set where two managers overlapped: of batches, nothing holds then.
	lenient bool
	// intrude is called before every read and write of a manager; nil: nothing happens there.
	intrude func()
	// concurrent is whether a pass writes several volumes at a time.
	concurrent bool
	mutex      sync.Mutex
	broken     error
}

// simVolume is a volume with what the world knows of it.
type simVolume struct {
	pv *corev1.PersistentVolume
	// own is the list that the volume had before we wrote it first, written the one that we wrote last.
	own, written []string
	// carried is whether it carries, or carried, a list of ours that has neither been taken back nor let go, and profiles are those that
	// it was written for. putBack is whether annotations that somebody took off were put back since.
	carried  bool
	profiles []string
	putBack  bool
	// lost is whether annotations and ledger were lost at one time: what a manager has read before, it may still know.
	lost bool
	// manifest is the list that it was created with.
	manifest []string
	// protected is true if a policy rejects every write of the operator.
	protected bool
}

type failedOnce struct{ volume, kind string }

type failure struct {
	volume string
	at     time.Time
	plan.Failure
}

// kinds of failures.
const refusedOption, sickServer = "refused option", "sick server"

func newWorld(seed uint64) *world {
	return &world{
		now: time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC), rng: rand.New(rand.NewPCG(seed, 0)),
		volumes: map[string]*simVolume{}, profiles: map[string]*v1alpha1.StorageClientProfile{}, mounts: map[string][]string{}, canaries: map[string]string{},
		pages: map[string]*corev1.ConfigMap{}, outspoken: true, unwell: map[string]bool{}, mountedAt: map[string]time.Time{}, bare: map[string]bool{}, idle: map[string]bool{}, shown: map[string]bool{},
		failed: map[failedOnce]bool{}, abandoned: map[string]bool{},
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
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: name}
	w.volumes[name] = &simVolume{pv: pv, manifest: options}
	return w.volumes[name]
}

func (w *world) addProfile(name string, list []string, change ...func(*v1alpha1.StorageClientProfile)) *v1alpha1.StorageClientProfile {
	p := builders.NFSProfile(name, list)
	p.UID = types.UID(w.version())
	p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{}
	for _, c := range change {
		c(&p)
	}
	w.profiles[name] = &p
	w.edited(&p)
	return &p
}

// edited gives a profile that was changed in place a version of its own.
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

// mount lets a kubelet mount a volume again, which binds it.
func (w *world) mount(name string) {
	v := w.volumes[name]
	if isUnused(v.pv) {
		w.change(v, func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound })
	}
	list := v.pv.Spec.MountOptions
	kind := ""
	if w.poisoned && slices.Contains(list, poison) {
		kind = refusedOption
	}
	if w.unwell[name] {
		kind = sickServer
	}
	if kind != "" {
		w.logf("a pod cannot mount %s with %s: %s", name, strings.Join(list, ","), kind)
		w.failed[failedOnce{name, kind}] = true
		w.failures = append(w.failures, failure{name, w.now, plan.Failure{Text: "exit status 32", Kind: kind, NamesOptions: kind == refusedOption && w.outspoken}})
		return
	}
	w.mountedAt[name] = w.now
	if !slices.Equal(w.mounts[name], list) || w.mounts[name] == nil {
		w.logf("a pod mounts %s with %s", name, strings.Join(list, ","))
	}
	w.mounts[name] = append([]string{}, list...)
	if mark := judge.MarkOf(v.pv); mark != nil && judge.RecordOf(v.pv).HasAppliedOptions(v.pv) {
		w.shown[mark.Set] = true
	}
	w.bare[name], w.idle[name] = w.random && w.rng.IntN(3) == 0, w.random && w.rng.IntN(8) == 0
}

// create plays the API server with the webhook, which may be away.
func (w *world) create(name string, webhook bool, options ...string) {
	v := w.addVolume(name, options...)
	w.changes++
	if !webhook {
		w.logf("%s is created", name)
		return
	}
	s := w.live()
	others := judge.NewVolumeIndex(slices.DeleteFunc(s.Volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == name }))
	verdict, stopped := judge.EvaluateNew(judge.Evaluate(judge.Input{Volume: v.pv, Profiles: s.Profiles}), others,
		func(set, _ string) *optionset.Record { return w.records()[set] })
	if stopped != "" || verdict.Action != judge.ActionWrite {
		w.logf("%s is created, and left as it is", name)
		return
	}
	record, err := judge.AnnotationsOfCreation(verdict)
	if err != nil {
		w.fail("%v", err)
	}
	v.own, v.written, v.carried, v.profiles = options, verdict.Options, true, verdict.Profiles
	v.pv.Spec.MountOptions = verdict.Options
	maps.Copy(v.pv.Annotations, record)
	w.logf("%s is created with %s", name, strings.Join(verdict.Options, ","))
}

// live returns the current state of the cluster.
func (w *world) live() plan.Snapshot {
	s := plan.Snapshot{Now: w.now, Profiles: judge.Compile(w.profileList(), catalogue.AllowList{}, w.paused), ClientNodes: w.clientNodes(), Ledger: w.readLedger()}
	for _, name := range w.names() {
		s.Volumes = append(s.Volumes, w.volumes[name].pv.DeepCopy())
	}
	return s
}

// readLedger returns the current ledger.
func (w *world) readLedger() *ledger.Ledger {
	var pages []corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(w.pages)) {
		pages = append(pages, *w.pages[name])
	}
	return w.pageReader.Read(pages)
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
		})
	}
	return []*v1alpha1.StorageClientNode{node}
}

// connectionsOf is how many a mount opens.
func connectionsOf(list []string) int {
	n, asked := mountoptions.Nconnect(list)
	if !asked {
		return 1
	}
	return n
}

// finishDeletions takes the finalizers off, as the profiles' controller does.
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

// manager is one life of a manager.
type manager struct {
	*world
	compiler  judge.Compiler
	memory    *judge.Memory
	refused   map[string]time.Time
	inspected time.Time
	kept      time.Time
	ledger    *ledger.Ledger
	// stale returns an earlier version of a volume, nil for one that the cache has not heard of.
	stale func(*simVolume) *corev1.PersistentVolume
	// changesBefore is world.changes when the pass began.
	changesBefore int
	// unmountable are the volumes whose lists were known not to be mountable when the pass inspected, with their batches.
	unmountable map[string]time.Time
	steps       int
	// proven are the option sets that were seen to work before the pass wrote anything.
	proven map[string]bool
}

func newManager(w *world) *manager {
	return &manager{world: w, memory: judge.NewMemory(), refused: map[string]time.Time{}}
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
	m.steps, m.proven = 0, map[string]bool{}
	plans := 0
	p := newPass(m)
	p.decide = func(s plan.Snapshot) plan.Plan {
		if plans++; plans > 2 {
			m.fail("a pass makes %d plans", plans)
		}
		return plan.For(s)
	}
	next, unfinished, err := p.run(context.Background(), workers)
	if unfinished || err != nil {
		m.inspected = time.Time{}
		if soon := m.now.Add(passInterval); next.IsZero() || soon.Before(next) {
			next = soon
		}
	}
	if err != nil {
		m.logf("the pass returns: %v", err)
	}
	return next, false
}

func (m *manager) happen() {
	if m.intrude != nil {
		m.intrude()
	}
}

func (m *manager) readSnapshot(context.Context) (plan.Snapshot, error) {
	m.happen()
	s := m.live()
	s.Profiles = m.compiler.Compile(m.profileList(), catalogue.AllowList{}, m.paused, nil)
	s.Memory, s.Rejected = m.memory, m.refused
	m.ledger = s.Ledger
	m.changesBefore, m.unmountable = m.changes, map[string]time.Time{}
	if m.stale == nil {
		return s, nil
	}
	s.Volumes = nil
	for _, name := range m.names() {
		if pv := m.stale(m.volumes[name]); pv != nil {
			s.Volumes = append(s.Volumes, pv.DeepCopy())
		}
	}
	m.rng.Shuffle(len(s.Volumes), func(i, j int) { s.Volumes[i], s.Volumes[j] = s.Volumes[j], s.Volumes[i] })
	return s, nil
}

func (m *manager) refresh(_ context.Context, cached plan.Snapshot) (fresh plan.Snapshot, newer bool, err error) {
	m.happen()
	m.ledger = m.readLedger()
	m.happen()
	before, live := map[string]string{}, m.live().Volumes
	for _, pv := range cached.Volumes {
		before[pv.Name] = pv.ResourceVersion
	}
	newer = len(before) != len(live) || !m.ledger.IsSame(cached.Ledger)
	for _, pv := range live {
		newer = newer || before[pv.Name] != pv.ResourceVersion
	}
	cached.Volumes, cached.Ledger, m.kept = live, m.ledger, m.now
	return cached, newer, nil
}

func (m *manager) isLedgerDue() bool {
	return m.kept.IsZero() || m.now.Sub(m.kept) >= plan.LedgerInterval
}

// writeLedger is the API server. It takes each page for the version that was read only.
func (m *manager) writeLedger(_ context.Context, changes ledger.Changes) map[types.UID]error {
	writes, unkept := m.ledger.Apply(changes)
	failed := map[types.UID]error{}
	for uid, why := range unkept {
		failed[uid] = errors.New(why)
	}
	for _, w := range writes {
		m.happen()
		if now := m.pages[w.Page.Name]; (now == nil) != (w.Page.ResourceVersion == "") || now != nil && now.ResourceVersion != w.Page.ResourceVersion {
			m.logf("conflict: %s", w.Page.Name)
			for _, uid := range w.Volumes {
				failed[uid] = apierrors.NewConflict(corev1.Resource("configmaps"), w.Page.Name, nil)
			}
			continue
		}
		m.steps++
		before := m.records()
		page := w.Page.DeepCopy()
		page.ResourceVersion = m.version()
		m.pages[page.Name] = page
		m.ledger = m.ledger.With(page)
		m.checkRecords(before, m.records())
	}
	return failed
}

// records are the records of sets of options as the ledger holds them.
func (w *world) records() map[string]*optionset.Record {
	return optionset.Decode(w.readLedger().Sets())
}

func (m *manager) clock() time.Time { return m.now }

func (m *manager) isInspectionDue(every time.Duration) bool {
	return m.inspected.IsZero() || m.now.Sub(m.inspected) >= every
}

// inspectRollbacks returns the observations of volumes with their original options. Sometimes no pod uses them any longer.
func (m *manager) inspectRollbacks(_ context.Context, inCure []plan.RollbackCheck) (map[string]plan.RollbackResult, error) {
	m.happen()
	out := map[string]plan.RollbackResult{}
	for _, v := range inCure {
		name, since := v.Volume.Name, v.Since
		again := func(f failure) bool {
			return f.volume == name && f.Kind == v.Failure && !f.at.Before(since.Add(retryWithin))
		}
		switch at, mounted := m.mountedAt[name]; {
		case mounted && at.After(since):
			out[name] = plan.RollbackWorked
		case slices.ContainsFunc(m.failures, again):
			out[name] = plan.RollbackFailed
		case m.random && m.rng.IntN(20) == 0:
			out[name], m.abandoned[name] = plan.RollbackUntested, true
		}
	}
	return out, nil
}

func (m *manager) inspectMounts(_ context.Context, watched []plan.Watched) (map[string]plan.Failure, error) {
	m.happen()
	m.inspected = m.now
	for name, v := range m.volumes {
		if mark := judge.MarkOf(v.pv); mark != nil && m.failureOf(name, mark.Since).Kind == refusedOption {
			m.unmountable[name] = mark.Since
		}
	}
	failed := map[string]plan.Failure{}
	for _, v := range watched {
		if f := m.failureOf(v.Volume.Name, v.Since); f.Kind != "" {
			failed[v.Volume.Name] = f
		}
	}
	return failed, nil
}

// inspectEvidence returns mounts on the node without an agent.
func (m *manager) inspectEvidence(_ context.Context, awaited []plan.Awaited) (map[string]plan.Evidence, error) {
	m.happen()
	out := map[string]plan.Evidence{}
	for _, a := range awaited {
		if name := a.Volume.Name; m.bare[name] && m.mountedAt[name].After(a.After) {
			out[a.Set] = plan.Evidence{Text: "a Pod has started with " + name, Volume: name, Written: a.Written}
		}
	}
	return out, nil
}

// findComing picks volumes at random: that pods are about to mount them decides nothing but which goes first.
func (m *manager) findComing(_ context.Context, candidates []*corev1.PersistentVolume) (map[string]bool, error) {
	m.happen()
	out := map[string]bool{}
	for _, pv := range candidates {
		if m.random && m.rng.IntN(4) == 0 {
			out[pv.Name] = true
		}
	}
	return out, nil
}

// failureOf is a failed mount of a volume since a time, one for its options rather than another.
func (w *world) failureOf(volume string, since time.Time) plan.Failure {
	var out plan.Failure
	for _, f := range w.failures {
		if f.volume == volume && !f.at.Before(since) && (out.Kind == "" || f.Kind == refusedOption) {
			out = f.Failure
		}
	}
	return out
}

func (m *manager) delayVolume(volume string)                       { m.refused[volume] = m.now.Add(rejectionRetryInterval) }
func (*manager) reportNotes(context.Context, map[string]plan.Note) {}

// applyStep is the API server. It checks the invariants.
func (m *manager) applyStep(_ context.Context, step plan.Step) error {
	if m.concurrent {
		m.mutex.Lock()
		defer m.mutex.Unlock()
	}
	m.happen()
	v := m.volumes[step.Target().Name]
	data, err := patchFor(step)
	switch _, records := step.(plan.RecordSet); {
	case err != nil:
		return err
	case records && data == nil:
		m.logf("%s", step)
		return nil
	case data == nil:
		m.logf("%s, as it is", step)
		m.steps++
		if v != nil && v.pv.ResourceVersion == step.Target().ResourceVersion {
			v.carried = false
		}
		return nil
	case v == nil || v.pv.UID != step.Target().UID:
		return apierrors.NewNotFound(corev1.Resource("persistentvolumes"), step.Target().Name)
	case !strings.Contains(string(data), `"resourceVersion":`+strconv.Quote(v.pv.ResourceVersion)):
		if strings.Count(string(data), `"resourceVersion":"`) != 1 {
			m.fail("a patch without its precondition: %s", data)
		}
		m.logf("conflict: %s", step)
		return apierrors.NewConflict(corev1.Resource("persistentvolumes"), step.Target().Name, nil)
	case v.protected:
		return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), step.Target().Name, nil)
	}
	m.logf("%s", step)
	m.steps++
	m.checkBefore(v, step)
	before := v.pv
	v.pv = merged(v.pv, data)
	v.pv.ResourceVersion = m.version()
	m.checkAfter(v, before, step)
	return nil
}

// merged is a volume after a JSON merge patch.
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

// checkBefore checks a step against the current state. Changes during the pass are no error of the step.
func (m *manager) checkBefore(v *simVolume, step plan.Step) {
	if m.changesBefore != m.changes || m.lenient {
		return
	}
	name := v.pv.Name
	if m.paused {
		m.fail("%s is written while everything is paused", name)
	}
	if v.pv.Annotations[v1alpha1.IgnoreAnnotation] == v1alpha1.True {
		m.fail("%s is written although it is to be ignored", name)
	}
	for _, carried := range judge.CarriedProfiles(v.pv) {
		p := m.profiles[carried]
		released := p != nil && p.DeletionTimestamp != nil && p.Spec.DeletionPolicy == v1alpha1.DeletionRetain
		if p != nil && !released && (p.Spec.Paused || p.DeletionTimestamp == nil && p.Spec.Mode == v1alpha1.ModePlan) {
			m.fail("%s is written while profile %s is held", name, carried)
		}
	}
	_, elsewhere := v.pv.Labels[trackedByFlux]
	reportsOnly := func(profile string) bool {
		p := m.profiles[profile]
		return p == nil || p.Spec.Volumes[0].GitOpsOwned != v1alpha1.GitOpsPatch
	}
	if step, writes := step.(plan.WriteOptions); writes {
		if elsewhere && slices.ContainsFunc(step.Verdict.Profiles, reportsOnly) {
			m.fail("%s is declared elsewhere, and written", name)
		}
		for _, profile := range step.Verdict.Profiles {
			if p := m.profiles[profile]; p == nil || p.DeletionTimestamp != nil || p.Spec.Paused || p.Spec.Mode == v1alpha1.ModePlan {
				m.fail("%s is written for profile %s, which does not act", name, profile)
			} else if step.Mark != nil {
				m.checkBatch(v, step, p)
			}
		}
		if step.Mark != nil {
			m.checkFailures(v, step)
		}
		if step.Mark == nil && !slices.Equal(step.Verdict.Options, v.pv.Spec.MountOptions) {
			m.fail("the list of %s changes outside a batch", name)
		}
	}
}

// checkBatch checks a write against the earlier ones that the volumes show, with a separate calculation.
func (m *manager) checkBatch(v *simVolume, step plan.WriteOptions, p *v1alpha1.StorageClientProfile) {
	rollout, sets := p.Spec.WithDefaults().Rollout.Volumes, m.sets()
	soak := time.Duration(*rollout.SoakSeconds) * time.Second
	selected, mates, proven := 0, 0, false
	if r := m.records()[step.Mark.Set]; r.Stops() {
		m.fail("%s is written for profile %s after %s could not be mounted", v.pv.Name, p.Name, r.BlamedVolume())
	}
	members := map[int64][]*simVolume{}
	over := map[int64]bool{}
	for _, name := range m.names() {
		u := m.volumes[name]
		if u.pv.Annotations[v1alpha1.IgnoreAnnotation] == "" {
			selected++
		}
		mark := judge.MarkOf(u.pv)
		if !mark.IsBatchOf(p.Name) || u.pv.Annotations[v1alpha1.IgnoreAnnotation] != "" || !slices.Contains(m.actingOn(u), p.Name) {
			continue
		}
		since := mark.Since.Unix()
		if mark.Since.Equal(step.Mark.Since) {
			mates++
		}
		if judge.RecordOf(u.pv).HasAppliedOptions(u.pv) && mark.Set == sets[name] {
			members[since] = append(members[since], u)
			over[since] = !m.now.Before(mark.Since.Add(soak))
		}
	}
	for since, list := range members {
		for _, u := range list {
			proven = proven || over[since] && since != step.Mark.Since.Unix() && judge.MarkOf(u.pv).Set == step.Mark.Set && (isUnused(v.pv) || !isUnused(u.pv))
		}
		if since != step.Mark.Since.Unix() && !over[since] {
			m.fail("%s is written for profile %s while the batch of %s soaks", v.pv.Name, p.Name, time.Unix(since, 0).UTC().Format(time.TimeOnly))
		}
	}
	if mates+1 > v1alpha1.ResolveShare(*rollout.MaxPerStep, selected) {
		m.fail("a batch of profile %s has %d volumes, more than its share", p.Name, mates+1)
	}
	proven = m.checkEvidence(v, step, p, sets) || proven && rollout.OnNoEvidence == v1alpha1.NoEvidenceProceed
	// A volume that shows a set to work may be among those that are written.
	set := fmt.Sprintf("%s:%s:%t", p.Name, step.Mark.Set, isUnused(v.pv))
	m.proven[set] = m.proven[set] || proven
	if !m.proven[set] && mates > 0 && !m.stripped {
		m.fail("%s goes with a canary of profile %s", v.pv.Name, p.Name)
	}
	batch := fmt.Sprintf("%s %d", p.Name, step.Mark.Since.Unix())
	if canary, is := m.canaries[batch]; is && mates > 0 && !m.proven[canary] && !m.stripped {
		m.fail("%s goes with the canary of another option set of profile %s", v.pv.Name, p.Name)
	}
	if !m.proven[set] {
		m.canaries[batch] = set
	}
}

// checkEvidence asks that no second volume gets a list of a set before the first was mounted with it, unless the profile says so. It
// returns whether one was.
func (m *manager) checkEvidence(v *simVolume, step plan.WriteOptions, p *v1alpha1.StorageClientProfile, sets map[string]string) bool {
	set, carriers := step.Mark.Set, []string{}
	for _, name := range m.names() {
		u := m.volumes[name]
		if mark := judge.MarkOf(u.pv); mark != nil && mark.Set == set && sets[name] == set && judge.RecordOf(u.pv).HasAppliedOptions(u.pv) && !mark.Created && (isUnused(v.pv) || !isUnused(u.pv)) {
			carriers = append(carriers, name)
		}
	}
	waits := p.Spec.WithDefaults().Rollout.Volumes.OnNoEvidence == v1alpha1.NoEvidenceWait
	if len(carriers) > 0 && !m.shown[set] && waits && !m.stripped {
		m.fail("%s is written for profile %s, and none of %q has been mounted with the options", v.pv.Name, p.Name, carriers)
	}
	if evidence := step.Mark.Evidence; evidence != "" && !m.shown[set] && !m.stripped {
		m.fail("%s is written because %s, and nothing was mounted with the options", v.pv.Name, evidence)
	}
	return m.shown[set]
}

func isUnused(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeAvailable }

// checkFailures asks that no list is written of a set that is known not to be mountable anywhere, however long ago that was written.
func (m *manager) checkFailures(v *simVolume, step plan.WriteOptions) {
	for _, name := range m.names() {
		u := m.volumes[name]
		mark := judge.MarkOf(u.pv)
		// What Git has come to declare is left alone, and what is to be ignored is not looked at.
		_, elsewhere := u.pv.Labels[trackedByFlux]
		if mark == nil || elsewhere || u.pv.Annotations[v1alpha1.IgnoreAnnotation] != "" || !judge.RecordOf(u.pv).HasAppliedOptions(u.pv) || len(m.actingOn(u)) == 0 {
			continue
		}
		if since, failed := m.unmountable[name]; failed && since.Equal(mark.Since) && mark.Set == step.Mark.Set {
			m.fail("%s is written although %s is known not to be mountable with the same options", v.pv.Name, name)
		}
	}
}

// sets are the sets of options that are declared for the volumes.
func (w *world) sets() map[string]string {
	s, servers, judged := w.live(), judge.NewServers(), map[string]*judge.Evaluation{}
	for i := range s.Volumes {
		j := judge.Evaluate(judge.Input{Volume: s.Volumes[i], Profiles: s.Profiles, Entry: s.Ledger.EntryOf(s.Volumes[i].UID)})
		judged[j.Volume.Name] = j
		servers.Add(j)
	}
	out := map[string]string{}
	for name, j := range judged {
		out[name] = servers.Evaluate(j).Set
	}
	return out
}

// actingOn are the profiles that select a volume and act.
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

// blameBefore returns the failed mount of a volume as it was recorded. If the page of the ledger was spoiled, the annotation holds it.
func (w *world) blameBefore(was *optionset.Record, volume string) *optionset.Blame {
	if b := was.BlameOf(volume); b != nil {
		return b
	}
	v := w.volumes[volume]
	if v == nil {
		return nil
	}
	f := judge.FailedMountOf(v.pv)
	if f == nil || f.Set != was.Set {
		return nil
	}
	r := &optionset.Record{Identity: f.Identity}
	r.Import(optionset.Earlier{Volume: volume, Failed: f})
	return r.BlameOf(volume)
}

// holdsCleared reports whether an annotation holds a failure as cleared, which was checked when it was learned.
func (w *world) holdsCleared(set, failure string) bool {
	return slices.ContainsFunc(w.names(), func(name string) bool {
		f := judge.FailedMountOf(w.volumes[name].pv)
		return f != nil && f.Cleared && f.Set == set && f.Failure == failure
	})
}

// checkRecords asks for what a change of the records rests on: that a kubelet saw the failure, and what the volume showed with its original
// options after it had them. What failed is recorded until nothing declares it.
func (m *manager) checkRecords(before, after map[string]*optionset.Record) {
	for set, r := range after {
		was := before[set]
		if was == nil {
			was = &optionset.Record{Identity: r.Identity}
		}
		if r.Evidence != nil && was.Evidence == nil && !m.shown[set] && !m.stripped {
			m.fail("set %s is recorded to work, and was not mounted: %s", set, r.Evidence.Text)
		}
		for _, b := range r.Blames {
			if !m.failed[failedOnce{b.Volume, b.Failure}] {
				m.fail("a failed mount of %s is recorded that no kubelet saw: %+v", b.Volume, b)
			}
			known := m.blameBefore(was, b.Volume)
			if b.Settled && b.Unclear && (known == nil || !known.Settled && (known.RevertedAt.IsZero() || !m.mountedAt[b.Volume].After(known.RevertedAt))) {
				m.fail("the list that %s had is found to be the cause, and it has not been mounted with its own: %+v", b.Volume, b)
			}
		}
		for _, kind := range r.Cleared {
			again := func(f failure) bool {
				b := m.blameBefore(was, f.volume)
				return b != nil && b.Failure == kind && f.Kind == kind && !b.RevertedAt.IsZero() && !f.at.Before(b.RevertedAt)
			}
			if was.Counts(kind) && !slices.ContainsFunc(m.failures, again) && !m.holdsCleared(set, kind) {
				m.fail("failure %q of set %s is cleared, and nothing failed with the original options", kind, set)
			}
		}
	}
	if m.changesBefore != m.changes || m.lenient {
		return
	}
	profiles := judge.Compile(m.profileList(), catalogue.AllowList{}, m.paused)
	for set, was := range before {
		for _, b := range was.Blames {
			now, v := after[set].BlameOf(b.Volume), m.volumes[b.Volume]
			switch {
			case now != nil && (now.Settled || !b.Settled), !profiles.Declare(was):
			case b.Settled:
				m.fail("%s is recorded to fail by %s, and is forgotten although it is declared", set, b.Volume)
			case after[set].Stops() && after[set].Blames[0].Settled, v == nil || b.UID != "" && b.UID != v.pv.UID, m.abandoned[b.Volume], after[set] != nil && !after[set].Counts(b.Failure):
			case judge.RecordOf(v.pv).IsWhole():
			default:
				m.fail("the failed mount of %s is forgotten, and nothing was learned of it", b.Volume)
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
		m.fail("%s is written in vain", name)
	}
	switch step := step.(type) {
	case plan.WriteOptions:
		switch {
		case !v.carried && v.lost && slices.Equal(record.Original, v.own):
		case !v.carried:
			v.own, v.putBack = before.Spec.MountOptions, false
		case !judge.RecordOf(before).IsWhole() && v.putBack:
			m.fail("the annotations of %s are put back a second time", name)
		case !judge.RecordOf(before).IsWhole() && m.readLedger().EntryOf(before.UID).Pending: // the first write was not observed
			v.own, v.putBack = before.Spec.MountOptions, false
		case !judge.RecordOf(before).IsWhole() && !slices.Equal(before.Spec.MountOptions, v.written):
			m.fail("%s is written although a user replaced it", name)
		case !judge.RecordOf(before).IsWhole():
			v.putBack = true
		}
		if v.carried && m.retains(v, step.Verdict.Profiles) {
			v.own = record.Original
			if slices.ContainsFunc(record.Original, func(o string) bool {
				return !slices.Contains(before.Spec.MountOptions, o) && !slices.Contains(judge.RecordOf(before).Original, o)
			}) {
				m.fail("%s is said to have had %q of its own, and was %q", name, record.Original, before.Spec.MountOptions)
			}
		}
		v.written, v.carried, v.lost, v.profiles = v.pv.Spec.MountOptions, true, false, step.Verdict.Profiles
		if record.Broken != "" || !slices.Equal(record.Original, v.own) || !slices.Equal(record.Applied, v.written) || !slices.Equal(record.Profiles, step.Verdict.Profiles) {
			m.fail("%s remembers %+v, and had %q", name, record, v.own)
		}
	case plan.RestoreOptions:
		if !slices.Equal(v.pv.Spec.MountOptions, v.own) || !slices.Equal(before.Spec.MountOptions, v.written) {
			m.fail("%s gets back %q for %q, and had %q before we wrote %q", name, v.pv.Spec.MountOptions, before.Spec.MountOptions, v.own, v.written)
		}
		if failed := judge.FailedMountOf(v.pv); (failed == nil) != (step.FailedMount == nil) {
			m.fail("%s remembers a failed mount as %+v", name, failed)
		}
	case plan.ReleaseVolume:
		if !slices.Equal(v.pv.Spec.MountOptions, before.Spec.MountOptions) {
			m.fail("the list of %s changes with its release", name)
		}
	}
	if _, records := step.(plan.RecordSet); records {
		if !slices.Equal(v.pv.Spec.MountOptions, before.Spec.MountOptions) {
			m.fail("the list of %s changes with what is learned of it", name)
		}
		return
	}
	if _, written := step.(plan.WriteOptions); !written {
		v.carried = false
		for _, key := range ours {
			if _, left := v.pv.Annotations[key]; left && key != v1alpha1.FailedMountOptionsAnnotation {
				m.fail("%s keeps the annotation %s", name, key)
			}
		}
	}
}
