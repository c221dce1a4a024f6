package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/apiclient"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/host/reboot"
	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/agent/trialrunner"
	"github.com/storageclient/operator/cmd/internal/program"
)

type options struct {
	nodeName, hostRoot, kubeletDir, kubeconfig string
	probeAddress, metricsAddress               string
	metricsSecure                              bool
	allow, allowFilesystems                    program.Strings
	verbosity                                  int
}

const allowFilesystemUsage = "directory, for example /scratch, at and below which profiles can set mount options of host file systems, in addition to " +
	"/mnt, /data, /srv, and application directories in /var/lib; can be repeated"

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("node-agent run", flag.ContinueOnError)
	set.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this Node; default: environment variable NODE_NAME")
	set.StringVar(&o.hostRoot, "host-root", "/host", "mount point of the host's root directory")
	set.StringVar(&o.kubeletDir, "kubelet-dir", mounts.DefaultKubeletDir, "root directory of the kubelet on the host")
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file, for use outside a cluster")
	set.StringVar(&o.probeAddress, "health-probe-bind-address", "127.0.0.1:9809",
		"address of /healthz and /readyz; the agent uses the network of the node, so a loopback address is reachable only on the node")
	set.StringVar(&o.metricsAddress, "metrics-bind-address", metrics.Off,
		"loopback address and port of /metrics, for example 127.0.0.1:9810, for a scraper on the node; callers are not authenticated; 0 disables it")
	set.BoolVar(&o.metricsSecure, "metrics-secure", false,
		"serve metrics over TLS to clients with permission to get /metrics; --metrics-bind-address can then be an address that "+
			"is reachable from outside the node")
	set.Var(&o.allow, "allow-parameter",
		"regular expression of canonical keys that are accepted in addition to the catalogue; with \"=\", of a key and a value "+
			"below the catalogue's minimum; can be repeated")
	set.Var(&o.allowFilesystems, "allow-filesystem", allowFilesystemUsage)
	set.IntVar(&o.verbosity, "v", 0, "log verbosity, 0 or more")
	if err := parseFlags(set, args, stderr); err != nil {
		return o, err
	}
	if o.nodeName == "" {
		return o, errors.New("--node-name or NODE_NAME is required")
	}
	return o, o.checkMetrics()
}

func (o options) checkMetrics() error {
	check := metrics.CheckAddress
	switch {
	case o.metricsSecure && o.metricsAddress == metrics.Off:
		return errors.New("--metrics-secure requires --metrics-bind-address, for example [$(HOST_IP)]:9810")
	case o.metricsSecure:
		check = metrics.CheckSecureAddress
	}
	if err := check(o.metricsAddress); err != nil {
		return fmt.Errorf("--metrics-bind-address %w", err)
	}
	return nil
}

// run runs the agent until it receives a signal. On exit, it reverts unconfirmed settings and leaves the rest of the host unchanged.
func run(args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	logger := logr.FromSlogHandler(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}))
	klog.SetLogger(logger)
	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), logger), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fs, err := host.OpenFS(o.hostRoot)
	if err != nil {
		return err
	}
	defer fs.Close()
	unlock, err := fs.Lock()
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	a, err := newAgent(o, fs)
	if err != nil {
		return err
	}
	probeServer, err := serve(ctx, o.probeAddress, "health probes", nil, probeHandler(a))
	if err != nil {
		return err
	}
	defer probeServer.Close()
	if o.metricsAddress != metrics.Off {
		metricsServer, err := listenForMetrics(ctx, o, fs, a)
		if err != nil {
			return err
		}
		defer metricsServer.Close()
	}
	logger.Info("Running", "node", o.nodeName, "version", version())
	a.Run(ctx)
	return nil
}

func listenForMetrics(ctx context.Context, o options, fs host.FS, a *agent.Agent) (*http.Server, error) {
	handler, err := metrics.NewHandler(append(a.Metrics(), &metrics.Collector{
		Mounts: mounts.NewReader(fs, o.kubeletDir), Log: logr.FromContextOrDiscard(ctx),
	})...)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	if !o.metricsSecure {
		mux.Handle("GET /metrics", handler)
		return serve(ctx, o.metricsAddress, "metrics", nil, mux)
	}
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load client configuration: %w", err)
	}
	authorizer, err := metrics.NewAuthorizer(config, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /metrics", authorizer.Guard(handler))
	return serve(ctx, o.metricsAddress, "metrics", metrics.TLSConfig(o.nodeName, o.metricsAddress, clock.RealClock{}), mux)
}

func newAgent(o options, fs host.FS) (*agent.Agent, error) {
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load client configuration: %w", err)
	}
	config.UserAgent = "storage-client-node-agent"
	api, err := apiclient.New(config, o.nodeName, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	commands := host.NewCommands(fs)
	machine := agent.NewHost(fs, commands, reboot.New(fs, commands), o.kubeletDir)
	machine.Probe = func(ctx context.Context, order probe.Order) (probe.Result, error) {
		return trialrunner.Ask(ctx, filepath.Join(o.hostRoot, trialrunner.Dir, trialrunner.Socket), order)
	}
	return agent.New(agent.Config{
		Host: machine, API: api, Allowed: agent.Allowed{Parameters: o.allow, Filesystems: o.allowFilesystems}, Clock: clock.RealClock{},
	})
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// state is the state of the agent that the probes check.
type state interface {
	// Alive reports whether the loop still makes passes.
	Alive() bool
	// Ready reports whether the agent has written a status since the start.
	Ready() bool
}

// serve serves until the server is closed. An address in use is an error, because another agent runs on this node. With a TLS
// configuration, it serves remote callers, and limits the number of their connections.
func serve(ctx context.Context, address, endpoint string, config *tls.Config, handler http.Handler) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", endpoint, err)
	}
	if config != nil {
		listener = tls.NewListener(metrics.Limited(listener), config)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
		// Do not log errors of callers, especially in the handshake.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logr.FromContextOrDiscard(ctx).Error(err, "Stopped serving", "endpoint", endpoint)
		}
	}()
	return server, nil
}

func probeHandler(s state) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", handleProbe(s.Alive, "agent loop is stuck"))
	mux.HandleFunc("GET /readyz", handleProbe(s.Ready, "agent has not written a status yet"))
	return mux
}

func handleProbe(isHealthy func() bool, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !isHealthy() {
			http.Error(w, message, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
