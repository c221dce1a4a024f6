package trialrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/storageclient/operator/agent/host/probe"
)

// Runner accepts orders on a socket. It accepts them only from root, and runs one at a time.
type Runner struct {
	// Work runs an order until the context is done.
	Work func(ctx context.Context, order probe.Order) (probe.Result, error)

	// uid is the only user ID that may connect.
	uid  uint32
	busy sync.Mutex
}

// Listen creates a socket that only root can use. It replaces the socket of an earlier runner.
func Listen(ctx context.Context, dir string) (net.Listener, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("listen for orders: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("listen for orders: %w", err)
	}
	name := filepath.Join(dir, Socket)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen for orders: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if err != nil {
		return nil, fmt.Errorf("listen for orders: %w", err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("listen for orders: %w", err)
	}
	return listener, nil
}

// Serve handles orders until the context is done.
func (r *Runner) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		connection, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept an order: %w", err)
		}
		calls.Go(func() { r.serveCall(ctx, connection) })
	}
}

func (r *Runner) serveCall(ctx context.Context, connection net.Conn) {
	defer connection.Close()
	log := logr.FromContextOrDiscard(ctx)
	if err := checkPeer(connection, r.uid); err != nil {
		log.Info("Rejected a caller", "reason", err.Error())
		return
	}
	var order probe.Order
	err := connection.SetReadDeadline(time.Now().Add(orderTimeout))
	if err == nil {
		err = readMessage(connection, &order)
	}
	if err == nil {
		err = connection.SetReadDeadline(time.Time{})
	}
	if err != nil {
		log.Info("Cannot read an order", "error", err.Error())
		_ = writeMessage(connection, answer{Refused: "the trial runner cannot read the order; it may have an earlier release: " + err.Error()})
		return
	}
	if err := writeMessage(connection, r.carryOut(ctx, connection, order)); err != nil {
		log.Info("Cannot send the result of an order", "order", order.ID, "error", err.Error())
	}
}

// carryOut stops when the caller disconnects, so that an abandoned order does not leave mounts.
func (r *Runner) carryOut(ctx context.Context, call io.Reader, order probe.Order) answer {
	if !r.busy.TryLock() {
		return answer{Refused: errBusy.Error(), Busy: true}
	}
	defer r.busy.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(order.Timeout, maxTimeout))
	defer cancel()
	go func() {
		// The caller sends no more data. The read returns when the call ends.
		_, _ = call.Read(make([]byte, 1))
		cancel()
	}()
	log := logr.FromContextOrDiscard(ctx).WithValues("order", order.ID, "server", order.Server, "path", order.Path)
	log.Info("Running an order", "options", order.Options)
	result, err := r.Work(ctx, order)
	if err != nil {
		log.Info("Cannot run an order", "error", err.Error())
		return answer{Refused: err.Error()}
	}
	log.Info("Finished an order", "tried", result.Tried, "succeeded", result.Succeeded, "message", result.Message)
	return answer{Result: result}
}
