// Package cluster brings up a Kubernetes cluster of virtual machines for the end-to-end test: the control plane as
// processes of this machine, Debian nodes in QEMU with their own kernel, GRUB, systemd, kubelet and NFS client, and
// one more machine that is only an NFS server. All addresses live in one network namespace made for the run.
//
// Everything that is started is recorded by process id under the run directory, and ended by it.
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

	// nodeMemory in MiB: an inode hash of 128 MiB needs 16 times as much, and pods of two nodes fit on one.
	nodeMemory = 2560
	// smallMemory in MiB: the kernel would grant an inode hash of 64 MiB at most.
	smallMemory  = 1536
	serverMemory = 512
	nodeLabels   = "agentpool=azfiles"
	// smallTaints keep pods that do not tolerate everything on the nodes that have room for them.
	smallTaints = "e2e.local/small=true:NoSchedule"

	upTimeout = 15 * time.Minute
)

// Cluster is a running cluster.
type Cluster struct {
	// Nodes are the machines that joined the cluster and take pods.
	Nodes []*Machine
	// Small joined it too, with less memory and a taint: of pods, only the node agent comes there. Nil where it is left out.
	Small *Machine
	// Server is the NFS server. It is no node of the cluster.
	Server *Machine

	dirs    Dirs
	accel   accelerator
	lock    *os.File
	started map[string]process
}

// New describes the cluster that the run directory belongs to, whether it runs or not.
func New(dirs Dirs) *Cluster {
	c := &Cluster{dirs: dirs, Server: newMachine(dirs, 3, serverMemory), Small: newMachine(dirs, 4, smallMemory), started: map[string]process{}}
	for i := 1; i <= 2; i++ {
		c.Nodes = append(c.Nodes, newMachine(dirs, i, nodeMemory))
	}
	c.Small.taints = smallTaints
	return c
}

// Members are the machines that are nodes of the cluster.
func (c *Cluster) Members() []*Machine {
	return c.withSmall(slices.Clone(c.Nodes))
}

// Machines are all virtual machines, in the order of their numbers.
func (c *Cluster) Machines() []*Machine {
	return c.withSmall(append(slices.Clone(c.Nodes), c.Server))
}

func (c *Cluster) withSmall(machines []*Machine) []*Machine {
	if c.Small == nil {
		return machines
	}
	return append(machines, c.Small)
}

// RESTConfig is an administrator's access to the API server, from within the network namespace.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.dirs.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.dirs.Kubeconfig(), err)
	}
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// Up brings up a fresh cluster: nodes Ready, images imported, NFS served. The process must be in its own network
// namespace (EnterNamespace) and hold the run directory (Acquire), and the base disk must exist (Prepare). Images are
// archives to import on the nodes beside the workload's; progress is called with each step.
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

// Down ends every process of the run and drops the machines' disks. The logs stay. It fails where another process
// holds the run directory.
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

// Disposable lists the directories that are of no use once the cluster's processes have ended.
func (c *Cluster) Disposable() []string { return []string{c.dirs.disks(), c.dirs.etcd()} }

// Acquire takes the run directory for this process, until it ends or calls Down, and ends what an earlier run left
// there. It fails where another process holds it.
func (c *Cluster) Acquire() error {
	if err := c.takeLock(); err != nil {
		return err
	}
	if err := stopAll(c.dirs.pids()); err != nil {
		return fmt.Errorf("end an earlier run: %w", err)
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
		return errors.Join(fmt.Errorf("lock %s, is another run under way: %w", lock.Name(), err), lock.Close())
	}
	c.lock = lock
	return nil
}
