package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestABootArgumentWithoutEffectIsTakenOutAgain(t *testing.T) {
	const ihash, dhash = "kernelArgument/ihash_entries", "kernelArgument/dhash_entries"
	p := profile("a", func(p *v1alpha1.StorageClientProfile) {
		retain(p)
		p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=1048576", "ihash_entries=16777216"}
	})
	wanted := in(nil, p).wanted
	scn := object(wanted.Settings...)
	scn.Spec.Hash, scn.Spec.BootHash, scn.Status.Hash = wanted.Hash, wanted.BootHash, wanted.Hash
	scn.Status.Settings = []v1alpha1.SettingStatus{
		{Key: dhash, State: v1alpha1.SettingInSync}, {Key: ihash, State: v1alpha1.SettingFailed}, {Key: rmem, State: v1alpha1.SettingInSync},
	}
	if got := decide(in(scn, p)); got.step != stepStay {
		t.Fatalf("taken out before the node has failed: %+v", got)
	}
	scn.Status.Rollout = &v1alpha1.RolloutStatus{
		Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootWithoutEffect, BootHash: wanted.BootHash, Attempts: 1,
	}

	first := decide(in(scn, p))
	if first.step != stepWrite || policies(first.spec)[ihash] != v1alpha1.DeletionRestore || policies(first.spec)[dhash] != v1alpha1.DeletionRetain {
		t.Fatalf("the agent has to learn first that the argument is restored whatever the profile says: %+v", first)
	}
	scn.Spec = first.spec
	scn.Generation++
	if got := decide(in(scn, p)); got.step != stepStay {
		t.Fatalf("the agent has not seen it yet: %+v", got)
	}
	scn.Status.ObservedGeneration = scn.Generation

	second := decide(in(scn, p))
	if _, there := policies(second.spec)[ihash]; second.step != stepWrite || there || len(second.spec.Settings) != 2 || second.gated {
		t.Fatalf("want the argument alone to go: %+v", second)
	}
	if second.spec.Hash != wanted.Hash || second.spec.BootHash != wanted.BootHash {
		t.Errorf("hashes %s and %s: with others the failure would be forgotten, and the node tried again", second.spec.Hash, second.spec.BootHash)
	}
	scn.Spec = second.spec
	scn.Status.Settings[1] = v1alpha1.SettingStatus{Key: ihash, State: v1alpha1.SettingPending}
	if got := decide(in(scn, p)); got.step != stepStay {
		t.Errorf("it comes back, or changes again: %+v", got)
	}
	if report := in(scn, p).report; report.Tuned() || len(report.Failed) != 1 {
		t.Errorf("the node counts as tuned without the argument: %+v", report)
	}

	p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=1048576", "ihash_entries=8388608"}
	if diff := cmp.Diff(in(scn, p).wanted.Settings, decide(in(scn, p)).spec.Settings); diff != "" {
		t.Errorf("an edited profile is given in full (-want +got):\n%s", diff)
	}
}

func policies(spec v1alpha1.StorageClientNodeSpec) map[string]v1alpha1.DeletionPolicy {
	out := map[string]v1alpha1.DeletionPolicy{}
	for _, s := range spec.Settings {
		out[s.Key] = s.OnRemoval
	}
	return out
}
