// Package play has the flags and the loops that all simulations share: random schedules, by seed, and stories with a recorded log.
package play

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
)

var (
	count     = flag.Int("schedules", 0, "number of random schedules to play; 0 plays at least 200, and more until -for has passed")
	duration  = flag.Duration("for", 0, "how long to play without -schedules; 0 is the time of the test")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first of them")
	update    = flag.Bool("update", false, "write the stories instead of comparing them")
)

// minSchedules is the number of schedules that are played without -schedules, however slow the machine is.
const minSchedules = 200

// Schedules plays random schedules on all processors, for a time if no flag says otherwise. It stops at the first schedule that is broken.
func Schedules(t *testing.T, usual time.Duration, play func(seed uint64)) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	if *duration > 0 {
		usual = *duration
	}
	deadline := time.Now().Add(usual)
	isDue := func(seed uint64) bool {
		number := seed - *firstSeed
		if *count > 0 {
			return number < uint64(*count)
		}
		return number < minSchedules || time.Now().Before(deadline)
	}
	var next, played atomic.Uint64
	var wait sync.WaitGroup
	next.Store(*firstSeed)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for seed := next.Add(1) - 1; isDue(seed) && !t.Failed(); seed = next.Add(1) - 1 {
				play(seed)
				played.Add(1)
			}
		})
	}
	wait.Wait()
	t.Logf("played %d schedules, seeds %d to %d", played.Load(), *firstSeed, *firstSeed+played.Load()-1)
}

// Some plays a fixed number of schedules, one after the other.
func Some(t *testing.T, number int, play func(seed uint64)) {
	t.Helper()
	if *count > 0 {
		number = min(number, *count)
	}
	for seed := *firstSeed; seed < *firstSeed+uint64(number) && !t.Failed(); seed++ {
		play(seed)
	}
}

// Compare compares the log of a story with the recorded log in testdata, so that a reviewer sees each change of behavior.
func Compare(t *testing.T, name string, log []string) {
	t.Helper()
	path := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "", "'", "", ":", "").Replace(name)+".golden")
	got := strings.Join(log, "\n") + "\n"
	if *update {
		check.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	check.NoError(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("log of the story (-want +got); if it is correct, run with -update:\n%s", diff)
	}
}

// Expect reports a story as a failure of its test if its problem is not empty. expected are the stories that must have a problem today, each with the
// reason: the change that solves one removes its entry.
func Expect(t *testing.T, expected map[string]string, name, problem string) {
	t.Helper()
	switch row := expected[name]; {
	case row == "" && problem != "":
		t.Error(problem)
	case row != "" && problem == "":
		t.Errorf("the story ends well: remove its mark %s", row)
	case row != "":
		t.Logf("%s: %s", row, problem)
	}
}
