package recommend

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
)

// Cause is the origin of a bottleneck.
type Cause string

// Causes. Client settings change only CauseClient.
const (
	CauseClient      Cause = "Client"
	CauseServer      Cause = "Server"
	CauseNetwork     Cause = "Network"
	CauseApplication Cause = "Application"
)

// Finding is one problem that the counters show.
type Finding struct {
	// Rule is the ID of the rule. It is stable across releases.
	Rule  string `json:"rule"`
	Cause Cause  `json:"cause"`
	// Seen describes the observation, with its numbers.
	Seen string `json:"seen"`
	// Change is the proposed change. Empty if no client setting helps.
	Change Change `json:"change,omitzero"`
	// Effect is the expected effect in counts. If no client setting helps, it describes other remedies.
	Effect string `json:"effect"`
	// Against describes the disadvantages of the change.
	Against string `json:"against,omitempty"`
	// ByHand is true if a user who knows the programs must decide whether the change is safe. Propose then leaves it out.
	ByHand bool `json:"byHand,omitempty"`
	// Source is the source of the signature.
	Source string `json:"source"`
}

// Change is a proposed change to a profile.
type Change struct {
	// MountOptions and ReadAheadKiB belong to a volume rule.
	MountOptions []v1alpha1.MountOption `json:"mountOptions,omitempty"`
	ReadAheadKiB int32                  `json:"readAheadKiB,omitempty"`
	// Node belongs to the nodes that mount the volume.
	Node *v1alpha1.NodeTuning `json:"node,omitempty"`
}

// Verdict is the evaluation of a sample.
type Verdict struct {
	// Summary is the verdict in one sentence.
	Summary string `json:"summary"`
	// Findings are ordered by how much they explain. Empty if there are none, or if there were too few operations.
	Findings []Finding `json:"findings,omitempty"`
	// TooLittle is true if there were too few operations for a verdict.
	TooLittle bool `json:"tooLittle,omitempty"`
}

// idleBelow is the number of operations below which a sample is too small.
const idleBelow = 100

// For evaluates a sample. A bottleneck hides the bottlenecks behind it, so only the first one is reported, together with the independent ones
// and all patterns.
func For(s Sample) Verdict {
	var found []Finding
	for _, r := range rules.Bottlenecks {
		if f, ok := r.apply(s); ok {
			found = append(found, f)
			if !r.Independent {
				break
			}
		}
	}
	if len(found) == 0 && s.total() < idleBelow && s.Log.Writes < idleBelow {
		return Verdict{TooLittle: true, Summary: fmt.Sprintf("%d operations in %.0f s are too few: measure while the work runs.", s.total(), s.Seconds)}
	}
	found = append(found, lists.Pick(rules.Patterns, func(r Rule) (Finding, bool) { return r.apply(s) })...)
	return Verdict{Summary: summarize(s, found), Findings: found}
}

func summarize(s Sample, found []Finding) string {
	switch {
	case len(found) == 0 && s.Requests > 0:
		return workOf(s) + ". The kernel does not report the kind or the time of SMB requests. No change is recommended."
	case len(found) == 0:
		return workOf(s) + ". No problems found, and no change is recommended."
	case slices.ContainsFunc(found, func(f Finding) bool { return f.Cause == CauseClient }):
		return workOf(s) + ". A client setting helps."
	}
	return workOf(s) + ". No client setting will help."
}

func workOf(s Sample) string {
	if s.Log.Writes > 0 {
		return fmt.Sprintf("%.0f log writes per second", s.perSecond(s.Log.Writes))
	}
	work := fmt.Sprintf("%.0f operations per second", s.perSecond(s.total()))
	if t := s.times(); t.count > 0 {
		work += fmt.Sprintf(", small operations take %.1f ms", t.queue+t.trip)
	}
	return work
}

// Rule detects one problem.
type Rule struct {
	ID    string
	Cause Cause
	// Title describes the problem in one sentence.
	Title string
	// Signature describes the counters of the problem, with thresholds.
	Signature string
	// Source is the source of the signature.
	Source string
	// Independent reports whether the problem leaves room for others. Patterns are always independent.
	Independent bool
}

//go:embed rules.yaml
var rulesYAML []byte

// rules contains the rules in evaluation order.
var rules = embedded.Parse[struct{ Bottlenecks, Patterns []Rule }]("rules of the recommendations", rulesYAML)

// checks has one entry for each rule; a test verifies this.
var checks = map[string]func(Sample) (Finding, bool){
	"StuckConnection":       stuckConnection,
	"SessionFlaps":          sessionFlaps,
	"PacketLoss":            packetLoss,
	"FewConnections":        fewConnections,
	"BusyServer":            busyServer,
	"FewSlots":              fewSlots,
	"FewSessionSlots":       fewSessionSlots,
	"SlowNetwork":           slowNetwork,
	"AttributeRevalidation": attributeRevalidation,
	"CloseToOpen":           closeToOpen,
	"LargeReadAhead":        largeReadAhead,
	"SmallReadAhead":        smallReadAhead,
	"SmallTransfers":        smallTransfers,
	"SynchronousMount":      synchronousMount,
	"SynchronousWrites":     synchronousWrites,
	"OpenAndClose":          openAndClose,
	"LogBuffers":            logBuffers,
}

func (r Rule) apply(s Sample) (Finding, bool) {
	f, ok := checks[r.ID](s)
	f.Rule, f.Cause, f.Source = r.ID, r.Cause, r.Source
	return f, ok
}

// Rules returns all rules in evaluation order.
func Rules() []Rule { return slices.Concat(rules.Bottlenecks, rules.Patterns) }
