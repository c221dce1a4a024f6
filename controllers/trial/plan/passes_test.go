package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// bay is a lab with trials of an SMB volume. Kubelets mount clones, and agents report them some time later.
type bay struct {
	*lab
	// mountError returns the kubelet's error for the mount of a pass; empty if it succeeds. podResult returns the termination message of
	// the Pod.
	mountError func(pass string) string
	podResult  func(pass string) string
	// silentAgents prevents the agents' reports of mounts. hangs makes Pods run forever.
	silentAgents, hangs bool
	// hasOtherMounts contains nodes on which another user mounts from the server while a clone exists.
	hasOtherMounts map[string]bool
	// mounted is the time of the last mount of a clone, by node. passes contains the started passes.
	mounted map[string]time.Time
	passes  []string
	// memoryLost is the time at which the manager lost its memory.
	memoryLost time.Time
}

func newBay(t *testing.T, names ...string) *bay {
	b := &bay{lab: newLab(t, names...), mounted: map[string]time.Time{}, hasOtherMounts: map[string]bool{}}
	b.runners = false
	b.resolve = func(r *Trial) {
		r.pv, r.Target = share("a").Volume, judge.ProbeTarget{Server: "filer", Obstacle: "only NFS can be mounted in a separate network namespace", Clone: judge.CloneTarget{
			Own: []string{"vers=3.0", "actimeo=1"}, Options: []string{"vers=3.0", "actimeo=30"}, Protocol: v1alpha1.ProtocolSMB,
		}}
		if r.Status.Route == v1alpha1.RouteClone {
			r.Target.Clone.Own, r.Target.Clone.Options = r.Status.Before, r.Status.After
		}
	}
	b.mountError = func(string) string { return "" }
	b.podResult = func(pass string) string {
		if strings.HasSuffix(pass, "after") {
			return measured("QUERY_INFO", 5)
		}
		return measured("QUERY_INFO", 1000)
	}
	b.visit = b.mount
	return b
}

func measured(operation string, count int64) string {
	phase := v1alpha1.TrialPassPhase{Name: "First", Units: 1000, Microseconds: 900000, BytesReceived: 7, Operations: []v1alpha1.TrialOperation{{Name: operation, Count: count}}}
	again := phase
	again.Name = "Repeated"
	return v1alpha1.ClonePass{Phases: []v1alpha1.TrialPassPhase{phase, again}}.Encode()
}

// passOf returns the round and the arm of a clone.
func passOf(clone *Clone) string {
	return strings.Join(strings.Split(strings.TrimPrefix(clone.Volume.Name, v1alpha1.ClonePrefix), "-")[1:], " ")
}

// mount sets the current results of kubelet, driver and agent.
func (b *bay) mount(clone *Clone, n *Node) {
	pass, age := passOf(clone), b.now.Sub(clone.Pod.CreationTimestamp.Time)
	if age == 2*time.Second {
		b.passes = append(b.passes, pass)
		if last, found := b.mounted[n.Node.Name]; found && b.now.Sub(last) < 8*time.Second && b.now.Sub(b.memoryLost) > settleTime && !b.losesMemory {
			b.t.Errorf("%s starts on %s, which has the mount of another pass", pass, n.Node.Name)
		}
	}
	if message := b.mountError(pass); message != "" {
		clone.Failures = []string{message}
		return
	}
	if age < 4*time.Second {
		return
	}
	clone.Pod.Status.Phase, b.mounted[n.Node.Name] = corev1.PodRunning, b.now
	if age >= 10*time.Second && !b.silentAgents {
		b.report(n, clone.Volume.Name, clone.Volume.Spec.MountOptions)
	}
	if age >= 30*time.Second && !b.hangs {
		clone.Pod.Status.Phase = corev1.PodSucceeded
		clone.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: cloneContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Message: b.podResult(pass), Reason: "Completed",
		}}}}
	}
}

// report sets the mounts that the agent of a node reports.
func (b *bay) report(n *Node, volume string, list []string) {
	seconds := "1"
	if slices.Contains(list, "actimeo=30") {
		seconds = "30"
	}
	n.ClientNode.Status.Servers = []v1alpha1.ServerStatus{{Server: "filer", Protocol: v1alpha1.ServerSMB}}
	n.ClientNode.Status.Mounts = []v1alpha1.MountStatus{{Volume: volume, Server: "filer", Protocol: "SMB3.0", Connections: 1, Options: []string{"vers=3.0", "acregmax=" + seconds, "acdirmax=" + seconds}}}
	if b.hasOtherMounts[n.Node.Name] {
		n.ClientNode.Status.Mounts = append(n.ClientNode.Status.Mounts, v1alpha1.MountStatus{Volume: "theirs", Server: "filer", Protocol: "SMB3.0"})
	}
}

// unmount lets agents report the end of mounts with a delay.
func (b *bay) unmount() {
	for name, last := range b.mounted {
		if status := &b.nodes[name].ClientNode.Status; b.now.Sub(last) >= 8*time.Second {
			status.Servers, status.Mounts = nil, nil
		}
	}
}

func (b *bay) pass() Plan {
	b.t.Helper()
	b.unmount()
	next := b.step()
	if len(b.clones) > 1 {
		b.t.Errorf("got %d clones at the same time, want one", len(b.clones))
	}
	return next
}

func (b *bay) runPasses() {
	b.t.Helper()
	for range 4000 {
		if !b.pass().Busy {
			b.expectClean()
			return
		}
	}
	b.t.Fatalf("the trial did not finish:\n%s", strings.Join(b.log[max(0, len(b.log)-20):], "\n"))
}

func rounds(n int32) func(*v1alpha1.StorageClientTrialSpec) {
	return func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds, s.Goal.Metric = n, "QUERY_INFO" }
}

func TestATrialByClones(t *testing.T) {
	b := newBay(t, "n1")
	trial := b.add("a", rounds(3))
	b.runPasses()
	status := trial.Status
	if status.Rounds != 3 || len(status.Passes) != 9 || status.Node != "n1" || status.Route != v1alpha1.RouteClone || status.Volume != "pv-1" {
		t.Errorf("got status %+v, want 3 rounds on n1", status)
	}
	if !slices.Equal(status.Before, []string{"vers=3.0", "actimeo=1"}) || !slices.Equal(status.After, []string{"vers=3.0", "actimeo=30"}) {
		t.Errorf("got a comparison of %v with %v", status.Before, status.After)
	}
	var want []string
	for _, p := range (Trial{StorageClientTrial: trial}).passesFrom(1, 3) {
		want = append(want, fmt.Sprintf("%d %s", p.Round, strings.ToLower(string(p.Arm))))
	}
	if diff := cmp.Diff(want, b.passes); diff != "" {
		t.Errorf("passes (-drawn +run):\n%s", diff)
	}
	for _, pass := range status.Passes {
		count := map[v1alpha1.TrialArm]int64{v1alpha1.ArmAfter: 5}[pass.Arm]
		if count == 0 {
			count = 1000
		}
		if pass.Node != "n1" || len(pass.Phases) != 2 || pass.Phases[1].Operations[0].Count != count || pass.Phases[0].BytesReceived != 7 {
			t.Errorf("got pass %+v", pass)
		}
	}
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	for _, line := range b.log {
		if strings.HasPrefix(line, "label") || strings.HasPrefix(line, "order") {
			t.Errorf("got step %q, want none for the trial runner", line)
		}
	}
	if took := b.now.Sub(status.StartTime.Time) / 9; took > 70*time.Second {
		t.Errorf("got a pass of %s, want at most 70 s", took)
	}
}

// The volume of each pass has exactly the mount options of its arm, and its Pod follows the trial's spec.
func TestObjectsOfAPass(t *testing.T) {
	b := newBay(t, "n1")
	user := int64(1000)
	b.add("a", rounds(1), func(s *v1alpha1.StorageClientTrialSpec) {
		s.Workload = v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadCreateUnlink, Path: "x/y", AllowWrites: true, RunAsUser: &user}
		s.Workload.TrialLoad = v1alpha1.TrialLoad{Workers: 16, BlockKiB: 4, Sync: true, Direct: true, Cached: true, ThroughClient: true}
	})
	b.visit = func(clone *Clone, n *Node) {
		b.mount(clone, n)
		list := []string{"vers=3.0", "actimeo=1"}
		if strings.HasSuffix(passOf(clone), "after") {
			list[1] = "actimeo=30"
		}
		container, security := clone.Pod.Spec.Containers[0], clone.Pod.Spec.SecurityContext
		if diff := cmp.Diff(list, clone.Volume.Spec.MountOptions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", clone.Volume.Name, diff)
		}
		args := []string{"trial-pass", "--name=CreateUnlink", "--path=x/y", "--pause=5s", "--workers=16", "--block-kib=4", "--sync=true", "--direct=true",
			"--cached=true", "--through-client=true", "--allow-writes"}
		if diff := cmp.Diff(args, container.Args); diff != "" {
			t.Errorf("arguments (-want +got):\n%s", diff)
		}
		if *security.RunAsUser != 1000 || *security.RunAsGroup != 1000 || !*security.RunAsNonRoot || container.VolumeMounts[0].ReadOnly || container.ReadinessProbe != nil {
			t.Errorf("got Pod %+v, want write access as user 1000", clone.Pod.Spec)
		}
	}
	b.runPasses()
	if len(b.passes) != 3 {
		t.Errorf("got passes %v, want 3", b.passes)
	}
}

func TestAReadingWorkloadHasNoWritableClone(t *testing.T) {
	b := newBay(t, "n1")
	trial := b.add("a")
	r := Trial{StorageClientTrial: trial}
	b.resolve(&r)
	pod := r.passPod(r.originOf(r.nextPass(PassState{})), *b.nodes["n1"], &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u"}})
	container := pod.Spec.Containers[0]
	if !container.VolumeMounts[0].ReadOnly || slices.Contains(container.Args, "--allow-writes") || *pod.Spec.SecurityContext.RunAsUser != v1alpha1.DefaultTrialUser {
		t.Errorf("got Pod %+v, want read access only", pod.Spec)
	}
}

// A manager may die or lose a write between any two steps.
func TestATrialByClonesThatLosesItsManagerOrAWrite(t *testing.T) {
	for name, prepare := range map[string]func(*bay){
		"a manager that dies after each pass": func(b *bay) { b.losesMemory = true },
		"a status write that is lost":         func(b *bay) { b.losesWrites = true },
		"both":                                func(b *bay) { b.losesMemory, b.losesWrites = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t, "n1", "n2")
			trial := b.add("a", rounds(3))
			prepare(b)
			b.runPasses()
			if runs := slices.Sorted(slices.Values(b.passes)); len(slices.Compact(slices.Clone(runs))) != len(runs) {
				t.Errorf("got repeated passes: %v", runs)
			}
			if trial.Status.Rounds != 3 || len(trial.Status.Passes) != 9 {
				t.Errorf("got %d rounds, %d passes; want 3, 9", trial.Status.Rounds, len(trial.Status.Passes))
			}
			expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
		})
	}
	// The manager loses its memory once, between any two steps.
	for passes := range 60 {
		b := newBay(t, "n1")
		trial := b.add("a", rounds(1))
		for range passes {
			b.pass()
		}
		b.memory = Memory{}
		b.runPasses()
		if trial.Status.Rounds != 1 || len(trial.Status.Passes) != 3 {
			t.Errorf("after %d passes: got %d rounds, %d passes, %+v", passes, trial.Status.Rounds, len(trial.Status.Passes), trial.Status.Conditions)
		}
	}
}

// Writes fail, the manager dies, and other users delete Pods and nodes. There is at most one clone, each round is complete and on
// one node, and nothing remains.
func TestRandomSchedulesOfATrialByClones(t *testing.T) {
	for seed := range uint64(300) {
		b, random := newBay(t, "n1", "n2", "n3"), rand.New(rand.NewPCG(seed, 1))
		chance := func(percent int) bool { return random.IntN(100) < percent }
		trial := b.add(fmt.Sprint(seed), rounds(2), func(s *v1alpha1.StorageClientTrialSpec) { s.TimeoutSeconds = ptr.To[int32](7200) })
		b.fails = func() bool { return chance(10) }
		for trial.Status.CompletionTime == nil {
			for _, clone := range b.clones {
				// A user evicts the Pod, or a manager dies while it deletes the clone.
				if clone.Pod != nil && chance(1) {
					clone.Pod = nil
				}
			}
			for _, name := range []string{"n1", "n2", "n3"} {
				n := b.nodes[name]
				n.Node.Spec.Unschedulable = chance(1) || n.Node.Spec.Unschedulable && chance(90)
				b.hasOtherMounts[name] = chance(1)
			}
			if chance(3) {
				b.memory, b.memoryLost = Memory{}, b.now
			}
			b.pass()
		}
		for name, n := range b.nodes {
			n.Node.Spec.Unschedulable, b.hasOtherMounts[name] = false, false
		}
		b.fails = nil
		b.runPasses()
		nodes := map[int32]string{}
		for _, pass := range trial.Status.Passes {
			if node, known := nodes[pass.Round]; known && node != pass.Node {
				t.Errorf("seed %d: got round %d on %s and %s, want one node", seed, pass.Round, node, pass.Node)
			}
			nodes[pass.Round] = pass.Node
		}
		condition := meta.FindStatusCondition(trial.Status.Conditions, v1alpha1.TrialConditionComplete)
		if condition.Reason != v1alpha1.TrialReasonDecided && condition.Reason != v1alpha1.TrialReasonVoid || condition.Reason == v1alpha1.TrialReasonDecided && len(trial.Status.Passes) != 6 {
			t.Errorf("seed %d: got %s, %s, passes %+v", seed, condition.Reason, condition.Message, trial.Status.Passes)
		}
	}
}

// The claim was never created, because of a crash.
func TestACloneThatLacksItsClaimGetsIt(t *testing.T) {
	b := newBay(t, "n1")
	trial := b.add("a", rounds(1))
	for len(b.clones) == 0 {
		b.pass()
	}
	for _, clone := range b.clones {
		clone.VolumeClaim = nil
	}
	b.runPasses()
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}

func TestHowATrialByClonesFails(t *testing.T) {
	const invalid = `MountVolume.MountDevice failed for volume "x" : mount error(22): Invalid argument`
	const down = `MountVolume.MountDevice failed for volume "x" : mount error(112): Host is down`
	arm := func(suffix, message string) func(string) string {
		return func(pass string) string {
			if strings.HasSuffix(pass, suffix) {
				return message
			}
			return ""
		}
	}
	podResult := func(message string) func(*bay) {
		return func(b *bay) { b.podResult = func(string) string { return message } }
	}
	for name, test := range map[string]struct {
		prepare       func(*bay)
		reason, words string
		not           string
	}{
		"a candidate that the driver rejects": {func(b *bay) { b.mountError = arm("after", invalid) }, v1alpha1.TrialReasonNotMounted, invalid, "original mount options"},
		"a candidate that is denied, and the original mount options are not": {func(b *bay) { b.mountError = arm("after", denied) }, v1alpha1.TrialReasonNotMounted,
			"the original mount options work", ""},
		"original mount options that are denied": {func(b *bay) { b.mountError = func(string) string { return denied } }, v1alpha1.TrialReasonNotPossible,
			"A clone could not be mounted with the original mount options: ", "After, round"},
		"original mount options that the driver rejects": {func(b *bay) {
			b.mountError = func(pass string) string { return arm("before", invalid)(pass) + arm("again", invalid)(pass) }
		}, v1alpha1.TrialReasonNotPossible, "A clone could not be mounted with the original mount options: ", "After, round"},
		"a server that is down":               {func(b *bay) { b.mountError = func(string) string { return down } }, v1alpha1.TrialReasonVoid, "Host is down", ""},
		"work that fails":                     {podResult(`{"failed":"no file to read"}`), v1alpha1.TrialReasonNotMounted, "round 1: no file to read", ""},
		"a proof that is missing":             {podResult(`{"void":"//filer/share has 2 connections"}`), v1alpha1.TrialReasonVoid, "3 passes in a row were invalid; the last one: //filer/share has 2 connections", ""},
		"a Pod without a result":              {podResult(""), v1alpha1.TrialReasonVoid, "finished without a result: Completed, exit code 0", ""},
		"a Pod with an unreadable result":     {podResult("hello"), v1alpha1.TrialReasonVoid, "returned an unreadable result", ""},
		"an agent that reports no mount":      {func(b *bay) { b.silentAgents = true }, v1alpha1.TrialReasonVoid, "the agent on n1 reports no mount of it", ""},
		"a Pod that never starts":             {func(b *bay) { b.visit = nil }, v1alpha1.TrialReasonVoid, "did not start on n1 within 3m0s", ""},
		"a claim that is never bound":         {func(b *bay) { b.unbound = true }, v1alpha1.TrialReasonVoid, "neither a bound claim nor a node for its Pod within 3m0s", ""},
		"a Pod that never ends":               {func(b *bay) { b.hangs = true }, v1alpha1.TrialReasonVoid, "did not report its result", ""},
		"another mount next to it":            {func(b *bay) { b.hasOtherMounts["n1"] = true }, v1alpha1.TrialReasonVoid, "theirs was mounted on n1 next to a clone", ""},
		"an API server that rejects a clone":  {func(b *bay) { b.rejection = "not here" }, v1alpha1.TrialReasonNotPossible, "The API server rejected a clone of pv-1: not here", ""},
		"nodes that all have mounts of it":    {func(b *bay) { b.report(b.nodes["n1"], "theirs", nil) }, v1alpha1.TrialReasonTimedOut, "no mount of filer", ""},
		"a driver without support for clones": {func(b *bay) { b.impossible = "volumes of driver x cannot be cloned" }, v1alpha1.TrialReasonNotPossible, "driver x", ""},
		"impossible numbers":                  {podResult(measured("QUERY_INFO", -1)), v1alpha1.TrialReasonVoid, "returned impossible numbers", ""},
		"connections that were not counted":   {podResult(strings.Replace(measured("QUERY_INFO", 1), "{", `{"transports":4,`, 1)), v1alpha1.TrialReasonVoid, "had 4 connections, but its mount options request 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t, "n1")
			trial := b.add("a", rounds(2))
			test.prepare(b)
			for range 4000 {
				b.pass()
			}
			expectStatus(t, trial, v1alpha1.TrialConditionFailed, test.reason, test.words)
			if message := trial.Status.Conditions[0].Message; test.not != "" && strings.Contains(message, test.not) {
				t.Errorf("got message %q, want it without %q", message, test.not)
			}
			if len(b.clones) > 0 {
				t.Errorf("got clones %v, want none", slices.Sorted(maps.Keys(b.clones)))
			}
		})
	}
}

// The first pass belongs to the candidate, so its mount options come before the original ones.
func TestACandidateThatComesFirst(t *testing.T) {
	for name, test := range map[string]struct {
		own           string
		reason, words string
	}{
		"the original mount options work":               {"", v1alpha1.TrialReasonNotMounted, "the original mount options work"},
		"the original mount options do not work either": {denied, v1alpha1.TrialReasonNotPossible, "A clone could not be mounted with the original mount options: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t, "n1")
			var trial *v1alpha1.StorageClientTrial
			for i := 0; trial == nil || (Trial{StorageClientTrial: trial}).passesFrom(1, 1)[0].Arm != v1alpha1.ArmAfter; i++ {
				b.trials = nil
				trial = b.add(fmt.Sprint(i), rounds(1))
			}
			b.mountError = func(pass string) string {
				if strings.HasSuffix(pass, "after") {
					return denied
				}
				return test.own
			}
			b.runPasses()
			expectStatus(t, trial, v1alpha1.TrialConditionFailed, test.reason, test.words)
		})
	}
}

// An invalid pass runs again, and its success resets the count of invalid passes.
func TestAnInvalidPassRunsAgain(t *testing.T) {
	b := newBay(t, "n1")
	trial := b.add("a", rounds(3))
	podResult, voids := b.podResult, map[string]int{}
	b.podResult = func(pass string) string {
		if voids[pass]++; voids[pass] < maxVoids {
			return `{"void":"somebody was there"}`
		}
		return podResult(pass)
	}
	b.runPasses()
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	if trial.Status.Rounds != 3 || len(b.passes) != 9*maxVoids {
		t.Errorf("got %d rounds, passes %v; want 3 rounds", trial.Status.Rounds, b.passes)
	}
}

// Another mount appears next to a clone. The pass ends at once, because the other mount would use the clone's connections.
func TestACloneIsDeletedAtOnceAfterAnotherMount(t *testing.T) {
	b := newBay(t, "n1", "n2")
	trial := b.add("a", rounds(1))
	b.hasOtherMounts["n1"], b.hangs = true, true
	for range 12 {
		b.pass()
	}
	if node := b.nodes["n1"].ClientNode.Status.Mounts; len(b.clones) > 0 && len(node) > 1 {
		t.Errorf("the clone remains after another mount:\n%s", strings.Join(b.log, "\n"))
	}
	b.hasOtherMounts["n1"], b.hangs = false, false
	b.runPasses()
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}

func TestAPassLeavesANodeThatIsNeeded(t *testing.T) {
	for name, need := range map[string]func(*Node){
		"the node is cordoned":             func(n *Node) { n.Node.Spec.Unschedulable = true },
		"the rollout has claimed the node": func(n *Node) { n.Writable = false },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t, "n1", "n2")
			trial := b.add("a", rounds(1))
			for len(b.passes) < 2 {
				b.pass()
			}
			for _, clone := range b.clones {
				if node := clone.Pod.Spec.NodeName; node != trial.Status.Passes[0].Node {
					t.Fatalf("got one round on %s and %s, want one node", node, trial.Status.Passes[0].Node)
				}
			}
			used := b.nodes[trial.Status.Passes[0].Node]
			need(used)
			if b.pass(); len(b.clones) > 0 {
				t.Error("the clone remains on the node")
			}
			b.runPasses()
			expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
			for _, pass := range trial.Status.Passes {
				if pass.Node == used.Node.Name {
					t.Errorf("pass %d %s: got node %s, want the other one", pass.Round, pass.Arm, pass.Node)
				}
			}
			if len(trial.Status.Passes) != 3 {
				t.Errorf("got passes %+v, want 3", trial.Status.Passes)
			}
		})
	}
}

func TestATrialByClonesThatEndsEarly(t *testing.T) {
	t.Run("it is deleted", func(t *testing.T) {
		b := newBay(t, "n1")
		b.add("a")
		for len(b.passes) == 0 {
			b.pass()
		}
		b.trials = nil
		b.runPasses()
	})
	t.Run("its time is over", func(t *testing.T) {
		b := newBay(t, "n1")
		timeout := int32(60)
		trial := b.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.TimeoutSeconds = &timeout })
		for trial.Status.CompletionTime == nil {
			b.pass()
		}
		if b.pass(); len(b.clones) > 0 || len(trial.Status.Passes) > 2 {
			t.Errorf("after the timeout: got %d clones, passes %+v", len(b.clones), trial.Status.Passes)
		}
		b.runPasses()
		expectStatus(t, trial, v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonTimedOut, "No round finished within 60 s")
	})
	t.Run("its claim has another volume", func(t *testing.T) {
		b := newBay(t, "n1")
		trial := b.add("a")
		for len(b.passes) == 0 {
			b.pass()
		}
		b.resolve = func(r *Trial) { r.Impossible = "the claim is now bound to another volume" }
		b.runPasses()
		expectStatus(t, trial, v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonNotPossible, "another volume")
	})
}

// Only one trial runs at a time, with either route. No trial starts while the clone of another one exists.
func TestOneTrialAtATimeByClones(t *testing.T) {
	b := newBay(t, "n1", "n2", "n3")
	first, second := b.add("a", rounds(1)), b.add("b", rounds(1))
	for first.Status.CompletionTime == nil {
		b.pass()
		if len(second.Status.Passes) > 0 {
			t.Fatal("the second trial started before the first finished")
		}
	}
	b.runPasses()
	expectStatus(t, second, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
}

// If a server rejects the pod network or ports above 1023, the kubelet mounts the volume.
func TestATrialWhoseServerRejectsTheRunnersNetwork(t *testing.T) {
	mounted := []v1alpha1.TrialProof{{Type: v1alpha1.ProofTransports, Holds: true}}
	for name, test := range map[string]struct {
		status v1alpha1.NodeTrialStatus
		change func(*Trial)
		clones bool
		reason string
	}{
		"the original mount options are denied":      {status: v1alpha1.NodeTrialStatus{Message: "Before, round 1: mount(2): operation not permitted"}, clones: true},
		"both are denied":                            {status: v1alpha1.NodeTrialStatus{Message: "After, round 1: mount(2): operation not permitted", Own: &v1alpha1.TrialMount{Message: "x"}}, clones: true},
		"the candidate alone is denied":              {status: v1alpha1.NodeTrialStatus{Message: "After, round 1: mount(2): operation not permitted", Own: &v1alpha1.TrialMount{Succeeded: true}}, reason: v1alpha1.TrialReasonNotMounted},
		"the work fails":                             {status: v1alpha1.NodeTrialStatus{Message: "Again, round 1: no file to read", Proofs: mounted}, reason: v1alpha1.TrialReasonNotMounted},
		"the kernel does not support the option":     {status: v1alpha1.NodeTrialStatus{Message: "Before, round 1: mount(2): invalid argument: nfs: Unknown parameter 'x'"}, reason: v1alpha1.TrialReasonNotMounted},
		"the agent rejects the order":                {status: v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialRefused, Message: "rejected by this node's agent"}, reason: v1alpha1.TrialReasonNotPossible},
		"denied, and of a driver that is not cloned": {status: v1alpha1.NodeTrialStatus{Message: "Before, round 1: mount(2): operation not permitted"}, change: func(r *Trial) { r.Target.Clone.Obstacle = "no" }, reason: v1alpha1.TrialReasonNotMounted},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t, "n1")
			b.runners = true
			resolve := b.resolve
			b.resolve = func(r *Trial) {
				resolve(r)
				r.Target.Obstacle = ""
				if test.change != nil {
					test.change(r)
				}
			}
			b.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				status := test.status
				if status.ID = order.ID; status.Phase == "" {
					status.Phase = v1alpha1.TrialFinished
				}
				return &status
			}
			trial := b.add("a", rounds(1))
			b.runPasses()
			if (trial.Status.Route == v1alpha1.RouteClone) != test.clones {
				t.Errorf("got route %s, %v; want clones %t", trial.Status.Route, trial.Status.Conditions, test.clones)
			}
			if test.clones {
				expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
				return
			}
			expectStatus(t, trial, v1alpha1.TrialConditionFailed, test.reason, "")
		})
	}
}

func TestConnectionsOfAPassAreCounted(t *testing.T) {
	podWith := func(transports int32) Clone {
		pass := v1alpha1.ClonePass{Transports: transports, Phases: []v1alpha1.TrialPassPhase{{Name: "First"}, {Name: "Repeated"}}}
		pod := &corev1.Pod{}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: cloneContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: pass.Encode()}}}}
		return Clone{Pod: pod}
	}
	for list, transports := range map[string]int32{"nconnect=4": 4, "hard": 1} {
		wanted := expectedTransports(v1alpha1.ProtocolNFS, []string{list})
		if _, err := podWith(transports).result(wanted); err != nil || wanted != transports {
			t.Errorf("%s: got %d connections, %v; want %d", list, wanted, err, transports)
		}
		if _, err := podWith(transports + 1).result(wanted); err == nil {
			t.Errorf("%s: another number of connections was accepted", list)
		}
	}
}

// The result of a Pod must be validated before use.
func TestValidResultsOfAPod(t *testing.T) {
	good := measured("QUERY_INFO", 3)
	if got, err := decodePass(good); err != nil || len(got.Phases) != 2 || got.Phases[0].Operations[0].Count != 3 {
		t.Fatalf("got %+v, %v; want two phases", got, err)
	}
	many := make([]string, v1alpha1.MaxTrialOperations+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name":"OP%d","count":1}`, i)
	}
	replace := func(old, replacement string) string { return strings.Replace(good, old, replacement, 1) }
	for name, message := range map[string]string{
		"nothing":                    "{}",
		"an unknown field":           replace(`{`, `{"verdict":"Better",`),
		"more than one":              good + good,
		"an extra brace":             good + "}",
		"one phase":                  replace(`"Repeated"`, `"First"`),
		"an unknown phase":           replace(`"First"`, `"Third"`),
		"an operation twice":         replace(`"operations":[`, `"operations":[{"name":"QUERY_INFO"},`),
		"an operation with a tag":    replace(`"QUERY_INFO"`, `"<b>"`),
		"one that is too long":       replace(`"QUERY_INFO"`, `"`+strings.Repeat("A", 25)+`"`),
		"too many operations":        replace(`{"name":"QUERY_INFO","count":3}`, strings.Join(many, ",")),
		"a count below zero":         measured("QUERY_INFO", -1),
		"a count beyond reason":      measured("QUERY_INFO", maxPassCount+1),
		"time that runs backwards":   replace("900000", "-1"),
		"time beyond the Pod's":      replace("900000", fmt.Sprint(int64(maxPassTime)+1)),
		"a fraction of a unit":       replace(`"units":1000`, `"units":0.5`),
		"more than Kubernetes keeps": replace(`{`, `{`+strings.Repeat(" ", v1alpha1.MaxClonePassBytes)),
	} {
		if got, err := decodePass(message); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
	long := v1alpha1.ClonePass{Failed: "a\nb\x1b[31m" + strings.Repeat("x", 2*v1alpha1.MaxClonePassText), Phases: []v1alpha1.TrialPassPhase{{Name: "First"}}}
	got, err := decodePass(long.Encode())
	if err != nil || got.Phases != nil || len(got.Failed) > v1alpha1.MaxClonePassText || strings.ContainsAny(got.Failed, "\n\x1b") {
		t.Errorf("got %+v, %v; want a short message without control characters", got, err)
	}
}
