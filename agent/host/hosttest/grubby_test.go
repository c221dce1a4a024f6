package hosttest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/test/check"
)

// grubbyRecord is a recording of the real script with some files.
type grubbyRecord struct {
	Files map[string]string `json:"files"`
	Runs  []struct {
		Name string   `json:"name"`
		Argv []string `json:"argv"`
		// Prepared contains the files that differ from Files before this run. A missing file or directory is null.
		Prepared map[string]*string `json:"prepared"`
		Exit     int                `json:"exit"`
		Stdout   string             `json:"stdout"`
		Stderr   string             `json:"stderr"`
		Changed  map[string]string  `json:"changed"`
	} `json:"runs"`
}

func TestGrubbyBehavesAsTheRealScript(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "grubby.json"))
	check.NoError(t, err)
	var record grubbyRecord
	check.NoError(t, json.Unmarshal(data, &record))
	if len(record.Runs) < 20 {
		t.Errorf("got only %d recorded runs", len(record.Runs))
	}
	for _, run := range record.Runs {
		t.Run(run.Name, func(t *testing.T) {
			dir := t.TempDir()
			WriteFile(t, dir, "/usr/sbin/grubby", noDefaultFile)
			before := map[string]string{}
			for name, text := range record.Files {
				if prepared, ok := run.Prepared[name]; ok && prepared == nil {
					continue
				} else if ok {
					text = *prepared
				}
				before[name] = text
				if name == grubby2Env {
					text = grub.PadBlock(text)
				}
				WriteFile(t, dir, name, text)
			}
			for name, text := range run.Prepared {
				if _, ok := record.Files[name]; !ok && text != nil {
					before[name] = *text
					WriteFile(t, dir, name, *text)
				}
			}
			if _, prepared := run.Prepared["/etc/kernel"]; !prepared {
				check.NoError(t, os.MkdirAll(filepath.Join(dir, "etc", "kernel"), 0o755))
			}
			output, err := playGrubby(dir, run.Argv, nil)
			exit, stderr := 0, ""
			var refusal grubbyError
			if errors.As(err, &refusal) {
				exit, stderr = 1, refusal.Error()
			} else if err != nil {
				t.Fatal(err)
			}
			if exit != run.Exit || stderr != strings.TrimSpace(run.Stderr) {
				t.Errorf("simulated: exit %d, stderr %q; real: %d, %q", exit, stderr, run.Exit, run.Stderr)
			}
			if diff := cmp.Diff(run.Stdout, output); diff != "" {
				t.Errorf("stdout (-real +simulated):\n%s", diff)
			}
			after := ReadTree(t, dir, "/boot", "/etc")
			if block, ok := after[grubby2Env]; ok {
				after[grubby2Env] = strings.TrimRight(block, "#")
			}
			want := before
			for name, text := range run.Changed {
				want[name] = text
			}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("files (-real +simulated):\n%s", diff)
			}
		})
	}
}
