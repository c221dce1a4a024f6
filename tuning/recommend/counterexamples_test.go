package recommend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/drivers"
)

// counterExample is a sample whose counters show the sign of a rule in a state in which its change would be wrong. It is computed, not recorded.
type counterExample struct {
	Planted string `json:"planted"`
	// Because explains why the change would be wrong.
	Because string   `json:"because"`
	Rules   []string `json:"rules"`
	// Warning is a part of the words against the change. Empty if no rule with a change applies.
	Warning string `json:"warning"`
	// Kernel is the release of the node, and Volume the storage of the volume. Empty if unknown.
	Kernel string         `json:"kernel"`
	Volume drivers.Source `json:"volume"`
	Sample Sample         `json:"sample"`
}

// No change is ready that the operator's knowledge warns against.
func TestCounterExamplesHaveNoReadyChange(t *testing.T) {
	files, err := filepath.Glob("testdata/counterexamples/*.json")
	if err != nil || len(files) < 50 {
		t.Fatalf("got %d counter-examples, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			check.NoError(t, err)
			var c counterExample
			check.NoError(t, json.Unmarshal(data, &c))
			v := Evaluate(c.Sample, advice.Node{Name: "n1", Kernel: c.Kernel}, c.Volume)
			if got := rulesOf(v); !slices.Equal(got, c.Rules) {
				t.Errorf("got rules %q, want %q: %+v", got, c.Rules, v.Findings)
			}
			if ready := readyOf(v); len(ready) > 0 {
				t.Errorf("got a profile with %q, want none, because %s", ready, c.Because)
			}
			isWarned := func(f Finding) bool { return f.ByHand && strings.Contains(f.Against, c.Warning) }
			if c.Warning != "" && !slices.ContainsFunc(v.Findings, isWarned) {
				t.Errorf("got findings %+v, want one with %q", v.Findings, c.Warning)
			}
		})
	}
}
