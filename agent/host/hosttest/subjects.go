package hosttest

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
)

// OpenHost copies a tree and opens it as a host.
func OpenHost(t testing.TB, name string) (string, host.FS) {
	t.Helper()
	dir := CopyHost(t, name)
	fs, err := host.OpenFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return dir, fs
}

// Settings returns settings from alternating names and values.
func Settings(pairs ...string) []host.Setting {
	var list []host.Setting
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, host.Setting{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

// Apply applies settings, which must not fail.
func Apply(t testing.TB, s host.Subject, desired []host.Setting) {
	t.Helper()
	if err := s.Apply(t.Context(), desired); err != nil {
		t.Fatal(err)
	}
}

// Observe observes a single setting.
func Observe(t testing.TB, s host.Subject, name, value string) host.Observation {
	t.Helper()
	return s.Observe(t.Context(), Settings(name, value))[0]
}

// ExpectState checks the state of a setting, and parts of its message.
func ExpectState(t testing.TB, observation host.Observation, state host.State, parts ...string) {
	t.Helper()
	if observation.State != state {
		t.Errorf("%s: got %s (%s), want %s", observation.Name, observation.State, observation.Message, state)
	}
	for _, part := range parts {
		if !strings.Contains(observation.Message, part) {
			t.Errorf("message: got %q, want it to contain %q", observation.Message, part)
		}
	}
}
