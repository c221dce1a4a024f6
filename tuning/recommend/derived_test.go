package recommend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// derived is a sample that is not recorded. It is derived from a recording until a recording of the state in ReplaceBy replaces it.
type derived struct {
	recorded
	DerivedFrom string `json:"derivedFrom"`
	By          string `json:"by"`
	ReplaceBy   string `json:"replaceBy"`
}

// The derived samples show the sign of a rule in a state in which its change would do harm, or the state for which the rule exists.
func TestDerivedSamples(t *testing.T) {
	files, err := filepath.Glob("testdata/derived/*.json")
	if err != nil || len(files) < 7 {
		t.Fatalf("got %d samples, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			check.NoError(t, err)
			var d derived
			check.NoError(t, json.Unmarshal(data, &d))
			if d.DerivedFrom == "" || d.By == "" || d.ReplaceBy == "" {
				t.Error("want derivedFrom, by and replaceBy")
			}
			v := evaluate(d.Sample)
			if got := rulesOf(v); !slices.Equal(got, d.Rules) {
				t.Errorf("got rules %q, want %q: %+v", got, d.Rules, v.Findings)
			}
			if ready := readyOf(v); !slices.Equal(ready, d.Ready) {
				t.Errorf("got a profile with %q, want %q", ready, d.Ready)
			}
		})
	}
}
