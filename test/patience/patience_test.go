package patience

import (
	"testing"
	"time"
)

func TestTheFactorIsTheUsersOrTheMeasuredOneWithinLimits(t *testing.T) {
	for name, test := range map[string]struct {
		set      string
		measured float64
		want     float64
		wrong    bool
	}{
		"a slow machine":             {measured: 2.5, want: 2.5},
		"a fast machine":             {measured: 0.3, want: 1},
		"a machine that hardly runs": {measured: 50, want: 8},
		"set by the user":            {set: "12.5", measured: 2, want: 12.5},
		"below one":                  {set: "0.5", wrong: true},
		"endless":                    {set: "Inf", wrong: true},
		"no number":                  {set: "slow", wrong: true},
		"not a number":               {set: "NaN", wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(test.set, func() float64 { return test.measured })
			if got != test.want || (err != nil) != test.wrong {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestABoundIsMultiplied(t *testing.T) {
	if got, want := Of(2*time.Second), time.Duration(2*Slowness()*float64(time.Second)); got != want || want < 2*time.Second {
		t.Errorf("got %s for two seconds, want %s", got, want)
	}
}
