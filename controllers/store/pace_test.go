package store

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const every = 2 * time.Second
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		after, remaining time.Duration
	}{
		"half a second later the rest is left": {500 * time.Millisecond, 1500 * time.Millisecond},
		"after that time the next one begins":  {every, 0},
		"a clock that went back a little":      {0, every},
		"a clock that went back an hour":       {-time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var pace Pace
			if remaining := pace.Begin(every, now); remaining != 0 {
				t.Errorf("got a wait of %s for the first pass, want none", remaining)
			}
			if remaining := pace.Remaining(every, now.Add(test.after)); remaining != test.remaining {
				t.Errorf("got %s remaining, want %s", remaining, test.remaining)
			}
			if remaining := pace.Begin(every, now.Add(test.after)); remaining != test.remaining {
				t.Errorf("got a wait of %s for the second pass, want %s", remaining, test.remaining)
			}
			wait := every
			if test.remaining > 0 {
				wait = test.remaining
			}
			if remaining := pace.Remaining(every, now.Add(test.after)); remaining != wait {
				t.Errorf("then got %s remaining, want %s", remaining, wait)
			}
		})
	}
}
