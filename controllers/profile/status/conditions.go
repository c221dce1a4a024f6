package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	policyNever   = "rollout.reboot.policy is Never"
	modePlan      = "Mode Plan makes no changes"
	needsApproval = "The plan needs approval"
)

// verdict is a condition without its times.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
	// hasCommand is true if the message contains the command to type.
	hasCommand bool
}

func asTrue(reason, message string) verdict {
	return verdict{metav1.ConditionTrue, reason, message, false}
}

func asFalse(reason, message string) verdict {
	return verdict{metav1.ConditionFalse, reason, message, false}
}

// rest classifies a node that waits for its reboot, by the reason in its note, if the rollout does not continue on its own.
type rest int

const (
	// byChoice is for nodes that a user intentionally keeps from a reboot: exceptions.
	byChoice rest = iota + 1
	// forSomebody is for nodes that are rebooted once a user has resolved the problem in the note.
	forSomebody
)

// restOf contains the reasons with which the rollout does not continue on its own.
var restOf = map[string]rest{
	v1alpha1.RolloutReasonNeverDisrupt:      byChoice,
	v1alpha1.RolloutReasonNodePaused:        byChoice,
	v1alpha1.RolloutReasonRebootPolicyNever: byChoice,
	v1alpha1.ReasonPlanMode:                 byChoice,
	v1alpha1.ReasonPausedByField:            byChoice,
	v1alpha1.ReasonPausedByAnnotation:       byChoice,
	v1alpha1.RolloutReasonWindowsDisjoint:   forSomebody,
	v1alpha1.RolloutReasonFailureThreshold:  forSomebody,
	v1alpha1.RolloutReasonCanaryFailed:      forSomebody,
	v1alpha1.ReasonInvalid:                  forSomebody,
}

// conditions returns all six conditions, in the best order for kstatus and for users.
func (r Report) conditions(old []metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	stalled := r.evaluateStalled()
	list := []metav1.Condition{}
	for _, entry := range []struct {
		name string
		verdict
	}{
		{v1alpha1.ConditionReady, r.evaluateReady(stalled)},
		{v1alpha1.ConditionReconciling, r.evaluateReconciling(stalled)},
		{v1alpha1.ConditionStalled, stalled},
		{v1alpha1.ConditionMountsEffective, r.evaluateMounts()},
		{v1alpha1.ConditionPaused, r.paused},
		{v1alpha1.ConditionConflict, r.evaluateConflict()},
	} {
		condition := metav1.Condition{
			Type: entry.name, Status: entry.status, Reason: entry.reason, Message: r.conditionMessage(entry.verdict),
			ObservedGeneration: generation, LastTransitionTime: now,
		}
		if before := meta.FindStatusCondition(old, entry.name); before != nil && before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		list = append(list, condition)
	}
	return list
}

func (r Report) isPlanMode() bool { return r.profile.Spec.Mode == v1alpha1.ModePlan }

func (r Report) evaluateStalled() verdict {
	switch {
	case r.IsDeleting():
		return asFalse(v1alpha1.ReasonProgressing, "")
	case r.invalidReason != "":
		return asTrue(r.invalidReason, r.invalidMessage)
	case r.snapshot.FenceMissing != "":
		return asTrue(v1alpha1.ReasonFenceMissing, "The node agent is not rolled out: "+r.snapshot.FenceMissing)
	case r.snapshot.FailuresUnread != "":
		return asTrue(v1alpha1.ReasonFailureThreshold, r.snapshot.FailuresUnread)
	case r.immutableMessage() != "":
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonConfigMapImmutable, r.immutableMessage(), true}
	case r.isStopped():
		return r.failed(metav1.ConditionTrue, v1alpha1.ReasonFailureThreshold)
	case r.volumes.Stopped != "":
		return asTrue(v1alpha1.ReasonFailureThreshold, r.volumes.Stopped+"; no volume gets these options until a rule that declares them changes")
	case r.isPlanMode(), r.isChanging(), r.isDisrupting():
		return asFalse(v1alpha1.ReasonProgressing, "")
	case len(r.coming) > 0:
		return r.evaluateStuck()
	case r.awaitsEvidence():
		return asFalse(v1alpha1.ReasonProgressing, "")
	}
	return r.evaluateLeft()
}

// isStopped reports whether as many nodes have failed as the profile allows. Failed reboots stop reboots. Failed settings stop only live changes, and
// a failed read-ahead stops only itself. So the rollout stops once no reboot continues.
func (r Report) isStopped() bool {
	threshold := int(*r.profile.Spec.WithDefaults().Rollout.FailureThreshold)
	live := slices.Max(append(slices.Collect(maps.Values(r.nodes.failedReadAheads)), len(r.nodes.failedLive)-r.nodes.disputed))
	continues := r.isDisrupting() || r.hasNextReboot() && !r.isHeld()
	return len(r.nodes.failedBoots)+r.nodes.failedBefore >= threshold || live >= threshold && !continues
}

// isHeld reports whether the profile's rules or its pause prevent due reboots.
func (r Report) isHeld() bool { return r.rebootHold() != "" || r.paused.status == metav1.ConditionTrue }

// hasNextReboot reports whether a due reboot needs no user action first, other than the end of a hold.
func (r Report) hasNextReboot() bool {
	return slices.ContainsFunc(r.coming, func(w waitingNode) bool {
		return restOf[w.reason] != forSomebody && !slices.Contains(r.nodes.failedBoots, w.node)
	})
}

// evaluateStuck returns the condition Stalled if only reboots are left and each of them needs a user action first.
func (r Report) evaluateStuck() verdict {
	if r.hasNextReboot() || r.isHeld() {
		return asFalse(v1alpha1.ReasonProgressing, "")
	}
	if r.nodes.counts.Failed > 0 {
		return r.failed(metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	}
	return asTrue(v1alpha1.ReasonRebootPending, r.waitMessage())
}

// evaluateLeft returns the condition Stalled if no change is in progress: then a user must resolve everything that prevents Ready.
func (r Report) evaluateLeft() verdict {
	conflict := r.evaluateConflict()
	switch {
	case r.nodes.counts.Failed > 0:
		return r.failed(metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	case len(r.nodes.stuck) > 0 && r.paused.status != metav1.ConditionTrue:
		return asTrue(v1alpha1.ReasonNodesFailed, describeStuck(r.nodes.stuck))
	case conflict.status == metav1.ConditionTrue:
		return asTrue(conflict.reason, conflict.message)
	case r.profile.Spec.OnUnsupported == v1alpha1.UnsupportedFail && r.exceptionsMessage() != "":
		return asTrue(v1alpha1.ReasonExceptions, r.exceptionsMessage())
	}
	return asFalse(v1alpha1.ReasonProgressing, "")
}

func (r Report) evaluateReady(stalled verdict) verdict {
	switch {
	case r.IsDeleting():
		return r.removing(metav1.ConditionFalse)
	case stalled.status == metav1.ConditionTrue:
		stalled.status = metav1.ConditionFalse
		return stalled
	case r.isPlanMode():
		planned := r.progress(metav1.ConditionFalse, v1alpha1.ReasonPlanMode)
		planned.message = modePlan + "; " + planned.message
		return planned
	case r.nodes.counts.Matched == 0 && r.volumes.Matched == 0:
		return asTrue(v1alpha1.ReasonNothingMatched, text.Combine("; ", "No node and no volume matches"+r.leftOutText()+r.nodes.excludedText(), r.ignoredText()))
	case r.nodes.counts.Failed > 0:
		return r.failed(metav1.ConditionFalse, v1alpha1.ReasonNodesFailed)
	case len(r.coming) > 0 && r.rebootHold() != "":
		return asFalse(v1alpha1.ReasonRebootPending, fmt.Sprintf("%s; reboot due on %s", r.rebootHold(), text.List(namesOf(r.coming))))
	case r.isUnfinished():
		return r.progress(metav1.ConditionFalse, v1alpha1.ReasonRollingOut)
	}
	// Problems that a user must resolve are in Stalled.
	if exceptions := r.exceptionsMessage(); exceptions != "" {
		return asTrue(v1alpha1.ReasonReadyWithExceptions, exceptions)
	}
	return r.progress(metav1.ConditionTrue, v1alpha1.ReasonUpToDate)
}

// exceptionsMessage lists the exceptions, empty if there are none. Exceptions are nodes that do not support settings, nodes where other files
// override settings (with these files), nodes that are intentionally not rebooted, and unchanged volumes.
func (r Report) exceptionsMessage() string {
	return text.Combine("; ",
		text.Labelled("Not rebooted: ", text.Join(describeWaits(r.staged), ", ")),
		text.Labelled("Some settings are not available on ", text.List(r.nodes.exceptions)),
		text.Labelled(fmt.Sprintf("Other files override settings on %s: ", text.List(r.nodes.shadowed)), text.Join(r.nodes.overrides, "; ")),
		text.Labelled("Paused: ", text.Join(describeWaits(r.nodes.paused), ", ")),
		text.Labelled("Control-plane nodes", strings.TrimPrefix(r.nodes.excludedText(), "; control-plane nodes")),
		text.Labelled("Volumes that differ: ", r.volumes.DescribeExceptions()),
	)
}

// isUnfinished reports whether nodes or volumes are in progress, or should be. This includes a node that has the declared settings but is not back
// in service.
func (r Report) isUnfinished() bool {
	return r.isChanging() || r.awaitsEvidence() || len(r.coming)+len(r.nodes.stuck) > 0 || r.isDisrupting()
}

// isDisrupting reports whether the rollout changes a node. A failed node that stays cordoned waits for a user.
func (r Report) isDisrupting() bool { return r.nodes.counts.Disrupted > r.nodes.idle }

// isChanging is isUnfinished without reboots. Nodes that wait for a user because settings have failed do not count. Neither do blocked volumes,
// or volumes whose options are not proven yet.
func (r Report) isChanging() bool {
	return len(r.nodes.behind)-len(r.nodes.stuck)+len(r.nodes.silent)+len(r.nodes.drifted)+len(r.unread) > 0 || r.volumes.IsOpen() && !r.awaitsEvidence()
}

// rebootHold returns the rule of the profile that prevents due reboots, empty if there is none. Settings without a plan hash make no reboot due,
// because no policy and no approval applies to them.
func (r Report) rebootHold() string {
	switch {
	case len(r.nodes.planned) == 0:
	case r.profile.Spec.WithDefaults().Rollout.Reboot.Policy == v1alpha1.RebootNever:
		return policyNever
	case r.awaitsApproval():
		return needsApproval
	}
	return ""
}

// awaitsApproval reports whether due reboots need an approval that the plan does not have.
func (r Report) awaitsApproval() bool {
	return len(r.nodes.planned) > 0 && r.profile.Spec.WithDefaults().Rollout.Reboot.Policy == v1alpha1.RebootOnApproval &&
		!fleet.IsPlanApproved(r.profile.StorageClientProfile)
}

// stagedReason returns the reason why a pending node is not rebooted now; empty if the rollout reboots it, or would do so without the pause of the
// profile.
func (r Report) stagedReason(w waitingNode) string {
	switch {
	case w.skipReason != "":
		return w.skipReason
	case !w.isDue:
		return "takes effect at the next boot"
	case r.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever:
		return policyNever
	case restOf[w.reason] == byChoice && r.paused.status != metav1.ConditionTrue:
		return w.message
	}
	return ""
}

func describeWaits(waiting []waitingNode) []string {
	return groupNodes(waiting, "%s (%s)", func(w waitingNode) string { return w.message })
}

func namesOf(waiting []waitingNode) []string {
	return lists.Each(waiting, func(w waitingNode) string { return w.node })
}

func (r Report) skippedNodes() []string {
	skipped := lists.Filter(r.nodes.pending, func(w waitingNode) bool { return w.skipReason != "" })
	return lists.Each(skipped, func(w waitingNode) string { return fmt.Sprintf("%s (%s)", w.node, w.skipReason) })
}

func (r Report) evaluateReconciling(stalled verdict) verdict {
	switch {
	case r.IsDeleting():
		return r.removing(metav1.ConditionTrue)
	case stalled.status == metav1.ConditionTrue:
		return asFalse(stalled.reason, "")
	case !r.isUnfinished() || r.isPlanMode():
		return asFalse(v1alpha1.ReasonIdle, "")
	case r.paused.status == metav1.ConditionTrue && !r.isDisrupting():
		return asFalse(r.paused.reason, "")
	case r.isChanging() || r.isDisrupting():
		return r.progress(metav1.ConditionTrue, v1alpha1.ReasonRollingOut)
	case len(r.coming) > 0 && r.rebootHold() != "":
		return asTrue(v1alpha1.ReasonWaitingForApproval, r.rebootHold())
	case len(r.coming) == 0:
		message, hasCommand := r.evidenceMessage(maxMessage)
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonWaitingForEvidence, message, hasCommand}
	}
	return r.evaluateWaiting()
}

// evaluateWaiting returns the condition Reconciling if only reboots are left. It contains the reason for the wait if all of them have the same one.
func (r Report) evaluateWaiting() verdict {
	first := r.coming[0]
	isKnown := slices.Contains([]string{v1alpha1.ReasonWaitingForWindow, v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForBudget}, first.reason)
	if isKnown && !slices.ContainsFunc(r.coming, func(w waitingNode) bool { return w.reason != first.reason }) {
		return asTrue(first.reason, first.message)
	}
	return r.progress(metav1.ConditionTrue, v1alpha1.ReasonRollingOut)
}

func (r Report) evaluateMounts() verdict {
	switch {
	case r.volumes.Stale.Count > 0:
		return asFalse(v1alpha1.ReasonStaleMounts, r.staleMessage())
	case r.nodes.counts.Matched > 0 && r.nodes.reported == 0:
		return verdict{metav1.ConditionUnknown, v1alpha1.ReasonPending, "No node has reported yet", false}
	}
	return asTrue(v1alpha1.ReasonAllEffective, "")
}

func (r Report) staleMessage() string {
	named := text.List(r.volumes.Stale.Nodes)
	if r.volumes.Stale.Count == 1 {
		return "1 mount on " + named + " still has old options: restart its pods"
	}
	return fmt.Sprintf("%d mounts on %s still have old options: restart their pods", r.volumes.Stale.Count, named)
}

// evaluatePaused returns the condition Paused; all is true if the manager's namespace is paused, by an annotation with the message odd.
func evaluatePaused(profile *fleet.Profile, all bool, odd string) verdict {
	switch {
	case profile.Spec.Mode == v1alpha1.ModePlan:
		return asTrue(v1alpha1.ReasonPlanMode, modePlan)
	case profile.Spec.Paused:
		return asTrue(v1alpha1.ReasonPausedByField, "spec.paused is true")
	case match.IsPaused(profile):
		return asTrue(v1alpha1.ReasonPausedByAnnotation, "The profile has the annotation "+v1alpha1.PausedAnnotation+v1alpha1.OddStop(profile, v1alpha1.PausedAnnotation))
	case all:
		return asTrue(v1alpha1.ReasonPausedByAnnotation, "The manager's namespace has the annotation "+v1alpha1.PausedAnnotation+odd)
	}
	return asFalse(v1alpha1.ReasonNotPaused, "")
}

func (r Report) evaluateConflict() verdict {
	volumes, blocked := r.volumes.Conflict()
	switch {
	case len(r.nodes.conflicts) > 0 && blocked:
		return asTrue(v1alpha1.ReasonSettingConflict, text.Join(r.nodes.conflicts, "; ")+"; volumes: "+volumes)
	case len(r.nodes.conflicts) > 0:
		return asTrue(v1alpha1.ReasonSettingConflict, text.Join(r.nodes.conflicts, "; "))
	case blocked:
		return asTrue(v1alpha1.ReasonVolumeConflict, volumes)
	}
	return asFalse(v1alpha1.ReasonNoConflict, "")
}

// progress describes the progress of nodes and volumes, the obstacles for the others, and the nodes that have them. Problems for the user come
// first, because a long message is cut.
func (r Report) progress(status metav1.ConditionStatus, reason string) verdict {
	hasCommand := false
	parts := []string{fmt.Sprintf("%d/%d nodes and %d/%d volumes up to date",
		r.nodes.counts.UpToDate, r.nodes.counts.Matched, r.volumes.UpToDate, r.volumes.Matched)}
	parts = append(parts, r.waitMessage())
	if len(r.unread) > 0 {
		parts = append(parts, r.snapshot.ReadAheadWaits...)
	}
	if r.awaitsEvidence() {
		evidence, command := r.evidenceMessage(maxMessage - len(parts[0]+"; "))
		parts, hasCommand = append(parts, evidence), command
	} else {
		parts = append(parts, r.volumes.Batch)
	}
	open := slices.DeleteFunc(slices.Clone(r.nodes.pending), func(w waitingNode) bool { return w.skipReason != "" })
	parts = append(parts, r.volumes.Unprobed,
		text.Labelled("read-ahead pending: ", text.List(r.unread)), text.Labelled("no agent report from ", text.List(r.nodes.silent)),
		text.Labelled("pending: ", text.List(r.nodes.behind)), text.Labelled("drifted: ", text.List(r.nodes.drifted)),
		text.Labelled("reboot due: ", text.List(namesOf(open))), text.Labelled("not rebooted: ", text.List(r.skippedNodes())),
		r.ignoredText())
	return verdict{status, reason, text.Combine("; ", parts...), hasCommand}
}

func (r Report) ignoredText() string { return text.Labelled("ignored: ", text.List(r.nodes.ignored)) }

// waitMessage describes the reasons for which nodes wait. Nodes that are out of service come first: a user may have to act on them.
func (r Report) waitMessage() string {
	disrupted := sets.New(namesOf(r.nodes.disrupted)...)
	undisrupted := slices.DeleteFunc(slices.Clone(r.nodes.pending), func(w waitingNode) bool { return disrupted.Has(w.node) })
	textOf := func(w waitingNode) string { return text.Labelled(w.reason+": ", w.message) }
	return text.Combine("; ", text.Join(groupNodes(r.nodes.disrupted, "%s: %s", textOf), "; "), text.Join(groupNodes(undisrupted, "%s: %s", textOf), "; "),
		describeStuck(r.nodes.stuck))
}

// describeStuck describes the failures for which nodes wait. It counts these nodes, because long names would displace the failures.
func describeStuck(stuck []waitingNode) string {
	groups := lists.Group(stuck, func(w waitingNode) string { return w.message })
	return text.Join(lists.Each(groups, func(same []waitingNode) string {
		return text.Count(len(same), "node waits", "nodes wait") + ": " + same[0].message
	}), "; ")
}

// groupNodes groups the nodes by their text, and omits nodes without one. format contains the nodes and the text.
func groupNodes(waiting []waitingNode, format string, textOf func(waitingNode) string) []string {
	described := lists.Filter(waiting, func(w waitingNode) bool { return textOf(w) != "" })
	return lists.Each(lists.Group(described, textOf), func(same []waitingNode) string {
		return fmt.Sprintf(format, text.List(namesOf(same)), textOf(same[0]))
	})
}

func (r Report) removing(status metav1.ConditionStatus) verdict {
	return verdict{status, v1alpha1.ReasonRestoring, r.removalMessage(), r.immutableMessage() != ""}
}

func (r Report) removalMessage() string {
	parts := []string{r.immutableMessage()}
	if r.paused.status == metav1.ConditionTrue && !r.isPlanMode() && r.profile.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		parts = append(parts, "paused")
	}
	parts = append(parts, r.removal.messages()...)
	if r.profile.Spec.Rollout.Reboot.RestoreReboot {
		parts = append(parts, text.Labelled("reboots: ", r.rebootHold()))
	}
	parts = append(parts, text.Labelled("volumes not yet restored: ", text.List(r.volumes.Unrestored)),
		text.Labelled("restored once they can be reached: ", text.List(r.removal.unreachable)))
	message := cmp.Or(text.Combine("; ", parts...), "Nodes and volumes are restored")
	return strings.ToUpper(message[:1]) + message[1:]
}

// leftOutText counts the volumes that no rule selects although a rule may be meant for them; empty if there are none. The advice lists their
// drivers.
func (r Report) leftOutText() string {
	if len(r.volumes.LeftOut) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s skipped (unknown driver); see status.advice",
		text.Count(advice.CountLeftOut(r.volumes.LeftOut), "volume is", "volumes are"))
}
