package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the maximum time for a process to exit before it is killed.
const stopTimeout = 10 * time.Second

// Process is a program that runs next to the control plane.
type Process struct {
	// Name is the name from the start.
	Name string

	log  string
	from int64
	cmd  *exec.Cmd
	done chan struct{}
}

func startProcess(name, file string, argv []string) (*Process, error) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	process := &Process{Name: name, log: file, from: from, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(process.done)
		defer log.Close()
		_ = cmd.Wait() // its log contains the result
	}()
	return process, nil
}

// Kill kills the process, which has the effect of a crash.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the process may have exited already
	<-p.done
}

// Done is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process is still running.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *Process) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // the process may have exited already
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// Log returns the output of this process, without that of earlier processes of its name.
func (p *Process) Log() (string, error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return "", err
	}
	return string(data[min(p.from, int64(len(data))):]), nil
}

// Usage contains the resources that a process has used since its start.
type Usage struct {
	// CPU is user and system time.
	CPU time.Duration
	// PeakBytes is the largest resident set (VmHWM).
	PeakBytes int64
	// AnonymousBytes is the resident memory that is not backed by a file (RssAnon).
	AnonymousBytes int64
}

// Usage returns the resource usage of the process, which must be running.
func (p *Process) Usage() (Usage, error) { return UsageOf(p.cmd.Process.Pid) }

// UsageOf returns the resource usage of a running process from /proc.
func UsageOf(pid int) (Usage, error) {
	// The kernel reports hundredths of a second to user space, on every architecture that Go supports.
	const tick = 10 * time.Millisecond
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The second field is the program's name in parentheses, which may contain blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var usage Usage
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
		usage.CPU += time.Duration(ticks) * tick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		into, wanted := map[string]*int64{"VmHWM": &usage.PeakBytes, "RssAnon": &usage.AnonymousBytes}[name]
		if !wanted {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d kB", into); err != nil {
			return Usage{}, fmt.Errorf("read /proc/%d/status: %w", pid, err)
		}
		*into <<= 10
	}
	return usage, nil
}
