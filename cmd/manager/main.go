// Command manager runs the controllers of the operator. It computes the desired settings of nodes and volumes, rolls them out, and
// reports the status.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"

	// Maintenance windows use time zone names, and the image has no time zone database.
	_ "time/tzdata"

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
