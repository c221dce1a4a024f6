// Package recommend evaluates the counters of a mount over a time window and proposes changes that help its workload, if any. It prefers counts to
// times: counts repeat within a few percent, times do not.
//
// All functions are pure: they do not access the cluster, the host or the clock.
package recommend

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
)

// Sample contains the changes of a mount's counters over a time window. Unknown values are zero, and rules that need them do not apply.
type Sample struct {
	// Server and Export are the two parts of a network mount's source. Empty for a local file system.
	Server string `json:"server,omitempty"`
	Export string `json:"export,omitempty"`
	// MountPoint is the path of the mount. Volume is its PersistentVolume.
	MountPoint string `json:"mountPoint"`
	Volume     string `json:"volume,omitempty"`
	// Protocol is the type and version, for example NFSv3, NFSv4.1, SMB3.1.1, xfs.
	Protocol string `json:"protocol"`
	// Options are the effective mount options.
	Options      []string `json:"options,omitempty"`
	ReadAheadKiB int      `json:"readAheadKiB,omitempty"`
	// Seconds is the length of the time window.
	Seconds float64 `json:"seconds"`
	// Operations are the operations in the window, sorted by name.
	Operations []Operation `json:"operations,omitempty"`
	// Requests is the number of SMB requests. The kernel does not show their kind or time.
	Requests    uint64          `json:"requests,omitempty"`
	Bytes       counters.Bytes  `json:"bytes,omitzero"`
	Events      counters.Events `json:"events,omitzero"`
	Connections []Connection    `json:"connections,omitempty"`
	// SlotLimit is the maximum number of requests in flight on each connection of NFSv3 or 4.0.
	SlotLimit int `json:"slotLimit,omitempty"`
	// SessionSlots is the parameter max_session_slots of the module nfs, for NFSv4.1 and later.
	SessionSlots int `json:"sessionSlots,omitempty"`
	// MinRoundTripMicros is the shortest TCP round trip in microseconds.
	MinRoundTripMicros uint64 `json:"minRoundTripMicros,omitempty"`
	// Network contains the TCP counters of the connections to the server.
	Network counters.Network `json:"network,omitzero"`
	// Log contains the log counters of an XFS file system.
	Log counters.Log `json:"log,omitzero"`
}

// Operation is one kind of request. Source: rpc_print_iostats in net/sunrpc/stats.c.
type Operation struct {
	Name string `json:"name"`
	// Count is the number of completed requests, Transmissions includes repetitions, Errors is the number of failed requests.
	Count         uint64 `json:"count"`
	Transmissions uint64 `json:"transmissions,omitempty"`
	Errors        uint64 `json:"errors,omitempty"`
	// BytesSent and BytesReceived include the headers.
	BytesSent     uint64 `json:"bytesSent,omitempty"`
	BytesReceived uint64 `json:"bytesReceived,omitempty"`
	// QueueMillis is the total time before requests were sent, RoundTripMillis the time from there to the response, ExecutionMillis the total time.
	QueueMillis     uint64 `json:"queueMillis,omitempty"`
	RoundTripMillis uint64 `json:"roundTripMillis,omitempty"`
	ExecutionMillis uint64 `json:"executionMillis,omitempty"`
}

// Connection is one transport to the server. All mounts of the same client share it and its counters.
type Connection struct {
	Connects uint64 `json:"connects,omitempty"`
	Sends    uint64 `json:"sends"`
	Answers  uint64 `json:"answers"`
	// Backlog is the sum, over all sends, of the requests that waited for a slot at that time.
	Backlog uint64 `json:"backlog,omitempty"`
	// Sending is the sum, over all sends, of the requests that waited for the transport at that time.
	Sending uint64 `json:"sending,omitempty"`
	// InFlight is the number of requests that were sent in the window, minus the responses. IdleSeconds is the time since the last response.
	InFlight    uint64 `json:"inFlight,omitempty"`
	IdleSeconds uint64 `json:"idleSeconds,omitempty"`
}

func (s Sample) operation(name string) Operation {
	if i := slices.IndexFunc(s.Operations, func(o Operation) bool { return o.Name == name }); i >= 0 {
		return s.Operations[i]
	}
	return Operation{Name: name}
}

func (s Sample) count(names ...string) (n uint64) {
	for _, o := range s.Operations {
		if slices.Contains(names, o.Name) {
			n += o.Count
		}
	}
	return n
}

// total returns the number of completed requests. Requests that the client sends to keep its lease do not count.
func (s Sample) total() uint64 {
	n := s.Requests
	for _, o := range s.Operations {
		if !IsMaintenance(o.Name) {
			n += o.Count
		}
	}
	return n
}

// maintenanceOperations maintain the state of a client on its server. Programs do not request them.
var maintenanceOperations = []string{
	"NULL", "RENEW", "SEQUENCE", "EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "RECLAIM_COMPLETE", "SETCLIENTID",
	"SETCLIENTID_CONFIRM", "BIND_CONN_TO_SESSION", "FSINFO", "GET_LEASE_TIME", "SERVER_CAPS",
}

// IsMaintenance reports whether an operation only maintains the state of a client on its server.
func IsMaintenance(operation string) bool { return slices.Contains(maintenanceOperations, operation) }

// smallOperation is the maximum size, sent and received, of an operation whose time does not depend on its size.
const smallOperation = 8 << 10

// times returns the mean times of small operations. Times of large ones depend on their size, and requests of a large read-ahead wait for each other.
// A COMMIT waits for the server's disks.
func (s Sample) times() (t times) {
	var queue, trip uint64
	for _, o := range s.Operations {
		if o.Count == 0 || (o.BytesSent+o.BytesReceived)/o.Count > smallOperation || IsMaintenance(o.Name) || o.Name == "COMMIT" {
			continue
		}
		t.count += o.Count
		queue += o.QueueMillis
		trip += o.RoundTripMillis
	}
	if t.count > 0 {
		t.queue, t.trip = float64(queue)/float64(t.count), float64(trip)/float64(t.count)
	}
	return t
}

// times contains means in milliseconds.
type times struct {
	count       uint64
	queue, trip float64
}

// minTrip returns the shortest TCP round trip to the server in milliseconds. Zero if unknown: TCP of a tunnel only reaches the tunnel's process.
func (s Sample) minTrip() float64 {
	if s.isTunnel() {
		return 0
	}
	return float64(s.MinRoundTripMicros) / 1000
}

func (s Sample) isTunnel() bool { return counters.IsTunnel(s.Server) }

// queues returns the mean numbers of requests at each send that waited for a slot, and for the transport.
func (s Sample) queues() (backlog, sending float64) {
	var all Connection
	for _, c := range s.Connections {
		all.Backlog, all.Sending, all.Sends = all.Backlog+c.Backlog, all.Sending+c.Sending, all.Sends+c.Sends
	}
	return ratioOf(all.Backlog, all.Sends), ratioOf(all.Sending, all.Sends)
}

func (s Sample) isNFS() bool { return strings.HasPrefix(s.Protocol, "NFS") }

// hasSessions reports whether slots belong to a session: NFSv4.1 and later.
func (s Sample) hasSessions() bool {
	return strings.HasPrefix(s.Protocol, "NFSv4.") && s.Protocol != "NFSv4.0"
}

func (s Sample) number(option string) (int, bool) {
	for _, o := range slices.Backward(s.Options) {
		if value, ok := strings.CutPrefix(o, option+"="); ok {
			n, err := strconv.Atoi(value)
			return n, err == nil
		}
	}
	return 0, false
}

func (s Sample) hasOption(option string) bool { return slices.Contains(s.Options, option) }

func (s Sample) perMinute(n uint64) uint64 { return uint64(s.perSecond(n) * 60) }

func (s Sample) perSecond(n uint64) float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return float64(n) / s.Seconds
}

// ratioOf returns a/b, or zero if b is zero.
func ratioOf(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// ForAPI converts a sample to the format of status.sample. The field names are the same; the API does not contain the window.
func ForAPI(s Sample) (v1alpha1.MountSample, error) {
	var m v1alpha1.MountSample
	s.Seconds = 0
	if err := convert(s, &m); err != nil {
		return v1alpha1.MountSample{}, fmt.Errorf("convert sample of %s: %w", s.MountPoint, err)
	}
	return m, nil
}

// FromAPI converts samples from the format of the API. milliseconds is the length of their window.
func FromAPI(mounts []v1alpha1.MountSample, milliseconds int64) ([]Sample, error) {
	samples := make([]Sample, 0, len(mounts))
	for _, m := range mounts {
		var s Sample
		if err := convert(m, &s); err != nil {
			return nil, fmt.Errorf("convert sample of %s: %w", m.MountPoint, err)
		}
		s.Seconds = (time.Duration(milliseconds) * time.Millisecond).Seconds()
		samples = append(samples, s)
	}
	return samples, nil
}

func convert(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
