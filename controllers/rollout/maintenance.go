package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/lists"
)

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
func (s *scope) setMaintenance(ctx context.Context, step plan.SetMaintenance) error {
	before := current(s, s.nodes, step.Node)
	node := before.DeepCopy()
	now, message := s.Clock.Now(), maintenanceMessage
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
	if err := s.Status().Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch status of Node %s: %w", step.Node, err)
	}
	keep(s, s.nodes, node)
	return nil
}
