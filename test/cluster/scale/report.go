package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/storageclient/operator/test/cluster/measure"
)

// report contains all measured values.
type report struct {
	Machine        measure.Machine `json:"machine"`
	VolumesPerNode int             `json:"volumesPerNode"`
	Runs           []run           `json:"runs"`
}

func (r report) write(output, markdown string) error {
	return measure.WriteReport(output, markdown, r, r.markdown())
}

// column is one value of a part.
type column struct {
	name  string
	value func(run, part) float64
	// sloped is true if the report includes the growth with the number of nodes.
	sloped bool
}

var columns = []column{
	{"manager's CPU, s", func(_ run, p part) float64 { return p.ManagerCPU }, true},
	{"API server's CPU, s", func(_ run, p part) float64 { return p.APIServerCPU }, true},
	{"manager's peak, MiB", func(_ run, p part) float64 { return float64(p.PeakMiB) }, true},
	{"manager's writes", func(_ run, p part) float64 { return float64(p.Manager.Writes) }, false},
	{"agents' writes", func(_ run, p part) float64 { return float64(p.Agents.Writes) }, false},
	{"writes a node", func(_ run, p part) float64 {
		return float64(p.Manager.Writes+p.Agents.Writes) / float64(max(p.Touched, 1))
	}, false},
	{"manager's lists and gets", func(_ run, p part) float64 { return float64(p.Manager.Lists + p.Manager.Gets) }, false},
	{"seconds", func(_ run, p part) float64 { return p.Seconds }, true},
}

// markdown returns a table for each part, with a row for each size and a last row for the growth.
func (r report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "`make bench-scale` on %s, %d CPUs, Linux %s, %s, commit %s, load before %s.\n", r.Machine.CPU, r.Machine.CPUs, r.Machine.Kernel, r.Machine.Go,
		r.Machine.Commit, r.Machine.Load)
	for _, name := range r.partNames() {
		fmt.Fprintf(&out, "\n### %s\n\n| nodes |", strings.ToUpper(name[:1])+name[1:])
		for _, c := range columns {
			fmt.Fprintf(&out, " %s |", c.name)
		}
		out.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
		for _, run := range r.Runs {
			for _, p := range run.Parts {
				if p.Name == name {
					out.WriteString("| " + run.String() + " |")
					for _, c := range columns {
						fmt.Fprintf(&out, " %s |", formatFigure(c.value(run, p)))
					}
					out.WriteString("\n")
				}
			}
		}
		out.WriteString("| grows with the nodes' power of |")
		for _, c := range columns {
			fmt.Fprintf(&out, " %s |", r.slope(name, c))
		}
		out.WriteString("\n")
	}
	out.WriteString("\n### The webhook over HTTPS\n\n| nodes | volumes | median, ms | 99 %, ms |\n|---|---:|---:|---:|\n")
	for _, run := range r.Runs {
		if run.Webhook != nil {
			fmt.Fprintf(&out, "| %s | %d | %.2f | %.2f |\n", run, run.Volumes, run.Webhook.Median, run.Webhook.P99)
		}
	}
	return out.String()
}

func formatFigure(value float64) string {
	switch {
	case value == math.Trunc(value):
		return fmt.Sprintf("%.0f", value)
	case value < 10:
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.1f", value)
}

func (r report) partNames() []string {
	var names []string
	seen := map[string]bool{}
	for _, run := range r.Runs {
		for _, p := range run.Parts {
			if !seen[p.Name] {
				seen[p.Name] = true
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// slope returns the slope of the line through the logarithms, over the sizes with light agents. 1 means linear growth with the number of
// nodes, 2 quadratic growth.
func (r report) slope(name string, c column) string {
	var n, sumX, sumY, sumXX, sumXY float64
	for _, run := range r.Runs {
		for _, p := range run.Parts {
			if value := c.value(run, p); p.Name == name && !run.RealAgents && run.Mounts == 0 && value > 0 {
				x, y := math.Log(float64(run.Nodes)), math.Log(value)
				n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
			}
		}
	}
	if !c.sloped || n < 2 {
		return ""
	}
	return fmt.Sprintf("%.2f", (n*sumXY-sumX*sumY)/(n*sumXX-sumX*sumX))
}
