package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/controllers/internal/watch"
)

// Reporter adds the metrics to a manager. It reads only objects that the controllers read, and needs no additional rights.
type Reporter struct {
	// Registry is the registry that the manager serves.
	Registry prometheus.Registerer
	// MaxUnavailable is the cluster's budget: nodes, or a percentage of all Nodes.
	MaxUnavailable intstr.IntOrString
}

// SetupWithManager registers the metrics and watches StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	transitions := NewTransitions()
	for _, c := range []prometheus.Collector{transitions, &Collector{
		Reader: mgr.GetCache(), MaxUnavailable: r.MaxUnavailable, Leading: mgr.Elected(), Log: mgr.GetLogger().WithName("metrics"),
	}} {
		if err := r.Registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return watch.ClientNodeUpdates(mgr, transitions.CountChanges)
}
