package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dirs contains the paths on this machine.
type Dirs struct {
	// Cache contains built tools and disks: SCO_CACHE, or storage-client-operator in the user's cache.
	Cache string
	// Binaries contains etcd, the Kubernetes binaries and containerd: SCO_BINARIES, or sets/e2e in the cache.
	Binaries string
	// Run contains the state of the one cluster that runs: e2e/run in the cache.
	Run string
}

// FindDirs reads the directories from the environment, and checks that the built tools exist.
func FindDirs() (Dirs, error) {
	d := Dirs{Cache: os.Getenv("SCO_CACHE"), Binaries: os.Getenv("SCO_BINARIES")}
	if d.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return Dirs{}, err
		}
		d.Cache = filepath.Join(cache, "storage-client-operator")
	}
	if d.Binaries == "" {
		d.Binaries = filepath.Join(d.Cache, "sets", "e2e")
	}
	d.Run = filepath.Join(d.Cache, "e2e", "run")
	for _, file := range append(d.nodeBinaries(), d.binary("etcd"), d.binary("kube-apiserver"),
		d.binary("kube-controller-manager"), d.binary("kube-scheduler"), d.binary("kubectl")) {
		if _, err := os.Stat(file); err != nil {
			return Dirs{}, fmt.Errorf("a tool is missing, \"make e2e\" builds it: %w", err)
		}
	}
	return d, nil
}

// Kubeconfig is an administrator's kubeconfig.
func (d Dirs) Kubeconfig() string { return filepath.Join(d.Run, "admin.kubeconfig") }

// Logs is the directory with the output of every process and the consoles of the machines.
func (d Dirs) Logs() string { return filepath.Join(d.Run, "logs") }

func (d Dirs) Kubectl() string { return d.binary("kubectl") }

func (d Dirs) binary(name string) string { return filepath.Join(d.Binaries, name) }

// nodeBinaries lists the binaries on the base disk.
func (d Dirs) nodeBinaries() []string {
	return []string{
		d.binary("kubelet"),
		d.binary("containerd"), d.binary("containerd-shim-runc-v2"), d.binary("ctr"),
	}
}

func (d Dirs) base() string            { return filepath.Join(d.Cache, "e2e", "base") }
func (d Dirs) workloadArchive() string { return filepath.Join(d.Cache, "e2e", "workload.tar") }
func (d Dirs) pids() string            { return filepath.Join(d.Run, "pids") }
func (d Dirs) disks() string           { return filepath.Join(d.Run, "disks") }
func (d Dirs) etcd() string            { return filepath.Join(d.Run, "etcd") }
func (d Dirs) keys() string            { return filepath.Join(d.Run, "keys") }
func (d Dirs) key(name string) string  { return filepath.Join(d.Run, "keys", name) }
