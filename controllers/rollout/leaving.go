package rollout

import corev1 "k8s.io/api/core/v1"

// leavingTaints are the keys of taints by which others say that a node is about to be taken away, or is switched off. Whatever their
// effect: handlers let it be chosen.
//
// Two that look like it are not among them. DeletionCandidateOfClusterAutoscaler marks an "unneeded node as preferably
// unschedulable" (PreferNoSchedule; cluster-autoscaler/utils/taints/taints.go) and goes when the node is needed again: an idle node
// is a good one to reboot, and our guards keep the autoscaler off it meanwhile. kubernetes.azure.com/scalesetpriority is on every spot
// node of AKS, for as long as it lives.
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
	// Set by people and remediators on a node that is shut down (kubernetes.io/docs/concepts/cluster-administration/node-shutdown).
	corev1.TaintNodeOutOfService: true,
	// TaintNodeShutdown of k8s.io/cloud-provider/api: the instance is switched off.
	"node.cloudprovider.kubernetes.io/shutdown": true,
}

// leavingTaint is the taint that says that others are about to take a node away, nil if there is none. The one that is ours to
// remove never says so, whatever key was chosen for it.
func leavingTaint(node *corev1.Node, ours string) *corev1.Taint {
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; leavingTaints[taint.Key] && taint.Key != ours {
			return taint
		}
	}
	return nil
}
