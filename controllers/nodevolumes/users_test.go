package nodevolumes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/test/check"
)

// reportingNode returns a node of an age in hours, whose agent reports mounts of volumes with 128 KiB.
func reportingNode(name string, age int, volumes ...string) []client.Object {
	created := metav1.NewTime(time.Date(2026, 11, 21, 12-age, 0, 0, 0, time.UTC))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: created, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	node.Status.NodeInfo.BootID = "b"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{UID: node.UID}}}}
	clientNode.Status.BootID = "b"
	for _, v := range volumes {
		clientNode.Status.Mounts = append(clientNode.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/" + v, Volume: v, Protocol: "NFSv4.1", ReadAheadKiB: 128})
	}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.AgentNamespace, Name: name, Labels: map[string]string{agentpod.ComponentLabel: agentpod.Component},
	}}
	agent.Spec.NodeName = name
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return []client.Object{node, clientNode, agent}
}

// claimedVolume returns an NFS volume of the claim with its name in the namespace eda.
func claimedVolume(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/" + name}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: name}
	pv.Status.Phase = corev1.VolumeBound
	return pv
}

func podWith(namespace, name, node, claim string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	pod.Spec.NodeName = node
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	pod.Status.Phase = corev1.PodRunning
	for _, c := range change {
		c(pod)
	}
	return pod
}

// The oldest node reports a mount of a volume. It is the canary only if the API server shows a pod of the volume's claim on it.
func TestANodesWordNeedsAPod(t *testing.T) {
	honest := podWith("eda", "honest", "young", "v")
	for name, test := range map[string]struct {
		pods []client.Object
		want []string
	}{
		"no pod":                        {[]client.Object{honest}, []string{"young"}},
		"a pod of the claim":            {[]client.Object{honest, podWith("eda", "x", "old", "v")}, []string{"old"}},
		"a pod of another claim":        {[]client.Object{honest, podWith("eda", "x", "old", "w")}, []string{"young"}},
		"a claim in another namespace":  {[]client.Object{honest, podWith("web", "x", "old", "v")}, []string{"young"}},
		"a pod that is not scheduled":   {[]client.Object{honest, podWith("eda", "x", "", "v")}, []string{"young"}},
		"a pod that has completed":      {[]client.Object{honest, podWith("eda", "x", "old", "v", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, []string{"young"}},
		"no pod of the claim anywhere":  {nil, nil},
		"a pod on a node with no mount": {[]client.Object{podWith("eda", "x", "idle", "v")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, lists := newReconciler(t, slices.Concat(reportingNode("old", 9, "v"), reportingNode("young", 1, "v"), reportingNode("idle", 5), test.pods,
				[]client.Object{claimedVolume("v"), readAheadProfile()}))
			check.Equal(t, "nodes with the read-ahead", test.want, r.passAndList(t), cmpopts.EquateEmpty())
			for _, node := range []string{"old", "young"} {
				_, mayGet := r.Waits("p")
				if got, want := mayGet("v", node), slices.ContainsFunc(test.pods, func(o client.Object) bool {
					p := o.(*corev1.Pod)
					return p.Namespace == "eda" && p.Spec.NodeName == node && p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName == "v" && p.Status.Phase == corev1.PodRunning
				}); got != want {
					t.Errorf("%s may get the read-ahead: got %v", node, got)
				}
			}
			r.clock.Step(passEvery)
			result, err := r.Reconcile(t.Context(), reconcile.Request{})
			if _, mayGet := r.Waits("p"); err != nil || !(mayGet("v", "old") && mayGet("v", "young")) && result.RequeueAfter != podsEvery {
				t.Errorf("got result %v, error %v, want a pass after %s", result, err, podsEvery)
			}
			for range 20 {
				r.clock.Step(passEvery)
				r.passAndList(t)
			}
			if *lists > 5 {
				t.Errorf("got %d lists of pods in 40 seconds, want one in ten seconds", *lists)
			}
		})
	}
}

// A volume without a claim must not cause a list of all pods of the cluster.
func TestAVolumeWithoutAClaimCausesNoList(t *testing.T) {
	pv := claimedVolume("v")
	pv.Spec.ClaimRef = nil
	r, lists := newReconciler(t, append(reportingNode("old", 9, "v"), pv, readAheadProfile()))
	if got := r.passAndList(t); got != nil || *lists != 0 {
		t.Errorf("got nodes %v with the read-ahead and %d lists of pods, want none", got, *lists)
	}
}

// A failed list of pods in one namespace delays only the read-ahead of its volumes. All nodes get their lists, and other namespaces their read-ahead.
func TestAFailedListOfPodsDelaysOnlyItsVolumes(t *testing.T) {
	web := claimedVolume("w")
	web.Spec.ClaimRef.Namespace = "web"
	optioned := readAheadProfile()
	optioned.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nconnect=4"}
	r, lists := newReconciler(t, slices.Concat(reportingNode("a", 9, "w"), reportingNode("b", 1, "v"), []client.Object{
		podWith("web", "x", "a", "w"), podWith("eda", "y", "b", "v"), claimedVolume("v"), web, optioned,
	}))
	isDown := true
	r.APIReader = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if (&client.ListOptions{}).ApplyOptions(opts).Namespace == "web" && isDown {
				*lists++
				return errors.New("no answer")
			}
			return c.List(ctx, list, opts...)
		},
	})
	check.Equal(t, "nodes with the read-ahead in the outage", []string{"b"}, r.passAndList(t))
	var a v1alpha1.StorageClientNode
	if err := r.Get(t.Context(), client.ObjectKey{Name: "a"}, &a); err != nil || len(a.Spec.Volumes) != 1 || a.Spec.Volumes[0].ReadAheadKiB != nil {
		t.Errorf("got list %v, error %v, want the volume of a without its read-ahead", a.Spec.Volumes, err)
	}
	for range 4 {
		r.clock.Step(passEvery)
		if result, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil || result.RequeueAfter != podsEvery || *lists != 2 {
			t.Errorf("got result %v, error %v and %d lists of pods, want a next pass after %s and two lists", result, err, *lists, podsEvery)
		}
		if _, mayGet := r.Waits("p"); !mayGet("w", "a") {
			t.Error("a may not get the read-ahead, although its pods are unknown: Ready would be True")
		}
	}
	isDown = false
	r.clock.Step(podsEvery)
	r.passAndList(t)
	if _, mayGet := r.Waits("p"); !mayGet("w", "a") || mayGet("w", "b") {
		t.Error("got other users of w after the outage, want a")
	}
}

func readAheadProfile() *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.AllNodes = true
	p.Spec.Volumes = []v1alpha1.VolumeRule{{
		Name: "r", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, ReadAheadKiB: ptr.To[int32](1024),
	}}
	return p
}

type reconcilerUnderTest struct {
	*Reconciler
	clock *testclock.FakeClock
}

func newReconciler(t *testing.T, objects []client.Object) (reconcilerUnderTest, *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		check.NoError(t, add(scheme))
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace}})
	for _, o := range objects {
		o.SetResourceVersion("")
	}
	lists := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			options := (&client.ListOptions{}).ApplyOptions(opts)
			if _, ok := list.(*corev1.PodList); ok && options.Namespace != v1alpha1.AgentNamespace {
				lists++
				if options.Namespace == "" {
					return errors.New("list of the pods of all namespaces")
				}
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	clock := testclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	return reconcilerUnderTest{&Reconciler{Client: c, Clock: clock}, clock}, &lists
}

// passAndList runs a pass and returns the nodes whose list has a read-ahead.
func (r reconcilerUnderTest) passAndList(t *testing.T) (names []string) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	var nodes v1alpha1.StorageClientNodeList
	check.NoError(t, r.List(t.Context(), &nodes))
	for i := range nodes.Items {
		if slices.ContainsFunc(nodes.Items[i].Spec.Volumes, func(v v1alpha1.NodeVolume) bool { return v.ReadAheadKiB != nil }) {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names
}
