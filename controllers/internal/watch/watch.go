// Package watch contains the watches and predicates that several controllers share.
package watch

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
)

// ClientNodeUpdates calls changed with the old and the new version of each changed StorageClientNode while the manager leads. The first sight of an
// object is no change, so a restarted manager does not repeat calls.
func ClientNodeUpdates(mgr ctrl.Manager, changed func(before, after *v1alpha1.StorageClientNode)) error {
	return handleClientNodes(mgr, toolscache.ResourceEventHandlerFuncs{UpdateFunc: WhileLeading(mgr.Elected(), changed)})
}

func handleClientNodes(mgr ctrl.Manager, events toolscache.ResourceEventHandlerFuncs) error {
	// The manager has not started, so the call does not block on the context.
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.StorageClientNode{})
	if err == nil {
		_, err = informer.AddEventHandler(events)
	}
	if err != nil {
		return fmt.Errorf("watch StorageClientNodes: %w", err)
	}
	return nil
}

// ClientNodeDeletions calls deleted with the last known version of each deleted StorageClientNode.
func ClientNodeDeletions(mgr ctrl.Manager, deleted func(*v1alpha1.StorageClientNode)) error {
	return handleClientNodes(mgr, toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if clientNode, ok := object.(*v1alpha1.StorageClientNode); ok {
			deleted(clientNode)
		}
	}})
}

// WhileLeading ignores updates before the manager leads, and updates between different StorageClientNodes of the same name.
func WhileLeading(leading <-chan struct{}, changed func(before, after *v1alpha1.StorageClientNode)) func(before, after any) {
	return func(before, after any) {
		select {
		case <-leading:
		default:
			return
		}
		previous, beforeOK := before.(*v1alpha1.StorageClientNode)
		current, afterOK := after.(*v1alpha1.StorageClientNode)
		if beforeOK && afterOK && previous.UID == current.UID {
			changed(previous, current)
		}
	}
}

// One returns a handler for a controller whose one request stands for the whole cluster. Changes within the delay share a request.
func One(name string, delay time.Duration) handler.EventHandler {
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
	return handler.Funcs{
		CreateFunc: add[event.CreateEvent](request, delay), UpdateFunc: add[event.UpdateEvent](request, delay), DeleteFunc: add[event.DeleteEvent](request, delay),
	}
}

func add[E any](request reconcile.Request, delay time.Duration) func(context.Context, E, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	return func(_ context.Context, _ E, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.AddAfter(request, delay)
	}
}

// Named accepts only objects with the given name.
func Named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name })
}

// Described accepts only changes of labels and annotations.
func Described() predicate.Predicate {
	return predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// Changed accepts only the updates that isChanged reports, and all updates of objects of another type.
func Changed[T client.Object](isChanged func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, beforeOK := e.ObjectOld.(T)
		after, afterOK := e.ObjectNew.(T)
		return !beforeOK || !afterOK || isChanged(before, after)
	}}
}

// NodeChanged ignores heartbeats of a Node: it accepts only changes of its labels, annotations, boot ID and readiness, and changes that isSame
// detects.
func NodeChanged(isSame func(before, after *corev1.Node) bool) predicate.Predicate {
	return Changed(func(before, after *corev1.Node) bool {
		return agentpod.IsNodeReady(before) != agentpod.IsNodeReady(after) ||
			before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) || !isSame(before, after)
	})
}

// ProfileChanged ignores changes of a profile's status.
func ProfileChanged() predicate.Predicate {
	metadata := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers()) ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, metadata)
}

// AgentChanged accepts only changes of the readiness of an agent's Pod.
func AgentChanged() predicate.Predicate {
	return Changed(func(before, after *corev1.Pod) bool { return agentpod.IsReady(before) != agentpod.IsReady(after) })
}
