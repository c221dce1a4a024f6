// Package verdict compares passes of one workload with two sets of mount options. The candidate is better than the current options,
// worse, not different, or the comparison is undecided. Each round has three passes, one for each arm. Two of them use the current
// options: their difference is noise, and only larger differences count.
//
// All functions are pure: they do not access the cluster, the host or the clock.
package verdict

import "github.com/storageclient/operator/api/v1alpha1"

// Names of metrics in addition to the names of operations. Less is better for all of them.
const (
	// Seconds is the duration.
	Seconds = "Seconds"
	// Operations is the number of requests, without requests that only maintain the state of the client on its server.
	Operations = "Operations"
	// Bytes is the number of sent and received bytes.
	Bytes = "Bytes"
	// BytesSent and BytesReceived are names of counts.
	BytesSent     = "BytesSent"
	BytesReceived = "BytesReceived"
	// GetAttr is the operation whose number depends on the duration of a phase.
	GetAttr = "GETATTR"
)

// Work describes the work of all passes. Only the cache times determine whether a client requests attributes again within a pass.
type Work struct {
	// Unit is the unit of TrialPassPhase.Units in the singular: entry, file, block. Defaults to unit.
	Unit string
	// BeforeSeconds and AfterSeconds are acregmin of the current options and the candidate. Zero if attributes are not cached.
	BeforeSeconds, AfterSeconds float64
	// PauseSeconds is the fixed pause between two phases.
	PauseSeconds float64
}

// Outcomes.
const (
	// Better means that the goal is reached and that no phase takes longer than the margin of time.
	Better v1alpha1.TrialVerdict = "Better"
	Worse  v1alpha1.TrialVerdict = "Worse"
	// FewerRequests means that the counts are better, and that the time is not shown to be better.
	FewerRequests v1alpha1.TrialVerdict = "FewerRequests"
	NoDifference  v1alpha1.TrialVerdict = "NoDifference"
	Undecided     v1alpha1.TrialVerdict = "Undecided"
)

// Verdict is the evaluation of the passes.
type Verdict struct {
	Outcome v1alpha1.TrialVerdict
	// Why explains the outcome in one or two sentences.
	Why string
	// Rounds is the number of complete rounds.
	Rounds int
	// Results are ordered by phase; within a phase: Operations, Bytes, Seconds, then operations by name.
	Results []Result
}

// Result is one metric of one phase.
type Result struct {
	Phase  string
	Metric string
	// Unit is the unit of Before and After.
	Unit string
	// Before and After are medians over the rounds.
	Before float64
	After  float64
	// Ratio is the median of After over Before in each round. Low and High are the ends of its interval, with at least 95 % confidence
	// for all results together. All three are zero if there are too few rounds.
	Ratio float64
	Low   float64
	High  float64
	// SameLow and SameHigh are the ends of the interval of the current options against themselves.
	SameLow  float64
	SameHigh float64
	// Outcome is the outcome of this result, never FewerRequests.
	Outcome v1alpha1.TrialVerdict
	// Decides reports whether the verdict depends on this result.
	Decides bool
	// Note explains why a result is undecided, or contains additional information.
	Note string
	// Rounds is the number of rounds of this result.
	Rounds int
}
