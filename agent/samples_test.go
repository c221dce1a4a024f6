package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/recommend"
)

// sampler takes the samples of a machine. The test ends the window.
type sampler struct {
	windows []time.Duration
	samples []recommend.Sample
	err     error
	// pending is the work that runs in parallel to the loop of the agent.
	pending []func()
}

func (c *sampler) read(ctx context.Context) ([]recommend.Sample, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return c.samples, c.err
}

// end finishes the windows in progress.
func (c *sampler) end() {
	for _, f := range c.pending {
		f()
	}
	c.pending = nil
}

func withCounters(w *world, c *sampler) *Agent {
	w.real = func() Host {
		h := w.host()
		h.Sample = func(ctx context.Context, window time.Duration) ([]recommend.Sample, error) {
			c.windows = append(c.windows, window)
			return c.read(ctx)
		}
		return h
	}
	a := w.agent()
	a.sample.Start = func(f func()) { c.pending = append(c.pending, f) }
	return a
}

func (w *world) sampleOrder(id string) *v1alpha1.NodeSample {
	return &v1alpha1.NodeSample{ID: id, Seconds: 60, Volumes: []string{"pv-1"}, StartBefore: ptr.To(metav1.NewTime(w.clock.Now().Add(time.Minute)))}
}

func (w *world) ask(order *v1alpha1.NodeSample) {
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Sample = order })
}

func (w *world) sample() v1alpha1.NodeSampleStatus {
	if s := w.clientNode.Status.Sample; s != nil {
		return *s
	}
	return v1alpha1.NodeSampleStatus{}
}

func listed(volume string) recommend.Sample {
	return recommend.Sample{
		Server: "filer", Export: "/a", MountPoint: "/mnt/" + volume, Volume: volume, Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"}, Seconds: 60,
		Operations: []recommend.Operation{{Name: "GETATTR", Count: 5000}},
	}
}

func TestASampleIsTakenOnceAndReported(t *testing.T) {
	w, c := newWorld(t), &sampler{samples: []recommend.Sample{listed("pv-2"), listed("pv-1")}}
	a := withCounters(w, c)
	w.declare(setting(rmem, "16777216"))
	w.runPass(a)
	hash, applies := w.clientNode.Status.Hash, w.applies
	w.ask(w.sampleOrder("s1"))
	w.runPass(a)
	if s := w.sample(); s.ID != "s1" || s.Phase != v1alpha1.SampleRunning || s.StartTime == nil || s.Mounts != nil {
		t.Fatalf("sample: got %+v", s)
	}
	w.clock.Step(time.Minute)
	c.end()
	w.runPass(a)
	s := w.sample()
	want := []v1alpha1.MountSample{{
		MountPoint: "/mnt/pv-1", Volume: "pv-1", Server: "filer", Export: "/a", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"},
		Operations: []v1alpha1.OperationSample{{Name: "GETATTR", Count: 5000}},
	}}
	if diff := cmp.Diff(want, s.Mounts); diff != "" || s.Phase != v1alpha1.SampleFinished || s.Milliseconds != 60000 || s.Message != "" {
		t.Fatalf("sample: got %+v, mounts (-want +got):\n%s", s, diff)
	}
	for range 3 {
		w.clock.Step(time.Minute)
		w.runPass(a)
	}
	if len(c.windows) != 1 || c.windows[0] != time.Minute || len(c.pending) > 0 {
		t.Errorf("windows: got %v", c.windows)
	}
	if w.applies != applies || w.clientNode.Status.Hash != hash || w.clientNode.Status.ObservedGeneration != w.clientNode.Generation {
		t.Errorf("got %d applies, %d before; hash %q, %q before", w.applies, applies, w.clientNode.Status.Hash, hash)
	}
	w.ask(nil)
	w.runPass(a)
	if w.clientNode.Status.Sample != nil {
		t.Errorf("sample: got %+v after its request was removed", w.clientNode.Status.Sample)
	}
}

// A restarted agent does not know the counters at the start of the window.
func TestARestartEndsTheWindow(t *testing.T) {
	w, c := newWorld(t), &sampler{samples: []recommend.Sample{listed("pv-1")}}
	w.ask(w.sampleOrder("s1"))
	w.runPass(withCounters(w, c))
	c.pending = nil
	a := withCounters(w, c)
	w.runPass(a)
	if s := w.sample(); s.Phase != v1alpha1.SampleFailed || !strings.Contains(s.Message, "restarted during the measurement") || len(c.pending) > 0 {
		t.Fatalf("sample: got %+v", s)
	}
	w.ask(w.sampleOrder("s2"))
	w.runPass(a)
	c.end()
	w.runPass(a)
	if s := w.sample(); s.ID != "s2" || s.Phase != v1alpha1.SampleFinished {
		t.Errorf("next sample: got %+v", s)
	}
	w.runPass(withCounters(w, c))
	if s := w.sample(); s.ID != "s2" || s.Phase != v1alpha1.SampleFinished || len(s.Mounts) != 1 || len(c.pending) > 0 {
		t.Errorf("sample after a restart: got %+v", s)
	}
}

func TestFailedSamples(t *testing.T) {
	order := func(change func(*v1alpha1.NodeSample)) func(*world) *v1alpha1.NodeSample {
		return func(w *world) *v1alpha1.NodeSample {
			o := w.sampleOrder("s1")
			change(o)
			return o
		}
	}
	unchanged := order(func(*v1alpha1.NodeSample) {})
	for name, test := range map[string]struct {
		order   func(*world) *v1alpha1.NodeSample
		sampler sampler
		message string
		begins  bool
	}{
		"a request of yesterday": {
			order(func(o *v1alpha1.NodeSample) { o.StartBefore.Time = o.StartBefore.Add(-time.Hour) }), sampler{}, "the measurement had to start before 2023-11-14T21:14:20Z", false,
		},
		"an invalid id":                {order(func(o *v1alpha1.NodeSample) { o.ID = "a b" }), sampler{}, "invalid id", false},
		"a window that is too short":   {order(func(o *v1alpha1.NodeSample) { o.Seconds = 9 }), sampler{}, "invalid seconds", false},
		"a window that is too long":    {order(func(o *v1alpha1.NodeSample) { o.Seconds = 3601 }), sampler{}, "invalid seconds", false},
		"no volume":                    {order(func(o *v1alpha1.NodeSample) { o.Volumes = nil }), sampler{}, "invalid volumes", false},
		"an invalid volume name":       {order(func(o *v1alpha1.NodeSample) { o.Volumes = []string{"pv-1", "../x"} }), sampler{}, "invalid volumes", false},
		"too many volumes":             {order(func(o *v1alpha1.NodeSample) { o.Volumes = strings.Split(strings.Repeat("a,", 8)+"a", ",") }), sampler{}, "invalid volumes", false},
		"counters that cannot be read": {unchanged, sampler{err: errors.New("read /proc/self/mountstats: x")}, "cannot read the counters: read /proc/self/mountstats: x", true},
		"a volume that is not mounted": {unchanged, sampler{samples: []recommend.Sample{listed("pv-2")}}, "no mount of pv-1 existed during the whole measurement", true},
		"a counter that is too large": {
			unchanged, sampler{samples: []recommend.Sample{{Volume: "pv-1", MountPoint: "/mnt", Requests: math.MaxUint64}}}, "cannot evaluate the counters", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t), test.sampler
			a := withCounters(w, &c)
			w.ask(test.order(w))
			w.runPass(a)
			if (len(c.pending) > 0) != test.begins {
				t.Errorf("started: got %v", len(c.pending) > 0)
			}
			c.end()
			w.runPass(a)
			if s := w.sample(); s.Phase != v1alpha1.SampleFailed || !strings.Contains(s.Message, test.message) || s.Mounts != nil {
				t.Errorf("sample: got %+v, want %q", s, test.message)
			}
		})
	}
}

// The loop continues while counters cannot be read, and never starts a second reading while the first one hangs.
func TestAStuckSampleDoesNotBlockTheLoop(t *testing.T) {
	w, c := newWorld(t), &sampler{samples: []recommend.Sample{listed("pv-1")}}
	a := withCounters(w, c)
	w.ask(w.sampleOrder("s1"))
	w.runPass(a)
	w.clock.Step(90 * time.Second)
	w.runPass(a)
	if s := w.sample(); s.Phase != v1alpha1.SampleRunning {
		t.Fatalf("sample within its time: got %+v", s)
	}
	w.declare(setting(rmem, "16777216"))
	w.clock.Step(time.Second)
	w.runPass(a)
	if s := w.sample(); s.Phase != v1alpha1.SampleFailed || !strings.Contains(s.Message, "timed out reading the counters") {
		t.Fatalf("sample: got %+v", s)
	}
	if w.live[rmem] != "16777216" {
		t.Error("the setting is not applied")
	}
	w.ask(w.sampleOrder("s2"))
	w.runPass(a)
	if len(c.pending) != 1 || w.clientNode.Status.Sample != nil {
		t.Errorf("got %d readings, sample %+v", len(c.pending), w.clientNode.Status.Sample)
	}
	c.end()
	w.runPass(a)
	if s := w.sample(); s.ID != "s2" || s.Phase != v1alpha1.SampleRunning {
		t.Errorf("next sample after the end of the stuck one: got %+v", s)
	}
	c.end()
	w.runPass(a)
	if s := w.sample(); s.ID != "s2" || s.Phase != v1alpha1.SampleFinished {
		t.Errorf("next sample: got %+v", s)
	}
}

// The result of an earlier request is not the result of the current one.
func TestAWithdrawnRequestIsCanceled(t *testing.T) {
	for name, next := range map[string]func(*world) *v1alpha1.NodeSample{
		"without another one": func(*world) *v1alpha1.NodeSample { return nil },
		"by another one":      func(w *world) *v1alpha1.NodeSample { return w.sampleOrder("s2") },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t), &sampler{samples: []recommend.Sample{listed("pv-1")}}
			a := withCounters(w, c)
			w.ask(w.sampleOrder("s1"))
			w.runPass(a)
			w.ask(next(w))
			w.runPass(a)
			if w.clientNode.Status.Sample != nil {
				t.Errorf("sample: got %+v", w.clientNode.Status.Sample)
			}
			c.end()
			w.runPass(a)
			if s := w.sample(); s.Phase == v1alpha1.SampleFinished || s.ID == "s1" {
				t.Errorf("sample: got %+v", s)
			}
		})
	}
}

// The largest sample that the API accepts fits, in any JSON encoding of its characters. Omitted mounts are counted.
func TestASampleIsBounded(t *testing.T) {
	strange := strings.Repeat("\x01", 2000)
	long := recommend.Sample{Server: strange, Export: strange, Volume: strings.Repeat("v", 253), Protocol: strange, ReadAheadKiB: math.MaxInt32, SlotLimit: math.MaxInt32}
	long.MinRoundTripMicros, long.Requests = math.MaxInt64, math.MaxInt64
	n := uint64(math.MaxInt64)
	long.Bytes = counters.Bytes{Read: n, Written: n, DirectRead: n, DirectWritten: n, WireRead: n, WireWritten: n}
	long.Events = counters.Events{Opens: n, Flushes: n, Syncs: n, DataInvalidations: n, Listings: n}
	long.Network = counters.Network{InSegments: n, OutSegments: n, Retransmitted: n, OutOfOrder: n}
	long.Log = counters.Log{Writes: n, NoBuffer: n, NoSpace: n}
	long.Options = append(long.Options, strings.Repeat("x", 65))
	for range 100 {
		long.Options = append(long.Options, strange[:64])
		long.Connections = append(long.Connections, recommend.Connection{Connects: n, Sends: n, Answers: n, Backlog: n, InFlight: n, IdleSeconds: n})
	}
	for i := range 100 {
		long.Operations = append(long.Operations, recommend.Operation{
			Name: fmt.Sprintf("OPERATION_OF_THIRTY_CHARS_%06d", i), Count: n - uint64(i), Transmissions: n, Errors: n, BytesSent: n, BytesReceived: n, QueueMillis: n, RoundTripMillis: n, ExecutionMillis: n,
		})
	}
	var samples []recommend.Sample
	for i := range 5 {
		s := long
		s.MountPoint = fmt.Sprint(i) + strange
		samples = append(samples, s)
	}
	w, c := newWorld(t), &sampler{samples: samples}
	a := withCounters(w, c)
	order := w.sampleOrder(strings.Repeat("i", 64))
	order.Volumes = []string{long.Volume}
	w.ask(order)
	w.runPass(a)
	c.end()
	w.runPass(a)
	s := w.sample()
	if len(s.Mounts) != 1 || s.MountsOmitted != 4 || s.Phase != v1alpha1.SampleFinished {
		t.Fatalf("got %d mounts, %d omitted: %s %s", len(s.Mounts), s.MountsOmitted, s.Phase, s.Message)
	}
	m := s.Mounts[0]
	if len(m.Operations) != 80 || m.Operations[79].Name != "OPERATION_OF_THIRTY_CHARS_000079" || len(m.Options) != 48 || m.Options[0] != strange[:64] || len(m.Connections) != 16 {
		t.Errorf("got %d operations, %d options, %d connections", len(m.Operations), len(m.Options), len(m.Connections))
	}
	data, err := json.Marshal(s)
	if err != nil || len(data) > 64<<10 {
		t.Errorf("got %d bytes: %v", len(data), err)
	}
	t.Logf("%d bytes", len(data))

	c.samples = nil
	for i := range 40 {
		small := listed("pv-1")
		small.MountPoint = fmt.Sprint("/mnt/", i)
		c.samples = append(c.samples, small)
	}
	w.ask(w.sampleOrder("s2"))
	w.runPass(a)
	c.end()
	w.runPass(a)
	if s := w.sample(); len(s.Mounts) != 32 || s.MountsOmitted != 8 {
		t.Errorf("got %d small mounts, %d omitted", len(s.Mounts), s.MountsOmitted)
	}
}
