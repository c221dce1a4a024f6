package volume

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/play"
)

// story is a world without random events.
type story struct {
	*world
	m *manager
}

// TestStories plays batches without random events and compares the whole log, so that a reviewer sees each change of behavior.
func TestStories(t *testing.T) {
	batchesOf := func(share string) func(*v1alpha1.StorageClientProfile) {
		return func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString(share)), SoakSeconds: ptr.To[int32](60), OnNoEvidence: v1alpha1.NoEvidenceProceed}
		}
	}
	waiting := func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Volumes.OnNoEvidence = "" }
	for name, script := range map[string]func(*story){
		"the canary first, then by age, a batch at a time": func(s *story) {
			s.volumesByAge("a", "b", "c", "d", "e")
			s.addProfile("eda", []string{"nocto"}, batchesOf("40%"))
			s.until(5 * time.Minute)
		},
		"the rest waits until a pod has mounted the canary, however long that takes": func(s *story) {
			s.volumesByAge("a", "b", "c", "d")
			s.addProfile("eda", []string{"nocto"}, batchesOf("50%"), waiting)
			s.until(24 * time.Hour)
			s.mount("b")
			s.until(5 * time.Minute)
			s.mount("a")
			s.until(5 * time.Minute)
		},
		"a mount does not end the soak, and is recorded": func(s *story) {
			s.volumesByAge("a", "b", "c")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"), waiting)
			s.until(20 * time.Second)
			s.mount("a")
			s.until(20 * time.Second)
			s.logf("the pod is gone")
			delete(s.mounts, "a")
			s.until(time.Minute)
		},
		"a mount within the clock tolerance is no evidence": func(s *story) {
			s.volumesByAge("a", "b")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"), waiting)
			s.until(4 * time.Second)
			s.mount("a")
			s.until(3 * time.Minute)
			s.mount("a")
			s.until(2 * time.Minute)
		},
		"a pod on a node without an agent is evidence too": func(s *story) {
			s.volumesByAge("a", "b")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"), waiting)
			s.until(2 * time.Minute)
			s.mount("a")
			s.bare["a"] = true
			s.until(2 * time.Minute)
		},
		"a failed mount of the canary is reverted and stops the rest until the rules change": func(s *story) {
			s.volumesByAge("a", "b", "c")
			s.poisoned = true
			s.addProfile("eda", []string{"nocto", poison}, batchesOf("50%"))
			s.until(20 * time.Second)
			s.mount("a")
			s.until(30 * time.Minute)
			s.logf("a user removes %s from the profile", poison)
			s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { declare(p, []string{"nocto"}) })
			s.until(3 * time.Minute)
		},
		"a pod that fails since before an edit reverts the edited options too": func(s *story) {
			s.volumesByAge("a", "b")
			s.poisoned = true
			s.addProfile("eda", []string{"nocto", poison}, batchesOf("50%"))
			s.until(20 * time.Second)
			s.mount("a")
			s.until(20 * time.Second)
			s.logf("a user replaces nocto in the profile")
			s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { declare(p, []string{"noresvport", poison}) })
			s.until(4 * time.Minute)
			s.tryAgain("a")
			s.until(2 * time.Minute)
			s.tryAgain("a")
			s.until(2 * time.Minute)
		},
		"a failure that also occurs with the original options does not count": func(s *story) {
			s.volumesByAge("a", "b")
			s.addProfile("eda", []string{"nocto"}, batchesOf("50%"))
			s.until(20 * time.Second)
			s.unwell["a"] = true
			s.mount("a")
			s.until(6 * time.Minute)
			s.mount("a")
			s.until(3 * time.Minute)
			s.mount("a")
			s.until(3 * time.Minute)
		},
		"a failure that does not occur with the original options stops the rest": func(s *story) {
			s.volumesByAge("a", "b")
			s.poisoned, s.outspoken = true, false
			s.addProfile("eda", []string{"nocto", poison}, batchesOf("50%"))
			s.until(20 * time.Second)
			s.mount("a")
			s.until(3 * time.Minute)
			s.mount("a")
			s.until(10 * time.Minute)
		},
		"a volume of a later batch fails, and only that batch has the options": func(s *story) {
			s.volumesByAge("a", "b", "c", "d", "e", "f")
			s.addProfile("eda", []string{"nocto", poison}, batchesOf("34%"))
			s.until(70 * time.Second)
			s.poisoned = true
			s.mount("c")
			s.until(10 * time.Minute)
			s.deleteProfile("eda")
			s.until(time.Minute)
		},
		"a deleted profile restores all volumes at once, also during a soak": func(s *story) {
			s.volumesByAge("a", "b", "c")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.until(65 * time.Second)
			s.deleteProfile("eda")
			s.until(time.Minute)
		},
		"a user changes options, which stay and are released with the profile": func(s *story) {
			s.volumesByAge("a", "b")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.until(3 * time.Minute)
			s.logf("a user sets the options of a to soft")
			s.change(s.volumes["a"], func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"soft"} })
			s.until(time.Minute)
			s.deleteProfile("eda")
			s.until(time.Minute)
		},
		"a pause holds all writes, also restores": func(s *story) {
			s.volumesByAge("a", "b")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.until(5 * time.Second)
			s.logf("a user pauses the profile")
			s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })
			s.until(5 * time.Minute)
			s.deleteProfile("eda")
			s.until(5 * time.Minute)
			s.logf("a user resumes it")
			s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = false })
			s.until(time.Minute)
		},
		"two profiles share a volume, which waits for both": func(s *story) {
			s.volumesByAge("a", "b", "c")
			s.volumes["c"].pv.Spec.StorageClassName = "gold"
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.addProfile("gold", []string{"noresvport"}, batchesOf("100%"), func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Volumes[0].Selector.StorageClassNames = []string{"gold"}
			})
			s.until(4 * time.Minute)
			s.deleteProfile("gold")
			s.until(4 * time.Minute)
		},
		"a policy protects the canary, and the next volume becomes the canary": func(s *story) {
			s.volumesByAge("a", "b", "c")
			s.volumes["a"].protected = true
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.until(3 * time.Minute)
			s.volumes["a"].protected = false
			s.logf("the policy no longer protects a")
			s.until(5 * time.Minute)
		},
		"a manager dies in the middle of a batch, and the next one completes it": func(s *story) {
			s.volumesByAge("a", "b", "c", "d")
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.until(55 * time.Second)
			writes := 0
			s.intrude = func() {
				if s.now.Sub(s.start()) >= time.Minute {
					if writes++; writes > 4 { // three reads and a write
						s.intrude = nil
						panic(errDied)
					}
				}
			}
			s.until(10 * time.Second)
			s.until(3 * time.Minute)
		},
		"an edit of onConflict has a canary, and the edit back has none": func(s *story) {
			s.volumesByAge("a", "b", "c")
			for _, name := range s.names() {
				s.volumes[name].pv.Spec.MountOptions = []string{"hard", "nconnect=2"}
			}
			s.addProfile("eda", []string{"nconnect=4", "nocto"}, batchesOf("100%"), waiting)
			s.until(2 * time.Minute)
			s.mount("a")
			s.until(3 * time.Minute)
			for _, policy := range []v1alpha1.ConflictPolicy{v1alpha1.ConflictUseProfile, v1alpha1.ConflictKeepVolume} {
				s.logf("a user sets onConflict: %s", policy)
				s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Volumes[0].OnConflict = policy })
				s.until(10 * time.Minute)
			}
		},
		"an edit of onConflict changes the canary before a pod has mounted it": func(s *story) {
			s.volumesByAge("a", "b")
			for _, name := range s.names() {
				s.volumes[name].pv.Spec.MountOptions = []string{"hard", "nconnect=2"}
			}
			s.addProfile("alpha", []string{"nocto", poison}, batchesOf("100%"), waiting)
			s.addProfile("beta", []string{"nconnect=4", "nocto"}, batchesOf("100%"), waiting, func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Volumes[0].OnConflict = v1alpha1.ConflictUseProfile
			})
			s.until(6 * time.Minute)
			s.logf("a user sets onConflict of beta to KeepVolume")
			s.editProfile("beta", func(p *v1alpha1.StorageClientProfile) { p.Spec.Volumes[0].OnConflict = v1alpha1.ConflictKeepVolume })
			s.until(6 * time.Minute)
			s.mount("a")
			s.until(3 * time.Minute)
		},
		"volumes in Git are only reported, or written if the rule patches": func(s *story) {
			s.volumesByAge("a", "b")
			s.volumes["a"].pv.Labels[trackedByFlux] = "app"
			s.addProfile("eda", []string{"nocto"}, batchesOf("100%"))
			s.until(3 * time.Minute)
			s.notes("a")
			s.logf("a user sets gitOpsOwned: Patch")
			s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Volumes[0].GitOpsOwned = v1alpha1.GitOpsPatch })
			s.until(3 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(7)
			w.verbose = true
			s := &story{world: w, m: newManager(w)}
			script(s)
			if w.broken != nil {
				t.Error(w.broken)
			}
			play.Compare(t, name, w.log)
		})
	}
}

func (s *story) start() time.Time { return time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC) }

// volumesByAge adds volumes with the option hard, the oldest first.
func (s *story) volumesByAge(names ...string) {
	for i, name := range names {
		v := s.addVolume(name, "hard")
		v.pv.CreationTimestamp = metav1.NewTime(s.now.Add(-time.Duration(len(names)-i) * time.Hour))
	}
}

func (s *story) editProfile(name string, do func(*v1alpha1.StorageClientProfile)) {
	p := s.profiles[name].DeepCopy()
	do(p)
	s.edited(p)
}

func (s *story) deleteProfile(name string) {
	s.logf("a user deletes profile %s", name)
	s.editProfile(name, func(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = ptr.To(metav1.NewTime(s.now)) })
}

// until runs each pass when it is due, for the given time, and logs new reasons for waiting volumes.
func (s *story) until(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		next, died := s.m.pass(1)
		if died {
			s.m, next = newManager(s.world), s.now.Add(passInterval)
		}
		s.finishDeletions()
		s.waits()
		if next.IsZero() || next.After(end) {
			next = end
		}
		s.now = next
	}
}

// waits logs new reasons for waiting volumes.
func (s *story) waits() {
	notes := plan.For(s.live()).Notes
	for _, name := range s.names() {
		reason, _, waits := strings.Cut(notes[name].Message, "; then ")
		line := "  " + name + " waits: " + reason
		if waits && !slices.ContainsFunc(s.log, func(logged string) bool { return strings.HasSuffix(logged, line) }) {
			s.logf("%s", line)
		}
	}
}

// notes logs the note of a volume.
func (s *story) notes(name string) {
	note := plan.For(s.live()).Notes[name]
	s.logf("%s: %s: %s", name, note.Reason, note.Message)
}
