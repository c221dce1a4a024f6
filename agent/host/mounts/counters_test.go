package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/counters"
)

const statsOfTwoServers = `device 10.0.0.1:/a mounted on /mnt/a with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.1
	age:	12
	xprt:	tcp 0 1 2 0 7 57 55 1 57 0 2 0 0
	xprt:	tcp 0 1 1 0 0 40 40 0 57 0 2 0 0
	per-op statistics
	        READ: 8 9 0 1288 8397700 1 22 24 0
	 EXCHANGE_ID: 4 4 0 10 10 0 1 1 0
	CREATE_SESSION: 5 5 0 10 10 0 1 1 2
device 10.0.0.1:/b mounted on /mnt/b with fstype nfs4 statvers=1.1
	xprt:	tcp 0 1 2 0 7 57 55 1 57 0 2 0 0
	xprt:	tcp 0 1 1 0 0 40 40 0 57 0 2 0 0
device 127.0.0.1:/ mounted on /mnt/efs with fstype nfs4 statvers=1.1
	xprt:	tcp 0 1 1 0 0 3 3 0 57 0 2 0 0
device old:/x mounted on /mnt/udp with fstype nfs statvers=1.1
	xprt:	udp 700 1 9 8 0 8 0 2 0 0
	xprt:	tcp
`

const mountinfoOfServers = `30 1 0:50 / /mnt/a rw - nfs4 10.0.0.1:/a rw,vers=4.1,proto=tcp,addr=10.0.0.1
31 1 0:51 / /mnt/b rw - nfs4 10.0.0.1:/b rw,vers=4.1,proto=tcp,addr=10.0.0.1
32 1 0:52 / /mnt/efs rw - nfs4 127.0.0.1:/ rw,vers=4.1,proto=tcp,port=20049,addr=127.0.0.1
33 1 0:53 / /mnt/udp rw - nfs old:/x rw,vers=3,proto=udp,addr=10.0.0.7
34 1 0:54 / /mnt/smb rw - cifs //Filer/share rw,addr=10.0.0.9
35 1 0:55 / /mnt/xfs rw - xfs /dev/sdb rw
`

// The text of DebugData follows cifs_debug_data_proc_show of Linux 6.1. It is not recorded.
const debugData = `Display Internal CIFS Data Structures for Debugging
---------------------------------------------------
CIFS Version 2.40
Servers:
1) ConnectionId: 0x1 Hostname: filer
Number of credits: 510,1,1 Dialect 0x311
TCP status: 1 Instance: 2
Local Users To Server: 1 SecMode: 0x1 Req On Wire: 2 Net namespace: 4026531840
In Send: 0 In MaxReq Wait: 0

	Sessions:
	1) Address: 10.0.0.9 Uses: 1 Capability: 0x300067	Session Status: 1
	Security type: RawNTLMSSP  SessionId: 0x1

		Channel: 2 ConnectionId: 0x2
		Number of credits: 510,1,1 Dialect 0x311
		TCP status: 3 Instance: 1

	Shares:
	0) IPC: \\filer\IPC$ Mounts: 1 DevInfo: 0x0 Attributes: 0x0
	1) \\filer\share Mounts: 1 DevInfo: 0x20 Attributes: 0x5007f

	MIDs:
	State: 2 com: 8 pid: 77 cbdata: 00000000 mid 41
	State: 2 com: 15 pid: 78 cbdata: 00000000 mid 42
--
`

func TestCounters(t *testing.T) {
	files := map[string]string{
		"/proc/1/mountinfo": mountinfoOfServers, "/proc/1/mountstats": statsOfTwoServers, sessionsFile: debugData,
		sharesFile: "1) \\\\Filer\\share\nReads: 7 total 0 failed\n",
		"/sys/kernel/sunrpc/xprt-switches/switch-1/xprt-1-tcp/dstaddr":   "10.0.0.1\n",
		"/sys/kernel/sunrpc/xprt-switches/switch-1/xprt-1-tcp/xprt_info": "last_used=4294893128\npending_q_len=3\ndst_port=2049\n",
		// The mount is not connected, or connects to another server.
		"/sys/kernel/sunrpc/xprt-switches/switch-1/xprt-2-tcp/dstaddr":   "10.0.0.1\n",
		"/sys/kernel/sunrpc/xprt-switches/switch-1/xprt-2-tcp/xprt_info": "<closed>\n",
		"/sys/kernel/sunrpc/xprt-switches/switch-2/xprt-3-tcp/dstaddr":   "10.0.0.1\n",
		"/sys/kernel/sunrpc/xprt-switches/switch-2/xprt-3-tcp/xprt_info": "last_used=5\npending_q_len=1\ndst_port=111\n",
		rpcClientsDir + "/2/xprt/info":                                   "netid: tcp\naddr:  10.0.0.1\nport:  2049\nstate: 0x201\n",
		rpcClientsDir + "/2/tasks": "  101 5a81      0 0x2 0x9f3c       0 nfs4_call_sync_ops [nfsv4] nfsv4 GETATTR a:call_status [sunrpc] q:xprt_pending\n" +
			"  102 5a81      0 0x2 0x9f3d       0 rpc_default_ops nfsv4 READ a:call_status q:xprt_pending\n" +
			"  103 5a81      0 0x2 0x9f3e       0 nlmclnt_ops lockdv4 LOCK a:call_status q:xprt_pending\nnonsense\n",
		rpcClientsDir + "/3/tasks": "",
	}
	got, err := reader(t, files).Counters()
	check.NoError(t, err)
	want := []ServerCounters{
		{
			Ask:    connect.Server{Name: "10.0.0.1", Address: "10.0.0.1:2049", Protocol: connect.NFS, Version: 4},
			Server: "10.0.0.1", Protocol: connect.NFS,
			Activity: counters.Activity{
				Address: "10.0.0.1:2049", RequestsKnown: true, Identified: 4, RejectedSessions: 2,
				Connections: []counters.Connection{
					{ID: "10.0.0.1:2049 4.1 tcp  0", Sends: 57, Responses: 56, Connects: 2, Idle: 7 * time.Second},
					{ID: "10.0.0.1:2049 4.1 tcp  1", Sends: 40, Responses: 40, Connects: 1},
				},
				Queues:   []counters.Queue{{ID: "switch-1/xprt-1-tcp", LastUsed: 4294893128, Pending: 3}},
				Requests: []counters.Request{{ID: "2/101/0x9f3c", Operation: "GETATTR"}, {ID: "2/102/0x9f3d", Operation: "READ"}},
			},
		},
		{
			Ask:    connect.Server{Name: "127.0.0.1:20049", Address: "127.0.0.1:20049", Protocol: connect.NFS, Version: 4},
			Server: "127.0.0.1:20049", Protocol: connect.NFS,
			Activity: counters.Activity{
				Address: "127.0.0.1:20049", Tunnel: true, RequestsKnown: true,
				Connections: []counters.Connection{{ID: "127.0.0.1:20049 4.1 tcp  0", Sends: 3, Responses: 3, Connects: 1}},
			},
		},
		{
			Ask:    connect.Server{Name: "filer", Address: "10.0.0.9:445", Protocol: connect.SMB},
			Server: "filer", Protocol: connect.SMB,
			Activity: counters.Activity{
				Address: "10.0.0.9:445", RequestsKnown: true, Operations: 7,
				Connections: []counters.Connection{{ID: "0/0"}, {ID: "0/1", Down: true}},
				Requests:    []counters.Request{{ID: "0/41", Operation: "READ"}, {ID: "0/42", Operation: "CHANGE_NOTIFY"}},
			},
		},
		{
			Server: "old", Protocol: connect.NFS,
			Activity: counters.Activity{
				Address: "10.0.0.7:2049", RequestsKnown: true,
				Connections: []counters.Connection{{ID: "10.0.0.7:2049 3 udp  0", Sends: 9, Responses: 8}},
			},
		},
	}
	check.Equal(t, "counters", want, got)
}

func TestCountersWithoutTheKernelsHelp(t *testing.T) {
	got, err := reader(t, map[string]string{"/proc/1/mountinfo": mountinfoOfServers}).Counters()
	check.NoError(t, err)
	if len(got) != 4 {
		t.Fatalf("unexpected number of servers: %d", len(got))
	}
	for _, s := range got {
		if s.RequestsKnown || len(s.Connections) > 0 {
			t.Errorf("%s: got %d connections, known requests %v", s.Server, len(s.Connections), s.RequestsKnown)
		}
	}
	if _, err := reader(t, nil).Counters(); err == nil {
		t.Error("no error without a mount table")
	}
}

func TestSessionsOfOlderKernels(t *testing.T) {
	got := parseSessions("Servers:\n1) Name: 10.0.0.9 Uses: 1 Capability: 0x300067\tSession Status: 1\n\tTCP status: 4 Instance: 1\n\tMIDs:\n\tState: 2 com: 999 pid: 7 cbdata: 0 mid 3\n")
	if len(got) != 1 || got[0].name != "10.0.0.9" || !got[0].connections[0].Down || got[0].requests[0].ID != "3" {
		t.Errorf("got sessions %+v", got)
	}
}

// Recorded on Linux 6.1 of Debian 12 while the NFS service was stopped: one minute after the stop, and again 20 s later.
func TestPendingRequestKeepsItsIdentity(t *testing.T) {
	want := []counters.Request{
		{ID: "4/15/0x6b775c33", Operation: "SEQUENCE"}, {ID: "4/593/0x69775c33", Operation: "WRITE"}, {ID: "4/595/0x18f6e574", Operation: "OPEN_NOATTR"},
	}
	for _, name := range []string{"tasks-nfsd-stopped", "tasks-nfsd-stopped-20s-later"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		check.NoError(t, err)
		check.Equal(t, name, want, parseTasks("4", string(data)))
	}
	line := "xprt:	tcp 0 0 181 0 0 331 330 0 390 0 3 1 2"
	if c, ok := parseTransportLine(strings.Fields(line)); !ok || c.Connection != (counters.Connection{Sends: 331, Responses: 330, Connects: 181}) {
		t.Errorf("got %+v", c)
	}
}

func TestHandlesAreCountedForEachMount(t *testing.T) {
	const operations = "\tper-op statistics\n\t     GETATTR: 10 10 0 1 1 0 0 0 4\n\t      ACCESS: 5 5 0 1 1 0 0 0 1\n\t      STATFS: 2 2 0 1 1 0 0 0\n\t       WRITE: 9 9 0 1 1 0 0 0 9\n"
	got, err := reader(t, map[string]string{
		"/proc/1/mountinfo": mountinfoOfServers,
		"/proc/1/mountstats": "device 10.0.0.1:/a mounted on /mnt/a with fstype nfs4 statvers=1.1\n" + operations +
			"device 10.0.0.1:/b mounted on /mnt/b with fstype nfs4 statvers=1.1\n" + operations,
	}).Counters()
	check.NoError(t, err)
	want := []counters.HandleRequests{{MountPoint: "/mnt/a", Ended: 17, InErrors: 5}, {MountPoint: "/mnt/b", Ended: 17, InErrors: 5}}
	check.Equal(t, "handles", want, got[0].Handles)
}

func TestEachTunnelIsAServer(t *testing.T) {
	var b strings.Builder
	for i, port := range []string{"20326", "20248", "20248"} {
		fmt.Fprintf(&b, "2%d 22 0:6%d / /var/lib/kubelet/pods/u%d/volumes/kubernetes.io~csi/pv%d/mount rw shared:91 - nfs4 127.0.0.1:/ "+
			"rw,vers=4.1,proto=tcp,port=%s,clientaddr=127.0.0.1,addr=127.0.0.1\n", i, i, i, i, port)
	}
	lines := b.String() + "30 22 0:70 / /m rw - nfs4 [::1]:/ rw,vers=4.1,proto=tcp6,port=20400,addr=::1\n" +
		"31 22 0:71 / /n rw - nfs4 127.0.0.1:/local rw,vers=4.1,proto=tcp,addr=127.0.0.1\n" +
		"32 22 0:72 / /o rw - nfs4 filer:/x rw,vers=4.1,proto=tcp,port=2050,addr=10.0.0.1\n"
	r := reader(t, map[string]string{"/proc/1/mountinfo": lines})
	found, err := r.Counters()
	check.NoError(t, err)
	got := map[string]string{}
	for _, s := range found {
		got[s.Server] = s.Ask.Address
	}
	want := map[string]string{
		"127.0.0.1:20326": "127.0.0.1:20326", "127.0.0.1:20248": "127.0.0.1:20248", "[::1]:20400": "[::1]:20400", "127.0.0.1": "127.0.0.1:2049",
		"filer": "10.0.0.1:2050",
	}
	check.Equal(t, "servers with the address that is queried", want, got)
	table, err := r.Read()
	check.NoError(t, err)
	volumes := map[string][]string{}
	for _, m := range table.Mounts {
		volumes[m.Server] = append(volumes[m.Server], m.Volume)
	}
	check.Equal(t, "volumes of a tunnel", []string{"pv1", "pv2"}, volumes["127.0.0.1:20248"])
}

func TestSourcesAreCutLikeTheKernelCutsThem(t *testing.T) {
	for source, want := range map[string][2]string{
		"filer:/a":               {"filer", "/a"},
		"filer:a":                {"filer", "a"},
		"127.0.0.1:au10025--dev": {"127.0.0.1", "au10025--dev"},
		"filer:/":                {"filer", "/"},
		"filer:":                 {"filer", ""},
		"filer:/a:/b":            {"filer", "/a:/b"},
		"filer:a:/b":             {"filer", "a:/b"},
		"filer://a":              {"filer", "//a"},
		"[fe80::1%eth0]:/a":      {"fe80::1%eth0", "/a"},
		"[2001:db8::1]:a":        {"2001:db8::1", "a"},
		"[2001:db8::1]:/a]:/b":   {"2001:db8::1", "/a]:/b"},
		"filer,other:/a":         {"filer", "/a"},
		"filer":                  {"filer", ""},
	} {
		if server, export := splitSource(Entry{FSType: "nfs4", Source: source}); server != want[0] || export != want[1] {
			t.Errorf("%s: got %q and %q, want %q", source, server, export, want)
		}
	}
	for source, want := range map[string][2]string{"//filer/a/b": {"filer", "/a/b"}, `\\filer\a`: {"filer", "/a"}, "//filer": {"filer", "/"}} {
		if server, export := splitSource(Entry{FSType: "cifs", Source: source}); server != want[0] || export != want[1] {
			t.Errorf("%s: got %q and %q, want %q", source, server, export, want)
		}
	}
}
