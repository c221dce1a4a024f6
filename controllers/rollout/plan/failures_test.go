package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// addFailures records failed nodes of profile eda at h1. A name with a slash gives the UID. The default is the UID of the fixture's
// node.
func (f *fixture) addFailures(names ...string) {
	boot := v1alpha1.BootFailures{BootHash: "h1", Settings: "p1"}
	for _, name := range names {
		name, uid, given := strings.Cut(name, "/")
		if !given {
			uid = "node-" + name
		}
		boot.Nodes = append(boot.Nodes, v1alpha1.FailedNode{Name: name, UID: uid, At: ago(time.Hour), Reason: "x", Message: "It is broken"})
	}
	f.Failures = map[string]v1alpha1.ProfileFailures{"eda": {Boots: []v1alpha1.BootFailures{boot}}}
}

// removeNode deletes a Node, and can create a new Node with its name.
func (f *fixture) removeNode(name string, replaced bool) {
	if replaced {
		n := f.node(name)
		n.UID, n.Mark, n.Unschedulable, n.Maintenance, n.ClientNode = "other", nil, false, MaintenanceNone, waiting(name)
		return
	}
	f.Nodes = slices.DeleteFunc(f.Nodes, func(n Node) bool { return n.Name == name })
}

// recordedFailures returns the failures that a plan records, as lines. It returns nil if the plan does not change them.
func recordedFailures(p Plan) []string {
	if p.Failures == nil {
		return nil
	}
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(p.Failures.Profiles)) {
		failures := p.Failures.Profiles[name]
		words := []string{name}
		if failures.Retry != "" {
			words = append(words, "retry "+failures.Retry)
		}
		for _, boot := range failures.Boots {
			words = append(words, fmt.Sprintf("[%s %s", boot.BootHash, boot.Settings))
			for _, node := range boot.Nodes {
				words = append(words, fmt.Sprintf("%s/%s:%s", node.Name, node.UID, node.Reason))
			}
			if boot.More > 0 {
				words = append(words, fmt.Sprintf("+%d", boot.More))
			}
			words[len(words)-1] += "]"
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

// failureRow is a row of the tables that follow: the steps, the note of b, and the recorded failures.
type failureRow struct {
	change           func(*fixture)
	want             []string
	recordedFailures []string
}

func playFailures(t *testing.T, rows map[string]failureRow, build func() *fixture) {
	t.Helper()
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			f := build()
			c.change(f)
			before := fmt.Sprintf("%+v %+v", f.Failures, f.Claims)
			p := For(f.Snapshot)
			check.Equal(t, "steps", c.want, lines(p, "b"))
			check.Equal(t, "records", c.recordedFailures, recordedFailures(p))
			if after := fmt.Sprintf("%+v %+v", f.Failures, f.Claims); after != before {
				t.Errorf("the plan changed the snapshot from\n%s to\n%s", before, after)
			}
		})
	}
}

// TestForANodeThatIsGone deletes node a, or replaces it by a node of the same name.
func TestForANodeThatIsGone(t *testing.T) {
	build := func() *fixture { return cluster("a", "b") }
	stopped, continues := "b: Waiting FailureThresholdReached", []string{"release the claim of a", "claim b for eda", "b: Claimed Claimed"}
	lost := []string{"release the claim of a", stopped}
	known := []string{"eda [h1 p1 a/node-a:NodeLost]"}
	playFailures(t, map[string]failureRow{
		"it was claimed and not cordoned": {
			func(f *fixture) {
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", BootHash: "h1", NodeUID: "node-a"}
				f.removeNode("a", false)
			},
			continues, nil,
		},
		"it was being drained": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.removeNode("a", false)
			},
			continues, nil,
		},
		"it had a permit: it has failed, and no disruption starts": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
			},
			lost, known,
		},
		"fewer than the threshold: the rollout continues": {
			func(f *fixture) {
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](2)
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
			},
			continues, known,
		},
		"as many as the threshold with one before it": {
			func(f *fixture) {
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](2)
				f.addFailures("z")
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
			},
			lost, []string{"eda [h1 p1 z/node-z:x a/node-a:NodeLost]"},
		},
		"others had marked it for removal": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.Claims["a"].Permit.Leaving = disrupted
				f.removeNode("a", false)
			},
			continues, nil,
		},
		"a manager died after it had recorded the failure": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
				f.addFailures("a")
			},
			lost, nil,
		},
		"a manager died after it had recorded the failure: it counts once": {
			func(f *fixture) {
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](2)
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
				f.addFailures("a")
			},
			continues, nil,
		},
		"the profile now declares other settings that require a reboot": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
				f.Profiles[0].SettingsHash = "p2"
			},
			continues, nil,
		},
		"the profile now has other rollout rules": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
				f.Profiles[0].PlanHash = "p2"
			},
			lost, []string{"eda [h1 p1 a/node-a:NodeLost]"},
		},
		"the failures of its profile cannot be read: the claim stays until they can": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
				f.UnreadFailures = sets.New("eda")
			},
			[]string{stopped}, nil,
		},
		"a new node of the same name, and the failures of its profile cannot be read": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", true)
				f.UnreadFailures = sets.New("eda")
			},
			[]string{stopped}, nil,
		},
		"the failures of one of its profiles cannot be read": {
			func(f *fixture) {
				f.profile("lab")
				f.addProfile("b", "lab")
				f.permitted("a", time.Minute)
				f.Claims["a"].Permit.Profiles["lab"] = "p1"
				f.removeNode("a", false)
				f.UnreadFailures = sets.New("lab")
			},
			[]string{stopped}, known,
		},
		"the failures of other profiles cannot be read": {
			func(f *fixture) {
				f.profile("lab")
				f.permitted("a", time.Minute)
				f.Claims["a"].Permit.Profiles["gone"] = "p1"
				f.removeNode("a", false)
				f.UnreadFailures = sets.New("lab", "gone")
			},
			lost, known,
		},
		"the failures of its profile cannot be read, and others had marked it for removal": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.Claims["a"].Permit.Leaving = disrupted
				f.removeNode("a", false)
				f.UnreadFailures = sets.New("eda")
			},
			lost, nil,
		},
		"no other node needs those settings: the failure counts once one does": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", false)
				c := f.node("b").ClientNode
				c.DesiredBootHash, c.Spec.BootHash = "h2", "h2"
			},
			continues, known,
		},
		"an earlier record does not count while no node needs those settings": {
			func(f *fixture) {
				f.removeNode("a", false)
				f.addFailures("a")
				c := f.node("b").ClientNode
				c.DesiredBootHash, c.Spec.BootHash = "h2", "h2"
			},
			[]string{"claim b for eda", "b: Claimed Claimed"}, nil,
		},
		"several profiles had requested its reboot": {
			func(f *fixture) {
				f.profile("lab")
				f.addProfile("b", "lab")
				f.permitted("a", time.Minute)
				f.Claims["a"].Permit.Profiles["lab"] = "p1"
				f.Claims["a"].Permit.Profiles["gone"] = "p1"
				f.removeNode("a", false)
			},
			lost, []string{known[0], "lab [h1 p1 a/node-a:NodeLost]"},
		},
		"a new node of the same name: the failure of the old one stays": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.removeNode("a", true)
			},
			lost, known,
		},
		"a new node of the same name inherits no claim": {
			func(f *fixture) {
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", BootHash: "h1", NodeUID: "node-a"}
				f.removeNode("a", true)
			},
			continues, nil,
		},
		"a new node of the same name uses up budget until the claim is released": {
			func(f *fixture) {
				f.Budget = 1
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", BootHash: "h1", NodeUID: "node-a"}
				f.removeNode("a", true)
			},
			[]string{"release the claim of a", "b: Waiting WaitingForBudget"}, nil,
		},
		"a claim that cannot be read names no UID: it belongs to the node": {
			func(f *fixture) {
				f.Budget = 1
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", BootHash: "h1"}
			},
			[]string{"conditions of a: Draining", "cordon a", "drain a", "b: Waiting WaitingForBudget"}, nil,
		},
	}, build)
}

// TestForClaimsNoNodeInAPlanWithANewFailure has a node fail in a plan whose budget has room for another one.
func TestForClaimsNoNodeInAPlanWithANewFailure(t *testing.T) {
	f := cluster("a", "b")
	f.permitted("a", 2*time.Hour)
	f.overdue("a", time.Minute)
	p := For(f.Snapshot)
	if got := p.Notes["a"].Phase; got != v1alpha1.RolloutFailed {
		t.Fatalf("node a: got phase %s, want %s", got, v1alpha1.RolloutFailed)
	}
	check.Equal(t, "node b: reason", v1alpha1.RolloutReasonFailureThreshold, p.Notes["b"].Reason)
	for _, step := range p.Steps {
		if claim, ok := step.(AddClaim); ok && !claim.Missing {
			t.Errorf("claimed %s in the same plan as the failure", claim.Node)
		}
	}
}

// TestForRecordedFailures lets node a fail and recover, and checks the record.
func TestForRecordedFailures(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b")
		f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour).Attempts = 1
		f.addFailures("a")
		return f
	}
	stopped := []string{"b: Waiting FailureThresholdReached"}
	continues := []string{"claim a for eda", "claim b for eda", "b: Claimed Claimed"}
	playFailures(t, map[string]failureRow{
		"it has failed": {
			func(f *fixture) { f.Failures = nil }, stopped, []string{"eda [h1 p1 a/node-a:RebootTimedOut]"},
		},
		"its reason is another one now": {
			func(*fixture) {}, stopped, []string{"eda [h1 p1 a/node-a:RebootTimedOut]"},
		},
		"it is gone": {
			func(f *fixture) { f.removeNode("a", false) }, stopped, nil,
		},
		"it has been registered again": {
			func(f *fixture) { f.removeNode("a", true) }, stopped, nil,
		},
		"it has a new StorageClientNode: it has still failed": {
			func(f *fixture) {
				f.Failures["eda"].Boots[0].Nodes[0].Reason = v1alpha1.RolloutReasonRebootTimedOut
				f.node("a").ClientNode = waiting("a")
			},
			stopped, nil,
		},
		"it has no StorageClientNode yet": {
			func(f *fixture) { f.node("a").ClientNode = nil }, stopped, nil,
		},
		"it has the desired settings after all": {
			func(f *fixture) {
				note := *f.node("a").ClientNode.Status.Rollout
				f.finish("a", 0)
				f.node("a").ClientNode.Status.Rollout = &note
			},
			stopped, []string{},
		},
		"a user uncordoned it, and its note reports that": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonCordonLost, time.Minute)
			}, stopped, nil,
		},
		"its desired settings have changed": {
			func(f *fixture) { f.node("a").ClientNode.DesiredBootHash = "h2" }, stopped, []string{},
		},
		"it has left the profile": {
			func(f *fixture) { f.node("a").Profiles = nil }, []string{"claim b for eda", "b: Claimed Claimed"}, []string{},
		},
		"the profile declares other settings that require a reboot": {
			func(f *fixture) {
				f.Profiles[0].SettingsHash = "p2"
				for _, name := range []string{"a", "b"} {
					f.node(name).ClientNode.DesiredBootHash = "h2"
					f.node(name).ClientNode.Spec.BootHash = "h2"
				}
			},
			continues, []string{},
		},
		"it is gone, and the profile declares other settings that require a reboot, with the same result together with another profile": {
			func(f *fixture) {
				f.removeNode("a", false)
				f.Profiles[0].SettingsHash = "p2"
			},
			[]string{"claim b for eda", "b: Claimed Claimed"}, []string{},
		},
		"it is gone, and the profile has other rollout rules": {
			func(f *fixture) {
				f.removeNode("a", false)
				f.Profiles[0].PlanHash = "p2"
			},
			stopped, nil,
		},
		"another profile is gone": {
			func(f *fixture) {
				f.Failures["other"] = v1alpha1.ProfileFailures{Retry: "1"}
				f.Failures["eda"].Boots[0].Nodes[0].Reason = v1alpha1.RolloutReasonRebootTimedOut
			},
			stopped, []string{"eda [h1 p1 a/node-a:RebootTimedOut]"},
		},
		"others had marked it for removal while it had its permit": {
			func(f *fixture) {
				f.Failures = nil
				f.permitted("a", time.Minute)
				f.Claims["a"].Permit.Leaving = disrupted
				f.node("a").Leaving = disrupted
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Minute)
			},
			stopped, nil,
		},
		"an entry that cannot be read stops the profile, and stays unchanged": {
			func(f *fixture) {
				f.Failures, f.UnreadFailures = nil, sets.New("eda")
				f.node("a").ClientNode.Status.Rollout = nil
			},
			stopped, nil,
		},
		// Retries.
		"a retry resets the node before any failure is cleared": {
			func(f *fixture) { f.Profiles[0].Retry = "1" }, []string{"b: Waiting WaitingForBudget"}, nil,
		},
		"a retry is recorded after the reset": {
			func(f *fixture) {
				f.Profiles[0].Retry = "1"
				f.node("a").ClientNode.Status.Rollout = nil
			},
			[]string{"b: Waiting WaitingForBudget"}, []string{"eda retry 1"},
		},
		"once": {
			func(f *fixture) {
				f.Profiles[0].Retry = "1"
				failures := f.Failures["eda"]
				failures.Retry, failures.Boots[0].Nodes[0].Reason = "1", v1alpha1.RolloutReasonRebootTimedOut
				f.Failures["eda"] = failures
			},
			stopped, nil,
		},
		"a retry clears deleted nodes and nodes that are only counted": {
			func(f *fixture) {
				f.Profiles[0].Retry = "1"
				f.removeNode("a", false)
				f.Failures["eda"].Boots[0].More = 3
			},
			[]string{"b: Waiting WaitingForBudget"}, []string{"eda retry 1"},
		},
		"a retry of one node clears no other node": {
			func(f *fixture) {
				f.Profiles[0].Retry = "2/a"
				f.addFailures("a", "z")
				f.Failures["eda"].Boots[0].More = 3
				f.removeNode("a", false)
			},
			stopped, []string{"eda retry 2/a [h1 p1 z/node-z:x +3]"},
		},
		"a retry of one node does not clear nodes that are only counted": {
			func(f *fixture) {
				f.Profiles[0].Retry = "2/a"
				f.Failures["eda"].Boots[0].More = 3
				f.removeNode("a", false)
			},
			stopped, []string{"eda retry 2/a [h1 p1 +3]"},
		},
		"a retry of another node clears no records": {
			func(f *fixture) {
				f.Profiles[0].Retry = "2/c"
				f.Failures["eda"].Boots[0].Nodes[0].Reason = v1alpha1.RolloutReasonRebootTimedOut
			},
			stopped, []string{"eda retry 2/c [h1 p1 a/node-a:RebootTimedOut]"},
		},
		"a failed node with a permit stays failed": {
			func(f *fixture) {
				f.Profiles[0].Retry = "1"
				f.permitted("a", time.Hour)
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Minute).Attempts = 1
				f.node("a").Ready = false
				f.node("a").ClientNode.Status.Reboot = &v1alpha1.RebootStatus{
					PermitID: f.node("a").ClientNode.Spec.RebootPermit.ID, Phase: v1alpha1.RebootStarted,
				}
			},
			stopped, []string{"eda retry 1 [h1 p1 a/node-a:RebootTimedOut]"},
		},
	}, build)
}

func TestForARetriedNodeGetsAllItsAttempts(t *testing.T) {
	f := cluster("a")
	f.cordoned("a", time.Hour)
	f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonAttemptsUsedUp, time.Minute).Attempts = MaxAttempts
	f.Profiles[0].Retry = "1"
	f.node("a").Drain = &DrainProgress{Gone: true}
	p := For(f.Snapshot)
	want := []string{"claim of a: permit", "note a: Rebooting PermitGiven", "conditions of a: Drained, for a permit", "permit the reboot of a"}
	check.Equal(t, "plan", want, lines(p))
	if got := p.Notes["a"].Attempts; got != 1 {
		t.Errorf("got attempt %d, want the first", got)
	}
}

func TestForKeepsTheNoteOfANewClientNodeFailed(t *testing.T) {
	f := cluster("a", "b")
	f.addFailures("a")
	note := For(f.Snapshot).Notes["a"]
	want := v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: "x", Message: "It is broken", Since: ptr.To(ago(time.Hour)), Attempts: 1, BootHash: "h1"}
	want.Tuned = &v1alpha1.RolloutTuned{Hash: "h1", Since: metav1.NewTime(noon)}
	check.Equal(t, "note", want, note)
}

func TestForNamesTheNodesThatAreGone(t *testing.T) {
	f := cluster("a", "b")
	f.addFailures("z", "y")
	f.Failures["eda"].Boots[0].More = 4
	want := "StorageClientProfile eda stopped after 6 nodes failed: y (gone), z (gone), and 4 before them; change settings that require a reboot, or retry: kubectl storageclient retry eda"
	check.Equal(t, "message", want, For(f.Snapshot).Notes["b"].Message)
}

// Node a has a permit, and others are about to remove the node.
func TestForThePermitInAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		// want is the expected permit in the claim. "same" means that the claim is not written.
		want string
	}{
		"nothing new":                   {func(*fixture) {}, "same"},
		"a claim without the permit":    {func(f *fixture) { f.Claims["a"] = *f.node("a").Mark }, `h1 map[eda:p1] ""`},
		"others mark it while it is up": {func(f *fixture) { f.node("a").Leaving = disrupted }, `h1 map[eda:p1] "` + disrupted + `"`},
		"others mark it once it is down, maybe because of it": {
			func(f *fixture) { f.node("a").Leaving, f.node("a").Ready = disrupted, false }, "same",
		},
		"it goes down after they had marked it": {
			func(f *fixture) {
				f.node("a").Leaving, f.node("a").Ready = disrupted, false
				f.Claims["a"].Permit.Leaving = disrupted
			},
			"same",
		},
		"others remove their mark": {
			func(f *fixture) { f.Claims["a"].Permit.Leaving = disrupted }, `h1 map[eda:p1] ""`,
		},
		"others mark it after it has failed": {
			func(f *fixture) {
				f.node("a").Leaving = disrupted
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Minute)
			},
			"same",
		},
		"the agent has rejected the permit": {
			func(f *fixture) { f.addResponse("a", v1alpha1.RebootRefused) }, "none",
		},
		"it has failed without a permit": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Minute)
				f.node("a").ClientNode.Spec.RebootPermit = nil
			},
			"same",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			f.permitted("a", time.Minute)
			c.change(f)
			got := "same"
			for _, step := range For(f.Snapshot).Steps {
				if step, ok := step.(UpdateClaim); ok {
					got = "none"
					if permit := step.Claim.Permit; permit != nil {
						got = fmt.Sprintf("%s %v %q", permit.BootHash, permit.Profiles, permit.Leaving)
						if step.Claim.NodeUID != "node-a" || step.Claim.Profile != "eda" {
							t.Errorf("got claim %s, want one of node-a for eda", step.Claim.Encode())
						}
					}
				}
			}
			check.Equal(t, "result", c.want, got)
		})
	}
}

// TestForLimitsTheRecordedFailures loses many nodes at once.
func TestForLimitsTheRecordedFailures(t *testing.T) {
	count := func(p *FailureChange) (named, all, bytes int) {
		for name, failures := range p.Profiles {
			bytes += len(name) + len(failures.Encode())
			for _, boot := range failures.Boots {
				named += len(boot.Nodes)
				all += len(boot.Nodes) + boot.More
			}
		}
		return named, all, bytes
	}
	many := func(number, length int) *fixture {
		f := cluster("a")
		var names []string
		for i := range number {
			names = append(names, fmt.Sprintf("%s-%03d", strings.Repeat("x", length), i))
		}
		f.addFailures(names...)
		return f
	}
	t.Run("the oldest are only counted", func(t *testing.T) {
		f := many(70, 5)
		nodes := f.Failures["eda"].Boots[0].Nodes
		nodes[69].At, nodes[0].At = nodes[0].At, metav1.Time{Time: noon}
		slices.SortStableFunc(nodes, func(a, b v1alpha1.FailedNode) int { return a.At.Compare(b.At.Time) })
		p := For(f.Snapshot).Failures
		if named, all, _ := count(p); named != 50 || all != 70 {
			t.Fatalf("got %d names of %d failures, want 50 of 70", named, all)
		}
		check.Equal(t, "last name", "xxxxx-000", p.Profiles["eda"].Boots[0].Nodes[49].Name)
		f.Failures = p.Profiles
		if again := For(f.Snapshot).Failures; again != nil {
			t.Errorf("second plan: got changes %v, want none", recordedFailures(Plan{Failures: again}))
		}
	})
	t.Run("failures with a claim are all named", func(t *testing.T) {
		f := cluster("a")
		for i := range 70 {
			name := fmt.Sprintf("x-%03d", i)
			f.Claims[name] = v1alpha1.Disruption{NodeUID: name, Permit: &v1alpha1.ClaimedPermit{BootHash: "h1", Profiles: map[string]string{"eda": "p1"}}}
		}
		p := For(f.Snapshot).Failures
		if named, all, _ := count(p); named != 70 || all != 70 {
			t.Fatalf("got %d names of %d failures, want all of 70", named, all)
		}
		f.Failures = p.Profiles
		if again := For(f.Snapshot).Failures; again != nil {
			t.Errorf("after a crash: got changes %v, want none", recordedFailures(Plan{Failures: again}))
		}
		f.Claims = nil
		if named, all, _ := count(For(f.Snapshot).Failures); named != 50 || all != 70 {
			t.Errorf("after the claims are released: got %d names of %d failures, want 50 of 70", named, all)
		}
	})
	t.Run("failures of existing nodes are all named", func(t *testing.T) {
		var names []string
		for i := range 60 {
			names = append(names, fmt.Sprintf("n-%03d", i))
		}
		f := cluster(names...)
		for _, name := range names {
			f.addNote(name, v1alpha1.RolloutFailed, "x", time.Hour)
		}
		p := For(f.Snapshot).Failures
		if named, all, _ := count(p); named != 60 || all != 60 {
			t.Errorf("got %d names of %d failures, want all of 60", named, all)
		}
	})
	t.Run("all failures together stay below the size limit", func(t *testing.T) {
		f := many(50, 240)
		for i := range 20 {
			name := fmt.Sprintf("p%d", i)
			f.profile(name)
			f.Failures[name] = f.Failures["eda"]
		}
		named, all, bytes := count(For(f.Snapshot).Failures)
		if bytes > 64<<10 || all != 21*50 || named == 0 {
			t.Errorf("got %d bytes, %d names of %d failures; want at most 64 KiB", bytes, named, all)
		}
	})
	t.Run("boot hashes that no node needs", func(t *testing.T) {
		f := many(1, 1)
		failures := f.Failures["eda"]
		for i := range 30 {
			failures.Boots = append(failures.Boots, v1alpha1.BootFailures{BootHash: fmt.Sprint(i), Settings: "p1", More: 1})
		}
		f.Failures["eda"] = failures
		boots := For(f.Snapshot).Failures.Profiles["eda"].Boots
		if len(boots) != 20 || boots[0].BootHash != "h1" || boots[1].BootHash != "11" {
			t.Errorf("got %d boot hashes, first %s and %s; want 20, h1 and 11", len(boots), boots[0].BootHash, boots[1].BootHash)
		}
	})
	t.Run("a long message is cut", func(t *testing.T) {
		f := cluster("a")
		f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour).Message = strings.Repeat("ü", 1000)
		message := For(f.Snapshot).Failures.Profiles["eda"].Boots[0].Nodes[0].Message
		if n := len([]rune(message)); n > 160 || n < 100 {
			t.Errorf("got %d characters, want 100 to 160", n)
		}
	})
}

// TestForAFailedNodeWhoseAgentRespondsLate lets node a fail and return with its old boot.
func TestForAFailedNodeWhoseAgentRespondsLate(t *testing.T) {
	f := cluster("a")
	f.permitted("a", time.Hour)
	f.addNote("a", v1alpha1.RolloutFailed, "x", time.Minute).Attempts = 1
	f.addResponse("a", v1alpha1.RebootFailed)
	check.Equal(t, "plan", []string{"clear the permit of a: x", "a: Failed x"}, lines(For(f.Snapshot), "a"))
}
