package simnode

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// mounted contains the files of a machine with one NFSv3 mount of a volume.
var mounted = map[string]string{
	"/proc/1/mountinfo": "29 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" +
		"300 29 0:52 / /var/lib/kubelet/pods/11111111-1111-4111-8111-111111111111/volumes/kubernetes.io~nfs/pv1 rw,relatime - nfs 10.0.0.1:/export/pv1 " +
		"rw,vers=3,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,nconnect=2,timeo=600,retrans=2,sec=sys,mountaddr=10.0.0.1,mountvers=3,mountport=20048,mountproto=tcp,local_lock=none,addr=10.0.0.1\n",
	"/proc/1/mountstats": "device 10.0.0.1:/export/pv1 mounted on /var/lib/kubelet/pods/11111111-1111-4111-8111-111111111111/volumes/kubernetes.io~nfs/pv1 with fstype nfs statvers=1.1\n" +
		"\topts:\trw,vers=3,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,hard,proto=tcp,nconnect=2,timeo=600,retrans=2,sec=sys,mountaddr=10.0.0.1,mountvers=3,mountport=20048,mountproto=tcp,local_lock=none\n" +
		"\tage:\t100\n\tbytes:\t11 22 33 44 5005 6006 77 88\n\tRPC iostats version: 1.1  p/v: 100003/3 (nfs)\n" +
		"\txprt:\ttcp 800 1 1 0 0 10 10 0 10 0 2 0 0\n\txprt:\ttcp 801 1 1 0 0 10 10 0 10 0 2 0 0\n" +
		"\tper-op statistics\n\t        READ: 40 45 2 800 9000 1500 2000 3600 3\n",
	"/sys/class/bdi/0:52/read_ahead_kb":                              "128\n",
	"/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-0-tcp/dstaddr":   "10.0.0.1\n",
	"/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-0-tcp/xprt_info": "max_num_slots=64\nmin_num_slots=2\nnum_reqs=2\nmain_xprt=1\nsrc_port=800\ndst_port=2049\n",
	"/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-1-tcp/dstaddr":   "10.0.0.1\n",
	"/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-1-tcp/xprt_info": "max_num_slots=64\nmin_num_slots=2\nnum_reqs=2\nmain_xprt=0\nsrc_port=801\ndst_port=2049\n",
}

// observer is the API of one agent. It returns a StorageClientNode, and the first status in which it is applied.
type observer struct {
	clientNode *v1alpha1.StorageClientNode
	carriedOut chan v1alpha1.StorageClientNodeStatus
	last       atomic.Pointer[v1alpha1.StorageClientNodeStatus]
}

func (o *observer) Get(context.Context) (*v1alpha1.StorageClientNode, time.Time, error) {
	return o.clientNode.DeepCopy(), time.Now(), nil
}

func (o *observer) Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode)) {
	changed(o.clientNode.DeepCopy())
	<-ctx.Done()
}

func (o *observer) Prove(context.Context, int64, v1alpha1.StorageClientNodeStatus) error { return nil }

func (o *observer) ApplyStatus(_ context.Context, status v1alpha1.StorageClientNodeStatus, _ string) error {
	o.last.Store(&status)
	for _, s := range status.Settings {
		// The slot table applies to new connections.
		if s.State != v1alpha1.SettingInSync && s.TakesEffect != v1alpha1.EffectNewTransport {
			return nil
		}
	}
	if status.Hash == o.clientNode.Spec.Hash {
		select {
		case o.carriedOut <- status:
		default:
		}
	}
	return nil
}

// noReboots is a host that must not be rebooted in this test.
type noReboots struct{ t *testing.T }

func (noReboots) FindHolders(context.Context) ([]string, error) { return nil, nil }

func (r noReboots) Reboot(context.Context) error { r.t.Error("rebooted"); return nil }

// tune applies settings on a machine with an agent, and returns its metrics: values by metric and labels.
func tune(t *testing.T, m *Machine, settings map[string]string) map[string]float64 {
	t.Helper()
	fs, err := host.OpenFS(m.dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	api := &observer{clientNode: &v1alpha1.StorageClientNode{}, carriedOut: make(chan v1alpha1.StorageClientNodeStatus, 1)}
	api.clientNode.Name, api.clientNode.UID, api.clientNode.Generation, api.clientNode.ResourceVersion = "n1", "u", 1, "1"
	api.clientNode.Spec.Hash, api.clientNode.Spec.Canary = "h", true
	for key, value := range settings {
		api.clientNode.Spec.Settings = append(api.clientNode.Spec.Settings, v1alpha1.NodeSetting{Key: key, Value: value, Profile: "p", OnRemoval: v1alpha1.DeletionRestore})
	}
	machine := agent.NewHost(fs, commands{machine: m}, noReboots{t}, mounts.DefaultKubeletDir)
	machine.AskServer = func(context.Context, connect.Server) error { return nil }
	a, err := agent.New(agent.Config{Host: machine, API: api, Clock: clock.RealClock{}})
	check.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	<-api.carriedOut
	handler, err := metrics.NewHandler(append(a.Metrics(), &metrics.Collector{Mounts: mounts.NewReader(fs, mounts.DefaultKubeletDir), Log: logr.Discard()})...)
	check.NoError(t, err)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	samples := map[string]float64{}
	for line := range strings.Lines(recorder.Body.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		// The agent reads servers in the background, so their metrics depend on time.
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "storageclient_agent_server_") || !ok {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		samples[name] = number
	}
	return samples
}

// The test computes the expected metrics from the files of the machine, without the code of the agent.
func TestMetricsMatchTheFilesOfTheMachine(t *testing.T) {
	m, err := NewMachine(t.TempDir(), Options{})
	check.NoError(t, err)
	for name, data := range mounted {
		check.NoError(t, m.writeFile(name, data))
	}
	const slots = "module/sunrpc/tcp_max_slot_table_entries"
	settings := map[string]string{
		"sysctl/net.ipv4.tcp_rmem": "4096 131072 33554432", "sysctl/vm.dirty_ratio": "30",
		slots: "128", "readAhead/nfs": "1024",
	}
	samples := tune(t, m, settings)
	files := map[string]string{
		"sysctl/net.ipv4.tcp_rmem": "/proc/sys/net/ipv4/tcp_rmem", "sysctl/vm.dirty_ratio": "/proc/sys/vm/dirty_ratio",
		slots: "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries", "readAhead/nfs": "/sys/class/bdi/0:52/read_ahead_kb",
	}
	want := map[string]float64{}
	numbers := func(file string) []string {
		data, err := os.ReadFile(m.hostPath(file))
		check.NoError(t, err)
		return strings.Fields(string(data))
	}
	// The effective value of the slot table applies to open connections. The file contains the value for new connections.
	_, limit, _ := strings.Cut(numbers("/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-0-tcp/xprt_info")[0], "max_num_slots=")
	openSlots, err := strconv.ParseFloat(limit, 64)
	check.NoError(t, err)
	for key, file := range files {
		state := v1alpha1.SettingInSync
		if key == slots {
			state = v1alpha1.SettingPending
		}
		want[`storageclient_agent_setting_state{key="`+key+`",state="`+string(state)+`"}`] = 1
		for i, word := range numbers(file) {
			value, err := strconv.ParseFloat(word, 64)
			check.NoError(t, err)
			if key == slots {
				value = openSlots
			}
			want[`storageclient_agent_setting_value{key="`+key+`",place="`+strconv.Itoa(i+1)+`"}`] = value
		}
		if got := strings.Join(numbers(file), " "); got != settings[key] {
			t.Errorf("%s holds %s, want %s", file, got, settings[key])
		}
	}
	kib, err := strconv.ParseFloat(numbers("/sys/class/bdi/0:52/read_ahead_kb")[0], 64)
	check.NoError(t, err)
	mount, read := `{device="0:52",export="/export/pv1",server="10.0.0.1",volume="pv1"}`, `{device="0:52",export="/export/pv1",operation="READ",server="10.0.0.1",volume="pv1"}`
	maps.Copy(want, map[string]float64{
		"storageclient_mount_read_ahead_bytes" + mount: kib * 1024, "storageclient_mount_nconnect" + mount: 2, "storageclient_mount_connections" + mount: 2,
		"storageclient_mount_slot_limit" + mount: openSlots, "storageclient_mount_read_bytes_total" + mount: 5005, "storageclient_mount_written_bytes_total" + mount: 6006,
		"storageclient_mount_operations_total" + read: 40, "storageclient_mount_operation_retransmissions_total" + read: 5,
		"storageclient_mount_operation_major_timeouts_total" + read: 2, "storageclient_mount_operation_errors_total" + read: 3,
		"storageclient_mount_operation_queue_seconds_total" + read: 1.5, "storageclient_mount_operation_round_trip_seconds_total" + read: 2,
		"storageclient_mount_operation_execution_seconds_total" + read:                                                 3.6,
		`storageclient_mount_info{device="0:52",export="/export/pv1",protocol="NFSv3",server="10.0.0.1",volume="pv1"}`: 1,
		"storageclient_mounts_omitted": 0, "storageclient_mounts_success": 1,
	})
	if diff := cmp.Diff(want, samples); diff != "" {
		t.Errorf("metrics (-files +metrics):\n%s", diff)
	}
}
