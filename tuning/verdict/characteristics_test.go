package verdict_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/verdict"
)

var (
	full   = flag.Bool("full", false, "play 2,000 trials of each kind instead of 250")
	update = flag.Bool("update", false, "with -full, write the rates to docs/trials.md")
)

// server simulates one phase of a trial. Times of a pass are log-normal with the standard deviation sd.
type server struct {
	sd float64
	// faster and fewer are the factors of the candidate's times and counts; 0 is 1.
	faster, fewer float64
	// disturb returns a further factor of the time of a pass.
	disturb func(r *rand.Rand, pass int, previous, arm v1alpha1.TrialArm) float64
	goal    verdict.Goal
}

func (s server) play(rounds int, seed uint64) []v1alpha1.TrialPass {
	r := rand.New(rand.NewPCG(seed, uint64(rounds)))
	var passes []v1alpha1.TrialPass
	var previous v1alpha1.TrialArm
	for i, slot := range verdict.Schedule(int32(rounds), seed) {
		seconds, count := 5*math.Exp(s.sd*r.NormFloat64()), 1000*math.Exp(0.005*r.NormFloat64())
		if slot.Arm == v1alpha1.ArmAfter {
			seconds, count = seconds*or1(s.faster), count*or1(s.fewer)
		}
		if s.disturb != nil {
			seconds *= s.disturb(r, i, previous, slot.Arm)
		}
		previous = slot.Arm
		passes = append(passes, passWith(slot, sample{
			Name: "listing", Units: 1000, Seconds: seconds,
			Counts: map[string]float64{"GETATTR": count, "READDIR": 20, verdict.BytesSent: 150 * count, verdict.BytesReceived: 200 * count},
		}))
	}
	return passes
}

// outcomes is the order of the columns.
var outcomes = []v1alpha1.TrialVerdict{"Better", "Worse", "NoDifference", "FewerRequests", "Undecided"}

// rates returns the percentage of trials with each outcome.
func (s server) rates(rounds, trials int) map[v1alpha1.TrialVerdict]float64 {
	found := map[v1alpha1.TrialVerdict]float64{}
	for seed := range uint64(trials) {
		found[verdict.Evaluate(s.play(rounds, seed+1), s.goal, verdict.Work{}).Outcome] += 100 / float64(trials)
	}
	return found
}

// follows multiplies the time of a pass that follows the candidate.
func follows(factor float64) func(*rand.Rand, int, v1alpha1.TrialArm, v1alpha1.TrialArm) float64 {
	return func(_ *rand.Rand, _ int, previous, _ v1alpha1.TrialArm) float64 {
		if previous == v1alpha1.ArmAfter {
			return factor
		}
		return 1
	}
}

// correlated returns times whose logarithms are an autoregressive process: slow passes come in groups.
func correlated() func(*rand.Rand, int, v1alpha1.TrialArm, v1alpha1.TrialArm) float64 {
	x := 0.0
	return func(r *rand.Rand, pass int, _, _ v1alpha1.TrialArm) float64 {
		if pass == 0 {
			x = 0
		}
		x = 0.9*x + 0.13*r.NormFloat64()
		return math.Exp(x)
	}
}

func heavyTails(r *rand.Rand, _ int, _, _ v1alpha1.TrialArm) float64 {
	if r.Float64() < 0.15 {
		return 10
	}
	return 1
}

func drift(_ *rand.Rand, pass int, _, _ v1alpha1.TrialArm) float64 {
	return math.Exp(0.03 * float64(pass))
}

// characteristics are trials with a known truth. Each rate is limited: more is a wrong verdict.
var characteristics = []struct {
	name string
	server
	// atMost are the maximum percentages of outcomes, atLeast the minimum percentages with 40 rounds.
	atMost, atLeast map[v1alpha1.TrialVerdict]float64
}{
	{name: "equal, standard deviation 5 %", server: server{sd: 0.05}, atMost: wrong(), atLeast: rate("NoDifference", 95)},
	{name: "equal, standard deviation 30 %", server: server{sd: 0.3}, atMost: wrong()},
	{name: "5 % faster", server: server{sd: 0.05, faster: 0.95}, atMost: wrong()},
	{name: "5 % slower", server: server{sd: 0.05, faster: 1.05}, atMost: rate("Better", 0)},
	{name: "10 % faster: exactly the goal", server: server{sd: 0.05, faster: 0.9}, atMost: wrong()},
	{name: "10 % slower", server: server{sd: 0.05, faster: 1.1}, atMost: rate("Better", 0), atLeast: rate("Worse", 50)},
	{name: "30 % faster", server: server{sd: 0.1, faster: 0.7}, atMost: rate("Worse", 0), atLeast: rate("Better", 95)},
	{name: "30 % slower", server: server{sd: 0.1, faster: 1.3}, atMost: rate("Better", 0), atLeast: rate("Worse", 95)},
	{name: "half the requests, 15 % slower, standard deviation 2 %", server: server{sd: 0.02, faster: 1.15, fewer: 0.5}, atMost: rate("Better", 0), atLeast: rate("Worse", 95)},
	{name: "half the requests, 15 % slower", server: server{sd: 0.1, faster: 1.15, fewer: 0.5}, atMost: rate("Better", 0), atLeast: rate("Worse", 50)},
	{name: "half the requests, 15 % slower, standard deviation 30 %", server: server{sd: 0.3, faster: 1.15, fewer: 0.5}, atMost: rate("Better", 0)},
	{name: "half the requests, 15 % slower, goal GETATTR", server: server{sd: 0.1, faster: 1.15, fewer: 0.5, goal: verdict.Goal{Metric: "GETATTR"}}, atMost: rate("Better", 1)},
	{name: "half the requests, 30 % faster, goal GETATTR", server: server{sd: 0.1, faster: 0.7, fewer: 0.5, goal: verdict.Goal{Metric: "GETATTR"}}, atMost: rate("Worse", 0), atLeast: rate("Better", 95)},
	{name: "half the requests, equal times", server: server{sd: 0.05, fewer: 0.5}, atMost: wrong(), atLeast: rate("FewerRequests", 95)},
	{name: "equal, a pass after the candidate takes 0.6 of the time", server: server{sd: 0.05, disturb: follows(0.6)}, atMost: wrong()},
	{name: "equal, a pass after the candidate takes 1.5 of the time", server: server{sd: 0.1, disturb: follows(1.5)}, atMost: wrong()},
	{name: "equal, each pass takes 3 % longer than the last one", server: server{sd: 0.05, disturb: drift}, atMost: wrong()},
	{name: "equal, one pass in seven takes ten times as long", server: server{sd: 0.1, disturb: heavyTails}, atMost: wrong()},
	{name: "equal, slow passes come in groups", server: server{disturb: correlated()}, atMost: wrong()},
}

func rate(outcome v1alpha1.TrialVerdict, percent float64) map[v1alpha1.TrialVerdict]float64 {
	return map[v1alpha1.TrialVerdict]float64{outcome: percent}
}

// wrong limits the verdicts that are wrong if the candidate does not reach the goal and is not slower.
func wrong() map[v1alpha1.TrialVerdict]float64 {
	return map[v1alpha1.TrialVerdict]float64{"Better": 1, "Worse": 1}
}

func trialsToPlay() int {
	if *full {
		return 2000
	}
	return 250
}

func TestOperatingCharacteristics(t *testing.T) {
	var table strings.Builder
	table.WriteString("| truth | rounds | Better | Worse | NoDifference | FewerRequests | Undecided |\n|---|---|---|---|---|---|---|\n")
	for _, c := range characteristics {
		for _, rounds := range []int{9, 24, 40} {
			if rounds == 24 && !*full {
				continue
			}
			got := c.rates(rounds, trialsToPlay())
			fmt.Fprintf(&table, "| %s | %d |", c.name, rounds)
			for _, outcome := range outcomes {
				fmt.Fprintf(&table, " %.1f |", got[outcome])
				// A smaller number of trials varies more: two trials are allowed in addition.
				if limit, limited := c.atMost[outcome]; limited && got[outcome] > limit+200/float64(trialsToPlay()) {
					t.Errorf("%s, %d rounds: got %.1f %% %s, want at most %.0f %%", c.name, rounds, got[outcome], outcome, limit)
				}
				if least := c.atLeast[outcome]; rounds == 40 && got[outcome] < least {
					t.Errorf("%s, %d rounds: got %.1f %% %s, want at least %.0f %%", c.name, rounds, got[outcome], outcome, least)
				}
			}
			table.WriteString("\n")
		}
	}
	checkTable(t, "characteristics", table.String())
}

// TestPower plays trials whose candidate is faster, with the default goal of 10 %.
func TestPower(t *testing.T) {
	var table strings.Builder
	table.WriteString("| standard deviation | rounds | 15 % faster | 20 % faster | 30 % faster | 50 % faster |\n|---|---|---|---|---|---|\n")
	previous := map[float64]float64{}
	for _, sd := range []float64{0.05, 0.1, 0.2, 0.3} {
		for _, rounds := range []int{9, 24, 40} {
			fmt.Fprintf(&table, "| %.0f %% | %d |", 100*sd, rounds)
			for _, gain := range []float64{0.15, 0.2, 0.3, 0.5} {
				got := server{sd: sd, faster: 1 - gain}.rates(rounds, trialsToPlay()/5)["Better"]
				fmt.Fprintf(&table, " %.0f |", got)
				if rounds == 40 && previous[gain] > 0 && got > previous[gain]+10 {
					t.Errorf("%.0f %% faster: got more verdicts with a standard deviation of %.2f than with a smaller one", 100*gain, sd)
				}
				if rounds == 40 {
					previous[gain] = got
				}
			}
			table.WriteString("\n")
		}
	}
	if previous[0.5] < 80 {
		t.Errorf("half the time, standard deviation 0.3, 40 rounds: got %.0f %% Better, want at least 80 %%", previous[0.5])
	}
	checkTable(t, "power", table.String())
}

// checkTable compares the table in the docs with the rates, if all trials were played.
func checkTable(t *testing.T, name, table string) {
	t.Helper()
	const page = "../../docs/trials.md"
	data, err := os.ReadFile(page)
	check.NoError(t, err)
	begin := fmt.Sprintf("<!-- generated: %s -->\n", name)
	before, rest, found := strings.Cut(string(data), begin)
	old, after, ends := strings.Cut(rest, "<!-- end -->")
	switch {
	case !found || !ends:
		t.Errorf("%s: got no table %s", page, name)
	case *full && *update:
		check.NoError(t, os.WriteFile(page, []byte(before+begin+table+"<!-- end -->"+after), 0o644))
	case *full && old != table:
		t.Errorf("%s: got another table %s (write it with -full -update):\n%s", page, name, table)
	}
	for _, c := range characteristics {
		if !*full && name == "characteristics" && strings.Count(old, "| "+c.name+" |") != 3 {
			t.Errorf("%s: got no row of %q (write it with -full -update)", page, c.name)
		}
	}
}
