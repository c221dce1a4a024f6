package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

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
// a moment whom it has refused, and for a shorter one the round of those who may go together; the zero Gate remembers nothing.
type Gate struct {
	verdicts map[string]verdict // by profile
	round    **round
}

// NewGate returns a gate with a memory. It is for callers that ask for one node at a time.
func NewGate() Gate { return Gate{verdicts: map[string]verdict{}, round: new(*round)} }

// Forget is due once a node has been changed: nothing that was said before counts its place. The round that has let it go has.
func (g Gate) Forget(s Snapshot) {
	if g.round == nil {
		return
	}
	current := *g.round
	if current == nil || !current.gone[s.Node.Name] {
		*g.round = nil
		clear(g.verdicts)
		return
	}
	maps.DeleteFunc(g.verdicts, func(_ string, v verdict) bool { return !v.at.Equal(current.at) })
}

// Recall answers without reading all nodes where it can: the plan needs no gate, a profile has refused the node a moment ago, or those
// who go now were looked at together with it.
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
	for _, name := range profiles {
		if refused, known := g.recallRefusal(s, s.Profiles.ByName(name), now); known {
			return refused, true
		}
	}
	if g.round == nil || *g.round == nil || !(*g.round).isOpen(profileVersions(s.Profiles), now) {
		return Plan{}, false
	}
	return g.judgeIn(*g.round, s, next)
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
	if next.Limited {
		for _, name := range concernedProfiles(s) {
			if note := restoreNote(all, s.Profiles.ByName(name)); note != "" {
				return stayUntil(note, turnAfter)
			}
		}
		return next
	}
	r := newRound(s.Limits, all, now)
	if g.round != nil {
		*g.round = r
	}
	got, _ := g.judgeIn(r, s, next)
	return got
}

// judgeIn asks every profile concerned in a round. It is not known where the round does not speak of the node as it is, or has no place
// for it: then all nodes have to be read.
func (g Gate) judgeIn(r *round, s Snapshot, next Plan) (_ Plan, known bool) {
	inTurn := true
	for _, name := range concernedProfiles(s) {
		profile := s.Profiles.ByName(name)
		if refused, known := g.recallRefusal(s, profile, r.at); known {
			return refused, true
		}
		v := r.verdictOf(profile)
		if len(r.gone) > 0 && v.nodes[s.Node.Name] != s.gateEntry(profile) {
			return Plan{}, false
		}
		if !v.Admitted[s.Node.Name] && len(r.gone) == 0 {
			v.AdmitQueued(func(ahead string) bool { return r.mayGo(ahead, profile) })
		}
		if g.verdicts != nil {
			g.verdicts[name] = v
		}
		if !v.Admitted[s.Node.Name] {
			return stayUntil(noteGate+v.Notes[s.Node.Name], nextTurn(v.Next)), true
		}
		next.Spec.Canary = next.Spec.Canary || v.Canaries[s.Node.Name]
		inTurn = inTurn && slices.Contains(v.Order, s.Node.Name)
	}
	return next, r.letGo(s.Node.Name, inTurn)
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
