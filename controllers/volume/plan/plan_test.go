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
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/internal/builders"
	"github.com/storageclient/operator/controllers/volume/judge"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// created ages a volume: one of age 1 is older than one of age 0.
func created(name string, age int, more ...builders.VolumeOption) *corev1.PersistentVolume {
	pv := builders.NFSVolume([]string{"hard"}, append([]builders.VolumeOption{builders.Named(name)}, more...)...)
	pv.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour - time.Duration(age)*time.Minute))
	return pv
}

// written makes a volume one that was written some seconds before noon for the profile.
func written(p v1alpha1.StorageClientProfile, secondsAgo int, change ...func(*judge.Mark)) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.MountOptions = []string{"hard", "nocto"}
		builders.Carrying([]string{"hard"}, pv.Spec.MountOptions, p.Name)(pv)
		mark := &judge.Mark{Since: noon.Add(-time.Duration(secondsAgo) * time.Second), Rules: map[string]string{p.Name: judge.HashOfRules(p.Spec.Volumes)}}
		for _, c := range change {
			c(mark)
		}
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
	}
}

func failedFor(p v1alpha1.StorageClientProfile) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(judge.FailedMount{
			Rules: map[string]string{p.Name: judge.HashOfRules(p.Spec.Volumes)}, Driver: "kubernetes.io/nfs", Options: []string{"hard", "nocto"}, Message: "exit status 32",
		})
	}
}

func maxPerStep(limit intstr.IntOrString) builders.ProfileOption {
	return builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: &limit}
	})
}

// mounts are client nodes with a mount of each volume, as it looks with nocto.
func mounts(volumes ...string) []v1alpha1.StorageClientNode {
	var out []v1alpha1.StorageClientNode
	for _, name := range volumes {
		out = append(out, v1alpha1.StorageClientNode{Status: v1alpha1.StorageClientNodeStatus{Mounts: []v1alpha1.MountStatus{
			{MountPoint: "/m", Volume: name, Protocol: "NFSv4.1", Options: []string{"rw", "vers=4.1", "hard", "nocto"}},
		}}})
	}
	return out
}

// steps are the names of the volumes that are written in a batch, and of those that are taken back.
func stepsOf(p Plan) (batch, takenBack []string) {
	for _, step := range p.Steps {
		restore, ok := step.(RestoreOptions)
		switch {
		case BelongsToBatch(step):
			batch = append(batch, step.Target().Name)
		case ok && restore.FailedMount != nil:
			takenBack = append(takenBack, step.Target().Name)
		}
	}
	slices.Sort(batch)
	return batch, takenBack
}

func TestBatches(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromInt32(2)))
	share := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("50%")))
	other := builders.NFSProfile("other", []string{"actimeo=30"}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"shared"}}))
	shared := func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "shared" }
	unprovable := func(m *judge.Mark) { m.Unprovable = true }
	anotherTime := func(m *judge.Mark) { m.Rules["p"] = "before" }
	foreign := builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")
	tests := map[string]struct {
		volumes  []*corev1.PersistentVolume
		profiles []v1alpha1.StorageClientProfile
		mounted  []string
		failed   map[string]string
		want     []string
		taken    []string
		message  string // of the first volume that waits
		next     int    // seconds after noon
		since    int    // seconds before noon that the batch began
	}{
		"the oldest volume is the canary, and goes alone": {
			volumes: []*corev1.PersistentVolume{created("a", 0), created("b", 2), created("c", 1)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b"}, message: "profile p: another batch comes first", next: 10,
		},
		"names decide between volumes of one age": {
			volumes: []*corev1.PersistentVolume{created("b", 0), created("a", 0)}, profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"a"}, message: "profile p: another batch comes first", next: 10,
		},
		"nothing goes on while the canary soaks": {
			volumes: []*corev1.PersistentVolume{created("a", 1, written(p, 299)), created("b", 0)}, profiles: []v1alpha1.StorageClientProfile{p},
			message: "profile p: the canary a soaks until 2026-11-21T12:00:01Z, or until a node mounts it", next: 1,
		},
		"the soak over, a step goes": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 3), created("c", 2), created("d", 1)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b", "c"}, message: "profile p: another batch comes first", next: 10,
		},
		"a good mount ends a step early": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 1)), created("b", 3)}, profiles: []v1alpha1.StorageClientProfile{p},
			mounted: []string{"a"}, want: []string{"b"}, next: 10,
		},
		"one of a step is enough": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 1)), created("c", 2, written(p, 1)), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, mounted: []string{"c"}, want: []string{"d"}, next: 10,
		},
		"a good mount of an earlier step proves nothing for the one that soaks": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 200)), created("b", 3, written(p, 60)), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, mounted: []string{"a"},
			message: "profile p: b soaks until 2026-11-21T12:04:00Z, or until a node mounts it", next: 10,
		},
		"a mount that looked so before the write proves nothing": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 1, unprovable)), created("b", 3)}, profiles: []v1alpha1.StorageClientProfile{p},
			mounted: []string{"a"},
			message: "profile p: the canary a soaks until 2026-11-21T12:04:59Z, or until a node mounts it", next: 10,
		},
		"what was proven for other rules is not for these": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 900, anotherTime)), created("b", 3), created("c", 2)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b"}, message: "profile p: another batch comes first", next: 10,
		},
		"a percentage counts matched volumes, and leaves blocked ones out": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(share, 300)), created("x", 8, foreign), created("y", 7, foreign), created("b", 3), created("c", 2), created("d", 1), created("e", 0)},
			profiles: []v1alpha1.StorageClientProfile{share}, want: []string{"b", "c"}, message: "profile p: another batch comes first", next: 10,
		},
		"another set of options has a canary of its own": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("s", 5, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"})), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"s"}, message: "profile p: another batch comes first", next: 10,
		},
		"and does not join a step of another": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 5),
				created("s", 4, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"})), created("c", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"b", "c"}, message: "profile p: another batch comes first", next: 10,
		},
		"a volume of two profiles waits for both": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 1)), created("s", 5, shared)},
			profiles: []v1alpha1.StorageClientProfile{p, other}, message: "profile p: the canary a soaks until 2026-11-21T12:04:59Z, or until a node mounts it", next: 10,
		},
		"volumes that carry the list need no step": {
			volumes:  []*corev1.PersistentVolume{created("a", 1, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"hard", "nocto"} })},
			profiles: []v1alpha1.StorageClientProfile{p},
		},
		"a failed mount takes the list back and stops the rest": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 300)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, failed: map[string]string{"a": "exit status 32"},
			taken: []string{"a"}, message: "profile p is stopped: a could not be mounted", next: 600,
		},
		"one that was taken back stops it too": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "profile p is stopped: a could not be mounted", next: 600,
		},
		"until the rules change": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto", "actimeo=30"})}, want: []string{"a"},
			message: "profile p: another batch comes first", next: 10,
		},
		"a batch that was not written whole is joined": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)), created("c", 2), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"c"}, since: 20,
			message: "profile p: b soaks until 2026-11-21T12:04:40Z, or until a node mounts it", next: 10,
		},
		"but not by more than its share, whatever became of its volumes": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)), created("d", 1),
				created("c", 3, written(p, 20), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "profile p: b soaks until 2026-11-21T12:04:40Z, or until a node mounts it", next: 10,
		},
		"nor after a minute": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 60)), created("c", 2)},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "profile p: b soaks until 2026-11-21T12:04:00Z, or until a node mounts it", next: 10,
		},
		"nor by another set of options": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)),
				created("s", 4, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"}))},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "profile p: b soaks until 2026-11-21T12:04:40Z, or until a node mounts it", next: 10,
		},
		"nor where one of its volumes could not be mounted": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("b", 3, written(p, 20)), created("c", 2)},
			profiles: []v1alpha1.StorageClientProfile{p}, failed: map[string]string{"b": "exit status 32"},
			taken: []string{"b"}, message: "profile p is stopped: b could not be mounted", next: 10,
		},
		"two batches do not begin in one second": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 0)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, mounted: []string{"a"}, message: "profile p: another batch comes first", next: 1,
		},
		"what somebody else changed is not taken back": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, written(p, 1), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })},
			profiles: []v1alpha1.StorageClientProfile{p}, failed: map[string]string{"a": "exit status 32"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := snapshotOf(test.volumes, test.profiles...)
			snapshot.Now, snapshot.ClientNodes, snapshot.FailedMounts = noon, mounts(test.mounted...), test.failed
			got := For(snapshot)
			batch, taken := stepsOf(got)
			if diff := cmp.Diff(test.want, batch, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.taken, taken, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("taken back (-want +got):\n%s", diff)
			}
			var message string
			for _, volume := range slices.Sorted(maps.Keys(got.Notes)) {
				if why, _, waits := strings.Cut(got.Notes[volume].Message, "; then "); waits {
					message = why
					break
				}
			}
			if message != test.message {
				t.Errorf("message is %q, want %q", message, test.message)
			}
			var next int
			if !got.Next.IsZero() {
				next = int(got.Next.Sub(noon).Seconds())
			}
			if next != test.next {
				t.Errorf("the next plan is due after %d s, want %d s", next, test.next)
			}
			for _, step := range got.Steps {
				write, ok := step.(WriteOptions)
				if !ok {
					continue
				}
				since := noon.Add(-time.Duration(test.since) * time.Second)
				if want := (&judge.Mark{Since: since, Rules: write.Verdict.RuleHashes()}); !cmp.Equal(want, write.Mark) {
					t.Errorf("mark of %s is %+v, want %+v", write.Target().Name, write.Mark, want)
				}
			}
		})
	}
}

func TestWatchedIsWhatSoaksAndTheLastBatch(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	tests := map[string]struct {
		volumes []*corev1.PersistentVolume
		want    []string
	}{
		"a step that soaks": {[]*corev1.PersistentVolume{created("a", 9, written(p, 299)), created("b", 1)}, []string{"a"}},
		"the last step, long after its soak, and none before it": {
			[]*corev1.PersistentVolume{created("a", 9, written(p, 9000)), created("b", 3, written(p, 5000)), created("c", 2, written(p, 5000))}, []string{"b", "c"},
		},
		"all steps that soak":    {[]*corev1.PersistentVolume{created("a", 9, written(p, 200)), created("b", 3, written(p, 100))}, []string{"a", "b"}},
		"no step of other rules": {[]*corev1.PersistentVolume{created("a", 9, written(p, 1, func(m *judge.Mark) { m.Rules["p"] = "before" }))}, nil},
		"no list that is not ours any more": {
			[]*corev1.PersistentVolume{created("a", 9, written(p, 1), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })}, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := snapshotOf(append(test.volumes, created("z", 0)), p)
			snapshot.Now = noon
			var got []string
			for _, w := range For(snapshot).Watched {
				got = append(got, w.Volume.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("watched (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingIsWatchedOnceAllIsDone(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	snapshot := snapshotOf([]*corev1.PersistentVolume{created("a", 9, written(p, 300))}, p)
	snapshot.Now = noon
	if got := For(snapshot); len(got.Watched) > 0 || !got.Next.IsZero() {
		t.Errorf("watched are %v, and the next plan is due at %s", got.Watched, got.Next)
	}
	snapshot.Now = noon.Add(-time.Second)
	if got := For(snapshot); len(got.Watched) != 1 || !got.Next.Equal(noon) {
		t.Errorf("watched are %v while the last batch soaks, and the next plan is due at %s", got.Watched, got.Next)
	}
}

func TestAVolumeThatLooksLikeItBeforehandHasToSoak(t *testing.T) {
	snapshot := snapshotOf([]*corev1.PersistentVolume{created("a", 0)}, builders.NFSProfile("p", []string{"nocto"}))
	snapshot.Now, snapshot.ClientNodes = noon, mounts("a")
	if write, ok := For(snapshot).Steps[0].(WriteOptions); !ok || !write.Mark.Unprovable {
		t.Error("a mount from before the write would prove the options that are about to be written")
	}
}

// TestPoisonedOptionsReachNoMoreThanCanaryAndOneBatch writes volume after volume as the plan says, with a manager that
// forgets everything between any two looks, and lets every mount fail, or those from some time on.
func TestPoisonedOptionsReachNoMoreThanCanaryAndOneBatch(t *testing.T) {
	const count, limit = 40, 4
	for _, firstFailure := range []int{0, 1, 2, 5, 6, 17, count - 1, count} {
		t.Run(fmt.Sprintf("from the volume %d on", firstFailure), func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("10%")))
			var volumes []*corev1.PersistentVolume
			for i := range count {
				volumes = append(volumes, created(fmt.Sprintf("pv%02d", i), count-i))
			}
			clock, written, taken := noon, 0, map[string]bool{}
			for range 4 * count {
				snapshot := snapshotOf(volumes, p)
				snapshot.Now, snapshot.FailedMounts = clock, map[string]string{}
				for _, w := range For(snapshot).Watched {
					if index := slices.IndexFunc(volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == w.Volume.Name }); index >= firstFailure {
						snapshot.FailedMounts[w.Volume.Name] = "exit status 32"
					}
				}
				next := For(snapshot)
				batch, back := stepsOf(next)
				if len(batch) > limit || (written == 0 && len(batch) > 1) {
					t.Fatalf("%d volumes go at once after %d", len(batch), written)
				}
				written += len(batch)
				for _, name := range back {
					taken[name] = true
				}
				for _, step := range next.Steps {
					carryOut(t, step, volumes)
				}
				clock = clock.Add(150 * time.Second)
			}
			if written > firstFailure+limit || written <= firstFailure && firstFailure < count {
				t.Errorf("%d volumes were written, want the %d good ones and no more than the batch of the first bad one", written, firstFailure)
			}
			if len(taken) != written-firstFailure {
				t.Errorf("%d volumes were put back, want %d", len(taken), written-firstFailure)
			}
			for i, pv := range volumes {
				if poisoned := slices.Contains(pv.Spec.MountOptions, "nocto"); poisoned != (i < firstFailure) && (poisoned || i < written) {
					t.Errorf("%s has %q", pv.Name, pv.Spec.MountOptions)
				}
			}
		})
	}
}

// carryOut does to a volume what a step asks for.
func carryOut(t *testing.T, step Step, volumes []*corev1.PersistentVolume) {
	t.Helper()
	pv := volumes[slices.IndexFunc(volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == step.Target().Name })]
	var annotations map[string]any
	var err error
	switch step := step.(type) {
	case WriteOptions:
		annotations, err = judge.AnnotationsWith(step.Verdict, step.Mark)
		pv.Spec.MountOptions = step.Verdict.Options
	case RestoreOptions:
		annotations, err = judge.AnnotationsWithout(step.FailedMount)
		pv.Spec.MountOptions = step.Options
	}
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range annotations {
		delete(pv.Annotations, key)
		if text != nil {
			pv.Annotations[key] = text.(string)
		}
	}
}

func TestAFailedMountIsRememberedUntilNobodyDeclaresTheOptions(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	changed := builders.NFSProfile("p", []string{"hard"})
	tests := map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		want     judge.Action
	}{
		"while the profile declares them":                 {[]v1alpha1.StorageClientProfile{p}, judge.ActionWrite},
		"while it is paused":                              {[]v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto"}, builders.Paused)}, judge.ActionNone},
		"while it selects the volume no more, and others": {[]v1alpha1.StorageClientProfile{p}, judge.ActionNone},
		"its rules changed":                               {[]v1alpha1.StorageClientProfile{changed}, judge.ActionRelease},
		"it is being deleted":                             {[]v1alpha1.StorageClientProfile{builders.NFSProfile("p", []string{"nocto"}, builders.Deleted)}, judge.ActionRelease},
		"it is gone":                                      {nil, judge.ActionRelease},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := created("a", 0, failedFor(p))
			if strings.Contains(name, "selects the volume no more") {
				pv.Spec.NFS, pv.Spec.Local = nil, &corev1.LocalVolumeSource{FSType: ptr.To("xfs")}
			}
			s := snapshotOf([]*corev1.PersistentVolume{pv}, test.profiles...)
			if d := s.judgeAll()[0].verdict; d.Action != test.want {
				t.Errorf("action is %s (%s), want %s", d.Action, d.Message, test.want)
			}
			deleting := len(test.profiles) == 1 && test.profiles[0].DeletionTimestamp != nil
			if waits := len(Summarize("p", s).Unrestored) == 1; waits != (deleting || test.want == judge.ActionRelease) && test.want != judge.ActionWrite {
				t.Errorf("a deletion waits for it: %v", waits)
			}
		})
	}
}

func TestSummaryTellsHowBatchesStand(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	tests := map[string]struct {
		volumes        []*corev1.PersistentVolume
		batch, stopped string
	}{
		"a canary soaks": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 10)), created("b", 1)},
			batch: "the canary a soaks until 2026-11-21T12:04:50Z, or until a node mounts it"},
		"a later batch soaks": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 400)), created("c", 3, written(p, 10)), created("b", 3, written(p, 10)), created("d", 1)},
			batch: "b, c soak until 2026-11-21T12:04:50Z, or until a node mounts one of them"},
		"nothing is left to write": {volumes: []*corev1.PersistentVolume{created("a", 9, written(p, 10))}},
		"a volume could not be mounted": {volumes: []*corev1.PersistentVolume{created("a", 9, failedFor(p)), created("b", 1)},
			stopped: `a could not be mounted with ["hard","nocto"] (driver kubernetes.io/nfs): the event says "exit status 32"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Summarize("p", snapshotOf(test.volumes, p))
			if got.Batch != test.batch || got.Stopped != test.stopped {
				t.Errorf("batch is %q, want %q; stopped is %q, want %q", got.Batch, test.batch, got.Stopped, test.stopped)
			}
		})
	}
}
