package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// permitted plays until node a has its permit. Its agent is then silent until a given time, or dead if that is zero.
func (w *world) permitted(t *testing.T, m *manager, silence time.Duration) *simNode {
	t.Helper()
	n := w.nodes["a"]
	for range 100 {
		if n.ClientNode != nil && n.ClientNode.Spec.RebootPermit != nil {
			n.machine.silentUntil, n.AgentReady = w.now.Add(silence), false
			n.nodeRV++
			return n
		}
		w.followProfiles(n)
		w.runAgent(n)
		m.makePass()
		w.passTime(time.Second)
	}
	t.Fatal("node a got no permit")
	return nil
}

// stops are the ways by which a person stops a disruption.
var stops = map[string]func(*world, *simNode, *simProfile){
	"everything is paused":        func(w *world, _ *simNode, _ *simProfile) { w.paused = true },
	"the profile is paused":       func(_ *world, _ *simNode, p *simProfile) { p.Paused = v1alpha1.ReasonPausedByField },
	"the profile is in mode Plan": func(_ *world, _ *simNode, p *simProfile) { p.Inert = v1alpha1.ReasonPlanMode },
	"the policy is Never":         func(_ *world, _ *simNode, p *simProfile) { p.Rollout.Reboot.Policy = v1alpha1.RebootNever },
	"the approval is gone":        func(_ *world, _ *simNode, p *simProfile) { p.Rollout.Reboot.Policy = v1alpha1.RebootOnApproval },
	"the Node is paused":          func(_ *world, n *simNode, _ *simProfile) { n.Paused = true },
	"the Node is ignored":         func(_ *world, n *simNode, _ *simProfile) { n.Ignored = true },
	"the Node is never disrupted": func(_ *world, n *simNode, _ *simProfile) { n.NeverDisrupt = true },
	"a user uncordons the Node":   func(_ *world, n *simNode, _ *simProfile) { n.Unschedulable = false },
}

// A person stops a node whose agent does not use its permit. One pass later the permit is gone, and the node is in service.
func TestAPersonEndsAPermit(t *testing.T) {
	for name, stop := range stops {
		for _, need := range []string{"known", "unknown"} {
			t.Run(name+", need "+need, func(t *testing.T) {
				w := newWorld(1)
				w.quiet, w.deterministic = true, true
				w.addNode("a")
				p := w.addProfile("eda", nil, "a")
				m := &manager{world: w, name: "m"}
				n := w.permitted(t, m, 77*time.Hour)
				if need == "unknown" {
					w.changeSpec(n, func(s *v1alpha1.StorageClientNodeSpec) { s.Hash += ", live" })
				}
				stop(w, n, p)
				n.nodeRV++
				n.cordonChanges++
				m.makePass()
				if _, claimed := w.claims["a"]; n.ClientNode.Spec.RebootPermit != nil || n.Unschedulable || n.Mark != nil || claimed {
					t.Errorf("after a pass: got permit %v, cordoned %t, annotation %v, claimed %t, want a node in service",
						n.ClientNode.Spec.RebootPermit, n.Unschedulable, n.Mark, claimed)
				}
				if note := n.ClientNode.Status.Rollout; note.Phase != v1alpha1.RolloutWaiting && need == "known" || note.Attempts != 0 {
					t.Errorf("got note %+v, want Waiting without an attempt", note)
				}
				if w.broken != nil {
					t.Error(w.broken)
				}
			})
		}
	}
}

// The agent comes back after days. No user has stopped it, but its time is long over.
func TestAnUnusedPermitEnds(t *testing.T) {
	for name, change := range map[string]func(*world, *simNode, *simProfile){
		"no rule changes": func(*world, *simNode, *simProfile) {},
		"the window closes": func(w *world, _ *simNode, p *simProfile) {
			p.Windows = w.parseWindows(v1alpha1.Window{Schedule: "0 10 * * *", DurationSeconds: 300})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.quiet, w.deterministic = true, true
			w.addNode("a")
			p := w.addProfile("eda", nil, "a")
			m := &manager{world: w, name: "m"}
			n := w.permitted(t, m, 77*time.Hour)
			given := w.now
			change(w, n, p)
			for ; n.ClientNode.Spec.RebootPermit != nil && w.now.Before(given.Add(time.Hour)); w.passTime(15 * time.Second) {
				m.makePass()
			}
			note := n.ClientNode.Status.Rollout
			if took := w.now.Sub(given); took < 16*time.Minute || took > 17*time.Minute {
				t.Errorf("the permit ended after %s, want its 15 minutes and a minute", took)
			}
			if note.Phase != v1alpha1.RolloutFailed || note.Reason != v1alpha1.RolloutReasonRebootTimedOut || note.Attempts != 0 || note.RetryAfter == nil {
				t.Errorf("got note %+v, want Failed RebootTimedOut with a pause and without an attempt", note)
			}
			if _, claimed := w.claims["a"]; n.Unschedulable || n.Mark != nil || claimed {
				t.Errorf("got cordoned %t, annotation %v, claimed %t, want a node in service", n.Unschedulable, n.Mark, claimed)
			}
			if len(w.failures["eda"].Boots) != 1 {
				t.Errorf("got failures %+v, want one", w.failures)
			}
			for end := w.now.Add(90 * time.Hour); w.now.Before(end); w.passTime(time.Minute) {
				w.followProfiles(n)
				w.runAgent(n)
				m.makePass()
			}
			if w.broken != nil || len(n.machine.used) > 0 {
				t.Errorf("got permits used %v, and %v", n.machine.used, w.broken)
			}
		})
	}
}

// withdrawing is a cluster in which the withdrawal of a permit does not work.
type withdrawing struct {
	*manager
	err error
	// isLost is true if the withdrawal takes effect and only its response is lost.
	isLost bool
}

func (w *withdrawing) applyStep(ctx context.Context, step plan.Step) error {
	if _, clears := step.(plan.ClearPermit); !clears || w.err == nil {
		return w.manager.applyStep(ctx, step)
	}
	if w.isLost {
		known := w.seen[step.NodeName()]
		if err := w.manager.applyStep(ctx, step); err != nil {
			return err
		}
		w.seen[step.NodeName()] = known
	}
	return w.err
}

// A user uncordons a node whose permit cannot be withdrawn. The node is cordoned again, and returns to service once the permit is gone.
func TestACordonStaysWhileThePermitDoes(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		isLost bool
	}{
		"the withdrawal is refused": {apierrors.NewForbidden(corev1.Resource("things"), "a", errors.New("policy x")), false},
		"its request is lost":       {apierrors.NewTimeoutError("timeout", 1), false},
		"its response is lost":      {apierrors.NewTimeoutError("timeout", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.quiet, w.deterministic = true, true
			w.addNode("a")
			w.addProfile("eda", nil, "a")
			m := &manager{world: w, name: "m"}
			n := w.permitted(t, m, 77*time.Hour)
			n.Unschedulable = false
			n.nodeRV++
			n.cordonChanges++
			c := &withdrawing{manager: m, err: test.err, isLost: test.isLost}
			for range 3 {
				next, _, err := runPass(t.Context(), c, 1)
				if n.ClientNode.Spec.RebootPermit != nil && !n.Unschedulable {
					t.Fatal("the node is schedulable, and its agent may reboot it")
				}
				if err == nil && n.ClientNode.Spec.RebootPermit != nil && next.Before(w.now.Add(maxBackOff)) {
					t.Errorf("the withdrawal is tried again at %s, want a pause of %s", next, maxBackOff)
				}
				w.passTime(time.Second)
			}
			c.err = nil
			_, _, _ = runPass(t.Context(), c, 1)
			_, claimed := w.claims["a"]
			note := n.ClientNode.Status.Rollout
			if n.ClientNode.Spec.RebootPermit != nil || n.Unschedulable || claimed || note.RetryAfter == nil || note.Attempts != 0 {
				t.Errorf("got permit %v, cordoned %t, claimed %t, note %+v, want a node in service with a pause",
					n.ClientNode.Spec.RebootPermit, n.Unschedulable, claimed, note)
			}
			if w.broken != nil {
				t.Error(w.broken)
			}
		})
	}
}

// The cordon and the claim stay until the withdrawal of the permit is certain.
func TestThePermitGoesBeforeTheCordonAndTheClaim(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		isLost    bool
		refusal   string
		isStarted bool
	}{
		"the withdrawal is refused":             {err: apierrors.NewForbidden(corev1.Resource("things"), "a", errors.New("policy x")), refusal: "policy x"},
		"its request is lost":                   {err: apierrors.NewTimeoutError("timeout", 1), refusal: "timeout"},
		"its response is lost":                  {err: apierrors.NewTimeoutError("timeout", 1), isLost: true},
		"its request is lost, the agent starts": {err: apierrors.NewTimeoutError("timeout", 1), isStarted: true, refusal: "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.quiet, w.deterministic = true, true
			w.addNode("a")
			p := w.addProfile("eda", nil, "a")
			m := &manager{world: w, name: "m"}
			n := w.permitted(t, m, 77*time.Hour)
			p.Paused = v1alpha1.ReasonPausedByField
			c := &withdrawing{manager: m, err: test.err, isLost: test.isLost}
			_, _, _ = runPass(t.Context(), c, 1)
			if _, claimed := w.claims["a"]; !n.Unschedulable || n.Mark == nil || !claimed {
				t.Errorf("got cordoned %t, annotation %v, claimed %t, want all of them to stay", n.Unschedulable, n.Mark, claimed)
			}
			if note := n.ClientNode.Status.Rollout; !strings.Contains(note.Refusal, test.refusal) {
				t.Errorf("got refusal %q, want %q in it", note.Refusal, test.refusal)
			}
			if test.isStarted {
				n.machine.silentUntil = w.now
				w.runAgent(n)
			}
			c.err = nil
			w.passTime(time.Second)
			_, _, _ = runPass(t.Context(), c, 1)
			_, claimed := w.claims["a"]
			if stays := n.ClientNode.Spec.RebootPermit != nil && n.Unschedulable && claimed; stays != test.isStarted {
				t.Errorf("in the next pass: got permit %v, cordoned %t, claimed %t, want them to stay: %t",
					n.ClientNode.Spec.RebootPermit, n.Unschedulable, claimed, test.isStarted)
			}
			if w.broken != nil {
				t.Error(w.broken)
			}
		})
	}
}

// refusing is a cluster in which the ConfigMap of the claims or of the failures cannot be written.
type refusing struct {
	*manager
	claims, failures error
}

func (r *refusing) addClaims(ctx context.Context, steps []plan.AddClaim) error {
	if r.claims != nil {
		return r.claims
	}
	return r.manager.addClaims(ctx, steps)
}

func (r *refusing) applyStep(ctx context.Context, step plan.Step) error {
	if _, updates := step.(plan.UpdateClaim); updates && r.claims != nil {
		return r.claims
	}
	return r.manager.applyStep(ctx, step)
}

func (r *refusing) writeFailures(ctx context.Context, failures map[string]v1alpha1.ProfileFailures) error {
	if r.failures != nil {
		return r.failures
	}
	return r.manager.writeFailures(ctx, failures)
}

// A withdrawal is a stop: it waits for no write of a ConfigMap. The cordon stays, and the disruption ends in the same way once the write works.
func TestAWithdrawalWaitsForNoOtherWrite(t *testing.T) {
	denied := apierrors.NewForbidden(corev1.Resource("configmaps"), "storage-client", errors.New("quota x"))
	for name, test := range map[string]struct {
		change func(*world, *refusing, *simProfile)
		reason string
	}{
		"the claim is missing and cannot be added": {
			change: func(w *world, r *refusing, p *simProfile) {
				delete(w.claims, "a")
				r.claims, p.Paused = denied, v1alpha1.ReasonPausedByField
			},
			reason: v1alpha1.ReasonPausedByField,
		},
		"the failure of an overdue permit cannot be recorded": {
			change: func(w *world, r *refusing, _ *simProfile) {
				r.failures = denied
				w.passTime(16 * time.Minute)
				_, _, _ = runPass(context.Background(), r, 1)
				w.passTime(2 * time.Minute)
			},
			reason: v1alpha1.RolloutReasonRebootTimedOut,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.quiet, w.deterministic = true, true
			w.addNode("a")
			p := w.addProfile("eda", nil, "a")
			m := &manager{world: w, name: "m"}
			n := w.permitted(t, m, 77*time.Hour)
			c := &refusing{manager: m}
			test.change(w, c, p)
			for range 2 {
				_, _, _ = runPass(t.Context(), c, 1)
				if n.ClientNode.Spec.RebootPermit != nil || !n.Unschedulable || n.Mark == nil {
					t.Errorf("got permit %v, cordoned %t, annotation %v, want no permit and the cordon",
						n.ClientNode.Spec.RebootPermit, n.Unschedulable, n.Mark)
				}
				w.passTime(time.Second)
			}
			c.claims, c.failures = nil, nil
			for range 2 {
				_, _, _ = runPass(t.Context(), c, 1)
				w.passTime(time.Second)
			}
			_, claimed := w.claims["a"]
			note := n.ClientNode.Status.Rollout
			if n.Unschedulable || n.Mark != nil || claimed || note.Reason != test.reason || note.Attempts != 0 {
				t.Errorf("got cordoned %t, annotation %v, claimed %t, note %+v, want a node in service with reason %s",
					n.Unschedulable, n.Mark, claimed, note, test.reason)
			}
			if failed := len(w.failures["eda"].Boots) == 1; failed != (test.reason == v1alpha1.RolloutReasonRebootTimedOut) {
				t.Errorf("got failures %+v, want one only for an overdue permit", w.failures)
			}
			if w.broken != nil {
				t.Error(w.broken)
			}
		})
	}
}

// Only the claim records that a permit is overdue. While it cannot be written, the note names the cause. The agent itself does not use the permit
// after its end.
func TestAnOverduePermitNamesTheWriteThatItWaitsFor(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic = true, true
	w.addNode("a")
	w.addProfile("eda", nil, "a")
	m := &manager{world: w, name: "m"}
	n := w.permitted(t, m, 77*time.Hour)
	c := &refusing{manager: m, claims: apierrors.NewForbidden(corev1.Resource("configmaps"), "storage-client-rollout", errors.New("quota x"))}
	w.passTime(16 * time.Minute)
	for range 3 {
		_, _, _ = runPass(t.Context(), c, 1)
		w.passTime(2 * time.Minute)
	}
	permit, note := n.ClientNode.Spec.RebootPermit, n.ClientNode.Status.Rollout
	if permit == nil || permit.NotAfter == nil || !w.now.After(permit.NotAfter.Time) || !strings.Contains(note.Refusal, "quota x") {
		t.Errorf("got permit %+v and refusal %q, want a permit that is over, and the cause", permit, note.Refusal)
	}
	c.claims = nil
	for range 3 {
		_, _, _ = runPass(t.Context(), c, 1)
		w.passTime(2 * time.Minute)
	}
	if n.ClientNode.Spec.RebootPermit != nil || n.Unschedulable || w.broken != nil {
		t.Errorf("got permit %+v, cordoned %t, %v, want a node in service", n.ClientNode.Spec.RebootPermit, n.Unschedulable, w.broken)
	}
}

// recording is a cluster that only records steps. It rejects all but the withdrawal of a permit.
type recording struct {
	cluster
	steps []plan.Step
}

func (r *recording) applyStep(_ context.Context, step plan.Step) error {
	r.steps = append(r.steps, step)
	if _, clears := step.(plan.ClearPermit); !clears {
		return errors.New("rejected")
	}
	return nil
}

// A step before the clearing of a used permit records facts that only the permit contains otherwise. A node that was not read live may be another one
// by now.
func TestOnlyAWithdrawalIsAppliedAfterAFailedRecord(t *testing.T) {
	onA := plan.OnNode{Node: "a"}
	withdrawal, uncordon := plan.ClearPermit{OnNode: onA}, plan.Uncordon{OnNode: onA}
	for name, test := range map[string]struct {
		live, skipped sets.Set[string]
		steps, want   []plan.Step
	}{
		"a withdrawal":                 {sets.New("a"), sets.New("a"), []plan.Step{withdrawal, uncordon}, []plan.Step{withdrawal}},
		"of a node read long ago":      {sets.New("b"), nil, []plan.Step{withdrawal, uncordon}, nil},
		"a permit cleared at last":     {sets.New("a"), sets.New("a"), []plan.Step{uncordon, withdrawal}, nil},
		"after a step that was denied": {sets.New("a"), nil, []plan.Step{uncordon, withdrawal}, []plan.Step{uncordon}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &recording{}
			p := newPass(c, 1, &loop.Outcome{})
			p.live = test.live
			for node := range test.skipped {
				p.Skip(node, nil)
			}
			p.applyChain(t.Context(), "a", test.steps)
			if diff := cmp.Diff(test.want, c.steps); diff != "" {
				t.Errorf("applied steps (-want +got):\n%s", diff)
			}
		})
	}
}
