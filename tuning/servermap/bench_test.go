package servermap

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// BenchmarkBuild5000Nodes summarizes 5,000 nodes with 16 mounts each, of 20 servers, like every scrape of the manager's metrics.
func BenchmarkBuild5000Nodes(b *testing.B) {
	nodes := make([]v1alpha1.StorageClientNode, 5000)
	for i := range nodes {
		nodes[i].ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}
		nodes[i].Status.NFS4ClientName = nodes[i].Name
		for k := range 16 {
			server := fmt.Sprintf("filer%d", (i+k)%20)
			if k < 4 {
				nodes[i].Status.Servers = append(nodes[i].Status.Servers, v1alpha1.ServerStatus{Server: server, Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering, Connections: 4})
			}
			nodes[i].Status.Mounts = append(nodes[i].Status.Mounts, v1alpha1.MountStatus{
				MountPoint: fmt.Sprintf("/m/%d", k), Server: fmt.Sprintf("filer%d", (i+k%4)%20), Protocol: "NFSv4.1", Volume: fmt.Sprintf("pv-%d", (16*i+k)%20000), Connections: 4,
				Options: []string{"rw", "vers=4.1", "rsize=1048576", "wsize=1048576", "hard", "proto=tcp", "nconnect=4", "timeo=600", "retrans=2", "sec=sys", "local_lock=none"},
			})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if servers := Build(nodes, nil); len(servers) != 20 {
			b.Fatalf("got %d servers", len(servers))
		}
	}
}
