package plan

import (
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

// Recheck returns why a step that was decided on may not be taken any more, empty if it may. It asks pauses, modes, policies, approvals and
// windows again, and whether the node is to have the same boot settings. A node that has its permit is cordoned again whatever they say:
// it may go down.
func (s *Session) Recheck(rules Rules, step Step) (reason, message string) {
	known := s.find(step.NodeName())
	if known == nil || known.ClientNode == nil {
		return v1alpha1.RolloutReasonNothingToDo, "The node is not managed"
	}
	node, clientNode := *known.Node, *known.ClientNode
	if _, cordon := step.(Cordon); cordon && clientNode.Spec.RebootPermit != nil {
		return "", ""
	}
	clientNode.WantedBootHash, node.ClientNode = rules.WantedBootHashes[node.Name], &clientNode
	p := newPlanner(Begin(Snapshot{Now: rules.Now, Paused: rules.Paused, Profiles: rules.Profiles, Claims: s.Claims, Nodes: []Node{node}}))
	n := p.find(node.Name)
	if reason, message := p.checkInstructions(n); reason != "" {
		return reason, message
	}
	if n.isChanging() {
		return n.whyNeedUnknown()
	}
	return "", ""
}
