package tuned

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/test/check"
)

// tuned 2.20, 2.25 and 2.27 read /run/sysctl.d and /etc/sysctl.d, and then /etc/sysctl.conf, when a profile with sysctls starts.
func TestASysctlThatTunedSetsAgainWins(t *testing.T) {
	const (
		name, value = "net.core.rmem_max", "16777216"
		lower       = "net.core.rmem_max = 212992\n"
		before      = "/etc/sysctl.d/10-host.conf"
		later       = "/etc/sysctl.d/zzz-later.conf"
	)
	for caseName, test := range map[string]struct {
		files, links map[string]string
		change       func(m *machine)
		message      string
	}{
		"the file that tuned reads last": {map[string]string{sysctl.SystemConf: "# host\n\n" + lower}, nil, nil,
			`line 3 of /etc/sysctl.conf sets it to "212992", and tuned reads that file last at each start: remove the line, or set reapply_sysctl=0`},
		"the last line of it":               {map[string]string{sysctl.SystemConf: lower + "net/core/rmem_max=4096\n"}, nil, nil, `line 2 of /etc/sysctl.conf sets it to "4096"`},
		"the same value":                    {map[string]string{sysctl.SystemConf: "net.core.rmem_max=0x1000000 # 16 MiB\n"}, nil, nil, ""},
		"a line that is commented out":      {map[string]string{sysctl.SystemConf: "#" + lower + "; " + lower}, nil, nil, ""},
		"a dash, which tuned does not know": {map[string]string{sysctl.SystemConf: "-" + lower}, nil, nil, ""},
		"no name":                           {map[string]string{sysctl.SystemConf: "= 1\n"}, nil, nil, ""},
		"a file that is read before":        {map[string]string{before: lower}, nil, nil, ""},
		"a later file of /run":              {map[string]string{"/run/sysctl.d/zzz.conf": lower}, nil, nil, "/run/sysctl.d/zzz.conf"},
		"a later file of /usr, which tuned does not read": {map[string]string{"/usr/lib/sysctl.d/zzz.conf": lower, later: ""}, nil, nil,
			`/usr/lib/sysctl.d/zzz.conf sets it to "212992" and is read after`},
		"a file that only tuned sees, because of /run": {map[string]string{"/run/sysctl.d/zzz-later.conf": lower, later: ""}, nil, nil, "line 1 of /run/sysctl.d/zzz-later.conf"},
		"a link to the file that is read last":         {map[string]string{sysctl.SystemConf: lower}, map[string]string{"/etc/sysctl.d/99-sysctl.conf": "../sysctl.conf"}, nil, "line 1 of /etc/sysctl.conf"},
		"a link to nothing":                            {nil, map[string]string{sysctl.SystemConf: "/dev/null"}, nil, ""},
		"no reapplication":                             {map[string]string{sysctl.SystemConf: lower, mainConf: "reapply_sysctl = 0\n"}, nil, nil, ""},
		"the default of the option":                    {map[string]string{sysctl.SystemConf: lower, mainConf: "daemon = 1\n"}, nil, nil, "/etc/sysctl.conf"},
		"an excluded parameter":                        {map[string]string{sysctl.SystemConf: lower, mainConf: "reapply_sysctl_exclude = kernel.*, net.core.*\n"}, nil, nil, ""},
		"other excluded parameters":                    {map[string]string{sysctl.SystemConf: lower, mainConf: "reapply_sysctl_exclude = kernel.*\n"}, nil, nil, "/etc/sysctl.conf"},
		"a profile without sysctls":                    {map[string]string{sysctl.SystemConf: lower, profileFile: "virtual-guest\n"}, nil, nil, ""},
		"a profile that sets only vm":                  {map[string]string{sysctl.SystemConf: lower, profileFile: "newer\n"}, nil, nil, ""},
		"a profile that includes sysctls":              {map[string]string{sysctl.SystemConf: lower, profileFile: "virtual-guest network-latency\n"}, nil, nil, "/etc/sysctl.conf"},
		"a daemon that will start at boot":             {map[string]string{sysctl.SystemConf: lower}, nil, func(m *machine) { m.active = false }, "/etc/sysctl.conf"},
		"a daemon that runs once":                      {map[string]string{sysctl.SystemConf: lower}, nil, func(m *machine) { m.enabled = false }, "/etc/sysctl.conf"},
		"a daemon that does not start":                 {map[string]string{sysctl.SystemConf: lower}, nil, func(m *machine) { m.active, m.enabled = false, false }, ""},
		"a daemon that is masked":                      {map[string]string{sysctl.SystemConf: lower}, nil, func(m *machine) { m.active, m.load = false, "masked" }, ""},
		"systemd does not answer":                      {map[string]string{sysctl.SystemConf: lower}, nil, func(m *machine) { m.active, m.enabled, m.broken["systemctl"] = false, false, true }, "/etc/sysctl.conf"},
		"tuned is gone": {map[string]string{sysctl.SystemConf: lower}, nil, func(m *machine) {
			_ = os.Remove(filepath.Join(m.dir, "/usr/sbin/tuned-adm"))
		}, ""},
	} {
		t.Run(caseName, func(t *testing.T) {
			m := newMachine(t)
			m.active, m.enabled = true, true
			hosttest.WriteFile(t, m.dir, "/usr/lib/systemd/systemd-sysctl", "")
			hosttest.WriteFile(t, m.dir, "/proc/sys/net/core/rmem_max", "212992\n")
			hosttest.WriteFile(t, m.dir, profileFile, latency+"\n")
			for file, data := range test.files {
				hosttest.WriteFile(t, m.dir, file, data)
			}
			for file, target := range test.links {
				check.NoError(t, os.RemoveAll(filepath.Join(m.dir, file)))
				check.NoError(t, os.Symlink(target, filepath.Join(m.dir, file)))
			}
			if test.change != nil {
				test.change(m)
			}
			s := sysctl.New(m.fs)
			s.SetReapplier(m.subject().ReappliesSysctl)
			hosttest.Apply(t, s, hosttest.Settings(name, value))
			want := host.InSync
			if test.message != "" {
				want = host.Shadowed
			}
			hosttest.ExpectState(t, hosttest.Observe(t, s, name, value), want, test.message)
		})
	}
}

// The kernel clears one parameter of a pair when tuned sets the other.
func TestACounterpartThatTunedSetsAgainWins(t *testing.T) {
	m := newMachine(t)
	m.active, m.enabled = true, true
	for file, data := range map[string]string{
		"/usr/lib/systemd/systemd-sysctl": "", profileFile: latency + "\n", "/proc/sys/vm/dirty_bytes": "268435456\n", "/proc/sys/vm/dirty_ratio": "0\n",
		sysctl.SystemConf: "vm.dirty_ratio = 20\n",
	} {
		hosttest.WriteFile(t, m.dir, file, data)
	}
	s := sysctl.New(m.fs)
	s.SetReapplier(m.subject().ReappliesSysctl)
	hosttest.Apply(t, s, hosttest.Settings("vm.dirty_bytes", "268435456"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, "vm.dirty_bytes", "268435456"), host.Shadowed, `line 1 of /etc/sysctl.conf sets it to "0"`)
}
