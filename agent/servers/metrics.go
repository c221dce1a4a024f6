package servers

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageclient/operator/tuning/serverhealth"
)

var (
	serverLabels = []string{"server", "protocol"}

	serverState = prometheus.NewDesc("storageclient_agent_server_state",
		"1 for each storage server that the node mounts from, with its state and reason.", []string{"server", "protocol", "state", "reason"}, nil)
	serverConnections = prometheus.NewDesc("storageclient_agent_server_connections",
		"Connections from the node's mounts to a storage server.", serverLabels, nil)
	serverWaiting = prometheus.NewDesc("storageclient_agent_server_waiting_requests",
		"Requests without a response from a storage server that is Silent or Stuck, otherwise 0.", serverLabels, nil)
	serverInFlight = prometheus.NewDesc("storageclient_agent_server_requests_in_flight",
		"Requests to a storage server that were in progress at the last read of its counters, every ten seconds. "+
			"At most 256 if the kernel lists them.", serverLabels, nil)
	serverLastAnswer = prometheus.NewDesc("storageclient_agent_server_last_answer_timestamp_seconds",
		"Time of the last response from a storage server, in seconds since 1970. Absent before its first response.", serverLabels, nil)
)

// Metrics exports the last evaluated state of the servers. A scrape may read it during a pass.
type Metrics struct {
	verdicts atomic.Pointer[[]serverhealth.Verdict]
}

func (m *Metrics) note(verdicts []serverhealth.Verdict) { m.verdicts.Store(&verdicts) }

// Describe implements prometheus.Collector.
func (*Metrics) Describe(descriptors chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{serverState, serverConnections, serverWaiting, serverInFlight, serverLastAnswer} {
		descriptors <- d
	}
}

// Collect implements prometheus.Collector. It returns no metrics before the first reading.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	verdicts := m.verdicts.Load()
	if verdicts == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, v := range *verdicts {
		protocol := string(v.Protocol)
		gauge(serverState, 1, v.Server, protocol, string(v.State), v.Reason)
		gauge(serverConnections, float64(v.Connections), v.Server, protocol)
		gauge(serverWaiting, float64(v.Waiting), v.Server, protocol)
		gauge(serverInFlight, float64(v.InFlight), v.Server, protocol)
		if !v.LastResponse.IsZero() {
			gauge(serverLastAnswer, float64(v.LastResponse.Unix()), v.Server, protocol)
		}
	}
}
