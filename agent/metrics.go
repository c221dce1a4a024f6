package agent

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageclient/operator/api/v1alpha1"
)

var (
	settingState = prometheus.NewDesc("storageclient_agent_setting_state",
		"1 for each setting of the node, with its last observed state. The observation is at most one minute old.",
		[]string{"key", "state"}, nil)
	settingValue = prometheus.NewDesc("storageclient_agent_setting_value",
		"Numbers of the effective value, by place: net.ipv4.tcp_rmem has 1, 2, and 3. Absent if the value is unknown or not a number.",
		[]string{"key", "place"}, nil)
)

// settingMetrics exports the last observed state of the settings. A scrape may read it during a pass.
type settingMetrics struct {
	observed atomic.Pointer[[]v1alpha1.SettingStatus]
}

func (m *settingMetrics) note(settings []v1alpha1.SettingStatus) { m.observed.Store(&settings) }

// Describe implements prometheus.Collector.
func (*settingMetrics) Describe(descriptors chan<- *prometheus.Desc) {
	descriptors <- settingState
	descriptors <- settingValue
}

// Collect implements prometheus.Collector. It returns no metrics before the first pass.
func (m *settingMetrics) Collect(out chan<- prometheus.Metric) {
	settings := m.observed.Load()
	if settings == nil {
		return
	}
	for _, s := range *settings {
		out <- prometheus.MustNewConstMetric(settingState, prometheus.GaugeValue, 1, s.Key, string(s.State))
		for i, word := range strings.Fields(s.Observed) {
			number, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				break
			}
			out <- prometheus.MustNewConstMetric(settingValue, prometheus.GaugeValue, float64(number), s.Key, strconv.Itoa(i+1))
		}
	}
}
