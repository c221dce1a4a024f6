package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/counters"
)

// watched is a world with one server and its counters in the kernel.
type watched struct {
	*world
	counters []mounts.ServerCounters
	lines    []kernellog.Line
	err      error
	readings int
	askErr   error
	probes   int
	// sockets counts its reads. clientName is the name of the NFSv4 client.
	sockets    func() []sockets.Socket
	clientName string
}

func newWatched(t *testing.T) (*watched, *Agent) {
	t.Helper()
	f := &watched{world: newWorld(t), sockets: func() []sockets.Socket { return nil }}
	f.counters = []mounts.ServerCounters{{
		Server: "filer1", Protocol: connect.NFS,
		Ask:      connect.Server{Name: "filer1", Address: "10.0.0.1:2049", Protocol: connect.NFS, Version: 4},
		Activity: counters.Activity{Address: "10.0.0.1:2049", Connections: []counters.Connection{{ID: "0", Sends: 5, Responses: 5, Idle: time.Second}}},
	}}
	f.mounts = []mounts.Mount{
		{MountPoint: "/a", FSType: "nfs4", Server: "filer1", Volume: "pv2", PodUIDs: []string{"u2", "u1"}, Age: -1, Device: "0:1"},
		{MountPoint: "/b", FSType: "nfs4", Server: "filer1", Volume: "pv1", PodUIDs: []string{"u1"}, Age: -1, Device: "0:2"},
		{MountPoint: "/c", FSType: "nfs4", Server: "filer2", Volume: "pv3", PodUIDs: []string{"u3"}, Age: -1, Device: "0:3"},
		{MountPoint: "/d", FSType: "cifs", Server: "filer1", Volume: "pv4", PodUIDs: []string{"u4"}, Age: -1, Device: "0:4"},
	}
	f.declare(setting(rmem, "16777216"))
	f.real = func() Host {
		h := f.host()
		h.AskServer = func(context.Context, connect.Server) error { f.probes++; return f.askErr }
		h.Health = servers.Reader{
			Counters: func() ([]mounts.ServerCounters, error) {
				f.readings++
				all := append([]mounts.ServerCounters(nil), f.counters...)
				for i := range all {
					all[i].Connections = append([]counters.Connection(nil), all[i].Connections...)
				}
				return all, f.err
			},
			Log:        func() ([]kernellog.Line, error) { return f.lines, nil },
			Sockets:    func() ([]sockets.Socket, error) { return f.sockets(), nil },
			ClientName: func() string { return f.clientName },
		}
		return h
	}
	return f, f.agent()
}

// play advances the time in steps of five seconds, like the agent.
func (f *watched) play(a *Agent, d time.Duration) {
	f.t.Helper()
	for range d / (5 * time.Second) {
		f.runPass(a)
		f.clock.Step(5 * time.Second)
	}
}

func (f *watched) server() v1alpha1.ServerStatus {
	f.t.Helper()
	if len(f.clientNode.Status.Servers) != 1 {
		f.t.Fatalf("got servers %+v", f.clientNode.Status.Servers)
	}
	return f.clientNode.Status.Servers[0]
}

func (f *watched) send()   { f.counters[0].Connections[0].Sends++ }
func (f *watched) answer() { f.counters[0].Connections[0].Responses++ }

func TestASilentServerIsReportedWithVolumesAndPodsUntilItResponds(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, 30*time.Second)
	if s := f.server(); s.State != v1alpha1.ServerAnswering || s.Connections != 1 || s.LastAnswerTime == nil || len(s.Volumes) > 0 {
		t.Fatalf("state at first: got %+v", s)
	}
	f.send()
	f.askErr = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	first := f.clock.Now()
	for f.server().State != v1alpha1.ServerSilent {
		if f.clock.Since(first) > 90*time.Second {
			t.Fatalf("the silent server is not reported after %s: %+v", f.clock.Since(first), f.server())
		}
		f.play(a, 5*time.Second)
	}
	if early := f.clock.Since(first); early < time.Minute {
		t.Errorf("the silent server is reported too early: after %s", early)
	}
	got := f.server()
	if got.Since == nil || got.Since.Sub(first) > 15*time.Second || got.Since.Time.Before(first) {
		t.Errorf("since: got %v, first request at %v", got.Since, first)
	}
	got.Since, got.LastAnswerTime = nil, nil
	want := v1alpha1.ServerStatus{
		Server: "filer1", Protocol: v1alpha1.ServerNFS, Address: "10.0.0.1:2049", State: v1alpha1.ServerSilent, Reason: v1alpha1.ServerReasonConnectionRefused,
		Message:     "The host is up but rejects connections at 10.0.0.1:2049; check that the storage service runs",
		Connections: 1, StuckConnections: 1, Volumes: []string{"pv1", "pv2"}, PodUIDs: []string{"u1", "u2"},
	}
	check.Equal(t, "status", want, got)
	f.answer()
	f.play(a, 15*time.Second)
	if s := f.server(); s.State != v1alpha1.ServerAnswering || s.PodUIDs != nil {
		t.Errorf("15 s after the response: got %+v", s)
	}
}

func TestARestartedAgentKeepsSilentServers(t *testing.T) {
	f, a := newWatched(t)
	f.counters[0].RequestsKnown = true
	f.play(a, 30*time.Second)
	f.counters[0].Requests = []counters.Request{{ID: "1", Operation: "READ"}}
	f.askErr = errors.New("no answer")
	f.play(a, 90*time.Second)
	before := f.server()
	if before.State != v1alpha1.ServerSilent {
		t.Fatalf("got %+v", before)
	}
	writes := f.writes
	f.play(f.agent(), 2*time.Minute)
	check.Equal(t, "after a restart", before, f.server())
	if f.writes > writes+1 {
		t.Errorf("got %d writes, want at most 1", f.writes-writes)
	}
	// The report of an agent from before the boot describes other connections.
	f.boot()
	f.counters[0].Requests = nil
	f.play(f.agent(), 30*time.Second)
	if s := f.server(); s.State != v1alpha1.ServerAnswering {
		t.Errorf("after a boot: got %+v", s)
	}
}

func TestAServerThatRespondsCausesNoWrites(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, time.Minute)
	writes := f.writes
	for range 10 * 6 {
		f.send()
		f.answer()
		f.play(a, 10*time.Second)
	}
	for range 50 * 6 {
		f.play(a, 10*time.Second)
		if f.clock.Now().Second() < 10 {
			// NFSv4 sends such requests to keep its lease.
			f.send()
			f.answer()
		}
	}
	if f.writes != writes {
		t.Errorf("got %d writes in an hour", f.writes-writes)
	}
	// The next agent, which has received no response, reports the same.
	before := f.server()
	f.play(f.agent(), 2*time.Minute)
	if diff := cmp.Diff(before, f.server()); diff != "" || f.writes > writes+1 {
		t.Errorf("got %d writes after a restart (-before +after):\n%s", f.writes-writes, diff)
	}
}

func TestAServerThatRespondsToSomeRequestsCausesNoWrites(t *testing.T) {
	f, a := newWatched(t)
	f.counters[0].RequestsKnown = true
	f.play(a, time.Minute)
	f.counters[0].Requests = []counters.Request{{ID: "1", Operation: "READ"}}
	for range 12 {
		f.send()
		f.answer()
		f.play(a, 10*time.Second)
	}
	if s := f.server(); s.State != v1alpha1.ServerStuck {
		t.Fatalf("got %+v", s)
	}
	writes := f.writes
	for range 30 {
		f.send()
		f.answer()
		f.play(a, 10*time.Second)
	}
	if f.writes != writes {
		t.Errorf("got %d writes in five minutes", f.writes-writes)
	}
}

func TestTheLastResponseIsUpdatedOnlyWithTheState(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, time.Minute)
	first := f.server().LastAnswerTime
	f.send()
	f.answer()
	f.play(a, time.Minute)
	if s := f.server(); !s.LastAnswerTime.Equal(first) {
		t.Errorf("last response: changed from %s to %s without a change of the state", first, s.LastAnswerTime)
	}
	f.send()
	f.askErr = errors.New("no answer")
	last := f.clock.Now()
	f.play(a, 2*time.Minute)
	if s := f.server(); s.State != v1alpha1.ServerSilent || !s.LastAnswerTime.After(first.Time) || s.LastAnswerTime.After(last) {
		t.Errorf("silent since %s, last response at %s: %+v", last, s.LastAnswerTime, s)
	}
}

func TestSocketsAreReadOnlyWhileRequestsAreOverdue(t *testing.T) {
	f, a := newWatched(t)
	read := 0
	f.sockets = func() []sockets.Socket {
		read++
		return []sockets.Socket{
			{Local: 801, Remote: netip.MustParseAddrPort("10.0.0.1:2049"), Repeats: 9},
			{Local: 802, Remote: netip.MustParseAddrPort("10.0.0.1:2049")},
			{Local: 803, Remote: netip.MustParseAddrPort("10.0.0.1:22"), Repeats: 9},
		}
	}
	f.counters[0].Connections = append(f.counters[0].Connections, counters.Connection{ID: "1"})
	f.play(a, 5*time.Minute)
	if read > 0 {
		t.Errorf("got %d reads without pending requests", read)
	}
	f.counters[0].Connections[1].Sends++
	for range 12 {
		f.send()
		f.answer()
		f.play(a, 10*time.Second)
	}
	if s := f.server(); s.Reason != v1alpha1.ServerReasonTransportStuck || !strings.Contains(s.Message, "1 of 2 connections no longer carry data (local port 801)") {
		t.Errorf("got %+v", s)
	}
}

func TestVolumesWhoseHandlesAreStaleAreNamed(t *testing.T) {
	f, a := newWatched(t)
	handles := func(a, b uint64) []counters.HandleRequests {
		return []counters.HandleRequests{{MountPoint: "/a", Ended: 100 + a, InErrors: a}, {MountPoint: "/b", Ended: 100 + b}}
	}
	for i := range uint64(12) {
		f.counters[0].Handles = handles(i, i)
		f.send()
		f.answer()
		f.play(a, 10*time.Second)
	}
	s := f.server()
	if s.State != v1alpha1.ServerAnswering || s.Reason != v1alpha1.ServerReasonStaleHandles {
		t.Fatalf("got %+v", s)
	}
	check.Equal(t, "volumes", []string{"pv2"}, s.Volumes)
	check.Equal(t, "pods", []string{"u1", "u2"}, s.PodUIDs)
}

func TestTheNameOfTheNFSv4ClientIsReported(t *testing.T) {
	f, a := newWatched(t)
	f.clientName = "node1"
	f.play(a, 30*time.Second)
	check.Equal(t, "NFSv4 client name", "node1", f.clientNode.Status.NFS4ClientName)
	f.clientName = ""
	f.play(a, 30*time.Second)
	check.Equal(t, "NFSv4 client name after the last unmount", "", f.clientNode.Status.NFS4ClientName)
}

func TestHealthProbesRespondWhileAPassHangs(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, 10*time.Second)
	hangs, release, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	read := f.real
	f.real = func() Host {
		h := read()
		h.Bootloader = func() loader.Detection {
			close(hangs)
			<-release
			return loader.Detection{}
		}
		return h
	}
	stuck := f.agent()
	check.NoError(t, stuck.reporter.Announce(t.Context(), f.clientNode.Status, ""))
	go func() {
		defer close(finished)
		f.runPass(stuck)
	}()
	<-hangs
	// Probes that wait for the pass never return, and go test shows where.
	if !stuck.Alive() || !stuck.Ready() {
		t.Error("an agent whose pass has just started is reported as stuck")
	}
	close(release)
	<-finished
}

func TestAStuckReadingDoesNotBlockTheLoop(t *testing.T) {
	f, a := newWatched(t)
	hung := 0
	a.servers.Start = func(func()) { hung++ }
	f.play(a, 5*time.Minute)
	check.Equal(t, "readings at the same time", 1, hung)
	if f.state(rmem) != v1alpha1.SettingInSync {
		t.Errorf("the rest of the agent does not continue: state %s", f.state(rmem))
	}
}

func TestAFailedReadingKeepsTheReportedState(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, 30*time.Second)
	before := f.server()
	f.err = errors.New("permission denied")
	f.play(a, 2*time.Minute)
	check.Equal(t, "result", before, f.server())
}

func TestOnlyServersWithOverdueRequestsAreTested(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, 5*time.Minute)
	if f.probes > 0 {
		t.Errorf("got %d requests", f.probes)
	}
	f.send()
	f.play(a, time.Minute)
	if f.probes == 0 {
		t.Error("got no request to the server")
	}
}

func TestTheKernelsLogCounts(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, 30*time.Second)
	f.send()
	f.lines = []kernellog.Line{{Server: "filer1"}}
	f.play(a, 30*time.Second)
	if s := f.server(); s.State != v1alpha1.ServerSilent {
		t.Errorf("got %+v", s)
	}
}

func TestServerMetrics(t *testing.T) {
	f, a := newWatched(t)
	f.play(a, 30*time.Second)
	handler, err := metrics.NewHandler(a.Metrics()...)
	check.NoError(t, err)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, want := range []string{
		`storageclient_agent_server_state{protocol="NFS",reason="Answering",server="filer1",state="Answering"} 1`,
		`storageclient_agent_server_connections{protocol="NFS",server="filer1"} 1`,
		`storageclient_agent_server_requests_in_flight{protocol="NFS",server="filer1"} 0`,
		`storageclient_agent_server_waiting_requests{protocol="NFS",server="filer1"} 0`,
		`storageclient_agent_server_last_answer_timestamp_seconds{protocol="NFS",server="filer1"} 1.699999999e+09`,
	} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, answer.Body)
		}
	}
}
