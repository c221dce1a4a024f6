package plan

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// failureOf returns the failed mount of a volume that has options of the operator. A failure that also occurred with the original options does
// not count.
func (p *planner) failureOf(j evaluation) (failure Failure, failed bool) {
	failure, failed = p.FailedMounts[j.Volume.Name]
	return failure, failed && j.isWatched() && p.sets.carried(j).Counts(failure.Kind)
}

func (p *planner) noteFailures() {
	for _, j := range p.volumes {
		if failure, failed := p.failureOf(j); failed && j.mayRevert() {
			r := p.sets.carried(j)
			r.Next(optionset.Event{Kind: optionset.MountFailed, Server: j.Source.Server, Blame: blameFor(j, failure), At: p.second()})
			p.noteBlamed(r)
		}
	}
}

func blameFor(j evaluation, failure Failure) optionset.Blame {
	return optionset.Blame{
		Volume: j.Volume.Name, UID: j.Volume.UID, Options: j.Volume.Spec.MountOptions,
		Failure: failure.Kind, Text: failure.Text, Unclear: !failure.NamesOptions,
	}
}

// revert restores the original options of a volume that a pod could not mount with the options of the operator.
func (p *planner) revert(j evaluation, failure Failure) Step {
	set, known := p.sets.carried(j), p.blameOf(j)
	blame := blameFor(j, failure)
	blame.Since = p.second()
	if known != nil {
		blame = *known
	}
	verdict := judge.Reverted(*j.verdict, set, blame)
	step := RestoreOptions{
		OnVolume: OnVolume{Note: p.noteFor(j.Volume, &verdict)}, Options: verdict.Options,
		FailedMount: &optionset.Failed{Identity: set.Identity, Blame: blame, Cluster: p.Cluster},
	}
	if known != nil {
		step.Set = set
	}
	return step
}

// isInRollbackCheck reports whether the volume is in its rollback check: it has its original options back, and mounts by pods matter. This includes
// volumes that no rule selects any longer, since other volumes wait for the result.
func (p *planner) isInRollbackCheck(j evaluation) bool {
	b := p.blameOf(j)
	if b == nil || b.RevertedAt.IsZero() || j.HasAppliedOptions {
		return false
	}
	isHeld := func(profile *judge.Profile) bool {
		return profile.IsHeld() && p.blamed[j.Volume.Name].IsDeclaredBy(profile.Name)
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

// rollbackResult returns the result of a volume's rollback check, and its consequence. Empty if there is none.
func (p *planner) rollbackResult(j evaluation) (kind optionset.Kind, message string) {
	if kind = p.RollbackResults[j.Volume.Name]; kind == "" || !p.isInRollbackCheck(j) {
		return "", ""
	}
	b, observation := *p.blameOf(j), "The volume mounts with its original options"
	switch kind {
	case optionset.OwnFailed:
		return kind, "A pod cannot mount the volume with its original options either; " +
			"the declared options are not the cause and are applied again"
	case optionset.OwnUnknown:
		return kind, "A pod has started since the restore, and its mount is unknown; the options stay stopped until another pod mounts the volume: " +
			"restart a pod that uses it"
	case optionset.NoPodWaits:
		if b.IsOpen {
			return "", ""
		}
		if b.Unclear {
			return kind, "No pod waits for the volume anymore; cause unknown; the declared options are applied again"
		}
		observation = "No pod waits for the volume anymore"
	}
	return kind, fmt.Sprintf("%s; it could not be mounted with %s; no other volume gets these options until a rule that declares them changes",
		observation, judge.BlameText(p.blamed[j.Volume.Name], b))
}

// recordRollbackResult records the result of a rollback check. It applies from the next plan on.
func (p *planner) recordRollbackResult(j evaluation, target OnVolume, kind optionset.Kind, message string) RecordSet {
	r := p.blamed[j.Volume.Name]
	p.later = append(p.later, func() {
		for _, blaming := range p.sets {
			blaming.Next(p.eventOn(j.Volume.Name, kind))
		}
	})
	target.Note.Reason, target.Note.Message = v1alpha1.VolumeReasonFailedMount, message
	out := RecordSet{OnVolume: target, Set: r, text: fmt.Sprintf("end rollback check of %s: %s", j.Volume.Name, message)}
	if j.FailedMount != nil && kind != optionset.OwnUnknown && j.verdict.State != judge.StateUnselected {
		out.FailedMount = j.FailedMount.WithResult(kind)
	}
	return out
}

// hasFailingSet reports whether the volume carries options of a set that must be removed from all volumes. If there is evidence that the set works,
// a failure concerns only its volume: an event from one namespace must not change the volumes of others.
func (p *planner) hasFailingSet(j evaluation) bool {
	return j.mayRevert() && p.sets[j.carriedSet()].MustRestore(j.Source.Server)
}

// revertFailed restores a volume of such a set before a pod fails. Each profile limits the number of restores at a time to its share.
func (p *planner) revertFailed(j evaluation, target OnVolume) bool {
	for _, name := range j.verdict.Profiles {
		if progress := p.progress[name]; progress.reverted >= progress.share() {
			p.planAgain(p.Now.Add(observeInterval))
			return true
		}
	}
	for _, name := range j.verdict.Profiles {
		p.progress[name].reverted++
	}
	target.Note.State, target.Note.Reason = judge.StatePending, v1alpha1.VolumeReasonFailedMount
	target.Note.Message = judge.RestoredText(p.sets[j.carriedSet()].BlamedVolume(), j.Record.Original)
	if !p.isRejected(j.Volume.Name) {
		p.plan.Notes[j.Volume.Name] = target.Note
		p.plan.Steps = append(p.plan.Steps, RestoreOptions{OnVolume: target, Options: j.Record.Original})
	}
	return true
}
