// Command kubectl-storageclient is the kubectl plugin "kubectl storageclient": it shows the state of profiles and what they
// would do, and approves their reboots.
package main

import (
	"context"
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
	if err := newRoot(streams).ExecuteContext(ctx); err != nil {
		return 1
	}
	return 0
}
