package plan

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

// askRestore evaluates the release of one node, and releases the node if permitted.
func (r *remembering) askRestore(n int, at time.Time) Step {
	got := r.askFor(n, Write{Limited: true}, usualLimits, at)
	if writes(got) {
		name := r.all.Nodes[n].Name
		released := r.all.ClientNodes[name].DeepCopy()
		released.Spec.Release, released.ResourceVersion = true, "released"
		r.all.ClientNodes[name] = released
	}
	return got
}

func (r *remembering) restoreAll(at time.Time) (restored int) {
	for n := range r.all.Nodes {
		if !r.all.ClientNodes[r.all.Nodes[n].Name].Spec.Release && writes(r.askRestore(n, at)) {
			restored++
		}
	}
	return restored
}

func leavingFleet() *remembering {
	return &remembering{all: clusterOf(100, profile("a", func(p *v1alpha1.StorageClientProfile) {
		leaving(p)
		p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromString("10%"))
	}))}
}

// A hundred nodes have settings of a deleted profile. The nodes share one read of all nodes, both the admitted and the waiting ones.
func TestRestoresShareOneLimit(t *testing.T) {
	r := leavingFleet()
	if restored := r.restoreAll(now); restored != 10 || r.reads != 1 {
		t.Errorf("got %d nodes restored with %d reads of all nodes, want 10 with one read", restored, r.reads)
	}
	if restored := r.restoreAll(now.Add(VerdictAge - 1)); restored != 0 || r.reads != 1 {
		t.Errorf("got %d more nodes restored within a second with %d reads, want none", restored, r.reads)
	}
	for n := range 4 {
		r.all.ClientNodes[r.all.Nodes[n].Name].Status.Restored = true
	}
	if restored := r.restoreAll(now.Add(VerdictAge)); restored != 4 || r.reads != 2 {
		t.Errorf("after four finished restores: got %d more with %d reads, want 4 with 2", restored, r.reads)
	}
}

func TestARestoreOfAChangedNodeIsEvaluatedAgain(t *testing.T) {
	r := leavingFleet()
	if got := r.askRestore(0, now); !writes(got) {
		t.Fatalf("the first node: got %q", noteOf(got))
	}
	// The gate's verdict is based on a snapshot without this change.
	changed := r.all.ClientNodes[r.all.Nodes[1].Name].DeepCopy()
	changed.ResourceVersion = "2"
	seen := r.all.ClientNodes
	r.all.ClientNodes = map[string]*v1alpha1.StorageClientNode{}
	for name, clientNode := range seen {
		r.all.ClientNodes[name] = clientNode
	}
	r.all.ClientNodes[changed.Name] = changed
	if r.askRestore(1, now); r.reads != 2 {
		t.Errorf("got all nodes read %d times, want once more", r.reads)
	}
}
