// Package loop runs the passes of controllers. A pass reads a snapshot from the cache, plans, reads the objects live that the plan requires, plans
// again if they are newer, and writes the steps. Outcome is the result of a pass, and the only place that computes when the next one starts.
package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// maxErrors is the maximum number of detailed errors of a pass: one cause may affect every object.
const maxErrors = 3

// Outcome collects the results of a pass. Its methods are safe for concurrent use.
type Outcome struct {
	// Pause is the wait before the next pass if work is left. Clock is only for Wake.
	Pause time.Duration
	Clock clock.PassiveClock

	mutex sync.Mutex
	// skipped are the targets with work for the next pass, with their errors; nil if it must start soon. The target "" is the pass.
	skipped map[string]error
	// wait is the time until the next pass, 0 for never.
	wait time.Duration
}

// IsOvertaken reports whether another client has written the object in the meantime. The next pass sees that. A NotFound without a name concerns the
// kind: the API server does not serve it.
func IsOvertaken(err error) bool {
	isGone := false
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) {
		details := status.Status().Details
		isGone = details == nil || details.Name != ""
	}
	return isGone || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// Finish reports whether a step was applied, and skips its target if not. A write by another client is no error.
func (o *Outcome) Finish(target string, err error) bool {
	switch {
	case err == nil:
		return true
	case IsOvertaken(err):
		err = nil
	}
	o.Skip(target, err)
	return false
}

// Skip leaves a target to the next pass, which starts soon unless there is an error.
func (o *Outcome) Skip(target string, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.skipped == nil {
		o.skipped = map[string]error{}
	}
	switch known := o.skipped[target]; {
	case known == nil:
		o.skipped[target] = err
	case err != nil:
		o.skipped[target] = errors.Join(known, err)
	}
}

// IsSkipped reports whether a target is left to the next pass.
func (o *Outcome) IsSkipped(target string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	_, skipped := o.skipped[target]
	return skipped
}

// Skipped returns the targets that are left to the next pass, with their errors.
func (o *Outcome) Skipped() map[string]error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return maps.Clone(o.skipped)
}

// Forget removes the error of a target that its note already contains.
func (o *Outcome) Forget(target string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	delete(o.skipped, target)
}

// WakeAfter starts the next pass after a wait at the latest. It ignores waits that are not positive: 0 means never.
func (o *Outcome) WakeAfter(wait time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.wait = store.Sooner(o.wait, wait)
}

// Wake starts the next pass at a time at the latest, but not before Pause. The zero time means never.
func (o *Outcome) Wake(at time.Time) {
	if !at.IsZero() {
		o.WakeAfter(max(at.Sub(o.Clock.Now()), o.Pause))
	}
}

// Err returns the errors of the pass, each text once.
func (o *Outcome) Err() error {
	skipped, errs := o.Skipped(), []error{}
	for _, target := range slices.Sorted(maps.Keys(skipped)) {
		if err := skipped[target]; err != nil && !slices.ContainsFunc(errs, func(known error) bool { return known.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	if omitted := len(errs) - maxErrors; omitted > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more errors", omitted))
	}
	return errors.Join(errs...)
}

// Result returns the error, whose back-off determines the next pass, or the wait until the next pass.
func (o *Outcome) Result() (reconcile.Result, error) {
	if err := o.Err(); err != nil {
		return reconcile.Result{}, err
	}
	if len(o.Skipped()) > 0 {
		return reconcile.Result{RequeueAfter: o.Pause}, nil
	}
	return reconcile.Result{RequeueAfter: o.wait}, nil
}
