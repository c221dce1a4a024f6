package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/test/check"
)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		check.NoError(t, add(scheme))
	}
	return scheme
}

func newHandler(t testing.TB, funcs interceptor.Funcs, objects ...client.Object) *volumeHandler {
	t.Helper()
	scheme := newScheme(t)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).Build()
	return &volumeHandler{reader: &snapshot.Reader{Reader: reader}, decoder: admission.NewDecoder(scheme)}
}

// newVolume returns an in-tree NFS volume for the claim eda/data.
func newVolume(change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
	}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/data"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "data", UID: "claim-uid"}
	pv.Spec.MountOptions = []string{"hard"}
	for _, c := range change {
		c(pv)
	}
	return pv
}

func creation(t testing.TB, pv *corev1.PersistentVolume) admission.Request {
	t.Helper()
	raw, err := json.Marshal(pv)
	check.NoError(t, err)
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "u", Name: pv.Name, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	}}
}

// created returns the volume that the API server would store.
func created(t *testing.T, req admission.Request, response admission.Response) *corev1.PersistentVolume {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("got the volume denied: %v", response.Result)
	}
	check.NoError(t, response.Complete(req))
	object := map[string]any{}
	check.NoError(t, json.Unmarshal(req.Object.Raw, &object))
	for _, o := range operations(t, response) {
		add(object, o)
	}
	raw, err := json.Marshal(object)
	check.NoError(t, err)
	pv := &corev1.PersistentVolume{}
	check.NoError(t, json.Unmarshal(raw, pv))
	return pv
}

func operations(t *testing.T, response admission.Response) []operation {
	t.Helper()
	var list []operation
	if len(response.Patch) == 0 {
		return nil
	}
	check.NoError(t, json.Unmarshal(response.Patch, &list))
	for _, o := range list {
		if o.Op != "add" {
			t.Errorf("got operation %+v, want only additions", o)
		}
	}
	return list
}

// add applies one "add" operation to an object, as RFC 6902 defines it.
func add(object map[string]any, o operation) {
	steps := strings.Split(o.Path, "/")[1:]
	for i, step := range steps {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if i == len(steps)-1 {
			object[step] = o.Value
			return
		}
		object = object[step].(map[string]any)
	}
}

func TestNewVolumesGetTheOptionsOfTheReconciler(t *testing.T) {
	fast := newProfile(rule(allNFS, "nconnect=4"))
	weak := newProfile(rule(allNFS, "sec=sys", "rw", "nconnect=4"), func(p *v1alpha1.StorageClientProfile) { p.Spec.Volumes[0].OnConflict = v1alpha1.ConflictUseProfile })
	tools := newProfile(rule(v1alpha1.VolumeSelector{ClaimSelector: labelled}, "nconnect=4"))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "data", UID: "claim-uid", Labels: labelled.MatchLabels}}
	paused := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace, Annotations: map[string]string{v1alpha1.PausedAnnotation: "true"}}}
	annotate := func(key, value string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { metav1.SetMetaDataAnnotation(&pv.ObjectMeta, key, value) }
	}
	applied := func(pv *corev1.PersistentVolume) {
		pv.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "flux", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:mountOptions":{}}}`)}}
	}
	for name, test := range map[string]struct {
		objects []client.Object
		volume  *corev1.PersistentVolume
		want    []string // nil: unchanged
	}{
		"a volume that a rule selects":             {[]client.Object{fast}, newVolume(), []string{"hard", "nconnect=4"}},
		"one with other annotations":               {[]client.Object{fast}, newVolume(annotate("a.b/c~d", "e")), []string{"hard", "nconnect=4"}},
		"one that a rule would make weaker":        {[]client.Object{weak}, newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"sec=krb5p", "ro"} }), []string{"sec=krb5p", "ro", "nconnect=4"}},
		"one without options":                      {[]client.Object{fast}, newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = nil }), []string{"nconnect=4"}},
		"one for a claim with the label":           {[]client.Object{tools, claim}, newVolume(), []string{"hard", "nconnect=4"}},
		"one for a claim that is not there yet":    {[]client.Object{tools}, newVolume(), nil},
		"one for an earlier claim of the name":     {[]client.Object{tools, claim}, newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "gone" }), nil},
		"one that is reserved, and not bound":      {[]client.Object{tools, claim}, newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" }), nil},
		"one without a claim":                      {[]client.Object{tools}, newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }), nil},
		"one that no rule selects":                 {nil, newVolume(), nil},
		"an ignored one":                           {[]client.Object{fast}, newVolume(annotate(v1alpha1.IgnoreAnnotation, "true")), nil},
		"one of Argo CD's":                         {[]client.Object{fast}, newVolume(annotate("argocd.argoproj.io/tracking-id", "app")), nil},
		"one that Flux applies":                    {[]client.Object{fast}, newVolume(applied), nil},
		"one that kubectl applies with options":    {[]client.Object{fast}, newVolume(annotate(corev1.LastAppliedConfigAnnotation, `{"spec":{"mountOptions":["hard"]}}`)), nil},
		"one that kubectl applies without options": {[]client.Object{fast}, newVolume(annotate(corev1.LastAppliedConfigAnnotation, `{"spec":{}}`)), []string{"hard", "nconnect=4"}},
		"one while everything is paused":           {[]client.Object{fast, paused}, newVolume(), nil},
		"one whose server has another nconnect":    {[]client.Object{fast, other(newVolume(), "nconnect=8")}, newVolume(), nil},
		"one whose server has the same nconnect":   {[]client.Object{fast, other(newVolume(), "nconnect=4")}, newVolume(), []string{"hard", "nconnect=4"}},
		"one that carries all of it already":       {[]client.Object{fast}, newVolume(func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"nconnect=4"} }), nil},
		"one from a backup, whose profile is deleted, is left to the reconciler": {nil, newVolume(annotate(v1alpha1.OriginalMountOptionsAnnotation, `[]`),
			annotate(v1alpha1.AppliedMountOptionsAnnotation, `["hard"]`), annotate(v1alpha1.ProfilesAnnotation, "gone")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler(t, interceptor.Funcs{}, test.objects...)
			if test.want != nil {
				prove(t, h, test.volume)
			}
			req := creation(t, test.volume)
			got := created(t, req, h.Handle(context.Background(), req))
			if test.want == nil {
				check.Equal(t, "the volume is changed", test.volume, got)
				return
			}
			check.Equal(t, "options", test.want, got.Spec.MountOptions)
			for key, value := range test.volume.Annotations {
				if got.Annotations[key] != value {
					t.Errorf("annotation %s: got %q, want %q", key, got.Annotations[key], value)
				}
			}
			v, _, err := h.reader.EvaluateNew(context.Background(), got, false)
			check.NoError(t, err)
			if v.Action != judge.ActionNone || v.State != judge.StateUpToDate {
				t.Errorf("got a change by the reconciler after the webhook: %s: %s", v.Action, v.Message)
			}
		})
	}
}

func TestUnknownFieldsStay(t *testing.T) {
	h := newHandler(t, interceptor.Funcs{}, newProfile(rule(allNFS, "nconnect=4")))
	prove(t, h, newVolume())
	req := creation(t, newVolume())
	req.Object.Raw = slices.Concat([]byte(`{"futureField":{"a":1},`), req.Object.Raw[1:])
	for _, o := range operations(t, h.Handle(context.Background(), req)) {
		if o.Path == "" || strings.Contains(o.Path, "futureField") {
			t.Errorf("got operation %+v, which changes an unknown field", o)
		}
	}
}

func TestEveryVolumeIsAllowed(t *testing.T) {
	fails := func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("no cache")
	}
	panics := func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		panic("at the disco")
	}
	garbage := creation(t, newVolume())
	garbage.Object.Raw = []byte("{")
	update := creation(t, newVolume())
	update.Operation = admissionv1.Update
	fast := newProfile(rule(allNFS, "nconnect=4"))
	for name, test := range map[string]struct {
		funcs interceptor.Funcs
		req   admission.Request
	}{
		"the cache fails":             {interceptor.Funcs{List: fails}, creation(t, newVolume())},
		"the evaluation panics":       {interceptor.Funcs{List: panics}, creation(t, newVolume())},
		"the volume cannot be read":   {interceptor.Funcs{}, garbage},
		"it is not a creation at all": {interceptor.Funcs{}, update},
	} {
		t.Run(name, func(t *testing.T) {
			response := newHandler(t, test.funcs, fast).Handle(context.Background(), test.req)
			if !response.Allowed || len(response.Patch)+len(response.Patches) > 0 {
				t.Errorf("got %+v, want the volume admitted unchanged", response)
			}
		})
	}
}

func TestEveryResponseIsCounted(t *testing.T) {
	fast := newProfile(rule(allNFS, "nconnect=4"))
	proven := newHandler(t, interceptor.Funcs{}, fast)
	prove(t, proven, newVolume())
	garbage := creation(t, newVolume())
	garbage.Object.Raw = []byte("{")
	panics := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		panic("at the disco")
	}}
	for name, test := range map[string]struct {
		handler *volumeHandler
		req     admission.Request
		result  string
	}{
		"a merge":           {proven, creation(t, newVolume()), resultMerged},
		"unproven options":  {newHandler(t, interceptor.Funcs{}, fast), creation(t, newVolume()), resultUnchanged},
		"nothing to merge":  {newHandler(t, interceptor.Funcs{}), creation(t, newVolume()), resultUnchanged},
		"an error":          {newHandler(t, interceptor.Funcs{}, fast), garbage, resultError},
		"a panic counts so": {newHandler(t, panics), creation(t, newVolume()), resultError},
	} {
		t.Run(name, func(t *testing.T) {
			before := seen(t, test.result)
			test.handler.Handle(context.Background(), test.req)
			if got := seen(t, test.result) - before; got != 1 {
				t.Errorf("%s: got an increase of %v, want 1", test.result, got)
			}
		})
	}
}

// seen returns the number of responses of this kind.
func seen(t *testing.T, result string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(volumesSeen)
	families, err := registry.Gather()
	check.NoError(t, err)
	for _, m := range families[0].Metric {
		if m.Label[0].GetValue() == result {
			return m.GetCounter().GetValue()
		}
	}
	t.Fatalf("got no count of %s", result)
	return 0
}

// listing is a cache that contains only profiles and the ledger. Unlike a fake client, it does not copy them.
type listing struct {
	profiles []v1alpha1.StorageClientProfile
	pages    []corev1.ConfigMap
}

func (l listing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.StorageClientProfileList:
		list.Items = l.profiles
	case *corev1.ConfigMapList:
		list.Items = l.pages
	}
	return nil
}

func (listing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// BenchmarkVolumeWebhook measures one response, from the request in memory to the patch. There are 50 profiles with three rules, sysctls
// and kernel arguments each. Goal: p99 under 5 ms.
func BenchmarkVolumeWebhook(b *testing.B) {
	const profiles = 50
	var l listing
	for i := range profiles {
		class := v1alpha1.VolumeSelector{StorageClassNames: []string{fmt.Sprint("class-", i)}}
		p := newProfile(sysctl("net.core.rmem_max", "16777216"), sysctl("vm.dirty_ratio", "10"), sysctl("net.ipv4.tcp_rmem", "4096 1048576 16777216"),
			argument("ihash_entries=16777216"), rule(class, "nconnect=4", "actimeo=30", "hard"), rule(class, "rsize=1048576", "wsize=1048576"),
			rule(allNFS, "nconnect=4", "noresvport", "actimeo=30"))
		p.Name, p.UID, p.Spec.Priority = fmt.Sprint("profile-", i), types.UID(strconv.Itoa(i)), int32(i)
		l.profiles = append(l.profiles, *p)
	}
	h := newHandler(b, interceptor.Funcs{})
	h.reader.Reader = l
	l.pages = evidenceFor(b, h, newVolume())
	h.reader.Reader = l
	req := creation(b, newVolume())
	var durations []time.Duration
	for b.Loop() {
		start := time.Now()
		if response := h.Handle(context.Background(), req); len(response.Patch) == 0 {
			b.Fatal("got the volume unchanged")
		}
		durations = append(durations, time.Since(start))
	}
	slices.Sort(durations)
	b.ReportMetric(float64(durations[len(durations)*99/100].Microseconds())/1000, "p99-ms")
}

// other returns another volume of the same server, with other mount options.
func other(pv *corev1.PersistentVolume, options ...string) *corev1.PersistentVolume {
	pv.Name, pv.ResourceVersion, pv.Spec.MountOptions = "other", "", options
	return pv
}

func TestNewVolumesStayUnchangedWhileTheirOptionsAreStopped(t *testing.T) {
	fast := newProfile(rule(allNFS, "nconnect=4"))
	// pass runs the reconciler, which records the known sets of options.
	pass := func(t *testing.T, h *volumeHandler) {
		t.Helper()
		reconciler := &volume.Reconciler{Client: h.reader.Reader.(client.Client), Recorder: events.NewFakeRecorder(1)}
		if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	h := newHandler(t, interceptor.Funcs{}, fast, newVolume())
	pass(t, h)
	written := &corev1.PersistentVolume{}
	check.NoError(t, h.reader.Get(t.Context(), types.NamespacedName{Name: "pv"}, written))
	var mark struct {
		Set   string   `json:"set"`
		Rules []string `json:"rules"`
	}
	check.NoError(t, json.Unmarshal([]byte(written.Annotations[v1alpha1.MountOptionsStepAnnotation]), &mark))
	failure, err := json.Marshal(map[string]any{"set": mark.Set, "rules": mark.Rules, "driver": "kubernetes.io/nfs", "options": []string{"nconnect=4"}, "message": "exit status 32"})
	check.NoError(t, err)
	bad := newVolume(func(pv *corev1.PersistentVolume) {
		pv.Name = "bad"
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, v1alpha1.FailedMountOptionsAnnotation, string(failure))
	})
	changed := newProfile(rule(allNFS, "nconnect=4", "nocto"))
	for name, test := range map[string]struct {
		profile *v1alpha1.StorageClientProfile
		want    []string
		warned  string
	}{
		"the same rules": {fast, []string{"hard"}, "PersistentVolume bad could not be mounted with [\"nconnect=4\"] (driver kubernetes.io/nfs, event: \"exit status 32\")"},
		"other rules":    {changed, []string{"hard"}, unproven},
	} {
		t.Run(name, func(t *testing.T) {
			req := creation(t, newVolume())
			h := newHandler(t, interceptor.Funcs{}, fast, bad)
			pass(t, h)
			var current v1alpha1.StorageClientProfile
			check.NoError(t, h.reader.Get(t.Context(), client.ObjectKeyFromObject(fast), &current))
			current.Spec = test.profile.Spec
			check.NoError(t, h.reader.Reader.(client.Client).Update(t.Context(), &current))
			response := h.Handle(t.Context(), req)
			check.Equal(t, "options", test.want, created(t, req, response).Spec.MountOptions)
			if warnings := strings.Join(response.Warnings, " "); !strings.HasSuffix(warnings, test.warned) || (test.warned == "") != (warnings == "") {
				t.Errorf("got warnings %q, want %q", warnings, test.warned)
			}
		})
	}
}
