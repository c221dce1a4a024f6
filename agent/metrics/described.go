package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageclient/operator/tuning/embedded"
)

// Described contains the descriptors of metrics by name. Metrics whose names end with _total are counters, all others are gauges.
type Described map[string]*prometheus.Desc

// ReadDescribed reads the labels and the help texts of metrics from the metrics.yaml of a package.
func ReadDescribed(document []byte) Described {
	described := Described{}
	for name, m := range embedded.Parse[map[string]struct{ Labels, Help string }]("metrics.yaml", document) {
		described[name] = prometheus.NewDesc(name, m.Help, strings.Fields(m.Labels), nil)
	}
	return described
}

// Describe sends all descriptors.
func (d Described) Describe(descriptors chan<- *prometheus.Desc) {
	for _, one := range d {
		descriptors <- one
	}
}

// Send sends a metric. It skips metrics with a label that is not valid UTF-8, such as the name of an export. They would make the scrape fail.
func (d Described) Send(out chan<- prometheus.Metric, name string, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if strings.HasSuffix(name, "_total") {
		kind = prometheus.CounterValue
	}
	if m, err := prometheus.NewConstMetric(d[name], kind, value, labels...); err == nil {
		out <- m
	}
}
