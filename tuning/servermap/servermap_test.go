package servermap

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/lists"
)

func node(name string, servers []v1alpha1.ServerStatus, mounts ...v1alpha1.MountStatus) v1alpha1.StorageClientNode {
	n := v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Servers, n.Status.Mounts = servers, mounts
	return n
}

func mount(server, protocol, volume string, connections, slots int32, options ...string) v1alpha1.MountStatus {
	return v1alpha1.MountStatus{Server: server, Protocol: protocol, Volume: volume, Connections: connections, SlotLimit: slots, Options: options}
}

func TestBuild(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
	a := node("a", []v1alpha1.ServerStatus{
		{Server: "filer1", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering, Connections: 4, Forgetting: true},
		{Server: "filer2", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerSilent, Reason: v1alpha1.ServerReasonUnreachable, Connections: 1, Since: &since},
	},
		// Two mounts of one client have its connections and its session together.
		mount("filer1", "NFSv4.1", "pv1", 4, 65536, "rw", "vers=4.1", "nconnect=4", "hard", "rsize=1"),
		mount("filer1", "NFSv4.1", "pv2", 4, 65536, "rw", "vers=4.1", "nconnect=4", "hard", "rsize=2"),
		mount("filer2", "NFSv3", "pv3", 1, 128, "vers=3", "soft"),
		mount("", "xfs", "", 0, 0, "noatime"),
	)
	a.Status.Settings = []v1alpha1.SettingStatus{{Key: sessionSlotsKey, Observed: "180"}}
	// A node with more servers than it reports.
	b := node("b", nil, mount("filer1", "NFSv4.1", "pv1", 1, 65536, "vers=4.1", "hard"), mount("smb1", "SMB3.1.1", "pv9", 1, 0, "vers=3.1.1"))
	profiles := []v1alpha1.StorageClientProfile{
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ServerLimitsAnnotation: "connections=100,requests=200"}}},
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ServerLimitsAnnotation: "connections=4"}}},
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ServerLimitsAnnotation: "nonsense"}}}, {},
	}
	got := Build([]v1alpha1.StorageClientNode{b, a}, lists.Pointers(profiles))
	want := []Server{
		{
			Server: "filer2", Protocol: v1alpha1.ServerNFS, Nodes: 1, Connections: 1, RequestsPossible: 128, ConnectionsLimit: 4, RequestsLimit: 200,
			Versions: []string{"NFSv3"}, Volumes: []string{"pv3"},
			Failing: []Failing{{Node: "a", State: v1alpha1.ServerSilent, Reason: v1alpha1.ServerReasonUnreachable, Since: "2026-11-23T08:00:00Z"}},
		},
		{
			Server: "filer1", Protocol: v1alpha1.ServerNFS, Nodes: 2, Connections: 5, RequestsPossible: 244, ConnectionsLimit: 4, RequestsLimit: 200,
			Versions: []string{"NFSv4.1"}, Volumes: []string{"pv1", "pv2"}, Forgotten: []string{"a"},
			Variants: []Variant{{Option: "nconnect", Mounts: map[string]int{"4": 2, "-": 1}}},
		},
		{
			Server: "smb1", Protocol: v1alpha1.ServerSMB, Nodes: 1, Connections: 1, ConnectionsLimit: 4, RequestsLimit: 200,
			Versions: []string{"SMB3.1.1"}, Volumes: []string{"pv9"},
		},
	}
	check.Equal(t, "map", want, got)
	check.Equal(t, "Exceeds", "5 connections of 4", got[1].Exceeds())
	if got := want[0].Exceeds(); got != "" {
		t.Errorf("got Exceeds %q", got)
	}
	check.Equal(t, "variant", "nconnect: - on 1 mount, 4 on 2 mounts", want[1].Variants[0].String())
}

func TestNodesWithDuplicateNFSv4ClientIDs(t *testing.T) {
	nfs := func(server string) []v1alpha1.ServerStatus {
		return []v1alpha1.ServerStatus{{Server: server, Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering, Reason: v1alpha1.ServerReasonStaleHandles}}
	}
	nodes := []v1alpha1.StorageClientNode{node("d", nfs("filer2")), node("c", nfs("filer1")), node("b", nfs("filer1")), node("a", nfs("filer1")), node("e", nil), node("f", nil)}
	for i, name := range []string{"x", "id/x", "x", "x", "", ""} {
		nodes[i].Status.NFS4ClientName = name
	}
	check.Equal(t, "result", []DuplicateClientID{{Name: "x", Nodes: []string{"a", "b", "d"}}}, FindDuplicateClientIDs(nodes))
	servers := Build(nodes, nil)
	check.Equal(t, "volumes of filer1", []DuplicateClientID{{Name: "x", Nodes: []string{"a", "b"}}}, servers[0].DuplicateClientIDs)
	if diff := cmp.Diff([]string{"a", "b", "c"}, servers[0].Stale); diff != "" || servers[1].DuplicateClientIDs != nil {
		t.Errorf("stale (-want +got):\n%s\nduplicate client IDs of filer2: %v", diff, servers[1].DuplicateClientIDs)
	}
}

// Agents of the release before report servers as the mounts spell them.
func TestAServerInTwoSpellingsIsOneServer(t *testing.T) {
	got := Build([]v1alpha1.StorageClientNode{
		node("a", nil, mount("FILER.example.com.", "NFSv4.1", "pv1", 1, 64)), node("b", nil, mount("filer.example.com", "NFSv4.1", "pv2", 1, 64)),
	}, nil)
	if len(got) != 1 || got[0].Server != "filer.example.com" || got[0].Nodes != 2 {
		t.Errorf("got %+v, want one server", got)
	}
}

// A tunnel is a process on the node: the same address on another node leads to another server.
func TestATunnelBelongsToItsNode(t *testing.T) {
	for _, name := range []string{"127.0.0.1:20049", "127.0.0.2:20049", "[::1]:20049", "localhost:20050", "efs.local:20049", "127.0.0.1", "::1", "localhost", "[::ffff:127.0.0.1]:20049"} {
		server := []v1alpha1.ServerStatus{{Server: name, Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering, Connections: 1}}
		got := Build([]v1alpha1.StorageClientNode{
			node("a", server, mount(name, "NFSv4.1", "pv1", 1, 64)), node("b", server, mount(name, "NFSv4.1", "pv2", 1, 64)),
		}, nil)
		if len(got) != 2 || got[0].Server != name+" on a" || got[1].Server != name+" on b" || got[0].Nodes != 1 || got[0].Volumes[0] != "pv1" || got[0].Connections != 1 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	for _, name := range []string{"filer", "192.0.2.1", "fd00::2", "10.161.100.100", "fe80::1%eth0", "localhost.example.com"} {
		got := Build([]v1alpha1.StorageClientNode{node("a", nil, mount(name, "NFSv4.1", "pv1", 1, 64)), node("b", nil, mount(name, "NFSv4.1", "pv2", 1, 64))}, nil)
		if len(got) != 1 || got[0].Server != name || got[0].Nodes != 2 {
			t.Errorf("%s: got %+v, want one server", name, got)
		}
	}
}
