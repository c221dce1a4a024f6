// Package cluster starts a Kubernetes cluster of virtual machines for the end-to-end test. The control plane runs as processes of this
// machine. The nodes run Debian in QEMU with their own kernel, GRUB, systemd, kubelet and NFS client. One more machine is only an NFS
// server. All addresses are in one network namespace of the run.
//
// The run directory records the process ID of every process, so that Down can end it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/storageclient/operator/test/patience"
)

const (
	// ServerAddress is the address of the machine that serves NFS.
	ServerAddress = "10.99.0.13"
	// ServerExport is the directory that it exports.
	ServerExport = "/srv/nfs"
	// WorkloadImage is the image of test/e2e/workload on every node.
	WorkloadImage = "e2e.local/workload:dev"

	// nodeMemory in MiB: an inode hash of 128 MiB needs 16 times as much, and one node must have enough for the pods of both.
	nodeMemory = 2560
	// smallMemory in MiB limits an inode hash to 64 MiB.
	smallMemory  = 1536
	serverMemory = 512
	nodeLabels   = "agentpool=azfiles"
	// smallTaints keep pods that do not tolerate everything on the nodes with enough memory.
	smallTaints = "e2e.local/small=true:NoSchedule"

	upTimeout = 15 * time.Minute
)

// Cluster is a running cluster.
type Cluster struct {
	// Nodes are the machines that joined the cluster and take pods.
	Nodes []*Machine
	// Small is a node with less memory and a taint, so that only the node agent runs there. Nil if the run skips it.
	Small *Machine
	// Server is the NFS server. It is not a node of the cluster.
	Server *Machine

	dirs    Dirs
	accel   accelerator
	lock    *os.File
	started map[string]process
}

// New describes the cluster of the run directory, whether it runs or not.
func New(dirs Dirs) *Cluster {
	c := &Cluster{dirs: dirs, Server: newMachine(dirs, 3, serverMemory), Small: newMachine(dirs, 4, smallMemory), started: map[string]process{}}
	for i := 1; i <= 2; i++ {
		c.Nodes = append(c.Nodes, newMachine(dirs, i, nodeMemory))
	}
	c.Small.taints = smallTaints
	return c
}

// Members returns the machines that are nodes of the cluster.
func (c *Cluster) Members() []*Machine {
	return c.withSmall(slices.Clone(c.Nodes))
}

// Machines returns all virtual machines, in the order of their numbers.
func (c *Cluster) Machines() []*Machine {
	return c.withSmall(append(slices.Clone(c.Nodes), c.Server))
}

func (c *Cluster) withSmall(machines []*Machine) []*Machine {
	if c.Small == nil {
		return machines
	}
	return append(machines, c.Small)
}

// RESTConfig returns an administrator's access to the API server, from within the network namespace.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.dirs.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.dirs.Kubeconfig(), err)
	}
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// Up starts a new cluster: nodes Ready, images imported, NFS served. The process must be in its own network namespace (EnterNamespace)
// and hold the run directory (Acquire). The base disk must exist (Prepare). The images are archives to import on the nodes in addition to
// the workload's image. Up calls progress with each step.
func (c *Cluster) Up(ctx context.Context, images []string, progress func(format string, args ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(upTimeout))
	defer cancel()
	c.accel = chooseAccelerator(ctx, c.dirs)
	progress("virtual machines by %s", c.accel.description)
	steps := []struct {
		what string
		run  func(context.Context) error
	}{
		{"network", c.setUpNetwork},
		{"keys", c.makeKeys},
		{"machines started", c.startMachines},
		{"control plane ready", c.startControlPlane},
		{"nodes Ready", c.waitForNodes},
		{"NFS served", c.startNFSServer},
		{"images imported", func(ctx context.Context) error { return c.Import(ctx, append(images, c.dirs.workloadArchive())...) }},
	}
	for _, step := range steps {
		begin := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		progress("%s after %.0f s", step.what, time.Since(begin).Seconds())
	}
	return nil
}

// Down ends every process of the run and deletes the machines' disks. The logs stay. It fails if another process holds the run directory.
func (c *Cluster) Down() error {
	if err := c.takeLock(); err != nil {
		return err
	}
	errs := []error{stopAll(c.dirs.pids())}
	for _, dir := range c.Disposable() {
		errs = append(errs, os.RemoveAll(dir))
	}
	errs = append(errs, c.lock.Close())
	c.lock = nil
	return errors.Join(errs...)
}

// Disposable lists the directories that are unused after the cluster's processes have finished.
func (c *Cluster) Disposable() []string { return []string{c.dirs.disks(), c.dirs.etcd()} }

// Acquire reserves the run directory for this process until it exits or calls Down, and cleans up after an earlier run. It fails if
// another process holds the directory.
func (c *Cluster) Acquire() error {
	if err := c.takeLock(); err != nil {
		return err
	}
	if err := stopAll(c.dirs.pids()); err != nil {
		return fmt.Errorf("stop an earlier run: %w", err)
	}
	if err := os.RemoveAll(c.dirs.Run); err != nil {
		return err
	}
	for _, dir := range []string{c.dirs.pids(), c.dirs.Logs(), c.dirs.disks(), c.dirs.keys()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) takeLock() error {
	if c.lock != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.dirs.Run), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(c.dirs.Run+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("lock %s (another run may be in progress): %w", lock.Name(), err), lock.Close())
	}
	c.lock = lock
	return nil
}
