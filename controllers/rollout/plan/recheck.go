package plan

import (
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Rules are what people write down and what the clock says: all that may change between a plan and a write without making the write a
// conflict.
type Rules struct {
	// Now is the time.
	Now time.Time
	// Paused is true while the manager's namespace carries the paused annotation.
	Paused bool
	// Profiles are all StorageClientProfiles.
	Profiles []Profile
	// WantedBootHashes are the boot hashes that the profiles ask for, by node.
	WantedBootHashes map[string]string
}

// Recheck says why a step that a plan made of the snapshot asks for may not be taken any more, empty if it may. It asks pauses, modes,
// policies, approvals and windows again, and whether the node is to have the same boot settings. A node that has its permit is cordoned
// again whatever they say: it may go down.
func Recheck(s Snapshot, rules Rules, step Step) (reason, message string) {
	at := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == step.NodeName() })
	if at < 0 || s.Nodes[at].ClientNode == nil {
		return v1alpha1.RolloutReasonNothingToDo, "The node is not managed"
	}
	read, clientNode := s.Nodes[at], *s.Nodes[at].ClientNode
	if _, cordon := step.(Cordon); cordon && clientNode.Spec.RebootPermit != nil {
		return "", ""
	}
	clientNode.WantedBootHash = rules.WantedBootHashes[read.Name]
	read.ClientNode = &clientNode
	p := newPlanner(Snapshot{Now: rules.Now, Paused: rules.Paused, Profiles: rules.Profiles, Nodes: []Node{read}})
	n := p.byName[read.Name]
	if claim, claimed := s.Claims[read.Name]; claimed {
		n.claim = &claim
	}
	if reason, message := p.checkInstructions(n); reason != "" {
		return reason, message
	}
	if n.isChanging() {
		return n.whyNeedUnknown()
	}
	return "", ""
}
