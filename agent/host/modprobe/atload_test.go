package modprobe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/test/check"
)

const (
	nfsRule = "# sunrpc module supports \"sunrpc.*\" sysctls\nACTION==\"add\", SUBSYSTEM==\"module\", KERNEL==\"sunrpc\", \\\n" +
		"  RUN+=\"/sbin/sysctl -q --pattern ^sunrpc --system\"\n"
	nfsLine = "install sunrpc /sbin/modprobe --ignore-install sunrpc $CMDLINE_OPTS && /sbin/sysctl -q --pattern sunrpc --system\n"
)

func TestASysctlThatIsSetWhenTheModuleIsLoadedWins(t *testing.T) {
	const rule, line, file = "/usr/lib/udev/rules.d/60-nfs.rules", "/usr/lib/modprobe.d/50-nfs.conf", "/etc/sysctl.d/50-nfs.conf"
	tests := map[string]struct {
		files   map[string]string
		state   host.State
		message string
	}{
		"a rule of udev": {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries = 16\n"},
			host.Shadowed, file + ` sets it to "16"`},
		"a line of modprobe.d": {map[string]string{line: nfsLine, file: "-sunrpc/tcp_max_slot_table_entries=16\n"},
			host.Shadowed, file + ` sets it to "16"`},
		"a dash, which the rule's pattern does not match": {map[string]string{rule: nfsRule, file: "-sunrpc.tcp_max_slot_table_entries=16\n"}, host.InSync, ""},
		"a dash, and a line without the pattern's start": {map[string]string{rule: nfsRule, line: nfsLine, file: "-sunrpc.tcp_max_slot_table_entries=16\n"},
			host.Shadowed, file},
		"a dash, and two rules": {map[string]string{"/etc/udev/rules.d/50-a.rules": strings.ReplaceAll(nfsRule, "^", ""), rule: nfsRule, file: "-sunrpc.tcp_max_slot_table_entries=16\n"},
			host.Shadowed, file},
		"a dash, and a module that is loaded early": {map[string]string{rule: nfsRule, "/etc/modules-load.d/a.conf": "sunrpc\n", file: "-sunrpc.tcp_max_slot_table_entries=16\n"},
			host.Shadowed, file},
		"/etc/sysctl.conf is read last": {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries = 128\n",
			sysctl.SystemConf: "sunrpc.tcp_max_slot_table_entries = 16\n"}, host.Shadowed, sysctl.SystemConf},
		"a comment after the value": {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries = 128\t# recommended\n"}, host.InSync, ""},
		"no value":                  {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries =\n"}, host.Shadowed, file},
		"the same value":            {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries = 128\n"}, host.InSync, ""},
		"another parameter":         {map[string]string{rule: nfsRule, file: "sunrpc.tcp_slot_table_entries = 16\n"}, host.InSync, ""},
		"a file without a rule":     {map[string]string{file: "sunrpc.tcp_max_slot_table_entries = 16\n"}, host.InSync, ""},
		"a rule of other things":    {map[string]string{rule: "KERNEL==\"lockd\", RUN+=\"/sbin/sysctl -q --pattern ^fs.nfs --system\"\n", file: "sunrpc.tcp_max_slot_table_entries = 16\n"}, host.InSync, ""},
		"a line without a file":     {map[string]string{rule: nfsRule}, host.InSync, ""},
		"an assignment left out":    {map[string]string{rule: nfsRule, file: "# sunrpc.tcp_max_slot_table_entries = 16\n"}, host.InSync, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := hosttest.OpenHost(t, "rocky-9")
			for name, data := range test.files {
				hosttest.WriteFile(t, dir, name, data)
			}
			s := unused(fs)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), test.state, test.message)
		})
	}
}

// At boot, systemd-sysctl runs after systemd-modules-load.
func TestASysctlWinsIfTheModuleIsLoadedBeforeIt(t *testing.T) {
	const (
		file   = "/etc/sysctl.d/91-filer.conf"
		sixty  = "sunrpc.tcp_max_slot_table_entries=16\n"
		remedy = file + ` sets it to "16" after the module is loaded: remove sunrpc.tcp_max_slot_table_entries from that file`
	)
	for name, test := range map[string]struct {
		files, links map[string]string
		message      string
	}{
		"in /etc":                        {map[string]string{"/etc/modules-load.d/nfs.conf": "# early\nsunrpc\n"}, nil, remedy},
		"in /run":                        {map[string]string{"/run/modules-load.d/a.conf": "sunrpc"}, nil, remedy},
		"in /usr/local":                  {map[string]string{"/usr/local/lib/modules-load.d/a.conf": " sunrpc \n"}, nil, remedy},
		"in /usr":                        {map[string]string{"/usr/lib/modules-load.d/a.conf": "sunrpc\n"}, nil, remedy},
		"a module that needs it":         {map[string]string{"/etc/modules-load.d/a.conf": "rpcsec-gss-krb5\n"}, nil, remedy},
		"in the list of Debian":          {map[string]string{"/etc/modules": "loop\nnfs callback_tcpport=4045\n"}, nil, remedy},
		"in the initramfs of Debian":     {map[string]string{"/etc/initramfs-tools/modules": "sunrpc\n"}, nil, remedy},
		"on the kernel command line":     {map[string]string{"/proc/cmdline": "quiet modules_load=loop,sunrpc\n"}, nil, remedy},
		"on the initramfs' command line": {map[string]string{"/proc/cmdline": "rd.modules_load=nfs\n"}, nil, remedy},
		"a root file system on NFS":      {map[string]string{"/proc/cmdline": "root=/dev/nfs nfsroot=192.0.2.1:/srv\n"}, nil, remedy},
		"a root file system of dracut":   {map[string]string{"/proc/cmdline": "root=nfs4:192.0.2.1:/srv\n"}, nil, remedy},
		"built in":                       {map[string]string{"/lib/modules/RELEASE/modules.builtin": "kernel/net/sunrpc/sunrpc.ko\n", "/lib/modules/RELEASE/modules.dep": ""}, nil, remedy},
		"masked by a link":               {map[string]string{"/usr/lib/modules-load.d/a.conf": "sunrpc\n"}, map[string]string{"/etc/modules-load.d/a.conf": "/dev/null"}, ""},
		"masked by an empty file":        {map[string]string{"/usr/lib/modules-load.d/a.conf": "sunrpc\n", "/etc/modules-load.d/a.conf": ""}, nil, ""},
		"commented out":                  {map[string]string{"/etc/modules-load.d/a.conf": "#sunrpc\n;sunrpc\n; sunrpc\n"}, nil, ""},
		"a file with another suffix":     {map[string]string{"/etc/modules-load.d/a.disabled": "sunrpc\n"}, nil, ""},
		"another module":                 {map[string]string{"/etc/modules-load.d/a.conf": "nfs_layout_flexfiles_x\n"}, nil, ""},
		"a value that is the same":       {map[string]string{"/etc/modules-load.d/a.conf": "sunrpc\n", "/etc/sysctl.d/92.conf": "sunrpc/tcp_max_slot_table_entries = 0x80 # 128\n"}, nil, ""},
		"a sysctl that is masked":        {map[string]string{"/etc/modules-load.d/a.conf": "sunrpc\n", "/usr/lib/sysctl.d/95.conf": sixty, "/run/sysctl.d/95.conf": "\n", file: ""}, nil, ""},
		"a sysctl in /usr": {map[string]string{"/etc/modules-load.d/a.conf": "sunrpc\n", "/usr/lib/sysctl.d/95.conf": sixty, file: ""}, nil,
			"/usr/lib/sysctl.d/95.conf"},
		"a sysctl that only procps reads": {map[string]string{"/etc/modules-load.d/a.conf": "sunrpc\n", sysctl.SystemConf: sixty, file: ""}, nil, ""},
		"not loaded early":                {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := hosttest.OpenHost(t, "rocky-9")
			release, err := fs.ReadValue("/proc/sys/kernel/osrelease")
			check.NoError(t, err)
			hosttest.WriteFile(t, dir, "/usr/lib/systemd/systemd-sysctl", "")
			hosttest.WriteFile(t, dir, file, sixty)
			for name, data := range test.files {
				hosttest.WriteFile(t, dir, strings.ReplaceAll(name, "RELEASE", release), data)
			}
			for name, target := range test.links {
				hosttest.WriteFile(t, dir, name, "")
				check.NoError(t, errors.Join(os.Remove(filepath.Join(dir, name)), os.Symlink(target, filepath.Join(dir, name))))
			}
			want := host.InSync
			if test.message != "" {
				want = host.Shadowed
			}
			s := unused(fs)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), want, test.message)
		})
	}
}

// The programs that read these files skip unreadable files.
func TestUnreadableFilesOfOthersChangeNoState(t *testing.T) {
	const rule = "/usr/lib/udev/rules.d/60-nfs.rules"
	for _, file := range []string{
		"/etc/modprobe.d/zzz.conf", "/etc/modprobe.d/10-a.conf", "/etc/modules-load.d/zzz.conf", "/etc/modules", "/etc/initramfs-tools/modules", "/etc/udev/rules.d/zzz.rules", "/etc/sysctl.d/zzz.conf", sysctl.SystemConf,
	} {
		t.Run(file, func(t *testing.T) {
			dir, fs := hosttest.OpenHost(t, "rocky-9")
			hosttest.WriteFile(t, dir, rule, nfsRule)
			check.NoError(t, os.RemoveAll(filepath.Join(dir, file)))
			hosttest.WriteFile(t, dir, file+"/x", "")
			s := unused(fs)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.InSync)
			hosttest.WriteFile(t, dir, "/etc/sysctl.d/zzzz.conf", "sunrpc.tcp_max_slot_table_entries = 16\n")
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Shadowed, "zzzz.conf")
		})
	}
}

func TestUnreadableFilesOfOthersDoNotPreventARestore(t *testing.T) {
	for _, file := range []string{"/etc/modprobe.d/zzz.conf", "/etc/modules-load.d/zzz.conf", "/etc/udev/rules.d/zzz.rules"} {
		for name, original := range map[string]host.Original{"a recorded value": {Present: true, Value: "65536"}, "no value": {}} {
			t.Run(file+", "+name, func(t *testing.T) {
				dir, fs := hosttest.OpenHost(t, "rocky-9")
				s := unused(fs)
				hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
				hosttest.WriteFile(t, dir, file+"/x", "")
				hosttest.Apply(t, s, nil)
				if got := s.Restore(t.Context(), map[string]host.Original{maxSlots: original})[0]; got.State == host.Failed {
					t.Errorf("got %+v", got)
				}
			})
		}
	}
}
