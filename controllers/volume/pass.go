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
	"github.com/storageclient/operator/controllers/volume/plan"
)

// maxErrors is how many errors of a pass are spelled out: one cause may hit every volume.
const maxErrors = 3

// cluster is what a pass reads and writes.
type cluster interface {
	// readSnapshot reads everything from the cache.
	readSnapshot(ctx context.Context) (plan.Snapshot, error)
	// refresh returns a snapshot with the volumes and the ledger as the API server has them, and whether any of them is newer.
	refresh(ctx context.Context, cached plan.Snapshot) (fresh plan.Snapshot, newer bool, err error)
	// isInspectionDue reports whether that time has passed since mounts were inspected.
	isInspectionDue(every time.Duration) bool
	// inspectMounts reads live which of the watched volumes a pod could not mount, and what its event says.
	inspectMounts(ctx context.Context, watched []plan.Watched) (map[string]plan.Failure, error)
	// inspectCures reads live how pods mount volumes that have their own lists back.
	inspectCures(ctx context.Context, inCure []plan.InCure) (map[string]plan.Cure, error)
	// isLedgerDue reports whether it is time to compare volumes and ledger live.
	isLedgerDue() bool
	// writeLedger carries changes of the ledger out, and says why those of some volumes could not be.
	writeLedger(ctx context.Context, changes ledger.Changes) map[types.UID]error
	// inspectEvidence reads live whether awaited volumes have been mounted, by set of options.
	inspectEvidence(ctx context.Context, awaited []plan.Awaited) (map[string]plan.Evidence, error)
	// findComing reads live which of the volumes pods are about to mount.
	findComing(ctx context.Context, candidates []*corev1.PersistentVolume) (map[string]bool, error)
	// clock returns the time as it is, which is later than that of the plan.
	clock() time.Time
	applyStep(ctx context.Context, step plan.Step) error
	// refuseVolume remembers that the API server refused to have a volume written.
	refuseVolume(volume string)
	// reportNotes makes events of what is new in the notes.
	reportNotes(ctx context.Context, notes map[string]plan.Note)
}

// pass is one round of reading, planning and writing.
type pass struct {
	cluster
	// decide makes a plan. A pass makes two at most.
	decide func(plan.Snapshot) plan.Plan

	// mutex guards what follows, which all workers write to.
	mutex sync.Mutex
	// unfinished is set when the next pass has something to do soon.
	unfinished bool
	errs       []error
	failed     int
	taken      []plan.Step
}

func newPass(c cluster) *pass { return &pass{cluster: c, decide: plan.For} }

// run makes the pass, and returns when to make the next one; zero: when something changes.
func (p *pass) run(ctx context.Context, workers int) (next time.Time, unfinished bool, err error) {
	cached, err := p.readSnapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	decided := p.makePlan(ctx, cached)
	p.applyAll(ctx, decided, workers)
	p.reportNotes(ctx, decided.Notes)
	return decided.Next, p.unfinished, p.joinErrors()
}

// makePlan observes what is due and plans by what the cache has. What may only rest on fresh reads is planned again if anything is
// newer or was not observed yet. If that cannot be read, all else goes on without it.
func (p *pass) makePlan(ctx context.Context, s plan.Snapshot) plan.Plan {
	observed := false
	if p.isInspectionDue(plan.MinInspection) {
		if wanted := plan.Wants(s); !wanted.IsEmpty() && p.isInspectionDue(wanted.Every) {
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

// confirm returns a plan of fresh reads.
func (p *pass) confirm(ctx context.Context, cached plan.Snapshot, decided plan.Plan, observed bool) (plan.Plan, error) {
	s, newer, err := p.refresh(ctx, cached)
	if err != nil {
		return plan.Plan{}, err
	}
	if observed && !newer && !decided.Canary {
		return decided, nil
	}
	wanted := plan.Wants(s)
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

// observe returns the snapshot with what is live of the volumes of which a plan wants it.
func (p *pass) observe(ctx context.Context, s plan.Snapshot, wanted plan.Wanted) (plan.Snapshot, error) {
	var err error
	if s.FailedMounts, err = p.inspectMounts(ctx, wanted.Watched); err != nil {
		return s, err
	}
	if s.Cures, err = p.inspectCures(ctx, wanted.InCure); err != nil {
		return s, err
	}
	s.Evidence, err = p.inspectEvidence(ctx, wanted.Awaited)
	return s, err
}

// applyAll takes the steps in their order, several at a time. Each is of another volume: one that cannot be taken keeps no
// other from it. What they write is known to the ledger before, and as written after.
func (p *pass) applyAll(ctx context.Context, decided plan.Plan, workers int) {
	steps := decided.Steps
	if len(steps) > maxSteps {
		steps, p.unfinished = steps[:maxSteps], true
	}
	parallel.ForEach(workers, p.beginSteps(ctx, decided, steps), func(step plan.Step) {
		step = plan.Dated(step, p.clock())
		if err := p.applyStep(ctx, step); err != nil {
			p.keepError(step, err)
			return
		}
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.taken = append(p.taken, step)
	})
	// What the ledger does not get to know now, the volumes tell later.
	p.keepLedgerErrors(p.writeLedger(ctx, plan.Settled(p.taken, p.clock())))
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
