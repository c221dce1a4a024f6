package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// planner is the state of one pass.
type planner struct {
	Snapshot
	volumes []evaluation
	// sets are the records of option sets. news are the sets with a mount that is not recorded yet.
	sets sets
	news map[string]bool
	// blamed are the records of failed mounts of unknown cause, by volume.
	blamed map[string]*optionset.Record
	// later are updates of the records with new results. They apply from the next plan on.
	later []func()
	// carriers and unusedCarriers are the volumes with options of unproven sets, by set.
	carriers, unusedCarriers map[string][]string
	// mounted are the names of the volumes whose mounts nodes report.
	mounted  map[string]bool
	progress map[string]*progress
	// soaking is true while a volume's batch soaks.
	soaking bool
	// tried are the option sets that a volume of the server already has. See triedKeys.
	tried map[ProbeKey]bool
	// waiting is true if mount options must change.
	waiting bool
	plan    Plan
}

// For decides on the next writes, with a reason for every volume.
func For(s Snapshot) Plan { return newPlanner(s).decide() }

func (p *planner) decide() Plan {
	p.noteFailures()
	p.mounted, p.soaking = p.findMounted(), p.isAnySoaking()
	p.progress = p.progressByProfile()
	changes := lists.Filter(p.volumes, func(j evaluation) bool { return !p.stepAtOnce(j) })
	p.waiting = len(changes) > 0
	slices.SortFunc(p.plan.Steps, func(a, b Step) int { return strings.Compare(a.Target().Name, b.Target().Name) })
	for _, j := range p.inOrder(changes) {
		p.stepInBatch(j)
	}
	p.watchBatches()
	if slices.ContainsFunc(p.volumes, func(j evaluation) bool { return j.isWatched() || p.isInRollbackCheck(j) }) {
		p.planAgain(p.Now.Add(watchInterval))
	}
	for _, learn := range p.later {
		learn()
	}
	p.keepLedger()
	return p.plan
}

func newPlanner(s Snapshot) *planner {
	p := &planner{Snapshot: s, volumes: s.evaluateAll(), plan: Plan{Notes: make(map[string]Note, len(s.Volumes))}}
	p.tried = triedKeys(p.volumes)
	p.readSets()
	p.observeProbes()
	p.observeMounts()
	p.followBlamed()
	p.findCarriers()
	p.followReservations()
	return p
}

// stepAtOnce plans steps that need not wait, and leaves a change of mount options for a profile to stepInBatch.
func (p *planner) stepAtOnce(j evaluation) bool {
	target := OnVolume{Note: p.noteFor(j.Volume, j.verdict)}
	var step Step
	failure, failed := p.failureOf(j)
	learned, message := p.rollbackResult(j)
	switch {
	case failed && j.verdict.State == judge.StateHeld:
		p.noteHeldFailure(j, failure.Text)
		return true
	case (failed || p.blameOf(j) != nil) && j.mayRevert():
		step = p.revert(j, failure)
	case learned != "":
		step = p.recordRollbackResult(j, target, learned, message)
	case p.hasFailingSet(j):
		return p.revertFailed(j, target)
	case j.verdict.Action == judge.ActionNone && p.mayRecordEvidence(j):
		step = p.recordEvidence(j, target)
	case j.verdict.Action == judge.ActionNone && j.isAhead && j.mayRevert():
		target.Note.Message = "The time of the last write was in the future; it counts from now"
		step = RecordSet{OnVolume: target, Set: p.sets.carried(j), Mark: j.Mark, text: "correct the time of " + j.Volume.Name}
	case j.verdict.Action == judge.ActionNone:
		return true
	case j.verdict.ChangesOptions(j.Volume):
		return false
	case j.verdict.Action == judge.ActionWrite:
		step = WriteOptions{OnVolume: target, Verdict: *j.verdict}
	case j.verdict.Action == judge.ActionRestore:
		step = RestoreOptions{OnVolume: target, Options: j.verdict.Options}
	default:
		step = ReleaseVolume{OnVolume: target}
	}
	if !p.isRejected(j.Volume.Name) {
		p.plan.Steps = append(p.plan.Steps, step)
	}
	return true
}

// noteFor records the note of a volume, unless no profile concerns it.
func (p *planner) noteFor(pv *corev1.PersistentVolume, v *judge.Verdict) Note {
	n := Note{Volume: pv.Name, Reason: v.Reason, Message: v.Message, State: v.State, Object: pv}
	if v.State != judge.StateUnselected || v.Action != judge.ActionNone {
		p.plan.Notes[pv.Name] = n
	}
	return n
}

// isRejected reports whether the API server rejected the volume's last write. A volume that a policy protects must not block all others as the
// canary.
func (p *planner) isRejected(volume string) bool {
	retryAt, rejected := p.Rejected[volume]
	if !rejected || !p.Now.Before(retryAt) {
		return false
	}
	p.planAgain(retryAt)
	note := p.plan.Notes[volume]
	note.Message = "The API server rejected the last write; next attempt at " + retryAt.UTC().Format(time.RFC3339) + ": " + note.Message
	p.plan.Notes[volume] = note
	return true
}

// stepInBatch plans a change of mount options, or notes the reason for the wait. The canary of an option set goes alone: one volume. Later
// batches are limited to the profile's share. Volumes wait while another batch soaks, and after a FailedMount. A volume of several profiles
// waits for all of them.
func (p *planner) stepInBatch(j evaluation) {
	if p.isRejected(j.Volume.Name) {
		return
	}
	start, wait := time.Time{}, p.waitsForProbe(j)
	for _, name := range j.verdict.Profiles {
		progress := p.progress[name]
		wait = cmp.Or(wait, progress.waitsFor(j, p.waitsForMount(j), p.Now))
		switch at := progress.batchTime(p.Now); {
		case start.IsZero():
			start = at
		case !start.Equal(at):
			wait = cmp.Or(wait, "StorageClientProfile "+name+": another batch comes first")
		}
	}
	note := p.plan.Notes[j.Volume.Name]
	if wait != "" {
		note.Message = wait + "; then " + note.Message
		p.plan.Notes[j.Volume.Name] = note
		return
	}
	for _, name := range j.verdict.Profiles {
		p.plan.Canary = p.plan.Canary || !p.progress[name].isProven(j)
		p.progress[name].countPlanned(j)
		p.planAgain(start.Add(soakOf(p.progress[name].profile)))
	}
	mark, set := judge.MarkFor(*j.verdict, start), p.sets[j.verdict.Set]
	evidence, known := set.EvidenceOn(j.Source.Server)
	mark.Cluster = p.Cluster
	switch f := j.FailedMount; {
	case f != nil:
		mark.Failed = !f.Cleared || f.Failure == "" // without a failure, no pod waited for the result
	case j.HasAppliedOptions && j.Mark != nil && j.Mark.Failed:
		mark.Failed = !p.sets.carriedIsProven(j)
	}
	mark.Unproven, mark.Evidence, mark.Probed = !known, evidence.Text, known && set.Evidence == nil
	p.plan.Steps = append(p.plan.Steps, WriteOptions{OnVolume: OnVolume{Note: note}, Verdict: *j.verdict, Mark: mark})
}

// noteHeldFailure notes that a held volume cannot be mounted. A user holds it, and must decide about a restore.
func (p *planner) noteHeldFailure(j evaluation, message string) {
	note := p.plan.Notes[j.Volume.Name]
	note.Message = fmt.Sprintf("A pod could not mount the volume with %s: %s; original options not restored: %s",
		strings.Join(j.Volume.Spec.MountOptions, ","), text.Line(message), note.Message)
	p.plan.Notes[j.Volume.Name] = note
}

// watchBatches plans again when a batch is over.
func (p *planner) watchBatches() {
	for _, progress := range p.progress {
		for _, b := range progress.busy {
			p.planAgain(b.end)
		}
		p.soaking = p.soaking || progress.planned > 0
		if p.waiting && progress.batches[p.Now.Unix()] != nil {
			p.planAgain(p.Now.Truncate(time.Second).Add(time.Second))
		}
	}
	if p.soaking {
		p.planAgain(p.Now.Add(observeInterval))
	}
}

func (p *planner) planAgain(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// isWatched reports whether failed mounts of the volume matter: it carries options of the operator.
func (j evaluation) isWatched() bool {
	return j.mayRevert() || j.HasAppliedOptions && j.verdict.State == judge.StateHeld
}

// mayRevert reports whether the volume carries options of the operator and may be written.
func (j evaluation) mayRevert() bool {
	v := j.verdict
	return j.HasAppliedOptions && (v.State == judge.StateUpToDate || v.State == judge.StatePending || v.Contested)
}

// carriedSince returns the time at which the volume got its mount options, if recorded.
func (j evaluation) carriedSince() time.Time {
	if j.Mark == nil {
		return j.Volume.CreationTimestamp.Time
	}
	return j.Mark.Since
}

func (p *planner) isAnySoaking() bool { return slices.ContainsFunc(p.volumes, p.isSoaking) }

// isSoaking reports whether the volume carries its options and its batch still soaks.
func (p *planner) isSoaking(j evaluation) bool {
	if !j.carriesBatch() {
		return false
	}
	for _, name := range j.verdict.Profiles {
		if profile := p.Profiles.Get(name); j.Mark.IsBatchOf(name) && p.Now.Before(j.Mark.Since.Add(soakOf(profile))) {
			return true
		}
	}
	return false
}

// inOrder sorts volumes by canaryRank, then by age, then by name.
func (p *planner) inOrder(all []evaluation) []evaluation {
	slices.SortStableFunc(all, func(a, b evaluation) int {
		byAge := a.Volume.CreationTimestamp.Compare(b.Volume.CreationTimestamp.Time)
		return cmp.Or(cmp.Compare(p.canaryRank(a), p.canaryRank(b)), byAge, strings.Compare(a.Volume.Name, b.Volume.Name))
	})
	return all
}
