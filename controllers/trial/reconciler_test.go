package trial

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/trial/plan"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

// bench is a reconciler with an API server, to which other clients write too.
type bench struct {
	*Reconciler
	t     *testing.T
	clock *testingclock.FakeClock
}

func newBench(t *testing.T, objects ...client.Object) bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.StorageClientNode{}, &v1alpha1.StorageClientTrial{}).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			expectNoWaitFor(t, object, (&client.CreateOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency)
			object.SetCreationTimestamp(metav1.NewTime(clock.Now()))
			return c.Create(ctx, object, options...)
		}, Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			expectNoWaitFor(t, object, (&client.DeleteOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency)
			return c.Delete(ctx, object, options...)
		}}).Build()
	return bench{&Reconciler{
		Client: c, APIReader: c, Clock: clock, Results: &Results{Clock: clock},
	}, t, clock}
}

// expectNoWaitFor fails if later reads would wait until the cache has seen a write in the namespace of clones. The manager does
// not cache this namespace, so those reads would never return.
func expectNoWaitFor(t *testing.T, object client.Object, waitsNot bool) {
	t.Helper()
	if _, isEvent := object.(*corev1.Event); !isEvent && object.GetNamespace() == v1alpha1.TrialNamespace && !waitsNot {
		t.Errorf("reads wait for %T %s, which is not in the cache, and never return", object, object.GetName())
	}
}

func (b bench) pass() {
	b.t.Helper()
	if _, err := b.Reconcile(b.t.Context(), reconcile.Request{}); err != nil {
		b.t.Fatal(err)
	}
	b.clock.Step(passEvery)
}

func (b bench) node() *corev1.Node {
	b.t.Helper()
	var node corev1.Node
	if err := b.Get(b.t.Context(), client.ObjectKey{Name: "n1"}, &node); err != nil {
		b.t.Fatal(err)
	}
	return &node
}

func (b bench) clientNode() *v1alpha1.StorageClientNode {
	b.t.Helper()
	var clientNode v1alpha1.StorageClientNode
	if err := b.Get(b.t.Context(), client.ObjectKey{Name: "n1"}, &clientNode); err != nil {
		b.t.Fatal(err)
	}
	return &clientNode
}

func pod(component string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.AgentNamespace, Name: component + "-n1", Labels: map[string]string{agentpod.ComponentLabel: component},
	}}
	p.Spec.NodeName = "n1"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func cluster() []client.Object {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	node.Status.NodeInfo.BootID = "boot-1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}},
	}}
	clientNode.Status.BootID = "boot-1"
	profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	profile.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelOSStable: "linux"}
	profile.Spec.Volumes = []v1alpha1.VolumeRule{{
		Name: "r", MountOptions: []v1alpha1.MountOption{"nconnect=4"},
		Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}},
	}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/data"}
	pv.Spec.MountOptions = []string{"nfsvers=4.1"}
	return []client.Object{node, clientNode, profile, pv, pod(agentpod.Component)}
}

func TestAProbeThroughTheAPI(t *testing.T) {
	b := newBench(t, cluster()...)
	if b.Results.All() == nil {
		t.Error("got no results before the first pass, want an empty map, so that consumers wait for a probe")
	}
	b.pass()
	if b.node().Labels[v1alpha1.TrialLabel] != v1alpha1.True {
		t.Fatalf("got labels %v, want the trial label", b.node().Labels)
	}
	b.pass()
	if b.clientNode().Spec.Trial != nil {
		t.Fatal("got an order before the trial runner, want none")
	}
	if err := b.Create(t.Context(), pod(component)); err != nil {
		t.Fatal(err)
	}
	b.pass()
	clientNode := b.clientNode()
	order := clientNode.Spec.Trial
	if order == nil || order.Server != "filer" || order.Path != "/data" || order.Volume != "pv1" {
		t.Fatalf("got order %+v, want filer:/data of pv1", order)
	}
	clientNode.Status.Trial = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: true, Transports: 4}
	if err := b.Status().Update(t.Context(), clientNode); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if b.clientNode().Spec.Trial != nil {
		t.Error("got an order after the response, want none")
	}
	b.pass()
	results := b.Results.All()
	if len(results) != 1 {
		t.Fatalf("got results %v, want one", results)
	}
	for key, probe := range results {
		if key.Server != "filer" || !strings.Contains(probe.Text, "has mounted filer:/data") || !strings.Contains(probe.Text, "no other node") {
			t.Errorf("got %+v: %+v, want a working probe of filer on the only node", key, probe)
		}
	}
	b.pass()
	if _, labelled := b.node().Labels[v1alpha1.TrialLabel]; labelled {
		t.Error("got the trial label after the result, want none")
	}
}

// If passes fail, options continue without a probe after a while, and the reason is known.
func TestProbesThatCannotBeMadeDelayNothingForEver(t *testing.T) {
	noRead := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the namespace is closed")
	}}
	noOrder := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if _, isOrder := o.(*v1alpha1.StorageClientNode); isOrder {
			return errors.New("the namespace is closed")
		}
		return c.Patch(ctx, o, p, options...)
	}}
	for name, test := range map[string]struct {
		fails interceptor.Funcs
		runs  bool
		want  string
	}{
		"nothing can be read":     {noRead, true, "the namespace is closed"},
		"no order can be written": {noOrder, true, "the namespace is closed"},
		"no pass ever runs":       {interceptor.Funcs{}, false, "no pass has finished"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, append(cluster(), pod(component))...)
			b.Client = interceptor.NewClient(b.Client.(client.WithWatch), test.fails)
			for start := b.clock.Now(); b.clock.Now().Before(start.Add(2 * time.Hour)); b.clock.Step(time.Minute) {
				if len(b.Results.All()) > 0 && b.clock.Now().Before(start.Add(30*time.Minute)) {
					t.Fatalf("got results %v after %s, want a wait", b.Results.All(), b.clock.Since(start))
				}
				if test.runs {
					_, _ = b.Reconcile(t.Context(), reconcile.Request{})
				}
			}
			got := b.Results.All()
			if len(got) != 1 {
				t.Fatalf("got results %v after two hours, want one", got)
			}
			for _, probe := range got {
				if probe.Verdict != optionset.ProbeInconclusive || !strings.Contains(probe.Text, test.want) {
					t.Errorf("got %+v, want Unknown with %q", probe, test.want)
				}
			}
		})
	}
}

// A pass may fail before any reader requests results.
func TestAFailureBeforeTheFirstReaderIsNamed(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	r := &Results{Clock: clock}
	r.fail(errors.New("the namespace is closed"))
	if got := r.All(); len(got) > 0 {
		t.Errorf("got results %v at once", got)
	}
	clock.Step(maxSilence + time.Second)
	if got := r.All()[volumeplan.AnySet]; !strings.Contains(got.Text, "the namespace is closed") {
		t.Errorf("got %+v, want the failure", got)
	}
}

// A later probe must not name a write that has nothing to do with it.
func TestAFailedWriteIsNamedOnlyUntilTheNextPass(t *testing.T) {
	b := newBench(t, cluster()...)
	working := b.Client
	b.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("the node is locked")
		},
	})
	if _, err := b.Reconcile(t.Context(), reconcile.Request{}); err == nil || b.failure != err.Error() {
		t.Fatalf("got error %v, and failure %q", err, b.failure)
	}
	b.clock.Step(passEvery)
	b.Client = working
	if err := b.Delete(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if b.failure != "" {
		t.Errorf("got failure %q after a pass without writes", b.failure)
	}
}

func TestAClaimedNodeGetsNoTrial(t *testing.T) {
	budget := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, Data: map[string]string{"n1": "{}"}}
	b := newBench(t, append(cluster(), budget)...)
	for range 3 {
		b.pass()
	}
	if len(b.node().Labels) != 1 || len(b.Results.All()) > 0 {
		t.Errorf("got labels %v, results %v; want no trial", b.node().Labels, b.Results.All())
	}
}

func TestPassesAreSpaced(t *testing.T) {
	b := newBench(t, cluster()...)
	b.pass()
	b.clock.Step(-passEvery / 2)
	result, err := b.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > passEvery {
		t.Errorf("got %+v, %v; want a requeue within %s", result, err, passEvery)
	}
}

func TestTheNodeOfARunnerThatIsNotScheduledYet(t *testing.T) {
	p := pod(component)
	p.Spec.NodeName = ""
	if got := nodeOf(p); got != "" {
		t.Errorf("got node %q, want none", got)
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}},
	}}}
	if got := nodeOf(p); got != "n1" {
		t.Errorf("got node %q, want n1", got)
	}
}

// share changes the volume to SMB, and the profile's rule to match it.
func share(objects []client.Object) []client.Object {
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.StorageClientProfile:
			o.Spec.Volumes[0].Selector.Protocols, o.Spec.Volumes[0].MountOptions = []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}, []v1alpha1.MountOption{"actimeo=30"}
		case *corev1.PersistentVolume:
			o.Spec.NFS, o.Spec.MountOptions = nil, []string{"vers=3.0"}
			o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeHandle: "h", VolumeAttributes: map[string]string{"source": "//filer/share"}}
		}
	}
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ClonesConfigMap}}
	list.Data = map[string]string{"smb.csi.k8s.io": ""}
	return append([]client.Object{list}, objects...)
}

// clone returns the current clone from the API server. Missing objects are nil.
func (b bench) clone() (pv *corev1.PersistentVolume, volumeClaim *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	b.t.Helper()
	var volumes corev1.PersistentVolumeList
	if err := b.List(b.t.Context(), &volumes, client.HasLabels{v1alpha1.TrialLabel}); err != nil {
		b.t.Fatal(err)
	}
	if len(volumes.Items) == 0 {
		return nil, nil, nil
	}
	pv, volumeClaim, pod = &volumes.Items[0], &corev1.PersistentVolumeClaim{}, &corev1.Pod{}
	key := client.ObjectKey{Namespace: v1alpha1.TrialNamespace, Name: pv.Name}
	if err := b.Get(b.t.Context(), key, volumeClaim); err != nil {
		volumeClaim = nil
	}
	if err := b.Get(b.t.Context(), key, pod); err != nil {
		pod = nil
	}
	return pv, volumeClaim, pod
}

// bind binds a claim, as the control plane does.
func (b bench) bind(volumeClaim *corev1.PersistentVolumeClaim) {
	b.t.Helper()
	volumeClaim.Status.Phase = corev1.ClaimBound
	if err := b.Status().Update(b.t.Context(), volumeClaim); err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) verdict() volumeplan.Probe {
	for _, probe := range b.Results.All() {
		return probe
	}
	return volumeplan.Probe{}
}

func TestACloneThroughTheAPI(t *testing.T) {
	const refused = `MountVolume.MountDevice failed for volume "x" : mount error(22): Invalid argument`
	for name, rejects := range map[string]bool{"the driver mounts it": false, "the driver refuses it": true} {
		t.Run(name, func(t *testing.T) {
			agent := pod(agentpod.Component)
			agent.Spec.Containers = []corev1.Container{{Name: "node-agent", Image: "registry/node-agent:1"}}
			agent.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			objects := share(cluster())
			b := newBench(t, append(objects[:len(objects)-1], agent)...)
			b.pass()
			_, volumeClaim, made := b.clone()
			if volumeClaim == nil || made != nil {
				t.Fatalf("got claim %v, Pod %v; want the claim only", volumeClaim, made)
			}
			b.pass()
			if _, _, made = b.clone(); made != nil {
				t.Fatal("got a Pod before its claim is bound, want none")
			}
			b.bind(volumeClaim)
			b.pass()
			pv, _, made := b.clone()
			if made == nil || made.Spec.NodeName != "n1" || made.Spec.Containers[0].Image != "registry/node-agent:1" ||
				!slices.Equal(made.Spec.ImagePullSecrets, agent.Spec.ImagePullSecrets) {
				t.Fatalf("got Pod %+v, want one on n1 with the agent's image and pull secrets", made)
			}
			b.pass()
			if rejects {
				b.reportFailedMount(made, "somebody", "n1", refused)
				b.reportFailedMount(made, kubelet, "n2", refused)
				b.pass()
				if _, _, remaining := b.clone(); remaining == nil {
					t.Error("the clone failed because of an event from another component or node")
				}
				b.reportFailedMount(made, kubelet, "n1", refused)
				b.pass()
				if left, _, _ := b.clone(); left != nil {
					t.Fatal("the failed clone remains")
				}
				b.pass()
				if pv, volumeClaim, _ = b.clone(); pv == nil || len(pv.Spec.MountOptions) != 1 {
					t.Fatalf("got %+v, want a clone with the original mount options", pv)
				}
				b.bind(volumeClaim)
				b.pass()
				_, _, made = b.clone()
			}
			made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if err := b.Status().Update(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			clientNode := b.clientNode()
			clientNode.Status.Mounts = []v1alpha1.MountStatus{{Volume: pv.Name, Server: "filer", Protocol: "SMB3.0", Options: []string{"acregmax=30", "acdirmax=30"}, Connections: 1}}
			if err := b.Status().Update(t.Context(), clientNode); err != nil {
				t.Fatal(err)
			}
			b.pass()
			b.pass()
			// No other node confirms it.
			want := optionset.ProbeInconclusive
			if rejects {
				want = optionset.ProbeRefused
			}
			if got := b.verdict(); got.Verdict != want {
				t.Errorf("got verdict %+v, want %s", got, want)
			}
			b.pass()
			if left, _, _ := b.clone(); left != nil {
				t.Error("the clone remains")
			}
		})
	}
}

// reportFailedMount creates an event of a failed mount.
func (b bench) reportFailedMount(pod *corev1.Pod, component, host, message string) {
	b.t.Helper()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: component + host}, Reason: failedMountReason, Message: message,
		Source: corev1.EventSource{Component: component, Host: host}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if err := b.Create(b.t.Context(), event); err != nil {
		b.t.Fatal(err)
	}
}

// Without the administrator's list, the manager creates no objects, and reports the component.
func TestWithoutAListThereIsNoClone(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		text    func(bench) string
	}{
		"a probe": {share(cluster()), func(b bench) string { return string(b.verdict().Verdict) + " " + b.verdict().Text }},
		"a trial": {claimed(share(cluster())), func(b bench) string {
			for _, c := range b.trial().Status.Conditions {
				if c.Type == v1alpha1.TrialConditionFailed {
					return string(c.Status) + " " + c.Reason + " " + c.Message
				}
			}
			return ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.objects[1:]...)
			b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					t.Errorf("requested %T %s", object, object.GetName())
					return nil
				},
			})
			for range 4 {
				b.pass()
			}
			if got := test.text(b); !strings.Contains(got, "clones need config/components/clones and ConfigMap storage-client-clones") ||
				!strings.HasPrefix(got, "ProbeInconclusive") && !strings.HasPrefix(got, "True NotPossible") {
				t.Errorf("got %q, want the component", got)
			}
		})
	}
}

// The Pod of a clone gets the tolerations of a pod with the volume's claim, except tolerations of every taint.
func TestTolerationsOfTheClaimsPods(t *testing.T) {
	uses := func(name, claim string, tolerations ...corev1.Toleration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: name}}
		p.Spec.Tolerations = tolerations
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		return p
	}
	dedicated := corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want []corev1.Toleration
	}{
		"a pod of the claim": {uses("a", "data", dedicated), []corev1.Toleration{dedicated}},
		"a pod of the claim tolerates every taint as well":     {uses("a", "data", corev1.Toleration{Operator: corev1.TolerationOpExists}, dedicated), []corev1.Toleration{dedicated}},
		"a pod of another claim":                               {uses("a", "other", dedicated), nil},
		"a pod of a claim with this name in another namespace": {func() *corev1.Pod { p := uses("a", "data", dedicated); p.Namespace = "hpc"; return p }(), nil},
	} {
		for kind, objects := range map[string][]client.Object{"a trial": claimed(share(cluster())), "a probe": probed(claimed(share(cluster())))} {
			t.Run(kind+" with "+name, func(t *testing.T) {
				b := newBench(t, append(objects, test.pod.DeepCopy())...)
				node := b.node()
				node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
				if err := b.Update(t.Context(), node); err != nil {
					t.Fatal(err)
				}
				var made *corev1.Pod
				for range 20 {
					b.pass()
					b.playNode()
					if _, _, pod := b.clone(); pod != nil {
						made = pod
					}
				}
				if (made == nil) != (test.want == nil) {
					t.Fatalf("got Pod %v, want tolerations %v", made, test.want)
				}
				if made != nil {
					if diff := cmp.Diff(test.want, made.Spec.Tolerations); diff != "" {
						t.Errorf("tolerations (-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}

// probed returns the objects of claimed without the trial. The volume's options wait for a probe.
func probed(objects []client.Object) []client.Object {
	for _, object := range objects {
		if profile, isProfile := object.(*v1alpha1.StorageClientProfile); isProfile {
			profile.Spec.Mode = ""
		}
	}
	return objects[:len(objects)-1]
}

// An admission controller rejects the clone. The rejection is reported, and the request is not repeated.
func TestARejectedCloneIsReported(t *testing.T) {
	b := newBench(t, share(cluster())...)
	requests := 0
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			requests++
			return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), object.GetName(), errors.New("not here"))
		},
	})
	for range 4 {
		b.pass()
	}
	if got := b.verdict(); got.Verdict != optionset.ProbeInconclusive || !strings.Contains(got.Text, "the API server rejected a clone of pv1: ") || !strings.Contains(got.Text, "not here") {
		t.Errorf("got verdict %+v, want Unknown with the rejection", got)
	}
	if requests != 1 {
		t.Errorf("got %d requests, want one", requests)
	}
}

func TestARequestForASampleIsWrittenAndRemoved(t *testing.T) {
	b := newBench(t, cluster()...)
	for _, want := range []*v1alpha1.NodeSample{{ID: "a", Seconds: 60, Volumes: []string{"pv1"}}, nil} {
		step := plan.SetSample{Node: plan.Node{Node: b.node(), ClientNode: b.clientNode()}, Sample: want}
		if err := b.applyStep(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.clientNode().Spec.Sample); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step, diff)
		}
	}
}
