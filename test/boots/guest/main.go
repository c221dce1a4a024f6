// Command guest is the init of the virtual machine of the boot test. Each boot runs the next step of a story with the agent's real code, prints the
// result to the console, and restarts the machine. Each label has a story in its own file. grubby is simulated, and every other command is real. The
// last line is PASS or FAIL.
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
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
)

// story is the test of one boot loader. Each boot runs one step.
type story struct {
	// loader is the type of boot loader that the agent must detect.
	loader string
	steps  []func(m *machine) error
}

// stories are the stories of all labels.
var stories = map[string]story{
	"bls":          bls,
	"mkconfig":     mkconfig,
	"systemd-boot": systemdBoot,
	"uki":          kernelImages,
}

const (
	progress = "/step"
	label    = "/label"
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
	name, err := os.ReadFile(label)
	if err != nil {
		return err
	}
	run, ok := stories[strings.TrimSpace(string(name))]
	if !ok || n >= len(run.steps) {
		return fmt.Errorf("story %q has no step %d", name, n)
	}
	m, err := openMachine(run.loader)
	if err != nil {
		return err
	}
	fmt.Printf("##### boot %d: %s\n", n, m.cmdline)
	if err := run.steps[n](m); err != nil {
		return fmt.Errorf("boot %d: %w", n, err)
	}
	if n == len(run.steps)-1 {
		return os.Remove(progress)
	}
	return os.WriteFile(progress, []byte(strconv.Itoa(n+1)), 0o600)
}

var ctx = context.Background()

type machine struct {
	fs      host.FS
	subject *life.Subject
	loader  string
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

func openMachine(loader string) (*machine, error) {
	files, err := host.OpenFS("/")
	if err != nil {
		return nil, err
	}
	return openMachineOn(files, &hosttest.Commands{Dir: "/"}, loader)
}

func openMachineOn(files host.FS, grubby *hosttest.Commands, loader string) (*machine, error) {
	j := journal.New(files)
	if err := j.Load(); err != nil {
		return nil, err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	m := &machine{fs: files, loader: loader, cmdline: strings.TrimSpace(string(cmdline))}
	m.subject = life.New(files, runner{host.NewCommands(files), grubby}, j, nil, bootloader.Kinds)
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
	err := m.subject.Apply(ctx, settings(args...))
	found := m.subject.Detect()
	fmt.Printf("apply %q: %v; %s, proven %t %s\n", args, err, found.Type, found.Proven, found.Message)
	if err != nil || !found.Proven || found.Type != m.loader {
		return errors.Join(err, fmt.Errorf("not a proven %s", m.loader))
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

// kernelLog checks whether the table in the kernel log has the size of the argument that works.
func (m *machine) kernelLog(want bool) error { return m.logShows("entries: 1048576 ", want) }

func (m *machine) logShows(text string, want bool) error {
	log, err := host.NewCommands(m.fs).Run(ctx, "dmesg")
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Inode-cache hash table entries") {
			fmt.Print(line)
			if strings.Contains(line, text) != want {
				return fmt.Errorf("unexpected size in %q", line)
			}
			return err
		}
	}
	return errors.Join(err, errors.New("the kernel log shows no size"))
}

// saveFiles copies the files of directories, for compareFiles.
func saveFiles(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.CopyFS(filepath.Join(pristine, dir), os.DirFS(dir)); err != nil {
			return err
		}
	}
	return nil
}

// compareFiles compares the saved files with the present ones, byte by byte. Files that are new since are not compared.
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
	fmt.Printf("compared %d files\n", found)
	return err
}
