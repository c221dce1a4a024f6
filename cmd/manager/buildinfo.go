package main

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo returns the metric storageclient_build_info. Its value is 1; its labels are version, revision, and Go release.
func buildInfo() prometheus.Collector {
	version, revision, goVersion := "unknown", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = info.Main.Version, info.GoVersion
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = setting.Value
			}
		}
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "storageclient_build_info",
		Help:        "Information about the running build: always 1, with the version, the revision, and the Go release as labels.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion},
	})
	gauge.Set(1)
	return gauge
}
