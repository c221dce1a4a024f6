package catalogue_test

import (
	"os"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

func TestSysctlsThatATrialCanHave(t *testing.T) {
	const elsewhere = ": a trial can set only the sysctls of a network namespace that docs/trials.md lists; declare it in spec.node of a profile, and measure before and after on a canary node"
	for name, test := range map[string]struct{ key, value, want string }{
		"buffers of sockets":           {"net.ipv4.tcp_rmem", "4096 1048576 16777216", ""},
		"the smallest working buffer":  {"net.ipv4.tcp_rmem", "1 2304 2304", ""},
		"a flag":                       {"net.ipv4.tcp_slow_start_after_idle", "0", ""},
		"a buffer below the minimum":   {"net.ipv4.tcp_rmem", "1 2303 2304", "number 2 must be at least 2304"},
		"a buffer above the maximum":   {"net.ipv4.tcp_wmem", "4096 16384 2147483648", "number 3 must be 1 to 2147483647 bytes"},
		"a list in the wrong order":    {"net.ipv4.tcp_wmem", "65536 16384 4194304", "no number may be smaller"},
		"a flag with another value":    {"net.ipv4.tcp_sack", "2", "must be 0 to 1"},
		"a narrow range of ports":      {"net.ipv4.ip_local_port_range", "32768 32900", "ports"},
		"a value with a newline":       {"net.ipv4.tcp_sack", "1\n0", "a value may contain only"},
		"memory of the host":           {"vm.dirty_ratio", "10", elsewhere},
		"buffers of the whole host":    {"net.core.rmem_max", "16777216", elsewhere},
		"pages of all connections":     {"net.ipv4.tcp_mem", "4096 8192 16384", elsewhere},
		"slot tables":                  {"sunrpc.tcp_max_slot_table_entries", "128", elsewhere},
		"an action":                    {"net.ipv4.route.flush", "1", elsewhere},
		"an unknown key":               {"net.ipv4.tcp_ecn", "1", elsewhere},
		"XFS":                          {"fs.xfs.xfssyncd_centisecs", "100", elsewhere},
		"a kernel argument as a key":   {"ihash_entries", "16777216", elsewhere},
		"a key of another part of net": {"net.ipv4.conf.all.forwarding", "1", elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			got := catalogue.TrialProblem(map[string]v1alpha1.SettingText{test.key: v1alpha1.SettingText(test.value), "net.ipv4.tcp_timestamps": "1"})
			if test.want == "" {
				check.Equal(t, "problem", "", got)
				return
			}
			if !strings.HasPrefix(got, "spec.sysctls["+test.key+"] is ") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if value := "is " + test.value + ": "; !strings.Contains(test.value, "\n") && !strings.Contains(got, value) {
				t.Errorf("got %q, want the value %q", got, test.value)
			}
		})
	}
}

// The kernel has no separate value for other sysctls: agent/host/probe compares the list with a network namespace.
func TestTheSysctlsOfATrialAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/trials.md")
	check.NoError(t, err)
	names := catalogue.NetNSSysctls()
	if len(names) != 12 {
		t.Errorf("got %d sysctls: %v", len(names), names)
	}
	for _, name := range names {
		if !strings.Contains(string(data), "`"+name+"`") {
			t.Errorf("docs/trials.md does not list %s", name)
		}
	}
}
