package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/check"
)

const unproven = "created without mountOptions of StorageClientProfile eda: not proven yet; added after the first successful mount"

// evidenceFor returns the pages of a ledger with a pod's mount of the options that a new volume would get.
func evidenceFor(t testing.TB, h *volumeHandler, pv *corev1.PersistentVolume) []corev1.ConfigMap {
	t.Helper()
	v, _, err := h.reader.EvaluateNew(t.Context(), pv, true)
	check.NoError(t, err)
	set, changes := judge.SetOf(judge.SourceOf(pv), v.Set, v.RuleSet, v.Rules), ledger.Changes{}
	set.Next(optionset.Event{Kind: optionset.Mounted, Blame: optionset.Blame{Volume: "first", Text: "n1 has mounted first"}})
	for key, value := range set.Encode() {
		changes[types.UID(key)] = ledger.KeepSet(value)
	}
	var pages []corev1.ConfigMap
	writes, _ := new(ledger.Reader).Read(nil).Apply(changes)
	for _, w := range writes {
		w.Page.Namespace = v1alpha1.ManagerNamespace
		pages = append(pages, *w.Page)
	}
	return pages
}

// prove records evidence for the options that a new volume would get.
func prove(t testing.TB, h *volumeHandler, pv *corev1.PersistentVolume) {
	t.Helper()
	for _, page := range evidenceFor(t, h, pv) {
		check.NoError(t, h.reader.Reader.(client.Client).Create(t.Context(), &page))
	}
}

// unprobed is a profile whose options no probe may test.
func unprobed(p *v1alpha1.StorageClientProfile) {
	p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{Probe: v1alpha1.ProbeNever}
}

// reserving returns a handler that may reserve canaries.
func reserving(t testing.TB, funcs interceptor.Funcs, objects ...client.Object) *volumeHandler {
	t.Helper()
	h := newHandler(t, funcs, objects...)
	h.reader.Reserver = h.reader.Reader.(client.Client)
	return h
}

func reservations(t testing.TB, h *volumeHandler) []*corev1.ConfigMap {
	t.Helper()
	var all corev1.ConfigMapList
	check.NoError(t, h.reader.List(t.Context(), &all))
	return ledger.ReservationsIn(all.Items)
}

func TestANewVolumeGetsUnprovenOptionsOnlyAsTheCanary(t *testing.T) {
	kerberos := func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"sec=krb5"} }
	named := func(name string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Name, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = name, name, types.UID(name)
		}
	}
	unused := func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeAvailable }
	onServer := func(server string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Server = server }
	}
	ofGit := func(pv *corev1.PersistentVolume) {
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, "argocd.argoproj.io/tracking-id", "app")
	}
	probed, never := newProfile(rule(allNFS, "nocto")), newProfile(rule(allNFS, "nocto"), unprobed)
	proceeds := newProfile(rule(allNFS, "nocto"), unprobed, func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Rollout.Volumes.OnNoEvidence = v1alpha1.NoEvidenceProceed
	})
	planned := newProfile(rule(allNFS, "nocto"), unprobed, func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan })
	reservedFor := func(pv *corev1.PersistentVolume) *corev1.ConfigMap {
		v, _, err := newHandler(t, interceptor.Funcs{}, never).reader.EvaluateNew(t.Context(), pv, true)
		check.NoError(t, err)
		out := judge.ReservationFor(pv, v.Set)
		out.UID = "reserved"
		return out
	}
	broken := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return errors.New("refused")
	}}
	taken := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		return apierrors.NewAlreadyExists(corev1.Resource("configmaps"), o.GetName())
	}}
	for name, test := range map[string]struct {
		objects []client.Object
		volume  *corev1.PersistentVolume
		funcs   interceptor.Funcs
		dryRun  bool
		canary  bool
		silent  bool // no warning
		stored  int  // reservations afterwards
	}{
		"no probe is wanted, and there is no other volume":      {objects: []client.Object{never}, volume: newVolume(), canary: true, stored: 1},
		"no probe is possible":                                  {objects: []client.Object{probed}, volume: newVolume(kerberos), canary: true, stored: 1},
		"a probe is possible":                                   {objects: []client.Object{probed}, volume: newVolume()},
		"a profile that accepts a soak is no exception":         {objects: []client.Object{proceeds}, volume: newVolume(), canary: true, stored: 1},
		"a profile that only plans":                             {objects: []client.Object{planned}, volume: newVolume(), silent: true},
		"a volume of Git":                                       {objects: []client.Object{never}, volume: newVolume(ofGit), silent: true},
		"another volume can give evidence":                      {objects: []client.Object{never, newVolume(named("other"))}, volume: newVolume()},
		"on another server, too":                                {objects: []client.Object{never, newVolume(named("other"), onServer("second"))}, volume: newVolume()},
		"a volume that no pod can mount gives none":             {objects: []client.Object{never, newVolume(named("other"), unused)}, volume: newVolume(), canary: true, stored: 1},
		"nor does one that Git owns":                            {objects: []client.Object{never, newVolume(named("other"), ofGit)}, volume: newVolume(), canary: true, stored: 1},
		"another volume is reserved":                            {objects: []client.Object{never, reservedFor(newVolume(named("other")))}, volume: newVolume(), stored: 1},
		"a volume of another server is reserved":                {objects: []client.Object{never, reservedFor(newVolume(named("other"), onServer("second")))}, volume: newVolume(), stored: 1},
		"the volume is reserved, and its creation is retried":   {objects: []client.Object{never, reservedFor(newVolume())}, volume: newVolume(), canary: true, stored: 1},
		"a volume of its name is reserved for an earlier claim": {objects: []client.Object{never, reservedFor(newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "earlier" }))}, volume: newVolume(), stored: 1},
		"another replica was faster":                            {objects: []client.Object{never}, volume: newVolume(), funcs: taken},
		"the reservation fails":                                 {objects: []client.Object{never}, volume: newVolume(), funcs: broken},
		"a dry run":                                             {objects: []client.Object{never}, volume: newVolume(), dryRun: true},
		"a volume without a claim":                              {objects: []client.Object{never}, volume: newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil })},
		"a volume that is reserved for a claim by name":         {objects: []client.Object{never}, volume: newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" })},
		"a volume whose name the API server generates":          {objects: []client.Object{never}, volume: newVolume(func(pv *corev1.PersistentVolume) { pv.Name, pv.GenerateName = "", "pv-" })},
	} {
		t.Run(name, func(t *testing.T) {
			objects := make([]client.Object, len(test.objects))
			for i, object := range test.objects {
				objects[i] = object.DeepCopyObject().(client.Object)
			}
			h := reserving(t, test.funcs, objects...)
			req := creation(t, test.volume)
			req.DryRun = ptr.To(test.dryRun)
			response := h.Handle(t.Context(), req)
			got := created(t, req, response)
			if mark := judge.MarkOf(got); (mark != nil && mark.Unproven && mark.Created) != test.canary || slices.Contains(got.Spec.MountOptions, "nocto") != test.canary {
				t.Errorf("got options %q with mark %+v, want the canary: %t", got.Spec.MountOptions, mark, test.canary)
			}
			if diff := cmp.Diff(test.volume, got); !test.canary && diff != "" {
				t.Errorf("the volume is changed (-want +got):\n%s", diff)
			}
			want := []string{unproven}
			if test.canary || test.silent {
				want = nil
			}
			check.Equal(t, "warnings", want, response.Warnings)
			if stored := reservations(t, h); len(stored) != test.stored {
				t.Errorf("got reservations %v, want %d", stored, test.stored)
			}
		})
	}
}

// Several replicas may get requests for volumes of one set at once, also of different servers. Only one volume gets the options.
func TestOnlyOneOfSeveralVolumesIsReserved(t *testing.T) {
	h := reserving(t, interceptor.Funcs{}, newProfile(rule(allNFS, "nocto"), unprobed))
	var wait sync.WaitGroup
	got := make([]*corev1.PersistentVolume, 8)
	for i := range got {
		name := "pv" + strings.Repeat("x", i)
		req := creation(t, newVolume(func(pv *corev1.PersistentVolume) {
			pv.Name, pv.Spec.ClaimRef.UID, pv.Spec.NFS.Server = name, types.UID(name), "filer"+name
		}))
		wait.Go(func() { got[i] = created(t, req, h.Handle(t.Context(), req)) })
	}
	wait.Wait()
	canaries := slices.DeleteFunc(got, func(pv *corev1.PersistentVolume) bool { return !slices.Contains(pv.Spec.MountOptions, "nocto") })
	if len(canaries) != 1 {
		t.Fatalf("got %d volumes with the options, want 1", len(canaries))
	}
	if stored := reservations(t, h); len(stored) != 1 || stored[0].Data["volume"] != canaries[0].Name || stored[0].Data["claim"] != string(canaries[0].Spec.ClaimRef.UID) {
		t.Errorf("got reservations %v, want one for PersistentVolume %s and its claim", stored, canaries[0].Name)
	}
}

// Most volumes of a large StatefulSet are left out without an evaluation of all volumes.
func TestLeftOutVolumesAreCheap(t *testing.T) {
	other := newVolume(func(pv *corev1.PersistentVolume) { pv.Name, pv.Spec.ClaimRef.Name = "other", "other" })
	never := newProfile(rule(allNFS, "nocto"), unprobed)
	for name, test := range map[string]struct {
		objects []client.Object
		want    int
	}{
		"a probe is possible":                 {[]client.Object{newProfile(rule(allNFS, "nocto"))}, 0},
		"another volume is reserved":          {[]client.Object{never}, 1},
		"another volume can give evidence":    {[]client.Object{never, other}, 1},
		"another volume has changed, and can": {[]client.Object{never, other.DeepCopy()}, 2},
	} {
		evaluations := 0
		counted := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, isOfClaims := list.(*metav1.PartialObjectMetadataList); isOfClaims {
				evaluations++ // only an evaluation of all volumes reads all claims
			}
			return c.List(ctx, list, opts...)
		}}
		h, index := reserving(t, counted, test.objects...), judge.NewVolumeIndex(nil)
		h.reader.VolumeIndex = func() *judge.VolumeIndex { return index }
		index.Update(other)
		for i := range 100 {
			if i == 50 && test.want == 2 {
				index.Update(other)
			}
			h.Handle(t.Context(), creation(t, newVolume(func(pv *corev1.PersistentVolume) {
				pv.Name = fmt.Sprintf("new%d", i)
				pv.Spec.ClaimRef.UID, pv.Spec.NFS.Server = types.UID(pv.Name), pv.Name
			})))
		}
		if evaluations != test.want {
			t.Errorf("%s: got %d evaluations of all volumes for 100 new ones, want %d", name, evaluations, test.want)
		}
	}
}

// The API server waits for 2 s.
func TestASlowReservationLeavesTheVolumeOut(t *testing.T) {
	slow := interceptor.Funcs{Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
		if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) > maxEvaluation {
			t.Error("got no deadline within a second")
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	h := reserving(t, slow, newProfile(rule(allNFS, "nocto"), unprobed))
	req := creation(t, newVolume())
	response := h.Handle(t.Context(), req)
	check.Equal(t, "the volume is changed", newVolume(), created(t, req, response))
	check.Equal(t, "warnings", []string{unproven}, response.Warnings)
}
