package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/trial/plan"
)

const (
	// failedMountReason is the kubelet's event reason for a volume that it could not mount for a pod. kubelet is its name as an event source.
	failedMountReason = "FailedMount"
	kubelet           = "kubelet"
)

// readClones reads the current clones. Their volumes are created first and deleted last, so the cache of volumes shows whether there are
// clones.
func (r *Reconciler) readClones(ctx context.Context) ([]plan.Clone, error) {
	var volumes corev1.PersistentVolumeList
	if err := r.List(ctx, &volumes, client.HasLabels{v1alpha1.TrialLabel}); err != nil {
		return nil, fmt.Errorf("list clones: %w", err)
	}
	var clones []plan.Clone
	for i := range volumes.Items {
		if !match.IsClone(&volumes.Items[i]) {
			continue
		}
		clone, err := r.readClone(ctx, &volumes.Items[i])
		if err != nil {
			return nil, err
		}
		clones = append(clones, clone)
	}
	return clones, nil
}

func (r *Reconciler) readClone(ctx context.Context, pv *corev1.PersistentVolume) (plan.Clone, error) {
	clone, volumeClaim, pod := plan.Clone{Volume: pv}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}
	key := client.ObjectKey{Namespace: v1alpha1.TrialNamespace, Name: pv.Name}
	if found, err := read.Find(ctx, r.APIReader, key, volumeClaim); err != nil {
		return plan.Clone{}, err
	} else if found {
		clone.VolumeClaim = volumeClaim
	}
	found, err := read.Find(ctx, r.APIReader, key, pod)
	if found {
		clone.Pod = pod
		clone.Failures, err = r.readFailures(ctx, pod)
	}
	return clone, err
}

// readFailures returns the messages of failed mounts from the kubelet of a Pod's node. Only users with the right to write events in the
// namespace of clones can fake them.
func (r *Reconciler) readFailures(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var events corev1.EventList
	of := fields.AndSelectors(
		fields.OneTermEqualSelector("reason", failedMountReason), fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)),
	)
	if err := r.APIReader.List(ctx, &events, client.InNamespace(pod.Namespace), client.MatchingFieldsSelector{Selector: of}); err != nil {
		return nil, fmt.Errorf("list events of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var failures []string
	for i := range events.Items {
		if source := events.Items[i].Source; source.Component == kubelet && source.Host == pod.Spec.NodeName {
			failures = append(failures, events.Items[i].Message)
		}
	}
	return failures, nil
}

// readClaimPods reads pods with the claims that may need a clone.
func (r *Reconciler) readClaimPods(ctx context.Context, s plan.Snapshot) (map[types.NamespacedName][]corev1.Pod, error) {
	var claims []types.NamespacedName
	for _, c := range s.Candidates {
		if ref := c.Volume.Spec.ClaimRef; ref != nil && c.Target.Clone.Obstacle == "" {
			claims = append(claims, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	for _, t := range s.Trials {
		if t.Status.Route == v1alpha1.RouteClone && t.Status.CompletionTime == nil {
			claims = append(claims, types.NamespacedName{Namespace: t.Namespace, Name: t.Spec.ClaimName})
		}
	}
	return r.claimPods.Of(ctx, r.APIReader, claims, s.Now)
}

// createClone creates the objects that a clone holds, and records a rejection by the API server. The cache may lack the objects of the last
// pass. It contains no object in the namespace of clones: without DisableReadYourWritesConsistency, every read of other Pods would wait for the object.
func (r *Reconciler) createClone(ctx context.Context, clone plan.Clone) error {
	for _, object := range objectsOf(clone) {
		options := &client.CreateOptions{FieldManager: v1alpha1.ManagerFieldManager, DisableReadYourWritesConsistency: object.GetNamespace() != ""}
		if err := r.Create(ctx, object, options); err != nil && !apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("create clone %s: %w", object.GetName(), err)
			// A missing namespace also causes NotFound.
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
				r.rejections[object.GetLabels()[v1alpha1.TrialLabel]] = err.Error()
				return nil
			}
			return err
		}
	}
	return nil
}

// collectClone deletes a clone. Kubernetes removes the claim after the Pod, and the volume after the claim.
func (r *Reconciler) collectClone(ctx context.Context, clone plan.Clone) error {
	var failed []error
	for _, object := range slices.Backward(objectsOf(clone)) {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := client.IgnoreNotFound(r.Delete(ctx, object, &client.DeleteOptions{DisableReadYourWritesConsistency: object.GetNamespace() != ""})); err != nil {
			failed = append(failed, fmt.Errorf("delete clone %s: %w", object.GetName(), err))
		}
	}
	return errors.Join(failed...)
}

func objectsOf(clone plan.Clone) []client.Object {
	var objects []client.Object
	if clone.Volume != nil {
		objects = append(objects, clone.Volume)
	}
	if clone.VolumeClaim != nil {
		objects = append(objects, clone.VolumeClaim)
	}
	if clone.Pod != nil {
		objects = append(objects, clone.Pod)
	}
	return objects
}
