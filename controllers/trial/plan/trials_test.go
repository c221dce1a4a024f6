package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/check"
)

// lab is a world with trials.
type lab struct {
	*world
	trials []*v1alpha1.StorageClientTrial
	// missing and impossible are the results for the targets of all trials.
	missing, impossible string
	// resolve changes the target of a trial.
	resolve func(*Trial)
	// losesMemory clears the manager's memory after each pass. losesWrites drops every second write of a status.
	losesMemory, losesWrites bool
	// fails reports whether the next write fails, or the manager dies before it. Nil means no failure.
	fails  func() bool
	writes int
	// count returns an agent's response to a sample request. Nil means no response.
	count func(node string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus
}

func newLab(t *testing.T, names ...string) *lab {
	l := &lab{world: newWorld(t, names...)}
	l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus { return l.measure(order, 1000, 1) }
	return l
}

// measure returns the response to an order. The GETATTR count depends on the mount options, and the time is always the same.
func (l *lab) measure(order v1alpha1.NodeTrial, before, after int64) *v1alpha1.NodeTrialStatus {
	if order.Kind == v1alpha1.TrialProbe {
		return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: true}
	}
	status := &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: true, Work: order.Work}
	for _, p := range order.Passes {
		count := map[v1alpha1.TrialArm]int64{v1alpha1.ArmBefore: before, v1alpha1.ArmAgain: before, v1alpha1.ArmAfter: after}[p.Arm]
		phase := v1alpha1.TrialPassPhase{Name: "First", Microseconds: 900000, Units: 1000, BytesSent: 100 * count, BytesReceived: 200 * count,
			Operations: []v1alpha1.TrialOperation{{Name: "GETATTR", Count: count}, {Name: "READDIR", Count: 10}}}
		again := phase
		again.Name = "Repeated"
		status.Passes = append(status.Passes, v1alpha1.TrialPass{Round: p.Round, Arm: p.Arm, Phases: []v1alpha1.TrialPassPhase{phase, again}})
	}
	return status
}

func (l *lab) add(name string, change ...func(*v1alpha1.StorageClientTrialSpec)) *v1alpha1.StorageClientTrial {
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: name, UID: types.UID("uid-" + name), Generation: 1}}
	trial.Spec = v1alpha1.StorageClientTrialSpec{ClaimName: "projects", Profile: "p", Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory, Path: "a"}}
	trial.Status.ObservedGeneration = -1
	for _, c := range change {
		c(&trial.Spec)
	}
	l.trials = append(l.trials, trial)
	return trial
}

// step makes a pass.
func (l *lab) step() Plan {
	l.t.Helper()
	s := Snapshot{Candidates: l.candidates, Profiles: l.profiles(), Memory: l.memory, Now: l.now}
	for _, trial := range l.trials {
		resolved := Trial{StorageClientTrial: trial, Missing: l.missing, Impossible: l.impossible, Volume: "pv-1"}
		resolved.Target = judge.ProbeTarget{Server: "filer", Path: "/e", FSType: "nfs", Own: []string{"vers=4.1"}, Options: []string{"actimeo=30", "vers=4.1"}}
		if l.resolve != nil {
			l.resolve(&resolved)
		}
		s.Trials = append(s.Trials, resolved)
	}
	for _, n := range l.nodes {
		s.Nodes = append(s.Nodes, *n)
	}
	next := For(s)
	l.memory = next.Memory
	if l.losesMemory {
		l.memory = Memory{}
	}
	labelled := 0
	for _, step := range next.Steps {
		if l.fails != nil && l.fails() {
			continue
		}
		l.log = append(l.log, describe(step))
		if written, writes := step.(WriteStatus); writes {
			l.report(written)
			continue
		}
		l.apply(step)
	}
	for _, n := range l.nodes {
		if n.Writable && isLabelled(n.Node) && n.ClientNode != nil && n.ClientNode.Spec.Trial != nil && n.ClientNode.Spec.Trial.Kind == v1alpha1.TrialTrial {
			labelled++
		}
	}
	l.countAll()
	if labelled > maxTrials {
		l.t.Errorf("got %d trials at the same time, want one", labelled)
	}
	l.now = l.now.Add(2 * time.Second)
	return next
}

func (l *lab) report(step WriteStatus) {
	l.writes++
	if l.losesWrites && l.writes%2 == 0 {
		return
	}
	step.Trial.Status = *step.Status
	seen := map[string]bool{}
	for _, p := range step.Status.Passes {
		key := fmt.Sprint(p.Round, p.Arm)
		if seen[key] {
			l.t.Errorf("got round %s twice", key)
		}
		seen[key] = true
	}
}

func (l *lab) runTrials() {
	l.t.Helper()
	for range 4000 {
		if !l.step().Busy {
			return
		}
	}
	l.t.Fatalf("the trial did not finish:\n%s", strings.Join(l.log[max(0, len(l.log)-20):], "\n"))
}

func expectStatus(t *testing.T, trial *v1alpha1.StorageClientTrial, condition, reason, words string) {
	t.Helper()
	c := meta.FindStatusCondition(trial.Status.Conditions, condition)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason || !strings.Contains(c.Message, words) || len(c.Message) > maxCondition {
		t.Errorf("condition %s: got %+v, want %s: %s", condition, c, reason, words)
	}
	if len(trial.Status.Conditions) != 4 || trial.Status.ObservedGeneration != trial.Generation {
		t.Errorf("got conditions %+v, observedGeneration %d", trial.Status.Conditions, trial.Status.ObservedGeneration)
	}
}

func TestATrialFromItsFirstStepToItsVerdict(t *testing.T) {
	l := newLab(t, "n2", "n1")
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) {
		s.Rounds, s.Goal.Metric = 3, "GETATTR"
	})
	l.runTrials()
	var kinds []string
	for _, line := range l.log {
		if !strings.HasPrefix(line, "report ") {
			kinds = append(kinds, line)
		}
	}
	want := []string{
		"label n1", "order n1: filer:/e actimeo=30,vers=4.1, 3 passes from round 1", "clear n1",
		"order n1: filer:/e actimeo=30,vers=4.1, 6 passes from round 2", "clear n1", "unlabel n1",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("steps (-want +got):\n%s\n%s", diff, strings.Join(l.log, "\n"))
	}
	status := trial.Status
	if status.Rounds != 3 || len(status.Passes) != 9 || status.Node != "n1" || status.Volume != "pv-1" || status.CompletionTime == nil || status.Passes[8].Node != "n1" {
		t.Errorf("got status %+v, want 3 rounds on n1", status)
	}
	if !slices.Equal(status.Before, []string{"vers=4.1"}) || !slices.Equal(status.After, []string{"actimeo=30", "vers=4.1"}) {
		t.Errorf("got a comparison of %v with %v", status.Before, status.After)
	}
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	l.expectClean()
	l.log = nil
	l.step()
	if len(l.log) > 0 {
		t.Errorf("got steps %v after the end, want none", l.log)
	}
}

func TestContentOfAnOrder(t *testing.T) {
	l := newLab(t, "n1")
	user := int64(1000)
	load := v1alpha1.TrialLoad{Workers: 16, BlockKiB: 4, Sync: true, Direct: true, Cached: true, ThroughClient: true}
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) {
		s.Workload = v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadCreateUnlink, Path: "b", AllowWrites: true, RunAsUser: &user, TrialLoad: load}
	})
	trial.Status.Rounds = 2
	resolved := Trial{StorageClientTrial: trial, Volume: "pv-1", Target: judge.ProbeTarget{Server: "filer", Path: "/e", FSType: "nfs", Options: []string{"nocto"}, Own: []string{"hard"}}}
	order := resolved.newOrder(6, 0, time.Unix(1700000000, 0))
	var rounds []int32
	arms := map[v1alpha1.TrialArm]bool{}
	for _, p := range order.Passes {
		rounds, arms[p.Arm] = append(rounds, p.Round), true
	}
	if !slices.Equal(rounds, []int32{3, 3, 3}) || len(arms) != 3 {
		t.Errorf("got passes %+v, want 3 of each arm", order.Passes)
	}
	order.Passes = nil
	want := &v1alpha1.NodeTrial{
		ID: resolved.hash() + "-1700000000", Kind: v1alpha1.TrialTrial, Volume: "pv-1", Server: "filer", Path: "/e", FSType: "nfs", MountOptions: []string{"nocto"},
		OwnMountOptions: []string{"hard"}, RunAsUser: 1000, TimeoutSeconds: 600,
		Work: &v1alpha1.NodeTrialWork{Name: v1alpha1.WorkloadCreateUnlink, Path: "b", AllowWrites: true, PauseSeconds: 5, TrialLoad: load},
	}
	check.Equal(t, "order", want, order)
}

// The candidate has its window, and the other passes have the window of the volume's mounts: on the node itself, if it has one.
func TestReadAheadOfAnOrder(t *testing.T) {
	mount := func(volume string, kib int32) v1alpha1.MountStatus {
		return v1alpha1.MountStatus{Volume: volume, ReadAheadKiB: kib}
	}
	for name, test := range map[string]struct {
		kib           int32
		n1, n2        []v1alpha1.MountStatus
		before, after int32
	}{
		"of the node's mount":       {4096, []v1alpha1.MountStatus{mount("pv-2", 64), mount("pv-1", 512)}, []v1alpha1.MountStatus{mount("pv-1", 1024)}, 512, 4096},
		"of another node's mount":   {4096, []v1alpha1.MountStatus{mount("pv-2", 64), mount("pv-1", 0)}, []v1alpha1.MountStatus{mount("pv-1", 1024)}, 1024, 4096},
		"without any mount":         {4096, nil, nil, 0, 4096},
		"of a trial without window": {0, []v1alpha1.MountStatus{mount("pv-1", 512)}, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1", "n2")
			trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.ReadAheadKiB, s.Rounds, s.NodeSelector = test.kib, 1, nil })
			l.nodes["n1"].ClientNode.Status.Mounts, l.nodes["n2"].ClientNode.Status.Mounts = test.n1, test.n2
			var passes []v1alpha1.NodeTrialPass
			l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				passes = order.Passes
				return l.measure(order, 1000, 1)
			}
			l.runTrials()
			expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
			for _, pass := range passes {
				want := test.before
				if pass.Arm == v1alpha1.ArmAfter {
					want = test.after
				}
				if pass.ReadAheadKiB != want {
					t.Errorf("%s: got %d KiB, want %d", pass.Arm, pass.ReadAheadKiB, want)
				}
			}
			check.Equal(t, "passes", 3, len(passes))
		})
	}
}

// All rounds have the window of the first one in Before, whatever happens to the volume's mounts later. Else they are not comparable.
func TestTheReadAheadOfBeforeStaysTheSame(t *testing.T) {
	mounts := func(kib int32) []v1alpha1.MountStatus {
		return []v1alpha1.MountStatus{{Volume: "pv-1", ReadAheadKiB: kib}}
	}
	for name, test := range map[string]struct {
		first, later []v1alpha1.MountStatus
		want         int32
	}{
		"the mounts disappear":                       {mounts(15360), nil, 15360},
		"the mounts get another window":              {mounts(15360), mounts(512), 15360},
		"the mounts get the window of the candidate": {mounts(15360), mounts(4096), 15360},
		"mounts appear":                              {nil, mounts(15360), 0},
		"mounts with the candidate's window appear":  {nil, mounts(4096), 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1")
			trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.ReadAheadKiB, s.Rounds = 4096, 6 })
			l.resolve = func(t *Trial) { t.Target.Options = t.Target.Own }
			l.nodes["n1"].ClientNode.Status.Mounts = test.first
			l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				status := l.measure(order, 1000, 1)
				for i, pass := range order.Passes {
					status.Passes[i].ReadAheadKiB = pass.ReadAheadKiB
				}
				l.nodes["n1"].ClientNode.Status.Mounts = test.later
				return status
			}
			l.runTrials()
			expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
			for _, pass := range trial.Status.Passes {
				want := map[bool]int32{true: 4096, false: test.want}[pass.Arm == v1alpha1.ArmAfter]
				if pass.ReadAheadKiB != want {
					t.Errorf("round %d, %s: got %d KiB, want %d", pass.Round, pass.Arm, pass.ReadAheadKiB, want)
				}
			}
			check.Equal(t, "rounds", 6, trial.Status.Rounds)
		})
	}
}

// A candidate with other mount options may have the window of the mounts: its options are still compared.
func TestOtherMountOptionsWithTheReadAheadOfTheMounts(t *testing.T) {
	l := newLab(t, "n1")
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.ReadAheadKiB, s.Rounds = 1024, 1 })
	l.nodes["n1"].ClientNode.Status.Mounts = []v1alpha1.MountStatus{{Volume: "pv-1", ReadAheadKiB: 1024}}
	l.runTrials()
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}

func TestATrialThatLosesItsManagerOrAWrite(t *testing.T) {
	for name, prepare := range map[string]func(*lab){
		"a manager that dies after each pass": func(l *lab) { l.losesMemory = true },
		"a status write that is lost":         func(l *lab) { l.losesWrites = true },
		"both":                                func(l *lab) { l.losesMemory, l.losesWrites = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1", "n2")
			trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 5 })
			prepare(l)
			l.runTrials()
			orders := slices.DeleteFunc(slices.Clone(l.log), func(line string) bool { return !strings.HasPrefix(line, "order ") })
			if slices.Sort(orders); len(slices.Compact(slices.Clone(orders))) != len(orders) {
				t.Errorf("got repeated rounds:\n%s", strings.Join(orders, "\n"))
			}
			if trial.Status.Rounds != 5 || len(trial.Status.Passes) != 15 {
				t.Errorf("got %d rounds, %d passes; want 5, 15", trial.Status.Rounds, len(trial.Status.Passes))
			}
			expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
			l.expectClean()
		})
	}
}

func TestHowATrialFails(t *testing.T) {
	respond := func(phase v1alpha1.TrialPhase, message string) func(*lab) {
		return func(l *lab) {
			l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: phase, Message: message}
			}
		}
	}
	for name, test := range map[string]struct {
		prepare       func(*lab)
		reason, words string
	}{
		"a candidate that the kernel rejects": {respond(v1alpha1.TrialFinished, "After, round 1: mount(2): invalid argument: nfs: bad"), v1alpha1.TrialReasonNotMounted, "nfs: bad"},
		"a proof that is missing":             {respond(v1alpha1.TrialVoid, "no proof of Transports: 1, the list asks for 4"), v1alpha1.TrialReasonVoid, "no proof of Transports"},
		"an agent that rejects it":            {respond(v1alpha1.TrialRefused, "rejected by this node's agent: x"), v1alpha1.TrialReasonNotPossible, "rejected by"},
		"a read-ahead that the mounts have": {func(l *lab) {
			l.trials[0].Spec.ReadAheadKiB = 1024
			l.resolve = func(t *Trial) { t.Target.Options = t.Target.Own }
			l.nodes["n1"].ClientNode.Status.Mounts = []v1alpha1.MountStatus{{Volume: "pv-1", ReadAheadKiB: 1024}}
		}, v1alpha1.TrialReasonNotPossible, "Mounts of pv-1 already have a read-ahead of 1024 KiB"},
		"no candidate":                       {func(l *lab) { l.impossible = "no rule of profile p selects the volume" }, v1alpha1.TrialReasonNotPossible, "no rule of profile p"},
		"a claim that is never created":      {func(l *lab) { l.missing = "no claim" }, v1alpha1.TrialReasonTimedOut, "no claim"},
		"no trial runner":                    {func(l *lab) { l.runners = false }, v1alpha1.TrialReasonNotPossible, "created no Pod for Node"},
		"a trial runner that is never Ready": {func(l *lab) { l.stuck = true }, v1alpha1.TrialReasonNotPossible, "did not become Ready"},
		"an agent that never responds":       {func(l *lab) { l.respond = nil }, v1alpha1.TrialReasonTimedOut, "Round 1 of 9 runs on n1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1")
			trial := l.add("a")
			test.prepare(l)
			for range 4000 {
				l.step()
			}
			expectStatus(t, trial, v1alpha1.TrialConditionFailed, test.reason, test.words)
			expectStatus(t, trial, v1alpha1.TrialConditionStalled, test.reason, "")
			check.Equal(t, "verdict", "", trial.Status.Verdict)
			l.expectClean()
		})
	}
}

func TestATrialLeavesANodeThatIsNeeded(t *testing.T) {
	l := newLab(t, "n1", "n2")
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 2 })
	measure := l.respond
	l.respond = nil
	for l.nodes["n1"].ClientNode.Spec.Trial == nil {
		l.step()
	}
	l.nodes["n1"].Node.Spec.Unschedulable = true
	if l.step(); l.nodes["n1"].ClientNode.Spec.Trial != nil {
		t.Error("a cordoned node keeps its order")
	}
	l.respond = measure
	l.runTrials()
	if trial.Status.Rounds != 2 || trial.Status.Node != "n2" {
		t.Errorf("got %d rounds on %s, want 2 on n2:\n%s", trial.Status.Rounds, trial.Status.Node, strings.Join(l.log, "\n"))
	}
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	l.expectClean()
}

func TestATrialWritesNothingToADisruptedNode(t *testing.T) {
	l := newLab(t, "n1")
	trial := l.add("a")
	l.respond = nil
	for l.nodes["n1"].ClientNode.Spec.Trial == nil {
		l.step()
	}
	l.nodes["n1"].Node.Spec.Unschedulable, l.nodes["n1"].Writable = true, false
	l.nodes["n1"].ClientNode.Status.Trial = &v1alpha1.NodeTrialStatus{
		ID: l.nodes["n1"].ClientNode.Spec.Trial.ID, Phase: v1alpha1.TrialVoid, Message: "the node must be rebooted or released first",
	}
	for range 10 {
		l.step()
	}
	if trial.Status.CompletionTime != nil {
		t.Fatalf("the trial finished, want it in progress: %+v", trial.Status.Conditions)
	}
	l.nodes["n1"].Node.Spec.Unschedulable, l.nodes["n1"].Writable = false, true
	l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus { return l.measure(order, 5, 5) }
	l.nodes["n1"].ClientNode.Status.Trial = nil
	l.runTrials()
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}

func TestADeletedTrialLeavesNothing(t *testing.T) {
	l := newLab(t, "n1")
	l.add("a")
	l.respond = nil
	for l.nodes["n1"].ClientNode.Spec.Trial == nil {
		l.step()
	}
	l.trials = nil
	l.runTrials()
	l.expectClean()
}

func TestOneTrialAtATimeAndProbesFirst(t *testing.T) {
	l := newLab(t, "n1", "n2", "n3")
	first := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 1 })
	second := l.add("b", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 1 })
	c, d := candidate("s", "filer"), candidate("t", "filer")
	l.candidates = append(l.candidates, c, d)
	var started bool
	for range 200 {
		next := l.step()
		started = started || first.Status.Rounds > 0
		if started && (l.memory.Results[c.ProbeKey].Text == "" || l.memory.Results[d.ProbeKey].Text == "") {
			t.Fatal("the trial started before the probes finished")
		}
		if first.Status.CompletionTime == nil && second.Status.Rounds > 0 {
			t.Fatal("the second trial started before the first finished")
		}
		if !next.Busy {
			break
		}
	}
	expectStatus(t, first, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	expectStatus(t, second, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	l.expectClean()
}

func TestATrialOnSelectedNodesOnly(t *testing.T) {
	l := newLab(t, "n1", "n2")
	l.nodes["n2"].Node.Labels["zone"] = "b"
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) {
		s.Rounds, s.NodeSelector = 1, map[string]v1alpha1.LabelText{"zone": "b"}
	})
	l.runTrials()
	check.Equal(t, "node", "n2", trial.Status.Node)
}

func TestATimedOutTrialIsEvaluatedByItsRounds(t *testing.T) {
	l := newLab(t, "n1")
	timeout := int32(60)
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds, s.TimeoutSeconds = 40, &timeout })
	l.runTrials()
	if trial.Status.Rounds == 0 || trial.Status.Rounds >= 40 {
		t.Errorf("got %d rounds, want 1 to 39", trial.Status.Rounds)
	}
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	l.expectClean()
}

func TestOnlyCompleteRoundsCount(t *testing.T) {
	pass := func(round int32, arm v1alpha1.TrialArm) v1alpha1.TrialPass {
		return v1alpha1.TrialPass{Round: round, Arm: arm}
	}
	passes := []v1alpha1.TrialPass{
		pass(2, v1alpha1.ArmAfter), pass(2, v1alpha1.ArmBefore), pass(2, v1alpha1.ArmAgain), pass(3, v1alpha1.ArmBefore), pass(3, v1alpha1.ArmAgain), pass(4, v1alpha1.ArmAfter),
	}
	for done, want := range map[int32]int{1: 3, 2: 0, 0: 0} {
		if got := completeRounds(passes, done, "n1"); len(got) != want {
			t.Errorf("after round %d: got %d passes, want %d", done, len(got), want)
		}
	}
}

func TestNumbersInAStatus(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 1: "1", 0.00123456: "0.001235", 123456: "123500", 0.5: "0.5"} {
		if got := decimal(n); got != want {
			t.Errorf("decimal(%g) = %q, want %q", n, got, want)
		}
	}
}

func TestTheNumberOfRoundsIsDecidedAfterTheFirstRounds(t *testing.T) {
	l := newLab(t, "n1")
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Goal.Metric = "GETATTR" })
	for range 4000 {
		before := trial.Status.Rounds
		l.step()
		if trial.Status.Rounds < firstRounds && trial.Status.RoundsWanted > firstRounds {
			t.Fatalf("got %d planned rounds after %d, want no more yet", trial.Status.RoundsWanted, trial.Status.Rounds)
		}
		if before >= firstRounds && trial.Status.CompletionTime != nil {
			break
		}
	}
	status := trial.Status
	if status.Rounds < firstRounds || status.Rounds != status.RoundsWanted || status.RoundsReason == "" || status.Verdict != "Better" {
		t.Errorf("got %d rounds of %d (%s), verdict %s: %+v", status.Rounds, status.RoundsWanted, status.RoundsReason, status.Verdict, status.Conditions)
	}
}
