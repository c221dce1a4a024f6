package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/windows"
)

// row is a change of a fixture and the resulting plan: its steps, and then the notes of the nodes that the table names.
type row struct {
	change func(*fixture)
	want   []string
}

func oneNode() *fixture { return cluster("a") }

// oneNodeWith returns a function that builds a cluster with the single node a, and changes it.
func oneNodeWith(change func(*fixture)) func() *fixture {
	return func() *fixture {
		f := oneNode()
		change(f)
		return f
	}
}

func playRows(t *testing.T, rows map[string]row, build func() *fixture, notes ...string) {
	t.Helper()
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			f := build()
			c.change(f)
			check.Equal(t, "plan", c.want, lines(For(f.Snapshot), notes...))
		})
	}
}

// addWindow adds a window to a profile. The current time is Tuesday noon.
func (p *Profile) addWindow(schedule string, seconds int32) {
	set, err := windows.ParseSet([]v1alpha1.Window{{Schedule: schedule, DurationSeconds: seconds}})
	if err != nil {
		panic(err)
	}
	p.Windows = set
}

// addProfile makes a second profile require the reboot of a node too.
func (f *fixture) addProfile(node, profile string) {
	n := f.node(node)
	key := "kernelArgument/" + profile
	n.Profiles = append(n.Profiles, profile)
	n.ClientNode.Spec.Settings = append(n.ClientNode.Spec.Settings, v1alpha1.NodeSetting{Key: key, Profile: profile})
	n.ClientNode.Status.Settings = append(n.ClientNode.Status.Settings, v1alpha1.SettingStatus{Key: key, State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectReboot})
	n.ClientNode.Status.RebootRequiredBy = append(n.ClientNode.Status.RebootRequiredBy, key)
}

// setProfile assigns a node to another profile.
func (f *fixture) setProfile(node, profile string) {
	n := f.node(node)
	n.Profiles, n.ClientNode.Spec.Settings[0].Profile = []string{profile}, profile
}

func TestForWindows(t *testing.T) {
	release := []string{
		"note a: Releasing WaitingForWindow", "conditions of a: none", "uncordon a: WaitingForWindow", "release the claim of a",
		"a: Waiting WaitingForWindow",
	}
	playRows(t, map[string]row{
		"no disruption starts while they are closed": {
			func(f *fixture) { f.Profiles[0].addWindow("0 13 * * *", 3600) }, []string{"a: Waiting WaitingForWindow"},
		},
		"no disruption starts in the second in which they close": {
			func(f *fixture) { f.Profiles[0].addWindow("0 11 * * *", 3600) }, []string{"a: Waiting WaitingForWindow"},
		},
		"a disruption starts while a window is open, regardless of the time left": {
			func(f *fixture) { f.Profiles[0].addWindow("0 11 * * *", 3601) }, []string{"claim a for eda", "a: Claimed Claimed"},
		},
		"a claim from before they closed is released": {
			func(f *fixture) {
				f.Profiles[0].addWindow("0 13 * * *", 3600)
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda"}
			},
			[]string{"release the claim of a", "a: Waiting WaitingForWindow"},
		},
		"they close during a drain: the node is released": {
			func(f *fixture) {
				f.cordoned("a", 5*time.Minute)
				f.Profiles[0].addWindow("0 11 * * *", 3600)
			},
			release,
		},
		"they close while load balancers exclude the node: the node is released": {
			func(f *fixture) {
				f.cordoned("a", time.Second)
				f.Profiles[0].Rollout.Drain.ExcludeFromLoadBalancersSeconds = 60
				f.Profiles[0].addWindow("0 11 * * *", 3600)
			},
			release,
		},
		"they close when the node is empty: it gets no permit and is released": {
			func(f *fixture) {
				f.cordoned("a", 5*time.Minute)
				f.node("a").Drain = &DrainProgress{Gone: true}
				f.Profiles[0].addWindow("0 11 * * *", 3600)
			},
			release,
		},
		"a node with a permit finishes": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.Profiles[0].addWindow("0 13 * * *", 3600)
			},
			[]string{"a: Rebooting PermitGiven"},
		},
		"a node that has rebooted settles": {
			func(f *fixture) {
				f.permitted("a", 5*time.Minute)
				f.rebooted("a")
				f.Profiles[0].addWindow("0 13 * * *", 3600)
			},
			[]string{"a: Settling Settling"},
		},
		"two profiles need the reboot, and only one's are open": {
			func(f *fixture) {
				f.profile("lab").addWindow("0 13 * * *", 3600)
				f.Profiles[0].addWindow("0 11 * * *", 10800)
				f.addProfile("a", "lab")
			},
			[]string{"a: Waiting WaitingForWindow"},
		},
		"two profiles' windows are never open together": {
			func(f *fixture) {
				f.profile("lab").addWindow("0 11 * * *", 3600)
				f.Profiles[0].addWindow("30 10 * * *", 1800)
				f.addProfile("a", "lab")
			},
			[]string{"a: Waiting WindowsDisjoint"},
		},
		"windows of a profile that does not need the reboot are ignored": {
			func(f *fixture) {
				f.profile("lab").addWindow("0 13 * * *", 3600)
				f.node("a").Profiles = []string{"eda", "lab"}
			},
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
	}, oneNode, "a")
}

func TestForPlansAgainWhenWindowsOpenAndClose(t *testing.T) {
	f := cluster("a")
	f.profile("lab").addWindow("30 12 * * *", 7200)
	f.Profiles[0].addWindow("0 13 * * *", 3600)
	f.addProfile("a", "lab")
	closed := For(f.Snapshot)
	want := "Outside the windows of StorageClientProfile eda, lab; the next one opens at 2026-09-01T13:00:00Z"
	if got := closed.Notes["a"].Message; got != want || !closed.Next.Equal(noon.Add(time.Hour)) {
		t.Errorf("got next plan at %s, message %q; want message %q", closed.Next, got, want)
	}
	f.Now = noon.Add(time.Hour)
	f.cordoned("a", -time.Hour)
	f.Profiles[0].Rollout.Drain.ExcludeFromLoadBalancersSeconds = 7200
	if open := For(f.Snapshot); !open.Next.Equal(noon.Add(2 * time.Hour)) {
		t.Errorf("next plan: got at %s, want when the first window closes", open.Next)
	}
}

func TestForZonesInTurn(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c", "d")
		for node, zone := range map[string]string{"a": "x", "b": "y", "d": "x"} {
			f.node(node).Labels = map[string]string{corev1.LabelTopologyZone: zone}
		}
		return f
	}
	playRows(t, map[string]row{
		"all nodes of a zone are claimed, and no others": {
			func(*fixture) {}, []string{"claim a for eda", "claim d for eda", "b: Waiting WaitingForZone", "c: Waiting WaitingForZone"},
		},
		"then all nodes of the next zone are claimed": {
			func(f *fixture) { f.finish("a", time.Hour); f.finish("d", time.Hour) },
			[]string{"claim b for eda", "b: Claimed Claimed", "c: Waiting WaitingForZone"},
		},
		"nodes without a zone at the end": {
			func(f *fixture) {
				for _, name := range []string{"a", "b", "d"} {
					f.finish(name, time.Hour)
				}
			},
			[]string{"claim c for eda", "b: UpToDate NothingToDo", "c: Claimed Claimed"},
		},
		"a draining node delays the other zones": {
			func(f *fixture) { f.finish("d", time.Hour); f.cordoned("a", ZonePatience-time.Second) },
			[]string{"drain a", "b: Waiting WaitingForZone", "c: Waiting WaitingForZone"},
		},
		"a draining node delays the other zones only for a limited time": {
			func(f *fixture) { f.finish("d", time.Hour); f.cordoned("a", ZonePatience) },
			[]string{"drain a", "claim b for eda", "b: Claimed Claimed", "c: Waiting WaitingForZone"},
		},
		"a rebooting node delays the other zones for longer": {
			func(f *fixture) { f.finish("d", time.Hour); f.permitted("a", ZonePatience) },
			[]string{"b: Waiting WaitingForZone", "c: Waiting WaitingForZone"},
		},
		"a failed node does not delay the other zones": {
			func(f *fixture) {
				f.finish("d", time.Hour)
				f.cordoned("a", time.Minute)
				f.node("a").Maintenance = MaintenanceDrained
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Minute)
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
					NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: "y"}}, SoakSeconds: ptr.To[int32](0),
				}
			},
			[]string{"claim b for eda", "b: Claimed Claimed", "c: Waiting WaitingForCanary"},
		},
		"a node that cannot be disrupted does not delay the other zones": {
			func(f *fixture) { f.node("a").NeverDisrupt, f.node("d").Paused = true, true },
			[]string{"claim b for eda", "b: Claimed Claimed", "c: Waiting WaitingForZone"},
		},
		"nodes of another profile do not delay the other zones": {
			func(f *fixture) {
				f.profile("lab")
				f.setProfile("a", "lab")
				f.cordoned("a", time.Second)
				f.finish("d", time.Hour)
			},
			[]string{"drain a", "claim b for eda", "b: Claimed Claimed", "c: Waiting WaitingForZone"},
		},
	}, build, "b", "c")
}

func TestForFairShares(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c", "d")
		f.profile("lab")
		f.setProfile("c", "lab")
		f.setProfile("d", "lab")
		return f
	}
	playRows(t, map[string]row{
		"profiles take turns": {
			func(f *fixture) { f.Budget = 3 }, []string{"claim a for eda", "claim c for lab", "claim b for eda"},
		},
		"a single slot goes round": {
			func(f *fixture) {
				f.Budget = 1
				f.finish("a", time.Minute)
				f.node("a").ClientNode.Status.Rollout.Attempts = 1
			},
			[]string{"claim c for lab"},
		},
		"a single slot returns to the first profile": {
			func(f *fixture) {
				f.Budget = 1
				f.finish("a", 2*time.Minute)
				f.finish("c", time.Minute)
				f.node("a").ClientNode.Status.Rollout.Attempts = 1
				f.node("c").ClientNode.Status.Rollout.Attempts = 1
			},
			[]string{"claim b for eda"},
		},
		"a profile with a disrupted node waits for a profile without one": {
			func(f *fixture) {
				f.Budget = 2
				f.permitted("a", 10*time.Minute)
				f.finish("d", time.Minute)
				f.node("d").ClientNode.Status.Rollout.Attempts = 1
			},
			[]string{"claim c for lab"},
		},
		"on a tie the priority decides": {
			func(f *fixture) { f.Budget, f.Profiles[1].Priority = 1, 1 }, []string{"claim c for lab"},
		},
		"a profile whose nodes cannot be disrupted leaves its share to others": {
			func(f *fixture) { f.Budget, f.Profiles[1].Paused = 2, v1alpha1.ReasonPausedByField },
			[]string{"claim a for eda", "claim b for eda"},
		},
	}, build)
}

func TestForVacantNodes(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c")
		f.Budget = 1
		f.node("a").Labels = map[string]string{corev1.LabelTopologyZone: "x"}
		f.node("c").Labels = map[string]string{corev1.LabelTopologyZone: "y"}
		f.node("c").Untuned, f.node("c").Vacant = true, true
		return f
	}
	playRows(t, map[string]row{
		"go before all others": {
			func(*fixture) {}, []string{"claim c for eda", "a: Waiting WaitingForBudget", "c: Claimed Claimed"},
		},
		"the taint alone does not make one": {
			func(f *fixture) { f.node("c").Vacant = false }, []string{"claim a for eda", "a: Claimed Claimed", "c: Waiting WaitingForBudget"},
		},
		"wait for no other zone": {
			func(f *fixture) { f.Budget = 2; f.cordoned("a", time.Second) },
			[]string{"drain a", "claim c for eda", "a: Draining Draining", "c: Claimed Claimed"},
		},
		"hold up no other zone": {
			func(f *fixture) { f.Budget = 2; f.cordoned("c", time.Second) },
			[]string{"drain c", "claim a for eda", "a: Claimed Claimed", "c: Draining Draining"},
		},
		"wait for the canary": {
			func(f *fixture) { f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1)} },
			[]string{"claim a for eda", "a: Claimed Claimed", "c: Waiting WaitingForCanary"},
		},
		"wait for the window": {
			func(f *fixture) { f.Profiles[0].addWindow("0 13 * * *", 3600) },
			[]string{"a: Waiting WaitingForWindow", "c: Waiting WaitingForWindow"},
		},
		"wait for the budget": {
			func(f *fixture) { f.cordoned("a", time.Second) },
			[]string{"drain a", "a: Draining Draining", "c: Waiting WaitingForBudget"},
		},
		"use up the budget": {
			func(f *fixture) { f.cordoned("c", time.Second) },
			[]string{"drain c", "a: Waiting WaitingForBudget", "c: Draining Draining"},
		},
	}, build, "a", "c")
}

// A node of a profile counts until it is back or its Node is deleted.
func TestForNodesThatHaveBeenUnavailableForLong(t *testing.T) {
	playRows(t, map[string]row{
		"count": {func(*fixture) {}, nil},
		"count although they also have another profile": {
			func(f *fixture) { f.profile("lab"); f.node("a").Profiles = []string{"eda", "lab"} }, nil,
		},
		"count although their profile is gone":          {func(f *fixture) { f.node("a").Profiles = []string{"gone"} }, nil},
		"count without a profile, if no time ends that": {func(f *fixture) { f.node("a").Profiles = nil }, nil},
	}, func() *fixture {
		f := cluster("a", "b")
		f.Budget = 1
		f.node("a").Ready, f.node("a").UnavailableSince = false, ptr.To(noon.Add(-1000*time.Hour))
		return f
	})
}

func TestForAChosenCanary(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c", "d")
		f.node("c").Labels = map[string]string{"canary": "yes"}
		f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](60),
		}
		return f
	}
	playRows(t, map[string]row{
		"goes first regardless of its age": {
			func(*fixture) {}, []string{"claim c for eda", "a: Waiting WaitingForCanary"},
		},
		"soaks": {
			func(f *fixture) { f.finish("c", 59*time.Second) }, []string{"a: Waiting WaitingForCanary"},
		},
		"finishes, and the others follow": {
			func(f *fixture) { f.finish("c", time.Minute) },
			[]string{"claim a for eda", "claim b for eda", "claim d for eda", "a: Claimed Claimed"},
		},
		"stops all other nodes if it has failed": {
			func(f *fixture) {
				f.addNote("c", v1alpha1.RolloutFailed, "x", time.Hour)
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
			},
			[]string{"a: Waiting CanaryFailed"},
		},
		"cannot be rebooted, and no node has proven the settings": {
			func(f *fixture) { f.node("c").NeverDisrupt = true }, []string{"a: Waiting WaitingForCanary"},
		},
		"cannot go, and another node has carried the settings for the soak": {
			func(f *fixture) { f.node("c").NeverDisrupt = true; f.finish("b", time.Minute) },
			[]string{"claim a for eda", "claim d for eda", "a: Claimed Claimed"},
		},
		"cannot go, and another has carried them for less": {
			func(f *fixture) { f.node("c").NeverDisrupt = true; f.finish("b", 59*time.Second) },
			[]string{"a: Waiting WaitingForCanary"},
		},
		"that gets other settings is no evidence": {
			func(f *fixture) {
				f.changeHash("c", "h2")
				f.finish("c", time.Hour)
				f.node("c").ClientNode.Status.Rollout.BootHash = "h2"
			},
			[]string{"a: Waiting WaitingForCanary"},
		},
	}, build, "a")
}

func TestForTheLastControlPlaneNode(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b")
		f.node("a").ControlPlane, f.node("b").ControlPlane = true, true
		f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
		f.node("b").NeverDisrupt = true
		return f
	}
	waits := []string{"a: Waiting LastControlPlaneNode"}
	playRows(t, map[string]row{
		"another one is well":               {func(*fixture) {}, []string{"claim a for eda", "a: Claimed Claimed"}},
		"the other one is no control plane": {func(f *fixture) { f.node("b").ControlPlane = false }, waits},
		"the other one is not Ready":        {func(f *fixture) { f.node("b").Ready = false }, waits},
		"others have cordoned it, and it is Ready": {
			func(f *fixture) { f.node("b").Unschedulable = true }, []string{"claim a for eda", "a: Claimed Claimed"},
		},
		"it is being deleted":                {func(f *fixture) { f.node("b").Deleting = true }, waits},
		"the rollout is about to disrupt it": {func(f *fixture) { f.node("b").NeverDisrupt = false; f.permitted("b", time.Minute) }, waits},
		"it has failed": {
			func(f *fixture) { f.addNote("b", v1alpha1.RolloutFailed, "x", time.Hour) }, waits,
		},
	}, build, "a")
}

func TestForGuardsOfANodeWithoutTheDisruptionAnnotation(t *testing.T) {
	build := func() *fixture {
		f := cluster("a")
		f.permitted("a", time.Minute)
		f.node("a").Guarded, f.node("a").Mark = true, nil
		return f
	}
	unguard := "remove the protection annotations of a"
	playRows(t, map[string]row{
		"while the agent holds a permit: they go with it": {
			func(*fixture) {},
			[]string{
				"clear the permit of a: SettingsChanging", "note a: Releasing CordonedByOthers", "conditions of a: none",
				unguard, "release the claim of a", "a: Waiting CordonedByOthers",
			},
		},
		"before the agent has responded: the same": {
			func(f *fixture) { f.node("a").ClientNode.Generation++ },
			[]string{
				"clear the permit of a: SettingsChanging", "note a: Releasing CordonedByOthers", "conditions of a: none",
				unguard, "release the claim of a", "a: Waiting CordonedByOthers",
			},
		},
		"while the node boots: they go once it is back": {
			func(f *fixture) { f.rebooted("a") },
			[]string{"conditions of a: none", unguard, "release the claim of a", "note a: UpToDate NothingToDo", "clear the permit of a: Accepted", "a: UpToDate NothingToDo"},
		},
		"and its Node is being deleted: it is skipped": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.node("a").ClientNode.Spec.RebootPermit, f.Claims = nil, nil
				f.node("a").Deleting = true
			},
			[]string{"a: UpToDate NothingToDo"},
		},
	}, build, "a")
}
