package plan

import (
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

// BenchmarkPlan5000Nodes has 20 of 10,000 volumes mounted on each node, half of them with a read-ahead. Usually all nodes have their
// desired volumes. Compare such a pass with the sub-benchmark that only reads the mounts.
func BenchmarkPlan5000Nodes(b *testing.B) {
	const nodes, volumes, perNode = 5_000, 10_000, 20
	mounted := map[string]volumeplan.Mounted{}
	for i := range volumes {
		m := volumeplan.Mounted{Options: []string{"actimeo=30", "hard", "nconnect=4", "nocto"}}
		if i%2 == 0 {
			m.ReadAhead = ahead(15360)
		}
		mounted[fmt.Sprintf("pv-%05d", i)] = m
	}
	s := Snapshot{Mounted: mounted, Rollouts: rollouts(), Now: noon}
	for i := range nodes {
		var names []string
		var list []v1alpha1.NodeVolume
		for j := range perNode {
			name := fmt.Sprintf("pv-%05d", (i*perNode+j)%volumes)
			names = append(names, name)
			v := nodeVolume(name, 0, mounted[name].Options...)
			if mounted[name].ReadAhead != nil {
				v.ReadAheadKiB = ptr.To[int32](15360)
			}
			list = append(list, v)
		}
		n := nodeWith(fmt.Sprintf("node-%04d", i), names...).with(list...)
		for j := range n.ClientNode.Status.Mounts {
			n.ClientNode.Status.Mounts[j].ReadAheadKiB = ptr.Deref(list[j].ReadAheadKiB, 128)
		}
		s.Nodes = append(s.Nodes, n)
	}
	b.Run("read mounts", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, n := range s.Nodes {
				if len(volumesOf(n.ClientNode)) != perNode {
					b.Fatal("got missing volumes")
				}
			}
		}
	})
	b.Run("nothing to list", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if lists := For(s).Lists; len(lists) != 0 {
				b.Fatalf("got %d nodes with a list", len(lists))
			}
		}
	})
	b.Run("all nodes to list", func(b *testing.B) {
		for i := range s.Nodes {
			s.Nodes[i].ClientNode.Spec.Volumes = nil
		}
		b.ReportAllocs()
		for b.Loop() {
			if lists := For(s).Lists; len(lists) != nodes {
				b.Fatalf("got %d nodes with a list", len(lists))
			}
		}
	})
}
