// Command kubectl-storageclient is the kubectl plugin "kubectl storageclient". It shows the state and the plan of profiles, and approves
// their reboots.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return statusOfError(newRoot(streams).ExecuteContext(ctx))
}

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
