package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/lists"
)

// managerLabels are the labels of the manager's Pods (config/manager).
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "storage-client-operator", "app.kubernetes.io/component": "manager"}

// readManagers reads the manager's Pods, unless it did so recently. It reports whether they were read.
func (p *pass) readManagers(ctx context.Context) (isRead bool, err error) {
	if p.ManagerNode == "" {
		return false, nil
	}
	pods, isRead, err := p.listPods(ctx, &p.managersPace, v1alpha1.ManagerNamespace, managerLabels)
	if isRead {
		p.managers = pods
	}
	return isRead, err
}

// listPods lists Pods, unless it did so recently. It reads from the cache of the API server, because a new Pod affects no decision yet.
func (p *pass) listPods(ctx context.Context, pace *store.Pace, namespace string, labels client.MatchingLabels) (pods []corev1.Pod, isRead bool, err error) {
	if pace.Remaining(podsAge, p.Clock.Now()) > 0 {
		return nil, false, nil
	}
	var list corev1.PodList
	fromMemory := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := p.APIReader.List(ctx, &list, client.InNamespace(namespace), labels, fromMemory); err != nil {
		return nil, false, fmt.Errorf("list Pods in %s: %w", namespace, err)
	}
	pace.Begin(podsAge, p.Clock.Now())
	return list.Items, true, nil
}

// takesManager reports whether a node runs a Ready Pod of the manager, or the scheduler may place the Pod of the manager's node on it. It is false
// for all nodes, including the manager's, if the Pod is unknown.
func (p *pass) takesManager(node *corev1.Node) bool {
	index := slices.IndexFunc(p.managers, func(pod corev1.Pod) bool { return pod.Spec.NodeName == p.ManagerNode })
	return index >= 0 && (accepts(node, &p.managers[index]) || node.Name == p.ManagerNode ||
		slices.ContainsFunc(p.managers, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name && agentpod.IsReady(&pod) }))
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

// etcdPods are the labels of kubeadm's and RKE2's static pods of etcd (cmd/kubeadm/app/util/staticpod, ComponentPod).
var etcdPods = client.MatchingLabels{"component": "etcd", "tier": "control-plane"}

// podsAge is the time for which the lists of the manager's Pods and of etcd's are cached: they rarely change, and etcd requires a list of kube-system.
const podsAge = time.Minute

// readEtcdMembers finds the nodes whose loss would cost etcd a vote although they have no label for it.
func (p *pass) readEtcdMembers(ctx context.Context) error {
	pods, isRead, err := p.listPods(ctx, &p.etcdPace, metav1.NamespaceSystem, etcdPods)
	if isRead {
		p.etcdNodes = sets.New(lists.Pick(lists.Pointers(pods), func(pod *corev1.Pod) (string, bool) {
			return pod.Spec.NodeName, metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey)
		})...)
	}
	return err
}
