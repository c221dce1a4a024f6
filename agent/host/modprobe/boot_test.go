package modprobe

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

// The boot as its programs read the files: systemd-modules-load takes whole lines, and systemd-sysctl lets explicit names override wildcards. Sources:
// src/modules-load/modules-load.c, src/sysctl/sysctl.c and sysctl_normalize in src/basic/sysctl-util.c of systemd.
func TestTheLastValueOfABoot(t *testing.T) {
	const (
		file, later = "/etc/sysctl.d/91-filer.conf", "/etc/sysctl.d/95-later.conf"
		early       = "/etc/modules-load.d/a.conf"
		sixteen     = "sunrpc.tcp_max_slot_table_entries=16\n"
		rules       = "/usr/lib/udev/rules.d/60-nfs.rules"
		lockdPort   = "lockd/nlm_tcpport"
		callback    = "nfs/callback_tcpport"
		locks       = "ACTION==\"add\", SUBSYSTEM==\"module\", KERNEL==\"lockd\", \\\n  RUN+=\"/sbin/sysctl -q --pattern ^fs.nfs.n[sl]m --system\"\n"
	)
	for name, test := range map[string]struct {
		parameter string
		files     map[string]string
		shadowed  string
	}{
		"a wildcard":                          {maxSlots, map[string]string{early: "sunrpc\n", file: "sunrpc.*_slot_table_entries = 16\n"}, file},
		"a wildcard with slashes":             {maxSlots, map[string]string{early: "sunrpc\n", file: "sunrpc/tcp_max_slot_table_entrie? = 16\n"}, file},
		"a wildcard of a part":                {maxSlots, map[string]string{early: "sunrpc\n", file: "sun*.tcp_max_slot_table_entries = 16\n"}, file},
		"an explicit name before a wildcard":  {maxSlots, map[string]string{early: "sunrpc\n", file: "sunrpc.tcp_max_slot_table_entries = 128\n", later: "sunrpc.* = 16\n"}, ""},
		"a wildcard, but this name excluded":  {maxSlots, map[string]string{early: "sunrpc\n", file: "-sunrpc.tcp_max_slot_table_entries\n", later: "sunrpc.* = 16\n"}, ""},
		"a later line without a value":        {maxSlots, map[string]string{early: "sunrpc\n", file: sixteen, later: "-sunrpc/tcp_max_slot_table_entries\n"}, ""},
		"a value after the exclusion":         {maxSlots, map[string]string{early: "sunrpc\n", file: "-sunrpc.tcp_max_slot_table_entries\n", later: sixteen}, later},
		"a name that starts with a slash":     {maxSlots, map[string]string{early: "sunrpc\n", file: "/sunrpc/tcp_max_slot_table_entries = 16\n"}, file},
		"a name with two slashes":             {maxSlots, map[string]string{early: "sunrpc\n", file: "sunrpc//tcp_max_slot_table_entries = 16\n"}, file},
		"a dash and blanks":                   {maxSlots, map[string]string{early: "sunrpc\n", file: " - sunrpc.tcp_max_slot_table_entries = 16\n"}, file},
		"dashes in a name do not exist":       {maxSlots, map[string]string{early: "sunrpc\n", file: "sunrpc.tcp-max-slot-table-entries = 16\n"}, ""},
		"a comment with a semicolon":          {maxSlots, map[string]string{early: "sunrpc\n", file: " ;sunrpc.tcp_max_slot_table_entries = 16\n"}, ""},
		"text after the module":               {maxSlots, map[string]string{early: "sunrpc # early\n", file: sixteen}, ""},
		"two modules on a line":               {maxSlots, map[string]string{early: "loop sunrpc\nnfs sunrpc\n", file: sixteen}, ""},
		"an alias of NFSv4":                   {maxSlots, map[string]string{early: "nfs4\n", file: sixteen}, file},
		"an alias of a file system":           {maxSlots, map[string]string{early: "fs-nfs\n", file: sixteen}, file},
		"a layout driver":                     {maxSlots, map[string]string{early: "nfs_layout_nfsv41_files\n", file: sixteen}, file},
		"after the initramfs":                 {maxSlots, map[string]string{"/proc/cmdline": "rd.driver.post=sunrpc\n", file: sixteen}, file},
		"another spelling":                    {maxSlots, map[string]string{"/proc/cmdline": "rd.modules-load=loop,rpcsec-gss-krb5\n", file: sixteen}, file},
		"a quoted list":                       {maxSlots, map[string]string{"/proc/cmdline": "modules-load=\"loop,nfsd\"\n", file: sixteen}, file},
		"a module that is denied by its name": {maxSlots, map[string]string{"/proc/cmdline": "module_blacklist=sunrpc\n", file: sixteen}, ""},
		"dracut loads it":                     {maxSlots, map[string]string{"/etc/dracut.conf.d/nfs.conf": "force_drivers+=\" loop sunrpc \"\n", file: sixteen}, file},
		"dracut only includes it":             {maxSlots, map[string]string{"/etc/dracut.conf.d/nfs.conf": "add_drivers+=\" sunrpc \"\n#force_drivers+=\" sunrpc \"\n", file: sixteen}, ""},

		"lockd is loaded early":                        {lockdPort, map[string]string{early: "nfsv3\n", file: "fs.nfs.nlm_tcpport = 16\n"}, file},
		"lockd and slashes":                            {lockdPort, map[string]string{early: "lockd\n", file: "-fs/nfs/nlm_tcpport = 16\n"}, file},
		"lockd and a wildcard":                         {lockdPort, map[string]string{early: "nfsd\n", file: "fs.nfs.nlm_*port = 16\n"}, file},
		"lockd is loaded later":                        {lockdPort, map[string]string{early: "sunrpc\n", file: "fs.nfs.nlm_tcpport = 16\n"}, ""},
		"lockd and a rule of udev":                     {lockdPort, map[string]string{rules: locks, file: "fs.nfs.nlm_tcpport = 16\n"}, file},
		"lockd, a rule of udev and a dash":             {lockdPort, map[string]string{rules: locks, file: "-fs.nfs.nlm_tcpport = 16\n"}, ""},
		"lockd and a rule for sunrpc":                  {lockdPort, map[string]string{rules: nfsRule, file: "fs.nfs.nlm_tcpport = 16\n"}, ""},
		"a rule for lockd, and the values of sunrpc":   {maxSlots, map[string]string{rules: locks, file: sixteen}, ""},
		"the parameter of NFSv4 has another name":      {callback, map[string]string{early: "nfsv4\n", file: "fs.nfs.nfs_callback_tcpport = 16\n"}, file},
		"NFS without version 4 has no such sysctl":     {callback, map[string]string{early: "nfs\n", file: "fs.nfs.nfs_callback_tcpport = 16\n"}, ""},
		"a sysctl with the parameter's name is no one": {callback, map[string]string{early: "nfsv4\n", file: "fs.nfs.callback_tcpport = 16\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := hosttest.OpenHost(t, "rocky-9")
			hosttest.WriteFile(t, dir, "/usr/lib/systemd/systemd-sysctl", "")
			for _, parameter := range []string{lockdPort, callback} {
				hosttest.WriteFile(t, dir, "/sys/module/"+strings.Replace(parameter, "/", "/parameters/", 1), "0\n")
			}
			for name, data := range test.files {
				hosttest.WriteFile(t, dir, name, data)
			}
			want, s := host.InSync, unused(fs)
			if test.shadowed != "" {
				want = host.Shadowed
			}
			hosttest.Apply(t, s, hosttest.Settings(test.parameter, "128"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, test.parameter, "128"), want, test.shadowed)
		})
	}
}

// The files are read as the real systemd-sysctl reads them after sunrpc is loaded.
func TestEarlyModulesGetTheValuesThatSystemdWrites(t *testing.T) {
	dir, fs := hosttest.OpenHost(t, "debian-12")
	run := hosttest.Tool(t, dir, "systemd-sysctl")
	hosttest.WriteFile(t, dir, "/usr/lib/systemd/systemd-sysctl", "")
	hosttest.WriteFile(t, dir, "/etc/modules-load.d/a.conf", "sunrpc\n")
	hosttest.WriteFile(t, dir, "/dev/null", "")
	hosttest.WriteFile(t, dir, "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries", "128\n")
	directories := []string{"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"}
	logged := regexp.MustCompile(`(?m)^Setting '/proc/sys/sunrpc/tcp_max_slot_table_entries' to '(\d*).*'`)
	for seed := range uint64(60) {
		tree := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 2)), Directories: directories, Names: []string{"10-a.conf", "99-sysctl.conf", "Z.conf", "zzz.conf", "zzz.conf.bak"},
			Lines: []string{
				"", "# none", "net.core.rmem_max = 7", "sunrpc.tcp_max_slot_table_entries = 16", "sunrpc/tcp_max_slot_table_entries=128", "-sunrpc.tcp_max_slot_table_entries",
				"-sunrpc.tcp_max_slot_table_entries = 9", "sunrpc.*_entries = 8", "*/tcp_max_slot_table_entries=7", "sunrpc.tcp-max-slot-table-entries=6", "/sunrpc/tcp_max_slot_table_entries = 5",
				" ; sunrpc.tcp_max_slot_table_entries = 4", "sunrpc.tcp_[mn]ax_slot_table_entries=3", "-sunrpc.tcp_max*", "- sunrpc.tcp_max_slot_table_entries = 2", "sunrpc..tcp_max_slot_table_entries=1",
			},
		}
		tree.Write(t, dir, "/etc/other.conf")
		hosttest.WriteFile(t, dir, "/proc/sys/sunrpc/tcp_max_slot_table_entries", "128\n")
		s, want, out := unused(fs), host.InSync, run()
		if found := logged.FindAllStringSubmatch(out, -1); len(found) > 0 && found[len(found)-1][1] != "128" {
			want = host.Shadowed
		}
		hosttest.WriteFile(t, dir, "/proc/sys/sunrpc/tcp_max_slot_table_entries", "128\n")
		hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
		if observed := hosttest.Observe(t, s, maxSlots, "128"); observed.State != want {
			t.Errorf("seed %d: got %s (%s), want %s:\n%s\n%v", seed, observed.State, observed.Message, want, out, hosttest.ReadTree(t, dir, directories...))
		}
	}
}
