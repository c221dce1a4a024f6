package trial

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

// bench is a reconciler with an API server, on which others write too.
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
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.StorageClientNode{}).Build()
	return bench{&Reconciler{
		Client: c, Clock: clock, ManagerNamespace: v1alpha1.ManagerNamespace, AgentNamespace: v1alpha1.AgentNamespace, Results: &Results{},
	}, t, clock}
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
		t.Error("before the first pass nothing would wait for a probe")
	}
	b.pass()
	if b.node().Labels[v1alpha1.TrialLabel] != v1alpha1.True {
		t.Fatalf("labels are %v", b.node().Labels)
	}
	b.pass()
	if b.clientNode().Spec.Trial != nil {
		t.Fatal("an order without a trial runner")
	}
	if err := b.Create(t.Context(), pod(component)); err != nil {
		t.Fatal(err)
	}
	b.pass()
	clientNode := b.clientNode()
	order := clientNode.Spec.Trial
	if order == nil || order.Server != "filer" || order.Path != "/data" || order.Volume != "pv1" {
		t.Fatalf("order is %+v", order)
	}
	clientNode.Status.Trial = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: true, Transports: 4}
	if err := b.Status().Update(t.Context(), clientNode); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if b.clientNode().Spec.Trial != nil {
		t.Error("the order is still there")
	}
	results := b.Results.All()
	if len(results) != 1 {
		t.Fatalf("results are %v", results)
	}
	for key, probe := range results {
		if key.Server != "filer" || probe.Verdict != volumeplan.ProbeWorks {
			t.Errorf("%+v: %+v", key, probe)
		}
	}
	b.pass()
	if _, labelled := b.node().Labels[v1alpha1.TrialLabel]; labelled {
		t.Error("the label is still there")
	}
}

func TestANodeThatTheBudgetHoldsGetsNoTrial(t *testing.T) {
	budget := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, Data: map[string]string{"n1": "{}"}}
	b := newBench(t, append(cluster(), budget)...)
	for range 3 {
		b.pass()
	}
	if len(b.node().Labels) != 1 || len(b.Results.All()) > 0 {
		t.Errorf("labels are %v, results %v", b.node().Labels, b.Results.All())
	}
}

func TestPassesAreSpaced(t *testing.T) {
	b := newBench(t, cluster()...)
	b.pass()
	b.clock.Step(-passEvery / 2)
	result, err := b.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > passEvery {
		t.Errorf("result is %+v, %v", result, err)
	}
}

func TestTheNodeOfARunnerThatIsNotScheduledYet(t *testing.T) {
	p := pod(component)
	p.Spec.NodeName = ""
	if got := nodeOf(p); got != "" {
		t.Errorf("node is %q", got)
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}},
	}}}
	if got := nodeOf(p); got != "n1" {
		t.Errorf("node is %q", got)
	}
}
