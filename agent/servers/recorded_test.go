package servers

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/serverhealth"
)

// The spec "healthy-minutes" of test/e2e recorded these samples for nine minutes.
// The agent's reader ran on two virtual nodes with Linux 6.1 of Debian 12. A third node ran knfsd and Samba, with one address for each
// server.
// Mounts: NFSv3 and NFSv4.0, hard and soft, with one and two connections; NFSv4.1 with four connections; SMB.
// Loads: idle, light, bursts at full speed, and occasional requests. The second node had a latency of 20 ms. No server failed.
// Under emulation, each reading took seconds, and the recorder did not store times yet. The times are distributed evenly over the nine
// minutes.
func TestRecordedHealthyMinutesRaiseNoAlarm(t *testing.T) {
	files, err := filepath.Glob("testdata/healthy-*.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded samples: %v", err)
	}
	minutes, states := 0.0, map[v1alpha1.ServerState]int{}
	for _, name := range files {
		minutes += playRecorded(t, name, states)
	}
	if minutes < 1000 || states[v1alpha1.ServerAnswering] < 1000 || states[v1alpha1.ServerIdle] < 100 {
		t.Errorf("got %.0f minutes of servers, states %v; want more minutes or states", minutes, states)
	}
	t.Logf("%.0f minutes of servers, %v", minutes, states)
}

// playRecorded returns the total number of minutes of all servers in a file.
func playRecorded(t *testing.T, name string, states map[v1alpha1.ServerState]int) (minutes float64) {
	t.Helper()
	var watch serverhealth.Watch
	var last time.Time
	for _, s := range readSamples(t, name) {
		now, passed := s.At, s.At.Sub(last)
		if last.IsZero() {
			passed = 0
		}
		last = now
		for _, v := range watch.Note(now, batchOf(reading{at: now, counters: s.Servers}, nil)) {
			minutes += passed.Minutes()
			states[v.State]++
			if v.State.IsFailing() || len(v.Stale) > 0 || v.Flapping || v.NeedsProbe {
				t.Fatalf("%s at %s, %s: %s, %s: %s (probe: %t)", name, now.Format(time.TimeOnly), v.Server, v.State, v.Reason, v.Message, v.NeedsProbe)
			}
		}
	}
	return minutes
}

// recordedSample is one reading of all servers, in the format of test/e2e/recorder.
type recordedSample struct {
	At      time.Time
	Servers []mounts.ServerCounters
}

func readSamples(t *testing.T, name string) (samples []recordedSample) {
	t.Helper()
	data, err := os.ReadFile(name)
	check.NoError(t, err)
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	check.NoError(t, err)
	lines := bufio.NewScanner(unpacked)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var s recordedSample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		samples = append(samples, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return samples
}
