package main

import (
	"fmt"
	"strings"

	"github.com/storageclient/operator/test/cluster/measure"
)

// report contains all measured values.
type report struct {
	Machine     measure.Machine `json:"machine"`
	Nodes       int             `json:"nodes"`
	Budget      int             `json:"budget"`
	BootSeconds float64         `json:"bootSeconds"`
	Results     []result        `json:"results"`
}

func (r report) write(output, markdown string) error {
	return measure.WriteReport(output, markdown, r, r.markdown())
}

func (r report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "`make bench-peers` on %s, %d CPUs, Linux %s, %s, commit %s. %d nodes need one reboot each, %d may be out of service at a time; a drain takes 10 s, a boot %.0f s.\n\n",
		r.Machine.CPU, r.Machine.CPUs, r.Machine.Kernel, r.Machine.Go, r.Machine.Commit, r.Nodes, r.Budget, r.BootSeconds)
	head, line := "| |", "|---|"
	for _, c := range r.Results {
		head, line = head+" "+c.Name+" |", line+"---:|"
	}
	out.WriteString(head + "\n" + line + "\n")
	for _, row := range []struct {
		name  string
		value func(result) string
	}{
		{"nodes done", func(c result) string { return fmt.Sprintf("%d of %d", c.Done, r.Nodes) }},
		{"makespan", func(c result) string { return fmt.Sprintf("%.0f s", c.Seconds) }},
		{"over the lower bound", func(c result) string { return fmt.Sprintf("%.2f (of %.0f s)", c.Seconds/c.Bound, c.Bound) }},
		{"maximum of nodes out of service at a time", func(c result) string { return fmt.Sprint(c.MostOut) }},
		{"boots", func(c result) string { return fmt.Sprint(c.Boots) }},
		{"evictions", func(c result) string { return fmt.Sprint(c.Evictions) }},
		{"API writes a node, evictions apart", func(c result) string { return fmt.Sprintf("%.1f", float64(c.Writes)/float64(r.Nodes)) }},
		{"dry runs a node", func(c result) string { return fmt.Sprintf("%.1f", float64(c.DryRuns)/float64(r.Nodes)) }},
		{"API reads a node", func(c result) string { return fmt.Sprintf("%.1f", float64(c.Reads)/float64(r.Nodes)) }},
		{"the first node does not come back: nodes done", func(c result) string {
			return fmt.Sprintf("%d of %d, %.0f s, %d still out, at most %d", c.Loss.Done, c.Loss.Nodes, c.Loss.Seconds, c.Loss.StillOut, c.Loss.MostOut)
		}},
		{"load before", func(c result) string { return c.Load }},
	} {
		out.WriteString("| " + row.name + " |")
		for _, c := range r.Results {
			if c.Failure != "" && c.Seconds == 0 {
				out.WriteString(" – |")
				continue
			}
			out.WriteString(" " + row.value(c) + " |")
		}
		out.WriteString("\n")
	}
	for _, c := range r.Results {
		fmt.Fprintf(&out, "\n- **%s**: %s.", c.Name, c.Setup)
		if c.Failure != "" {
			fmt.Fprintf(&out, " Failed: %s.", c.Failure)
		}
		if len(c.Problems) > 0 {
			fmt.Fprintf(&out, " Seen: %s.", strings.Join(c.Problems[:min(len(c.Problems), 3)], "; "))
		}
		if c.Loss.Says != "" {
			fmt.Fprintf(&out, " Report on a node that does not come back: %s.", c.Loss.Says)
		}
	}
	out.WriteString("\n")
	return out.String()
}
