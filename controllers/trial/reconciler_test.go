package trial

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	"github.com/storageclient/operator/test/check"
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
	check.NoError(t, errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.StorageClientNode{}, &v1alpha1.StorageClientTrial{}).Build()
	return bench{&Reconciler{Client: c, Clock: clock, Results: &Results{Clock: clock}}, t, clock}
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
	check.NoError(t, b.Create(t.Context(), pod(component)))
	b.pass()
	clientNode := b.clientNode()
	order := clientNode.Spec.Trial
	if order == nil || order.Server != "filer" || order.Path != "/data" || order.Volume != "pv1" {
		t.Fatalf("got order %+v, want filer:/data of pv1", order)
	}
	clientNode.Status.Trial = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: true, Transports: 4}
	check.NoError(t, b.Status().Update(t.Context(), clientNode))
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
	check.NoError(t, b.Delete(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}))
	b.pass()
	check.Equal(t, "failure of a pass without writes", "", b.failure)
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
	check.Equal(t, "node", "", nodeOf(p))
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}},
	}}}
	check.Equal(t, "node", "n1", nodeOf(p))
}

// A volume of SMB has no probe. The result names the reason, and no node changes.
func TestASetOfSMBIsNotProbed(t *testing.T) {
	objects := cluster()
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.StorageClientProfile:
			o.Spec.Volumes[0].Selector.Protocols = []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}
			o.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"actimeo=30"}
		case *corev1.PersistentVolume:
			o.Spec.NFS, o.Spec.MountOptions = nil, []string{"vers=3.0"}
			o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeHandle: "h", VolumeAttributes: map[string]string{"source": "//filer/share"}}
		}
	}
	b := newBench(t, objects...)
	for range 4 {
		b.pass()
	}
	results := b.Results.All()
	if len(results) != 1 || len(b.node().Labels) != 1 || b.clientNode().Spec.Trial != nil {
		t.Errorf("got results %v, labels %v, order %v; want one result and no write", results, b.node().Labels, b.clientNode().Spec.Trial)
	}
	for _, probe := range results {
		if probe.Verdict != optionset.ProbeInconclusive || probe.Text != "only NFS can be mounted in a separate network namespace" {
			t.Errorf("got %+v, want no result with the reason", probe)
		}
	}
}

func TestARequestForASampleIsWrittenAndRemoved(t *testing.T) {
	b := newBench(t, cluster()...)
	for _, want := range []*v1alpha1.NodeSample{{ID: "a", Seconds: 60, Volumes: []string{"pv1"}}, nil} {
		step := plan.SetSample{Node: plan.Node{Node: b.node(), ClientNode: b.clientNode()}, Sample: want}
		check.NoError(t, b.applyStep(t.Context(), step))
		if diff := cmp.Diff(want, b.clientNode().Spec.Sample); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step, diff)
		}
	}
}
