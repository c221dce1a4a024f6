package node

import corev1 "k8s.io/api/core/v1"

// CacheTransform is for the manager's cache of Nodes. It keeps only the parts of their status that controllers read: conditions, node info and
// memory capacity, and the volumes of unschedulable Nodes. Images and volumes are most of a Node.
func CacheTransform(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields = nil
	status := corev1.NodeStatus{Conditions: node.Status.Conditions, NodeInfo: node.Status.NodeInfo}
	if memory, known := node.Status.Capacity[corev1.ResourceMemory]; known {
		status.Capacity = corev1.ResourceList{corev1.ResourceMemory: memory}
	}
	if node.Spec.Unschedulable {
		status.VolumesInUse, status.VolumesAttached = node.Status.VolumesInUse, node.Status.VolumesAttached
	}
	node.Status = status
	return node, nil
}

// CacheTransformAgentPod is for the manager's cache of Pods of the agents and trial runners. It keeps the node of a Pod and its
// readiness.
func CacheTransformAgentPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Affinity: pod.Spec.Affinity}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, StartTime: pod.Status.StartTime}
	return pod, nil
}
