package simnode

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func readyCondition(ready bool) corev1.NodeCondition {
	now := metav1.Now()
	condition := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if !ready {
		condition.Status, condition.Reason = corev1.ConditionFalse, "KubeletNotReady"
	}
	return condition
}

// statusPatch leaves out what it does not speak of, which a Node's own JSON form would set to nothing.
func statusPatch(node corev1.Node) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"conditions": node.Status.Conditions,
		"nodeInfo":   map[string]any{"bootID": node.Status.NodeInfo.BootID},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the status of a simulated Node: %w", err)
	}
	return patch, nil
}
