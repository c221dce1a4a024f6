package recommend

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/mountoptions"
)

var update = flag.Bool("update", false, "write the verdicts on the recorded samples anew")

// recorded is a sample of a mount on a virtual node (test/e2e, label sample), whose bottleneck was planted.
type recorded struct {
	Planted string   `json:"planted"`
	Rules   []string `json:"rules"`
	// Ready are the changes that a profile may contain without the decision of a user.
	Ready  []string `json:"ready"`
	Sample Sample   `json:"sample"`
}

func corpus(t *testing.T) []recorded {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	heldBack, globErr := filepath.Glob("testdata/heldback/*.json")
	files = append(files, heldBack...)
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	if err = errors.Join(err, globErr); err != nil || len(files) < 40 {
		t.Fatalf("got %d recorded samples, %v", len(files), err)
	}
	var all []recorded
	for _, name := range files {
		data, err := os.ReadFile(name)
		check.NoError(t, err)
		var r recorded
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, r)
	}
	return all
}

func rulesOf(v Verdict) []string {
	rules := []string{}
	for _, f := range v.Findings {
		rules = append(rules, f.Rule)
	}
	return rules
}

// readyOf returns the changes of the proposed profiles.
func readyOf(v Verdict) []string {
	ready := []string{}
	for _, p := range Propose(Target{Name: "recommended", Protocol: mountoptions.NFS}, v.Findings).Profiles {
		for _, r := range p.Spec.Volumes {
			ready = append(ready, Change{MountOptions: r.MountOptions, ReadAheadKiB: ptr.Deref(r.ReadAheadKiB, 0)}.Texts()...)
		}
		ready = append(ready, Change{Node: p.Spec.Node}.Texts()...)
	}
	return ready
}

// Only the planted bottleneck is found, and a healthy mount has no findings.
func TestRecordedSamples(t *testing.T) {
	var text strings.Builder
	for _, r := range corpus(t) {
		v := evaluate(r.Sample)
		if got := rulesOf(v); !slices.Equal(got, r.Rules) {
			t.Errorf("%s: got %q, want %q", r.Planted, got, r.Rules)
		}
		if got := readyOf(v); !slices.Equal(got, r.Ready) {
			t.Errorf("%s: got a profile with %q, want %q", r.Planted, got, r.Ready)
		}
		fmt.Fprintf(&text, "%s\n  %s\n", r.Planted, v.Summary)
		for _, f := range v.Findings {
			change, err := json.Marshal(f.Change)
			check.NoError(t, err)
			fmt.Fprintf(&text, "  %s: %s\n    change %s\n    effect: %s\n", f.Rule, f.Seen, change, f.Effect)
		}
	}
	const golden = "testdata/verdicts.golden"
	if *update {
		check.NoError(t, os.WriteFile(golden, []byte(text.String()), 0o644))
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != text.String() {
		t.Errorf("got changed verdicts (run with -update to write them): %v\n%s", err, text.String())
	}
}

// For each rule, a recording shows its sign, or work of the same kind, in a state in which its change would do harm or have no effect.
func TestEveryRuleHasARecordedCounterExample(t *testing.T) {
	byName := map[string]recorded{}
	for _, r := range corpus(t) {
		byName[r.Planted] = r
	}
	counterExamples := map[string]string{
		"StuckConnection": "an idle mount after a failover", "PacketLoss": "a slow network", "FewConnections": "16 readers over 16 connections",
		"BusyServer": "16 readers over 4 connections", "FewSlots": "an idle mount after a failover", "FewSessionSlots": "a tunnel with 5 ms behind it",
		"SlowNetwork": "a tunnel with 5 ms behind it", "AttributeRevalidation": "a listing in which most files change",
		"CloseToOpen": "opens of files that change, NFSv3", "LargeReadAhead": "mapped files", "SmallReadAhead": "one MiB a read, whatever the read-ahead",
		"SmallTransfers": "files of 8 KiB with requests of at most 32 KiB", "SynchronousMount": "the option sync and large writes",
		"SynchronousWrites": "fsync on a slow disk of the server", "OpenAndClose": "opens with delegations, NFSv4.1",
		"SessionFlaps": "a restart of the server in the window",
	}
	for _, rule := range Rules() {
		if rule.ID == "LogBuffers" { // There are no recordings of XFS.
			continue
		}
		r, ok := byName[counterExamples[rule.ID]]
		if !ok || slices.Contains(r.Rules, rule.ID) {
			t.Errorf("%s: got no recorded counter-example: %+v", rule.ID, r)
		}
	}
}

// The same work on a machine of half or twice the speed, and in a window of half the length, has the same findings. No recorded sample is
// close to a threshold.
func TestRecordedSamplesAtOtherSpeeds(t *testing.T) {
	for _, r := range corpus(t) {
		for name, s := range map[string]Sample{
			"half as fast": scaled(r.Sample, 0.5, 1, 1), "twice as fast": scaled(r.Sample, 2, 1, 1), "in half the time": scaled(r.Sample, 0.5, 0.5, 0.5),
		} {
			if got := rulesOf(evaluate(s)); !slices.Equal(got, r.Rules) {
				t.Errorf("%s, %s: got %q, want %q", r.Planted, name, got, r.Rules)
			}
		}
	}
}

// scaled multiplies the amount of work, the total wait time, and the length of the window.
func scaled(s Sample, work, waited, window float64) Sample {
	scale := func(n *uint64, factor float64) { *n = uint64(float64(*n) * factor) }
	s.Seconds *= window
	s.Operations, s.Connections = slices.Clone(s.Operations), slices.Clone(s.Connections)
	for i := range s.Operations {
		o := &s.Operations[i]
		if IsMaintenance(o.Name) { // A faster machine does not meet more restarts of the server.
			continue
		}
		for _, n := range []*uint64{&o.Count, &o.Transmissions, &o.BytesSent, &o.BytesReceived} {
			scale(n, work)
		}
		for _, n := range []*uint64{&o.QueueMillis, &o.RoundTripMillis, &o.ExecutionMillis} {
			scale(n, waited)
		}
	}
	for i := range s.Connections {
		c := &s.Connections[i]
		for _, n := range []*uint64{&c.Sends, &c.Answers, &c.Backlog} {
			scale(n, work)
		}
	}
	for _, n := range []*uint64{
		&s.Bytes.Read, &s.Bytes.Written, &s.Bytes.DirectRead, &s.Bytes.DirectWritten, &s.Bytes.WireRead, &s.Bytes.WireWritten,
		&s.Events.Opens, &s.Events.Listings, &s.Events.Flushes, &s.Events.Syncs,
		&s.Network.InSegments, &s.Network.OutSegments, &s.Network.Retransmitted, &s.Network.OutOfOrder,
	} {
		scale(n, work)
	}
	scale(&s.MinRoundTripMicros, waited/work)
	return s
}

// evaluate evaluates a sample of an unknown node and volume.
func evaluate(s Sample) Verdict { return Evaluate(s, advice.Node{}, drivers.Source{}) }
