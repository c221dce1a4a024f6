package verdict_test

import (
	"math/rand/v2"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/verdict"
)

func TestRoundsNeededExplainsTheNumber(t *testing.T) {
	quiet := machine{phases: 1, noise: 0.05, random: rand.New(rand.NewPCG(1, 1))}
	busy := machine{phases: 1, noise: 2, random: rand.New(rand.NewPCG(1, 1))}
	tests := map[string]struct {
		passes []v1alpha1.TrialPass
		goal   verdict.Goal
		rounds int
		why    string
	}{
		"nothing has run yet": {
			rounds: 8, why: "8 rounds at least: too few have finished to show how much Seconds differ with the same options.",
		},
		"two rounds are too few": {
			passes: quiet.passes(2, 1),
			rounds: 8, why: "8 rounds at least: too few have finished to show how much Seconds differ with the same options.",
		},
		"a quiet machine": {passes: quiet.passes(6, 1), rounds: 24, why: "Seconds in listing 1 differ by a factor of 1.1 with the same options: 24 rounds decide in nine of ten trials if the difference is 19 %."},
		"a busy machine":  {passes: busy.passes(6, 1), rounds: verdict.MaxRounds, why: "Seconds in listing 1 differ by a factor of 99 with the same options: the maximum of 128 rounds leaves a difference of 19 % undecided in 100 of 100 trials."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if n, why := verdict.RoundsNeeded(tt.passes, tt.goal); n != tt.rounds || why != tt.why {
				t.Errorf("got %d, want %d: %s", n, tt.rounds, why)
			}
		})
	}
}

// More rounds after a first look at the result would find differences by chance.
func TestRoundsNeededIgnoresTheCandidate(t *testing.T) {
	m := machine{phases: 2, noise: 0.2, random: rand.New(rand.NewPCG(1, 1)), counts: true, countNoise: 0.01}
	passes := m.passes(8, 1)
	want, wantWhy := verdict.RoundsNeeded(passes, verdict.Goal{})
	for i := range passes {
		if passes[i].Arm == v1alpha1.ArmAfter {
			for j := range passes[i].Phases {
				passes[i].Phases[j].Microseconds *= int64(2 + i%5)
			}
		}
	}
	if got, why := verdict.RoundsNeeded(passes, verdict.Goal{}); got != want || why != wantWhy {
		t.Errorf("got %d rounds, want %d: %s", got, want, why)
	}
}
