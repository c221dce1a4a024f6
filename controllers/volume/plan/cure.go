package plan

import (
	"fmt"
	"slices"

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
