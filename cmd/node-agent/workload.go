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

const workloadCommand = "workload"

// runWorkload runs one workload on files and writes the result as JSON.
func runWorkload(args []string, stdout, stderr io.Writer) error {
	o := workload.Options{ID: fmt.Sprint(os.Getpid())}
	set := flag.NewFlagSet("node-agent "+workloadCommand, flag.ContinueOnError)
	set.StringVar((*string)(&o.Name), "name", "", fmt.Sprintf("workload: one of %v", workload.Names))
	set.StringVar(&o.Path, "path", "", "directory of the workload")
	set.DurationVar(&o.For, "for", 0, "time during which new passes start; default: one pass")
	set.DurationVar(&o.Pause, "pause", 0, "pause between two passes")
	set.IntVar(&o.Workers, "workers", 1, "number of concurrent workers")
	set.IntVar(&o.BlockKiB, "block-kib", 64, "block size of reads and writes, in KiB")
	set.BoolVar(&o.Direct, "direct", false, "bypass the page cache")
	set.BoolVar(&o.Sync, "sync", false, "wait for each write to reach stable storage")
	set.StringVar((*string)(&o.Attributes), "attributes", "",
		"order in which ListDirectory requests attributes: AtTheEnd (default), Interleaved, or Cached (in the client's cache, of any age)")
	set.BoolVar(&o.KeepCache, "keep-cache", false, "use data in this node's cache instead of dropping the cache first")
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
	r, err := workload.Run(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(r)
}
