// Package serverhealth derives the health of a node's storage servers from counters. It never accesses a mount. Its inputs are the kernel's counters
// of connections, its list of pending requests, its log, and separate connections that the agent makes.
//
// The signs of a dead server were measured on Linux 6.1 with knfsd. Receives that stop while requests are in flight show it after 10 s, and the
// kernel's log after 187 s. The timeouts and retransmissions of mountstats never show it.
package serverhealth

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// SilentAfter is the time after which a request without a response is overdue: the default timeo of NFS over TCP and the interval of SMB echoes.
	SilentAfter = 60 * time.Second
	// idleAfter is the time for which a server without requests counts as Answering. NFSv4 sends a request every minute to renew its lease.
	idleAfter = 5 * time.Minute
	// probeAfter is the time without a response after which the agent queries the server over a separate connection. Receives that stop show
	// a dead server after 10 s. Twice this time avoids a query of a busy server for each slow request.
	probeAfter = 20 * time.Second
	// kernelRetries is the time for which the kernel may keep connections that a restarted server does not know. It drops them after
	// timeo times retrans + 1, 180 s by default (xs_tcp_set_socket_timeouts). TCP itself retries at growing intervals.
	kernelRetries = 200 * time.Second
	// messageLifetime is the time for which a line of the kernel's log counts. The kernel repeats the line for each request that times out.
	messageLifetime = 10 * time.Minute
)

// Key identifies a server as the mounts of a node name it.
type Key struct {
	// Server is the host name or address in the mounts.
	Server   string
	Protocol v1alpha1.ServerProtocol
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Server, other.Server), cmp.Compare(k.Protocol, other.Protocol))
}

// Reading contains the values that were read for one server at one time.
type Reading struct {
	Key
	counters.Activity
	// Sockets are the sockets to the server from the kernel's socket diagnostics. Nil if they were not read.
	Sockets []Socket
}

// nameInLog returns the name of the server in the kernel's log, which is without the port of a tunnel.
func (r Reading) nameInLog() string {
	port := r.Address[strings.LastIndex(r.Address, ":")+1:]
	if name, found := strings.CutSuffix(r.Server, ":"+port); found && r.Tunnel {
		return strings.Trim(name, "[]")
	}
	return r.Server
}

// Socket is one TCP socket. It cannot be matched with a transport.
type Socket struct {
	// Port is the local port.
	Port int
	// Repeats is the number of consecutive retransmissions that the server's host has not acknowledged.
	Repeats int
}

// Probe is the result of a query: a separate connection of the agent to a server.
type Probe struct {
	Key
	// At is the end of the query.
	At time.Time
	// Responded reports whether the server sent any response, ConnectionRefused whether no program accepts connections, and Connected whether the
	// connection was accepted.
	Responded, ConnectionRefused, Connected bool
}

// Line is a message of the kernel's log about a server.
type Line struct {
	Server string
	At     time.Time
	// Responds is false for "not responding" and true for "OK".
	Responds bool
}

// Batch contains the values that were read at one time.
type Batch struct {
	Readings []Reading
	Probes   []Probe
	Lines    []Line
}

// Verdict is the state of one server.
type Verdict struct {
	Key
	Address         string
	State           v1alpha1.ServerState
	Reason, Message string
	// Since is the start of the state. For Silent and Stuck, it is the time at which the first pending request was observed.
	Since time.Time
	// LastResponse is the time of the last response. Zero if there is none.
	LastResponse time.Time
	// Connections is the number of connections, and Stuck the number of connections without a response.
	Connections, Stuck int
	// Waiting is the number of pending requests while the server is failing, InFlight the number at the last reading.
	Waiting, InFlight int
	// NeedsProbe reports whether a separate connection of the agent could help to find the cause.
	NeedsProbe bool
	// Stale are the mount points whose file handles the server no longer recognizes.
	Stale []string
	// Flapping reports whether the server keeps losing the state of this client: see flaps.
	Flapping bool
}

// Watch keeps the previous readings. The zero value is ready to use.
type Watch struct {
	servers map[Key]*memory
}

// Recall restores the state of a server from the previous watch, so that an agent that restarts continues with it.
func (w *Watch) Recall(former Verdict) {
	if w.servers == nil {
		w.servers = map[Key]*memory{}
	}
	m := newMemory()
	m.found = finding{former.State, former.Reason, former.Message, startTime{former.Since}}
	m.lastResponseAt = former.LastResponse
	m.tunnel.hadListener = former.Reason == v1alpha1.ServerReasonTunnelGone || former.Reason == v1alpha1.ServerReasonTunnelTaken
	w.servers[former.Key] = m
}

// Note records a batch and returns the verdicts. It removes servers without mounts.
func (w *Watch) Note(now time.Time, batch Batch) []Verdict {
	known, names := w.servers, map[string]int{}
	for _, reading := range batch.Readings {
		names[reading.nameInLog()]++
	}
	w.servers = map[Key]*memory{}
	for _, reading := range batch.Readings {
		m := cmp.Or(known[reading.Key], newMemory())
		w.servers[reading.Key] = m
		for _, probe := range batch.Probes {
			if probe.Key == reading.Key {
				m.noteProbe(probe)
			}
		}
		for _, line := range batch.Lines {
			// The log does not show which of several tunnels a line is about. It would raise a false alarm for the others.
			if name := reading.nameInLog(); line.Server == name && (!reading.Tunnel || names[name] == 1) {
				m.noteLine(line)
			}
		}
		m.noteReading(now, reading)
	}
	return lists.Each(slices.SortedFunc(maps.Keys(w.servers), Key.compare), func(key Key) Verdict { return w.servers[key].evaluate(now) })
}
