package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopGrace is the time that processes have to exit before they are killed.
const stopGrace = 5 * time.Second

// process is a process by its ID and its start time in clock ticks, so that a reused ID does not match.
type process struct {
	pid   int
	began string
}

// start runs a daemon in its own session, writes its output to the run's logs, and records its process ID.
func (c *Cluster) start(name string, argv ...string) error {
	log, err := os.OpenFile(filepath.Join(c.dirs.Logs(), name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dirs.keys(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Memory is plenty, and the control plane shares two cores with the machines.
	cmd.Env = append(os.Environ(), "GOGC=400")
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p := process{pid: cmd.Process.Pid, began: began(cmd.Process.Pid)}
	prefer(p.pid)
	// Reaps it, so that a finished process does not count as running.
	go func() { _ = cmd.Wait() }()
	c.started[name] = p
	record := fmt.Sprintf("%d %s\n", p.pid, p.began)
	return os.WriteFile(filepath.Join(c.dirs.pids(), name), []byte(record), 0o600)
}

// prefer gives a process about three times the CPU time of other sessions on a busy machine: an emulated manager that waits too long loses its
// lease. It needs root and a kernel with autogroups, see sched(7); without them, all sessions get the same.
func prefer(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte("-5"), 0)
}

// stop ends a process that start has started. For a machine this is like a power cut. QEMU itself must not be killed, because the disk's
// tables in its memory would be lost.
func (c *Cluster) stop(name string) error {
	p := []process{c.started[name]}
	signalAll(p, syscall.SIGTERM)
	if !gone(p, stopGrace) {
		return fmt.Errorf("%s does not exit", name)
	}
	delete(c.started, name)
	return nil
}

func (p process) running() bool { return p.began != "" && began(p.pid) == p.began }

// began returns the start time of a process in clock ticks since boot. Empty if the process has finished.
func began(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command, second field, is in parentheses and may hold blanks. The state is the third field, the start time the 22nd.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// recorded reads the processes that start recorded.
func recorded(dir string) ([]process, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var found []process
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		id, at, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		pid, err := strconv.Atoi(id)
		if err != nil {
			return nil, fmt.Errorf("read process id %s: %w", file.Name(), err)
		}
		found = append(found, process{pid: pid, began: at})
	}
	return found, nil
}

// stopAll ends the recorded processes, and kills them if they do not exit in time. An API server waits for etcd forever.
func stopAll(dir string) error {
	all, err := recorded(dir)
	if err != nil {
		return err
	}
	signalAll(all, syscall.SIGTERM)
	if !gone(all, stopGrace) {
		signalAll(all, syscall.SIGKILL)
		if !gone(all, stopGrace) {
			return fmt.Errorf("processes recorded in %s do not exit", dir)
		}
	}
	return os.RemoveAll(dir)
}

func signalAll(all []process, signal syscall.Signal) {
	for _, p := range all {
		if p.running() {
			_ = syscall.Kill(p.pid, signal)
		}
	}
}

func gone(all []process, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() error {
		for _, p := range all {
			if p.running() {
				return fmt.Errorf("process %d is still running", p.pid)
			}
		}
		return nil
	}) == nil
}

// poll calls check until it succeeds. When ctx ends, it returns the last error of check.
func poll(ctx context.Context, every time.Duration, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(every):
		}
	}
}

// poll does the same while all processes of the cluster run.
func (c *Cluster) poll(ctx context.Context, every time.Duration, check func() error) error {
	var ended error
	err := poll(ctx, every, func() error {
		for name, p := range c.started {
			if !p.running() {
				ended = fmt.Errorf("%s has exited, see %s", name, c.dirs.Logs())
				return nil
			}
		}
		return check()
	})
	return errors.Join(err, ended)
}

// command runs a host command and waits for it. The error contains the end of the output.
func command(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tail(out))
	}
	return nil
}

// tail returns the end of some output, for an error.
func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return strings.TrimSpace(string(out))
}
