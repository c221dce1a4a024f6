package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/internal/builders"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

// A failure that leaves open what is to blame takes the list back on that volume, and its own list shows whether it was.
func TestAListIsInCure(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	unclear := map[string]Failure{"a": {Text: "access denied by server", Kind: "denied"}}
	spoke := map[string]Failure{"a": {Text: "an incorrect mount option was specified", Kind: "option", SpeaksOfOptions: true}}
	type expected struct {
		suspected, settled, acquitted bool
		// again is whether the volume that failed gets the options in the end.
		again   bool
		stopped bool
	}
	for name, test := range map[string]struct {
		failed map[string]Failure
		cure   Cure
		want   expected
	}{
		"nobody knows yet":                            {unclear, "", expected{suspected: true}},
		"it mounts with its own: the list is guilty":  {unclear, CureWorked, expected{settled: true, stopped: true}},
		"it fails alike: the list comes again":        {unclear, CureFailed, expected{acquitted: true, again: true}},
		"no pod waits: nothing was learned":           {unclear, CureEnded, expected{acquitted: true, again: true}},
		"a text that speaks of options counts":        {spoke, "", expected{stopped: true}},
		"and is borne out":                            {spoke, CureWorked, expected{settled: true, stopped: true}},
		"or not, where it fails alike":                {spoke, CureFailed, expected{acquitted: true, again: true}},
		"it stands, where no pod waits to contradict": {spoke, CureEnded, expected{settled: true, stopped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			volumes := []*corev1.PersistentVolume{created("a", 9, written(p, 20)), created("b", 1)}
			now := noon
			pass := func(failed map[string]Failure, cures map[string]Cure) Plan {
				now = now.Add(10 * time.Second)
				s := snapshotOf(volumes, p)
				s.Now, s.FailedMounts, s.Cures = now, failed, cures
				next := For(s)
				for _, step := range next.Steps {
					carryOut(t, step, volumes)
				}
				return next
			}
			pass(test.failed, nil)
			if !slices.Equal(volumes[0].Spec.MountOptions, []string{"hard"}) {
				t.Fatalf("a has %q", volumes[0].Spec.MountOptions)
			}
			inCure := pass(nil, nil)
			if len(inCure.InCure) != 1 || inCure.InCure[0].Volume.Name != "a" || inCure.Next.After(now.Add(time.Minute)) {
				t.Errorf("on cure are %v, and the next plan is due at %s", inCure.InCure, inCure.Next)
			}
			if test.cure != "" {
				pass(nil, map[string]Cure{"a": test.cure})
			}
			f := judge.FailedMountOf(volumes[0])
			if f == nil || f.Suspected != test.want.suspected || f.Settled != test.want.settled || f.Acquitted != test.want.acquitted {
				t.Fatalf("the volume remembers %+v", f)
			}
			if after := snapshotOf(volumes, p); len(For(after).InCure) == 1 != (test.cure == "") {
				t.Errorf("on cure are %v", For(after).InCure)
			}
			sum := Summarize("p", snapshotOf(volumes, p))
			if (sum.Stopped != "") != test.want.stopped || strings.Contains(sum.Batch, "until a pod shows") != test.want.suspected {
				t.Errorf("stopped is %q, and waited for is %q", sum.Stopped, sum.Batch)
			}
			pass(nil, nil)
			if again := slices.Contains(volumes[0].Spec.MountOptions, "nocto"); again != test.want.again {
				t.Errorf("a has %q", volumes[0].Spec.MountOptions)
			}
			if slices.Contains(volumes[1].Spec.MountOptions, "nocto") {
				t.Error("b has the options before anything shows them to work")
			}
			if !test.want.again {
				return
			}
			if _, taken := stepsOf(pass(test.failed, nil)); len(taken) != 0 != (test.cure == CureEnded) {
				t.Errorf("of a failure that was judged, %q are taken back", taken)
			}
		})
	}
}

// What is held or left alone is not judged meanwhile.
func TestNothingIsLearnedOfWhatMayNotBeWritten(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	ignored := created("a", 9, failedFor(p), builders.Annotated(v1alpha1.IgnoreAnnotation, v1alpha1.True))
	f := judge.FailedMountOf(ignored)
	f.Settled = false
	ignored.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(f)
	s := snapshotOf([]*corev1.PersistentVolume{ignored}, p)
	s.Now, s.Cures = noon, map[string]Cure{"a": CureWorked}
	if got := For(s); len(got.InCure)+len(got.Steps) > 0 {
		t.Errorf("on cure are %v, and written is %v", got.InCure, got.Steps)
	}
}

// A list that failed for good goes from all volumes that have it, unless a mount has ever shown it to work.
func TestAGuiltyListGoesFromAllThatCarryIt(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("50%")))
	settled := func(settled bool) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			failedFor(p)(pv)
			failed := judge.FailedMountOf(pv)
			failed.Settled, failed.Suspected = settled, !settled
			pv.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(failed)
		}
	}
	shown := func(m *judge.Mark) { m.Evidence = "n has mounted b" }
	byHand := func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = append(pv.Spec.MountOptions, "noatime") }
	// remembered is what the ledger holds of a's failure, from the time on when the text spoke of options.
	remembered := func() *ledger.Ledger {
		failed := judge.FailedSetOf(created("a", 9), judge.FailedMountOf(created("a", 9, settled(true))))
		page := corev1.ConfigMap{Data: map[string]string{string(ledger.KeyOfSet(failed.Key())): builders.JSON(map[string]any{"volume": "a", "written": []any{}, "failed": failed.Encode()})}}
		page.Name = v1alpha1.VolumesConfigMapPrefix + "0"
		return ledger.Read([]corev1.ConfigMap{page})
	}()
	if len(remembered.FailedSets()) != 1 {
		t.Fatalf("the ledger holds %v", remembered.FailedSets())
	}
	for name, test := range map[string]struct {
		volumes []*corev1.PersistentVolume
		want    []string
		ledger  *ledger.Ledger
	}{
		"no more at a time than the profile's share": {[]*corev1.PersistentVolume{
			created("a", 9, settled(true)), created("b", 8, written(p, 600)), created("c", 7, written(p, 600)), created("d", 6, written(p, 600)),
		}, []string{"b", "c"}, nil},
		"not while it is open who is to blame": {[]*corev1.PersistentVolume{created("a", 9, settled(false)), created("b", 8, written(p, 600))}, nil, remembered},
		"also when that volume is gone":        {[]*corev1.PersistentVolume{created("b", 8, written(p, 600))}, []string{"b"}, remembered},
		"not what a mount has shown to work":   {[]*corev1.PersistentVolume{created("a", 9, settled(true)), created("b", 8, written(p, 600, shown)), created("c", 7, written(p, 600))}, nil, nil},
		"not what somebody has changed since":  {[]*corev1.PersistentVolume{created("a", 9, settled(true)), created("b", 8, written(p, 600), byHand)}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(test.volumes, p)
			s.Now, s.Ledger = noon, test.ledger
			next := For(s)
			var back []string
			for _, step := range next.Steps {
				restore, ok := step.(RestoreOptions)
				if !ok || restore.FailedMount != nil || !slices.Equal(restore.Options, []string{"hard"}) {
					t.Errorf("step %s", step)
					continue
				}
				back = append(back, step.Target().Name)
				if note := next.Notes[step.Target().Name]; note.Reason != v1alpha1.VolumeReasonFailedMount || !strings.HasPrefix(note.Message, "a could not be mounted with the declared options") {
					t.Errorf("%s is noted %+v", step.Target().Name, note)
				}
			}
			if !slices.Equal(back, test.want) {
				t.Errorf("%q get their own lists back, want %q", back, test.want)
			}
			if left := len(test.volumes) - 1 - len(back); len(back) > 0 && left > 0 && next.Next.After(noon.Add(observeEvery)) {
				t.Errorf("the next plan is due at %s", next.Next)
			}
			for _, step := range next.Steps {
				carryOut(t, step, test.volumes)
			}
			s = snapshotOf(test.volumes, p)
			s.Now, s.Ledger = noon.Add(observeEvery), test.ledger
			for _, step := range For(s).Steps {
				if BelongsToBatch(step) {
					t.Errorf("then %s", step)
				}
			}
		})
	}
}
