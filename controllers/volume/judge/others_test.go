package judge

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// After any number of created, changed and deleted volumes, the index is the same as after a full read.
func TestTheVolumeIndexMatchesAFullRead(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	lists := [][]string{{"hard"}, {"hard", "nconnect=4"}, {"nconnect=8", "vers=4.1"}, {"nconnect=8", "vers=4.1", "proto=rdma"}}
	current := map[string]corev1.PersistentVolume{}
	index := NewVolumeIndex(nil)
	for step := range 5000 {
		name := fmt.Sprintf("pv%02d", random.IntN(30))
		index.NoteSource("set", name)
		index.NoteSource("other", "pv99")
		if random.IntN(4) == 0 {
			delete(current, name)
			index.Remove(name)
		} else {
			pv := builders.NFSVolume(lists[random.IntN(len(lists))], func(pv *corev1.PersistentVolume) {
				pv.Name = name
				pv.Spec.NFS.Server = []string{"filer", "Other"}[random.IntN(2)]
				pv.Status.Phase = []corev1.PersistentVolumePhase{corev1.VolumeBound, corev1.VolumeReleased}[random.IntN(2)]
			})
			current[name] = *pv
			index.Update(pv)
		}
		if index.HasSource("set") || !index.HasSource("other") {
			t.Fatalf("step %d: got a source of evidence after its change: %t, another source: %t", step, index.HasSource("set"), index.HasSource("other"))
		}
		var all []*corev1.PersistentVolume
		for _, pv := range current {
			all = append(all, &pv)
		}
		read := NewVolumeIndex(all)
		if diff := cmp.Diff(read, index, cmp.AllowUnexported(VolumeIndex{}, demand{}, connection{}), cmp.FilterPath(isOther, cmp.Ignore())); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", step, diff)
		}
	}
	if len(index.requests) == 0 {
		t.Fatal("got no requests in the index, want some")
	}
}

func isOther(path cmp.Path) bool {
	return path.Last().String() == ".mutex" || path.Last().String() == ".sources"
}

// BenchmarkAmongOthers evaluates a new volume next to 20,000 volumes of the same server.
func BenchmarkAmongOthers(b *testing.B) {
	volumes := make([]*corev1.PersistentVolume, 20000)
	for i := range volumes {
		volumes[i] = builders.NFSVolume([]string{"nconnect=4"}, func(pv *corev1.PersistentVolume) { pv.Name = fmt.Sprintf("pv%05d", i) })
	}
	others := NewVolumeIndex(volumes)
	profile := builders.NFSProfile("p", []string{"nconnect=4"})
	var compiler Compiler
	profiles := compiler.Compile(lists.Pointers([]v1alpha1.StorageClientProfile{profile}), catalogue.AllowList{}, false, nil)
	newest := builders.NFSVolume([]string{"hard"}, func(pv *corev1.PersistentVolume) { pv.Name = "newest" })
	b.ReportAllocs()
	for b.Loop() {
		v, _, isUnproven := EvaluateNew(Evaluate(Input{Volume: newest, Profiles: profiles}), others, func(string, string) *optionset.Record { return nil })
		if v.Action != ActionWrite || !isUnproven {
			b.Fatalf("got action %s, unproven %t; want %s, unproven", v.Action, isUnproven, ActionWrite)
		}
	}
}
