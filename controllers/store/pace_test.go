package store

import (
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
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
			check.Equal(t, "wait for the first pass", 0, pace.Begin(every, now))
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

func TestSooner(t *testing.T) {
	for name, test := range map[string]struct {
		waits []time.Duration
		want  time.Duration
	}{
		"none":                     {},
		"forever":                  {[]time.Duration{0, 0}, 0},
		"one is forever":           {[]time.Duration{0, time.Minute}, time.Minute},
		"the shortest":             {[]time.Duration{time.Hour, time.Second, time.Minute}, time.Second},
		"a time that is over":      {[]time.Duration{-time.Second, time.Minute}, time.Minute},
		"all times are over":       {[]time.Duration{-time.Second, -time.Minute}, 0},
		"the first of equal waits": {[]time.Duration{time.Minute, time.Minute}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, Sooner(test.waits...))
		})
	}
}
