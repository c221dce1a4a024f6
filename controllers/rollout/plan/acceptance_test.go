package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const shadowedBy = `/etc/sysctl.d/zzz-site.conf sets it to "4096" and is read after /etc/sysctl.d/zz-storage-client.conf`

// addSetting adds a setting to a node, with the status that its agent reports.
func (f *fixture) addSetting(node string, status v1alpha1.SettingStatus) {
	c := f.node(node).ClientNode
	c.Spec.Settings = append(c.Spec.Settings, v1alpha1.NodeSetting{Key: status.Key, Profile: "eda"})
	c.Status.Settings = append(c.Status.Settings, status)
}

func sysctlIs(state v1alpha1.SettingState, message string) v1alpha1.SettingStatus {
	return v1alpha1.SettingStatus{Key: "sysctl/x", State: state, TakesEffect: v1alpha1.EffectLive, Message: message}
}

func moduleIs(state v1alpha1.SettingState, message string) v1alpha1.SettingStatus {
	return v1alpha1.SettingStatus{Key: "module/nfs/x", State: state, TakesEffect: v1alpha1.EffectReboot, Message: message}
}

// TestForAcceptance checks two things for every state of a setting. Does it hold back a reboot that another setting needs? Does
// it fail the node after that reboot? Both results must agree: a node is rebooted only if it would be accepted.
func TestForAcceptance(t *testing.T) {
	claimed := []string{"claim a for eda", "a: Claimed Claimed"}
	settles := []string{"a: Settling Settling"}
	refused := []string{"a: Waiting SettingsFailed"}
	failed := []string{"note a: Failed RebootWithoutEffect", "clear the permit of a: RebootWithoutEffect", "a: Failed RebootWithoutEffect"}
	waits := []string{"a: Rebooting WaitingForNode"}
	for name, c := range map[string]struct {
		status        v1alpha1.SettingStatus
		before, after []string
	}{
		"read back":                          {sysctlIs(v1alpha1.SettingInSync, ""), claimed, settles},
		"clamped":                            {sysctlIs(v1alpha1.SettingClamped, ""), claimed, settles},
		"unsupported":                        {sysctlIs(v1alpha1.SettingUnsupported, ""), claimed, settles},
		"shadowed, the live value right":     {sysctlIs(v1alpha1.SettingShadowed, shadowedBy), claimed, settles},
		"shadowed for the next mount":        {v1alpha1.SettingStatus{Key: "nfsmountconf/_all", State: v1alpha1.SettingShadowed, TakesEffect: v1alpha1.EffectNextMount}, claimed, settles},
		"drifted and unchanged":              {sysctlIs(v1alpha1.SettingDrifted, "left alone"), claimed, settles},
		"failed":                             {sysctlIs(v1alpha1.SettingFailed, "read-only"), refused, failed},
		"only a boot could, and a file wins": {moduleIs(v1alpha1.SettingShadowed, shadowedBy), refused, failed},
		"not staged":                         {moduleIs(v1alpha1.SettingDrifted, "not in the boot menu"), refused, waits},
		"waits for the boot":                 {moduleIs(v1alpha1.SettingPending, ""), claimed, waits},
		"waits for a mount":                  {v1alpha1.SettingStatus{Key: "x/y", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectNextMount}, claimed, settles},
		"waits for its module":               {v1alpha1.SettingStatus{Key: "module/x/y", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectLive, WaitsFor: v1alpha1.WaitsForModule}, claimed, settles},
		"waits for a transport":              {v1alpha1.SettingStatus{Key: "x/y", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectNewTransport}, claimed, settles},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.addSetting("a", c.status)
			check.Equal(t, "before the claim", c.before, lines(For(f.Snapshot), "a"))
			f = cluster("a")
			f.addSetting("a", c.status)
			f.permitted("a", 5*time.Minute)
			f.rebooted("a")
			check.Equal(t, "after the boot", c.after, lines(For(f.Snapshot), "a"))
		})
	}
}

func TestForNamesTheObstacleToABoot(t *testing.T) {
	f := cluster("a")
	f.addSetting("a", moduleIs(v1alpha1.SettingShadowed, shadowedBy))
	note := For(f.Snapshot).Notes["a"]
	if !strings.Contains(note.Message, "module/nfs/x: "+shadowedBy) {
		t.Errorf("before the claim: got message %q, want %q in it", note.Message, shadowedBy)
	}
	f.permitted("a", 5*time.Minute)
	f.rebooted("a")
	note = For(f.Snapshot).Notes["a"]
	if !strings.Contains(note.Message, "module/nfs/x: "+shadowedBy) {
		t.Errorf("after the boot: got message %q, want %q in it", note.Message, shadowedBy)
	}
}

// A kernel argument that is unavailable causes no reboot, but the node is not up to date either.
func TestForAKernelArgumentThatNoBootApplies(t *testing.T) {
	f := cluster("a")
	f.finish("a", time.Hour)
	f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingFailed
	f.node("a").ClientNode.Status.Settings[0].Message = "conflict: /etc/default/grub sets ihash_entries=1"
	p := For(f.Snapshot)
	check.Equal(t, "plan", []string{"a: Waiting SettingsFailed"}, lines(p, "a"))
	if !strings.Contains(p.Notes["a"].Message, "/etc/default/grub") {
		t.Errorf("got message %q, want the file in it", p.Notes["a"].Message)
	}
	// A live value that failed needs no boot.
	f = cluster("a")
	f.finish("a", time.Hour)
	f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, "read-only"))
	check.Equal(t, "plan", []string{"a: UpToDate NothingToDo"}, lines(For(f.Snapshot), "a"))
	// Settings that are being restored are not evaluated.
	f = cluster("a")
	f.finish("a", time.Hour)
	c := f.node("a").ClientNode
	c.Spec.Release, c.Status.Restored, c.Status.Settings[0].State = true, true, v1alpha1.SettingFailed
	check.Equal(t, "plan", []string{"a: UpToDate NothingToDo"}, lines(For(f.Snapshot), "a"))
}

// An obstacle that appears during the drain prevents the permit: the boot would only cause the failure.
func TestForADrainStopsIfTheNodeWouldNotBeAccepted(t *testing.T) {
	playRows(t, map[string]row{
		"a setting fails during the drain": {
			func(f *fixture) { f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, "read-only")) },
			[]string{
				"note a: Waiting SettingsFailed", "conditions of a: none", "uncordon a: SettingsFailed", "release the claim of a",
				"a: Waiting SettingsFailed",
			},
		},
		"another file that takes precedence appears during the drain": {
			func(f *fixture) { f.addSetting("a", sysctlIs(v1alpha1.SettingShadowed, shadowedBy)) },
			[]string{
				"claim of a: permit", "note a: Rebooting PermitGiven", "conditions of a: Drained, for a permit",
				"permit the reboot of a", "a: Rebooting PermitGiven",
			},
		},
		"a reverted setting is reverted": {
			func(f *fixture) {
				f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, "read-only"))
				f.node("a").ClientNode.Spec.Release, f.node("a").ClientNode.Status.Restored = true, true
				f.Profiles[0].Rollout.Reboot.RestoreReboot = true
				f.node("a").ClientNode.Status.Rollout.BootHash = releaseTarget + "h1"
			},
			[]string{
				"claim of a: permit", "note a: Rebooting PermitGiven", "conditions of a: Drained, for a permit",
				"permit the reboot of a", "a: Rebooting PermitGiven",
			},
		},
	}, oneNodeWith(func(f *fixture) {
		f.cordoned("a", time.Minute)
		f.node("a").Drain = &DrainProgress{Gone: true}
	}), "a")
}

// At an upgrade, nodes are in a state that an earlier release has left.
func TestForShadowedSettingsAtAnUpgrade(t *testing.T) {
	f := cluster("a", "b")
	f.finish("a", time.Hour)
	f.addSetting("a", sysctlIs(v1alpha1.SettingShadowed, shadowedBy))
	// An earlier release did not accept b and left it cordoned.
	f.cordoned("b", time.Hour)
	f.node("b").Maintenance = MaintenanceDrained
	f.addNote("b", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour)
	status := &f.node("b").ClientNode.Status
	status.RebootRequired, status.RebootRequiredBy, status.Settings[0].State = false, nil, v1alpha1.SettingInSync
	f.addSetting("b", sysctlIs(v1alpha1.SettingShadowed, shadowedBy))
	check.Equal(t, "plan", []string{"a: UpToDate NothingToDo", "b: Settling Settling"}, lines(For(f.Snapshot), "a", "b"))
}

// The boot configuration still has a kernel argument that was removed. The agent rejects the permit, so the node is not drained
// for it. After a boot, it does not make a node fail.
func TestForARemovedKernelArgumentThatCouldNotBeRestored(t *testing.T) {
	unrestored := v1alpha1.SettingStatus{Key: "kernelArgument/dhash_entries", State: v1alpha1.SettingFailed, TakesEffect: v1alpha1.EffectReboot, Message: "cannot restore"}
	f := cluster("a")
	c := f.node("a").ClientNode
	c.Status.Settings = append(c.Status.Settings, unrestored)
	p := For(f.Snapshot)
	check.Equal(t, "before a boot", []string{"a: Waiting SettingsFailed"}, lines(p, "a"))
	if !strings.HasSuffix(p.Notes["a"].Message, "kernelArgument/dhash_entries: cannot restore") {
		t.Errorf("got message %q, want the kernel argument at its end", p.Notes["a"].Message)
	}
	f.cordoned("a", time.Minute)
	check.Equal(t, "in the middle of a drain", []string{"a: Waiting SettingsFailed"}, lines(For(f.Snapshot), "a")[len(lines(For(f.Snapshot), "a"))-1:])
	f = cluster("a")
	f.permitted("a", time.Minute)
	f.rebooted("a")
	c = f.node("a").ClientNode
	c.Status.Settings = append(c.Status.Settings, unrestored)
	check.Equal(t, "after a boot", []string{"a: Settling Settling"}, lines(For(f.Snapshot), "a"))
	f = cluster("a")
	f.finish("a", time.Hour)
	c = f.node("a").ClientNode
	c.Status.Settings = append(c.Status.Settings, unrestored)
	check.Equal(t, "without a reboot due", []string{"a: UpToDate NothingToDo"}, lines(For(f.Snapshot), "a"))
	unrestored.TakesEffect = v1alpha1.EffectLive
	f = cluster("a")
	c = f.node("a").ClientNode
	c.Status.Settings = append(c.Status.Settings, unrestored)
	check.Equal(t, "a live value", []string{"claim a for eda", "a: Claimed Claimed"}, lines(For(f.Snapshot), "a"))
}

// The untuned taint keeps pods off until the condition Tuned is True.
func TestForTheTaintOfANodeWithExceptions(t *testing.T) {
	for name, c := range map[string]struct {
		status v1alpha1.SettingStatus
		want   []string
	}{
		"shadowed is effective": {sysctlIs(v1alpha1.SettingShadowed, shadowedBy), []string{"remove the untuned taint of a"}},
		"only a boot could, and a file wins": {
			v1alpha1.SettingStatus{Key: "sysctl/x", State: v1alpha1.SettingShadowed, TakesEffect: v1alpha1.EffectReboot}, []string{"remove the untuned taint of a"},
		},
		"waits for a module that only a mount loads": {
			v1alpha1.SettingStatus{Key: "module/nfs/x", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectLive, WaitsFor: v1alpha1.WaitsForModule},
			[]string{"remove the untuned taint of a"},
		},
		"drifted is not effective": {sysctlIs(v1alpha1.SettingDrifted, ""), nil},
		"a value that new connections have to confirm": {
			v1alpha1.SettingStatus{Key: "sysctl/net.core.rmem_max", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectLive}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.finish("a", time.Hour)
			f.node("a").Untuned = true
			f.addSetting("a", c.status)
			check.Equal(t, "plan", c.want, lines(For(f.Snapshot)))
		})
	}
}

func TestForTheCanaryIsANodeThatWouldBeAccepted(t *testing.T) {
	next := []string{"claim b for eda", "b: Claimed Claimed"}
	playRows(t, map[string]row{
		"a setting of the oldest node has failed": {
			func(f *fixture) { f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, "")) }, next,
		},
		"a file is in the way of the oldest node's boot": {
			func(f *fixture) { f.addSetting("a", moduleIs(v1alpha1.SettingShadowed, shadowedBy)) }, next,
		},
		"its kernel argument has failed, so no reboot is due and no setting is proven": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingFailed
			},
			next,
		},
		"its boot loader is unproven, so it waits for a boot by another user": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingPending
			},
			next,
		},
		"a live value that fails after the boot does not remove the evidence": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, ""))
			},
			[]string{"claim b for eda", "claim c for eda", "b: Claimed Claimed"},
		},
		"the chosen one would not be accepted": {
			func(f *fixture) {
				f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, ""))
				f.node("a").Labels = map[string]string{"canary": "yes"}
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
					NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](60),
				}
			},
			[]string{"b: Waiting WaitingForCanary"},
		},
		"a canary with a shadowed setting is not skipped": {
			func(f *fixture) { f.addSetting("a", sysctlIs(v1alpha1.SettingShadowed, shadowedBy)) },
			[]string{"claim a for eda", "b: Waiting WaitingForCanary"},
		},
		"a disrupted canary stays the canary": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.addSetting("a", sysctlIs(v1alpha1.SettingFailed, ""))
			},
			[]string{"b: Waiting WaitingForCanary"},
		},
		"the only control-plane node is never rebooted": {
			func(f *fixture) { f.node("a").ControlPlane = true }, next,
		},
		"one of several control-plane nodes is": {
			func(f *fixture) { f.node("a").ControlPlane, f.node("c").ControlPlane = true, true },
			[]string{"claim a for eda", "b: Waiting WaitingForCanary"},
		},
		"the only control-plane node that has been rebooted by hand is evidence": {
			func(f *fixture) {
				f.node("a").ControlPlane = true
				f.finish("a", time.Hour)
			},
			[]string{"claim b for eda", "claim c for eda", "b: Claimed Claimed"},
		},
	}, func() *fixture {
		f := cluster("a", "b", "c")
		f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
		return f
	}, "b")
}

// The node of the manager is a canary here, and so is b. b does not wait for it: a canary waits for no canary.
func TestForTheManagersNodeGoesAfterTheOtherCanaries(t *testing.T) {
	f := cluster("a", "b", "c")
	for _, name := range []string{"b", "c"} {
		f.node(name).Labels = map[string]string{"canary": "yes"}
	}
	f.node("c").Manager = true
	f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](60),
	}
	f.node("b").Labels["topology.kubernetes.io/zone"] = "x"
	f.node("a").Labels = map[string]string{"topology.kubernetes.io/zone": "y"}
	f.node("c").Labels["topology.kubernetes.io/zone"] = "y"
	f.cordoned("a", time.Minute)
	want := []string{"b: Waiting WaitingForZone", "c: Waiting ManagerNodeLast"}
	got := lines(For(f.Snapshot), "b", "c")
	check.Equal(t, "result", want, got[len(got)-2:])
}
