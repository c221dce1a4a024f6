package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/storageclient/operator/test/powercut/machine"
)

const (
	// ready is what the guest says when it waits for its orders.
	ready = "READY"
	// bootTimeout is how long a boot may take until the guest has checked: under software emulation on a busy machine
	// a minute is not rare.
	bootTimeout = 5 * time.Minute
	// endTimeout is how long a machine without power may still be heard.
	endTimeout = 30 * time.Second
	// maxWait is within which time after the check the power is cut.
	maxWait = 3 * time.Second
)

// vm is one virtual machine over all its boots.
type vm struct {
	dir, kernel, initrd string
	// fileSystem is the disk's; the guest finds it on its kernel's command line.
	fileSystem string
	listener   net.Listener
	disk       *disk
	// serving is held while a machine has the disk.
	serving sync.Mutex
	chance  *rand.Rand
	state   machine.State
	total   struct{ changes, restores, short int }
	lines   []string
}

// cycle is what came of one boot.
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

// qemu is the command that runs the machine.
func (m *vm) qemu(ctx context.Context, more ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-machine", "pc,graphics=off", "-accel", "tcg", "-cpu", "max,la57=off,svm=off", "-smp", "1", "-m", "256",
		"-vga", "none", "-display", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-kernel", m.kernel, "-initrd", m.initrd, "-append", "console=ttyS0 quiet loglevel=1 panic=-1 powercut.filesystem=" + m.fileSystem,
		"-drive", "file=nbd+unix:///?socket=" + m.socket() + ",format=raw,if=virtio,cache=writeback"}, more...)...)
}

// freeze boots the machine once, up to where it has not yet loaded the disk's driver, and keeps its memory: from
// there every cycle begins, which spares it the boot of the kernel and knows nothing of the disk.
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

// serve lets one machine after the other have the disk, until the listener is closed. A machine that fails before it asks
// for the disk keeps nobody waiting.
func (m *vm) serve() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.serving.Lock()
		// The connection ends with the machine; what was wrong with either, the other one tells.
		_ = m.disk.serve(conn)
		m.serving.Unlock()
	}
}

func (m *vm) start(ctx context.Context, wait time.Duration) (cycle, error) {
	c := cycle{found: m.expected()}
	ctx, cutPower := context.WithCancel(ctx)
	defer cutPower()
	qemu := m.qemu(ctx, "-monitor", "none", "-incoming", "exec:cat "+m.memory())
	var said bytes.Buffer
	qemu.Stderr, qemu.WaitDelay = &said, endTimeout
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
	orders := m.orders()
	go func() {
		// What comes before the machine has its memory back is lost.
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
	// Should anybody else hold the machine's output open, it is not waited for for ever.
	closing := time.AfterFunc(endTimeout, func() { _ = stdout.Close() })
	for line := range lines {
		// What was said before the cut counts, also where it is heard after it.
		if heard := m.hear(line, &c); err == nil {
			err = heard
		}
	}
	if !closing.Stop() {
		err = errors.Join(err, fmt.Errorf("the machine's output did not end within %s of the cut", endTimeout))
	}
	// It was killed, or has said itself what went wrong; the disk's connection ends with it.
	waitErr := qemu.Wait()
	if err != nil {
		err = fmt.Errorf("%w (QEMU: %w: %s)", err, waitErr, strings.TrimSpace(said.String()))
	}
	m.serving.Lock()
	defer m.serving.Unlock()
	c.cached, c.lost = m.disk.cut(m.chance)
	return c, err
}

// watch follows the guest until the power is to be cut.
func (m *vm) watch(lines <-chan string, wait time.Duration, c *cycle, started time.Time, cutPower func()) error {
	end := time.After(bootTimeout)
	for {
		select {
		case line, open := <-lines:
			if !open {
				return errors.New("the machine has gone down by itself")
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

// hear takes up what the guest says.
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

// orders are what the guest is told at its start: what it has said before the cut.
func (m *vm) orders() string {
	number := map[bool]int{true: 1}
	return fmt.Sprintf("orders %d %d %d %d.", m.state.Done, m.state.Doing, number[m.state.Restored], number[m.state.Restoring])
}

// while is what the guest was at when the power was cut.
func (m *vm) while() string {
	switch {
	case m.state.Restoring:
		m.total.short++
		return "putting everything back"
	case m.state.Doing > m.state.Done:
		m.total.short++
		return fmt.Sprintf("change %d", m.state.Doing)
	}
	return "nothing"
}

// expected is what the guest has to find.
func (m *vm) expected() string {
	switch s := m.state; {
	case s.Doing == 0:
		return "an untouched host"
	case s.Restoring:
		return fmt.Sprintf("change %d or nothing of ours", s.Doing)
	case s.Doing > s.Done && s.Restored:
		return fmt.Sprintf("nothing of ours or change %d", s.Doing)
	case s.Doing > s.Done:
		return fmt.Sprintf("change %d or %d", s.Done, s.Doing)
	case s.Restored:
		return "nothing of ours"
	default:
		return fmt.Sprintf("change %d", s.Done)
	}
}
