package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/volume/plan"
)

// maxPendingPages is the maximum number of pages of pods that are read to find pods that are about to mount a volume. The result only affects
// which volume goes first.
const maxPendingPages = 4

// inspectEvidence finds kubelets that have mounted awaited volumes with their current mount options, on nodes without an agent to report
// mounts.
//
// A kubelet reads the volume when it starts to set up a pod, and starts no container before all volumes are mounted (see witnesses). A pod is
// evidence if it arrived on its node after the write and has a started container. Exception: another pod of that node had the volume mounted
// before, since drivers that stage volumes reuse the existing mount.
func (s *scope) inspectEvidence(ctx context.Context, awaited []plan.Awaited) (map[string]plan.Evidence, error) {
	out := map[string]plan.Evidence{}
	if len(awaited) == 0 {
		return out, nil
	}
	volumes := make([]plan.Watched, len(awaited))
	for i, a := range awaited {
		volumes[i] = plan.Watched{Volume: a.Volume}
	}
	w, err := readPods(ctx, s.APIReader, namespacesOf(volumes))
	if err != nil {
		return nil, err
	}
	for _, a := range awaited {
		if _, known := out[a.Set]; known {
			continue
		}
		key, err := w.findMounter(ctx, a)
		if err != nil {
			return nil, err
		}
		if key != (types.NamespacedName{}) {
			text := fmt.Sprintf("Pod %s on %s has started with %s", key, w.pods[key].node, a.Volume.Name)
			out[a.Set] = plan.Evidence{Volume: a.Volume.Name, Written: a.Written, Text: text}
		}
	}
	return out, nil
}

// findMounter finds a pod for which a kubelet has newly mounted an awaited volume. Zero if there is none.
func (w *witnesses) findMounter(ctx context.Context, a plan.Awaited) (types.NamespacedName, error) {
	volumeClaim, bound := volumeClaimKey(a.Volume)
	if !bound {
		return types.NamespacedName{}, nil
	}
	var users []types.NamespacedName
	// before are the nodes on which a pod may have mounted the volume with the previous mount options.
	before := map[string]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(w.pods), compareKeys) {
		pod := w.pods[key]
		switch {
		case key.Namespace != volumeClaim.Namespace || len(pod.volumes[volumeClaim.Name]) == 0 || pod.node == "":
		case !pod.arrived.After(a.After):
			before[pod.node] = true
		case pod.started.After(a.After):
			users = append(users, key)
		}
	}
	for _, key := range users {
		if before[w.pods[key].node] {
			continue
		}
		node, err := w.factsOfNode(ctx, w.pods[key].node)
		if err != nil {
			return types.NamespacedName{}, err
		}
		if node.exists && !node.hasAgent {
			return key, nil
		}
	}
	return types.NamespacedName{}, nil
}

// arrivalOf returns the time at which a pod was bound to its node, from the API server: no kubelet knew it before.
func arrivalOf(pod *corev1.Pod) time.Time {
	arrived := pod.CreationTimestamp.Time
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue && condition.LastTransitionTime.After(arrived) {
			arrived = condition.LastTransitionTime.Time
		}
	}
	return arrived
}

// findComing returns the names of the volumes that a pod is about to mount: a pod that uses them has not started yet.
func (s *scope) findComing(ctx context.Context, candidates []*corev1.PersistentVolume) (map[string]bool, error) {
	volumes := make([]plan.Watched, len(candidates))
	for i, pv := range candidates {
		volumes[i] = plan.Watched{Volume: pv}
	}
	byClaim, out, token := groupByClaim(volumes), map[string]bool{}, ""
	for range maxPendingPages {
		var page corev1.PodList
		pending := fields.OneTermEqualSelector("status.phase", string(corev1.PodPending))
		err := s.APIReader.List(ctx, &page, client.MatchingFieldsSelector{Selector: pending}, client.Limit(pageSize), client.Continue(token))
		if err != nil {
			return nil, fmt.Errorf("list pending Pods: %w", err)
		}
		for i := range page.Items {
			pod := factsOf(&page.Items[i])
			if pod.finished || !pod.started.IsZero() {
				continue
			}
			for name := range pod.volumes {
				for _, volume := range byClaim[types.NamespacedName{Namespace: page.Items[i].Namespace, Name: name}] {
					out[volume.Volume.Name] = true
				}
			}
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	return out, nil
}
