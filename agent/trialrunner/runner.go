package trialrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
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

// killedAfter is the time between SIGTERM and SIGKILL. A process that hangs in the kernel does not handle SIGTERM.
const killedAfter = 10 * time.Second

// RunProcess runs an order in a new process of this program with the given command. The process has a private mount namespace. Its mounts
// are isolated and disappear with the process, however it exits.
func RunProcess(ctx context.Context, order probe.Order, command string) (probe.Result, error) {
	input, err := json.Marshal(order)
	if err != nil {
		return probe.Result{}, err
	}
	// Pdeathsig is sent when the thread that started the process exits. Keep that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output := &bounded{limit: maxMessage}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, os.Stderr
	cmd.Env = []string{}
	// With this flag, Go makes the whole mount tree private. A container runtime may have shared parts of it, and mounts must not
	// propagate.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	// The process may have to remove files that its work has written.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killedAfter
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return probe.Result{}, fmt.Errorf("timed out: no result after %s, and everything was unmounted", order.Timeout)
	case err != nil:
		return probe.Result{}, fmt.Errorf("run the mount process: %w", err)
	}
	var result probe.Result
	if err := json.Unmarshal(output.Bytes(), &result); err != nil {
		return probe.Result{}, fmt.Errorf("read the result: %w", err)
	}
	return result, nil
}

// Mount is the main function of that process: it reads an order and writes the result. It returns an error if it shares the mount
// namespace of its parent, because its mounts would hide directories from other processes.
func Mount(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if err := checkOwnMounts(); err != nil {
		return err
	}
	var order probe.Order
	if err := readMessage(stdin, &order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	return writeMessage(stdout, probe.Run(ctx, order))
}

func checkOwnMounts() error {
	namespace, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("read the mount namespace: %w", err)
	}
	parents, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err != nil {
		return fmt.Errorf("read the mount namespace of the parent: %w", err)
	}
	if namespace == parents {
		return errors.New("not in a separate mount namespace; only the trial runner may start this command")
	}
	return nil
}

// bounded is a buffer that returns an error for output beyond its limit.
type bounded struct {
	bytes.Buffer
	limit int
}

var errTooLong = errors.New("too much output")

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}
