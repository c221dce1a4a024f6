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

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/trial"
)

const (
	// trialRunner takes the orders of the node's agent.
	trialRunner = "trial-runner"
	// trialMount carries out one order, as a process that the runner starts. It is not for people.
	trialMount = "trial-mount"
	// trialHold and trialRead are what runs in the Pod of a volume's clone: it is to stay until it is deleted, and is Ready once the
	// clone's root was read.
	trialHold = "trial-hold"
	trialRead = "trial-read"
	// cloneDir is where the Pod has the clone (controllers/trial/plan).
	cloneDir = "/volume"
)

// visitClone does the Pod's part. It needs no rights at all.
func visitClone(command string) error {
	if command == trialRead {
		return probe.ReadRoot(cloneDir)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	return nil
}

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
	switch command {
	case trialMount:
		return trial.Mount(ctx, stdin, stdout)
	case probe.WorkCommand:
		return probe.RunWork(ctx, stdin, stdout)
	}
	listener, err := trial.Listen(ctx, trial.Dir)
	if err != nil {
		return err
	}
	logger.Info("Waiting for orders", "socket", listener.Addr().String(), "version", version())
	return (&trial.Runner{Work: trial.Process(trialMount)}).Serve(ctx, listener)
}
