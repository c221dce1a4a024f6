package plan

import (
	"time"

	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
)

// VerdictAge is how long the gate's verdict on a profile's nodes is kept. Each of thousands that wait would otherwise ask for all of
// them.
const VerdictAge = time.Second

// verdict is what the gate said of a profile's nodes. By itself it is only ever used to make a node wait.
type verdict struct {
	livegate.Decision
	// profiles and nodes are what it was said of.
	profiles *fleet.ProfileSet
	nodes    map[string]*livegate.Node
	// at is when it was said.
	at time.Time
}

func newVerdict(decision livegate.Decision, profiles *fleet.ProfileSet, nodes []livegate.Node, now time.Time) verdict {
	out := verdict{Decision: decision, profiles: profiles, nodes: make(map[string]*livegate.Node, len(nodes)), at: now}
	for i := range nodes {
		out.nodes[nodes[i].Name] = &nodes[i]
	}
	return out
}

// knows reports whether the verdict was said of the node as it is.
func (v verdict) knows(node livegate.Node) bool {
	then, known := v.nodes[node.Name]
	return known && *then == node
}

// denies reports whether the node has to wait, as far as the verdict can still tell: not after a moment, nor once a soak is
// over, nor where the profiles or the node itself have changed.
func (v verdict) denies(node livegate.Node, profiles *fleet.ProfileSet, now time.Time) bool {
	age := now.Sub(v.at)
	switch {
	case !v.knows(node), v.profiles != profiles, v.Admitted[node.Name]:
		return false
	default:
		return age >= 0 && age < VerdictAge && (v.Next == 0 || age < v.Next)
	}
}

// soakLeft is how much is left of the next soak, 0 where nothing soaks.
func (v verdict) soakLeft(now time.Time) time.Duration {
	if v.Next == 0 {
		return 0
	}
	return v.Next - now.Sub(v.at)
}
