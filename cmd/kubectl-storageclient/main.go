// Command kubectl-storageclient is the kubectl plugin "kubectl storageclient": it shows the state of profiles and what they
// would do, and approves their reboots.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return statusOfError(newRoot(streams).ExecuteContext(ctx))
}

// statusOfError is what the plugin ends with.
func statusOfError(err error) int {
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.status
	}
	return 1
}
