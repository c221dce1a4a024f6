//go:build gitops

package gitops

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/test/reaper"
)

// soak is the time for which the operator's manifests must stay Synced and Healthy.
var soak = flag.Duration("soak", 30*time.Second, "how long the operator's manifests must stay Synced and Healthy in Argo CD, e.g. 1h")

// insideVariable is set for the process in the network namespace of the run.
const insideVariable = "SCO_GITOPS_INSIDE"

// programs are the programs that the run needs, with their Debian packages.
var programs = []struct{ name, debian string }{
	{"git", "git"}, {"redis-server", "redis-server"}, {"ip", "iproute2"}, {"unshare", "util-linux"},
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := enter(); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
	ctrl.SetLogger(logr.Discard())
	m.Run()
}

// enter replaces this process with itself in a new network namespace: the engines listen on fixed ports of all addresses.
func enter() error {
	var missing error
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			missing = errors.Join(missing, fmt.Errorf("the engines need %s: run apt-get install %s", p.name, p.debian))
		}
	}
	if missing != nil {
		return missing
	}
	if os.Getenv(insideVariable) == "" {
		unshare, err := exec.LookPath("unshare")
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		args := []string{"unshare", "--net"}
		if os.Getuid() != 0 {
			args = append(args, "--map-root-user")
		}
		return syscall.Exec(unshare, append(append(args, self), os.Args[1:]...), append(os.Environ(), insideVariable+"=1"))
	}
	// kube-apiserver needs a default route for its own address.
	for _, command := range []string{"link set lo up", "address add 10.254.0.1/32 dev lo", "route add default dev lo"} {
		if output, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, output)
		}
	}
	return reaper.Start()
}
