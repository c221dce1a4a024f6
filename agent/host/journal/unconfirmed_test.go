package journal

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

const tcpRmem = "sysctl/net.ipv4.tcp_rmem"

func unconfirmed(hash string) Unconfirmed {
	before := host.Original{Present: true, Value: "4096 131072 6291456"}
	return Unconfirmed{
		Hash: hash, BootID: "boot-1", Deadline: time.Unix(1700000000, 0).UTC(), DeadlineSinceBoot: 90*time.Minute + 123456789,
		Settings: map[string]UnconfirmedSetting{tcpRmem: {Entry: Entry{Original: before, Applied: "1 1 1"}, Before: before}},
	}
}

// openEmpty returns a new host without a journal.
func openEmpty(t *testing.T) host.FS {
	t.Helper()
	files, _ := open(t)
	return files
}

func TestUnconfirmedSettingsOutliveTheAgent(t *testing.T) {
	files := openEmpty(t)
	if err := load(t, files).SetUnconfirmed(unconfirmed("h")); err != nil {
		t.Fatal(err)
	}
	j := load(t, files)
	got, isOpen := j.Unconfirmed()
	if diff := cmp.Diff(unconfirmed("h"), got); diff != "" || !isOpen {
		t.Errorf("open %t (-want +got):\n%s", isOpen, diff)
	}
	if removed, err := j.Remove("boot-2"); removed || err != nil {
		t.Errorf("a journal with unconfirmed settings is removed: %v", err)
	}
	if err := j.SetUnconfirmed(Unconfirmed{}); err != nil {
		t.Fatal(err)
	}
	if _, isOpen := load(t, files).Unconfirmed(); isOpen {
		t.Error("the journal reports unconfirmed settings without any")
	}
}

func TestTheDeadlineByTheBootClockIsOfOneBoot(t *testing.T) {
	files := openEmpty(t)
	j := load(t, files)
	must(t, j.SetBootFact("boot-1", "a", "1"))
	must(t, j.SetUnconfirmed(unconfirmed("h")))
	must(t, j.SetBootFact("boot-1", "b", "2"))
	u, _ := load(t, files).Unconfirmed()
	if u.DeadlineSinceBoot != unconfirmed("h").DeadlineSinceBoot {
		t.Errorf("got deadline %s", u.DeadlineSinceBoot)
	}
	// The next boot records a fact before it reverts the previous settings. The revert keeps that fact.
	j = load(t, files)
	must(t, j.SetBootFact("boot-2", "c", "3"))
	u, isOpen := j.Unconfirmed()
	if !isOpen || u.DeadlineSinceBoot != 0 {
		t.Errorf("in another boot: open %t, deadline %s", isOpen, u.DeadlineSinceBoot)
	}
	u.Reverted = true
	must(t, j.SetUnconfirmed(u))
	if fact, ok := load(t, files).BootFact("boot-2", "c"); !ok || fact != "3" {
		t.Errorf("fact of the new boot: got %q", fact)
	}
}

func TestInvalidDeadlineIsExpired(t *testing.T) {
	files := openEmpty(t)
	j := load(t, files)
	must(t, j.SetUnconfirmed(unconfirmed("h")))
	must(t, j.SetBootFact("boot-1", factDeadline, "soon"))
	if u, isOpen := load(t, files).Unconfirmed(); !isOpen || u.DeadlineSinceBoot != 0 {
		t.Errorf("got open %t, deadline %s", isOpen, u.DeadlineSinceBoot)
	}
}

// The previous release rejects a journal with an unknown field. It must be able to revert a value that is being proven, so no field may be
// added.
func TestTheReleaseBeforeReadsAJournalWithAnUnprovenValue(t *testing.T) {
	type original struct {
		Present     bool   `json:"present"`
		Value       string `json:"value,omitempty"`
		Counterpart string `json:"counterpart,omitempty"`
	}
	type entry struct {
		Original original `json:"original"`
		Profile  string   `json:"profile,omitempty"`
		Retain   bool     `json:"retain,omitempty"`
		Applied  string   `json:"applied"`
		Retained bool     `json:"retained,omitempty"`
	}
	type setting struct {
		Entry  entry    `json:"entry"`
		Before original `json:"before"`
	}
	type proof struct {
		Hash     string             `json:"hash,omitempty"`
		BootID   string             `json:"bootID"`
		Deadline time.Time          `json:"deadline"`
		PutBack  bool               `json:"putBack,omitempty"`
		Settings map[string]setting `json:"settings"`
	}
	type facts struct {
		ID    string            `json:"id"`
		Facts map[string]string `json:"facts,omitempty"`
	}
	var before struct {
		Version     int    `json:"version"`
		Boot        *facts `json:"boot,omitempty"`
		Unconfirmed *proof `json:"unconfirmed,omitempty"`
	}
	files := openEmpty(t)
	must(t, load(t, files).SetUnconfirmed(unconfirmed("h")))
	data, err := files.ReadFile(File)
	must(t, err)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&before))
	want := original{Present: true, Value: "4096 131072 6291456"}
	u := before.Unconfirmed
	if u == nil || u.BootID != "boot-1" || !u.Deadline.Equal(unconfirmed("h").Deadline) || u.Settings[tcpRmem].Before != want {
		t.Errorf("the previous release reads %+v", u)
	}
}

func TestEndOfUnconfirmedSettings(t *testing.T) {
	former := host.Original{Present: true, Value: "the very first"}
	for name, test := range map[string]struct {
		end      func(j *Journal) error
		applied  string
		rejected map[string]string
	}{
		"confirmed":         {end: (*Journal).Confirm, applied: "1 1 1"},
		"abandoned":         {end: (*Journal).Abandon, applied: "former"},
		"refused":           {end: func(j *Journal) error { return j.Reject("why") }, applied: "former", rejected: map[string]string{tcpRmem: "1 1 1"}},
		"interrupted":       {end: func(j *Journal) error { return j.Interrupt("why") }, applied: "former"},
		"interrupted twice": {end: interruptTwice, applied: "former", rejected: map[string]string{tcpRmem: "1 1 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := openEmpty(t)
			j := load(t, files)
			if err := j.Record(map[string]Entry{tcpRmem: {Original: former, Applied: "former"}}); err != nil {
				t.Fatal(err)
			}
			if err := j.SetUnconfirmed(unconfirmed("h")); err != nil {
				t.Fatal(err)
			}
			if err := test.end(j); err != nil {
				t.Fatal(err)
			}
			j = load(t, files)
			if _, isOpen := j.Unconfirmed(); isOpen {
				t.Error("the setting is still unconfirmed")
			}
			if fact, recorded := j.BootFact("boot-1", factDeadline); recorded {
				t.Errorf("the deadline %s is still recorded", fact)
			}
			want := Entry{Original: former, Applied: test.applied}
			if diff := cmp.Diff(want, j.Entries()[tcpRmem]); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			rejected, reason := j.Rejected("h")
			if diff := cmp.Diff(test.rejected, rejected); diff != "" || (reason != "") != (rejected != nil) {
				t.Errorf("rejected values, reason %q (-want +got):\n%s", reason, diff)
			}
			if rejected, _ := j.Rejected("another"); rejected != nil {
				t.Errorf("with other settings: got rejected values %v, want none", rejected)
			}
		})
	}
}

func interruptTwice(j *Journal) error {
	if err := j.Interrupt("why"); err != nil {
		return err
	}
	if err := j.SetUnconfirmed(unconfirmed("h")); err != nil {
		return err
	}
	return j.Interrupt("why")
}

func TestInterruptionsOfOtherSettingsDoNotAddUp(t *testing.T) {
	j := load(t, openEmpty(t))
	for _, hash := range []string{"a", "b", "a"} {
		if err := j.SetUnconfirmed(unconfirmed(hash)); err != nil {
			t.Fatal(err)
		}
		if err := j.Interrupt("why"); err != nil {
			t.Fatal(err)
		}
		if rejected, _ := j.Rejected(hash); rejected != nil {
			t.Errorf("%s: got rejected values %v", hash, rejected)
		}
	}
}
