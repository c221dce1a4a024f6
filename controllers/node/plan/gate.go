package plan

import (
	"slices"
	"time"

	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
)

const turnAfter = 10 * time.Second

// Gate admits a write that changes a host only if every concerned profile admits the node now. It handles one node at a time, and caches the last
// evaluation of all nodes for a short time, because thousands of waiting nodes check repeatedly. A nil Gate evaluates all nodes each time.
type Gate struct{ last *round }

// Forget must be called when a node is changed: earlier evaluations do not count it. The round that admitted the node already counts it.
func (g *Gate) Forget(s Snapshot) {
	if g != nil && g.last != nil && !g.last.admitted[s.Node.Name] {
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
	if g != nil && g.last != nil && g.last.isValidFor(s.Profiles, now) {
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
	if g != nil {
		g.last = r
	}
	return step, nil
}

func (s Snapshot) gateEntry(profile *fleet.Profile) livegate.Node {
	snapshot := fleet.Snapshot{Profiles: s.Profiles, Ready: map[string]bool{s.Node.Name: s.AgentReady}}
	entry := fleet.GateEntry(snapshot, s.Node, s.ClientNode, s.Limits.UntunedTaint)
	entry.Desired = s.Desired.Hash
	entry.Canary = fleet.CanaryMatcher(profile)(s.Node.Labels)
	return entry
}

// nextTurn returns the time until the next check: short, and exactly at the end of a soak.
func nextTurn(soak time.Duration) time.Duration {
	if soak > 0 {
		return min(soak, turnAfter)
	}
	return turnAfter
}

// concernedProfiles returns the profiles whose rollout rules apply to a change of a node's settings: the profiles that contribute settings, and the
// profiles whose settings are removed.
func concernedProfiles(s Snapshot) []string {
	profiles := slices.Clone(s.Desired.Profiles)
	leaving := lists.Filter(s.Profiles.Carried(s.ClientNode), func(profile *fleet.Profile) bool {
		return profile.Standing == match.Leaving || !s.Desired.Managed
	})
	return append(profiles, lists.Each(leaving, func(profile *fleet.Profile) string { return profile.Name })...)
}
