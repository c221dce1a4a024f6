package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/storageclient/operator/test/reaper"
)

// inNamespace marks a process that EnterNamespace has started over.
const inNamespace = "SCO_E2E_NAMESPACE"

// EnterNamespace restarts this process in its own network namespace, unless it is already in one. The namespace exists until its last
// process exits. Without root, it also creates a user namespace. A process cannot leave the namespace, so downloads and builds must
// finish before (Prepare).
func EnterNamespace() error {
	if InNamespace() {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return execute(append(asRoot("--net"), append([]string{self}, os.Args[1:]...)...), inNamespace+"=1")
}

// InNamespace reports whether this process runs in the namespace of EnterNamespace.
func InNamespace() bool { return os.Getenv(inNamespace) != "" }

// Join restarts this process in the network namespace of the running cluster, unless it is already in one.
func (c *Cluster) Join() error {
	if InNamespace() {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.Exec(append([]string{"env", inNamespace + "=1", self}, os.Args[1:]...)...)
}

// Exec replaces this process by a command in the network namespace of the running cluster, with KUBECONFIG set and
// kubectl in PATH.
func (c *Cluster) Exec(argv ...string) error {
	all, err := recorded(c.dirs.pids())
	if err != nil {
		return err
	}
	for _, p := range all {
		if !p.running() {
			continue
		}
		enter := []string{"nsenter", fmt.Sprintf("--target=%d", p.pid), "--net"}
		if os.Geteuid() != 0 {
			enter = append(enter, "--user", "--preserve-credentials")
		}
		path := c.dirs.Binaries + string(filepath.ListSeparator) + os.Getenv("PATH")
		return execute(append(append(enter, "--"), argv...), "KUBECONFIG="+c.dirs.Kubeconfig(), "PATH="+path)
	}
	return fmt.Errorf("no cluster is running in %s", c.dirs.Run)
}

// asRoot returns the start of a command line that runs the rest as root, in a user namespace if necessary.
func asRoot(flags ...string) []string {
	argv := append([]string{"unshare"}, flags...)
	if os.Geteuid() != 0 {
		argv = append(argv, "--user", "--map-root-user", "--map-auto")
	}
	return append(argv, "--")
}

func execute(argv []string, env ...string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, argv, append(reaper.Environ(), env...)))
}

// setUpNetwork creates the bridge 10.99.0.1/24 with a tap for each machine, and routes to the nodes' pods.
func (c *Cluster) setUpNetwork(ctx context.Context) error {
	lines := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "br0", "type", "bridge"},
		{"ip", "address", "add", hostAddress + "/24", "dev", "br0"},
		{"ip", "link", "set", "br0", "up"},
	}
	for _, m := range c.Machines() {
		lines = append(lines,
			[]string{"ip", "tuntap", "add", m.tap(), "mode", "tap"},
			[]string{"ip", "link", "set", m.tap(), "master", "br0", "up"})
	}
	for _, m := range c.Members() {
		lines = append(lines, []string{"ip", "route", "add", m.podRange(), "via", m.Address, "dev", "br0"})
	}
	for _, argv := range lines {
		if err := command(ctx, argv...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
