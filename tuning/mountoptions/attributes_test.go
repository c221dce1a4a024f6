package mountoptions

import (
	"strings"
	"testing"
)

func TestAttributeSeconds(t *testing.T) {
	for options, want := range map[string]float64{
		"":                           3,
		"vers=4.1 actimeo=30":        30,
		"acregmin=5,acdirmin=60":     5,
		"actimeo=30 acregmin=1":      1,
		"actimeo=600 noac":           0,
		"actimeo=0":                  0,
		"vers=3 acregmax=600 nocto":  3,
		"noac ac acregmin=7 hard ro": 7,
	} {
		if got := AttributeSeconds(strings.Fields(options)); got != want {
			t.Errorf("%q: got %g s, want %g", options, got, want)
		}
	}
}
