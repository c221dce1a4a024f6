package overview

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

// Wait is an obstacle for a profile: an object that waits, by kind and name.
type Wait struct {
	Node `json:",inline"`
	// Until is the latest end of the wait, if it ends on its own. Nil if only the message may name the end, or if a user ends the wait.
	Until *metav1.Time `json:"until,omitempty"`
	// Action is the action of a user that ends the wait.
	Action string   `json:"action,omitempty"`
	Rank   WaitRank `json:"-"`
}

// WaitRank orders the waits of a profile: failures, waits that a user ends, waits that end at a known time, and waits for other nodes or volumes.
type WaitRank int

// Ranks of waits, in their order.
const (
	WaitFailed WaitRank = iota
	WaitUser
	WaitEnds
	WaitQueue
)

const checkAgent = "If the message stays, check the nodes and servers that it names, and the log of the agent's Pod on the node"

// Actions contains the actions that end waits, by the reason of a node's note, of the Node condition Tuned or of a profile's condition. If a user
// ends a wait, its reason is here.
var Actions = map[string]string{
	v1alpha1.NodeReasonAgentSilent:               "Check the agent's Pod on the node: `kubectl -n storage-client-agent get pods -o wide`",
	v1alpha1.NodeReasonApplying:                  checkAgent,
	v1alpha1.NodeReasonDrifted:                   "Find the program or user that writes the value, and let only one of the two set it",
	v1alpha1.NodeReasonFenceMissing:              "Apply the operator's manifest again: it contains the agent's admission policy",
	v1alpha1.NodeReasonRestoring:                 checkAgent,
	v1alpha1.NodeReasonSettingsFailed:            "Read the message in `status.settings` of the StorageClientNode; correct the settings or the file that it names",
	v1alpha1.ReasonConfigMapImmutable:            "Save the ConfigMap, delete it, and create it again without immutable",
	v1alpha1.ReasonFailureThreshold:              "Check the failed nodes; correct the settings, or retry: `kubectl storageclient retry PROFILE`",
	v1alpha1.ReasonInvalid:                       "Correct the field that the condition `Stalled` of the profile names",
	v1alpha1.ReasonPausedByAnnotation:            "Run `kubectl storageclient resume PROFILE`, or remove the annotation from the namespace of the manager",
	v1alpha1.ReasonPausedByField:                 "Set `spec.paused` of the profile to false",
	v1alpha1.ReasonPlanMode:                      "Review the plan, then set mode Enforce in the profile",
	v1alpha1.ReasonWaitingForApproval:            "Run `kubectl storageclient approve PROFILE`",
	v1alpha1.RolloutReasonAttemptsUsedUp:         "Compare desired and observed values in `status.settings` of the StorageClientNode, and correct the settings",
	v1alpha1.RolloutReasonCanaryFailed:           "Check the canary; correct the settings, or retry: `kubectl storageclient retry PROFILE`",
	v1alpha1.RolloutReasonCordonedByOthers:       "Uncordon the node when the other work on it is done, or delete its Node if it will not return",
	v1alpha1.RolloutReasonLastControlPlaneNode:   "Bring another control-plane node into service, or reboot this node by hand",
	v1alpha1.RolloutReasonNeverDisrupt:           "Remove the annotation `" + v1alpha1.NeverDisruptAnnotation + "` from the Node, or reboot it by hand",
	v1alpha1.RolloutReasonNodeDeleting:           "If the Node stays, remove its finalizers",
	v1alpha1.RolloutReasonNodeIgnored:            "Remove the annotation `" + v1alpha1.IgnoreAnnotation + "` from the Node",
	v1alpha1.RolloutReasonNodeInMaintenance:      "Wait for the other controller, or delete the Node if it will not return",
	v1alpha1.RolloutReasonNodeLeaving:            "If the node stays, remove the taint, label or annotation that the message names",
	v1alpha1.RolloutReasonNodePaused:             "Remove the annotation `" + v1alpha1.PausedAnnotation + "` from the Node",
	v1alpha1.RolloutReasonNodeUnavailable:        "Bring the node back, or delete its Node if it will not return",
	v1alpha1.RolloutReasonOnlyManagerNode:        "Let the manager run on another node, or reboot this node by hand",
	v1alpha1.RolloutReasonOnlySchedulableNode:    "Add a node, or reboot this node by hand",
	v1alpha1.RolloutReasonProfileGone:            "Create the profile again, or remove its settings with a new profile for these nodes",
	v1alpha1.RolloutReasonRebootPolicyNever:      "Reboot the node by hand, or change `rollout.reboot.policy`",
	v1alpha1.RolloutReasonRebootTimedOut:         "Check the node's console and the log of its agent's Pod; if the node stays down, reboot it by hand",
	v1alpha1.RolloutReasonRebootWithoutEffect:    "Correct the settings, or retry: `kubectl storageclient retry PROFILE`",
	v1alpha1.RolloutReasonSettingsChanging:       "Follow the message of the node's condition `Tuned`",
	v1alpha1.RolloutReasonStorageUnreachable:     "Check the storage server that the message names",
	v1alpha1.RolloutReasonWaitingForBudget:       "If the message names a node that is out of service for another reason, bring it back, or delete its Node",
	v1alpha1.RolloutReasonWaitingForCanary:       "If no node can be the canary, change `rollout.canary`",
	v1alpha1.RolloutReasonWaitingForControlPlane: "If the other control-plane node does not come back, repair it, or delete its Node",
	v1alpha1.RolloutReasonWindowsDisjoint:        "Change `rollout.windows` of one of the profiles",
}

// ranks are the ranks of the waits with an action that usually end on their own, and of failures without a note.
var ranks = map[string]WaitRank{
	v1alpha1.NodeReasonApplying: WaitQueue, v1alpha1.NodeReasonRestoring: WaitQueue, v1alpha1.RolloutReasonSettingsChanging: WaitQueue,
	v1alpha1.RolloutReasonWaitingForBudget: WaitQueue, v1alpha1.RolloutReasonWaitingForCanary: WaitQueue, v1alpha1.RolloutReasonWaitingForControlPlane: WaitQueue,
	v1alpha1.NodeReasonSettingsFailed: WaitFailed,
}

// Waits returns the waits of a profile's nodes that are not done.
func Waits(profile *v1alpha1.StorageClientProfile, c Cluster) []Wait {
	var out []Wait
	members := membersOf(profile, c)
	for i, n := range ProgressOf(profile, c) {
		// The profile names nodes that have no state yet.
		if n.Done || n.Phase == noPhase && n.Since == nil {
			continue
		}
		w := Wait{Node: n.Node, Until: c.endOf(profile, members[i], n.Node), Action: Actions[n.Reason], Rank: WaitQueue}
		rank, isKnown := ranks[n.Reason]
		switch {
		case n.Phase == string(v1alpha1.RolloutFailed):
			w.Rank = WaitFailed
		case w.Until != nil:
			w.Rank = WaitEnds
		case isKnown:
			w.Rank = rank
		case w.Action != "":
			w.Rank = WaitUser
		}
		w.Name = "Node " + n.Name
		out = append(out, w)
	}
	return out
}

// FirstOf returns the wait to name first: by rank, then the oldest. Nil if there is none.
func FirstOf(list []Wait) *Wait {
	if len(list) == 0 {
		return nil
	}
	return new(slices.MinFunc(list, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), timeOf(a.Since).Compare(timeOf(b.Since)))
	}))
}

// endOf returns the time at which a wait in a rollout ends on its own, nil if it is unknown or past. The profile that claimed the node sets
// the rules.
func (c Cluster) endOf(profile *v1alpha1.StorageClientProfile, m member, n Node) *metav1.Time {
	start, owner := timeOf(n.Since), profile
	if mark, err := v1alpha1.DecodeDisruption(m.node.Annotations[v1alpha1.DisruptionAnnotation]); err == nil {
		if n.Phase == string(v1alpha1.RolloutDraining) {
			start = mark.Since.Time
		}
		if i := slices.IndexFunc(c.Profiles, func(p v1alpha1.StorageClientProfile) bool { return p.Name == mark.Profile }); i >= 0 {
			owner = &c.Profiles[i]
		}
	}
	rules, end := owner.Spec.WithDefaults().Rollout, time.Time{}
	switch v1alpha1.RolloutPhase(n.Phase) {
	case v1alpha1.RolloutDraining:
		end = start.Add(time.Duration(rules.Drain.ExcludeFromLoadBalancersSeconds+*rules.Drain.TimeoutSeconds) * time.Second)
	case v1alpha1.RolloutRebooting:
		end = start.Add(time.Duration(*rules.Reboot.TimeoutSeconds) * time.Second)
	case v1alpha1.RolloutSettling:
		end = start.Add(time.Duration(*rules.SettleSeconds) * time.Second)
	case v1alpha1.RolloutWaiting, v1alpha1.RolloutFailed:
		end = timeOf(m.clientNode.Status.Rollout.RetryAfter)
		set, err := windows.ParseSet(rules.Windows)
		if open, next := set.At(c.Now); err == nil && !open && n.Reason == v1alpha1.RolloutReasonWaitingForWindow {
			end = next
		}
	}
	if end.Before(c.Now) {
		return nil
	}
	return WhenKnown(end)
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }
