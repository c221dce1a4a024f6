package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dirs says where things are on this machine.
type Dirs struct {
	// Cache is where built tools and disks are kept: SCO_CACHE, or storage-client-operator in the user's cache.
	Cache string
	// Tools holds containerd, ctr and containerd-shim-runc-v2: SCO_TOOLS, or bin in the cache.
	Tools string
	// ControlPlane holds etcd and the Kubernetes binaries: SCO_CONTROLPLANE, or the newest controlplane-* in the cache.
	ControlPlane string
	// Run is the state of the one cluster that runs: e2e/run in the cache.
	Run string
}

// FindDirs takes the directories from the environment, and checks that the built tools are there.
func FindDirs() (Dirs, error) {
	d := Dirs{Cache: os.Getenv("SCO_CACHE"), Tools: os.Getenv("SCO_TOOLS"), ControlPlane: os.Getenv("SCO_CONTROLPLANE")}
	if d.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return Dirs{}, err
		}
		d.Cache = filepath.Join(cache, "storage-client-operator")
	}
	if d.Tools == "" {
		d.Tools = filepath.Join(d.Cache, "bin")
	}
	if d.ControlPlane == "" {
		found, err := filepath.Glob(filepath.Join(d.Cache, "controlplane-*"))
		if err != nil || len(found) == 0 {
			return Dirs{}, fmt.Errorf("no controlplane-* in %s: \"make e2e\" builds it", d.Cache)
		}
		d.ControlPlane = found[len(found)-1]
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

// Logs holds the output of every process and the consoles of the machines.
func (d Dirs) Logs() string { return filepath.Join(d.Run, "logs") }

// Kubectl is the path of kubectl.
func (d Dirs) Kubectl() string { return d.binary("kubectl") }

func (d Dirs) binary(name string) string { return filepath.Join(d.ControlPlane, name) }

// nodeBinaries are what is copied into the base disk.
func (d Dirs) nodeBinaries() []string {
	return []string{
		d.binary("kubelet"), d.binary("kube-proxy"),
		filepath.Join(d.Tools, "containerd"), filepath.Join(d.Tools, "containerd-shim-runc-v2"), filepath.Join(d.Tools, "ctr"),
	}
}

func (d Dirs) base() string            { return filepath.Join(d.Cache, "e2e", "base") }
func (d Dirs) workloadArchive() string { return filepath.Join(d.Cache, "e2e", "workload.tar") }
func (d Dirs) pids() string            { return filepath.Join(d.Run, "pids") }
func (d Dirs) disks() string           { return filepath.Join(d.Run, "disks") }
func (d Dirs) etcd() string            { return filepath.Join(d.Run, "etcd") }
func (d Dirs) keys() string            { return filepath.Join(d.Run, "keys") }
func (d Dirs) key(name string) string  { return filepath.Join(d.Run, "keys", name) }
