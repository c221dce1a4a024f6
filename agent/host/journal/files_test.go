package journal

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
)

func TestSavedFilesSurviveARestartAndKeepTheJournal(t *testing.T) {
	dir := t.TempDir()
	fs, err := host.OpenFS(dir)
	check.NoError(t, err)
	load := func() *Journal {
		j := New(fs)
		check.NoError(t, j.Load())
		return j
	}
	files := map[string]host.FileRecord{
		"/etc/default/grub":   {Original: host.SavedFile{Present: true, Data: []byte("a  b\n\x00\xff"), Mode: 0o600, UID: 7, GID: 8}},
		"/etc/kernel/cmdline": {Left: "abc"},
		"/boot/link":          {Original: host.SavedFile{Present: true, Link: "../x"}},
	}
	j := load()
	check.NoError(t, j.KeepFiles(files))
	j = load()
	check.Equal(t, "files", files, j.KeptFiles())
	if removed, err := j.Remove("boot"); removed || err != nil {
		t.Errorf("removed a journal with saved files: %t, error %v", removed, err)
	}
	check.NoError(t, j.KeepFiles(nil))
	if removed, err := j.Remove("boot"); !removed || err != nil {
		t.Errorf("removed: got %t, error %v", removed, err)
	}
}

func TestFilesAboveTheJournalLimitAreRejected(t *testing.T) {
	fs, err := host.OpenFS(t.TempDir())
	check.NoError(t, err)
	j := New(fs)
	check.NoError(t, j.Load())
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
