package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// A view evaluates a held profile as if it were active, and evaluates only its volumes again. The summary must be the same as with an active
// profile, except for the volumes that block its release.
func TestAViewSummarizesAsIfEachHeldProfileActed(t *testing.T) {
	differed := 0
	for seed := range uint64(500) {
		chance := rand.New(rand.NewPCG(seed, 0))
		s, profiles := randomSnapshot(chance)
		view := NewView(s)
		for i, p := range profiles {
			got, want := view.Summarize(p.Name), summarizeActive(s, profiles, i)
			if _, held := s.Profiles.WithoutHold(p.Name); held {
				differed++
				// Unrestored volumes depend on the current profiles, and a held profile starts no batch.
				want.Unrestored, want.Batch, got.Batch = unrestored(s, p.Name), "", ""
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, %s (-want +got):\n%s", seed, p.Name, diff)
			}
		}
	}
	if differed < 100 {
		t.Errorf("got %d held profiles, want at least 100", differed)
	}
}

// summarizeActive evaluates all volumes and returns the summary of one profile, with that profile active.
func summarizeActive(s Snapshot, profiles []v1alpha1.StorageClientProfile, i int) Summary {
	free := append([]v1alpha1.StorageClientProfile{}, profiles...)
	free[i].Spec.Paused, free[i].Spec.Mode = false, v1alpha1.ModeEnforce
	s.Profiles = new(judge.Compiler).Compile(lists.Pointers(free), catalogue.AllowList{}, false, nil)
	view := NewView(s)
	summary := view.Summarize(free[i].Name)
	summary.Stale = Stale{}
	for _, mount := range StaleMounts(summary.Volumes, s.ClientNodes) {
		summary.Stale.Count++
		summary.Stale.Nodes = append(summary.Stale.Nodes, mount.Node)
	}
	summary.Stale.Nodes = slices.Compact(summary.Stale.Nodes)
	return summary
}

// unrestored returns the volumes that carry a profile and must still be restored.
func unrestored(s Snapshot, profile string) []string {
	var names []string
	for _, pv := range s.Volumes {
		j := s.evaluateAlone(pv)
		isOpen := j.Verdict.State == judge.StatePending || j.Verdict.State == judge.StateHeld || j.Verdict.Action == judge.ActionRelease
		if slices.Contains(j.Record.Profiles, profile) && isOpen {
			names = append(names, j.Volume.Name)
		}
	}
	slices.Sort(names)
	return names
}

// randomSnapshot returns volumes of three servers, with and without managed options, and profiles, some of them held.
func randomSnapshot(chance *rand.Rand) (Snapshot, []v1alpha1.StorageClientProfile) {
	var profiles []v1alpha1.StorageClientProfile
	for i := range 2 + chance.IntN(3) {
		options := [][]string{{"nconnect=4"}, {"nconnect=8", "nocto"}, {"actimeo=30"}}[chance.IntN(3)]
		selector := v1alpha1.VolumeSelector{Servers: []string{fmt.Sprintf("filer-%d", chance.IntN(3))}}
		if chance.IntN(2) == 0 {
			selector = v1alpha1.VolumeSelector{StorageClassNames: []string{fmt.Sprintf("class-%d", chance.IntN(3))}}
		}
		p := builders.NFSProfile(fmt.Sprintf("p%d", i), options, builders.Selecting(selector))
		p.Spec.Paused, p.Spec.Priority = chance.IntN(3) == 0, int32(chance.IntN(2))
		if chance.IntN(4) == 0 {
			p.Spec.Mode = v1alpha1.ModePlan
		}
		profiles = append(profiles, p)
	}
	var volumes []*corev1.PersistentVolume
	nodes := []*v1alpha1.StorageClientNode{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	for i := range 1 + chance.IntN(8) {
		own, carried := []string{"hard"}, []string{"hard", "nconnect=4"}
		more := []builders.VolumeOption{builders.Named(fmt.Sprintf("pv%d", i)), func(pv *corev1.PersistentVolume) {
			pv.Spec.NFS.Server, pv.Spec.StorageClassName = fmt.Sprintf("filer-%d", chance.IntN(3)), fmt.Sprintf("class-%d", chance.IntN(3))
			pv.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		}}
		list := own
		if chance.IntN(2) == 0 {
			list = carried
			more = append(more, builders.Carrying(own, carried, fmt.Sprintf("p%d", chance.IntN(3))))
		}
		volumes = append(volumes, builders.NFSVolume(list, more...))
		node := nodes[chance.IntN(2)]
		node.Status.Mounts = append(node.Status.Mounts, v1alpha1.MountStatus{
			Volume: fmt.Sprintf("pv%d", i), MountPoint: fmt.Sprintf("/m%d", i), Protocol: "NFSv4.1", Options: []string{"hard"}, Connections: 1,
			State: v1alpha1.MountStale, Message: "mounted before",
		})
	}
	s := snapshotOf(volumes, profiles...)
	s.Profiles = new(judge.Compiler).Compile(lists.Pointers(profiles), catalogue.AllowList{}, chance.IntN(4) == 0, nil)
	s.Now, s.ClientNodes = noon, nodes
	return s, profiles
}
