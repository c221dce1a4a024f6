package plan

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
)

// remembering wraps a gate that caches its verdicts, like the reconciler does. It evaluates one node after another and counts the reads of
// all nodes.
type remembering struct {
	Gate
	all   *fleet.Snapshot
	reads int
	// readTime is the duration of one read of all nodes.
	readTime time.Duration
}

func (r *remembering) ask(n int, limits Limits, at time.Time) Step {
	got := r.askFor(n, Write{Gated: true}, limits, at)
	if writes(got) {
		give(r.all, n)
	}
	return got
}

// askFor evaluates a plan of the node. If the plan is admitted, it clears the cached verdicts that the change makes invalid.
func (r *remembering) askFor(n int, next Write, limits Limits, at time.Time) Step {
	node := r.all.Nodes[n]
	clientNode := r.all.ClientNodes[node.Name]
	s := Snapshot{Node: node, ClientNode: clientNode, AgentReady: r.all.Ready[node.Name], Profiles: r.all.Profiles, Limits: limits}
	s.Desired = r.all.Profiles.Desired(node, clientNode)
	clock := at
	got, _ := r.Evaluate(s, next, func() time.Time { return clock }, func() (fleet.Snapshot, error) {
		r.reads++
		clock = clock.Add(r.readTime)
		return *r.all, nil
	})
	if writes(got) {
		r.Forget(s)
	}
	return got
}

func (r *remembering) admitAll(limits Limits, at time.Time) (admitted int) {
	for n := range r.all.Nodes {
		if r.all.ClientNodes[r.all.Nodes[n].Name].Spec.Hash == "h" && writes(r.ask(n, limits, at)) {
			admitted++
		}
	}
	return admitted
}

func TestARoundReadsTheFleetOnce(t *testing.T) {
	r := &remembering{all: clusterOf(100, profile("a", recklessly))}
	if admitted := r.admitAll(usualLimits, now); admitted != 1 {
		t.Fatalf("got %d canaries, want 1", admitted)
	}
	take(r.all, 0, time.Hour)
	r.Gate, r.reads = Gate{}, 0
	if admitted := r.admitAll(usualLimits, now); admitted != 10 {
		t.Errorf("got %d nodes admitted at once, want a tenth of the cluster", admitted)
	}
	if r.reads != 1 {
		t.Errorf("got %d reads of all nodes for 10 admitted and 89 waiting nodes, want one", r.reads)
	}
}

func TestARoundReadsTheFleetOnceForManyProfiles(t *testing.T) {
	profiles := []v1alpha1.StorageClientProfile{profile("all", recklessly)}
	for pool := range 10 {
		profiles = append(profiles, profile(fmt.Sprintf("pool-%d", pool), func(p *v1alpha1.StorageClientProfile) {
			recklessly(p)
			p.Spec.NodeSelector, p.Spec.AllNodes = metav1.LabelSelector{MatchLabels: map[string]string{"pool": strconv.Itoa(pool)}}, false
		}))
	}
	r := &remembering{all: clusterOf(100, profiles...)}
	for n := range r.all.Nodes {
		r.all.Nodes[n].Labels["pool"] = strconv.Itoa(n % 10)
	}
	for pool := range 10 {
		take(r.all, pool, time.Hour)
	}
	if admitted := r.admitAll(Limits{MaxConcurrentLive: intstr.FromString("40%")}, now); admitted != 40 || r.reads > 2 {
		t.Errorf("got %d nodes admitted with %d reads of all nodes; want 40 with the first read, and at most one more read", admitted, r.reads)
	}
}

func TestARoundEnds(t *testing.T) {
	freshAfter := func(readTime time.Duration) *remembering {
		r := &remembering{all: clusterOf(100, profile("a", recklessly)), readTime: readTime}
		take(r.all, 0, time.Hour)
		if got := r.ask(1, usualLimits, now); !writes(got) {
			t.Fatalf("the first node: got %q", noteOf(got))
		}
		r.reads, r.readTime = 0, 0
		return r
	}
	fresh := func() *remembering { return freshAfter(0) }
	fail := func(r *remembering) {
		clientNode := r.all.ClientNodes[r.all.Nodes[1].Name]
		clientNode.Spec.Settings = []v1alpha1.NodeSetting{setting(rmem, "a", v1alpha1.DeletionRestore)}
		clientNode.Status.Hash = clientNode.Spec.Hash
		clientNode.Status.Settings = []v1alpha1.SettingStatus{{Key: rmem, State: v1alpha1.SettingFailed}}
	}
	t.Run("a node shortly after uses the same read", func(t *testing.T) {
		r := fresh()
		if got := r.ask(2, usualLimits, now.Add(RoundAge-1)); !writes(got) || r.reads != 0 {
			t.Errorf("got %q with %d reads", noteOf(got), r.reads)
		}
	})
	for readTime, want := range map[time.Duration]time.Duration{0: RoundAge, 20 * time.Millisecond: RoundAge, 50 * time.Millisecond: 500 * time.Millisecond, time.Minute: MaxRoundAge} {
		t.Run("after a read of "+readTime.String()+" the round lasts "+want.String(), func(t *testing.T) {
			r := freshAfter(readTime)
			if got := r.ask(2, usualLimits, now.Add(want-1)); !writes(got) || r.reads != 0 {
				t.Errorf("got %q with %d reads before", noteOf(got), r.reads)
			}
			fail(r)
			if got := r.ask(3, usualLimits, now.Add(want)); !stays(got) || r.reads != 1 {
				t.Errorf("got step %v with %d reads after", got, r.reads)
			}
		})
	}
	t.Run("a failure stops the nodes after it", func(t *testing.T) {
		r := fresh()
		fail(r)
		if got := r.ask(2, usualLimits, now.Add(RoundAge)); !stays(got) || r.reads != 1 {
			t.Errorf("got step %v with %d reads", got, r.reads)
		}
	})
	t.Run("a node is not admitted twice", func(t *testing.T) {
		r := fresh()
		r.all.ClientNodes[r.all.Nodes[1].Name].Spec.Hash = "h"
		if r.ask(1, usualLimits, now); r.reads != 1 {
			t.Errorf("got %d reads", r.reads)
		}
	})
	t.Run("a changed node needs a new read", func(t *testing.T) {
		r := fresh()
		delete(r.all.Ready, r.all.Nodes[2].Name)
		if got := r.ask(2, usualLimits, now); !stays(got) || r.reads != 1 {
			t.Errorf("got step %v with %d reads", got, r.reads)
		}
	})
	t.Run("a change of another node ends the round", func(t *testing.T) {
		r := fresh()
		r.Forget(Snapshot{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}})
		if r.ask(2, usualLimits, now); r.reads != 1 {
			t.Errorf("got %d reads", r.reads)
		}
	})
}

// The limits hold for any order of nodes, while nodes apply their settings or fail, and while time passes.
func TestRoundsKeepToTheLimits(t *testing.T) {
	of := func(pool string) func(*v1alpha1.StorageClientProfile) {
		return func(p *v1alpha1.StorageClientProfile) {
			recklessly(p)
			p.Spec.NodeSelector, p.Spec.AllNodes = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{pool, "both"}},
			}}, false
		}
	}
	reads, admitted := 0, 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		limits := Limits{MaxConcurrentLive: intstr.FromInt32(1 + int32(random.IntN(6)))}
		ofProfiles := 1 + random.IntN(4)
		limited := func(change func(*v1alpha1.StorageClientProfile)) func(*v1alpha1.StorageClientProfile) {
			return func(p *v1alpha1.StorageClientProfile) {
				change(p)
				p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromInt(ofProfiles))
			}
		}
		all := clusterOf(30, profile("a", limited(of("a"))), profile("b", limited(of("b"))))
		for n := range all.Nodes {
			all.Nodes[n].Labels = map[string]string{corev1.LabelOSStable: "linux", "pool": []string{"a", "b", "both"}[random.IntN(3)]}
			all.ClientNodes[all.Nodes[n].Name].Spec.Settings = nil
		}
		for n := range 6 {
			take(all, n, time.Hour)
		}
		r := &remembering{all: all}
		at := now
		for range 300 {
			n := random.IntN(len(all.Nodes))
			clientNode := all.ClientNodes[all.Nodes[n].Name]
			switch {
			case random.IntN(3) == 0:
				at = at.Add(time.Duration(random.IntN(200)) * time.Millisecond)
			case clientNode.Spec.Hash == "h":
				if writes(r.ask(n, limits, at)) {
					admitted++
				}
			case random.IntN(8) == 0:
				take(all, n, time.Hour)
			}
			if running := runningIn(limits, all, at); running > limits.MaxConcurrentLive.IntValue() {
				t.Fatalf("seed %d: got %d nodes in progress, want at most %d", seed, running, limits.MaxConcurrentLive.IntValue())
			}
			for name, nodes := range fleet.GatesOf(*all, "").Nodes {
				if running := countRunning(nodes, at); running > ofProfiles {
					t.Fatalf("seed %d: got %d nodes of profile %s in progress, want at most %d", seed, running, name, ofProfiles)
				}
			}
		}
		reads += r.reads
	}
	if admitted < 400 || reads > 20*admitted {
		t.Fatalf("got %d nodes admitted with %d reads: too few for a useful test", admitted, reads)
	}
}

func runningIn(limits Limits, all *fleet.Snapshot, at time.Time) int {
	return countRunning(fleet.GatesOf(*all, limits.UntunedTaint).Managed, at)
}
