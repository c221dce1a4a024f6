package serverhealth

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/counters"
)

// The samples here are synthetic, based on the kernel's source. The samples from virtual nodes are in the package of their reader.

var (
	start = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	filer = Key{Server: "filer1", Protocol: v1alpha1.ServerNFS}
	share = Key{Server: "smb1", Protocol: v1alpha1.ServerSMB}
)

const every = 10 * time.Second

// scene simulates one server with a sample every ten seconds.
type scene struct {
	t       *testing.T
	watch   Watch
	now     time.Time
	reading Reading
	batch   Batch
	last    Verdict
}

func newScene(t *testing.T, key Key, connections int) *scene {
	t.Helper()
	s := &scene{t: t, now: start, reading: Reading{Key: key, Activity: counters.Activity{Address: "10.0.0.1:2049"}}}
	for i := range connections {
		s.reading.Connections = append(s.reading.Connections, counters.Connection{ID: strconv.Itoa(i), Connects: 1})
	}
	return s
}

// step applies a change to the reading, and evaluates it.
func (s *scene) step(changes ...func(*Reading)) Verdict {
	s.t.Helper()
	r := s.reading
	r.Connections = append([]counters.Connection(nil), r.Connections...)
	for _, change := range changes {
		change(&r)
	}
	s.reading = r
	batch := s.batch
	batch.Readings = []Reading{r}
	s.batch = Batch{}
	verdicts := s.watch.Note(s.now, batch)
	s.now = s.now.Add(every)
	if len(verdicts) != 1 {
		s.t.Fatalf("got %d verdicts for one server", len(verdicts))
	}
	s.last = verdicts[0]
	return s.last
}

func (s *scene) ask(responded, refused, connected bool) {
	s.batch.Probes = append(s.batch.Probes, Probe{Key: s.reading.Key, At: s.now, Responded: responded, ConnectionRefused: refused, Connected: connected})
}

func (s *scene) steps(n int, changes ...func(*Reading)) Verdict {
	s.t.Helper()
	for range n {
		s.step(changes...)
	}
	return s.last
}

func (s *scene) want(state v1alpha1.ServerState, reason string) {
	s.t.Helper()
	if s.last.State != state || s.last.Reason != reason {
		s.t.Fatalf("at %s: got %s, %s (%s), want %s, %s", s.now.Sub(start), s.last.State, s.last.Reason, s.last.Message, state, reason)
	}
}

// work adds a request that gets an immediate response. send adds a request without a response.
func work(i int) func(*Reading) {
	return func(r *Reading) { r.Connections[i].Sends++; r.Connections[i].Responses++ }
}

func send(i int) func(*Reading) { return func(r *Reading) { r.Connections[i].Sends++ } }

func answer(i int) func(*Reading) { return func(r *Reading) { r.Connections[i].Responses++ } }

func reconnect(i int) func(*Reading) { return func(r *Reading) { r.Connections[i].Connects++ } }

func listed(requests ...counters.Request) func(*Reading) {
	return func(r *Reading) { r.Requests, r.RequestsKnown = requests, true }
}

func queued(queues ...counters.Queue) func(*Reading) { return func(r *Reading) { r.Queues = queues } }

func down(value bool) func(*Reading) {
	return func(r *Reading) {
		for i := range r.Connections {
			r.Connections[i].Down = value
		}
	}
}

func TestAServerWithoutResponsesIsSilentAMinuteAfterTheFirstRequest(t *testing.T) {
	s := newScene(t, filer, 1)
	s.steps(3, work(0))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	first := s.now
	s.step(send(0))
	for s.now.Before(first.Add(SilentAfter)) {
		s.step()
		s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	}
	s.step()
	s.want(v1alpha1.ServerSilent, v1alpha1.ServerReasonNoAnswer)
	if !s.last.Since.Equal(first) || s.last.Stuck != 1 {
		t.Errorf("got since %s with %d connections, want %s with 1", s.last.Since, s.last.Stuck, first)
	}
	if want := first.Add(-every); !s.last.LastResponse.Equal(want) {
		t.Errorf("got the last response at %s, want %s", s.last.LastResponse, want)
	}
	s.step(answer(0))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestAProbeFindsTheCause(t *testing.T) {
	for name, c := range map[string]struct {
		key                           Key
		tunnel                        bool
		responded, refused, connected bool
		state                         v1alpha1.ServerState
		reason                        string
		part                          string
	}{
		"no process accepts connections":  {key: filer, refused: true, state: v1alpha1.ServerSilent, reason: v1alpha1.ServerReasonConnectionRefused, part: "rejects connections at 10.0.0.1:2049"},
		"the tunnel's process is gone":    {key: filer, tunnel: true, refused: true, state: v1alpha1.ServerSilent, reason: v1alpha1.ServerReasonTunnelGone, part: "No process listens at 10.0.0.1:2049"},
		"no connection can be made":       {key: filer, state: v1alpha1.ServerSilent, reason: v1alpha1.ServerReasonUnreachable, part: "Cannot connect to 10.0.0.1:2049"},
		"a connection without a response": {key: filer, connected: true, state: v1alpha1.ServerSilent, reason: v1alpha1.ServerReasonNoAnswer, part: "accepts connections but does not respond"},
		"a new connection works": {
			key: filer, responded: true, connected: true, state: v1alpha1.ServerStuck, reason: v1alpha1.ServerReasonTransportStuck,
			part: "The server responds over a new connection, but not over the 1 connection of this node's mounts",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, c.key, 1)
			s.reading.Tunnel = c.tunnel
			s.steps(3, work(0))
			s.step(send(0))
			for range 8 {
				if s.step(); s.last.NeedsProbe {
					s.ask(c.responded, c.refused, c.connected)
				}
			}
			s.want(c.state, c.reason)
			if !strings.Contains(s.last.Message, c.part) {
				t.Errorf("got message %q, want %q in it", s.last.Message, c.part)
			}
		})
	}
}

func TestTheAgentProbesOnlyServersWithWaitingRequests(t *testing.T) {
	s := newScene(t, filer, 2)
	if s.steps(20, work(0)); s.last.NeedsProbe {
		t.Error("got a probe of a server that responds")
	}
	if s.step(send(1)); s.last.NeedsProbe {
		t.Error("got a probe for the first request without a response")
	}
	if s.steps(2); !s.last.NeedsProbe {
		t.Error("got no probe, although a request has waited for 20 s")
	}
}

func TestRepeatedReconnectsShowThatAServerIsGone(t *testing.T) {
	s := newScene(t, filer, 1)
	s.steps(3, work(0))
	// Without a connection, no request is sent: connects 2 to 35 in 75 s, receives frozen.
	s.steps(9, reconnect(0), reconnect(0))
	s.want(v1alpha1.ServerSilent, v1alpha1.ServerReasonNoAnswer)
}

func TestAnIdleMountIsNotAnswering(t *testing.T) {
	s := newScene(t, filer, 1)
	s.step()
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
	s.step(work(0))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	s.steps(29)
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	s.step()
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
	// The server closes idle connections, and the client connects for its next request.
	s.step(reconnect(0))
	s.steps(10)
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
}

func TestOneOfFourConnectionsIsStuck(t *testing.T) {
	others := []func(*Reading){work(0), work(1), work(2)}
	moving := func(r *Reading) {
		for i := range 3 {
			r.Queues[i].LastUsed++
		}
	}
	for name, evidence := range map[string][]func(*Reading){
		"by the counters, if the kernel reports no requests": {send(3)},
		"as the list of requests has it":                     {send(3), listed(counters.Request{ID: "7", Operation: "READ"})},
		"as the queues have it":                              {queued(counters.Queue{ID: "a"}, counters.Queue{ID: "b"}, counters.Queue{ID: "c"}, counters.Queue{ID: "d", LastUsed: 5, Pending: 2})},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, filer, 4)
			s.steps(3, append(others, work(3))...)
			s.step(append(others, evidence...)...)
			for range 6 {
				s.step(others...)
				if len(s.reading.Queues) > 0 {
					s.reading.Queues = append([]counters.Queue(nil), s.reading.Queues...)
					moving(&s.reading)
				}
			}
			s.want(v1alpha1.ServerStuck, v1alpha1.ServerReasonTransportStuck)
			if s.last.Stuck != 1 || s.last.Connections != 4 || !strings.Contains(s.last.Message, "No response over 1 of 4 connections") {
				t.Errorf("got %d of %d stuck: %s", s.last.Stuck, s.last.Connections, s.last.Message)
			}
			s.step(append(others, work(3), listed(), queued())...)
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
		})
	}
}

func TestAServerWithAFrozenDiskRespondsToOtherRequests(t *testing.T) {
	s := newScene(t, filer, 1)
	s.steps(3, work(0), listed())
	// The lease is renewed over the same connection; writes get no response.
	s.steps(7, work(0), listed(counters.Request{ID: "1/a", Operation: "WRITE"}, counters.Request{ID: "2/b", Operation: "COMMIT"}))
	s.want(v1alpha1.ServerStuck, v1alpha1.ServerReasonRequestsStuck)
	if !strings.Contains(s.last.Message, "requests of COMMIT, WRITE") || s.last.Waiting != 2 {
		t.Errorf("got %d requests: %s", s.last.Waiting, s.last.Message)
	}
	s.step(work(0), listed(counters.Request{ID: "3/c", Operation: "WRITE"}))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestACopyMayTakeMinutes(t *testing.T) {
	s := newScene(t, filer, 1)
	s.steps(30, work(0), listed(counters.Request{ID: "1", Operation: "COPY"}))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestAProcessThatWasKilledLeavesNothingSilent(t *testing.T) {
	for name, rest := range map[string]func(*Reading){
		"where the kernel lists requests": listed(),
		"where sysfs has the queues":      queued(counters.Queue{ID: "a"}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, filer, 1)
			s.steps(3, work(0))
			s.step(send(0))
			s.steps(12, rest)
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
		})
	}
}

func TestAKilledRequestNextToSuccessfulRequestsIsNotStuck(t *testing.T) {
	s := newScene(t, filer, 2)
	s.steps(3, work(0), work(1))
	s.step(send(0))
	for i := range 30 {
		s.step(work(1), listed(counters.Request{ID: strconv.Itoa(i), Operation: "READ"}))
		s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	}
}

func TestASoftMountThatGivesUpAndTriesAgainIsStillSilent(t *testing.T) {
	s := newScene(t, filer, 1)
	s.steps(3, work(0), listed())
	for i := range 40 {
		s.step(send(0), listed(counters.Request{ID: strconv.Itoa(i), Operation: "GETATTR"}))
	}
	s.want(v1alpha1.ServerSilent, v1alpha1.ServerReasonNoAnswer)
	s.step(listed())
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
}

func TestAKernelMessageNeedsNoMinute(t *testing.T) {
	s := newScene(t, filer, 1)
	s.step(queued(counters.Queue{ID: "a", LastUsed: 7, Pending: 1}))
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
	s.batch.Lines = []Line{{Server: "filer1", At: s.now}}
	s.step()
	s.want(v1alpha1.ServerSilent, v1alpha1.ServerReasonNoAnswer)
	s.batch.Lines = []Line{{Server: "filer1", At: s.now, Responds: true}}
	s.step()
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
}

// The kernel's log names a tunnel without its port.
func TestALineOfTheKernelCountsForTheOnlyTunnelOfItsName(t *testing.T) {
	tunnel := func(server, address string) Reading {
		return Reading{
			Key:      Key{server, v1alpha1.ServerNFS},
			Activity: counters.Activity{Address: address, Tunnel: true, Queues: []counters.Queue{{ID: "a", LastUsed: 7, Pending: 1}}},
		}
	}
	for name, test := range map[string]struct {
		line     string
		readings []Reading
		want     v1alpha1.ServerState
	}{
		"one tunnel":                 {"127.0.0.1", []Reading{tunnel("127.0.0.1:20049", "127.0.0.1:20049")}, v1alpha1.ServerSilent},
		"one tunnel on IPv6":         {"::1", []Reading{tunnel("[::1]:20049", "[::1]:20049")}, v1alpha1.ServerSilent},
		"one tunnel by name":         {"localhost", []Reading{tunnel("localhost:20049", "127.0.0.1:20049")}, v1alpha1.ServerSilent},
		"a server on the node":       {"::1", []Reading{tunnel("::1", "[::1]:2049")}, v1alpha1.ServerSilent},
		"a tunnel of another name":   {"127.0.0.2", []Reading{tunnel("127.0.0.1:20049", "127.0.0.1:20049")}, v1alpha1.ServerIdle},
		"several tunnels":            {"127.0.0.1", []Reading{tunnel("127.0.0.1:20049", "127.0.0.1:20049"), tunnel("127.0.0.1:20050", "127.0.0.1:20050")}, v1alpha1.ServerIdle},
		"a tunnel and a server":      {"127.0.0.1", []Reading{tunnel("127.0.0.1:20049", "127.0.0.1:20049"), tunnel("127.0.0.1", "127.0.0.1:2049")}, v1alpha1.ServerIdle},
		"tunnels of different names": {"127.0.0.1", []Reading{tunnel("127.0.0.1:20049", "127.0.0.1:20049"), tunnel("127.0.0.2:20050", "127.0.0.2:20050")}, v1alpha1.ServerSilent},
	} {
		t.Run(name, func(t *testing.T) {
			var w Watch
			if verdicts := w.Note(start, Batch{Readings: test.readings}); verdicts[0].State != v1alpha1.ServerIdle {
				t.Fatalf("got %s before the line", verdicts[0].State)
			}
			verdicts := w.Note(start.Add(time.Second), Batch{Readings: test.readings, Lines: []Line{{Server: test.line, At: start}}})
			check.Equal(t, "state", test.want, verdicts[0].State)
		})
	}
}

func TestAServerThatIsBackIsReportedBeforeTheKernelNotices(t *testing.T) {
	s := newScene(t, filer, 2)
	s.steps(3, work(0), work(1))
	s.step(send(0), send(1))
	for range 12 {
		s.ask(false, false, false)
		s.step()
	}
	s.want(v1alpha1.ServerSilent, v1alpha1.ServerReasonUnreachable)
	s.ask(true, false, true)
	s.step()
	if s.last.State == v1alpha1.ServerAnswering {
		t.Error("got a recovered server after a single response")
	}
	s.ask(true, false, true)
	s.step()
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonReconnecting)
	for s.watch.servers[filer].queries.back.isWithin(s.now, kernelRetries) {
		s.ask(true, false, true)
		s.step()
		s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonReconnecting)
	}
	s.ask(true, false, true)
	s.step()
	s.want(v1alpha1.ServerStuck, v1alpha1.ServerReasonTransportStuck)
	s.step(answer(0), answer(1))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestSMB(t *testing.T) {
	for name, c := range map[string]struct {
		play   func(*scene)
		state  v1alpha1.ServerState
		reason string
	}{
		"the session is down":           {func(s *scene) { s.steps(8, down(true)) }, v1alpha1.ServerSilent, v1alpha1.ServerReasonSessionDown},
		"it was down for half a minute": {func(s *scene) { s.steps(3, down(true)); s.steps(8, down(false)) }, v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering},
		"a request never gets a response": {
			func(s *scene) { s.steps(8, listed(counters.Request{ID: "9", Operation: "READ"})) }, v1alpha1.ServerSilent, v1alpha1.ServerReasonNoAnswer,
		},
		"a directory is watched": {func(s *scene) { s.steps(8, listed(counters.Request{ID: "9", Operation: "CHANGE_NOTIFY"})) }, v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering},
		"requests arrive and get responses": {
			func(s *scene) {
				for i := range 20 {
					s.step(listed(counters.Request{ID: strconv.Itoa(i)}))
				}
			}, v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering,
		},
		"a broken session that drops its requests has not responded": {
			func(s *scene) {
				s.steps(4, listed(counters.Request{ID: "9"}))
				s.steps(8, listed(), down(true))
			}, v1alpha1.ServerSilent, v1alpha1.ServerReasonSessionDown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, share, 1)
			s.step(listed())
			s.step(func(r *Reading) { r.Operations = 10 })
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
			c.play(s)
			s.want(c.state, c.reason)
		})
	}
}

func TestAServerThatKeepsLosingItsClientIsFlapping(t *testing.T) {
	identify := func(r *Reading) { r.Identified++ }
	s := newScene(t, filer, 1)
	s.reading.Identified = 40
	s.step(work(0))
	s.step(work(0), identify)
	s.step(work(0), identify)
	if s.last.Flapping {
		t.Error("got flapping after two identifications, as in a fail-over")
	}
	s.step(work(0), func(r *Reading) { r.RejectedSessions++ })
	if !s.last.Flapping {
		t.Error("got no flapping after three identifications in ten minutes")
	}
	s.steps(62, work(0))
	if s.last.Flapping {
		t.Error("got flapping after ten quiet minutes")
	}
}

func TestAWatchContinuesThePreviousWatch(t *testing.T) {
	s := newScene(t, filer, 1)
	since := start.Add(-10 * time.Minute)
	s.watch.Recall(Verdict{
		Key: filer, State: v1alpha1.ServerSilent, Reason: v1alpha1.ServerReasonUnreachable, Message: "as it was", Since: since, LastResponse: since.Add(-time.Second),
	})
	s.step(listed(counters.Request{ID: "1", Operation: "READ"}))
	s.want(v1alpha1.ServerSilent, v1alpha1.ServerReasonUnreachable)
	if !s.last.Since.Equal(since) {
		t.Errorf("got since %s, want %s", s.last.Since, since)
	}
	s.step(answer(0))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestAServerWithoutMountsIsRemoved(t *testing.T) {
	var w Watch
	w.Note(start, Batch{Readings: []Reading{{Key: filer}, {Key: share}}})
	if got := w.Note(start.Add(every), Batch{Readings: []Reading{{Key: share}}}); len(got) != 1 || got[0].Key != share {
		t.Errorf("got verdicts for %v", got)
	}
	check.Equal(t, "stored servers", 1, len(w.servers))
}

// sockets sets the sockets in the kernel's diagnostics: the retransmissions of the first segment by local port.
func sockets(repeats map[int]int) func(*Reading) {
	return func(r *Reading) {
		r.Sockets = nil
		for port, n := range repeats {
			r.Sockets = append(r.Sockets, Socket{Port: port, Repeats: n})
		}
	}
}

func TestSocketsDistinguishTheNetworkFromTheDisk(t *testing.T) {
	for name, c := range map[string]struct {
		repeats map[int]int
		reason  string
		part    string
	}{
		"one connection is dead":               {map[int]int{800: 0, 801: 9, 802: 0, 803: 1}, v1alpha1.ServerReasonTransportStuck, "1 of 4 connections no longer carry data (local port 801)"},
		"all requests have come to its host":   {map[int]int{800: 0, 801: 2, 802: 0, 803: 0}, v1alpha1.ServerReasonRequestsStuck, "not to requests of WRITE"},
		"without sockets, the counters decide": {nil, v1alpha1.ServerReasonTransportStuck, "No response over 1 of 4 connections"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, filer, 4)
			s.steps(3, work(0), work(1), work(2), work(3))
			s.step(work(0), work(1), work(2), send(3), listed(counters.Request{ID: "1", Operation: "WRITE"}))
			s.steps(6, work(0), work(1), work(2), sockets(c.repeats))
			s.want(v1alpha1.ServerStuck, c.reason)
			if !strings.Contains(s.last.Message, c.part) {
				t.Errorf("got message %q, want %q in it", s.last.Message, c.part)
			}
		})
	}
}

func TestAServerThatRespondsOnlyToNewConnectionsHasAFrozenDiskIfItsHostAcknowledgesAll(t *testing.T) {
	s := newScene(t, filer, 1)
	s.steps(3, work(0))
	s.step(send(0), listed(counters.Request{ID: "1", Operation: "WRITE"}), sockets(map[int]int{800: 0}))
	for range 8 {
		if s.step(); s.last.NeedsProbe {
			s.ask(true, false, true)
		}
	}
	s.want(v1alpha1.ServerStuck, v1alpha1.ServerReasonRequestsStuck)
	if want := "The server's host accepts requests of WRITE over the 1 connection of this node's mounts, but the server does not respond"; !strings.HasPrefix(s.last.Message, want) {
		t.Errorf("got message %q", s.last.Message)
	}
}

// handles sets the request counters of one mount's file handle.
func handles(ended, inErrors uint64) func(*Reading) {
	return func(r *Reading) {
		r.Handles = []counters.HandleRequests{{MountPoint: "/mnt/a", Ended: ended, InErrors: inErrors}}
	}
}

func TestStaleHandles(t *testing.T) {
	s := newScene(t, filer, 1)
	// Failures before the first reading do not count.
	s.steps(3, work(0), handles(100, 90))
	for i := range uint64(6) {
		s.step(work(0), handles(101+i, 91+i))
		s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	}
	since := s.now.Add(-6 * every)
	s.step(work(0), handles(107, 97))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonStaleHandles)
	if !s.last.Since.Equal(since) || len(s.last.Stale) != 1 || s.last.Stale[0] != "/mnt/a" || !strings.Contains(s.last.Message, "every request of 1 mount for open or known files fails") {
		t.Errorf("got since %s (want %s), %v: %s", s.last.Since, since, s.last.Stale, s.last.Message)
	}
	s.step(work(0), handles(108, 97))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestFailingHandlesNextToValidOnesAreNotStale(t *testing.T) {
	for name, step := range map[string]func(i uint64) func(*Reading){
		"some fail, as of files that others removed": func(i uint64) func(*Reading) { return handles(100+2*i, i) },
		"a new mount each time":                      func(i uint64) func(*Reading) { return handles(10-i%2, 10-i%2) },
		"two fail, without further requests":         func(i uint64) func(*Reading) { return handles(100+min(i, 2), min(i, 2)) },
		"no requests":                                func(uint64) func(*Reading) { return handles(100, 100) },
		"all has failed before, and one does later":  func(i uint64) func(*Reading) { return handles(100+i/10, 100+i/10) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, filer, 1)
			for i := range uint64(20) {
				s.step(work(0), step(i))
			}
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
		})
	}
}

func TestStaleHandlesOfAMountWithoutRequestsExpire(t *testing.T) {
	s := newScene(t, filer, 1)
	for i := range uint64(10) {
		s.step(work(0), handles(100+i, i))
	}
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonStaleHandles)
	s.steps(61, work(0))
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
}

func TestAServerThatRespondedToThePreviousWatchIsNotIdleAtOnce(t *testing.T) {
	s := newScene(t, filer, 1)
	lastResponse := start.Add(-time.Hour)
	s.watch.Recall(Verdict{Key: filer, State: v1alpha1.ServerAnswering, Since: lastResponse, LastResponse: lastResponse})
	s.steps(30)
	s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	if !s.last.LastResponse.Equal(lastResponse) || !s.last.Since.Equal(lastResponse) {
		t.Errorf("got the last response at %s, since %s, want only observed times", s.last.LastResponse, s.last.Since)
	}
	s.step()
	s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
}

func TestATunnelWithoutItsListenerIsFoundBeforeAnyRequest(t *testing.T) {
	gone := func(r *Reading) { r.Tunnel, r.Gone = true, true }
	taken := func(r *Reading) { r.Tunnel, r.Taken = true, true }
	back := func(r *Reading) { r.Gone, r.Taken = false, false }
	minute := int(SilentAfter / every)
	for name, c := range map[string]struct {
		change func(*Reading)
		reason string
		part   string
	}{
		"no listener":        {gone, v1alpha1.ServerReasonTunnelGone, "No process listens at 10.0.0.1:2049"},
		"another's listener": {taken, v1alpha1.ServerReasonTunnelTaken, "Only a process of a user other than root listens at 10.0.0.1:2049"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, filer, 1)
			s.steps(2, work(0))
			// A response from before does not count.
			s.ask(true, false, true)
			s.step(work(0))
			broke := s.now
			s.steps(minute, c.change)
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
			s.step(c.change)
			s.want(v1alpha1.ServerSilent, c.reason)
			if !s.last.Since.Equal(broke) || !strings.Contains(s.last.Message, c.part) {
				t.Errorf("got since %s: %s; want %s: %s", s.last.Since, s.last.Message, broke, c.part)
			}
			// The next agent continues with the state.
			former := s.last
			s.watch = Watch{}
			s.watch.Recall(former)
			s.step(c.change)
			s.want(v1alpha1.ServerSilent, c.reason)
			s.step(back)
			s.step(work(0))
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
		})
	}
	t.Run("responses arrive, so the mounts are in another network namespace", func(t *testing.T) {
		s := newScene(t, filer, 1)
		s.step(gone)
		s.step(work(0))
		for range 3 * minute {
			s.step()
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
		}
	})
	t.Run("no listener was ever visible, and nothing is requested", func(t *testing.T) {
		for _, change := range []func(*Reading){gone, taken} {
			s := newScene(t, filer, 1)
			s.steps(3*minute, change)
			s.want(v1alpha1.ServerIdle, v1alpha1.ServerReasonNotAsked)
		}
	})
	t.Run("the storage behind the listener of another user stops", func(t *testing.T) {
		s := newScene(t, filer, 1)
		s.steps(2, taken)
		s.step(taken, work(0))
		for range 2 * minute {
			s.step(taken, send(0))
		}
		if s.last.State != v1alpha1.ServerSilent || s.last.Reason == v1alpha1.ServerReasonTunnelTaken {
			t.Errorf("got %s, %s (%s), want Silent for another reason", s.last.State, s.last.Reason, s.last.Message)
		}
	})
	t.Run("the listener of another user forwards requests", func(t *testing.T) {
		s := newScene(t, filer, 1)
		s.steps(2, work(0))
		for range 2 * minute {
			if s.step(taken); s.last.NeedsProbe {
				s.ask(true, false, true)
			}
			s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
		}
	})
	t.Run("a tunnel that restarts within a minute", func(t *testing.T) {
		s := newScene(t, filer, 1)
		s.steps(2, work(0))
		for range 3 {
			s.steps(minute/2, gone)
			s.step(back)
		}
		s.want(v1alpha1.ServerAnswering, v1alpha1.ServerReasonAnswering)
	})
}
