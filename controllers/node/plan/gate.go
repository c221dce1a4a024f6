package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/text"
)

// turnAfter is how often a node asks whether its turn has come.
const turnAfter = 10 * time.Second

// Gate lets a plan that changes a host through only where every profile concerned lets the node go now. It remembers for
// a moment whom it has refused; the zero Gate remembers nothing.
type Gate struct {
	verdicts map[string]verdict // by profile
}

// NewGate returns a gate with a memory. It is for callers that ask for one node at a time.
func NewGate() Gate { return Gate{verdicts: map[string]verdict{}} }

// Forget is due once a node has been changed.
func (g Gate) Forget() { clear(g.verdicts) }

// Recall answers without reading all nodes where it can: the plan needs no gate, or the first profile that is asked
// has refused the node a moment ago.
func (g Gate) Recall(s Snapshot, next Plan, now time.Time) (Plan, bool) {
	if !next.Gated && !next.Limited {
		return next, true
	}
	profiles := concernedProfiles(s)
	switch {
	case len(profiles) == 0:
		return next, true
	case next.Limited:
		return Plan{}, false
	}
	return g.recallRefusal(s, s.Profiles.ByName(profiles[0]), now)
}

func (g Gate) recallRefusal(s Snapshot, profile *fleet.Profile, now time.Time) (Plan, bool) {
	known := g.verdicts[profile.Name]
	if !known.denies(s.gateEntry(profile), profileVersions(s.Profiles), now) {
		return Plan{}, false
	}
	return stayUntil(noteGate+known.Notes[s.Node.Name], nextTurn(known.soakLeft(now))), true
}

// Judge asks the rollout rules of every profile concerned; all is a fresh snapshot of all nodes.
func (g Gate) Judge(s Snapshot, next Plan, all fleet.Snapshot, now time.Time) Plan {
	decide := decider(s, all, now)
	for _, name := range concernedProfiles(s) {
		profile := s.Profiles.ByName(name)
		if next.Limited {
			if note := restoreNote(all, profile); note != "" {
				return stayUntil(note, turnAfter)
			}
			continue
		}
		if refused, known := g.recallRefusal(s, profile, now); known {
			return refused
		}
		nodes, decision := decide(profile)
		if !decision.Admitted[s.Node.Name] {
			decision.AdmitQueued(func(ahead string) bool { return mayGo(ahead, profile, all, decide) })
		}
		fresh := newVerdict(decision, profileVersions(s.Profiles), nodes, now)
		if g.verdicts != nil {
			g.verdicts[name] = fresh
		}
		if !fresh.Admitted[s.Node.Name] {
			return stayUntil(noteGate+fresh.Notes[s.Node.Name], nextTurn(fresh.Next))
		}
		next.Spec.Canary = next.Spec.Canary || decision.Canaries[s.Node.Name]
	}
	return next
}

// decider asks the gate of one profile after another, each once.
func decider(s Snapshot, all fleet.Snapshot, now time.Time) func(*fleet.Profile) ([]livegate.Node, livegate.Decision) {
	type answer struct {
		nodes    []livegate.Node
		decision livegate.Decision
	}
	known := map[string]answer{}
	cluster := &livegate.Cluster{
		Limit:   v1alpha1.ResolveShare(s.Limits.MaxConcurrentLive, len(all.Nodes)),
		Running: countRunning(s.Limits, all, now),
	}
	return func(profile *fleet.Profile) ([]livegate.Node, livegate.Decision) {
		if a, ok := known[profile.Name]; ok {
			return a.nodes, a.decision
		}
		policy := livegate.PolicyOf(profile.Spec.WithDefaults().Rollout)
		policy.Soak, policy.Cluster = max(policy.Soak, s.Limits.MinSoak), cluster
		nodes := fleet.GateEntries(all, profile, s.Limits.UntunedTaint)
		a := answer{nodes, livegate.Admit(nodes, policy, now)}
		known[profile.Name] = a
		return a.nodes, a.decision
	}
}

// countRunning counts the nodes of the cluster that have been given settings and have not taken them. Those that failed have put
// back what they could, and a node whose agent is silent holds up its profile, but not for long the cluster.
func countRunning(limits Limits, all fleet.Snapshot, now time.Time) (running int) {
	for i := range all.Nodes {
		node := &all.Nodes[i]
		clientNode := all.ClientNodes[node.Name]
		if clientNode == nil || clientNode.Spec.Release || match.Ignored(node) || !node.DeletionTimestamp.IsZero() {
			continue
		}
		entry := fleet.GateEntry(all, node, clientNode, limits.UntunedTaint)
		if !entry.Taken && !entry.Failed && !entry.Empty && !entry.IsSilentForLong(now) {
			running++
		}
	}
	return running
}

// mayGo reports whether a node that one profile would let go is let go by all the others that it concerns.
func mayGo(name string, by *fleet.Profile, all fleet.Snapshot, decide func(*fleet.Profile) ([]livegate.Node, livegate.Decision)) bool {
	i := slices.IndexFunc(all.Nodes, func(n corev1.Node) bool { return n.Name == name })
	node, clientNode := &all.Nodes[i], all.ClientNodes[name]
	wanted := all.Profiles.Wanted(node, clientNode)
	for _, other := range concernedProfiles(Snapshot{Node: node, ClientNode: clientNode, Profiles: all.Profiles, Wanted: wanted}) {
		if other == by.Name {
			continue
		}
		if _, decision := decide(all.Profiles.ByName(other)); !decision.Admitted[name] {
			return false
		}
	}
	return true
}

// gateEntry is the node as it stands among a profile's for the gate.
func (s Snapshot) gateEntry(profile *fleet.Profile) livegate.Node {
	own := fleet.Snapshot{Profiles: s.Profiles, Ready: map[string]bool{s.Node.Name: s.AgentReady}}
	entry := fleet.GateEntry(own, s.Node, s.ClientNode, s.Limits.UntunedTaint)
	entry.Wanted = s.Wanted.Hash
	entry.Canary = fleet.CanarySelector(profile).Matches(labels.Set(s.Node.Labels))
	return entry
}

// nextTurn is when to ask again: often, and at the end of a soak exactly.
func nextTurn(soak time.Duration) time.Duration {
	if soak > 0 {
		return min(soak, turnAfter)
	}
	return turnAfter
}

// concernedProfiles are the profiles whose rollout rules a change of a node's settings has to keep: those that contribute,
// and those whose settings go.
func concernedProfiles(s Snapshot) []string {
	profiles := slices.Clone(s.Wanted.Profiles)
	for _, source := range fleet.SourcesOf(s.ClientNode) {
		profile := s.Profiles.ByName(source)
		if profile != nil && (profile.Standing == match.Leaving || !s.Wanted.Managed) {
			profiles = append(profiles, source)
		}
	}
	return profiles
}

// restoreNote says why a node that carries settings of a profile has to wait with its restore; empty: it need not. What
// is restored is known to work, so there is no canary, but the limit holds. Nodes that are unreachable do not count, nor
// do those where it has failed: they would keep all others from being restored.
func restoreNote(all fleet.Snapshot, profile *fleet.Profile) string {
	carrying, releasing := 0, 0
	for i := range all.Nodes {
		node := &all.Nodes[i]
		clientNode := all.ClientNodes[node.Name]
		if clientNode == nil || !fleet.CarriesSettingsOf(profile.Name, clientNode) {
			continue
		}
		carrying++
		if clientNode.Spec.Release && !clientNode.Status.Restored && !hasFailedToRestore(clientNode) && agentpod.WhySilent(node, clientNode, all.Ready[node.Name]) == "" {
			releasing++
		}
	}
	limit := v1alpha1.ResolveShare(*profile.Spec.WithDefaults().Rollout.MaxConcurrentLive, carrying)
	if releasing >= limit {
		return fmt.Sprintf("Restore: waiting for its turn, at most %s at a time", text.Count(limit, "node"))
	}
	return ""
}

// hasFailedToRestore reports whether the agent has said of the release that something could not be restored.
func hasFailedToRestore(clientNode *v1alpha1.StorageClientNode) bool {
	return clientNode.Status.ObservedGeneration >= clientNode.Generation &&
		slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool { return s.State == v1alpha1.SettingFailed })
}
