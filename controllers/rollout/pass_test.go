package rollout

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
)

// Nodes wait for the pass after a pass with steps.
func TestRestAfterAPass(t *testing.T) {
	for _, c := range []struct {
		gathered time.Duration
		stepping bool
		want     time.Duration
	}{
		{gathered: 50 * time.Millisecond, want: 500 * time.Millisecond},
		{gathered: time.Second, want: maxRest},
		{gathered: time.Second, stepping: true},
	} {
		if got := (&pass{readDuration: c.gathered, stepping: c.stepping}).restAfter(); got != c.want {
			t.Errorf("read in %s, stepping %t: got rest %s, want %s", c.gathered, c.stepping, got, c.want)
		}
	}
}

// The steps concern one control-plane node. The cached state of the others may be a second old.
func TestAllControlPlaneNodesAreReadTogether(t *testing.T) {
	session := plan.NewSession(plan.Snapshot{Nodes: []plan.Node{
		{Name: "cp-1", ControlPlane: true}, {Name: "worker-1"}, {Name: "cp-2", ControlPlane: true}, {Name: "worker-2"},
	}})
	for _, c := range []struct {
		step string
		read []string
	}{
		{"worker-1", []string{"worker-1"}},
		{"cp-1", []string{"cp-1", "cp-2"}},
	} {
		steps := []plan.Step{plan.Drain{OnNode: plan.OnNode{Node: c.step}}}
		p := &pass{session: session, plan: plan.Plan{Steps: steps}}
		if diff := cmp.Diff(c.read, sets.List(p.nodesToRead())); diff != "" {
			t.Errorf("for a step on %s (-want +got):\n%s", c.step, diff)
		}
	}
}

// Each change is a write or a read of a pass. The session that the pass updates with its news must equal a new session of the same objects.
func TestTheNewsOfAPassIsComplete(t *testing.T) {
	on := plan.OnNode{Node: "a"}
	apply := func(step plan.Step) func(context.Context, *pass) error {
		return func(ctx context.Context, p *pass) error { return p.applyStep(ctx, step) }
	}
	edit := func(object client.Object, change func()) func(context.Context, *pass) error {
		return func(ctx context.Context, p *pass) error {
			if err := p.Get(ctx, client.ObjectKey{Name: "a"}, object); err != nil {
				return err
			}
			change()
			err := p.Update(ctx, object)
			p.live = sets.New("a")
			return errors.Join(err, p.refreshNodes(ctx))
		}
	}
	node, profile := &corev1.Node{}, &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	for name, act := range map[string]func(context.Context, *pass) error{
		"a claim":            apply(plan.AddClaim{OnNode: on, Claim: v1alpha1.Disruption{Profile: "eda"}}),
		"a cordon":           apply(plan.Cordon{OnNode: on, Mark: v1alpha1.Disruption{Profile: "eda"}}),
		"guards are removed": apply(plan.RemoveGuards{OnNode: on}),
		"a maintenance":      apply(plan.SetMaintenance{OnNode: on, State: plan.MaintenanceDraining}),
		"a taint is removed": apply(plan.RemoveTaint{OnNode: on}),
		"a permit":           apply(plan.GivePermit{OnNode: on, Permit: v1alpha1.RebootPermit{ID: "id"}}),
		"a note": func(ctx context.Context, p *pass) error {
			return p.writeNote(ctx, "a", v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: "x"})
		},
		"failures": func(ctx context.Context, p *pass) error {
			return p.writeFailures(ctx, map[string]v1alpha1.ProfileFailures{"eda": lostNode("a")})
		},
		"an inspection": func(_ context.Context, p *pass) error {
			p.recordInspection("a", plan.DrainProgress{Gone: true})
			return nil
		},
		"a node is changed": edit(node, func() { node.Spec.Unschedulable = true }),
		"a node is deleted": func(ctx context.Context, p *pass) error {
			p.live = sets.New("a")
			return errors.Join(p.Delete(ctx, node), p.refreshNodes(ctx))
		},
		"a profile is added": func(ctx context.Context, p *pass) error {
			p.live = sets.New("b")
			return errors.Join(p.Create(ctx, profile.DeepCopy()), p.refreshNodes(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, name := range []string{"a", "b"} {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{v1alpha1.DisruptionGuardsAnnotation: "{}"}}}
				n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}}
				objects = append(objects, n, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "u"}}}})
			}
			node.Name = "a"
			p := passOf(t, objects...)
			p.UntunedTaint = v1alpha1.UntunedTaint
			if _, err := p.read(t.Context()); err != nil {
				t.Fatal(err)
			}
			former := whole(p)
			check.NoError(t, act(t.Context(), p))
			p.session.Update(p.news())
			if diff := cmp.Diff(former, whole(p)); diff == "" {
				t.Error("the act changes nothing")
			}
			if !reflect.DeepEqual(plan.NewSession(whole(p)), p.session) {
				t.Error("the session of the pass differs from a new one")
			}
		})
	}
}
