// Command demo shows the operator's main job on this machine, in a minute and without a cluster: a real control plane,
// the real manager with the rights that the manifests give it, and the agent's own loop on simulated machines.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/test/cluster/controlplane"
)

func main() {
	options := controlplane.Options{}
	manager := ""
	nodes := 0
	flag.StringVar(&options.Binaries, "binaries", os.Getenv("KUBEBUILDER_ASSETS"), "Directory with etcd, kube-apiserver, kube-controller-manager and kube-scheduler.")
	flag.StringVar(&options.Kwok, "kwok", "", "The kwok binary.")
	flag.StringVar(&manager, "manager", "bin/manager", "The manager binary.")
	flag.IntVar(&nodes, "nodes", 6, "How many nodes to simulate.")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := run(options, manager, nodes); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(options controlplane.Options, manager string, nodes int) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "storage-client-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	options.Dir = dir
	s := &stage{began: time.Now(), nodes: nodes, dir: dir}
	s.say("", "starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok")
	s.plane, err = controlplane.Start(options)
	if err != nil {
		return err
	}
	defer func() {
		stopErr := s.plane.Stop()
		if err == nil {
			err = stopErr
		}
	}()
	fleetDone := make(chan struct{})
	fleetCtx, stopFleet := context.WithCancel(ctx)
	defer func() {
		stopFleet()
		<-fleetDone
	}()
	if err := s.setUp(ctx, fleetCtx, fleetDone, manager); err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, tail(filepath.Join(dir, "manager.log")))
	}
	if os.Getenv("KEEP") == "1" {
		fmt.Printf("\nKept running. Look with:\n  export KUBECONFIG=%s\n  kubectl get scp,scn,nodes,pv\nEnd it with Ctrl-C.\n", s.plane.Kubeconfig)
		<-ctx.Done()
	}
	return nil
}
