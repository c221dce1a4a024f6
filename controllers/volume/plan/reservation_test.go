package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/test/builders"
)

func TestReservations(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"}, probing(v1alpha1.ProbeNever))
	claimed := func(uid types.UID) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: pv.Name, UID: uid}
		}
	}
	canary := func(pv *corev1.PersistentVolume) {
		written(p, 0)(pv)
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(creationOf(p, pv))
	}
	left := created("left", -59, claimed("left"))
	ours := func(change ...builders.VolumeOption) *corev1.PersistentVolume {
		return created("a", -59, append([]builders.VolumeOption{claimed("a")}, change...)...)
	}
	reserved := func(secondsAgo int) *corev1.ConfigMap {
		out := judge.ReservationFor(ours(), verdictFor(p, ours()).Set)
		out.UID, out.CreationTimestamp = "reservation", metav1.NewTime(noon.Add(-time.Duration(secondsAgo)*time.Second))
		return out
	}
	const waits = "StorageClientProfile p: no pod has mounted PersistentVolume a since it got these options"
	for name, test := range map[string]struct {
		reservation *corev1.ConfigMap
		volumes     []*corev1.PersistentVolume
		appeared    bool
		proven      bool
		waits       string // the start of the note of the volume that was left out; empty if it is written
		ends        bool
	}{
		"the volume has not appeared yet":              {reservation: reserved(119), waits: waits},
		"it has not appeared in time":                  {reservation: reserved(120), ends: true},
		"it was deleted":                               {reservation: reserved(10), appeared: true, ends: true},
		"it exists, and others wait for its mount":     {reservation: reserved(10), volumes: []*corev1.PersistentVolume{ours(canary)}, waits: "StorageClientProfile p: canary PersistentVolume a soaks"},
		"it exists for long":                           {reservation: reserved(9999), volumes: []*corev1.PersistentVolume{created("a", 0, claimed("a"), canary)}, waits: waits},
		"it was created without the options":           {reservation: reserved(10), volumes: []*corev1.PersistentVolume{ours(ofPhase(corev1.VolumeReleased))}, ends: true},
		"its claim was deleted before a mount":         {reservation: reserved(10), volumes: []*corev1.PersistentVolume{ours(canary, ofPhase(corev1.VolumeReleased))}, waits: "StorageClientProfile p: canary PersistentVolume a soaks", ends: true},
		"another volume has its name":                  {reservation: reserved(10), volumes: []*corev1.PersistentVolume{created("a", -59, claimed("other"), canary)}, waits: "StorageClientProfile p: canary PersistentVolume a soaks", ends: true},
		"its options are proven":                       {reservation: reserved(10), volumes: []*corev1.PersistentVolume{ours(canary)}, proven: true, waits: "StorageClientProfile p: canary PersistentVolume a soaks", ends: true},
		"a reservation without content ends with time": {reservation: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CanaryConfigMapPrefix + "x", UID: "x"}}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(append([]*corev1.PersistentVolume{left}, test.volumes...), p)
			s.Now, s.Appeared = noon, map[types.UID]bool{"reservation": test.appeared}
			s.Ledger = new(ledger.Reader).Read([]corev1.ConfigMap{*test.reservation})
			if test.proven {
				s.Evidence = map[string]Evidence{verdictFor(p, ours()).Set: {Text: "n1 has mounted a", Volume: "a", Written: ours().CreationTimestamp.Time}}
			}
			got := For(s)
			isWritten := false
			for _, step := range got.Steps {
				isWritten = isWritten || step.Target().Name == "left"
			}
			if note := got.Notes["left"].Message; isWritten != (test.waits == "") || !isWritten && note[:min(len(note), len(test.waits))] != test.waits {
				t.Errorf("got the volume written: %t, note %q; want it to wait: %q", isWritten, note, test.waits)
			}
			if (len(got.Expired) == 1) != test.ends || test.ends && (got.Expired[0].UID != test.reservation.UID || !got.NeedsFresh()) {
				t.Errorf("got expired reservations %v, want an end after a live read: %t", got.Expired, test.ends)
			}
			if diff := cmp.Diff(0, len(got.WithoutFresh().Expired)); diff != "" {
				t.Errorf("ended without a live read (-want +got):\n%s", diff)
			}
			if end := noon.Add(time.Second); test.reservation.CreationTimestamp.Equal(&metav1.Time{Time: noon.Add(-119 * time.Second)}) && got.Next.After(end) {
				t.Errorf("got the next plan at %s, want %s", got.Next, end)
			}
		})
	}
}

// A canary from the webhook needs no other volume to be observed, and its first pod counts although it arrives at once.
func TestACanaryOfTheWebhookIsObserved(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	pv := created("a", -59, bound)
	written(p, 0)(pv)
	pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(creationOf(p, pv))
	s := snapshotOf([]*corev1.PersistentVolume{pv}, p)
	s.Now = noon
	got := RequiredObservations(s)
	if len(got.Awaited) != 1 || !pv.CreationTimestamp.After(got.Awaited[0].After) || got.Interval != observeInterval {
		t.Errorf("got %+v every %s, want the mount of a, from its creation on, every %s", got.Awaited, got.Interval, observeInterval)
	}
	if len(got.Candidates) != 0 {
		t.Errorf("got candidates %v, want none", got.Candidates)
	}
	// The previous release wrote such a mark on all new volumes, without the set.
	earlier := creationOf(p, pv)
	earlier.Set = ""
	pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(earlier)
	s = snapshotOf([]*corev1.PersistentVolume{pv}, p)
	s.Now = noon
	if got = RequiredObservations(s); len(got.Awaited) != 0 || got.Interval != watchInterval || earlier.IsBatchOf("p") {
		t.Errorf("with a mark of the previous release: got %+v every %s, want no canary", got.Awaited, got.Interval)
	}
	// It never had other options, so a pod that was bound right after its creation counts.
	mount := v1alpha1.MountStatus{Volume: "a", Protocol: "nfs4", Options: []string{"hard", "nocto"}}
	s.ClientNodes = []*v1alpha1.StorageClientNode{{Status: v1alpha1.StorageClientNodeStatus{Mounts: []v1alpha1.MountStatus{mount}}}}
	if got = RequiredObservations(s); len(got.Awaited) != 1 || !pv.CreationTimestamp.After(got.Awaited[0].After) {
		t.Errorf("with a mark of the previous release and a mount: got %+v, want the mount of a, from its creation on", got.Awaited)
	}
}

// The webhook compares a new volume with the current mount options of its server, not with pending changes of other volumes.
func TestAVolumeWithTheSetOfANewOneCanGiveEvidence(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nconnect=4", "nocto"})
	carrying := func(name string, original ...string) *corev1.PersistentVolume {
		pv := created(name, 9, bound)
		pv.Spec.MountOptions = []string{"hard", "nconnect=4", "nocto"}
		builders.Carrying(original, pv.Spec.MountOptions, p.Name)(pv)
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(judge.MarkFor(verdictFor(p, created(name, 9)), noon))
		return pv
	}
	// An edit of onConflict gives b its own nconnect back.
	s := snapshotOf([]*corev1.PersistentVolume{carrying("a", "hard"), carrying("b", "hard", "nconnect=2")}, p)
	v, _, isUnproven := judgeNew(s, created("new", -59))
	if source := SourceOfEvidence(s, v.Set); source != "a" || !isUnproven {
		t.Errorf("got source %q for %q, unproven: %t; want a", source, v.Options, isUnproven)
	}
}
