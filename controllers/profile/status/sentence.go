package status

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// maxMessage is the maximum length of a message in bytes: three lines of a terminal with 80 columns.
const maxMessage = 240

// conditionMessage returns the message of a condition: the state, and the command to run. If the message is too long, only the state is cut.
func (r Report) conditionMessage(v verdict) string {
	if v.message == "" {
		return ""
	}
	next := r.nextAction(v)
	if len(next) > maxMessage/2 {
		// The name alone is longer than most messages.
		next = ""
	}
	whole := v.message + text.Labelled("; ", next)
	if len(whole) <= maxMessage {
		return whole
	}
	if details := r.detailsCommand(v); next == "" && len(details) <= maxMessage/2 && !v.hasCommand {
		next = details
	}
	if next == "" {
		return text.CutBytes(v.message, maxMessage)
	}
	return text.CutBytes(v.message, maxMessage-len("; "+next)) + "; " + next
}

// nextAction returns the next action for the reader of a condition, empty if there is none or the message contains it.
func (r Report) nextAction(v verdict) string {
	if v.status == metav1.ConditionUnknown || v.hasCommand {
		return ""
	}
	switch v.reason {
	case v1alpha1.ReasonWaitingForApproval:
		return r.approveNext()
	case v1alpha1.ReasonRebootPending:
		if r.awaitsApproval() {
			return r.approveNext()
		}
	case v1alpha1.ReasonPlanMode:
		return r.plugin("next", "plan")
	case v1alpha1.ReasonPausedByField:
		return "set it to false to resume"
	case v1alpha1.ReasonPausedByAnnotation:
		return r.resumeNext()
	case v1alpha1.ReasonRestoring:
		if r.paused.reason == v1alpha1.ReasonPausedByAnnotation {
			return r.resumeNext()
		}
	case v1alpha1.ReasonStaleMounts:
		return r.plugin("next", "status") + " --pods"
	case v1alpha1.ReasonNothingMatched:
		return "next: kubectl get nodes --show-labels"
	case v1alpha1.ReasonNodesFailed, v1alpha1.ReasonFailureThreshold:
		return r.failureNext()
	case v1alpha1.ReasonReadyWithExceptions, v1alpha1.ReasonExceptions:
		return r.plugin("more", "diff")
	case v1alpha1.ReasonSettingConflict:
		return "set a different spec.priority on one of them"
	case v1alpha1.ReasonVolumeConflict:
		return r.plugin("next", "volumes")
	}
	return ""
}

// detailsCommand returns the command that shows the complete text of a long message.
func (r Report) detailsCommand(v verdict) string {
	if v.reason == v1alpha1.ReasonInvalid {
		return r.plugin("more", "plan")
	}
	return r.plugin("more", "status")
}

func (r Report) approveNext() string {
	return fmt.Sprintf("%s --plan %s", r.plugin("next", "approve"), nodesettings.PlanHash(r.profile.StorageClientProfile))
}

// resumeNext returns the command that ends the pause of the profile, or the global pause.
func (r Report) resumeNext() string {
	if !match.IsPaused(r.profile) {
		return fmt.Sprintf("next: kubectl annotate ns %s %s- --field-manager="+v1alpha1.PluginFieldManager,
			v1alpha1.ManagerNamespace, v1alpha1.PausedAnnotation)
	}
	return r.plugin("next", "resume")
}

func (r Report) failureNext() string {
	switch {
	case r.snapshot.FailuresUnread != "":
		return fmt.Sprintf("next: kubectl -n %s edit configmap %s", v1alpha1.ManagerNamespace, v1alpha1.FailuresConfigMap)
	case len(r.nodes.failed) > 0:
		return "next: kubectl storageclient node " + r.nodes.failed[0]
	case r.volumes.Stopped != "":
		return r.plugin("next", "volumes")
	case r.nodes.stuckBy != "":
		return "next: kubectl storageclient node " + r.nodes.stuckBy
	}
	return ""
}

func (r Report) plugin(reason, command string) string {
	return fmt.Sprintf("%s: kubectl storageclient %s %s", reason, command, r.profile.Name)
}

// immutableMessage names the immutable ConfigMaps of the rollout, with the command to run, if nodes of the profile wait for such a write; otherwise
// empty.
func (r Report) immutableMessage() string {
	names := r.snapshot.Immutable
	if len(names) == 0 || !r.waitsForRollout() {
		return ""
	}
	return fmt.Sprintf("An immutable ConfigMap stops the rollout; recreate it: "+
		"kubectl -n %s get cm %s -o yaml | sed '/^ *immutable: true$/d' >saved.yaml && kubectl replace --force -f saved.yaml",
		v1alpha1.ManagerNamespace, strings.Join(names, " "))
}

// waitsForRollout reports whether a node of the profile must be disrupted, or must return to service.
func (r Report) waitsForRollout() bool {
	switch {
	case r.IsDeleting():
		return len(r.removal.nodes[rolloutHasIt])+len(r.removal.nodes[rebootRequired]) > 0
	case r.isPlanMode():
		return false
	}
	return r.nodes.counts.Disrupted > 0 || (len(r.coming) > 0 && !r.isHeld())
}
