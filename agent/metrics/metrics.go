// Package metrics exports data that only the node has: the performance of NFS mounts of volumes, by operation. The NFS metrics of
// node_exporter do not contain the volume, the requested and effective options, or more than one mount of an export. docs/reference.md is
// generated from the declarations in this package.
package metrics

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/storageclient/operator/agent/host/mounts"
)

// Off is the address value that disables metrics.
const Off = "0"

// maxSuperblocks is the maximum number of superblocks that one node reports. With ten operations for each mount, that is 9,000 series.
const maxSuperblocks = 128

var (
	mountLabels     = []string{"device", "volume", "server", "export"}
	operationLabels = []string{"device", "volume", "server", "export", "operation"}

	mountInfo = prometheus.NewDesc("storageclient_mount_info",
		"1 for each NFS superblock and each volume that is mounted from it. "+
			"Volumes with the same superblock share its counters, which have the name of the first volume.",
		[]string{"device", "volume", "server", "export", "protocol"}, nil)
	nconnect    = prometheus.NewDesc("storageclient_mount_nconnect", "Value of the mount option nconnect, 1 if it is not set.", mountLabels, nil)
	connections = prometheus.NewDesc("storageclient_mount_connections",
		"Open connections. Mounts from one server share them. The first mount sets their number.", mountLabels, nil)
	slotLimit = prometheus.NewDesc("storageclient_mount_slot_limit",
		"Maximum number of requests in flight for each connection. Absent if the kernel does not report it (before 5.14).", mountLabels, nil)
	readAhead       = prometheus.NewDesc("storageclient_mount_read_ahead_bytes", "Read-ahead window. Absent if unknown.", mountLabels, nil)
	readBytes       = prometheus.NewDesc("storageclient_mount_read_bytes_total", "Bytes read from the server.", mountLabels, nil)
	writtenBytes    = prometheus.NewDesc("storageclient_mount_written_bytes_total", "Bytes written to the server.", mountLabels, nil)
	operations      = prometheus.NewDesc("storageclient_mount_operations_total", "Operations completed.", operationLabels, nil)
	operationErrors = prometheus.NewDesc("storageclient_mount_operation_errors_total",
		"Operations that failed. Always 0 before Linux 5.3.", operationLabels, nil)
	retransmissions = prometheus.NewDesc("storageclient_mount_operation_retransmissions_total", "Requests that were sent again.", operationLabels, nil)
	majorTimeouts   = prometheus.NewDesc("storageclient_mount_operation_major_timeouts_total",
		"Requests without a response after timeo and all retransmissions.", operationLabels, nil)
	queueTime = prometheus.NewDesc("storageclient_mount_operation_queue_seconds_total",
		"Time that requests waited for a slot or a connection before they were sent.", operationLabels, nil)
	roundTripTime = prometheus.NewDesc("storageclient_mount_operation_round_trip_seconds_total",
		"Time from sending a request to the response of the server.", operationLabels, nil)
	executionTime = prometheus.NewDesc("storageclient_mount_operation_execution_seconds_total",
		"Total time of requests: queue, round trip, and processing on the client.", operationLabels, nil)
	omitted = prometheus.NewDesc("storageclient_mounts_omitted",
		"NFS superblocks that are not reported, because one node reports at most 128.", nil, nil)
	collected = prometheus.NewDesc("storageclient_mounts_success", "1 if the mounts of the host could be read, otherwise 0.", nil, nil)
)

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
func (c *Collector) Describe(descriptors chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		mountInfo, nconnect, connections, slotLimit, readAhead, readBytes, writtenBytes, operations, operationErrors,
		retransmissions, majorTimeouts, queueTime, roundTripTime, executionTime, omitted, collected,
	} {
		descriptors <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	blocks, err := c.Mounts.Superblocks()
	if err != nil {
		c.Log.Error(err, "Cannot read the mounts; no mount metrics in this scrape")
		s.sendGauge(collected, 0)
		return
	}
	for _, block := range blocks[:min(len(blocks), maxSuperblocks)] {
		s.sendSuperblock(block)
	}
	s.sendGauge(omitted, float64(max(0, len(blocks)-maxSuperblocks)))
	s.sendGauge(collected, 1)
}

type sink struct{ out chan<- prometheus.Metric }

func (s sink) sendGauge(d *prometheus.Desc, value float64, labels ...string) {
	s.sendMetric(d, prometheus.GaugeValue, value, labels)
}

func (s sink) sendCounter(d *prometheus.Desc, value float64, labels ...string) {
	s.sendMetric(d, prometheus.CounterValue, value, labels)
}

// sendMetric skips metrics with a label that is not valid UTF-8, such as the name of an export. They would make the scrape fail.
func (s sink) sendMetric(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) {
	if m, err := prometheus.NewConstMetric(d, kind, value, labels...); err == nil {
		s.out <- m
	}
}

func (s sink) sendSuperblock(b mounts.Superblock) {
	volumes := b.Volumes
	if len(volumes) == 0 {
		volumes = []string{""}
	}
	for _, volume := range volumes {
		s.sendGauge(mountInfo, 1, b.Device, volume, b.Server, b.Export, b.Protocol)
	}
	labels := []string{b.Device, b.Volume, b.Server, b.Export}
	s.sendGauge(nconnect, float64(b.Nconnect), labels...)
	s.sendGauge(connections, float64(b.Connections), labels...)
	if b.SlotLimit > 0 {
		s.sendGauge(slotLimit, float64(b.SlotLimit), labels...)
	}
	if b.ReadAheadKiB > 0 {
		s.sendGauge(readAhead, float64(b.ReadAheadKiB)*1024, labels...)
	}
	s.sendCounter(readBytes, float64(b.Bytes.WireRead), labels...)
	s.sendCounter(writtenBytes, float64(b.Bytes.WireWritten), labels...)
	seen := map[string]bool{}
	for _, o := range b.Operations {
		if !seen[o.Name] { // twice the same sample would fail the scrape
			seen[o.Name] = true
			s.sendOperation(o, append(labels[:len(labels):len(labels)], o.Name))
		}
	}
}

func (s sink) sendOperation(o mounts.Operation, labels []string) {
	s.sendCounter(operations, float64(o.Count), labels...)
	s.sendCounter(operationErrors, float64(o.Errors), labels...)
	s.sendCounter(retransmissions, float64(o.Transmissions-min(o.Count, o.Transmissions)), labels...)
	s.sendCounter(majorTimeouts, float64(o.MajorTimeouts), labels...)
	s.sendCounter(queueTime, o.Queue.Seconds(), labels...)
	s.sendCounter(roundTripTime, o.RoundTrip.Seconds(), labels...)
	s.sendCounter(executionTime, o.Execution.Seconds(), labels...)
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
