package orders

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

const inNamespace = "SCO_TEST_IN_NETWORK_NAMESPACE"

// other are values that differ from the kernel's defaults.
var other = map[string]string{
	"net.core.somaxconn": "1234", "net.ipv4.ip_local_port_range": "40000 50000", "net.ipv4.ip_local_reserved_ports": "10250,30000-32767",
	"net.ipv4.tcp_dsack": "0", "net.ipv4.tcp_fack": "1", "net.ipv4.tcp_no_metrics_save": "1", "net.ipv4.tcp_rmem": "4096 262144 8388608", "net.ipv4.tcp_sack": "0",
	"net.ipv4.tcp_slow_start_after_idle": "0", "net.ipv4.tcp_timestamps": "0", "net.ipv4.tcp_window_scaling": "0", "net.ipv4.tcp_wmem": "4096 262144 8388608",
}

// unmarked are sysctls that a network namespace of this kernel can change, but that a trial cannot have: they are actions, or not separate in each
// kernel from 5.10 on.
var unmarked = map[string]bool{"net.ipv4.route.flush": true, "net.core.optmem_max": true}

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	return strings.Join(strings.Fields(string(data)), " "), err
}

// The catalogue marks exactly the sysctls that a network namespace can change without any effect outside.
func TestTheKernelHasTheSysctlsOfTrialsForEachNamespace(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		changeAll(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: sysctls of a real network namespace need root")
	}
	read := func() map[string]string {
		values := map[string]string{}
		for _, p := range catalogue.All() {
			if name, ok := catalogue.Key(p.Key).In(catalogue.Sysctls); ok {
				values[name], _ = readSysctl(name)
			}
		}
		return values
	}
	before := read()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), inNamespace+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if output, err := child.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Errorf("in the namespace: %v\n%s", err, output)
	}
	check.Equal(t, "sysctls outside of the namespace", before, read())
}

func changeAll(t *testing.T) {
	marked := 0
	for _, p := range catalogue.All() {
		name, ok := catalogue.Key(p.Key).In(catalogue.Sysctls)
		if !ok || !strings.HasPrefix(name, "net.") || unmarked[name] {
			continue
		}
		file := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		if !p.NetNS {
			if f, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil {
				_ = f.Close()
				// Root may open a file without any right. The kernel decides at the write.
				value, _ := readSysctl(name)
				if os.WriteFile(file, []byte(value+"\n"), 0o600) == nil {
					t.Errorf("a network namespace can change %s, which the catalogue does not mark", name)
				}
			}
			continue
		}
		marked++
		if err := os.WriteFile(file, []byte(other[name]+"\n"), 0o600); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := readSysctl(name); err != nil || got != other[name] {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, other[name])
		}
	}
	if marked != len(other) {
		t.Errorf("got %d marked sysctls, want %d", marked, len(other))
	}
}
