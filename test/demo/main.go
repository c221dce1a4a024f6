// Command demo shows the operator's main job on this machine, in a minute and without a cluster. It runs a real control plane, the real
// manager with the rights in its manifests, and the agent's loop on simulated machines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/reaper"
)

// bootTime is the duration of a simulated boot.
const bootTime = 3 * time.Second

func main() {
	options := sandbox.Options{Root: ".", BootTime: bootTime}
	flag.StringVar(&options.Binaries, "binaries", "", "Directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.")
	flag.StringVar(&options.Manager, "manager", "bin/manager", "The manager binary.")
	flag.IntVar(&options.Nodes, "nodes", 6, "Number of nodes to simulate.")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := runDemo(options); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func runDemo(options sandbox.Options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := reaper.Start(); err != nil {
		return err
	}
	if options.Dir, err = os.MkdirTemp("", "storage-client-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(options.Dir)
	d := &demo{began: time.Now(), printed: map[string]string{}}
	options.Progress = func(format string, args ...any) { d.printLine("", format, args...) }
	if d.Sandbox, err = sandbox.Start(ctx, options); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := d.ApplyFile(ctx, filepath.Join("test", "demo", "workload.yaml")); err != nil {
		return err
	}
	if _, err := d.StartManager(ctx, "--max-unavailable=2"); err != nil {
		return err
	}
	if err := d.playStory(ctx); err != nil {
		return fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, d.ManagerLog())
	}
	if keepRunning() {
		fmt.Printf("Still running. To look around:\n  export KUBECONFIG=%s\n  kubectl get scp,scn,nodes,pv\nStop it with Ctrl-C.\n", d.Plane.Kubeconfig)
		<-ctx.Done()
	}
	return nil
}

func keepRunning() bool { return os.Getenv("KEEP") == "1" }
