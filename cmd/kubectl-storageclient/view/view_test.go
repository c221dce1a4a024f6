package view

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		check.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	check.NoError(t, err)
	check.Equal(t, path, string(want), string(got))
}

var now = time.Date(2026, 9, 1, 2, 30, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }

func profile(name string, conditions ...metav1.Condition) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	p.Status.ObservedGeneration = 3
	p.Status.Conditions = conditions
	return p
}

func trueCondition(name, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func falseCondition(name, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func with(p v1alpha1.StorageClientProfile, change func(*v1alpha1.StorageClientProfile)) v1alpha1.StorageClientProfile {
	change(&p)
	return p
}

func TestVerdict(t *testing.T) {
	tests := map[string]struct {
		profile v1alpha1.StorageClientProfile
		want    string
		done    bool
	}{
		"done": {profile("eda", trueCondition("Ready", "UpToDate", "")), "eda is done", true},
		"done, with nothing to do": {
			profile("eda", trueCondition("Ready", "NothingMatched", "No node and no volume matches; next: kubectl get nodes --show-labels")), "eda is done: No node and no volume matches; next: kubectl get nodes --show-labels", true,
		},
		"done, with exceptions": {
			profile("eda", trueCondition("Ready", "ReadyWithExceptions", "some settings cannot be had on n1")),
			"eda is done, with exceptions: some settings cannot be had on n1", true,
		},
		"done, and pods still on old mounts": {
			with(profile("eda", trueCondition("Ready", "UpToDate", "")), func(p *v1alpha1.StorageClientProfile) { p.Status.Volumes.StaleMounts = 2 }),
			"eda is done. 2 mounts of running pods still have old options: restart these pods (kubectl storageclient status eda --pods)", true,
		},
		"done, with exceptions and old mounts": {
			with(profile("eda", trueCondition("Ready", "ReadyWithExceptions", "some settings cannot be had on n1")), func(p *v1alpha1.StorageClientProfile) { p.Status.Volumes.StaleMounts = 1 }),
			"eda is done, with exceptions: some settings cannot be had on n1. 1 mount of running pods still has old options: restart these pods (kubectl storageclient status eda --pods)", true,
		},
		"under way, waiting for an approval": {
			with(profile("eda", falseCondition("Ready", "RebootPending", "..."), trueCondition("Reconciling", "WaitingForApproval", "The plan needs approval; next: kubectl storageclient approve eda --plan 1a2b")),
				func(p *v1alpha1.StorageClientProfile) {
					p.Status.Nodes = v1alpha1.NodeCounts{Matched: 8, UpToDate: 6}
					p.Status.Volumes = v1alpha1.VolumeCounts{Matched: 1, UpToDate: 1}
				}),
			"eda is rolling out: 6/8 nodes, 1/1 volumes; The plan needs approval; next: kubectl storageclient approve eda --plan 1a2b", false,
		},
		"neither ready nor reconciling": {
			profile("eda", falseCondition("Ready", "RebootPending", "a reboot is due on n1"), falseCondition("Reconciling", "Idle", "")),
			"eda is not done: a reboot is due on n1", false,
		},
		"in mode Plan": {
			with(profile("eda", falseCondition("Ready", "PlanMode", "Mode Plan makes no changes; 0/8 nodes and 0/0 volumes up to date"), falseCondition("Reconciling", "Idle", "")),
				func(p *v1alpha1.StorageClientProfile) { p.Status.Nodes = v1alpha1.NodeCounts{Matched: 8} }),
			"eda is not done: Mode Plan makes no changes; 0/8 nodes and 0/0 volumes up to date", false,
		},
		"in progress, with the progress in the message": {
			with(profile("eda", trueCondition("Reconciling", "RollingOut", "6/8 nodes and 0/0 volumes up to date; pending: a")), func(p *v1alpha1.StorageClientProfile) {
				p.Status.Nodes = v1alpha1.NodeCounts{Matched: 8, UpToDate: 6}
			}),
			"eda is rolling out: 6/8 nodes and 0/0 volumes up to date; pending: a", false,
		},
		"a reason without a message": {profile("eda", falseCondition("Ready", "Pending", "")), "eda is not done: Pending", false},
		"stalled": {
			profile("eda", falseCondition("Ready", "Invalid", ""), trueCondition("Stalled", "Invalid", "spec.node.sysctls[a]: unknown.")),
			"eda is stopped and needs your action: spec.node.sysctls[a]: unknown", false,
		},
		"paused": {
			profile("eda", falseCondition("Ready", "RollingOut", ""), trueCondition("Paused", "PausedByField", "spec.paused is true")),
			"eda is paused: spec.paused is true", false,
		},
		"edited since": {
			with(profile("eda", trueCondition("Ready", "UpToDate", "")), func(p *v1alpha1.StorageClientProfile) { p.Generation = 4 }),
			"eda is not done: the manager has not observed generation 4 yet", false,
		},
		"never reconciled": {
			with(profile("eda"), func(p *v1alpha1.StorageClientProfile) { p.Status.ObservedGeneration = -1 }),
			"eda is not done: the manager has not observed generation 3 yet", false,
		},
		"being removed": {
			with(profile("eda", trueCondition("Reconciling", "Restoring", "waits; nodes: n1 is being restored")), func(p *v1alpha1.StorageClientProfile) {
				p.DeletionTimestamp = ago(time.Minute)
			}),
			"Removing eda: waits; nodes: n1 is being restored", false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, done := Verdict(&test.profile)
			if got != test.want || done != test.done {
				t.Errorf("got verdict %q, %v\nwant %q, %v", got, done, test.want, test.done)
			}
		})
	}
}

func rollingOut() v1alpha1.StorageClientProfile {
	return with(profile("netapp-eda", falseCondition("Ready", "RollingOut", "6 of 8 nodes are up to date"), trueCondition("Reconciling", "WaitingForBudget", "node-2 holds the budget")),
		func(p *v1alpha1.StorageClientProfile) {
			p.Status.Nodes = v1alpha1.NodeCounts{Matched: 8, UpToDate: 6, PendingReboot: 2, Disrupted: 1}
			p.Status.Volumes = v1alpha1.VolumeCounts{Matched: 40, UpToDate: 38, Blocked: 1, StaleMounts: 3}
			p.Status.Plan = v1alpha1.Plan{Hash: "1a2b3c4d5e6f7a8b", NodesToReboot: 2, LimitedBy: "node-2 holds the budget", Examples: []string{"node-2", "node-7"}}
		})
}

var advised = []v1alpha1.Advice{
	{ID: "tcp-mem", Severity: v1alpha1.SeverityWarning, Text: "spec.node.sysctls[net.ipv4.tcp_mem]: counts pages"},
	{ID: "server-budget", Severity: v1alpha1.SeverityInfo, Text: "if all 8 nodes mount from it: filer gets up to 64 connections and 512 requests in flight"},
	{ID: "tcp-buffers", Severity: v1alpha1.SeverityInfo, Text: "spec.node.sysctls: are applied at once"},
	{ID: "xfs-memory", Severity: v1alpha1.SeverityInfo, Text: "test"},
}

func TestStatusText(t *testing.T) {
	done := profile("azure", trueCondition("Ready", "UpToDate", ""))
	detailed := NewStatus([]v1alpha1.StorageClientProfile{rollingOut()})
	detailed.Profiles[0].Details = &Details{
		Nodes: []overview.Node{
			{Name: "node-1", Phase: "UpToDate", Since: ago(3 * time.Hour)},
			{Name: "node-2", Phase: "Draining", Reason: "PodsLeft", Message: "eda/sim-0 is held by PodDisruptionBudget eda/sim", Since: ago(90 * time.Second)},
			{Name: "node-7", Phase: "Waiting", Reason: "WaitingForBudget", Message: "node-2 holds the budget", Since: ago(5 * time.Minute)},
		},
		Deviations: []overview.Deviation{
			{Key: "kernelArgument/ihash_entries", Desired: "16777216", Observed: "8388608", State: v1alpha1.SettingClamped,
				Message: "8388608 is the most that 32 GiB grant", Nodes: []string{"node-1", "node-2", "node-3", "node-4"}},
			{Key: "sysctl/net.core.rmem_max", Desired: "16777216", Observed: "212992", State: v1alpha1.SettingDrifted, Nodes: []string{"node-7"}},
		},
		Stale: []StaleMount{{Node: "node-1", Volume: "pv-tools", MountPoint: "/var/lib/kubelet/pods/a/volumes/x", Pods: []string{"eda/sim-0", "eda/sim-1"},
			Message: "the mount was made with a different value"}},
		HeldUpBy: &overview.Wait{Node: overview.Node{Name: "Node node-2", Reason: "PodsLeft", Message: "eda/sim-0 is held by PodDisruptionBudget eda/sim", Since: ago(90 * time.Second)},
			Until: ago(-10 * time.Minute), Action: "Run `kubectl get pdb`"},
		Unknown: "",
	}
	detailed.Profiles[0].Status.Advice = advised
	detailed.Profiles[0].Status.LostNodes = []v1alpha1.LostNode{
		{Name: "node-9", Reason: v1alpha1.RolloutReasonNodeLost, Since: ago(2 * time.Hour), Message: "The Node was deleted while it had a reboot permit"},
	}
	forbidden := NewStatus([]v1alpha1.StorageClientProfile{done})
	forbidden.Profiles[0].Details = &Details{Unknown: "stale mounts: persistentvolumes is forbidden"}
	tests := map[string]Status{
		"status-none":      NewStatus(nil),
		"status-all-done":  NewStatus([]v1alpha1.StorageClientProfile{done, with(done, func(p *v1alpha1.StorageClientProfile) { p.Name = "b" })}),
		"status-some-open": NewStatus([]v1alpha1.StorageClientProfile{done, rollingOut()}),
		"status-details":   detailed,
		"status-forbidden": forbidden,
	}
	for name, status := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			check.NoError(t, status.WriteText(&out, now))
			golden(t, name, out.Bytes())
		})
	}
}

func TestPlanText(t *testing.T) {
	p := rollingOut()
	p.Spec.NodeSelector.MatchLabels = map[string]string{"agentpool": "eda"}
	p.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("10%"))
	setting := func(key, value string) v1alpha1.NodeSetting {
		return v1alpha1.NodeSetting{Key: key, Value: value, Profile: "netapp-eda", OnRemoval: v1alpha1.DeletionRestore}
	}
	preview := overview.Preview{
		PlanHash: "1a2b3c4d5e6f7a8b",
		Groups: []overview.Group{
			{Hash: "aaaa", BootHash: "bbbb", Nodes: []string{"node-1", "node-2", "node-3", "node-4"},
				Settings: []v1alpha1.NodeSetting{setting("kernelArgument/ihash_entries", "16777216"), setting("sysctl/net.core.rmem_max", "16777216")}},
			{Hash: "cccc", BootHash: "bbbb", Nodes: []string{"node-7"}, Settings: []v1alpha1.NodeSetting{setting("kernelArgument/ihash_entries", "16777216")},
				Conflicts: []string{"sysctl/net.core.rmem_max: 16777216 against 8388608 (gold, netapp-eda)"}},
		},
		Reboots: []overview.Reboot{
			{Node: "node-7", Zone: "eu-1", Reasons: []string{"kernelArgument/ihash_entries becomes 16777216, now 2097152"}},
			{Node: "node-2", Reasons: []string{"kernelArgument/ihash_entries becomes 16777216, now 2097152"}, Held: "it is not Ready"},
		},
		Earliest:            new(metav1.NewTime(time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC))),
		EstimatedCompletion: new(metav1.NewTime(time.Date(2026, 11, 21, 2, 5, 30, 0, time.UTC))),
	}
	p.Spec.Rollout.Windows = []v1alpha1.Window{{Schedule: "0 2 * * 6", DurationSeconds: 14400}}
	volumes := &Volumes{Matched: 40, UpToDate: 30, Blocked: 2, Examples: []volumeplan.Note{{Volume: "pv-a", Reason: v1alpha1.VolumeReasonConflict, Message: "somebody else changed mountOptions"}}}
	approved := preview
	approved.Approved, approved.EstimatedCompletion = true, nil
	never := preview
	never.Earliest, never.EstimatedCompletion = nil, nil
	notRebooted := overview.Preview{NotRebooted: []overview.Reboot{{
		Node: "node-3", Zone: "eu-1", Reasons: []string{"kernelArgument/ihash_entries becomes 16777216, now 2097152"},
		Held: "kernelArgument/ihash_entries: conflict: /etc/default/grub sets ihash_entries=1; not managed by the agent, left unchanged",
	}}}
	mode := func(m v1alpha1.Mode, policy v1alpha1.RebootPolicy) *v1alpha1.StorageClientProfile {
		changed := p.DeepCopy()
		changed.Spec.Mode, changed.Spec.Rollout.Reboot.Policy = m, policy
		return changed
	}
	tests := map[string]Plan{
		"plan-waits-for-approval": NewPlan(&p, preview, volumes),
		"plan-approved":           NewPlan(&p, approved, nil),
		"plan-mode-plan":          NewPlan(mode(v1alpha1.ModePlan, v1alpha1.RebootNever), never, &Volumes{Unknown: "persistentvolumes is forbidden"}),
		"plan-refused":            NewPlan(&p, overview.Preview{Refused: "Invalid: spec.node.sysctls[a.b] \"1\": is unknown"}, nil),
		"plan-not-rebooted":       NewPlan(&p, notRebooted, nil),
		"plan-nothing":            NewPlan(&p, overview.Preview{}, nil),
	}
	advises := NewPlan(&p, overview.Preview{}, volumes)
	advises.Advice = advised
	for i := range 12 {
		advises.Servers = append(advises.Servers, advice.Load{Server: fmt.Sprintf("filer-%d", i), Nodes: 8, Connections: 64, Requests: 512})
	}
	tests["plan-advice"] = advises
	for name, plan := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			check.NoError(t, plan.WriteText(&out, false))
			golden(t, name, out.Bytes())
		})
	}
}

func TestApprovable(t *testing.T) {
	p := rollingOut()
	tests := map[string]struct {
		profile v1alpha1.StorageClientProfile
		plan    string
		want    string
	}{
		"the current plan":                    {profile: p},
		"the requested plan":                  {profile: p, plan: "1a2b3c4d5e6f7a8b"},
		"another plan than the requested one": {profile: p, plan: "0000", want: `netapp-eda: plan changed from 0000 to 1a2b3c4d5e6f7a8b: review it again with "kubectl storageclient plan netapp-eda"`},
		"a status of an older generation":     {profile: with(p, func(p *v1alpha1.StorageClientProfile) { p.Generation = 4 }), want: "netapp-eda: the manager has not observed generation 4 yet (status is for 3): try again"},
		"a profile that reboots no node":      {profile: with(p, func(p *v1alpha1.StorageClientProfile) { p.Status.Plan.Hash = "" }), want: "netapp-eda: no reboots to approve: the profile has no settings that require a reboot"},
		"a profile without a status":          {profile: with(p, func(p *v1alpha1.StorageClientProfile) { p.Status.ObservedGeneration = -1 }), want: "netapp-eda: the manager has not observed generation 3 yet (status is for -1): try again"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckApprovable(&test.profile, test.plan); err != nil {
				got = err.Error()
			}
			check.Equal(t, "error", test.want, got)
		})
	}
}

func TestApprovalShowsThePlan(t *testing.T) {
	p := rollingOut()
	want := "Plan 1a2b3c4d5e6f7a8b of netapp-eda reboots 2 nodes (node-2, node-7), at most 1 at a time.\nLimited by: node-2 holds the budget.\n"
	check.Equal(t, "approval", want, strings.Join(DescribeApproval(&p), "\n")+"\n")
}
