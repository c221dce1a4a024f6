package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	"github.com/storageclient/operator/agent/metrics"
)

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
