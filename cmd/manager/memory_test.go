package main

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// The manager keeps less garbage than Go's default share, unless GOGC is set. This matters in clusters with thousands of nodes.
func TestGarbageIsLimited(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	for goGC, want := range map[string]int{"": garbageShare, "80": 77} {
		debug.SetGCPercent(77)
		t.Setenv("GOGC", goGC)
		check.NoError(t, limitMemory())
		if got := debug.SetGCPercent(77); got != want {
			t.Errorf("GOGC=%q: got share %d, want %d", goGC, got, want)
		}
	}
}

func TestLimitMemory(t *testing.T) {
	for name, test := range map[string]struct {
		container, goLimit string
		want               int64
		wrong              string
	}{
		"the container's limit": {container: "1073741824", want: 966367620},
		"none":                  {want: math.MaxInt64},
		"GOMEMLIMIT wins":       {container: "1073741824", goLimit: "500MiB", want: math.MaxInt64},
		"with a unit":           {container: "1Gi", wrong: `CONTAINER_MEMORY_LIMIT: "1Gi": must be a number of bytes`},
		"zero":                  {container: "0", wrong: "above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
			t.Setenv("CONTAINER_MEMORY_LIMIT", test.container)
			t.Setenv("GOMEMLIMIT", test.goLimit)
			err := limitMemory()
			switch {
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("error %v, want %s", err, test.wrong)
			case test.wrong == "" && err != nil:
				t.Error(err)
			case test.wrong == "" && debug.SetMemoryLimit(-1) != test.want:
				t.Errorf("got limit %d, want %d", debug.SetMemoryLimit(-1), test.want)
			}
		})
	}
}
