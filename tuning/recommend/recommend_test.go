package recommend

import (
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/tuning/counters"
)

// nfs returns a one-minute sample of a mount with 100 small READs a second that take 1 ms.
func nfs(protocol string, changes ...func(*Sample)) Sample {
	s := Sample{
		Server: "10.0.0.3", Export: "/exports/data", MountPoint: "/mnt/data", Protocol: protocol, Seconds: 60, ReadAheadKiB: 128, SlotLimit: 65536, SessionSlots: 64,
		Options:     []string{"rw", "rsize=524288", "wsize=524288", "acregmin=3"},
		Operations:  []Operation{{Name: "READ", Count: 6000, BytesSent: 6000 * 200, BytesReceived: 6000 * 4200, QueueMillis: 600, RoundTripMillis: 6000}},
		Bytes:       counters.Bytes{DirectRead: 6000 * 4096, WireRead: 6000 * 4096},
		Connections: []Connection{{Sends: 6000, Answers: 6000}}, MinRoundTripMicros: 300,
		Network: counters.Network{InSegments: 7000, OutSegments: 7000},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func operation(name string, count uint64) func(*Sample) {
	return func(s *Sample) {
		s.Operations = []Operation{{Name: name, Count: count, BytesSent: count * 200, BytesReceived: count * 200, QueueMillis: count / 10, RoundTripMillis: count}}
		s.Bytes, s.Events = counters.Bytes{}, counters.Events{Listings: 35}
	}
}

// timing sets the duration of the small READs in milliseconds.
func timing(queue, trip, minimum float64) func(*Sample) {
	return func(s *Sample) {
		s.Operations[0].QueueMillis, s.Operations[0].RoundTripMillis = uint64(queue*6000), uint64(trip*6000)
		s.MinRoundTripMicros = uint64(minimum * 1000)
	}
}

// slotsInUse sets the limit of session slots, all of which are in use, and the time in milliseconds that small READs wait before the 8 ms for the response.
func slotsInUse(limit int, queue uint64) func(*Sample) {
	return func(s *Sample) {
		n := uint64(limit) * 7500
		s.SessionSlots, s.MinRoundTripMicros = limit, 1400
		s.Operations = []Operation{{Name: "READ", Count: n, BytesSent: n * 200, BytesReceived: n * 4200, QueueMillis: n * queue, RoundTripMillis: n * 8}}
	}
}

func option(o string) func(*Sample) {
	return func(s *Sample) {
		name, _, _ := strings.Cut(o, "=")
		s.Options = append(slices.DeleteFunc(s.Options, func(had string) bool { return strings.HasPrefix(had, name+"=") }), o)
	}
}

func events(e counters.Events) func(*Sample) { return func(s *Sample) { s.Events = e } }

// read sets the READs through the page cache in one minute: their number, the KiB of each, and the MiB that programs requested.
func read(count, each, requested uint64) func(*Sample) {
	return func(s *Sample) {
		s.Operations = []Operation{{Name: "READ", Count: count, BytesReceived: count * each << 10, RoundTripMillis: count * 5}}
		s.Bytes = counters.Bytes{Read: requested << 20, WireRead: count * each << 10}
	}
}

// wrote sets the WRITEs in one minute: their number, and the KiB of each.
func wrote(count, each uint64, direct bool) func(*Sample) {
	return func(s *Sample) {
		s.Operations = []Operation{{Name: "WRITE", Count: count, BytesSent: count * each << 10, RoundTripMillis: count * 2}}
		s.Bytes = counters.Bytes{Written: count * each << 10, WireWritten: count * each << 10}
		if direct {
			s.Bytes.DirectWritten, s.Bytes.Written = s.Bytes.Written, 0
		}
	}
}

// filled sets 1,000 READs of 1 MiB per second, with a number of requests in flight.
func filled(inFlight uint64) func(*Sample) {
	return func(s *Sample) {
		read(60000, 1024, 60000)(s)
		s.Operations[0].RoundTripMillis, s.ReadAheadKiB = 60000*inFlight, 1024
	}
}

func readAhead(kib int) func(*Sample) { return func(s *Sample) { s.ReadAheadKiB = kib } }

func log(l counters.Log) func(*Sample) {
	return func(s *Sample) {
		*s = Sample{MountPoint: "/mnt/d1", Protocol: "xfs", Seconds: 60, Options: s.Options, Log: l}
	}
}

func TestFor(t *testing.T) {
	for name, test := range map[string]struct {
		s    Sample
		want string
	}{
		"healthy":                    {nfs("NFSv4.1"), ""},
		"healthy, single, v3":        {nfs("NFSv3", timing(0.2, 4.1, 1.4)), ""},
		"healthy, 64 workers":        {nfs("NFSv4.1", timing(0.2, 7.4, 1.4)), ""},
		"idle":                       {nfs("NFSv4.1", operation("GETATTR", 99)), ""},
		"99 in ten seconds are few":  {nfs("NFSv4.1", operation("OPEN", 99), func(s *Sample) { s.Seconds = 10 }), ""},
		"100 in ten seconds are not": {nfs("NFSv4.1", operation("OPEN", 100), func(s *Sample) { s.Seconds = 10 }), "OpenAndClose"},

		"attributes of a listing": {nfs("NFSv4.1", operation("GETATTR", 16387)), "AttributeRevalidation"},
		"attributes, but few":     {nfs("NFSv4.1", operation("GETATTR", 299)), ""},
		"attributes next to other work": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations = append(s.Operations, Operation{Name: "GETATTR", Count: 5999, RoundTripMillis: 5999})
		}), ""},
		"attributes that do change":                      {nfs("NFSv4.1", operation("GETATTR", 6000), events(counters.Events{DataInvalidations: 120})), ""},
		"attributes that do change, without cached data": {nfs("NFSv4.1", operation("GETATTR", 6000), events(counters.Events{AttributeInvalidations: 120})), ""},
		"attributes are kept for long":                   {nfs("NFSv4.1", operation("GETATTR", 6000), option("acregmin=30")), ""},
		"attributes are not kept":                        {nfs("NFSv4.1", operation("GETATTR", 6000), option("noac")), "AttributeRevalidation"},
		"opens of NFSv3":                                 {nfs("NFSv3", operation("GETATTR", 6000), events(counters.Events{Opens: 6000})), "CloseToOpen"},
		"opens of NFSv3 without close-to-open": {nfs("NFSv3", operation("GETATTR", 6000), events(counters.Events{Opens: 6000}), option("nocto")),
			"AttributeRevalidation"},
		"opens of NFSv4 ask by themselves": {nfs("NFSv4.1", operation("OPEN", 6000), events(counters.Events{Opens: 6000})), "OpenAndClose"},

		"no slots, v3":                           {nfs("NFSv3", timing(225, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 19669; s.SlotLimit = 2 }), "FewSlots"},
		"backlog of one":                         {nfs("NFSv3", timing(225, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 6000 }), ""},
		"backlog, but the response takes longer": {nfs("NFSv3", timing(9, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 19669 }), ""},
		"no session slots":                       {nfs("NFSv4.1", slotsInUse(2, 31)), "FewSessionSlots"},
		"half of the session slots":              {nfs("NFSv4.1", slotsInUse(32, 31), sessionSlots(64)), "FewSessionSlots"},
		"a queue, with free session slots":       {nfs("NFSv4.1", slotsInUse(32, 31), sessionSlots(65)), ""},
		"a queue of 4.0 is no session's":         {nfs("NFSv4.0", slotsInUse(2, 31)), ""},
		"a short queue":                          {nfs("NFSv4.1", slotsInUse(2, 24)), ""},
		"an unknown limit of slots":              {nfs("NFSv3", timing(225, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 19669; s.SlotLimit = 0 }), ""},
		"the kernel's limit of slots":            {nfs("NFSv3", timing(225, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 19669 }), ""},
		"busy, single":                           {nfs("NFSv4.1", timing(0.2, 105, 1.4)), "BusyServer"},
		"busy, 64 workers":                       {nfs("NFSv4.1", timing(140, 169, 1.4)), "BusyServer"},
		"busy, and slots are short":              {nfs("NFSv4.1", timing(700, 105, 1.4)), "BusyServer"},
		"busy, or the network is":                {nfs("NFSv4.1", timing(0.2, 105, 0)), ""},
		"a fast network makes none busy":         {nfs("NFSv4.1", timing(0.2, 4.9, 0.1)), ""},
		"large requests may take long": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations = []Operation{{Name: "READ", Count: 6000, BytesReceived: 6000 << 20, RoundTripMillis: 6000 * 211}}
			s.Bytes = counters.Bytes{DirectRead: 6000 << 20, WireRead: 6000 << 20}
		}), ""},
		"far away": {nfs("NFSv4.1", timing(0.2, 15, 10.5)), "SlowNetwork"},
		"lost on the way to us": {nfs("NFSv4.1", func(s *Sample) {
			s.Network = counters.Network{InSegments: 4500, OutSegments: 4500, OutOfOrder: 232}
		}), "PacketLoss"},
		"lost on the way to the server": {nfs("NFSv4.1", func(s *Sample) {
			s.Network = counters.Network{InSegments: 1754, OutSegments: 1754, Retransmitted: 14}
		}), "PacketLoss"},
		"four were lost, of few": {nfs("NFSv4.1", func(s *Sample) {
			s.Network = counters.Network{InSegments: 400, OutSegments: 400, Retransmitted: 4, OutOfOrder: 4}
		}), ""},
		"stuck": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations, s.Connections = nil, []Connection{{Sends: 2, InFlight: 1, IdleSeconds: 12}, {Sends: 9, Answers: 9}}
		}), "StuckConnection"},
		"a request was sent twice, long ago": {nfs("NFSv3", func(s *Sample) {
			s.Operations, s.Connections = nil, []Connection{{InFlight: 1, IdleSeconds: 200}}
		}), ""},
		"lost, and two introductions": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations = append(s.Operations, Operation{Name: "EXCHANGE_ID", Count: 2})
			s.Network = counters.Network{InSegments: 1754, OutSegments: 1754, Retransmitted: 14}
		}), "SessionFlaps PacketLoss"},
		"lost by others on the node": {nfs("NFSv4.1", func(s *Sample) {
			s.Network = counters.Network{InSegments: 50e6, OutSegments: 50e6, Retransmitted: 5e5}
		}), ""},
		"lost by others on the way to the node": {nfs("NFSv4.1", func(s *Sample) {
			s.Network = counters.Network{InSegments: 50e6, OutSegments: 50e6, OutOfOrder: 5e6}
		}), ""},
		"busy, or the tunnel hides the network": {nfs("NFSv4.1", timing(0.2, 5.5, 0.045), func(s *Sample) { s.Server = "[::1]" }), ""},
		"busy, or the tunnel hides it":          {nfs("NFSv4.1", timing(0.2, 5.5, 0.045), func(s *Sample) { s.Server = "localhost" }), ""},
		"a full connection":                     {nfs("NFSv4.1", filled(12)), "FewConnections"},
		"a full connection to a tunnel":         {nfs("NFSv4.1", filled(12), func(s *Sample) { s.Server = "127.0.0.1" }), ""},
		"a full connection to one of tunnels":   {nfs("NFSv4.1", filled(12), func(s *Sample) { s.Server = "127.0.0.1:20049" }), ""},
		"a full connection to one by name":      {nfs("NFSv4.1", filled(12), func(s *Sample) { s.Server = "localhost:20049" }), ""},
		"a full connection to one on IPv6":      {nfs("NFSv4.1", filled(12), func(s *Sample) { s.Server = "[::1]:20049" }), ""},
		"a full connection, RDMA":               {nfs("NFSv4.1", filled(12), option("proto=rdma")), ""},
		"a fast connection with few requests":   {nfs("NFSv4.1", filled(7)), ""},
		"sixteen connections wait to send": {nfs("NFSv4.1", slotsInUse(2, 31), option("nconnect=16"), func(s *Sample) {
			s.Connections[0].Sending = 6000
		}), ""},
		"large requests wait for slots of NFSv3, not for the connection": {nfs("NFSv3", filled(7), func(s *Sample) {
			s.Operations[0].QueueMillis, s.Connections[0].Backlog = 60000*60, 60000
		}), ""},
		"one request is in progress": {nfs("NFSv4.1", func(s *Sample) { s.Connections[0].InFlight = 1 }), ""},
		"two introductions": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations = append(s.Operations, Operation{Name: "EXCHANGE_ID", Count: 2})
		}), "SessionFlaps"},
		"two rejected sessions": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations = append(s.Operations, Operation{Name: "CREATE_SESSION", Count: 2, Errors: 2})
		}), "SessionFlaps"},
		"one introduction": {nfs("NFSv4.1", func(s *Sample) {
			s.Operations = append(s.Operations, Operation{Name: "EXCHANGE_ID", Count: 1}, Operation{Name: "CREATE_SESSION", Count: 1})
		}), ""},

		"in sequence, 128 KiB":          {nfs("NFSv4.1", read(256, 256, 64)), "SmallReadAhead"},
		"in sequence, 1,024 KiB":        {nfs("NFSv4.1", read(131, 512, 64), readAhead(1024)), ""},
		"at random, 4 KiB":              {nfs("NFSv4.1", read(16384, 4, 64)), ""},
		"runs of 64 KiB, 15,360 KiB":    {nfs("NFSv4.1", read(680, 512, 64), readAhead(15360)), "LargeReadAhead"},
		"runs of 512 KiB, 128 KiB":      {nfs("NFSv4.1", read(384, 256, 64), readAhead(128)), ""},
		"nothing smaller is there":      {nfs("NFSv4.1", read(680, 512, 64), readAhead(128)), ""},
		"a rsize of 32 KiB":             {nfs("NFSv4.1", read(6000, 32, 187), option("rsize=32768")), "SmallTransfers"},
		"a wsize of 32 KiB":             {nfs("NFSv4.1", wrote(6000, 32, false), option("wsize=32768")), "SmallTransfers"},
		"small writes, each with fsync": {nfs("NFSv4.1", wrote(6000, 4, false), events(counters.Events{Syncs: 6000})), "SynchronousWrites"},
		"small writes past the cache":   {nfs("NFSv4.1", wrote(6000, 4, true)), "SynchronousWrites"},
		"small writes without waiting":  {nfs("NFSv4.1", wrote(6000, 4, false)), ""},
		"small writes, mounted sync":    {nfs("NFSv4.1", wrote(6000, 4, false), option("sync")), "SynchronousMount"},
		"large writes, each with fsync": {nfs("NFSv4.1", wrote(6000, 512, false), events(counters.Events{Syncs: 6000})), ""},
		"XFS waits for log buffers":     {nfs("xfs", log(counters.Log{Writes: 1000, NoBuffer: 25})), "LogBuffers"},
		"XFS has large log buffers":     {nfs("xfs", option("logbsize=256k"), log(counters.Log{Writes: 1000, NoBuffer: 25})), ""},
		"XFS waits for no log buffer":   {nfs("xfs", log(counters.Log{Writes: 1000, NoBuffer: 10})), ""},
		"SMB reports only the number":   {Sample{Server: "filer", Export: "/s", Protocol: "SMB3.1.1", Seconds: 60, Requests: 90000}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := evaluate(test.s)
			var got []string
			for _, f := range verdict.Findings {
				got = append(got, f.Rule)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q: %+v", got, test.want, verdict)
			}
			if verdict.Summary == "" {
				t.Error("no summary")
			}
		})
	}
}

// A verdict proposes a change if and only if a client setting helps.
func TestOnlyClientFindingsProposeChanges(t *testing.T) {
	changes := func(f Finding) bool {
		return f.Change.MountOptions != nil || f.Change.ReadAheadKiB != 0 || f.Change.Node != nil
	}
	for _, r := range Rules() {
		f, _ := r.apply(nfs("NFSv4.1", option("rsize=32768"), read(6000, 32, 187)))
		if (r.Cause == CauseClient) != changes(f) && r.ID != "SmallTransfers" {
			t.Errorf("%s with cause %s: got change %+v", r.ID, r.Cause, f.Change)
		}
		if f.Effect == "" || f.Seen == "" || f.Source == "" || r.Title == "" || r.Signature == "" || r.Cause == CauseClient && f.Against == "" {
			t.Errorf("%s: got missing texts in %+v", r.ID, f)
		}
	}
}

func TestEveryRuleHasACheck(t *testing.T) {
	all := Rules()
	for _, r := range all {
		if checks[r.ID] == nil || r.Title == "" || r.Signature == "" || r.Source == "" || r.Cause == "" {
			t.Errorf("%s: got %+v, check: %v", r.ID, r, checks[r.ID] != nil)
		}
	}
	if len(checks) != len(all) {
		t.Errorf("got %d checks for %d rules", len(checks), len(all))
	}
}
