// Package sample hands requests for samples, which people write on PersistentVolumeClaims, to the nodes that they name, and takes them back
// when they have expired. Nothing else writes spec.sample; package plan decides.
package sample

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/sample/plan"
)

const (
	// passEvery is the shortest time between two passes: anybody who may write a PersistentVolumeClaim can cause one.
	passEvery = time.Second
	// retryAfter is the pause before a write that met a newer object is tried again.
	retryAfter = time.Second
)

// Reconciler writes spec.sample of all StorageClientNodes, in one pass for all.
type Reconciler struct {
	client.Client
	// Clock spaces the passes and tells which requests have expired.
	Clock clock.PassiveClock
	// ManagerNamespace is that of the budget, AgentNamespace where the agent's Pods run.
	ManagerNamespace, AgentNamespace string

	last time.Time
}

// +kubebuilder:rbac:groups="",resources=nodes;persistentvolumes;persistentvolumeclaims,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch,namespace=storage-client-agent
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,namespace=storage-client-system
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=list;watch;patch

// Reconcile makes a pass. A node that could not be written does not hold up the others.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := r.Clock.Now()
	if left := r.last.Add(passEvery).Sub(now); left > 0 && left <= passEvery && !r.last.IsZero() {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	r.last = now
	s, err := r.readSnapshot(ctx, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := plan.For(s)
	result := reconcile.Result{RequeueAfter: next.Next}
	var failed []error
	for _, step := range next.Steps {
		log.FromContext(ctx).Info("Sample", "step", step.String())
		err := r.patchSample(ctx, step)
		switch {
		case apierrors.IsConflict(err):
			result.RequeueAfter = retryAfter
		case client.IgnoreNotFound(err) != nil:
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return reconcile.Result{}, err
	}
	return result, nil
}

// readSnapshot reads everything from the cache: nodes also where nobody asks, since one may still have what was asked.
func (r *Reconciler) readSnapshot(ctx context.Context, now time.Time) (plan.Snapshot, error) {
	s := plan.Snapshot{Now: now}
	var err error
	if s.Requests, err = r.readRequests(ctx); err != nil {
		return plan.Snapshot{}, err
	}
	all, writable, err := read.WritableNodes(ctx, r, nil, r.ManagerNamespace, r.AgentNamespace)
	if err != nil {
		return plan.Snapshot{}, err
	}
	for i := range all.Nodes {
		node := &all.Nodes[i]
		if clientNode := all.ClientNodes[node.Name]; clientNode != nil && fleet.Owns(node, clientNode) {
			s.Nodes = append(s.Nodes, plan.Node{ClientNode: clientNode, Writable: writable[node.Name]})
		}
	}
	return s, nil
}

// readRequests reads what PersistentVolumeClaims ask for. What cannot be read is asked by nobody: the plugin waits in vain, and says so.
func (r *Reconciler) readRequests(ctx context.Context) ([]plan.Request, error) {
	var volumeClaims metav1.PartialObjectMetadataList
	volumeClaims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := r.List(ctx, &volumeClaims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PersistentVolumeClaims: %w", err)
	}
	byVolumeClaim := map[types.UID]*plan.Request{}
	for _, volumeClaim := range volumeClaims.Items {
		value, asks := volumeClaim.Annotations[v1alpha1.SampleAnnotation]
		if !asks {
			continue
		}
		request, err := v1alpha1.DecodeSampleRequest(value)
		if err != nil {
			log.FromContext(ctx).V(1).Info("Request for a sample cannot be read", "PersistentVolumeClaim", client.ObjectKeyFromObject(&volumeClaim), "error", err.Error())
			continue
		}
		byVolumeClaim[volumeClaim.UID] = &plan.Request{SampleRequest: request, SampleID: request.SampleID(volumeClaim.UID)}
	}
	if len(byVolumeClaim) == 0 {
		return nil, nil
	}
	var volumes corev1.PersistentVolumeList
	if err := r.List(ctx, &volumes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		if pv.Spec.ClaimRef == nil || pv.Status.Phase != corev1.VolumeBound {
			continue
		}
		if request, asks := byVolumeClaim[pv.Spec.ClaimRef.UID]; asks {
			request.Volume = pv.Name
		}
	}
	requests := make([]plan.Request, 0, len(byVolumeClaim))
	for _, request := range byVolumeClaim {
		requests = append(requests, *request)
	}
	return requests, nil
}

// patchSample changes the client node as it was read: a permit or a release that has come since makes it a conflict.
func (r *Reconciler) patchSample(ctx context.Context, step plan.Step) error {
	changed := step.ClientNode.DeepCopy()
	changed.Spec.Sample = step.Sample
	patch := client.MergeFromWithOptions(step.ClientNode, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch StorageClientNode %s: %w", changed.Name, err)
	}
	return nil
}
