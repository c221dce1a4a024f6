package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/catalogue"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	rmem = "sysctl/net.core.rmem_max"
	wmem = "sysctl/net.core.wmem_max"
)

func profile(name string, change func(*v1alpha1.StorageClientProfile)) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}}
	if change != nil {
		change(&p)
	}
	return p
}

func leaving(p *v1alpha1.StorageClientProfile) {
	p.DeletionTimestamp = &metav1.Time{Time: now}
}

func retain(p *v1alpha1.StorageClientProfile) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain }

func worker() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	node.Status.NodeInfo.BootID = "boot-1"
	return node
}

func setting(key, source string, policy v1alpha1.DeletionPolicy) v1alpha1.NodeSetting {
	return v1alpha1.NodeSetting{Key: key, Value: "16777216", Profile: source, OnRemoval: policy}
}

// object is a node's object that the agent has carried out.
func object(settings ...v1alpha1.NodeSetting) *v1alpha1.StorageClientNode {
	scn := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Generation: 3}}
	scn.Spec.Settings = settings
	scn.Spec.Hash = "h"
	scn.Status = v1alpha1.StorageClientNodeStatus{ObservedGeneration: 3, Hash: "h", BootID: "boot-1"}
	return scn
}

func in(scn *v1alpha1.StorageClientNode, profiles ...v1alpha1.StorageClientProfile) input {
	i := input{node: worker(), scn: scn, ready: true, view: fleet.NewView(profiles, catalogue.AllowList{})}
	i.wanted = i.view.Wanted(i.node, scn)
	if scn != nil {
		i.report = fleet.Look(i.node, scn, i.ready, "")
	}
	return i
}

func released(settings ...v1alpha1.NodeSetting) *v1alpha1.StorageClientNode {
	scn := object(settings...)
	scn.Spec.Release = true
	return scn
}

func TestDecide(t *testing.T) {
	restore, retained := v1alpha1.DeletionRestore, v1alpha1.DeletionRetain
	var (
		both = func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Node.Sysctls["net.core.wmem_max"] = "16777216"
		}
		rmemOfA = setting(rmem, "a", restore)
		wmemOfB = setting(wmem, "b", restore)
	)
	upToDate := object(rmemOfA)
	upToDate.Spec.Hash = in(nil, profile("a", nil)).wanted.Hash
	for name, test := range map[string]struct {
		in   input
		want decision
	}{
		"a node that no profile selects is left clean": {
			in: in(nil), want: decision{step: stepNone},
		},
		"a node that a profile selects gets an object, through the gate": {
			in:   in(nil, profile("a", nil)),
			want: decision{step: stepWrite, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}}, gated: true},
		},
		"a profile that sets nothing on nodes needs no gate": {
			in:   in(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = nil })),
			want: decision{step: stepWrite},
		},
		"a profile without its finalizer applies nothing yet": {
			in:   in(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil })),
			want: decision{step: stepNone},
		},
		"mode Plan touches nothing": {
			in:   in(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan })),
			want: decision{step: stepNone},
		},
		"an invalid profile applies nothing": {
			in: in(nil, profile("a", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls["kernel.core_pattern"] = "|/bin/sh"
			})),
			want: decision{step: stepNone},
		},
		"a paused profile begins nothing": {
			in:   in(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })),
			want: decision{step: stepStay, note: "paused by profile a"},
		},
		"a node that is as it should be stays": {
			in: in(upToDate, profile("a", nil)), want: decision{step: stepStay},
		},
		"a changed value goes through the gate": {
			in: in(upToDate, profile("a", both)),
			want: decision{step: stepWrite, gated: true, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{
				rmemOfA, setting(wmem, "a", restore),
			}}},
		},
		"a changed deletion policy alone does not": {
			in: in(upToDate, profile("a", retain)),
			want: decision{step: stepWrite, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{
				setting(rmem, "a", retained),
			}}},
		},
		"a profile that became invalid keeps what it has in force": {
			in: in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls["kernel.core_pattern"] = "|/bin/sh"
			})),
			want: decision{step: stepStay},
		},
		"a profile put into mode Plan keeps what it has in force": {
			in:   in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan })),
			want: decision{step: stepStay},
		},
		"a pause of the profile holds a change": {
			in:   in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { both(p); p.Spec.Paused = true })),
			want: decision{step: stepStay, note: "paused by profile a"},
		},
		"a profile that is being deleted is released": {
			in:   in(upToDate, profile("a", leaving)),
			want: decision{step: stepWrite, limited: true, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"so is a node that the profile no longer selects": {
			in: in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "other"}
			})),
			want: decision{step: stepWrite, limited: true, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"and one whose profile is gone": {
			in:   in(upToDate),
			want: decision{step: stepWrite, limited: true, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"Retain goes into the object with the release, which then waits for nobody": {
			in: in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) })),
			want: decision{step: stepWrite, spec: v1alpha1.StorageClientNodeSpec{
				Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained)}, Release: true,
			}},
		},
		"Retain set while the node is being restored goes in at once": {
			in: in(released(rmemOfA), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) })),
			want: decision{step: stepWrite, spec: v1alpha1.StorageClientNodeSpec{
				Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained)}, Release: true,
			}},
		},
		"a paused profile that is being deleted is not released": {
			in:   in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); p.Spec.Paused = true })),
			want: decision{step: stepStay, note: "paused by profile a"},
		},
		"unless it retains": {
			in: in(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p); p.Spec.Paused = true })),
			want: decision{step: stepWrite, spec: v1alpha1.StorageClientNodeSpec{
				Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained)}, Release: true,
			}},
		},
		"the object stays until the agent says that all is restored": {
			in:   in(released(rmemOfA), profile("a", leaving)),
			want: decision{step: stepStay, note: "is being restored"},
		},
		"and until it says so of this very release": {
			in: in(change(released(rmemOfA), func(scn *v1alpha1.StorageClientNode) {
				scn.Status.Restored, scn.Generation = true, 4
			}), profile("a", leaving)),
			want: decision{step: stepStay, note: "is being restored"},
		},
		"then it goes": {
			in:   in(change(released(rmemOfA), func(scn *v1alpha1.StorageClientNode) { scn.Status.Restored = true }), profile("a", leaving)),
			want: decision{step: stepRemove},
		},
		"a boot argument in force does not hold it": {
			in: in(change(released(rmemOfA), func(scn *v1alpha1.StorageClientNode) {
				scn.Status.Restored, scn.Status.RebootRequired = true, true
			}), profile("a", leaving)),
			want: decision{step: stepRemove},
		},
		"unless restoreReboot asks to be rid of it": {
			in: in(change(released(rmemOfA), func(scn *v1alpha1.StorageClientNode) {
				scn.Status.Restored, scn.Status.RebootRequired = true, true
			}), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); p.Spec.Rollout.Reboot.RestoreReboot = true })),
			want: decision{step: stepStay, note: "waits for the reboot that restoreReboot asks for"},
		},
		"a node that the rollout holds keeps its object": {
			in: in(change(released(rmemOfA), func(scn *v1alpha1.StorageClientNode) {
				scn.Status.Restored = true
				scn.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutSettling}
			}), profile("a", leaving)),
			want: decision{step: stepStay, note: "is held by the rollout"},
		},
		"what another profile wants as well stays while one goes": {
			in: in(object(rmemOfA, wmemOfB), profile("a", leaving), profile("b", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
			})),
			want: decision{step: stepWrite, gated: true, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{wmemOfB}}},
		},
		"of several profiles the agent learns first what one that goes retains": {
			in: in(object(rmemOfA, wmemOfB), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) }), profile("b", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
			})),
			want: decision{
				step: stepWrite, note: "waits until the agent knows which settings are to be retained",
				spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained), wmemOfB}},
			},
		},
		"and the setting goes only when the agent has seen that": {
			in: in(change(object(setting(rmem, "a", retained), wmemOfB), func(scn *v1alpha1.StorageClientNode) { scn.Generation = 4 }),
				profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) }), profile("b", func(p *v1alpha1.StorageClientProfile) {
					p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
				})),
			want: decision{step: stepStay, note: "waits until the agent knows which settings are to be retained"},
		},
		"a node whose release was not over is taken up again": {
			in:   in(released(rmemOfA), profile("a", nil)),
			want: decision{step: stepWrite, gated: true, spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(test.in)
			hashes := cmpopts.IgnoreFields(v1alpha1.StorageClientNodeSpec{}, "Hash", "BootHash")
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(decision{}), hashes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func change(scn *v1alpha1.StorageClientNode, by func(*v1alpha1.StorageClientNode)) *v1alpha1.StorageClientNode {
	by(scn)
	return scn
}

func TestDecideLeavesAPausedNodeAlone(t *testing.T) {
	paused := in(object(setting(rmem, "a", v1alpha1.DeletionRestore)), profile("a", leaving))
	paused.paused = true
	if got := decide(paused); got.step != stepStay {
		t.Errorf("step %s, want %s", got.step, stepStay)
	}
}

func TestASilentNodeIsToldToRestoreWithoutWaitingForItsTurn(t *testing.T) {
	silent := in(object(setting(rmem, "a", v1alpha1.DeletionRestore)), profile("a", leaving))
	silent.report.Silent = "the node's agent is not Ready"
	got := decide(silent)
	if got.step != stepWrite || !got.spec.Release || got.limited {
		t.Errorf("got %+v, want release written at once", got)
	}
}
