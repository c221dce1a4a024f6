// Command guest is the init of the virtual machine of the boot test. Each boot runs the next step of the story with the agent's real code, prints the
// result to the console, and restarts the machine. grubby is simulated, and every other command is real. The last line is PASS or FAIL.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
)

const (
	entries  = "/boot/loader/entries"
	later    = "/etc/kernel/cmdline"
	progress = "/step"
	pristine = "/pristine"
	// size is the argument that works, and panics is the argument with which the kernel finds no root file system.
	size   = "ihash_entries=1048576"
	panics = "rdinit=/missing"
)

func main() {
	fmt.Println()
	command := unix.LINUX_REBOOT_CMD_RESTART
	if err := runStep(); err != nil {
		fmt.Println("\nFAIL", err)
		command = unix.LINUX_REBOOT_CMD_POWER_OFF
	} else if _, err := os.Stat(progress); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("\nPASS")
		command = unix.LINUX_REBOOT_CMD_POWER_OFF
	}
	unix.Sync()
	fmt.Println("reboot:", unix.Reboot(command))
	select {}
}

func runStep() error {
	for _, m := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	data, err := os.ReadFile(progress)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	m, err := openMachine()
	if err != nil {
		return err
	}
	fmt.Printf("##### boot %d: %s\n", n, m.cmdline)
	steps := []func() error{m.stage, m.promote, m.stagePanic, m.undo, m.end}
	if err := steps[n](); err != nil {
		return fmt.Errorf("boot %d: %w", n, err)
	}
	if n == len(steps)-1 {
		return os.Remove(progress)
	}
	return os.WriteFile(progress, []byte(strconv.Itoa(n+1)), 0o600)
}

type machine struct {
	fs      host.FS
	subject *bootloader.Subject
	cmdline string
}

// runner simulates grubby, which Debian does not package.
type runner struct {
	real   host.Runner
	grubby *hosttest.Commands
}

func (r runner) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if argv[0] == "grubby" {
		return r.grubby.Run(ctx, argv...)
	}
	return r.real.Run(ctx, argv...)
}

func openMachine() (*machine, error) {
	files, err := host.OpenFS("/")
	if err != nil {
		return nil, err
	}
	j := journal.New(files)
	if err := j.Load(); err != nil {
		return nil, err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	m := &machine{fs: files, cmdline: strings.TrimSpace(string(cmdline))}
	m.subject = bootloader.New(files, runner{host.NewCommands(files), &hosttest.Commands{Dir: "/"}}, j, bootloader.Options{})
	m.subject.Attend(true)
	return m, err
}

func settings(args ...string) []host.Setting {
	var all []host.Setting
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		all = append(all, host.Setting{Name: name, Value: value})
	}
	return all
}

// apply applies the arguments, and checks the state of each.
func (m *machine) apply(states map[string]host.State, args ...string) error {
	ctx := context.Background()
	err := m.subject.Apply(ctx, settings(args...))
	found := m.subject.Detect()
	fmt.Printf("apply %q: %v; %s, proven %t %s\n", args, err, found.Type, found.Proven, found.Message)
	if err != nil || !found.Proven || found.Type != bootloader.GrubBLS {
		return errors.Join(err, errors.New("not a proven GrubBLS"))
	}
	for i, o := range m.subject.Observe(ctx, settings(args...)) {
		fmt.Printf("  %s: %s %s\n", args[i], o.State, o.Message)
		if o.State != states[args[i]] {
			err = errors.Join(err, fmt.Errorf("%s is %s, want %s", args[i], o.State, states[args[i]]))
		}
	}
	return err
}

// passes checks the command line of the running kernel.
func (m *machine) passes(arg string, want bool) error {
	if slices.Contains(strings.Fields(m.cmdline), arg) != want {
		return fmt.Errorf("the running kernel has %s: %t, want %t", arg, !want, want)
	}
	return nil
}

// inDefaults checks whether the permanent entries and the arguments of later kernels have an argument.
func inDefaults(arg string, want bool) error {
	names, err := filepath.Glob(entries + "/0*.conf")
	if err != nil || len(names) == 0 {
		return errors.Join(err, errors.New("no entries"))
	}
	for _, name := range append(names, later) {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if found := slices.Contains(strings.Fields(string(data)), arg); found != want {
			return fmt.Errorf("%s has %s: %t, want %t", name, arg, found, want)
		}
	}
	return nil
}

// kernelLog checks the size of the table in the kernel log.
func (m *machine) kernelLog(want bool) error {
	log, err := host.NewCommands(m.fs).Run(context.Background(), "dmesg")
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Inode-cache hash table entries") {
			fmt.Print(line)
			if strings.Contains(line, "entries: 1048576 ") != want {
				return fmt.Errorf("unexpected size in %q", line)
			}
			return err
		}
	}
	return errors.Join(err, errors.New("the kernel log shows no size"))
}

func (m *machine) stage() error {
	for _, dir := range []string{"boot/loader", "boot/grub2", "etc"} {
		if err := os.CopyFS(filepath.Join(pristine, dir), os.DirFS("/"+dir)); err != nil {
			return err
		}
	}
	return errors.Join(m.kernelLog(false), m.apply(map[string]host.State{size: host.Pending}, size), inDefaults(size, false), m.subject.Rearm(true))
}

func (m *machine) promote() error {
	return errors.Join(m.passes(size, true), m.kernelLog(true), inDefaults(size, false),
		m.apply(map[string]host.State{size: host.InSync}, size), inDefaults(size, true))
}

// stagePanic stages an argument with which the kernel panics. A kernel is installed before the trial.
func (m *machine) stagePanic() error {
	waiting := map[string]host.State{size: host.InSync, panics: host.Pending}
	err := errors.Join(m.passes(size, true), m.kernelLog(true), m.apply(waiting, size, panics))
	return errors.Join(err, installKernel(), m.apply(waiting, size, panics), inDefaults(panics, false), inDefaults(size, true), m.subject.Rearm(true))
}

// installKernel installs the running kernel as a newer version, like kernel-install: with the arguments of later kernels.
func installKernel() error {
	names, err := filepath.Glob("/boot/vmlinuz-*")
	if err != nil || len(names) != 1 {
		return errors.Join(err, fmt.Errorf("kernels: %q", names))
	}
	version := strings.TrimPrefix(names[0], "/boot/vmlinuz-")
	entry, err := filepath.Glob(entries + "/0*-" + version + ".conf")
	if err != nil || len(entry) != 1 {
		return errors.Join(err, fmt.Errorf("entries: %q", entry))
	}
	for _, prefix := range []string{"/boot/vmlinuz-", "/boot/initrd.img-"} {
		if err := os.Link(prefix+version, prefix+"9"+version); err != nil {
			return err
		}
	}
	args, err := os.ReadFile(later)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("title Debian 9%[1]s\nversion 9%[1]s\nlinux /boot/vmlinuz-9%[1]s\ninitrd /boot/initrd.img-9%[1]s\noptions %[2]s", version, args)
	return os.WriteFile(strings.Replace(entry[0], version, "9"+version, 1), []byte(text), 0o644)
}

// undo runs after the kernel has panicked and the machine has returned without help.
func (m *machine) undo() error {
	err := errors.Join(m.passes(panics, false), m.passes(size, true))
	if !strings.Contains(m.cmdline, "/vmlinuz-9") {
		err = errors.Join(err, errors.New("the default entry is not that of the new kernel"))
	}
	return errors.Join(err, m.apply(map[string]host.State{size: host.InSync, panics: host.Failed}, size, panics), m.apply(nil), compareFiles())
}

func (m *machine) end() error {
	restored := m.subject.Restore(context.Background(), map[string]host.Original{"ihash_entries": {}})
	fmt.Printf("restored: %+v\n", restored)
	if len(restored) != 1 || restored[0].State != host.InSync {
		return errors.New("not restored")
	}
	return errors.Join(m.passes(size, false), m.kernelLog(false), compareFiles())
}

// compareFiles compares all files with the original ones, byte by byte. Only the entry of the new kernel is not among them.
func compareFiles() error {
	found := 0
	err := filepath.WalkDir(pristine, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		found++
		before, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		after, err := os.ReadFile(strings.TrimPrefix(name, pristine))
		if err == nil && !bytes.Equal(before, after) {
			err = fmt.Errorf("%s is not restored: %q, was %q", name, after, before)
		}
		return err
	})
	names, globErr := filepath.Glob(entries + "/*")
	if globErr == nil && len(names) != 3 {
		globErr = fmt.Errorf("entries: %q", names)
	}
	fmt.Printf("%d files are unchanged\n", found)
	return errors.Join(err, globErr, inDefaults(size, false))
}
