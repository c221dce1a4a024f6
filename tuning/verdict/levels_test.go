package verdict

import "testing"

// With more results, it is more likely that one of them differs by chance. Therefore, the results share the significance level of the
// trial.
func TestResultsShareTheLevelOfTheirTrial(t *testing.T) {
	phaseOf := func(names ...string) phase {
		var p phase
		for _, name := range names {
			p.metrics = append(p.metrics, metric{name: name})
		}
		return p
	}
	for name, test := range map[string]struct {
		phases        []phase
		goal          Goal
		times, counts float64
	}{
		"no result": {times: falseByTimes, counts: falseByCounts / looks},
		"one phase": {phases: []phase{phaseOf(Seconds, Operations, Bytes)}, times: falseByTimes, counts: falseByCounts / looks / 2},
		"two phases": {
			phases: []phase{phaseOf(Seconds, Operations, Bytes), phaseOf(Seconds, Operations)},
			times:  falseByTimes / 2, counts: falseByCounts / looks / 3,
		},
		"counts that decide nothing": {phases: []phase{phaseOf(Seconds, Operations, GetAttr, "LOOKUP")}, times: falseByTimes, counts: falseByCounts / looks},
		"a goal of counts":           {phases: []phase{phaseOf(Operations, GetAttr)}, goal: Goal{Metric: GetAttr}, times: falseByTimes, counts: falseByCounts / looks},
	} {
		t.Run(name, func(t *testing.T) {
			got := levelsFor(test.phases, test.goal)
			if got.of(Seconds) != test.times || got.of(Operations) != test.counts {
				t.Errorf("got times %g, counts %g, want %g and %g", got.of(Seconds), got.of(Operations), test.times, test.counts)
			}
		})
	}
}
