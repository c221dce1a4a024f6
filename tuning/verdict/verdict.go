// Package verdict compares passes of one workload with two sets of mount options. The candidate is better than the current options,
// worse, not different, or the comparison is undecided. Each round has three passes, one for each arm. Two of them use the current
// options: their difference is noise, and only larger differences count.
//
// All functions are pure: they do not access the cluster, the host or the clock.
package verdict

// Arm is one of the three passes of a round.
type Arm string

// Arms.
const (
	// Before is the pass with the current options.
	Before Arm = "Before"
	// Again is a second pass with the current options. Its difference from Before is noise.
	Again Arm = "Again"
	// After is the pass with the candidate.
	After Arm = "After"
)

// Names of metrics in addition to the names of operations. Less is better for all of them.
const (
	// Seconds is the duration.
	Seconds = "Seconds"
	// Operations is the number of requests, without requests that only maintain the state of the client on its server.
	Operations = "Operations"
	// Bytes is the number of sent and received bytes.
	Bytes = "Bytes"
	// BytesSent and BytesReceived are names in Phase.Counts.
	BytesSent     = "BytesSent"
	BytesReceived = "BytesReceived"
	// GetAttr is the operation whose number depends on the duration of a phase.
	GetAttr = "GETATTR"
)

// Pass is one complete run of a workload on its own mount.
type Pass struct {
	// Round and Node are the same for the three passes that are compared.
	Round int    `json:"round"`
	Node  string `json:"node"`
	Arm   Arm    `json:"arm"`
	// Phases are the parts of the workload that are evaluated separately, for example a first and a second listing.
	Phases []Phase `json:"phases,omitempty"`
}

// Phase is a part of a pass.
type Phase struct {
	Name string `json:"name"`
	// Units is the amount of work. Unit is its unit in the singular: entry, file, block, MiB.
	Units float64 `json:"units"`
	Unit  string  `json:"unit,omitempty"`
	// Seconds is the duration.
	Seconds float64 `json:"seconds"`
	// Counts maps operations, BytesSent and BytesReceived to their numbers.
	Counts map[string]float64 `json:"counts,omitempty"`
	// Cold are the client caches that were empty, for example attributes, names, data. The state of the server's caches is unknown.
	Cold []string `json:"cold,omitempty"`
}

// Goal is the improvement that the candidate must reach.
type Goal struct {
	// Metric is Seconds, Operations, Bytes or the name of an operation. Defaults to Seconds.
	Metric string `json:"metric,omitempty"`
	// BetterByPercent is the improvement in percent that the whole interval must reach. Defaults to 10. Smaller differences do not count.
	BetterByPercent float64 `json:"betterByPercent,omitempty"`
	// TimeMarginPercent is the increase of the time in percent that the interval of each phase must exclude before a verdict is Better.
	// Defaults to 5.
	TimeMarginPercent float64 `json:"timeMarginPercent,omitempty"`
}

// Attributes contains the cache times of attributes. They determine whether a client requests attributes again within a pass.
type Attributes struct {
	// BeforeSeconds and AfterSeconds are acregmin of the current options and the candidate. Zero if attributes are not cached.
	BeforeSeconds float64 `json:"beforeSeconds"`
	AfterSeconds  float64 `json:"afterSeconds"`
	// PauseSeconds is the fixed pause between two phases.
	PauseSeconds float64 `json:"pauseSeconds"`
}

// Outcome is the result of a comparison.
type Outcome string

// Outcomes.
const (
	// Better means that the goal is reached and that no phase takes longer than the margin of time.
	Better Outcome = "Better"
	Worse  Outcome = "Worse"
	// FewerRequests means that the counts are better, and that the time is not shown to be better.
	FewerRequests Outcome = "FewerRequests"
	NoDifference  Outcome = "NoDifference"
	Undecided     Outcome = "Undecided"
)

// Verdict is the evaluation of the passes.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Why explains the outcome in one or two sentences.
	Why string `json:"why"`
	// Rounds is the number of complete rounds.
	Rounds int `json:"rounds"`
	// Results are ordered by phase; within a phase: Operations, Bytes, Seconds, then operations by name.
	Results []Result `json:"results,omitempty"`
}

// Result is one metric of one phase.
type Result struct {
	Phase  string `json:"phase"`
	Metric string `json:"metric"`
	// Unit is the unit of Before and After.
	Unit string `json:"unit"`
	// Before and After are medians over the rounds.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Ratio is the median of After over Before in each round. Low and High are the ends of its interval, with at least 95 % confidence
	// for all results together. All three are zero if there are too few rounds.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// SameLow and SameHigh are the ends of the interval of the current options against themselves.
	SameLow  float64 `json:"sameLow"`
	SameHigh float64 `json:"sameHigh"`
	// Outcome is the outcome of this result, never FewerRequests.
	Outcome Outcome `json:"outcome"`
	// Decides reports whether the verdict depends on this result.
	Decides bool `json:"decides,omitempty"`
	// Note explains why a result is undecided, or contains additional information.
	Note string `json:"note,omitempty"`
	// Rounds is the number of rounds of this result.
	Rounds int `json:"rounds"`
}

// Slot is one pass to run.
type Slot struct {
	Round int    `json:"round"`
	Node  string `json:"node"`
	Arm   Arm    `json:"arm"`
}
