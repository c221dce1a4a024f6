package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
)

// TestWorkersWriteToOneCluster returns many nodes to service at once. All of them share one ConfigMap, and no worker may
// overwrite the data of another.
func TestWorkersWriteToOneCluster(t *testing.T) {
	const nodes = 40
	var names []string
	claims := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}}
	claims.Data = map[string]string{"other": `{"profile":"eda"}`}
	objects := []client.Object{claims, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
		node.Spec.Unschedulable = true
		node.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"eda"}`}
		object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		object.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "p-" + node.Name}
		claims.Data[node.Name] = node.Annotations[v1alpha1.DisruptionAnnotation]
		names, objects = append(names, node.Name), append(objects, node, object)
	}
	p := passOf(t, objects...)
	if _, err := p.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.session = plan.NewSession(snapshotOf("new"))
	var steps []plan.Step
	for _, name := range names {
		on := plan.OnNode{Node: name}
		p.notes[name] = v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate, Reason: v1alpha1.RolloutReasonNothingToDo}
		steps = append(steps, plan.Uncordon{OnNode: on, Reason: v1alpha1.RolloutReasonAccepted}, plan.ReleaseClaim{OnNode: on}, plan.ClearPermit{OnNode: on})
	}
	steps = append(steps, plan.AddClaim{OnNode: plan.OnNode{Node: "new"}, Claim: v1alpha1.Disruption{Profile: "eda"}})
	p.plan.Steps = steps
	p.applySteps(t.Context(), steps)
	p.applyClaims(t.Context())
	if len(p.out.Skipped()) > 0 {
		t.Fatalf("got skipped %v, want none", p.out.Skipped())
	}
	got := &corev1.ConfigMap{}
	check.NoError(t, p.Get(t.Context(), client.ObjectKeyFromObject(claims), got))
	var left []string
	for name := range got.Data {
		left = append(left, name)
	}
	slices.Sort(left)
	check.Equal(t, "claims", []string{"new", "other"}, left)
	for _, name := range names {
		node, object := &corev1.Node{}, &v1alpha1.StorageClientNode{}
		check.NoError(t, errors.Join(p.Get(t.Context(), client.ObjectKey{Name: name}, node), p.Get(t.Context(), client.ObjectKey{Name: name}, object)))
		if node.Spec.Unschedulable || object.Spec.RebootPermit != nil || object.Status.Rollout == nil {
			t.Errorf("%s: got unschedulable %t, permit %v, note %v", name, node.Spec.Unschedulable, object.Spec.RebootPermit, object.Status.Rollout)
		}
	}
}

// TestClaimsThatAreReleasedDuringAWriteAreOneWrite lets several releases wait for a write in progress.
func TestClaimsThatAreReleasedDuringAWriteAreOneWrite(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	for name, overtaken := range map[string]bool{"all are given up": false, "or none, where somebody else was faster": true} {
		t.Run(name, func(t *testing.T) {
			claims := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, Data: map[string]string{}}
			for _, name := range names {
				claims.Data[name] = `{"profile":"eda"}`
			}
			s := passOf(t, claims)
			if _, err := s.readSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := s.claims.DeepCopy()
			if overtaken {
				before.Data["other"] = `{"profile":"eda"}`
				check.NoError(t, s.Update(t.Context(), before))
			}
			began, proceed := make(chan struct{}), make(chan struct{})
			go func() {
				_, _ = s.changes.Do(nil, func([][]claimChange) (struct{}, error) {
					close(began)
					<-proceed
					return struct{}{}, nil
				})
			}()
			<-began
			failed := make(chan error, len(names))
			for _, name := range names {
				go func() { failed <- s.changeClaims(t.Context(), claimChange{node: name}) }()
			}
			for s.changes.Waiting() < len(names) {
				time.Sleep(time.Millisecond)
			}
			close(proceed)
			for range names {
				if err := <-failed; apierrors.IsConflict(err) != overtaken || (err != nil) != overtaken {
					t.Errorf("got error %v, want a conflict: %t", err, overtaken)
				}
			}
			got := &corev1.ConfigMap{}
			check.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(claims), got))
			first, err := strconv.Atoi(before.ResourceVersion)
			check.NoError(t, err)
			writes := 1
			if overtaken {
				writes = 0
			}
			if got.ResourceVersion != strconv.Itoa(first+writes) || len(got.Data) != len(before.Data)*(1-writes) {
				t.Errorf("got versions %s to %s, data %v; want %d write", before.ResourceVersion, got.ResourceVersion, got.Data, writes)
			}
		})
	}
}

func passOf(t *testing.T, objects ...client.Object) *pass {
	t.Helper()
	scheme := runtime.NewScheme()
	check.NoError(t, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&corev1.Node{}, &v1alpha1.StorageClientNode{}).Build()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return newPass(&Reconciler{
		Drains: drain.NewRunner(c, c, func() time.Time { return now }),
		Client: c, APIReader: c, Recorder: events.NewFakeRecorder(1000), Clock: testingclock.NewFakePassiveClock(now),
	})
}

// snapshotOf returns a snapshot of nodes for which no profile declares settings.
func snapshotOf(nodes ...string) plan.Snapshot {
	var out plan.Snapshot
	for _, name := range nodes {
		out.Nodes = append(out.Nodes, plan.Node{Name: name, ClientNode: &plan.ClientNode{}})
	}
	return out
}

// The API server rejects two writes with a conflict: the permit of node b and the cordon of node d.
func TestANodesStepsAreAppliedInOrderUntilOneFails(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	var objects []client.Object
	var steps []plan.Step
	for _, name := range names {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
		on := plan.OnNode{Node: name}
		steps = append(steps, plan.AddClaim{OnNode: on}, plan.Cordon{OnNode: on}, plan.Drain{OnNode: on, AfterCordon: true},
			plan.GivePermit{OnNode: on}, plan.Uncordon{OnNode: on})
	}
	p := passOf(t, objects...)
	if _, err := p.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.session = plan.NewSession(snapshotOf(names...))
	var mutex sync.Mutex
	applied := map[string][]string{}
	p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			what := "permit"
			if node, ok := object.(*corev1.Node); ok {
				what = fmt.Sprintf("cordon %t", node.Spec.Unschedulable)
			}
			mutex.Lock()
			applied[object.GetName()] = append(applied[object.GetName()], what)
			mutex.Unlock()
			if slices.Contains([]string{"permit of b", "cordon true of d"}, what+" of "+object.GetName()) {
				return apierrors.NewConflict(corev1.Resource("things"), object.GetName(), nil)
			}
			return c.Patch(ctx, object, patch, opts...)
		},
	})
	p.plan.Steps = steps
	p.applySteps(t.Context(), steps)
	p.applyClaims(t.Context())
	want := map[string][]string{
		"a": {"cordon true", "permit", "cordon false"}, "b": {"cordon true", "permit"}, "c": {"cordon true", "permit", "cordon false"}, "d": {"cordon true"},
	}
	check.Equal(t, "applied", want, applied)
	if drained := sets.KeySet(p.inspected); !drained.Equal(sets.New("a", "b", "c")) {
		t.Errorf("got drains of %v, want a, b and c", sets.List(drained))
	}
	if claimed := sets.KeySet(p.claims.Data); !claimed.Equal(sets.New("a", "c")) {
		t.Errorf("got claims of %v, want a and c", sets.List(claimed))
	}
	if skipped := sets.KeySet(p.out.Skipped()); !skipped.Equal(sets.New("b", "d")) || p.out.Err() != nil {
		t.Errorf("got skipped %v, error %v; want b and d skipped until the next pass", skipped, p.out.Err())
	}
}

// The API server denies all writes but the withdrawal of a permit. A step before the clearing of a used permit records facts that only the permit
// contains otherwise. A node that was not read live may be another one by now.
func TestOnlyAWithdrawalIsAppliedAfterAFailedRecord(t *testing.T) {
	on := plan.OnNode{Node: "a"}
	withdrawal, uncordon := plan.ClearPermit{OnNode: on}, plan.Uncordon{OnNode: on}
	for name, test := range map[string]struct {
		live      string
		isSkipped bool
		steps     []plan.Step
		want      []string
	}{
		"a withdrawal":                 {live: "a", isSkipped: true, steps: []plan.Step{withdrawal, uncordon}, want: []string{"clears"}},
		"of a node read long ago":      {live: "b", steps: []plan.Step{withdrawal, uncordon}},
		"a permit cleared at last":     {live: "a", isSkipped: true, steps: []plan.Step{uncordon, withdrawal}},
		"after a step that was denied": {live: "a", steps: []plan.Step{uncordon, withdrawal}, want: []string{"uncordons"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			node.Spec.Unschedulable = true
			clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			clientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "p"}
			p := passOf(t, node, clientNode)
			if _, err := p.readSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			var written []string
			p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if _, isNode := object.(*corev1.Node); isNode {
						written = append(written, "uncordons")
						return errors.New("denied")
					}
					written = append(written, "clears")
					return c.Patch(ctx, object, patch, opts...)
				},
			})
			p.live = sets.New(test.live)
			if test.isSkipped {
				p.out.Skip("a", nil)
			}
			p.applyChain(t.Context(), "a", test.steps)
			check.Equal(t, "writes", test.want, written)
		})
	}
}

// readerOfPods returns a reader with an index of pods by node.
func readerOfPods(t *testing.T, pods ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	check.NoError(t, errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme)))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(pods...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
}
