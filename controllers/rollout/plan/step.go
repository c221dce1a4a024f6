package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
)

// MaxAttempts is how many permits a node gets for one boot hash.
const MaxAttempts = 3

// readyGrace is how long a node that is Ready again has to be healthy before anything is written about it.
const readyGrace = 5 * time.Second

// What is over within so long is not written down: the cordon's mark shows a drain, and the agent's report comes by itself.
const (
	drainNotedAfter    = 15 * time.Second
	applyingNotedAfter = 30 * time.Second
)

// RefusalPause is how long the agent is left alone after it refused a permit or its host refused the reboot, within the time of a drain.
const RefusalPause = time.Minute

// ZonePatience is how long a drain keeps other zones waiting: one that takes longer waits for somebody or something, and
// the budget is better spent than idle.
const ZonePatience = 5 * time.Minute

// MinDrainInterval and MaxDrainInterval bound how soon the pods of draining nodes are inspected again, so that a freed node does not idle, and
// many of them do not load the API server.
const (
	MinDrainInterval = time.Second
	MaxDrainInterval = 5 * time.Second
	// minTerminationInterval takes the place of MinDrainInterval while all that is left are pods that terminate.
	minTerminationInterval = time.Second / 2
)

// Between the bounds, the interval is so much for each node that is being drained. An inspection takes one read a node while all
// that is left are pods that terminate, and up to three otherwise: that is 100 and 150 reads a second.
const (
	drainIntervalPerNode       = 20 * time.Millisecond
	terminationIntervalPerNode = 10 * time.Millisecond
)

// MaxMessage bounds a note's message, in characters, as the API does.
const MaxMessage = 1024

// Plan is what to do next.
type Plan struct {
	// Steps are to be applied in order. Where one cannot be applied, the later ones of the same node must not be.
	Steps []Step
	// Notes is the note of every node that has a StorageClientNode, as it is once the node's steps are applied.
	Notes map[string]v1alpha1.RolloutStatus
	// Draining are the nodes whose pods may be asked to leave until the next plan, and those of no other.
	Draining sets.Set[string]
	// Failures is what is to be remembered of failures, before any step; nil: what is remembered now.
	Failures *FailureChange
	// Queued is true while nodes wait for their turn: others have to return to service first, or to be accepted.
	Queued bool
	// Next is when to plan again although nothing changed; zero: never.
	Next time.Time
}

// Step is one thing to do, a single write for whoever applies it.
type Step interface {
	// NodeName is the node that the step is about.
	NodeName() string
	// String names the step in a line.
	String() string
}

// OnNode names the node that a step is about.
type OnNode struct {
	// Node is the node's name.
	Node string
}

// NodeName implements Step.
func (s OnNode) NodeName() string { return s.Node }

// AddClaim enters the node in the budget's ConfigMap.
type AddClaim struct {
	OnNode
	// Claim is the entry.
	Claim v1alpha1.Disruption
	// Options are those of the drain that is to follow, with defaults.
	Options v1alpha1.Drain
	// Missing is true where the node is disrupted by us already and only its entry is missing.
	Missing bool
}

// Cordon makes the node unschedulable, marks the cordon as ours and keeps autoscalers off the node, in one write.
type Cordon struct {
	OnNode
	// Mark is the annotation.
	Mark v1alpha1.Disruption
	// ExcludeFromLoadBalancers also takes the node out of external load balancers.
	ExcludeFromLoadBalancers bool
}

// RemoveGuards takes away the annotations and labels that kept autoscalers and load balancers off the node, where no uncordon
// does: somebody has taken our mark off.
type RemoveGuards struct {
	OnNode
}

// SetMaintenance writes our maintenance conditions on the Node, or takes them away.
type SetMaintenance struct {
	OnNode
	// State is what they are to say.
	State Maintenance
	// Permitting has the Node written even if they say so already: a permit follows, and an uncordon by a manager that read
	// the Node before is to meet a conflict.
	Permitting bool
}

// Drain has the node's pods evicted in the background. How far that is belongs into Node.Drain before anything else is decided.
type Drain struct {
	OnNode
	// Options are the profile's, with defaults.
	Options v1alpha1.Drain
	// Evicted is how many pods this drain has evicted, as far as the note tells.
	Evicted int32
	// AfterCordon is true where the step before it cordons the node: its pods are inspected after that, and what is found belongs
	// to the next plan.
	AfterCordon bool
}

// WriteNote writes the note ahead of the steps that follow, where what it says cannot be observed again.
type WriteNote struct {
	OnNode
	// Note is what is written.
	Note v1alpha1.RolloutStatus
}

// GivePermit gives the agent the right to reboot once.
type GivePermit struct {
	OnNode
	// Permit is the permit.
	Permit v1alpha1.RebootPermit
}

// ClearPermit takes the permit away: used up, answered without a reboot, or outlived by a boot.
type ClearPermit struct {
	OnNode
	// ID is the permit's.
	ID string
	// Reason is a word for why.
	Reason string
}

// Uncordon makes the node schedulable and takes off the mark and whatever else we set with it, in one write.
type Uncordon struct {
	OnNode
	// Reason is a word for why.
	Reason string
}

// ReleaseClaim takes the node out of the budget's ConfigMap.
type ReleaseClaim struct {
	OnNode
}

// RemoveTaint takes the untuned taint off the node.
type RemoveTaint struct {
	OnNode
}

func (s AddClaim) String() string {
	if s.Missing {
		return fmt.Sprintf("claim %s again for %s", s.Node, s.Claim.Profile)
	}
	return fmt.Sprintf("claim %s for %s", s.Node, s.Claim.Profile)
}

func (s Cordon) String() string { return "cordon " + s.Node }

func (s RemoveGuards) String() string { return "take our guards off " + s.Node }

func (s SetMaintenance) String() string {
	if s.State == MaintenanceNone {
		return fmt.Sprintf("conditions of %s: none", s.Node)
	}
	if s.Permitting {
		return fmt.Sprintf("conditions of %s: %s, for a permit", s.Node, s.State)
	}
	return fmt.Sprintf("conditions of %s: %s", s.Node, s.State)
}

func (s Drain) String() string { return "drain " + s.Node }

func (s WriteNote) String() string {
	return fmt.Sprintf("note %s: %s %s", s.Node, s.Note.Phase, s.Note.Reason)
}

func (s GivePermit) String() string { return "permit the reboot of " + s.Node }

func (s ClearPermit) String() string {
	return fmt.Sprintf("clear the permit of %s: %s", s.Node, s.Reason)
}

func (s Uncordon) String() string { return fmt.Sprintf("uncordon %s: %s", s.Node, s.Reason) }

func (s ReleaseClaim) String() string { return "release the claim of " + s.Node }

func (s RemoveTaint) String() string { return "take the untuned taint off " + s.Node }
