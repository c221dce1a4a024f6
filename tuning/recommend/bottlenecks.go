package recommend

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	minSmallOps = 50
	lossOut     = 0.003
	lossIn      = 0.01
	busyTrips   = 20
	slowTrips   = 2
	slowMillis  = 5
	// fullConnection is the number of bytes per second of a connection that is full, inFlightWhenFull the number of its requests.
	fullConnection   = 400 << 20
	inFlightWhenFull = 8
	maxNconnect      = 16
	// maxSessionSlots is the kernel's limit (NFS4_MAX_SLOT_TABLE in fs/nfs/nfs4session.h), usualSessionSlots its default. Users choose no limit of minSlots.
	maxSessionSlots, usualSessionSlots, minSlots = 1024, 64, 2
	minFlaps, leaseSeconds                       = 5, 90
)

func stuckConnection(s Sample) (Finding, bool) {
	stuck := len(lists.Filter(s.Connections, func(c Connection) bool { return c.Sends > 0 && c.Answers == 0 && c.IdleSeconds >= 10 }))
	return Finding{
		Seen: fmt.Sprintf("%d of %d connections to %s have pending requests and got no response during the window", stuck, len(s.Connections), s.Server),
	}, stuck > 0
}

func sessionFlaps(s Sample) (Finding, bool) {
	identified, rejected := s.count("EXCHANGE_ID", "SETCLIENTID"), s.operation("CREATE_SESSION").Errors
	maximum := max(identified, rejected)
	return Finding{
		Seen: fmt.Sprintf("the client identified itself %d times in %.0f s, and the server rejected a session %d times", identified, s.Seconds,
			rejected),
		Change:  Change{Node: &v1alpha1.NodeTuning{NFS4UniqueID: v1alpha1.NFS4UniqueIDFromNode}},
		Against: reasonIf(maximum < minFlaps || s.perSecond(maximum)*leaseSeconds < 1, "a few restarts or failovers of the server look the same"),
	}, identified > 1 || rejected > 1 // A server that restarts once rejects one session.
}

func packetLoss(s Sample) (Finding, bool) {
	out, in := ratioOf(s.Network.Retransmitted, s.Network.OutSegments), ratioOf(s.Network.OutOfOrder, s.Network.InSegments)
	var bytes, sends uint64
	for _, o := range s.Operations {
		bytes, sends = bytes+o.BytesSent+o.BytesReceived, sends+o.Count
	}
	// The connections of other mounts of the server count, too: too many segments for the requests of this mount prove nothing about it.
	isOwn := s.Network.OutSegments <= 1000+4*sends+bytes/500
	lost := isOwn && (s.Network.Retransmitted >= 5 && out > lossOut || s.Network.OutOfOrder >= 20 && in > lossIn)
	return Finding{
		Seen: fmt.Sprintf("%.1f %% of the segments were retransmitted, %.1f %% arrived out of order", out*100, in*100),
	}, lost
}

func fewConnections(s Sample) (Finding, bool) {
	declared, isDeclared := s.number("nconnect")
	n := max(1, declared, len(s.Connections))
	bytes, queue, trip := s.largeOperations()
	backlog, sending := s.queues()
	rate, inFlight := s.perSecond(bytes)/float64(n), s.perSecond(trip)/1000/float64(n)
	isFull := rate >= fullConnection
	isShort := queue > trip && backlog < 0.1 && (rate >= fullConnection/4 || sending >= 1) || isFull && inFlight >= inFlightWhenFull
	wanted := min(maxNconnect, max(4, 2*n))
	isLink := func(gigabits float64) bool { return math.Abs(s.perSecond(bytes)*8e-9/gigabits-0.95) < 0.07 }
	return Finding{
		Seen: fmt.Sprintf("with nconnect=%d, each connection carries %.0f MiB per second and has %.0f requests in flight; large requests wait %.0f ms "+
			"in total to be sent for each 100 ms of response time", n, rate/(1<<20), inFlight, 100*ratioOf(queue, trip)),
		Change: Change{MountOptions: []v1alpha1.MountOption{v1alpha1.MountOption(fmt.Sprintf("nconnect=%d", wanted))}},
		Effect: fmt.Sprintf("%d connections instead of %d share the requests", wanted, n),
		Against: text.Combine("; ", reasonIf(isDeclared || n > 1, "the mount has %d connections already: find out who chose the number, and why", n),
			reasonIf(slices.ContainsFunc(rules.LinkGigabits, isLink), "the network interface is probably full: it carries %.1f Gbit per second", s.perSecond(bytes)*8e-9)),
	}, s.isNFS() && !s.isTunnel() && !s.hasOption("proto=rdma") && len(s.Connections) > 0 && n < maxNconnect && isShort
}

// largeOperations returns the bytes of large operations, and the total times in milliseconds before they were sent and from there to the response.
func (s Sample) largeOperations() (bytes, queue, trip uint64) {
	for _, o := range s.Operations {
		if o.Count > 0 && (o.BytesSent+o.BytesReceived)/o.Count > smallOperation {
			bytes, queue, trip = bytes+o.BytesSent+o.BytesReceived, queue+o.QueueMillis, trip+o.RoundTripMillis
		}
	}
	return bytes, queue, trip
}

func busyServer(s Sample) (Finding, bool) {
	t, minTrip := s.times(), s.minTrip()
	// Small requests also wait behind large ones, if each connection has one of them in flight for half of the time.
	_, _, large := s.largeOperations()
	isBehind := s.perSecond(large)/500 >= float64(max(1, len(s.Connections)))
	busy := !isBehind && minTrip > 0 && t.count >= minSmallOps && t.trip > busyTrips*minTrip && t.trip >= slowMillis
	return Finding{
		Seen: fmt.Sprintf("small operations take %.0f ms once they are sent, TCP's shortest round trip %.1f ms", t.trip, minTrip),
	}, busy
}

func fewSlots(s Sample) (Finding, bool) {
	t := s.times()
	waiting, _ := s.queues()
	short := s.isNFS() && !s.hasSessions() && waiting > 1 && t.count >= minSmallOps && t.queue > t.trip
	return Finding{
		Seen: fmt.Sprintf("%.0f requests waited for one of %d slots at each send, and small operations %.0f ms, compared with %.0f ms for the response",
			waiting, s.SlotLimit, t.queue, t.trip),
		Change: Change{Node: &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{
			"sunrpc.tcp_max_slot_table_entries": v1alpha1.SettingText(strconv.Itoa(slotsFor(s.SlotLimit))),
		}}},
		Effect:  fmt.Sprintf("up to %d requests in flight per connection; no more time in the queue", slotsFor(s.SlotLimit)),
		Against: reasonIf(s.SlotLimit > minSlots, "the limit %d is not the kernel's: find out who set it, and why", s.SlotLimit),
	}, short && s.SlotLimit > 0 && slotsFor(s.SlotLimit) > s.SlotLimit
}

// slotsFor returns the proposed limit of slots: 128, which vendors recommend, or twice the current limit if that is higher.
func slotsFor(limit int) int { return min(max(128, 2*limit), 65536) }

func fewSessionSlots(s Sample) (Finding, bool) {
	t := s.times()
	backlog, sending := s.queues()
	short := s.hasSessions() && len(s.Connections) > 0 && t.count >= minSmallOps && t.queue > 3*t.trip && t.queue >= 1 && backlog < 0.1 && sending < 1
	// Little's law: the requests in flight are their rate times their time. If slots are free, requests wait for rpc.gssd, the CPU or the server's slots.
	_, _, large := s.largeOperations()
	inFlight := (s.perSecond(large) + s.perSecond(t.count)*t.trip) / 1000
	wanted := min(max(180, 2*s.SessionSlots), maxSessionSlots)
	return Finding{
		Seen: fmt.Sprintf("small operations wait %.0f ms before they are sent, compared with %.0f ms for the response, but not for a connection",
			t.queue, t.trip),
		Change: Change{Node: &v1alpha1.NodeTuning{KernelModules: []v1alpha1.KernelModule{
			{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": v1alpha1.SettingText(strconv.Itoa(wanted))}},
		}}},
		Effect: fmt.Sprintf("up to %d requests in flight to the server; no more time in the queue", wanted),
		Against: text.Combine("; ", reasonIf(s.SessionSlots == 0, "the current limit could not be read"), reasonIf(s.SessionSlots > minSlots &&
			s.SessionSlots != usualSessionSlots, "the limit %d is not the kernel's: find out who set it, and why", s.SessionSlots)),
	}, short && wanted > s.SessionSlots && 2*inFlight >= float64(s.SessionSlots)
}

func slowNetwork(s Sample) (Finding, bool) {
	t, minTrip := s.times(), s.minTrip()
	slow := t.count >= minSmallOps && minTrip >= slowMillis && t.trip < slowTrips*minTrip
	return Finding{
		Seen: fmt.Sprintf("small operations take %.0f ms once they are sent, TCP's shortest round trip %.1f ms", t.trip, minTrip),
	}, slow
}
