package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountfailures"
)

// world is a cluster whose nodes follow the steps.
type world struct {
	t          *testing.T
	now        time.Time
	memory     Memory
	nodes      map[string]*Node
	candidates []volumeplan.ProbeCandidate
	// runners is false if no Pod of a trial runner is created. stuck is true if it does not become Ready.
	runners, stuck bool
	// lingers keeps a trial runner's Pod after the label is gone. changed are the nodes whose Pod has run an order with sysctls.
	lingers bool
	changed map[string]bool
	// respond returns an agent's response to an order. Nil means no response.
	respond func(v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus
	// fails reports whether the write of a step fails.
	fails func(Step) bool
	log   []string
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, now: time.Unix(1700000000, 0), nodes: map[string]*Node{}, runners: true, changed: map[string]bool{}}
	for _, name := range names {
		w.nodes[name] = &Node{
			Node:       &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "eda", corev1.LabelOSStable: "linux"}}},
			ClientNode: &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, Writable: true,
		}
	}
	w.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: true, Transports: 4}
	}
	return w
}

func candidate(set, server string) volumeplan.ProbeCandidate {
	return volumeplan.ProbeCandidate{
		ProbeKey: volumeplan.ProbeKey{Set: set, Server: server}, Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + set}}, Profiles: []string{"p"},
		Target: judge.ProbeTarget{Server: server, Path: "/e", FSType: "nfs", Options: []string{"vers=4.1", "nconnect=4"}, Own: []string{"vers=4.1"}},
	}
}

func (w *world) profiles() *fleet.ProfileSet {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "eda"}
	return fleet.NewProfileSet([]v1alpha1.StorageClientProfile{p}, catalogue.AllowList{})
}

// apply applies a step that writes a node.
func (w *world) apply(step Step) {
	w.t.Helper()
	n := w.nodes[step.Subject()]
	switch step := step.(type) {
	case SetLabel:
		if !step.Labelled {
			delete(n.Node.Labels, v1alpha1.TrialLabel)
			if n.Runner = (Runner{Exists: w.lingers && n.Runner.Exists}); !n.Runner.Exists {
				delete(w.changed, n.Node.Name)
			}
			if n.ClientNode != nil && n.ClientNode.Spec.Trial != nil && len(n.ClientNode.Spec.Trial.Sysctls) == 0 {
				w.t.Errorf("%s lost its runner while it has an order", n.Node.Name)
			}
			return
		}
		n.Node.Labels[v1alpha1.TrialLabel] = v1alpha1.True
		n.Runner = Runner{Exists: w.runners, Ready: w.runners && !w.stuck}
	case SetOrder:
		if !n.Writable {
			w.t.Errorf("order for %s, which the rollout disrupts", n.Node.Name)
		}
		if step.Order == nil {
			n.ClientNode.Spec.Trial, n.ClientNode.Status.Trial = nil, nil
			return
		}
		if n.ClientNode.Spec.Trial != nil || !isLabelled(n.Node) || n.Node.Spec.Unschedulable {
			w.t.Errorf("second or invalid order for %s", n.Node.Name)
		}
		if w.changed[n.Node.Name] {
			w.t.Errorf("order for %s, whose runner has the network namespace of an order with sysctls", n.Node.Name)
		}
		w.changed[n.Node.Name] = len(step.Order.Sysctls) > 0
		n.ClientNode.Spec.Trial = step.Order
		if w.respond != nil {
			n.ClientNode.Status.Trial = w.respond(*step.Order)
		}
	case SetSample:
		if !n.Writable {
			w.t.Errorf("sample request for %s, which the rollout disrupts", n.Node.Name)
		}
		if step.Sample == nil {
			n.ClientNode.Spec.Sample, n.ClientNode.Status.Sample = nil, nil
			return
		}
		if n.ClientNode.Spec.Sample != nil {
			w.t.Errorf("second sample request for %s", n.Node.Name)
		}
		n.ClientNode.Spec.Sample = step.Sample
	default:
		w.t.Errorf("unknown step %s", step)
	}
}

// pass plans once and applies the steps.
func (w *world) pass() Plan {
	w.t.Helper()
	s := Snapshot{Candidates: w.candidates, Profiles: w.profiles(), Memory: w.memory, Now: w.now}
	for _, n := range w.nodes {
		s.Nodes = append(s.Nodes, *n)
	}
	next := For(s)
	w.memory = next.Memory
	for _, step := range next.Steps {
		w.log = append(w.log, describe(step))
		if w.fails == nil || !w.fails(step) {
			w.apply(step)
		}
	}
	ordered := 0
	for _, n := range w.nodes {
		if n.ClientNode != nil && n.ClientNode.Spec.Trial != nil {
			ordered++
		}
	}
	if ordered > maxNodes {
		w.t.Errorf("got %d trials at the same time", ordered)
	}
	w.now = w.now.Add(2 * time.Second)
	return next
}

// run makes passes until no work remains.
func (w *world) run() {
	w.t.Helper()
	for range 600 {
		if !w.pass().Busy {
			return
		}
	}
	w.t.Fatal("work remains after 600 passes")
}

func (w *world) verdict(c volumeplan.ProbeCandidate) volumeplan.Probe {
	return w.memory.Results[c.ProbeKey].Probe
}

func (w *world) expectClean() {
	w.t.Helper()
	for name, n := range w.nodes {
		if isLabelled(n.Node) || n.ClientNode != nil && n.ClientNode.Spec.Trial != nil {
			w.t.Errorf("%s still has a label or an order", name)
		}
	}
}

func TestAProbeFromLabelToResult(t *testing.T) {
	w, c := newWorld(t, "n2", "n1"), candidate("s", "filer")
	w.candidates = []volumeplan.ProbeCandidate{c}
	w.run()
	want := []string{"label n1", "order n1: filer:/e vers=4.1,nconnect=4", "clear n1", "label n2", "unlabel n1", "order n2: filer:/e vers=4.1,nconnect=4", "clear n2", "unlabel n2"}
	check.Equal(t, "steps", want, w.log)
	if got := w.verdict(c); got.Verdict != optionset.ProbeWorked || got.Text != "a probe on n1 has mounted filer:/e with vers=4.1,nconnect=4, over 4 connections, and n2 confirmed it" {
		t.Errorf("got verdict %+v, want Works", got)
	}
	w.expectClean()
	w.candidates = nil
	w.run()
	if len(w.memory.Results) > 0 {
		t.Error("got results without candidates, want none")
	}
}

func TestTheOrderIsWhatMountWouldGet(t *testing.T) {
	c := candidate("s", "filer")
	order := orderFor(c, time.Unix(1700000000, 0))
	want := &v1alpha1.NodeTrial{
		ID: hashOf(c) + "-1700000000", Kind: v1alpha1.TrialProbe, Volume: "pv-s", Server: "filer", Path: "/e", FSType: "nfs",
		MountOptions: []string{"vers=4.1", "nconnect=4"}, OwnMountOptions: []string{"vers=4.1"}, RunAsUser: 65534, TimeoutSeconds: 60,
	}
	check.Equal(t, "order", want, order)
}

func TestFewTrialsAtATimeAndAllInTheEnd(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	for i := range 9 {
		w.candidates = append(w.candidates, candidate(fmt.Sprintf("s%d", i), "filer"))
	}
	w.run()
	for _, c := range w.candidates {
		if w.verdict(c).Verdict != optionset.ProbeWorked {
			t.Errorf("%s: got verdict %+v, want Works", c.Set, w.verdict(c))
		}
	}
	w.expectClean()
}

func TestNodesThatGetNoTrial(t *testing.T) {
	for name, change := range map[string]func(*Node){
		"a node that the rollout holds, or without an agent": func(n *Node) { n.Writable = false },
		"a cordoned node":                       func(n *Node) { n.Node.Spec.Unschedulable = true },
		"a node without a client node":          func(n *Node) { n.ClientNode, n.Writable = nil, false },
		"a node that the profile does not want": func(n *Node) { n.Node.Labels["pool"] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t, "n1", "n2", "n3"), candidate("s", "filer")
			change(w.nodes["n1"])
			w.candidates = []volumeplan.ProbeCandidate{c}
			w.run()
			if w.verdict(c).Verdict != optionset.ProbeWorked || slices.ContainsFunc(w.log, func(step string) bool { return strings.Contains(step, "n1") }) {
				t.Errorf("got verdict %+v, steps %v; want Works without n1", w.verdict(c), w.log)
			}
		})
	}
}

func TestASetThatCannotBeProbedIsReportedAndDelaysNothing(t *testing.T) {
	kerberos := candidate("s", "filer")
	kerberos.Target.Obstacle = "sec=krb5 needs the node's rpc.gssd"
	for name, test := range map[string]struct {
		candidate volumeplan.ProbeCandidate
		change    func(*world)
		want      string
		within    time.Duration
	}{
		"an obstacle":                      {kerberos, nil, "sec=krb5 needs the node's rpc.gssd", time.Second},
		"no node that the profile selects": {candidate("s", "filer"), func(w *world) { w.nodes = nil }, "the profile selects no node", time.Second},
		"no node is free": {candidate("s", "filer"), func(w *world) { w.nodes["n1"].Writable = false },
			"no node with an agent was free for a probe within 10m0s", maxProbeWait + 10*time.Second},
		"no trial runner": {candidate("s", "filer"), func(w *world) { w.runners = false },
			"DaemonSet storage-client-trial-runner created no Pod for Node n1", podDelay + 10*time.Second},
		"a trial runner that does not start": {candidate("s", "filer"), func(w *world) { w.stuck = true },
			"the Pod of DaemonSet storage-client-trial-runner on n1 did not become Ready", runnerDelay + 10*time.Second},
		"an agent that never responds": {candidate("s", "filer"), func(w *world) { w.respond = nil },
			"the agent on n1 did not report the result of a probe", timeout + overdue + 10*time.Second},
		"an agent that rejects the order": {candidate("s", "filer"), func(w *world) {
			w.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialRefused, Message: "rejected by this node's agent: x"}
			}
		}, "rejected by this node's agent: x", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "n1")
			if test.change != nil {
				test.change(w)
			}
			w.candidates = []volumeplan.ProbeCandidate{test.candidate}
			start := w.now
			for w.verdict(test.candidate).Verdict == "" && w.now.Sub(start) < time.Hour {
				w.pass()
			}
			if got := w.verdict(test.candidate); got.Verdict != optionset.ProbeInconclusive || got.Text != test.want {
				t.Errorf("got verdict %+v, want %q", got, test.want)
			}
			if took := w.now.Sub(start); took > test.within+2*time.Second {
				t.Errorf("got a duration of %s, want at most %s", took, test.within+2*time.Second)
			}
			w.run()
			w.expectClean()
		})
	}
}

// Each set has a result in the end, even if writes fail or objects never become ready.
func TestEachProbeHasAResultInTheEnd(t *testing.T) {
	ofType := func(example Step) func(Step) bool {
		return func(step Step) bool { return fmt.Sprintf("%T", step) == fmt.Sprintf("%T", example) }
	}
	for name, test := range map[string]struct {
		candidate volumeplan.ProbeCandidate
		change    func(*world)
	}{
		"labels are not written": {candidate("s", "filer"), func(w *world) { w.fails = ofType(SetLabel{}) }},
		"orders are not written": {candidate("s", "filer"), func(w *world) { w.fails = ofType(SetOrder{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "n1")
			w.candidates = []volumeplan.ProbeCandidate{test.candidate}
			test.change(w)
			start := w.now
			for w.verdict(test.candidate).Verdict == "" && w.now.Sub(start) < 3*time.Hour {
				w.pass()
			}
			if got := w.verdict(test.candidate); got.Verdict != optionset.ProbeInconclusive || got.Text == "" {
				t.Errorf("after %s: got verdict %+v, want Unknown with a reason", w.now.Sub(start), got)
			}
			w.candidates = nil
			if w.pass(); w.verdict(test.candidate).Text == "" {
				t.Error("got no reason once the first volume has the options, want it for the status of the profile")
			}
			w.now = w.now.Add(maxProbe)
			if w.pass(); w.verdict(test.candidate).Text != "" {
				t.Error("got a reason for ever, want none an hour later")
			}
		})
	}
}

func TestARestartedManagerContinuesExistingOrders(t *testing.T) {
	c := candidate("s", "filer")
	for passes := range 4 {
		w := newWorld(t, "n1", "n2")
		w.candidates = []volumeplan.ProbeCandidate{c}
		for range passes {
			w.pass()
		}
		w.memory = Memory{}
		w.run()
		if w.verdict(c).Verdict != optionset.ProbeWorked {
			t.Errorf("after %d passes: got verdict %+v, want Works", passes, w.verdict(c))
		}
		w.expectClean()
	}
}

func TestAnOrderThatIsNotNeededIsRemoved(t *testing.T) {
	w := newWorld(t, "n1")
	w.respond = nil
	w.candidates = []volumeplan.ProbeCandidate{candidate("s", "filer")}
	w.pass()
	w.pass()
	if w.nodes["n1"].ClientNode.Spec.Trial == nil {
		t.Fatalf("got no order: %v", w.log)
	}
	w.candidates = nil
	w.run()
	w.expectClean()
}

func TestAProbeWritesNothingToADisruptedNode(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.candidates = []volumeplan.ProbeCandidate{candidate("s", "filer")}
	w.pass()
	w.pass()
	w.nodes["n1"].Writable = false
	for range 20 {
		w.pass()
	}
	if w.nodes["n1"].ClientNode.Spec.Trial == nil || !isLabelled(w.nodes["n1"].Node) {
		t.Error("the order or label was removed while the rollout disrupts the node")
	}
	w.nodes["n1"].Writable = true
	w.run()
	w.expectClean()
}

// A node may report a mount that it never made. Another node must confirm it.
func TestOneNodesProbeIsNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		nodes  []string
		second v1alpha1.NodeTrialStatus
		want   optionset.Kind
		text   string
	}{
		"the only node":                  {nodes: []string{"n1"}, want: optionset.ProbeInconclusive, text: "but no other node confirmed it: the profile selects no node"},
		"another node confirms it":       {nodes: []string{"n1", "n2"}, second: v1alpha1.NodeTrialStatus{Succeeded: true}, want: optionset.ProbeWorked, text: "and n2 confirmed it"},
		"another node cannot mount them": {nodes: []string{"n1", "n2"}, second: v1alpha1.NodeTrialStatus{Message: "mount(2): invalid argument: nfs: Unknown parameter 'x'", Cause: v1alpha1.MountFailureOptions}, want: optionset.ProbeRefused, text: "a probe on n2 could not mount"},
		"another node has no result":     {nodes: []string{"n1", "n2"}, second: v1alpha1.NodeTrialStatus{Message: "no route to host", Cause: v1alpha1.MountFailureElsewhere}, want: optionset.ProbeInconclusive, text: "but no other node confirmed it"},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t, test.nodes...), candidate("s", "filer")
			w.candidates = []volumeplan.ProbeCandidate{c}
			orders, lies := 0, w.respond
			w.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				if orders++; orders == 1 {
					return lies(order)
				}
				test.second.ID, test.second.Phase = order.ID, v1alpha1.TrialFinished
				return &test.second
			}
			w.run()
			if got := w.verdict(c); got.Verdict != test.want || !strings.Contains(got.Text, test.text) {
				t.Errorf("got verdict %+v, want %s: %q", got, test.want, test.text)
			}
			if orders > len(test.nodes) {
				t.Errorf("got %d orders, want one for each node", orders)
			}
			w.expectClean()
		})
	}
}

func TestARejectedSetIsProbedAgainAndStaysRejectedUntilItWorks(t *testing.T) {
	w, c := newWorld(t, "n1", "n2"), candidate("s", "filer")
	w.candidates = []volumeplan.ProbeCandidate{c}
	good := w.respond
	w.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		return &v1alpha1.NodeTrialStatus{
			ID: order.ID, Phase: v1alpha1.TrialFinished, Message: "mount(2): invalid argument: nfs: Unknown parameter 'x'", Cause: v1alpha1.MountFailureOptions,
		}
	}
	w.run()
	first := w.verdict(c)
	if first.Verdict != optionset.ProbeRefused {
		t.Fatalf("got verdict %+v, want Refused", first)
	}
	steps := len(w.log)
	w.run()
	if len(w.log) != steps {
		t.Errorf("got steps %v, want no second probe yet", w.log[steps:])
	}
	w.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialVoid, Message: "timed out"}
	}
	w.now = w.now.Add(rejectedRetryDelay)
	w.run()
	if len(w.log) == steps || w.verdict(c) != first {
		t.Errorf("got verdict %+v after an inconclusive probe, want the first one", w.verdict(c))
	}
	w.respond = good
	w.now = w.now.Add(rejectedRetryDelay)
	w.run()
	if w.verdict(c).Verdict != optionset.ProbeWorked {
		t.Errorf("got verdict %+v, want Works", w.verdict(c))
	}
}

func TestJudge(t *testing.T) {
	works, fails := &v1alpha1.TrialMount{Succeeded: true}, func(message string) *v1alpha1.TrialMount { return &v1alpha1.TrialMount{Message: message} }
	const unknownParameter = "mount(2): invalid argument: nfs: Unknown parameter 'x'"
	for name, test := range map[string]struct {
		message string
		own     *v1alpha1.TrialMount
		want    optionset.Kind
		// changesRequests is true if the mount options have a different version, port or number of connections.
		changesRequests bool
	}{
		"the kernel does not know an option":                        {unknownParameter, works, optionset.ProbeRefused, false},
		"the kernel does not know it, and the server denies access": {unknownParameter, fails("mount(2): permission denied"), optionset.ProbeRefused, false},
		"the original mount options have the same flaw":             {unknownParameter, fails(unknownParameter), optionset.ProbeInconclusive, false},
		"the server does not support that version":                  {"mount(2): protocol not supported", works, optionset.ProbeRefused, false},
		"the server rejects the pod network with both":              {"mount(2): operation not permitted", fails("mount(2): operation not permitted"), optionset.ProbeInconclusive, false},
		"the server accepts the original mount options":             {"mount(2): permission denied", works, optionset.ProbeRefused, false},
		"no route, and the original mount options were not tried":   {"mount(2): no route to host", nil, optionset.ProbeInconclusive, false},
		"the server came up in between":                             {"mount(2): connection refused", works, optionset.ProbeInconclusive, false},
		"the server responds only with the original mount options":  {"mount(2): connection refused", works, optionset.ProbeRefused, true},
		"the server does not respond in either way":                 {"mount(2): connection refused", fails("mount(2): connection refused"), optionset.ProbeInconclusive, true},
		"the server did not respond in time":                        {"mount(2): connection timed out", works, optionset.ProbeInconclusive, false},
		"the path is not there":                                     {"mount(2): no such file or directory", fails("mount(2): no such file or directory"), optionset.ProbeInconclusive, false},
		"an unknown message":                                        {"mount(2): input/output error", works, optionset.ProbeRefused, false},
		"an unknown message, and the original mount options fail":   {"mount(2): input/output error", fails("mount(2): input/output error"), optionset.ProbeInconclusive, false},
	} {
		t.Run(name, func(t *testing.T) {
			order := orderFor(candidate("s", "filer"), time.Unix(1, 0))
			status := v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Message: test.message, Own: test.own}
			status.Cause = v1alpha1.MountFailureCause(mountfailures.CauseOf(test.message, test.changesRequests))
			if status.Own != nil {
				status.Own.SameFailure = status.Own.Message == test.message
			}
			got := EvaluateProbe("n1", describeOrder(order), status)
			if got.Verdict != test.want || !strings.Contains(got.Text, test.message) {
				t.Errorf("got %+v, want %s", got, test.want)
			}
			// The field decides, and the text of the message does not matter.
			status.Message = "Der Server mag nicht"
			if got := EvaluateProbe("n1", describeOrder(order), status); got.Verdict != test.want {
				t.Errorf("another message text: got %+v, want %s", got, test.want)
			}
		})
	}
}
