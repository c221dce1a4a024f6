package recommend

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
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

// Evaluate evaluates a sample. A bottleneck hides the bottlenecks behind it, so only the first one is reported, together with the independent ones
// and all patterns. A user must decide on a change against which there is a warning.
func Evaluate(s Sample, node advice.Node, volume drivers.Source) Verdict {
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
	for i := range found {
		if f := &found[i]; f.Cause == CauseClient {
			warnings := s.warnings(f.Change, node, volume)
			f.ByHand, f.Against = f.ByHand || warnings != "", text.Combine("; ", f.Against, warnings)
		}
	}
	return Verdict{Summary: summarize(s, found), Findings: found}
}

// warnings returns a warning if a user chose an option of the mount, and what advice and the registry report about the mount with a change.
func (s Sample) warnings(c Change, node advice.Node, volume drivers.Source) string {
	texts := []string{text.Labelled("find out first why the mount has ", strings.Join(chosenOptions(s.Options), ", "))}
	rule := v1alpha1.VolumeRule{MountOptions: joinOptions(mountoptions.OfMount(s.Protocol), c.MountOptions, asOptions(s.Options))}
	if c.ReadAheadKiB > 0 {
		rule.ReadAheadKiB = &c.ReadAheadKiB
	}
	options, profile := optionTexts(rule.MountOptions), &v1alpha1.StorageClientProfile{}
	profile.Spec.Node, profile.Spec.Volumes = c.Node, []v1alpha1.VolumeRule{rule}
	node.Mounts = []v1alpha1.MountStatus{{Protocol: s.Protocol, Options: options}}
	for _, a := range advice.For(advice.Input{Profile: profile, Nodes: []advice.Node{node}}) {
		if a.Severity != v1alpha1.SeverityInfo || strings.HasPrefix(a.ID, "known-bad-") {
			texts = append(texts, a.Text)
		}
	}
	// Advice omits entries that need a further sign. If the change brings the options of an entry, it is the sign.
	server, kernel := cmp.Or(volume.Server, s.Server), knownbad.ParseKernel(node.Kernel, node.Build)
	for _, e := range knownbad.Entries() {
		isBrought := e.Signed && e.Concerns(s.Protocol, options) && !e.Concerns(s.Protocol, s.Options) && e.On(kernel) != knownbad.Clear
		if isBrought && (e.Server == "" || slices.ContainsFunc(e.Hosts, func(host string) bool { return strings.Contains(server, host) })) {
			texts = append(texts, e.Advice())
		}
	}
	return text.Combine("; ", texts...)
}

// chosenOptions returns the options that a user chose for a purpose that counters do not show.
func chosenOptions(options []string) []string {
	return lists.Filter(options, func(o string) bool {
		name, value, _ := strings.Cut(o, "=")
		usual, isKnown := rules.Usual[name]
		return isKnown && !slices.Contains(usual, value) || slices.Contains(rules.Chosen, o)
	})
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
	// Effect, Against and ByHand are the same for all findings. Empty if they depend on the sample.
	Effect, Against string
	ByHand          bool
	// Independent reports whether the problem leaves room for others. Patterns are always independent.
	Independent bool
}

//go:embed rules.yaml
var rulesYAML []byte

// rules contains the rules in evaluation order. Usual are the values of options that users have not chosen for a purpose, and Chosen are other options.
var rules = embedded.Parse[struct {
	Bottlenecks, Patterns []Rule
	Usual                 map[string][]string
	Chosen                []string
	LinkGigabits          []float64
}]("rules of the recommendations", rulesYAML)

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
	f.Rule, f.Cause, f.Source, f.Effect = r.ID, r.Cause, r.Source, cmp.Or(f.Effect, r.Effect)
	f.ByHand, f.Against = r.ByHand || f.Against != "", text.Combine("; ", f.Against, r.Against)
	return f, ok
}

// reasonIf returns a reason to leave a change to a user. Empty if it does not hold.
func reasonIf(holds bool, format string, args ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// Rules returns all rules in evaluation order.
func Rules() []Rule { return slices.Concat(rules.Bottlenecks, rules.Patterns) }
