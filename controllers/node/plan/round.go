package plan

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
)

// RoundAge is how long a round lasts, where the look at all nodes took no longer than a tenth of it; otherwise it lasts ten times as long
// as the look, MaxRoundAge at most. Each of thousands that may go would otherwise look at all of them; what is seen to fail later than that
// stops the next one.
const (
	RoundAge    = 250 * time.Millisecond
	MaxRoundAge = time.Second
	roundShare  = 10
)

// round is what one look at all nodes says of those who may go now: there is room for all of them at once, as long as nothing else is
// changed in between.
type round struct {
	limits Limits
	all    fleet.Snapshot
	at     time.Time
	// age is how long it lasts.
	age time.Duration
	// gates and cluster, what all profiles together keep to when it begins, are looked at once somebody asks, like the nodes by name.
	gates   func() fleet.Gates
	cluster func() *livegate.Cluster
	byName  func() map[string]*corev1.Node
	// verdicts and restores are those that were asked for, by profile.
	verdicts map[string]verdict
	restores map[string]*restores
	// gone are those that it has let go.
	gone map[string]bool
}

func newRound(limits Limits, all fleet.Snapshot, now time.Time) *round {
	r := &round{
		limits: limits, all: all, at: now, age: RoundAge,
		verdicts: map[string]verdict{}, restores: map[string]*restores{}, gone: map[string]bool{},
	}
	r.gates = sync.OnceValue(func() fleet.Gates { return fleet.GatesOf(all, limits.UntunedTaint) })
	r.cluster = sync.OnceValue(func() *livegate.Cluster {
		return &livegate.Cluster{Limit: v1alpha1.ResolveShare(limits.MaxConcurrentLive, len(all.Nodes)), Running: countRunning(r.gates().Managed, now)}
	})
	r.byName = sync.OnceValue(func() map[string]*corev1.Node {
		nodes := make(map[string]*corev1.Node, len(all.Nodes))
		for _, node := range all.Nodes {
			nodes[node.Name] = node
		}
		return nodes
	})
	return r
}

// isOpen reports whether others may still follow those that went first.
func (r *round) isOpen(profiles *fleet.ProfileSet, now time.Time) bool {
	age := now.Sub(r.at)
	return len(r.gone) > 0 && r.all.Profiles == profiles && age >= 0 && age < r.age
}

// verdictOf asks the gate of a profile, once.
func (r *round) verdictOf(profile *fleet.Profile) verdict {
	if v, asked := r.verdicts[profile.Name]; asked {
		return v
	}
	policy := livegate.PolicyOf(profile.Spec.WithDefaults().Rollout)
	policy.Soak, policy.Cluster = max(policy.Soak, r.limits.MinSoak), r.cluster()
	nodes := r.gates().Nodes[profile.Name]
	r.verdicts[profile.Name] = newVerdict(livegate.Admit(nodes, policy, r.at), r.all.Profiles, nodes, r.at)
	return r.verdicts[profile.Name]
}

// restoresOf counts those of a profile, once.
func (r *round) restoresOf(profile *fleet.Profile) *restores {
	if r.restores[profile.Name] == nil {
		r.restores[profile.Name] = restoresOf(r.all, profile)
	}
	return r.restores[profile.Name]
}

// showsAsItIs reports whether the round was begun with the node's client node as it is.
func (r *round) showsAsItIs(s Snapshot) bool {
	then := r.all.ClientNodes[s.Node.Name]
	return then != nil && s.ClientNode != nil && then.UID == s.ClientNode.UID && then.ResourceVersion == s.ClientNode.ResourceVersion && !r.gone[s.Node.Name]
}

// letGo reports whether a node that every profile lets go may go. The first one always may, even out of its turn, in the place of one
// that cannot; those who follow go in their turn, as long as the cluster has places.
func (r *round) letGo(node string, inTurn bool) bool {
	if len(r.gone) > 0 && (!inTurn || r.gone[node] || r.cluster().Running+len(r.gone) >= r.cluster().Limit) {
		return false
	}
	r.gone[node] = true
	return true
}

// mayGo reports whether a node that one profile would let go is let go by all the others that it concerns.
func (r *round) mayGo(name string, by *fleet.Profile) bool {
	node, clientNode := r.byName()[name], r.all.ClientNodes[name]
	wanted := r.all.Profiles.Wanted(node, clientNode)
	for _, other := range concernedProfiles(Snapshot{Node: node, ClientNode: clientNode, Profiles: r.all.Profiles, Wanted: wanted}) {
		if other != by.Name && !r.verdictOf(r.all.Profiles.ByName(other)).Admitted[name] {
			return false
		}
	}
	return true
}

// countRunning counts the nodes of the cluster that have been given settings and have not taken them. Those that failed have put
// back what they could, and a node whose agent is silent holds up its profile, but not for long the cluster.
func countRunning(managed []livegate.Node, now time.Time) (running int) {
	for i := range managed {
		node := &managed[i]
		if !node.Taken && !node.Failed && !node.Empty && !node.IsSilentForLong(now) {
			running++
		}
	}
	return running
}
