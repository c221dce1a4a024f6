package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/storageclient/operator/test/cluster/apps"
	"github.com/storageclient/operator/test/cluster/history"
	"github.com/storageclient/operator/test/cluster/measure"
)

// The waits in the profile. They are part of the bound.
const (
	canaryNodes   = 1
	soakSeconds   = 0
	settleSeconds = 0
)

// result is the result of one measurement.
type result struct {
	run
	load               string
	approved, returned time.Time
	verdict            history.Verdict
	manager, agents    measure.Requests
	// cpu is the manager's CPU time during the rollout, totalCPU also includes the staging.
	cpu, totalCPU time.Duration
	peakBytes     int64
}

func (r result) makespan() time.Duration { return r.returned.Sub(r.approved) }

// lowerBound returns the shortest time that the profile permits: the canary and its soak, and then waves of the budget's size.
func (r result) lowerBound() time.Duration {
	disruption := apps.DrainTime + r.boot + settleSeconds*time.Second
	waves := (r.nodes - canaryNodes + r.budget - 1) / r.budget
	return time.Duration(1+waves)*disruption + soakSeconds*time.Second
}

func (r result) ratio() float64 { return r.makespan().Seconds() / r.lowerBound().Seconds() }

func printTable(results []result) {
	machine := measure.ThisMachine(".")
	fmt.Printf("\nmake bench-rollout on %s, %d CPUs, %s\n\n", machine.CPU, machine.CPUs, machine.Go)
	fmt.Print("lower bound = (1 + ceil((nodes - canary) / budget)) x (drain + boot + settleSeconds) + soakSeconds\n\n")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	addRow := func(name string, value func(result) string) {
		cells := []string{name}
		for _, r := range results {
			cells = append(cells, value(r))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	addRow("nodes", func(r result) string { return fmt.Sprint(r.nodes) })
	addRow("zones", func(r result) string { return fmt.Sprint(r.zones) })
	addRow("budget, canary", func(r result) string { return fmt.Sprintf("%d, %d", r.budget, canaryNodes) })
	addRow("drain, boot, settle, soak", func(r result) string {
		return fmt.Sprintf("%.0f, %.0f, %d, %d s", apps.DrainTime.Seconds(), r.boot.Seconds(), settleSeconds, soakSeconds)
	})
	addRow("lower bound", func(r result) string { return fmt.Sprintf("%.0f s", r.lowerBound().Seconds()) })
	addRow("makespan", func(r result) string { return fmt.Sprintf("%.1f s", r.makespan().Seconds()) })
	addRow("ratio", func(r result) string { return fmt.Sprintf("%.3f", r.ratio()) })
	addRow("most nodes out at a time", func(r result) string { return fmt.Sprint(r.verdict.MostOut) })
	addRow("nodes that had a pod to drain", func(r result) string { return fmt.Sprint(countDrained(r)) })
	for _, leg := range legs {
		addRow("  "+leg.name+" (mean, median, 95 %)", func(r result) string { return formatSpread(leg.durations(r)) })
	}
	addRow("  released to next claim (mean, median, 95 %)", func(r result) string { return formatSpread(idleTimes(r)) })
	addRow("manager: CPU of the rollout", func(r result) string { return fmt.Sprintf("%.1f s", r.cpu.Seconds()) })
	addRow("manager: CPU in all", func(r result) string { return fmt.Sprintf("%.1f s", r.totalCPU.Seconds()) })
	addRow("manager: peak memory", func(r result) string { return fmt.Sprintf("%d MiB", r.peakBytes>>20) })
	addRow("manager: writes per node", func(r result) string { return perNode(r, r.manager.Writes) })
	addRow("agents: writes per node", func(r result) string { return perNode(r, r.agents.Writes) })
	addRow("apart from those: evictions per node, dry runs per node", func(r result) string {
		return perNode(r, r.manager.Evictions) + ", " + perNode(r, r.manager.DryRuns)
	})
	addRow("manager: reads per node, of those lists of pods past the watch cache", func(r result) string {
		return perNode(r, r.manager.Lists+r.manager.Gets) + ", " + perNode(r, r.manager.LivePodLists)
	})
	addRow("load before (1, 5, 15 min)", func(r result) string { return r.load })
	w.Flush()
	for _, r := range results {
		fmt.Printf("\nRequests during the rollout of %d nodes by the API server's audit log, and per node, the manager's:\n%sand the agents':\n%s",
			r.nodes, r.manager.Table(r.nodes), r.agents.Table(r.nodes))
	}
}

// leg is a part of a disruption. The bound contains only "drain" and "boot". All other legs are overhead.
type leg struct {
	name     string
	from, to func(*history.Disruption) time.Time
}

var legs = []leg{
	{"claim to cordon", func(v *history.Disruption) time.Time { return v.Claimed }, func(v *history.Disruption) time.Time { return v.Cordoned }},
	{"cordon to last pod gone", func(v *history.Disruption) time.Time { return v.Cordoned }, func(v *history.Disruption) time.Time { return v.Empty }},
	{"last pod gone to going down", func(v *history.Disruption) time.Time { return v.Empty }, func(v *history.Disruption) time.Time { return v.Down }},
	{"boot", func(v *history.Disruption) time.Time { return v.Down }, func(v *history.Disruption) time.Time { return v.Back }},
	{"Ready to uncordoned", func(v *history.Disruption) time.Time { return v.Back }, func(v *history.Disruption) time.Time { return v.Uncordoned }},
	{"uncordoned to claim released", func(v *history.Disruption) time.Time { return v.Uncordoned }, func(v *history.Disruption) time.Time { return v.Unclaimed }},
}

func (l leg) durations(r result) []time.Duration {
	var times []time.Duration
	for _, disruption := range r.verdict.Completed() {
		times = append(times, l.to(disruption).Sub(l.from(disruption)))
	}
	return times
}

// idleTimes returns the times for which each place in the budget was free until the next claim. All places wait for the canary's.
func idleTimes(r result) []time.Duration {
	var claimed, released []time.Time
	for _, disruption := range r.verdict.Completed() {
		claimed, released = append(claimed, disruption.Claimed), append(released, disruption.Unclaimed)
	}
	slices.SortFunc(claimed, time.Time.Compare)
	slices.SortFunc(released, time.Time.Compare)
	var times []time.Duration
	for i := canaryNodes; i < len(claimed); i++ {
		times = append(times, claimed[i].Sub(released[max(i-r.budget, canaryNodes-1)]))
	}
	return times
}

func formatSpread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	return fmt.Sprintf("%.1f, %.1f, %.1f s", (sum / time.Duration(len(times))).Seconds(), times[len(times)/2].Seconds(), times[len(times)*95/100].Seconds())
}

func countDrained(r result) int {
	count := 0
	for _, disruption := range r.verdict.Completed() {
		if disruption.Pods > 0 {
			count++
		}
	}
	return count
}

func perNode(r result, count int) string { return fmt.Sprintf("%.1f", float64(count)/float64(r.nodes)) }
