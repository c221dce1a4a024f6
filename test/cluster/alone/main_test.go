package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAManagerThatEndsIsAnError(t *testing.T) {
	manager := filepath.Join(t.TempDir(), "manager")
	if err := os.WriteFile(manager, []byte("#!/bin/sh\necho a reason >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), settings{manager: manager, nodes: 1, parts: "none"})
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
	err := run(t.Context(), settings{manager: manager, nodes: 20, volumes: 40, settings: 2, profiles: 3, writeDelay: 4 * time.Millisecond, parts: "tuning,volumes,live,profiles"})
	if err != nil {
		t.Error(err)
	}
}
