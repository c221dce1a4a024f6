package modprobe

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/sysctl"
)

// slotOption matches the limit of slots in a line that modprobe prints. The kernel equates a dash and an underscore.
var slotOption = regexp.MustCompile(`\btcp[-_]max[-_]slot[-_]table[-_]entries=("[^"]*"|\S+)`)

// The files are read as the real modprobe and procps read them. sunrpc is loaded with the last value that modprobe passes. nfs-utils
// then runs "sysctl --pattern ^sunrpc --system".
func TestFilesAreReadAsModprobeAndSysctlReadThem(t *testing.T) {
	dir, fs := hosttest.OpenHost(t, "rocky-9")
	showConfig, setSysctls := hosttest.Tool(t, dir, "modprobe"), hosttest.Tool(t, dir, "sysctl")
	hosttest.WriteFile(t, dir, "/dev/null", "")
	hosttest.WriteFile(t, dir, "/usr/lib/udev/rules.d/60-nfs.rules", nfsRule)
	directories := host.ConfigDirs("modprobe.d")
	// On a host, /lib is a link to /usr/lib, or modprobe does not read /usr/lib.
	optionDirectories := slices.DeleteFunc(slices.Clone(directories), func(name string) bool { return strings.HasPrefix(name, "/usr/lib/") })
	sysctlDirectories := []string{"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"}
	const live = "/proc/sys/sunrpc/tcp_max_slot_table_entries"
	for seed := range uint64(150) {
		names := []string{"10-a.conf", "99-sysctl.conf", "Z.conf", "zz-a.conf", "zzz.conf", "zzz.conf.bak"}
		options := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 1)), Directories: optionDirectories, Names: names,
			Lines: []string{
				"", "# options sunrpc tcp_max_slot_table_entries=7", "options sunrpc tcp_max_slot_table_entries=7", "options\tsunrpc\ttcp_max_slot_table_entries=128",
				"options sunrpc tcp_slot_table_entries=16 tcp_max_slot_table_entries=8", " options sunrpc tcp_max_slot_table_entries=0x80", "options sunrpc",
				"options sunrpc \\\n  tcp_max_slot_table_entries=9", "options nfs max_session_slots=7", "options sunrpc tcp_max_slot_table_entries=7 # x",
				"options sunrpc tcp-max-slot-table-entries=7", "options nfs \\", "blacklist floppy", "alias x sunrpc", "softdep nfs pre: sunrpc", "junk",
			},
		}
		values := hosttest.Tree{Rand: options.Rand, Directories: sysctlDirectories, Names: names, Lines: []string{"# none", "net.core.rmem_max = 7"}}
		if seed%2 == 1 {
			values.Lines = append(values.Lines, "sunrpc.tcp_max_slot_table_entries = 128", "sunrpc.tcp_max_slot_table_entries=7", "-sunrpc.tcp_max_slot_table_entries = 6",
				"sunrpc/tcp_max_slot_table_entries=128", ";sunrpc.tcp_max_slot_table_entries=7", "sunrpc.tcp_max_slot_table_entries = 0x80 # x", "sunrpc.tcp_slot_table_entries=7",
				"sunrpc.tcp_max_* = 5", "-sunrpc.tcp_max_slot_table_entries")
		}
		values.Write(t, dir, sysctl.SystemConf)
		options.Write(t, dir, "/etc/other.conf")
		s, desired := unused(fs), hosttest.Settings(maxSlots, "128")
		hosttest.Apply(t, s, desired)
		observed := hosttest.Observe(t, s, maxSlots, "128")
		want, shown := "", showConfig("--showconfig")
		for line := range strings.Lines(shown) {
			if found := slotOption.FindStringSubmatch(line); found != nil && strings.HasPrefix(line, "options sunrpc ") {
				want = found[1]
			}
		}
		hosttest.WriteFile(t, dir, live, "unset\n")
		set := setSysctls("-q", "--pattern", "^sunrpc", "--system")
		if fields := strings.Fields(hosttest.ReadFile(t, dir, live)); len(fields) == 0 {
			want = ""
		} else if fields[0] != "unset" {
			want = fields[0]
		}
		state := host.Shadowed
		if sameValue(want, "128") {
			state = host.InSync
		}
		if observed.State != state {
			t.Errorf("seed %d: got %s (%s), the programs set %q:\n%s%s\n%v", seed, observed.State, observed.Message, want, shown, set,
				hosttest.ReadTree(t, dir, append(slices.Concat(sysctlDirectories, directories), sysctl.SystemConf)...))
		}
		hosttest.WriteFile(t, dir, live, "128\n")
	}
}

// The rules are read as the real udev reads them, which runs "sysctl --system" when sunrpc is loaded. Names of rules and masks are random.
func TestRulesAreReadAsUdevReadsThem(t *testing.T) {
	dir, fs := hosttest.OpenHost(t, "debian-12")
	run := hosttest.Tool(t, dir, "udevadm")
	hosttest.WriteFile(t, dir, "/dev/null", "")
	hosttest.WriteFile(t, dir, "/sys/module/sunrpc/uevent", "")
	const rule = `ACTION=="add", SUBSYSTEM=="module", KERNEL=="sunrpc", `
	// On a host, /lib is a link to /usr/lib.
	directories := slices.DeleteFunc(host.ConfigDirs("udev/rules.d"), func(name string) bool { return strings.HasPrefix(name, "/lib/") })
	for seed := range uint64(150) {
		tree := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 1)), Directories: directories,
			Names: []string{"60-nfs.rules", "99-z.rules", "10-a.rules", "60-nfs.rules.bak"},
			Lines: []string{
				"", "# " + rule + `RUN+="/sbin/sysctl --system"`, "#", `ACTION=="add", KERNEL=="nfs", RUN+="/sbin/sysctl --system"`, rule + `RUN+="/bin/true"`,
				rule + `RUN+="/sbin/sysctl -q --pattern ^sunrpc --system"`, rule + "\\\n  " + `RUN+="/sbin/sysctl -q --system"`, ` # ` + rule + `RUN+="/sbin/sysctl --system"`,
				`SUBSYSTEM=="module", ACTION=="add", KERNEL=="sunrpc", RUN+="/sbin/sysctl -q --system"`, `KERNEL=="sunrpc", RUN+="/sbin/sysctl -p"`,
			},
		}
		tree.Write(t, dir, "/etc/other")
		dashes, runs := unused(fs).runsSysctlAtLoad()["sunrpc"]
		wantRuns, wantDashes, out := false, false, run("test", "--action=add", "/sys/module/sunrpc")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "run: ") && strings.Contains(line, "--system") {
				wantRuns, wantDashes = true, wantDashes || !strings.Contains(line, "^sunrpc")
			}
		}
		if runs != wantRuns || dashes != wantDashes {
			t.Errorf("seed %d: got %t, %t, udev runs:\n%s\n%v", seed, runs, dashes, out, hosttest.ReadTree(t, dir, directories...))
		}
	}
}
