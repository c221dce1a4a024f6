package verdict_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/verdict"
)

// rounds returns passes with one phase. The function returns the numbers of each arm in each round.
func rounds(n int32, phase func(round int, arm v1alpha1.TrialArm) sample) (passes []v1alpha1.TrialPass) {
	for _, slot := range verdict.Schedule(n, 7) {
		p := phase(int(slot.Round)-1, slot.Arm)
		if p.Name == "" {
			p.Name = "listing"
		}
		if p.Units == 0 {
			p.Units = 1000
		}
		passes = append(passes, passWith(slot, p))
	}
	return passes
}

// jitter returns a factor that differs slightly for each round and arm, and is the same in each run.
func jitter(round int, arm v1alpha1.TrialArm, by float64) float64 {
	r := rand.New(rand.NewPCG(uint64(round), uint64(len(arm))))
	return math.Exp(by * r.NormFloat64())
}

// arms returns the numbers of each arm: the current options with slightly different times, and a change for the candidate.
func arms(current sample, differ float64, change func(after *sample)) func(int, v1alpha1.TrialArm) sample {
	return func(round int, arm v1alpha1.TrialArm) sample {
		p := current
		p.Seconds, p.Counts = p.Seconds*jitter(round, arm, differ), maps.Clone(p.Counts)
		if arm == v1alpha1.ArmAfter {
			change(&p)
		}
		return p
	}
}

func find(t *testing.T, v verdict.Verdict, metric string) verdict.Result {
	t.Helper()
	i := slices.IndexFunc(v.Results, func(r verdict.Result) bool { return r.Metric == metric })
	if i < 0 {
		t.Fatalf("got no result for %s in %+v", metric, v.Results)
	}
	return v.Results[i]
}

func requests(name string, n float64) map[string]float64 { return map[string]float64{name: n} }

func TestVerdicts(t *testing.T) {
	tests := map[string]struct {
		rounds     int32
		phase      func(round int, arm v1alpha1.TrialArm) sample
		goal       verdict.Goal
		attributes verdict.Work
		want       v1alpha1.TrialVerdict
		why        string
	}{
		"fewer requests are not better if times are undecided": {
			rounds: 9,
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				p := sample{Seconds: jitter(round, arm, 1), Counts: requests("GETATTR", 1000+float64(round))}
				if arm == v1alpha1.ArmAfter {
					p.Counts = requests("GETATTR", 3)
				}
				return p
			},
			want: verdict.FewerRequests,
			why:  "Fewer requests: 99 % fewer requests in listing (at least 99 %). Not shown: time in listing is 0.12 to 2.9 times the value of the current options after 9 rounds.",
		},
		"more requests are worse if they are the goal": {
			rounds: 9, goal: verdict.Goal{Metric: verdict.Operations},
			phase: arms(sample{Seconds: 1, Counts: requests("READ", 100)}, 0.02, func(after *sample) { after.Counts = requests("READ", 380) }),
			want:  verdict.Worse, why: "Worse: 3.8 times the requests in listing (at least 3.8 times).",
		},
		"a goal of time ignores fewer requests that carry many more bytes": {
			rounds: 9,
			phase: arms(sample{Seconds: 1, Counts: map[string]float64{"READ": 400, verdict.BytesReceived: 1 << 24}}, 0.02, func(after *sample) {
				after.Counts = map[string]float64{"READ": 100, verdict.BytesReceived: 5 << 24}
			}),
			want: verdict.NoDifference, why: "No difference: the result is within 10 % of the current options, although 5 times the bytes in listing (at least 5 times).",
		},
		"times alone decide if the requests are the same": {
			rounds: 12,
			phase:  arms(sample{Seconds: 4, Counts: requests("READ", 400)}, 0.05, func(after *sample) { after.Seconds /= 2 }),
			want:   verdict.Better, why: "Better: 51 % less time in listing (at least 47 %).",
		},
		"current options that differ from themselves leave times undecided": {
			rounds: 12,
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				p := sample{Seconds: 4 * jitter(round, arm, 0.02)}
				switch arm {
				case v1alpha1.ArmAgain:
					p.Seconds *= 1.5
				case v1alpha1.ArmAfter:
					p.Seconds /= 2
				}
				return p
			},
			want: verdict.Undecided, why: "Undecided: time in listing: the current options differ from themselves (1.4 to 1.5 times), so the candidate cannot be evaluated.",
		},
		"current options that differ from themselves as much as the candidate leave times undecided": {
			rounds: 9,
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				// Each arm with the current options is slow in about half of the rounds, and each in different rounds.
				p := sample{Seconds: 4}
				switch {
				case arm == v1alpha1.ArmAfter:
					p.Seconds = 2.5
				case arm == v1alpha1.ArmAgain && round < 4, arm == v1alpha1.ArmBefore && round >= 4:
					p.Seconds = 12
				}
				return p
			},
			want: verdict.Undecided, why: "Undecided: time in listing: the current options differ from themselves by as much as the candidate does (0.33 to 3 times).",
		},
		"a candidate within one of the two passes with the current options is undecided": {
			rounds: 12,
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				p := sample{Seconds: 10}
				switch few := round%3 == 0; {
				case arm == v1alpha1.ArmAfter && few:
					p.Seconds = 9
				case arm == v1alpha1.ArmAfter:
					p.Seconds = 3
				case arm == v1alpha1.ArmAgain && few:
					p.Seconds = 8.8
				}
				return p
			},
			want: verdict.Undecided, why: "Undecided: time in listing is 0.3 to 1 times the value of the current options after 12 rounds.",
		},
		"a difference below the goal is none": {
			rounds: 12,
			phase:  arms(sample{Seconds: 4, Counts: requests("READ", 400)}, 0.01, func(after *sample) { after.Seconds, after.Counts = after.Seconds*0.95, requests("READ", 380) }),
			want:   verdict.NoDifference, why: "No difference: the result is within 10 % of the current options.",
		},
		"the same difference is one for a smaller goal": {
			rounds: 12, goal: verdict.Goal{BetterByPercent: ptr.To[int32](2)},
			phase: arms(sample{Seconds: 4, Counts: requests("READ", 400)}, 0.001, func(after *sample) { after.Seconds *= 0.95 }),
			want:  verdict.Better, why: "Better: 5 % less time in listing (at least 4 %).",
		},
		"an interval that reaches over the margin is undecided": {
			rounds: 12,
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				return sample{Seconds: 4 * jitter(round, arm, 0.3)}
			},
			want: verdict.Undecided, why: "Undecided: time in listing is 0.58 to 1.4 times the value of the current options after 12 rounds.",
		},
		"fewer requests that take longer are worse, whatever the goal": {
			rounds: 9, goal: verdict.Goal{Metric: "READ"},
			phase: arms(sample{Seconds: 4, Counts: map[string]float64{"READ": 400, "LOOKUP": 50}}, 0, func(after *sample) {
				*after = sample{Seconds: 8, Counts: map[string]float64{"READ": 200, "LOOKUP": 100}}
			}),
			want: verdict.Worse, why: "Worse: 2 times the time in listing (at least 2 times), although 50 % fewer READ in listing (at least 50 %).",
		},
		"an operation as the goal is better if the time is not longer": {
			rounds: 9, goal: verdict.Goal{Metric: "READ"},
			phase: arms(sample{Seconds: 4, Counts: map[string]float64{"READ": 400, "LOOKUP": 50}}, 0, func(after *sample) {
				*after = sample{Seconds: 4.1, Counts: map[string]float64{"READ": 200, "LOOKUP": 100}}
			}),
			want: verdict.Better, why: "Better: 50 % fewer READ in listing (at least 50 %).",
		},
		"a smaller margin of time is not reached": {
			rounds: 9, goal: verdict.Goal{Metric: "READ", TimeMarginPercent: ptr.To[int32](2)},
			phase: arms(sample{Seconds: 4, Counts: requests("READ", 400)}, 0, func(after *sample) { *after = sample{Seconds: 4.1, Counts: requests("READ", 200)} }),
			want:  verdict.FewerRequests,
			why:   "Fewer requests: 50 % fewer READ in listing (at least 50 %). Not shown: time in listing is 1 to 1 times the value of the current options after 9 rounds.",
		},
		"fewer requests in the same time": {
			rounds: 9,
			phase:  arms(sample{Seconds: 4, Counts: requests("READ", 400)}, 0.01, func(after *sample) { after.Counts = requests("READ", 200) }),
			want:   verdict.FewerRequests, why: "Fewer requests: 50 % fewer requests in listing (at least 50 %). The time is at most 5 % longer.",
		},
		"less time with more requests is better": {
			rounds: 9,
			phase:  arms(sample{Seconds: 4, Counts: requests("READ", 400)}, 0.01, func(after *sample) { after.Seconds, after.Counts = after.Seconds/2, requests("READ", 800) }),
			want:   verdict.Better, why: "Better: 50 % less time in listing (at least 49 %), although 2 times the requests in listing (at least 2 times).",
		},
		"an operation without counts decides nothing": {
			rounds: 9, goal: verdict.Goal{Metric: "LOOKUP"},
			phase: func(int, v1alpha1.TrialArm) sample {
				return sample{Seconds: 4, Counts: requests("READ", 400)}
			},
			want: verdict.Undecided, why: "Undecided: no pass counted LOOKUP.",
		},
		"too few rounds report the required number": {
			rounds: 5,
			phase: func(_ int, arm v1alpha1.TrialArm) sample {
				if arm == v1alpha1.ArmAfter {
					return sample{Seconds: 1, Counts: requests("READ", 100)}
				}
				return sample{Seconds: 4, Counts: requests("READ", 400)}
			},
			want: verdict.Undecided, why: "Undecided: 5 rounds finished, at least 8 required.",
		},
		"some passes that outlast their attributes are not compared with others that do not": {
			rounds: 12, goal: verdict.Goal{Metric: verdict.GetAttr}, attributes: verdict.Work{BeforeSeconds: 3, AfterSeconds: 3, PauseSeconds: 5},
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				// The candidate is slightly faster, so its passes usually finish within the attributes' cache time.
				if arm != v1alpha1.ArmAfter || round == 1 {
					p := sample{Seconds: 3.2, Counts: requests("GETATTR", 1060)}
					if round == 0 {
						p = sample{Seconds: 2.9, Counts: requests("GETATTR", 62)}
					}
					return p
				}
				return sample{Seconds: 2.8, Counts: requests("GETATTR", 62)}
			},
			want: verdict.Undecided,
			why:  "Undecided: GETATTR in listing: not compared because only some passes outlast their cached attributes and request them again: passes took 2.9 to 3.2 s (attributes cached for 3 s) before and 2.8 to 3.2 s (attributes cached for 3 s) after, …",
		},
		"a candidate beyond both kinds is compared": {
			rounds: 12, goal: verdict.Goal{Metric: verdict.GetAttr}, attributes: verdict.Work{BeforeSeconds: 3, AfterSeconds: 30, PauseSeconds: 5},
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				switch {
				case arm == v1alpha1.ArmAfter:
					return sample{Seconds: 0.5, Counts: requests("GETATTR", 4)}
				case (round+len(arm))%2 == 0:
					return sample{Seconds: 2.9, Counts: requests("GETATTR", 62)}
				}
				return sample{Seconds: 3.2, Counts: requests("GETATTR", 1060)}
			},
			want: verdict.Better, why: "Better: 96 % fewer GETATTR in listing (at least 83 %).",
		},
		"passes on both sides whose numbers agree are compared": {
			rounds: 12, attributes: verdict.Work{BeforeSeconds: 3, AfterSeconds: 3, PauseSeconds: 5},
			phase: func(round int, arm v1alpha1.TrialArm) sample {
				return sample{Seconds: 3 * jitter(round, arm, 0.02), Counts: requests("GETATTR", 1000*jitter(round, arm, 0.01))}
			},
			want: verdict.NoDifference, why: "No difference: the result is within 10 % of the current options.",
		},
		"nothing before and many after is worse": {
			rounds: 9, goal: verdict.Goal{Metric: "READ"},
			phase: arms(sample{Seconds: 0, Counts: requests("READ", 0)}, 0, func(after *sample) { after.Counts = requests("READ", 1000) }),
			want:  verdict.Worse, why: "Worse: 100 times the READ in listing (at least 100 times).",
		},
		"many before and nothing after is better": {
			rounds: 9, goal: verdict.Goal{Metric: "READ"},
			phase: arms(sample{Seconds: 0, Counts: requests("READ", 1000)}, 0, func(after *sample) { after.Counts = nil }),
			want:  verdict.Better, why: "Better: 99 % fewer READ in listing (at least 99 %).",
		},
		"a handful of requests is no difference": {
			rounds: 9,
			phase:  arms(sample{Seconds: 1, Counts: requests("READ", 0)}, 0, func(after *sample) { after.Counts = requests("READ", 5) }),
			want:   verdict.NoDifference, why: "No difference: the result is within 10 % of the current options.",
		},
		"requests that keep the client known are no work": {
			rounds: 9,
			phase:  arms(sample{Seconds: 1, Counts: requests("READ", 100)}, 0, func(after *sample) { after.Counts["SEQUENCE"] = 500 }),
			want:   verdict.NoDifference, why: "No difference: the result is within 10 % of the current options.",
		},
		"more work in a pass is no more requests": {
			rounds: 9,
			phase:  arms(sample{Units: 100, Seconds: 1, Counts: requests("READ", 100)}, 0, func(after *sample) { *after = sample{Units: 300, Seconds: 3, Counts: requests("READ", 300)} }),
			want:   verdict.NoDifference, why: "No difference: the result is within 10 % of the current options.",
		},
		"passes without work are not compared": {
			rounds: 9,
			phase: func(_ int, arm v1alpha1.TrialArm) sample {
				if arm == v1alpha1.ArmAfter {
					return sample{Units: -1, Seconds: 1}
				}
				return sample{Seconds: 1}
			},
			want: verdict.Undecided, why: "Undecided: no pass counted Seconds.",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := verdict.Evaluate(rounds(tt.rounds, tt.phase), tt.goal, tt.attributes)
			if v.Outcome != tt.want || v.Why != tt.why {
				t.Errorf("got %s, want %s\n%s", v.Outcome, tt.want, cmp.Diff(tt.why, v.Why))
			}
		})
	}
}

// One phase that gets faster is not better if another is not shown to be as fast as before.
func TestEachPhaseMustNotTakeLonger(t *testing.T) {
	for name, tt := range map[string]struct {
		second float64
		want   v1alpha1.TrialVerdict
		why    string
	}{
		"as fast":        {1, verdict.Better, "Better: 50 % less time in first (at least 49 %)."},
		"4 % slower":     {1.04, verdict.Undecided, "Undecided: 50 % less time in first (at least 49 %). Not shown: time in second is 1 to 1.1 times the value of the current options after 12 rounds."},
		"30 % slower":    {1.3, verdict.Undecided, "Undecided: 50 % less time in first (at least 49 %), but 30 % more time in second (at least 27 %)."},
		"faster as well": {0.8, verdict.Better, "Better: 50 % less time in first (at least 49 %) and 20 % less time in second (at least 18 %)."},
	} {
		t.Run(name, func(t *testing.T) {
			var passes []v1alpha1.TrialPass
			for _, slot := range verdict.Schedule(12, 7) {
				round := int(slot.Round) - 1
				first, second := 4*jitter(round, slot.Arm, 0.01), 2*jitter(round+50, slot.Arm, 0.01)
				if slot.Arm == v1alpha1.ArmAfter {
					first, second = first/2, second*tt.second
				}
				passes = append(passes, passWith(slot,
					sample{Name: "first", Units: 1, Seconds: first}, sample{Name: "second", Units: 1, Seconds: second}))
			}
			if v := verdict.Evaluate(passes, verdict.Goal{}, verdict.Work{}); v.Outcome != tt.want || v.Why != tt.why {
				t.Errorf("got %s, want %s\n%s", v.Outcome, tt.want, cmp.Diff(tt.why, v.Why))
			}
		})
	}
}

// A message never contains more than the end of its interval.
func TestMessagesDoNotRoundUp(t *testing.T) {
	at := regexp.MustCompile(`at least ([0-9.]+) (%|times)`)
	rapid.Check(t, func(t *rapid.T) {
		ratio, noise := rapid.Float64Range(0.05, 5).Draw(t, "ratio"), rapid.Float64Range(0, 0.05).Draw(t, "noise")
		v := verdict.Evaluate(rounds(12, func(round int, arm v1alpha1.TrialArm) sample {
			p := sample{Seconds: 4 * jitter(round, arm, noise)}
			if arm == v1alpha1.ArmAfter {
				p.Seconds *= ratio
			}
			return p
		}), verdict.Goal{}, verdict.Work{})
		found := at.FindStringSubmatch(v.Why)
		if found == nil {
			return
		}
		shown, err := strconv.ParseFloat(found[1], 64)
		check.NoError(t, err)
		r := v.Results[0]
		limit := 100 * max(1-r.High, r.Low-1)
		if found[2] == "times" {
			limit = r.Low
		}
		if shown > limit+1e-6 {
			t.Fatalf("%s: the interval is %g to %g", v.Why, r.Low, r.High)
		}
	})
}

func TestAMissingArmDecidesNothing(t *testing.T) {
	all := rounds(12, func(_ int, arm v1alpha1.TrialArm) sample {
		if arm == v1alpha1.ArmAfter {
			return sample{Seconds: 1}
		}
		return sample{Seconds: 4}
	})
	if v := verdict.Evaluate(all, verdict.Goal{}, verdict.Work{}); v.Outcome != verdict.Better {
		t.Fatalf("with all arms: got %s", v.Outcome)
	}
	const why = "Undecided: no round has one pass of the candidate and two of the current options."
	for _, missing := range []v1alpha1.TrialArm{v1alpha1.ArmBefore, v1alpha1.ArmAgain, v1alpha1.ArmAfter} {
		some := slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.TrialPass) bool { return p.Arm == missing })
		if v := verdict.Evaluate(some, verdict.Goal{}, verdict.Work{}); v.Outcome != verdict.Undecided || v.Why != why {
			t.Errorf("without %s: got %s, %s", missing, v.Outcome, v.Why)
		}
	}
}

func TestPassesAreComparedWithinTheirRoundAndNode(t *testing.T) {
	// The rounds of both nodes have the same numbers, but the second node is ten times as slow.
	var passes []v1alpha1.TrialPass
	for node, slow := range map[string]float64{"node-1": 1, "node-2": 10} {
		for round := range int32(6) {
			for arm, seconds := range map[v1alpha1.TrialArm]float64{v1alpha1.ArmBefore: 4, v1alpha1.ArmAgain: 4, v1alpha1.ArmAfter: 3} {
				pass := passWith(v1alpha1.NodeTrialPass{Round: round, Arm: arm}, sample{Name: "listing", Units: 1, Seconds: seconds * slow})
				pass.Node = node
				passes = append(passes, pass)
			}
		}
	}
	v := verdict.Evaluate(passes, verdict.Goal{}, verdict.Work{})
	if got := find(t, v, verdict.Seconds); v.Rounds != 12 || math.Abs(got.Ratio-0.75) > 1e-9 || got.Outcome != verdict.Better {
		t.Errorf("got %d rounds, %+v", v.Rounds, got)
	}
}

func TestUnsteadyOperationsAreExcludedFromTheSum(t *testing.T) {
	v := verdict.Evaluate(rounds(12, func(round int, arm v1alpha1.TrialArm) sample {
		getattrs, seconds := 62.0, 2.9
		if (round+len(arm))%2 == 0 {
			getattrs, seconds = 1060, 3.2
		}
		p := sample{Seconds: seconds, Counts: map[string]float64{"GETATTR": getattrs, "READDIR": 100, verdict.BytesReceived: 1e6 + getattrs*200}}
		if arm == v1alpha1.ArmAfter {
			p.Counts["READDIR"] = 50
		}
		return p
	}), verdict.Goal{}, verdict.Work{BeforeSeconds: 3, AfterSeconds: 3, PauseSeconds: 5})
	all := find(t, v, verdict.Operations)
	if v.Outcome != verdict.FewerRequests || math.Abs(all.Ratio-0.5) > 1e-9 || all.Note != "without GETATTR" {
		t.Errorf("got %s: %s; operations %+v", v.Outcome, v.Why, all)
	}
	for _, metric := range []string{verdict.GetAttr, verdict.Bytes} {
		if r := find(t, v, metric); r.Outcome != verdict.Undecided || !strings.Contains(r.Note, "outlast their cached attributes") {
			t.Errorf("%+v", r)
		}
	}
}

func TestResultsAreInOrderAndCountedPerUnit(t *testing.T) {
	v := verdict.Evaluate(rounds(9, func(_ int, arm v1alpha1.TrialArm) sample {
		p := sample{Seconds: 5, Counts: map[string]float64{"READDIR": 20, "GETATTR": 1000, "FSINFO": 2, verdict.BytesSent: 1e5, verdict.BytesReceived: 2e5}}
		if arm == v1alpha1.ArmAfter {
			p.Seconds, p.Counts["GETATTR"] = 1, 1
		}
		return p
	}), verdict.Goal{}, verdict.Work{Unit: "entry", BeforeSeconds: 3, AfterSeconds: 30, PauseSeconds: 5})
	type row struct {
		Metric, Unit  string
		Before, After float64
		Outcome       v1alpha1.TrialVerdict
		Decides       bool
	}
	var got []row
	for _, r := range v.Results {
		got = append(got, row{r.Metric, r.Unit, r.Before, r.After, r.Outcome, r.Decides})
	}
	want := []row{
		{verdict.Operations, "requests per entry", 1.02, 0.021, verdict.Better, false},
		{verdict.Bytes, "bytes per entry", 300, 300, verdict.NoDifference, false},
		{verdict.Seconds, "seconds", 5, 1, verdict.Better, true},
		{"GETATTR", "requests per entry", 1, 0.001, verdict.Better, false},
		{"READDIR", "requests per entry", 0.02, 0.02, verdict.NoDifference, false},
	}
	check.Equal(t, "result", want, got)
	const note = "passes took 5 to 5 s (attributes cached for 3 s) before and 1 to 1 s (attributes cached for 30 s) after, with a pause of 5 s"
	if r := find(t, v, "GETATTR"); r.Note != note {
		t.Error(cmp.Diff(note, r.Note))
	}
}

// anyPasses draws passes, including invalid ones.
func anyPasses(t *rapid.T) []v1alpha1.TrialPass {
	number := rapid.OneOf(rapid.Float64Range(0, 1e6), rapid.SampledFrom([]float64{0, 1, -1, 1e12}))
	phase := rapid.Custom(func(t *rapid.T) sample {
		return sample{
			Name: rapid.SampledFrom([]string{"first", "second"}).Draw(t, "name"), Units: rapid.SampledFrom([]int64{0, 1, 1000}).Draw(t, "units"),
			Seconds: number.Draw(t, "seconds"),
			Counts:  rapid.MapOfN(rapid.SampledFrom([]string{"GETATTR", "READ", "SEQUENCE", verdict.BytesSent}), number, 0, 3).Draw(t, "counts"),
		}
	})
	var passes []v1alpha1.TrialPass
	for _, slot := range verdict.Schedule(rapid.Int32Range(0, 12).Draw(t, "rounds"), 1) {
		passes = append(passes, passWith(slot, rapid.SliceOfN(phase, 1, 3).Draw(t, "phases")...))
	}
	return passes
}

func TestVerdictsOfAnyPassesContainValidNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		passes := anyPasses(t)
		goal := verdict.Goal{Metric: rapid.SampledFrom([]string{"", "READ"}).Draw(t, "metric"), BetterByPercent: ptr.To(rapid.Int32Range(-5, 150).Draw(t, "percent"))}
		attributes := verdict.Work{BeforeSeconds: 3, AfterSeconds: 30, PauseSeconds: 5}
		v := verdict.Evaluate(passes, goal, attributes)
		if v.Why == "" || len(v.Why) > 240 {
			t.Fatalf("got %d bytes: %s", len(v.Why), v.Why)
		}
		for _, r := range v.Results {
			for _, f := range []float64{r.Before, r.After, r.Ratio, r.Low, r.High, r.SameLow, r.SameHigh} {
				if math.IsNaN(f) || math.IsInf(f, 0) {
					t.Fatalf("got a value that is not a number: %+v", r)
				}
			}
			if r.Low > r.Ratio || r.Ratio > r.High {
				t.Fatalf("got a ratio outside of its interval: %+v", r)
			}
			if r.Low == 0 && r.Outcome != verdict.Undecided {
				t.Fatalf("got a decision without an interval: %+v", r)
			}
			if excludes := r.High < 1 || r.Low > 1; (r.Outcome == verdict.Better || r.Outcome == verdict.Worse) && !excludes {
				t.Fatalf("got a decision, although the interval contains 1: %+v", r)
			}
		}
		shuffled := rapid.Permutation(passes).Draw(t, "order")
		if diff := cmp.Diff(v, verdict.Evaluate(shuffled, goal, attributes)); diff != "" {
			t.Fatalf("got another result for another order of the passes: %s", diff)
		}
		if rapid.IntRange(0, 9).Draw(t, "rounds needed") > 0 {
			return
		}
		if n, why := verdict.RoundsNeeded(passes, goal); n < 1 || n > verdict.MaxRounds || why == "" {
			t.Fatalf("got %d rounds: %q", n, why)
		}
	})
}

func TestNoDifferenceLiesWithinTheMargin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := machine{
			random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), phases: 2, counts: true,
			noise: rapid.Float64Range(0, 0.2).Draw(t, "noise"), countNoise: rapid.Float64Range(0, 0.2).Draw(t, "noise of counts"),
			faster: rapid.Float64Range(0.8, 1.2).Draw(t, "faster"),
		}
		goal := verdict.Goal{BetterByPercent: ptr.To(rapid.Int32Range(1, 30).Draw(t, "percent"))}
		v := verdict.Evaluate(m.passes(rapid.IntRange(8, 24).Draw(t, "rounds"), 1), goal, verdict.Work{})
		minimum := 1 - float64(*goal.BetterByPercent)/100
		for _, r := range v.Results {
			if within := r.Low >= minimum-1e-6 && r.High <= 1/minimum+1e-6; r.Outcome == verdict.NoDifference && !within {
				t.Fatalf("got NoDifference of %v %% for an interval outside of this range: %+v", *goal.BetterByPercent, r)
			}
			if v.Outcome == verdict.NoDifference && r.Decides && r.Outcome != verdict.NoDifference {
				t.Fatalf("got NoDifference in total, but not for each result: %+v", r)
			}
		}
	})
}
