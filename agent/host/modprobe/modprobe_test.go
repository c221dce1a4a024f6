package modprobe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
)

var errCrash = errors.New("crash")

const (
	header1 = "# Written by storage-client-node-agent. What is changed here is overwritten.\n"
	liveMax = "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries"
)

// loaded returns a host with the modules sunrpc and nfs. On the host of unloaded, they are available but not loaded.
func loaded(t *testing.T) (string, host.FS)   { return hosttest.OpenHost(t, "ubuntu-24.04-cloudimg") }
func unloaded(t *testing.T) (string, host.FS) { return hosttest.OpenHost(t, "debian-12") }

func noSessions() ([]mounts.Session, error) { return nil, nil }

// unused returns the subject of a host without NFS mounts and with an empty journal.
func unused(fs host.FS) *Subject { return New(fs, nil, noSessions, facts{}) }

func readOnly(t *testing.T, dir, name string) {
	t.Helper()
	check.NoError(t, os.Chmod(filepath.Join(dir, name), 0o444))
}

func TestApplyWritesOneLineAModuleAndTheLiveValues(t *testing.T) {
	dir, fs := loaded(t)
	s := unused(fs)
	desired := hosttest.Settings("sunrpc/tcp_slot_table_entries", "64", maxSlots, "128", sessionSlots, "180")
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Drifted)
	hosttest.Apply(t, s, desired)
	want := header1 + "options nfs max_session_slots=180\n" +
		"options sunrpc tcp_max_slot_table_entries=128 tcp_slot_table_entries=64\n"
	check.Equal(t, "drop-in", want, hosttest.ReadFile(t, dir, DropIn))
	check.Equal(t, "live value", "128\n", hosttest.ReadFile(t, dir, liveMax))
	for _, o := range s.Observe(t.Context(), desired) {
		hosttest.ExpectState(t, o, host.InSync)
		if o.Observed != o.Desired || o.Effect != host.NewTransport {
			t.Errorf("got %+v", o)
		}
	}
}

func TestApplyDoesNotWriteIfTheHostIsAsDesired(t *testing.T) {
	_, fs := loaded(t)
	desired := hosttest.Settings(maxSlots, "128", sessionSlots, "180")
	hosttest.Apply(t, unused(fs), desired)
	changes := 0
	s := unused(fs.WithHook(func(host.Op, string) error { changes++; return nil }))
	hosttest.Apply(t, s, desired)
	check.Equal(t, "changes", 0, changes)
}

func TestApplyRemovesUndesiredSettings(t *testing.T) {
	dir, fs := loaded(t)
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128", sessionSlots, "180"))
	hosttest.Apply(t, s, hosttest.Settings(sessionSlots, "180"))
	check.Equal(t, "drop-in", header1+"options nfs max_session_slots=180\n", hosttest.ReadFile(t, dir, DropIn))
	hosttest.Apply(t, s, nil)
	if fs.Exists(DropIn) {
		t.Error("the drop-in still exists without desired settings")
	}
}

func TestAModuleThatIsNotLoaded(t *testing.T) {
	t.Run("is in sync by its file, with a note", func(t *testing.T) {
		_, fs := unloaded(t)
		s := unused(fs)
		hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Drifted, "not in "+DropIn)
		hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
		got := hosttest.Observe(t, s, maxSlots, "128")
		hosttest.ExpectState(t, got, host.InSync, "not loaded; modprobe.d contains the value")
		check.Equal(t, "effective value", "", got.Observed)
		if fs.Exists("/sys/module/sunrpc") {
			t.Error("the module was loaded")
		}
	})
	t.Run("is shadowed by another file", func(t *testing.T) {
		dir, fs := unloaded(t)
		s := unused(fs)
		hosttest.WriteFile(t, dir, "/etc/modprobe.d/sunrpc.conf", "options sunrpc tcp_max_slot_table_entries=64\n")
		hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
		hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.InSync)
		hosttest.WriteFile(t, dir, "/etc/modprobe.d/zz.conf", "options sunrpc tcp_max_slot_table_entries=64\n")
		hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Shadowed, "/etc/modprobe.d/zz.conf", `"64"`)
	})
	t.Run("that this kernel does not have is unsupported", func(t *testing.T) {
		_, fs := unloaded(t)
		s := unused(fs)
		hosttest.Apply(t, s, hosttest.Settings("none/x", "1"))
		hosttest.ExpectState(t, hosttest.Observe(t, s, "none/x", "1"), host.Unsupported, "no module none")
		if fs.Exists(DropIn) {
			t.Error("the setting is in the drop-in")
		}
	})
	t.Run("may exist where the host does not list its modules", func(t *testing.T) {
		dir, fs := unloaded(t)
		check.NoError(t, os.RemoveAll(filepath.Join(dir, "usr", "lib", "modules")))
		s := unused(fs)
		hosttest.Apply(t, s, hosttest.Settings("none/x", "1"))
		hosttest.ExpectState(t, hosttest.Observe(t, s, "none/x", "1"), host.InSync, "not loaded")
	})
}

func TestParameterThatTheLoadedModuleLacks(t *testing.T) {
	_, fs := loaded(t)
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings("sunrpc/tpc_max_slot_table_entries", "128"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, "sunrpc/tpc_max_slot_table_entries", "128"), host.Unsupported, "no parameter")
	if fs.Exists(DropIn) {
		t.Error("the setting is in the drop-in")
	}
}

func TestABuiltInModuleIsSetLive(t *testing.T) {
	dir, fs := loaded(t)
	hosttest.WriteFile(t, dir, "/usr/lib/modules/6.8.0-57-generic/modules.builtin", "kernel/net/sunrpc/sunrpc.ko\n")
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.InSync, "built into the kernel")
}

func TestTheSysctlOfASlotTableServesWhereTheParameterIsMissing(t *testing.T) {
	dir, fs := loaded(t)
	check.NoError(t, os.RemoveAll(filepath.Join(dir, "sys", "module", "sunrpc", "parameters")))
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	check.Equal(t, "live value", "128\n", hosttest.ReadFile(t, dir, "/proc/sys/sunrpc/tcp_max_slot_table_entries"))
}

func TestAReadOnlyParameterWaitsForTheModuleToBeLoaded(t *testing.T) {
	dir, fs := loaded(t)
	readOnly(t, dir, liveMax)
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	got := hosttest.Observe(t, s, maxSlots, "128")
	hosttest.ExpectState(t, got, host.Pending, "only when the module is loaded")
	if got.Effect != host.Reboot || got.Observed != "65536" {
		t.Errorf("got %+v", got)
	}
	restored := s.Restore(t.Context(), map[string]host.Original{maxSlots: {Present: true, Value: "2"}})[0]
	hosttest.ExpectState(t, restored, host.Pending, "reloaded")
}

func TestAReadOnlyParameterThatAnotherFileSets(t *testing.T) {
	for name, test := range map[string]struct {
		file, data string
		state      host.State
		named      string
	}{
		"a file after the drop-in wins at every boot": {"/etc/modprobe.d/zz.conf", "options sunrpc tcp_max_slot_table_entries=64\n", host.Shadowed, "/etc/modprobe.d/zz.conf"},
		"with the same value it does not":             {"/etc/modprobe.d/zz.conf", "options sunrpc tcp_max_slot_table_entries=128\n", host.Pending, "only when the module is loaded"},
		"a file before the drop-in does not":          {"/etc/modprobe.d/a.conf", "options sunrpc tcp_max_slot_table_entries=64\n", host.Pending, "only when the module is loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := loaded(t)
			readOnly(t, dir, liveMax)
			hosttest.WriteFile(t, dir, test.file, test.data)
			s := unused(fs)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			got := hosttest.Observe(t, s, maxSlots, "128")
			hosttest.ExpectState(t, got, test.state, test.named)
			if got.Effect != host.Reboot || got.Observed != "65536" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// modprobe.d applies to loadable modules. Built-in modules read their parameters only from the kernel command line
// (docs.kernel.org/admin-guide/kernel-parameters.html).
func TestAReadOnlyParameterOfABuiltInModule(t *testing.T) {
	dir, fs := loaded(t)
	hosttest.WriteFile(t, dir, "/usr/lib/modules/6.8.0-57-generic/modules.builtin", "kernel/net/sunrpc/sunrpc.ko\n")
	readOnly(t, dir, liveMax)
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Unsupported, "built into the kernel", "kernelArguments: sunrpc.tcp_max_slot_table_entries=128")
	if fs.Exists(DropIn) {
		t.Error("the setting is in the drop-in")
	}
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "65536"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "65536"), host.InSync)
}

type refusing struct{ host.FS }

func (refusing) WriteValue(string, string) error { return errors.New("invalid argument") }

type rounding struct{ host.FS }

func (r rounding) WriteValue(name, _ string) error { return r.FS.WriteValue(name, "100") }

func TestValueThatTheModuleRejects(t *testing.T) {
	for want, kernel := range map[string]func(host.FS) host.Kernel{
		"the kernel rejects":                  func(fs host.FS) host.Kernel { return refusing{fs} },
		`the kernel set "100" instead of "1"`: func(fs host.FS) host.Kernel { return rounding{fs} },
	} {
		t.Run(want, func(t *testing.T) {
			_, fs := loaded(t)
			s := unused(fs)
			s.kernel = kernel(fs)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "1"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "1"), host.Failed, want)
			if fs.Exists(DropIn) {
				t.Error("the setting is in the drop-in")
			}
			restored := s.Restore(t.Context(), map[string]host.Original{maxSlots: {Present: true, Value: "1"}})[0]
			hosttest.ExpectState(t, restored, host.Failed, want)
		})
	}
}

func TestDrift(t *testing.T) {
	dir, fs := loaded(t)
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	hosttest.WriteFile(t, dir, liveMax, "64\n")
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Drifted)
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.InSync)
}

func TestUnwritableDropInIsReportedForEverySetting(t *testing.T) {
	_, fs := loaded(t)
	s := unused(fs.WithHook(func(op host.Op, _ string) error {
		if op == host.OpCreate {
			return errors.New("read-only file system")
		}
		return nil
	}))
	if err := s.Apply(t.Context(), hosttest.Settings(maxSlots, "128")); err == nil {
		t.Error("Apply: got no error")
	}
	hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Failed, "reloaded", "read-only file system")
}

func TestForeignOptionsForTheSameParameter(t *testing.T) {
	const later = "/etc/modprobe.d/zz.conf"
	tests := map[string]struct {
		file, data string
		state      host.State
	}{
		"before the drop-in":              {"/etc/modprobe.d/a.conf", "options sunrpc tcp_max_slot_table_entries=64\n", host.InSync},
		"after the drop-in":               {later, "options sunrpc tcp_max_slot_table_entries=64\n", host.Shadowed},
		"after the drop-in, in a package": {"/usr/lib/modprobe.d/zz.conf", "options sunrpc tcp_max_slot_table_entries=64\n", host.Shadowed},
		"the same value":                  {later, "options sunrpc tcp_max_slot_table_entries=128\n", host.InSync},
		"among other options":             {later, "options sunrpc udp_slot_table_entries=2 tcp_max_slot_table_entries=64\n", host.Shadowed},
		"over two lines":                  {later, "options sunrpc \\\n tcp_max_slot_table_entries=64\n", host.Shadowed},
		"another parameter":               {later, "options sunrpc tcp_slot_table_entries=64\n", host.InSync},
		"another module":                  {later, "options nfs tcp_max_slot_table_entries=64\n", host.InSync},
		"a comment":                       {later, "# options sunrpc tcp_max_slot_table_entries=64\n", host.InSync},
		"the same name is masked":         {"/usr/lib/modprobe.d/zz-storage-client.conf", "options sunrpc tcp_max_slot_table_entries=64\n", host.InSync},
		"the kernel's command line":       {"/proc/cmdline", "ro sunrpc.tcp_max_slot_table_entries=64\n", host.Shadowed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := loaded(t)
			hosttest.WriteFile(t, dir, test.file, test.data)
			s := unused(fs)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			got := hosttest.Observe(t, s, maxSlots, "128")
			hosttest.ExpectState(t, got, test.state)
			if test.state == host.Shadowed && !strings.Contains(got.Message, test.file) {
				t.Errorf("message %q does not name %s", got.Message, test.file)
			}
		})
	}
}

func TestOlderTransports(t *testing.T) {
	tests := map[string]struct {
		transports []mounts.Transport
		err        error
		state      host.State
		observed   string
		message    string
	}{
		"none": {state: host.InSync, observed: "128"},
		"made with the limit": {transports: []mounts.Transport{{Server: "10.0.0.1", SlotLimit: 128, ObeysSlotTable: true}},
			state: host.InSync, observed: "128"},
		"made before": {transports: []mounts.Transport{
			{Server: "10.0.0.2", SlotLimit: 65536, ObeysSlotTable: true}, {Server: "10.0.0.1", SlotLimit: 64, ObeysSlotTable: true},
			{Server: "10.0.0.3", SlotLimit: 128, ObeysSlotTable: true},
		},
			state: host.Pending, observed: "64", message: "10.0.0.1, 10.0.0.2 keep their old limit"},
		"of NFSv4.1 do not hold it back": {transports: []mounts.Transport{{Server: "10.0.0.9", SlotLimit: 65536, ObeysSlotTable: false}, {Server: "10.0.0.1", SlotLimit: 128, ObeysSlotTable: true}},
			state: host.InSync, observed: "128", message: "ignored by NFSv4.1 and later: 10.0.0.9"},
		"that cannot be read": {err: errors.New("input/output error"),
			state: host.Failed, observed: "128", message: "input/output error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, fs := loaded(t)
			s := New(fs, func() ([]mounts.Transport, error) { return test.transports, test.err }, noSessions, facts{})
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			got := hosttest.Observe(t, s, maxSlots, "128")
			hosttest.ExpectState(t, got, test.state, test.message)
			if got.Observed != test.observed || got.Effect != host.NewTransport {
				t.Errorf("observed: got %q, effect %s", got.Observed, got.Effect)
			}
		})
	}
}

func TestTheLimitOfATransportIsTheLargerOfTheTwoSizes(t *testing.T) {
	_, fs := loaded(t)
	s := New(fs, func() ([]mounts.Transport, error) {
		return []mounts.Transport{{Server: "10.0.0.1", SlotLimit: 256, ObeysSlotTable: true}}, nil
	}, noSessions, facts{})
	desired := hosttest.Settings("sunrpc/tcp_slot_table_entries", "256", maxSlots, "64")
	hosttest.Apply(t, s, desired)
	for _, o := range s.Observe(t.Context(), desired) {
		hosttest.ExpectState(t, o, host.InSync)
	}
}

func TestRestoreReturnsTheOriginals(t *testing.T) {
	dir, fs := loaded(t)
	var transports []mounts.Transport
	s := New(fs, func() ([]mounts.Transport, error) { return transports, nil }, noSessions, facts{})
	original, err := s.Original(t.Context(), maxSlots)
	if diff := cmp.Diff(host.Original{Present: true, Value: "65536"}, original); diff != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
	hosttest.Apply(t, s, nil)
	transports = []mounts.Transport{{Server: "10.0.0.1", SlotLimit: 128, ObeysSlotTable: true}}
	got := s.Restore(t.Context(), map[string]host.Original{maxSlots: original})[0]
	hosttest.ExpectState(t, got, host.Pending, "10.0.0.1")
	if live := hosttest.ReadFile(t, dir, liveMax); live != "65536\n" || got.Effect != host.NewTransport || got.Observed != "128" {
		t.Errorf("live value: got %q, %+v", live, got)
	}
	transports = nil
	hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{maxSlots: original})[0], host.InSync)
}

func TestRestoreOfAModuleThatWasNotLoadedBefore(t *testing.T) {
	tests := map[string]struct {
		name, file, live, want string
		state                  host.State
	}{
		"still not loaded":                      {name: maxSlots, state: host.InSync},
		"loaded since: the kernel's default":    {name: maxSlots, live: "128", want: "65536\n", state: host.InSync},
		"loaded since: what another file holds": {name: maxSlots, live: "128", file: "options sunrpc tcp_max_slot_table_entries=99\n", want: "99\n", state: host.InSync},
		"loaded since: no default is known":     {name: "nfs/other", live: "7", want: "7\n", state: host.Pending},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := unloaded(t)
			module, param, _ := strings.Cut(test.name, "/")
			file := "/sys/module/" + module + "/parameters/" + param
			if original, err := unused(fs).Original(t.Context(), test.name); original.Present || err != nil {
				t.Fatalf("original: got %v, error %v", original, err)
			}
			if test.live != "" {
				hosttest.WriteFile(t, dir, file, test.live+"\n")
			}
			if test.file != "" {
				hosttest.WriteFile(t, dir, "/etc/modprobe.d/x.conf", test.file)
			}
			s := unused(fs)
			hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{test.name: {}})[0], test.state)
			check.Equal(t, "live value", test.want, hosttest.ReadFile(t, dir, file))
		})
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	tests := map[string]host.Setting{
		"a module that leads elsewhere":    {Name: "../../proc/sys/kernel/core_pattern", Value: "x"},
		"a parameter that leads elsewhere": {Name: "sunrpc/../../x", Value: "1"},
		"no parameter":                     {Name: "sunrpc", Value: "1"},
		"a value with a line end":          {Name: maxSlots, Value: "1\ninstall sunrpc /bin/sh"},
		"a value with a blank":             {Name: maxSlots, Value: "1 2"},
		"an empty value":                   {Name: maxSlots, Value: ""},
	}
	for name, setting := range tests {
		t.Run(name, func(t *testing.T) {
			_, fs := loaded(t)
			changes := 0
			s := unused(fs.WithHook(func(host.Op, string) error { changes++; return nil }))
			hosttest.Apply(t, s, []host.Setting{setting})
			check.Equal(t, "changes", 0, changes)
			hosttest.ExpectState(t, s.Observe(t.Context(), []host.Setting{setting})[0], host.Failed)
		})
	}
}

func TestValuesAreComparedAsTheKernelShowsThem(t *testing.T) {
	tests := map[string]struct {
		a, b string
		same bool
	}{
		"equal":                    {"128", "128", true},
		"hexadecimal":              {"0x80", "128", true},
		"a flag":                   {"1", "Y", true},
		"a flag that is off":       {"0", "N", true},
		"different":                {"1", "N", false},
		"no number in Go's":        {"1_28", "128", false},
		"text is compared exactly": {"auto", "auto", true},
		"a number is no text":      {"64", "auto", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := sameValue(test.a, test.b); got != test.same {
				t.Errorf("same(%q, %q) = %v", test.a, test.b, got)
			}
		})
	}
}

func TestApplyConvergesAfterACrashAtEveryChange(t *testing.T) {
	desired := hosttest.Settings(maxSlots, "128", sessionSlots, "180")
	for n := 1; ; n++ {
		dir, fs := loaded(t)
		hosttest.Apply(t, unused(fs), hosttest.Settings(maxSlots, "64"))
		before := hosttest.ReadFile(t, dir, DropIn)
		count := 0
		crashed := unused(fs.WithHook(func(host.Op, string) error {
			count++
			if count >= n {
				return errCrash
			}
			return nil
		}))
		_ = crashed.Apply(t.Context(), desired)
		reached := count >= n
		want := header1 + "options nfs max_session_slots=180\noptions sunrpc tcp_max_slot_table_entries=128\n"
		partly := header1 + "options nfs max_session_slots=180\n"
		if got := hosttest.ReadFile(t, dir, DropIn); reached && got != before && got != want && got != partly {
			t.Errorf("after a crash at change %d the drop-in is %q", n, got)
		}
		s := unused(fs)
		hosttest.Apply(t, s, desired)
		for _, o := range s.Observe(t.Context(), desired) {
			hosttest.ExpectState(t, o, host.InSync)
		}
		if diff := cmp.Diff(map[string]string{DropIn: want}, hosttest.ReadTree(t, dir, "/etc/modprobe.d")); diff != "" {
			t.Errorf("after the repeat of change %d (-want +got):\n%s", n, diff)
		}
		if !reached {
			if n < 8 {
				t.Errorf("got only %d changes: two values and five steps of the file are expected", n-1)
			}
			return
		}
	}
}
