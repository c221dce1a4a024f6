package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

// operatorPeer is this operator: the real manager, with simulated writes of the agents. Package scale compares these with the real agents.
type operatorPeer struct {
	profile *v1alpha1.StorageClientProfile
}

func (*operatorPeer) name() string { return "storage-client" }

func (*operatorPeer) users() []string { return []string{controlplane.Manager, controlplane.Agent} }

func (*operatorPeer) stop() {}

func (*operatorPeer) describe() string {
	return "the manager; a kernel argument requires the reboot, which is approved; a canary of one node first; no soak and no settle time; agents' writes are simulated"
}

func (o *operatorPeer) prepare(ctx context.Context, w *world) error {
	if _, err := w.StartManager(ctx, fmt.Sprintf("--max-unavailable=%d", w.budget)); err != nil {
		return err
	}
	o.profile = &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "peers"},
		Spec: v1alpha1.StorageClientProfileSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{sandbox.PoolLabel: sandbox.Pool}},
			Node:         &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}},
			Rollout: v1alpha1.Rollout{
				MaxUnavailable: ptr.To(intstr.FromInt32(int32(w.budget))), MaxConcurrentLive: ptr.To(intstr.FromString("100%")),
				Canary: &v1alpha1.Canary{SoakSeconds: ptr.To[int32](0)}, SettleSeconds: ptr.To[int32](0),
				Reboot: v1alpha1.Reboot{Policy: v1alpha1.RebootOnApproval, TimeoutSeconds: ptr.To[int32](180)},
			},
		},
	}
	if err := w.Client.Create(ctx, o.profile); err != nil {
		return err
	}
	return w.await(ctx, "the kernel argument to be staged", 10*time.Minute, func(ctx context.Context) (bool, error) {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o.profile), o.profile); err != nil {
			return false, err
		}
		last, err := w.Plane.LastWrite(o.users()...)
		return int(o.profile.Status.Plan.NodesToReboot) == w.nodes && o.profile.Status.Plan.Hash != "" && time.Since(last) > 10*time.Second, err
	})
}

func (o *operatorPeer) begin(ctx context.Context, w *world) error {
	patch := client.MergeFrom(o.profile.DeepCopy())
	o.profile.Annotations = map[string]string{v1alpha1.ApprovedPlanAnnotation: o.profile.Status.Plan.Hash}
	return w.Client.Patch(ctx, o.profile, patch)
}

func (o *operatorPeer) says(ctx context.Context, w *world, lost string) string {
	clientNode := &v1alpha1.StorageClientNode{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: lost}, clientNode); err != nil || clientNode.Status.Rollout == nil {
		return fmt.Sprint("nothing: ", err)
	}
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o.profile), o.profile); err != nil {
		return err.Error()
	}
	texts := []string{fmt.Sprintf("the node: %s %s: %s", clientNode.Status.Rollout.Phase, clientNode.Status.Rollout.Reason, clientNode.Status.Rollout.Message)}
	for _, condition := range o.profile.Status.Conditions {
		if condition.Type == v1alpha1.ConditionStalled || condition.Type == v1alpha1.ConditionReconciling && condition.Status == metav1.ConditionTrue {
			texts = append(texts, fmt.Sprintf("the profile: %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
	}
	return strings.Join(texts, "; ")
}

// nodeSays returns the state of a Node that has not come back, for contenders without their own report.
func nodeSays(ctx context.Context, w *world, lost string) string {
	node := &corev1.Node{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: lost}, node); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("the Node is unschedulable: %t, annotations %v", node.Spec.Unschedulable, node.Annotations)
}
