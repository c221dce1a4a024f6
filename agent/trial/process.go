package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/storageclient/operator/agent/host/probe"
)

// killedAfter is how long a process that was told to end may take before it is killed: one that hangs in the kernel hears nothing.
const killedAfter = 10 * time.Second

// Process carries orders out in a process each: this very program, with arguments. It has a mount namespace of its own, so that
// what it mounts is seen by nobody and goes with it, however it dies.
func Process(args ...string) func(context.Context, probe.Order) (probe.Result, error) {
	return func(ctx context.Context, order probe.Order) (probe.Result, error) {
		return runProcess(ctx, order, args)
	}
}

func runProcess(ctx context.Context, order probe.Order, args []string) (probe.Result, error) {
	input, err := json.Marshal(order)
	if err != nil {
		return probe.Result{}, err
	}
	// The kernel's word that the process dies with its parent is about the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output := &bounded{limit: maxMessage}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, os.Stderr
	cmd.Env = []string{}
	// With it, Go makes the whole tree private: a runtime may have made parts of it shared, and nothing is to leave the process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	// It may have to remove what its work has written.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killedAfter
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return probe.Result{}, fmt.Errorf("timed out: no result after %s, and everything was unmounted", order.Timeout)
	case err != nil:
		return probe.Result{}, fmt.Errorf("the process that mounts: %w", err)
	}
	var result probe.Result
	if err := json.Unmarshal(output.Bytes(), &result); err != nil {
		return probe.Result{}, fmt.Errorf("read the result: %w", err)
	}
	return result, nil
}

// Mount is that process: it reads an order and writes its result. In a mount namespace that it has not got to itself, it does
// nothing: what it mounts over would be gone for others.
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
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("read the mount namespace: %w", err)
	}
	parents, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err != nil {
		return fmt.Errorf("read the mount namespace of the parent: %w", err)
	}
	if own == parents {
		return errors.New("not in a mount namespace of its own: only the trial runner starts this")
	}
	return nil
}

// bounded keeps what is written to it up to a limit, and refuses more.
type bounded struct {
	bytes.Buffer
	limit int
}

var errTooLong = errors.New("more output than is read")

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}
