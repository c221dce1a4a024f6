// Package read contains reads of the cluster that several controllers share. Decisions about the results are made in the sibling packages, which
// have no client.
package read

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/objects"
)

// The rights of these reads; the package snapshot has the rights of reads of volumes. Controllers only list their own reads and writes.
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=storage-client-system,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch,namespace=storage-client-agent

// NodeNameField is the field of Pods that IsAgentReady selects by; a cached client needs an index of that name.
const NodeNameField = "spec.nodeName"

// IndexNodeName is the index function of NodeNameField.
func IndexNodeName(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// Find reads an object, and reports whether it exists. The error names it.
func Find(ctx context.Context, reader client.Reader, key client.ObjectKey, object client.Object, opts ...client.GetOption) (found bool, err error) {
	err = reader.Get(ctx, key, object, opts...)
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	kind := cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, reflect.TypeOf(object).Elem().Name())
	return false, fmt.Errorf("get %s %s: %w", kind, strings.TrimPrefix(key.String(), "/"), err)
}

// FleetSnapshot lists Nodes, StorageClientNodes and the agent's Pods.
func FleetSnapshot(ctx context.Context, reader client.Reader, profiles *fleet.ProfileSet) (fleet.Snapshot, error) {
	nodes, err := objects.All[*corev1.Node](ctx, reader, &corev1.NodeList{})
	if err != nil {
		return fleet.Snapshot{}, fmt.Errorf("list Nodes: %w", err)
	}
	clientNodes, err := objects.All[*v1alpha1.StorageClientNode](ctx, reader, &v1alpha1.StorageClientNodeList{})
	if err != nil {
		return fleet.Snapshot{}, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	ready, err := listReadyAgents(ctx, reader)
	if err != nil {
		return fleet.Snapshot{}, err
	}
	all := fleet.Snapshot{Profiles: profiles, Nodes: nodes, Ready: ready, ClientNodes: make(map[string]*v1alpha1.StorageClientNode, len(clientNodes))}
	for _, clientNode := range clientNodes {
		all.ClientNodes[clientNode.Name] = clientNode
	}
	return all, nil
}

// Profiles lists all profiles. The caller must not change them.
func Profiles(ctx context.Context, reader client.Reader) ([]*v1alpha1.StorageClientProfile, error) {
	profiles, err := objects.All[*v1alpha1.StorageClientProfile](ctx, reader, &v1alpha1.StorageClientProfileList{})
	if err != nil {
		return nil, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	return profiles, nil
}

// IsAgentReady reports whether the agent's Pod on one node is Ready.
func IsAgentReady(ctx context.Context, reader client.Reader, node string) (bool, error) {
	ready, err := listReadyAgents(ctx, reader, client.MatchingFields{NodeNameField: node})
	return ready[node], err
}

func listReadyAgents(ctx context.Context, reader client.Reader, opts ...client.ListOption) (map[string]bool, error) {
	pods, err := objects.All[*corev1.Pod](ctx, reader, &corev1.PodList{}, append(opts, client.InNamespace(v1alpha1.AgentNamespace))...)
	if err != nil {
		return nil, fmt.Errorf("list agent Pods in %s: %w", v1alpha1.AgentNamespace, err)
	}
	ready := make(map[string]bool, len(pods))
	for _, pod := range pods {
		if pod.Labels[agentpod.ComponentLabel] == agentpod.Component && agentpod.IsReady(pod) {
			ready[pod.Spec.NodeName] = true
		}
	}
	return ready, nil
}

// IsEverythingPaused reports whether the manager's namespace is paused, which pauses all profiles and nodes. A namespace that does not exist is not
// paused, for example if the manager runs outside the cluster. odd is OddStop of the annotation.
func IsEverythingPaused(ctx context.Context, reader client.Reader) (paused bool, odd string, err error) {
	var ns corev1.Namespace
	_, err = Find(ctx, reader, client.ObjectKey{Name: v1alpha1.ManagerNamespace}, &ns)
	return match.IsPaused(&ns), v1alpha1.OddStop(&ns, v1alpha1.PausedAnnotation), err
}

// WritableNodes returns a FleetSnapshot, and the nodes whose StorageClientNodes may get a new generation now for a change that is no setting: see
// fleet.IsWritable. The rollout has not claimed these nodes, and no annotation excludes them.
func WritableNodes(ctx context.Context, reader client.Reader, profiles *fleet.ProfileSet) (fleet.Snapshot, map[string]bool, error) {
	all, err := FleetSnapshot(ctx, reader, profiles)
	if err != nil {
		return fleet.Snapshot{}, nil, err
	}
	var budget corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}
	if _, err := Find(ctx, reader, key, &budget); err != nil {
		return fleet.Snapshot{}, nil, err
	}
	writable := map[string]bool{}
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		_, claimed := budget.Data[node.Name]
		writable[node.Name] = clientNode != nil && !claimed && fleet.Owns(node, clientNode) && !match.IsIgnored(node) &&
			fleet.IsWritable(node, clientNode, all.Ready[node.Name])
	}
	return all, writable, nil
}

const (
	// podsEvery is the interval between reads of the pods of the same claims.
	podsEvery = time.Minute
	// podsPage is the number of pods in one read, maxPodsPages the number of reads in a namespace.
	podsPage     = 500
	maxPodsPages = 4
	// maxPods is the number of pods of a claim that are returned.
	maxPods = 3
)

// ClaimPods holds the last read of the pods that use PersistentVolumeClaims.
type ClaimPods struct {
	claims []types.NamespacedName
	at     time.Time
	pods   map[types.NamespacedName][]corev1.Pod
}

// Of returns up to maxPods pods of each claim, not older than podsEvery. The reader must bypass the cache, which has no pods of users.
func (c *ClaimPods) Of(ctx context.Context, reader client.Reader, claims []types.NamespacedName, now time.Time) (map[types.NamespacedName][]corev1.Pod, error) {
	if slices.Equal(c.claims, claims) && now.Sub(c.at) < podsEvery {
		return c.pods, nil
	}
	pods := map[types.NamespacedName][]corev1.Pod{}
	for _, volumeClaim := range claims {
		found, err := podsOf(ctx, reader, volumeClaim)
		if err != nil {
			return nil, err
		}
		pods[volumeClaim] = found
	}
	*c = ClaimPods{claims: claims, at: now, pods: pods}
	return pods, nil
}

func podsOf(ctx context.Context, reader client.Reader, volumeClaim types.NamespacedName) ([]corev1.Pod, error) {
	var out []corev1.Pod
	token := ""
	for range maxPodsPages {
		var page corev1.PodList
		if err := reader.List(ctx, &page, client.InNamespace(volumeClaim.Namespace), client.Limit(podsPage), client.Continue(token)); err != nil {
			return nil, fmt.Errorf("list Pods in namespace %q: %w", volumeClaim.Namespace, err)
		}
		for i := range page.Items {
			if pod := &page.Items[i]; usesClaim(pod, volumeClaim.Name) && pod.DeletionTimestamp.IsZero() {
				out = append(out, *pod)
			}
		}
		if token = page.Continue; token == "" || len(out) >= maxPods {
			break
		}
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(maxPods, len(out))], nil
}

func usesClaim(pod *corev1.Pod, volumeClaim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == volumeClaim ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == volumeClaim
	})
}
