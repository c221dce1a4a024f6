package plan

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
)

const (
	// VerdictAge is for how long a round makes nodes wait: each of thousands that wait would otherwise ask for all of them.
	VerdictAge = time.Second
	// RoundAge is for how long a round lets others follow the first, if the look at all nodes took no longer than a tenth of it; otherwise for
	// ten times as long as the look, MaxRoundAge at most. Each of thousands that may go would otherwise look at all of them; what is seen to
	// fail later than that stops the next one.
	RoundAge = 250 * time.Millisecond
	// MaxRoundAge is the upper bound of that.
	MaxRoundAge = time.Second
	roundShare  = 10
)

// round is what one look at all nodes says of those who may go now: there is room for all of them at once, as long as nothing else is
// changed in between.
type round struct {
	limits Limits
	all    fleet.Snapshot
	at     time.Time
	// age is for how long others may follow. isNew is set for the node that all others were looked at for.
	age   time.Duration
	isNew bool
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

// verdict is what the gate said of a profile's nodes.
type verdict struct {
	livegate.Decision
	// nodes are what it was said of.
	nodes map[string]*livegate.Node
	// isQueueSeen is set once those were admitted that wait only for nodes that cannot go.
	isQueueSeen bool
}

// knows reports whether the verdict was said of the node as it is.
func (v verdict) knows(node livegate.Node) bool {
	then, known := v.nodes[node.Name]
	return known && *then == node
}

// lasts reports whether what the verdict refuses is still refused at this age: not after a moment, nor once a soak is over.
func (v verdict) lasts(age time.Duration) bool {
	return age < VerdictAge && (v.Next == 0 || age < v.Next)
}

func newRound(limits Limits, all fleet.Snapshot, now time.Time) *round {
	r := &round{
		limits: limits, all: all, at: now, isNew: true,
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

// shows reports whether the round is of these profiles, and of a moment ago.
func (r *round) shows(profiles *fleet.ProfileSet, now time.Time) bool {
	age := now.Sub(r.at)
	return r.all.Profiles == profiles && age >= 0 && age < VerdictAge
}

// mayLetGo reports whether the round may let a node go: the one that it is for, and others after the first one.
func (r *round) mayLetGo(now time.Time) bool {
	return r.isNew || len(r.gone) > 0 && now.Sub(r.at) < r.age
}

// judge asks every profile concerned. It returns nil where the round does not show the node as it is, has become too old, or has no place for
// it: then all nodes have to be read.
func (r *round) judge(s Snapshot, next Write, now time.Time) Step {
	if next.Limited {
		return r.judgeRestore(s, next, now)
	}
	mayGo, inTurn, name := r.mayLetGo(now), true, s.Node.Name
	for _, concerned := range concernedProfiles(s) {
		profile := s.Profiles.ByName(concerned)
		v := r.verdictFor(name, profile)
		isKnown := r.isNew || v.knows(s.gateEntry(profile))
		if !v.Admitted[name] && isKnown && v.lasts(now.Sub(r.at)) {
			return Stay{Note: noteGate + v.Notes[name], RequeueAfter: nextTurn(v.Next - now.Sub(r.at))}
		}
		mayGo = mayGo && v.Admitted[name] && isKnown
		next.Spec.Canary = next.Spec.Canary || v.Canaries[name]
		inTurn = inTurn && slices.Contains(v.Order, name)
	}
	if !mayGo || !r.letGo(name, inTurn) {
		return nil
	}
	return next
}

// judgeRestore is judge for a restore: what comes back is known to work, so there is no canary, but the limit holds.
func (r *round) judgeRestore(s Snapshot, next Write, now time.Time) Step {
	profiles := concernedProfiles(s)
	for _, name := range profiles {
		if note := r.restoresOf(s.Profiles.ByName(name)).note(); note != "" {
			return Stay{Note: note, RequeueAfter: turnAfter}
		}
	}
	if !r.mayLetGo(now) || !r.isNew && !r.showsAsItIs(s) {
		return nil
	}
	for _, name := range profiles {
		r.restoresOf(s.Profiles.ByName(name)).releasing++
	}
	r.gone[s.Node.Name] = true
	return next
}

// verdictFor is the verdict on a profile's nodes. Before the first node goes, it also admits those that wait only for nodes that cannot go.
func (r *round) verdictFor(name string, profile *fleet.Profile) verdict {
	v := r.verdictOf(profile)
	if !v.Admitted[name] && len(r.gone) == 0 && !v.isQueueSeen {
		v.AdmitQueued(func(ahead string) bool { return r.mayGo(ahead, profile) })
		v.isQueueSeen = true
		r.verdicts[profile.Name] = v
	}
	return v
}

// verdictOf asks the gate of a profile, once.
func (r *round) verdictOf(profile *fleet.Profile) verdict {
	if v, asked := r.verdicts[profile.Name]; asked {
		return v
	}
	policy := livegate.PolicyOf(profile.Spec.WithDefaults().Rollout)
	policy.Soak, policy.Cluster = max(policy.Soak, r.limits.MinSoak), r.cluster()
	nodes := r.gates().Nodes[profile.Name]
	v := verdict{Decision: livegate.Admit(nodes, policy, r.at), nodes: make(map[string]*livegate.Node, len(nodes))}
	for i := range nodes {
		v.nodes[nodes[i].Name] = &nodes[i]
	}
	r.verdicts[profile.Name] = v
	return v
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
