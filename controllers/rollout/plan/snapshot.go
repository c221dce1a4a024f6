package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

// Snapshot is everything that a decision rests on, as the API objects had it.
type Snapshot struct {
	// Now is the time of the decision.
	Now time.Time
	// Budget is the cluster-wide budget in nodes, resolved; under 1 counts as 1.
	Budget int
	// UnmanagedCountFor is for how long a node without a profile that is out of service uses up the cluster's budget; 0: until it is back.
	UnmanagedCountFor time.Duration
	// Paused is true while the manager's namespace carries the paused annotation.
	Paused bool
	// Claims are the entries of the budget's ConfigMap by node.
	Claims map[string]v1alpha1.Disruption
	// Failures are the entries of the failures' ConfigMap by profile, UnreadFailures the profiles whose entry cannot be read.
	Failures       map[string]v1alpha1.ProfileFailures
	UnreadFailures sets.Set[string]
	// Immutable names those of the two ConfigMaps, claims and failures, that are immutable.
	Immutable []string
	// Profiles are all StorageClientProfiles.
	Profiles []Profile
	// Nodes are all Nodes of the cluster; for a session that goes on, those that may have changed. Gone names those that are not there any more.
	Nodes []Node
	Gone  []string
}

// Profile is what the rollout needs to know of a StorageClientProfile.
type Profile struct {
	// Name is the profile's name.
	Name string
	// Priority decides between profiles of a node; higher wins.
	Priority int32
	// Rollout holds the rollout's rules with defaults.
	Rollout v1alpha1.Rollout
	// Deleting is true once the profile has a deletion timestamp.
	Deleting bool
	// Paused is why the profile is paused, Inert why it disrupts nothing, PlanMode or Invalid; empty if it is not, or acts.
	Paused, Inert string
	// PlanHash is what an approval names; Approved is true if the annotation or the field names it.
	PlanHash string
	Approved bool
	// Retry is the value of the retry annotation.
	Retry string
	// Windows are the times in which disruptions may begin and go on; none: at all times.
	Windows windows.Set
	// BootKeys are the keys of the profile's settings that take effect at boot.
	BootKeys sets.Set[string]
}

// Node is what the rollout observes of a Node, its StorageClientNode and its drain.
type Node struct {
	// Name, UID, Created and Labels are the Node's metadata.
	Name, UID string
	Created   time.Time
	Labels    map[string]string
	// BootID is the boot that the kubelet reports.
	BootID string
	// Ready is the Ready condition, ReadySince is when it changed last; zero if unknown.
	Ready      bool
	ReadySince time.Time
	// UnavailableSince is since when the node has been unavailable; nil if unknown.
	UnavailableSince *time.Time
	// Unschedulable is spec.unschedulable.
	Unschedulable bool
	// Deleting is true once the Node has a deletion timestamp.
	Deleting bool
	// Leaving is the key of the taint by which others say that they are about to remove the node, empty if there is none.
	Leaving string
	// Maintainer is the reason of another controller's condition MaintenanceInProgress while it is True, empty if there is none.
	Maintainer string
	// Mark is our annotation, nil if there is none. One that cannot be read is empty.
	Mark *v1alpha1.Disruption
	// Guarded is true while the Node carries annotations or labels that we set for a disruption.
	Guarded bool
	// Maintenance is what our conditions on the Node say.
	Maintenance Maintenance
	// ControlPlane marks a control-plane node, Manager the node that the manager's own Pod runs on.
	ControlPlane, Manager bool
	// Paused, Ignored and NeverDisrupt are the annotations of these names.
	Paused, Ignored, NeverDisrupt bool
	// Untuned is true while the Node carries the untuned taint, Vacant if besides no pod is on it that a drain would have to remove: it
	// serves nothing yet.
	Untuned, Vacant bool
	// Profiles are the names of the profiles that select the node, those being deleted included.
	Profiles []string
	// AgentReady is true while the agent's Pod on the node is Ready, AgentSilent while the condition Tuned says that the agent is silent:
	// for longer than a restart takes.
	AgentReady, AgentSilent bool
	// ClientNode is the node's StorageClientNode, nil if there is none for this Node.
	ClientNode *ClientNode
	// Drain is how far the node's drain is, as just seen; nil if its pods have not been inspected in this pass.
	Drain *DrainProgress
	// Evicted is how many pods the node's present drain has evicted, as far as this process knows.
	Evicted int32
	// Inspected is when its pods were inspected last, as far as this process knows. It only delays the next inspection.
	Inspected time.Time
	// ApplyingSince is since when the node's agent has been about settings that it has not reported yet, as far as this process knows; zero
	// if unknown. It only keeps what is over within seconds from being written.
	ApplyingSince time.Time
}

// ClientNode is what the rollout observes of a StorageClientNode.
type ClientNode struct {
	// UID and Generation are the object's.
	UID        string
	Generation int64
	// WantedBootHash is the boot hash that the profiles ask for now; the spec follows as the live rollout lets it.
	WantedBootHash string
	// Withheld are boot settings that the spec leaves out since a permitted reboot did not bring them.
	Withheld []string
	// Spec is what the agent must do.
	Spec v1alpha1.StorageClientNodeSpec
	// Status is what the agent has reported, and the rollout's note.
	Status v1alpha1.StorageClientNodeStatus
}

// DrainProgress is how far a drain is.
type DrainProgress struct {
	// Gone is true once no pod is left that a drain has to remove or to wait for.
	Gone bool
	// Reason is a word for what it waits for, Message a sentence, sorted and capped.
	Reason, Message string
	// LeftPodUIDs are the pods that a drain leaves, DaemonSet and static ones.
	LeftPodUIDs []string
	// Names are namespace and name of the pods that are not gone, by UID.
	Names map[string]string
}

// Maintenance is what our conditions on a Node say.
type Maintenance string

// Maintenance states.
const (
	// MaintenanceNone means that the Node carries no condition of ours.
	MaintenanceNone Maintenance = ""
	// MaintenanceDraining is MaintenanceInProgress and DrainInProgress.
	MaintenanceDraining Maintenance = "Draining"
	// MaintenanceDrained is MaintenanceInProgress and Drained.
	MaintenanceDrained Maintenance = "Drained"
	// MaintenanceOther is a mix of ours that a crash or somebody else left behind.
	MaintenanceOther Maintenance = "Other"
)
