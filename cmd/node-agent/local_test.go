package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/test/check"
)

const (
	head = "apiVersion: tuning.storageclient.dev/v1alpha1\nkind: StorageClientProfile\nmetadata: {name: p}\n"
	good = head + "spec:\n  nodeSelector: {matchLabels: {a: b}}\n  node:\n    sysctls: {net.core.rmem_max: \"16777216\"}\n"
)

// execute runs a command on a host, with the profile on standard input and with --no-confirm.
func execute(t *testing.T, dir, profile string, args ...string) (stdout string, err error) {
	t.Helper()
	if args[0] == "apply" {
		// The hosts are directory trees, so no server can confirm a value.
		args = append(args, "--no-confirm")
	}
	return unconfirmed(dir, profile, args...)
}

// unconfirmed runs a command like execute, but without --no-confirm.
func unconfirmed(dir, profile string, args ...string) (stdout string, err error) {
	var out bytes.Buffer
	err = command(append(args, "--host-root", dir), strings.NewReader(profile), &out, io.Discard)
	return out.String(), err
}

func TestEachCommandReportsAndReturnsAnError(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	steps := []struct {
		args       []string
		state      string
		asDeclared bool
	}{
		{[]string{"observe", "-f", "-"}, "Drifted", false},
		{[]string{"plan", "-f", "-"}, "Pending", true},
		{[]string{"apply", "-f", "-"}, "InSync", true},
		{[]string{"observe", "-f", "-"}, "InSync", true},
		{[]string{"observe"}, "InSync", true},
		{[]string{"restore"}, "InSync", true},
	}
	for _, step := range steps {
		for format, parse := range map[string]func([]byte, any) error{
			"json": json.Unmarshal, "yaml": func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
		} {
			if format == "yaml" && step.args[0] == "restore" {
				// All settings are already restored.
				continue
			}
			out, err := execute(t, dir, good, append(step.args, "-o", format)...)
			if step.asDeclared != (err == nil) || err != nil && !errors.Is(err, errNotAsDeclared) {
				t.Fatalf("%v: %v", step.args, err)
			}
			var r localreport.Report
			if err := parse([]byte(out), &r); err != nil {
				t.Fatalf("%v: %v\n%s", step.args, err, out)
			}
			if len(r.Settings) != 1 || string(r.Settings[0].State) != step.state || r.Settings[0].Key != "sysctl/net.core.rmem_max" {
				t.Errorf("%v: %s", step.args, out)
			}
			if r.AsDeclared != step.asDeclared || r.Image || r.RebootRequired {
				t.Errorf("%v: %s", step.args, out)
			}
		}
	}
}

func TestTheReportAsText(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	out, err := execute(t, dir, good, "plan", "-f", "-")
	check.NoError(t, err)
	want := `Host: HOST (Linux 6.1.0-25-amd64)
Boot loader: GrubDebian
Profiles: p

SETTING                   DESIRED   OBSERVED  ORIGINAL  TAKES EFFECT  STATE    TO DO
sysctl/net.core.rmem_max  16777216  212992    -         Live          Pending  Set
  sysctl/net.core.rmem_max: cannot be proven: this machine has no mounts over TCP; apply sets it only with --no-confirm

No changes made. This host supports all declared settings.
`
	check.Equal(t, "report", want, strings.ReplaceAll(out, dir, "HOST"))
}

func TestUnprovableSettingsAreRejected(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	out, err := unconfirmed(dir, good, "apply", "-f", "-")
	if !errors.Is(err, errNotAsDeclared) || !strings.Contains(out, "mount a server first, or use --no-confirm") {
		t.Errorf("%v\n%s", err, out)
	}
	if value, err := os.ReadFile(filepath.Join(dir, "/proc/sys/net/core/rmem_max")); err != nil || strings.TrimSpace(string(value)) != "212992" {
		t.Errorf("%q, %v", value, err)
	}
	for _, command := range []string{"plan", "observe", "restore"} {
		if _, err := unconfirmed(dir, good, command, "-f", "-", "--no-confirm"); err == nil || errors.Is(err, errNotAsDeclared) {
			t.Errorf("%s accepts --no-confirm: %v", command, err)
		}
	}
}

func TestTheReportAdvisesOnThisMachine(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	hosttest.WriteFile(t, dir, "/proc/1/net/sockstat", "sockets: used 500\nTCP: inuse 300 orphan 0 tw 2 alloc 310 mem 6\n")
	tuning := strings.Replace(good, "{net.core.rmem_max: \"16777216\"}", `
      net.ipv4.tcp_mem: "4096 89600 4194304"
      net.ipv4.tcp_rmem: "1048576 8388608 16777216"
      net.ipv4.ip_local_port_range: "1024 65000"
      vm.dirty_ratio: "20"
    tuned: {profile: latency-performance}`, 1)
	expected := map[string]string{
		"tcp-mem":       "with 2.4 GiB of memory, is about 151 MiB, and the limit is more than its memory",
		"tcp-minimum":   "this machine has 2.4 GiB and 300 in use now, which may hold 300 MiB",
		"port-range":    "includes ports of NodePort services (30000 to 32767)",
		"tuned-overlap": "latency-performance sets vm.dirty_ratio too",
	}
	for _, command := range []string{"plan", "apply", "observe"} {
		out, err := execute(t, dir, tuning, command, "-f", "-", "-o", "json")
		if err != nil && !errors.Is(err, errNotAsDeclared) {
			t.Fatal(err)
		}
		var r localreport.Report
		check.NoError(t, json.Unmarshal([]byte(out), &r))
		texts := map[string]string{}
		for _, a := range r.Advice {
			texts[a.ID] = a.Text
			if a.Profile != "p" || a.Severity == "" {
				t.Errorf("%s: %+v", command, a)
			}
		}
		for id, part := range expected {
			if !strings.Contains(texts[id], part) {
				t.Errorf("%s: %s: got %q, want %q in it", command, id, texts[id], part)
			}
		}
		out, _ = execute(t, dir, tuning, command, "-f", "-")
		for _, part := range []string{"\nAdvice, Warning tcp-mem: profile p: spec.node.sysctls[net.ipv4.tcp_mem]: ", "More advice (in full with -o yaml): tcp-buffers, tuned-overlap\n"} {
			if !strings.Contains(out, part) {
				t.Errorf("%s lacks %q:\n%s", command, part, out)
			}
		}
	}
}

func TestProfilesAreReadStrictly(t *testing.T) {
	tests := map[string]struct{ file, want string }{
		"an unknown field":  {strings.ReplaceAll(good, "sysctls:", "sysctl:"), `unknown field "spec.node.sysctl"`},
		"a removed field":   {good + "    sunrpc: {tcpSlotTableEntries: 128}\n", `field spec.node.sunrpc no longer exists: in node.sysctls, set sunrpc.tcp_max_slot_table_entries: "N" (or FromNconnect) instead of tcpMaxSlotTableEntries; in node.kernelModules, set {name: sunrpc, parameters: {tcp_slot_table_entries: "N"}}`},
		"a key twice":       {good + "    sysctls: {}\n", `key "sysctls" already set`},
		"another kind":      {strings.ReplaceAll(good, "Profile", "Node"), "must be tuning.storageclient.dev/v1alpha1 StorageClientProfile"},
		"no YAML":           {"{", "read profile -"},
		"nothing":           {"# nothing\n---\n", "file contains no StorageClientProfile"},
		"no name":           {strings.ReplaceAll(good, "name: p", "labels: {}"), "metadata.name: required"},
		"an unknown mode":   {good + "  mode: Enforced\n", "must be Enforce or Plan"},
		"an unknown policy": {good + "  deletionPolicy: retain\n", "must be Restore or Retain"},
		"one twice":         {good + "---\n" + good, "profile p: given twice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := hosttest.CopyHost(t, "debian-12")
			before := hosttest.ReadTree(t, dir, "/")
			out, err := execute(t, dir, test.file, "apply", "-f", "-")
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, errNotAsDeclared) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(before, hosttest.ReadTree(t, dir, "/")); diff != "" || out != "" {
				t.Errorf("output %q; the host (-before +after):\n%s", out, diff)
			}
		})
	}
}

func TestInputsHaveAnEnd(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	large, bomb := strings.Repeat("# comment\n", 1<<20), "a: &a "+strings.Repeat("x", 1<<14)+"\nb: ["+strings.Repeat("*a, ", 2000)+"]"
	for _, command := range []string{"plan", "apply", "observe"} {
		for file, test := range map[string]struct{ stdin, want string }{
			"/dev/zero": {"", "read profile /dev/zero: neither a file nor a pipe"},
			dir:         {"", "neither a file nor a pipe (mode d"},
			"-":         {large, "read profile -: input has 8388609 bytes or more"},
		} {
			if _, err := execute(t, dir, test.stdin, command, "-f", file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s -f %s: got %v, want %q", command, file, err, test.want)
			}
		}
		if _, err := execute(t, dir, bomb, command, "-f", "-"); err == nil || !strings.Contains(err.Error(), "aliases make the document larger") {
			t.Errorf("%s: got %v for aliases", command, err)
		}
	}
}

// A process, because the command installs its own handler of signals.
func TestReadingEndsWithASignal(t *testing.T) {
	child := process(t, t.TempDir(), "", "plan", "-f", "-")
	child.Stdin = nil
	stdin, err := child.StdinPipe()
	check.NoError(t, err)
	defer stdin.Close()
	check.NoError(t, child.Start())
	// The command has read this and installed its handler; it waits for more.
	if _, err := stdin.Write(bytes.Repeat([]byte("#\n"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	check.NoError(t, child.Process.Signal(syscall.SIGTERM))
	if err := child.Wait(); err == nil || child.ProcessState.ExitCode() != 1 {
		t.Errorf("got %v, want exit code 1", err)
	}
}

func TestSeveralFilesAndDocumentsAreReadTogether(t *testing.T) {
	dir, file := hosttest.CopyHost(t, "debian-12"), filepath.Join(t.TempDir(), "more.yaml")
	other := strings.NewReplacer("name: p", "name: q", "rmem_max", "wmem_max").Replace(good)
	third := strings.NewReplacer("name: p", "name: r", "net.core.rmem_max: \"16777216\"", "vm.dirty_ratio: \"10\"").Replace(good)
	check.NoError(t, os.WriteFile(file, []byte(other+"---\n# between\n---\n"+third), 0o600))
	out, err := execute(t, dir, good, "apply", "-f", "-", "-f", file)
	check.NoError(t, err)
	for _, want := range []string{"Profiles: p, q, r", "sysctl/net.core.rmem_max", "sysctl/net.core.wmem_max", "sysctl/vm.dirty_ratio"} {
		if !strings.Contains(out, want) {
			t.Errorf("report lacks %q:\n%s", want, out)
		}
	}
}

func TestNothingChangesWhileAnotherAgentRuns(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	fs, err := host.OpenFS(dir)
	check.NoError(t, err)
	defer fs.Close()
	unlock, err := fs.Lock()
	check.NoError(t, err)
	for _, changing := range [][]string{{"apply", "-f", "-"}, {"restore"}, {"run", "--node-name=n"}} {
		if _, err := execute(t, dir, good, changing...); !errors.Is(err, host.ErrLocked) {
			t.Errorf("%v: error is %v", changing, err)
		}
	}
	if _, err := execute(t, dir, good, "plan", "-f", "-"); err != nil {
		t.Errorf("plan: %v", err)
	}
	check.NoError(t, unlock())
	if _, err := execute(t, dir, good, "apply", "-f", "-"); err != nil {
		t.Errorf("without the lock: %v", err)
	}
}

func TestFlagsOfTheLocalCommands(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"plan without a profile":  {[]string{"plan"}, "-f PROFILE is required"},
		"apply without a profile": {[]string{"apply"}, "-f PROFILE is required"},
		"an unknown format":       {[]string{"observe", "-o", "xml"}, `-o "xml": must be text, json, yaml`},
		"an argument too many":    {[]string{"restore", "now"}, `unexpected argument "now"`},
		"a file that is missing":  {[]string{"plan", "-f", "/nonexistent"}, "read profile /nonexistent: stat /nonexistent"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := command(test.args, strings.NewReader(""), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}
