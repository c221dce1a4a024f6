// Command bench measures rollouts over simulated nodes and compares them with the shortest time that their profile permits. Control
// plane, evictions and manager are real. The data is independent of the manager: times come from its own watches, writes from the API
// server's audit log, CPU and memory from /proc.
//
// The bound consists of the canary's disruption and full waves. It excludes zones, which the manager processes one after the other. It
// also excludes pods that a PodDisruptionBudget protects, and the time of the manager, the API server and the agents. The ratio shows
// that difference. Control plane, nodes and manager share the machine that the table names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/reaper"
)

// run is one measurement.
type run struct {
	nodes, budget int
	boot          time.Duration
	// zones is the number of zones of the nodes. The manager processes zones one after the other, which the bound ignores.
	zones int
	// pprof is the address of the manager's Go profiler. Empty disables it.
	pprof string
}

func main() {
	options := sandbox.Options{Root: "."}
	options.Audit = true
	var runs []run
	limit := flag.Float64("ratio", 1.05, "The largest ratio of makespan to lower bound that passes.")
	boot := flag.Duration("boot", 2*time.Minute, "Duration of a simulated boot, for the -run flags after it. A virtual machine takes one to three minutes.")
	zones := flag.Int("zones", 1, "Number of zones of the nodes, for the -run flags after it. Zones run one after the other, which the lower bound ignores.")
	flag.StringVar(&options.Binaries, "binaries", "", "Directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.")
	flag.StringVar(&options.Manager, "manager", "bin/manager", "The manager binary.")
	pprof := flag.String("pprof", "", "Address of the manager's Go profiler, e.g. 127.0.0.1:6060, for the -run flags after it.")
	flag.Func("run", "NODES/BUDGET, e.g. 100/50: a measurement. May be given more than once.", func(text string) error {
		next := run{boot: *boot, zones: *zones, pprof: *pprof}
		if _, err := fmt.Sscanf(text, "%d/%d", &next.nodes, &next.budget); err != nil || next.budget < 1 || next.nodes < next.budget {
			return errors.New("must be NODES/BUDGET with 1 <= BUDGET <= NODES")
		}
		if next.zones < 1 {
			return errors.New("-zones must be at least 1")
		}
		runs = append(runs, next)
		return nil
	})
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := measureAll(options, runs, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measureAll(options sandbox.Options, runs []run, limit float64) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := reaper.Start(); err != nil {
		return err
	}
	var results []result
	for _, next := range runs {
		got, err := measureRollout(ctx, options, next)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", next.nodes, err)
		}
		results = append(results, got)
	}
	printTable(results)
	var slow []error
	for _, r := range results {
		if r.ratio() > limit {
			slow = append(slow, fmt.Errorf("%d nodes: makespan is %.3f times the lower bound, the limit is %.2f", r.nodes, r.ratio(), limit))
		}
	}
	return errors.Join(slow...)
}
