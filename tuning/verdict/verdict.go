// Package verdict says what passes of one workload under two lists of options tell: whether the candidate is better than the list in
// force, worse, no different, or whether nobody can tell yet. Each round has three passes, one of each arm, the list in force twice:
// what differs between those two is noise, and nothing that is not beyond it is called a difference.
//
// It is pure: no cluster, no host, no clock.
package verdict

// Arm is one of the three passes of a round.
type Arm string

// Arms.
const (
	// Before is the list in force.
	Before Arm = "Before"
	// Again is the same list once more: what differs between the two is noise.
	Again Arm = "Again"
	// After is the candidate.
	After Arm = "After"
)

// Names of metrics beside those of single operations. Less is better of each.
const (
	// Seconds is the duration.
	Seconds = "Seconds"
	// Operations is the number of requests of any kind but those that keep a client known to its server.
	Operations = "Operations"
	// Bytes is what was sent and received.
	Bytes = "Bytes"
	// BytesSent and BytesReceived are names in Phase.Counts.
	BytesSent     = "BytesSent"
	BytesReceived = "BytesReceived"
	// GetAttr is the operation whose number depends on how long a phase takes.
	GetAttr = "GETATTR"
)

// Pass is a workload that ran once from beginning to end, on a mount of its own.
type Pass struct {
	// Round and Node are the same of the three passes that are compared with each other.
	Round int    `json:"round"`
	Node  string `json:"node"`
	Arm   Arm    `json:"arm"`
	// Phases are the parts of the workload that are judged one by one, e.g. a first and a second listing.
	Phases []Phase `json:"phases,omitempty"`
	// Void says why the pass counts for nothing: a proof of validity is missing, or it failed. Empty where it counts.
	Void string `json:"void,omitempty"`
}

// Phase is a part of a pass.
type Phase struct {
	Name string `json:"name"`
	// Units is how much work was done, Unit what of, in the singular: entry, file, block, MiB.
	Units float64 `json:"units"`
	Unit  string  `json:"unit,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Counts are operations by their names, and BytesSent and BytesReceived.
	Counts map[string]float64 `json:"counts,omitempty"`
	// Cold are the caches that held nothing of it, e.g. attributes, names, data. Nobody knows of the server's.
	Cold []string `json:"cold,omitempty"`
}

// Goal is what the candidate is to reach.
type Goal struct {
	// Metric is Seconds, Operations, Bytes or the name of an operation; Seconds where it is empty. With Seconds the counts decide too.
	Metric string `json:"metric,omitempty"`
	// BetterByPercent is the smallest difference that matters, 10 where it is 0: what is less is no difference.
	BetterByPercent float64 `json:"betterByPercent,omitempty"`
}

// Attributes say how long attributes were kept: they decide whether a client asks for them again within a pass.
type Attributes struct {
	// BeforeSeconds and AfterSeconds are acregmin of the two lists; 0 where attributes are not kept.
	BeforeSeconds float64 `json:"beforeSeconds"`
	AfterSeconds  float64 `json:"afterSeconds"`
	// PauseSeconds is the fixed pause between two phases.
	PauseSeconds float64 `json:"pauseSeconds"`
}

// Outcome is how a comparison ends.
type Outcome string

// Outcomes.
const (
	Better       Outcome = "Better"
	Worse        Outcome = "Worse"
	NoDifference Outcome = "NoDifference"
	Undecided    Outcome = "Undecided"
)

// Verdict is what the passes say.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Why says it in a sentence or two.
	Why string `json:"why"`
	// Rounds is how many were complete, Void how many passes counted for nothing.
	Rounds int `json:"rounds"`
	Void   int `json:"void,omitempty"`
	// Results are by phase in the order in which they ran, of each Operations, Bytes, Seconds, then single operations by name.
	Results []Result `json:"results,omitempty"`
}

// Result is one metric of one phase.
type Result struct {
	Phase  string `json:"phase"`
	Metric string `json:"metric"`
	// Unit is what Before and After are counted in.
	Unit string `json:"unit"`
	// Before and After are medians over the rounds.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Ratio is After over Before, round by round; Low and High are the ends of its interval, of at least 95 % for all results
	// together. All three are 0 where there are too few rounds for one.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// SameLow and SameHigh are those of the list in force against itself.
	SameLow  float64 `json:"sameLow"`
	SameHigh float64 `json:"sameHigh"`
	// Outcome is this result's own.
	Outcome Outcome `json:"outcome"`
	// Decides is true for those that the verdict rests on.
	Decides bool `json:"decides,omitempty"`
	// Note says why nothing can be said, or what to know of the numbers.
	Note string `json:"note,omitempty"`
	// Rounds is how many it rests on.
	Rounds int `json:"rounds"`
}

// Slot is one pass to run.
type Slot struct {
	Round int    `json:"round"`
	Node  string `json:"node"`
	Arm   Arm    `json:"arm"`
}
