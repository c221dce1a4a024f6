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
	nodes    map[string]livegate.Node
	// at is when it was said.
	at time.Time
}

func newVerdict(decision livegate.Decision, profiles *fleet.ProfileSet, nodes []livegate.Node, now time.Time) verdict {
	out := verdict{Decision: decision, profiles: profiles, nodes: make(map[string]livegate.Node, len(nodes)), at: now}
	for _, node := range nodes {
		out.nodes[node.Name] = node
	}
	return out
}

// denies reports whether the node has to wait, as far as the verdict can still tell: not after a moment, nor once a soak is
// over, nor where the profiles or the node itself have changed.
func (v verdict) denies(node livegate.Node, profiles *fleet.ProfileSet, now time.Time) bool {
	age := now.Sub(v.at)
	switch then, known := v.nodes[node.Name]; {
	case !known || then != node, v.profiles != profiles, v.Admitted[node.Name]:
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
