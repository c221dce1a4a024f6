package catalogue

import (
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestCatalogueIsConsistent(t *testing.T) {
	all := All()
	if !slices.IsSortedFunc(all, func(a, b Parameter) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("the catalogue is not sorted by key")
	}
	for _, p := range all {
		t.Run(p.Key, func(t *testing.T) {
			if got, ok := Lookup(p.Key); !ok || got.Key != p.Key {
				t.Errorf("Lookup(%q): got %q, %v", p.Key, got.Key, ok)
			}
			if p.Source == "" {
				t.Error("no source")
			}
			if p.Min > p.Max {
				t.Errorf("got a range from %d to %d", p.Min, p.Max)
			}
			if (p.Kind == IntegerList) != (p.Fields > 1) {
				t.Errorf("got kind %s with %d fields", p.Kind, p.Fields)
			}
			if p.Default != "" {
				if err := (AllowList{}).Check(p.Key, p.Default); err != nil {
					t.Errorf("got the kernel's default rejected: %v", err)
				}
			}
			subject, name := Key(p.Key).Cut()
			if subject == Modules && !strings.HasPrefix(name, p.Module+"/") {
				t.Errorf("got module %q", p.Module)
			}
		})
	}
}

func TestGuidesCanBeDeclared(t *testing.T) {
	settings := map[string]string{
		"net.core.wmem_max": "16777216", "net.core.wmem_default": "1048576", "net.core.rmem_max": "16777216",
		"net.core.rmem_default": "1048576", "net.ipv4.tcp_rmem": "1048576 8388608 16777216",
		"net.ipv4.tcp_wmem": "1048576 8388608 16777216", "net.core.optmem_max": "2048000", "net.core.somaxconn": "65535",
		"net.ipv4.tcp_mem": "4096 89600 4194304", "net.ipv4.tcp_window_scaling": "1", "net.ipv4.tcp_timestamps": "0",
		"net.ipv4.tcp_sack": "0", "net.ipv4.tcp_no_metrics_save": "1", "net.ipv4.route.flush": "1",
		"net.ipv4.tcp_low_latency": "1", "net.ipv4.ip_local_port_range": "1024 65000",
		"net.ipv4.tcp_slow_start_after_idle": "0", "net.core.netdev_max_backlog": "300000",
		"vm.dirty_expire_centisecs": "100", "vm.dirty_writeback_centisecs": "100", "vm.dirty_ratio": "20",
		"vm.dirty_background_ratio": "5", "net.ipv4.tcp_dsack": "0", "net.ipv4.tcp_fack": "0",
		"sunrpc.tcp_slot_table_entries": "128", "sunrpc.tcp_max_slot_table_entries": "128", "sunrpc.udp_slot_table_entries": "128",
	}
	for name, value := range settings {
		if err := (AllowList{}).Check(SysctlKey(name), value); err != nil {
			t.Error(err)
		}
	}
	for key, value := range map[string]string{
		"kernelArgument/ihash_entries": "16777216", "kernelArgument/dhash_entries": "33554432",
		"module/nfs/max_session_slots": "180", "module/nfs/max_session_cb_slots": "32",
	} {
		if err := (AllowList{}).Check(key, value); err != nil {
			t.Error(err)
		}
	}
}

func TestEffect(t *testing.T) {
	for key, want := range map[string]v1alpha1.SettingEffect{
		"sysctl/net.core.rmem_max":                 v1alpha1.EffectLive,
		"sysctl/net.ipv4.route.flush":              v1alpha1.EffectAction,
		"sysctl/kernel.unknown":                    v1alpha1.EffectLive,
		"module/sunrpc/tcp_max_slot_table_entries": v1alpha1.EffectNewTransport,
		"module/nfs/max_session_slots":             v1alpha1.EffectNewTransport,
		"module/other/unknown":                     v1alpha1.EffectLive,
		"kernelArgument/ihash_entries":             v1alpha1.EffectReboot,
		"kernelArgument/unknown":                   v1alpha1.EffectReboot,
	} {
		if got := Effect(key); got != want {
			t.Errorf("Effect(%q): got %s, want %s", key, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	type pair struct{ Key, Value string }
	argument := func(text string) pair { key, value := KernelArgumentKey(text); return pair{key, value} }
	for name, test := range map[string]struct{ got, want pair }{
		"a sysctl keeps its dotted name":             {pair{Key: SysctlKey("net.core.rmem_max")}, pair{Key: "sysctl/net.core.rmem_max"}},
		"a slot table sysctl is a module parameter":  {pair{Key: SysctlKey("sunrpc.tcp_slot_table_entries")}, pair{Key: "module/sunrpc/tcp_slot_table_entries"}},
		"another sysctl of sunrpc is not":            {pair{Key: SysctlKey("sunrpc.rpc_debug")}, pair{Key: "sysctl/sunrpc.rpc_debug"}},
		"a module is written as the kernel shows it": {pair{Key: ModuleKey("nfs-layout", "some-thing")}, pair{Key: "module/nfs_layout/some_thing"}},
		"an argument splits at the first sign":       {argument("a=b=c"), pair{"kernelArgument/a", "b=c"}},
		"a flag has no value":                        {argument("nosmt"), pair{"kernelArgument/nosmt", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, test.got)
		})
	}
	check.Equal(t, "CanonicalValue", "4096 131072 6291456", CanonicalValue(" 4096\t 131072  6291456 \n"))
}

func TestWarning(t *testing.T) {
	for name, test := range map[string]struct {
		key, value string
		want       bool
	}{
		"selective acknowledgements off":         {"sysctl/net.ipv4.tcp_sack", "0", true},
		"selective acknowledgements on":          {"sysctl/net.ipv4.tcp_sack", "1", false},
		"a switch that does nothing":             {"sysctl/net.ipv4.tcp_low_latency", "1", true},
		"a large minimum for every socket":       {"sysctl/net.ipv4.tcp_rmem", "1048576 8388608 16777216", true},
		"a small minimum, a large maximum":       {"sysctl/net.ipv4.tcp_rmem", "4096 1048576 16777216", false},
		"a port range over the NodePorts":        {"sysctl/net.ipv4.ip_local_port_range", "1024 65000", true},
		"the slot table":                         {"module/sunrpc/tcp_max_slot_table_entries", "128", false},
		"a slot table of two":                    {"module/sunrpc/tcp_max_slot_table_entries", "2", true},
		"a session of one request":               {"module/nfs/max_session_slots", "1", true},
		"receive buffers of one page":            {"sysctl/net.ipv4.tcp_rmem", "4096 4096 4096", true},
		"a short queue of packets":               {"sysctl/net.core.netdev_max_backlog", "500", true},
		"a long queue of packets":                {"sysctl/net.core.netdev_max_backlog", "300000", true},
		"an action":                              {"sysctl/net.ipv4.route.flush", "1", true},
		"memory pressure in pages and not bytes": {"sysctl/net.ipv4.tcp_mem", "4096 89600 4194304", true},
	} {
		t.Run(name, func(t *testing.T) {
			p, ok := Lookup(test.key)
			if got := p.Warning(test.value); !ok || (got != "") != test.want {
				t.Errorf("Warning(%q): got %q, want a warning: %v", test.value, got, test.want)
			}
		})
	}
}

func TestValuesDescribesAcceptedValues(t *testing.T) {
	for key, want := range map[string]string{
		"sysctl/net.ipv4.tcp_sack":            "0 or 1",
		"sysctl/net.ipv4.route.flush":         "1",
		"sysctl/vm.dirty_ratio":               "1–100 percent of available memory",
		"sysctl/net.ipv4.tcp_rmem":            "3 numbers, each 1–2147483647 bytes, at least 1 2304 2304",
		"sysctl/net.ipv4.ip_local_port_range": "2 numbers, each 1024–65535 port, a range of at least 256",
		"module/nfs/max_session_slots":        "1–1024 requests in flight per session",
		"tuned/profile":                       "the name of a tuned profile",
		"nfsMountDefaults/filer1":             "mount options",
	} {
		if p, _ := Lookup(key); p.Values() != want {
			t.Errorf("%s: got values %q, want %q", key, p.Values(), want)
		}
	}
}

// If users copy the flag from the message, it allows only this key.
func TestARejectionQuotesTheKeyForTheAllowList(t *testing.T) {
	err := AllowList{}.Check("sysctl/vm.swappiness", "10")
	if want := `--allow-parameter='sysctl/vm\.swappiness'`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s in it", err, want)
	}
}
