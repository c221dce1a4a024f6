package recommend

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Cause is whose a bottleneck is.
type Cause string

// Causes.
const (
	// CauseClient is what a setting of the client changes.
	CauseClient Cause = "Client"
	// The other causes are what no setting of the client changes.
	CauseServer      Cause = "Server"
	CauseNetwork     Cause = "Network"
	CauseApplication Cause = "Application"
)

// Finding is one thing that the counters show.
type Finding struct {
	// Rule is the name of what was looked for. It does not change from one release to the next.
	Rule string `json:"rule"`
	// Cause is whose it is.
	Cause Cause `json:"cause"`
	// Seen is what was seen, with its numbers.
	Seen string `json:"seen"`
	// Change is what would help; nothing where no setting of the client does.
	Change Change `json:"change,omitzero"`
	// Effect is what is expected of it, in counts; or what would help in its stead.
	Effect string `json:"effect"`
	// Against is what speaks against it.
	Against string `json:"against,omitempty"`
	// ByHand is true where only somebody who knows the programs can tell whether the change is safe: it is not proposed to be applied.
	ByHand bool `json:"byHand,omitempty"`
	// Source is where the signature is known from.
	Source string `json:"source"`
}

// Change is what a profile would declare.
type Change struct {
	// MountOptions and ReadAheadKiB are of a rule for the volume.
	MountOptions []v1alpha1.MountOption `json:"mountOptions,omitempty"`
	ReadAheadKiB int32                  `json:"readAheadKiB,omitempty"`
	// Node is for the nodes that mount it.
	Node *v1alpha1.NodeTuning `json:"node,omitempty"`
}

// Verdict is what a sample says.
type Verdict struct {
	// Summary says it in a sentence.
	Summary string `json:"summary"`
	// Findings are what was found, the one that explains most first; empty where nothing stands out, or nothing was done.
	Findings []Finding `json:"findings,omitempty"`
	// TooLittle is true where too little was done to tell.
	TooLittle bool `json:"tooLittle,omitempty"`
}

// idleBelow is how many operations say nothing yet.
const idleBelow = 100

// For judges a sample. A bottleneck hides what lies behind it: of those one is named, the first that explains the others. How
// programs use the mount is told beside it.
func For(s Sample) Verdict {
	var found []Finding
	for _, r := range bottlenecks {
		if f, ok := r.apply(s); ok {
			found = append(found, f)
			break
		}
	}
	if len(found) == 0 && s.total() < idleBelow && s.Log.Writes < idleBelow {
		return Verdict{TooLittle: true, Summary: fmt.Sprintf("%d operations in %.0f s say nothing yet: measure while the work runs.", s.total(), s.Seconds)}
	}
	for _, r := range patterns {
		if f, ok := r.apply(s); ok {
			found = append(found, f)
		}
	}
	return Verdict{Summary: sum(s, found), Findings: found}
}

func sum(s Sample, found []Finding) string {
	switch {
	case len(found) == 0 && s.Requests > 0:
		return workOf(s) + ". The kernel tells neither kind nor time of the requests of SMB, and no change is recommended."
	case len(found) == 0:
		return workOf(s) + ". Nothing stands out, and no change is recommended."
	case slices.ContainsFunc(found, func(f Finding) bool { return f.Cause == CauseClient }):
		return workOf(s) + ". A setting of the client helps."
	}
	return workOf(s) + ". No setting of the client will help."
}

// workOf is how much was done.
func workOf(s Sample) string {
	if s.Log.Writes > 0 {
		return fmt.Sprintf("%.0f writes to the log a second", s.perSecond(s.Log.Writes))
	}
	work := fmt.Sprintf("%.0f operations a second", s.perSecond(s.total()))
	if t := s.times(); t.count > 0 {
		work += fmt.Sprintf(", small ones take %.1f ms", t.queue+t.trip)
	}
	return work
}

// Rule is one thing to look for.
type Rule struct {
	// ID is the rule's name.
	ID string
	// Cause is whose it is.
	Cause Cause
	// Title says in one sentence what the rule is about.
	Title string
	// Signature is what counters show, with the thresholds.
	Signature string
	// Source is where that is known from.
	Source string

	check func(Sample) (Finding, bool)
}

func (r Rule) apply(s Sample) (Finding, bool) {
	f, ok := r.check(s)
	f.Rule, f.Cause, f.Source = r.ID, r.Cause, r.Source
	return f, ok
}

// Rules are all rules, in the order in which they are tried.
func Rules() []Rule { return append(slices.Clone(bottlenecks), patterns...) }
