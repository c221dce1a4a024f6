package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// created returns a volume with an age in minutes: age 1 is older than age 0.
func created(name string, age int, more ...builders.VolumeOption) *corev1.PersistentVolume {
	pv := builders.NFSVolume([]string{"hard"}, append([]builders.VolumeOption{builders.Named(name)}, more...)...)
	pv.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour - time.Duration(age)*time.Minute))
	return pv
}

func maxPerStep(limit intstr.IntOrString) builders.ProfileOption {
	return builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: &limit}
	})
}

// fleetOf returns the given number of volumes, with the claims eda/pv00, eda/pv01 and so on, the oldest first.
func fleetOf(count int) []client.Object {
	var out []client.Object
	for i := range count {
		name := fmt.Sprintf("pv%02d", i)
		out = append(out, created(name, count-i, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = name }))
	}
	return out
}

func changed(t *testing.T, r *Reconciler) []string {
	t.Helper()
	var all corev1.PersistentVolumeList
	if err := r.Client.List(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range all.Items {
		if slices.Contains(all.Items[i].Spec.MountOptions, "nocto") {
			names = append(names, all.Items[i].Name)
		}
	}
	return names
}

func TestAPassThatStartsABatchReadsVolumesLiveOnce(t *testing.T) {
	const count = 60
	var cached, live int
	fake, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(count), ptr.To(builders.NFSProfile("p", []string{"nocto"})))...)
	r := &Reconciler{Recorder: fake.Recorder, Clock: testclock.NewFakeClock(noon)}
	under := fake.Client.(client.WithWatch)
	r.Client = interceptor.NewClient(under, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		cached++
		return c.List(ctx, list, opts...)
	}})
	r.APIReader = interceptor.NewClient(under, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if list.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeList" {
			live++
		}
		return c.List(ctx, list, opts...)
	}})
	const perPass = 6 // profiles, volumes, the ledger, PersistentVolumeClaims, StorageClasses, StorageClientNodes
	if result := makeAPass(t, r); result.RequeueAfter != 10*time.Second || cached != perPass || live != 1 {
		t.Errorf("got %d cached and %d live lists, next pass after %s; want %d and 1, 10s", cached, live, result.RequeueAfter, perPass)
	}
	if got := changed(t, r); !cmp.Equal(got, []string{"pv00"}) {
		t.Errorf("got writes of %q, want only the canary", got)
	}
	cached = perPass
	if makeAPass(t, r); cached != 2*perPass || live != 1 {
		t.Errorf("during the soak of the canary: got %d cached and %d live lists, want %d and 1", cached, live, 2*perPass)
	}
}

// podOn returns a pod with the claim eda/NAME, bound to a node at the given time. The pod is running if started is set.
func podOn(node, volume string, bound, started time.Time) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "of-" + volume + "-on-" + node, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	pod.Spec.NodeName, pod.UID = node, types.UID("uid-of-"+pod.Name)
	pod.Status.StartTime = new(metav1.NewTime(bound.Add(time.Second)))
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(bound)}}
	if pod.Status.Phase = corev1.PodPending; !started.IsZero() {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}}
	}
	return pod
}

func TestBatchesContinueAfterSoakAndEvidence(t *testing.T) {
	const count = 20
	p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("10%")))
	node := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(count), &p, node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})...)
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	expect := func(when string, want ...string) {
		t.Helper()
		makeAPass(t, r)
		if diff := cmp.Diff(want, changed(t, r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("at first", "pv00")
	clock.Step(299 * time.Second)
	expect("while the canary soaks", "pv00")
	clock.Step(24 * time.Hour)
	expect("after its soak", "pv00")
	mount := v1alpha1.MountStatus{MountPoint: "/m", Volume: "pv00", Protocol: "NFSv4.1", Options: []string{"rw", "vers=4.1", "hard", "nocto"}, Used: true,
		PodUIDs: []string{"uid-of-of-pv00-on-n1"}, Since: ptr.To(metav1.NewTime(noon.Add(-time.Hour)))}
	node.Status.Mounts = []v1alpha1.MountStatus{mount}
	if err := r.Client.Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	expect("while a node has a mount from before", "pv00")
	node.Status.Mounts[0].Since = ptr.To(metav1.NewTime(noon.Add(time.Hour + 2*time.Second)))
	if err := r.Client.Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	expect("once a node says that it has mounted it", "pv00")
	if err := r.Client.Create(context.Background(), podOn("n1", "pv00", noon.Add(time.Hour), noon.Add(time.Hour+5*time.Second))); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	expect("once a node has mounted it since", "pv00", "pv01", "pv02")
	clock.Step(10 * time.Second)
	expect("while the batch soaks", "pv00", "pv01", "pv02")
	clock.Step(300 * time.Second)
	expect("after its soak", "pv00", "pv01", "pv02", "pv03", "pv04")
}

// Only some pods are evidence that a kubelet has mounted the canary with its options.
func TestAKubeletsMountIsEvidence(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	agent := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node := func(name string) client.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	tests := map[string]struct {
		objects []client.Object
		want    bool
	}{
		"a pod that arrived and started on a node without an agent since": {[]client.Object{node("n2"), podOn("n2", "pv00", at(60), at(70))}, true},
		"not a pod that has not started":                                  {[]client.Object{node("n2"), podOn("n2", "pv00", at(60), time.Time{})}, false},
		"not a pod from before the write":                                 {[]client.Object{node("n2"), podOn("n2", "pv00", at(-60), at(70))}, false},
		"not a pod that arrived within the clock tolerance":               {[]client.Object{node("n2"), podOn("n2", "pv00", at(5), at(70))}, false},
		"not a pod on a node whose agent reports mounts":                  {[]client.Object{node("n1"), agent, podOn("n1", "pv00", at(60), at(70))}, false},
		"not a pod on a node that does not exist":                         {[]client.Object{podOn("n2", "pv00", at(60), at(70))}, false},
		"not a pod of another volume":                                     {[]client.Object{node("n2"), podOn("n2", "pv01", at(60), at(70))}, false},
		"not a pod next to another pod that may have an older mount":      {[]client.Object{node("n2"), podOn("n2", "pv00", at(60), at(70)), named("old", podOn("n2", "pv00", at(-60), at(-50)))}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromInt32(1)))
			r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(3), &p)...)
			clock := testclock.NewFakeClock(noon)
			r.Clock = clock
			makeAPass(t, r)
			for _, o := range test.objects {
				o.SetResourceVersion("")
				if err := r.Client.Create(context.Background(), o); err != nil {
					t.Fatal(err)
				}
			}
			clock.Step(10 * time.Minute)
			makeAPass(t, r) // finds the evidence
			makeAPass(t, r) // writes the next batch
			if got := len(changed(t, r)) > 1; got != test.want {
				t.Errorf("got a write of a second volume: %t, want %t", got, test.want)
			}
		})
	}
}

func named(name string, pod *corev1.Pod) *corev1.Pod {
	pod.Name = name
	return pod
}

// A pass takes time. A mount before the write has the previous options, even if the pass had already started.
func TestAWriteIsDatedWhenItIsMade(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(1), &p)...)
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	r.APIReader = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		clock.Step(20 * time.Second)
		return c.List(ctx, list, opts...)
	}})
	makeAPass(t, r)
	var pv corev1.PersistentVolume
	if err := r.Client.Get(context.Background(), client.ObjectKey{Name: "pv00"}, &pv); err != nil {
		t.Fatal(err)
	}
	mark := judge.MarkOf(&pv)
	if mark == nil || !mark.Since.Equal(noon) || !mark.Written.Equal(clock.Now()) || !mark.Written.After(noon) {
		t.Errorf("got mark %+v, want the batch of %s, written at %s", mark, noon, clock.Now())
	}
}

// A volume with a waiting pod gives the earliest evidence of whether its options work.
func TestTheCanaryIsAVolumeThatAPodIsAboutToMount(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	pending := podOn("", "pv02", noon, time.Time{})
	image := named("pulling", podOn("n2", "pv01", noon, noon)) // has started, but its phase is not yet updated
	image.Status.Phase = corev1.PodPending
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(4), &p, pending, image)...)
	r.Clock = testclock.NewFakeClock(noon)
	makeAPass(t, r)
	if got := changed(t, r); !cmp.Equal(got, []string{"pv02"}) {
		t.Errorf("got writes of %q, want only the volume of the waiting pod", got)
	}
}

// An attacker with the built-in role "edit" can write events in the namespace of one claim. The event is about a pod that does not exist,
// or about the attacker's own pod, which uses another claim.
func TestAForgedEventStopsNothing(t *testing.T) {
	const count = 5
	for name, pod := range map[string]*corev1.Pod{"a missing pod": nil, "the attacker's pod": failingPod("mallory", "scratch")} {
		t.Run(name, func(t *testing.T) {
			objects := fleetOf(count)
			objects[0].(*corev1.PersistentVolume).Spec.ClaimRef.Namespace = "mallory"
			p := builders.NFSProfile("p", []string{"nocto"}, maxPerStep(intstr.FromInt32(1)))
			p.Spec.Rollout.Volumes.OnNoEvidence = v1alpha1.NoEvidenceProceed
			objects = append(objects, &p, nodeN())
			if pod != nil {
				objects = append(objects, pod)
			}
			r, _ := newReconciler(t, interceptor.Funcs{}, objects...)
			clock := testclock.NewFakeClock(noon)
			r.Clock = clock
			makeAPass(t, r)
			if diff := cmp.Diff([]string{"pv00"}, changed(t, r)); diff != "" {
				t.Fatalf("canary (-want +got):\n%s", diff)
			}
			clock.Step(20 * time.Second)
			forged := kubeletEvent("forged", "mallory", `volume "pv00" PLEASE call +1-555`, clock.Now())
			if err := r.Client.Create(context.Background(), forged); err != nil {
				t.Fatal(err)
			}
			clock.Step(20 * time.Second)
			makeAPass(t, r)
			if diff := cmp.Diff([]string{"pv00"}, changed(t, r)); diff != "" {
				t.Errorf("written volumes during the soak of the canary (-want +got):\n%s", diff)
			}
			clock.Step(time.Hour)
			makeAPass(t, r)
			if diff := cmp.Diff([]string{"pv00", "pv01"}, changed(t, r)); diff != "" {
				t.Errorf("written volumes after the soak (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFailedMountOfTheCanaryIsRevertedAndStopsTheRest(t *testing.T) {
	const count = 5
	p := builders.NFSProfile("p", []string{"nocto"})
	r, recorder := newReconciler(t, interceptor.Funcs{}, append(fleetOf(count), &p, failingPod("eda", "pv00"), nodeN())...)
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	ctx := context.Background()
	makeAPass(t, r)
	message := `MountVolume.SetUp failed for volume "pv00" : mount failed: exit status 32` + "\nOutput: mount.nfs: an incorrect mount option was specified"
	if err := r.Client.Create(ctx, kubeletEvent("e", "eda", message, noon.Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	takeEvents(recorder)
	// The manager was not running during the soak.
	clock.Step(time.Hour)
	fresh := &Reconciler{Client: r.Client, Recorder: r.Recorder, Clock: r.Clock}
	makeAPass(t, fresh)
	if got := changed(t, r); len(got) > 0 {
		t.Errorf("got the options on %q, want none", got)
	}
	var pv corev1.PersistentVolume
	if err := r.Client.Get(ctx, client.ObjectKey{Name: "pv00"}, &pv); err != nil {
		t.Fatal(err)
	}
	verdict := verdictFor(p, &pv)
	want := &optionset.Failed{
		Identity: optionset.Identity{Set: verdict.Set, RuleSet: verdict.RuleSet, Rules: verdict.Rules, Driver: "kubernetes.io/nfs", Protocol: v1alpha1.ProtocolNFS},
		Blame: optionset.Blame{
			Volume: "pv00", UID: pv.UID, Options: []string{"hard", "nocto"},
			Text: `MountVolume.SetUp failed for volume "pv00" : mount failed: exit status 32 Output: mount.nfs: an incorrect mount option was specified`,
		},
	}
	want.Since, want.Failure = clock.Now(), judge.FailedMountOf(&pv).Failure
	if diff := cmp.Diff(want, judge.FailedMountOf(&pv)); diff != "" || judge.HasRecord(&pv) || len(pv.Annotations) != 1 {
		t.Errorf("got annotations %q, want only the failed mount (-want +got):\n%s", pv.Annotations, diff)
	}
	if diff := cmp.Diff([]string{"hard"}, pv.Spec.MountOptions); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	reported := strings.Join(takeEvents(recorder), "\n")
	if !strings.HasPrefix(reported, "Warning VolumeFailedMount") || !strings.Contains(reported, "incorrect mount option") {
		t.Errorf("got events %q, want a warning VolumeFailedMount with the text of the kubelet", reported)
	}
	if result := makeAPass(t, fresh); result.RequeueAfter > time.Minute || result.RequeueAfter < passInterval {
		t.Errorf("got the next pass after %s, want between %s and 1m for the rollback check", result.RequeueAfter, passInterval)
	}

	p.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto", "actimeo=30"}
	if err := r.Client.Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	makeAPass(t, fresh)
	if diff := cmp.Diff([]string{"pv00"}, changed(t, r)); diff != "" {
		t.Errorf("written volumes after the rules changed (-want +got):\n%s", diff)
	}
}

// verdictFor returns the verdict on a volume in a cluster with one profile.
func verdictFor(p v1alpha1.StorageClientProfile, pv *corev1.PersistentVolume) judge.Verdict {
	return judge.Volume(judge.Input{Volume: pv, Profiles: new(judge.Compiler).Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p}), catalogue.AllowList{}, false, nil)})
}

func TestABatchStartsFromLiveReads(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(3), &p)...)
	ctx := context.Background()
	var before corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &before); err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	r.APIReader = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewServiceUnavailable("down")
	}})
	if _, err := r.Reconcile(ctx, reconcile.Request{}); err == nil || len(changed(t, r)) > 0 {
		t.Errorf("without live reads: got writes of %q, error %v; want no writes and an error", changed(t, r), err)
	}
	r.APIReader = r.Client
	makeAPass(t, r)
	// The cache of another manager does not contain the write yet.
	late := &Reconciler{Recorder: r.Recorder, Clock: clock, APIReader: r.Client}
	late.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if volumes, ok := list.(*corev1.PersistentVolumeList); ok {
				before.DeepCopyInto(volumes)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			i := slices.IndexFunc(before.Items, func(pv corev1.PersistentVolume) bool { return pv.Name == key.Name })
			if pv, ok := o.(*corev1.PersistentVolume); ok && i >= 0 {
				before.Items[i].DeepCopyInto(pv)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	clock.Step(time.Minute)
	makeAPass(t, late)
	if got := changed(t, r); !cmp.Equal(got, []string{"pv00"}) {
		t.Errorf("during the soak of the canary: got writes of %q, want only the canary", got)
	}
}

func TestAVolumeThatRejectsWritesIsNoCanary(t *testing.T) {
	protected := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "pv00" {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), o.GetName(), nil)
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	r, _ := newReconciler(t, protected, append(fleetOf(3), ptr.To(builders.NFSProfile("p", []string{"nocto"})))...)
	r.Clock = testclock.NewFakeClock(noon)
	if _, err := r.Reconcile(context.Background(), reconcile.Request{}); !apierrors.IsForbidden(err) {
		t.Errorf("got error %v, want Forbidden", err)
	}
	makeAPass(t, r)
	if got := changed(t, r); !cmp.Equal(got, []string{"pv01"}) {
		t.Errorf("got writes of %q, want only the next volume", got)
	}
}

// Steps without a soak need neither events nor the records of the API server.
func TestARestoreContinuesWhileTheAPIServerIsUnreadable(t *testing.T) {
	for name, isDenied := range map[string]func(client.ObjectList) bool{
		"events":  func(list client.ObjectList) bool { _, ok := list.(*corev1.EventList); return ok },
		"records": func(list client.ObjectList) bool { _, ok := list.(*corev1.ConfigMapList); return ok },
	} {
		t.Run(name, func(t *testing.T) {
			wanted := []string{"hard", "nocto"}
			p := builders.NFSProfile("p", []string{"nocto"})
			canary := created("canary", 9, builders.Carrying([]string{"hard"}, wanted, "p"),
				builders.Annotated(v1alpha1.MountOptionsStepAnnotation, builders.JSON(judge.MarkFor(verdictFor(p, created("canary", 9)), noon.Add(-time.Hour)))))
			canary.Spec.MountOptions = wanted
			gone := created("gone", 1, builders.Carrying([]string{"hard"}, wanted, "gone"), func(pv *corev1.PersistentVolume) {
				pv.Spec.MountOptions, pv.Spec.NFS, pv.Spec.Local = wanted, nil, &corev1.LocalVolumeSource{}
			})
			r, recorder := newReconciler(t, interceptor.Funcs{}, canary, gone, created("next", 2), &p)
			r.Clock = testclock.NewFakeClock(noon)
			r.APIReader = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if isDenied(list) {
					return apierrors.NewForbidden(corev1.Resource("things"), "", nil)
				}
				return c.List(ctx, list, opts...)
			}})
			if _, err := r.Reconcile(context.Background(), reconcile.Request{}); !apierrors.IsForbidden(err) {
				t.Errorf("got error %v, want Forbidden", err)
			}
			if all := takeEvents(recorder); len(all) != 1 || !strings.Contains(all[0], v1alpha1.VolumeReasonRestored) {
				t.Errorf("got events %q, want one restore, and no batch", all)
			}
		})
	}
}
