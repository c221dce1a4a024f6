package probe

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/test/check"
)

// trial returns an order for one round of listing.
func trial(changes ...func(*Order)) Order {
	order := Order{
		Options: []string{"vers=4.1", "actimeo=30"}, OwnOptions: []string{"vers=4.1"}, Timeout: time.Minute,
		Passes: []OrderedPass{{Round: 1, Arm: Again}, {Round: 1, Arm: After}, {Round: 1, Arm: Before}}, Work: Work{Name: "ListDirectory", Path: "a", Pause: 5 * time.Second},
	}
	for _, change := range changes {
		change(&order)
	}
	return order
}

func named(name string) func(*Order) { return func(o *Order) { o.Work.Name = name } }

func TestEachPassHasASeparateMount(t *testing.T) {
	k := &fakeKernel{t: t}
	r := k.run(trial())
	if !r.Succeeded || r.Missing() != nil {
		t.Fatalf("result: got %+v", r)
	}
	list := []string{"read-only", `work ListDirectory in "a" as 1000`, "wait 5s", `work ListDirectory in "a" as 1000`, "unmount"}
	before := "mount filer:/e vers=4.1,addr=192.0.2.7,clientaddr=10.1.2.3"
	var want []string
	for _, mount := range []string{before, strings.Replace(before, "vers=4.1", "actimeo=30,vers=4.1", 1), before} {
		want = append(append(want, mount), list...)
	}
	check.Equal(t, "steps", want, k.log)
	phase := func(name string) Phase {
		return Phase{Name: name, Duration: 500 * time.Millisecond, Units: 50, BytesSent: 5000, BytesReceived: 10000, Operations: []Operation{{"GETATTR", 50}}}
	}
	wantPasses := []Pass{
		{Round: 1, Arm: Again, Phases: []Phase{phase(First), phase(Repeated)}}, {Round: 1, Arm: After, Phases: []Phase{phase(First), phase(Repeated)}},
		{Round: 1, Arm: Before, Phases: []Phase{phase(First), phase(Repeated)}},
	}
	check.Equal(t, "passes", wantPasses, r.Passes)
}

// The requests of a nested export, which the client mounts during the work, belong to the phase.
func TestAPhaseInANestedExport(t *testing.T) {
	k := &fakeKernel{t: t, nested: true}
	r := k.run(trial(func(o *Order) { o.Passes = o.Passes[:1] }))
	if !r.Succeeded {
		t.Fatal(r.Message)
	}
	want := []Operation{{"GETATTR", 57}}
	check.Equal(t, "operations of the first phase", want, r.Passes[0].Phases[0].Operations)
}

// Workers of a phase work at the same time: the last one ends the phase.
func TestAPhaseOfSeveralWorkers(t *testing.T) {
	k := &fakeKernel{t: t, workers: []workload.Pass{{Seconds: 1, Units: 3}, {Seconds: 3, Units: 2}, {Seconds: 2, Units: 4}}}
	load := workload.Load{Workers: 3, BlockKiB: 8, Direct: true}
	r := k.run(trial(func(o *Order) { o.Work.Load = load }))
	if !r.Succeeded || k.load != load {
		t.Fatalf("work: got %+v, want %+v; result: %+v", k.load, load, r)
	}
	if p := r.Passes[0].Phases[0]; p.Duration != 3*time.Second || p.Units != 9 {
		t.Errorf("phase: got %+v, want 3 s and 9 units", p)
	}
}

// Each pass has the window of its order, which is read back before and after the work.
func TestReadAheadOfEachPass(t *testing.T) {
	withWindows := func(o *Order) { o.Passes = []OrderedPass{{1, Again, 512}, {1, After, 4096}, {1, Before, 512}} }
	for name, test := range map[string]struct {
		kernel fakeKernel
		change func(*Order)
		want   []int
		words  string
	}{
		"as ordered":                                {fakeKernel{}, withWindows, []int{512, 4096, 512}, ""},
		"rounded down to large pages":               {fakeKernel{pageKiB: 64}, func(o *Order) { o.Passes = []OrderedPass{{1, After, 100}} }, []int{64}, ""},
		"smaller than a page":                       {fakeKernel{pageKiB: 64}, func(o *Order) { o.Passes = []OrderedPass{{1, After, 32}} }, nil, "set the read-ahead: the kernel has 0 KiB after 32 KiB was written"},
		"changed by a udev rule":                    {fakeKernel{changedTo: 15380}, withWindows, nil, "changed from 512 to 15380 KiB during the pass"},
		"a nested export":                           {fakeKernel{nested: true}, withWindows, nil, "read the nested export n of the server, which has a read-ahead of 128 KiB, not 512 KiB: choose"},
		"a nested export with the same window":      {fakeKernel{nested: true}, func(o *Order) { o.Passes = []OrderedPass{{1, Before, 128}} }, []int{128}, ""},
		"the kernel's default":                      {fakeKernel{}, func(*Order) {}, []int{0, 0, 0}, ""},
		"the kernel's default and a udev rule":      {fakeKernel{changedTo: 15380}, func(*Order) {}, []int{0, 0, 0}, ""},
		"of mounts alone":                           {fakeKernel{}, func(o *Order) { withWindows(o); o.Work.Name = MountOnly }, []int{512, 4096, 512}, ""},
		"of the candidate, without any other mount": {fakeKernel{}, func(o *Order) { o.Passes = []OrderedPass{{1, Again, 0}, {1, After, 4096}} }, []int{0, 4096}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := test.kernel
			k.t = t
			r := k.run(trial(test.change))
			var got []int
			for _, pass := range r.Passes {
				got = append(got, pass.ReadAheadKiB)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || !strings.Contains(r.Message, test.words) || r.Succeeded != (test.words == "") {
				t.Errorf("message %q, windows (-want +got):\n%s", r.Message, diff)
			}
		})
	}
}

func TestMountIsMeasuredSeparately(t *testing.T) {
	k := &fakeKernel{t: t}
	r := k.run(trial(named(MountOnly)))
	if !r.Succeeded || len(r.Passes) != 3 || len(r.Passes[0].Phases) != 1 {
		t.Fatalf("result: got %+v", r)
	}
	if p := r.Passes[0].Phases[0]; p.Operations[0].Count != 1 || p.Units != 1 || p.Duration <= 0 {
		t.Errorf("phase: got %+v, want one mount with a duration", p)
	}
}

func TestWritingWorkloadHasAWritableMount(t *testing.T) {
	k := &fakeKernel{t: t}
	k.run(trial(named("CreateUnlink"), func(o *Order) { o.Work.AllowWrites = true }))
	for _, line := range k.log {
		if line == "read-only" {
			t.Error("the mount is read-only")
		}
	}
}

// A killed runner leaves its directory. The next order of the same trial takes that directory over. Other trials do not.
func TestTrialOrdersWriteBelowOneDirectory(t *testing.T) {
	first, next, other := Work{}.options("abc-1"), Work{}.options("abc-2"), Work{}.options("abd-1")
	if first.ID != next.ID || !next.TakeOver || first.ID == other.ID {
		t.Errorf("got directories %s, %s and %s", first.ID, next.ID, other.ID)
	}
}

func TestEndOfATrial(t *testing.T) {
	candidate := func(data string) error {
		if strings.Contains(data, "actimeo=30") {
			return syscall.EINVAL
		}
		return nil
	}
	second := trial(func(o *Order) {
		o.Passes = []OrderedPass{{Round: 1, Arm: After}, {Round: 1, Arm: Before}, {Round: 1, Arm: Again}}
	})
	for name, test := range map[string]struct {
		kernel        fakeKernel
		order         Order
		passes        int
		message       string
		originalWorks bool
		void          bool
	}{
		"a candidate that cannot be mounted":                      {fakeKernel{reject: candidate, explanation: "nfs: bad"}, trial(), 1, "After, round 1: mount(2): invalid argument: nfs: bad", true, false},
		"a candidate that comes first; the original options work": {fakeKernel{reject: candidate}, second, 0, "After, round 1: mount(2): invalid argument", true, false},
		"work that fails": {fakeKernel{workErr: errors.New("no file to read")}, trial(), 0, "Again, round 1: no file to read", false, false},
		"a mount that shares the device of another one":  {fakeKernel{shared: true}, trial(), 0, "", false, true},
		"other connections than the options request":     {fakeKernel{transports: 3}, trial(), 0, "", false, true},
		"something else that is mounted in that network": {fakeKernel{leftover: 99}, trial(), 0, "not mounted: 1 NFS file systems are already mounted in this network namespace", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.kernel.t = t
			r := test.kernel.run(test.order)
			if r.Succeeded || len(r.Passes) != test.passes || r.Message != test.message || (r.Own != nil && r.Own.Succeeded) != test.originalWorks || (r.Missing() != nil) != test.void {
				t.Errorf("result: got %+v, with the original options %+v", r, r.Own)
			}
			if done := strings.Join(test.kernel.log, "\n"); test.void && strings.Contains(done, "work ") {
				t.Errorf("the workload ran without all proofs:\n%s", done)
			}
		})
	}
}
