package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// maxErrors is how many errors of a pass are spelled out: one cause may hit every volume.
const maxErrors = 3

// cluster is what a pass reads and writes.
type cluster interface {
	// readSnapshot reads everything from the cache.
	readSnapshot(ctx context.Context) (plan.Snapshot, error)
	// refreshVolumes returns a snapshot with the volumes and the ledger as the API server has them.
	refreshVolumes(ctx context.Context, cached plan.Snapshot) (plan.Snapshot, error)
	// isInspectionDue says whether it is time to look for failed mounts while nothing begins.
	isInspectionDue(every time.Duration) bool
	// inspectMounts reads live which of the watched volumes a pod could not mount, and what its event says.
	inspectMounts(ctx context.Context, watched []plan.Watched) (map[string]plan.Failure, error)
	// inspectCures reads live how pods mount volumes that have their own lists back.
	inspectCures(ctx context.Context, inCure []plan.InCure) (map[string]plan.Cure, error)
	// isLedgerDue says whether it is time to compare volumes and ledger live.
	isLedgerDue() bool
	// writeLedger carries changes of the ledger out, and says why those of some volumes could not be.
	writeLedger(ctx context.Context, changes ledger.Changes) map[types.UID]error
	// inspectEvidence reads live whether awaited volumes have been mounted, by set of options.
	inspectEvidence(ctx context.Context, awaited []plan.Awaited) (map[string]plan.Evidence, error)
	// findComing reads live which of the volumes pods are about to mount.
	findComing(ctx context.Context, candidates []*corev1.PersistentVolume) (map[string]bool, error)
	// applyStep takes one step.
	applyStep(ctx context.Context, step plan.Step) error
	// refuseVolume remembers that the API server refused to have a volume written.
	refuseVolume(volume string)
	// reportNotes makes events of what is new in the notes.
	reportNotes(ctx context.Context, notes map[string]plan.Note)
}

// pass is one round of snapshot, plan and apply.
type pass struct {
	cluster

	// mutex guards what follows, which all workers write to.
	mutex sync.Mutex
	// unfinished is set when the next pass has something to do soon.
	unfinished bool
	errs       []error
	failed     int
	// taken are the steps that were taken.
	taken []plan.Step
}

// makePass makes a pass, and tells when to make the next one; zero: when something changes.
func makePass(ctx context.Context, c cluster, workers int) (next time.Time, unfinished bool, err error) {
	cached, err := c.readSnapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	p := &pass{cluster: c}
	decided := p.confirmLive(ctx, cached, plan.For(cached))
	p.applyAll(ctx, decided, workers)
	c.reportNotes(ctx, decided.Notes)
	return decided.Next, p.unfinished, p.joinErrors()
}

// confirmLive plans again by what is live where a batch would go on, or an inspection is due. What needs none of that goes on
// without it.
func (p *pass) confirmLive(ctx context.Context, cached plan.Snapshot, decided plan.Plan) plan.Plan {
	begins := decided.BeginsBatch() || decided.LedgerDue && p.isLedgerDue()
	if !begins && (!decided.IsWatching() || !p.isInspectionDue(decided.ObserveEvery)) {
		return decided
	}
	confirmed, err := p.planLive(ctx, cached, decided, begins)
	if err != nil {
		p.errs, p.failed = append(p.errs, err), p.failed+1
		return withoutBatches(decided)
	}
	if !begins && confirmed.BeginsBatch() {
		p.unfinished = true
		return withoutBatches(confirmed)
	}
	return confirmed
}

func (p *pass) planLive(ctx context.Context, s plan.Snapshot, decided plan.Plan, begins bool) (plan.Plan, error) {
	if begins {
		var err error
		if s, err = p.refreshVolumes(ctx, s); err != nil {
			return plan.Plan{}, err
		}
		decided = plan.For(s)
	}
	if decided.IsWatching() {
		var err error
		if s, err = p.inspect(ctx, s, decided); err != nil {
			return plan.Plan{}, err
		}
		if len(s.FailedMounts)+len(s.Cures)+len(s.Evidence) > 0 {
			decided = plan.For(s)
		}
	}
	if !begins || !decided.Canary {
		return decided, nil
	}
	var err error
	if s.Coming, err = p.findComing(ctx, decided.Candidates); err != nil || len(s.Coming) == 0 {
		return decided, err
	}
	return plan.For(s), nil
}

// inspect returns the snapshot with what is live of the volumes that a plan has asked for.
func (p *pass) inspect(ctx context.Context, s plan.Snapshot, decided plan.Plan) (plan.Snapshot, error) {
	var err error
	if s.FailedMounts, err = p.inspectMounts(ctx, decided.Watched); err != nil {
		return s, err
	}
	if s.Cures, err = p.inspectCures(ctx, decided.InCure); err != nil {
		return s, err
	}
	found, err := p.inspectEvidence(ctx, decided.Awaited)
	if err != nil {
		return s, err
	}
	s.Evidence = maps.Clone(s.Evidence)
	if s.Evidence == nil {
		s.Evidence = found
	}
	maps.Copy(s.Evidence, found)
	return s, nil
}

func withoutBatches(p plan.Plan) plan.Plan {
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), plan.BelongsToBatch)
	return p
}

// applyAll takes the steps in their order, several at a time. Each is of another volume: one that cannot be taken keeps no
// other from it. What they write is known to the ledger before, and as written after.
func (p *pass) applyAll(ctx context.Context, decided plan.Plan, workers int) {
	steps := decided.Steps
	if len(steps) > maxSteps {
		steps, p.unfinished = steps[:maxSteps], true
	}
	parallel.ForEach(workers, p.beginSteps(ctx, decided, steps), func(step plan.Step) {
		if err := p.applyStep(ctx, step); err != nil {
			p.keepError(step, err)
			return
		}
		p.noteTaken(step)
	})
	p.settleSteps(ctx)
}

// keepError takes note of a step that was not taken. That somebody else was faster is nothing to report.
func (p *pass) keepError(step plan.Step, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		p.unfinished = true
		return
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		p.refuseVolume(step.Target().Name)
	}
	if p.failed++; len(p.errs) < maxErrors {
		p.errs = append(p.errs, err)
	}
}

func (p *pass) joinErrors() error {
	if more := p.failed - len(p.errs); more > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("and %d more volumes", more))...)
	}
	return errors.Join(p.errs...)
}
