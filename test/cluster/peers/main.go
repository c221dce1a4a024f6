// Command peers runs the same job with this operator and others on the same simulated cluster. Every node needs one reboot, and a budget
// limits the nodes out of service. "make bench-peers" builds the peers from their public source trees.
//
// Boots and pods are simulated, the programs are real. kured has one process for each node, with the node's identity. The pods of
// NodeWright's operator are simulated. The file of each peer contains the simulated parts, and the table names them.
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

	"github.com/storageclient/operator/test/cluster/measure"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/reaper"
)

// settings are the flags.
type settings struct {
	sandbox.Options
	kured, nodewright, nodewrightSource string
	nodes, budget                       int
	patience, lossPatience              time.Duration
	output, markdown                    string
}

func main() {
	s := settings{Options: sandbox.Options{Root: "."}}
	s.Audit, s.Zones, s.Light = true, 1, true
	flag.StringVar(&s.Binaries, "binaries", "", "Directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.")
	flag.StringVar(&s.Manager, "manager", "bin/manager", "The manager binary.")
	flag.StringVar(&s.kured, "kured", "", "The kured binary. Empty skips it.")
	flag.StringVar(&s.nodewright, "nodewright", "", "The binary of NodeWright's operator. Empty skips it.")
	flag.StringVar(&s.nodewrightSource, "nodewright-source", "", "Source tree of NodeWright with its definitions.")
	flag.IntVar(&s.nodes, "nodes", 100, "Number of nodes to reboot.")
	flag.IntVar(&s.budget, "budget", 10, "Maximum number of nodes that may be out of service.")
	flag.DurationVar(&s.BootTime, "boot", 30*time.Second, "Duration of a simulated boot.")
	flag.DurationVar(&s.patience, "patience", 30*time.Minute, "Maximum duration of the job.")
	flag.DurationVar(&s.lossPatience, "loss-patience", 6*time.Minute, "Maximum duration of a job whose first node does not come back.")
	flag.StringVar(&s.output, "json", "dist/peers.json", "Output file for the values.")
	flag.StringVar(&s.markdown, "markdown", "dist/peers.md", "Output file for the table.")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := measureAll(s); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func measureAll(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := reaper.Start(); err != nil {
		return err
	}
	all := []contender{&operatorPeer{}}
	if s.nodewright != "" {
		all = append(all, &nodewright{})
	}
	if s.kured != "" {
		all = append(all, &kured{})
	}
	out := report{Machine: measure.ThisMachine(s.Root), Nodes: s.nodes, Budget: s.budget, BootSeconds: s.BootTime.Seconds()}
	var failed error
	for _, c := range all {
		if ctx.Err() != nil {
			break
		}
		r, err := measurePeer(ctx, s, c)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name(), err))
			r.Failure = err.Error()
		}
		out.Results = append(out.Results, r)
		if err := out.write(s.output, s.markdown); err != nil {
			return err
		}
	}
	fmt.Print(out.markdown())
	return failed
}
