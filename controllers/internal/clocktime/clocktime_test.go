package clocktime

import (
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

func TestStoredTimes(t *testing.T) {
	now := time.Unix(1e9, 0)
	const week = 7 * 24 * time.Hour
	for name, test := range map[string]struct{ stored, past, end time.Duration }{
		"long ago":                {-week, -week, -week},
		"now":                     {0, 0, 0},
		"by a clock that differs": {MaxSkew, MaxSkew, MaxSkew},
		"by a clock that jumped":  {MaxSkew + time.Second, 0, MaxSkew + time.Second},
		"beyond the longest wait": {week, 0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			stored := now.Add(test.stored)
			check.Equal(t, "start", now.Add(test.past), Past(stored, now))
			check.Equal(t, "end", now.Add(test.end), End(stored, now, time.Hour))
		})
	}
	check.Equal(t, "no start", time.Time{}, Past(time.Time{}, now))
	check.Equal(t, "no end", time.Time{}, End(time.Time{}, now, time.Hour))
}
