// Package recommend reads what the counters of a mount did over a window and says what would help its workload, or that no setting
// of the client will. It goes by counts first: they repeat within a few percent, and times do not.
//
// It is pure: no cluster, no host, no clock.
package recommend

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageclient/operator/tuning/counters"
)

// Sample is what the counters of one mount did over a window. All numbers are differences over the window unless they say otherwise.
// What is not known is left at zero, and rules that need it stay silent.
type Sample struct {
	// Server and Export are the two halves of a network mount's source; empty for a local file system.
	Server string `json:"server,omitempty"`
	Export string `json:"export,omitempty"`
	// MountPoint is where it is mounted, Volume the PersistentVolume that it belongs to.
	MountPoint string `json:"mountPoint"`
	Volume     string `json:"volume,omitempty"`
	// Protocol is type and version, e.g. NFSv3, NFSv4.1, SMB3.1.1, xfs.
	Protocol string `json:"protocol"`
	// Options are those in force.
	Options []string `json:"options,omitempty"`
	// ReadAheadKiB is the read-ahead window.
	ReadAheadKiB int `json:"readAheadKiB,omitempty"`
	// Seconds is how long the window was.
	Seconds float64 `json:"seconds"`
	// Operations are those that were asked for in the window, sorted by name.
	Operations []Operation `json:"operations,omitempty"`
	// Requests counts the requests of SMB, of which the kernel tells neither kind nor time.
	Requests    uint64          `json:"requests,omitempty"`
	Bytes       counters.Bytes  `json:"bytes,omitzero"`
	Events      counters.Events `json:"events,omitzero"`
	Connections []Connection    `json:"connections,omitempty"`
	// SlotLimit is the most requests in flight of each connection of NFSv3 or 4.0.
	SlotLimit int `json:"slotLimit,omitempty"`
	// MinRoundTripMicros is the shortest way to the server and back that TCP has seen, in microseconds.
	MinRoundTripMicros uint64 `json:"minRoundTripMicros,omitempty"`
	// Network is what TCP did in the mount's network namespace, of all connections.
	Network counters.Network `json:"network,omitzero"`
	// Log is what the log of an XFS file system did.
	Log counters.Log `json:"log,omitzero"`
}

// Operation is one kind of request. Source: rpc_print_iostats in net/sunrpc/stats.c.
type Operation struct {
	Name string `json:"name"`
	// Count is how many were completed, Transmissions how many were sent, repeated ones included, Errors how many ended with one.
	Count         uint64 `json:"count"`
	Transmissions uint64 `json:"transmissions,omitempty"`
	Errors        uint64 `json:"errors,omitempty"`
	// BytesSent and BytesReceived include the headers.
	BytesSent     uint64 `json:"bytesSent,omitempty"`
	BytesReceived uint64 `json:"bytesReceived,omitempty"`
	// QueueMillis is the time that all of them waited before they were sent, RoundTripMillis from there to the answer, ExecutionMillis the whole.
	QueueMillis     uint64 `json:"queueMillis,omitempty"`
	RoundTripMillis uint64 `json:"roundTripMillis,omitempty"`
	ExecutionMillis uint64 `json:"executionMillis,omitempty"`
}

// Connection is one transport to the server. It is shared by all mounts of the same client: so are its numbers.
type Connection struct {
	Connects uint64 `json:"connects,omitempty"`
	Sends    uint64 `json:"sends"`
	Answers  uint64 `json:"answers"`
	// Backlog is the sum, over all sends, of the requests that waited for a slot then.
	Backlog uint64 `json:"backlog,omitempty"`
	// InFlight is how many requests have no answer at the end of the window, IdleSeconds since when none has ended.
	InFlight    uint64 `json:"inFlight,omitempty"`
	IdleSeconds uint64 `json:"idleSeconds,omitempty"`
}

func (s Sample) operation(name string) Operation {
	if i := slices.IndexFunc(s.Operations, func(o Operation) bool { return o.Name == name }); i >= 0 {
		return s.Operations[i]
	}
	return Operation{Name: name}
}

// count is how many of the named operations were completed.
func (s Sample) count(names ...string) uint64 {
	var n uint64
	for _, o := range s.Operations {
		if slices.Contains(names, o.Name) {
			n += o.Count
		}
	}
	return n
}

// total is how many requests were completed. What the client asks for itself, to keep its lease, is no work.
func (s Sample) total() uint64 {
	n := s.Requests
	for _, o := range s.Operations {
		if !IsOwn(o.Name) {
			n += o.Count
		}
	}
	return n
}

// ownOperations keep a client known to its server; no program asks for them.
var ownOperations = []string{
	"NULL", "RENEW", "SEQUENCE", "EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "RECLAIM_COMPLETE", "SETCLIENTID",
	"SETCLIENTID_CONFIRM", "BIND_CONN_TO_SESSION", "FSINFO", "GET_LEASE_TIME", "SERVER_CAPS",
}

// IsOwn is true for an operation that keeps a client known to its server.
func IsOwn(operation string) bool { return slices.Contains(ownOperations, operation) }

// smallOperation is the most bytes, sent and received, of an operation whose time is not that of its bytes.
const smallOperation = 8 << 10

// times are the means of the operations that carry few bytes: those that carry many take as long as their bytes, and a deep read-ahead
// makes its own requests wait.
func (s Sample) times() (t times) {
	var queue, trip uint64
	for _, o := range s.Operations {
		if o.Count == 0 || (o.BytesSent+o.BytesReceived)/o.Count > smallOperation || IsOwn(o.Name) {
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

// times are means in milliseconds.
type times struct {
	count       uint64
	queue, trip float64
}

// minTrip is the shortest round trip of TCP in milliseconds; 0 where it is not known.
func (s Sample) minTrip() float64 { return float64(s.MinRoundTripMicros) / 1000 }

// backlog is how many requests waited for a slot at each send, on average.
func (s Sample) backlog() float64 {
	var waiting, sends uint64
	for _, c := range s.Connections {
		waiting += c.Backlog
		sends += c.Sends
	}
	return ratioOf(waiting, sends)
}

func (s Sample) isNFS() bool { return strings.HasPrefix(s.Protocol, "NFS") }

// hasSessions is true for NFSv4.1 and later, where the slots are the session's.
func (s Sample) hasSessions() bool {
	return strings.HasPrefix(s.Protocol, "NFSv4.") && s.Protocol != "NFSv4.0"
}

// number is the value of an option that has one.
func (s Sample) number(option string) (int, bool) {
	for _, o := range slices.Backward(s.Options) {
		if value, ok := strings.CutPrefix(o, option+"="); ok {
			n, err := strconv.Atoi(value)
			return n, err == nil
		}
	}
	return 0, false
}

func (s Sample) has(option string) bool { return slices.Contains(s.Options, option) }

// perMinute is a count as it is in a minute.
func (s Sample) perMinute(n uint64) uint64 {
	if s.Seconds <= 0 {
		return 0
	}
	return uint64(float64(n) / s.Seconds * time.Minute.Seconds())
}

func (s Sample) perSecond(n uint64) float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return float64(n) / s.Seconds
}

// ratioOf is a over b; 0 where b is 0.
func ratioOf(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
