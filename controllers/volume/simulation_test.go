package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/play"
)

// TestRandomSchedules plays random schedules with faults. All work must be complete at the end. After the deletion of the profiles, no
// trace of the operator may remain.
func TestRandomSchedules(t *testing.T) {
	play.Schedules(t, 20*time.Second, func(seed uint64) {
		if w := playSeed(seed, 1, false); w.broken != nil {
			broken := w.broken
			w = playSeed(seed, 1, true)
			t.Errorf("seed %d: %v; replayed with a log: %v\n%s", seed, broken, w.broken, strings.Join(w.log, "\n"))
		}
	})
}

// TestSchedulesOfManyWorkers plays schedules in which a pass writes several volumes at a time. The order of the writes is random, so a
// seed does not reproduce a whole schedule.
func TestSchedulesOfManyWorkers(t *testing.T) {
	play.Some(t, 50, func(seed uint64) {
		if w := playSeed(seed, 4, true); w.broken != nil {
			t.Errorf("seed %d: %v\n%s", seed, w.broken, strings.Join(w.log, "\n"))
		}
	})
}

// playSeed plays one schedule: a time with faults, then a time without. All work must be complete at the end.
func playSeed(seed uint64, workers int, verbose bool) *world {
	w := newWorld(seed)
	w.verbose, w.random, w.concurrent = verbose, true, workers > 1
	w.populate()
	f := &faults{world: w, workers: workers}
	for range 40 + w.rng.IntN(80) {
		if f.turn(); w.broken != nil {
			return w
		}
	}
	w.heal()
	m := newManager(w)
	w.settle(m, workers, w.undone)
	for _, p := range w.profileList() {
		w.logf("profile %s is deleted", p.Name)
		p.DeletionTimestamp, p.Spec.DeletionPolicy = ptr.To(metav1.NewTime(w.now)), v1alpha1.DeletionRestore
		w.edited(&p)
	}
	w.settle(m, workers, w.traces)
	return w
}

// settle runs without faults until all work is complete, and checks that no write follows.
func (w *world) settle(m *manager, workers int, undone func() string) {
	const maxTurns = 2000
	w.calm(m, workers)
	for turn := 0; (undone() != "" || m.steps > 0) && w.broken == nil; turn++ {
		if turn == maxTurns {
			for _, note := range plan.For(w.live()).Notes {
				w.logf("%s: %s", note.Volume, note.Message)
			}
			w.fail("still pending after %d turns: %s", maxTurns, undone())
		}
		w.calm(m, workers)
	}
	w.now = w.now.Add(time.Hour)
	_, _ = m.pass(workers) // records the result of the last mount
	for range 3 {
		w.now = w.now.Add(time.Hour)
		if _, _ = m.pass(workers); m.steps > 0 {
			w.fail("got %d more steps after all work was complete, want none", m.steps)
		}
	}
	carried := slices.ContainsFunc(slices.Collect(maps.Values(w.volumes)), func(v *simVolume) bool { return v.carried })
	if next, _ := m.pass(workers); w.broken == nil && !carried && !next.IsZero() || next.Sub(w.now) > time.Minute {
		w.fail("got the next pass at %s after all work was complete, want none or at most a minute later", next)
	}
}

// calm runs a pass without faults, and lets the time until the next pass elapse.
func (w *world) calm(m *manager, workers int) {
	next, _ := m.pass(workers)
	w.finishDeletions()
	if w.rng.IntN(3) == 0 {
		names := w.names()
		w.mount(names[w.rng.IntN(len(names))])
	}
	if next.IsZero() {
		next = w.now.Add(time.Minute)
	}
	if next.Before(w.now.Add(passInterval)) {
		next = w.now.Add(passInterval)
	}
	w.now = next
}

func (w *world) populate() {
	ofGit := w.rng.IntN(3) == 0 // then only new volumes can be canaries
	for i := range 3 + w.rng.IntN(8) {
		v := w.addVolume(fmt.Sprintf("pv%d", i), [][]string{nil, {"hard"}, {"hard", "nconnect=2"}, {"nocto"}, {"hard", "vers=4.2"}}[w.rng.IntN(5)]...)
		v.pv.CreationTimestamp = metav1.NewTime(w.now.Add(-time.Duration(w.rng.IntN(5)) * time.Hour))
		if w.rng.IntN(3) == 0 {
			v.pv.Spec.StorageClassName = "gold"
		}
		v.pv.Spec.NFS.Server = []string{"filer", "other"}[w.rng.IntN(2)]
		if w.rng.IntN(6) == 0 || ofGit {
			v.pv.Labels[trackedByFlux] = "app"
		}
		if w.rng.IntN(2) == 0 {
			w.mount(v.pv.Name)
		} else if w.rng.IntN(2) == 0 {
			v.pv.Status.Phase = corev1.VolumeAvailable
		}
	}
	w.addProfile("alpha", declaredLists[w.rng.IntN(2)], w.anyProfile)
	if w.rng.IntN(2) == 0 {
		w.addProfile("beta", declaredLists[w.rng.IntN(len(declaredLists))], w.anyProfile)
	}
	for i := 0; ofGit && i < 3; i++ {
		w.create(fmt.Sprintf("first%d", i), true, "hard")
	}
	w.skew, w.lies = skews[w.rng.IntN(len(skews))], w.rng.IntN(2) == 0
	w.poisoned, w.outspoken = w.rng.IntN(2) == 0, w.rng.IntN(2) == 0
}

func (w *world) anyProfile(p *v1alpha1.StorageClientProfile) {
	r := p.Spec.Rollout.Volumes
	r.SoakSeconds = ptr.To(int32(w.rng.IntN(3) * 45))
	r.MaxPerStep = ptr.To(intstr.FromInt(1 + w.rng.IntN(4)))
	r.OnNoEvidence = []v1alpha1.NoEvidencePolicy{"", v1alpha1.NoEvidenceWait, v1alpha1.NoEvidenceProceed}[w.rng.IntN(3)]
	if w.rng.IntN(3) == 0 {
		r.MaxPerStep = ptr.To(intstr.FromString([]string{"10%", "50%", "100%"}[w.rng.IntN(3)]))
	}
	p.Spec.Priority = int32(w.rng.IntN(2))
	rule := &p.Spec.Volumes[0]
	w.anyConflict(rule)
	if w.rng.IntN(3) == 0 {
		rule.GitOpsOwned = v1alpha1.GitOpsPatch
	}
	if w.rng.IntN(3) == 0 {
		rule.Selector.StorageClassNames = []string{"gold"}
	}
}

func (w *world) anyConflict(rule *v1alpha1.VolumeRule) {
	rule.OnConflict = []v1alpha1.ConflictPolicy{v1alpha1.ConflictKeepVolume, v1alpha1.ConflictUseProfile}[w.rng.IntN(2)]
}

// faults causes random events.
type faults struct {
	*world
	workers int
	manager *manager
	// old contains earlier versions of the volumes.
	old map[string][]*corev1.PersistentVolume
	// passed is the time of the last pass. Passes are spaced, and a manager needs more than a second to start.
	passed time.Time
	// nested is set while a second manager runs a pass inside a pass of the first.
	nested bool
}

// turn causes one event in the world.
func (f *faults) turn() {
	f.recordVersions()
	f.finishDeletions()
	switch f.rng.IntN(10) {
	case 0, 1, 2, 3:
		f.manage()
	case 4, 5:
		names := f.names()
		f.mount(names[f.rng.IntN(len(names))])
	case 6, 7, 8:
		f.now = f.now.Add([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute}[f.rng.IntN(4)])
	default:
		f.mishap()
	}
}

func (f *faults) recordVersions() {
	if f.old == nil {
		f.old = map[string][]*corev1.PersistentVolume{}
	}
	for name, v := range f.volumes {
		f.old[name] = append(f.old[name], v.pv)
		f.old[name] = f.old[name][max(0, len(f.old[name])-6):]
	}
}

// manage runs a pass, at random with a stale cache. At any step the manager may die, or another manager may run a pass.
func (f *faults) manage() {
	if f.manager == nil {
		f.manager = newManager(f.world)
	}
	m := f.manager
	m.stale = nil
	if f.rng.IntN(2) == 0 {
		m.stale = func(v *simVolume) *corev1.PersistentVolume {
			versions := f.old[v.pv.Name]
			if f.rng.IntN(2) == 0 {
				return v.pv
			}
			if len(versions) == 0 {
				return nil
			}
			return versions[f.rng.IntN(len(versions))]
		}
	}
	before := f.intrude
	defer func() { f.intrude = before }()
	f.intrude = f.within
	if !f.now.After(f.passed) {
		f.now = f.passed.Add(passInterval)
	}
	f.passed = f.now
	if _, died := m.pass(f.workers); died {
		f.manager = nil
	}
}

// within causes an event in the middle of a pass.
func (f *faults) within() {
	switch f.rng.IntN(30) {
	case 0:
		panic(errDied)
	case 1:
		f.mishap()
	case 2:
		if f.nested || f.workers > 1 {
			return
		}
		f.nested = true
		f.logf("another manager makes a pass meanwhile")
		f.changes++ // the reads of the first manager are outdated
		other := newManager(f.world)
		other.pass(1)
		f.lenient, f.nested = f.lenient || other.steps > 0, false
	}
}

// mishap causes a change by a user, or a fault of a server.
func (f *faults) mishap() {
	names := f.names()
	v := f.volumes[names[f.rng.IntN(len(names))]]
	name := v.pv.Name
	switch f.rng.IntN(18) {
	case 15:
		f.logf("a user replaces %s as a whole, with %s", name, strings.Join(v.manifest, ","))
		f.strip(v)
		f.change(v, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = v.manifest })
	case 16, 17:
		f.spoil()
	case 14:
		f.unwell[name] = !f.unwell[name]
		f.logf("%s cannot be mounted with any list: %t", name, f.unwell[name])
	case 0, 1:
		list := [][]string{{"soft"}, nil, v.own, v.written}[f.rng.IntN(4)]
		f.logf("a user sets the options of %s to %s", name, strings.Join(list, ","))
		f.change(v, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = list })
	case 2:
		f.logf("a user removes the annotations from %s", name)
		f.strip(v)
	case 3:
		f.logf("Git begins or ceases to declare %s", name)
		f.change(v, func(pv *corev1.PersistentVolume) { toggle(pv.Labels, trackedByFlux, "app") })
	case 4:
		f.logf("a user toggles the annotation ignore of %s", name)
		f.change(v, func(pv *corev1.PersistentVolume) { toggle(pv.Annotations, v1alpha1.IgnoreAnnotation, v1alpha1.True) })
	case 5:
		f.paused = !f.paused
		f.changes++
		f.logf("everything is paused: %t", f.paused)
	case 6:
		v.protected = !v.protected
		f.logf("a policy protects %s: %t", name, v.protected)
	case 7:
		f.poisoned = !f.poisoned
		f.logf("servers refuse %s: %t", poison, f.poisoned)
	case 8:
		if len(names) > 3 {
			f.logf("%s is deleted", name)
			delete(f.volumes, name)
			delete(f.mounts, name)
			delete(f.mountedAt, name)
			delete(f.unwell, name)
			delete(f.old, name)
			f.changes++
		}
	case 9, 10:
		f.create(fmt.Sprintf("new%d", f.serial), f.rng.IntN(2) == 0, "hard")
	default:
		f.edit()
	}
}

// strip removes the operator's annotations. Without a ledger entry, the record of the volume is lost.
func (f *faults) strip(v *simVolume) {
	f.stripped = true
	f.change(v, func(pv *corev1.PersistentVolume) {
		for _, key := range ours {
			delete(pv.Annotations, key)
		}
	})
	// If the entry is pending or ending, the manager cannot know whether it made the first write or the restore itself.
	if e := f.readLedger().EntryOf(v.pv.UID); e == nil || e.Broken != "" || e.Ending || e.Pending {
		v.carried, v.lost = false, true
	}
}

// spoil removes or damages a page of the ledger.
func (f *faults) spoil() {
	names := slices.Sorted(maps.Keys(f.pages))
	if len(names) == 0 {
		return
	}
	name := names[f.rng.IntN(len(names))]
	page := f.pages[name].DeepCopy()
	page.ResourceVersion = f.version()
	f.pages[name] = page
	for _, key := range slices.Sorted(maps.Keys(page.Data)) {
		if f.rng.IntN(2) == 0 {
			page.Data[key] = []string{"{}", "[]", "", `{"volume":"x","written":[["a","b"]]}`}[f.rng.IntN(4)]
		}
	}
	if f.rng.IntN(2) == 0 {
		delete(f.pages, name)
	}
	f.logf("a user edits or deletes %s", name)
	f.changes++
	for _, volume := range f.names() {
		v := f.volumes[volume]
		v.putBack = false // only the ledger had recorded it
		if e := f.readLedger().EntryOf(v.pv.UID); (e == nil || e.Broken != "") && !judge.RecordOf(v.pv).IsWhole() {
			v.carried, v.lost = false, true
		}
	}
}

func toggle(set map[string]string, key, value string) {
	if _, there := set[key]; there {
		delete(set, key)
		return
	}
	set[key] = value
}

// edit changes, pauses, deletes or creates a profile.
func (f *faults) edit() {
	names := slices.Sorted(maps.Keys(f.profiles))
	if len(names) < 2 && f.rng.IntN(2) == 0 {
		name := fmt.Sprintf("late%d", f.serial)
		p := f.addProfile(name, declaredLists[f.rng.IntN(len(declaredLists))], f.anyProfile)
		f.logf("a user creates profile %s: %v", name, p.Spec.Volumes[0].MountOptions)
		return
	}
	if len(names) == 0 {
		return
	}
	p := f.profiles[names[f.rng.IntN(len(names))]].DeepCopy()
	switch f.rng.IntN(10) {
	case 8, 9:
		f.anyConflict(&p.Spec.Volumes[0])
	case 0, 1:
		declare(p, declaredLists[f.rng.IntN(len(declaredLists))])
	case 2:
		p.Spec.Paused = !p.Spec.Paused
	case 3:
		p.Spec.Mode = []v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModePlan}[f.rng.IntN(2)]
	case 4:
		p.Spec.DeletionPolicy = []v1alpha1.DeletionPolicy{v1alpha1.DeletionRestore, v1alpha1.DeletionRetain}[f.rng.IntN(2)]
	case 5:
		p.Spec.Volumes[0].GitOpsOwned = []v1alpha1.GitOpsPolicy{v1alpha1.GitOpsReportOnly, v1alpha1.GitOpsPatch}[f.rng.IntN(2)]
	case 6:
		f.anyProfile(p)
	case 7:
		if p.DeletionTimestamp == nil {
			p.DeletionTimestamp = ptr.To(metav1.NewTime(f.now))
		}
	}
	f.edited(p)
	rule := p.Spec.Volumes[0]
	f.logf("profile %s: %v, %s, paused %t, mode %q, deleting %t, %s, %s", p.Name, rule.MountOptions, rule.OnConflict, p.Spec.Paused, p.Spec.Mode,
		p.DeletionTimestamp != nil, p.Spec.DeletionPolicy, rule.GitOpsOwned)
}

// heal ends all faults: the users revert their changes.
func (w *world) heal() {
	w.intrude, w.paused, w.poisoned, w.lies = nil, false, false, false
	clear(w.unwell)
	w.lenient = false
	w.logf("the faults end")
	w.now = w.now.Add(time.Hour)
	for _, name := range w.names() {
		w.stopWaiting(name)
	}
	for _, name := range w.names() {
		v := w.volumes[name]
		v.protected = false
		w.change(v, func(pv *corev1.PersistentVolume) { delete(pv.Annotations, v1alpha1.IgnoreAnnotation) })
	}
	for _, p := range w.profileList() {
		p.Spec.Paused, p.Spec.Mode = false, v1alpha1.ModeEnforce
		// A new name of the rule is a new version of the rules.
		p.Spec.Volumes[0].Name += "-healed"
		w.edited(&p)
	}
}

// undone returns the pending writes. Empty if there are none.
func (w *world) undone() string {
	s := w.live()
	for _, name := range slices.Sorted(maps.Keys(w.profiles)) {
		p := w.profiles[name]
		sum := plan.Summarize(name, s)
		if p.DeletionTimestamp != nil {
			return name + " is being deleted: " + strings.Join(sum.Unrestored, ", ")
		}
		if sum.IsOpen() {
			return fmt.Sprintf("%s has %d of %d volumes up to date, %d exceptions, %d blocked", name, sum.UpToDate, sum.Matched,
				sum.Exceptions, sum.Blocked)
		}
	}
	for _, v := range w.volumes {
		if mark := judge.MarkOf(v.pv); mark != nil && w.now.Before(mark.Since.Add(2*time.Minute)) {
			return v.pv.Name + " is in its soak"
		}
	}
	if plan.For(s).LedgerDue {
		return "the ledger is due"
	}
	if checks := plan.RequiredObservations(s).RollbackChecks; len(checks) > 0 { // its pod may stop waiting at any time
		return checks[0].Volume.Name + " is in a rollback check"
	}
	return ""
}

// traces returns the remaining traces of the operator. Empty if there are none.
func (w *world) traces() string {
	if len(w.profiles) > 0 {
		return fmt.Sprintf("%d profiles are being deleted", len(w.profiles))
	}
	for uid := range w.readLedger().Volumes() {
		return fmt.Sprintf("the ledger still has volume %s", uid)
	}
	for name := range w.reservations {
		return name + " is still reserved"
	}
	for key := range w.readLedger().Sets() {
		return fmt.Sprintf("the ledger still has option set %s", key)
	}
	for _, name := range w.names() {
		if v := w.volumes[name]; v.carried && slices.Equal(v.pv.Spec.MountOptions, v.written) && !slices.Equal(v.own, v.written) {
			return name + " is not restored"
		}
		for _, key := range ours {
			if _, there := w.volumes[name].pv.Annotations[key]; there {
				return fmt.Sprintf("%s still has annotation %s", name, key)
			}
		}
	}
	return ""
}
