package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

func TestAManagerThatEndsIsAnError(t *testing.T) {
	manager := filepath.Join(t.TempDir(), "manager")
	check.NoError(t, os.WriteFile(manager, []byte("#!/bin/sh\necho a reason >&2\nexit 3\n"), 0o700))
	_, err := run(t.Context(), settings{manager: manager, nodes: 1, parts: "none"})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "a reason") {
		t.Errorf("got error %v, want one with the exit status and the end of the log", err)
	}
}

// TestTheManagerWorksWithTheSimulatedServer plays each part on few nodes. It needs the manager of "make test-kwok".
func TestTheManagerWorksWithTheSimulatedServer(t *testing.T) {
	manager := os.Getenv("SCO_MANAGER")
	if manager == "" {
		t.Skip("SCO_MANAGER names no manager: make test-kwok runs this test")
	}
	_, err := run(t.Context(), settings{manager: manager, nodes: 20, volumes: 40, settings: 2, profiles: 3, writeDelay: 4 * time.Millisecond, parts: "tuning,volumes,live,profiles"})
	if err != nil {
		t.Error(err)
	}
}

func TestTheFigureIsTheRatioOfMedians(t *testing.T) {
	runs := func(cpu ...float64) (out [][]cost) {
		for _, seconds := range cpu {
			out = append(out, []cost{{"live", seconds, 100}})
		}
		return out
	}
	former, current := runs(10, 30, 11), runs(12, 9, 11)
	got := ratios(former, current)
	want := "live        CPU s  11.0 : 11.0  ratio 1.00, former's spread 3.00; peak MiB  100 :  100  ratio 1.00, former's spread 1.00\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestStealIsAShareOfAllTime(t *testing.T) {
	const text = "cpu  100 0 50 800 10 0 0 40 0 0\ncpu0 1 2 3 4\n"
	if all, steal := cpuTimes(text); all != 1000 || steal != 40 {
		t.Errorf("got %d ticks and %d stolen, want 1000 and 40", all, steal)
	}
}
