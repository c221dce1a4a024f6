// Package metrics exports data that only the node has: the performance of NFS mounts of volumes, by operation. The NFS metrics of
// node_exporter do not contain the volume, the requested and effective options, or more than one mount of an export. docs/reference.md is
// generated from the declarations in this package.
package metrics

import (
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/embedded"
)

// Off is the address value that disables metrics.
const Off = "0"

// maxSuperblocks is the maximum number of superblocks that one node reports. With ten operations for each mount, that is 9,000 series.
const maxSuperblocks = 128

//go:embed metrics.yaml
var metricsYAML []byte

var described = ReadDescribed(metricsYAML)

// SuperblockReader reads the NFS superblocks of the host. mounts.Reader implements it.
type SuperblockReader interface {
	Superblocks() ([]mounts.Superblock, error)
}

// Collector reads the mount data of the host at each scrape. It does not access mount points, so an unavailable server causes no delay.
type Collector struct {
	// Mounts reads the superblocks.
	Mounts SuperblockReader
	// Log records read errors.
	Log logr.Logger
}

// Describe implements prometheus.Collector.
func (*Collector) Describe(descriptors chan<- *prometheus.Desc) { described.Describe(descriptors) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	blocks, err := c.Mounts.Superblocks()
	if err != nil {
		c.Log.Error(err, "Cannot read the mounts; no mount metrics in this scrape")
		described.Send(out, "storageclient_mounts_success", 0)
		return
	}
	for _, block := range blocks[:min(len(blocks), maxSuperblocks)] {
		sendSuperblock(out, block)
	}
	described.Send(out, "storageclient_mounts_omitted", float64(max(0, len(blocks)-maxSuperblocks)))
	described.Send(out, "storageclient_mounts_success", 1)
}

func sendSuperblock(out chan<- prometheus.Metric, b mounts.Superblock) {
	volumes := b.Volumes
	if len(volumes) == 0 {
		volumes = []string{""}
	}
	for _, volume := range volumes {
		described.Send(out, "storageclient_mount_info", 1, b.Device, volume, b.Server, b.Export, b.Protocol)
	}
	labels := []string{b.Device, b.Volume, b.Server, b.Export}
	described.Send(out, "storageclient_mount_nconnect", float64(b.Nconnect), labels...)
	described.Send(out, "storageclient_mount_connections", float64(b.Connections), labels...)
	if b.SlotLimit > 0 {
		described.Send(out, "storageclient_mount_slot_limit", float64(b.SlotLimit), labels...)
	}
	if b.ReadAheadKiB > 0 {
		described.Send(out, "storageclient_mount_read_ahead_bytes", float64(b.ReadAheadKiB)*1024, labels...)
	}
	described.Send(out, "storageclient_mount_read_bytes_total", float64(b.Bytes.WireRead), labels...)
	described.Send(out, "storageclient_mount_written_bytes_total", float64(b.Bytes.WireWritten), labels...)
	seen := map[string]bool{}
	for _, o := range b.Operations {
		if !seen[o.Name] { // twice the same sample would fail the scrape
			seen[o.Name] = true
			sendOperation(out, o, append(labels[:len(labels):len(labels)], o.Name))
		}
	}
}

func sendOperation(out chan<- prometheus.Metric, o mounts.Operation, labels []string) {
	for name, value := range map[string]float64{
		"operations_total": float64(o.Count), "operation_errors_total": float64(o.Errors),
		"operation_retransmissions_total": float64(o.Transmissions - min(o.Count, o.Transmissions)),
		"operation_major_timeouts_total":  float64(o.MajorTimeouts),
		"operation_queue_seconds_total":   o.Queue.Seconds(), "operation_round_trip_seconds_total": o.RoundTrip.Seconds(),
		"operation_execution_seconds_total": o.Execution.Seconds(),
	} {
		described.Send(out, "storageclient_mount_"+name, value, labels...)
	}
}

// NewHandler returns a handler for the metrics of the given collectors. It serves one scrape at a time.
func NewHandler(collectors ...prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 1, DisableCompression: true}), nil
}

// CheckAddress accepts Off, or a loopback address with a port. The agent is in the host network, so callers at other addresses must
// authenticate: see CheckSecureAddress.
func CheckAddress(address string) error {
	if address == Off {
		return nil
	}
	ip, err := parseAddress(address)
	if err != nil {
		return err
	}
	if !ip.IsLoopback() {
		return fmt.Errorf("%q: must be a loopback address such as 127.0.0.1:9810, since callers are not authenticated", address)
	}
	return nil
}

// CheckSecureAddress accepts an IP address of the node with a port. It rejects host names and unspecified addresses, because a node may
// be connected to unexpected networks.
func CheckSecureAddress(address string) error {
	ip, err := parseAddress(address)
	if err != nil {
		return err
	}
	if ip.IsUnspecified() || ip.IsMulticast() {
		return fmt.Errorf("%q: must be one of the node's addresses, such as [$(HOST_IP)]:9810", address)
	}
	return nil
}

func parseAddress(address string) (netip.Addr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: write 0, or an address and a port such as 127.0.0.1:9810", address)
	}
	ip := netip.IPv4Unspecified()
	if host != "" {
		ip, err = netip.ParseAddr(host)
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: must be an IP address such as 127.0.0.1:9810, because a name may also resolve to other addresses", address)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return netip.Addr{}, fmt.Errorf("%q: the port must be 1 to 65535", address)
	}
	return ip, nil
}

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
