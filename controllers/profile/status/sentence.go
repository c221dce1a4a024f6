package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// maxMessage is how many bytes a message has at most: three lines of a terminal with 80 columns.
const maxMessage = 240

// tell is what a condition says: how it is, and what to type. What to type stays whole where the rest has to be cut.
func (r Report) tell(v verdict) string {
	if v.message == "" {
		return ""
	}
	next := r.whatNext(v)
	if len(next) > maxMessage/2 {
		// The name alone is longer than most messages.
		next = ""
	}
	whole := v.message
	if next != "" {
		whole += "; " + next
	}
	if len(whole) <= maxMessage {
		return whole
	}
	if more := r.whereMore(v); next == "" && len(more) <= maxMessage/2 && !v.hasCommand {
		next = more
	}
	if next == "" {
		return text.CutBytes(v.message, maxMessage)
	}
	return text.CutBytes(v.message, maxMessage-len("; "+next)) + "; " + next
}

// whatNext is what somebody does next who reads a condition, empty where there is nothing to do or the message says it.
func (r Report) whatNext(v verdict) string {
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
		return "to go on, set it to false"
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
		return "give one of them another spec.priority"
	case v1alpha1.ReasonVolumeConflict:
		return r.plugin("next", "volumes")
	}
	return ""
}

// whereMore is where the whole of a message stands that is too long.
func (r Report) whereMore(v verdict) string {
	if v.reason == v1alpha1.ReasonInvalid {
		return r.plugin("more", "plan")
	}
	return r.plugin("more", "status")
}

func (r Report) approveNext() string {
	return fmt.Sprintf("%s --plan %s", r.plugin("next", "approve"), nodesettings.PlanHash(r.profile.StorageClientProfile))
}

// resumeNext ends the pause of the profile, or that of everything.
func (r Report) resumeNext() string {
	if !pause.Annotated(r.profile) {
		return fmt.Sprintf("next: kubectl annotate ns %s %s- --field-manager="+v1alpha1.PluginFieldManager, r.snapshot.ManagerNamespace, v1alpha1.PausedAnnotation)
	}
	return r.plugin("next", "resume")
}

func (r Report) failureNext() string {
	switch {
	case r.snapshot.FailuresUnread != "":
		return fmt.Sprintf("next: kubectl -n %s edit configmap %s", r.snapshot.ManagerNamespace, v1alpha1.FailuresConfigMap)
	case len(r.nodes.failed) > 0:
		return "next: kubectl storageclient node " + r.nodes.failed[0]
	case r.volumes.Stopped != "":
		return r.plugin("next", "volumes")
	}
	return ""
}

func (r Report) plugin(why, command string) string {
	return fmt.Sprintf("%s: kubectl storageclient %s %s", why, command, r.profile.Name)
}
