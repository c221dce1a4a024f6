package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/verdict"
)

func TestSchedule(t *testing.T) {
	var lines []string
	for slots := range slices.Chunk(verdict.Schedule(8, 3), 3) {
		lines = append(lines, fmt.Sprintf("%d: %s %s %s", slots[0].Round, slots[0].Arm, slots[1].Arm, slots[2].Arm))
	}
	const want = `1: Before After Again
2: Again Before After
3: After Again Before
4: Again After Before
5: Before Again After
6: After Before Again
7: Before After Again
8: Again Before After
`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")+"\n"); diff != "" {
		t.Errorf("got another order from the same seed than in the previous release: %s", diff)
	}
}

func TestSchedulesAreFair(t *testing.T) {
	arms := []v1alpha1.TrialArm{v1alpha1.ArmBefore, v1alpha1.ArmAgain, v1alpha1.ArmAfter}
	rapid.Check(t, func(t *rapid.T) {
		rounds, seed := rapid.Int32Range(0, 40).Draw(t, "rounds"), rapid.Uint64().Draw(t, "seed")
		slots := verdict.Schedule(rounds, seed)
		if len(slots) != 3*int(rounds) {
			t.Fatalf("got %d passes in %d rounds", len(slots), rounds)
		}
		// places[place][arm] counts the rounds in which an arm had that place.
		places := [3]map[v1alpha1.TrialArm]int{{}, {}, {}}
		for i, s := range slots {
			if int(s.Round) != i/3+1 {
				t.Fatalf("pass %d: %+v", i, s)
			}
			places[i%3][s.Arm]++
		}
		for round := range slices.Chunk(slots, 3) {
			for _, arm := range arms {
				if !slices.ContainsFunc(round, func(s v1alpha1.NodeTrialPass) bool { return s.Arm == arm }) {
					t.Fatalf("no %s in %+v", arm, round)
				}
			}
		}
		for place, count := range places {
			counts := []int{count[arms[0]], count[arms[1]], count[arms[2]]}
			if slices.Max(counts)-slices.Min(counts) > 1 {
				t.Fatalf("place %d: got %v", place, counts)
			}
		}
		if longer := verdict.Schedule(rounds+5, seed); !slices.Equal(longer[:len(slots)], slots) {
			t.Fatal("want a longer schedule to start with the shorter one")
		}
	})
}

// A pass changes the server's caches for the pass after it, so no arm follows the candidate more often than another.
func TestArmsFollowTheCandidateEquallyOften(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := verdict.Schedule(rapid.Int32Range(0, 60).Draw(t, "rounds"), rapid.Uint64().Draw(t, "seed"))
		after := map[v1alpha1.TrialArm]int{}
		for i := range slots {
			if i > 0 && slots[i-1].Arm == v1alpha1.ArmAfter {
				after[slots[i].Arm]++
			}
		}
		counts := []int{after[v1alpha1.ArmBefore], after[v1alpha1.ArmAgain], after[v1alpha1.ArmAfter]}
		if slices.Max(counts)-slices.Min(counts) > 2 {
			t.Fatalf("got %v passes of Before, Again and After that follow the candidate", counts)
		}
	})
}

func TestAllOrdersComeUp(t *testing.T) {
	seen := map[[3]v1alpha1.TrialArm]int{}
	const seeds = 600
	for seed := range uint64(seeds) {
		s := verdict.Schedule(1, seed)
		seen[[3]v1alpha1.TrialArm{s[0].Arm, s[1].Arm, s[2].Arm}]++
	}
	for order, n := range seen {
		if n < seeds/6/2 || n > seeds/6*2 {
			t.Errorf("got order %v first with %d of %d seeds", order, n, seeds)
		}
	}
	check.Equal(t, "number of orders", 6, len(seen))
}
