package journal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
)

// newer is a journal with fields that this build does not know, at every level. The name of each field is "later".
const newer = `{
  "version": 1, "later": {"id": "a", "entries": [1, 2.50, 12345678901234567890]},
  "entries": {
    "sysctl/a": {"original": {"present": true, "value": "1", "later": "of a's original"}, "profile": "p", "applied": "2", "later": ["of a"]},
    "sysctl/b": {"original": {"present": true, "value": "1", "later": "of b's original"}, "profile": "p", "applied": "2", "later": ["of b"]}
  },
  "permits": [{"id": "p1", "bootID": "boot-1", "later": "of p1"}, {"id": "p2", "bootID": "boot-1", "later": "of p2"}],
  "boot": {"id": "boot-1", "facts": {"noted": "1"}, "later": "of boot-1"},
  "files": {"/f": {"original": {"present": true, "data": "YQ==", "mode": 420, "later": "of f's original"}, "later": "of f"}},
  "unconfirmed": {"hash": "h", "bootID": "boot-1", "deadline": "2026-01-02T03:04:05Z", "later": "of the proof", "settings": {
    "sysctl/c": {"entry": {"original": {"present": false, "later": 1}, "applied": "2", "later": 2}, "before": {"present": false, "later": 3}, "later": 4},
    "later/d": {"entry": {"original": {"present": false, "later": 5}, "applied": "2"}, "before": {"present": false, "later": 6}, "later": 7}
  }},
  "attempts": {"hash": "h", "interrupted": 1, "later": "of the attempts"}
}`

// loadNewer loads a journal of a newer agent.
func loadNewer(t *testing.T, data string) (j *Journal, name string) {
	t.Helper()
	fs, dir := open(t)
	name = filepath.Join(dir, File)
	check.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
	check.NoError(t, os.WriteFile(name, []byte(data), 0o600))
	return load(t, fs), name
}

// parse reads JSON without converting its numbers.
func parse(t *testing.T, data string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.UseNumber()
	var tree map[string]any
	check.NoError(t, decoder.Decode(&tree))
	return tree
}

// lookUp returns the object at a path in a JSON object.
func lookUp(tree map[string]any, path ...string) map[string]any {
	for _, key := range path {
		tree = tree[key].(map[string]any)
	}
	return tree
}

func TestUnknownFieldsStayAsLongAsTheirParent(t *testing.T) {
	const a, c, d = "sysctl/a", "sysctl/c", "later/d"
	for name, test := range map[string]struct {
		change func(j *Journal) error
		want   func(tree map[string]any)
	}{
		"an entry is retained": {
			change: func(j *Journal) error {
				retained := j.Entries()[a]
				retained.Retain, retained.Retained = true, true
				return j.Record(map[string]Entry{a: retained})
			},
			want: func(tree map[string]any) {
				lookUp(tree, "entries", a)["retain"], lookUp(tree, "entries", a)["retained"] = true, true
			},
		},
		"an entry is back": {
			change: func(j *Journal) error { return j.Forget(a) },
			want:   func(tree map[string]any) { delete(lookUp(tree, "entries"), a) },
		},
		"a fact is noted": {
			change: func(j *Journal) error { return j.SetBootFact("boot-1", "more", "2") },
			want:   func(tree map[string]any) { lookUp(tree, "boot", "facts")["more"] = "2" },
		},
		"a fact of another boot is noted": {
			change: func(j *Journal) error { return j.SetBootFact("boot-2", "more", "2") },
			want: func(tree map[string]any) {
				tree["boot"] = map[string]any{"id": "boot-2", "facts": map[string]any{"more": "2"}}
			},
		},
		"another file is kept": {
			change: func(j *Journal) error {
				files := j.KeptFiles()
				files["/g"] = host.FileRecord{Left: "hash"}
				return j.KeepFiles(files)
			},
			want: func(tree map[string]any) {
				lookUp(tree, "files")["/g"] = map[string]any{"original": map[string]any{"present": false}, "left": "hash"}
			},
		},
		"no file is kept": {
			change: func(j *Journal) error { return j.KeepFiles(nil) },
			want:   func(tree map[string]any) { delete(tree, "files") },
		},
		"the unconfirmed are back": {
			change: func(j *Journal) error {
				u, _ := j.Unconfirmed()
				u.Reverted = true
				return j.SetUnconfirmed(u)
			},
			want: func(tree map[string]any) { lookUp(tree, "unconfirmed")["putBack"] = true },
		},
		"one of the unconfirmed is back": {
			change: func(j *Journal) error {
				u, _ := j.Unconfirmed()
				delete(u.Settings, c)
				return j.SetUnconfirmed(u)
			},
			want: func(tree map[string]any) { delete(lookUp(tree, "unconfirmed", "settings"), c) },
		},
		"the unconfirmed are abandoned": {
			change: (*Journal).Abandon,
			want:   func(tree map[string]any) { delete(tree, "unconfirmed") },
		},
		"the unconfirmed are rejected": {
			change: func(j *Journal) error { return j.Reject("why") },
			want: func(tree map[string]any) {
				delete(tree, "unconfirmed")
				attempts := lookUp(tree, "attempts")
				attempts["why"], attempts["refused"] = "why", map[string]any{c: "2", d: "2"}
				delete(attempts, "interrupted")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, file := loadNewer(t, newer)
			check.NoError(t, test.change(j))
			want := parse(t, newer)
			test.want(want)
			got, err := os.ReadFile(file)
			check.NoError(t, err)
			check.Equal(t, "journal", want, parse(t, string(got)))
			check.Equal(t, "unknown fields for the next agent", load(t, j.fs).unknown, j.unknown)
		})
	}
}

func TestAJournalOfANewerAgentAllowsNoChange(t *testing.T) {
	entry := Entry{Original: host.Original{Present: true, Value: "1"}, Profile: "p", Applied: "2"}
	other := entry
	other.Applied = "3"
	for name, change := range map[string]func(j *Journal) error{
		"a new entry":     func(j *Journal) error { return j.Record(map[string]Entry{"sysctl/a": entry, "sysctl/z": entry}) },
		"another value":   func(j *Journal) error { return j.Record(map[string]Entry{"sysctl/a": other}) },
		"a permit":        func(j *Journal) error { return j.UsePermit("p3", "boot-1") },
		"a proof":         (*Journal).Confirm,
		"a value to try":  func(j *Journal) error { return j.SetUnconfirmed(unconfirmed("other")) },
		"its mere change": func(j *Journal) error { return j.MayChange() },
	} {
		t.Run(name, func(t *testing.T) {
			j, file := loadNewer(t, newer)
			err := change(j)
			want := "19 unknown fields (attempts.later, boot.later, entries[sysctl/a].later and 16 more), so only restoring is possible; upgrade this agent"
			if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if _, used := j.UsedPermit("p3"); used {
				t.Error("the permit counts as used")
			}
			if data, _ := os.ReadFile(file); string(data) != newer {
				t.Errorf("the journal was written: %s", data)
			}
		})
	}
}

func TestTheKnownPartOfANewerJournalIsRead(t *testing.T) {
	j, _ := loadNewer(t, newer)
	entry := Entry{Original: host.Original{Present: true, Value: "1"}, Profile: "p", Applied: "2"}
	check.Equal(t, "entries", map[string]Entry{"sysctl/a": entry, "sysctl/b": entry}, j.Entries())
	u, isOpen := j.Unconfirmed()
	in, used := j.UsedPermit("p2")
	fact, _ := j.BootFact("boot-1", "noted")
	file := j.KeptFiles()["/f"]
	if !isOpen || len(u.Settings) != 2 || in != "boot-1" || !used || fact != "1" || string(file.Original.Data) != "a" {
		t.Errorf("got unconfirmed %+v, permit used %t in %s, fact %q, file %+v", u, used, in, fact, file)
	}
}

func TestOneUnknownFieldIsNamedByItsPath(t *testing.T) {
	for path, data := range map[string]string{
		"later":                                  `{"version": 1, "later": null}`,
		"id":                                     `{"version": 1, "id": 5}`,
		"permits[1].later":                       `{"version": 1, "permits": [{"id": "a"}, {"id": "b", "later": 1}]}`,
		"entries[a/b].original.later":            `{"version": 1, "entries": {"a/b": {"original": {"later": 1}}}}`,
		"unconfirmed.settings[a/b].before.later": `{"version": 1, "unconfirmed": {"settings": {"a/b": {"before": {"later": 1}}}}}`,
		"files[/f].original.later":               `{"version": 1, "files": {"/f": {"original": {"later": 1}}}}`,
	} {
		t.Run(path, func(t *testing.T) {
			j, file := loadNewer(t, data)
			if err := j.MayChange(); err == nil || !strings.Contains(err.Error(), "has 1 unknown field ("+path+"), so") {
				t.Errorf("got %v", err)
			}
			check.NoError(t, j.SetBootFact("boot", "a", "1"))
			if got := load(t, j.fs).unknown; !cmp.Equal(got, []string{path}) {
				written, _ := os.ReadFile(file)
				t.Errorf("unknown fields after another write: got %v:\n%s", got, written)
			}
		})
	}
}

func TestWhatThisBuildWritesHasNoUnknownField(t *testing.T) {
	fs, _ := open(t)
	j := load(t, fs)
	check.NoError(t, j.Record(map[string]Entry{"sysctl/a": entry}))
	check.NoError(t, j.UsePermit("id", "boot"))
	check.NoError(t, j.SetBootFact("boot", "a", "1"))
	check.NoError(t, j.KeepFiles(map[string]host.FileRecord{"/f": {Original: host.SavedFile{Present: true, Data: []byte("a"), Mode: 0o644, UID: 1, GID: 2, Label: "l"}, Left: "x"}}))
	check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
	check.NoError(t, j.Reject("why"))
	check.NoError(t, j.SetUnconfirmed(unconfirmed("h")))
	for _, j := range []*Journal{j, load(t, fs)} {
		check.NoError(t, j.MayChange())
	}
	// Neither the parser nor this check is case-sensitive.
	j, _ = loadNewer(t, `{"Version": 1, "ENTRIES": {"a/b": {"Applied": "1", "original": {"PRESENT": true}}}}`)
	check.NoError(t, j.MayChange())
}

func TestJournalWithoutUnknownFieldsIsNormalAgain(t *testing.T) {
	j, _ := loadNewer(t, `{"version": 1, "entries": {"a/b": {"original": {"present": false}, "applied": "1", "later": 1}}}`)
	check.NoError(t, j.Forget("a/b"))
	check.NoError(t, j.MayChange())
	check.NoError(t, j.Record(map[string]Entry{"a/b": entry}))
	if removed, err := j.Remove("boot"); removed || err != nil {
		t.Errorf("removed a journal with an entry: %t, error %v", removed, err)
	}
	check.NoError(t, j.Forget("a/b"))
	if removed, err := j.Remove("boot"); !removed || err != nil {
		t.Errorf("removed: got %t, error %v", removed, err)
	}
}

func TestUnknownFieldsKeepTheJournal(t *testing.T) {
	j, name := loadNewer(t, `{"version": 1, "later": 1}`)
	if removed, err := j.Remove("boot"); removed || err != nil {
		t.Errorf("removed: got %t, error %v", removed, err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}

func TestInvalidJournalIsUnreadable(t *testing.T) {
	for name, data := range map[string]string{
		"empty":                   "",
		"truncated":               newer[:len(newer)-1],
		"truncated in a string":   newer[:len(newer)/2],
		"no JSON":                 "version: 1\n",
		"two documents":           newer + newer,
		"a list":                  "[" + newer + "]",
		"null":                    "null",
		"no version":              `{"entries": {}}`,
		"version 0":               strings.Replace(newer, `"version": 1`, `"version": 0`, 1),
		"a version of a new form": strings.Replace(newer, `"version": 1`, `"version": "1"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			fs, dir := open(t)
			check.NoError(t, os.MkdirAll(filepath.Join(dir, Dir), 0o700))
			check.NoError(t, os.WriteFile(filepath.Join(dir, File), []byte(data), 0o600))
			if err := New(fs).Load(); !errors.Is(err, ErrUnreadable) {
				t.Errorf("got %v, want ErrUnreadable", err)
			}
		})
	}
}
