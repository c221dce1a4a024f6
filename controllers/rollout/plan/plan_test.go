package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: noon.Add(-d)} }

// fixture is a snapshot under construction. Its nodes a, b, c... all wait for one kernel argument of profile eda.
type fixture struct{ Snapshot }

func cluster(nodes ...string) *fixture {
	f := &fixture{Snapshot{Now: noon, Budget: 10, Claims: map[string]v1alpha1.Disruption{}}}
	f.profile("eda")
	for i, name := range nodes {
		f.Nodes = append(f.Nodes, Node{
			Name: name, UID: "node-" + name, Created: noon.Add(time.Duration(i-100) * time.Hour), BootID: name + "-1",
			Ready: true, AgentReady: true, Profiles: []string{"eda"}, ClientNode: waiting(name),
		})
	}
	return f
}

// waiting returns a StorageClientNode whose agent has staged a kernel argument.
func waiting(name string) *ClientNode {
	key := "kernelArgument/ihash_entries"
	return &ClientNode{
		UID: name, Generation: 3, DesiredBootHash: "h1",
		Spec: v1alpha1.StorageClientNodeSpec{
			Hash: "h1", BootHash: "h1", Settings: []v1alpha1.NodeSetting{{Key: key, Value: "1", Profile: "eda"}},
		},
		Status: v1alpha1.StorageClientNodeStatus{
			ObservedGeneration: 3, Hash: "h1", BootID: name + "-1", RebootRequired: true, RebootRequiredBy: []string{key},
			Settings: []v1alpha1.SettingStatus{{Key: key, State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectReboot}},
		},
	}
}

func (f *fixture) profile(name string) *Profile {
	spec := v1alpha1.StorageClientProfileSpec{}
	spec.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
	spec.Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](100)}
	spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(10))
	f.Profiles = append(f.Profiles, Profile{
		Name: name, Rollout: spec.WithDefaults().Rollout, PlanHash: "p1", SettingsHash: "p1",
		BootKeys: sets.New("kernelArgument/ihash_entries"),
	})
	return &f.Profiles[len(f.Profiles)-1]
}

func (f *fixture) node(name string) *Node {
	for i := range f.Nodes {
		if f.Nodes[i].Name == name {
			return &f.Nodes[i]
		}
	}
	panic("no node " + name)
}

// finish makes the settings of a node effective since a given time.
func (f *fixture) finish(name string, since time.Duration) {
	status := &f.node(name).ClientNode.Status
	status.RebootRequired, status.RebootRequiredBy = false, nil
	status.Settings[0].State = v1alpha1.SettingInSync
	f.addNote(name, v1alpha1.RolloutUpToDate, "", since)
}

func (f *fixture) addNote(name string, phase v1alpha1.RolloutPhase, reason string, since time.Duration) *v1alpha1.RolloutStatus {
	at := ago(since)
	tuned := &v1alpha1.RolloutTuned{Hash: "h1", Since: at}
	status := &v1alpha1.RolloutStatus{Phase: phase, Reason: reason, Since: &at, BootHash: "h1", Tuned: tuned}
	if phase == v1alpha1.RolloutWaiting && isBackOff(reason) {
		status.DrainAttempts, status.RetryAfter = 1, &metav1.Time{Time: at.Add(BackOff)}
	}
	f.node(name).ClientNode.Status.Rollout = status
	return status
}

// cordoned makes the rollout claim and cordon a node a given time ago.
func (f *fixture) cordoned(name string, since time.Duration) {
	claim := v1alpha1.Disruption{Profile: "eda", BootHash: "h1", Since: ago(since)}
	f.Claims[name] = claim
	n := f.node(name)
	n.Unschedulable, n.Mark, n.Maintenance = true, &claim, MaintenanceDraining
	f.addNote(name, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, since)
}

// permitted gives a permit to a cordoned node.
func (f *fixture) permitted(name string, since time.Duration) {
	f.cordoned(name, since)
	n := f.node(name)
	n.Maintenance = MaintenanceDrained
	record := f.addNote(name, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, since)
	record.Attempts = 1
	id := permitID(&nodeState{Node: n}, *record)
	n.ClientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: id, BootHash: "h1", BootID: n.BootID}
	claim := f.Claims[name]
	claim.NodeUID, claim.Permit = n.UID, &v1alpha1.ClaimedPermit{BootHash: "h1", Profiles: map[string]string{"eda": "p1"}}
	f.Claims[name] = claim
	n.ClientNode.Generation, n.ClientNode.Status.ObservedGeneration = 4, 4
}

// rebooted finishes the reboot of a node that had a permit.
func (f *fixture) rebooted(name string) {
	n := f.node(name)
	n.BootID = name + "-2"
	status := &n.ClientNode.Status
	status.BootID, status.RebootRequired, status.RebootRequiredBy = n.BootID, false, nil
	status.Settings[0].State = v1alpha1.SettingInSync
}

// lines returns the steps of a plan, followed by the notes of the given nodes.
func lines(p Plan, nodes ...string) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, describe(s))
	}
	for _, n := range nodes {
		out = append(out, fmt.Sprintf("%s: %s %s", n, p.Notes[n].Phase, p.Notes[n].Reason))
	}
	return out
}

func TestForWhetherANodeIsClaimed(t *testing.T) {
	playRows(t, map[string]row{
		"a node that needs a reboot is claimed, and nothing more in the same pass": {
			func(*fixture) {}, []string{"claim a for eda", "a: Claimed Claimed"},
		},
		"a claim that has been read back is acted upon": {
			func(f *fixture) { f.Claims["a"] = v1alpha1.Disruption{Profile: "eda"} }, []string{"conditions of a: Draining", "cordon a", "drain a", "a: Draining Draining"},
		},
		"the status of an agent that has not reported since the boot is ignored": {
			func(f *fixture) { f.node("a").BootID = "a-2" }, []string{"a: Applying AgentSilent"},
		},
		"an agent whose Pod is not Ready cannot reboot": {
			func(f *fixture) { f.node("a").AgentReady = false }, []string{"a: Waiting AgentSilent"},
		},
		"the rollout waits for settings that are about to change": {
			func(f *fixture) { f.node("a").ClientNode.DesiredBootHash = "h2" }, []string{"a: Applying SettingsChanging"},
		},
		"a setting that failed would fail the node after its boot": {
			func(f *fixture) {
				c := f.node("a").ClientNode
				c.Spec.Settings = append(c.Spec.Settings, v1alpha1.NodeSetting{Key: "sysctl/x", Profile: "eda"})
				c.Status.Settings = append(c.Status.Settings, v1alpha1.SettingStatus{Key: "sysctl/x", State: v1alpha1.SettingFailed})
			},
			[]string{"a: Waiting SettingsFailed"},
		},
		"a node that is not Ready is not touched": {
			func(f *fixture) { f.node("a").Ready = false }, []string{"a: Waiting NodeUnavailable"},
		},
		"a node that others have cordoned is not touched": {
			func(f *fixture) { f.node("a").Unschedulable = true }, []string{"a: Waiting CordonedByOthers"},
		},
		"a node that is being deleted is not touched": {
			func(f *fixture) { f.node("a").Deleting = true }, []string{"a: Waiting NodeDeleting"},
		},
		"never-disrupt": {
			func(f *fixture) { f.node("a").NeverDisrupt = true }, []string{"a: Waiting NeverDisrupt"},
		},
		"the Node is paused": {
			func(f *fixture) { f.node("a").Paused = true }, []string{"a: Waiting NodePaused"},
		},
		"the profile is paused": {
			func(f *fixture) { f.Profiles[0].Paused = v1alpha1.ReasonPausedByField }, []string{"a: Waiting PausedByField"},
		},
		"everything is paused": {
			func(f *fixture) { f.Paused = true }, []string{"a: Waiting PausedByAnnotation"},
		},
		"a profile in mode Plan disrupts nothing": {
			func(f *fixture) { f.Profiles[0].Inert = v1alpha1.ReasonPlanMode }, []string{"a: Waiting PlanMode"},
		},
		"an invalid profile disrupts nothing": {
			func(f *fixture) { f.Profiles[0].Inert = v1alpha1.ReasonInvalid }, []string{"a: Waiting Invalid"},
		},
		"policy Never": {
			func(f *fixture) { f.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootNever }, []string{"a: Waiting RebootPolicyNever"},
		},
		"policy OnApproval without an approval": {
			func(f *fixture) { f.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootOnApproval }, []string{"a: Waiting WaitingForApproval"},
		},
		"policy OnApproval with an approval": {
			func(f *fixture) {
				f.Profiles[0].Rollout.Reboot.Policy, f.Profiles[0].Approved = v1alpha1.RebootOnApproval, true
			},
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"the profile of the setting is gone": {
			func(f *fixture) { f.Profiles = nil }, []string{"a: Waiting ProfileGone"},
		},
		"a node that failed at this boot hash gets no second attempt": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect, time.Hour)
			},
			[]string{"a: Failed RebootWithoutEffect"},
		},
		"a node that failed at another boot hash gets an attempt": {
			func(f *fixture) { f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour).BootHash = "h0" },
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"a failed node that is well after all has not failed": {
			func(f *fixture) {
				f.finish("a", 0)
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour)
			},
			[]string{"a: UpToDate NothingToDo"},
		},
		"a new generation that changes no setting, not seen yet, does not delay a claim": {
			func(f *fixture) { f.node("a").ClientNode.Generation++ },
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"all permits for the boot hash have been given": {
			func(f *fixture) { f.addNote("a", v1alpha1.RolloutUpToDate, "", time.Hour).Attempts = MaxAttempts },
			[]string{"a: Failed AttemptsUsedUp"},
		},
		"a node backs off after its drain timed out": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, BackOff-time.Second)
			},
			[]string{"a: Waiting DrainTimedOut"},
		},
		"a new attempt starts after the back-off": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, BackOff)
			},
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"the claim of a node that must no longer be disrupted is released": {
			func(f *fixture) {
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda"}
				f.Paused = true
			},
			[]string{"release the claim of a", "a: Waiting PausedByAnnotation"},
		},
		"the untuned taint stays until the node is tuned": {
			func(f *fixture) {
				f.node("a").Untuned = true
				f.Paused = true
			},
			[]string{"a: Waiting PausedByAnnotation"},
		},
		"the last control-plane node is never disrupted": {
			func(f *fixture) { f.node("a").ControlPlane = true }, []string{"a: Waiting LastControlPlaneNode"},
		},
	}, oneNode, "a")
	playRows(t, map[string]row{
		"a node that needs no reboot is skipped": {
			func(*fixture) {}, []string{"a: UpToDate NothingToDo"},
		},
		"a live change alone never cordons": {
			func(f *fixture) { f.node("a").ClientNode.Spec.Hash = "h2" }, []string{"a: Applying Applying"},
		},
		"a new generation that changes no setting, not seen yet, does not affect a finished node": {
			func(f *fixture) { f.node("a").ClientNode.Generation++ }, []string{"a: UpToDate NothingToDo"},
		},
		"a claim of a deleted node is released": {
			func(f *fixture) { f.Claims["z"] = v1alpha1.Disruption{} }, []string{"release the claim of z", "a: UpToDate NothingToDo"},
		},
		"the untuned taint is removed once the node is tuned": {
			func(f *fixture) { f.node("a").Untuned = true }, []string{"remove the untuned taint of a", "a: UpToDate NothingToDo"},
		},
		"the untuned taint stays while the agent's Pod is not Ready, which leaves Tuned Unknown": {
			func(f *fixture) { f.node("a").Untuned, f.node("a").AgentReady = true, false }, []string{"a: UpToDate NothingToDo"},
		},
		"conditions that a crash left behind are removed": {
			func(f *fixture) { f.node("a").Maintenance = MaintenanceOther }, []string{"conditions of a: none", "a: UpToDate NothingToDo"},
		},
		"a permit that a boot has outlived is cleared": {
			func(f *fixture) {
				f.node("a").ClientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "x", BootID: "a-0"}
			},
			[]string{"clear the permit of a: Accepted", "a: UpToDate NothingToDo"},
		},
	}, oneNodeWith(func(f *fixture) { f.finish("a", time.Hour) }), "a")
}

func TestForADisruptedNode(t *testing.T) {
	gone := &DrainProgress{Gone: true, IgnoredPodUIDs: []string{"ds"}}
	blocked := &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Eviction of Pod x/y blocked by PodDisruptionBudget x/z"}
	release := func(reason string) []string {
		return []string{"note a: Releasing " + reason, "conditions of a: none", "uncordon a: " + reason, "release the claim of a"}
	}
	cordoned := oneNodeWith(func(f *fixture) { f.cordoned("a", time.Minute) })
	drained := oneNodeWith(func(f *fixture) {
		f.cordoned("a", time.Minute)
		f.node("a").Drain = gone
	})
	rebooted := oneNodeWith(func(f *fixture) {
		f.permitted("a", 5*time.Minute)
		f.rebooted("a")
	})
	playRows(t, map[string]row{
		"the drain times out and is released": {
			func(f *fixture) {
				f.cordoned("a", 15*time.Minute)
				f.node("a").Drain = blocked
			},
			[]string{"note a: Waiting DrainTimedOut", "conditions of a: none", "uncordon a: DrainTimedOut", "release the claim of a", "a: Waiting DrainTimedOut"},
		},
		"its boot settings are about to change until the drain times out": {
			func(f *fixture) {
				f.cordoned("a", 15*time.Minute)
				f.node("a").Drain = gone
				f.node("a").ClientNode.DesiredBootHash = "h2"
			},
			[]string{"note a: Waiting DrainTimedOut", "conditions of a: none", "uncordon a: DrainTimedOut", "release the claim of a", "a: Waiting DrainTimedOut"},
		},
		"a silent agent ends the drain after its time limit": {
			func(f *fixture) {
				f.cordoned("a", 15*time.Minute)
				f.node("a").BootID = "a-9"
			},
			[]string{"note a: Waiting DrainTimedOut", "conditions of a: none", "uncordon a: DrainTimedOut", "release the claim of a", "a: Waiting DrainTimedOut"},
		},
		"a rejected permit is withdrawn, and the node backs off": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.addResponse("a", v1alpha1.RebootRefused)
			},
			[]string{"note a: Draining PermitRefused", "clear the permit of a: PermitRefused", "claim of a: no permit", "a: Draining PermitRefused"},
		},
		"the rollout waits for an unused permit": {
			func(f *fixture) { f.permitted("a", time.Minute) },
			[]string{"a: Rebooting PermitGiven"},
		},
		"a permit for other settings is withdrawn": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.changeHash("a", "h2")
			},
			[]string{"clear the permit of a: SettingsChanging", "drain a", "claim of a: no permit", "conditions of a: Draining", "a: Draining Draining"},
		},
		"a user uncordoned it under the release before, which waited for the agent: the rollout stops": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.node("a").ClientNode.Status.Rollout.Reason = v1alpha1.RolloutReasonCordonLost
			},
			[]string{
				"clear the permit of a: CordonLost", "note a: Waiting CordonLost", "conditions of a: none",
				"uncordon a: CordonLost", "release the claim of a", "a: Waiting CordonLost",
			},
		},
		"the rollout waits for a started reboot regardless of changes": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.changeHash("a", "h2")
				f.addResponse("a", v1alpha1.RebootStarted)
				f.Paused = true
			},
			[]string{"a: Rebooting PermitGiven"},
		},
		"the old boot ID after the time limit is a failure": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.addResponse("a", v1alpha1.RebootStarted)
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"it has booted and is not healthy in time": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.rebooted("a")
				f.node("a").Ready = false
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"it has booted late, is Ready and has not reported yet": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.rebooted("a")
				f.node("a").ReadySince = f.Now.Add(-time.Minute)
				f.node("a").ClientNode.Status.BootID = "before"
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"it has booted late, and its agent stays silent": {
			func(f *fixture) {
				f.permitted("a", 30*time.Minute)
				f.rebooted("a")
				f.node("a").ReadySince = f.Now.Add(-16 * time.Minute)
				f.node("a").ClientNode.Status.BootID = "before"
			},
			[]string{"note a: Failed RebootTimedOut", "clear the permit of a: RebootTimedOut", "a: Failed RebootTimedOut"},
		},
		"it has booted late, with its old boot entry": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, 5*time.Minute)
				f.rebooted("a")
				f.node("a").ReadySince = f.Now.Add(-time.Minute)
				f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingFailed
			},
			[]string{"note a: Failed RebootWithoutEffect", "clear the permit of a: RebootWithoutEffect", "a: Failed RebootWithoutEffect"},
		},
		"a failed node stays cordoned": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.node("a").Maintenance = MaintenanceDrained
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour)
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"a failed node that is healthy after its boot settles": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.node("a").Maintenance = MaintenanceDrained
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour)
			},
			[]string{"a: Settling Settling"},
		},
	}, oneNode, "a")
	playRows(t, map[string]row{
		"it is empty, and its boot settings are about to change: the reboot would come too early": {
			func(f *fixture) { f.node("a").ClientNode.DesiredBootHash = "h2" }, []string{"a: Draining SettingsChanging"},
		},
		"pods are gone and a mount remains": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/m", PodUID: "gone"}}
			},
			[]string{"a: Draining MountsBusy"},
		},
		"a staged mount of no pod counts": {
			func(f *fixture) { f.node("a").ClientNode.Status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/m"}} }, []string{"a: Draining MountsBusy"},
		},
		"mounts that did not fit count": {
			func(f *fixture) { f.node("a").ClientNode.Status.BusyMountsOmitted = 1 }, []string{"a: Draining MountsBusy"},
		},
		"the mount of a pod that stays does not hold the permit back": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/m", PodUID: "ds"}}
			},
			[]string{"claim of a: permit", "note a: Rebooting PermitGiven", "conditions of a: Drained, for a permit", "permit the reboot of a", "a: Rebooting PermitGiven"},
		},
		"the mount of a pod that stays delays the permit if the profile requires it": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/m", PodUID: "ds"}}
				f.Profiles[0].Rollout.Drain.IgnoreDaemonSetMounts = ptr.To(false)
			},
			[]string{"a: Draining MountsBusy"},
		},
		"an agent that has not seen the current object gets no permit": {
			func(f *fixture) { f.node("a").ClientNode.Generation++ }, []string{"a: Draining Applying"},
		},
		"an attempt that was recorded and not permitted is permitted": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, 0).Attempts = MaxAttempts
			},
			[]string{"claim of a: permit", "note a: Rebooting PermitGiven", "conditions of a: Drained, for a permit", "permit the reboot of a", "a: Rebooting PermitGiven"},
		},
		"a fourth attempt fails the node": {
			func(f *fixture) { f.addNote("a", v1alpha1.RolloutDraining, "", time.Minute).Attempts = MaxAttempts },
			[]string{"note a: Failed AttemptsUsedUp", "a: Failed AttemptsUsedUp"},
		},
	}, drained, "a")
	playRows(t, map[string]row{
		"it is drained": {
			func(*fixture) {}, []string{"drain a", "a: Draining Draining"},
		},
		"a blocked pod is named": {
			func(f *fixture) { f.node("a").Drain = blocked }, []string{"a: Draining DrainBlocked"},
		},
		"a pause releases it": {
			func(f *fixture) { f.Profiles[0].Paused = v1alpha1.ReasonPausedByAnnotation },
			append(release("PausedByAnnotation"), "a: Waiting PausedByAnnotation"),
		},
		"a withdrawn approval releases it": {
			func(f *fixture) { f.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootOnApproval },
			append(release("WaitingForApproval"), "a: Waiting WaitingForApproval"),
		},
		"the node no longer needs a reboot": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.RebootRequired = false
				f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingInSync
			},
			append(release("NothingToDo"), "a: UpToDate NothingToDo"),
		},
		"its StorageClientNode is gone": {
			func(f *fixture) { f.node("a").ClientNode = nil }, []string{"conditions of a: none", "uncordon a: NothingToDo", "release the claim of a", "a:  "},
		},
		"its StorageClientNode is gone, and a user uncordons it": {
			func(f *fixture) { f.node("a").ClientNode, f.node("a").Unschedulable = nil, false },
			[]string{"conditions of a: none", "uncordon a: CordonLost", "release the claim of a", "a:  "},
		},
		"its claim is missing: the claim is added before other steps": {
			func(f *fixture) { delete(f.Claims, "a") }, []string{"claim a again for eda", "drain a", "a: Draining Draining"},
		},
		"a user uncordons it during the drain: the user owns the node": {
			func(f *fixture) { f.node("a").Unschedulable = false },
			[]string{"note a: Waiting CordonLost", "conditions of a: none", "uncordon a: CordonLost", "release the claim of a", "a: Waiting CordonLost"},
		},
		"a user removes the annotation: the user owns the cordon": {
			func(f *fixture) { f.node("a").Mark = nil },
			[]string{"note a: Releasing CordonedByOthers", "conditions of a: none", "release the claim of a", "a: Waiting CordonedByOthers"},
		},
		"its Node is being deleted: it is skipped": {
			func(f *fixture) { f.node("a").Deleting = true }, []string{"a: Releasing NodeDeleting"},
		},
		"the rollout waits for a silent agent until the drain times out": {
			func(f *fixture) { f.node("a").BootID = "a-9" }, []string{"a: Draining AgentSilent"},
		},
		"no step is taken during the back-off": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, RefusalPause-time.Second)
			},
			[]string{"a: Draining PermitRefused"},
		},
	}, cordoned, "a")
	playRows(t, map[string]row{
		"it is back, and settles": {
			func(*fixture) {}, []string{"a: Settling Settling"},
		},
		"it is accepted after it has settled": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, 30*time.Second).BootID = "a-2"
			},
			[]string{"conditions of a: none", "uncordon a: Accepted", "release the claim of a", "note a: UpToDate NothingToDo", "clear the permit of a: Accepted", "a: UpToDate NothingToDo"},
		},
		"the settle time restarts after another boot that was not observed": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, 30*time.Second).BootID = "a-1"
			},
			[]string{"a: Settling Settling"},
		},
		"another profile of the node sets the limits if the profile of the claim is gone": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, 30*time.Second).BootID = "a-2"
				claim := f.Claims["a"]
				claim.Profile = "gone"
				f.Claims["a"], f.node("a").Mark = claim, &claim
				f.Profiles[0].Rollout.SettleSeconds = ptr.To[int32](31)
			},
			[]string{"a: Settling Settling"},
		},
		"it is not accepted before it is Ready": {
			func(f *fixture) { f.node("a").Ready = false }, []string{"a: Rebooting WaitingForNode"},
		},
		"it is not accepted before every value has been read back": {
			func(f *fixture) { f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingDrifted }, []string{"a: Rebooting WaitingForNode"},
		},
		"an exception does not delay it": {
			func(f *fixture) { f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingClamped }, []string{"a: Settling Settling"},
		},
		"a setting that waits for a mount does not delay it": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.Settings[0] = v1alpha1.SettingStatus{
					Key: "kernelArgument/ihash_entries", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectNewTransport,
				}
			},
			[]string{"a: Settling Settling"},
		},
		"a boot without effect fails it at once": {
			func(f *fixture) {
				status := &f.node("a").ClientNode.Status
				status.RebootRequired, status.RebootRequiredBy = true, []string{"kernelArgument/ihash_entries"}
			},
			[]string{"note a: Failed RebootWithoutEffect", "clear the permit of a: RebootWithoutEffect", "a: Failed RebootWithoutEffect"},
		},
		"a setting that failed after the boot fails it at once": {
			func(f *fixture) { f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingFailed },
			[]string{"note a: Failed RebootWithoutEffect", "clear the permit of a: RebootWithoutEffect", "a: Failed RebootWithoutEffect"},
		},
		"the profile changes while it boots: no failure, it continues with the new settings": {
			func(f *fixture) {
				f.changeHash("a", "h2")
				status := &f.node("a").ClientNode.Status
				status.RebootRequired, status.RebootRequiredBy = true, []string{"kernelArgument/ihash_entries"}
			},
			[]string{"clear the permit of a: SettingsChanging", "drain a", "claim of a: no permit", "conditions of a: Draining", "a: Draining Draining"},
		},
	}, rebooted, "a")
}

func (f *fixture) addResponse(name string, phase v1alpha1.RebootPhase) {
	c := f.node(name).ClientNode
	c.Status.Reboot = &v1alpha1.RebootStatus{PermitID: c.Spec.RebootPermit.ID, Phase: phase, Message: "busy"}
}

// changeHash changes the settings of a node that require a reboot, and lets its agent stage them.
func (f *fixture) changeHash(name, hash string) {
	c := f.node(name).ClientNode
	c.DesiredBootHash, c.Spec.BootHash, c.Spec.Hash, c.Status.Hash = hash, hash, hash, hash
}

func TestForNamesTheNodesThatUseUpTheBudget(t *testing.T) {
	f := cluster("a", "b", "c", "d", "e", "f")
	f.Profiles[0].Rollout.MaxUnavailable = ptr.To(intstr.FromString("50%"))
	f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](5)
	f.permitted("a", time.Minute)
	f.node("b").Ready = false
	f.addNote("c", v1alpha1.RolloutFailed, "x", time.Hour)
	p := For(f.Snapshot)
	want := "Reboot limit of StorageClientProfile eda reached (3 of 6 nodes): a is rebooting, b is not Ready, c has failed; bring b back, or delete its Node if it will not return"
	check.Equal(t, "message", want, p.Notes["d"].Message)
	f.Nodes[1].Ready = true
	if got := lines(For(f.Snapshot)); !cmp.Equal(got, []string{"claim b for eda"}) {
		t.Errorf("budget for one more node: got %q, want claim b for eda", got)
	}
	f.Budget = 2
	if got := For(f.Snapshot); len(got.Steps) > 0 || !strings.HasPrefix(got.Notes["d"].Message, "Reboot limit of the cluster reached (2 of 6 nodes): ") {
		t.Errorf("budget of the cluster used up: got steps %q, message %q", lines(got), got.Notes["d"].Message)
	}
}

func TestForADisruptedNodeWhoseProfilesAreGoneUsesUpBudget(t *testing.T) {
	f := cluster("a", "b")
	f.Budget = 1
	f.cordoned("a", time.Minute)
	f.node("a").Profiles = []string{"gone"}
	check.Equal(t, "plan", []string{"drain a", "b: Waiting WaitingForBudget"}, lines(For(f.Snapshot), "b"))
}

func TestForKeepsTheEndOfALongQueueQuiet(t *testing.T) {
	f := cluster("a", "b", "c", "d", "e", "f")
	f.Budget = 1
	p := For(f.Snapshot)
	want := "Reboot limit of the cluster reached; at least 3 nodes ahead in the queue"
	for _, name := range []string{"e", "f"} {
		check.Equal(t, name, want, p.Notes[name].Message)
	}
}

func TestForFillsTheBudgetInOnePass(t *testing.T) {
	f := cluster("a", "b", "c", "d")
	f.Budget = 3
	want := []string{"claim a for eda", "claim b for eda", "claim c for eda"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot)))
}

func TestForCanary(t *testing.T) {
	playRows(t, map[string]row{
		"the oldest node goes first, alone": {
			func(*fixture) {}, []string{"claim a for eda", "b: Waiting WaitingForCanary"},
		},
		"others wait while the canary is disrupted": {
			func(f *fixture) { f.permitted("a", time.Minute) }, []string{"b: Waiting WaitingForCanary"},
		},
		"others wait while the canary soaks": {
			func(f *fixture) { f.finish("a", 59*time.Second) }, []string{"b: Waiting WaitingForCanary"},
		},
		"others follow after the soak": {
			func(f *fixture) { f.finish("a", 60*time.Second) }, []string{"claim b for eda", "claim c for eda", "b: Claimed Claimed"},
		},
		"a failed canary stops all other nodes, regardless of the threshold": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour)
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
			},
			[]string{"b: Waiting CanaryFailed"},
		},
		"a canary that is not Ready while it soaks stops all other nodes": {
			func(f *fixture) {
				f.finish("a", 30*time.Second)
				f.node("a").Ready = false
			},
			[]string{"b: Waiting WaitingForCanary"},
		},
		"a canary that is not Ready and not started is skipped": {
			func(f *fixture) { f.node("a").Ready = false }, []string{"claim b for eda", "b: Claimed Claimed"},
		},
		"a canary that must never be disrupted is skipped": {
			func(f *fixture) { f.node("a").NeverDisrupt = true }, []string{"claim b for eda", "b: Claimed Claimed"},
		},
		"the node of the manager is no canary if there are others": {
			func(f *fixture) { f.node("a").Manager = true }, []string{"claim b for eda", "b: Claimed Claimed"},
		},
		"a canary whose settings have not arrived yet has not proven them": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.changeHash("a", "h0")
				f.node("a").ClientNode.DesiredBootHash = "h1"
			},
			[]string{"b: Waiting WaitingForCanary"},
		},
		"a selector names the canary": {
			func(f *fixture) {
				f.node("b").Labels = map[string]string{"canary": "yes"}
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
					NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](60),
				}
			},
			[]string{"claim b for eda", "b: Claimed Claimed"},
		},
		"the node of the manager, if selected as the canary, does not wait for nodes that wait for it": {
			func(f *fixture) {
				f.node("c").Manager, f.node("c").Labels = true, map[string]string{"canary": "yes"}
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
					NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](60),
				}
			},
			[]string{"claim c for eda", "b: Waiting WaitingForCanary"},
		},
		"a selector without a node stops all nodes": {
			func(f *fixture) {
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
					NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](60),
				}
			},
			[]string{"b: Waiting WaitingForCanary"},
		},
	}, func() *fixture {
		f := cluster("a", "b", "c")
		f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
		return f
	}, "b")
}

func TestForStopsAtTheFailureThreshold(t *testing.T) {
	f := cluster("a", "b", "c")
	f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour)
	f.cordoned("b", time.Minute)
	want := []string{
		"note b: Releasing FailureThresholdReached", "conditions of b: none", "uncordon b: FailureThresholdReached",
		"release the claim of b", "b: Waiting FailureThresholdReached", "c: Waiting FailureThresholdReached",
	}
	check.Equal(t, "plan", want, lines(For(f.Snapshot), "b", "c"))
}

func TestForTheManagersOwnNodeGoesLast(t *testing.T) {
	f := cluster("a", "b")
	f.node("a").Manager = true
	f.Budget = 1
	want := []string{"claim b for eda", "a: Waiting WaitingForBudget"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot), "a"))
	f.Budget = 2
	f.node("b").ClientNode.DesiredBootHash = "h2"
	check.Equal(t, "another node is about to need a reboot", []string{"a: Waiting ManagerNodeLast"}, lines(For(f.Snapshot), "a"))
	f.node("b").ClientNode.DesiredBootHash = "h1"
	f.node("b").NeverDisrupt = true
	check.Equal(t, "the other node will not be rebooted", []string{"claim a for eda"}, lines(For(f.Snapshot)))
}

// TestForControlPlane has three control-plane nodes. Two would be enough for etcd, and the budget allows all three.
func TestForControlPlane(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			f.node(name).ControlPlane = true
		}
		f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
		return f
	}
	release := []string{
		"note a: Releasing WaitingForControlPlane", "conditions of a: none", "uncordon a: WaitingForControlPlane", "release the claim of a",
		"a: Waiting WaitingForControlPlane",
	}
	waits := []string{"a: Waiting WaitingForControlPlane"}
	playRows(t, map[string]row{
		"one at a time, also in one pass": {func(*fixture) {}, []string{"claim a for eda", "a: Claimed Claimed"}},
		"another one is claimed": {
			func(f *fixture) { f.Claims["b"] = v1alpha1.Disruption{Profile: "eda"} },
			append([]string{"conditions of b: Draining", "cordon b", "drain b"}, waits...),
		},
		"another one is being drained": {
			func(f *fixture) { f.cordoned("b", time.Minute) }, append([]string{"drain b"}, waits...),
		},
		"another one reboots": {func(f *fixture) { f.permitted("b", time.Minute) }, waits},
		"another one settles": {
			func(f *fixture) { f.permitted("b", 5*time.Minute); f.rebooted("b") }, waits,
		},
		"another one has failed": {
			func(f *fixture) {
				f.addNote("b", v1alpha1.RolloutFailed, "x", time.Hour)
				f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
			},
			waits,
		},
		"another one is not Ready":     {func(f *fixture) { f.node("b").Ready = false }, waits},
		"another one is being deleted": {func(f *fixture) { f.node("b").Deleting = true }, waits},
		"others have cordoned one that is Ready: it still counts for etcd": {
			func(f *fixture) { f.node("b").Unschedulable = true }, []string{"claim a for eda", "a: Claimed Claimed"},
		},
		"others have cordoned one that is not Ready": {
			func(f *fixture) { f.node("b").Unschedulable, f.node("b").Ready = true, false }, waits,
		},
		"others have cordoned one that has failed": {
			func(f *fixture) {
				f.addNote("b", v1alpha1.RolloutFailed, "x", time.Hour)
				f.node("b").Unschedulable = true
			},
			waits,
		},
		"others have cordoned one that we have claimed": {
			func(f *fixture) {
				f.Claims["b"] = v1alpha1.Disruption{Profile: "eda"}
				f.node("b").Unschedulable = true
			},
			append([]string{"note b: Releasing CordonedByOthers", "release the claim of b"}, waits...),
		},
		"a worker is out": {
			func(f *fixture) { f.node("b").ControlPlane, f.node("b").Ready = false, false },
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"another one goes down during the drain: the node is released": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("b").Ready = false
			},
			release,
		},
		"another one goes down once the node is claimed": {
			func(f *fixture) {
				f.Claims["a"] = v1alpha1.Disruption{Profile: "eda"}
				f.node("b").Ready = false
			},
			append([]string{"release the claim of a"}, waits...),
		},
		"the node is empty when another one goes down: it gets no permit": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("a").Drain = &DrainProgress{Gone: true}
				f.node("b").Ready = false
			},
			release,
		},
		"a node with a permit continues": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.node("b").Ready = false
			},
			[]string{"a: Rebooting PermitGiven"},
		},
	}, build, "a")
}

func TestForNamesTheControlPlaneNodeThatIsOutOfService(t *testing.T) {
	const advice = "; bring it back, or delete its Node if it will not return"
	for name, c := range map[string]struct {
		change func(*fixture)
		want   string
	}{
		"the rollout disrupts it": {func(f *fixture) { f.permitted("b", time.Minute) }, "Another control-plane node is out of service: b is rebooting"},
		"the rollout disrupted it, and it failed": {
			func(f *fixture) {
				f.cordoned("b", time.Hour)
				f.addNote("b", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour)
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
			},
			"Another control-plane node is out of service: b has failed" + advice,
		},
		"it is not Ready": {
			func(f *fixture) { f.node("b").Ready = false }, "Another control-plane node is out of service: b is not Ready" + advice,
		},
		"it is cordoned too": {
			func(f *fixture) { f.node("b").Unschedulable, f.node("b").Ready = true, false },
			"Another control-plane node is out of service: b is not Ready" + advice,
		},
		"all others are out": {
			func(f *fixture) { f.node("b").Ready, f.node("c").Ready = false, false },
			"No other control-plane node is Ready and in service: b is not Ready, c is not Ready; bring them back, or delete the Nodes that will not return",
		},
		"there is no other": {
			func(f *fixture) { f.node("b").ControlPlane, f.node("c").ControlPlane = false, false },
			"The only control-plane node is not rebooted by the rollout; reboot it by hand",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b", "c")
			for _, name := range []string{"a", "b", "c"} {
				f.node(name).ControlPlane = true
			}
			c.change(f)
			check.Equal(t, "message", c.want, For(f.Snapshot).Notes["a"].Message)
		})
	}
}

// The control-plane node waits for another control-plane node.
func TestForTheManagersNodeGoesAfterAControlPlaneNode(t *testing.T) {
	f := cluster("a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c"} {
		f.node(name).ControlPlane = true
	}
	f.node("d").Manager = true
	f.permitted("a", time.Minute)
	f.finish("c", time.Hour)
	f.node("c").Created = noon.Add(-1000 * time.Hour)
	f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
	want := []string{"b: Waiting WaitingForControlPlane", "d: Waiting ManagerNodeLast"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot), "b", "d"))
}

func TestForSeveralProfilesOnANode(t *testing.T) {
	two := func() *fixture {
		f := cluster("a")
		f.profile("lab")
		n := f.node("a")
		n.Profiles = []string{"eda", "lab"}
		n.ClientNode.Spec.Settings = append(n.ClientNode.Spec.Settings, v1alpha1.NodeSetting{Key: "kernelArgument/quiet", Profile: "lab"})
		n.ClientNode.Status.RebootRequiredBy = append(n.ClientNode.Status.RebootRequiredBy, "kernelArgument/quiet")
		return f
	}
	playRows(t, map[string]row{
		"the one with the higher priority leads": {
			func(f *fixture) { f.Profiles[1].Priority = 1 }, []string{"claim a for lab"},
		},
		"on a tie the longer drain timeout leads": {
			func(f *fixture) { f.Profiles[1].Rollout.Drain.TimeoutSeconds = ptr.To[int32](901) }, []string{"claim a for lab"},
		},
		"Never takes precedence over Automatic": {
			func(f *fixture) { f.Profiles[1].Rollout.Reboot.Policy = v1alpha1.RebootNever }, nil,
		},
		"OnApproval takes precedence over Automatic": {
			func(f *fixture) { f.Profiles[1].Rollout.Reboot.Policy = v1alpha1.RebootOnApproval }, nil,
		},
		"a paused profile blocks both": {
			func(f *fixture) { f.Profiles[1].Paused = v1alpha1.ReasonPausedByField }, nil,
		},
		"a profile that does not need the reboot is ignored": {
			func(f *fixture) {
				f.Profiles[1].Rollout.Reboot.Policy = v1alpha1.RebootNever
				f.node("a").ClientNode.Status.RebootRequiredBy = []string{"kernelArgument/ihash_entries"}
			},
			[]string{"claim a for eda"},
		},
		"the budget of either profile blocks the node": {
			func(f *fixture) {
				f.Nodes = append(f.Nodes, Node{Name: "z", Profiles: []string{"lab"}})
				f.Profiles[1].Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(1))
			},
			nil,
		},
	}, two)
}

func TestForRemovals(t *testing.T) {
	playRows(t, map[string]row{
		"a released node is not rebooted unless a profile requests it": {
			func(f *fixture) { f.release("a") }, []string{"a: UpToDate RestoredAtNextBoot"},
		},
		"a released node is rebooted if a source of its settings requests it": {
			func(f *fixture) {
				f.release("a")
				f.Profiles[0].Rollout.Reboot.RestoreReboot = true
			},
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"by the rules of that profile": {
			func(f *fixture) {
				f.release("a")
				f.Profiles[0].Rollout.Reboot.RestoreReboot = true
				f.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootNever
			},
			[]string{"a: Waiting RebootPolicyNever"},
		},
		"and once it is restored": {
			func(f *fixture) {
				f.release("a")
				f.Profiles[0].Rollout.Reboot.RestoreReboot = true
				f.node("a").ClientNode.Status.Restored = false
			},
			[]string{"a: Applying Applying"},
		},
		"a failure of the settings is no failure of their removal": {
			func(f *fixture) {
				f.release("a")
				f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour).Attempts = MaxAttempts
				f.Profiles[0].Rollout.Reboot.RestoreReboot = true
			},
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"a key that an edit took out waits for the next boot": {
			func(f *fixture) { f.node("a").ClientNode.Status.RebootRequiredBy = []string{"kernelArgument/old"} },
			[]string{"a: UpToDate RestoredAtNextBoot"},
		},
		"unless a profile of the node requests the reboot": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.RebootRequiredBy = []string{"kernelArgument/old"}
				f.Profiles[0].Rollout.Reboot.RestoreReboot = true
			},
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"a profile that is being deleted requests a reboot for its own keys": {
			func(f *fixture) {
				f.node("a").ClientNode.Status.RebootRequiredBy = []string{"kernelArgument/old"}
				going := f.profile("going")
				going.Deleting, going.BootKeys, going.Rollout.Reboot.RestoreReboot = true, sets.New("kernelArgument/old"), true
				f.node("a").Profiles = []string{"eda", "going"}
			},
			[]string{"claim a for going", "a: Claimed Claimed"},
		},
	}, oneNode, "a")
}

func (f *fixture) release(name string) {
	c := f.node(name).ClientNode
	c.Spec.Release, c.Status.Restored = true, true
}

func TestForDrainOptionsAreThoseOfTheLeadingProfile(t *testing.T) {
	f := cluster("a")
	f.cordoned("a", time.Minute)
	f.Profiles[0].Rollout.Drain.DeleteEmptyDirData = true
	options := f.Profiles[0].Rollout.Drain
	want := []Step{Drain{OnNode: OnNode{"a"}, Options: options, TimeLeft: 14 * time.Minute}}
	check.Equal(t, "steps", want, For(f.Snapshot).Steps)
}

func TestForChangesNothingInTheSnapshot(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c", "d")
		f.cordoned("a", time.Minute)
		f.node("a").Drain = &DrainProgress{Gone: true, IgnoredPodUIDs: []string{"y", "x"}}
		f.permitted("b", time.Minute)
		f.node("b").Unschedulable = false
		f.permitted("c", 5*time.Minute)
		f.rebooted("c")
		return f
	}
	f := build()
	first := lines(For(f.Snapshot), "a", "b", "c", "d")
	check.Equal(t, "For changed its snapshot", build().Snapshot, f.Snapshot, cmp.AllowUnexported(Snapshot{}))
	check.Equal(t, "second call of For", first, lines(For(f.Snapshot), "a", "b", "c", "d"))
}

func TestPermitID(t *testing.T) {
	f := cluster("a")
	v := &nodeState{Node: f.node("a")}
	at := metav1.Time{Time: noon}
	attempt := v1alpha1.RolloutStatus{BootHash: "h1", Attempts: 1, Since: &at}
	id := permitID(v, attempt)
	if got := permitTime(id); !got.Equal(noon) {
		t.Errorf("permitTime(%s) = %s, want %s", id, got, noon)
	}
	if len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) {
		t.Errorf("got ID %s, want a UUID of version 7", id)
	}
	if again := permitID(v, attempt); again != id {
		t.Errorf("got permits %s and %s for the same attempt", id, again)
	}
	next := attempt
	next.Attempts = 2
	if permitID(v, next) == id {
		t.Error("got the same permit for two attempts")
	}
	f.node("a").BootID = "a-2"
	if permitID(v, attempt) == id {
		t.Error("got the same permit for two boots")
	}
	if got := permitTime("not-a-uuid"); !got.IsZero() {
		t.Errorf("permitTime of a foreign ID = %s, want zero", got)
	}
}
