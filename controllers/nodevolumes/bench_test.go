package nodevolumes

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// BenchmarkPlan5000Nodes has 20 of 10,000 volumes mounted on each node, every other one with a read-ahead. A pass in which
// all nodes have what they are to have, the usual one, is to be measured against the bare look at what is mounted.
func BenchmarkPlan5000Nodes(b *testing.B) {
	const nodes, volumes, perNode = 5_000, 10_000, 20
	mounted := map[string]plan.Mounted{}
	for i := range volumes {
		m := plan.Mounted{Options: []string{"actimeo=30", "hard", "nconnect=4", "nocto"}}
		if i%2 == 0 {
			m.ReadAhead = ahead(15360)
		}
		mounted[fmt.Sprintf("pv-%05d", i)] = m
	}
	p := &planner{mounted: mounted, profiles: rollouts(), now: noon, since: map[carrier]time.Time{}}
	for i := range nodes {
		var names []string
		var list []v1alpha1.NodeVolume
		for j := range perNode {
			name := fmt.Sprintf("pv-%05d", (i*perNode+j)%volumes)
			names = append(names, name)
			v := told(name, 0, mounted[name].Options...)
			if mounted[name].ReadAhead != nil {
				v.ReadAheadKiB = ptr.To[int32](15360)
			}
			list = append(list, v)
		}
		n := on(fmt.Sprintf("node-%04d", i), names...).with(list...)
		for j := range n.clientNode.Status.Mounts {
			n.clientNode.Status.Mounts[j].ReadAheadKiB = ptr.Deref(list[j].ReadAheadKiB, 128)
		}
		p.nodes = append(p.nodes, n)
	}
	b.Run("look at mounts", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, n := range p.nodes {
				if len(volumesOf(n.clientNode)) != perNode {
					b.Fatal("volumes are missing")
				}
			}
		}
	})
	b.Run("nothing to tell", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if lists, _ := p.planLists(); len(lists) != 0 {
				b.Fatalf("%d nodes are told something", len(lists))
			}
		}
	})
	b.Run("all nodes to tell", func(b *testing.B) {
		for i := range p.nodes {
			p.nodes[i].clientNode.Spec.Volumes = nil
		}
		b.ReportAllocs()
		for b.Loop() {
			if lists, _ := p.planLists(); len(lists) != nodes {
				b.Fatalf("%d nodes are told something", len(lists))
			}
		}
	})
}
