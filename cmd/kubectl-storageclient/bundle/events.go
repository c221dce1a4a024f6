package bundle

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// IsOperatorEvent reports whether the operator reported an event, or whether the event is about the operator's workloads.
func IsOperatorEvent(e *corev1.Event) bool {
	o := e.InvolvedObject
	return strings.HasPrefix(cmp.Or(e.ReportingController, e.Source.Component), "storage-client") || strings.HasPrefix(o.Kind, "StorageClient") ||
		o.Namespace == v1alpha1.ManagerNamespace || o.Namespace == v1alpha1.AgentNamespace
}

// LastSeen returns the last time of an event.
func LastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case e.LastTimestamp.IsZero():
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}
