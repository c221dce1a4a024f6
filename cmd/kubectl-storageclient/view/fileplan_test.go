package view

import (
	"bytes"
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
)

// testFilePlan returns a plan that covers every case: an update, a new profile in mode Plan, a rejected profile and an unchanged profile.
func testFilePlan() FilePlan {
	before := profile("netapp-eda")
	before.Spec.NodeSelector.MatchLabels = map[string]string{"agentpool": "eda"}
	before.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"vm.dirty_ratio": "10"}}
	after := *before.DeepCopy()
	after.Spec.Node.Sysctls["vm.dirty_ratio"] = "20"
	after.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
	after.Spec.Volumes = []v1alpha1.VolumeRule{{Name: "tools", MountOptions: []v1alpha1.MountOption{"nconnect=8"},
		Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}}
	planned := profile("scratch|`@team`")
	planned.Spec.Mode = v1alpha1.ModePlan
	same := profile("same")

	var pool []string
	for i := range 12 {
		pool = append(pool, fmt.Sprintf("eda-%02d", i))
	}
	reboot := func(node, zone, held string) overview.JointReboot {
		return overview.JointReboot{Profiles: []string{"netapp-eda"}, Reboot: overview.Reboot{Node: node, Zone: zone, Reasons: []string{"kernelArgument/ihash_entries becomes 16777216"}, Held: held}}
	}
	sysctl := overview.SettingChange{Key: "sysctl/vm.dirty_ratio", Old: ptr.To("10"), Effective: "10", New: ptr.To("20"), Profile: "netapp-eda", TakesEffect: v1alpha1.EffectLive, OnRemoval: v1alpha1.DeletionRestore}
	argument := overview.SettingChange{Key: "kernelArgument/ihash_entries", Unknown: "the node's agent reads only declared settings", New: ptr.To("16777216"), Profile: "netapp-eda", TakesEffect: v1alpha1.EffectReboot, OnRemoval: v1alpha1.DeletionRestore}
	leaving := overview.SettingChange{Key: "sysctl/vm.dirty_ratio", Old: ptr.To("10"), Effective: "10", Profile: "netapp-eda", TakesEffect: v1alpha1.EffectLive, OnRemoval: v1alpha1.DeletionRestore}
	return NewFilePlan(FilePlanInput{
		Profiles: []DryRunProfile{
			{Name: "netapp-eda", File: "profiles/eda.yaml", Before: &before, After: after},
			{Name: planned.Name, File: "profiles/scratch.yaml", After: planned, Unchecked: "you may not"},
			{Name: "bad", File: "profiles/bad.yaml", After: profile("bad"), Rejection: "spec.mode: Unsupported value: \"On\": supported values: \"Enforce\", \"Plan\""},
			{Name: "same", File: "profiles/same.yaml", Before: &same, After: same},
		},
		Budget: Budget{MaxUnavailable: "5%", Source: "assumed, no permission to read it", Assumed: true},
		Nodes: overview.Together{
			AtOnce: 2, EstimatedCompletion: ago(-3600e9),
			Shares: []overview.Share{
				{Profile: "netapp-eda", Matched: 12, Changed: 13, Rebooted: 1, PlanHash: "1a2b3c4d5e6f7a8b"}, {Profile: planned.Name, Matched: 3}, {Profile: "same", Matched: 1},
			},
			Changes:     []overview.NodeChange{{Nodes: pool, Settings: []overview.SettingChange{argument, sysctl}}, {Nodes: []string{"old-1"}, Settings: []overview.SettingChange{leaving}}},
			Reboots:     []overview.JointReboot{reboot("eda-00", "zone-1", ""), reboot("eda-01", "zone-2", "node is not Ready")},
			NotRebooted: []overview.JointReboot{reboot("eda-11", "zone-2", "boot loader GrubBLS: not proven")},
			Conflicts:   []overview.Dispute{{Text: "sysctl/vm.swappiness: 10 against 20 (netapp-eda, other)", Nodes: []string{"eda-00", "eda-01", "eda-02", "eda-03"}}},
		},
		Volumes: &volumeplan.Preview{
			ChangedBy: map[string]int{"netapp-eda": 2},
			Changes: []volumeplan.Change{
				{Volume: "pv-a", Profiles: []string{"netapp-eda"}, Old: []string{}, New: []string{"nconnect=8"}}, {Volume: "pv-b", Profiles: []string{"netapp-eda"}, Old: []string{}, New: []string{"nconnect=8"}},
			},
			Exceptions: []volumeplan.Change{{Volume: "pv-kept", Reason: "KeepsOwnValue", Message: "nconnect stays 2 (profile wants 8; onConflict: KeepVolume)"}},
			Blocked:    []volumeplan.Change{{Volume: "pv-smb", Reason: "WrongProtocol", Message: "not for this volume, which is SMB"}},
		},
		Pods:   map[string]*Pods{"eda-00": {Evicted: 12, WaitedFor: 1}, "eda-01": {Evicted: 3, Blocked: []string{"Pod eda/alone has no controller to start it elsewhere; delete it once its work is done"}}},
		Advice: map[string]advice.Input{"netapp-eda": {Profile: &after}},
	})
}

func TestFilePlanText(t *testing.T) {
	for name, wide := range map[string]bool{"fileplan": false, "fileplan-wide": true} {
		var out bytes.Buffer
		check.NoError(t, testFilePlan().WriteText(&out, wide))
		golden(t, name, out.Bytes())
	}
}

func TestFilePlanMarkdown(t *testing.T) {
	golden(t, "fileplan-markdown", []byte(testFilePlan().Markdown()))
}

func TestFilePlanWithoutChanges(t *testing.T) {
	same := profile("same")
	plan := NewFilePlan(FilePlanInput{Profiles: []DryRunProfile{{Name: "same", Before: &same, After: same}}})
	if plan.Changed || plan.Summary != "No changes: nodes and volumes are as declared in 1 profile." {
		t.Errorf("changed is %v, %q", plan.Changed, plan.Summary)
	}
}

func TestOldIsTheReportedValue(t *testing.T) {
	value, flag := "20", ""
	for name, test := range map[string]struct {
		change overview.SettingChange
		want   string
	}{
		"declared and effective":   {overview.SettingChange{Old: &value, Effective: "20"}, "20"},
		"declared, not effective":  {overview.SettingChange{Old: &value, Effective: "40"}, "40 (declared: 20)"},
		"declared, unknown":        {overview.SettingChange{Old: &value, Unknown: "no agent"}, "unknown (declared: 20)"},
		"a flag that is effective": {overview.SettingChange{Old: &flag, Effective: "set"}, "set"},
		"a flag that is staged":    {overview.SettingChange{Old: &flag, Effective: "not set"}, "not set (declared: set)"},
		"new and effective":        {overview.SettingChange{New: &value, Effective: "40"}, "40"},
		"new and unknown":          {overview.SettingChange{New: &value, Unknown: "no agent"}, "unknown"},
	} {
		if got := settingRow(test.change)[1]; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
