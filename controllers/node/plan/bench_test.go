package plan

import (
	"fmt"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// BenchmarkReport measures the plan after the report of one node, for this node alone or for all nodes of the cluster.
func BenchmarkReport(b *testing.B) {
	p := profile("a", nil)
	for i := range 64 {
		p.Spec.Node.Sysctls[fmt.Sprintf("net.ipv4.conf.eth%d.rp_filter", i)] = "1"
	}
	all := clusterOf(5000, p)
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		clientNode.Spec.Settings = nodesettings.Settings(&p)
		clientNode.Spec.Hash, clientNode.Spec.BootHash = nodesettings.Hashes(clientNode.Spec.Settings)
		clientNode.Status = v1alpha1.StorageClientNodeStatus{Hash: clientNode.Spec.Hash, BootID: node.Status.NodeInfo.BootID}
		for _, s := range clientNode.Spec.Settings {
			clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{Key: s.Key, Desired: s.Value, Observed: s.Value, State: v1alpha1.SettingInSync})
		}
	}
	for _, count := range []int{1, len(all.Nodes)} {
		b.Run(fmt.Sprintf("%d nodes", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, node := range all.Nodes[:count] {
					clientNode := all.ClientNodes[node.Name]
					s := Snapshot{Node: node, ClientNode: clientNode, AgentReady: true, Profiles: all.Profiles, Desired: all.Profiles.Desired(node, clientNode)}
					s.Report = fleet.ReportOf(node, clientNode, true, "")
					if got := For(s); !stays(got) {
						b.Fatalf("%#v", got)
					}
					Condition(s, clientNode, "", now)
					StorageCondition(s, clientNode, now)
				}
			}
		})
	}
}
