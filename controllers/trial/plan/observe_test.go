package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/recommend"
)

// countAll lets the agents respond to their requests.
func (l *lab) countAll() {
	for name, n := range l.nodes {
		if n.ClientNode != nil && n.ClientNode.Spec.Sample != nil && l.count != nil {
			n.ClientNode.Status.Sample = l.count(name, *n.ClientNode.Spec.Sample)
		}
	}
}

// newWatch returns a lab whose nodes have mounted pv-1 and count a directory listing on it.
func newWatch(t *testing.T, names ...string) *lab {
	l := newLab(t, names...)
	for _, n := range l.nodes {
		n.ClientNode.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/m", Volume: "pv-1"}}
	}
	l.count = func(_ string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
		return finished(asked, listing(16387))
	}
	return l
}

// observe adds a trial without mounts.
func (l *lab) observe(name string, change ...func(*v1alpha1.StorageClientTrialSpec)) *v1alpha1.StorageClientTrial {
	return l.add(name, append([]func(*v1alpha1.StorageClientTrialSpec){func(s *v1alpha1.StorageClientTrialSpec) {
		s.Profile, s.Workload = "", v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadObserve}
	}}, change...)...)
}

func finished(asked v1alpha1.NodeSample, mounts ...v1alpha1.MountSample) *v1alpha1.NodeSampleStatus {
	return &v1alpha1.NodeSampleStatus{ID: asked.ID, Phase: v1alpha1.SampleFinished, Milliseconds: 60000, Mounts: mounts}
}

// listing returns the sample of one minute in which a directory is listed repeatedly.
func listing(getattrs int64) v1alpha1.MountSample {
	return v1alpha1.MountSample{
		MountPoint: "/m", Volume: "pv-1", Server: "filer", Export: "/e", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"}, MinRoundTripMicros: 1400,
		Events:     v1alpha1.EventSample{Listings: 35},
		Operations: []v1alpha1.OperationSample{{Name: "GETATTR", Count: getattrs, BytesSent: 200 * getattrs, BytesReceived: 200 * getattrs, RoundTripMillis: getattrs}},
	}
}

// runUntilEnd makes passes until the trial is over.
func (l *lab) runUntilEnd(trial *v1alpha1.StorageClientTrial, most int) {
	l.t.Helper()
	for range most {
		l.step()
		if trial.Status.CompletionTime != nil {
			l.step()
			return
		}
	}
	l.t.Fatalf("the trial did not finish: %+v", trial.Status.Conditions)
}

// expectEnd checks the end of a trial, and that no node has a request.
func (l *lab) expectEnd(trial *v1alpha1.StorageClientTrial, kind, reason, message string) {
	l.t.Helper()
	condition := meta.FindStatusCondition(trial.Status.Conditions, kind)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != reason || !strings.Contains(condition.Message, message) {
		l.t.Errorf("condition %s: got %+v, want %s: %s", kind, condition, reason, message)
	}
	if trial.Status.Verdict != "" || len(trial.Status.Passes) > 0 {
		l.t.Errorf("got status %+v, want no comparison", trial.Status)
	}
	for name, n := range l.nodes {
		if n.ClientNode != nil && n.ClientNode.Spec.Sample != nil {
			l.t.Errorf("%s still has a sample request", name)
		}
	}
}

func TestObservingRequestsSamplesAndRecommends(t *testing.T) {
	l := newWatch(t, "n1", "n2", "n3")
	l.nodes["n3"].ClientNode.Status.Mounts[0].Volume = "pv-2"
	trial := l.observe("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Workload.WindowSeconds = ptr.To[int32](600) })
	l.runUntilEnd(trial, 4)
	want := []string{
		"report eda/a: Waiting: Requesting samples from n1, n2",
		"request a sample from n1: 600 s of pv-1", "request a sample from n2: 600 s of pv-1", "report eda/a: Running: Waiting for the agent of n1, n2",
		"report eda/a: Decided: A client setting helps: acregmin=30 (AttributeRevalidation)",
		"remove the sample request from n1", "remove the sample request from n2",
	}
	check.Equal(t, "log", want, l.log)
	l.expectEnd(trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "acregmin=30")
	wantRecommendations := []v1alpha1.TrialRecommendation{{
		Rule: "AttributeRevalidation", Cause: "Client", Options: []string{"acregmin=30"}, Nodes: 2,
		Text:    "n1: 16387 of 16387 operations requested attributes, and 0 changes were found",
		Effect:  "up to 16387 fewer requests per minute",
		Against: "changes by other clients become visible 30 to 60 s later",
		Source:  "measured on Linux 6.1 with knfsd: GETATTR per entry of a listing: 1.0 without, 0.001 with actimeo=30",
	}}
	check.Equal(t, "recommendations", wantRecommendations, trial.Status.Recommendations)
	if trial.Status.Volume != "pv-1" || len(trial.Status.Samples) != 2 || trial.Status.Samples[1].Node != "n2" || trial.Status.Samples[1].Milliseconds != 60000 {
		t.Errorf("got status %+v, want samples of n1 and n2 for pv-1", trial.Status)
	}
}

func TestContentOfASampleRequest(t *testing.T) {
	l := newWatch(t, "n1")
	l.count = nil
	trial := l.observe("a", func(s *v1alpha1.StorageClientTrialSpec) { s.TimeoutSeconds = ptr.To[int32](150) })
	l.step()
	start := l.now
	l.step()
	// The window must end before the trial times out. That leaves 90 s from its first pass.
	want := &v1alpha1.NodeSample{ID: "uid-a", Seconds: 60, Volumes: []string{"pv-1"}, StartBefore: ptr.To(metav1.NewTime(trial.Status.StartTime.Add(90 * time.Second)))}
	check.Equal(t, "sample", want, l.nodes["n1"].ClientNode.Spec.Sample)
	l = newWatch(t, "n1")
	l.count = nil
	l.observe("a")
	l.step()
	l.step()
	if got := l.nodes["n1"].ClientNode.Spec.Sample.StartBefore.Time; !got.Equal(start.Add(sampleGrace)) {
		t.Errorf("got the latest start %s, want %s", got, start.Add(sampleGrace))
	}
}

func TestHowObservingEnds(t *testing.T) {
	fails := func(l *lab) {
		l.count = func(_ string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
			return &v1alpha1.NodeSampleStatus{ID: asked.ID, Phase: v1alpha1.SampleFailed, Message: "counters cannot be read"}
		}
	}
	counts := func(mounts ...v1alpha1.MountSample) func(*lab) {
		return func(l *lab) {
			l.count = func(_ string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
				return finished(asked, mounts...)
			}
		}
	}
	healthy, slow, opens := listing(600), listing(600), listing(16387)
	healthy.Operations[0].Name, slow.Operations[0].Name, opens.Operations[0].Name = "READ", "READ", "OPEN"
	slow.Operations[0].RoundTripMillis = 600 * 105
	const complete, failed = v1alpha1.TrialConditionComplete, v1alpha1.TrialConditionFailed
	for name, test := range map[string]struct {
		prepare               func(*lab)
		passes                int
		kind, reason, message string
		recommends            string
	}{
		"no node has mounted the volume": {func(l *lab) { l.nodes["n1"].ClientNode.Status.Mounts = nil }, 1, failed, v1alpha1.TrialReasonNotPossible, "No node that has an agent has volume pv-1 mounted", ""},
		"no selected node has mounted the volume": {func(l *lab) { l.trials[0].Spec.NodeSelector = map[string]v1alpha1.LabelText{"pool": "other"} }, 1, failed, v1alpha1.TrialReasonNotPossible,
			"and that nodeSelector selects", ""},
		"the claim is not bound":                   {func(l *lab) { l.missing = "PersistentVolumeClaim projects is not there" }, 2000, failed, v1alpha1.TrialReasonTimedOut, "After 3600 s, PersistentVolumeClaim projects", ""},
		"the claim loses its volume":               {func(l *lab) { l.step(); l.impossible = "the claim is no longer bound to volume pv-1" }, 2, failed, v1alpha1.TrialReasonNotPossible, "no longer bound to volume pv-1", ""},
		"agents cannot count":                      {fails, 4, failed, v1alpha1.TrialReasonTimedOut, "No node returned a sample: n1: counters cannot be read", ""},
		"agents are silent":                        {func(l *lab) { l.count = nil }, 200, failed, v1alpha1.TrialReasonTimedOut, "n1: its agent did not start in time", ""},
		"no mount existed during the whole window": {counts(), 4, failed, v1alpha1.TrialReasonTimedOut, "n1: its mount appeared or disappeared within the window", ""},
		"another volume is reported":               {counts(func() v1alpha1.MountSample { m := listing(16387); m.Volume = "pv-9"; return m }()), 4, failed, v1alpha1.TrialReasonTimedOut, "its mount appeared or disappeared", ""},
		"the rollout disrupts the node":            {func(l *lab) { l.nodes["n1"].Writable = false }, 2000, failed, v1alpha1.TrialReasonTimedOut, "n1: too little time is left for a window", ""},
		"few operations were counted":              {counts(listing(9)), 4, complete, v1alpha1.TrialReasonDecided, "Too few operations for a result", "Too few operations for a result: measure while the work runs, or for longer."},
		"no problem is found":                      {counts(healthy), 4, complete, v1alpha1.TrialReasonDecided, "The mounts are healthy", "The mounts are healthy: no problems found, and no change is recommended."},
		"the server is slow":                       {counts(slow), 4, complete, v1alpha1.TrialReasonDecided, "No client setting will help (BusyServer): ", ""},
		"only a user can decide":                   {counts(opens), 4, complete, v1alpha1.TrialReasonDecided, "check with the owner of the programs", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newWatch(t, "n1")
			trial := l.observe("a")
			test.prepare(l)
			l.runUntilEnd(trial, test.passes)
			l.expectEnd(trial, test.kind, test.reason, test.message)
			recommendations := trial.Status.Recommendations
			if test.recommends != "" && (len(recommendations) != 1 || recommendations[0].Text != test.recommends || recommendations[0].Rule != "" || recommendations[0].Nodes != 1) {
				t.Errorf("got recommendations %+v, want %q", recommendations, test.recommends)
			}
			if (test.kind == complete) != (len(recommendations) > 0) {
				t.Errorf("got recommendations %+v, want some only for a complete trial", recommendations)
			}
			for _, s := range trial.Status.Samples {
				if (s.Phase == v1alpha1.SampleFinished) != (len(s.Mounts) > 0) || (s.Phase == v1alpha1.SampleFailed) != (s.Message != "") {
					t.Errorf("got phase %q of %+v", s.Phase, s)
				}
			}
			for _, condition := range trial.Status.Conditions {
				if len(condition.Message) > maxCondition {
					t.Errorf("got a message of %d bytes: %s", len(condition.Message), condition.Message)
				}
			}
		})
	}
}

func TestObservingAndMountingTrialsDoNotDelayEachOther(t *testing.T) {
	l := newWatch(t, "n1")
	l.respond = nil
	mounting := l.add("a")
	for range 4 {
		l.step()
	}
	if l.nodes["n1"].ClientNode.Spec.Trial == nil {
		t.Fatal("got no order, want one")
	}
	observing := l.observe("b")
	l.runUntilEnd(observing, 4)
	l.expectEnd(observing, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	if mounting.Status.CompletionTime != nil {
		t.Error("the mounting trial finished, want it in progress")
	}

	l = newWatch(t, "n1")
	l.count = nil
	l.observe("a")
	mounting = l.add("b", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 3 })
	l.runUntilEnd(mounting, 40)
	if l.nodes["n1"].ClientNode.Spec.Sample == nil {
		t.Error("the request of the observing trial is missing")
	}
}

func TestANodeCountsForOneTrialAtATime(t *testing.T) {
	l := newWatch(t, "n1")
	l.count = nil
	first, second := l.observe("a"), l.observe("b")
	for range 4 {
		l.step()
	}
	if asked := l.nodes["n1"].ClientNode.Spec.Sample; asked == nil || asked.ID != "uid-a" {
		t.Fatalf("got request %+v, want one of uid-a", asked)
	}
	if got := meta.FindStatusCondition(second.Status.Conditions, v1alpha1.TrialConditionReconciling); got == nil || got.Reason != v1alpha1.TrialReasonWaiting ||
		got.Message != "Waiting for n1: it is counting for another trial" {
		t.Errorf("got %+v, want the second trial to wait for n1", got)
	}
	l.count = func(_ string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
		return finished(asked, listing(16387))
	}
	l.runUntilEnd(second, 10)
	l.expectEnd(first, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	l.expectEnd(second, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}

func TestTheNumberOfCountingNodesIsLimited(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	l := newWatch(t, names...)
	l.count = nil
	for trial := range 4 {
		l.observe(fmt.Sprint(trial), func(s *v1alpha1.StorageClientTrialSpec) {
			s.NodeSelector = map[string]v1alpha1.LabelText{"part": v1alpha1.LabelText(fmt.Sprint(trial))}
		})
		for i := range 10 {
			l.nodes[names[10*trial+i]].Node.Labels["part"] = fmt.Sprint(trial)
		}
	}
	asked := func() (n int) {
		for _, node := range l.nodes {
			if node.ClientNode.Spec.Sample != nil {
				n++
			}
		}
		return n
	}
	for range 4 {
		l.step()
		if asked() > maxSamples {
			t.Fatalf("%d nodes count at the same time, want fewer", asked())
		}
	}
	if asked() != maxSamples {
		t.Errorf("got %d counting nodes, want %d", asked(), maxSamples)
	}
	l.count = func(_ string, a v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus { return finished(a, listing(16387)) }
	for _, trial := range l.trials {
		l.runUntilEnd(trial, 10)
	}
	for _, trial := range l.trials {
		if l.expectEnd(trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, ""); trial.Status.Recommendations[0].Nodes != 10 {
			t.Errorf("got %+v, want a recommendation of 10 nodes", trial.Status.Recommendations)
		}
	}
}

// The nodes of four trials die while they count, or before they start. Their requests stay, but no longer hold the places of other nodes.
func TestNodesThatDieWhileTheyCountStopNoOtherTrial(t *testing.T) {
	for name, hasStarted := range map[string]bool{"before they start": false, "while they count": true} {
		t.Run(name, func(t *testing.T) {
			names := []string{"alive"}
			for i := range maxSamples {
				names = append(names, fmt.Sprintf("n%02d", i))
			}
			l := newWatch(t, names...)
			counts := l.count
			l.count = func(name string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
				if name == "alive" {
					return counts(name, asked)
				}
				if !hasStarted {
					return nil
				}
				return &v1alpha1.NodeSampleStatus{ID: asked.ID, Phase: v1alpha1.SampleRunning, StartTime: ptr.To(metav1.NewTime(l.now))}
			}
			for i, name := range names[1:] {
				part := fmt.Sprint(i / 10)
				l.nodes[name].Node.Labels["part"] = part
				if i%10 == 0 {
					l.observe(part, func(s *v1alpha1.StorageClientTrialSpec) {
						s.NodeSelector = map[string]v1alpha1.LabelText{"part": v1alpha1.LabelText(part)}
					})
				}
			}
			for range 4 {
				l.step()
			}
			for _, name := range names[1:] {
				if l.nodes[name].ClientNode.Spec.Sample == nil {
					t.Fatalf("%s has no request", name)
				}
				l.nodes[name].Writable = false
			}
			l.now = l.now.Add(time.Hour)
			l.step()
			l.nodes["alive"].Node.Labels["part"] = "alive"
			later := l.observe("later", func(s *v1alpha1.StorageClientTrialSpec) {
				s.NodeSelector = map[string]v1alpha1.LabelText{"part": "alive"}
			})
			for range 8 {
				l.step()
			}
			l.expectCounted(later)
		})
	}
}

func (l *lab) expectCounted(trial *v1alpha1.StorageClientTrial) {
	l.t.Helper()
	if trial.Status.CompletionTime == nil || len(trial.Status.Recommendations) == 0 {
		l.t.Errorf("got conditions %+v, want a recommendation", trial.Status.Conditions)
	}
}

func TestATrialRequestsSamplesFromFewNodesWritableOnesFirst(t *testing.T) {
	var names []string
	for i := range 18 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	l := newWatch(t, names...)
	l.nodes["n00"].Writable = false
	trial := l.observe("a")
	l.step()
	if got := nodesOf(trial.Status.Samples); len(got) != v1alpha1.MaxTrialSamples || slices.Contains(got, "n00") || !slices.IsSorted(got) || trial.Status.NodesOmitted != 2 {
		t.Errorf("got samples of %v, %d omitted; want 2 omitted", got, trial.Status.NodesOmitted)
	}
}

// One node responds at once. The cases check how long the trial waits for the other one.
func TestNodesThatATrialDoesNotWaitFor(t *testing.T) {
	for name, test := range map[string]struct {
		other  func(l *lab, n2 *Node)
		after  time.Duration
		reason string
	}{
		"a node that is gone":                      {func(l *lab, _ *Node) { delete(l.nodes, "n2") }, 0, "it is gone or no longer has an agent"},
		"a node whose agent is gone":               {func(_ *lab, n *Node) { n.ClientNode = nil }, 0, "it is gone or no longer has an agent"},
		"a node that has unmounted the volume":     {func(_ *lab, n *Node) { n.ClientNode.Status.Mounts = nil }, 0, "it no longer has the volume mounted"},
		"a node that the rollout disrupts":         {func(_ *lab, n *Node) { n.Writable = false }, sampleGrace, "its agent is not Ready, it is ignored, or the rollout disrupts it"},
		"an agent that is silent":                  {func(*lab, *Node) {}, sampleGrace + clockTolerance, "its agent did not start in time"},
		"an agent that starts and does not finish": {func(l *lab, _ *Node) { l.running("n2") }, sampleGrace + clockTolerance + time.Minute, "its agent did not finish in time"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newWatch(t, "n1", "n2")
			l.count = func(node string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
				if node != "n1" {
					return nil
				}
				return finished(asked, listing(16387))
			}
			trial := l.observe("a")
			l.step()
			test.other(l, l.nodes["n2"])
			l.runUntilEnd(trial, 1000)
			l.step()
			if n2 := l.nodes["n2"]; n2 != nil {
				n2.Writable = true
				l.step()
			}
			l.expectEnd(trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "acregmin=30")
			if got := trial.Status.Samples[1].Message; !strings.HasPrefix(got, test.reason) {
				t.Errorf("got message %q, want prefix %q", got, test.reason)
			}
			took := trial.Status.CompletionTime.Sub(trial.Status.StartTime.Time)
			if took < test.after || took > test.after+10*time.Second {
				t.Errorf("got a duration of %s, want %s", took, test.after)
			}
		})
	}
}

// running lets the agent of a node start a sample without finishing it.
func (l *lab) running(name string) {
	counts := l.count
	l.count = func(node string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
		if node != name {
			return counts(node, asked)
		}
		return &v1alpha1.NodeSampleStatus{ID: asked.ID, Phase: v1alpha1.SampleRunning, StartTime: ptr.To(metav1.NewTime(time.Unix(1700000000, 0)))}
	}
}

func TestProgressIsReported(t *testing.T) {
	l := newWatch(t, "n1", "n2", "n3", "n4")
	l.nodes["n4"].Writable = false
	l.count = func(node string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
		if node == "n1" {
			return finished(asked, listing(16387))
		}
		return nil
	}
	l.running("n2")
	trial := l.observe("a")
	for range 5 {
		l.step()
	}
	const want = "1 of 4 nodes responded. Counting on n2, until about 22:14:20 UTC. Waiting for the agent of n3. " +
		"Waiting for n4: its agent is not Ready, it is ignored, or the rollout disrupts it"
	condition := meta.FindStatusCondition(trial.Status.Conditions, v1alpha1.TrialConditionReconciling)
	if condition == nil || condition.Message != want || condition.Reason != v1alpha1.TrialReasonRunning {
		t.Errorf("got %+v, want %s", condition, want)
	}
	if next := l.step(); len(next.Steps) > 0 || next.Busy {
		t.Errorf("got %+v, want no steps without a change", next)
	}
}

// The next step of a node depends on the result of the previous one.
func TestANodeGetsNoRequestWhileItIsWritten(t *testing.T) {
	l := newWatch(t, "n1")
	trial := l.observe("a")
	l.step()
	l.candidates = []volumeplan.ProbeCandidate{candidate("s", "filer")}
	l.runUntilEnd(trial, 20)
	const waits = "report eda/a: Waiting: Waiting for n1: its StorageClientNode is being written"
	if label := slices.Index(l.log, "label n1"); label < 0 || l.log[label+1] != waits || !slices.Contains(l.log[label+2:], "request a sample from n1: 60 s of pv-1") {
		t.Errorf("want %q after the label, and a later request; got %q", waits, l.log)
	}
	l.expectEnd(trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "acregmin=30")
}

// A deleted trial, a lost write and a restarted manager leave no request, and no sample counts twice.
func TestObservingSurvives(t *testing.T) {
	l := newWatch(t, "n1", "n2")
	l.count = nil
	l.observe("a")
	l.step()
	l.step()
	l.trials = nil
	l.step()
	if got := l.log[len(l.log)-2:]; !slices.Equal(got, []string{"remove the sample request from n1", "remove the sample request from n2"}) {
		t.Errorf("deleted trial: got %v, want both requests removed", l.log)
	}

	l = newWatch(t, "n1", "n2")
	l.losesMemory, l.losesWrites = true, true
	trial := l.observe("a")
	l.runUntilEnd(trial, 20)
	l.expectEnd(trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "acregmin=30")
	if trial.Status.Recommendations[0].Nodes != 2 {
		t.Errorf("got status %+v, want the results of both nodes", trial.Status)
	}
}

func TestADisruptedNodeKeepsItsRequest(t *testing.T) {
	l := newWatch(t, "n1")
	l.count = nil
	l.observe("a")
	l.step()
	l.step()
	l.trials, l.nodes["n1"].Writable = nil, false
	l.step()
	if l.nodes["n1"].ClientNode.Spec.Sample == nil {
		t.Fatal("the request was removed while the rollout disrupts the node")
	}
	l.nodes["n1"].Writable = true
	l.step()
	if l.nodes["n1"].ClientNode.Spec.Sample != nil {
		t.Error("the request remains after the disruption")
	}
}

func TestCountersFitIntoAStatus(t *testing.T) {
	var names []string
	for i := range v1alpha1.MaxTrialSamples {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	l := newWatch(t, names...)
	l.count = func(_ string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
		var mounts []v1alpha1.MountSample
		for i := range 32 {
			m := listing(16387)
			m.MountPoint = fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 1000))
			mounts = append(mounts, m)
		}
		return finished(asked, mounts...)
	}
	trial := l.observe("a")
	l.runUntilEnd(trial, 5)
	data, err := json.Marshal(trial.Status.Samples)
	if err != nil || len(data) > maxSampleBytes+16<<10 {
		t.Errorf("got %d bytes, error %v", len(data), err)
	}
	for _, s := range trial.Status.Samples {
		if len(s.Mounts) < 8 || len(s.Mounts)+int(s.MountsOmitted) != 32 {
			t.Errorf("%s: got %d mounts, %d omitted; want at least 8 of 32", s.Node, len(s.Mounts), s.MountsOmitted)
		}
	}
}

// A registry entry for the kernel of one node leaves the decision to a user, and the text names the entry.
func TestARecommendationOnAKernelWithAKnownProblemIsByHand(t *testing.T) {
	l := newWatch(t, "n1", "n2")
	l.nodes["n2"].ClientNode.Status.KernelVersion, l.nodes["n2"].Node.Status.NodeInfo.KernelVersion = "6.1.70", "6.1.70"
	trial := l.observe("a")
	l.runUntilEnd(trial, 4)
	l.expectEnd(trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "check with the owner")
	got := trial.Status.Recommendations
	if len(got) != 1 || !got[0].ByHand || !strings.HasPrefix(got[0].Text, "n2: ") || !strings.Contains(got[0].Against, "nfs-congestion-lost-writes") {
		t.Errorf("got %+v", got)
	}
}

func TestEachRuleIsReportedOnceWithTheOptionsOfAllMounts(t *testing.T) {
	mount := func(node, rule string, options ...v1alpha1.MountOption) recommend.Mount {
		f := recommend.Finding{Rule: rule, Cause: recommend.CauseClient, Seen: "seen on " + node, ByHand: rule == "OpenAndClose"}
		f.Change.MountOptions = options
		return recommend.Mount{Node: node, Verdict: recommend.Verdict{Findings: []recommend.Finding{f}}}
	}
	got := recommendationsOf([]recommend.Mount{
		mount("n2", "AttributeRevalidation", "actimeo=30"), mount("n2", "AttributeRevalidation", "actimeo=60"), mount("n1", "AttributeRevalidation", "actimeo=30"),
		mount("n3", "OpenAndClose", "vers=3"),
	})
	if len(got) != 2 || got[0].Nodes != 2 || !slices.Equal(got[0].Options, []string{"actimeo=30", "actimeo=60"}) || got[0].Text != "n2: seen on n2" || !got[1].ByHand {
		t.Errorf("got %+v, want two recommendations", got)
	}
}

func TestVolumeOfAnObservingTrial(t *testing.T) {
	observing := func(countedVolume string) *v1alpha1.StorageClientTrial {
		trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "a"}}
		trial.Spec.ClaimName, trial.Spec.Workload.Name, trial.Status.Volume = "tools", v1alpha1.WorkloadObserve, countedVolume
		return trial
	}
	key := types.NamespacedName{Namespace: "eda", Name: "tools"}
	for name, test := range map[string]struct {
		bound, countedVolume        string
		volume, missing, impossible string
	}{
		"bound":                       {"pv-1", "", "pv-1", "", ""},
		"bound while it is counted":   {"pv-1", "pv-1", "pv-1", "", ""},
		"not bound":                   {"", "", "", "PersistentVolumeClaim tools does not exist or is not bound to a volume", ""},
		"bound to another one by now": {"pv-2", "pv-1", "", "", "the claim is no longer bound to volume pv-1; create a new trial"},
		"gone while it is counted":    {"", "pv-1", "", "", "the claim is no longer bound to volume pv-1; create a new trial"},
	} {
		t.Run(name, func(t *testing.T) {
			pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: test.bound}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: key.Namespace, Name: key.Name, UID: "1"}
			volumes := volumeplan.Snapshot{VolumeClaims: map[types.NamespacedName]*metav1.PartialObjectMetadata{
				key: {ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1"}},
			}}
			if test.bound != "" {
				volumes.Volumes = []*corev1.PersistentVolume{&pv}
			}
			got := Resolve(observing(test.countedVolume), volumes, nil, catalogue.AllowList{})
			if got.Volume != test.volume || got.Missing != test.missing || got.Impossible != test.impossible {
				t.Errorf("got volume %q, missing %q, impossible %q; want %+v", got.Volume, got.Missing, got.Impossible, test)
			}
		})
	}
}

// Only the trial runner can set the read-ahead and the sysctls of a trial's mounts. They need no other difference between the passes.
func TestReadAheadAndSysctlsAsACandidate(t *testing.T) {
	sysctls := func(name, value string) map[string]v1alpha1.SettingText {
		return map[string]v1alpha1.SettingText{name: v1alpha1.SettingText(value)}
	}
	for name, test := range map[string]struct {
		options    []v1alpha1.MountOption
		kib        int32
		sysctls    map[string]v1alpha1.SettingText
		driver     string
		impossible string
	}{
		"alone":                             {nil, 1024, nil, "", ""},
		"with options of the volume":        {[]v1alpha1.MountOption{"hard"}, 1024, nil, "", ""},
		"options of the volume alone":       {[]v1alpha1.MountOption{"hard"}, 0, nil, "", "the volume already has the mount options of the candidate"},
		"of a volume that needs its driver": {nil, 1024, nil, "smb.csi.k8s.io", "The trial cannot mount a volume of driver smb.csi.k8s.io"},
		"sysctls alone":                     {nil, 0, sysctls(rmem, "4096 1048576 16777216"), "", ""},
		"sysctls with options":              {[]v1alpha1.MountOption{"hard"}, 0, sysctls(rmem, "4096 1048576 16777216"), "", ""},
		"sysctls of the whole host":         {nil, 0, sysctls("vm.dirty_ratio", "10"), "", "spec.sysctls[vm.dirty_ratio] is 10: a trial can set only the sysctls of a network namespace"},
		"a sysctl out of range": {nil, 0, sysctls(rmem, "4096 1048576 2147483648"), "",
			"spec.sysctls[net.ipv4.tcp_rmem] is 4096 1048576 2147483648: number 3 must be 1 to 2147483647 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			pv := builders.NFSVolume([]string{"hard"})
			if test.driver != "" {
				pv.Spec.NFS, pv.Spec.CSI = nil, &corev1.CSIPersistentVolumeSource{Driver: test.driver, VolumeAttributes: map[string]string{"source": "//filer/share"}}
			}
			pv.Status.Phase, pv.Spec.ClaimRef = corev1.VolumeBound, &corev1.ObjectReference{Namespace: "eda", Name: "tools", UID: "1"}
			key := types.NamespacedName{Namespace: "eda", Name: "tools"}
			volumes := volumeplan.Snapshot{Volumes: []*corev1.PersistentVolume{pv}, VolumeClaims: map[types.NamespacedName]*metav1.PartialObjectMetadata{
				key: {ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1"}},
			}}
			trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "a"}}
			trial.Spec.ClaimName, trial.Spec.MountOptions, trial.Spec.ReadAheadKiB = "tools", test.options, test.kib
			trial.Spec.Sysctls, trial.Spec.Workload.Name = test.sysctls, v1alpha1.WorkloadReadSequential
			got := Resolve(trial, volumes, nil, catalogue.AllowList{})
			if got.Missing != "" || !strings.Contains(got.Impossible, test.impossible) || (got.Impossible == "") != (test.impossible == "") {
				t.Errorf("missing %q, impossible %q; want %q", got.Missing, got.Impossible, test.impossible)
			}
			if test.impossible == "" && !slices.Equal(got.Target.Options, got.Target.Own) {
				t.Errorf("got options %v, want those of the volume, %v", got.Target.Options, got.Target.Own)
			}
		})
	}
}
