package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// MaxAttempts is the maximum number of permits that a node gets for one boot hash.
	MaxAttempts = 3
	// RefusalPause is the pause after the agent rejected a permit or its host rejected the reboot. It is part of the time of a drain.
	RefusalPause = time.Minute
	// overduePause is the minimum time between the two passes that must find a permit overdue: a clock may jump.
	overduePause = time.Minute
	// ZonePatience is the maximum time that a drain keeps other zones waiting. They use the budget while a longer drain waits for users or pods.
	ZonePatience = 5 * time.Minute
	// volumesPatience is the maximum time that a drained node waits for its volumes to be unmounted and detached.
	volumesPatience = 2 * time.Minute
	// MaxMessage limits the message of a note, in characters, as the API does.
	MaxMessage = 1024
	// readyGrace is the time that a node has to become healthy after it is Ready again, before a note is written about it.
	readyGrace = 5 * time.Second
	// Shorter states are not written: the cordoned node's annotation shows a drain, and the agent reports without a write by the manager.
	drainNoteDelay    = 15 * time.Second
	applyingNoteDelay = 30 * time.Second
)

const (
	// MinDrainInterval is the shortest time between two inspections of the pods of draining nodes, so that a freed node does not idle.
	MinDrainInterval = time.Second
	// MaxDrainInterval is the longest time between them: many draining nodes must not load the API server.
	MaxDrainInterval = 5 * time.Second
	// minTerminationInterval is the shortest time while only terminating pods are left.
	minTerminationInterval = time.Second / 2
	// Between the bounds, the interval grows with each draining node. An inspection needs one read a node while only terminating pods are left, and
	// up to three otherwise: that is 100 and 150 reads a second.
	drainIntervalPerNode       = 20 * time.Millisecond
	terminationIntervalPerNode = 10 * time.Millisecond
)

// Plan contains the next steps.
type Plan struct {
	// Steps are in order. If one cannot be applied, the later steps of the same node must not be applied.
	Steps []Step
	// Notes are the notes of all nodes with a StorageClientNode, valid once the steps of the node are applied.
	Notes map[string]v1alpha1.RolloutStatus
	// Draining are the nodes whose pods may be evicted until the next plan. Pods of other nodes must not be.
	Draining sets.Set[string]
	// Failures are the failures to record before any step; nil if the record does not change.
	Failures *FailureChange
	// Queued is true while nodes wait for their turn: others must return to service first, or be accepted.
	Queued bool
	// Next is the time of the next plan if no object changes; zero: never.
	Next time.Time
}

// Step is a single write, or a drain.
type Step interface {
	NodeName() string
}

// OnNode contains the name of a step's node.
type OnNode struct{ Node string }

// NodeName implements Step.
func (s OnNode) NodeName() string { return s.Node }

// AddClaim adds the node to the budget's ConfigMap.
type AddClaim struct {
	OnNode
	Claim v1alpha1.Disruption
	// Options are the options of the drain that follows, with defaults.
	Options v1alpha1.Drain
	// Missing is true if the rollout already disrupts the node and only its entry is missing.
	Missing bool
}

// UpdateClaim records in a node's claim that a permit is about to be given, is overdue, or is no longer there.
type UpdateClaim struct {
	OnNode
	Claim v1alpha1.Disruption
}

// ReleaseClaim removes the node from the budget's ConfigMap.
type ReleaseClaim struct{ OnNode }

// Cordon makes the node unschedulable, annotates it and keeps autoscalers off it, in one write.
type Cordon struct {
	OnNode
	// Mark is the annotation.
	Mark v1alpha1.Disruption
	// ExcludeFromLoadBalancers also removes the node from external load balancers.
	ExcludeFromLoadBalancers bool
}

// Uncordon makes the node schedulable and removes the annotation and everything that was set with it, in one write.
type Uncordon struct {
	OnNode
	// Reason is one word.
	Reason string
}

// RemoveGuards removes the annotations and labels that kept autoscalers and load balancers off the node, if a user has removed the operator's
// annotation and no uncordon removes them.
type RemoveGuards struct{ OnNode }

// SetMaintenance writes the operator's maintenance conditions on the Node, or removes them.
type SetMaintenance struct {
	OnNode
	State Maintenance
	// Permitting forces a write of the Node even if it has that state. A permit follows, and an uncordon by a manager that read the Node before
	// must meet a conflict.
	Permitting bool
}

// Drain evicts the pods of the node in the background. Before any other decision, the caller must put its progress into Node.Drain.
type Drain struct {
	OnNode
	// Options are the options of the profile, with defaults.
	Options v1alpha1.Drain
	// Evicted is the number of pods that this drain has evicted, according to the note.
	Evicted int32
	// TimeLeft is the time in which all pods must leave, before the first eviction; zero if there is no limit.
	TimeLeft time.Duration
	// AfterCordon is true if the previous step cordons the node. The result then belongs to the next plan.
	AfterCordon bool
}

// WriteNote writes the note before the steps that follow, if it contains facts that cannot be observed again.
type WriteNote struct {
	OnNode
	Note v1alpha1.RolloutStatus
}

// GivePermit gives the agent the right to reboot once.
type GivePermit struct {
	OnNode
	Permit v1alpha1.RebootPermit
}

// ClearPermit removes a permit that is used up, withdrawn before its use, or older than the current boot. It must meet a conflict if the agent has
// announced the reboot since.
type ClearPermit struct {
	OnNode
	ID string
	// Reason is one word.
	Reason string
	// Cordon restores the cordon if the API server rejects the withdrawal, after Note has recorded the user's uncordon; nil for a cordoned node.
	Cordon *Cordon
	Note   v1alpha1.RolloutStatus
}

// RemoveTaint removes the untuned taint from the node.
type RemoveTaint struct{ OnNode }
