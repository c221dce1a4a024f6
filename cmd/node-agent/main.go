// Command node-agent runs on every managed node. It applies the settings of the node's StorageClientNode, reports their state, and
// reboots the node when it has a permit. Other commands apply settings once to one machine or image tree, without a cluster and without a
// reboot.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/report"
)

const usage = `usage: node-agent COMMAND

  run      keep this node as its StorageClientNode says ("node-agent run -h" lists the flags)
  version  print the version

  trial-runner  mount volumes once for the agent of this node, in a network that is not the node's; takes no flags
  trial-hold    stay until told to end, in the Pod of a clone of a volume; its probe is trial-read, which reads the clone's root
  trial-pass    do the work of one pass there and write what was counted to /dev/termination-log

Without a cluster, once, on this machine or on an image's tree (--host-root); each writes a report and never reboots:

  plan     -f PROFILE    show what apply would do; changes nothing
  apply    -f PROFILE    set what the profiles declare, restore what they no longer do, stage boot arguments
  observe  [-f PROFILE]  compare the machine with the profiles, or with what was applied last
  observe  --window 60s  show what the mounts do for a minute, and which setting would help or that none will
  restore  [-f PROFILE]  restore the original values from the journal
  workload --name NAME --path DIRECTORY  list, read, create or write, to see what a mount makes of it

Several profiles, from several -f or in one file, are merged as on a node. A host root without a running kernel is an
image: files and the boot menu are written, live values are not touched.

Exit code: 0: as declared (plan: this host can take it; apply: may still need a reboot, see the report),
1: an error, nothing or only a part was done, 2: not as declared, the report says what and why.
`

func main() {
	err := command(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if errors.Is(err, errNotAsDeclared) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		os.Exit(1)
	}
}

func command(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "run":
		return run(args[1:], stderr)
	case trialRunner, trialMount, probe.WorkCommand:
		return runTrials(name, args[1:], stdin, stdout, stderr)
	case trialPass:
		return passOnClone(args[1:], stderr)
	case trialHold, trialRead:
		return visitClone(name)
	case report.Plan, report.Apply, report.Observe, report.Restore:
		return runLocal(name, args[1:], stdin, stdout, stderr)
	case workloadCommand:
		return runWorkload(args[1:], stdout, stderr)
	case "version":
		_, err := fmt.Fprintln(stdout, version())
		return err
	case "help", "-h", "-help", "--help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	}
	return fmt.Errorf("unknown command %q\n%s", name, usage)
}

// version returns the module version and the commit of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision := ""
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = " " + setting.Value
		}
	}
	return info.Main.Version + revision
}
