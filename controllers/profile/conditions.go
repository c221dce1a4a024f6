package profile

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/tuning/text"
)

// maxMessage keeps a condition's message to a few lines; the API allows 32768 bytes.
const maxMessage = 1024

// facts is what a profile's status is made of.
type facts struct {
	profile *fleet.Profile
	// blockedReason and blockedMessage say why nothing of the profile may be applied; empty: it may.
	blockedReason, blockedMessage string
	// fence says what of the agent's fence is missing.
	fence     string
	pausedAll bool
	nodes     tally
	volumes   volume.Summary
	stale     volume.Stale
	// advice is what the rules across settings say.
	advice []v1alpha1.Advice
	// fleet bounds the rollout beyond the profile's own rules.
	fleet overview.Fleet
	// removal is what a profile that is being deleted waits for.
	removal removal
}

// verdict is a condition without its times.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) verdict { return verdict{metav1.ConditionTrue, reason, message} }
func no(reason, message string) verdict  { return verdict{metav1.ConditionFalse, reason, message} }

// conditions are all six, in the order in which kstatus and people should meet them.
func (f facts) conditions(old []metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	stalled := f.stalled()
	list := []metav1.Condition{}
	for _, entry := range []struct {
		name string
		verdict
	}{
		{v1alpha1.ConditionReady, f.ready(stalled)},
		{v1alpha1.ConditionReconciling, f.reconciling(stalled)},
		{v1alpha1.ConditionStalled, stalled},
		{v1alpha1.ConditionMountsEffective, f.mountsEffective()},
		{v1alpha1.ConditionPaused, f.paused()},
		{v1alpha1.ConditionConflict, f.conflict()},
	} {
		condition := metav1.Condition{
			Type: entry.name, Status: entry.status, Reason: entry.reason, Message: capped(entry.message),
			ObservedGeneration: generation, LastTransitionTime: now,
		}
		if before := meta.FindStatusCondition(old, entry.name); before != nil && before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		list = append(list, condition)
	}
	return list
}

func capped(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}

func (f facts) deleting() bool { return f.profile.Standing == match.Leaving }
func (f facts) plan() bool     { return f.profile.Spec.Mode == v1alpha1.ModePlan }

// stopped reports whether as many nodes have failed as the profile allows.
func (f facts) stopped() bool {
	return int32(len(f.nodes.failed)) >= *f.profile.Spec.WithDefaults().Rollout.FailureThreshold
}

func (f facts) stalled() verdict {
	switch {
	case f.deleting():
		return no(v1alpha1.ReasonProgressing, "")
	case f.blockedReason != "":
		return yes(f.blockedReason, f.blockedMessage)
	case f.fence != "":
		return yes(v1alpha1.ReasonFenceMissing, "the node agent is not rolled out: "+f.fence)
	case f.stopped():
		return yes(v1alpha1.ReasonFailureThreshold, "failed nodes: "+text.List(f.nodes.failed))
	case f.volumes.Stopped != "":
		return yes(v1alpha1.ReasonFailureThreshold, "volumes wait until the profile's volume rules change: "+f.volumes.Stopped)
	}
	return no(v1alpha1.ReasonProgressing, "")
}

func (f facts) ready(stalled verdict) verdict {
	switch {
	case f.deleting():
		return no(v1alpha1.ReasonRestoring, f.removalMessage())
	case stalled.status == metav1.ConditionTrue:
		return no(stalled.reason, stalled.message)
	case f.plan():
		return no(v1alpha1.ReasonPlanMode, "mode Plan touches nothing; "+f.progress())
	case f.nodes.counts.Matched == 0 && f.volumes.Matched == 0:
		return yes(v1alpha1.ReasonNothingMatched, withIgnored("no node and no volume matches", f.nodes.ignored))
	case len(f.nodes.failed) > 0:
		return no(v1alpha1.ReasonNodesFailed, "failed nodes: "+text.List(f.nodes.failed))
	case f.rebootHeldBack() != "":
		return no(v1alpha1.ReasonRebootPending, fmt.Sprintf("a reboot is due on %s: %s", text.List(f.dueNodes()), f.rebootHeldBack()))
	case f.onlyAtBoot():
		return no(v1alpha1.ReasonRebootPending, "some settings take effect whenever a node boots, and none is rebooted for them: "+text.List(f.pendingNodes()))
	case f.unfinished():
		return no(v1alpha1.ReasonRollingOut, f.progress())
	}
	return f.readyAtRest()
}

// readyAtRest is Ready where nothing more is on its way.
func (f facts) readyAtRest() verdict {
	conflict := f.conflict()
	switch {
	case conflict.status == metav1.ConditionTrue:
		return no(conflict.reason, conflict.message)
	case len(f.nodes.exceptions) == 0:
		return yes(v1alpha1.ReasonUpToDate, f.progress())
	case f.profile.Spec.OnUnsupported == v1alpha1.UnsupportedFail:
		return no(v1alpha1.ReasonExceptions, "some settings cannot be had on "+text.List(f.nodes.exceptions))
	}
	return yes(v1alpha1.ReasonReadyWithExceptions, "some settings cannot be had on "+text.List(f.nodes.exceptions))
}

// unfinished reports whether nodes or volumes are on their way, or ought to be. A node that is as declared and not yet
// back in service is on its way too.
func (f facts) unfinished() bool {
	return f.changing() || len(f.nodes.pending) > 0 || f.nodes.counts.Disrupted > 0
}

// changing is unfinished, reboots aside. A volume that is blocked waits for somebody, and is not on its way.
func (f facts) changing() bool {
	return len(f.nodes.behind)+len(f.nodes.silent)+len(f.nodes.drifted) > 0 ||
		f.volumes.UpToDate+f.volumes.Blocked < f.volumes.Matched
}

// onlyAtBoot reports whether all that is left waits for boots that are nobody's plan.
func (f facts) onlyAtBoot() bool {
	return len(f.nodes.pending) > 0 && len(f.dueNodes()) == 0 && !f.changing() && f.nodes.counts.Disrupted == 0
}

// rebootHeldBack says what of the profile itself holds reboots back that are due; empty: nothing. What no plan hash
// covers makes none due: no policy and no approval speaks of it.
func (f facts) rebootHeldBack() string {
	if len(f.dueNodes()) == 0 {
		return ""
	}
	switch policy := f.profile.Spec.WithDefaults().Rollout.Reboot.Policy; {
	case policy == v1alpha1.RebootNever:
		return "rollout.reboot.policy is Never"
	case policy == v1alpha1.RebootOnApproval && !fleet.Approved(f.profile.StorageClientProfile):
		return "the plan waits for approval"
	}
	return ""
}

// dueNodes are those of the pending nodes that are to be rebooted.
func (f facts) dueNodes() []string {
	var nodes []string
	for _, pending := range f.nodes.pending {
		if pending.due {
			nodes = append(nodes, pending.node)
		}
	}
	return nodes
}

func (f facts) pendingNodes() []string {
	var nodes []string
	for _, pending := range f.nodes.pending {
		nodes = append(nodes, pending.node)
	}
	return nodes
}

func (f facts) reconciling(stalled verdict) verdict {
	switch {
	case f.deleting():
		return yes(v1alpha1.ReasonRestoring, f.removalMessage())
	case stalled.status == metav1.ConditionTrue:
		return no(stalled.reason, "")
	case !f.unfinished() || f.plan():
		return no(v1alpha1.ReasonIdle, "")
	case f.paused().status == metav1.ConditionTrue && f.nodes.counts.Disrupted == 0:
		return no(f.paused().reason, "")
	case f.changing() || f.nodes.counts.Disrupted > 0:
		return yes(v1alpha1.ReasonRollingOut, f.progress())
	case f.onlyAtBoot(), f.rebootHeldBack() != "" && f.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever:
		return no(v1alpha1.ReasonRebootPending, "")
	case f.rebootHeldBack() != "":
		return yes(v1alpha1.ReasonWaitingForApproval, f.rebootHeldBack())
	}
	return f.waiting()
}

// waiting is Reconciling where all that is left are reboots: it names what holds every one of them, if it is one thing.
func (f facts) waiting() verdict {
	reason := f.nodes.pending[0].reason
	for _, pending := range f.nodes.pending {
		if pending.reason != reason {
			return yes(v1alpha1.ReasonRollingOut, f.progress())
		}
	}
	switch reason {
	case v1alpha1.ReasonWaitingForWindow, v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForBudget:
		return yes(reason, f.nodes.pending[0].message)
	}
	return yes(v1alpha1.ReasonRollingOut, f.progress())
}

func (f facts) mountsEffective() verdict {
	switch {
	case f.stale.Count > 0:
		var nodes []string
		seen := map[string]bool{}
		for _, mount := range f.stale.Mounts {
			if !seen[mount.Node] {
				seen[mount.Node] = true
				nodes = append(nodes, mount.Node)
			}
		}
		return no(v1alpha1.ReasonStaleMounts, fmt.Sprintf("%d mounts have old options until their pods start anew, on %s", f.stale.Count, text.List(nodes)))
	case f.nodes.counts.Matched > 0 && f.nodes.reported == 0:
		return verdict{metav1.ConditionUnknown, v1alpha1.ReasonPending, "no node has reported yet"}
	}
	return yes(v1alpha1.ReasonAllEffective, "")
}

func (f facts) paused() verdict {
	switch {
	case f.plan():
		return yes(v1alpha1.ReasonPlanMode, "mode Plan touches nothing")
	case f.profile.Spec.Paused:
		return yes(v1alpha1.ReasonPausedByField, "spec.paused is set")
	case pause.Annotated(f.profile):
		return yes(v1alpha1.ReasonPausedByAnnotation, "the profile carries the annotation "+v1alpha1.PausedAnnotation)
	case f.pausedAll:
		return yes(v1alpha1.ReasonPausedByAnnotation, "the manager's namespace carries the annotation "+v1alpha1.PausedAnnotation)
	}
	return no(v1alpha1.ReasonNotPaused, "")
}

func (f facts) conflict() verdict {
	volumes, blocked := f.volumes.Conflict()
	switch {
	case len(f.nodes.conflicts) > 0 && blocked:
		return yes(v1alpha1.ReasonSettingConflict, text.Join(f.nodes.conflicts, "; ")+"; volumes: "+volumes)
	case len(f.nodes.conflicts) > 0:
		return yes(v1alpha1.ReasonSettingConflict, text.Join(f.nodes.conflicts, "; "))
	case blocked:
		return yes(v1alpha1.ReasonVolumeConflict, volumes)
	}
	return no(v1alpha1.ReasonNoConflict, "")
}

// progress tells in a sentence how far nodes and volumes are, and which nodes are not.
func (f facts) progress() string {
	parts := []string{fmt.Sprintf("%d of %d nodes and %d of %d volumes are up to date",
		f.nodes.counts.UpToDate, f.nodes.counts.Matched, f.volumes.UpToDate, f.volumes.Matched)}
	for _, list := range []struct {
		label string
		nodes []string
	}{
		{"not heard of", f.nodes.silent}, {"not applied", f.nodes.behind}, {"drifted", f.nodes.drifted}, {"reboot due", f.pendingNodes()},
	} {
		if len(list.nodes) > 0 {
			parts = append(parts, list.label+": "+text.List(list.nodes))
		}
	}
	if f.volumes.Step != "" {
		parts = append(parts, f.volumes.Step)
	}
	if waits := f.waits(); waits != "" {
		parts = append(parts, waits)
	}
	return withIgnored(strings.Join(parts, "; "), f.nodes.ignored)
}

// waits tells what nodes wait for, those out of service first: they are what somebody may have to see to.
func (f facts) waits() string {
	held := map[string]bool{}
	for _, w := range f.nodes.disrupted {
		held[w.node] = true
	}
	others := slices.DeleteFunc(slices.Clone(f.nodes.pending), func(w wait) bool { return held[w.node] })
	var parts []string
	for _, list := range [][]wait{f.nodes.disrupted, others} {
		if told := byMessage(list); len(told) > 0 {
			parts = append(parts, text.Join(told, "; "))
		}
	}
	return strings.Join(parts, "; ")
}

// byMessage names the nodes that say the same together.
func byMessage(waits []wait) []string {
	nodes := map[string][]string{}
	for _, w := range waits {
		if w.message != "" {
			said := w.reason + ": " + w.message
			nodes[said] = append(nodes[said], w.node)
		}
	}
	var out []string
	for said, named := range nodes {
		out = append(out, text.List(named)+": "+said)
	}
	return out
}

func withIgnored(message string, ignored []string) string {
	if len(ignored) == 0 {
		return message
	}
	return message + "; ignored: " + text.List(ignored)
}

func (f facts) removalMessage() string {
	var parts []string
	if f.paused().status == metav1.ConditionTrue && !f.plan() && f.profile.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		parts = append(parts, "paused")
	}
	if len(f.removal.nodes) > 0 {
		parts = append(parts, "nodes: "+text.List(f.removal.nodes))
	}
	if held := f.rebootHeldBack(); held != "" && f.profile.Spec.Rollout.Reboot.RestoreReboot {
		parts = append(parts, "reboots: "+held)
	}
	if len(f.volumes.Unrestored) > 0 {
		parts = append(parts, "volumes: "+text.List(f.volumes.Unrestored))
	}
	if len(f.removal.left) > 0 {
		parts = append(parts, "left to restore when they can be reached: "+text.List(f.removal.left))
	}
	if len(parts) == 0 {
		return "nodes and volumes are put back"
	}
	return "waits; " + strings.Join(parts, "; ")
}
