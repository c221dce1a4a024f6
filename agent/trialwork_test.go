package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// workOrder returns an order for one round of listing.
func workOrder() *v1alpha1.NodeTrial {
	order := goodOrder()
	order.Kind, order.RunAsUser, order.TimeoutSeconds = v1alpha1.TrialTrial, 1000, 600
	order.Work = &v1alpha1.NodeTrialWork{Name: v1alpha1.WorkloadListDirectory, Path: "projects/a", PauseSeconds: 5}
	order.Passes = []v1alpha1.NodeTrialPass{{Round: 3, Arm: v1alpha1.ArmAfter}, {Round: 3, Arm: v1alpha1.ArmBefore}, {Round: 3, Arm: v1alpha1.ArmAgain}}
	return order
}

// measured returns a pass of the maximum size.
func measured(round int, arm probe.Arm) probe.Pass {
	pass := probe.Pass{Round: round, Arm: arm}
	for _, name := range []string{probe.First, probe.Repeated} {
		phase := probe.Phase{Name: name, Duration: 1500 * time.Microsecond, Units: 1 << 40, BytesSent: 1 << 50, BytesReceived: 1 << 50}
		for i := range 20 {
			phase.Operations = append(phase.Operations, probe.Operation{Name: fmt.Sprintf("AN_OPERATION_OF_A_PROTOCOL_%d", i)[:24-i%2], Count: 1 << 50})
			phase.Operations[i].Name = string(rune('A'+i)) + phase.Operations[i].Name[1:]
		}
		pass.Phases = append(pass.Phases, phase)
	}
	return pass
}

func TestWorkIsSentToTheRunnerAndReported(t *testing.T) {
	r := &runner{result: goodResult()}
	for i := range 8 {
		r.result.Passes = append(r.result.Passes, measured(1+i/3, []probe.Arm{probe.Before, probe.Again, probe.After}[i%3]))
	}
	r.result.Passes[1].Arm = "Sideways"
	r.result.Message = strings.Repeat("ä", 9000)
	for i := range r.result.Proofs {
		r.result.Proofs[i].Message = strings.Repeat("x", 600)
	}
	w := newWorld(t)
	a := withRunner(w, r)
	order := workOrder()
	order.Passes[0].ReadAheadKiB = 4096
	r.result.Passes[0].ReadAheadKiB = 4095
	order.Work.TrialLoad = v1alpha1.TrialLoad{Workers: 16, BlockKiB: 4096, Sync: true, Direct: true, Cached: true, ThroughClient: true}
	w.order(order)
	w.runPass(a)
	w.runPass(a)
	got := r.orders[0]
	check.Equal(t, "passes", []probe.OrderedPass{{Round: 3, Arm: probe.After, ReadAheadKiB: 4096}, {Round: 3, Arm: probe.Before}, {Round: 3, Arm: probe.Again}}, got.Passes)
	load := workload.Load{Workers: 16, BlockKiB: 4096, Sync: true, Direct: true, Cached: true, ThroughClient: true}
	want := probe.Work{Load: load, Name: "ListDirectory", Path: "projects/a", Pause: 5 * time.Second, MaxEntries: 20000, MaxBytes: 256 << 20}
	if diff := cmp.Diff(want, got.Work); diff != "" || got.User != 1000 {
		t.Errorf("user %d, work (-want +got):\n%s", got.User, diff)
	}
	trial := w.clientNode.Status.Trial
	if kib := trial.Passes[0].ReadAheadKiB; kib != 4095 {
		t.Errorf("read-ahead of the first pass: got %d KiB, want 4095", kib)
	}
	check.Equal(t, "reported work", order.Work, trial.Work)
	if trial.Phase != v1alpha1.TrialFinished || len(trial.Passes) != 5 {
		t.Fatalf("phase %s: got %d passes, want 5, the maximum of the API", trial.Phase, len(trial.Passes))
	}
	first := trial.Passes[0].Phases[0]
	if first.Name != "First" || first.Microseconds != 1500 || len(first.Operations) != v1alpha1.MaxTrialOperations {
		t.Errorf("first phase: got %+v", first)
	}
	data, err := json.Marshal(trial)
	if err != nil || len(data) > 16<<10 {
		t.Errorf("got %d bytes, %v", len(data), err)
	}
}

func TestInvalidWorkIsRejected(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeTrial){
		"no work":                      func(o *v1alpha1.NodeTrial) { o.Work = nil },
		"no passes":                    func(o *v1alpha1.NodeTrial) { o.Passes = nil },
		"too many passes":              func(o *v1alpha1.NodeTrial) { o.Passes = make([]v1alpha1.NodeTrialPass, v1alpha1.MaxOrderPasses+1) },
		"an unknown arm":               func(o *v1alpha1.NodeTrial) { o.Passes[0].Arm = "Sideways" },
		"a round before the first":     func(o *v1alpha1.NodeTrial) { o.Passes[0].Round = 0 },
		"root":                         func(o *v1alpha1.NodeTrial) { o.RunAsUser = 0 },
		"a program":                    func(o *v1alpha1.NodeTrial) { o.Work.Name = "/bin/sh" },
		"to observe":                   func(o *v1alpha1.NodeTrial) { o.Work.Name = v1alpha1.WorkloadObserve },
		"a read-ahead below a page":    func(o *v1alpha1.NodeTrial) { o.Passes[1].ReadAheadKiB = 3 },
		"a negative read-ahead":        func(o *v1alpha1.NodeTrial) { o.Passes[1].ReadAheadKiB = -4 },
		"a read-ahead above the limit": func(o *v1alpha1.NodeTrial) { o.Passes[1].ReadAheadKiB = 1<<20 + 1 },
		"too many workers":             func(o *v1alpha1.NodeTrial) { o.Work.Workers = 65 },
		"fewer workers than none":      func(o *v1alpha1.NodeTrial) { o.Work.Workers = -1 },
		"a block that is too large":    func(o *v1alpha1.NodeTrial) { o.Work.BlockKiB = 1 << 30 },
		"a block of half a page":       func(o *v1alpha1.NodeTrial) { o.Work.BlockKiB = 6 },
		"buffers that are too large":   func(o *v1alpha1.NodeTrial) { o.Work.Workers, o.Work.BlockKiB = 64, 2048 },
		"to copy without permission":   func(o *v1alpha1.NodeTrial) { o.Work.Name = v1alpha1.WorkloadCopyFiles },
		"to create without permission": func(o *v1alpha1.NodeTrial) { o.Work.Name = v1alpha1.WorkloadCreateUnlink },
		"to write without permission":  func(o *v1alpha1.NodeTrial) { o.Work.Name = v1alpha1.WorkloadWriteSequential },
		"an absolute path":             func(o *v1alpha1.NodeTrial) { o.Work.Path = "/etc" },
		"a path that leads out":        func(o *v1alpha1.NodeTrial) { o.Work.Path = "a/../../etc" },
		"a path with a newline":        func(o *v1alpha1.NodeTrial) { o.Work.Path = "a\n" },
		"a path that is too long":      func(o *v1alpha1.NodeTrial) { o.Work.Path = strings.Repeat("a", 513) },
		"an hour's pause":              func(o *v1alpha1.NodeTrial) { o.Work.PauseSeconds = 3600 },
		"a candidate with suid":        func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"suid"} },
		"a sysctl of the host":         func(o *v1alpha1.NodeTrial) { o.Sysctls = map[string]v1alpha1.SettingText{"vm.dirty_ratio": "10"} },
		"a sysctl out of range":        func(o *v1alpha1.NodeTrial) { o.Sysctls = map[string]v1alpha1.SettingText{rmemName: "1 2303 2304"} },
		"a probe with sysctls": func(o *v1alpha1.NodeTrial) {
			*o = *goodOrder()
			o.Sysctls = map[string]v1alpha1.SettingText{rmemName: "4096 131072 6291456"}
		},
		"a probe with work": func(o *v1alpha1.NodeTrial) { o.Kind = v1alpha1.TrialProbe },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t), &runner{result: goodResult()}
			a := withRunner(w, r)
			order := workOrder()
			change(order)
			w.order(order)
			w.runPass(a)
			w.runPass(a)
			if trial := w.clientNode.Status.Trial; len(r.orders) > 0 || trial.Phase != v1alpha1.TrialRefused {
				t.Errorf("got %d orders, trial %+v", len(r.orders), trial)
			}
		})
	}
}

const rmemName = "net.ipv4.tcp_rmem"

// Every pass gets the node's values of all sysctls that a network namespace has. The candidate's values are only for After.
func TestSysctlsOfTheNodeAreCopied(t *testing.T) {
	live := func(w *world) {
		for name, value := range map[string]string{"tcp_rmem": "4096\t262144\t8388608\n", "tcp_sack": "1\n", "ip_local_reserved_ports": "\n", "tcp_ecn": "2\n"} {
			w.write("/proc/sys/net/ipv4/"+name, value)
		}
		w.write("/proc/sys/vm/dirty_ratio", "20\n")
	}
	for name, test := range map[string]struct {
		sysctls map[string]v1alpha1.SettingText
		prepare func(*world)
		want    []probe.Sysctl
		words   string
	}{
		"as declared": {map[string]v1alpha1.SettingText{rmemName: "4096 1048576 16777216"}, live, []probe.Sysctl{
			{Name: "net.ipv4.ip_local_reserved_ports"}, {Name: rmemName, Before: "4096 262144 8388608", After: "4096 1048576 16777216"},
			{Name: "net.ipv4.tcp_sack", Before: "1", After: "1"},
		}, ""},
		"without a candidate": {nil, live, nil, ""},
		"that the kernel does not have": {map[string]v1alpha1.SettingText{"net.ipv4.tcp_timestamps": "0"}, live, nil,
			`sysctl net.ipv4.tcp_timestamps cannot be "0", because this node has no value: file does not exist`},
		"that cannot be read": {map[string]v1alpha1.SettingText{rmemName: "4096 1048576 16777216"}, func(w *world) {
			live(w)
			w.write("/proc/sys/net/ipv4/tcp_wmem/a", "")
		}, nil, `sysctl net.ipv4.tcp_wmem cannot be "", because this node has no value: read sysctl`},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t), &runner{result: goodResult()}
			r.result.Passes = []probe.Pass{measured(3, probe.Before)}
			test.prepare(w)
			a := withRunner(w, r)
			order := workOrder()
			order.Sysctls = test.sysctls
			w.order(order)
			w.runPass(a)
			w.runPass(a)
			trial := w.clientNode.Status.Trial
			if test.words != "" {
				if trial.Phase != v1alpha1.TrialVoid || !strings.HasPrefix(trial.Message, test.words) || len(r.orders) > 0 || trial.Sysctls != nil {
					t.Errorf("got %d orders, trial %+v", len(r.orders), trial)
				}
				return
			}
			check.Equal(t, "sysctls", test.want, r.orders[0].Sysctls)
			var reported map[string]v1alpha1.SettingText
			if test.sysctls != nil {
				reported = map[string]v1alpha1.SettingText{rmemName: "4096 262144 8388608", "net.ipv4.tcp_sack": "1"}
			}
			if diff := cmp.Diff(reported, trial.Sysctls); diff != "" || trial.Phase != v1alpha1.TrialFinished {
				t.Errorf("phase %s, reported sysctls (-want +got):\n%s", trial.Phase, diff)
			}
		})
	}
}

// A missing proof of the sysctls makes the result invalid.
func TestATrialWithoutItsSysctlsIsVoid(t *testing.T) {
	w, r := newWorld(t), &runner{result: goodResult()}
	w.write("/proc/sys/net/ipv4/tcp_rmem", "4096 262144 8388608")
	r.result.Proofs = append(r.result.Proofs, probe.Proof{Type: probe.Sysctls, Message: "sysctl net.ipv4.tcp_rmem must be x"})
	a := withRunner(w, r)
	order := workOrder()
	order.Sysctls = map[string]v1alpha1.SettingText{rmemName: "4096 1048576 16777216"}
	w.order(order)
	w.runPass(a)
	w.runPass(a)
	trial := w.clientNode.Status.Trial
	if trial.Phase != v1alpha1.TrialVoid || trial.Message != "no proof of Sysctls: sysctl net.ipv4.tcp_rmem must be x" || trial.Proofs[len(trial.Proofs)-1].Type != v1alpha1.ProofSysctls {
		t.Errorf("got %+v", trial)
	}
}

func TestATrialStopsWhenTheNodeIsNeeded(t *testing.T) {
	for name, test := range map[string]struct {
		order *v1alpha1.NodeTrial
		ends  bool
	}{"a trial": {workOrder(), true}, "a probe, which takes seconds": {goodOrder(), false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			started := make(chan context.Context, 1)
			a := withRunner(w, &runner{carryOut: func(ctx context.Context, _ probe.Order) (probe.Result, error) {
				started <- ctx
				<-ctx.Done()
				return probe.Result{}, ctx.Err()
			}})
			a.trial.Start = func(f func()) { go f() }
			defer a.trial.End()
			w.order(test.order)
			w.runPass(a)
			order := <-started
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
			w.runPass(a)
			if trial := w.clientNode.Status.Trial; (order.Err() != nil) != test.ends || trial != nil && (trial.Phase == v1alpha1.TrialVoid) != test.ends {
				t.Errorf("order: got error %v; trial: got %+v", order.Err(), trial)
			}
		})
	}
}
