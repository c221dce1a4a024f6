package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// state is what the probes ask of the agent.
type state interface {
	// Alive tells whether the loop still turns.
	Alive() bool
	// Ready tells whether a status has been written since the start.
	Ready() bool
}

// serveHTTP serves until it is closed. An address that is taken is an error: another agent runs on this node.
func serveHTTP(ctx context.Context, address, what string, handler http.Handler) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logr.FromContextOrDiscard(ctx).Error(err, "Stopped serving", "what", what)
		}
	}()
	return server, nil
}

func probeHandler(s state) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answerProbe(s.Alive, "the loop has been stuck for too long"))
	mux.HandleFunc("GET /readyz", answerProbe(s.Ready, "no status has been written yet"))
	return mux
}

func answerProbe(good func() bool, why string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !good() {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
