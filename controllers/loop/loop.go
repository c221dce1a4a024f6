// Package loop runs the passes of controllers. A pass reads a snapshot from the cache, plans, reads live what the plan requires, plans again if
// that is newer, and writes the steps. Outcome is the result of a pass, and the only place that computes when the next one starts.
package loop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/controllers/store"
)

// Arm is one pass of a controller that handles the whole cluster. S is its snapshot, P its plan.
type Arm[S, P any] interface {
	// Read returns the state of the cluster from the cache.
	Read(ctx context.Context) (S, error)
	// Plan returns the steps. It changes no object.
	Plan(snapshot S) P
	// Refresh reads live what the plan requires, and reports whether the pass must plan again.
	Refresh(ctx context.Context, snapshot S, planned P) (fresh S, newer bool, err error)
	// Apply writes the steps. A failed step does not block the others.
	Apply(ctx context.Context, planned P, out *Outcome)
}

// Pass makes one pass, with at most two plans. Its result is out.
func Pass[S, P any](ctx context.Context, arm Arm[S, P], out *Outcome) {
	snapshot, err := arm.Read(ctx)
	if err != nil {
		out.Fail(err)
		return
	}
	planned := arm.Plan(snapshot)
	fresh, newer, err := arm.Refresh(ctx, snapshot, planned)
	if err != nil {
		out.Fail(err)
		return
	}
	if newer {
		planned = arm.Plan(fresh)
	}
	arm.Apply(ctx, planned, out)
}

// Loop spaces the passes of an arm. Its only request never runs twice at once.
type Loop struct{ pace store.Pace }

// Run makes a pass at a time that the arm gets, unless the last one started less than the given interval ago. The interval is also the pause before
// the rest of the work.
func Run[S, P any](ctx context.Context, l *Loop, every time.Duration, clock clock.PassiveClock, begin func(now time.Time) Arm[S, P],
) (reconcile.Result, error) {
	now, out := clock.Now(), Outcome{Clock: clock, Pause: every}
	if wait := l.pace.Begin(every, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	Pass(ctx, begin(now), &out)
	return out.Result()
}
