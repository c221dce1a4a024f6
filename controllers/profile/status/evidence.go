package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

func (r Report) awaitsEvidence() bool { return r.volumes.AwaitsEvidence(r.now) }

// AwaitedClaims returns the PersistentVolumeClaims of the volumes that must be mounted before anything continues. Their pods are reported.
func (r Report) AwaitedClaims() []types.NamespacedName {
	if !r.awaitsEvidence() || r.IsDeleting() {
		return nil
	}
	bound := lists.Filter(r.volumes.Evidence.Volumes, func(v plan.AwaitedVolume) bool { return v.VolumeClaim.Name != "" })
	return lists.Each(bound, func(v plan.AwaitedVolume) types.NamespacedName { return v.VolumeClaim })
}

// WithPods returns the report with the pods that use the awaited volumes.
func (r Report) WithPods(pods map[types.NamespacedName][]corev1.Pod) Report {
	r.pods = pods
	return r
}

// evidenceMessage describes the awaited mount and how to cause it, in approximately room bytes. hasCommand is true if it contains a command.
func (r Report) evidenceMessage(room int) (message string, hasCommand bool) {
	awaited := r.volumes.Evidence
	names := lists.Each(awaited.Volumes, func(v plan.AwaitedVolume) string { return v.Name })
	if len(names) == 0 {
		return "", false
	}
	named := strings.Join(names, " or ")
	if rest := len(names) - 1; rest > 0 && len(named) > maxNames {
		named = fmt.Sprintf("%s or %s", names[0], text.Count(rest, "other"))
	}
	message = fmt.Sprintf("%s for a pod to mount %s with its new options", text.Count(int(awaited.Waiting), "volume waits", "volumes wait"), named)
	action := "; no Pod uses it; start one, or set rollout.volumes.onNoEvidence to Proceed"
	for _, v := range awaited.Volumes {
		if remedy, command := r.remedyFor(v, room-len(message+": ")); remedy != "" {
			action, hasCommand = ": "+remedy, command
			break
		}
	}
	message += action
	if later := text.Labelled("; then restart the Pods of ", awaited.LeftOut); len(message+later) <= room {
		message += later
	}
	return message, hasCommand
}

// maxNames is the maximum length of the names of volumes, in bytes; a single name may be longer.
const maxNames = 60

// remedyFor describes how to mount a volume again, with as many commands and notes as fit; empty if no pod uses it. hasCommand is true if it
// contains a command.
func (r Report) remedyFor(v plan.AwaitedVolume, room int) (remedy string, hasCommand bool) {
	pods := r.pods[v.VolumeClaim]
	if len(pods) == 0 {
		return "", false
	}
	commands := lists.Distinct(lists.Each(pods, func(pod corev1.Pod) []string { return []string{restartOf(&pod)} })...)
	const restart = "restart one of its pods"
	remedy = restart + ": " + text.Join(commands, ", or ")
	if len(remedy) > room {
		remedy = restart + ": " + commands[0]
	}
	if len(remedy) > room {
		// An incomplete command would be useless.
		return restart, false
	}
	remount := "; a node mounts it again once no pod there uses it"
	if v.MountsPerPod {
		remount = ""
	}
	for _, note := range []string{text.Labelled("; nconnect is visible only on a node without other mounts from ", v.Server), remount} {
		if len(remedy+note) <= room {
			remedy += note
		}
	}
	return remedy, slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return metav1.GetControllerOf(&pod) != nil })
}

// restartOf returns the command that restarts a pod by its controller. A pod without one must be created again. The name of a Deployment is derived
// from its ReplicaSet's name, which ends in the hash in the pod's label.
func restartOf(pod *corev1.Pod) string {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return fmt.Sprintf("recreate Pod %s/%s", pod.Namespace, pod.Name)
	}
	restart := fmt.Sprintf("kubectl rollout restart -n %s ", pod.Namespace)
	switch controller.Kind {
	case "StatefulSet", "DaemonSet":
		return restart + strings.ToLower(controller.Kind) + "/" + controller.Name
	case "ReplicaSet":
		if name, cut := strings.CutSuffix(controller.Name, "-"+pod.Labels["pod-template-hash"]); cut && name != "" {
			return restart + "deployment/" + name
		}
	}
	return fmt.Sprintf("kubectl delete pod -n %s %s", pod.Namespace, pod.Name)
}

// evidenceDue returns the time until the end of a soak after which only a mount continues the change; 0 if there is none.
func (r Report) evidenceDue(now time.Time) time.Duration {
	if r.volumes.Evidence.Waiting == 0 {
		return 0
	}
	return max(0, r.volumes.Evidence.Until.Sub(now))
}
