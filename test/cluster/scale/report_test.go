package main

import (
	"strings"
	"testing"
)

func TestASlopeIsThePowerOfTheNodes(t *testing.T) {
	var r report
	for _, nodes := range []int{500, 1000, 5000} {
		square := float64(nodes) * float64(nodes)
		r.Runs = append(r.Runs,
			run{Nodes: nodes, Parts: []part{{Name: "p", ManagerCPU: square, APIServerCPU: float64(nodes)}}},
			// The line excludes real agents and runs that only measure memory.
			run{Nodes: nodes, RealAgents: true, Parts: []part{{Name: "p", ManagerCPU: 1, APIServerCPU: 1}}},
			run{Nodes: nodes, Mounts: 128, Parts: []part{{Name: "p", ManagerCPU: 1, APIServerCPU: 1}}})
	}
	if cpu, api := r.slope("p", columns[0]), r.slope("p", columns[1]); cpu != "2.00" || api != "1.00" {
		t.Errorf("got slopes %s and %s, want 2.00 and 1.00", cpu, api)
	}
	if table := r.markdown(); !strings.Contains(table, "| grows with the nodes' power of | 2.00 | 1.00 |") {
		t.Errorf("got a table without the slopes:\n%s", table)
	}
}
