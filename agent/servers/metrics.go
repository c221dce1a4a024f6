package servers

import (
	_ "embed"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/tuning/serverhealth"
)

//go:embed metrics.yaml
var metricsYAML []byte

var described = metrics.ReadDescribed(metricsYAML)

// Metrics exports the last evaluated state of the servers. A scrape may read it during a pass.
type Metrics struct {
	verdicts atomic.Pointer[[]serverhealth.Verdict]
}

func (m *Metrics) note(verdicts []serverhealth.Verdict) { m.verdicts.Store(&verdicts) }

// Describe implements prometheus.Collector.
func (*Metrics) Describe(descriptors chan<- *prometheus.Desc) { described.Describe(descriptors) }

// Collect implements prometheus.Collector. It returns no metrics before the first reading.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	verdicts := m.verdicts.Load()
	if verdicts == nil {
		return
	}
	for _, v := range *verdicts {
		protocol := string(v.Protocol)
		described.Send(out, "storageclient_agent_server_state", 1, v.Server, protocol, string(v.State), v.Reason)
		described.Send(out, "storageclient_agent_server_connections", float64(v.Connections), v.Server, protocol)
		described.Send(out, "storageclient_agent_server_waiting_requests", float64(v.Waiting), v.Server, protocol)
		described.Send(out, "storageclient_agent_server_requests_in_flight", float64(v.InFlight), v.Server, protocol)
		if !v.LastResponse.IsZero() {
			described.Send(out, "storageclient_agent_server_last_answer_timestamp_seconds", float64(v.LastResponse.Unix()), v.Server, protocol)
		}
	}
}
