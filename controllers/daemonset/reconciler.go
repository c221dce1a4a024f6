// Package daemonset runs the node agent: one DaemonSet for the cluster, there as long as there is a profile or a
// managed node, and never rolled out where the cluster does not fence the agent in.
package daemonset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/fence"
)

// Reconciler keeps the agent's DaemonSet.
type Reconciler struct {
	client.Client
	// Fence tells whether the agent may be rolled out.
	Fence *fence.Fence
	// AgentImage is the image that the agent runs.
	AgentImage string
	// AllowParameters are handed on to the agent, which has the last word on what is applied.
	AllowParameters []string
	// MetricsAddress is the loopback address that the agent serves its metrics at; empty or 0: none.
	MetricsAddress string
	// AgentNamespace is where it runs.
	AgentNamespace string
}

// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch;create;patch;delete,namespace=storage-client-agent
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch

// Reconcile creates, updates or deletes the one DaemonSet; what it is asked for by name does not matter.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	needed, err := r.isNeeded(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !needed {
		return reconcile.Result{}, r.deleteAgent(ctx)
	}
	missing, err := r.Fence.Missing(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if missing != "" {
		log.FromContext(ctx).Info("Node agent is not rolled out", "reason", missing)
		return reconcile.Result{RequeueAfter: fence.RecheckAfter}, nil
	}
	return reconcile.Result{}, r.applyAgent(ctx)
}

// isNeeded reports whether a profile, a client node, or a node with the agent's label is there.
func (r *Reconciler) isNeeded(ctx context.Context) (bool, error) {
	var profiles v1alpha1.StorageClientProfileList
	if err := r.List(ctx, &profiles, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
		return false, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := r.List(ctx, &clientNodes, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
		return false, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	var nodes corev1.NodeList
	managed := client.MatchingLabels{v1alpha1.ManagedLabel: v1alpha1.True}
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy, managed, client.Limit(1)); err != nil {
		return false, fmt.Errorf("list managed Nodes: %w", err)
	}
	return len(profiles.Items)+len(clientNodes.Items)+len(nodes.Items) > 0, nil
}

func (r *Reconciler) applyAgent(ctx context.Context) error {
	wanted := daemonSet(r.AgentNamespace, r.AgentImage, agentArguments(r.AllowParameters, r.MetricsAddress))
	if err := r.Apply(ctx, wanted, client.FieldOwner(v1alpha1.ManagerFieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply DaemonSet %s/%s: %w", r.AgentNamespace, v1alpha1.AgentDaemonSet, err)
	}
	return nil
}

func (r *Reconciler) deleteAgent(ctx context.Context) error {
	var set appsv1.DaemonSet
	key := client.ObjectKey{Namespace: r.AgentNamespace, Name: v1alpha1.AgentDaemonSet}
	if err := r.Get(ctx, key, &set); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("get DaemonSet %s: %w", key, err)
	}
	if !set.DeletionTimestamp.IsZero() {
		return nil
	}
	err := r.Delete(ctx, &set, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete DaemonSet %s: %w", key, err)
	}
	return nil
}
