package volume

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// Several controllers share evaluations, and each volume is evaluated once.
func TestControllersShareEvaluations(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(20), &p)...)
	r.Volumes = snapshot.NewMemory()
	makeAPass(t, r)
	var all sync.WaitGroup
	judged := make([]*judge.Evaluation, 8)
	for k := range judged {
		all.Go(func() {
			reader := &snapshot.Reader{Reader: r.Client, Memory: r.Volumes}
			s, err := reader.Read(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for i := range s.Volumes {
				judged[k] = s.Memory.Evaluate(judge.Input{Volume: s.Volumes[i], Profiles: s.Profiles, Entry: s.Ledger.EntryOf(s.Volumes[i].UID)})
			}
		})
	}
	all.Wait()
	for _, j := range judged {
		if j == nil || j != judged[0] {
			t.Fatal("readers with a shared memory evaluate a volume again, want one evaluation")
		}
	}
}

// A reader without a shared memory, such as the webhook's, also compiles the profiles only once.
func TestAReaderAloneCompilesOnce(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(1), &p)...)
	reader := &snapshot.Reader{Reader: r.Client}
	var compiled []*judge.Profiles
	for range 2 {
		s, err := reader.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, s.Profiles)
	}
	if compiled[0] != compiled[1] {
		t.Error("each read compiles all profiles again, want once")
	}
}

// onlyVolumes returns informers only for volumes.
type onlyVolumes struct{ *informertest.FakeInformers }

func (o onlyVolumes) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := object.(*corev1.PersistentVolume); !ok {
		return nil, nil
	}
	return o.FakeInformers.GetInformer(ctx, object, options...)
}

// The webhook evaluates new volumes among the volumes of the cache, once the cache is complete.
func TestTheCacheMaintainsTheVolumeIndex(t *testing.T) {
	r, _ := newReconciler(t, interceptor.Funcs{})
	informers := &informertest.FakeInformers{Scheme: r.Client.Scheme()}
	others, err := snapshot.KeepCached(t.Context(), onlyVolumes{informers})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := informers.FakeInformerFor(t.Context(), &corev1.PersistentVolume{})
	if err != nil {
		t.Fatal(err)
	}
	p := builders.NFSProfile("p", []string{"nocto", "nconnect=4"})
	conflicts := func() bool {
		newest := builders.NFSVolume([]string{"hard"}, builders.Named("newest"))
		var compiler judge.Compiler
		v, _, _ := judge.EvaluateNew(judge.Evaluate(judge.Input{Volume: newest, Profiles: compiler.Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p}), catalogue.AllowList{}, false, nil)}), others(), func(string, string) *optionset.Record { return nil })
		return v.Contested
	}
	pv := builders.NFSVolume([]string{"nconnect=8"}, builders.Named("theirs"))
	for step, c := range []struct {
		do   func(*controllertest.FakeInformer)
		want bool
	}{
		{func(*controllertest.FakeInformer) {}, false},
		{func(i *controllertest.FakeInformer) { i.Add(pv) }, true},
		{func(i *controllertest.FakeInformer) {
			i.Update(pv, builders.NFSVolume([]string{"nconnect=4"}, builders.Named("theirs")))
		}, false},
		{func(i *controllertest.FakeInformer) { i.Update(pv, pv) }, true},
		{func(i *controllertest.FakeInformer) { i.Delete(pv) }, false},
	} {
		if c.do(informer); conflicts() != c.want {
			t.Errorf("step %d: got a contested nconnect: %t, want %t", step, !c.want, c.want)
		}
	}
}
