package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	rmem = "sysctl/net.core.rmem_max"
	wmem = "sysctl/net.core.wmem_max"
)

func profile(name string, change func(*v1alpha1.StorageClientProfile)) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.AllNodes = true
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}}
	if change != nil {
		change(&p)
	}
	return p
}

func leaving(p *v1alpha1.StorageClientProfile) {
	p.DeletionTimestamp = &metav1.Time{Time: now}
}

func retain(p *v1alpha1.StorageClientProfile) {
	p.Spec.DeletionPolicy = v1alpha1.DeletionRetain
}

func worker() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	node.Status.NodeInfo.BootID = "boot-1"
	return node
}

func setting(key, source string, policy v1alpha1.DeletionPolicy) v1alpha1.NodeSetting {
	return v1alpha1.NodeSetting{Key: key, Value: "16777216", Profile: source, OnRemoval: policy}
}

// clientNodeWith returns a StorageClientNode whose settings the agent has applied.
func clientNodeWith(settings ...v1alpha1.NodeSetting) *v1alpha1.StorageClientNode {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Generation: 3}}
	clientNode.Spec.Settings = settings
	clientNode.Spec.Hash = "h"
	clientNode.Status = v1alpha1.StorageClientNodeStatus{ObservedGeneration: 3, Hash: "h", BootID: "boot-1"}
	for _, s := range settings {
		clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{Key: s.Key, Desired: s.Value, State: v1alpha1.SettingInSync})
	}
	return clientNode
}

func snapshotOf(clientNode *v1alpha1.StorageClientNode, profiles ...v1alpha1.StorageClientProfile) Snapshot {
	i := Snapshot{Node: worker(), ClientNode: clientNode, AgentReady: true, Profiles: fleet.NewProfileSet(profiles, catalogue.AllowList{})}
	i.Desired = i.Profiles.Desired(i.Node, clientNode)
	if clientNode != nil {
		i.Report = fleet.ReportOf(i.Node, clientNode, i.AgentReady, "")
	}
	return i
}

func released(settings ...v1alpha1.NodeSetting) *v1alpha1.StorageClientNode {
	clientNode := clientNodeWith(settings...)
	clientNode.Spec.Release = true
	return clientNode
}

func TestFor(t *testing.T) {
	restore, retained := v1alpha1.DeletionRestore, v1alpha1.DeletionRetain
	var (
		both = func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Node.Sysctls["net.core.wmem_max"] = "16777216"
		}
		rmemOfA = setting(rmem, "a", restore)
		wmemOfB = setting(wmem, "b", restore)
	)
	upToDate := clientNodeWith(rmemOfA)
	upToDate.Spec.Hash = snapshotOf(nil, profile("a", nil)).Desired.Hash
	backAgain := released(rmemOfA)
	backAgain.Spec.Hash = upToDate.Spec.Hash
	for name, test := range map[string]struct {
		in   Snapshot
		want Step
	}{
		"a node that no profile selects is left clean": {
			in: snapshotOf(nil), want: None{},
		},
		"a node that a profile selects gets an object, through the gate": {
			in:   snapshotOf(nil, profile("a", nil)),
			want: Write{Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}}, Gated: true},
		},
		"a profile that sets nothing on nodes needs no gate": {
			in:   snapshotOf(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = nil })),
			want: Write{},
		},
		"a profile without its finalizer applies nothing yet": {
			in:   snapshotOf(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil })),
			want: None{},
		},
		"mode Plan touches nothing": {
			in:   snapshotOf(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan })),
			want: None{},
		},
		"an invalid profile applies nothing": {
			in: snapshotOf(nil, profile("a", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls["kernel.core_pattern"] = "|/bin/sh"
			})),
			want: None{},
		},
		"a paused profile starts nothing": {
			in:   snapshotOf(nil, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })),
			want: Stay{Note: "Paused by StorageClientProfile a"},
		},
		"a node that is as it should be stays": {
			in: snapshotOf(upToDate, profile("a", nil)), want: Stay{},
		},
		"a changed value goes through the gate": {
			in: snapshotOf(upToDate, profile("a", both)),
			want: Write{Gated: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{
				rmemOfA, setting(wmem, "a", restore),
			}}},
		},
		"a changed deletion policy alone does not": {
			in: snapshotOf(upToDate, profile("a", retain)),
			want: Write{Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{
				setting(rmem, "a", retained),
			}}},
		},
		"a profile that became invalid keeps its current settings": {
			in: snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls["kernel.core_pattern"] = "|/bin/sh"
			})),
			want: Stay{},
		},
		"a profile put into mode Plan keeps its current settings": {
			in:   snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan })),
			want: Stay{},
		},
		"a pause of the profile holds a change": {
			in:   snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { both(p); p.Spec.Paused = true })),
			want: Stay{Note: "Paused by StorageClientProfile a"},
		},
		"a profile that is being deleted is released": {
			in:   snapshotOf(upToDate, profile("a", leaving)),
			want: Write{Limited: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"so is a node that the profile no longer selects": {
			in: snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.AllNodes, p.Spec.NodeSelector.MatchLabels = false, map[string]string{"pool": "other"}
			})),
			want: Write{Limited: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"and a setting whose profile was deleted": {
			in:   snapshotOf(upToDate),
			want: Write{Limited: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"Retain is written with the release, which then does not wait": {
			in: snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) })),
			want: Write{Spec: v1alpha1.StorageClientNodeSpec{
				Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained)}, Release: true,
			}},
		},
		"Retain set during the restore is written at once": {
			in: snapshotOf(released(rmemOfA), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) })),
			want: Write{Spec: v1alpha1.StorageClientNodeSpec{
				Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained)}, Release: true,
			}},
		},
		"a paused profile that is being deleted is not released": {
			in:   snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); p.Spec.Paused = true })),
			want: Stay{Note: "Paused by StorageClientProfile a"},
		},
		"unless it retains": {
			in: snapshotOf(upToDate, profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p); p.Spec.Paused = true })),
			want: Write{Spec: v1alpha1.StorageClientNodeSpec{
				Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained)}, Release: true,
			}},
		},
		"the object stays until the agent reports that all is restored": {
			in:   snapshotOf(released(rmemOfA), profile("a", leaving)),
			want: Stay{Note: noteRestoring},
		},
		"and until it reports that for this release": {
			in: snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Status.Restored, clientNode.Generation = true, 4
			}), profile("a", leaving)),
			want: Stay{Note: noteRestoring},
		},
		"then it is removed": {
			in:   snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) { clientNode.Status.Restored = true }), profile("a", leaving)),
			want: Remove{},
		},
		"an effective kernel argument does not block it": {
			in: snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Status.Restored, clientNode.Status.RebootRequired = true, true
			}), profile("a", leaving)),
			want: Remove{},
		},
		"unless restoreReboot requires its removal": {
			in: snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Status.Restored, clientNode.Status.RebootRequired = true, true
			}), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); p.Spec.Rollout.Reboot.RestoreReboot = true })),
			want: Stay{Note: "Waiting for the reboot that restoreReboot requires"},
		},
		"a Node that is being deleted gets its restore": {
			in:   deletingNode(snapshotOf(upToDate, profile("a", leaving))),
			want: Write{Limited: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}, Release: true}},
		},
		"which it finishes while its agent works": {
			in:   deletingNode(snapshotOf(released(rmemOfA), profile("a", leaving))),
			want: Stay{Note: noteRestoring},
		},
		"a silent agent keeps the object of a Node that is being deleted, and a person removes its finalizers": {
			in:   deletingNode(silentAgent(snapshotOf(released(rmemOfA), profile("a", leaving)))),
			want: Stay{Note: "Waiting for the node's agent before restoring the node; the Node is being deleted: if its machine is gone, remove its finalizers"},
		},
		"so does one that the rollout holds and reboots": {
			in: deletingNode(silentAgent(snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "x"}
			}), profile("a", leaving)))),
			want: Stay{Note: "Waiting for the node's agent before restoring the node; the Node is being deleted: if its machine is gone, remove its finalizers"},
		},
		"without a reboot, the rollout keeps it too": {
			in: deletingNode(snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Status.Restored = true
				clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining}
			}), profile("a", leaving))),
			want: Stay{Note: "Waiting for the rollout to release the node"},
		},
		"of several profiles, it gets the restore of one that leaves, and no further settings of the others": {
			in: deletingNode(snapshotOf(clientNodeWith(rmemOfA, wmemOfB), profile("a", leaving), profile("b", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "33554432", "net.core.somaxconn": "4096"}
			}))),
			want: Write{Limited: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{wmemOfB}}},
		},
		"a setting that another profile declares too stays with that profile": {
			in:   deletingNode(snapshotOf(clientNodeWith(rmemOfA, wmemOfB), profile("a", leaving), profile("b", both))),
			want: Write{Limited: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{setting(rmem, "b", restore), wmemOfB}}},
		},
		"it keeps the one of any other Node": {
			in:   silentAgent(snapshotOf(released(rmemOfA), profile("a", leaving))),
			want: Stay{Note: "Waiting for the node's agent before restoring the node"},
		},
		"no reboot is due on a Node that is being deleted": {
			in: deletingNode(snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Status.Restored, clientNode.Status.RebootRequired = true, true
			}), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); p.Spec.Rollout.Reboot.RestoreReboot = true }))),
			want: Remove{},
		},
		"a node that the rollout holds keeps its object": {
			in: snapshotOf(change(released(rmemOfA), func(clientNode *v1alpha1.StorageClientNode) {
				clientNode.Status.Restored = true
				clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutSettling}
			}), profile("a", leaving)),
			want: Stay{Note: "Waiting for the rollout to release the node"},
		},
		"a setting that another profile also declares stays": {
			in: snapshotOf(clientNodeWith(rmemOfA, wmemOfB), profile("a", leaving), profile("b", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
			})),
			want: Write{Gated: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{wmemOfB}}},
		},
		"with several profiles the agent first gets the settings that the removed profile retains": {
			in: snapshotOf(clientNodeWith(rmemOfA, wmemOfB), profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) }), profile("b", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
			})),
			want: Write{Note: noteRetained,
				Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{setting(rmem, "a", retained), wmemOfB}},
			},
		},
		"of one edit that drops a setting and retains from now on the agent learns the latter first": {
			in: snapshotOf(clientNodeWith(rmemOfA, setting(wmem, "a", restore)), profile("a", retain)),
			want: Write{Note: noteRetained,
				Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA, setting(wmem, "a", retained)}},
			},
		},
		"and the setting is removed only after the agent has observed that": {
			in: snapshotOf(change(clientNodeWith(setting(rmem, "a", retained), wmemOfB), func(clientNode *v1alpha1.StorageClientNode) { clientNode.Generation = 4 }),
				profile("a", func(p *v1alpha1.StorageClientProfile) { leaving(p); retain(p) }), profile("b", func(p *v1alpha1.StorageClientProfile) {
					p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
				})),
			want: Stay{Note: noteRetained},
		},
		"so is one whose settings are the same as before": {
			in:   snapshotOf(backAgain, profile("a", nil)),
			want: Write{Gated: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}}},
		},
		"a node with an unfinished release is managed again": {
			in:   snapshotOf(released(rmemOfA), profile("a", nil)),
			want: Write{Gated: true, Spec: v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{rmemOfA}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := For(test.in)
			hashes := cmpopts.IgnoreFields(v1alpha1.StorageClientNodeSpec{}, "Hash", "BootHash")
			check.Equal(t, "result", test.want, got, hashes)
		})
	}
}

func deletingNode(s Snapshot) Snapshot {
	s.Node = s.Node.DeepCopy()
	s.Node.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return s
}

func silentAgent(s Snapshot) Snapshot {
	s.Report.Silent = "not Ready"
	return s
}

func stays(step Step) bool {
	_, stays := step.(Stay)
	return stays
}

func writes(step Step) bool {
	_, writes := step.(Write)
	return writes
}

// noteOf returns the reason why a node waits.
func noteOf(step Step) string {
	switch step := step.(type) {
	case Stay:
		return step.Note
	case Write:
		return step.Note
	}
	return ""
}

func change(clientNode *v1alpha1.StorageClientNode, edit func(*v1alpha1.StorageClientNode)) *v1alpha1.StorageClientNode {
	edit(clientNode)
	return clientNode
}

func TestAPausedNodeIsSkipped(t *testing.T) {
	paused := snapshotOf(clientNodeWith(setting(rmem, "a", v1alpha1.DeletionRestore)), profile("a", leaving))
	paused.Paused = true
	if got := For(paused); !stays(got) {
		t.Errorf("got step %#v, want Stay", got)
	}
}

func TestASilentNodeRestoresWithoutQueue(t *testing.T) {
	silent := snapshotOf(clientNodeWith(setting(rmem, "a", v1alpha1.DeletionRestore)), profile("a", leaving))
	silent.Report.Silent = "the node's agent is not Ready"
	got := For(silent)
	if write, writes := got.(Write); !writes || !write.Spec.Release || write.Limited {
		t.Errorf("got %#v, want release written at once", got)
	}
}
