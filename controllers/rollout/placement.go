package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/internal/agentpod"
)

// managerLabels are the labels of the manager's Pods (config/manager).
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "storage-client-operator", "app.kubernetes.io/component": "manager"}

// managerPods are the manager's Pods according to a recent read.
type managerPods struct {
	pods []corev1.Pod
	at   time.Time
}

// readManagers reads the manager's Pods, unless it did so recently. It reports whether they were read.
func (s *scope) readManagers(ctx context.Context) (isRead bool, err error) {
	if age := s.Clock.Now().Sub(s.managers.at); s.ManagerNode == "" || age >= 0 && age < etcdAge {
		return false, nil
	}
	var pods corev1.PodList
	fromMemory := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := s.APIReader.List(ctx, &pods, client.InNamespace(s.ManagerNamespace), managerLabels, fromMemory); err != nil {
		return false, fmt.Errorf("list Pods of the manager: %w", err)
	}
	s.managers = managerPods{pods: pods.Items, at: s.Clock.Now()}
	return true, nil
}

// takesManager reports whether a node runs a Ready Pod of the manager, or the scheduler may place the Pod of the manager's node on it. It is false
// for all nodes, including the manager's, if the Pod is unknown.
func (s *scope) takesManager(node *corev1.Node) bool {
	index := slices.IndexFunc(s.managers.pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == s.ManagerNode })
	return index >= 0 && (accepts(node, &s.managers.pods[index]) || node.Name == s.ManagerNode ||
		slices.ContainsFunc(s.managers.pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name && agentpod.IsReady(&pod) }))
}

// accepts reports whether the labels and the taints of a node let the scheduler place a pod on it while the node is in service.
func accepts(node *corev1.Node, pod *corev1.Pod) bool {
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return false
	}
	inService := func(taint *corev1.Taint) bool {
		isOutage := slices.Contains([]string{corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, taint.Key)
		return !isOutage && taint.Effect != corev1.TaintEffectPreferNoSchedule
	}
	_, isKeptOff := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, inService, true)
	return !isKeptOff
}
