package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

// Snapshot is the complete input of a decision, as read from the API objects.
type Snapshot struct {
	Now time.Time
	// Budget is the cluster-wide budget in nodes, resolved; under 1 counts as 1.
	Budget int
	// UnmanagedCountFor is the time for which an unavailable node without a profile uses up the cluster's budget; 0: until it is back.
	UnmanagedCountFor time.Duration
	// Paused is true while the manager's namespace has the paused annotation.
	Paused bool
	// Claims are the entries of the budget's ConfigMap by node.
	Claims map[string]v1alpha1.Disruption
	// Failures are the entries of the failures' ConfigMap by profile; UnreadFailures are the profiles whose entry cannot be read.
	Failures       map[string]v1alpha1.ProfileFailures
	UnreadFailures sets.Set[string]
	// Immutable contains the names of the immutable ConfigMaps among the two for claims and failures.
	Immutable []string
	Profiles  []Profile
	// Nodes are all Nodes of the cluster; for a session that continues, the Nodes that may have changed. Gone contains the names of removed Nodes.
	Nodes []Node
	Gone  []string
}

// Profile contains the data of a StorageClientProfile that the rollout needs.
type Profile struct {
	Name string
	// Priority decides between profiles of a node; higher wins.
	Priority int32
	// Rollout contains the rules of the rollout with defaults.
	Rollout  v1alpha1.Rollout
	Deleting bool
	// Paused is the reason why the profile is paused. Inert is the reason why it disrupts no node: PlanMode or Invalid. Empty if there is none.
	Paused, Inert string
	// PlanHash is the hash that an approval must name; Approved is true if the annotation or the field names it.
	PlanHash string
	Approved bool
	// SettingsHash is the hash of the settings that require a reboot, for which failures are recorded.
	SettingsHash string
	// Retry is the value of the retry annotation.
	Retry string
	// Windows are the times in which disruptions may start and continue; none: at all times.
	Windows windows.Set
	// BootKeys are the keys of the profile's settings that take effect at boot.
	BootKeys sets.Set[string]
}

// Node contains the observations of a Node, its StorageClientNode and its drain.
type Node struct {
	Name, UID string
	Created   time.Time
	Labels    map[string]string
	// BootID is the boot that the kubelet reports.
	BootID string
	// Ready is the Ready condition, ReadySince the latest possible time of its last change; zero if unknown. OutSince is the earliest possible time
	// at which the node was last out of Ready; zero if unknown.
	Ready                bool
	ReadySince, OutSince time.Time
	// UnavailableSince is the time at which the node became unavailable; nil if unknown.
	UnavailableSince *time.Time
	Unschedulable    bool
	Deleting         bool
	// Leaving is the key of the taint by which others announce the removal of the node, or the kind and the key of another mark; empty if there is
	// none. LeavesLater is true if the node still serves.
	Leaving     string
	LeavesLater bool
	// Maintainer is the reason of another controller's condition MaintenanceInProgress while it is True, empty if there is none.
	Maintainer string
	// Mark is the operator's annotation, nil if there is none. It is empty if it cannot be read.
	Mark *v1alpha1.Disruption
	// Guarded is true while the Node has annotations or labels that the operator sets for a disruption.
	Guarded bool
	// Maintenance is the state that the operator's conditions on the Node show.
	Maintenance Maintenance
	// ControlPlane marks a control-plane node, Manager the node that runs the manager's Pod.
	ControlPlane, Manager bool
	// TakesPods is true if the node's taints keep no ordinary pod off. TakesManager is true if the node could run the manager's Pod, or does; it is
	// false for all nodes if that Pod is unknown.
	TakesPods, TakesManager bool
	// Paused, Ignored and NeverDisrupt are the annotations of these names.
	Paused, Ignored, NeverDisrupt bool
	// Untuned is true while the Node has the untuned taint, Vacant if it also has no pod that a drain must remove: it serves nothing yet.
	Untuned, Vacant bool
	// VolumesInUse are the volumes that the Node reports as in use or attached while it is unschedulable.
	VolumesInUse []string
	// Profiles are the names of the profiles that select the node, including profiles that are being deleted.
	Profiles []string
	// AgentReady is true while the agent's Pod is Ready, AgentSilent while the condition Tuned shows that it is silent for longer than a restart.
	AgentReady, AgentSilent bool
	// SilentSince is the time since which the condition Tuned shows that; zero if it does not.
	SilentSince time.Time
	// ClientNode is the node's StorageClientNode, nil if there is none for this Node.
	ClientNode *ClientNode
	// Drain is the progress of the node's drain; nil if its pods have not been inspected in this pass.
	Drain *DrainProgress
	// Evicted is the number of pods that the node's current drain has evicted, if this process knows it.
	Evicted int32
	// Inspected is the time of the last inspection of its pods, if this process knows it. It only delays the next inspection.
	Inspected time.Time
	// ApplyingSince is the time since which the agent has been applying settings that it has not reported yet; zero if this process does not know
	// it. It only prevents writes about states that are over within seconds.
	ApplyingSince time.Time
	// BehindSince is the time since which this process knows that the StorageClientNode does not have the desired boot hash; zero if it has.
	BehindSince time.Time
}

// ClientNode contains the observations of a StorageClientNode.
type ClientNode struct {
	UID        string
	Generation int64
	// DesiredBootHash is the desired boot hash, merged from the current profiles. The spec follows when the live rollout permits it.
	DesiredBootHash string
	// Withheld are settings that the spec omits because a permitted reboot did not make them effective.
	Withheld []string
	// Spec contains the instructions for the agent.
	Spec v1alpha1.StorageClientNodeSpec
	// Status contains the report of the agent, and the rollout's note.
	Status v1alpha1.StorageClientNodeStatus
}

// DrainProgress is the progress of a drain.
type DrainProgress struct {
	// Gone is true once no pod is left that the drain must remove or wait for.
	Gone bool
	// TooLate is true if no pod was evicted, and the grace periods are longer than the time left.
	TooLate bool
	// Reason is the word for the current wait; Message is a sentence, sorted and capped.
	Reason, Message string
	// Remarks is a sentence about pods that the drain leaves; empty if there are none.
	Remarks string
	// HeldByBudgets is true if the only obstacles are PodDisruptionBudgets.
	HeldByBudgets bool
	// IgnoredPodUIDs are DaemonSet and static pods. Left are the other pods that a drain leaves on the node: a phrase for each, by UID.
	IgnoredPodUIDs []string
	Left           map[string]string
	// KeepsVolumes is true if a pod that stays has a persistent volume.
	KeepsVolumes bool
	// Budgets are the shares of the pods that stay in their PodDisruptionBudgets, by namespace and name.
	Budgets map[string]BudgetShare
	// Names are the namespaces and names of the pods that are not gone, by UID.
	Names map[string]string
}

// BudgetShare is the number of a node's pods in a PodDisruptionBudget, and the number of disruptions that the budget allows now.
type BudgetShare struct{ Pods, Allowed int }

// Maintenance is the state that the operator's conditions on a Node show.
type Maintenance string

// Maintenance states.
const (
	// MaintenanceNone means that the Node has no condition of the operator.
	MaintenanceNone Maintenance = ""
	// MaintenanceDraining is MaintenanceInProgress and DrainInProgress.
	MaintenanceDraining Maintenance = "Draining"
	// MaintenanceDrained is MaintenanceInProgress and Drained.
	MaintenanceDrained Maintenance = "Drained"
	// MaintenanceOther is a mix of these conditions that a crash or another user left behind.
	MaintenanceOther Maintenance = "Other"
)

// permitID returns the ID of the permit for an attempt. It is a version 7 UUID: the time at which the attempt started, then a hash of the purpose
// of the permit. A manager that gives the permit again after a crash, or a second manager, uses the same ID, and an agent uses it once.
func permitID(n *nodeState, attempt v1alpha1.RolloutStatus) string {
	start := ptr.Deref(attempt.Since, metav1.Time{})
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n", n.ClientNode.UID, attempt.BootHash, n.BootID, attempt.Attempts))
	var id [16]byte
	copy(id[6:], sum[:])
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(max(start.UnixMilli(), 0)))
	copy(id[:6], millis[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func (n *nodeState) isPermitOf(id string, attempt v1alpha1.RolloutStatus) bool {
	attempt.Since = &metav1.Time{Time: permitTime(id)}
	return permitID(n, attempt) == id
}

// permitTime returns the start of the attempt of a permit, zero if the ID does not contain it.
func permitTime(id string) time.Time {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != 16 || raw[6]>>4 != 7 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, raw[:6]...))))
}
