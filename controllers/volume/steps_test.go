package volume

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
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// created ages a volume: one of age 1 is older than one of age 0.
func created(name string, age int, more ...pvOption) *corev1.PersistentVolume {
	pv := nfsVolume([]string{"hard"}, append([]pvOption{named(name)}, more...)...)
	pv.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour - time.Duration(age)*time.Minute))
	return pv
}

// stepped makes a volume one that was written some seconds before noon for the profile.
func stepped(p v1alpha1.StorageClientProfile, secondsAgo int, change ...func(*stepMark)) pvOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.MountOptions = []string{"hard", "nocto"}
		carrying([]string{"hard"}, pv.Spec.MountOptions, p.Name)(pv)
		mark := &stepMark{Since: noon.Add(-time.Duration(secondsAgo) * time.Second), Rules: map[string]string{p.Name: hashOfRules(p.Spec.Volumes)}}
		for _, c := range change {
			c(mark)
		}
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation], _ = jsonText(mark)
	}
}

func refusing(p v1alpha1.StorageClientProfile) pvOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Annotations[v1alpha1.FailedMountOptionsAnnotation], _ = jsonText(refusal{
			Rules: map[string]string{p.Name: hashOfRules(p.Spec.Volumes)}, Driver: "kubernetes.io/nfs", Options: []string{"hard", "nocto"}, Message: "exit status 32",
		})
	}
}

func maxPerStep(limit intstr.IntOrString) profileOption {
	return specified(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: &limit}
	})
}

func judgeAll(volumes []*corev1.PersistentVolume, list ...v1alpha1.StorageClientProfile) ([]judged, Profiles) {
	s := snapshot(volumes, list...)
	var all []judged
	for i, d := range s.decide() {
		all = append(all, judged{pv: volumes[i], d: d, mark: markOf(volumes[i])})
	}
	return all, s.Profiles
}

func TestSteps(t *testing.T) {
	p := nfsProfile("p", []string{"nocto"}, maxPerStep(intstr.FromInt32(2)))
	share := nfsProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("50%")))
	other := nfsProfile("other", []string{"actimeo=30"}, selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"shared"}}))
	shared := func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "shared" }
	unprovable := func(m *stepMark) { m.Unprovable = true }
	anotherTime := func(m *stepMark) { m.Rules["p"] = "before" }
	foreign := labelled("kustomize.toolkit.fluxcd.io/name", "app")
	tests := map[string]struct {
		volumes  []*corev1.PersistentVolume
		profiles []v1alpha1.StorageClientProfile
		seen     observed
		want     []string
		failed   []string
		message  string // of the first volume that waits
		next     int    // seconds after noon
	}{
		"the oldest volume is the canary, and goes alone": {
			volumes: []*corev1.PersistentVolume{created("a", 0), created("b", 2), created("c", 1)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b"}, message: "profile p: another step comes first", next: 300,
		},
		"names decide between volumes of one age": {
			volumes: []*corev1.PersistentVolume{created("b", 0), created("a", 0)}, profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"a"}, message: "profile p: another step comes first", next: 300,
		},
		"nothing goes on while the canary soaks": {
			volumes: []*corev1.PersistentVolume{created("a", 1, stepped(p, 299)), created("b", 0)}, profiles: []v1alpha1.StorageClientProfile{p},
			message: "profile p: the canary a soaks until 2026-11-21T12:00:01Z or until a node has mounted it well", next: 1,
		},
		"the soak over, a step goes": {
			volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 300)), created("b", 3), created("c", 2), created("d", 1)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b", "c"}, message: "profile p: another step comes first", next: 300,
		},
		"a good mount ends a step early": {
			volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 1)), created("b", 3)}, profiles: []v1alpha1.StorageClientProfile{p},
			seen: observed{mounted: map[string]bool{"a": true}}, want: []string{"b"}, next: 300,
		},
		"one of a step is enough": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(p, 400)), created("b", 3, stepped(p, 1)), created("c", 2, stepped(p, 1)), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, seen: observed{mounted: map[string]bool{"c": true}}, want: []string{"d"}, next: 300,
		},
		"a good mount of an earlier step proves nothing for the one that soaks": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(p, 200)), created("b", 3, stepped(p, 1)), created("d", 1)},
			profiles: []v1alpha1.StorageClientProfile{p}, seen: observed{mounted: map[string]bool{"a": true}},
			message: "profile p: b soak until 2026-11-21T12:04:59Z or until a node has mounted it well", next: 299,
		},
		"a mount that looked so before the write proves nothing": {
			volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 1, unprovable)), created("b", 3)}, profiles: []v1alpha1.StorageClientProfile{p},
			seen:    observed{mounted: map[string]bool{"a": true}},
			message: "profile p: the canary a soaks until 2026-11-21T12:04:59Z or until a node has mounted it well", next: 299,
		},
		"what was proven for other rules is not for these": {
			volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 900, anotherTime)), created("b", 3), created("c", 2)}, profiles: []v1alpha1.StorageClientProfile{p},
			want: []string{"b"}, message: "profile p: another step comes first", next: 300,
		},
		"a percentage counts matched volumes, and leaves blocked ones out": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(share, 300)), created("x", 8, foreign), created("y", 7, foreign), created("b", 3), created("c", 2), created("d", 1), created("e", 0)},
			profiles: []v1alpha1.StorageClientProfile{share}, want: []string{"b", "c"}, message: "profile p: another step comes first", next: 300,
		},
		"another set of options has a canary of its own": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(p, 300)), created("s", 5, csi("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"})), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"s"}, message: "profile p: another step comes first", next: 300,
		},
		"and does not join a step of another": {
			volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 300)), created("b", 5),
				created("s", 4, csi("nfs.csi.k8s.io", map[string]string{"server": "filer", "share": "/"})), created("c", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, want: []string{"b", "c"}, message: "profile p: another step comes first", next: 300,
		},
		"a volume of two profiles waits for both": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(p, 1)), created("s", 5, shared)},
			profiles: []v1alpha1.StorageClientProfile{p, other}, message: "profile p: the canary a soaks until 2026-11-21T12:04:59Z or until a node has mounted it well", next: 299,
		},
		"volumes that carry the list need no step": {
			volumes:  []*corev1.PersistentVolume{created("a", 1, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"hard", "nocto"} })},
			profiles: []v1alpha1.StorageClientProfile{p},
		},
		"a failed mount takes the list back and stops the rest": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(p, 300)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, seen: observed{failed: map[string]string{"a": "exit status 32"}},
			failed: []string{"a"}, message: "profile p is stopped: a could not be mounted",
		},
		"one that was taken back stops it too": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, refusing(p)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{p}, message: "profile p is stopped: a could not be mounted",
		},
		"until the rules change": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, refusing(p)), created("b", 3)},
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("p", []string{"nocto", "actimeo=30"})}, want: []string{"a"},
			message: "profile p: another step comes first", next: 300,
		},
		"what somebody else changed is not taken back": {
			volumes:  []*corev1.PersistentVolume{created("a", 9, stepped(p, 1), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })},
			profiles: []v1alpha1.StorageClientProfile{p}, seen: observed{failed: map[string]string{"a": "exit status 32"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all, ps := judgeAll(test.volumes, test.profiles...)
			got := planSteps(all, ps, test.seen, noon)
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(got.admitted)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.failed, slices.Sorted(maps.Keys(got.failed)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("taken back (-want +got):\n%s", diff)
			}
			var message string
			for _, volume := range slices.Sorted(maps.Keys(got.waits)) {
				message = got.waits[volume].message
				break
			}
			if message != test.message {
				t.Errorf("message is %q, want %q", message, test.message)
			}
			var next int
			if !got.next.IsZero() {
				next = int(got.next.Sub(noon).Seconds())
			}
			if next != test.next {
				t.Errorf("the next soak ends after %d s, want %d s", next, test.next)
			}
			for name, j := range got.admitted {
				if want := (&stepMark{Since: noon, Rules: j.d.hashes()}); !cmp.Equal(want, j.d.mark) {
					t.Errorf("mark of %s is %+v, want %+v", name, j.d.mark, want)
				}
			}
		})
	}
}

func TestWatchedIsWhatSoaksAndTheLastStep(t *testing.T) {
	p := nfsProfile("p", []string{"nocto"})
	tests := map[string]struct {
		volumes []*corev1.PersistentVolume
		want    []string
	}{
		"a step that soaks": {[]*corev1.PersistentVolume{created("a", 9, stepped(p, 299)), created("b", 1)}, []string{"a"}},
		"the last step, long after its soak, and none before it": {
			[]*corev1.PersistentVolume{created("a", 9, stepped(p, 9000)), created("b", 3, stepped(p, 5000)), created("c", 2, stepped(p, 5000))}, []string{"b", "c"},
		},
		"all steps that soak":    {[]*corev1.PersistentVolume{created("a", 9, stepped(p, 200)), created("b", 3, stepped(p, 100))}, []string{"a", "b"}},
		"no step of other rules": {[]*corev1.PersistentVolume{created("a", 9, stepped(p, 1, func(m *stepMark) { m.Rules["p"] = "before" }))}, nil},
		"no list that is not ours any more": {
			[]*corev1.PersistentVolume{created("a", 9, stepped(p, 1), func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })}, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all, ps := judgeAll(test.volumes, p)
			var got []string
			for _, j := range underWatch(all, ps, noon) {
				got = append(got, j.pv.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("watched (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAVolumeThatLooksLikeItBeforehandHasToSoak(t *testing.T) {
	all, ps := judgeAll([]*corev1.PersistentVolume{created("a", 0)}, nfsProfile("p", []string{"nocto"}))
	if got := planSteps(all, ps, observed{mounted: map[string]bool{"a": true}}, noon); !got.admitted["a"].d.mark.Unprovable {
		t.Error("a mount from before the write would prove the options that are about to be written")
	}
}

// TestPoisonedOptionsReachNoMoreThanCanaryAndOneStep writes volume after volume as the plan says, with a manager that
// forgets everything between any two looks, and lets every mount fail, or those from some time on.
func TestPoisonedOptionsReachNoMoreThanCanaryAndOneStep(t *testing.T) {
	const count, limit = 40, 4
	for _, firstFailure := range []int{0, 1, 2, 5, 6, 17, count - 1, count} {
		t.Run(fmt.Sprintf("from the volume %d on", firstFailure), func(t *testing.T) {
			p := nfsProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("10%")))
			var volumes []*corev1.PersistentVolume
			for i := range count {
				volumes = append(volumes, created(fmt.Sprintf("pv%02d", i), count-i))
			}
			clock, written, taken := noon, 0, map[string]bool{}
			for range 4 * count {
				all, ps := judgeAll(volumes, p)
				seen := observed{failed: map[string]string{}}
				for _, j := range underWatch(all, ps, clock) {
					if index := slices.Index(volumes, j.pv); index >= firstFailure {
						seen.failed[j.pv.Name] = "exit status 32"
					}
				}
				c := planSteps(all, ps, seen, clock)
				if len(c.admitted) > limit || (written == 0 && len(c.admitted) > 1) {
					t.Fatalf("%d volumes go at once after %d", len(c.admitted), written)
				}
				for _, j := range c.failed {
					taken[j.pv.Name] = true
					carryOut(t, j)
				}
				for _, j := range c.admitted {
					written++
					carryOut(t, j)
				}
				clock = clock.Add(150 * time.Second)
			}
			if written > firstFailure+limit || written <= firstFailure && firstFailure < count {
				t.Errorf("%d volumes were written, want the %d good ones and no more than the step of the first bad one", written, firstFailure)
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

// carryOut does to the object what patchFor does to the one in the API server.
func carryOut(t *testing.T, j judged) {
	t.Helper()
	annotations, err := annotationsAfter(j.d)
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range annotations {
		delete(j.pv.Annotations, key)
		if text != nil {
			j.pv.Annotations[key] = text.(string)
		}
	}
	j.pv.Spec.MountOptions = j.d.Options
}

func TestRefusalStandsUntilNobodyDeclaresTheOptions(t *testing.T) {
	p := nfsProfile("p", []string{"nocto"})
	changed := nfsProfile("p", []string{"hard"})
	tests := map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		want     Action
	}{
		"while the profile declares them":                 {[]v1alpha1.StorageClientProfile{p}, ActionWrite},
		"while it is paused":                              {[]v1alpha1.StorageClientProfile{nfsProfile("p", []string{"nocto"}, paused)}, ActionNone},
		"while it selects the volume no more, and others": {[]v1alpha1.StorageClientProfile{p}, ActionNone},
		"its rules changed":                               {[]v1alpha1.StorageClientProfile{changed}, ActionRelease},
		"it is being deleted":                             {[]v1alpha1.StorageClientProfile{nfsProfile("p", []string{"nocto"}, deleted)}, ActionRelease},
		"it is gone":                                      {nil, ActionRelease},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := created("a", 0, refusing(p))
			if strings.Contains(name, "selects the volume no more") {
				pv.Spec.NFS, pv.Spec.Local = nil, &corev1.LocalVolumeSource{FSType: ptr.To("xfs")}
			}
			s := snapshot([]*corev1.PersistentVolume{pv}, test.profiles...)
			if d := s.decide()[0]; d.Action != test.want {
				t.Errorf("action is %s (%s), want %s", d.Action, d.Message, test.want)
			}
			deleting := len(test.profiles) == 1 && test.profiles[0].DeletionTimestamp != nil
			if waits := len(Summarize("p", s).Unrestored) == 1; waits != (deleting || test.want == ActionRelease) && test.want != ActionWrite {
				t.Errorf("a deletion waits for it: %v", waits)
			}
		})
	}
}

func TestSummaryTellsHowStepsStand(t *testing.T) {
	p := nfsProfile("p", []string{"nocto"})
	tests := map[string]struct {
		volumes       []*corev1.PersistentVolume
		step, stopped string
	}{
		"a canary soaks": {volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 10)), created("b", 1)},
			step: "the canary a soaks until 2026-11-21T12:04:50Z or until a node has mounted it well"},
		"a later step soaks": {volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 400)), created("c", 3, stepped(p, 10)), created("b", 3, stepped(p, 10)), created("d", 1)},
			step: "b, c soak until 2026-11-21T12:04:50Z or until a node has mounted it well"},
		"nothing is left to write": {volumes: []*corev1.PersistentVolume{created("a", 9, stepped(p, 10))}},
		"a volume could not be mounted": {volumes: []*corev1.PersistentVolume{created("a", 9, refusing(p)), created("b", 1)},
			stopped: `a could not be mounted with ["hard","nocto"] (driver kubernetes.io/nfs): exit status 32`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Summarize("p", snapshot(test.volumes, p))
			if got.Step != test.step || got.Stopped != test.stopped {
				t.Errorf("step is %q, want %q; stopped is %q, want %q", got.Step, test.step, got.Stopped, test.stopped)
			}
		})
	}
}
