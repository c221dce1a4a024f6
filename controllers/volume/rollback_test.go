package volume

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
)

func rollbackResult(t *testing.T, pv *corev1.PersistentVolume, b optionset.Blame, objects ...client.Object) optionset.Kind {
	t.Helper()
	r, _ := newReconciler(t, refusePathsAsNames, append(objects, nodeN())...)
	r.APIReader = r.Client
	got, err := (&scope{Reconciler: r}).inspectRollbacks(context.Background(), []plan.RollbackCheck{{Volume: pv, Blame: b}})
	if err != nil {
		t.Fatal(err)
	}
	return got[pv.Name]
}

func volumeOfData() *corev1.PersistentVolume {
	pv := created("a", 0)
	pv.Spec.ClaimRef.Name = "data"
	return pv
}

// The first SMB session of a server sets the channels of all mounts, as the first NFS mount sets nconnect.
func TestChannelsOfASharedSessionAreNoProof(t *testing.T) {
	since := noon.Add(-time.Hour)
	for name, c := range map[string]struct{ former, shown []string }{
		"max_channels": {[]string{"vers=3.1.1", "multichannel", "max_channels=2"}, []string{"rw", "vers=3.1.1", "multichannel", "max_channels=4"}},
		"fewer":        {[]string{"vers=3.1.1", "multichannel", "max_channels=4"}, []string{"rw", "vers=3.1.1", "multichannel", "max_channels=2"}},
		"multichannel": {[]string{"vers=3.1.1", "multichannel"}, []string{"rw", "vers=3.1.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := failingPod("eda", "data")
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(time.Minute))}}
			agent := mountedBy("u")
			m := &agent.Status.Mounts[0]
			m.Protocol, m.Used, m.Since, m.Options = "SMB3.1.1", true, ptr.To(metav1.NewTime(since.Add(50*time.Second))), c.shown
			b := optionset.Blame{RevertedAt: since, Failure: "f", Unclear: true, Options: c.former}
			if got := rollbackResult(t, volumeOfData(), b, p, agent); got == optionset.OwnMounted {
				t.Errorf("got %s: a mount with the failed options in a shared session counts as one with the original options", got)
			}
		})
	}
}

// A claim was deleted and created again with the same name: the old volume is Released, and pods of the new claim use another volume.
func TestAReleasedVolumeIsNotJudgedByPodsOfANewClaim(t *testing.T) {
	since := noon.Add(-time.Hour)
	old := volumeOfData()
	old.Status.Phase, old.Spec.ClaimRef.UID = corev1.VolumeReleased, "old"
	p := failingPod("eda", "data")
	p.CreationTimestamp, p.Status.StartTime = metav1.NewTime(since.Add(10*time.Minute)), nil
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(11 * time.Minute))}}
	b := optionset.Blame{RevertedAt: since, Failure: "f", Unclear: true, Options: []string{"nocto"}}
	if got := rollbackResult(t, old, b, p); got == optionset.OwnMounted {
		t.Errorf("got %s by a pod that mounts another volume", got)
	}
	// The same for a failure: the event of the new volume's pod names no volume.
	r, _ := newReconciler(t, refusePathsAsNames, failingPod("eda", "data"), kubeletEvent("e", "eda", namesNone, since.Add(time.Minute)), nodeN())
	got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: old, Since: since}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > 0 {
		t.Errorf("got failures %v of a volume that is Released", got)
	}
}

// A staged volume (SMB CSI) is mounted once per node. A waiting pod's kubelet operation, with the options read before the restore, stages it after
// a new pod has arrived on the node: the mount shows the failed options, and belongs to both pods.
func TestANewPodOnTheStagedMountOfAnEarlierOneIsNoProof(t *testing.T) {
	since := noon.Add(-time.Hour)
	former := []string{"vers=3.1.1", "actimeo=30"}
	earlier, later := failingPod("eda", "data"), failingPod("eda", "data")
	later.Name, later.UID = "later", "later"
	later.CreationTimestamp = metav1.NewTime(since.Add(20 * time.Second))
	later.Status.StartTime = ptr.To(metav1.NewTime(since.Add(20 * time.Second)))
	for _, p := range []*corev1.Pod{earlier, later} {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(time.Minute))}}
	}
	for name, shown := range map[string][]string{
		"the failed options":   {"rw", "vers=3.1.1", "actimeo=30"},
		"the original options": {"rw", "vers=3.1.1", "actimeo=1"},
	} {
		t.Run(name, func(t *testing.T) {
			agent := mountedBy("u")
			m := &agent.Status.Mounts[0]
			m.PodUIDs, m.Protocol, m.Used, m.Since, m.Options = []string{"u", "later"}, "SMB3.1.1", true, ptr.To(metav1.NewTime(since.Add(50*time.Second))), shown
			b := optionset.Blame{RevertedAt: since, Failure: "f", Unclear: true, Options: former}
			got := rollbackResult(t, volumeOfData(), b, earlier, later, agent)
			if want := shown[2] == "actimeo=1"; (got == optionset.OwnMounted) != want {
				t.Errorf("got %q: the node shows a mount with %v", got, shown)
			}
		})
	}
}

// A pod fails since the first options. The user edits twice: the failure must still count against the options of the second edit.
func TestASecondEditKeepsTheFailure(t *testing.T) {
	for name, edits := range map[string][]string{"one edit": {"noresvport"}, "two edits": {"noresvport", "noacl"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(7)
			w.poisoned = true
			s := &story{world: w, m: newManager(w)}
			s.volumesByAge("a", "b", "c", "d")
			s.addProfile("eda", []string{"nocto", poison}, func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("50%")), SoakSeconds: ptr.To[int32](60), OnNoEvidence: v1alpha1.NoEvidenceProceed}
			})
			s.until(20 * time.Second)
			s.mount("a")
			s.until(20 * time.Second)
			for _, option := range edits {
				s.editProfile("eda", func(p *v1alpha1.StorageClientProfile) { declare(p, []string{option, poison}) })
				s.until(30 * time.Second)
			}
			for range 20 { // the pod's kubelet tries again, until it reads the original options
				s.until(time.Minute)
				if slices.Contains(s.volumes["a"].pv.Spec.MountOptions, poison) {
					s.tryAgain("a")
				} else {
					s.stopWaiting("a")
				}
			}
			if pv := s.volumes["a"].pv; judge.RecordOf(pv).HasAppliedOptions(pv) {
				t.Errorf("a still has %v, with which its pod fails for 20 minutes", pv.Spec.MountOptions)
			}
		})
	}
}

// The waiting pod has started since the restore, and its node does not show with which options: without I/O, the mount may be an earlier one.
func TestAnOpenCheckNamesTheActionOfAUser(t *testing.T) {
	w := newWorld(7)
	w.poisoned, w.outspoken = true, false
	s := &story{world: w, m: newManager(w)}
	s.volumesByAge("a", "b")
	s.addProfile("eda", []string{"nocto", poison}, func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("50%")), SoakSeconds: ptr.To[int32](60)}
	})
	s.until(20 * time.Second)
	s.mount("a")
	s.until(time.Minute)
	w.waited["a"] = w.failures[0]
	s.stopWaiting("a")
	w.mounts["a"], w.mountedAt["a"], w.idle["a"] = []string{"hard"}, s.now, true
	s.until(72 * time.Hour)
	if summary := plan.Summarize("eda", s.live()); !strings.Contains(summary.Batch, "restart a pod") {
		t.Errorf("after 3 days, got %q, want the action of a user", summary.Batch)
	}
}
