package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/test/check"
)

func standing(name, zone, phase, reason, message string, since time.Duration, done bool) overview.Progress {
	return overview.Progress{Zone: zone, Done: done, Node: overview.Node{Name: name, Phase: phase, Reason: reason, Message: message, Since: ago(since)}}
}

// fiftyNodes returns a rollout in progress over three zones, with typical node names of clouds.
func fiftyNodes() Tree {
	p := with(profile("azure-netapp-eda", falseCondition("Ready", "RollingOut", "21/50 nodes and 30/40 volumes up to date"), trueCondition("Reconciling", "RollingOut",
		"21/50 nodes and 30/40 volumes up to date; aks-eda-28463518-vmss000003: Waiting for pods eda/sim-0, eda/sim-1, eda/sim-2 and 14 more to terminate; aks-eda-28463518-vmss000004: rebooting")),
		func(p *v1alpha1.StorageClientProfile) {
			p.Status.Nodes = v1alpha1.NodeCounts{Matched: 50, UpToDate: 21, PendingReboot: 28, Disrupted: 3, Failed: 1}
			p.Status.Volumes = v1alpha1.VolumeCounts{Matched: 40, UpToDate: 30, Blocked: 2, StaleMounts: 7}
			p.Status.Plan = v1alpha1.Plan{Hash: "1a2b", NodesToReboot: 28, EstimatedCompletion: ago(-2 * time.Hour),
				LimitedBy: "Reboot limit reached (3 of 50): aks-eda-28463518-vmss000003, aks-eda-28463518-vmss000004 and aks-eda-28463518-vmss000005 are rebooting"}
			p.Status.LostNodes = []v1alpha1.LostNode{{Name: "aks-eda-28463518-vmss0000zz", Reason: "Lost", Since: ago(time.Hour), Message: "the Node was deleted while it rebooted"}}
		})
	var nodes []overview.Progress
	for i := range 50 {
		name, zone := fmt.Sprintf("aks-eda-28463518-vmss0000%02d", i), fmt.Sprintf("westeurope-%d", i%3+1)
		if i == 49 {
			zone, name = "", "ip-10-12-144-201.eu-central-1.compute.internal.example.com"
		}
		switch {
		case i == 0:
			nodes = append(nodes, standing(name, zone, "Failed", "BootTimeout", "The node did not come back within 15m0s of its reboot", 26*time.Hour, false))
		case i < 2:
			nodes = append(nodes, standing(name, zone, "Draining", "WaitingForPods", "Waiting for pods eda/sim-0, eda/sim-1, eda/sim-2 and 14 more to terminate", 3*time.Minute, false))
		case i < 4:
			nodes = append(nodes, standing(name, zone, "Rebooting", "RebootPermitted", "Waiting for the agent to reboot the node", 47*time.Second, false))
		case i < 28 || i == 49:
			nodes = append(nodes, standing(name, zone, "Waiting", "WaitingForBudget", fmt.Sprintf("Reboot limit reached; at least %d nodes ahead in the queue", i), 100*time.Minute, false))
		case i == 28:
			nodes = append(nodes, standing(name, zone, "-", "Drifted", "net.core.rmem_max is 212992, wanted 16777216", time.Minute, false))
		default:
			nodes = append(nodes, standing(name, zone, "UpToDate", "NothingToDo", "", time.Hour, true))
		}
	}
	return NewTree(&p, nodes)
}

func TestTreeOf50NodesFitsATerminal(t *testing.T) {
	for name, screen := range map[string]Screen{
		"80 columns":              {Width: 80},
		"80 columns and 24 lines": {Width: 80, Height: 24},
		"40 columns and 10 lines": {Width: 40, Height: 10},
		"no terminal":             {},
	} {
		t.Run(name, func(t *testing.T) {
			lines := fiftyNodes().Draw(screen, now)
			for _, line := range lines {
				if n := len([]rune(line)); screen.Width > 0 && n > screen.Width {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if screen.Height > 0 && len(lines) >= screen.Height && screen.Height > 12 {
				t.Errorf("%d lines on %d", len(lines), screen.Height)
			}
			golden(t, "tree-"+strings.ReplaceAll(name, " ", "-"), []byte(strings.Join(lines, "\n")+"\n"))
		})
	}
}

func TestColoursDoNotAffectAlignment(t *testing.T) {
	plain, coloured := fiftyNodes().Draw(Screen{Width: 80}, now), fiftyNodes().Draw(Screen{Width: 80, Colour: true}, now)
	stripped := strings.NewReplacer("\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[0m", "")
	for i := range coloured {
		coloured[i] = strings.TrimRight(stripped.Replace(coloured[i]), " ")
	}
	if diff := cmp.Diff(plain, coloured); diff != "" {
		t.Errorf("lines without colors (-plain +colored):\n%s", diff)
	}
	if all := strings.Join(fiftyNodes().Draw(Screen{Width: 80, Colour: true}, now), "\n"); !strings.Contains(all, "\x1b[31mFailed       \x1b[0m") {
		t.Errorf("got a failed node that is not red:\n%s", all)
	}
}

func TestTreeOfADoneProfile(t *testing.T) {
	p := with(profile("eda", trueCondition("Ready", "UpToDate", "")), func(p *v1alpha1.StorageClientProfile) { p.Status.Nodes = v1alpha1.NodeCounts{Matched: 2, UpToDate: 2} })
	tree := NewTree(&p, []overview.Progress{standing("b", "", "UpToDate", "", "", 0, true), standing("a", "", "UpToDate", "", "", 0, true)}, "you may not list Nodes")
	want := []string{"eda is done", "Nodes   [########################] 2/2", "Note: you may not list Nodes", "", "(no zone)  2/2", "└─ 2 up to date"}
	check.Equal(t, "lines", want, tree.Draw(Screen{Width: 80}, now))
}

func TestSinceReturnsALineForEachChange(t *testing.T) {
	p := profile("eda", falseCondition("Ready", "RollingOut", ""), trueCondition("Reconciling", "RollingOut", ""))
	first := NewTree(&p, []overview.Progress{
		standing("done", "z", "UpToDate", "NothingToDo", "", 0, true), standing("n1", "z", "Waiting", "WaitingForBudget", "1 ahead", 0, false), standing("left", "z", "Applying", "", "", 0, false),
	})
	second := NewTree(&p, []overview.Progress{
		standing("done", "z", "UpToDate", "NothingToDo", "", 0, true), standing("n1", "z", "Draining", "WaitingForPods", "Waiting for\npod a", 0, false),
	})
	second.Notes = []string{"Nodes are out of date"}
	third := second
	third.Nodes = []overview.Progress{second.Nodes[0], standing("n1", "z", "Draining", "WaitingForPods", "Waiting for pod b", 0, false)}
	at := "2026-09-01T02:30:00Z "
	for name, test := range map[string]struct {
		old, now Tree
		want     []string
	}{
		"at first, all that is not done": {Tree{}, first, []string{at + "eda is rolling out: RollingOut", at + "left Applying", at + "n1 Waiting WaitingForBudget: 1 ahead"}},
		"then what has changed":          {first, second, []string{at + "Note: Nodes are out of date", at + "n1 Draining WaitingForPods: Waiting for pod a", at + "left is no longer a node of eda"}},
		"and no message alone":           {second, third, nil},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "lines", test.want, test.now.Since(test.old, now))
		})
	}
}
