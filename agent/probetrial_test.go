package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// runner is a trial runner that responds at once.
type runner struct {
	orders []probe.Order
	result probe.Result
	err    error
	// carryOut provides the result if it is set.
	carryOut orders.Runner
}

func (r *runner) probe(ctx context.Context, order probe.Order) (probe.Result, error) {
	if r.carryOut != nil {
		return r.carryOut(ctx, order)
	}
	r.orders = append(r.orders, order)
	return r.result, r.err
}

// goodResult returns the result of a successful, proven mount.
func goodResult() probe.Result {
	r := probe.Result{Tried: true, Mount: probe.Mount{Succeeded: true}, Observed: []string{"vers=4.1", "nconnect=4"}, Transports: 4, Identifier: "x"}
	for _, proof := range []probe.ProofType{probe.OwnNetwork, probe.Identifier, probe.NoOtherMount, probe.OwnDevice, probe.Transports} {
		r.Proofs = append(r.Proofs, probe.Proof{Type: proof, Holds: true})
	}
	return r
}

func withRunner(w *world, r *runner) *Agent {
	w.real = func() Host {
		h := w.host()
		h.Probe = r.probe
		return h
	}
	a := w.agent()
	return a
}

func goodOrder() *v1alpha1.NodeTrial {
	return &v1alpha1.NodeTrial{
		ID: "t1", Kind: v1alpha1.TrialProbe, Volume: "pv-1", Server: "filer.example", Path: "/export/a", FSType: "nfs",
		MountOptions: []string{"nfsvers=4.1", "nconnect=4"}, OwnMountOptions: []string{"nfsvers=4.1"}, RunAsUser: 65534, TimeoutSeconds: 60,
	}
}

func (w *world) order(order *v1alpha1.NodeTrial) {
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Trial = order })
}

func TestATrialIsSentToTheRunnerAndReported(t *testing.T) {
	w, r := newWorld(t), &runner{result: goodResult()}
	a := withRunner(w, r)
	w.declare(setting(rmem, "16777216"))
	w.order(goodOrder())
	w.runPass(a)
	if trial := w.clientNode.Status.Trial; trial == nil || trial.Phase != v1alpha1.TrialRunning || trial.Succeeded {
		t.Fatalf("trial: got %+v", trial)
	}
	w.clock.Step(time.Second)
	w.runPass(a)
	trial := w.clientNode.Status.Trial
	if trial == nil || trial.Phase != v1alpha1.TrialFinished || !trial.Succeeded || trial.Transports != 4 || len(trial.Proofs) != 5 || trial.Identifier != "x" {
		t.Fatalf("trial: got %+v", trial)
	}
	network, err := os.Readlink("/proc/self/ns/net")
	check.NoError(t, err)
	want := []probe.Order{{
		ID: "t1", Server: "filer.example", Path: "/export/a", FSType: "nfs", Options: []string{"nfsvers=4.1", "nconnect=4"},
		OwnOptions: []string{"nfsvers=4.1"}, User: 65534, Timeout: time.Minute, HostNetwork: network,
	}}
	check.Equal(t, "orders", want, r.orders)
	for range 3 {
		w.clock.Step(time.Minute)
		w.runPass(a)
	}
	check.Equal(t, "runs of the order", 1, len(r.orders))
	w.order(nil)
	w.runPass(a)
	if w.clientNode.Status.Trial != nil {
		t.Errorf("trial: got %+v after its order was removed", w.clientNode.Status.Trial)
	}
}

func TestATrialTouchesNoSetting(t *testing.T) {
	w, r := newWorld(t), &runner{result: goodResult()}
	a := withRunner(w, r)
	w.declare(setting(rmem, "16777216"))
	w.runPass(a)
	hash, applies := w.clientNode.Status.Hash, w.applies
	w.order(goodOrder())
	w.runPass(a)
	w.order(nil)
	w.runPass(a)
	if w.applies != applies || w.clientNode.Status.Hash != hash || w.state(rmem) != v1alpha1.SettingInSync {
		t.Errorf("got %d applies, %d before; hash %q, %q before", w.applies, applies, w.clientNode.Status.Hash, hash)
	}
	if w.clientNode.Status.ObservedGeneration != w.clientNode.Generation {
		t.Error("the new generation is not reported")
	}
}

func TestResultsOfATrial(t *testing.T) {
	failed := goodResult()
	failed.Mount, failed.Own = probe.Mount{Message: "mount(2): invalid argument: nfs: Unknown parameter 'x'"}, &probe.Mount{Succeeded: true}
	unproven := goodResult()
	unproven.Proofs[4] = probe.Proof{Type: probe.Transports, Message: "1, the mount options request 4"}
	long := failed
	long.Message = strings.Repeat("x", 9000)
	for name, test := range map[string]struct {
		runner  runner
		phase   v1alpha1.TrialPhase
		message string
	}{
		"the kernel rejects the options":       {runner{result: failed}, v1alpha1.TrialFinished, "mount(2): invalid argument: nfs: Unknown parameter 'x'"},
		"a proof is missing":                   {runner{result: unproven}, v1alpha1.TrialVoid, "no proof of Transports: 1, the mount options request 4"},
		"no mount was tried":                   {runner{result: probe.Result{Mount: probe.Mount{Message: "not mounted: x"}}}, v1alpha1.TrialVoid, "not mounted: x"},
		"there is no response":                 {runner{err: errors.New("timed out: no result after 1m0s")}, v1alpha1.TrialVoid, "timed out: no result after 1m0s"},
		"the result of the runner is too long": {runner{result: long}, v1alpha1.TrialFinished, ""},
		"an unknown proof":                     {runner{result: probe.Result{Tried: true, Proofs: []probe.Proof{{Type: "Word", Holds: true}}}}, v1alpha1.TrialFinished, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := withRunner(w, &test.runner)
			w.order(goodOrder())
			w.runPass(a)
			w.runPass(a)
			trial := w.clientNode.Status.Trial
			if trial.Phase != test.phase || trial.Succeeded || test.message != "" && trial.Message != test.message {
				t.Errorf("trial: got %+v, want %s: %s", trial, test.phase, test.message)
			}
			if data, err := json.Marshal(trial); err != nil || len(data) > 16<<10 {
				t.Errorf("got %d bytes, %v", len(data), err)
			}
		})
	}
}

// The agent knows both lists, and the original messages of the kernel and the server.
func TestCausesOfAFailedMount(t *testing.T) {
	const unknown, refused, denied = "mount(2): invalid argument: nfs: Unknown parameter 'x'", "mount(2): connection refused", "mount(2): permission denied"
	failed := func(message string) *v1alpha1.TrialMount { return &v1alpha1.TrialMount{Message: message} }
	for name, test := range map[string]struct {
		message  string
		original *v1alpha1.TrialMount
		// order changes the order. cause and ownCause are the expected causes of the failures.
		order           func(*v1alpha1.NodeTrial)
		cause, ownCause v1alpha1.MountFailureCause
		same            bool
	}{
		"the options, and the original ones work":               {unknown, &v1alpha1.TrialMount{Succeeded: true}, nil, v1alpha1.MountFailureOptions, "", false},
		"the options, and the original ones have the same flaw": {unknown, failed(unknown), nil, v1alpha1.MountFailureOptions, v1alpha1.MountFailureOptions, true},
		"the options, and the original ones are denied":         {unknown, failed(denied), nil, v1alpha1.MountFailureOptions, v1alpha1.MountFailureUnknown, false},
		"no server responds to the same requests": {
			refused, failed(refused), func(o *v1alpha1.NodeTrial) {
				o.MountOptions, o.OwnMountOptions = []string{"vers=4.1", "hard"}, []string{"vers=4.1"}
			},
			v1alpha1.MountFailureElsewhere, v1alpha1.MountFailureElsewhere, true,
		},
		"no server responds to another version": {
			refused, failed(refused), func(o *v1alpha1.NodeTrial) {
				o.MountOptions, o.OwnMountOptions = []string{"vers=3"}, []string{"vers=4.1"}
			},
			v1alpha1.MountFailureUnknown, v1alpha1.MountFailureElsewhere, true,
		},
		"nothing else was tried": {denied, nil, nil, v1alpha1.MountFailureUnknown, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			result := goodResult()
			result.Mount = probe.Mount{Message: test.message}
			if test.original != nil {
				result.Own = &probe.Mount{Succeeded: test.original.Succeeded, Message: test.original.Message}
			}
			order := goodOrder()
			if test.order != nil {
				test.order(order)
			}
			w := newWorld(t)
			a := withRunner(w, &runner{result: result})
			w.order(order)
			w.runPass(a)
			w.runPass(a)
			got := w.clientNode.Status.Trial
			if test.original != nil {
				test.original.Cause, test.original.SameFailure = test.ownCause, test.same
			}
			if diff := cmp.Diff(test.original, got.Own); got.Cause != test.cause || diff != "" {
				t.Errorf("cause: got %q, want %q; original options (-want +got):\n%s", got.Cause, test.cause, diff)
			}
		})
	}
}

func TestInvalidOrdersAreRejected(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeTrial){
		"suid":                        func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"suid"} },
		"dev":                         func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"dev"} },
		"exec":                        func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"exec"} },
		"a label":                     func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"context=system_u:object_r:x:s0"} },
		"an option of systemd":        func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"x-systemd.automount"} },
		"another server by an option": func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"addr=192.0.2.1"} },
		"a port":                      func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"port=22"} },
		"two options in one":          func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"hard,suid"} },
		"original options with suid":  func(o *v1alpha1.NodeTrial) { o.OwnMountOptions = []string{"suid"} },
		"Kerberos":                    func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"sec=krb5"} },
		"TLS":                         func(o *v1alpha1.NodeTrial) { o.MountOptions = []string{"xprtsec=tls"} },
		"too many options":            func(o *v1alpha1.NodeTrial) { o.MountOptions = make([]string, 65) },
		"another kind":                func(o *v1alpha1.NodeTrial) { o.Kind = "Run" },
		"another file system":         func(o *v1alpha1.NodeTrial) { o.FSType = "ext4" },
		"a path of this machine":      func(o *v1alpha1.NodeTrial) { o.Path = "etc" },
		"a path with a newline":       func(o *v1alpha1.NodeTrial) { o.Path = "/a\n" },
		"a path with a blank":         func(o *v1alpha1.NodeTrial) { o.Path = "/a b" },
		"a server with a path":        func(o *v1alpha1.NodeTrial) { o.Server = "filer:/a" },
		"no server":                   func(o *v1alpha1.NodeTrial) { o.Server = "" },
		"an id with a newline":        func(o *v1alpha1.NodeTrial) { o.ID = "a\n" },
		"a user below all":            func(o *v1alpha1.NodeTrial) { o.RunAsUser = -1 },
		"no time":                     func(o *v1alpha1.NodeTrial) { o.TimeoutSeconds = 0 },
		"an hour":                     func(o *v1alpha1.NodeTrial) { o.TimeoutSeconds = 3600 },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t), &runner{result: goodResult()}
			a := withRunner(w, r)
			order := goodOrder()
			change(order)
			w.order(order)
			w.runPass(a)
			w.runPass(a)
			trial := w.clientNode.Status.Trial
			if len(r.orders) > 0 || trial.Phase != v1alpha1.TrialRefused || !strings.HasPrefix(trial.Message, "rejected by this node's agent: ") {
				t.Errorf("got %d orders, trial %+v", len(r.orders), trial)
			}
		})
	}
}

func TestAnAgentWithoutATrialRunner(t *testing.T) {
	w := newWorld(t)
	a := w.agent()
	w.order(goodOrder())
	w.runPass(a)
	w.runPass(a)
	if trial := w.clientNode.Status.Trial; trial == nil || trial.Phase != v1alpha1.TrialVoid || trial.Message != "this node's agent has no trial runner" {
		t.Errorf("trial: got %+v", trial)
	}
}

func TestARestartedAgentRunsTheTrialAgain(t *testing.T) {
	w, r := newWorld(t), &runner{result: goodResult()}
	w.order(goodOrder())
	a := withRunner(w, r)
	a.trial.Start = func(func()) {}
	w.runPass(a)
	if trial := w.clientNode.Status.Trial; trial.Phase != v1alpha1.TrialRunning || len(r.orders) > 0 {
		t.Fatalf("trial: got %+v", trial)
	}
	a = withRunner(w, r)
	w.runPass(a)
	w.runPass(a)
	if trial := w.clientNode.Status.Trial; !trial.Succeeded || len(r.orders) != 1 {
		t.Fatalf("got %d orders, trial %+v; want a new start of the interrupted trial", len(r.orders), trial)
	}
	a = withRunner(w, r)
	w.runPass(a)
	w.runPass(a)
	if trial := w.clientNode.Status.Trial; trial == nil || !trial.Succeeded || len(r.orders) != 1 {
		t.Errorf("got %d orders, trial %+v; want no repetition of a finished trial", len(r.orders), trial)
	}
}

func TestANewOrderStopsThePreviousOne(t *testing.T) {
	w, stopped := newWorld(t), make(chan error, 1)
	r := &runner{}
	a := withRunner(w, r)
	r.carryOut = func(ctx context.Context, order probe.Order) (probe.Result, error) {
		if order.ID == "t2" {
			return goodResult(), nil
		}
		<-ctx.Done()
		stopped <- ctx.Err()
		return probe.Result{}, ctx.Err()
	}
	a.trial.Start = func(f func()) { go f() }
	w.order(goodOrder())
	w.runPass(a)
	a.trial.Start = func(f func()) { f() }
	second := goodOrder()
	second.ID = "t2"
	w.order(second)
	w.runPass(a)
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("the first order: got error %v", err)
	}
	for range 3 {
		w.runPass(a)
	}
	if trial := w.clientNode.Status.Trial; trial.ID != "t2" || !trial.Succeeded {
		t.Errorf("trial: got %+v", trial)
	}
}

func TestTheAgentWaitsForAMissingRunner(t *testing.T) {
	w, r := newWorld(t), &runner{err: fmt.Errorf("call the trial runner: %w", os.ErrNotExist)}
	a := withRunner(w, r)
	a.trial.Start = a.runInBackground
	w.order(goodOrder())
	w.runPass(a)
	for len(a.woken) == 0 {
		if w.clock.HasWaiters() {
			w.clock.Step(2 * time.Second)
		}
		runtime.Gosched()
	}
	w.runPass(a)
	trial := w.clientNode.Status.Trial
	if trial.Phase != v1alpha1.TrialVoid || !strings.HasPrefix(trial.Message, "call the trial runner: ") || len(r.orders) < 20 {
		t.Errorf("got %d orders, trial %+v", len(r.orders), trial)
	}
	if last := r.orders[len(r.orders)-1]; last.Timeout >= 10*time.Second {
		t.Errorf("timeout of the last order: got %s of %d s", last.Timeout, goodOrder().TimeoutSeconds)
	}
}
