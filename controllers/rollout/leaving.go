package rollout

import corev1 "k8s.io/api/core/v1"

// leavingTaints are the keys of taints by which others announce that a node will be removed, or that it is switched off. Their effect does not
// matter, because it can be configured.
//
// Two similar taints are not included. DeletionCandidateOfClusterAutoscaler marks an "unneeded node as preferably unschedulable" (PreferNoSchedule;
// cluster-autoscaler/utils/taints/taints.go) and is removed when the node is needed again. An idle node is a good one to reboot, and the protection
// annotations keep the autoscaler off it during that time. kubernetes.azure.com/scalesetpriority is permanent on every spot node of AKS.
var leavingTaints = map[string]bool{
	// Karpenter, before it drains (karpenter.sh/docs/concepts/disruption); the second up to v0.37 (karpenter.sh/v0.35/concepts/disruption).
	"karpenter.sh/disrupted":  true,
	"karpenter.sh/disruption": true,
	// ToBeDeletedTaint of cluster-autoscaler/utils/taints/taints.go in github.com/kubernetes/autoscaler.
	"ToBeDeletedByClusterAutoscaler": true,
	// The four of pkg/node/node.go in github.com/aws/aws-node-termination-handler.
	"aws-node-termination-handler/spot-itn":                  true,
	"aws-node-termination-handler/scheduled-maintenance":     true,
	"aws-node-termination-handler/asg-lifecycle-termination": true,
	"aws-node-termination-handler/rebalance-recommendation":  true,
	// GKE's node termination handler (gkeNodeTerminationHandlerTaint of the autoscaler's taints.go).
	"cloud.google.com/impending-node-termination": true,
	// AKS, before it drains a node for a scheduled event or repairs it (learn.microsoft.com/azure/aks/node-auto-drain).
	"remediator.kubernetes.azure.com/unschedulable": true,
	// Set by administrators and remediators on a node that is shut down (kubernetes.io/docs/concepts/cluster-administration/node-shutdown).
	corev1.TaintNodeOutOfService: true,
	// TaintNodeShutdown of k8s.io/cloud-provider/api: the instance is switched off.
	"node.cloudprovider.kubernetes.io/shutdown": true,
}

// leavingTaint returns the taint by which others announce the removal of a node, nil if there is none. It ignores the taint that the operator
// itself removes, even if a user configured one of these keys for it.
func leavingTaint(node *corev1.Node, untunedTaint string) *corev1.Taint {
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; leavingTaints[taint.Key] && taint.Key != untunedTaint {
			return taint
		}
	}
	return nil
}
