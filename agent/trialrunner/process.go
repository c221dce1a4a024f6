package trialrunner

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
