package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// MaxAttempts is how many permits a node gets for one boot hash.
	MaxAttempts = 3
	// RefusalPause is how long the agent is left alone after it refused a permit or its host refused the reboot, within the time of a drain.
	RefusalPause = time.Minute
	// ZonePatience is how long a drain keeps other zones waiting: one that takes longer waits for people or pods, and the budget is better
	// spent than idle.
	ZonePatience = 5 * time.Minute
	// MaxMessage bounds a note's message, in characters, as the API does.
	MaxMessage = 1024
	// readyGrace is how long a node that is Ready again has to be healthy before anything is written about it.
	readyGrace = 5 * time.Second
	// What is over within so long is not written: the cordon's mark shows a drain, and the agent's report comes by itself.
	drainNotedAfter    = 15 * time.Second
	applyingNotedAfter = 30 * time.Second
)

const (
	// MinDrainInterval is the shortest time between two inspections of the pods of draining nodes, so that a freed node does not idle.
	MinDrainInterval = time.Second
	// MaxDrainInterval is the longest time between them: many draining nodes must not load the API server.
	MaxDrainInterval = 5 * time.Second
	// minTerminationInterval is the shortest time while only pods that terminate are left.
	minTerminationInterval = time.Second / 2
	// Between the bounds, the interval grows with each draining node. An inspection takes one read a node while only pods that terminate
	// are left, and up to three otherwise: that is 100 and 150 reads a second.
	drainIntervalPerNode       = 20 * time.Millisecond
	terminationIntervalPerNode = 10 * time.Millisecond
)

// Plan is what to do next.
type Plan struct {
	// Steps are in order. If one cannot be applied, the later ones of the same node must not be.
	Steps []Step
	// Notes are the notes of all nodes with a StorageClientNode, as they are once the node's steps are applied.
	Notes map[string]v1alpha1.RolloutStatus
	// Draining are the nodes whose pods may be asked to leave until the next plan, and those of no other.
	Draining sets.Set[string]
	// Failures are the failures to record before any step; nil: those that are recorded now.
	Failures *FailureChange
	// Queued is true while nodes wait for their turn: others have to return to service first, or to be accepted.
	Queued bool
	// Next is when to plan again although nothing changed; zero: never.
	Next time.Time
}

// Step is a single write, or a drain.
type Step interface {
	// NodeName returns the name of the node that the step is about.
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
	// Options are those of the drain that follows, with defaults.
	Options v1alpha1.Drain
	// Missing is true if the node is disrupted by us already and only its entry is missing.
	Missing bool
}

func (s AddClaim) String() string {
	if s.Missing {
		return fmt.Sprintf("claim %s again for %s", s.Node, s.Claim.Profile)
	}
	return fmt.Sprintf("claim %s for %s", s.Node, s.Claim.Profile)
}

// UpdateClaim records in a node's claim that a permit is about to be given, or has been answered.
type UpdateClaim struct {
	OnNode
	// Claim is the entry.
	Claim v1alpha1.Disruption
}

func (s UpdateClaim) String() string {
	switch {
	case s.Claim.Permit == nil:
		return fmt.Sprintf("claim of %s: no permit", s.Node)
	case s.Claim.Permit.Leaving != "":
		return fmt.Sprintf("claim of %s: permit, and leaving (%s)", s.Node, s.Claim.Permit.Leaving)
	}
	return fmt.Sprintf("claim of %s: permit", s.Node)
}

// ReleaseClaim takes the node out of the budget's ConfigMap.
type ReleaseClaim struct{ OnNode }

func (s ReleaseClaim) String() string { return "release the claim of " + s.Node }

// Cordon makes the node unschedulable, marks the cordon as ours and keeps autoscalers off the node, in one write.
type Cordon struct {
	OnNode
	// Mark is the annotation.
	Mark v1alpha1.Disruption
	// ExcludeFromLoadBalancers also takes the node out of external load balancers.
	ExcludeFromLoadBalancers bool
}

func (s Cordon) String() string { return "cordon " + s.Node }

// Uncordon makes the node schedulable and removes the mark and whatever else we set with it, in one write.
type Uncordon struct {
	OnNode
	// Reason is a word for why.
	Reason string
}

func (s Uncordon) String() string { return fmt.Sprintf("uncordon %s: %s", s.Node, s.Reason) }

// RemoveGuards removes what kept autoscalers and load balancers off the node, if no uncordon does: someone has removed our mark.
type RemoveGuards struct{ OnNode }

func (s RemoveGuards) String() string { return "take our guards off " + s.Node }

// SetMaintenance writes our maintenance conditions on the Node, or removes them.
type SetMaintenance struct {
	OnNode
	// State is the new state.
	State Maintenance
	// Permitting has the Node written even if it has that state: a permit follows, and an uncordon by a manager that read the Node before
	// must meet a conflict.
	Permitting bool
}

func (s SetMaintenance) String() string {
	switch {
	case s.State == MaintenanceNone:
		return fmt.Sprintf("conditions of %s: none", s.Node)
	case s.Permitting:
		return fmt.Sprintf("conditions of %s: %s, for a permit", s.Node, s.State)
	}
	return fmt.Sprintf("conditions of %s: %s", s.Node, s.State)
}

// Drain has the node's pods evicted in the background. How far that is belongs into Node.Drain before anything else is decided.
type Drain struct {
	OnNode
	// Options are the profile's, with defaults.
	Options v1alpha1.Drain
	// Evicted is how many pods this drain has evicted, according to the note.
	Evicted int32
	// AfterCordon is true if the step before it cordons the node: what is found belongs to the next plan.
	AfterCordon bool
}

func (s Drain) String() string { return "drain " + s.Node }

// WriteNote writes the note ahead of the steps that follow, if what it contains cannot be observed again.
type WriteNote struct {
	OnNode
	// Note is what is written.
	Note v1alpha1.RolloutStatus
}

func (s WriteNote) String() string {
	return fmt.Sprintf("note %s: %s %s", s.Node, s.Note.Phase, s.Note.Reason)
}

// GivePermit gives the agent the right to reboot once.
type GivePermit struct {
	OnNode
	// Permit is the permit.
	Permit v1alpha1.RebootPermit
}

func (s GivePermit) String() string { return "permit the reboot of " + s.Node }

// ClearPermit removes the permit: used up, answered without a reboot, or outlived by a boot.
type ClearPermit struct {
	OnNode
	// ID is the permit's.
	ID string
	// Reason is a word for why.
	Reason string
}

func (s ClearPermit) String() string {
	return fmt.Sprintf("clear the permit of %s: %s", s.Node, s.Reason)
}

// RemoveTaint removes the untuned taint from the node.
type RemoveTaint struct{ OnNode }

func (s RemoveTaint) String() string { return "take the untuned taint off " + s.Node }
