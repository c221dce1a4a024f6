package journal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

func TestSavedFilesSurviveARestartAndKeepTheJournal(t *testing.T) {
	dir := t.TempDir()
	fs, err := host.OpenFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	load := func() *Journal {
		j := New(fs)
		if err := j.Load(); err != nil {
			t.Fatal(err)
		}
		return j
	}
	files := map[string]host.FileRecord{
		"/etc/default/grub":   {Original: host.SavedFile{Present: true, Data: []byte("a  b\n\x00\xff"), Mode: 0o600, UID: 7, GID: 8}},
		"/etc/kernel/cmdline": {Left: "abc"},
		"/boot/link":          {Original: host.SavedFile{Present: true, Link: "../x"}},
	}
	j := load()
	if err := j.KeepFiles(files); err != nil {
		t.Fatal(err)
	}
	j = load()
	if diff := cmp.Diff(files, j.KeptFiles()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if removed, err := j.Remove("boot"); removed || err != nil {
		t.Errorf("removed a journal with saved files: %t, error %v", removed, err)
	}
	if err := j.KeepFiles(nil); err != nil {
		t.Fatal(err)
	}
	if removed, err := j.Remove("boot"); !removed || err != nil {
		t.Errorf("removed: got %t, error %v", removed, err)
	}
}

func TestFilesAboveTheJournalLimitAreRejected(t *testing.T) {
	fs, err := host.OpenFS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := New(fs)
	if err := j.Load(); err != nil {
		t.Fatal(err)
	}
	large := host.FileRecord{Original: host.SavedFile{Present: true, Data: make([]byte, 64<<10)}}
	files := map[string]host.FileRecord{"1": large, "2": large, "3": large, "4": large}
	if err := j.KeepFiles(files); err != nil {
		t.Error(err)
	}
	files["5"] = large
	if err := j.KeepFiles(files); err == nil || !strings.Contains(err.Error(), "5 files are too large to save: 320 KiB, limit 256 KiB") {
		t.Errorf("error: got %v", err)
	}
}
