package serverhealth

import (
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
)

// memory is the state of one server after its earlier readings.
type memory struct {
	last Reading
	// readAt is the time of the last reading. Zero if there is none.
	readAt      time.Time
	connections map[string]waiter
	queues      map[string]queueWaiter
	// requests maps each pending request to the time at which it was first observed.
	requests map[string]time.Time
	// lastResponseAt is the time of the last response over a connection of the mounts.
	lastResponseAt time.Time
	// graceStart is the time of this watch's first reading, if the server was Answering when the previous watch stopped. The server counts as
	// Answering for a while after it, even without a response.
	graceStart time.Time
	// stale maps mount points to the state of their requests by handle.
	stale map[string]staleMount
	// silent is the kernel's message that the server does not respond, until a message or response contradicts it.
	silent  startTime
	queries queries
	tunnel  tunnel
	// found is the last finding.
	found finding
	flaps flaps
}

// startTime is the time at which a condition began. The zero value means that it does not hold.
type startTime struct{ time.Time }

func (s startTime) holds() bool { return !s.IsZero() }

// begin keeps the time of a condition that already holds.
func (s *startTime) begin(now time.Time) {
	if !s.holds() {
		s.Time = now
	}
}

// isWithin reports whether the condition began less than limit ago.
func (s startTime) isWithin(now time.Time, limit time.Duration) bool {
	return s.holds() && now.Sub(s.Time) < limit
}

// queries are the results of the agent's separate connections.
type queries struct {
	last Probe
	// responses is the number of queries in a row with a response.
	responses int
	// back is the time at which a silent server started to respond to queries.
	back startTime
}

// tunnel is the state of a process on the node that forwards requests.
type tunnel struct {
	// hadListener is true once the tunnel had its own listener. The listener of a mount in another network namespace is never visible.
	hadListener bool
	// broken is the time at which the tunnel was first seen without it.
	broken startTime
}

func newMemory() *memory {
	return &memory{connections: map[string]waiter{}, queues: map[string]queueWaiter{}, requests: map[string]time.Time{}}
}

// waiter is the state of one connection and the start of the time without a response.
type waiter struct {
	last counters.Connection
	// waiting is the time at which a request without a response was first observed.
	waiting startTime
	// reconnects is the number of consecutive readings with a new connect but no response. It grows while no program accepts connections.
	reconnects int
}

// queueWaiter is one transport in sysfs, and the time since which requests have been pending without progress.
type queueWaiter struct {
	last    counters.Queue
	waiting startTime
}

func (m *memory) noteProbe(probe Probe) {
	m.queries.last = probe
	if m.queries.responses++; !probe.Responded {
		m.queries.responses = 0
	}
}

func (m *memory) noteLine(line Line) {
	if m.silent = (startTime{line.At}); line.Responds {
		m.silent = startTime{}
	}
}

func (m *memory) noteReading(now time.Time, reading Reading) {
	hasResponse := m.noteConnections(now, reading)
	m.noteQueues(now, reading)
	if m.noteRequests(now, reading) || hasResponse {
		m.lastResponseAt, m.silent = now, startTime{}
	}
	m.clearFinished(reading)
	m.noteHandles(now, reading)
	isFirst := m.readAt.IsZero()
	if isFirst && m.found.state == v1alpha1.ServerAnswering {
		m.graceStart = now
	}
	if !reading.Gone && !reading.Taken {
		m.tunnel = tunnel{hadListener: true}
	} else if m.tunnel.hadListener && !m.tunnel.broken.holds() {
		m.tunnel.broken.begin(now)
		// A response from before does not show that the present listener works.
		m.queries = queries{back: m.queries.back}
	}
	m.flaps.note(now, reading, isFirst)
	m.last, m.readAt = reading, now
}

// noteConnections records the connections. It reports whether a response arrived over one of them.
func (m *memory) noteConnections(now time.Time, reading Reading) (hasResponse bool) {
	found := map[string]waiter{}
	for _, current := range reading.Connections {
		w, known := m.connections[current.ID]
		switch {
		case !known:
			w = waiter{}
			if current.Idle > 0 && current.Responses > 0 && m.lastResponseAt.IsZero() {
				m.lastResponseAt = now.Add(-current.Idle)
			}
		// A lower count belongs to another connection after a new mount.
		case current.Responses != w.last.Responses:
			hasResponse = true
			w = waiter{}
		default:
			if w.reconnects++; current.Connects == w.last.Connects {
				w.reconnects = 0
			}
			if current.Sends > w.last.Sends || w.reconnects > 1 {
				w.waiting.begin(now)
			}
		}
		if current.Down {
			w.waiting.begin(now)
		} else if w.last.Down {
			w.waiting = startTime{}
		}
		w.last = current
		found[current.ID] = w
	}
	m.connections = found
	return hasResponse
}

func (m *memory) noteQueues(now time.Time, reading Reading) {
	found := map[string]queueWaiter{}
	for _, current := range reading.Queues {
		w := queueWaiter{last: current}
		if current.Pending > 0 {
			if previous := m.queues[current.ID]; previous.last.LastUsed == current.LastUsed {
				w.waiting = previous.waiting
			}
			w.waiting.begin(now)
		}
		found[current.ID] = w
	}
	m.queues = found
}

// longOperations can take minutes on a healthy server: they copy or fill entire files on the server, or wait for other clients.
var longOperations = []string{"COPY", "CLONE", "ALLOCATE", "DEALLOCATE", "CHANGE_NOTIFY", "LOCK"}

// noteRequests records the requests. It reports whether an SMB request got a response, because SMB has no counter of responses.
func (m *memory) noteRequests(now time.Time, reading Reading) (hasResponse bool) {
	found := map[string]time.Time{}
	for _, request := range reading.Requests {
		if slices.Contains(longOperations, request.Operation) {
			continue
		}
		firstSeen, known := m.requests[request.ID]
		if !known {
			firstSeen = now
		}
		found[request.ID] = firstSeen
	}
	if reading.Protocol == v1alpha1.ServerSMB && !m.readAt.IsZero() && !isDown(reading) && !isDown(m.last) {
		for id := range m.requests {
			_, still := found[id]
			hasResponse = hasResponse || !still
		}
		hasResponse = hasResponse || len(found) == 0 && reading.Operations > m.last.Operations
	}
	m.requests = found
	return hasResponse
}

func isDown(reading Reading) bool {
	return slices.ContainsFunc(reading.Connections, func(c counters.Connection) bool { return c.Down })
}

// clearFinished clears the waits of connections if the kernel has no pending requests: the waiting process was killed, or the mount timed out.
func (m *memory) clearFinished(reading Reading) {
	noneQueued := len(reading.Queues) > 0 && len(reading.Queues) == len(reading.Connections) &&
		!slices.ContainsFunc(reading.Queues, func(q counters.Queue) bool { return q.Pending > 0 })
	if len(reading.Requests) > 0 || !reading.RequestsKnown && !noneQueued {
		return
	}
	for id, w := range m.connections {
		if !w.last.Down {
			w.waiting, w.reconnects = startTime{}, 0
			m.connections[id] = w
		}
	}
}

// wait summarizes pending requests.
type wait struct {
	// start is the time at which the first of them was observed.
	start startTime
	// connections is the number of waiting connections, down the number of connections without a session.
	connections, down, requests int
}

func (w *wait) add(start startTime) bool {
	if start.holds() && (!w.start.holds() || start.Before(w.start.Time)) {
		w.start = start
	}
	return start.holds()
}

// waiting summarizes the pending requests. The kernel lists connections in two places; either can be incomplete. proven contains listed requests and
// queues without progress. If the kernel does not list requests, it also contains connections with more requests than responses. Otherwise, these do
// not count, because requests of a killed process can remain in the counters indefinitely.
func (m *memory) waiting() (all, proven wait) {
	queues, pending := 0, 0
	for _, c := range m.connections {
		if all.add(c.waiting) {
			all.connections++
		}
		if c.last.Down {
			all.down++
		}
	}
	for _, q := range m.queues {
		if all.add(q.waiting) {
			queues++
			proven.add(q.waiting)
		}
		pending += q.last.Pending
	}
	for _, firstSeen := range m.requests {
		all.add(startTime{firstSeen})
		proven.add(startTime{firstSeen})
	}
	all.connections = max(all.connections, queues)
	all.requests = max(len(m.last.Requests), pending)
	if !m.last.RequestsKnown {
		proven.add(all.start)
	}
	proven.connections, proven.requests = all.connections, all.requests
	// A tunnel without its own listener counts before any request waits, unless a response shows that another user's process forwards requests.
	if m.queries.responses == 0 {
		all.add(m.tunnel.broken)
	}
	return all, proven
}

const (
	// staleAfter is the minimum time and staleRequests the minimum number for which all requests by handle must fail. A file that another client
	// removed fails a few. The kubelet requests the free space of each volume once a minute: this fails only if the handle of the root is stale.
	staleAfter    = SilentAfter
	staleRequests = 3
	// staleFor is the time after the last failure for which a mount counts as stale. A mount without requests does not stay stale.
	staleFor = 10 * time.Minute
)

// staleMount is the state of one mount with failing requests by handle.
type staleMount struct {
	last counters.HandleRequests
	// first is the first failure after the last success, lastAt the time of the last failure, and failed the number of failures.
	first  startTime
	lastAt time.Time
	failed uint64
}

// noteHandles records the counters of requests by handle. The first reading only sets the baseline.
func (m *memory) noteHandles(now time.Time, reading Reading) {
	found := map[string]staleMount{}
	for _, current := range reading.Handles {
		s, known := m.stale[current.MountPoint]
		newRequests, newErrors := current.Ended-s.last.Ended, current.InErrors-s.last.InErrors
		switch {
		// A lower count belongs to another mount at the same path.
		case !known, current.Ended < s.last.Ended, current.InErrors < s.last.InErrors, newErrors < newRequests:
			s = staleMount{}
		case newErrors > 0:
			s.first.begin(now)
			s.lastAt, s.failed = now, s.failed+newErrors
		}
		s.last = current
		found[current.MountPoint] = s
	}
	m.stale = found
}

// staleMounts returns the sorted mount points whose file handles the server no longer recognizes.
func (m *memory) staleMounts(now time.Time) (points []string) {
	for point, s := range m.stale {
		if s.failed >= staleRequests && s.lastAt.Sub(s.first.Time) >= staleAfter && now.Sub(s.lastAt) < staleFor {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}

const (
	// flapWindow is the time span in which losses of the client state are counted, flapLimit the number that is too high. After a restart of a
	// server, a client identifies itself once; after a failover, twice.
	flapWindow = 10 * time.Minute
	flapLimit  = 3
)

// flaps contains the times at which an NFSv4 client had to identify itself again. Two clients with the same client ID keep removing each other's
// state. Locks are lost and writes fail with EIO, without a message in either kernel log.
type flaps struct {
	identified, rejectedSessions uint64
	at                           []time.Time
}

// note records the counters. The first reading only sets the baseline.
func (f *flaps) note(now time.Time, reading Reading, first bool) {
	if !first && (reading.Identified > f.identified || reading.RejectedSessions > f.rejectedSessions) {
		f.at = append(f.at, now)
	}
	f.identified, f.rejectedSessions = reading.Identified, reading.RejectedSessions
	for len(f.at) > 0 && now.Sub(f.at[0]) > flapWindow {
		f.at = f.at[1:]
	}
}

func (f *flaps) isFlapping(now time.Time) bool {
	return len(f.at) >= flapLimit && now.Sub(f.at[len(f.at)-1]) <= flapWindow
}
