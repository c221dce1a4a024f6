package serverhealth

import (
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
)

// memory is what is known of one server.
type memory struct {
	last Reading
	// readAt is when it was read last; zero: never.
	readAt      time.Time
	connections map[string]waiter
	queues      map[string]queueWaiter
	// requests are when the requests were seen first that have no answer.
	requests map[string]time.Time
	// answeredAt is when an answer came last over a connection of the mounts.
	answeredAt time.Time
	// recalled is true of one that answered when the former watch ended, which tells no time of its last answer; heldFrom is when this
	// watch saw it first: it counts as answering for a while without having done so.
	recalled bool
	heldFrom time.Time
	// stale are the mounts whose requests by handle all end with an error.
	stale map[string]staleMount
	// saidSilentAt is when the kernel said that the server does not respond; zero where it said otherwise since.
	saidSilentAt time.Time

	question Question
	// answersInRow counts questions that were answered, one after the other.
	answersInRow int
	// backAt is when a server that was silent began to answer questions; zero where it was not silent before.
	backAt time.Time

	// found is what was said last, since is since when.
	found finding
	since time.Time
	flaps flaps
}

func newMemory() *memory {
	return &memory{connections: map[string]waiter{}, queues: map[string]queueWaiter{}, requests: map[string]time.Time{}}
}

// waiter is one connection and since when it has had no answer.
type waiter struct {
	was counters.Connection
	// since is when a request was first seen to have been sent since the last answer; zero where none was.
	since time.Time
	// remade is at how many readings in a row it had been made anew, without an answer: over and over, where nothing takes it.
	remade int
}

// queueWaiter is one transport in sysfs, and since when a request has been pending on it while none ended.
type queueWaiter struct {
	was   counters.Queue
	since time.Time
}

func (m *memory) noteQuestion(q Question) {
	m.question = q
	if !q.Answered {
		m.answersInRow = 0
		return
	}
	m.answersInRow++
}

func (m *memory) noteLine(line Line) {
	if line.Responds {
		m.saidSilentAt = time.Time{}
		return
	}
	m.saidSilentAt = line.At
}

func (m *memory) noteReading(now time.Time, reading Reading) {
	answered := m.noteConnections(now, reading)
	m.noteQueues(now, reading)
	if m.noteRequests(now, reading) {
		answered = true
	}
	if answered {
		m.answeredAt, m.saidSilentAt = now, time.Time{}
	}
	m.forgetEnded(reading)
	m.noteHandles(now, reading)
	if m.recalled {
		m.recalled, m.heldFrom = false, now
	}
	m.flaps.note(now, reading, m.readAt.IsZero())
	m.last, m.readAt = reading, now
}

// noteConnections returns whether an answer has come over one.
func (m *memory) noteConnections(now time.Time, reading Reading) (answered bool) {
	found := map[string]waiter{}
	for _, is := range reading.Connections {
		w, known := m.connections[is.ID]
		switch {
		case !known:
			w = waiter{}
			if is.Idle > 0 && is.Answers > 0 && m.answeredAt.IsZero() {
				m.answeredAt = now.Add(-is.Idle)
			}
		// A count that is lower is of another connection, whose mount was made anew.
		case is.Answers != w.was.Answers:
			answered = true
			w = waiter{}
		default:
			if w.remade++; is.Connects == w.was.Connects {
				w.remade = 0
			}
			if w.since.IsZero() && (is.Sends > w.was.Sends || w.remade > 1) {
				w.since = now
			}
		}
		if is.Down && w.since.IsZero() {
			w.since = now
		} else if !is.Down && w.was.Down {
			w.since = time.Time{}
		}
		w.was = is
		found[is.ID] = w
	}
	m.connections = found
	return answered
}

func (m *memory) noteQueues(now time.Time, reading Reading) {
	found := map[string]queueWaiter{}
	for _, is := range reading.Queues {
		w := queueWaiter{was: is}
		was, known := m.queues[is.ID]
		switch {
		case is.Pending == 0:
		case known && was.was.LastUsed == is.LastUsed && !was.since.IsZero():
			w.since = was.since
		default:
			w.since = now
		}
		found[is.ID] = w
	}
	m.queues = found
}

// longOperations may take minutes on a server that is well, since they copy or fill whole files there, or wait for what others do.
var longOperations = []string{"COPY", "CLONE", "ALLOCATE", "DEALLOCATE", "CHANGE_NOTIFY", "LOCK"}

// noteRequests returns whether a request of SMB has been answered, which has no counter of answers.
func (m *memory) noteRequests(now time.Time, reading Reading) (answered bool) {
	found := map[string]time.Time{}
	for _, request := range reading.Requests {
		if slices.Contains(longOperations, request.Operation) {
			continue
		}
		since, known := m.requests[request.ID]
		if !known {
			since = now
		}
		found[request.ID] = since
	}
	if reading.Protocol == v1alpha1.ServerSMB && !m.readAt.IsZero() && !isDown(reading) && !isDown(m.last) {
		for id := range m.requests {
			_, still := found[id]
			answered = answered || !still
		}
		answered = answered || len(found) == 0 && reading.Operations > m.last.Operations
	}
	m.requests = found
	return answered
}

func isDown(reading Reading) bool {
	return slices.ContainsFunc(reading.Connections, func(c counters.Connection) bool { return c.Down })
}

// forgetEnded forgets waits of connections where the kernel has no request left: the process that waited was killed, or its mount
// gives up by itself.
func (m *memory) forgetEnded(reading Reading) {
	isPending := func(q counters.Queue) bool { return q.Pending > 0 }
	noneQueued := len(reading.Queues) > 0 && len(reading.Queues) == len(reading.Connections) && !slices.ContainsFunc(reading.Queues, isPending)
	if len(reading.Requests) > 0 || !reading.RequestsKnown && !noneQueued {
		return
	}
	for id, w := range m.connections {
		if !w.was.Down {
			w.since, w.remade = time.Time{}, 0
			m.connections[id] = w
		}
	}
}

// wait is what has no answer.
type wait struct {
	// since is when the first of it was seen; zero where there is nothing.
	since time.Time
	// connections is how many connections wait, down how many of those have no session; requests how many requests do.
	connections, down, requests int
}

func (w *wait) add(since time.Time) bool {
	if since.IsZero() {
		return false
	}
	if w.since.IsZero() || since.Before(w.since) {
		w.since = since
	}
	return true
}

// waiting sums up. Connections are listed in two places, of which one may know less. beyond is what waits beyond doubt: a request
// that is listed, or a queue that does not move, and where the kernel lists no requests, also a connection that was sent more than it
// answered: what a killed process had asked for may count there for ever.
func (m *memory) waiting() (all, beyond wait) {
	var w wait
	queues, pending := 0, 0
	for _, c := range m.connections {
		if w.add(c.since) {
			w.connections++
		}
		if c.was.Down {
			w.down++
		}
	}
	for _, q := range m.queues {
		if w.add(q.since) {
			queues++
			beyond.add(q.since)
		}
		pending += q.was.Pending
	}
	for _, since := range m.requests {
		w.add(since)
		beyond.add(since)
	}
	w.connections = max(w.connections, queues)
	w.requests = max(len(m.last.Requests), pending)
	if !m.last.RequestsKnown {
		beyond.add(w.since)
	}
	beyond.connections, beyond.requests = w.connections, w.requests
	return w, beyond
}
