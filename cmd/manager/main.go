// Command manager runs the controllers of the operator. It computes the desired settings of nodes and volumes, rolls them out, and
// reports the status.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// run uses the global flag set, because controller-runtime registers --kubeconfig there.
func run(args []string) error {
	options := bindFlags(flag.CommandLine)
	if err := flag.CommandLine.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	settings, err := options.resolve()
	if err != nil {
		return err
	}
	if err := limitMemory(); err != nil {
		return err
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-settings.verbosity)}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("load client configuration: %w", err)
	}
	mgr, err := newManager(config, settings)
	if err != nil {
		return err
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// memoryLimitVariable is the environment variable with the container's memory limit in bytes. The Deployment sets it.
const memoryLimitVariable = "CONTAINER_MEMORY_LIMIT"

// heapShare is the percentage of the container's memory that the Go runtime may use. The rest is for memory that the runtime does not
// count; https://go.dev/doc/gc-guide#Memory_limit recommends 5 to 10 percent.
const heapShare = 90

// garbageShare is the GOGC value: garbage as a percentage of live memory. Go's default is 100. With thousands of nodes, memory is the
// first bottleneck.
const garbageShare = 50

// limitMemory sets the memory limit and GOGC of the Go runtime, so that the garbage collector frees memory before the kernel kills the
// process. The environment variables GOMEMLIMIT and GOGC take precedence.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
	value := os.Getenv(memoryLimitVariable)
	if value == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("environment variable %s: %q: must be a number of bytes above 0, or unset", memoryLimitVariable, value)
	}
	debug.SetMemoryLimit(limit / 100 * heapShare)
	return nil
}
