package catalogue

import "testing"

func TestNetworkSettingsNeedConfirmation(t *testing.T) {
	for key, want := range map[string]bool{
		"sysctl/net.ipv4.tcp_rmem":                 true,
		"sysctl/net.core.netdev_max_backlog":       true,
		"sysctl/net.ipv4.ip_local_port_range":      true,
		"sysctl/net.beyond.the.catalogue":          true,
		"tuned/profile":                            true,
		"sysctl/net.ipv4.route.flush":              false,
		"sysctl/vm.dirty_ratio":                    false,
		"sysctl/network.is.no.tree":                false,
		"sysctl/sunrpc.max_resvport":               false,
		"module/sunrpc/tcp_max_slot_table_entries": false,
		"module/nfs/max_session_slots":             false,
		"kernelArgument/net.ifnames":               false,
		"nfsMountDefaults/_all":                    false,
		"readAhead/nfs4":                           false,
		"filesystem/mnt/net.disk":                  false,
		"no key":                                   false,
	} {
		if got := NeedsConfirmation(key); got != want {
			t.Errorf("%s: got %t, want %t", key, got, want)
		}
	}
}
