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
	"github.com/storageclient/operator/tuning/text"
)

// planner holds one pass. It is thrown away after it.
type planner struct {
	Snapshot
	volumes []judged
	// sets are the records of sets of options. news are the sets that a mount was seen of which is not recorded.
	sets sets
	news map[string]bool
	// blamed are the records that hold failed mounts of which the cause is open, by volume.
	blamed map[string]*optionset.Record
	// later records what has been learned, which holds from the next plan on.
	later []func()
	// carriers and unusedCarriers are the volumes that carry lists which nothing has shown to work, by set.
	carriers, unusedCarriers map[string][]string
	// mounted are the volumes that nodes report mounts of.
	mounted  map[string]bool
	progress map[string]*progress
	// soaking is true while the time of a volume's batch is not over.
	soaking bool
	// tried are the sets of options that a volume of the server has been given: see triedKeys.
	tried map[ProbeKey]bool
	// waiting is true if a list is to change.
	waiting bool
	plan    Plan
}

// For decides what to write next, and says for every volume why.
func For(s Snapshot) Plan { return newPlanner(s).decide() }

func (p *planner) decide() Plan {
	p.noteFailures()
	p.mounted, p.soaking = p.findMounted(), p.isAnySoaking()
	p.progress = p.progressByProfile()
	var changes []judged
	for _, j := range p.volumes {
		if !p.stepAtOnce(j) {
			changes = append(changes, j)
		}
	}
	p.waiting = len(changes) > 0
	slices.SortFunc(p.plan.Steps, func(a, b Step) int { return strings.Compare(a.Target().Name, b.Target().Name) })
	for _, j := range p.inOrder(changes) {
		p.stepInBatch(j)
	}
	p.watchBatches()
	if slices.ContainsFunc(p.volumes, func(j judged) bool { return j.isWatched() || p.isInCure(j) }) {
		p.planAgain(p.Now.Add(watchEvery))
	}
	for _, learn := range p.later {
		learn()
	}
	p.keepLedger()
	return p.plan
}

func newPlanner(s Snapshot) *planner {
	p := &planner{Snapshot: s, volumes: s.judgeAll(), plan: Plan{Notes: make(map[string]Note, len(s.Volumes))}}
	p.tried = triedKeys(p.volumes)
	p.readSets()
	p.observeProbes()
	p.observeMounts()
	p.followBlamed()
	p.findCarriers()
	return p
}

// stepAtOnce plans what waits for nobody, and leaves a change of the list for a profile to stepInBatch.
func (p *planner) stepAtOnce(j judged) bool {
	on := OnVolume{Note: p.noteFor(j.Volume, j.verdict)}
	var step Step
	failure, failed := p.failureOf(j)
	learned, message := p.judgeCure(j)
	switch {
	case failed && j.verdict.State == judge.StateHeld:
		p.noteHeldFailure(j, failure.Text)
		return true
	case (failed || p.blameOf(j) != nil) && j.mayBeTakenBack():
		step = p.revert(j, failure)
	case learned != "":
		step = p.recordCure(j, on, learned, message)
	case p.isGuilty(j):
		return p.putBackGuilty(j, on)
	case j.verdict.Action == judge.ActionNone && p.mayRecordEvidence(j):
		step = p.recordEvidence(j, on)
	case j.verdict.Action == judge.ActionNone:
		return true
	case j.verdict.ChangesList(j.Volume):
		return false
	case j.verdict.Action == judge.ActionWrite:
		step = WriteOptions{OnVolume: on, Verdict: j.verdict}
	case j.verdict.Action == judge.ActionRestore:
		step = RestoreOptions{OnVolume: on, Options: j.verdict.Options}
	default:
		step = ReleaseVolume{OnVolume: on}
	}
	if !p.isRefused(j.Volume.Name) {
		p.plan.Steps = append(p.plan.Steps, step)
	}
	return true
}

// noteFor keeps what is to be said of a volume; of one that concerns no profile there is nothing to say.
func (p *planner) noteFor(pv *corev1.PersistentVolume, v judge.Verdict) Note {
	n := Note{Volume: pv.Name, Reason: v.Reason, Message: v.Message, State: v.State, Object: pv}
	if v.State != judge.StateUnselected || v.Action != judge.ActionNone {
		p.plan.Notes[pv.Name] = n
	}
	return n
}

// isRefused says whether the API server refused the volume's last write. One that a policy protects must not keep all others
// waiting as the canary.
func (p *planner) isRefused(volume string) bool {
	until, refused := p.Refused[volume]
	if !refused || !p.Now.Before(until) {
		return false
	}
	p.planAgain(until)
	note := p.plan.Notes[volume]
	note.Message = "the last write was refused, the next is tried at " + until.UTC().Format(time.RFC3339) + "; then " + note.Message
	p.plan.Notes[volume] = note
	return true
}

// stepInBatch plans a change of the list, or says what it waits for. The canary of an option set, one volume, goes alone; then no
// more at a time than the profile's share, and nothing while the batch before is not over, or after a FailedMount. A volume of
// several profiles goes when all of them let it.
func (p *planner) stepInBatch(j judged) {
	if p.isRefused(j.Volume.Name) {
		return
	}
	since, wait := time.Time{}, p.waitsForProbe(j)
	for _, name := range j.verdict.Profiles {
		progress := p.progress[name]
		wait = cmp.Or(wait, progress.waitsFor(j, p.waitsForMount(j), p.Now))
		switch at := progress.batchTime(p.Now); {
		case since.IsZero():
			since = at
		case !since.Equal(at):
			wait = cmp.Or(wait, "profile "+name+": another batch comes first")
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
		p.planAgain(since.Add(soakOf(p.progress[name].profile)))
	}
	mark, set := judge.MarkFor(j.verdict, since), p.sets[j.verdict.Set]
	evidence, known := set.EvidenceOn(j.Source.Server)
	mark.Unproven, mark.Evidence, mark.Probed = !known, evidence.Text, known && set.Evidence == nil
	p.plan.Steps = append(p.plan.Steps, WriteOptions{OnVolume: OnVolume{Note: note}, Verdict: j.verdict, Mark: mark})
}

// noteHeldFailure says of a volume that may not be written that it cannot be mounted: what holds it is somebody's decision, and theirs
// to reconsider.
func (p *planner) noteHeldFailure(j judged, message string) {
	note := p.plan.Notes[j.Volume.Name]
	note.Message = fmt.Sprintf("a pod could not mount it with %s: %s; its own options stay away as long as %s",
		strings.Join(j.Volume.Spec.MountOptions, ","), text.Line(message), note.Message)
	p.plan.Notes[j.Volume.Name] = note
}

// watchBatches plans again when a batch is over.
func (p *planner) watchBatches() {
	for _, progress := range p.progress {
		for _, b := range progress.busy {
			p.planAgain(b.until)
		}
		p.soaking = p.soaking || progress.planned > 0
		if p.waiting && progress.batches[p.Now.Unix()] != nil {
			p.planAgain(p.Now.Truncate(time.Second).Add(time.Second))
		}
	}
	if p.soaking {
		p.planAgain(p.Now.Add(observeEvery))
	}
}

func (p *planner) planAgain(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// isWatched says whether it matters that a pod cannot mount the volume: it carries a list of ours.
func (j judged) isWatched() bool {
	return j.mayBeTakenBack() || j.CarriesOurs && j.verdict.State == judge.StateHeld
}

// mayBeTakenBack says whether the volume carries a list of ours, and may be written.
func (j judged) mayBeTakenBack() bool {
	v := j.verdict
	return j.CarriesOurs && (v.State == judge.StateUpToDate || v.State == judge.StatePending || v.Contested)
}

// carriedSince is when the volume got its list, as far as anybody remembers.
func (j judged) carriedSince() time.Time {
	if j.Mark == nil {
		return j.Volume.CreationTimestamp.Time
	}
	return j.Mark.Since
}

func (p *planner) isAnySoaking() bool { return slices.ContainsFunc(p.volumes, p.isSoaking) }

// isSoaking says whether the volume carries its list and the time of its batch is not over.
func (p *planner) isSoaking(j judged) bool {
	if !j.CarriesOurs || !j.isMarkCurrent() {
		return false
	}
	for _, name := range j.verdict.Profiles {
		if profile := p.Profiles.Get(name); j.Mark.IsBatchOf(name) && p.Now.Before(j.Mark.Since.Add(soakOf(profile))) {
			return true
		}
	}
	return false
}

// inOrder sorts volumes: what may show soon whether its options work, then by age, and by name where that is equal.
func (p *planner) inOrder(all []judged) []judged {
	slices.SortStableFunc(all, func(a, b judged) int {
		return cmp.Or(cmp.Compare(p.canaryRank(a), p.canaryRank(b)), a.Volume.CreationTimestamp.Compare(b.Volume.CreationTimestamp.Time), strings.Compare(a.Volume.Name, b.Volume.Name))
	})
	return all
}
