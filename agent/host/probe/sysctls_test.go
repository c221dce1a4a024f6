package probe

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/test/check"
)

// defaults are the sysctls of a new network namespace, which differ from the node's.
func defaults() map[string]string {
	return map[string]string{"tcp_rmem": "4096 131072 6291456", "tcp_slow_start_after_idle": "1", "ip_local_reserved_ports": ""}
}

// nodeSysctls are the node's values with a candidate of larger buffers.
func nodeSysctls() []Sysctl {
	return []Sysctl{
		{"net.ipv4.ip_local_reserved_ports", "", ""}, {"net.ipv4.tcp_rmem", "4096 262144 8388608", "4096 1048576 33554432"},
		{"net.ipv4.tcp_slow_start_after_idle", "0", "0"},
	}
}

func withSysctls(list ...Sysctl) func(*Order) { return func(o *Order) { o.Sysctls = list } }

// Both arms start with the values of the node. Each value is set before the mount that it concerns.
func TestEachPassHasTheSysctlsOfItsArm(t *testing.T) {
	k := &fakeKernel{t: t, sysctls: defaults()}
	r := k.run(trial(withSysctls(nodeSysctls()...)))
	if !r.Succeeded || r.Missing() != nil || len(r.Passes) != 3 {
		t.Fatalf("result: got %+v", r)
	}
	steps := slices.DeleteFunc(k.log, func(line string) bool {
		return !strings.Contains(line, "tcp_") && !strings.HasPrefix(line, "mount") && line != "unmount"
	})
	for i, line := range steps {
		steps[i], _, _ = strings.Cut(line, " filer")
	}
	want := []string{
		"tcp_rmem=4096 262144 8388608", "tcp_slow_start_after_idle=0", "mount", "unmount",
		"tcp_rmem=4096 1048576 33554432", "mount", "unmount", "tcp_rmem=4096 262144 8388608",
		"mount", "unmount",
	}
	check.Equal(t, "steps", want, steps)
	proof := r.Proofs[len(r.Proofs)-1]
	if want := "net.ipv4.ip_local_reserved_ports=, net.ipv4.tcp_rmem=4096 262144 8388608, net.ipv4.tcp_slow_start_after_idle=0"; proof.Type != Sysctls || proof.Message != want {
		t.Errorf("proof: got %+v", proof)
	}
}

func TestAPassWithoutItsSysctlsIsInvalid(t *testing.T) {
	const buffers = `sysctl net.ipv4.tcp_rmem must be "4096 262144 8388608" in the network namespace of the runner: `
	scaled := func(n int) sockets.Socket { return sockets.Socket{WindowScale: n} }
	for name, test := range map[string]struct {
		kernel  fakeKernel
		list    []Sysctl
		mounts  int
		message string
	}{
		"the kernel keeps another value":  {fakeKernel{keeps: "tcp_rmem"}, nil, 0, buffers + `the kernel has "4096 131072 6291456"`},
		"a value changes during the work": {fakeKernel{changes: map[string]string{"tcp_rmem": "4096 131072 1"}}, nil, 1, buffers + `the kernel has "4096 131072 1"`},
		"a sysctl that does not exist":    {fakeKernel{}, []Sysctl{{"net.ipv4.tcp_sack", "1", "0"}}, 0, `sysctl net.ipv4.tcp_sack must be "1" in the network namespace of the runner: no such file`},
		"a small window of a connection": {fakeKernel{tcp: []sockets.Socket{scaled(8), scaled(7)}}, nil, 1,
			buffers + "the connection to invalid AddrPort has another value"},
		"unreadable connections": {fakeKernel{tcpErr: errors.New("denied")}, nil, 0, ": denied"},
		"timestamps": {fakeKernel{sysctls: map[string]string{"tcp_timestamps": "1"}, tcp: []sockets.Socket{{Timestamps: true, WindowScale: -1}}},
			[]Sysctl{{"net.ipv4.tcp_timestamps", "0", "1"}}, 1, "has another value"},
		"selective acknowledgments": {fakeKernel{sysctls: map[string]string{"tcp_sack": "1"}, tcp: []sockets.Socket{{SACK: true, WindowScale: -1}}},
			[]Sysctl{{"net.ipv4.tcp_sack", "0", "1"}}, 1, "has another value"},
		"scaled windows": {fakeKernel{sysctls: map[string]string{"tcp_window_scaling": "1"}, tcp: []sockets.Socket{scaled(0)}},
			[]Sysctl{{"net.ipv4.tcp_window_scaling", "0", "1"}}, 1, "has another value"},
	} {
		t.Run(name, func(t *testing.T) {
			k := test.kernel
			if k.t = t; k.sysctls == nil {
				k.sysctls = defaults()
			}
			if test.list == nil {
				test.list = nodeSysctls()
			}
			r := k.run(trial(withSysctls(test.list...)))
			missing := r.Missing()
			if missing == nil || missing.Type != Sysctls || !strings.Contains(missing.Message, test.message) || r.Succeeded || len(r.Passes) > 0 {
				t.Fatalf("got proof %+v, result %+v", missing, r)
			}
			if mounts := strings.Count(strings.Join(k.log, "\n"), "mount filer"); mounts != test.mounts {
				t.Errorf("got %d mounts, want %d:\n%s", mounts, test.mounts, strings.Join(k.log, "\n"))
			}
		})
	}
}

func TestConnectionsThatTheSysctlsAllow(t *testing.T) {
	k := &fakeKernel{t: t, sysctls: defaults(), tcp: []sockets.Socket{{Timestamps: true, SACK: true, WindowScale: 10}, {WindowScale: -1}, {WindowScale: 14}}}
	k.sysctls["tcp_timestamps"], k.sysctls["tcp_sack"], k.sysctls["tcp_window_scaling"] = "1", "1", "1"
	list := append(nodeSysctls(), Sysctl{"net.ipv4.tcp_sack", "1", "1"}, Sysctl{"net.ipv4.tcp_timestamps", "1", "2"}, Sysctl{"net.ipv4.tcp_window_scaling", "1", "1"})
	if r := k.run(trial(withSysctls(list...))); !r.Succeeded || r.Missing() != nil {
		t.Errorf("got %+v", r)
	}
}

// The runner is the last fence: it writes no file outside of the sysctls of a network namespace, and none in the network of the node.
func TestNoOtherFileIsWritten(t *testing.T) {
	for name, test := range map[string]struct {
		list   Sysctl
		inHost bool
	}{
		"a sysctl of the host":       {Sysctl{"vm.dirty_ratio", "10", "20"}, false},
		"a file of another part":     {Sysctl{"net.ipv4.conf.all", "0", "1"}, false},
		"a path that leads out":      {Sysctl{"net.ipv4./../../kernel/core_pattern", "0", "1"}, false},
		"a name with a newline":      {Sysctl{"net.ipv4.tcp_sack\n", "0", "1"}, false},
		"a value that is no number":  {Sysctl{"net.ipv4.tcp_sack", "|/bin/sh", "1"}, false},
		"a value with a newline":     {Sysctl{"net.ipv4.tcp_sack", "1\n0", "1"}, false},
		"in the network of the node": {Sysctl{"net.ipv4.tcp_sack", "0", "1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			file := strings.TrimPrefix("/proc/sys/"+strings.ReplaceAll(test.list.Name, ".", "/"), "/proc/sys/net/ipv4/")
			k := &fakeKernel{t: t, sysctls: map[string]string{file: "9"}}
			order := trial(withSysctls(test.list))
			if test.inHost {
				order.HostNetwork, k.network = "net:[2]", "net:[2]"
			}
			if r := k.run(order); r.Missing() == nil || r.Succeeded {
				t.Errorf("got %+v", r)
			}
			if len(k.log) > 0 {
				t.Errorf("got %v", k.log)
			}
		})
	}
}

const namespaceVariable = "SCO_TEST_NETWORK_NAMESPACE"

// The child of this test works with a real kernel, in a separate network namespace. The namespace of the test does not change.
func TestSysctlsOfARealNetworkNamespace(t *testing.T) {
	if host := os.Getenv(namespaceVariable); host != "" {
		inNamespace(t, host)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: sysctls of a real network namespace need root")
	}
	host, err := os.Readlink(networkLink)
	check.NoError(t, err)
	names := []string{"tcp_rmem", "tcp_timestamps", "ip_local_reserved_ports"}
	read := func() (values []string) {
		for _, name := range names {
			data, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
			check.NoError(t, err)
			values = append(values, string(data))
		}
		return values
	}
	before := read()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), namespaceVariable+"="+host)
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if output, err := child.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Errorf("in the namespace: %v\n%s", err, output)
	}
	check.Equal(t, "sysctls of the namespace outside", before, read())
}

func inNamespace(t *testing.T, host string) {
	list := []Sysctl{
		{"net.ipv4.ip_local_reserved_ports", "", "10250,30000-32767"}, {"net.ipv4.tcp_rmem", "4096 262144 8388608", "8192 1048576 67108864"},
		{"net.ipv4.tcp_timestamps", "1", "0"},
	}
	w := newWork(machine{}, Order{HostNetwork: host, Sysctls: list})
	if p := w.proveNetwork(nil); !p.Holds {
		t.Fatal(p.Message)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	check.NoError(t, err)
	for _, arm := range []Arm{Before, After, Again} {
		if p := w.proveSysctls(arm, true)[0]; !p.Holds {
			t.Fatalf("%s: %s", arm, p.Message)
		}
		for _, s := range list {
			want := map[bool]string{true: s.After, false: s.Before}[arm == After]
			if data, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/")); err != nil || strings.Join(strings.Fields(string(data)), " ") != want {
				t.Errorf("%s, %s: got %q, %v; want %q", arm, s.Name, data, err, want)
			}
		}
		withConnection(t, w, func(socket sockets.Socket) {
			if p := w.proveSysctls(arm, false)[0]; !p.Holds {
				t.Errorf("%s: %s", arm, p.Message)
			}
			// 8 MiB and 64 MiB: 2^23 and 2^26 bytes.
			if want := map[bool]int{true: 11, false: 8}[arm == After]; socket.WindowScale < want || socket.Timestamps != (arm != After) {
				t.Errorf("%s: got socket %+v, want at least scale %d", arm, socket, want)
			}
		})
	}
	withConnection(t, w, func(sockets.Socket) {
		for _, s := range list {
			if got, err := w.sysctl(s.Name, s.After, true); err != nil || got != s.After {
				t.Errorf("%s: got %q, %v", s.Name, got, err)
			}
		}
		if p := w.proveSysctls(After, false)[0]; p.Holds || !strings.Contains(p.Message, "has another value") {
			t.Errorf("a connection that is older than the sysctls: got %+v", p)
		}
	})
	if p := w.proveSysctls(Before, false)[0]; p.Holds || !strings.Contains(p.Message, `must be "4096 262144 8388608"`) && !strings.Contains(p.Message, `must be ""`) {
		t.Errorf("got %+v", p)
	}
	w.order.Sysctls = []Sysctl{{"net.ipv4.tcp_rmem", "0 0 0", "0 0 0"}}
	if p := w.proveSysctls(Before, true)[0]; p.Holds || !strings.Contains(p.Message, "net.ipv4.tcp_rmem") || !strings.Contains(p.Message, "invalid argument") {
		t.Errorf("a value that the kernel rejects: got %+v", p)
	}
	w.order.Sysctls = []Sysctl{{"net.core.rmem_max", "16777216", "16777216"}}
	if p := w.proveSysctls(Before, true)[0]; p.Holds {
		t.Error("a sysctl of the whole host was set")
	}
}

// withConnection calls f with a connection within the namespace.
func withConnection(t *testing.T, w work, f func(sockets.Socket)) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	defer listener.Close()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	check.NoError(t, err)
	defer connection.Close()
	all, err := w.connections()
	check.NoError(t, err)
	i := slices.IndexFunc(all, func(s sockets.Socket) bool { return s.Remote.String() == listener.Addr().String() })
	if i < 0 {
		t.Fatalf("no connection to %s in %+v", listener.Addr(), all)
	}
	f(all[i])
}
