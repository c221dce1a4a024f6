package plan

import (
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestAKernelArgumentWithoutEffectIsRemoved(t *testing.T) {
	const ihash, dhash = "kernelArgument/ihash_entries", "kernelArgument/dhash_entries"
	p := profile("a", func(p *v1alpha1.StorageClientProfile) {
		retain(p)
		p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=1048576", "ihash_entries=16777216"}
	})
	desired := snapshotOf(nil, p).Desired
	clientNode := clientNodeWith(desired.Settings...)
	clientNode.Spec.Hash, clientNode.Spec.BootHash, clientNode.Status.Hash = desired.Hash, desired.BootHash, desired.Hash
	clientNode.Status.Settings = []v1alpha1.SettingStatus{
		{Key: dhash, State: v1alpha1.SettingInSync}, {Key: ihash, State: v1alpha1.SettingFailed}, {Key: rmem, State: v1alpha1.SettingInSync},
	}
	if got := For(snapshotOf(clientNode, p)); !stays(got) {
		t.Fatalf("got the argument removed before the node failed: %#v", got)
	}
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{
		Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootWithoutEffect, BootHash: desired.BootHash, Attempts: 1,
	}

	first, writes := For(snapshotOf(clientNode, p)).(Write)
	if !writes || policies(first.Spec)[ihash] != v1alpha1.DeletionRestore || policies(first.Spec)[dhash] != v1alpha1.DeletionRetain {
		t.Fatalf("want the removal policy of the argument written first, got %#v", first)
	}
	clientNode.Spec = first.Spec
	clientNode.Generation++
	if got := For(snapshotOf(clientNode, p)); !stays(got) {
		t.Fatalf("got the argument removed before the agent observed its new policy: %#v", got)
	}
	clientNode.Status.ObservedGeneration = clientNode.Generation

	second, writes := For(snapshotOf(clientNode, p)).(Write)
	if _, found := policies(second.Spec)[ihash]; !writes || found || len(second.Spec.Settings) != 2 || second.Gated {
		t.Fatalf("want only the argument removed, got %#v", second)
	}
	if second.Spec.Hash != desired.Hash || second.Spec.BootHash != desired.BootHash {
		t.Errorf("got hashes %s and %s; other hashes would clear the failure and retry the node", second.Spec.Hash, second.Spec.BootHash)
	}
	clientNode.Spec = second.Spec
	clientNode.Status.Settings[1] = v1alpha1.SettingStatus{Key: ihash, State: v1alpha1.SettingPending}
	if got := For(snapshotOf(clientNode, p)); !stays(got) {
		t.Errorf("got the argument added again, or another change: %#v", got)
	}
	if report := snapshotOf(clientNode, p).Report; report.IsTuned() || !report.HasFailed() {
		t.Errorf("got the node tuned without the argument: %+v", report)
	}

	p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=1048576", "ihash_entries=8388608"}
	check.Equal(t, "an edited profile: want all its settings", snapshotOf(clientNode, p).Desired.Settings, For(snapshotOf(clientNode, p)).(Write).Spec.Settings)
}

func policies(spec v1alpha1.StorageClientNodeSpec) map[string]v1alpha1.DeletionPolicy {
	out := map[string]v1alpha1.DeletionPolicy{}
	for _, s := range spec.Settings {
		out[s.Key] = s.OnRemoval
	}
	return out
}
