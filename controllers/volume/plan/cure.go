package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// failureOf is the failed mount of a volume that carries a list of ours, but for one that other lists do not keep away.
func (p *planner) failureOf(j judged) (Failure, bool) {
	failure, failed := p.FailedMounts[j.Volume.Name]
	if !failed || !j.isWatched() || slices.Contains(p.acquitted[j.carriedSet()], failure.Kind) {
		return Failure{}, false
	}
	return failure, true
}

// carriedSet is the set of options that the volume's list was written for.
func (j judged) carriedSet() string {
	if j.Mark == nil {
		return j.verdict.Set
	}
	return j.Mark.Set
}

// acquittedFailures are failures that were there with a volume's own list, too, by set.
func acquittedFailures(all []judged) map[string][]string {
	out := map[string][]string{}
	for _, j := range all {
		if j.Mark != nil && j.Mark.Acquitted != "" {
			out[j.Mark.Set] = append(out[j.Mark.Set], j.Mark.Acquitted)
		}
		if j.FailedMount != nil && j.FailedMount.Acquitted {
			out[j.FailedMount.Set] = append(out[j.FailedMount.Set], j.FailedMount.Failure)
		}
	}
	return out
}

// isInCure says whether it matters how pods mount the volume, which has its own list back.
func (j judged) isInCure() bool {
	return j.FailedMount.IsInCure() && j.verdict.State != judge.StateHeld && j.verdict.State != judge.StateUnselected
}

// judgeCure says what has been learned of a list that was taken back; nil: nothing. If the volume mounts with its own, that list is to
// blame; if it fails alike, it is not. Where no pod waits any more, a text that spoke of options stands, and one that did not is void.
func (p *planner) judgeCure(j judged) (learned *judge.FailedMount, message string) {
	cure, known := p.Cures[j.Volume.Name]
	if !known || !j.isInCure() {
		return nil, ""
	}
	failed := *j.FailedMount
	wasSuspected := failed.Suspected
	failed.Suspected = false
	switch {
	case cure == CureFailed:
		failed.Acquitted = true
		return &failed, "a pod cannot mount it with its own options either: the declared ones are not to blame, and come again"
	case cure == CureEnded && wasSuspected:
		failed.Acquitted, failed.Failure = true, ""
		return &failed, "no pod waits for it any more, and nothing was learned: the declared options come again"
	}
	failed.Settled = true
	shown := "it mounts with its own options"
	if cure == CureEnded {
		shown = "no pod waits for it any more"
	}
	return &failed, fmt.Sprintf("%s, and could not be mounted with %s; no other volume gets these options until a rule that declares them changes", shown, failed)
}

// findGuilty finds the sets of options that a volume could not be mounted with, where nothing more is to be learned of that.
func (p *planner) findGuilty() map[string]string {
	out, open := map[string]string{}, map[string]bool{}
	blame := func(set, volume string) {
		if by := out[set]; by == "" || volume < by {
			out[set] = volume
		}
	}
	for _, j := range p.volumes {
		switch {
		case j.FailedMount.IsInCure():
			open[j.FailedMount.Set] = true
		case j.FailedMount.Stops():
			blame(j.FailedMount.Set, j.Volume.Name)
		}
	}
	for _, failed := range p.failedSets {
		if failed.Server == "" {
			blame(failed.Set, failed.Volume)
		}
	}
	maps.DeleteFunc(out, func(set, _ string) bool { return open[set] })
	return out
}

// isGuilty says whether the volume carries a list of a set that another one could not be mounted with, and that nothing has ever shown to
// work. Where something has, the failure is that volume's own: what any namespace may tell of its volumes takes no list from others.
func (p *planner) isGuilty(j judged) bool {
	_, shown := p.evidence.ofSet(j.carriedSet(), j)
	return p.guilty[j.carriedSet()] != "" && !shown && j.mayBeTakenBack()
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
	on.Note.Message = judge.PutBackText(p.guilty[j.carriedSet()], j.Record.Original)
	if !p.isRefused(j.Volume.Name) {
		p.plan.Notes[j.Volume.Name] = on.Note
		p.plan.Steps = append(p.plan.Steps, RestoreOptions{OnVolume: on, Options: j.Record.Original})
	}
	return true
}
