package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host/workload"
)

// WorkCommand is the argument with which this program runs a workload, as a child of the process that has the mount.
const WorkCommand = "trial-work"

const (
	// cleanupTime is the time in which an interrupted workload must remove its files.
	cleanupTime = 5 * time.Second
	// maxWorkText limits the error text of a workload, in bytes.
	maxWorkText = 512
)

type workOrder struct {
	User    int
	Options workload.Options
}

// startWork runs a workload in a separate process, because a permanent change of root and user applies to whole processes.
func startWork(ctx context.Context, order workOrder) (workload.Result, error) {
	input, err := json.Marshal(order)
	if err != nil {
		return workload.Result{}, err
	}
	var output, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", WorkCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(input), &output, &stderr, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = cleanupTime
	if err := cmd.Run(); err != nil {
		if text := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "node-agent: "); text != "" && ctx.Err() == nil {
			return workload.Result{}, errors.New(text[:min(len(text), maxWorkText)])
		}
		return workload.Result{}, fmt.Errorf("run the workload process: %w", err)
	}
	var result workload.Result
	if err := json.Unmarshal(output.Bytes(), &result); err != nil {
		return workload.Result{}, fmt.Errorf("read the workload result: %w", err)
	}
	return result, nil
}

// RunWork is the main function of that process. It changes to the volume and to the user before it accesses files, so no link leads out.
func RunWork(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var order workOrder
	if err := json.NewDecoder(io.LimitReader(stdin, 64<<10)).Decode(&order); err != nil {
		return fmt.Errorf("read the workload order: %w", err)
	}
	if order.User <= 0 {
		return errors.New("the workload must not run as root")
	}
	if err := enterVolume(order.User); err != nil {
		return err
	}
	order.Options.Path = path.Join("/", order.Options.Path)
	result, err := workload.Run(ctx, order.Options)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// enterVolume changes the whole process, permanently.
func enterVolume(user int) error {
	var state unix.Statfs_t
	if err := unix.Statfs(volumeDir, &state); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if state.Type != unix.NFS_SUPER_MAGIC {
		return errors.New("no NFS mount at " + volumeDir + ": only the trial runner may run this command")
	}
	if err := changeRoot(user); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(user), syscall.Setuid(user)); err != nil {
		return fmt.Errorf("become user %d without groups: %w", user, err)
	}
	return nil
}

// changeRoot accesses the volume's root as the user, because the server may grant root no access. The process keeps the right to change the root.
func changeRoot(user int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := becomeOnThread(user); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(volumeDir), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter the volume: %w", err)
	}
	return nil
}

func durationOf(p workload.Pass) time.Duration {
	return time.Duration(p.Seconds * float64(time.Second))
}
