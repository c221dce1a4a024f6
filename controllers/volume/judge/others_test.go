package judge

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/internal/builders"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/catalogue"
)

// What is kept while volumes come, change and go is what a look at all of them would find.
func TestTheVolumeIndexMatchesAFullRead(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	lists := [][]string{{"hard"}, {"hard", "nconnect=4"}, {"nconnect=8", "vers=4.1"}, {"nconnect=8", "vers=4.1", "proto=rdma"}}
	now := map[string]corev1.PersistentVolume{}
	kept := NewVolumeIndex(nil)
	for step := range 5000 {
		name := fmt.Sprintf("pv%02d", random.IntN(30))
		if random.IntN(4) == 0 {
			delete(now, name)
			kept.Remove(name)
		} else {
			pv := builders.NFSVolume(lists[random.IntN(len(lists))], func(pv *corev1.PersistentVolume) {
				pv.Name = name
				pv.Spec.NFS.Server = []string{"filer", "Other"}[random.IntN(2)]
				pv.Status.Phase = []corev1.PersistentVolumePhase{corev1.VolumeBound, corev1.VolumeReleased}[random.IntN(2)]
			})
			now[name] = *pv
			kept.Update(pv)
		}
		var all []*corev1.PersistentVolume
		for _, pv := range now {
			all = append(all, &pv)
		}
		read := NewVolumeIndex(all)
		if diff := cmp.Diff(read, kept, cmp.AllowUnexported(VolumeIndex{}, demand{}, connection{}), cmp.FilterPath(isMutex, cmp.Ignore())); diff != "" {
			t.Fatalf("step %d (-read +kept):\n%s", step, diff)
		}
	}
	if len(kept.requests) == 0 {
		t.Fatal("nothing was asked for")
	}
}

func isMutex(path cmp.Path) bool { return path.Last().String() == ".mutex" }

// BenchmarkAmongOthers judges a new volume among 20,000 of one server.
func BenchmarkAmongOthers(b *testing.B) {
	volumes := make([]*corev1.PersistentVolume, 20000)
	for i := range volumes {
		volumes[i] = builders.NFSVolume([]string{"nconnect=4"}, func(pv *corev1.PersistentVolume) { pv.Name = fmt.Sprintf("pv%05d", i) })
	}
	others := NewVolumeIndex(volumes)
	profile := builders.NFSProfile("p", []string{"nconnect=4"})
	var compiler Compiler
	profiles := compiler.Compile([]v1alpha1.StorageClientProfile{profile}, catalogue.AllowList{}, false, nil)
	newest := builders.NFSVolume([]string{"hard"}, func(pv *corev1.PersistentVolume) { pv.Name = "newest" })
	b.ReportAllocs()
	for b.Loop() {
		v, stopped := EvaluateNew(Evaluate(Input{Volume: newest, Profiles: profiles}), others, func(string, string) *optionset.Record { return nil })
		if v.Action != ActionWrite || stopped != "" {
			b.Fatalf("%s, stopped by %q", v.Action, stopped)
		}
	}
}
