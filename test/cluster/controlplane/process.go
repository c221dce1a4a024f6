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

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 10 * time.Second

// Process is a program that was started beside the control plane.
type Process struct {
	// Name is what it was started as.
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
		_ = cmd.Wait() // how it ended stands in its log
	}()
	return process, nil
}

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *Process) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// Log is what this process, and not a former one of its name, has written.
func (p *Process) Log() (string, error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return "", err
	}
	return string(data[min(p.from, int64(len(data))):]), nil
}

// Usage is what a process has used since its start.
type Usage struct {
	// CPU is user and system time.
	CPU time.Duration
	// PeakBytes is the largest resident set (VmHWM).
	PeakBytes int64
	// AnonymousBytes is what is resident now of memory that no file backs (RssAnon).
	AnonymousBytes int64
}

// Usage reads what a running process has used.
func (p *Process) Usage() (Usage, error) { return UsageOf(p.cmd.Process.Pid) }

// UsageOf reads what a running process has used, from /proc.
func UsageOf(pid int) (Usage, error) {
	// The kernel counts in hundredths of a second towards user space, on every architecture that Go runs on.
	const tick = 10 * time.Millisecond
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The second field is the program's name in parentheses, and may hold blanks.
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
