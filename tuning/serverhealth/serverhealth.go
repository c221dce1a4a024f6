// Package serverhealth judges from counters whether the storage servers of a node answer it. It never asks a mount: what it goes by
// are the kernel's counters of connections, the requests that the kernel lists as unanswered, its log, and connections that the
// agent has made beside the mounts.
//
// What tells a dead server apart was measured on Linux 6.1 with knfsd: receives that stand still while requests are in flight show
// it after 10 s, the kernel's log after 187 s, and the timeouts and retransmissions of mountstats never.
package serverhealth

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
)

const (
	// SilentAfter is how long a request may be without an answer: the default of timeo for NFS over TCP is as long, and so is the
	// interval in which SMB asks its server for a sign of life.
	SilentAfter = 60 * time.Second
	// idleAfter is how long a server counts as answering that is asked nothing. NFSv4 asks once a minute by itself, to keep its lease.
	idleAfter = 5 * time.Minute
	// askAfter is how long a request is without an answer before the agent asks by a connection of its own. Twice the 10 s in which
	// receives that stand still were seen to tell a server that is gone, so that a busy one is not asked for each slow request.
	askAfter = 20 * time.Second
	// kernelRetries is how long the kernel may hold on to connections that a server which is back does not know any more: it gives up
	// on them after timeo times retrans + 1, 180 s by default (xs_tcp_set_socket_timeouts), and TCP itself tries less and less often.
	kernelRetries = 200 * time.Second
	// saidFor is how long a line of the kernel's log counts. It repeats the line for each request that it gives up on.
	saidFor = 10 * time.Minute
)

// Key names one server as a node's mounts do.
type Key struct {
	// Server is host name or address, as the mounts have it.
	Server string
	// Protocol is NFS or SMB.
	Protocol v1alpha1.ServerProtocol
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Server, other.Server), cmp.Compare(k.Protocol, other.Protocol))
}

// Reading is what was read of one server at one time.
type Reading struct {
	Key
	// Address is where connections go: address and port. The first one where mounts use several.
	Address string
	// Tunnel is true where that is the node itself: a process of the node passes on what the mounts ask.
	Tunnel bool
	// Connections are the transports of NFS, or the sockets of SMB.
	Connections []counters.Connection
	// Queues are the transports once more, as sysfs has them (since Linux 5.14, and only while they are connected): the two lists
	// cannot be matched.
	Queues []counters.Queue
	// Requests are those that have no answer yet; RequestsKnown is false where the kernel does not list them.
	Requests      []counters.Request
	RequestsKnown bool
	// Operations counts requests of SMB, answered or not: it has no count of answers.
	Operations uint64
	// Handles are the requests of each mount that name a file by its handle alone.
	Handles []counters.HandleRequests
	// Sockets are those to the server, as the kernel's socket diagnostics have them; nil where it was not asked.
	Sockets []Socket
	// Identified counts how often the NFSv4 client has introduced itself (EXCHANGE_ID or SETCLIENTID), Refused how often a session was
	// refused to it (errors of CREATE_SESSION).
	Identified, Refused uint64
}

// Socket is one TCP socket, which cannot be matched with a transport.
type Socket struct {
	// Port is its local port.
	Port int
	// Repeats is how often in a row something was sent again that the server's host has not acknowledged.
	Repeats int
}

// Question is how a connection of the agent's own to a server has ended.
type Question struct {
	Key
	// At is when it ended.
	At time.Time
	// Answered is true where the server has answered, whatever it said. Refused is true where nothing takes connections there,
	// Connected where something did and then said nothing.
	Answered, Refused, Connected bool
}

// Line is what the kernel's log says of a server.
type Line struct {
	Server string
	// At is when it was logged.
	At time.Time
	// Responds is false for "not responding" and true for "OK".
	Responds bool
}

// Batch is all that was read at one time.
type Batch struct {
	Readings  []Reading
	Questions []Question
	Lines     []Line
}

// Verdict is how one server stands.
type Verdict struct {
	Key
	Address string
	State   v1alpha1.ServerState
	// Reason is one of the API's, Message a sentence.
	Reason, Message string
	// Since is when the state began: for Silent and Stuck, when the first request was sent that has no answer.
	Since time.Time
	// LastAnswer is when it answered last; zero where it never has.
	LastAnswer time.Time
	// Connections are all, Stuck those whose requests have no answer.
	Connections, Stuck int
	// Waiting is how many requests have no answer, while that is a failure; InFlight how many had none just then.
	Waiting, InFlight int
	// Ask is true where a connection of the agent's own would tell more.
	Ask bool
	// Stale are the mount points whose files the server does not know any more.
	Stale []string
	// Flapping is true where the server keeps forgetting this client: see flaps.go.
	Flapping bool
}

// Watch remembers what was read before. The zero value is ready.
type Watch struct {
	servers map[Key]*memory
}

// Recall tells how a server stood before this watch began, so that one who restarts goes on where the former left off.
func (w *Watch) Recall(former Verdict) {
	if w.servers == nil {
		w.servers = map[Key]*memory{}
	}
	m := newMemory()
	m.found, m.since, m.answeredAt = finding{state: former.State, reason: former.Reason, message: former.Message}, former.Since, former.LastAnswer
	m.recalled = former.State == v1alpha1.ServerAnswering
	w.servers[former.Key] = m
}

// Note takes in what was read at a time and judges. A server that no mount goes to any more is forgotten.
func (w *Watch) Note(now time.Time, batch Batch) []Verdict {
	known := w.servers
	w.servers = map[Key]*memory{}
	for _, reading := range batch.Readings {
		m := known[reading.Key]
		if m == nil {
			m = newMemory()
		}
		w.servers[reading.Key] = m
		for _, question := range batch.Questions {
			if question.Key == reading.Key {
				m.noteQuestion(question)
			}
		}
		for _, line := range batch.Lines {
			if line.Server == reading.Server {
				m.noteLine(line)
			}
		}
		m.noteReading(now, reading)
	}
	var verdicts []Verdict
	for _, key := range slices.SortedFunc(maps.Keys(w.servers), Key.compare) {
		verdicts = append(verdicts, w.servers[key].judge(now))
	}
	return verdicts
}
