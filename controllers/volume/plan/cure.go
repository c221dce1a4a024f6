package plan

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// failureOf returns the failed mount of a volume that has options of the operator. One that was there with the original options does not count.
func (p *planner) failureOf(j judged) (failure Failure, failed bool) {
	failure, failed = p.FailedMounts[j.Volume.Name]
	return failure, failed && j.isWatched() && p.sets.carried(j).Counts(failure.Kind)
}

// noteFailures notes the failed mounts of volumes that may get their original options back.
func (p *planner) noteFailures() {
	for _, j := range p.volumes {
		if failure, failed := p.failureOf(j); failed && j.mayBeTakenBack() {
			r := p.sets.carried(j)
			r.Next(optionset.Event{Kind: optionset.MountFailed, Server: j.Source.Server, Blame: blameFor(j, failure), At: p.second()})
			p.noteBlamed(r)
		}
	}
}

func blameFor(j judged, failure Failure) optionset.Blame {
	return optionset.Blame{
		Volume: j.Volume.Name, UID: j.Volume.UID, Options: j.Volume.Spec.MountOptions, Failure: failure.Kind, Text: failure.Text, Unclear: !failure.SpeaksOfOptions,
	}
}

// revert gives a volume its original options back that a pod could not mount with ours.
func (p *planner) revert(j judged, failure Failure) Step {
	set, known := p.sets.carried(j), p.blameOf(j)
	blame := blameFor(j, failure)
	blame.Since = p.second()
	if known != nil {
		blame = *known
	}
	verdict := judge.Reverted(j.verdict, set, blame)
	step := RestoreOptions{OnVolume: OnVolume{Note: p.noteFor(j.Volume, verdict)}, Options: verdict.Options, FailedMount: &optionset.Failed{Identity: set.Identity, Blame: blame}}
	if known != nil {
		step.Set = set
	}
	return step
}

// isInCure reports whether it matters how pods mount the volume, which has its original options back. It does so too if no rule selects the
// volume any more: others wait for it.
func (p *planner) isInCure(j judged) bool {
	b := p.blameOf(j)
	if b == nil || b.RevertedAt.IsZero() || j.CarriesOurs {
		return false
	}
	isHeld := func(profile *judge.Profile) bool {
		return profile.IsHeld() && p.blamed[j.Volume.Name].IsOf(profile.Name)
	}
	switch j.verdict.State {
	case judge.StateHeld:
		return false
	case judge.StateUnselected:
		return j.verdict.Reason == v1alpha1.VolumeReasonNotSelected && !slices.ContainsFunc(p.Profiles.All(), isHeld)
	case judge.StatePending, judge.StateUpToDate, judge.StateBlocked:
	}
	return true
}

// judgeCure returns what pods have shown of a volume that has its original options back, and what follows. Nothing if it is empty.
func (p *planner) judgeCure(j judged) (kind optionset.Kind, message string) {
	cure, known := p.Cures[j.Volume.Name]
	if !known || !p.isInCure(j) {
		return "", ""
	}
	b, shown := *p.blameOf(j), "it mounts with its own options"
	switch cure {
	case CureFailed:
		return optionset.OwnFailed, "a pod cannot mount it with its own options either: the declared ones are not to blame, and come again"
	case CureEnded:
		if b.Unclear {
			return optionset.NoPodWaits, "no pod waits for it any more, and nothing was learned: the declared options come again"
		}
		kind, shown = optionset.NoPodWaits, "no pod waits for it any more"
	case CureWorked:
		kind = optionset.OwnMounted
	}
	return kind, fmt.Sprintf("%s, and could not be mounted with %s; no other volume gets these options until a rule that declares them changes",
		shown, judge.BlameText(p.blamed[j.Volume.Name], b))
}

// recordCure records it. It holds from the next plan on.
func (p *planner) recordCure(j judged, on OnVolume, kind optionset.Kind, message string) RecordSet {
	r := p.blamed[j.Volume.Name]
	p.later = append(p.later, func() { r.Next(p.eventOn(j.Volume.Name, kind)) })
	on.Note.Reason, on.Note.Message = v1alpha1.VolumeReasonFailedMount, message
	out := RecordSet{OnVolume: on, Set: r, text: fmt.Sprintf("judge %s: %s", j.Volume.Name, message)}
	if j.FailedMount != nil && j.verdict.State != judge.StateUnselected {
		out.FailedMount = j.FailedMount.Judged(kind)
	}
	return out
}

// isGuilty reports whether the volume carries a list of a set that must go from all volumes. If anything has shown the set to work, a
// failure is that volume's own: what any namespace may tell of its volumes takes no list from others.
func (p *planner) isGuilty(j judged) bool {
	return p.sets[j.carriedSet()].MustRestore(j.Source.Server) && j.mayBeTakenBack()
}

// putBackGuilty gives such a volume its own list back before a pod of its own fails, as many at a time as its profiles let be written.
func (p *planner) putBackGuilty(j judged, on OnVolume) bool {
	for _, name := range j.verdict.Profiles {
		if progress := p.progress[name]; progress.putBack >= progress.share() {
			p.planAgain(p.Now.Add(observeEvery))
			return true
		}
	}
	for _, name := range j.verdict.Profiles {
		p.progress[name].putBack++
	}
	on.Note.State, on.Note.Reason = judge.StatePending, v1alpha1.VolumeReasonFailedMount
	on.Note.Message = judge.PutBackText(p.sets[j.carriedSet()].BlamedVolume(), j.Record.Original)
	if !p.isRefused(j.Volume.Name) {
		p.plan.Notes[j.Volume.Name] = on.Note
		p.plan.Steps = append(p.plan.Steps, RestoreOptions{OnVolume: on, Options: j.Record.Original})
	}
	return true
}
