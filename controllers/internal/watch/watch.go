// Package watch is what several controllers watch for.
package watch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/storageclient/operator/controllers/internal/agentpod"
)

// ProfileChanged leaves out changes of a profile's status.
func ProfileChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{UpdateFunc: finalizersChanged})
}

func finalizersChanged(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers()) ||
		e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}

// AgentChanged leaves out all of an agent's Pod but whether it is Ready.
func AgentChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Pod)
	after, also := e.ObjectNew.(*corev1.Pod)
	return !ok || !also || agentpod.IsReady(before) != agentpod.IsReady(after)
}
