package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
)

// turnAfter is how often a node asks whether its turn has come.
const turnAfter = 10 * time.Second

// Gate lets a write that changes a host through only where every profile concerned lets the node go now. It is asked for one node at a time,
// and keeps the last look at all nodes for a moment: thousands that wait ask again and again. A nil Gate looks at all nodes each time.
type Gate struct{ last *round }

// Forget is due once a node has been changed: nothing that was seen before counts its place. The round that has let it go does.
func (g *Gate) Forget(s Snapshot) {
	if g != nil && g.last != nil && !g.last.gone[s.Node.Name] {
		g.last = nil
	}
}

// Judge asks the rollout rules of every profile concerned, and returns the write, or what the node waits for. It looks at all nodes if the
// last look gives no answer.
func (g *Gate) Judge(s Snapshot, next Write, clock func() time.Time, look func() (fleet.Snapshot, error)) (Step, error) {
	if !next.Gated && !next.Limited || len(concernedProfiles(s)) == 0 {
		return next, nil
	}
	now := clock()
	if g != nil && g.last != nil && g.last.shows(s.Profiles, now) {
		if step := g.last.judge(s, next, now); step != nil {
			return step, nil
		}
	}
	all, err := look()
	if err != nil {
		return nil, err
	}
	r := newRound(s.Limits, all, now)
	step := r.judge(s, next, now)
	r.age = min(max(RoundAge, roundShare*clock().Sub(now)), MaxRoundAge)
	r.isNew = false
	if g != nil {
		g.last = r
	}
	return step, nil
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
