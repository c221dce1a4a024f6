package recommend

import (
	_ "embed"
	"slices"

	"github.com/storageclient/operator/tuning/embedded"
)

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
