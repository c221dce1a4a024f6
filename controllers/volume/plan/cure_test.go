package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
)

// A failure of unknown cause reverts that volume, and its original options show whether the declared ones were the cause.
func TestRollbackCheck(t *testing.T) {
	type expected struct {
		state optionset.State
		// cleared is true if the failure no longer counts. again is true if the volume finally gets the options again.
		cleared, again, stopped bool
	}
	for name, test := range map[string]struct {
		failed Failure
		cure   optionset.Kind
		want   expected
	}{
		"no result yet": {unclearFailure, "", expected{state: optionset.Suspected}},
		"it mounts with the original options: the declared options are the cause": {unclearFailure, optionset.OwnMounted, expected{state: optionset.Failing, stopped: true}},
		"it fails in the same way: the declared options are applied again":        {unclearFailure, optionset.OwnFailed, expected{state: optionset.Untried, cleared: true, again: true}},
		"no pod waits: the cause stays unknown":                                   {unclearFailure, optionset.NoPodWaits, expected{state: optionset.Untried, again: true}},
		"a text that names options counts":                                        {namedFailure, "", expected{state: optionset.Suspected, stopped: true}},
		"and is confirmed":                                                        {namedFailure, optionset.OwnMounted, expected{state: optionset.Failing, stopped: true}},
		"or refuted, if it fails in the same way":                                 {namedFailure, optionset.OwnFailed, expected{state: optionset.Untried, cleared: true, again: true}},
		"it stays, if no pod waits":                                               {namedFailure, optionset.NoPodWaits, expected{state: optionset.Failing, stopped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			toCanary(b)
			b.pass(failing("a", test.failed))
			if !slices.Equal(b.volume("a").Spec.MountOptions, []string{"hard"}) {
				t.Fatalf("after the failure: got options %q on a, want the original ones", b.volume("a").Spec.MountOptions)
			}
			b.wait(10 * time.Second)
			b.pass(nothingSeen)
			checks, next := RequiredObservations(b.snapshot()).RollbackChecks, For(b.snapshot()).Next
			if len(checks) != 1 || checks[0].Volume.Name != "a" || next.After(b.now.Add(time.Minute)) || !checks[0].Blame.RevertedAt.After(b.now.Add(-10*time.Second)) {
				t.Errorf("got rollback checks %v, next plan at %s; want a check of a, a plan within 1m", checks, next)
			}
			if test.cure != "" {
				b.pass(cured("a", test.cure))
			}
			set := newPlanner(b.snapshot()).sets[b.set()]
			if set.State("filer") != test.want.state || set.Counts(test.failed.Kind) == test.want.cleared {
				t.Fatalf("got state %s (%+v), want %s, cleared: %t", set.State("filer"), set, test.want.state, test.want.cleared)
			}
			if after := RequiredObservations(b.snapshot()).RollbackChecks; len(after) == 1 != (test.cure == "") {
				t.Errorf("got rollback checks %v, want one: %t", after, test.cure == "")
			}
			sum := Summarize("p", b.snapshot())
			if suspected := test.want.state == optionset.Suspected && !test.want.stopped; (sum.Stopped != "") != test.want.stopped || strings.Contains(sum.Batch, "until a pod shows") != suspected {
				t.Errorf("got stopped %q, batch %q; want stopped: %t, a wait for a pod: %t", sum.Stopped, sum.Batch, test.want.stopped, suspected)
			}
			b.pass(nothingSeen)
			if again := slices.Contains(b.volume("a").Spec.MountOptions, "nocto"); again != test.want.again {
				t.Errorf("got options %q on a, want the declared ones: %t", b.volume("a").Spec.MountOptions, test.want.again)
			}
			if slices.Contains(b.volume("b").Spec.MountOptions, "nocto") {
				t.Error("got the options on b before any evidence")
			}
			if !test.want.again {
				return
			}
			// A failure from before the write counts if its cause is still open.
			if watched := RequiredObservations(b.snapshot()).Watched; len(watched) != 1 || watched[0].Rewritten.IsZero() != test.want.cleared {
				t.Errorf("got watched volumes %+v, want a, as written after a failure of open cause: %t", watched, !test.want.cleared)
			}
			b.pass(failing("a", test.failed))
			if reverted := !slices.Contains(b.volume("a").Spec.MountOptions, "nocto"); reverted == test.want.cleared {
				t.Errorf("after the same failure again: got a revert of a: %t, want %t", reverted, !test.want.cleared)
			}
		})
	}
}

// Without live reads, a volume still gets its original options back. No cached page replaces a page of the ledger. The next plan records
// the failure from the annotation.
func TestARestoreWithoutALiveReadRecordsNothing(t *testing.T) {
	b := newBench(t)
	toCanary(b)
	s := b.snapshot()
	s.FailedMounts = map[string]Failure{"a": unclearFailure}
	planned := For(s)
	if !planned.NeedsFresh() {
		t.Error("got a plan that records the failure from the cache, want a need for live reads")
	}
	planned = planned.WithoutFresh()
	if len(planned.Steps) != 1 {
		t.Fatalf("got steps %v, want one", planned.Steps)
	}
	for key := range planned.ChangesBefore(planned.Steps) {
		if optionset.IsKey(string(key)) {
			t.Errorf("got a write of %s before the step, want none", key)
		}
	}
	carryOut(t, planned.Steps[0], b.volumes)
	for key := range ChangesAfter(planned.Steps, b.now) {
		if optionset.IsKey(string(key)) {
			t.Errorf("got a write of %s after the step, want none", key)
		}
	}
	b.wait(10 * time.Second)
	if checks := RequiredObservations(b.snapshot()).RollbackChecks; len(checks) != 1 || checks[0].Blame.RevertedAt.Before(b.now.Truncate(time.Second)) {
		t.Errorf("got rollback checks %+v, want one of mounts from now on: the time of the restore is unknown", checks)
	}
	b.pass(nothingSeen)
	b.strip("a")
	if r := newPlanner(b.snapshot()).sets[b.set()]; r.State("filer") != optionset.Suspected || r.BlamedVolume() != "a" {
		t.Errorf("got state %s (%+v), want %s by a", r.State("filer"), r, optionset.Suspected)
	}
}

// If the options are the cause of one volume's failure, the open checks of the other volumes end. The order of the reads does not matter.
func TestOneOfSeveralFailuresDecides(t *testing.T) {
	for _, first := range []string{"b", "c"} {
		b := newBench(t)
		toWorks(b)
		r := newPlanner(b.snapshot()).sets[b.set()]
		for _, name := range []string{"b", "c"} {
			r.Next(optionset.Event{Kind: optionset.MountFailed, Blame: optionset.Blame{Volume: name, Failure: name, Unclear: name == "b"}, At: b.now})
		}
		b.keep(keptSet(r))
		// The manager died after the restore of b. In the meantime c got other options.
		pv := b.volume("b")
		pv.Spec.MountOptions = []string{"hard"}
		b.strip("b")
		pv = b.volume("c")
		mark := *judge.MarkOf(pv)
		mark.Set = "another"
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
		slices.SortFunc(b.volumes, func(v, _ *corev1.PersistentVolume) int {
			if v.Name == first {
				return -1
			}
			return 1
		})
		r = newPlanner(b.snapshot()).sets[b.set()]
		if r.State("filer") != optionset.Disputed || r.BlamedVolume() != "c" || len(r.Blames) != 1 {
			t.Errorf("with %s first: got state %s (%+v), want %s by c alone", first, r.State("filer"), r.Blames, optionset.Disputed)
		}
	}
}

func keptSet(r *optionset.Record) ledger.Changes {
	out := ledger.Changes{}
	for key, text := range r.Encode() {
		out[types.UID(key)] = ledger.KeepSet(text)
	}
	return out
}

// Observations of another volume with the name of a deleted one do not count: it may be on another server.
func TestAVolumeOfTheSameNameIsAnother(t *testing.T) {
	for failure, want := range map[Failure]optionset.State{unclearFailure: optionset.Untried, namedFailure: optionset.Failing} {
		b := newBench(t)
		then(toCanary, failing("a", failure))(b)
		b.volumes[0] = created("a", 1, bound, onServer("other"), func(pv *corev1.PersistentVolume) { pv.UID = "another" })
		if checks := RequiredObservations(b.snapshot()).RollbackChecks; len(checks) > 0 {
			t.Errorf("%s: got rollback checks %v, want none", failure.Text, checks)
		}
		s := b.snapshot()
		s.RollbackResults = map[string]optionset.Kind{"a": optionset.OwnMounted}
		b.keep(For(s).Ledger)
		if r := newPlanner(b.snapshot()).sets[b.set()]; r.State("filer") != want {
			t.Errorf("%s: got state %s (%+v), want %s", failure.Text, r.State("filer"), r.Blames, want)
		}
	}
}

// An unselected volume still shows whether its options are the cause. Only the ledger records the result.
func TestAnUnselectedVolumeIsStillObserved(t *testing.T) {
	b := newBench(t)
	then(toCanary, failing("a", unclearFailure))(b)
	set := b.set()
	b.profile = *b.profile.DeepCopy()
	b.profile.Spec.Volumes[0].Selector.Servers = []string{"other"}
	before := b.volume("a").DeepCopy()
	b.pass(cured("a", optionset.NoPodWaits))
	if r := newPlanner(b.snapshot()).sets[set]; r == nil || r.Stops() {
		t.Errorf("got record %+v, want a record that does not stop the set", r)
	}
	if diff := cmp.Diff(before, b.volume("a")); diff != "" {
		t.Errorf("volume a (-want +got):\n%s", diff)
	}
}

// Options that are too long to record are not reported as none.
func TestAFailureOfALongListIsExplained(t *testing.T) {
	b := newBench(t)
	for i := range 300 {
		pv := b.volume("a")
		pv.Spec.MountOptions = append(pv.Spec.MountOptions, fmt.Sprintf("x-option-%024d", i))
	}
	then(toCanary, failing("a", namedFailure))(b)
	if restored := b.volume("a").Spec.MountOptions; len(restored) != 301 || slices.Contains(restored, "nocto") {
		t.Errorf("got %d restored options, want the 301 original ones", len(restored))
	}
	_, warned, _ := judgeNew(b.snapshot(), created("new", 0))
	for _, message := range []string{Summarize("p", b.snapshot()).Stopped, warned} {
		if !strings.Contains(message, "a could not be mounted with the declared options (driver kubernetes.io/nfs, event: ") {
			t.Errorf("got message %q, want a message without the options", message)
		}
	}
}

// Held and ignored volumes get no result.
func TestHeldVolumesGetNoRollbackResult(t *testing.T) {
	b := newBench(t)
	then(toCanary, failing("a", unclearFailure))(b)
	s := b.snapshot()
	if got := RequiredObservations(s).RollbackChecks; len(got) != 1 {
		t.Fatalf("got rollback checks %v, want one", got)
	}
	s.Volumes[0].Annotations[v1alpha1.IgnoreAnnotation] = v1alpha1.True
	s.RollbackResults = map[string]optionset.Kind{"a": optionset.OwnMounted}
	if got, checks := For(s), RequiredObservations(s).RollbackChecks; len(checks)+len(got.Steps) > 0 {
		t.Errorf("an ignored volume: got rollback checks %v, steps %v; want none", checks, got.Steps)
	}
}

// Once options are known as the cause of a failure, all volumes lose them. Options with evidence of a mount stay.
func TestFailingOptionsAreRemovedFromAllVolumes(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("50%")))
	// settled adds the annotation of an earlier release to a volume.
	settled := func(settled bool) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			failedFor(p)(pv)
			failed := judge.FailedMountOf(pv)
			failed.Settled, failed.Unclear = settled, !settled
			pv.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(failed)
		}
	}
	withEvidence := func(m *judge.Mark) { m.Evidence = "n has mounted b" }
	byHand := func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = append(pv.Spec.MountOptions, "noatime") }
	// recorded is the ledger of an earlier release, with the failure of a. Its text names the options as the cause.
	recorded := func() *ledger.Ledger {
		failed := judge.FailedMountOf(created("a", 9, settled(true)))
		failed.Volume, failed.Protocol = "a", v1alpha1.ProtocolNFS
		page := corev1.ConfigMap{Data: map[string]string{"failed." + failed.Set: builders.JSON(map[string]any{"volume": "a", "written": []any{}, "failed": builders.JSON(failed)})}}
		page.Name = v1alpha1.VolumesConfigMapPrefix + "0"
		return new(ledger.Reader).Read([]corev1.ConfigMap{page})
	}()
	if len(recorded.Sets()) != 1 {
		t.Fatalf("got sets %v in the ledger, want one", recorded.Sets())
	}
	for name, test := range map[string]struct {
		volumes []*corev1.PersistentVolume
		want    []string
		ledger  *ledger.Ledger
	}{
		"no more at a time than the profile's share": {[]*corev1.PersistentVolume{
			created("a", 9, settled(true)), created("b", 8, written(p, 600)), created("c", 7, written(p, 600)), created("d", 6, written(p, 600)),
		}, []string{"b", "c"}, nil},
		"not while the cause is unknown":            {[]*corev1.PersistentVolume{created("a", 9, settled(false)), created("b", 8, written(p, 600))}, nil, recorded},
		"also after that volume is deleted":         {[]*corev1.PersistentVolume{created("b", 8, written(p, 600))}, []string{"b"}, recorded},
		"not options that a mount has proven":       {[]*corev1.PersistentVolume{created("a", 9, settled(true)), created("b", 8, written(p, 600, withEvidence)), created("c", 7, written(p, 600))}, nil, nil},
		"not options that a user has changed since": {[]*corev1.PersistentVolume{created("a", 9, settled(true)), created("b", 8, written(p, 600), byHand)}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(test.volumes, p)
			s.Now, s.Ledger = noon, test.ledger
			next := For(s)
			var restored []string
			for _, step := range next.Steps {
				restore, ok := step.(RestoreOptions)
				if !ok || restore.FailedMount != nil || !slices.Equal(restore.Options, []string{"hard"}) {
					t.Errorf("got step %s, want a restore of the original options", step)
					continue
				}
				restored = append(restored, step.Target().Name)
				if note := next.Notes[step.Target().Name]; note.Reason != v1alpha1.VolumeReasonFailedMount || !strings.HasPrefix(note.Message, "PersistentVolume a could not be mounted with the declared options") {
					t.Errorf("note of %s: got %+v, want the failed mount of a", step.Target().Name, note)
				}
			}
			if !slices.Equal(restored, test.want) {
				t.Errorf("got restores of %q, want %q", restored, test.want)
			}
			if left := len(test.volumes) - 1 - len(restored); len(restored) > 0 && left > 0 && next.Next.After(noon.Add(observeInterval)) {
				t.Errorf("got the next plan at %s, want at most %s later", next.Next, observeInterval)
			}
			for _, step := range next.Steps {
				carryOut(t, step, test.volumes)
			}
			s = snapshotOf(test.volumes, p)
			s.Now, s.Ledger = noon.Add(observeInterval), test.ledger
			for _, step := range For(s).Steps {
				if BelongsToBatch(step) {
					t.Errorf("in the next plan: got step %s, want no step of a batch", step)
				}
			}
		})
	}
}
