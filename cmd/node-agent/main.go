// Command node-agent runs on every managed node: it applies what the node's StorageClientNode declares, reports how
// the node stands, and reboots it where it has a permit.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

const usage = `usage: node-agent COMMAND

  run      keep this node as its StorageClientNode declares it ("node-agent run -h" lists the flags)
  version  print the version
`

func main() {
	if err := command(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		os.Exit(1)
	}
}

func command(args []string, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "run":
		return run(args[1:], stderr)
	case "version":
		_, err := fmt.Fprintln(stdout, version())
		return err
	case "help", "-h", "-help", "--help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	}
	return fmt.Errorf("unknown command %q\n%s", name, usage)
}

// version is the module's version, and the commit that the binary was built from.
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
