package plan

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
)

// turnAfter is how often a node asks whether its turn has come.
const turnAfter = 10 * time.Second

// Gate lets a write that changes a host through only where every profile concerned lets the node go now. It remembers for
// a moment whom it has refused, and for a shorter one the round of those who may go together; the zero Gate remembers nothing.
type Gate struct {
	verdicts map[string]verdict // by profile
	restores map[string]refusal // by profile
	round    **round
}

// NewGate returns a gate with a memory. It is for callers that ask for one node at a time.
func NewGate() Gate {
	return Gate{verdicts: map[string]verdict{}, restores: map[string]refusal{}, round: new(*round)}
}

// Forget is due once a node has been changed: nothing that was said before counts its place. The round that has let it go has.
func (g Gate) Forget(s Snapshot) {
	if g.round == nil {
		return
	}
	current := *g.round
	if current == nil || !current.gone[s.Node.Name] {
		*g.round = nil
		clear(g.verdicts)
		clear(g.restores)
		return
	}
	maps.DeleteFunc(g.verdicts, func(_ string, v verdict) bool { return !v.at.Equal(current.at) })
}

// Recall answers without reading all nodes where it can: the write needs no gate, a profile has refused the node a moment ago, or those
// who go now were looked at together with it.
func (g Gate) Recall(s Snapshot, next Write, now time.Time) (Step, bool) {
	if !next.Gated && !next.Limited {
		return next, true
	}
	profiles := concernedProfiles(s)
	if len(profiles) == 0 {
		return next, true
	}
	recall := g.recallRefusal
	if next.Limited {
		recall = g.recallRestore
	}
	for _, name := range profiles {
		if refused, known := recall(s, s.Profiles.ByName(name), now); known {
			return refused, true
		}
	}
	if g.round == nil || *g.round == nil || !(*g.round).isOpen(s.Profiles, now) {
		return nil, false
	}
	return g.judgeIn(*g.round, s, next)
}

func (g Gate) recallRefusal(s Snapshot, profile *fleet.Profile, now time.Time) (Step, bool) {
	known := g.verdicts[profile.Name]
	if !known.denies(s.gateEntry(profile), s.Profiles, now) {
		return nil, false
	}
	return Stay{Note: noteGate + known.Notes[s.Node.Name], RequeueAfter: nextTurn(known.soakLeft(now))}, true
}

func (g Gate) recallRestore(s Snapshot, profile *fleet.Profile, now time.Time) (Step, bool) {
	known := g.restores[profile.Name]
	if !known.holds(s.Profiles, now) {
		return nil, false
	}
	return Stay{Note: known.note, RequeueAfter: turnAfter}, true
}

// Judge asks the rollout rules of every profile concerned; all is a fresh snapshot of all nodes.
func (g Gate) Judge(s Snapshot, next Write, all fleet.Snapshot, now time.Time) Step {
	r := newRound(s.Limits, all, now)
	if g.round != nil {
		*g.round = r
	}
	got, _ := g.judgeIn(r, s, next)
	return got
}

// Stretch has the round last the longer the longer it took to look at all nodes and to judge them.
func (g Gate) Stretch(took time.Duration) {
	if g.round != nil && *g.round != nil {
		(*g.round).age = min(max(RoundAge, roundShare*took), MaxRoundAge)
	}
}

// judgeIn asks every profile concerned in a round. It is not known where the round does not speak of the node as it is, or has no place
// for it: then all nodes have to be read.
func (g Gate) judgeIn(r *round, s Snapshot, next Write) (_ Step, known bool) {
	if next.Limited {
		return g.judgeRestoreIn(r, s, next)
	}
	inTurn := true
	for _, name := range concernedProfiles(s) {
		profile := s.Profiles.ByName(name)
		if refused, known := g.recallRefusal(s, profile, r.at); known {
			return refused, true
		}
		v := r.verdictOf(profile)
		if len(r.gone) > 0 && !v.knows(s.gateEntry(profile)) {
			return nil, false
		}
		if !v.Admitted[s.Node.Name] && len(r.gone) == 0 {
			v.AdmitQueued(func(ahead string) bool { return r.mayGo(ahead, profile) })
		}
		if g.verdicts != nil {
			g.verdicts[name] = v
		}
		if !v.Admitted[s.Node.Name] {
			return Stay{Note: noteGate + v.Notes[s.Node.Name], RequeueAfter: nextTurn(v.Next)}, true
		}
		next.Spec.Canary = next.Spec.Canary || v.Canaries[s.Node.Name]
		inTurn = inTurn && slices.Contains(v.Order, s.Node.Name)
	}
	return next, r.letGo(s.Node.Name, inTurn)
}

// judgeRestoreIn is judgeIn for a restore: what comes back is known to work, so there is no canary, but the limit holds.
func (g Gate) judgeRestoreIn(r *round, s Snapshot, next Write) (_ Step, known bool) {
	profiles := concernedProfiles(s)
	for _, name := range profiles {
		note := r.restoresOf(s.Profiles.ByName(name)).note()
		if note == "" {
			continue
		}
		if g.restores != nil {
			g.restores[name] = refusal{note: note, profiles: r.all.Profiles, at: r.at}
		}
		return Stay{Note: note, RequeueAfter: turnAfter}, true
	}
	if len(r.gone) > 0 && !r.showsAsItIs(s) {
		return nil, false
	}
	for _, name := range profiles {
		r.restoresOf(s.Profiles.ByName(name)).releasing++
	}
	r.gone[s.Node.Name] = true
	return next, true
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
