package sample

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/recommend"
)

var update = flag.Bool("update", false, "write the golden files")

// machine returns one state until the window has passed, and another one after it.
type machine struct {
	clock         *testclock.FakeClock
	before, after state
	start         time.Time
}

type state struct {
	blocks      []mounts.Superblock
	otherMounts []mounts.Mount
	sockets     []sockets.Socket
	log         counters.Log
	err         error
}

func (m machine) now() state {
	if m.clock.Now().After(m.start) {
		return m.after
	}
	return m.before
}

func (m machine) Read() (mounts.Table, error) {
	all := m.now().otherMounts
	for _, b := range m.now().blocks {
		all = append(all, b.Mount)
	}
	return mounts.Table{Mounts: all}, m.now().err
}
func (m machine) Superblocks() ([]mounts.Superblock, error) { return m.now().blocks, m.now().err }
func (m machine) Log(mounts.Mount) (counters.Log, bool)     { return m.now().log, true }

const window = time.Minute

// take takes a sample whose window starts and ends with the given states.
func take(t *testing.T, before, after state) ([]recommend.Sample, error) {
	t.Helper()
	start := time.Unix(1000, 0)
	clock := testclock.NewFakeClock(start)
	m := machine{clock: clock, before: before, after: after, start: start}
	sampler := Sampler{Mounts: m, Sockets: m.listSockets, Clock: clock}
	go func() {
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clock.Step(window)
	}()
	return sampler.Take(context.Background(), window)
}

func (m machine) listSockets() ([]sockets.Socket, error) { return m.now().sockets, nil }

// socketsOf returns sockets to two servers, with n segments on each of them.
func socketsOf(n uint64) []sockets.Socket {
	socket := func(local int, remote string, trip time.Duration) sockets.Socket {
		return sockets.Socket{
			Local: local, Remote: netip.MustParseAddrPort(remote), MinRoundTrip: trip * time.Microsecond,
			Segments: counters.Network{InSegments: 4 * n, OutSegments: 3 * n, Retransmitted: 2 * n, OutOfOrder: n},
		}
	}
	return []sockets.Socket{
		socket(700, "10.0.0.3:2049", 1600), socket(701, "10.0.0.3:2049", 1400), socket(702, "10.0.0.3:2049", 0),
		socket(703, "10.0.0.3:111", 100), socket(704, "10.0.0.4:2049", 100),
	}
}

// listed returns a mount whose directory of 5,000 files was listed n times.
func listed(n uint64) mounts.Superblock {
	return mounts.Superblock{
		Mount: mounts.Mount{
			Server: "10.0.0.3", Export: "/exports/tools", MountPoint: "/mnt/tools", Device: "0:52", FSType: "nfs4", Protocol: "NFSv4.1", Volume: "tools",
			Options: []string{"rw", "acregmin=3"}, ReadAheadKiB: 128, SlotLimit: 65536, Client: "10.0.0.3:2049 4.1 tcp", Age: int(100 + n),
		},
		SessionSlots: 64,
		Bytes:        counters.Bytes{Read: 10 * n, WireRead: 9 * n, Written: 8 * n, DirectRead: 7 * n, DirectWritten: 6 * n, WireWritten: 5 * n},
		Events:       counters.Events{DataInvalidations: n, AttributeInvalidations: 2 * n, Opens: 2 * n, Listings: 3 * n, Flushes: 4 * n, Syncs: 5 * n},
		Transports: []mounts.TransportCounters{{
			Connection: counters.Connection{Sends: 5010*n + 1, Responses: 5010 * n, Connects: 1, Idle: 1500 * time.Millisecond}, Backlog: 3 * n, Sending: 4 * n,
		}},
		Operations: []mounts.Operation{
			{
				Name: "GETATTR", Count: 5000 * n, Transmissions: 5000 * n, BytesSent: 1e6 * n, BytesReceived: 1e6 * n,
				Queue: time.Duration(n) * 100 * time.Millisecond, RoundTrip: time.Duration(n) * 5 * time.Second, Execution: time.Duration(n) * 6 * time.Second, Errors: n,
			},
			{Name: "NULL", Count: 1, Transmissions: 1},
			{Name: "READDIR", Count: 10 * n, Transmissions: 10 * n, BytesReceived: 4e5 * n, RoundTrip: time.Duration(n) * 50 * time.Millisecond},
		},
	}
}

func TestTake(t *testing.T) {
	share := func(operations uint64) mounts.Mount {
		return mounts.Mount{Server: "filer", Export: "/share", MountPoint: "/mnt/s", Device: "0:60", FSType: "cifs", Protocol: "SMB3.1.1", Operations: operations, Age: -1}
	}
	disk := mounts.Mount{MountPoint: "/mnt/d1", Device: "254:0", FSType: "xfs", Protocol: "xfs", Age: -1}
	added := listed(1)
	added.Device, added.MountPoint = "0:70", "/mnt/new"
	before := state{
		blocks: []mounts.Superblock{listed(2)}, otherMounts: []mounts.Mount{share(100), disk}, sockets: socketsOf(10)[:2],
		log: counters.Log{Writes: 5},
	}
	after := state{
		blocks: []mounts.Superblock{listed(5), added}, otherMounts: []mounts.Mount{share(350), disk},
		sockets: socketsOf(15), log: counters.Log{Writes: 205, NoBuffer: 7, NoSpace: 1},
	}
	got, err := take(t, before, after)
	check.NoError(t, err)
	// Two connections sent 5 segments each, and a new one 15.
	network := counters.Network{InSegments: 100, OutSegments: 75, Retransmitted: 50, OutOfOrder: 25}
	want := []recommend.Sample{
		{MountPoint: "/mnt/d1", Protocol: "xfs", Seconds: 60, Log: counters.Log{Writes: 200, NoBuffer: 7, NoSpace: 1}},
		{
			Server: "10.0.0.3", Export: "/exports/tools", MountPoint: "/mnt/tools", Volume: "tools", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"},
			ReadAheadKiB: 128, SlotLimit: 65536, SessionSlots: 64, MinRoundTripMicros: 1400, Seconds: 60, Network: network,
			Operations: []recommend.Operation{
				{
					Name: "GETATTR", Count: 15000, Transmissions: 15000, Errors: 3, BytesSent: 3e6, BytesReceived: 3e6,
					QueueMillis: 300, RoundTripMillis: 15000, ExecutionMillis: 18000,
				},
				{Name: "READDIR", Count: 30, Transmissions: 30, BytesReceived: 12e5, RoundTripMillis: 150},
			},
			Bytes:       counters.Bytes{Read: 30, WireRead: 27, Written: 24, DirectRead: 21, DirectWritten: 18, WireWritten: 15},
			Events:      counters.Events{DataInvalidations: 3, AttributeInvalidations: 6, Opens: 6, Listings: 9, Flushes: 12, Syncs: 15},
			Connections: []recommend.Connection{{Sends: 15030, Answers: 15030, Backlog: 9, Sending: 12, IdleSeconds: 1}},
		},
		{Server: "filer", Export: "/share", MountPoint: "/mnt/s", Protocol: "SMB3.1.1", Seconds: 60, Requests: 250},
	}
	check.Equal(t, "result", want, got)
	checkGolden(t, "report", Evaluate(window, advice.Node{}, got))
}

// Counters of another mount, or counters that decreased, are invalid for the window.
func TestTakeOfAnotherMount(t *testing.T) {
	younger := listed(5)
	younger.Age = 3
	elsewhere := listed(5)
	elsewhere.Server = "10.0.0.4"
	for name, after := range map[string]mounts.Superblock{"mounted again": younger, "of another server": elsewhere} {
		got, err := take(t, state{blocks: []mounts.Superblock{listed(2)}}, state{blocks: []mounts.Superblock{after}})
		if err != nil || len(got) != 0 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	reset := listed(1)
	reset.Age = 200
	got, err := take(t, state{blocks: []mounts.Superblock{listed(2)}}, state{blocks: []mounts.Superblock{reset}})
	if err != nil || len(got) != 1 || got[0].Operations != nil || got[0].Bytes != (counters.Bytes{}) {
		t.Errorf("counters that were reset: got %+v, error %v", got, err)
	}
}

func TestTakeFails(t *testing.T) {
	broken := errors.New("no counters")
	if _, err := take(t, state{err: broken}, state{}); !errors.Is(err, broken) {
		t.Errorf("before the window: got error %v", err)
	}
	if _, err := take(t, state{}, state{err: broken}); !errors.Is(err, broken) {
		t.Errorf("after the window: got error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	if _, err := (Sampler{Mounts: machine{clock: clock}, Sockets: machine{clock: clock}.listSockets, Clock: clock}).Take(ctx, window); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWriteNothing(t *testing.T) {
	var b bytes.Buffer
	if err := Evaluate(window, advice.Node{}, nil).Write(&b, "text"); err != nil || b.Len() == 0 {
		t.Errorf("%q, %v", b.String(), err)
	}
	if err := Evaluate(window, advice.Node{}, nil).Write(&b, "xml"); err == nil {
		t.Error("no error for the format xml")
	}
}

func checkGolden(t *testing.T, name string, r Report) {
	t.Helper()
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		check.NoError(t, r.Write(&b, format))
		file := filepath.Join("testdata", name+"."+format)
		if *update {
			check.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
		}
		want, err := os.ReadFile(file)
		check.NoError(t, err)
		check.Equal(t, file, string(want), b.String())
	}
}

// The kernel of the machine counts: a change that it handles badly needs a decision by a user.
func TestEvaluateWarnsOfTheKernel(t *testing.T) {
	data, err := os.ReadFile("../../tuning/recommend/testdata/counterexamples/one-connection-full-of-writes-on-a-kernel-that-loses-them.json")
	check.NoError(t, err)
	var c struct {
		Sample          recommend.Sample
		Kernel, Warning string
	}
	check.NoError(t, json.Unmarshal(data, &c))
	for kernel, want := range map[string]bool{"": false, c.Kernel: true} {
		mount := Evaluate(window, advice.Node{Name: "this machine", Kernel: kernel}, []recommend.Sample{c.Sample}).Mounts[0]
		if got := strings.Contains(mount.Verdict.Findings[0].Against, c.Warning); got != want || mount.Node != "" {
			t.Errorf("kernel %q: got findings %+v of node %q, want a warning: %t", kernel, mount.Verdict.Findings, mount.Node, want)
		}
	}
}
