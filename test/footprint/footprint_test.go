//go:build footprint

// Package footprint measures the cost of the node agent on a node, next to its alternatives in the same run: sysctl, which sets the same
// files once a boot, and tuned, which also keeps settings. "make bench-footprint" runs it.
package footprint

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/reaper"
)

const (
	// maxImage and maxAnonymous are the limits of an agent: its compressed image, and its memory while it is idle.
	maxImage     = 15_000_000
	maxAnonymous = 20_000_000
	// idle is the duration of the measurement without changes. The agent checks for drift once a minute.
	idle = time.Minute
	// looks is the number of runs of each command for its median.
	looks = 15
)

const node = "node-1"

var sysctls = map[string]v1alpha1.SettingText{
	"net.core.rmem_max": "16777216", "net.core.wmem_max": "16777216", "net.ipv4.tcp_rmem": "4096 1048576 16777216",
	"net.ipv4.tcp_wmem": "4096 1048576 16777216", "net.ipv4.tcp_slow_start_after_idle": "0", "vm.dirty_ratio": "10",
}

func TestFootprint(t *testing.T) {
	agent := os.Getenv("SCO_AGENT")
	if agent == "" {
		t.Fatal("SCO_AGENT must be the path of a node-agent: run make bench-footprint")
	}
	size := compressed(t, agent)
	t.Logf("image, compressed:              %8.1f MB, at most %d", float64(size)/1e6, maxImage/1_000_000)
	if size > maxImage {
		t.Errorf("got an image of %d bytes, want at most %d", size, maxImage)
	}

	dir := hosttest.CopyHost(t, "debian-12")
	used := watchIdle(t, agent, dir)
	t.Logf("agent, anonymous memory:        %8.1f MB, at most %d, while it is idle with a watch open", float64(used.AnonymousBytes)/1e6, maxAnonymous/1_000_000)
	t.Logf("agent, CPU:                     %8d ms in %s while nothing changes", used.CPU.Milliseconds(), idle)
	if used.AnonymousBytes > maxAnonymous {
		t.Errorf("got %d bytes of anonymous memory of the agent, want at most %d", used.AnonymousBytes, maxAnonymous)
	}

	profile := filepath.Join(t.TempDir(), "profile.yaml")
	check.NoError(t, os.WriteFile(profile, []byte(manifest()), 0o600))
	check := median(t, agent, "observe", "-f", profile, "--host-root", dir)
	t.Logf("one check for drift, CPU:       %8.1f ms with the start of a process for it (node-agent observe)", ms(check))
	besideSysctl(t, check)
	besideTuned(t, used)
}

func manifest() string {
	var b strings.Builder
	b.WriteString("apiVersion: tuning.storageclient.dev/v1alpha1\nkind: StorageClientProfile\nmetadata: {name: p}\nspec:\n  allNodes: true\n  node:\n    sysctls:\n")
	for name, value := range sysctls {
		fmt.Fprintf(&b, "      %s: %q\n", name, value)
	}
	return b.String()
}

// compressed returns the size of the image. Its only layer contains only the program, as hack/images builds and tests it.
func compressed(t *testing.T, program string) int64 {
	t.Helper()
	file, err := os.Open(program)
	check.NoError(t, err)
	defer file.Close()
	var size counter
	w := gzip.NewWriter(&size)
	if _, err := io.Copy(w, file); err != nil {
		t.Fatal(err)
	}
	check.NoError(t, w.Close())
	return int64(size)
}

type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

// watchIdle runs the agent against a real API server until it has reported, and then for the idle time. The CPU time covers only the idle
// time.
func watchIdle(t *testing.T, agent, dir string) controlplane.Usage {
	t.Helper()
	c, kubeconfig := startAPIServer(t)
	var settings []v1alpha1.NodeSetting
	for name, value := range sysctls {
		settings = append(settings, v1alpha1.NodeSetting{
			Key: "sysctl/" + name, Value: string(value), Profile: "p", OnRemoval: v1alpha1.DeletionRestore,
		})
	}
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.StorageClientNodeSpec{
		Settings: settings, Hash: strings.Repeat("a", 16), BootHash: strings.Repeat("b", 16),
	}}
	check.NoError(t, c.Create(t.Context(), clientNode))
	log, err := os.Create(filepath.Join(t.TempDir(), "agent.log"))
	check.NoError(t, err)
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), agent, "run", "--node-name", node, "--host-root", dir, "--kubeconfig", kubeconfig,
		"--health-probe-bind-address", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	check.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it ends with the test's context
	awaitReport(t, c, clientNode, log.Name())
	// The agent writes the status a second time, after its check for drift.
	time.Sleep(10 * time.Second)
	before := usageOf(t, cmd.Process.Pid)
	version := clientNode.ResourceVersion
	time.Sleep(idle)
	after := usageOf(t, cmd.Process.Pid)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(clientNode), clientNode); err != nil || clientNode.ResourceVersion != version {
		t.Errorf("the status was written without a change: resourceVersion %s, then %s (%v)", version, clientNode.ResourceVersion, err)
	}
	after.CPU -= before.CPU
	return after
}

func TestMain(m *testing.M) {
	if err := reaper.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func startAPIServer(t *testing.T) (c client.Client, kubeconfig string) {
	t.Helper()
	environment := &envtest.Environment{
		BinaryAssetsDirectory: os.Getenv("SCO_BINARIES"), CRDDirectoryPaths: []string{"../../config/crd/bases"}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: patience.Of(2 * time.Minute), ControlPlaneStopTimeout: patience.Of(2 * time.Minute),
	}
	config, err := environment.Start()
	check.NoError(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	check.NoError(t, v1alpha1.AddToScheme(scheme))
	if c, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	admin, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	check.NoError(t, err)
	data, err := admin.KubeConfig()
	check.NoError(t, err)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	check.NoError(t, os.WriteFile(kubeconfig, data, 0o600))
	return c, kubeconfig
}

// awaitReport waits until the agent has reported all settings as effective.
func awaitReport(t *testing.T, c client.Client, clientNode *v1alpha1.StorageClientNode, log string) {
	t.Helper()
	inForce := func(s v1alpha1.SettingStatus) bool { return s.State == v1alpha1.SettingInSync }
	for end := time.Now().Add(patience.Of(2 * time.Minute)); time.Now().Before(end); time.Sleep(time.Second) {
		check.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(clientNode), clientNode))
		if states := clientNode.Status.Settings; len(states) == len(sysctls) && !slices.ContainsFunc(states, func(s v1alpha1.SettingStatus) bool { return !inForce(s) }) {
			return
		}
	}
	agentLog, _ := os.ReadFile(log)
	t.Fatalf("the agent has not reported its settings InSync: %+v\n%s", clientNode.Status.Settings, agentLog)
}

func usageOf(t *testing.T, pid int) controlplane.Usage {
	t.Helper()
	usage, err := controlplane.UsageOf(pid)
	check.NoError(t, err)
	return usage
}

// median returns the CPU time of a command, user and system.
func median(t *testing.T, argv ...string) time.Duration {
	t.Helper()
	var all []time.Duration
	for range looks {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || len(out) == 0 {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
		all = append(all, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// besideSysctl compares a check with reading the files that a boot reads. It does not change this machine.
func besideSysctl(t *testing.T, check time.Duration) {
	t.Helper()
	if _, err := exec.LookPath("sysctl"); err != nil {
		t.Logf("NOT COMPARED with sysctl: %v (Debian: apt install procps)", err)
		return
	}
	boot := median(t, "sysctl", "--system", "--dry-run")
	t.Logf("sysctl --system --dry-run, CPU: %8.1f ms; one check takes %.1f times that", ms(boot), ms(check)/max(ms(boot), 0.1))
}

// besideTuned compares with a running tuned. It does not start one, because that would change this machine.
func besideTuned(t *testing.T, used controlplane.Usage) {
	t.Helper()
	pid := pidOf("tuned")
	if pid == 0 {
		t.Log("NOT COMPARED with tuned: it does not run on this machine (Debian: apt install tuned; systemctl start tuned)")
		return
	}
	before := usageOf(t, pid)
	time.Sleep(idle)
	after := usageOf(t, pid)
	cpu := after.CPU - before.CPU
	t.Logf("tuned, anonymous memory:        %8.1f MB; the agent has %.2f times that",
		float64(after.AnonymousBytes)/1e6, float64(used.AnonymousBytes)/float64(max(after.AnonymousBytes, 1)))
	t.Logf("tuned, CPU:                     %8d ms in %s; the agent takes %.2f times that", cpu.Milliseconds(), idle, ms(used.CPU)/max(ms(cpu), 0.1))
}

func pidOf(program string) int {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(data)) != program {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			return pid
		}
	}
	return 0
}
