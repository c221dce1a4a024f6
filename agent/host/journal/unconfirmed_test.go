package journal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

const tcpRmem = "sysctl/net.ipv4.tcp_rmem"

func unconfirmed(hash string) Unconfirmed {
	before := host.Original{Present: true, Value: "4096 131072 6291456"}
	return Unconfirmed{
		Hash: hash, BootID: "boot-1", Deadline: time.Unix(1700000000, 0).UTC(),
		Settings: map[string]UnconfirmedSetting{tcpRmem: {Entry: Entry{Original: before, Applied: "1 1 1"}, Before: before}},
	}
}

// anew is a host without a journal.
func anew(t *testing.T) host.FS {
	t.Helper()
	files, _ := open(t)
	return files
}

func TestWhatIsUnconfirmedOutlivesTheAgent(t *testing.T) {
	files := anew(t)
	if err := load(t, files).SetUnconfirmed(unconfirmed("h")); err != nil {
		t.Fatal(err)
	}
	j := load(t, files)
	got, isOpen := j.Unconfirmed()
	if diff := cmp.Diff(unconfirmed("h"), got); diff != "" || !isOpen {
		t.Errorf("open %t (-want +got):\n%s", isOpen, diff)
	}
	if removed, err := j.Remove("boot-2"); removed || err != nil {
		t.Errorf("the journal is removed with what is unconfirmed: %v", err)
	}
	if err := j.SetUnconfirmed(Unconfirmed{}); err != nil {
		t.Fatal(err)
	}
	if _, isOpen := load(t, files).Unconfirmed(); isOpen {
		t.Error("nothing is unconfirmed, and the journal says so")
	}
}

func TestHowWhatIsUnconfirmedEnds(t *testing.T) {
	former := host.Original{Present: true, Value: "the very first"}
	for name, test := range map[string]struct {
		end     func(j *Journal) error
		applied string
		refused map[string]string
	}{
		"confirmed":         {end: (*Journal).Confirm, applied: "1 1 1"},
		"abandoned":         {end: (*Journal).Abandon, applied: "former"},
		"refused":           {end: func(j *Journal) error { return j.Refuse("why") }, applied: "former", refused: map[string]string{tcpRmem: "1 1 1"}},
		"interrupted":       {end: func(j *Journal) error { return j.Interrupt("why") }, applied: "former"},
		"interrupted twice": {end: interruptTwice, applied: "former", refused: map[string]string{tcpRmem: "1 1 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := anew(t)
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
				t.Error("it is still unconfirmed")
			}
			want := Entry{Original: former, Applied: test.applied}
			if diff := cmp.Diff(want, j.Entries()[tcpRmem]); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			refused, why := j.Refused("h")
			if diff := cmp.Diff(test.refused, refused); diff != "" || (why != "") != (refused != nil) {
				t.Errorf("refused, because %q (-want +got):\n%s", why, diff)
			}
			if refused, _ := j.Refused("another"); refused != nil {
				t.Errorf("with other settings %v is refused", refused)
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
	j := load(t, anew(t))
	for _, hash := range []string{"a", "b", "a"} {
		if err := j.SetUnconfirmed(unconfirmed(hash)); err != nil {
			t.Fatal(err)
		}
		if err := j.Interrupt("why"); err != nil {
			t.Fatal(err)
		}
		if refused, _ := j.Refused(hash); refused != nil {
			t.Errorf("%s: refused %v", hash, refused)
		}
	}
}
