package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// turnBound is the maximum duration of a turn: the start of the trial runner, an order and its overdue time, and some passes.
const turnBound = 16 * time.Minute

// tenant is a namespace that floods the queue.
type tenant struct {
	name string
	// respondsAfter is the time to the response to an order. Zero means no response.
	respondsAfter time.Duration
	// losesNode is true if the agent of a node with its order is gone for 40 minutes.
	losesNode bool
	// replaces is true if the tenant deletes a trial after its turn and creates another one.
	replaces bool
}

// crowd is a lab with tenants.
type crowd struct {
	*lab
	tenants []tenant
	created int
	// owners are the tenants by the hash of their trials. turns are the tenants with an order, in the order of time, with the time.
	owners map[string]tenant
	turns  []string
	at     []time.Time
	seen   map[string]time.Time
	gone   map[string]time.Time
}

func newCrowd(t *testing.T, nodes int, tenants ...tenant) *crowd {
	c := &crowd{tenants: tenants, owners: map[string]tenant{}, seen: map[string]time.Time{}, gone: map[string]time.Time{}}
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	c.lab = newLab(t, names...)
	c.respond = nil
	return c
}

func (c *crowd) flood(owner tenant, change ...func(*v1alpha1.StorageClientTrialSpec)) *v1alpha1.StorageClientTrial {
	c.created++
	trial := c.add(fmt.Sprint(c.created), change...)
	trial.Namespace = owner.name
	c.owners[Trial{StorageClientTrial: trial}.hash()] = owner
	return trial
}

// tick makes a pass half a minute after the last one, and lets agents respond.
func (c *crowd) tick() {
	c.step()
	c.now = c.now.Add(28 * time.Second)
	for name, n := range c.nodes {
		if at, isGone := c.gone[name]; isGone && c.now.Sub(at) > 40*time.Minute {
			delete(c.gone, name)
			n.Writable = true
		}
		order := n.ClientNode.Spec.Trial
		if order == nil {
			continue
		}
		hash, _ := parseID(order.ID)
		owner := c.owners[hash]
		issued, known := c.seen[order.ID]
		if !known {
			c.seen[order.ID], issued = c.now, c.now
			c.turns, c.at = append(c.turns, owner.name), append(c.at, c.now)
			if owner.losesNode {
				c.gone[name], n.Writable = c.now, false
			}
		}
		if owner.respondsAfter > 0 && c.now.Sub(issued) >= owner.respondsAfter && n.ClientNode.Status.Trial == nil {
			n.ClientNode.Status.Trial = c.measure(*order, 1000, 1)
			if owner.replaces {
				c.trials = slices.DeleteFunc(c.trials, func(trial *v1alpha1.StorageClientTrial) bool { return Trial{StorageClientTrial: trial}.hash() == hash })
				c.flood(owner, long)
			}
		}
	}
}

func long(s *v1alpha1.StorageClientTrialSpec) { s.Rounds, s.TimeoutSeconds = 40, ptr.To[int32](86400) }

// expectTurns reports tenants that waited for more turns of others, or for longer, than a round of all tenants.
func (c *crowd) expectTurns(start time.Time, slack int) {
	c.t.Helper()
	for _, owner := range c.tenants {
		last, since := -1, start
		for i := 0; i <= len(c.turns); i++ {
			if i < len(c.turns) && c.turns[i] != owner.name {
				continue
			}
			now := c.now
			if i < len(c.turns) {
				now = c.at[i]
			}
			if others, most := i-last-1, len(c.tenants)-1+slack; others > most || now.Sub(since) > time.Duration(most+1)*turnBound {
				c.t.Errorf("%s waited for %d turns and %s, want at most %d turns of %s\nturns: %v", owner.name, others, now.Sub(since), most, turnBound, c.turns)
				return
			}
			last, since = i, now
		}
	}
}

func TestEachTenantGetsTheSlotWithinARoundOfAllTenants(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			var tenants []tenant
			for i := range 2 + random.IntN(4) {
				delay := []time.Duration{0, time.Second, 3 * time.Minute, 570 * time.Second}[random.IntN(4)]
				tenants = append(tenants, tenant{name: fmt.Sprintf("t%d", i), respondsAfter: delay,
					losesNode: delay == 0 && random.IntN(2) == 0, replaces: delay > 0 && random.IntN(2) == 0})
			}
			c := newCrowd(t, 12, tenants...)
			start := c.now
			// The first tenant is the first in the queue, with many trials.
			for range 8 {
				c.flood(tenants[0], long)
			}
			for _, owner := range tenants[1:] {
				for range 1 + random.IntN(3) {
					c.flood(owner, long)
				}
			}
			slack, restart := 0, random.IntN(360)
			if seed%3 == 0 {
				slack = len(tenants)
			}
			for i := range 360 {
				if slack > 0 && i == restart {
					c.memory = Memory{}
				}
				c.tick()
			}
			c.expectTurns(start, slack)
		})
	}
}

func TestTheTimeOfAWaitingTrialDoesNotRun(t *testing.T) {
	for name, evil := range map[string]tenant{
		"a slow server":                     {name: "evil", respondsAfter: 570 * time.Second},
		"an agent that never responds":      {name: "evil"},
		"an agent that is gone":             {name: "evil", losesNode: true},
		"trials that are deleted and again": {name: "evil", respondsAfter: 570 * time.Second, replaces: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 8, evil)
			for range 5 {
				c.flood(evil, long)
			}
			for range 60 {
				c.tick()
			}
			victim := c.flood(tenant{name: "victim", respondsAfter: time.Second}, func(s *v1alpha1.StorageClientTrialSpec) {
				s.Rounds, s.TimeoutSeconds = 9, ptr.To[int32](900)
			})
			for range 1000 {
				if c.tick(); victim.Status.CompletionTime != nil {
					break
				}
			}
			expectStatus(t, victim, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
			check.Equal(t, "rounds", 9, victim.Status.Rounds)
			if took := victim.Status.CompletionTime.Sub(victim.Status.StartTime.Time); took < 900*time.Second {
				t.Errorf("the trial took %s, want more than its timeout: it must wait", took)
			}
		})
	}
}

func TestATrialThatRunsStillTimesOut(t *testing.T) {
	slow := tenant{name: "slow", respondsAfter: 570 * time.Second}
	c := newCrowd(t, 4, slow, slow)
	first, second := c.flood(slow, func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds, s.TimeoutSeconds = 40, ptr.To[int32](1800) }), c.flood(slow, long)
	second.Namespace = "other"
	for range 400 {
		c.tick()
	}
	expectStatus(t, first, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	if first.Status.Rounds < 2 || first.Status.Rounds > 4 {
		t.Errorf("got %d rounds, want about 3 in 30 minutes of its turns", first.Status.Rounds)
	}
}

func TestASilentAgentIsNamedWhileItsTrialWaits(t *testing.T) {
	silent, fast := tenant{name: "silent"}, tenant{name: "fast", respondsAfter: 5 * time.Minute}
	c := newCrowd(t, 4, silent, fast)
	trial := c.flood(silent, long)
	c.flood(fast, long)
	for i := 0; i < 200 && (len(c.turns) < 2 || c.turns[len(c.turns)-1] != "fast"); i++ {
		c.tick()
	}
	c.tick()
	expectStatus(t, trial, v1alpha1.TrialConditionReconciling, v1alpha1.TrialReasonWaiting,
		"Waiting for another trial to finish; its last turn: the agent on n0 did not respond within 11m0s")
}

func TestEachNamespaceGetsSamples(t *testing.T) {
	var names []string
	for i := range 80 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	l := newWatch(t, names...)
	l.count = nil // Agents count for the whole window.
	part := func(from, to int, label string) func(*v1alpha1.StorageClientTrialSpec) {
		for _, name := range names[from:to] {
			l.nodes[name].Node.Labels["part"] = label
		}
		return func(s *v1alpha1.StorageClientTrialSpec) {
			s.NodeSelector, s.Workload.WindowSeconds = map[string]v1alpha1.LabelText{"part": v1alpha1.LabelText(label)}, ptr.To[int32](3600)
			s.TimeoutSeconds = ptr.To[int32](86400)
		}
	}
	for i := range 4 {
		l.observe(fmt.Sprint("evil", i), part(16*i, 16*i+16, fmt.Sprint(i))).Namespace = "evil"
	}
	victim := l.observe("victim", part(64, 65, "victim"))
	victim.Namespace = "victim"
	for range 4 {
		l.step()
	}
	if l.nodes["n64"].ClientNode.Spec.Sample == nil {
		t.Errorf("got no sample request for the second namespace, conditions %+v", victim.Status.Conditions)
	}
}

func TestTheQueueOfANamespaceIsLimited(t *testing.T) {
	var all []v1alpha1.StorageClientTrial
	for i := range 3 * 25 {
		trial := v1alpha1.StorageClientTrial{}
		trial.Namespace, trial.Name, trial.UID = fmt.Sprint("t", i%3), fmt.Sprintf("%03d", i), types.UID(fmt.Sprint(i))
		trial.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-i), 0))
		if i >= 72 {
			trial.Status.Conditions = []metav1.Condition{{Type: v1alpha1.TrialConditionComplete, Status: metav1.ConditionTrue}}
		}
		all = append(all, trial)
	}
	inQueue := map[string]int{}
	for _, trial := range ResolveAll(all, volumeplan.Snapshot{}, nil, catalogue.AllowList{}) {
		if !trial.isOver() && !trial.Excess {
			inQueue[trial.Namespace]++
			if trial.Name < "042" {
				t.Errorf("%s/%s is in the queue, want the oldest trials", trial.Namespace, trial.Name)
			}
		}
	}
	for _, namespace := range []string{"t0", "t1", "t2"} {
		if inQueue[namespace] != 10 {
			t.Errorf("%s: got %d trials in the queue, want 10", namespace, inQueue[namespace])
		}
	}

	l := newLab(t, "n1")
	trial := l.add("a")
	l.resolve = func(r *Trial) { r.Excess = true }
	for range 5000 {
		l.step()
	}
	expectStatus(t, trial, v1alpha1.TrialConditionReconciling, v1alpha1.TrialReasonWaiting,
		"Waiting for earlier trials in namespace eda: at most 10 are in the queue")
	l.resolve = nil
	l.runTrials()
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}
