package tuned

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/test/check"
)

const latency = "latency-performance"

// machine simulates the used commands of a host with tuned of Debian 12.
type machine struct {
	t            *testing.T
	dir          string
	fs           host.FS
	load         string
	active       bool
	enabled      bool
	otherDaemons map[string]bool
	// lazy is true if tuned-adm does not start a stopped daemon.
	lazy bool
	// startTime is the start time of the daemon.
	startTime int
	// unconfirmed are the sysctls that are being proven, windows the settings that set the read-ahead of disks.
	unconfirmed, windows map[string]string
	// verify contains the failures that the verification of tuned reports.
	verify []string
	broken map[string]bool
	ran    []string
	dieAt  int
}

var errCrash = errors.New("crash")

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: hosttest.CopyHost(t, "debian-12"), load: "loaded", otherDaemons: map[string]bool{}, broken: map[string]bool{}}
	for name, data := range map[string]string{
		"/usr/sbin/tuned-adm": "", profileFile: "", modeFile: "",
		"/usr/lib/tuned/" + latency + "/tuned.conf": "[main]\nsummary=x\n[sysctl]\n# a comment\nvm.dirty_ratio=10\nvm.dirty_background_ratio = 3 # three\nvm.swappiness=10\n",
		"/usr/lib/tuned/network-latency/tuned.conf": "[main]\ninclude=" + latency + "\n[sysctl]\nnet.core.busy_read=50\n",
		"/usr/lib/tuned/virtual-guest/tuned.conf":   "[main]\n",
		"/usr/lib/tuned/newer/tuned.conf":           "[vm]\ndirty_bytes=10%\n",
		mainConf:                                    "daemon = 1\nreapply_sysctl = 1\n",
	} {
		hosttest.WriteFile(t, m.dir, name, data)
	}
	fs, err := host.OpenFS(m.dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	m.fs = fs.WithHook(func(op host.Op, name string) error { return m.step(string(op) + " " + name) })
	return m
}

// step is called before every change of the host.
func (m *machine) step(change string) error {
	m.ran = append(m.ran, change)
	if m.dieAt > 0 && len(m.ran) >= m.dieAt {
		return errCrash
	}
	return nil
}

func (m *machine) Run(_ context.Context, argv ...string) ([]byte, error) {
	command := strings.Join(argv, " ")
	yes := map[bool]string{true: "active", false: "inactive"}
	switch {
	case m.broken[argv[0]]:
		return nil, fmt.Errorf("run %s: exit status 1", command)
	case strings.HasPrefix(command, "systemctl show tuned.service"):
		enabled := map[bool]string{true: "enabled", false: "disabled"}[m.enabled]
		return fmt.Appendf(nil, "LoadState=%s\nActiveState=%s\nUnitFileState=%s\nActiveEnterTimestampMonotonic=%d\nConflicts=tlp.service shutdown.target\n",
			m.load, yes[m.active], enabled, m.startTime), nil
	case strings.HasPrefix(command, "systemctl show "):
		return fmt.Appendf(nil, "ActiveState=%s\n", yes[m.otherDaemons[argv[2]]]), nil
	case strings.HasPrefix(command, "tuned-adm verify"):
		m.ran = append(m.ran, command)
		return nil, m.verification()
	}
	if err := m.step(command); err != nil {
		return nil, err
	}
	if m.broken[command] {
		return nil, fmt.Errorf("run %s: exit status 1", command)
	}
	switch command {
	case "systemctl enable tuned.service":
		m.enabled = true
	case "systemctl disable tuned.service":
		m.enabled = false
	case "systemctl start tuned.service":
		m.active = true
	case "systemctl stop tuned.service":
		m.active = false
	case "tuned-adm auto_profile":
		m.save("virtual-guest", "auto")
	case "tuned-adm off":
		m.save("", "manual")
	default:
		profile, ok := strings.CutPrefix(command, "tuned-adm profile ")
		if !ok {
			return nil, fmt.Errorf("%s: not simulated", command)
		}
		m.save(profile, "manual")
		m.active = m.active || !m.lazy
	}
	return nil, nil
}

func (m *machine) verification() error {
	if len(m.verify) == 0 {
		return nil
	}
	log := "2026-01-01 INFO     tuned.daemon.daemon: verifying profile(s): x\n2026 ERROR    tuned.plugins.base: verify: failed: 'old' = '1', expected '2'\n" +
		"2026-01-01 INFO     tuned.daemon.daemon: verifying profile(s): x\n"
	lines := []string{log}
	for _, failure := range m.verify {
		lines = append(lines, "2026-01-01 ERROR    tuned.plugins.base: verify: failed: "+failure+"\n")
	}
	hosttest.WriteFile(m.t, m.dir, logFile, strings.Join(lines, ""))
	return errors.New("run tuned-adm verify: exit status 1")
}

func (m *machine) save(profile, mode string) {
	line := profile + "\n"
	if profile == "" {
		line = ""
	}
	hosttest.WriteFile(m.t, m.dir, profileFile, line)
	hosttest.WriteFile(m.t, m.dir, modeFile, mode+"\n")
}

func (m *machine) subject() *Subject {
	return New(m.fs, m, func() map[string]string { return m.unconfirmed }, func(disk string) string { return m.windows[disk] })
}

func desiredProfile(profile string) []host.Setting {
	return []host.Setting{{Name: setting, Value: profile}}
}

func (m *machine) apply(s *Subject, profile string) {
	m.t.Helper()
	if err := s.Apply(m.t.Context(), desiredProfile(profile)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) expect(s *Subject, profile string, state host.State, parts ...string) host.Observation {
	m.t.Helper()
	got := s.Observe(m.t.Context(), desiredProfile(profile))[0]
	if got.State != state {
		m.t.Errorf("%s (%s), want %s", got.State, got.Message, state)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			m.t.Errorf("message: got %q, want it to contain %q", got.Message, part)
		}
	}
	return got
}

func (m *machine) original(s *Subject) host.Original {
	m.t.Helper()
	original, err := s.Original(m.t.Context(), setting)
	if err != nil {
		m.t.Fatal(err)
	}
	return original
}

func TestAStoppedTunedIsEnabledStartedAndStoppedAgain(t *testing.T) {
	m := newMachine(t)
	before := hosttest.ReadTree(t, m.dir, "/etc")
	s := m.subject()
	m.expect(s, latency, host.Drifted, "is not running")
	original := m.original(s)
	check.Equal(t, "original", "stopped disabled mode= profile=", original.Value)
	m.apply(s, latency)
	got := m.expect(s, latency, host.InSync)
	if !m.active || !m.enabled || got.Observed != latency || got.Effect != host.Live {
		t.Errorf("got active %v, enabled %v, %+v", m.active, m.enabled, got)
	}
	want := []string{"systemctl enable tuned.service", "tuned-adm profile " + latency, "tuned-adm verify --ignore-missing"}
	check.Equal(t, "commands", want, m.ran)

	m.ran = nil
	m.apply(m.subject(), latency)
	if len(m.ran) > 0 {
		t.Errorf("a second Apply ran %v", m.ran)
	}

	back := m.subject().Restore(t.Context(), map[string]host.Original{setting: original})[0]
	if back.State != host.InSync || m.active || m.enabled {
		t.Errorf("%+v, active %v, enabled %v", back, m.active, m.enabled)
	}
	check.Equal(t, "host", before, hosttest.ReadTree(t, m.dir, "/etc"))
}

func TestTunedThatTunedAdmDoesNotStartIsStarted(t *testing.T) {
	m := newMachine(t)
	m.lazy = true
	s := m.subject()
	m.apply(s, latency)
	m.expect(s, latency, host.InSync)
	if !slices.Contains(m.ran, "systemctl start tuned.service") {
		t.Errorf("commands: got %v", m.ran)
	}
}

// A start of tuned would stop the other daemons, but tuned already runs next to them.
func TestRunningTunedAcceptsTheProfileNextToOtherDaemons(t *testing.T) {
	m := newMachine(t)
	m.active, m.otherDaemons["tlp.service"] = true, true
	s := m.subject()
	m.apply(s, latency)
	m.expect(s, latency, host.InSync)
}

func TestRestoreEqualsBefore(t *testing.T) {
	tests := map[string]struct {
		profile, mode   string
		active, enabled bool
		files           bool
		command         string
	}{
		"another profile":                          {"virtual-guest", "manual", true, true, true, "tuned-adm profile virtual-guest"},
		"two profiles":                             {"virtual-guest network-latency", "manual", true, true, true, "tuned-adm profile virtual-guest network-latency"},
		"tuned's own choice":                       {"virtual-guest", "auto", true, true, true, "tuned-adm auto_profile"},
		"running without a profile":                {"", "manual", true, true, true, "tuned-adm off"},
		"running and not enabled":                  {"virtual-guest", "manual", true, false, true, "systemctl disable tuned.service"},
		"enabled and not running":                  {"virtual-guest", "manual", false, true, true, "systemctl stop tuned.service"},
		"stopped, never having run":                {"", "", false, false, false, "systemctl stop tuned.service"},
		"the same profile, selected automatically": {latency, "auto", true, true, true, "tuned-adm auto_profile"},
		"the same profile, not enabled":            {latency, "manual", true, false, true, "systemctl disable tuned.service"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.active, m.enabled = test.active, test.enabled
			m.save(test.profile, test.mode)
			if !test.files {
				for _, file := range []string{profileFile, modeFile} {
					check.NoError(t, os.Remove(filepath.Join(m.dir, file)))
				}
			}
			before := hosttest.ReadTree(t, m.dir, "/etc")
			original := m.original(m.subject())
			s := m.subject()
			m.apply(s, latency)
			m.expect(s, latency, host.InSync)
			originals := map[string]host.Original{setting: original}
			if back := m.subject().Restore(t.Context(), originals)[0]; back.State != host.InSync {
				t.Errorf("got %+v", back)
			}
			if !slices.Contains(m.ran, test.command) {
				t.Errorf("commands: got %v, want %s", m.ran, test.command)
			}
			if m.active != test.active || m.enabled != test.enabled {
				t.Errorf("got active %v, enabled %v", m.active, m.enabled)
			}
			check.Equal(t, "host", before, hosttest.ReadTree(t, m.dir, "/etc"))
			m.ran = nil
			m.subject().Restore(t.Context(), originals)
			if len(m.ran) > 0 {
				t.Errorf("a second Restore made changes: %v", m.ran)
			}
		})
	}
}

func TestUnavailableProfileIsUnsupportedAndChangesNothing(t *testing.T) {
	tests := map[string]struct {
		profile string
		change  func(*machine)
		message string
	}{
		"tuned is not installed": {latency, func(m *machine) {
			if err := os.Remove(filepath.Join(m.dir, "/usr/sbin/tuned-adm")); err != nil {
				m.t.Fatal(err)
			}
		}, "install the package tuned"},
		"its unit is masked":        {latency, func(m *machine) { m.load = "masked" }, "unmask"},
		"there is no such profile":  {"none", func(*machine) {}, "no profile none"},
		"something else would stop": {latency, func(m *machine) { m.otherDaemons["tlp.service"] = true }, "starting tuned would stop tlp.service"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			test.change(m)
			s := m.subject()
			m.apply(s, test.profile)
			m.expect(s, test.profile, host.Unsupported, test.message)
			if len(m.ran) > 0 {
				t.Errorf("commands: got %v", m.ran)
			}
		})
	}
}

func TestRemovedTunedNeedsNoRestore(t *testing.T) {
	m := newMachine(t)
	m.active = true
	original := m.original(m.subject())
	m.active = false
	check.NoError(t, os.Remove(filepath.Join(m.dir, "/usr/sbin/tuned-adm")))
	back := m.subject().Restore(t.Context(), map[string]host.Original{setting: original})[0]
	if back.State != host.InSync || len(m.ran) > 0 {
		t.Errorf("got %+v, commands %v", back, m.ran)
	}
	if second := m.original(m.subject()); second.Present {
		t.Errorf("got original %+v", second)
	}
}

func TestDrift(t *testing.T) {
	for name, test := range map[string]struct {
		change       func(*machine)
		messageParts string
	}{
		"another profile":    {func(m *machine) { m.save("virtual-guest", "manual") }, "another profile"},
		"tuned's own choice": {func(m *machine) { m.save(latency, "auto") }, "selects one automatically"},
		"stopped":            {func(m *machine) { m.active = false }, "is not running"},
		"no longer enabled":  {func(m *machine) { m.enabled = false }, "next boot"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			s := m.subject()
			m.apply(s, latency)
			test.change(m)
			m.expect(s, latency, host.Drifted, test.messageParts)
			m.apply(s, latency)
			m.expect(s, latency, host.InSync)
		})
	}
}

func TestFailedCommandIsReported(t *testing.T) {
	for _, command := range []string{"systemctl enable tuned.service", "tuned-adm profile " + latency} {
		m := newMachine(t)
		m.broken[command] = true
		s := m.subject()
		m.apply(s, latency)
		m.expect(s, latency, host.Failed, command)
		m.active, m.enabled = true, true
		m.save(latency, "manual")
		m.expect(s, latency, host.InSync)
	}
}

func TestRestoreWithAFailedCommandIsNotComplete(t *testing.T) {
	m := newMachine(t)
	m.active = true
	m.save("virtual-guest", "manual")
	original := m.original(m.subject())
	m.apply(m.subject(), latency)
	const command = "tuned-adm profile virtual-guest"
	m.broken[command] = true
	back := m.subject().Restore(t.Context(), map[string]host.Original{setting: original})[0]
	if back.State != host.Failed || !strings.Contains(back.Message, command) {
		t.Errorf("got %+v", back)
	}
	if got := hosttest.ReadFile(t, m.dir, profileFile); got != latency+"\n" {
		t.Errorf("a daemon with %s must have %q by its file", latency, got)
	}
}

func TestVerification(t *testing.T) {
	const readahead = "device sda: 'readahead' = '1024', expected '4096'"
	xfs := map[string]string{"sda": "readAhead/xfs"}
	tests := map[string]struct {
		declared, main string
		failures       []string
		files          map[string]string
		profile        string
		// unconfirmed contains the sysctls that are being proven, windows the settings for the read-ahead of disks.
		unconfirmed, windows map[string]string
		state                host.State
		messageParts         []string
	}{
		"all effective":                            {state: host.InSync},
		"a value that something else set":          {failures: []string{"'vm.swappiness' = '60', expected '10'"}, state: host.Failed, messageParts: []string{"'vm.swappiness' = '60'"}},
		"a device that does not obey":              {failures: []string{"device cpu0: 'governor' = 'powersave', expected 'performance'"}, state: host.Failed, messageParts: []string{"governor"}},
		"a failure that no log shows":              {failures: []string{""}, state: host.Failed, messageParts: []string{"exit status 1"}},
		"a profile of the administrator's":         {declared: "vm.dirty_ratio = 20\n", files: map[string]string{"/etc/tuned/" + latency + "/tuned.conf": "[sysctl]\nvm.dirty_ratio=30\n"}, state: host.InSync, messageParts: []string{"vm.dirty_ratio=30 (declared"}},
		"a value over an included profile's":       {declared: "vm.dirty_ratio = 20\n", files: map[string]string{"/usr/lib/tuned/own/tuned.conf": "[main]\ninclude=" + latency + "\n[sysctl]\nvm.dirty_ratio=30\n"}, profile: "own", state: host.InSync, messageParts: []string{"vm.dirty_ratio=30 (declared"}},
		"declared as a sysctl":                     {declared: "vm.dirty_ratio = 20\n", failures: []string{"'vm.dirty_ratio' = '20', expected '10'"}, state: host.InSync, messageParts: []string{"vm.dirty_ratio=10 (declared: vm.dirty_ratio=20)", "override it", "reapply_sysctl"}},
		"that, and something else":                 {declared: "vm.dirty_ratio = 20\n", failures: []string{"'vm.dirty_ratio' = '20', expected '10'", "'vm.swappiness' = '60', expected '10'"}, state: host.Failed, messageParts: []string{"vm.swappiness"}},
		"declared as the profile has it":           {declared: "vm.dirty_ratio = 10\n", state: host.InSync},
		"in conflict, tuned not reapplying":        {declared: "vm.dirty_background_ratio = 5\n", main: "reapply_sysctl = 0\n", state: host.InSync, messageParts: []string{"vm.dirty_background_ratio=3", "within a minute"}},
		"in conflict by an included profile":       {declared: "vm.dirty_ratio = 20\n", profile: "network-latency", state: host.InSync, messageParts: []string{"vm.dirty_ratio=10"}},
		"a declared read-ahead":                    {windows: xfs, failures: []string{readahead}, state: host.InSync, messageParts: []string{"readahead=4096 for sda (declared: readAhead/xfs=1024)", "overrides it"}},
		"a read-ahead of another disk":             {windows: map[string]string{"sdb": "readAhead/xfs"}, failures: []string{readahead}, state: host.Failed, messageParts: []string{readahead}},
		"another value of that disk":               {windows: xfs, failures: []string{"device sda: 'elevator' = 'none', expected 'mq-deadline'"}, state: host.Failed, messageParts: []string{"elevator"}},
		"a declared read-ahead, and another value": {windows: xfs, failures: []string{readahead, "'vm.swappiness' = '60', expected '10'"}, state: host.Failed, messageParts: []string{"effective: 'vm.swappiness'"}},
		"a declared read-ahead and a sysctl":       {declared: "vm.dirty_ratio = 20\n", windows: xfs, failures: []string{readahead, "'vm.dirty_ratio' = '20', expected '10'"}, state: host.InSync, messageParts: []string{"readAhead/xfs=1024", "(declared: vm.dirty_ratio=20)"}},
		"a sysctl that is being proven":            {unconfirmed: map[string]string{"net.core.busy_read": "0"}, profile: "network-latency", failures: []string{"'net.core.busy_read' = '0', expected '50'"}, state: host.InSync, messageParts: []string{"net.core.busy_read=50 (declared: net.core.busy_read=0)"}},
		"a sysctl that replaces one":               {declared: "vm.dirty_ratio = 10\n", unconfirmed: map[string]string{"vm.dirty_ratio": "20"}, failures: []string{"'vm.dirty_ratio' = '20', expected '10'"}, state: host.InSync, messageParts: []string{"(declared: vm.dirty_ratio=20)"}},
		"in conflict by its counterpart":           {declared: "vm.dirty_ratio = 20\n", profile: "newer", failures: []string{"'dirty_bytes' = '0', expected '10%'"}, state: host.InSync, messageParts: []string{"vm.dirty_bytes=10% (declared: vm.dirty_ratio=20)", "within a minute"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			hosttest.WriteFile(t, m.dir, sysctl.DropIn, test.declared)
			if test.main != "" {
				hosttest.WriteFile(t, m.dir, mainConf, test.main)
			}
			for file, data := range test.files {
				hosttest.WriteFile(t, m.dir, file, data)
			}
			m.verify = test.failures
			profile := test.profile
			if profile == "" {
				profile = latency
			}
			m.unconfirmed, m.windows = test.unconfirmed, test.windows
			s := m.subject()
			m.apply(s, profile)
			m.expect(s, profile, test.state, test.messageParts...)
			// The message stays while the verification holds.
			m.expect(s, profile, test.state, test.messageParts...)
		})
	}
}

func TestAVerificationHoldsForAWhile(t *testing.T) {
	m := newMachine(t)
	now := time.Unix(1700000000, 0)
	s := m.subject()
	s.now = func() time.Time { return now }
	count := func() int {
		return len(slices.DeleteFunc(slices.Clone(m.ran), func(c string) bool { return !strings.HasPrefix(c, "tuned-adm verify") }))
	}
	m.apply(s, latency)
	for range 3 {
		m.expect(s, latency, host.InSync)
	}
	check.Equal(t, "verifications", 1, count())
	m.startTime++
	m.expect(s, latency, host.InSync)
	check.Equal(t, "verifications after a restart of tuned", 2, count())
	m.save("virtual-guest", "manual")
	m.apply(s, latency)
	m.expect(s, latency, host.InSync)
	check.Equal(t, "verifications after a new choice of the profile", 3, count())
	now = now.Add(verifyInterval)
	m.verify = []string{"'vm.swappiness' = '60', expected '10'"}
	m.expect(s, latency, host.Failed)
	m.verify = nil
	m.expect(s, latency, host.InSync)
}

// The file is a directory, which even root cannot read as a file.
func TestUnreadableDeclaredSysctlsAreNotTreatedAsNone(t *testing.T) {
	m := newMachine(t)
	hosttest.WriteFile(t, m.dir, sysctl.DropIn+"/x", "")
	s := m.subject()
	m.apply(s, latency)
	m.expect(s, latency, host.Failed, sysctl.DropIn)
}

func TestInvalidProfileIsRejected(t *testing.T) {
	for _, profile := range []string{"", "-l", "../x", "a b"} {
		m := newMachine(t)
		s := m.subject()
		m.apply(s, profile)
		m.expect(s, profile, host.Failed)
		if len(m.ran) > 0 {
			t.Errorf("%q: got commands %v", profile, m.ran)
		}
	}
}

func TestInvalidJournalRunsNoCommand(t *testing.T) {
	for _, text := range []string{"", "running", "running enabled mode=manual profile=--x", "x y"} {
		m := newMachine(t)
		if back := m.subject().Restore(t.Context(), map[string]host.Original{setting: {Present: true, Value: text}})[0]; back.State != host.Failed {
			t.Errorf("%q: %+v", text, back)
		}
		if len(m.ran) > 0 {
			t.Errorf("%q: got commands %v", text, m.ran)
		}
	}
}

func TestACrashAtEveryStepOfApplyAndRestore(t *testing.T) {
	for n := 1; ; n++ {
		m := newMachine(t)
		before := hosttest.ReadTree(t, m.dir, "/etc")
		originals := map[string]host.Original{setting: m.original(m.subject())}
		m.dieAt = n
		s := m.subject()
		_ = s.Apply(t.Context(), desiredProfile(latency))
		_ = s.Restore(t.Context(), originals)
		steps := len(m.ran)
		m.dieAt, m.ran = 0, nil
		s = m.subject()
		m.apply(s, latency)
		m.expect(s, latency, host.InSync)
		if back := m.subject().Restore(t.Context(), originals)[0]; back.State != host.InSync || m.active || m.enabled {
			t.Errorf("crash at %d: %+v, active %v, enabled %v", n, back, m.active, m.enabled)
		}
		after := hosttest.ReadTree(t, m.dir, "/etc")
		if !maps.Equal(before, after) {
			t.Errorf("crash at %d (-before +after):\n%s", n, cmp.Diff(before, after))
		}
		if steps < n {
			if n < 6 {
				t.Errorf("got only %d steps", n-1)
			}
			return
		}
	}
}
