package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/tuning/verdict"
)

func TestSchedule(t *testing.T) {
	var lines []string
	for slots := range slices.Chunk(verdict.Schedule(8, []string{"a", "b"}, 3), 3) {
		lines = append(lines, fmt.Sprintf("%d %s: %s %s %s", slots[0].Round, slots[0].Node, slots[0].Arm, slots[1].Arm, slots[2].Arm))
	}
	const want = `0 a: Before After Again
1 b: After Again Before
2 a: Again Before After
3 b: Before After Again
4 a: After Again Before
5 b: Again Before After
6 a: Again After Before
7 b: After Before Again
`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")+"\n"); diff != "" {
		t.Errorf("got another order from the same seed than in the previous release: %s", diff)
	}
}

func TestSchedulesAreFair(t *testing.T) {
	arms := []verdict.Arm{verdict.Before, verdict.Again, verdict.After}
	rapid.Check(t, func(t *rapid.T) {
		rounds, seed := rapid.IntRange(0, 40).Draw(t, "rounds"), rapid.Uint64().Draw(t, "seed")
		nodes := rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b"}, {"a", "b", "c"}}).Draw(t, "nodes")
		slots := verdict.Schedule(rounds, nodes, seed)
		if len(slots) != 3*rounds {
			t.Fatalf("got %d passes in %d rounds", len(slots), rounds)
		}
		// places[node][place][arm] counts the rounds in which an arm had that place.
		places := map[string]*[3]map[verdict.Arm]int{}
		for i, s := range slots {
			if want := i / 3; s.Round != want || (len(nodes) > 0 && s.Node != nodes[want%len(nodes)]) {
				t.Fatalf("pass %d: %+v", i, s)
			}
			if places[s.Node] == nil {
				places[s.Node] = &[3]map[verdict.Arm]int{{}, {}, {}}
			}
			places[s.Node][i%3][s.Arm]++
		}
		for round := range slices.Chunk(slots, 3) {
			for _, arm := range arms {
				if !slices.ContainsFunc(round, func(s verdict.Slot) bool { return s.Arm == arm }) {
					t.Fatalf("no %s in %+v", arm, round)
				}
			}
		}
		for node, byPlace := range places {
			for place, count := range byPlace {
				counts := []int{count[arms[0]], count[arms[1]], count[arms[2]]}
				if slices.Max(counts)-slices.Min(counts) > 1 {
					t.Fatalf("node %q, place %d: got %v", node, place, counts)
				}
			}
		}
		if longer := verdict.Schedule(rounds+5, nodes, seed); !slices.Equal(longer[:len(slots)], slots) {
			t.Fatal("want a longer schedule to start with the shorter one")
		}
	})
}

// A pass changes the server's caches for the pass after it, so no arm follows the candidate more often than another.
func TestArmsFollowTheCandidateEquallyOften(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := verdict.Schedule(rapid.IntRange(0, 60).Draw(t, "rounds"), nil, rapid.Uint64().Draw(t, "seed"))
		after := map[verdict.Arm]int{}
		for i := range slots {
			if i > 0 && slots[i-1].Arm == verdict.After {
				after[slots[i].Arm]++
			}
		}
		counts := []int{after[verdict.Before], after[verdict.Again], after[verdict.After]}
		if slices.Max(counts)-slices.Min(counts) > 2 {
			t.Fatalf("got %v passes of Before, Again and After that follow the candidate", counts)
		}
	})
}

func TestAllOrdersComeUp(t *testing.T) {
	seen := map[[3]verdict.Arm]int{}
	const seeds = 600
	for seed := range uint64(seeds) {
		s := verdict.Schedule(1, nil, seed)
		seen[[3]verdict.Arm{s[0].Arm, s[1].Arm, s[2].Arm}]++
	}
	for order, n := range seen {
		if n < seeds/6/2 || n > seeds/6*2 {
			t.Errorf("got order %v first with %d of %d seeds", order, n, seeds)
		}
	}
	if len(seen) != 6 {
		t.Errorf("got %d of 6 orders", len(seen))
	}
}
