// Command scale measures the cost of the manager at several sizes: CPU and memory from /proc, requests from the API server's audit log,
// seconds by its own watch. The control plane is real. Up to a number of nodes the agents are real, too. For more nodes, only their
// writes are simulated. The smallest size is measured both ways for comparison. The tables go to the terminal, a JSON file and a Markdown
// file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/test/cluster/measure"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/reaper"
)

// settings are the flags.
type settings struct {
	sandbox.Options
	sizes            []int
	real             int
	volumesPerNode   int
	profiles         int
	heavyMounts      int
	heavySettings    int
	pprof            string
	output, markdown string
}

func main() {
	s := settings{Options: sandbox.Options{Root: "."}}
	s.Audit = true
	flag.StringVar(&s.Binaries, "binaries", "", "Directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.")
	flag.StringVar(&s.Manager, "manager", "bin/manager", "The manager binary.")
	sizes := flag.String("sizes", "500,1000,2500,5000", "Numbers of nodes to measure.")
	flag.IntVar(&s.real, "real", 500, "Maximum number of nodes for an additional run with real agents. 0 disables it.")
	flag.IntVar(&s.volumesPerNode, "volumes", 4, "Number of volumes for each node.")
	flag.IntVar(&s.profiles, "profiles", 500, "Number of profiles at the end.")
	flag.IntVar(&s.heavyMounts, "heavy-mounts", 128, "Number of mounts of each node in the memory run of the largest size. 0 skips that run.")
	flag.IntVar(&s.heavySettings, "heavy-settings", 64, "Number of settings of each node in that run.")
	flag.StringVar(&s.pprof, "pprof", "", "Loopback address of the first manager's profiler. Empty disables it.")
	flag.StringVar(&s.output, "json", "dist/scale.json", "Output file for the values.")
	flag.StringVar(&s.markdown, "markdown", "dist/scale.md", "Output file for the tables.")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	for _, word := range strings.Split(*sizes, ",") {
		size, err := strconv.Atoi(word)
		if err != nil || size < 2 {
			fmt.Fprintf(os.Stderr, "scale: -sizes: %q: must be numbers of at least 2\n", word)
			os.Exit(2)
		}
		s.sizes = append(s.sizes, size)
	}
	if err := measureAll(s); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func measureAll(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := reaper.Start(); err != nil {
		return err
	}
	out := report{Machine: measure.ThisMachine(s.Root), VolumesPerNode: s.volumesPerNode}
	var runs []run
	for _, size := range s.sizes {
		if size <= s.real {
			runs = append(runs, run{Nodes: size, RealAgents: true})
		}
		runs = append(runs, run{Nodes: size})
	}
	if s.heavyMounts > 0 {
		runs = append(runs, run{Nodes: s.sizes[len(s.sizes)-1], Mounts: s.heavyMounts, Settings: s.heavySettings})
	}
	for _, next := range runs {
		got, err := measureSize(ctx, s, next)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", next, err), out.write(s.output, s.markdown))
		}
		out.Runs = append(out.Runs, got)
		if err := out.write(s.output, s.markdown); err != nil {
			return err
		}
	}
	fmt.Print(out.markdown())
	return nil
}
