package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Results of a request for a new volume, as a label.
const (
	resultMerged    = "merged"
	resultUnchanged = "unchanged"
	resultError     = "error"
)

// volumesSeen counts the requests of all API servers. Each replica counts the requests that it handles.
var volumesSeen = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "storageclient_webhook_volumes_total",
	Help: "Admission requests for new PersistentVolumes, including dry runs: options merged, unchanged, or left to the reconciler after an error.",
}, []string{"result"})

func init() {
	metrics.Registry.MustRegister(volumesSeen)
	for _, result := range []string{resultMerged, resultUnchanged, resultError} {
		volumesSeen.WithLabelValues(result)
	}
}
