package loop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// maxErrors is the maximum number of detailed errors in a pass: one cause may affect every object.
const maxErrors = 3

// Outcome collects the results of a pass. Its methods are safe for concurrent use.
type Outcome struct {
	// Clock and Pause are for Wake: a pass takes time, and the API server gets a short pause after it. Pause is also the wait before the rest of the
	// work.
	Clock clock.PassiveClock
	Pause time.Duration

	mutex sync.Mutex
	errs  []error
	// skipped are the targets of which a step was not applied, with the error, nil if the next pass must start soon.
	skipped map[string]error
	// unfinished is true if the next pass has work to do soon. wait is the time until the next pass, 0 for never.
	unfinished bool
	wait       time.Duration
}

// IsOvertaken reports whether another client has written the object in the meantime. The next pass sees that.
func IsOvertaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// IsRejected reports whether the API server would reject the same write again.
func IsRejected(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// Fail records an error that concerns no single target. It ignores nil.
func (o *Outcome) Fail(err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
	}
}

// Finish reports whether a step was applied. It skips the target if not. A write by another client is no error.
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
	if known := o.skipped[target]; known == nil {
		o.skipped[target] = err
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

// Continue starts the next pass soon.
func (o *Outcome) Continue() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.unfinished = true
}

// WakeAfter starts the next pass after a wait at the latest. It ignores a wait that is not positive, because 0 means never.
func (o *Outcome) WakeAfter(wait time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if wait > 0 && (o.wait == 0 || wait < o.wait) {
		o.wait = wait
	}
}

// Wake starts the next pass at a time at the latest, but not before the pause. The zero time means never.
func (o *Outcome) Wake(at time.Time) {
	if !at.IsZero() {
		o.WakeAfter(max(at.Sub(o.Clock.Now()), o.Pause))
	}
}

// IsUnfinished reports whether work is left.
func (o *Outcome) IsUnfinished() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.unfinished || len(o.errs)+len(o.skipped) > 0
}

// Result returns the result for the queue: an error, whose back-off determines the next pass, or the wait until it.
func (o *Outcome) Result() (reconcile.Result, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	errs := slices.Clone(o.errs)
	for _, target := range slices.Sorted(maps.Keys(o.skipped)) {
		err := o.skipped[target]
		o.unfinished = o.unfinished || err == nil
		if err != nil && !slices.ContainsFunc(errs, func(known error) bool { return known.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	if omitted := len(errs) - maxErrors; omitted > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more errors", omitted))
	}
	if err := errors.Join(errs...); err != nil || !o.unfinished {
		return reconcile.Result{RequeueAfter: o.wait}, err
	}
	return reconcile.Result{RequeueAfter: o.Pause}, nil
}
