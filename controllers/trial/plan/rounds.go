package plan

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/verdict"
)

const (
	// passesPerRound is one of each arm.
	passesPerRound = 3
	// firstRounds are run before it is asked how many a decision needs: a clear difference needs no more.
	firstRounds = verdict.FirstLook
	// workPause is how long a mount rests before the work is repeated: longer than attributes are kept by default.
	workPause = 5 * time.Second
	// workTimeout is how long one order may take.
	workTimeout = 10 * time.Minute
	// mountTime is what mounting and unmounting take of each pass, roughly.
	mountTime = 2 * time.Second
	// maxResults bounds what a trial's status tells.
	maxResults = 64
	maxNote    = 512
)

// roundsWanted is how many rounds are to be run, as far as that is known.
func (t Trial) roundsWanted() int32 {
	if t.Spec.Rounds > 0 {
		return t.Spec.Rounds
	}
	return max(t.Status.RoundsWanted, firstRounds)
}

// decideRounds says how many rounds a trial of this status is to have, and why. It is decided once, from the first ones.
func (t Trial) decideRounds(status *v1alpha1.StorageClientTrialStatus) (wanted int32, why string) {
	switch {
	case t.Spec.Rounds > 0:
		return t.Spec.Rounds, "The trial asks for so many."
	case status.Rounds < firstRounds:
		return firstRounds, "These tell how many a decision needs."
	case t.Status.Rounds >= firstRounds:
		return status.RoundsWanted, status.RoundsReason
	}
	// Orders end with the last of the first rounds: this is the first of the two looks that a verdict allows for.
	if (Trial{StorageClientTrial: &v1alpha1.StorageClientTrial{Spec: t.Spec, Status: *status}}).judge().IsDecidedByCounts() {
		return status.Rounds, "So clear a difference needs no more."
	}
	needed, why := verdict.RoundsNeeded(passesOf(status.Passes), t.goal())
	return int32(min(max(needed, firstRounds), v1alpha1.MaxTrialRounds)), text.CutBytes(why, maxNote)
}

func (t Trial) goal() verdict.Goal {
	goal := verdict.Goal{Metric: t.Spec.Goal.Metric}
	if percent := t.Spec.Goal.BetterByPercent; percent != nil {
		goal.BetterByPercent = float64(*percent)
	}
	return goal
}

// nextPasses are those of the next order: two rounds where both fit well into its time.
func (t Trial) nextPasses(wanted int32) []v1alpha1.NodeTrialPass {
	done, count := t.Status.Rounds, int32(1)
	if took := t.roundTime(); took > 0 && 3*took < workTimeout {
		count = v1alpha1.MaxOrderPasses / passesPerRound
	}
	return t.passesFrom(done+1, min(done+count, wanted))
}

// passesFrom are those of some rounds, in the order that is drawn for each.
func (t Trial) passesFrom(first, last int32) []v1alpha1.NodeTrialPass {
	var passes []v1alpha1.NodeTrialPass
	for _, slot := range verdict.Schedule(int(last), nil, t.seed()) {
		if round := int32(slot.Round) + 1; round >= first {
			passes = append(passes, v1alpha1.NodeTrialPass{Round: round, Arm: v1alpha1.TrialArm(slot.Arm)})
		}
	}
	return passes
}

// roundTime is how long the last round took; 0 where there is none yet.
func (t Trial) roundTime() time.Duration {
	var took time.Duration
	for _, pass := range t.Status.Passes {
		if pass.Round != t.Status.Rounds {
			continue
		}
		took += mountTime + t.pause()
		for _, phase := range pass.Phases {
			took += time.Duration(phase.Microseconds) * time.Microsecond
		}
	}
	return took
}

func (t Trial) pause() time.Duration {
	if t.Spec.Workload.Name == v1alpha1.WorkloadMount {
		return 0
	}
	return workPause
}

// seed draws the order of the arms: the same one whoever asks.
func (t Trial) seed() uint64 { return binary.BigEndian.Uint64(digest(string(t.UID))) }

// completeRounds are the passes of those rounds of an answer that are complete and new, in their order.
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

// roundsIn is how many are complete, from the first one on.
func roundsIn(passes []v1alpha1.TrialPass) (n int32) {
	arms := armsOf(passes)
	for len(arms[n+1]) == passesPerRound {
		n++
	}
	return n
}

// units are what the workloads count.
var units = map[v1alpha1.TrialWorkloadName]string{
	v1alpha1.WorkloadMount: "mount", v1alpha1.WorkloadListDirectory: "entry", v1alpha1.WorkloadWalkTree: "entry", v1alpha1.WorkloadReadSequential: "file",
	v1alpha1.WorkloadReadRandom: "block", v1alpha1.WorkloadCreateUnlink: "file", v1alpha1.WorkloadWriteSequential: "block",
}

func passesOf(passes []v1alpha1.TrialPass) []verdict.Pass {
	out := make([]verdict.Pass, 0, len(passes))
	for _, pass := range passes {
		judged := verdict.Pass{Round: int(pass.Round), Node: pass.Node, Arm: verdict.Arm(pass.Arm)}
		for _, phase := range pass.Phases {
			judged.Phases = append(judged.Phases, phaseOf(phase))
		}
		out = append(out, judged)
	}
	return out
}

func phaseOf(phase v1alpha1.TrialPassPhase) verdict.Phase {
	counts := map[string]float64{verdict.BytesSent: float64(phase.BytesSent), verdict.BytesReceived: float64(phase.BytesReceived)}
	for _, o := range phase.Operations {
		counts[o.Name] = float64(o.Count)
	}
	return verdict.Phase{
		Name: phase.Name, Units: float64(phase.Units), Seconds: (time.Duration(phase.Microseconds) * time.Microsecond).Seconds(), Counts: counts,
	}
}

// VerdictOf is the verdict on what a trial has measured so far, for whoever shows more of it than its status does.
func VerdictOf(trial *v1alpha1.StorageClientTrial) verdict.Verdict {
	return Trial{StorageClientTrial: trial}.judge()
}

// GoalOf is what the candidate is to reach.
func GoalOf(trial *v1alpha1.StorageClientTrial) verdict.Goal {
	return Trial{StorageClientTrial: trial}.goal()
}

// ColdCaches are those of the client that hold nothing when the first phase of a pass begins: its mount is fresh.
var ColdCaches = []string{"attributes", "names", "data"}

// judge is the verdict on what was measured.
func (t Trial) judge() verdict.Verdict {
	passes := passesOf(t.Status.Passes)
	for i := range passes {
		for j := range passes[i].Phases {
			passes[i].Phases[j].Unit = units[t.Spec.Workload.Name]
		}
		if len(passes[i].Phases) > 0 {
			passes[i].Phases[0].Cold = ColdCaches
		}
	}
	return verdict.Judge(passes, t.goal(), verdict.Attributes{
		BeforeSeconds: mountoptions.AttributeSeconds(t.Status.Before), AfterSeconds: mountoptions.AttributeSeconds(t.Status.After),
		PauseSeconds: t.pause().Seconds(),
	})
}

// resultsOf are results as the API has them.
func resultsOf(results []verdict.Result) []v1alpha1.TrialResult {
	out := make([]v1alpha1.TrialResult, 0, min(len(results), maxResults))
	for _, r := range results[:min(len(results), maxResults)] {
		told := v1alpha1.TrialResult{
			Phase: r.Phase, Metric: r.Metric, Unit: text.CutBytes(r.Unit, 64), Before: decimal(r.Before), After: decimal(r.After),
			Verdict: v1alpha1.TrialVerdict(r.Outcome), Decides: r.Decides, Note: text.CutBytes(r.Note, maxNote),
		}
		if r.Ratio > 0 {
			told.Ratio, told.Low, told.High = decimal(r.Ratio), decimal(r.Low), decimal(r.High)
		}
		out = append(out, told)
	}
	return out
}

// decimal has four digits that tell something: numbers in a status are text.
func decimal(n float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(n, 'g', 4, 64), 64)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
