package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// created returns a volume with an age in minutes: age 1 is older than age 0.
func created(name string, age int, more ...builders.VolumeOption) *corev1.PersistentVolume {
	pv := builders.NFSVolume([]string{"hard"}, append([]builders.VolumeOption{builders.Named(name)}, more...)...)
	pv.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour - time.Duration(age)*time.Minute))
	return pv
}

// written makes a volume look as if the operator had written it for the profile, the given seconds before noon.
func written(p v1alpha1.StorageClientProfile, secondsAgo int, change ...func(*judge.Mark)) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.MountOptions = []string{"hard", "nocto"}
		builders.Carrying([]string{"hard"}, pv.Spec.MountOptions, p.Name)(pv)
		mark := judge.MarkFor(verdictFor(p, pv), noon.Add(-time.Duration(secondsAgo)*time.Second))
		for _, c := range change {
			c(mark)
		}
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
	}
}

// verdictFor returns the verdict on a volume in a cluster with one profile.
func verdictFor(p v1alpha1.StorageClientProfile, pv *corev1.PersistentVolume) judge.Verdict {
	return judge.Volume(judge.Input{Volume: pv, Profiles: new(judge.Compiler).Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p}), catalogue.AllowList{}, false, nil)})
}

func failedFor(p v1alpha1.StorageClientProfile) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(optionset.Failed{
			Identity: optionset.Identity{Set: verdictFor(p, pv).Set, RuleSet: verdictFor(p, pv).RuleSet, Rules: verdictFor(p, pv).Rules, Driver: "kubernetes.io/nfs"},
			Blame:    optionset.Blame{Options: []string{"hard", "nocto"}, Text: "exit status 32", Settled: true},
		})
	}
}

func ofPhase(phase corev1.PersistentVolumePhase) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Status.Phase = phase }
}

// maxPerStep sets the maximum number of volumes in a step. A soak is sufficient, without evidence.
func maxPerStep(limit intstr.IntOrString) builders.ProfileOption {
	return builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: &limit, OnNoEvidence: v1alpha1.NoEvidenceProceed}
	})
}

// namingOptions returns failed mounts by volume. Their events name the options as the cause.
func namingOptions(texts map[string]string) map[string]Failure {
	out := map[string]Failure{}
	for volume, text := range texts {
		out[volume] = Failure{Text: text, Kind: text, NamesOptions: true}
	}
	return out
}

// stepsOf returns the names of the volumes that are written in a batch, and of the reverted volumes.
func stepsOf(p Plan) (batch, reverted []string) {
	for _, step := range p.Steps {
		restore, ok := step.(RestoreOptions)
		switch {
		case BelongsToBatch(step):
			batch = append(batch, step.Target().Name)
		case ok && restore.FailedMount != nil:
			reverted = append(reverted, step.Target().Name)
		}
	}
	slices.Sort(batch)
	return batch, reverted
}

func TestBatches(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromInt32(2)))
	share := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("50%")))
	other := builders.NFSProfile("other", []string{"actimeo=30"}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"shared"}}))
	hasty := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromInt32(2)), builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Volumes.SoakSeconds = new(int32) }))
	same := builders.NFSProfile("same", []string{"nocto"}, maxPerStep(intstr.FromInt32(2)))
	shared := func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "shared" }
	anotherTime := func(m *judge.Mark) { m.Set = "before" }
	foreign := builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")
	tests := map[string]struct {
		volumes  []*corev1.PersistentVolume
		profiles []v1alpha1.StorageClientProfile
		failed   map[string]string
		want     []string
		reverted []string
		message  string // of the first waiting volume
		next     int    // seconds after noon
		since    int    // start of the batch, in seconds before noon
	}{
		"the oldest volume is the canary, and goes alone": {
			volumes: []*corev1.PersistentVolume{created("a", 0), created("b", 2), created("c", 1)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"names decide between volumes of one age": {
			volumes: []*corev1.PersistentVolume{created("b", 0), created("a", 0)}, profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"a"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"unmountable volumes come last, however old": {
			volumes: []*corev1.PersistentVolume{created("released", 9, ofPhase(corev1.VolumeReleased)), created("available", 8, ofPhase(corev1.VolumeAvailable)),
				created("bound", 1, ofPhase(corev1.VolumeBound))},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"bound"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"and their soak is no evidence for others": {
			volumes: []*corev1.PersistentVolume{created("released", 9, ofPhase(corev1.VolumeReleased), written(p, 900)), created("b", 5, ofPhase(corev1.VolumeBound)),
				created("c", 4, ofPhase(corev1.VolumeBound))},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"b"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"but among themselves a batch may follow": {
			volumes: []*corev1.PersistentVolume{created("released", 9, ofPhase(corev1.VolumeReleased), written(p, 900)), created("b", 5, ofPhase(corev1.VolumeAvailable)),
				created("c", 4, ofPhase(corev1.VolumeReleased))},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"b", "c"}, next: 10,
		},
		"nothing else is written while the canary soaks": {
			volumes: []*corev1.PersistentVolume{created("a", 1, written(p, 299)), created("b", 0)}, profiles: []v1alpha1.StorageClientProfile{p},
			message: "StorageClientProfile p: canary PersistentVolume a soaks until 2026-11-21T12:00:01Z", next: 1,
		},
		"an edit ends the soak of volumes that get other options": {
			volumes:  []*corev1.PersistentVolume{created("a", 1, written(p, 10)), created("b", 0)},
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto", "actimeo=30"}, maxPerStep(intstr.FromInt32(2)))},
			want:     []string{"a"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"another rule with the same options does not": {
			volumes: []*corev1.PersistentVolume{created("a", 1, written(p, 10)), created("b", 0)}, profiles: []v1alpha1.StorageClientProfile{p, same},
			message: "StorageClientProfile p: canary PersistentVolume a soaks until 2026-11-21T12:04:50Z", next: 10,
		},
		"a batch follows after the soak": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 3), created("c", 2), created("d", 1)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b", "c"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"evidence for other rules does not count": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 900, anotherTime)), created("b", 3), created("c", 2)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"a percentage counts matched volumes, and leaves blocked ones out": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(share, 300)), created("x", 8, foreign), created("y", 7, foreign), created("b", 3), created("c", 2), created("d", 1), created("e", 0)},
			profiles: []v1alpha1.StorageClientProfile{share}, want: []string{"b", "c"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"another option set has a separate canary": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("s", 5, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"})), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"s"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"and does not join another set's batch": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 5),
				created("s", 4, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"})), created("c", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"b", "c"}, message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"a volume of two profiles waits for both": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 1)), created("s", 5, shared)},
			profiles: []v1alpha1.StorageClientProfile{p, other}, message: "StorageClientProfile p: canary PersistentVolume a soaks until 2026-11-21T12:04:59Z", next: 10,
		},
		"volumes with the declared options need no step": {
			volumes:  []*corev1.PersistentVolume{created("a", 1, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"hard", "nocto"} })},
			profiles: []v1alpha1.StorageClientProfile{p},
		},
		"a failed mount reverts the options and stops the rest": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, failed: map[string]string{"a": "exit status 32"},
			reverted: []string{"a"}, message: "StorageClientProfile p: these options are stopped: PersistentVolume a could not be mounted with them", next: 60,
		},
		"a reverted volume stops the rest too": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "StorageClientProfile p: these options are stopped: PersistentVolume a could not be mounted with them",
		},
		"until the rules change": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto", "actimeo=30"})}, want: []string{"a"},
			message: "StorageClientProfile p: another batch comes first", next: 10,
		},
		"an incomplete batch is joined": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)), created("c", 2), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"c"}, since: 20,
			message: "StorageClientProfile p: PersistentVolume b soaks until 2026-11-21T12:04:40Z", next: 10,
		},
		"but not beyond its share, even if its volumes changed": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)), created("d", 1),
				created("c", 3, written(p, 20), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "StorageClientProfile p: PersistentVolume b soaks until 2026-11-21T12:04:40Z", next: 10,
		},
		"nor that of a canary whose options are declared by other rules since": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)),
				created("b", 3, written(p, 20, func(m *judge.Mark) { m.Set, m.Unproven = "another", true })), created("c", 2), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "StorageClientProfile p: PersistentVolume b soaks until 2026-11-21T12:04:40Z", next: 10,
		},
		"nor after a minute": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 60)), created("c", 2)},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "StorageClientProfile p: PersistentVolume b soaks until 2026-11-21T12:04:00Z", next: 10,
		},
		"nor by another set of options": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)),
				created("s", 4, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"}))},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "StorageClientProfile p: PersistentVolume b soaks until 2026-11-21T12:04:40Z", next: 10,
		},
		"nor if one of its volumes could not be mounted": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)), created("c", 2)},
			profiles: []v1alpha1.StorageClientProfile{p}, failed: map[string]string{"b": "exit status 32"},
			reverted: []string{"b"}, message: "StorageClientProfile p: these options are stopped: PersistentVolume b could not be mounted with them", next: 10,
		},
		"two batches do not start in one second": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 0)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{hasty}, message: "StorageClientProfile p: another batch comes first", next: 1,
		},
		"options that another user changed are not reverted": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 1), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })},
			profiles: []v1alpha1.StorageClientProfile{p}, failed: map[string]string{"a": "exit status 32"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := snapshotOf(test.volumes, test.profiles...)
			snapshot.Now, snapshot.FailedMounts = noon, namingOptions(test.failed)
			got := For(snapshot)
			batch, reverted := stepsOf(got)
			if diff := cmp.Diff(test.want, batch, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("written volumes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.reverted, reverted, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("reverted volumes (-want +got):\n%s", diff)
			}
			var message string
			for _, volume := range slices.Sorted(maps.Keys(got.Notes)) {
				if reason, _, waits := strings.Cut(got.Notes[volume].Message, "; then "); waits {
					message = reason
					break
				}
			}
			if message != test.message {
				t.Errorf("got message %q, want %q", message, test.message)
			}
			var next int
			if !got.Next.IsZero() {
				next = int(got.Next.Sub(noon).Seconds())
			}
			if next != test.next {
				t.Errorf("got the next plan after %d s, want %d s", next, test.next)
			}
			for _, step := range got.Steps {
				if !BelongsToBatch(step) {
					continue
				}
				write := step.(WriteOptions)
				since := noon.Add(-time.Duration(test.since) * time.Second)
				want := judge.MarkFor(write.Verdict, since)
				want.Unproven, want.Failed = true, judge.FailedMountOf(write.Target()) != nil
				if !cmp.Equal(want, write.Mark) {
					t.Errorf("mark of %s: got %+v, want %+v", write.Target().Name, write.Mark, want)
				}
			}
		})
	}
}

// The next pod may mount a volume at any time: all volumes with managed options are watched.
func TestTheWatchNeverEnds(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	byWebhook := func(pv *corev1.PersistentVolume) {
		maps.Copy(pv.Annotations, judge.AnnotationsOfCreation(verdictFor(p, pv), ""))
		pv.Spec.MountOptions = []string{"hard", "nocto"}
	}
	withRule := func(rule v1alpha1.VolumeRule) v1alpha1.StorageClientProfile {
		changed := builders.NFSProfile("p", []string{"nocto"})
		changed.Spec.Volumes = append(changed.Spec.Volumes, rule)
		return changed
	}
	smbRule := v1alpha1.VolumeRule{Name: "smb", Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{"other"}}, MountOptions: []v1alpha1.MountOption{"actimeo=30"}}
	tests := map[string]struct {
		volume  *corev1.PersistentVolume
		profile v1alpha1.StorageClientProfile
		since   time.Time
		watched bool
	}{
		"a canary while it soaks":                    {created("a", 9, written(p, 20)), p, noon.Add(-20 * time.Second), true},
		"a canary long after its soak":               {created("a", 20_000, written(p, 90_000)), p, noon.Add(-90_000 * time.Second), true},
		"when another rule of the profile is edited": {created("a", 9, written(p, 20)), withRule(smbRule), noon.Add(-20 * time.Second), true},
		"when its rule is edited, while the volume still has the options": {
			created("a", 9, written(p, 20)), builders.NFSProfile("p", []string{"nocto", "actimeo=30"}), noon.Add(-20 * time.Second), true,
		},
		"while the profile is paused":                 {created("a", 9, written(p, 20)), builders.NFSProfile("p", []string{"nocto"}, builders.Paused), noon.Add(-20 * time.Second), true},
		"a volume that the webhook wrote":             {created("a", 9, byWebhook), p, noon.Add(-time.Hour - 9*time.Minute), true},
		"options that earlier releases wrote":         {created("a", 9, builders.Carrying([]string{"hard"}, []string{"hard"}, "p")), p, noon.Add(-time.Hour - 9*time.Minute), true},
		"not options that another user changed":       {created("a", 9, written(p, 1), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} }), p, time.Time{}, false},
		"not a volume that never had managed options": {created("a", 9), builders.NFSProfile("p", []string{"hard"}), time.Time{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := snapshotOf([]*corev1.PersistentVolume{test.volume}, test.profile)
			snapshot.Now = noon
			got, watched := For(snapshot), RequiredObservations(snapshot).Watched
			if (len(watched) == 1) != test.watched {
				t.Fatalf("got watched volumes %v, want one: %t", watched, test.watched)
			}
			if test.watched && !watched[0].Since.Equal(test.since) {
				t.Errorf("got watched since %s, want %s", watched[0].Since, test.since)
			}
			if soon := noon.Add(time.Minute); test.watched && (got.Next.IsZero() || got.Next.After(soon)) {
				t.Errorf("got the next plan at %s, want at most %s", got.Next, soon)
			}
			if !test.watched {
				return
			}
			snapshot.FailedMounts = namingOptions(map[string]string{"a": "an incorrect mount option was specified"})
			failed := For(snapshot)
			_, reverted := stepsOf(failed)
			held := test.profile.Spec.Paused
			const note = "A pod could not mount the volume with hard,nocto: an incorrect mount option was specified"
			if held != (len(reverted) == 0) || held && !strings.Contains(failed.Notes["a"].Message, note) {
				t.Errorf("got reverted volumes %q, note %q; want a revert, or the note if the profile is paused", reverted, failed.Notes["a"].Message)
			}
		})
	}
}

func TestNoPlanIsDueWithoutManagedVolumes(t *testing.T) {
	snapshot := snapshotOf([]*corev1.PersistentVolume{created("a", 9)}, builders.NFSProfile("p", []string{"hard"}))
	snapshot.Now = noon
	if got, required := For(snapshot), RequiredObservations(snapshot); !required.IsEmpty() || !got.Next.IsZero() {
		t.Errorf("got watched volumes %v, next plan at %s; want none", required.Watched, got.Next)
	}
}

// A failed mount stops only the option set of that write. The other sets of the profile continue.
func TestAFailedMountStopsItsSetOfOptions(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	p.Spec.Volumes[0].Selector = v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}
	p.Spec.Volumes = append(p.Spec.Volumes, v1alpha1.VolumeRule{Name: "gold", Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{"gold"}}, MountOptions: []v1alpha1.MountOption{"actimeo=30"}})
	gold := func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "gold" }
	volumes := []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 5), created("g", 3, gold)}
	snapshot := snapshotOf(volumes, p)
	snapshot.Now = noon
	got := For(snapshot)
	if batch, _ := stepsOf(got); !slices.Equal(batch, []string{"g"}) {
		t.Errorf("got writes of %q, want only the volume of the other rule", batch)
	}
	if note := got.Notes["b"].Message; !strings.HasPrefix(note, "StorageClientProfile p: these options are stopped: PersistentVolume a could not be mounted with them") {
		t.Errorf("note of b: got %q, want the stopped options", note)
	}
	edited := *p.DeepCopy()
	edited.Spec.Volumes[1].MountOptions = []v1alpha1.MountOption{"actimeo=60"}
	snapshot = snapshotOf(volumes, edited)
	snapshot.Now = noon
	if batch, _ := stepsOf(For(snapshot)); !slices.Equal(batch, []string{"g"}) {
		t.Errorf("after an edit of the other rule: got writes of %q, want only g", batch)
	}
	if stopped := Summarize("p", snapshot).Stopped; !strings.HasPrefix(stopped, "PersistentVolume a could not be mounted") {
		t.Errorf("got stopped %q, want the failed mount of a", stopped)
	}
	edited.Spec.Volumes[0].Name = "again"
	snapshot = snapshotOf(volumes, edited)
	snapshot.Now = noon
	if batch, _ := stepsOf(For(snapshot)); !slices.Equal(batch, []string{"a"}) {
		t.Errorf("after the rule got a new name: got writes of %q, want only a", batch)
	}
}

// TestFailingOptionsReachAtMostTheCanaryAndOneBatch applies plan after plan, each with a new manager. The mounts fail from a given
// volume on.
func TestFailingOptionsReachAtMostTheCanaryAndOneBatch(t *testing.T) {
	const count, limit = 40, 4
	for _, firstFailure := range []int{0, 1, 2, 5, 6, 17, count - 1, count} {
		t.Run(fmt.Sprintf("from the volume %d on", firstFailure), func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("10%")))
			var volumes []*corev1.PersistentVolume
			for i := range count {
				volumes = append(volumes, created(fmt.Sprintf("pv%02d", i), count-i))
			}
			clock, written, reverted := noon, 0, map[string]bool{}
			for range 4 * count {
				snapshot := snapshotOf(volumes, p)
				snapshot.Now, snapshot.FailedMounts = clock, map[string]Failure{}
				for _, w := range RequiredObservations(snapshot).Watched {
					if index := slices.IndexFunc(volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == w.Volume.Name }); index >= firstFailure {
						snapshot.FailedMounts[w.Volume.Name] = Failure{Text: "exit status 32", NamesOptions: true}
					}
				}
				next := For(snapshot)
				batch, restored := stepsOf(next)
				if len(batch) > limit || (written == 0 && len(batch) > 1) {
					t.Fatalf("after %d volumes: got a batch of %d, want at most %d, and one canary", written, len(batch), limit)
				}
				written += len(batch)
				for _, name := range restored {
					reverted[name] = true
				}
				for _, step := range next.Steps {
					carryOut(t, step, volumes)
				}
				clock = clock.Add(150 * time.Second)
			}
			if written > firstFailure+limit || written <= firstFailure && firstFailure < count {
				t.Errorf("got %d written volumes, want the %d mountable ones and at most the batch of the first failure", written, firstFailure)
			}
			if len(reverted) != written-firstFailure {
				t.Errorf("got %d reverted volumes, want %d", len(reverted), written-firstFailure)
			}
			for i, pv := range volumes {
				if poisoned := slices.Contains(pv.Spec.MountOptions, "nocto"); poisoned != (i < firstFailure) && (poisoned || i < written) {
					t.Errorf("got options %q on %s, want nocto: %t", pv.Spec.MountOptions, pv.Name, i < firstFailure)
				}
			}
		})
	}
}

// TestABatchSoaksAlthoughItsVolumeMayNotBeWrittenAnyLonger declares the volume of a batch in Git while other volumes of its server keep nconnect from
// it. The rules then declare another option set for it, with nconnect, which is not written.
func TestABatchSoaksAlthoughItsVolumeMayNotBeWrittenAnyLonger(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nconnect=4", "nocto"}, maxPerStep(intstr.FromInt32(2)))
	first := created("a", 9)
	volumes := []*corev1.PersistentVolume{first, created("b", 5), created("c", 4), created("other", 1)}
	volumes[3].Spec.MountOptions = []string{"hard", "nconnect=2"}
	s := snapshotOf(volumes, p)
	s.Now = noon
	for _, step := range For(s).Steps {
		carryOut(t, step, volumes)
	}
	if want := []string{"hard", "nocto"}; !slices.Equal(want, first.Spec.MountOptions) {
		t.Fatalf("got options %q of the canary, want %q", first.Spec.MountOptions, want)
	}
	builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")(first)
	for _, test := range []struct {
		after time.Duration
		want  []string
		soak  string
	}{
		{time.Minute, nil, "canary PersistentVolume a soaks until 2026-11-21T12:05:00Z"},
		{5*time.Minute - time.Second, nil, "canary PersistentVolume a soaks until 2026-11-21T12:05:00Z"},
		{5 * time.Minute, []string{"b", "c"}, ""},
	} {
		s := snapshotOf(volumes, p)
		s.Now = noon.Add(test.after)
		got, summary := For(s), Summarize("p", s)
		if batch, _ := stepsOf(got); !slices.Equal(test.want, batch) || summary.Batch != test.soak || !strings.Contains(got.Notes["c"].Message, test.soak) {
			t.Errorf("after %s: got written volumes %q, batch %q and note %q, want %q and %q",
				test.after, batch, summary.Batch, got.Notes["c"].Message, test.want, test.soak)
		}
		// A mount of the volume is no evidence for the set that is declared now.
		a := newPlanner(s).volumes[0]
		s.Evidence = map[string]Evidence{a.verdict.Set: {Text: "mounted", Volume: "a", Written: a.writtenAt()}}
		if newPlanner(s).sets.isProven(a) {
			t.Errorf("after %s: got a proven set with nconnect, which no volume carries", test.after)
		}
	}
}

// carryOut applies a step to its volume.
func carryOut(t *testing.T, step Step, volumes []*corev1.PersistentVolume) {
	t.Helper()
	pv := volumes[slices.IndexFunc(volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == step.Target().Name })]
	var annotations map[string]any
	switch step := step.(type) {
	case WriteOptions:
		annotations = judge.AnnotationsWith(step.Verdict, step.Mark)
		pv.Spec.MountOptions = step.Verdict.Options
	case RestoreOptions:
		annotations = judge.AnnotationsWithout(step.FailedMount)
		pv.Spec.MountOptions = step.Options
	case ReleaseVolume:
		annotations = judge.AnnotationsWithout(nil)
	case RecordSet:
		annotations = judge.AnnotationsForEarlier(step.Mark, step.FailedMount)
	}
	for key, text := range annotations {
		delete(pv.Annotations, key)
		if text != nil {
			pv.Annotations[key] = text.(string)
		}
	}
}

func TestAFailedMountIsRecordedUntilNoProfileDeclaresTheOptions(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	changed := builders.NFSProfile("p", []string{"hard"})
	tests := map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		want     judge.Action
	}{
		"while the profile declares them": {[]v1alpha1.StorageClientProfile{p}, judge.ActionWrite},
		"while it is paused":              {[]v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto"}, builders.Paused)}, judge.ActionNone},
		"while it no longer selects the volume, but others do": {
			[]v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"other"}}))}, judge.ActionNone,
		},
		"its rules changed":   {[]v1alpha1.StorageClientProfile{changed}, judge.ActionRelease},
		"it is being deleted": {[]v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto"}, builders.Deleted)}, judge.ActionRelease},
		"it is deleted":       {nil, judge.ActionRelease},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := created("a", 0, failedFor(p))
			s := snapshotOf([]*corev1.PersistentVolume{pv}, test.profiles...)
			if d := s.evaluateAll()[0].verdict; d.Action != test.want {
				t.Errorf("got action %s (%s), want %s", d.Action, d.Message, test.want)
			}
			deleting := len(test.profiles) == 1 && test.profiles[0].DeletionTimestamp != nil
			if waits := len(Summarize("p", s).Unrestored) == 1; waits != (deleting || test.want == judge.ActionRelease) && test.want != judge.ActionWrite {
				t.Errorf("got a deletion that waits for the volume: %t, want %t", waits, !waits)
			}
		})
	}
}

func TestSummaryReportsBatches(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	tests := map[string]struct {
		volumes        []*corev1.PersistentVolume
		batch, stopped string
	}{
		"a canary soaks": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 10)), created("b", 1)},
			batch: "canary PersistentVolume a soaks until 2026-11-21T12:04:50Z"},
		"a later batch soaks": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("c", 3, written(p, 10)), created("b", 3, written(p, 10)), created("d", 1)},
			batch: "PersistentVolumes b, c soak until 2026-11-21T12:04:50Z"},
		"no volume is pending": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 10))}},
		"another user changed the options": {volumes: []*corev1.PersistentVolume{
			created("a", 9, written(p, 10), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} }), created("b", 1)}},
		"the soak is over": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 1)}},
		"a volume could not be mounted": {volumes: []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 1)},
			stopped: `PersistentVolume a could not be mounted with ["hard","nocto"] (driver kubernetes.io/nfs, event: "exit status 32")`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(test.volumes, p)
			s.Now = noon
			got := Summarize("p", s)
			if got.Batch != test.batch || got.Stopped != test.stopped {
				t.Errorf("got batch %q, stopped %q; want batch %q, stopped %q", got.Batch, got.Stopped, test.batch, test.stopped)
			}
		})
	}
}
