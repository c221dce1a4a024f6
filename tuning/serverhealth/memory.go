package serverhealth

import (
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
)

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
	// recalled reports whether the server was Answering when the previous watch stopped; the time of its last response is then unknown.
	// heldFrom is the first reading by this watch: the server counts as Answering for a while after it, even without a response.
	recalled bool
	heldFrom time.Time
	// stale maps mount points to the state of their requests by handle.
	stale map[string]staleMount
	// silentMessageAt is the time of the kernel message that the server does not respond. Zero if a later message or response contradicts
	// it.
	silentMessageAt time.Time

	probe                Probe
	consecutiveResponses int
	// backAt is the time at which a silent server started to respond to queries. Zero if it was not silent.
	backAt time.Time

	// found is the last finding, and since the start of its state.
	found      finding
	stateSince time.Time
	flaps      flaps
}

func newMemory() *memory {
	return &memory{connections: map[string]waiter{}, queues: map[string]queueWaiter{}, requests: map[string]time.Time{}}
}

// waiter is the state of one connection and the time since which it has had no response.
type waiter struct {
	last counters.Connection
	// waitingSince is the time at which a request without a response was first observed. Zero if there is none.
	waitingSince time.Time
	// remade is the number of consecutive readings with a new connect but no response. It keeps growing if no program accepts
	// connections.
	remade int
}

// queueWaiter is one transport in sysfs, and the time since which requests have been pending without progress.
type queueWaiter struct {
	last         counters.Queue
	waitingSince time.Time
}

func (m *memory) noteProbe(q Probe) {
	m.probe = q
	if !q.Responded {
		m.consecutiveResponses = 0
		return
	}
	m.consecutiveResponses++
}

func (m *memory) noteLine(line Line) {
	if line.Responds {
		m.silentMessageAt = time.Time{}
		return
	}
	m.silentMessageAt = line.At
}

func (m *memory) noteReading(now time.Time, reading Reading) {
	hasResponse := m.noteConnections(now, reading)
	m.noteQueues(now, reading)
	if m.noteRequests(now, reading) {
		hasResponse = true
	}
	if hasResponse {
		m.lastResponseAt, m.silentMessageAt = now, time.Time{}
	}
	m.clearFinished(reading)
	m.noteHandles(now, reading)
	if m.recalled {
		m.recalled, m.heldFrom = false, now
	}
	m.flaps.note(now, reading, m.readAt.IsZero())
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
			if w.remade++; current.Connects == w.last.Connects {
				w.remade = 0
			}
			if w.waitingSince.IsZero() && (current.Sends > w.last.Sends || w.remade > 1) {
				w.waitingSince = now
			}
		}
		if current.Down && w.waitingSince.IsZero() {
			w.waitingSince = now
		} else if !current.Down && w.last.Down {
			w.waitingSince = time.Time{}
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
		previous, known := m.queues[current.ID]
		switch {
		case current.Pending == 0:
		case known && previous.last.LastUsed == current.LastUsed && !previous.waitingSince.IsZero():
			w.waitingSince = previous.waitingSince
		default:
			w.waitingSince = now
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

// clearFinished clears the waits of connections if the kernel has no pending requests: the waiting process was killed, or the mount
// timed out.
func (m *memory) clearFinished(reading Reading) {
	isPending := func(q counters.Queue) bool { return q.Pending > 0 }
	noneQueued := len(reading.Queues) > 0 && len(reading.Queues) == len(reading.Connections) && !slices.ContainsFunc(reading.Queues, isPending)
	if len(reading.Requests) > 0 || !reading.RequestsKnown && !noneQueued {
		return
	}
	for id, w := range m.connections {
		if !w.last.Down {
			w.waitingSince, w.remade = time.Time{}, 0
			m.connections[id] = w
		}
	}
}

type wait struct {
	// start is the first time at which one of them was observed. Zero if there are none.
	start time.Time
	// connections is the number of waiting connections, down the number of connections without a session, and requests the number of
	// requests.
	connections, down, requests int
}

func (w *wait) add(start time.Time) bool {
	if start.IsZero() {
		return false
	}
	if w.start.IsZero() || start.Before(w.start) {
		w.start = start
	}
	return true
}

// waiting summarizes the pending requests. The kernel lists connections in two places; either can be incomplete.
//
// beyond contains only proven waits: listed requests and queues without progress. If the kernel does not list requests, it also
// contains connections with more requests than responses. Otherwise, these do not count, because requests of a killed process can
// remain in the counters indefinitely.
func (m *memory) waiting() (all, beyond wait) {
	var w wait
	queues, pending := 0, 0
	for _, c := range m.connections {
		if w.add(c.waitingSince) {
			w.connections++
		}
		if c.last.Down {
			w.down++
		}
	}
	for _, q := range m.queues {
		if w.add(q.waitingSince) {
			queues++
			beyond.add(q.waitingSince)
		}
		pending += q.last.Pending
	}
	for _, firstSeen := range m.requests {
		w.add(firstSeen)
		beyond.add(firstSeen)
	}
	w.connections = max(w.connections, queues)
	w.requests = max(len(m.last.Requests), pending)
	if !m.last.RequestsKnown {
		beyond.add(w.start)
	}
	beyond.connections, beyond.requests = w.connections, w.requests
	return w, beyond
}
