package modprobe

import (
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
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
		"/etc/sysctl.conf is read last": {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries = 128\n",
			sysctlConf: "sunrpc.tcp_max_slot_table_entries = 16\n"}, host.Shadowed, sysctlConf},
		"the same value":         {map[string]string{rule: nfsRule, file: "sunrpc.tcp_max_slot_table_entries = 128\n"}, host.InSync, ""},
		"another parameter":      {map[string]string{rule: nfsRule, file: "sunrpc.tcp_slot_table_entries = 16\n"}, host.InSync, ""},
		"a file without a rule":  {map[string]string{file: "sunrpc.tcp_max_slot_table_entries = 16\n"}, host.InSync, ""},
		"a rule of other things": {map[string]string{rule: "KERNEL==\"lockd\", RUN+=\"/sbin/sysctl -q --pattern ^fs.nfs --system\"\n", file: "sunrpc.tcp_max_slot_table_entries = 16\n"}, host.InSync, ""},
		"a line without a file":  {map[string]string{rule: nfsRule}, host.InSync, ""},
		"an assignment left out": {map[string]string{rule: nfsRule, file: "# sunrpc.tcp_max_slot_table_entries = 16\n"}, host.InSync, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := hosttest.OpenHost(t, "rocky-9")
			for name, data := range test.files {
				hosttest.WriteFile(t, dir, name, data)
			}
			s := New(fs, nil)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), test.state, test.message)
		})
	}
}
