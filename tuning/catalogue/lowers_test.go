package catalogue

import (
	"strings"
	"testing"
)

func TestLowers(t *testing.T) {
	for name, test := range map[string]struct{ key, original, value, want string }{
		"a maximum of an older kernel": {"sysctl/net.ipv4.tcp_rmem", "4096 131072 33554432", "4096 1048576 16777216",
			"number 3 decreases from the node's original 33554432 to 16777216: declare it in sysctlsAtLeast, which keeps a larger original"},
		"the same on an older kernel":       {"sysctl/net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 1048576 16777216", ""},
		"as it is":                          {"sysctl/net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 6291456", ""},
		"a buffer of an older kernel":       {"sysctl/net.core.rmem_max", "4194304", "1048576", "decreases from the node's original 4194304 to 1048576: declare it"},
		"at least as much":                  {"sysctl/net.core.rmem_max", "4194304", "at-least 1048576", ""},
		"fewer slots of a session":          {"module/nfs/max_session_slots", "180", "64", "decreases from the node's original 180 to 64: leave it out, or declare more"},
		"a limit of slots, which is one":    {"module/sunrpc/tcp_max_slot_table_entries", "65536", "128", ""},
		"a limit in percent":                {"sysctl/vm.dirty_ratio", "20", "10", ""},
		"nothing is known of the node":      {"sysctl/net.core.rmem_max", "", "1048576", ""},
		"a parameter outside the catalogue": {"sysctl/net.core.busy_poll", "50", "10", ""},
		"less memory for TCP than memory":   {"sysctl/net.ipv4.tcp_mem", "188217 250956 376434", "4096 89600 4194304", "number 1 decreases from the node's original 188217 to 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Lowers(test.key, test.original, test.value)
			if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
