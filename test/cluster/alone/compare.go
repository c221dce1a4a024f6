package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// cost is the cost of one part of a run: CPU time in seconds and the maximum resident memory in MiB.
type cost struct {
	part       string
	cpu, peaks float64
}

// compare plays the former and the current manager in turn and prints the ratio of the medians for each part, current by former.
func compare(ctx context.Context, s settings) error {
	var former, current [][]cost
	for i := range s.runs {
		for _, of := range []struct {
			name, manager string
			costs         *[][]cost
		}{{"former", s.former, &former}, {"current", s.manager, &current}} {
			all, steal := cpuTimes(readFile("/proc/stat"))
			fmt.Printf("---- Run %d of %d, %s manager; load before: %s\n", i+1, s.runs, of.name, strings.TrimSpace(readFile("/proc/loadavg")))
			s.manager = of.manager
			costs, err := run(ctx, s)
			if err != nil {
				return fmt.Errorf("%s manager: %w", of.name, err)
			}
			*of.costs = append(*of.costs, costs)
			allNow, stealNow := cpuTimes(readFile("/proc/stat"))
			fmt.Printf("steal %.1f %%\n", 100*float64(stealNow-steal)/float64(max(1, allNow-all)))
		}
	}
	fmt.Printf("---- Medians of %d runs, former : current\n%s", s.runs, ratios(former, current))
	return nil
}

// ratios returns a line for each part. A former's spread is its largest value by its smallest: a smaller difference is noise.
func ratios(former, current [][]cost) string {
	var out strings.Builder
	for i, c := range former[0] {
		cpuOf, peakOf := func(c cost) float64 { return c.cpu }, func(c cost) float64 { return c.peaks }
		cpu, cpuNow, cpuSpread := figures(former, current, i, cpuOf)
		peak, peakNow, peakSpread := figures(former, current, i, peakOf)
		fmt.Fprintf(&out, "%-9s   CPU s %5.1f : %4.1f  ratio %.2f, former's spread %.2f; peak MiB %4.0f : %4.0f  ratio %.2f, former's spread %.2f\n",
			c.part, cpu, cpuNow, cpuNow/cpu, cpuSpread, peak, peakNow, peakNow/peak, peakSpread)
	}
	return out.String()
}

// figures returns both medians of one part, and the spread of the former runs.
func figures(former, current [][]cost, part int, of func(cost) float64) (before, now, spread float64) {
	sorted := func(runs [][]cost) []float64 {
		var values []float64
		for _, run := range runs {
			values = append(values, of(run[part]))
		}
		slices.Sort(values)
		return values
	}
	f, c := sorted(former), sorted(current)
	return f[len(f)/2], c[len(c)/2], f[len(f)-1] / f[0]
}

// cpuTimes returns the ticks of all CPUs and the ticks that the hypervisor gave to other machines, from the text of /proc/stat.
func cpuTimes(stat string) (all, steal int64) {
	first, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(first) {
		// The fields after steal are parts of earlier ones.
		if n, err := strconv.ParseInt(field, 10, 64); err == nil && i <= 8 {
			all += n
			if i == 8 {
				steal = n
			}
		}
	}
	return all, steal
}

func readFile(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}
