package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// maxErrors is the maximum number of detailed errors in a pass: one cause may affect every volume.
const maxErrors = 3

type cluster interface {
	// readSnapshot reads everything from the cache.
	readSnapshot(ctx context.Context) (plan.Snapshot, error)
	// refresh returns a snapshot with the volumes and the ledger from the API server, and whether any of them is newer.
	refresh(ctx context.Context, cached plan.Snapshot) (fresh plan.Snapshot, newer bool, err error)
	// isInspectionDue reports whether the interval has passed since the last inspection of mounts.
	isInspectionDue(every time.Duration) bool
	// inspectMounts reads the watched volumes' failed mounts live, with the messages of their events.
	inspectMounts(ctx context.Context, watched []plan.Watched) (map[string]plan.Failure, error)
	// inspectRollbacks reads the results of rollback checks live.
	inspectRollbacks(ctx context.Context, inCure []plan.RollbackCheck) (map[string]optionset.Kind, error)
	// isLedgerDue reports whether it is time to compare volumes and ledger live.
	isLedgerDue() bool
	// writeLedger applies changes of the ledger. It returns the errors by volume.
	writeLedger(ctx context.Context, changes ledger.Changes) map[types.UID]error
	// inspectEvidence reads live whether awaited volumes have been mounted, by set of options.
	inspectEvidence(ctx context.Context, awaited []plan.Awaited) (map[string]plan.Evidence, error)
	// endReservations deletes reservations of canaries.
	endReservations(ctx context.Context, reservations []*corev1.ConfigMap) error
	// findComing reads live which of the volumes pods are about to mount.
	findComing(ctx context.Context, candidates []*corev1.PersistentVolume) (map[string]bool, error)
	// clock returns the current time, which is later than the time of the plan.
	clock() time.Time
	applyStep(ctx context.Context, step plan.Step) error
	// delayVolume records that the API server rejected a write of a volume.
	delayVolume(volume string)
	// reportNotes creates events for new notes.
	reportNotes(ctx context.Context, notes map[string]plan.Note)
}

// pass is one round of reading, planning and writing.
type pass struct {
	cluster
	// decide makes a plan. A pass calls it at most twice.
	decide func(plan.Snapshot) plan.Plan

	// mutex guards the following fields, which all workers write.
	mutex sync.Mutex
	// unfinished is true if the next pass has work to do soon.
	unfinished bool
	errs       []error
	failed     int
	applied    []plan.Step
}

func newPass(c cluster) *pass { return &pass{cluster: c, decide: plan.For} }

// run runs the pass, and returns the time of the next one. Zero means after the next change.
func (p *pass) run(ctx context.Context, workers int) (next time.Time, unfinished bool, err error) {
	cached, err := p.readSnapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	decided := p.makePlan(ctx, cached)
	p.applyAll(ctx, decided, workers)
	if err := p.endReservations(ctx, decided.Expired); err != nil {
		p.errs, p.failed = append(p.errs, err), p.failed+1
	}
	p.reportNotes(ctx, decided.Notes)
	return decided.Next, p.unfinished, p.joinErrors()
}

// makePlan makes the due observations and plans from the cache. Steps that require live reads are planned again if a live read is newer, or if
// observations were missing. If the live read fails, all other steps run without it.
func (p *pass) makePlan(ctx context.Context, s plan.Snapshot) plan.Plan {
	observed := false
	if p.isInspectionDue(plan.MinInspection) {
		if wanted := plan.RequiredObservations(s); !wanted.IsEmpty() && p.isInspectionDue(wanted.Interval) {
			seen, err := p.observe(ctx, s, wanted)
			if err != nil {
				p.errs, p.failed = append(p.errs, err), p.failed+1
				return p.decide(s).WithoutFresh()
			}
			s, observed = seen, true
		}
	}
	decided := p.decide(s)
	if !decided.NeedsFresh() && (!decided.LedgerDue || !p.isLedgerDue()) {
		return decided.WithoutFresh()
	}
	confirmed, err := p.confirm(ctx, s, decided, observed)
	if err != nil {
		p.errs, p.failed = append(p.errs, err), p.failed+1
		return decided.WithoutFresh()
	}
	return confirmed
}

// confirm returns a plan from live reads.
func (p *pass) confirm(ctx context.Context, cached plan.Snapshot, decided plan.Plan, observed bool) (plan.Plan, error) {
	s, newer, err := p.refresh(ctx, cached)
	if err != nil {
		return plan.Plan{}, err
	}
	if observed && !newer && !decided.Canary {
		return decided, nil
	}
	wanted := plan.RequiredObservations(s)
	if !observed || newer {
		if s, err = p.observe(ctx, s, wanted); err != nil {
			return plan.Plan{}, err
		}
	}
	if decided.Canary && len(wanted.Candidates) > 0 {
		if s.Coming, err = p.findComing(ctx, wanted.Candidates); err != nil {
			return plan.Plan{}, err
		}
	}
	return p.decide(s), nil
}

func (p *pass) observe(ctx context.Context, s plan.Snapshot, wanted plan.Observations) (plan.Snapshot, error) {
	var err error
	if s.FailedMounts, err = p.inspectMounts(ctx, wanted.Watched); err != nil {
		return s, err
	}
	if s.RollbackResults, err = p.inspectRollbacks(ctx, wanted.RollbackChecks); err != nil {
		return s, err
	}
	s.Evidence, err = p.inspectEvidence(ctx, wanted.Awaited)
	return s, err
}

// applyAll runs the steps in order, several at a time. Each concerns another volume, and a failed step does not block the others. The ledger
// records their writes before and after.
func (p *pass) applyAll(ctx context.Context, decided plan.Plan, workers int) {
	steps := decided.Steps
	if len(steps) > maxSteps {
		steps, p.unfinished = steps[:maxSteps], true
	}
	parallel.ForEach(workers, p.beginSteps(ctx, decided, steps), func(step plan.Step) {
		step = plan.WithWriteTime(step, p.clock())
		if err := p.applyStep(ctx, step); err != nil {
			p.recordError(step, err)
			return
		}
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.applied = append(p.applied, step)
	})
	// If this write fails, a later pass updates the ledger from the volumes.
	p.recordLedgerErrors(p.writeLedger(ctx, plan.ChangesAfter(p.applied, p.clock())))
}

// recordError records the error of a step. A conflict with another client is no error.
func (p *pass) recordError(step plan.Step, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		p.unfinished = true
		return
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		p.delayVolume(step.Target().Name)
	}
	if p.failed++; len(p.errs) < maxErrors {
		p.errs = append(p.errs, err)
	}
}

func (p *pass) joinErrors() error {
	if omitted := p.failed - len(p.errs); omitted > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("and %d more volumes", omitted))...)
	}
	return errors.Join(p.errs...)
}
