package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// VerdictAge is the time for which a round makes nodes wait: otherwise each of thousands of waiting nodes would read all nodes.
	VerdictAge = time.Second
	// RoundAge is the time for which a round admits more nodes after the first, if evaluating all nodes took at most a tenth of it. Otherwise the
	// time is ten times as long as the evaluation, at most MaxRoundAge. Without it, each of thousands of admissible nodes would evaluate all nodes.
	// A later failure stops the next round.
	RoundAge = 250 * time.Millisecond
	// MaxRoundAge is the maximum of that time.
	MaxRoundAge = time.Second
	roundShare  = 10
)

// round is one evaluation of all nodes. It decides which nodes may change now: there is room for all of them at once, if nothing else changes in
// between.
type round struct {
	limits Limits
	all    fleet.Snapshot
	at     time.Time
	// age is the time for which more nodes may follow. isNew is true while the round handles the node that caused the evaluation.
	age    time.Duration
	isNew  bool
	gates  fleet.Gates
	byName map[string]*corev1.Node
	// cluster is the limit of all profiles at the start of the round.
	cluster livegate.Cluster
	// verdicts and restores are the results so far, by profile.
	verdicts map[string]verdict
	restores map[string]*restores
	admitted map[string]bool
}

// verdict is the decision of the gate about a profile's nodes.
type verdict struct {
	livegate.Decision
	// nodes are the nodes on which the decision is based.
	nodes map[string]*livegate.Node
	// isQueueSeen is true once nodes were admitted that wait only for nodes that cannot change.
	isQueueSeen bool
}

// isBasedOn reports whether the verdict is based on the current state of the node.
func (v verdict) isBasedOn(node livegate.Node) bool {
	evaluated, known := v.nodes[node.Name]
	if known {
		node.Servers = evaluated.Servers
	}
	return known && *evaluated == node
}

// lasts reports whether a rejection by the verdict is still valid at this age: not after VerdictAge, nor once a soak is over.
func (v verdict) lasts(age time.Duration) bool {
	return age < VerdictAge && (v.Next == 0 || age < v.Next)
}

func newRound(limits Limits, all fleet.Snapshot, now time.Time) *round {
	gates := fleet.GatesOf(all, limits.UntunedTaint)
	return &round{
		limits:   limits,
		all:      all,
		at:       now,
		isNew:    true,
		gates:    gates,
		byName:   lists.Map(all.Nodes, func(node *corev1.Node) (string, *corev1.Node) { return node.Name, node }),
		cluster:  livegate.Cluster{Limit: v1alpha1.ResolveShare(limits.MaxConcurrentLive, len(all.Nodes)), Running: countRunning(gates.Managed, now)},
		verdicts: map[string]verdict{},
		restores: map[string]*restores{},
		admitted: map[string]bool{},
	}
}

// isValidFor reports whether the round is recent and has this set of profiles.
func (r *round) isValidFor(profiles *fleet.ProfileSet, now time.Time) bool {
	age := now.Sub(r.at)
	return r.all.Profiles == profiles && age >= 0 && age < VerdictAge
}

// mayAdmit reports whether the round may admit a node: the node that caused it, and more nodes after the first.
func (r *round) mayAdmit(now time.Time) bool {
	return r.isNew || len(r.admitted) > 0 && now.Sub(r.at) < r.age
}

// evaluate checks every concerned profile. It returns nil, and all nodes must be read, if the round is too old, has no room for the node, or does not
// have its current state.
func (r *round) evaluate(s Snapshot, next Write, now time.Time) Step {
	if next.Limited {
		return r.evaluateRestore(s, next, now)
	}
	isAdmitted, inTurn, name := r.mayAdmit(now), true, s.Node.Name
	for _, concerned := range concernedProfiles(s) {
		profile := s.Profiles.ByName(concerned)
		v := r.verdictFor(name, profile)
		isKnown := r.isNew || v.isBasedOn(s.gateEntry(profile))
		if !v.Admitted[name] && isKnown && v.lasts(now.Sub(r.at)) {
			return Stay{Note: noteGate + v.Notes[name], RequeueAfter: store.Sooner(v.Next-now.Sub(r.at), turnAfter)}
		}
		isAdmitted = isAdmitted && v.Admitted[name] && isKnown
		next.Spec.Canary = next.Spec.Canary || v.Canaries[name]
		inTurn = inTurn && slices.Contains(v.Order, name)
	}
	if !isAdmitted || !r.admit(name, inTurn) {
		return nil
	}
	return next
}

// evaluateRestore evaluates a restore: the original values are known to work, so there is no canary, but the limit applies.
func (r *round) evaluateRestore(s Snapshot, next Write, now time.Time) Step {
	profiles := concernedProfiles(s)
	for _, name := range profiles {
		if note := r.restoresOf(s.Profiles.ByName(name)).note(); note != "" {
			return Stay{Note: note, RequeueAfter: turnAfter}
		}
	}
	if !r.mayAdmit(now) || !r.isNew && !r.isCurrent(s) {
		return nil
	}
	for _, name := range profiles {
		r.restoresOf(s.Profiles.ByName(name)).releasing++
	}
	r.admitted[s.Node.Name] = true
	return next
}

// verdictFor returns the verdict on a profile's nodes. Before the first node is admitted, it also admits nodes that wait only for nodes that cannot
// change.
func (r *round) verdictFor(name string, profile *fleet.Profile) verdict {
	v := r.verdictOf(profile)
	if !v.Admitted[name] && len(r.admitted) == 0 && !v.isQueueSeen {
		v.AdmitQueued(func(ahead string) bool { return r.isAdmittedByOthers(ahead, profile) })
		v.isQueueSeen = true
		r.verdicts[profile.Name] = v
	}
	return v
}

func (r *round) verdictOf(profile *fleet.Profile) verdict {
	if v, ok := r.verdicts[profile.Name]; ok {
		return v
	}
	policy := livegate.PolicyOf(profile.Spec.WithDefaults().Rollout)
	policy.Soak = max(policy.Soak, r.limits.MinSoak)
	policy.Cluster = &r.cluster
	nodes := r.gates.Nodes[profile.Name]
	byName := lists.Map(nodes, func(node *livegate.Node) (string, *livegate.Node) { return node.Name, node })
	v := verdict{Decision: livegate.Admit(nodes, policy, r.at), nodes: byName}
	r.verdicts[profile.Name] = v
	return v
}

func (r *round) restoresOf(profile *fleet.Profile) *restores {
	if r.restores[profile.Name] == nil {
		r.restores[profile.Name] = restoresOf(r.all, profile)
	}
	return r.restores[profile.Name]
}

// isCurrent reports whether the round was started with the current version of the node's StorageClientNode.
func (r *round) isCurrent(s Snapshot) bool {
	evaluated := r.all.ClientNodes[s.Node.Name]
	return evaluated != nil && s.ClientNode != nil && evaluated.UID == s.ClientNode.UID &&
		evaluated.ResourceVersion == s.ClientNode.ResourceVersion && !r.admitted[s.Node.Name]
}

// admit reports whether a node that every profile admits may change. The first node always may, even ahead of its turn, instead of a node that
// cannot. The following nodes change in their turn, while the cluster has room.
func (r *round) admit(node string, inTurn bool) bool {
	if len(r.admitted) > 0 && (!inTurn || r.admitted[node] || r.cluster.Running+len(r.admitted) >= r.cluster.Limit) {
		return false
	}
	r.admitted[node] = true
	return true
}

// isAdmittedByOthers reports whether a node that one profile would admit is admitted by all the others that concern it.
func (r *round) isAdmittedByOthers(name string, profile *fleet.Profile) bool {
	node, clientNode := r.byName[name], r.all.ClientNodes[name]
	wanted := r.all.Profiles.Desired(node, clientNode)
	for _, other := range concernedProfiles(Snapshot{Node: node, ClientNode: clientNode, Profiles: r.all.Profiles, Desired: wanted}) {
		if other != profile.Name && !r.verdictOf(r.all.Profiles.ByName(other)).Admitted[name] {
			return false
		}
	}
	return true
}

// countRunning counts the nodes of the cluster that have been given settings and have not applied them. Failed nodes do not count, because they
// have reverted their settings if possible. A node with a silent agent delays its profile, but delays the cluster only for a limited time.
func countRunning(managed []*livegate.Node, now time.Time) (running int) {
	for _, node := range managed {
		if !node.Applied && !node.Failed && !node.Empty && !node.IsSilentForLong(now) {
			running++
		}
	}
	return running
}

// restores contains the limit for a profile, and the number of its nodes that are being restored. Unreachable nodes and nodes with a failed restore
// do not count: they would block the restore of all others.
type restores struct{ limit, releasing int }

func restoresOf(all fleet.Snapshot, profile *fleet.Profile) *restores {
	carrying, out := 0, &restores{}
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		if clientNode == nil || !fleet.CarriesSettingsOf(profile.Name, clientNode) {
			continue
		}
		carrying++
		if clientNode.Spec.Release && !clientNode.Status.Restored && !hasFailedToRestore(clientNode) &&
			agentpod.SilentReason(node, clientNode, all.Ready[node.Name]) == "" {
			out.releasing++
		}
	}
	out.limit = v1alpha1.ResolveShare(*profile.Spec.WithDefaults().Rollout.MaxConcurrentLive, carrying)
	return out
}

// note returns the reason why another node must wait; empty if it need not.
func (r *restores) note() string {
	if r.releasing < r.limit {
		return ""
	}
	return fmt.Sprintf("Restore: queued; at most %s at a time", text.Count(r.limit, "node"))
}

// hasFailedToRestore reports whether the agent has reported for the release that a setting could not be restored.
func hasFailedToRestore(clientNode *v1alpha1.StorageClientNode) bool {
	return clientNode.Status.ObservedGeneration >= clientNode.Generation &&
		slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool { return standing.Of(s, false) == standing.Failed })
}

const turnAfter = 10 * time.Second

// Gate admits a write that changes a host only if every concerned profile admits the node now. It handles one node at a time, and caches the last
// evaluation of all nodes for a short time, because thousands of waiting nodes check repeatedly.
type Gate struct{ last *round }

// Forget must be called when a node is changed: earlier evaluations do not count it. The round that admitted the node already counts it.
func (g *Gate) Forget(s Snapshot) {
	if g.last != nil && !g.last.admitted[s.Node.Name] {
		g.last = nil
	}
}

// Evaluate checks the rollout rules of every concerned profile, and returns the write, or the reason for which the node waits. It evaluates all nodes
// again if the last evaluation is not sufficient.
func (g *Gate) Evaluate(s Snapshot, next Write, clock func() time.Time, look func() (fleet.Snapshot, error)) (Step, error) {
	if !next.Gated && !next.Limited || len(concernedProfiles(s)) == 0 {
		return next, nil
	}
	now := clock()
	if g.last != nil && g.last.isValidFor(s.Profiles, now) {
		if step := g.last.evaluate(s, next, now); step != nil {
			return step, nil
		}
	}
	all, err := look()
	if err != nil {
		return nil, err
	}
	r := newRound(s.Limits, all, now)
	step := r.evaluate(s, next, now)
	r.age = min(max(RoundAge, roundShare*clock().Sub(now)), MaxRoundAge)
	r.isNew = false
	g.last = r
	return step, nil
}

func (s Snapshot) gateEntry(profile *fleet.Profile) livegate.Node {
	snapshot := fleet.Snapshot{Profiles: s.Profiles, Ready: map[string]bool{s.Node.Name: s.AgentReady}}
	entry := fleet.GateEntry(snapshot, s.Node, s.ClientNode, s.Limits.UntunedTaint)
	entry.Desired = s.Desired.Hash
	entry.Canary = fleet.CanaryMatcher(profile)(s.Node.Labels)
	return entry
}

// concernedProfiles returns the profiles whose rollout rules apply to a change of a node's settings: the profiles that contribute settings, and the
// profiles whose settings are removed.
func concernedProfiles(s Snapshot) []string {
	profiles := slices.Clone(s.Desired.Profiles)
	leaving := lists.Filter(s.Profiles.Carried(s.ClientNode), func(profile *fleet.Profile) bool {
		return profile.Phase == match.Leaving || !s.Desired.Managed
	})
	return append(profiles, lists.Each(leaving, func(profile *fleet.Profile) string { return profile.Name })...)
}
