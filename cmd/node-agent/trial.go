package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/agent/trialrunner"
)

const (
	trialRunner = "trial-runner"
	// trialMount runs one order in a process that the runner starts. It is not for users.
	trialMount = "trial-mount"
)

// runTrials runs orders until it receives a signal, or runs the single order on its standard input.
func runTrials(command string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("%s accepts no arguments", command)
	}
	if os.Getuid() != 0 {
		return errors.New(command + " requires root")
	}
	logger := logr.FromSlogHandler(slog.NewTextHandler(stderr, nil))
	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), logger), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch command {
	case trialMount:
		return trialrunner.Mount(ctx, stdin, stdout)
	case probe.WorkCommand:
		return probe.RunWork(ctx, stdin, stdout)
	}
	listener, err := trialrunner.Listen(ctx, trialrunner.Dir)
	if err != nil {
		return err
	}
	logger.Info("Waiting for orders", "socket", listener.Addr().String(), "version", version())
	work := func(ctx context.Context, order probe.Order) (probe.Result, error) {
		return trialrunner.RunProcess(ctx, order, trialMount)
	}
	return (&trialrunner.Runner{Work: work}).Serve(ctx, listener)
}

const workloadCommand = "workload"

// workloadResult is the output: the time and the work of each pass, and the requests of the mount during all of them.
type workloadResult struct {
	workload.Result
	Operations    []probe.Operation `json:"operations,omitempty"`
	BytesSent     uint64            `json:"bytesSent,omitempty"`
	BytesReceived uint64            `json:"bytesReceived,omitempty"`
}

// runWorkload runs one workload on files and writes the result as JSON.
func runWorkload(args []string, stdout, stderr io.Writer) error {
	o := workload.Options{ID: fmt.Sprint(os.Getpid())}
	set := flag.NewFlagSet("node-agent "+workloadCommand, flag.ContinueOnError)
	set.StringVar((*string)(&o.Name), "name", "", fmt.Sprintf("workload: one of %v", workload.Names))
	set.StringVar(&o.Path, "path", "", "directory of the workload")
	set.DurationVar(&o.For, "for", 0, "time during which new passes start; default: one pass")
	set.DurationVar(&o.Pause, "pause", 0, "pause between two passes")
	set.IntVar(&o.Workers, "workers", 1, "number of concurrent workers, which share the work")
	set.IntVar(&o.BlockKiB, "block-kib", 0, "block size of reads and writes, in KiB; default: 64, for WriteSequential 1024")
	set.BoolVar(&o.Sync, "sync", false, "make WriteSequential wait for each write to reach stable storage")
	set.BoolVar(&o.Direct, "direct", false, "bypass the page cache")
	set.BoolVar(&o.Cached, "cached", false, "use cached attributes of any age, and data in this node's cache instead of dropping the cache first")
	set.BoolVar(&o.ThroughClient, "through-client", false, "make CopyFiles read and write the data, even if the server can copy it")
	set.Uint64Var(&o.MaxBytes, "max-bytes", 0, "number of bytes after which a pass ends; 0: no limit")
	set.BoolVar(&o.AllowWrites, "allow-writes", false,
		"allow CreateUnlink, WriteSequential, and CopyFiles, which write into a separate directory and remove it")
	if err := parseFlags(set, args, stderr); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if o.For < 0 || o.For > time.Hour || o.Pause < 0 {
		return fmt.Errorf("--for %s must be 0 to 1h, and --pause %s must be 0 or more", o.For, o.Pause)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, requests, err := probe.Count(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(workloadResult{r, requests.Operations, requests.BytesSent, requests.BytesReceived})
}
