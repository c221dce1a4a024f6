package serverhealth

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

type finding struct {
	state           v1alpha1.ServerState
	reason, message string
	// start is the start of the state. If a new finding does not know it, the state starts when it is first found.
	start startTime
}

func (m *memory) evaluate(now time.Time) Verdict {
	all, proven := m.waiting()
	f := m.find(now, all, proven)
	if m.found.state == f.state && !f.start.holds() {
		f.start = m.found.start
	}
	f.start.begin(now)
	m.found = f
	v := Verdict{
		Key: m.last.Key, Address: m.last.Address, State: f.state, Reason: f.reason, Message: f.message, Since: f.start.Time, LastResponse: m.lastResponseAt,
		Connections: len(m.last.Connections), Flapping: m.flaps.isFlapping(now),
		InFlight: all.requests, NeedsProbe: all.start.holds() && !all.start.isWithin(now, probeAfter),
	}
	if f.state.IsFailing() {
		v.Stuck, v.Waiting = all.connections, all.requests
	}
	if f.reason == v1alpha1.ServerReasonStaleHandles {
		v.Stale = m.staleMounts(now)
	}
	return v
}

func (m *memory) find(now time.Time, all, proven wait) finding {
	if !all.start.holds() {
		m.queries.back = startTime{}
		return m.findNotOverdue(now)
	}
	if m.found.state == v1alpha1.ServerSilent && !m.lastResponseAt.After(m.found.start.Time) {
		// A soft mount drops its requests and sends new ones, which have waited for a shorter time. This does not count as a response.
		all.add(m.found.start)
	}
	isLong := func(start startTime) bool {
		return start.holds() && (m.silent.isWithin(now, messageLifetime) || !start.isWithin(now, SilentAfter))
	}
	switch hasNewerResponse := m.lastResponseAt.After(all.start.Time); {
	case !isLong(all.start), hasNewerResponse && !isLong(proven.start):
		return m.findNotOverdue(now)
	case m.isBack(now):
		return finding{state: v1alpha1.ServerAnswering, reason: v1alpha1.ServerReasonReconnecting, message: fmt.Sprintf(
			"Responds again; %s for the kernel, which detects this within three minutes",
			text.Count(all.connections, "connection of this node still waits", "connections of this node still wait"))}
	case hasNewerResponse:
		return m.findStuck(proven)
	case m.queries.responses > 0 && m.found.state != v1alpha1.ServerSilent:
		return m.findMountsStuck(all.start)
	}
	return m.findSilent(all)
}

// findMountsStuck returns the finding for a server that responds to a separate connection of the agent, but to none of the mounts.
func (m *memory) findMountsStuck(start startTime) finding {
	f := finding{state: v1alpha1.ServerStuck, reason: v1alpha1.ServerReasonTransportStuck, start: start}
	connections := text.Count(len(m.last.Connections), "connection")
	if dead, known := m.deadPorts(); known && len(dead) == 0 {
		f.reason = v1alpha1.ServerReasonRequestsStuck
		f.message = fmt.Sprintf("The server's host accepts %s over the %s of this node's mounts, but the server does not respond; check its "+
			"file systems and disks", m.operationsText(), connections)
		return f
	}
	f.message = fmt.Sprintf("The server responds over a new connection, but not over the %s of this node's mounts; check firewalls and load "+
		"balancers between them", connections)
	return f
}

// isBack reports whether a silent server responds to queries again, while the connections of the mounts have not recovered yet. It requires two
// responses: a single one can be a coincidence.
func (m *memory) isBack(now time.Time) bool {
	if m.found.state == v1alpha1.ServerSilent && m.queries.responses >= 2 {
		m.queries.back = startTime{now}
	}
	return m.queries.responses > 0 && m.queries.back.isWithin(now, kernelRetries)
}

func (m *memory) findNotOverdue(now time.Time) finding {
	switch {
	case m.found.state == v1alpha1.ServerSilent && !m.lastResponseAt.After(m.found.start.Time):
		return finding{
			state: v1alpha1.ServerIdle, reason: v1alpha1.ServerReasonNotAsked, message: "No more requests; the previous requests got no response",
		}
	case m.lastResponseAt.IsZero():
		return finding{state: v1alpha1.ServerIdle, reason: v1alpha1.ServerReasonNotAsked, message: "No requests observed yet"}
	case now.Sub(m.lastResponseAt) >= idleAfter && now.Sub(m.graceStart) >= idleAfter:
		return finding{state: v1alpha1.ServerIdle, reason: v1alpha1.ServerReasonNotAsked, message: "No requests for 5 minutes"}
	}
	if stale := m.staleMounts(now); len(stale) > 0 {
		return finding{state: v1alpha1.ServerAnswering, reason: v1alpha1.ServerReasonStaleHandles, start: m.stale[stale[0]].first, message: fmt.Sprintf(
			"The server responds, but every request of %s for open or known files fails, as with stale file handles; "+
				"check its export, then restart the pods that use it", text.Count(len(stale), "mount"))}
	}
	return finding{state: v1alpha1.ServerAnswering, reason: v1alpha1.ServerReasonAnswering}
}

// findStuck returns the finding for a server that responds to other requests.
func (m *memory) findStuck(w wait) finding {
	f := finding{state: v1alpha1.ServerStuck, start: w.start}
	dead, known := m.deadPorts()
	switch total := len(m.last.Connections); {
	case len(dead) > 0 && len(dead) < total:
		f.reason = v1alpha1.ServerReasonTransportStuck
		f.message = fmt.Sprintf("%d of %d connections no longer carry data (local %s); the others work; "+
			"check for a firewall or load balancer that dropped the connection", len(dead), total, portsText(dead))
		return f
	case !known && w.connections > 0 && w.connections < total:
		f.reason = v1alpha1.ServerReasonTransportStuck
		f.message = fmt.Sprintf("No response over %d of %d connections; the others work; "+
			"check for a firewall or load balancer that dropped the connection", w.connections, total)
		return f
	}
	f.reason = v1alpha1.ServerReasonRequestsStuck
	f.message = fmt.Sprintf("The server responds to other requests, but not to %s; check its file systems and disks", m.operationsText())
	return f
}

// repeatsOfDead is the number of consecutive retransmissions of a segment on a dead connection. The first interval is 0.2 s and doubles each time:
// six retransmissions take at least twelve seconds.
const repeatsOfDead = 6

// deadPorts returns the local ports of connections without acknowledgments from the server's host. known is false if this is unknown.
func (m *memory) deadPorts() (ports []int, known bool) {
	dead := lists.Filter(m.last.Sockets, func(s Socket) bool { return s.Repeats >= repeatsOfDead })
	ports = lists.Each(dead, func(s Socket) int { return s.Port })
	slices.Sort(ports)
	return ports, len(m.last.Sockets) > 0
}

func portsText(ports []int) string {
	noun := "ports "
	if len(ports) == 1 {
		noun = "port "
	}
	return noun + text.InOrder(lists.Each(ports, strconv.Itoa), ", ")
}

func (m *memory) operationsText() string {
	operations := lists.Distinct(lists.Pick(m.last.Requests, func(r counters.Request) (string, bool) { return r.Operation, r.Operation != "" }))
	if len(operations) == 0 {
		return "some requests"
	}
	return "requests of " + text.List(operations)
}

// findSilent returns the finding for a server that does not respond at all.
func (m *memory) findSilent(w wait) finding {
	f := finding{state: v1alpha1.ServerSilent, start: w.start}
	isProbed := m.queries.last.At.After(w.start.Time)
	switch {
	case m.last.Taken && m.tunnel.broken.holds():
		f.reason = v1alpha1.ServerReasonTunnelTaken
		f.message = fmt.Sprintf("Only a process of a user other than root listens at %s; if it is not the tunnel of the mounts, stop it, and "+
			"restart the driver's pod on this node", m.last.Address)
	case m.last.Gone && m.tunnel.broken.holds(), isProbed && m.queries.last.ConnectionRefused && m.last.Tunnel:
		f.reason = v1alpha1.ServerReasonTunnelGone
		f.message = fmt.Sprintf("No process listens at %s; the process that forwards requests to the storage is gone; restart the driver's pod "+
			"on this node", m.last.Address)
	case isProbed && m.queries.last.ConnectionRefused:
		f.reason = v1alpha1.ServerReasonConnectionRefused
		f.message = fmt.Sprintf("The host is up but rejects connections at %s; check that the storage service runs", m.last.Address)
	case w.down > 0 && w.down == len(m.last.Connections) && (!isProbed || !m.queries.last.Connected):
		f.reason = v1alpha1.ServerReasonSessionDown
		f.message = fmt.Sprintf("The session is down and %s is unreachable; check the server and the network", m.last.Address)
	case isProbed && m.queries.last.Connected && !m.queries.last.Responded:
		f.reason = v1alpha1.ServerReasonNoAnswer
		f.message = fmt.Sprintf("%s accepts connections but does not respond; check the server's threads, file systems and disks", m.last.Address)
	case isProbed && !m.queries.last.Responded:
		f.reason = v1alpha1.ServerReasonUnreachable
		f.message = fmt.Sprintf("Cannot connect to %s; check the server, the network and firewalls", m.last.Address)
	case m.found.state == v1alpha1.ServerSilent:
		// There is no new information about the cause.
		f.reason, f.message = m.found.reason, m.found.message
	default:
		f.reason = v1alpha1.ServerReasonNoAnswer
		f.message = "No response to any request; check the server and the network"
	}
	return f
}
