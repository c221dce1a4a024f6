package journal

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
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
	check.NoError(t, load(t, files).SetUnconfirmed(unconfirmed("h")))
	j := load(t, files)
	got, isOpen := j.Unconfirmed()
	if diff := cmp.Diff(unconfirmed("h"), got); diff != "" || !isOpen {
		t.Errorf("open %t (-want +got):\n%s", isOpen, diff)
	}
	if removed, err := j.Remove("boot-2"); removed || err != nil {
		t.Errorf("a journal with unconfirmed settings is removed: %v", err)
	}
	check.NoError(t, j.SetUnconfirmed(Unconfirmed{}))
	if _, isOpen := load(t, files).Unconfirmed(); isOpen {
		t.Error("the journal reports unconfirmed settings without any")
	}
}

func TestTheDeadlineByTheBootClockIsOfOneBoot(t *testing.T) {
	files := openEmpty(t)
	j := load(t, files)
	check.NoError(t, j.SetBootFact("boot-1", "a", "1"))
	check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
	check.NoError(t, j.SetBootFact("boot-1", "b", "2"))
	u, _ := load(t, files).Unconfirmed()
	check.Equal(t, "deadline", unconfirmed("h").DeadlineSinceBoot, u.DeadlineSinceBoot)
	// The next boot records a fact before it reverts the previous settings. The revert keeps that fact.
	j = load(t, files)
	check.NoError(t, j.SetBootFact("boot-2", "c", "3"))
	u, isOpen := j.Unconfirmed()
	if !isOpen || u.DeadlineSinceBoot != 0 {
		t.Errorf("in another boot: open %t, deadline %s", isOpen, u.DeadlineSinceBoot)
	}
	u.Reverted = true
	check.NoError(t, j.SetUnconfirmed(u))
	if fact, ok := load(t, files).BootFact("boot-2", "c"); !ok || fact != "3" {
		t.Errorf("fact of the new boot: got %q", fact)
	}
}

func TestInvalidDeadlineIsExpired(t *testing.T) {
	files := openEmpty(t)
	j := load(t, files)
	check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
	check.NoError(t, j.SetBootFact("boot-1", factDeadline, "soon"))
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
	check.NoError(t, load(t, files).SetUnconfirmed(unconfirmed("h")))
	data, err := files.ReadFile(File)
	check.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	check.NoError(t, decoder.Decode(&before))
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
			check.NoError(t, j.Record(map[string]Entry{tcpRmem: {Original: former, Applied: "former"}}))
			check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
			check.NoError(t, test.end(j))
			j = load(t, files)
			if _, isOpen := j.Unconfirmed(); isOpen {
				t.Error("the setting is still unconfirmed")
			}
			if fact, recorded := j.BootFact("boot-1", factDeadline); recorded {
				t.Errorf("the deadline %s is still recorded", fact)
			}
			want := Entry{Original: former, Applied: test.applied}
			check.Equal(t, "entry", want, j.Entries()[tcpRmem])
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
		check.NoError(t, j.SetUnconfirmed(unconfirmed(hash)))
		check.NoError(t, j.Interrupt("why"))
		if rejected, _ := j.Rejected(hash); rejected != nil {
			t.Errorf("%s: got rejected values %v", hash, rejected)
		}
	}
}

const tunedProfile = "tuned/profile"

// secondUnconfirmed returns another setting that is proven with the settings of that hash.
func secondUnconfirmed(hash string) Unconfirmed {
	u := unconfirmed(hash)
	u.Settings = map[string]UnconfirmedSetting{tunedProfile: {Entry: Entry{Applied: "virtual-guest"}}}
	return u
}

// A host may support another setting of the same hash only after a value was rejected. The other setting is then proven alone.
func TestARejectedValueStaysRejectedWithTheSameHash(t *testing.T) {
	for name, test := range map[string]struct {
		end func(j *Journal) error
		// second is the rejected value of the second setting, and reason contains the reason of both.
		second, reason string
	}{
		"the other is confirmed":         {end: (*Journal).Confirm, reason: "why"},
		"the other is abandoned":         {end: (*Journal).Abandon, reason: "why"},
		"the other is interrupted":       {end: func(j *Journal) error { return j.Interrupt("again") }, reason: "why"},
		"the other is rejected":          {end: func(j *Journal) error { return j.Reject("again", "APIServer") }, second: "virtual-guest", reason: "why; tuned/profile: again"},
		"the other is interrupted twice": {end: interruptSecondTwice, second: "virtual-guest", reason: "why; tuned/profile: again"},
		"the other is interrupted, and abandoned": {end: func(j *Journal) error {
			if err := j.Interrupt("again"); err != nil {
				return err
			}
			return j.Abandon()
		}, reason: "why"},
	} {
		for _, hash := range []string{"h", "another"} {
			t.Run(name+", hash "+hash, func(t *testing.T) {
				files := openEmpty(t)
				j := load(t, files)
				check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
				check.NoError(t, j.Reject("why", "filer1"))
				check.NoError(t, j.SetUnconfirmed(secondUnconfirmed(hash)))
				check.NoError(t, test.end(j))
				rejected, reason := load(t, files).Rejected("h")
				if hash != "h" {
					if name != "the other is abandoned" && rejected != nil {
						t.Errorf("with other settings: got rejected values %v, want none", rejected)
					}
					return
				}
				if rejected[tcpRmem] != "1 1 1" || rejected[tunedProfile] != test.second || reason != test.reason {
					t.Errorf("got rejected values %v, reason %q", rejected, reason)
				}
				check.Equal(t, "failed connections of the first setting", []string{"filer1"}, FailedConnections(rejected, tcpRmem))
			})
		}
	}
}

func interruptSecondTwice(j *Journal) error {
	if err := j.Interrupt("again"); err != nil {
		return err
	}
	if err := j.SetUnconfirmed(secondUnconfirmed("h")); err != nil {
		return err
	}
	return j.Interrupt("again")
}

func TestEachRejectedValueHasItsFailedConnections(t *testing.T) {
	files := openEmpty(t)
	j := load(t, files)
	for _, u := range []Unconfirmed{unconfirmed("h"), secondUnconfirmed("h")} {
		check.NoError(t, j.SetUnconfirmed(u))
		connections := map[string][]string{tcpRmem: {"filer1", "filer2"}, tunedProfile: {"APIServer", "filer2"}}[u.Keys()[0]]
		check.NoError(t, j.Reject("why", connections...))
	}
	rejected, _ := load(t, files).Rejected("h")
	for key, want := range map[string][]string{tcpRmem: {"filer1", "filer2"}, tunedProfile: {"APIServer", "filer2"}} {
		check.Equal(t, key, want, FailedConnections(rejected, key))
	}
	// Agents of earlier releases recorded connections without the keys.
	former := map[string]string{tcpRmem: "1 1 1", tunedProfile: "x", connectionPrefix + "filer1": ""}
	check.Equal(t, "an earlier record", []string{"filer1"}, FailedConnections(former, tunedProfile))
}

// The local command applies a rejected value again if a user requests it.
func TestAConfirmedValueIsNoLongerRejected(t *testing.T) {
	files := openEmpty(t)
	j := load(t, files)
	for _, end := range []func() error{func() error { return j.Reject("why", "filer1") }, j.Confirm} {
		check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
		check.NoError(t, end())
	}
	if rejected, reason := load(t, files).Rejected("h"); rejected != nil || reason != "" {
		t.Errorf("got rejected values %v, reason %q", rejected, reason)
	}
}

// One interruption before a confirmation and one after it are not in a row.
func TestAConfirmationEndsTheCountOfInterruptions(t *testing.T) {
	j := load(t, openEmpty(t))
	check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
	check.NoError(t, j.Interrupt("why"))
	check.NoError(t, j.SetUnconfirmed(secondUnconfirmed("h")))
	check.NoError(t, j.Confirm())
	check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
	check.NoError(t, j.Interrupt("why"))
	if rejected, _ := j.Rejected("h"); rejected != nil {
		t.Errorf("got rejected values %v", rejected)
	}
}
