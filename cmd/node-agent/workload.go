package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/storageclient/operator/agent/host/workload"
)

// workloadCommand is the name of the command that runs a workload.
const workloadCommand = "workload"

// runWorkload runs one workload on files and writes the result as JSON.
func runWorkload(args []string, stdout, stderr io.Writer) error {
	o := workload.Options{ID: fmt.Sprint(os.Getpid())}
	set := flag.NewFlagSet("node-agent "+workloadCommand, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar((*string)(&o.Name), "name", "", fmt.Sprintf("kind of work, one of %v", workload.Names))
	set.StringVar(&o.Path, "path", "", "directory to work in")
	set.DurationVar(&o.For, "for", 0, "how long to begin passes; one by default")
	set.DurationVar(&o.Pause, "pause", 0, "how long to wait between two passes")
	set.IntVar(&o.Workers, "workers", 1, "how many do the work at a time")
	set.IntVar(&o.BlockKiB, "block-kib", 64, "size of a block of what reads or writes, in KiB")
	set.BoolVar(&o.Direct, "direct", false, "read and write past the page cache")
	set.BoolVar(&o.Sync, "sync", false, "wait for each write")
	set.StringVar((*string)(&o.Attributes), "attributes", "", "how ListDirectory asks for attributes: AtTheEnd (default), Interleaved, or Cached: those that the client has kept, however old")
	set.BoolVar(&o.KeepCache, "keep-cache", false, "read what is in this node's cache from there, instead of dropping it first")
	set.BoolVar(&o.ThroughClient, "through-client", false, "have CopyFiles read and write, whatever the server could do")
	set.Uint64Var(&o.MaxBytes, "max-bytes", 0, "bytes after which a pass ends; 0: none")
	set.BoolVar(&o.AllowWrites, "allow-writes", false, "allow CreateUnlink, WriteSequential and CopyFiles, which write into a directory of their own and remove it")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if o.For < 0 || o.For > time.Hour || o.Pause < 0 {
		return fmt.Errorf("--for %s, --pause %s: must be from 0 to 1h, and not under 0", o.For, o.Pause)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := workload.Run(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(r)
}
