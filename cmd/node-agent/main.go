// Command node-agent runs on every managed node. It applies the settings of the node's StorageClientNode, reports their state, and reboots the node
// when it has a permit. Other commands apply settings once to one machine or image tree, without a cluster and without a reboot.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/cmd/internal/terminal"
)

//go:embed usage.txt
var usage string

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
	case localreport.Plan, localreport.Apply, localreport.Observe, localreport.Restore:
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

// parseFlags parses the flags of a command. It writes their help to stderr, and rejects other arguments.
func parseFlags(set *flag.FlagSet, args []string, stderr io.Writer) error {
	set.SetOutput(stderr)
	if err := set.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return nil
}

// version returns the module version and the commit of the build.
func version() string {
	info, revision := program.Build()
	return strings.TrimSpace(info.Main.Version + " " + revision)
}
