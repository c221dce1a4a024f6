package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// maxPendingPages is the maximum number of pages of pods that are read to find pods that are about to mount a volume. The result only affects
// which volume goes first.
const maxPendingPages = 4

// inspectEvidence finds pods for which nodes have mounted awaited volumes with their current mount options.
//
// A kubelet reads the volume when it starts to set up a pod, and starts no container before all volumes are mounted (see witnesses). A pod is
// evidence if it arrived on its node after the write and has a started container. The node's word alone is no evidence: the API server must show
// the pod, with the claim of the volume, on that node. On a node with an agent, the agent must report the mount of that pod, newer than the pod.
// Agents do not report file systems other than NFS, SMB and XFS. On other nodes, and for these file systems, no earlier pod may have the volume
// mounted, since drivers that stage volumes reuse the existing mount.
func (s *scope) inspectEvidence(ctx context.Context, awaited []plan.Awaited) (map[string]plan.Evidence, error) {
	out := map[string]plan.Evidence{}
	if len(awaited) == 0 {
		return out, nil
	}
	w, err := readPods(ctx, s.APIReader, namespacesOf(awaited, func(a plan.Awaited) *corev1.PersistentVolume { return a.Volume }))
	if err != nil {
		return nil, err
	}
	for _, a := range awaited {
		if _, known := out[a.Set]; known {
			continue
		}
		text, err := w.findMounter(ctx, a)
		if err != nil {
			return nil, err
		}
		if text != "" {
			out[a.Set] = plan.Evidence{Volume: a.Volume.Name, Written: a.Written, Text: text}
		}
	}
	return out, nil
}

// findMounter describes a pod for which a node has newly mounted an awaited volume. Empty if there is none.
func (w *witnesses) findMounter(ctx context.Context, a plan.Awaited) (string, error) {
	volumeClaim, _ := judge.ClaimOf(a.Volume)
	var users []types.NamespacedName
	// before are the nodes on which a pod may have mounted the volume with the previous mount options.
	before := map[string]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(w.pods), compareKeys) {
		pod := w.pods[key]
		if !pod.isUserOf(key, volumeClaim) {
			continue
		}
		isNew := pod.arrived.After(a.After)
		before[pod.node] = before[pod.node] || !isNew && !pod.completed
		if (isNew || a.AnyAge || a.Former != nil) && !pod.started.IsZero() {
			users = append(users, key)
		}
	}
	// A device without a file system type may have XFS: a mount that the agent reports decides.
	isUnreported := judge.SourceOf(a.Volume).Options() == mountoptions.Generic
	for _, key := range users {
		pod := w.pods[key]
		node, err := w.factsOfNode(ctx, pod.node)
		switch {
		case err != nil:
			return "", err
		case !node.exists:
		case node.hasAgent && node.hasMounted(a, pod, before[pod.node]):
			return fmt.Sprintf("%s has mounted %s", pod.node, a.Volume.Name), nil
		case pod.arrived.After(a.After) && !before[pod.node] && (!node.hasAgent || isUnreported && !node.reports(a.Volume, pod)):
			return fmt.Sprintf("Pod %s on %s has started with %s", key, pod.node, a.Volume.Name), nil
		}
	}
	return "", nil
}

// hasMounted reports whether the node's agent shows a mount for a pod with the awaited options and completed operations. Agent and kubelet have
// one clock. Reported times of SMB and XFS are a little early: without an earlier pod on the node, the mount only needs to follow the write. The
// kubelet may have read the volume for an earlier pod before the write: only its options show which ones it mounted.
func (n *nodeFacts) hasMounted(a plan.Awaited, pod *podFacts, hasEarlier bool) bool {
	return slices.ContainsFunc(n.mounts, func(m v1alpha1.MountStatus) bool {
		isMadeWithIt := m.Used && m.Since != nil && !pod.accepted.IsZero() && pod.arrived.Add(m.Since.Sub(pod.accepted)).After(a.After) &&
			(!m.Since.Time.Before(pod.accepted) || !hasEarlier) &&
			(pod.arrived.After(a.After) && (a.Former == nil || !hasEarlier) || slices.ContainsFunc(mountoptions.Outdated(m.Protocol, a.Former, m.Options), showsOtherMount))
		if a.AnyAge {
			isMadeWithIt = m.State == v1alpha1.MountEffective
		}
		return isMadeWithIt && m.Volume == a.Volume.Name && slices.Contains(m.PodUIDs, string(pod.uid)) && plan.ShowsOptions(&m, a.Options)
	})
}

// showsOtherMount reports whether a difference proves that a mount has other options. The first mount of a server sets the number of connections for
// all.
func showsOtherMount(d mountoptions.Difference) bool {
	return !slices.Contains([]string{"nconnect", "max_channels", "multichannel"}, d.Option)
}

// findComing returns the names of the volumes that a pod is about to mount: a pod that uses them has not started yet.
func (s *scope) findComing(ctx context.Context, candidates []*corev1.PersistentVolume) (map[string]bool, error) {
	volumes := lists.Each(candidates, func(pv *corev1.PersistentVolume) plan.Watched { return plan.Watched{Volume: pv} })
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
