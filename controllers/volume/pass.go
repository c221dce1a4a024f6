package volume

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// arm returns the pass.
func (s *scope) arm() loop.Arm[plan.Snapshot, plan.Plan] {
	return loop.Arm[plan.Snapshot, plan.Plan]{Read: s.read, Plan: plan.For, Refresh: s.refresh, Apply: s.apply}
}

// read reads the cache, and makes the due observations.
func (s *scope) read(ctx context.Context) (plan.Snapshot, error) {
	out, err := s.readSnapshot(ctx)
	if err != nil {
		s.inspected = store.Pace{}
		return out, err
	}
	if s.isInspectionDue(plan.MinInspection) {
		if wanted := plan.RequiredObservations(out); !wanted.IsEmpty() && s.isInspectionDue(wanted.Interval) {
			s.unread, s.observed = s.observe(ctx, &out, wanted), true
		}
	}
	return out, nil
}

func (s *scope) refresh(ctx context.Context, cached plan.Snapshot, planned plan.Plan) (fresh plan.Snapshot, newer bool, err error) {
	isRead, isLedgerDue := s.unread == nil, planned.LedgerDue && s.compared.Remaining(plan.LedgerInterval, s.now) == 0
	if !isRead || !planned.NeedsFresh() && !isLedgerDue {
		return cached, false, nil
	}
	fresh, newer, s.unread = s.confirm(ctx, cached, planned)
	s.live = s.unread == nil
	return fresh, newer && s.live, nil
}

// confirm reads live, and reports whether the plan must be made again.
func (s *scope) confirm(ctx context.Context, cached plan.Snapshot, planned plan.Plan) (fresh plan.Snapshot, newer bool, err error) {
	fresh, newer, err = s.readLive(ctx, cached)
	if err != nil || s.observed && !newer && !planned.Canary {
		return fresh, false, err
	}
	wanted := plan.RequiredObservations(fresh)
	if !s.observed || newer {
		if err := s.observe(ctx, &fresh, wanted); err != nil {
			return fresh, false, err
		}
	}
	if planned.Canary && len(wanted.Candidates) > 0 {
		fresh.Coming, err = s.findComing(ctx, wanted.Candidates)
	}
	return fresh, true, err
}

// observe adds the observations to a snapshot, all or none.
func (s *scope) observe(ctx context.Context, to *plan.Snapshot, wanted plan.Observations) error {
	failedMounts, err := inspectFailedMounts(ctx, s.APIReader, wanted.Watched)
	if err != nil {
		return err
	}
	s.inspected.Begin(0, s.now)
	rollbacks, err := s.inspectRollbacks(ctx, wanted.RollbackChecks)
	if err != nil {
		return err
	}
	evidence, err := s.inspectEvidence(ctx, wanted.Awaited)
	if err == nil {
		to.FailedMounts, to.RollbackResults, to.Evidence = failedMounts, rollbacks, evidence
	}
	return err
}

// apply runs the steps in order, several at a time. Each concerns another volume, and a failed step does not block the others. The ledger records
// their writes before and after.
func (s *scope) apply(ctx context.Context, _ plan.Snapshot, planned plan.Plan, out *loop.Outcome) {
	if s.unread != nil {
		out.Skip("", s.unread)
	}
	if !s.live {
		planned = planned.WithoutFresh()
	}
	steps := planned.Steps
	if len(steps) > maxSteps {
		steps = steps[:maxSteps]
		out.Skip("", nil)
	}
	var mutex sync.Mutex
	var applied []plan.Step
	parallel.ForEach(s.parallelism(), s.beginSteps(ctx, planned, steps, out), func(step plan.Step) {
		step = plan.WithWriteTime(step, s.Clock.Now())
		err := s.applyStep(ctx, step)
		mutex.Lock()
		defer mutex.Unlock()
		if out.Finish(step.Target().Name, err) {
			applied = append(applied, step)
		} else if isRejected(err) {
			// Otherwise, one volume would stay the canary, and many would fill each pass.
			s.delayVolume(step.Target().Name)
		}
	})
	// If this write fails, a later pass updates the ledger from the volumes.
	s.writeLedger(ctx, plan.ChangesAfter(applied, s.Clock.Now()), out)
	out.Finish("reservations", s.endReservations(ctx, planned.Expired))
	s.reportNotes(ctx, planned.Notes)
	if len(out.Skipped()) > 0 {
		s.inspected = store.Pace{}
	}
	out.Wake(planned.Next)
}

// isRejected reports whether the API server rejects a write, as for a webhook, which may reject with any code. A server that does not respond, or that
// is busy, concerns no single volume: the next pass writes again.
func isRejected(err error) bool {
	status := apierrors.APIStatus(nil)
	isBusy := apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
	return errors.As(err, &status) && !isBusy && !loop.IsOvertaken(err)
}

func (s *scope) isInspectionDue(every time.Duration) bool {
	return s.inspected.Remaining(every, s.now) == 0
}
