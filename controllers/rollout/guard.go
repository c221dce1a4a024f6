package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Annotations that prevent an autoscaler from deleting a node that appears empty or broken while it reboots.
const (
	clusterAutoscalerAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	karpenterAnnotation         = "karpenter.sh/do-not-disrupt"
)

// guards are the keys that the operator has set on a Node for a disruption. Keys that were set before are not included.
//
// The patch that cordons adds the keys and this list, the patch that uncordons removes both: no crash can separate them. The list has its own
// annotation, so that it remains if someone removes the disruption annotation from the Node.
type guards struct {
	Annotations []string `json:"annotations,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// guardsOf decodes the list. A list that cannot be read is empty: its keys stay on the node.
func guardsOf(node *corev1.Node) guards {
	var out guards
	if err := json.Unmarshal([]byte(node.Annotations[v1alpha1.DisruptionGuardsAnnotation]), &out); err != nil {
		return guards{}
	}
	return out
}

// setGuards keeps autoscalers off the node, and removes it from external load balancers if requested. A key that already exists, with any value,
// belongs to another user and is not changed.
func setGuards(node *corev1.Node, excludeFromLoadBalancers bool) {
	managed := guardsOf(node)
	managed.Annotations = setKeys(node.Annotations, managed.Annotations, knownAnnotations)
	if excludeFromLoadBalancers {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		managed.Labels = setKeys(node.Labels, managed.Labels, knownLabels)
	}
	if len(managed.Annotations)+len(managed.Labels) > 0 {
		node.Annotations[v1alpha1.DisruptionGuardsAnnotation] = text.JSON(managed)
	}
}

// setKeys sets the known keys that do not exist, and returns all managed keys.
func setKeys(all map[string]string, managedKeys, known []string) []string {
	for _, key := range known {
		if _, exists := all[key]; !exists {
			all[key] = v1alpha1.True
			managedKeys = append(managedKeys, key)
		}
	}
	return lists.Distinct(managedKeys)
}

// The known keys are the only keys that the rollout sets, and that removeGuards may remove, regardless of the author of the list.
var (
	knownAnnotations = []string{clusterAutoscalerAnnotation, karpenterAnnotation}
	knownLabels      = []string{corev1.LabelNodeExcludeBalancers}
)

// removeGuards removes the keys that setGuards has set. A value that has changed since belongs to another user.
func removeGuards(node *corev1.Node) {
	managed := guardsOf(node)
	removeKeys(node.Annotations, managed.Annotations, knownAnnotations)
	removeKeys(node.Labels, managed.Labels, knownLabels)
	delete(node.Annotations, v1alpha1.DisruptionGuardsAnnotation)
}

func removeKeys(all map[string]string, managedKeys, known []string) {
	for _, key := range managedKeys {
		if all[key] == v1alpha1.True && slices.Contains(known, key) {
			delete(all, key)
		}
	}
}

// maintenanceReason marks conditions on a Node that the operator sets. Others may set conditions of the same types.
const maintenanceReason = "StorageClientRollout"
const maintenanceMessage = "Reboot for storage client settings"

// maintenance contains the conditions that are True in each state. The others are absent.
var maintenance = map[plan.Maintenance][]corev1.NodeConditionType{
	plan.MaintenanceNone:     nil,
	plan.MaintenanceDraining: {corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress},
	plan.MaintenanceDrained:  {corev1.NodeMaintenanceInProgress, corev1.NodeDrained},
}

var maintenanceTypes = []corev1.NodeConditionType{
	corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained,
}

func maintenanceOf(node *corev1.Node) plan.Maintenance {
	conditionTypes := lists.Pick(node.Status.Conditions, func(c corev1.NodeCondition) (corev1.NodeConditionType, bool) {
		return c.Type, c.Reason == maintenanceReason && slices.Contains(maintenanceTypes, c.Type)
	})
	for _, state := range []plan.Maintenance{plan.MaintenanceNone, plan.MaintenanceDraining, plan.MaintenanceDrained} {
		if slices.Equal(slices.Sorted(slices.Values(conditionTypes)), slices.Sorted(slices.Values(maintenance[state]))) {
			return state
		}
	}
	return plan.MaintenanceOther
}

// maintainerOf returns the reason of another controller's condition MaintenanceInProgress while it is True, empty if there is none.
func maintainerOf(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeMaintenanceInProgress && condition.Status == corev1.ConditionTrue && condition.Reason != maintenanceReason {
			return cmp.Or(condition.Reason, "unknown")
		}
	}
	return ""
}

// setMaintenance sets the operator's conditions. It skips a type for which another controller has set a condition.
func (p *pass) setMaintenance(ctx context.Context, step plan.SetMaintenance) error {
	before := current(p, p.nodes, step.Node)
	node := before.DeepCopy()
	now, message := p.Clock.Now(), maintenanceMessage
	if step.Permitting {
		// With nanoseconds, no two writes are equal.
		message += ", permitted at " + now.UTC().Format(time.RFC3339Nano)
	}
	for _, kind := range maintenanceTypes {
		at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		wanted := slices.Contains(maintenance[step.State], kind)
		switch {
		case at >= 0 && node.Status.Conditions[at].Reason != maintenanceReason:
		case at >= 0 && !wanted:
			node.Status.Conditions = slices.Delete(node.Status.Conditions, at, at+1)
		case at >= 0 && step.Permitting:
			node.Status.Conditions[at].Message = message
		case at < 0 && wanted:
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionTrue, Reason: maintenanceReason,
				Message: message, LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
			})
		}
	}
	if slices.Equal(node.Status.Conditions, before.Status.Conditions) {
		return nil
	}
	// The kubelet keeps other conditions in this list: the patch merges by type.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := p.Status().Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch status of Node %s: %w", step.Node, err)
	}
	keep(p, p.nodes, node)
	return nil
}
