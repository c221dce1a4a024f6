package sysctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

var errCrash = errors.New("crash")

const (
	rmemMax = "net.core.rmem_max"
	tcpRmem = "net.ipv4.tcp_rmem"
	flush   = "net.ipv4.route.flush"
)

func debian(t *testing.T) (string, host.FS) { return hosttest.OpenHost(t, "debian-12") }

// tracked counts changes, or makes the kernel return another value than was written.
func tracked(fs host.FS, count *int) host.FS {
	return fs.WithHook(func(host.Op, string) error { *count++; return nil })
}

func TestApplySetsLiveAndKeepsADropIn(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	desired := hosttest.Settings(tcpRmem, "4096 1048576 16777216", rmemMax, "16777216")
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.Drifted)
	hosttest.Apply(t, s, desired)

	want := "# Written by storage-client-node-agent. What is changed here is overwritten.\n" +
		"net.core.rmem_max = 16777216\nnet.ipv4.tcp_rmem = 4096 1048576 16777216\n"
	check.Equal(t, "drop-in", want, hosttest.ReadFile(t, dir, DropIn))
	check.Equal(t, "live value", "16777216\n", hosttest.ReadFile(t, dir, "/proc/sys/net/core/rmem_max"))
	wantObserved := []host.Observation{
		{Name: tcpRmem, Desired: "4096 1048576 16777216", Observed: "4096 1048576 16777216", Effect: host.Live, State: host.InSync},
		{Name: rmemMax, Desired: "16777216", Observed: "16777216", Effect: host.Live, State: host.InSync},
	}
	check.Equal(t, "observed", wantObserved, s.Observe(t.Context(), desired))
}

func TestApplyDoesNotWriteIfTheHostIsAsDesired(t *testing.T) {
	_, fs := debian(t)
	desired := hosttest.Settings(tcpRmem, "4096 131072 6291456", flush, "1", rmemMax, "1")
	hosttest.Apply(t, New(fs), desired)
	changes := 0
	// A new subject, as after a restart of the agent.
	s := New(tracked(fs, &changes))
	hosttest.Apply(t, s, desired)
	check.Equal(t, "changes", 0, changes)
	// The kernel separates numbers with tabs. A profile separates them with blanks.
	hosttest.ExpectState(t, hosttest.Observe(t, s, tcpRmem, "4096 131072 6291456"), host.InSync)
}

func TestApplyRemovesUndesiredSettings(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	hosttest.Apply(t, s, hosttest.Settings(rmemMax, "1", "vm.dirty_ratio", "10"))
	hosttest.Apply(t, s, hosttest.Settings("vm.dirty_ratio", "10"))
	if got := hosttest.ReadFile(t, dir, DropIn); strings.Contains(got, rmemMax) || !strings.Contains(got, "vm.dirty_ratio = 10") {
		t.Errorf("drop-in: got %q", got)
	}
	hosttest.Apply(t, s, nil)
	if fs.Exists(DropIn) {
		t.Error("the drop-in still exists without desired settings")
	}
}

func TestInterfaceNamesWithDots(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	const name = "net.ipv4.conf.eth0/100.forwarding"
	hosttest.Apply(t, s, hosttest.Settings(name, "1"))
	check.Equal(t, "live value", "1\n", hosttest.ReadFile(t, dir, "/proc/sys/net/ipv4/conf/eth0.100/forwarding"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, name, "1"), host.InSync)
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	tests := map[string]host.Setting{
		"a name that leads elsewhere by slashes": {Name: "net.ipv4.//.//.//.sysrq-trigger", Value: "b"},
		"a name that begins with a slash":        {Name: "/etc/passwd", Value: "1"},
		"a name without a dot":                   {Name: "sysrq", Value: "1"},
		"a name with an empty part":              {Name: "net..core", Value: "1"},
		"a name with a line end":                 {Name: "net.core.rmem_max\nkernel.core_pattern", Value: "1"},
		"a value with a line end":                {Name: rmemMax, Value: "1\nkernel.core_pattern=|/bin/sh"},
		"a value with a pipe":                    {Name: rmemMax, Value: "|/bin/sh"},
		"an empty value":                         {Name: rmemMax, Value: ""},
	}
	for name, setting := range tests {
		t.Run(name, func(t *testing.T) {
			_, fs := debian(t)
			changes := 0
			s := New(tracked(fs, &changes))
			hosttest.Apply(t, s, []host.Setting{setting})
			check.Equal(t, "changes", 0, changes)
			hosttest.ExpectState(t, s.Observe(t.Context(), []host.Setting{setting})[0], host.Failed)
			if setting.Name != rmemMax {
				restored := s.Restore(t.Context(), map[string]host.Original{setting.Name: {Present: true, Value: "b"}})
				hosttest.ExpectState(t, restored[0], host.Failed)
			}
		})
	}
}

func TestAnUnknownParameterIsUnsupportedAndNotInTheDropIn(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	hosttest.Apply(t, s, hosttest.Settings("net.core.none", "1", rmemMax, "1"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, "net.core.none", "1"), host.Unsupported, "does not have it")
	if got := hosttest.ReadFile(t, dir, DropIn); strings.Contains(got, "net.core.none") {
		t.Errorf("drop-in: got %q", got)
	}
}

func TestActionRunsOnceAndAfterARelatedChange(t *testing.T) {
	dir, fs := debian(t)
	const file = "/proc/sys/net/ipv4/route/flush"
	steps := []struct {
		story   string
		desired []host.Setting
		done    bool
	}{
		{"newly desired", hosttest.Settings(flush, "1", rmemMax, "1"), true},
		{"no change", hosttest.Settings(flush, "1", rmemMax, "1"), false},
		{"a change that it does not belong to", hosttest.Settings(flush, "1", rmemMax, "2"), false},
		{"a change of net.ipv4", hosttest.Settings(flush, "1", rmemMax, "2", "net.ipv4.tcp_slow_start_after_idle", "0"), true},
		{"not desired", hosttest.Settings(rmemMax, "2"), false},
		{"desired again", hosttest.Settings(flush, "1", rmemMax, "2"), true},
	}
	for _, step := range steps {
		hosttest.WriteFile(t, dir, file, "")
		s := New(fs)
		hosttest.Apply(t, s, step.desired)
		if done := hosttest.ReadFile(t, dir, file) != ""; done != step.done {
			t.Errorf("%s: action ran: got %v, want %v", step.story, done, step.done)
		}
	}
	for line := range strings.Lines(hosttest.ReadFile(t, dir, DropIn)) {
		if strings.Contains(line, flush) && !strings.HasPrefix(line, "#") {
			t.Errorf("the drop-in would run the action at boot: %q", line)
		}
	}
	got := hosttest.Observe(t, New(fs), flush, "1")
	hosttest.ExpectState(t, got, host.InSync, "ran once")
	check.Equal(t, "effect", host.Action, got.Effect)
	if original, err := New(fs).Original(t.Context(), flush); original.Present || err != nil {
		t.Errorf("original: got %v, error %v", original, err)
	}
}

// rounding is a kernel that sets a fixed value instead of the written one.
type rounding struct {
	host.FS
	value string
}

func (r rounding) WriteValue(name, _ string) error { return r.FS.WriteValue(name, r.value) }

func TestRoundedValueIsFailedWithTheActualValue(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	s.kernel = rounding{fs, "4096"}
	hosttest.Apply(t, s, hosttest.Settings(rmemMax, "5000"))
	got := hosttest.Observe(t, s, rmemMax, "5000")
	hosttest.ExpectState(t, got, host.Failed, `the kernel set "4096" instead of "5000"`)
	check.Equal(t, "observed", "4096", got.Observed)
	if text := hosttest.ReadFile(t, dir, DropIn); text != "" {
		t.Errorf("drop-in: got %q", text)
	}
	restored := s.Restore(t.Context(), map[string]host.Original{rmemMax: {Present: true, Value: "212992"}})
	hosttest.ExpectState(t, restored[0], host.Failed, `"4096"`)
}

func TestValueThatTheKernelRejectsIsFailedAndNotInTheDropIn(t *testing.T) {
	dir, fs := debian(t)
	refusing := fs.WithHook(func(op host.Op, name string) error {
		if op == host.OpWriteValue && strings.HasSuffix(name, "rmem_max") {
			return errors.New("invalid argument")
		}
		return nil
	})
	s := New(refusing)
	hosttest.Apply(t, s, hosttest.Settings(rmemMax, "1", "vm.dirty_ratio", "10"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "1"), host.Failed, "rejects", "invalid argument")
	hosttest.ExpectState(t, hosttest.Observe(t, s, "vm.dirty_ratio", "10"), host.InSync)
	if got := hosttest.ReadFile(t, dir, DropIn); strings.Contains(got, rmemMax) {
		t.Errorf("drop-in: got %q", got)
	}
	// Another process finds the same mismatch, but has not tried.
	hosttest.ExpectState(t, hosttest.Observe(t, New(fs), rmemMax, "1"), host.Drifted)
	// Another program sets the value.
	hosttest.WriteFile(t, dir, "/proc/sys/net/core/rmem_max", "1\n")
	hosttest.Apply(t, s, hosttest.Settings(rmemMax, "1"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "1"), host.InSync)
}

func TestLaterFileShadowsTheAgentsFile(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		state host.State
		named string
	}{
		"no other file":                                 {nil, host.InSync, ""},
		"a file before the drop-in":                     {map[string]string{"/etc/sysctl.d/90-x.conf": "net.core.rmem_max = 1"}, host.InSync, ""},
		"a file after the drop-in":                      {map[string]string{"/etc/sysctl.d/zzz.conf": "net.core.rmem_max = 1"}, host.Shadowed, "/etc/sysctl.d/zzz.conf"},
		"the file of AKS is before the drop-in":         {map[string]string{"/etc/sysctl.d/999-sysctl-aks.conf": "net.core.rmem_max = 1"}, host.InSync, ""},
		"a package's file after the drop-in":            {map[string]string{"/usr/lib/sysctl.d/zz.conf": "net.core.rmem_max=1"}, host.Shadowed, "/usr/lib/sysctl.d/zz.conf"},
		"the same value":                                {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max =  16777216 "}, host.InSync, ""},
		"the same value with a comment":                 {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 16777216 # 16 MiB"}, host.InSync, ""},
		"the same value in hexadecimal":                 {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 0x1000000"}, host.InSync, ""},
		"the same value in octal":                       {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 0100000000"}, host.InSync, ""},
		"more numbers than the kernel reads":            {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 16777216 1"}, host.InSync, ""},
		"a value that the kernel rejects":               {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 16M"}, host.Shadowed, `"16M"`},
		"a value with a comment and no blank":           {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 1#"}, host.Shadowed, `"1#"`},
		"no value, which replaces the agent's line":     {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max ="}, host.Shadowed, "/etc/sysctl.d/zz.conf"},
		"a name that is excluded":                       {map[string]string{"/etc/sysctl.d/zz.conf": "-net.core.rmem_max"}, host.Shadowed, "/etc/sysctl.d/zz.conf"},
		"a name that is not excluded":                   {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max"}, host.InSync, ""},
		"a name that starts with a slash":               {map[string]string{"/etc/sysctl.d/zz.conf": "/net/core/rmem_max = 1"}, host.Shadowed, "/etc/sysctl.d/zz.conf"},
		"no name":                                       {map[string]string{"/etc/sysctl.d/zz.conf": "= 1"}, host.InSync, ""},
		"another value with a comment":                  {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 1 # 16777216"}, host.Shadowed, "/etc/sysctl.d/zz.conf"},
		"another value in octal":                        {map[string]string{"/etc/sysctl.d/zz.conf": "net.core.rmem_max = 016777216"}, host.Shadowed, "/etc/sysctl.d/zz.conf"},
		"the name written with slashes":                 {map[string]string{"/run/sysctl.d/zz.conf": "net/core/rmem_max = 1"}, host.Shadowed, "/run/sysctl.d/zz.conf"},
		"errors that do not matter":                     {map[string]string{"/run/sysctl.d/zz.conf": "-net.core.rmem_max = 1"}, host.Shadowed, "/run/sysctl.d/zz.conf"},
		"comments":                                      {map[string]string{"/run/sysctl.d/zz.conf": "# net.core.rmem_max = 1\n; net.core.rmem_max = 1\n"}, host.InSync, ""},
		"another name":                                  {map[string]string{"/run/sysctl.d/zz.conf": "net.core.rmem_max_x = 1"}, host.InSync, ""},
		"not a .conf":                                   {map[string]string{"/run/sysctl.d/zz.conf.bak": "net.core.rmem_max = 1"}, host.InSync, ""},
		"a masked file":                                 {map[string]string{"/usr/lib/sysctl.d/zz.conf": "net.core.rmem_max = 1", "/etc/sysctl.d/zz.conf": ""}, host.InSync, ""},
		"the last one wins":                             {map[string]string{"/usr/lib/sysctl.d/zz1.conf": "net.core.rmem_max = 1", "/etc/sysctl.d/zz2.conf": "net.core.rmem_max = 16777216"}, host.InSync, ""},
		"sysctl.conf by its link is before the drop-in": {map[string]string{"/etc/sysctl.conf": "net.core.rmem_max = 1"}, host.InSync, ""},
		"a file with the same name elsewhere is masked": {map[string]string{"/usr/lib/sysctl.d/zz-storage-client.conf": "net.core.rmem_max = 1"}, host.InSync, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := debian(t)
			for file, data := range test.files {
				hosttest.WriteFile(t, dir, file, data)
			}
			s := New(fs)
			hosttest.Apply(t, s, hosttest.Settings(rmemMax, "16777216"))
			got := hosttest.Observe(t, s, rmemMax, "16777216")
			hosttest.ExpectState(t, got, test.state, test.named)
			if got.Observed != "16777216" {
				t.Errorf("observed: got %q, want the live value, because only the next boot is shadowed", got.Observed)
			}
		})
	}
}

func TestKernelValue(t *testing.T) {
	const tcp = "4096 131072 6291456"
	for value, want := range map[string]string{
		"4096\t131072\t6291456": tcp, "4096 131072 6291456 # old": tcp, "0x1000 131072 6291456": tcp, "4096": tcp, "4096 131072": tcp, "x": tcp, "": tcp,
		"4096 x 1": tcp, "1": "1 131072 6291456", "1 2": "1 2 6291456", "1 2 3 4": "1 2 3", "010 2 3": "8 2 3", "08 2 3": tcp, "-1 2 3": "-1 2 3",
		"1_0 2 3": tcp, "0b1 2 3": tcp,
	} {
		if got := kernelValue(tcpRmem, value, tcp); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
	const congestion, large = "net.ipv4.tcp_congestion_control", "9223372036854775808"
	for _, test := range []struct{ name, value, before string }{
		{congestion, "bbr", "cubic"}, {congestion, "5 1", ""}, {reservedPorts, "10250,30000-32767", "10250"}, {reservedPorts, "20049-20050", "20049"},
		{"net/ipv4/ip_local_reserved_ports", "20049-20050", "20049"}, {reservedPorts, "", "20049"}, {"fs.file-max", large, "9"},
	} {
		if got := kernelValue(test.name, test.value, test.before); got != test.value {
			t.Errorf("%s %q instead of %q: got %q", test.name, test.value, test.before, got)
		}
	}
}

// A live value is not a line of a file: a missing field is not the desired one.
func TestLiveValueIsComparedCompletely(t *testing.T) {
	for name, test := range map[string]struct {
		name, wanted, live string
		state              host.State
	}{
		"equal numbers between tabs":          {tcpRmem, "4096 131072 6291456", "4096\t131072\t6291456", host.InSync},
		"hexadecimal":                         {rmemMax, "0x10", "16", host.InSync},
		"no port":                             {reservedPorts, "20049", "", host.Drifted},
		"a range that begins with the port":   {reservedPorts, "20049", "20049-20050", host.Drifted},
		"a list that begins with the port":    {reservedPorts, "20049", "20049,20051", host.Drifted},
		"fewer numbers":                       {tcpRmem, "4096 131072 6291456", "4096 131072", host.Drifted},
		"more numbers":                        {tcpRmem, "4096 131072 6291456", "4096 131072 6291456 1", host.Drifted},
		"no value":                            {rmemMax, "16777216", "", host.Drifted},
		"no number":                           {rmemMax, "16777216", "x", host.Drifted},
		"unequal numbers over int64":          {"fs.file-max", "9223372036854775808", "9223372036854775809", host.Drifted},
		"equal numbers over int64":            {"fs.file-max", "9223372036854775808", "9223372036854775808", host.InSync},
		"a number over int64 for a small one": {"fs.file-max", "1", "9223372036854775809", host.Drifted},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := debian(t)
			file, err := procFile(test.name)
			check.NoError(t, err)
			hosttest.WriteFile(t, dir, file, test.live+"\n")
			hosttest.WriteFile(t, dir, DropIn, test.name+" = "+test.wanted+"\n")
			s := New(fs)
			hosttest.ExpectState(t, hosttest.Observe(t, s, test.name, test.wanted), test.state)
			hosttest.Apply(t, s, hosttest.Settings(test.name, test.wanted))
			isWritten := normaliseValue(hosttest.ReadFile(t, dir, file)) == test.wanted
			if test.state == host.Drifted && !isWritten {
				t.Error("the value was not written")
			}
		})
	}
}

func TestSysctlConfCountsWhereItIsReallyRead(t *testing.T) {
	const link = "/etc/sysctl.d/99-sysctl.conf"
	for name, test := range map[string]struct {
		prepare func(dir string) error
		state   host.State
		named   string
	}{
		"by the link of Debian 12 and Ubuntu, before the drop-in": {func(string) error { return nil }, host.InSync, ""},
		"not at all without the link, as on Debian 13":            {func(dir string) error { return os.Remove(dir + link) }, host.InSync, ""},
		"by a link that sorts after the drop-in": {func(dir string) error {
			return os.Rename(dir+link, dir+"/etc/sysctl.d/zzz-sysctl.conf")
		}, host.Shadowed, "/etc/sysctl.d/zzz-sysctl.conf"},
		"last of all by procps, if there is no systemd": {func(dir string) error {
			return os.Remove(dir + "/usr/lib/systemd/systemd-sysctl")
		}, host.Shadowed, `/etc/sysctl.conf sets it to "1"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := debian(t)
			if target, err := os.Readlink(dir + link); err != nil || target != "../sysctl.conf" {
				t.Fatalf("the fixture's link leads to %q, %v", target, err)
			}
			hosttest.WriteFile(t, dir, "/etc/sysctl.conf", "net.core.rmem_max = 1\n")
			check.NoError(t, test.prepare(dir))
			s := New(fs)
			hosttest.Apply(t, s, hosttest.Settings(rmemMax, "16777216"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), test.state, test.named)
		})
	}
}

func TestUnsavedValueIsSetAgainByTheAgent(t *testing.T) {
	for name, test := range map[string]struct {
		mountinfo string
		refuse    error
		reason    string
		writes    bool
	}{
		"the root is read-only": {"25 1 7:0 / / ro,relatime - squashfs /dev/loop0 ro\n", syscall.EROFS, "/etc is read-only", false},
		"only /etc is read-only": {
			"25 1 8:1 / / rw - ext4 /dev/sda1 rw\n26 25 0:30 / /etc ro - overlay overlay rw,lowerdir=/etc,upperdir=/var/etc,workdir=/var/w\n", syscall.EROFS,
			"/etc is read-only", false,
		},
		"the mount table does not show it": {"25 1 8:1 / / rw - ext4 /dev/sda1 rw\n", syscall.EROFS, "/etc is read-only", false},
		"the directory rejects writes":     {"25 1 8:1 / / rw - ext4 /dev/sda1 rw\n", syscall.EPERM, "/etc/sysctl.d cannot be written", false},
		"SELinux denies writes":            {"25 1 8:1 / / rw - ext4 /dev/sda1 rw\n", syscall.EACCES, "permission denied", false},
		"an /etc in memory":                {"25 1 8:1 / / ro - ext4 /dev/sda1 ro\n26 25 0:30 / /etc rw - tmpfs tmpfs rw\n", nil, "/etc is kept in memory", true},
		"an /etc whose changes are in memory": {
			"25 1 8:1 / / ro - ext4 /dev/sda1 ro\n26 25 0:29 / /tmp rw - tmpfs tmpfs rw\n" +
				"27 25 0:30 / /etc rw - overlay overlayfs rw,lowerdir=/etc,upperdir=/tmp/etc_overlay/etc,workdir=/tmp/etc_overlay/w\n", nil, "/etc is kept in memory", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := debian(t)
			hosttest.WriteFile(t, dir, "/proc/1/mountinfo", test.mountinfo)
			fs = fs.WithHook(func(_ host.Op, changed string) error {
				if strings.HasPrefix(changed, "/etc/") {
					return test.refuse
				}
				return nil
			})
			s := New(fs)
			s.Attend(true)
			desired := hosttest.Settings(rmemMax, "16777216", flush, "1")
			hosttest.Apply(t, s, desired)
			hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"),
				host.InSync, "not persistent; the agent sets it again at each boot: ", test.reason)
			hosttest.ExpectState(t, hosttest.Observe(t, s, flush, "1"), host.InSync, "ran once")
			check.Equal(t, "drop-in exists", test.writes, fs.Exists(DropIn))
			// The same agent does not repeat an action. A wrong live value of a sysctl is drift.
			hosttest.WriteFile(t, dir, "/proc/sys/net/ipv4/route/flush", "")
			hosttest.Apply(t, s, desired)
			check.Equal(t, "output of the action", "", hosttest.ReadFile(t, dir, "/proc/sys/net/ipv4/route/flush"))
			hosttest.WriteFile(t, dir, "/proc/sys/net/core/rmem_max", "4096\n")
			hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.Drifted)
			hosttest.Apply(t, s, desired)

			s.Attend(false)
			hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"),
				host.Failed, "lost at the next boot", test.reason, "no agent will set it again")
			hosttest.Apply(t, s, nil)
			hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{rmemMax: {Present: true, Value: "212992"}})[0], host.InSync)
		})
	}
}

func TestDriftOfTheLiveValueAndOfTheDropIn(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	desired := hosttest.Settings(rmemMax, "1")
	hosttest.Apply(t, s, desired)
	hosttest.WriteFile(t, dir, "/proc/sys/net/core/rmem_max", "2\n")
	got := hosttest.Observe(t, s, rmemMax, "1")
	hosttest.ExpectState(t, got, host.Drifted)
	check.Equal(t, "observed", "2", got.Observed)
	hosttest.Apply(t, s, desired)
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "1"), host.InSync)
	hosttest.WriteFile(t, dir, DropIn, "")
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "1"), host.Drifted, "lost at the next boot")
}

func TestUnwritableDropInIsReportedForEverySetting(t *testing.T) {
	_, fs := debian(t)
	s := New(fs.WithHook(func(op host.Op, _ string) error {
		if op == host.OpCreate {
			return errors.New("read-only file system")
		}
		return nil
	}))
	if err := s.Apply(t.Context(), hosttest.Settings(rmemMax, "1")); err == nil {
		t.Error("Apply: got no error")
	}
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "1"), host.Failed, "lost at the next boot", "read-only file system")
}

func TestRestoreReturnsTheOriginals(t *testing.T) {
	dir, fs := debian(t)
	s := New(fs)
	originals := map[string]host.Original{}
	for _, name := range []string{rmemMax, tcpRmem, flush, "net.core.none"} {
		original, err := s.Original(t.Context(), name)
		check.NoError(t, err)
		originals[name] = original
	}
	wantOriginals := map[string]host.Original{
		rmemMax: {Present: true, Value: "212992"}, tcpRmem: {Present: true, Value: "4096 131072 6291456"},
		flush: {}, "net.core.none": {},
	}
	check.Equal(t, "originals", wantOriginals, originals)
	hosttest.Apply(t, s, hosttest.Settings(rmemMax, "1", tcpRmem, "1 2 3", flush, "1"))
	hosttest.Apply(t, s, nil)
	for _, o := range s.Restore(t.Context(), originals) {
		hosttest.ExpectState(t, o, host.InSync)
	}
	check.Equal(t, "live value", "212992\n", hosttest.ReadFile(t, dir, "/proc/sys/net/core/rmem_max"))
	changes := 0
	New(tracked(fs, &changes)).Restore(t.Context(), originals)
	check.Equal(t, "changes of a second Restore", 0, changes)
}

func TestApplyConvergesAfterACrashAtEveryChange(t *testing.T) {
	desired := hosttest.Settings(rmemMax, "1", tcpRmem, "1 2 3", flush, "1")
	for n := 1; ; n++ {
		dir, fs := debian(t)
		hosttest.Apply(t, New(fs), hosttest.Settings(rmemMax, "7"))
		before := hosttest.ReadFile(t, dir, DropIn)
		count := 0
		crashed := New(fs.WithHook(func(host.Op, string) error {
			count++
			if count >= n {
				return errCrash
			}
			return nil
		}))
		_ = crashed.Apply(t.Context(), desired)
		reached := count >= n
		s := New(fs)
		if got := hosttest.ReadFile(t, dir, DropIn); reached && got != before && !strings.Contains(got, "= 1") {
			t.Errorf("after a crash at change %d the drop-in is %q", n, got)
		}
		hosttest.Apply(t, s, desired)
		for _, o := range s.Observe(t.Context(), desired) {
			hosttest.ExpectState(t, o, host.InSync)
		}
		want := "net.core.rmem_max = 1\nnet.ipv4.tcp_rmem = 1 2 3\n# Done once, not at boot: net.ipv4.route.flush = 1\n"
		tree := hosttest.ReadTree(t, dir, "/etc/sysctl.d")
		if got := tree[DropIn]; !strings.HasSuffix(got, want) || len(tree) != 1 {
			t.Errorf("after the repeat of change %d: %v", n, tree)
		}
		if !reached {
			if n < 8 {
				t.Errorf("got only %d changes: three values and five steps of the file are expected", n-1)
			}
			return
		}
	}
}

// The programs that set sysctls skip a file that they cannot read.
func TestUnreadableFilesOfOthersChangeNoState(t *testing.T) {
	for _, file := range []string{SystemConf, "/etc/sysctl.d/zzz.conf", "/run/sysctl.d/zzz.conf", "/usr/lib/sysctl.d/zzz.conf", "/etc/sysctl.d/10-a.conf"} {
		for name, reapplies := range map[string]func(context.Context, string) bool{
			"without tuned": nil, "with tuned": func(context.Context, string) bool { return true },
		} {
			t.Run(file+" "+name, func(t *testing.T) {
				dir, fs := debian(t)
				check.NoError(t, os.RemoveAll(filepath.Join(dir, file)))
				hosttest.WriteFile(t, dir, file+"/x", "")
				s := New(fs)
				s.SetReapplier(reapplies)
				hosttest.Apply(t, s, hosttest.Settings(rmemMax, "16777216"))
				hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.InSync)
				hosttest.WriteFile(t, dir, "/etc/sysctl.d/zzzz.conf", "net.core.rmem_max = 1\n")
				hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.Shadowed, "zzzz.conf")
			})
		}
	}
}
