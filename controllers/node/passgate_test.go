package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// TestWaitingNodesDoNotAllListNodes counts the passes that list all Nodes. The nodes have no agent, so no node may start. A written or
// removed node triggers one more evaluation of all nodes.
func TestWaitingNodesDoNotAllListNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	check.NoError(t, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	lists := 0
	build := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, nodes := list.(*corev1.NodeList); nodes {
				lists++
			}
			return c.List(ctx, list, options...)
		},
	})
	profile := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	profile.Spec.AllNodes = true
	profile.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}}
	view := fleet.NewProfileSet([]v1alpha1.StorageClientProfile{profile}, catalogue.AllowList{})
	var inputs []plan.Snapshot
	for _, name := range []string{"a", "b", "c"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", v1alpha1.ManagedLabel: v1alpha1.True}}}
		clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		clientNode.Spec.Settings, clientNode.Spec.Hash = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "p"}}, "old"
		build.WithObjects(node, clientNode)
		inputs = append(inputs, plan.Snapshot{Node: node, ClientNode: clientNode, Profiles: view, Desired: view.Desired(node, clientNode)})
	}
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	r := &Reconciler{Client: build.Build(), Clock: clock}
	ask := func() {
		t.Helper()
		for _, in := range inputs {
			got, err := r.passGate(t.Context(), in, plan.Write{Gated: true})
			if stay, stays := got.(plan.Stay); err != nil || !stays || stay.Note == "" {
				t.Fatalf("%s: got step %#v, %v; want the node to wait", in.Node.Name, got, err)
			}
		}
	}
	for _, step := range []plan.Step{plan.Stay{Note: "Paused"}, plan.None{}, plan.Remove{}} {
		if got, err := r.passGate(t.Context(), inputs[0], step); got != step || err != nil || lists != 0 {
			t.Errorf("%s: got %#v, %v, after %d lists; want no use of the gate", step, got, err, lists)
		}
	}
	ask()
	if lists != 1 {
		t.Errorf("got all Nodes listed %d times by three nodes, want once", lists)
	}
	clock.Step(plan.VerdictAge)
	ask()
	if lists != 2 {
		t.Errorf("got all Nodes listed %d times after one more second, want twice", lists)
	}
	for _, test := range []struct {
		step plan.Step
		want int
	}{{plan.Stay{}, 0}, {plan.Write{Spec: inputs[0].ClientNode.Spec}, 1}, {plan.Remove{}, 1}} {
		a := &inputs[0]
		check.NoError(t, errors.Join(r.Get(t.Context(), client.ObjectKeyFromObject(a.Node), a.Node), r.Get(t.Context(), client.ObjectKeyFromObject(a.Node), a.ClientNode)))
		ask()
		before := lists
		check.NoError(t, r.apply(t.Context(), a, test.step, &loop.Outcome{}))
		if ask(); lists-before != test.want {
			t.Errorf("after %s: got all Nodes listed %d times, want %d", test.step, lists-before, test.want)
		}
	}
}
