// Package loop runs the passes of controllers. A pass reads a snapshot from the cache, plans, reads the objects live that the plan requires, plans
// again if they are newer, and writes the steps. Outcome is the result of a pass, and the only place that computes when the next one starts.
package loop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/controllers/store"
)

// Arm is one pass of a controller that handles the whole cluster. S is its snapshot, P its plan.
type Arm[S, P any] struct {
	// Read returns the state of the cluster from the cache.
	Read func(ctx context.Context) (S, error)
	// Plan returns the steps. It changes no object.
	Plan func(snapshot S) P
	// Refresh reads the objects live that the plan requires, and reports whether the pass must plan again. Nil if each write depends only on the
	// version that was read.
	Refresh func(ctx context.Context, snapshot S, planned P) (fresh S, newer bool, err error)
	// Apply writes the steps. A failed step does not block the others.
	Apply func(ctx context.Context, snapshot S, planned P, out *Outcome)
}

// Pass makes one pass, with at most two plans.
func (a Arm[S, P]) Pass(ctx context.Context, out *Outcome) {
	snapshot, err := a.Read(ctx)
	if err != nil {
		out.Skip("", err)
		return
	}
	planned := a.Plan(snapshot)
	if a.Refresh != nil {
		fresh, newer, err := a.Refresh(ctx, snapshot, planned)
		if err != nil {
			out.Skip("", err)
			return
		}
		if newer {
			snapshot, planned = fresh, a.Plan(fresh)
		}
	}
	a.Apply(ctx, snapshot, planned, out)
}

// Run makes a pass, unless the last one started less than the given interval ago. The interval is also the pause of its outcome.
func (a Arm[S, P]) Run(ctx context.Context, pace *store.Pace, every time.Duration, clock clock.PassiveClock) (reconcile.Result, error) {
	if wait := pace.Begin(every, clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	out := Outcome{Pause: every, Clock: clock}
	a.Pass(ctx, &out)
	return out.Result()
}
