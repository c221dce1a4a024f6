package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/storageclient/operator/test/powercut/machine"
)

const (
	// ready is the line that the guest prints when it waits for its orders.
	ready = "READY"
	// bootTimeout is the maximum time from a boot to the end of the check. With software emulation on a busy machine, a minute is common.
	bootTimeout = 5 * time.Minute
	// endTimeout is the maximum time for the remaining output after a cut.
	endTimeout = 30 * time.Second
	// maxWait is the maximum time from the check to the power cut.
	maxWait = 3 * time.Second
)

// vm is one virtual machine over all its boots.
type vm struct {
	dir, kernel, initrd string
	// fileSystem is the file system of the disk. The guest reads it from its kernel command line.
	fileSystem string
	listener   net.Listener
	disk       *disk
	// serving is held while a machine uses the disk.
	serving sync.Mutex
	chance  *rand.Rand
	state   machine.State
	total   struct{ changes, restores, short int }
	lines   []string
}

// cycle is the result of one boot.
type cycle struct {
	boot                  time.Duration
	changes, cached, lost int
	while, found          string
}

func (m *vm) memory() string { return filepath.Join(m.dir, "memory") }

func (m *vm) socket() string { return filepath.Join(m.dir, "nbd") }

func (m *vm) tail() string { return strings.Join(m.lines[max(0, len(m.lines)-60):], "\n") }

// cycle starts the machine, lets it check, and cuts its power some time later.
func (m *vm) cycle(ctx context.Context) (cycle, error) {
	c, err := m.start(ctx, time.Duration(m.chance.Int64N(int64(maxWait))))
	c.while = m.while()
	return c, err
}

// lastBoot only checks.
func (m *vm) lastBoot(ctx context.Context) (cycle, error) { return m.start(ctx, 0) }

// qemu returns the command that runs the machine.
func (m *vm) qemu(ctx context.Context, more ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-machine", "pc,graphics=off", "-accel", "tcg", "-cpu", "max,la57=off,svm=off,smap=off,erms=off,fsrm=off", "-smp", "1", "-m", "256",
		"-vga", "none", "-display", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-kernel", m.kernel, "-initrd", m.initrd, "-append", "console=ttyS0 quiet loglevel=1 panic=-1 powercut.filesystem=" + m.fileSystem,
		"-drive", "file=nbd+unix:///?socket=" + m.socket() + ",format=raw,if=virtio,cache=writeback"}, more...)...)
}

// freeze boots the machine once, until just before it loads the driver of the disk, and saves its memory. Every cycle starts from that
// memory, which avoids booting the kernel and contains no data of the disk.
func (m *vm) freeze(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, bootTimeout)
	defer stop()
	monitor := filepath.Join(m.dir, "monitor")
	qemu := m.qemu(ctx, "-monitor", "unix:"+monitor+",server=on,wait=off")
	stdout, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	stdin, err := qemu.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	if err := qemu.Start(); err != nil {
		return err
	}
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		m.lines = append(m.lines, strings.TrimSpace(scanner.Text()))
		if m.lines[len(m.lines)-1] != ready {
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", monitor)
		if err != nil {
			return err
		}
		// The machine ends the connection when it quits.
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		if _, err := fmt.Fprintf(conn, "migrate \"exec:cat > %s\"\nquit\n", m.memory()); err != nil {
			return err
		}
	}
	return qemu.Wait()
}

// serve serves the disk to one machine after the other until the listener is closed. It does not wait for a machine that fails before it
// connects.
func (m *vm) serve() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.serving.Lock()
		// The connection ends with the machine. The error of the machine is reported elsewhere.
		_ = m.disk.serve(conn)
		m.serving.Unlock()
	}
}

func (m *vm) start(ctx context.Context, wait time.Duration) (cycle, error) {
	c := cycle{found: m.expected()}
	ctx, cutPower := context.WithCancel(ctx)
	defer cutPower()
	qemu := m.qemu(ctx, "-monitor", "none", "-incoming", "exec:cat "+m.memory())
	var stderr bytes.Buffer
	qemu.Stderr, qemu.WaitDelay = &stderr, endTimeout
	stdout, err := qemu.StdoutPipe()
	if err != nil {
		return c, err
	}
	stdin, err := qemu.StdinPipe()
	if err != nil {
		return c, err
	}
	defer stdin.Close()
	started := time.Now()
	if err := qemu.Start(); err != nil {
		return c, err
	}
	orders, err := m.orders()
	if err != nil {
		return c, err
	}
	go func() {
		// Output before the memory of the machine is restored is lost.
		for ctx.Err() == nil {
			_, _ = fmt.Fprintln(stdin, orders)
			time.Sleep(200 * time.Millisecond)
		}
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			lines <- strings.TrimSpace(scanner.Text())
		}
	}()
	err = m.watch(lines, wait, &c, started, cutPower)
	cutPower()
	// Do not wait forever if another process keeps the output of the machine open.
	closing := time.AfterFunc(endTimeout, func() { _ = stdout.Close() })
	for line := range lines {
		// Lines that were printed before the cut count, even if they are read later.
		if heard := m.hear(line, &c); err == nil {
			err = heard
		}
	}
	if !closing.Stop() {
		err = errors.Join(err, fmt.Errorf("the machine's output did not end within %s of the cut", endTimeout))
	}
	// It was killed, or has reported its error. The connection of the disk ends with it.
	waitErr := qemu.Wait()
	if err != nil {
		err = fmt.Errorf("%w (QEMU: %w: %s)", err, waitErr, strings.TrimSpace(stderr.String()))
	}
	m.serving.Lock()
	defer m.serving.Unlock()
	c.cached, c.lost = m.disk.cut(m.chance)
	return c, err
}

// watch follows the guest until the power must be cut.
func (m *vm) watch(lines <-chan string, wait time.Duration, c *cycle, started time.Time, cutPower func()) error {
	end := time.After(bootTimeout)
	for {
		select {
		case line, open := <-lines:
			if !open {
				return errors.New("the machine shut down unexpectedly")
			}
			if err := m.hear(line, c); err != nil {
				return err
			}
			if line == machine.Checked {
				c.boot = time.Since(started)
				end = time.After(wait)
			}
		case <-end:
			cutPower()
			if c.boot == 0 {
				return fmt.Errorf("no check within %s", bootTimeout)
			}
			return nil
		}
	}
}

// hear processes the output of the guest.
func (m *vm) hear(line string, c *cycle) error {
	m.lines = append(m.lines, line)
	before := m.state
	err := m.state.Hear(line)
	switch {
	case m.state.Restored && !before.Restored:
		m.total.restores++
	case m.state.Done > before.Done:
		c.changes++
		m.total.changes++
	}
	return err
}

// orders returns the input of the guest at its start: its progress before the cut. A variable that the guest was setting is set or not.
func (m *vm) orders() (string, error) {
	if m.state.Permit == machine.Giving && m.chance.IntN(2) == 0 {
		m.state.Permit = machine.Given
	}
	data, err := json.Marshal(m.state)
	return machine.Orders + string(data), err
}

// while returns the activity of the guest at the power cut.
func (m *vm) while() string {
	switch {
	case m.state.Restoring:
		m.total.short++
		return "restoring everything"
	case m.state.Permit != machine.None:
		m.total.short++
		return fmt.Sprintf("permit of change %d", m.state.Doing)
	case m.state.Doing > m.state.Done && slices.Contains(m.state.Proven, m.state.Doing):
		m.total.short++
		return fmt.Sprintf("promotion of %d", m.state.Doing)
	case m.state.Doing > m.state.Done:
		m.total.short++
		return fmt.Sprintf("change %d", m.state.Doing)
	}
	return "nothing"
}

// expected returns the state that the guest must find.
func (m *vm) expected() string {
	switch s := m.state; {
	case s.Doing == 0:
		return "an untouched host"
	case s.Restoring:
		return fmt.Sprintf("change %d or the original host", s.Doing)
	case s.Doing > s.Done && s.Restored:
		return fmt.Sprintf("the original host or change %d", s.Doing)
	case s.Doing > s.Done:
		return fmt.Sprintf("change %d or %d", s.Done, s.Doing)
	case s.Restored:
		return "the original host"
	default:
		return fmt.Sprintf("change %d", s.Done)
	}
}
