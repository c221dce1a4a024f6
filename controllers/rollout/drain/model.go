package drain

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
)

// stuckAfter is the time after its grace period for which a terminating pod blocks no drain. A skewed clock only postpones the next drain.
const stuckAfter = 5 * time.Minute

//go:embed marks.yaml
var marksYAML []byte

// marks are the marks of others on pods, and Stuck the reasons for which the kubelet cannot start a container before a user acts.
var marks = embedded.Parse[struct {
	Forbid []struct{ Annotation, Value, Source string }
	Last   []last
	Stuck  []string
}]("marks of pods", marksYAML)

// last is a kind of owner that keeps its pod until the other pods of the node are gone.
type last struct{ Group, Kind, Source string }

// model is the model of a drain: which pods of a node leave, stay, come back, or block the drain. The look ahead, the drain itself and the preview
// share it.
type model struct {
	Result
	// evictable are the pods that a drain evicts; returning are pods that stay because another one would come back to the node.
	evictable, returning []*corev1.Pod
}

// SortPods separates the pods of a node into evictable pods and all others, based only on their objects: it does not read PodDisruptionBudgets. It
// returns an error if waitForPodSelector cannot be parsed.
func SortPods(pods []corev1.Pod, options v1alpha1.Drain, now time.Time) (Result, []*corev1.Pod, error) {
	m, err := newModel(pods, options, now)
	return m.Result, m.evictable, err
}

func newModel(pods []corev1.Pod, options v1alpha1.Drain, now time.Time) (m model, err error) {
	// An empty selector, as shown in the API's documentation, selects none.
	waitFor := labels.Nothing()
	if selector := options.WaitForPodSelector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		if waitFor, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return model{}, fmt.Errorf("parse rollout.drain.waitForPodSelector: %w", err)
		}
	}
	for i := range pods {
		pod := &pods[i]
		switch {
		case staysOnNode(pod):
			m.ignore(pod)
			continue
		case hasFinished(pod):
			continue
		}
		isAwaited := !isStuck(pod, now) && (waitFor.Matches(labels.Set(pod.Labels)) || isOfJob(pod))
		if reason := returnReason(pod); pod.DeletionTimestamp == nil && reason != "" && !isAwaited && markOf(pod) == "" {
			m.leave(pod, reason)
			continue
		}
		if m.Names == nil {
			m.Names = map[string]string{}
		}
		m.Names[string(pod.UID)] = podName(pod)
		switch reason := obstacleOf(pod, options, now); {
		case pod.DeletionTimestamp != nil && reason == "":
			m.Remaining = append(m.Remaining, podName(pod))
		case pod.DeletionTimestamp == nil && isAwaited:
			m.WaitedFor = append(m.WaitedFor, podName(pod))
		case reason != "":
			m.Blocked = append(m.Blocked, Blocker{Pod: podName(pod), Reason: reason})
		default:
			m.evictable = append(m.evictable, pod)
		}
	}
	return m, nil
}

func (m *model) ignore(pod *corev1.Pod) {
	m.KeepsVolumes = m.KeepsVolumes || hasVolume(pod)
	m.IgnoredPodUIDs = append(m.IgnoredPodUIDs, string(pod.UID))
	// The kubelet keeps the volumes of a static pod under the UID that is the value of the annotation on its mirror.
	if static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		m.IgnoredPodUIDs = append(m.IgnoredPodUIDs, static)
	}
}

// leave leaves a pod on the node. Its mounts still block the reboot.
func (m *model) leave(pod *corev1.Pod, reason string) {
	m.KeepsVolumes = m.KeepsVolumes || hasVolume(pod)
	m.returning = append(m.returning, pod)
	m.Left = append(m.Left, Blocker{Pod: podName(pod), UID: string(pod.UID), Reason: reason})
}

// staysOnNode reports whether a drain leaves the pod on the node as "kubectl drain" does.
func staysOnNode(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey) || owner != nil && owner.Kind == "DaemonSet"
}

func hasVolume(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

func hasFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hasStarted reports whether a container of the pod has ever run. A pod that never started has neither work nor data to lose.
func hasStarted(pod *corev1.Pod) bool {
	started := func(c corev1.ContainerStatus) bool {
		return c.RestartCount > 0 || c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	}
	return pod.Status.Phase != corev1.PodPending ||
		slices.ContainsFunc(pod.Status.InitContainerStatuses, started) || slices.ContainsFunc(pod.Status.ContainerStatuses, started)
}

// isStuck reports whether a pod never started and is not about to: it has waited for 10 minutes, or cannot start.
func isStuck(pod *corev1.Pod, now time.Time) bool {
	isWaiting := func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains(marks.Stuck, c.State.Waiting.Reason)
	}
	startTime := pod.CreationTimestamp.Time
	if start := pod.Status.StartTime; start != nil && start.After(startTime) {
		startTime = start.Time // by the kubelet's clock, which may be behind
	}
	return !hasStarted(pod) && (now.Sub(startTime) > 10*time.Minute ||
		slices.ContainsFunc(pod.Status.InitContainerStatuses, isWaiting) || slices.ContainsFunc(pod.Status.ContainerStatuses, isWaiting))
}

func isOfJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String()
}

// isLast reports whether the owner of a pod keeps it until the other pods of the node are gone.
func isLast(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && slices.ContainsFunc(marks.Last, func(l last) bool {
		return strings.HasPrefix(owner.APIVersion, l.Group+"/") && l.Kind == owner.Kind
	})
}

// markOf returns the annotation by which a pod forbids its disruption, empty if there is none.
func markOf(pod *corev1.Pod) string {
	for _, mark := range marks.Forbid {
		if pod.Annotations[mark.Annotation] == mark.Value {
			return mark.Annotation
		}
	}
	return ""
}

// returnReason returns the reason why the controller of a pod would create another pod on the cordoned node at once, empty if it would not.
func returnReason(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return ""
	}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if scheduling.TolerationsTolerateTaint(logr.Discard(), pod.Spec.Tolerations, &cordon, true) {
		return "tolerates the taint " + cordon.Key
	}
	return ""
}

// obstacleOf returns the reason why a pod cannot leave the node within the drain, empty if it can. Without a timeout in the options, time does not
// matter.
func obstacleOf(pod *corev1.Pod, options v1alpha1.Drain, now time.Time) string {
	timeout := time.Duration(ptr.Deref(options.TimeoutSeconds, 0)) * time.Second
	isTooLong := func(d time.Duration) bool {
		return timeout > 0 && d > timeout
	}
	if end := pod.DeletionTimestamp; end != nil {
		grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		switch {
		case now.Sub(end.Time) > stuckAfter:
			return fmt.Sprintf("should have terminated at %s; check its finalizers, its volumes and the kubelet, or delete it with --force",
				end.UTC().Format(time.RFC3339))
		case isTooLong(min(end.Sub(now), grace)):
			return fmt.Sprintf("may terminate until %s, but the drain has %d seconds; raise rollout.drain.timeoutSeconds, or wait",
				end.UTC().Format(time.RFC3339), *options.TimeoutSeconds)
		}
		return ""
	}
	if metav1.GetControllerOf(pod) == nil {
		return "has no controller to start it elsewhere; delete it once its work is done"
	}
	if mark := markOf(pod); mark != "" {
		return fmt.Sprintf("has the annotation %s; remove it, or delete the pod once its work is done", mark)
	}
	if !hasStarted(pod) {
		return ""
	}
	local := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	if local && !options.DeleteEmptyDirData {
		return "has an emptyDir, whose data would be lost (set rollout.drain.deleteEmptyDirData to evict it)"
	}
	seconds := secondsToLeave(pod)
	if isTooLong(time.Duration(seconds) * time.Second) {
		return fmt.Sprintf("has a grace period of %d seconds, but the drain has %d seconds; raise rollout.drain.timeoutSeconds",
			seconds, *options.TimeoutSeconds)
	}
	return ""
}

// secondsToLeave returns the pod's own grace period: only its owner knows how long it needs.
func secondsToLeave(pod *corev1.Pod) int64 {
	return ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0)
}

// longestGrace returns the longest grace period of the pods that have started and can be evicted.
func (m *model) longestGrace() (longest time.Duration) {
	for _, pod := range m.evictable {
		if hasStarted(pod) {
			longest = max(longest, time.Duration(secondsToLeave(pod))*time.Second)
		}
	}
	return longest
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
