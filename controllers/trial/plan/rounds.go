package plan

import (
	"strconv"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/verdict"
)

const (
	// passesPerRound is one pass of each arm.
	passesPerRound = 3
	// firstRounds is the number of rounds before the required number is decided: a clear difference needs no more.
	firstRounds = verdict.FirstLook
	// workPause is the rest of a mount before the work is repeated: longer than the default attribute cache timeout.
	workPause = 5 * time.Second
	// workTimeout is the maximum duration of one order.
	workTimeout = 10 * time.Minute
	// mountTime is the approximate time of mount and unmount in each pass.
	mountTime = 2 * time.Second
	// maxResults is the maximum number of results in a trial's status.
	maxResults = 64
	maxNote    = 512
)

// plannedRounds returns the planned number of rounds, if known.
func (t Trial) plannedRounds() int32 {
	if t.Spec.Rounds > 0 {
		return t.Spec.Rounds
	}
	return max(t.Status.RoundsWanted, firstRounds)
}

// decideRounds returns the planned number of rounds of a trial with this status, with the reason. It decides once, after the first rounds.
func (t Trial) decideRounds(status *v1alpha1.StorageClientTrialStatus) (planned int32, reason string) {
	switch {
	case t.Spec.Rounds > 0:
		return t.Spec.Rounds, "Set by spec.rounds."
	case status.Rounds < firstRounds:
		return firstRounds, "The first rounds show how many rounds a decision needs."
	case t.Status.Rounds >= firstRounds:
		return status.RoundsWanted, status.RoundsReason
	}
	// Orders end with the last of the first rounds: this is the first of the two evaluations of a verdict.
	if (Trial{StorageClientTrial: &v1alpha1.StorageClientTrial{Spec: t.Spec, Status: *status}}).evaluate().IsDecidedByCounts() {
		return status.Rounds, "The difference is clear, so no more rounds are needed."
	}
	needed, reason := verdict.RoundsNeeded(status.Passes, verdict.Goal(t.Spec.Goal))
	return int32(min(max(needed, firstRounds), v1alpha1.MaxTrialRounds)), text.CutBytes(reason, maxNote)
}

// nextPasses returns the passes of the next order: two rounds if both fit well into its time.
func (t Trial) nextPasses(planned int32) []v1alpha1.NodeTrialPass {
	done, count := t.Status.Rounds, int32(1)
	if duration := t.roundTime(); duration > 0 && 3*duration < workTimeout {
		count = v1alpha1.MaxOrderPasses / passesPerRound
	}
	return t.passesFrom(done+1, min(done+count, planned))
}

// passesFrom returns the passes of a range of rounds, in the random order of each round.
func (t Trial) passesFrom(first, last int32) []v1alpha1.NodeTrialPass {
	return lists.Filter(verdict.Schedule(last, t.seed()), func(pass v1alpha1.NodeTrialPass) bool { return pass.Round >= first })
}

// roundTime returns the duration of the last round. Zero if there is none.
func (t Trial) roundTime() time.Duration {
	var duration time.Duration
	for _, pass := range t.Status.Passes {
		if pass.Round != t.Status.Rounds {
			continue
		}
		duration += mountTime + t.pause()
		for _, phase := range pass.Phases {
			duration += time.Duration(phase.Microseconds) * time.Microsecond
		}
	}
	return duration
}

func (t Trial) pause() time.Duration {
	if t.Spec.Workload.Name == v1alpha1.WorkloadMount {
		return 0
	}
	return workPause
}

// seed returns the seed for the order of the arms. A hash has 16 hexadecimal digits.
func (t Trial) seed() uint64 {
	seed, err := strconv.ParseUint(t.hash(), 16, 64)
	if err != nil {
		panic(err)
	}
	return seed
}

// completeRounds returns the passes of new, complete rounds of a response, in order.
func completeRounds(answer []v1alpha1.TrialPass, done int32, node string) []v1alpha1.TrialPass {
	arms := armsOf(answer)
	var passes []v1alpha1.TrialPass
	for next := done + 1; len(arms[next]) == passesPerRound; next++ {
		for _, pass := range answer {
			if pass.Round == next {
				pass.Node = node
				passes = append(passes, pass)
			}
		}
	}
	return passes
}

func armsOf(passes []v1alpha1.TrialPass) map[int32]map[v1alpha1.TrialArm]bool {
	arms := map[int32]map[v1alpha1.TrialArm]bool{}
	for _, pass := range passes {
		if arms[pass.Round] == nil {
			arms[pass.Round] = map[v1alpha1.TrialArm]bool{}
		}
		arms[pass.Round][pass.Arm] = true
	}
	return arms
}

// roundsIn returns the number of complete rounds, from the first one on.
func roundsIn(passes []v1alpha1.TrialPass) (n int32) {
	arms := armsOf(passes)
	for len(arms[n+1]) == passesPerRound {
		n++
	}
	return n
}

var units = map[v1alpha1.TrialWorkloadName]string{
	v1alpha1.WorkloadMount: "mount", v1alpha1.WorkloadListDirectory: "entry", v1alpha1.WorkloadWalkTree: "entry",
	v1alpha1.WorkloadListNames: "entry", v1alpha1.WorkloadInterleaved: "entry", v1alpha1.WorkloadCopyFiles: "file",
	v1alpha1.WorkloadReadSequential: "file", v1alpha1.WorkloadReadRandom: "block", v1alpha1.WorkloadCreateUnlink: "file",
	v1alpha1.WorkloadWriteSequential: "block",
}

// VerdictOf returns the verdict on the measurements of a trial so far, for tools that show more than its status.
func VerdictOf(trial *v1alpha1.StorageClientTrial) verdict.Verdict {
	return Trial{StorageClientTrial: trial}.evaluate()
}

func (t Trial) evaluate() verdict.Verdict {
	return verdict.Evaluate(t.Status.Passes, verdict.Goal(t.Spec.Goal), verdict.Work{
		Unit:          units[t.Spec.Workload.Name],
		BeforeSeconds: mountoptions.AttributeSeconds(t.Status.Before),
		AfterSeconds:  mountoptions.AttributeSeconds(t.Status.After),
		PauseSeconds:  t.pause().Seconds(),
	})
}

func resultsOf(results []verdict.Result) []v1alpha1.TrialResult {
	return lists.Each(results[:min(len(results), maxResults)], func(r verdict.Result) v1alpha1.TrialResult {
		result := v1alpha1.TrialResult{
			Phase: r.Phase, Metric: r.Metric, Unit: text.CutBytes(r.Unit, 64), Before: decimal(r.Before), After: decimal(r.After),
			Verdict: r.Outcome, Decides: r.Decides, Note: text.CutBytes(r.Note, maxNote),
		}
		if r.Ratio > 0 {
			result.Ratio, result.Low, result.High = decimal(r.Ratio), decimal(r.Low), decimal(r.High)
		}
		return result
	})
}

// decimal formats a number with four significant digits: numbers in a status are text.
func decimal(n float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(n, 'g', 4, 64), 64)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
