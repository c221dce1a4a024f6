package servers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/serverhealth"
)

func TestAServerWithoutAValidNameHasNoMetrics(t *testing.T) {
	var m Metrics
	m.note([]serverhealth.Verdict{
		{Key: serverhealth.Key{Server: "\xff", Protocol: v1alpha1.ServerNFS}, State: v1alpha1.ServerIdle},
		{Key: serverhealth.Key{Server: "filer", Protocol: v1alpha1.ServerNFS}, State: v1alpha1.ServerIdle},
	})
	metrics := make(chan prometheus.Metric, 100)
	m.Collect(metrics)
	// Without a response, each server has four metrics.
	check.Equal(t, "metrics", 4, len(metrics))
}
