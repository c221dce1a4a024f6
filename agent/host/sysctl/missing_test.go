package sysctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

func TestMissingParameterHasAReason(t *testing.T) {
	tests := map[string][]string{
		"net.ipv4.tcp_tw_recycle":              {"removed in Linux 4.12"},
		"kernel.sched_min_granularity_ns":      {"removed in Linux 5.13", "debugfs"},
		"net.netfilter.nf_conntrack_max":       {"module nf_conntrack,", "when it appears"},
		"net.bridge.bridge-nf-call-iptables":   {"module br_netfilter,", "when it appears"},
		"fs.nfs.nlm_timeout":                   {"module lockd,"},
		"fs.nfs.nfs_mountpoint_timeout":        {"module nfs,"},
		"net.ipv4.conf.eth1/200.forwarding":    {"no interface eth1.200", "when it appears"},
		"net.ipv4.conf.eth0/100.tcp_nonsense":  {"this kernel does not have it"},
		"net.ipv4.tcp_something_of_the_future": {"this kernel does not have it, or the module"},
	}
	for name, parts := range tests {
		t.Run(name, func(t *testing.T) {
			_, fs := debian(t)
			s := New(fs)
			hosttest.Apply(t, s, hosttest.Settings(name, "1"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, name, "1"), host.Unsupported, parts...)
		})
	}
}

func TestAParameterIsSetOnceItsModuleIsLoaded(t *testing.T) {
	dir, fs := debian(t)
	const name = "net.netfilter.nf_conntrack_max"
	s := New(fs)
	hosttest.Apply(t, s, hosttest.Settings(name, "1048576"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, name, "1048576"), host.Unsupported)

	hosttest.WriteFile(t, dir, "/proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
	hosttest.ExpectState(t, hosttest.Observe(t, s, name, "1048576"), host.Drifted)
	if original, err := s.Original(t.Context(), name); err != nil || original != (host.Original{Present: true, Value: "262144"}) {
		t.Errorf("original: got %v, error %v", original, err)
	}
	hosttest.Apply(t, s, hosttest.Settings(name, "1048576"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, name, "1048576"), host.InSync)
}

func TestUnreadableParameterIsAnAction(t *testing.T) {
	dir, fs := debian(t)
	const name, file = "net.ipv6.neigh.flush", "/proc/sys/net/ipv6/neigh/flush"
	hosttest.WriteFile(t, dir, file, "")
	hosttest.WriteFile(t, dir, "/proc/sys/net/ipv6/route/max_size", "4096\n")
	check.NoError(t, os.Chmod(filepath.Join(dir, file), 0o200))
	s := New(fs)
	hosttest.ExpectState(t, hosttest.Observe(t, s, name, "1"), host.Pending, "not run yet")
	hosttest.Apply(t, s, hosttest.Settings(name, "1"))
	got := hosttest.Observe(t, s, name, "1")
	hosttest.ExpectState(t, got, host.InSync, "ran once")
	check.Equal(t, "effect", host.Action, got.Effect)
	for _, step := range []struct {
		story   string
		desired []host.Setting
		done    string
	}{
		{"a change of net.ipv4", hosttest.Settings(name, "1", "net.ipv4.tcp_slow_start_after_idle", "0"), ""},
		{"a change of net.ipv6", hosttest.Settings(name, "1", "net.ipv6.route.max_size", "8192"), "1\n"},
	} {
		hosttest.WriteFile(t, dir, file, "")
		hosttest.Apply(t, s, step.desired)
		if got := hosttest.ReadFile(t, dir, file); got != step.done {
			t.Errorf("%s: wrote %q, want %q", step.story, got, step.done)
		}
	}
	if got := hosttest.ReadFile(t, dir, DropIn); !strings.Contains(got, doneMark+name+" = 1\n") {
		t.Errorf("drop-in: got %q", got)
	}
}

func TestOnlyFilesCountInAnImage(t *testing.T) {
	dir, fs := debian(t)
	hosttest.WriteFile(t, dir, "/etc/sysctl.d/10-own.conf", "net.core.rmem_max = 1048576\n")
	live := hosttest.ReadTree(t, dir, "/proc")
	s := New(fs.AsImage())
	for name, want := range map[string]host.Original{rmemMax: {Present: true, Value: "1048576"}, "net.core.wmem_max": {}, flush: {}} {
		if got, err := s.Original(t.Context(), name); err != nil || got != want {
			t.Errorf("original of %s = %v, %v, want %v", name, got, err, want)
		}
	}
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.Drifted, "not in "+DropIn)
	hosttest.Apply(t, s, hosttest.Settings(rmemMax, "16777216", flush, "1"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.Pending, "when the image boots")
	hosttest.ExpectState(t, hosttest.Observe(t, s, flush, "1"), host.Unsupported, "running kernel")
	hosttest.WriteFile(t, dir, "/etc/sysctl.d/zzz.conf", "net.core.rmem_max = 1\n")
	hosttest.ExpectState(t, hosttest.Observe(t, s, rmemMax, "16777216"), host.Shadowed, "/etc/sysctl.d/zzz.conf")
	if got := hosttest.ReadFile(t, dir, DropIn); strings.Contains(got, "flush") {
		t.Errorf("drop-in: got %q", got)
	}
	for name, data := range hosttest.ReadTree(t, dir, "/proc") {
		if live[name] != data {
			t.Errorf("%s: got changed content %q", name, data)
		}
	}
	hosttest.Apply(t, s, nil)
	hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{rmemMax: {Present: true, Value: "1048576"}})[0], host.InSync)
}

func TestRestoreOfAnImageValueNamesTheNextBoot(t *testing.T) {
	dir, fs := debian(t)
	before := hosttest.ReadFile(t, dir, "/proc/sys/net/core/rmem_max")
	got := New(fs).Restore(t.Context(), map[string]host.Original{rmemMax: {}})[0]
	hosttest.ExpectState(t, got, host.InSync, "set in the image", "next boot")
	check.Equal(t, "value", before, hosttest.ReadFile(t, dir, "/proc/sys/net/core/rmem_max"))
}
