package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/storageclient/operator/agent/trial"
)

const (
	// trialRunner takes the orders of the node's agent.
	trialRunner = "trial-runner"
	// trialMount carries out one order, as a process that the runner starts. It is not for people.
	trialMount = "trial-mount"
)

// runTrials takes orders until it is told to end, or carries out the one on its standard input.
func runTrials(command string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments", command)
	}
	if os.Getuid() != 0 {
		return errors.New(command + " needs root: it mounts")
	}
	logger := logr.FromSlogHandler(slog.NewTextHandler(stderr, nil))
	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), logger), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if command == trialMount {
		return trial.Mount(ctx, stdin, stdout)
	}
	listener, err := trial.Listen(ctx, trial.Dir)
	if err != nil {
		return err
	}
	logger.Info("Waiting for orders", "socket", listener.Addr().String(), "version", version())
	return (&trial.Runner{Work: trial.Process(trialMount)}).Serve(ctx, listener)
}
