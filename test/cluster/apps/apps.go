// Package apps contains the applications on the nodes of a measurement. There is about one pod on each node. Budgets count the evictions,
// and no eviction has to wait for another.
package apps

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/test/cluster/history"
)

// DrainTime is the time in which a pod with the label stops=slowly ends (stages.yaml of package controlplane).
const DrainTime = 10 * time.Second

// podsPerApp keeps the evictions of a wave from conflicting at one PodDisruptionBudget. For each conflict the API server itself waits for
// half a second (EvictionsRetry in its pod storage). With hundreds of evictions, the measurement would mostly contain these waits.
const podsPerApp = 10

// PodsByApp returns the names of the applications with the numbers of their pods.
func PodsByApp(nodes int) map[string]int {
	out := map[string]int{}
	for i := range nodes {
		out[fmt.Sprintf("batch-%d", i/podsPerApp+1)]++
	}
	return out
}

// Add adds the applications. A PodDisruptionBudget counts every eviction: the end of a wave includes all pods of some applications. They
// are plain ReplicaSets. A Deployment for each would double the writes of the controller manager, on processors that all processes share.
func Add(ctx context.Context, c client.Client, nodes int) error {
	for app, pods := range PodsByApp(nodes) {
		for _, object := range objectsOf(app, pods) {
			if err := c.Create(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func objectsOf(app string, pods int) []client.Object {
	labels := map[string]string{history.AppLabel: app, "stops": "slowly"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{history.AppLabel: app}}
	object := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: app}
	return []client.Object{&policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromString("100%")), Selector: selector,
	}}, &appsv1.ReplicaSet{ObjectMeta: object, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To(int32(pods)), Selector: selector,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "batch", Image: "example/batch:1"}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stops": "slowly"}},
			}},
		}},
	}}}
}

// Running reports whether all pods of the applications run.
func Running(ctx context.Context, c client.Client, nodes int) (bool, error) {
	sets := &appsv1.ReplicaSetList{}
	err := c.List(ctx, sets, client.InNamespace(metav1.NamespaceDefault))
	running := 0
	for i := range sets.Items {
		running += int(sets.Items[i].Status.AvailableReplicas)
	}
	return running == nodes, err
}
