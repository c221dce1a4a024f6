package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/test/check"
)

func TestAWindowIsChecked(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	for want, args := range map[string][]string{
		"remove -f":                  {"observe", "--window=1s", "-f", "-"},
		"must be from 1s":            {"observe", "--window=999ms"},
		"to 1h":                      {"observe", "--window=2h"},
		"flag provided":              {"plan", "--window=1s", "-f", "-"},
		"is an image without mounts": {"observe", "--window=1s", "--host-root", t.TempDir()},
	} {
		if !strings.Contains(strings.Join(args, " "), "--host-root") {
			args = append(args, "--host-root", dir)
		}
		if err := command(args, strings.NewReader(""), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestWorkloadCommand(t *testing.T) {
	var out bytes.Buffer
	check.NoError(t, command([]string{"workload", "--name=CreateUnlink", "--path=" + t.TempDir(), "--allow-writes"}, nil, &out, io.Discard))
	var r workload.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Passes) != 1 || r.Passes[0].Units == 0 {
		t.Errorf("%s: %v", out.String(), err)
	}
	for want, args := range map[string][]string{
		"must be one of":      {"--name=Format", "--path=/x"},
		"not allowed":         {"--name=CreateUnlink", "--path=/x"},
		"unexpected argument": {"--name=WalkTree", "/x"},
		"must be 0 to 1h":     {"--name=WalkTree", "--path=/x", "--for=2h"},
	} {
		if err := command(append([]string{"workload"}, args...), nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
