// Command node-agent runs on every managed node. It applies the settings of the node's StorageClientNode, reports their state, and reboots the node
// when it has a permit. Other commands apply settings once to one machine or image tree, without a cluster and without a reboot.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/report"
	"github.com/storageclient/operator/cmd/internal/terminal"
)

const usage = `usage: node-agent COMMAND

  run      apply the settings of this node's StorageClientNode ("node-agent run -h" lists the flags)
  version  print the version

  trial-runner  run test mounts for the agent of this node in a separate network namespace; has no flags
  trial-hold    wait for a signal in the Pod of a volume's clone; its probe is trial-read, which reads the root directory of the clone
  trial-pass    run one pass of a workload in that Pod and write the result to /dev/termination-log

These commands run once, without a cluster, on this machine or on an image tree (--host-root). They print a report and never reboot:

  plan     -f PROFILE    show the changes that apply would make
  apply    -f PROFILE    apply the profiles, restore settings that they no longer declare, stage kernel arguments
  observe  [-f PROFILE]  compare the machine with the profiles, or with the last applied settings
  observe  --window 60s  measure the mounts for 60 seconds and recommend settings, if any help
  restore  [-f PROFILE]  restore the original values from the journal
  workload --name NAME --path DIRECTORY  list, read, create, or write files to measure a mount

Profiles from several -f flags or from one file are merged as on a node. A host root without a running kernel is an
image: the commands write files and the boot menu, and do not change live values.

Exit codes:
  0  as declared (plan: this host supports the profiles; apply: a reboot can still be required, see the report)
  1  error: nothing or only a part was applied
  2  not as declared: see the report
`

func main() {
	err := command(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if errors.Is(err, errNotAsDeclared) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(&terminal.Writer{Out: os.Stderr, Indent: "  "}, "node-agent:", err)
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
		return runLocal(name, args[1:], stdin, &terminal.Writer{Out: stdout}, stderr)
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
