package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/test/cluster/sandbox"
)

// nodewright runs NodeWright's operator (formerly Skyhook). The harness simulates its pods for each step on a node. The steps of its
// package succeed after a second without any work. The pod of its interrupt reboots the node and succeeds once the node is back.
type nodewright struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

const (
	nodewrightNamespace = "skyhook"
	interruptLabel      = "skyhook.nvidia.com/interrupt"
	// stepTime is the duration of a step's pod.
	stepTime = time.Second
)

var skyhookKind = schema.GroupVersionKind{Group: "skyhook.nvidia.com", Version: "v1alpha1", Kind: "Skyhook"}

func (*nodewright) name() string { return "NodeWright" }

func (*nodewright) users() []string { return []string{"nodewright"} }

func (*nodewright) describe() string {
	return "its operator, without its webhooks and with all rights; a package whose steps take a second each, with the interrupt reboot; interruptionBudget.count as the budget; its pods are simulated"
}

func (n *nodewright) stop() {
	if n.cancel != nil {
		n.cancel()
		n.wait.Wait()
	}
}

func (n *nodewright) prepare(ctx context.Context, w *world) error {
	files, err := filepath.Glob(filepath.Join(w.settings.nodewrightSource, "operator/config/crd/bases/*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := w.ApplyFile(ctx, file); err != nil {
			return err
		}
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nodewrightNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: nodewrightNamespace, Name: "default"}},
	} {
		if err := client.IgnoreAlreadyExists(w.Client.Create(ctx, object)); err != nil {
			return err
		}
	}
	kubeconfig := filepath.Join(w.dir, "nodewright.kubeconfig")
	if err := w.Plane.AddAdministrator(n.users()[0], kubeconfig); err != nil {
		return err
	}
	ctx, n.cancel = context.WithCancel(ctx)
	n.wait.Go(func() { n.playPods(ctx, w) })
	_, err = w.Plane.RunAs("nodewright", "env", "KUBECONFIG="+kubeconfig, "ENABLE_WEBHOOKS=false", "LEADER_ELECTION=false", "LOG_LEVEL=info",
		"NAMESPACE="+nodewrightNamespace, "METRICS_PORT=127.0.0.1:0", "PROBE_PORT=127.0.0.1:0", w.settings.nodewright)
	if err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // it has no work yet
	return nil
}

func (n *nodewright) begin(ctx context.Context, w *world) error {
	skyhook := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "peers"},
		"spec": map[string]any{
			"nodeSelectors":      map[string]any{"matchLabels": map[string]any{sandbox.PoolLabel: sandbox.Pool}},
			"interruptionBudget": map[string]any{"count": int64(w.budget)},
			"packages": map[string]any{"boot": map[string]any{
				"version": "1.0.0", "image": "example/boot", "interrupt": map[string]any{"type": "reboot"},
			}},
		},
	}}
	skyhook.SetGroupVersionKind(skyhookKind)
	return w.Client.Create(ctx, skyhook)
}

// playPods simulates the kubelet for the operator's pods.
func (n *nodewright) playPods(ctx context.Context, w *world) {
	seen := map[types.UID]bool{}
	for ctx.Err() == nil {
		pods := &corev1.PodList{}
		if err := w.Client.List(ctx, pods, client.InNamespace(nodewrightNamespace)); err != nil {
			w.progress("list the operator's pods: %v", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if seen[pod.UID] || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || len(pod.Spec.InitContainers) == 0 {
				continue
			}
			seen[pod.UID] = true
			n.wait.Go(func() {
				if err := playPod(ctx, w, pod); err != nil && ctx.Err() == nil {
					w.progress("%s: %v", pod.Name, err)
				}
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func playPod(ctx context.Context, w *world, pod *corev1.Pod) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stepTime):
	}
	if pod.Labels[interruptLabel] != "" {
		if err := w.Light.Reboot(ctx, pod.Spec.NodeName); err != nil {
			return err
		}
	}
	var done []corev1.ContainerStatus
	for _, container := range pod.Spec.InitContainers {
		now := metav1.Now()
		done = append(done, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed", StartedAt: now, FinishedAt: now}},
		})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"initContainerStatuses": done}})
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(w.Client.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)))
}

func (*nodewright) says(ctx context.Context, w *world, lost string) string {
	skyhook := &unstructured.Unstructured{}
	skyhook.SetGroupVersionKind(skyhookKind)
	if err := w.Client.Get(ctx, client.ObjectKey{Name: "peers"}, skyhook); err != nil {
		return err.Error()
	}
	status, _, _ := unstructured.NestedString(skyhook.Object, "status", "status")
	nodeStatus, _, _ := unstructured.NestedString(skyhook.Object, "status", "nodeStatus", lost)
	return fmt.Sprintf("status %q, of the node %q", status, nodeStatus)
}
