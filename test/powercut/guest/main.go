// Command guest is the init of the virtual machine of the power cut test. It checks the files after the last cut, restores everything in
// every second boot, and then changes settings until the power is cut. Its output is for the driver: READY when it waits for its progress
// from before the cut, CHECKED, RESTORING, RESTORED, DOING n before a change, DID n when the agent reports it as done, and FAIL.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/test/powercut/machine"
)

const root = "/host"

func main() {
	// The firmware leaves the cursor in the middle of a line.
	fmt.Println()
	err := run()
	fmt.Println(machine.Failed, strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	// The driver stops the machine. The kernel would panic if init exited.
	for {
		time.Sleep(time.Hour)
	}
}

func run() error {
	if err := endEcho(); err != nil {
		return err
	}
	// The machine is frozen here and resumed for each cut. It has not read the disk yet.
	fmt.Println("READY")
	var state machine.State
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		// The start of the first line may be missing.
		if orders, ok := strings.CutPrefix(input.Text(), machine.Orders); ok && json.Unmarshal([]byte(orders), &state) == nil {
			break
		}
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	m, err := machine.Open(root, state)
	if err != nil {
		return err
	}
	if err := m.BootLive(); err != nil {
		return err
	}
	if err := checkPairs(); err != nil {
		return fmt.Errorf("check the coupled values of the kernel: %w", err)
	}
	return m.Run(os.Stdout)
}

// endEcho turns off the echo, so that input from the driver does not appear in the output.
func endEcho() error {
	console := int(os.Stdin.Fd())
	modes, err := unix.IoctlGetTermios(console, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("read the modes of the console: %w", err)
	}
	modes.Lflag &^= unix.ECHO
	return unix.IoctlSetTermios(console, unix.TCSETS, modes)
}

// prepare loads the drivers of the disk, mounts the disk, and creates a /proc in its tree, as after a boot.
func prepare() error {
	for _, m := range []struct{ what, where, kind string }{{"proc", "/proc", "proc"}, {"dev", "/dev", "devtmpfs"}} {
		if err := unix.Mount(m.what, m.where, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, name := range modules {
		if err := load(name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	for range 100 {
		if _, err = os.Stat("/dev/vda"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	_, fileSystem, _ := strings.Cut(strings.TrimSpace(string(line)), "powercut.filesystem=")
	disk, partition := "/dev/vda", root+machine.EFIPartition
	if _, err := os.Stat(disk + "2"); err == nil {
		disk = "/dev/vda1"
	}
	if err := unix.Mount(disk, root, fileSystem, 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	if disk == "/dev/vda1" {
		if err := unix.Mount("/dev/vda2", partition, "vfat", 0, "fmask=0133"); err != nil {
			return fmt.Errorf("mount %s: %w", partition, err)
		}
	}
	if err := unix.Mount("proc", root+"/proc", "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.CopyFS(root+"/proc", os.DirFS(root+"/pristine")); err != nil {
		return err
	}
	return nil
}

func load(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

// pairs are pairs of values. This kernel clears one when the other is set.
var pairs = map[string][2]string{
	"vm.dirty_ratio":            {"/proc/sys/vm/dirty_bytes", "50000000"},
	"vm.dirty_background_ratio": {"/proc/sys/vm/dirty_background_bytes", "25000000"},
}

// checkPairs sets ratios in this kernel while bytes are effective, and restores them.
func checkPairs() error {
	files, err := host.OpenFS("/")
	if err != nil {
		return err
	}
	defer files.Close()
	subject, originals, ctx := sysctl.New(files), map[string]host.Original{}, context.Background()
	var wanted []host.Setting
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		if err := files.WriteValue(pairs[name][0], pairs[name][1]); err != nil {
			return err
		}
		if originals[name], err = subject.Original(ctx, name); err != nil {
			return err
		}
		wanted = append(wanted, host.Setting{Name: name, Value: "15"})
	}
	if err := subject.Apply(ctx, wanted); err != nil {
		return err
	}
	for _, o := range subject.Observe(ctx, wanted) {
		if o.State != host.InSync {
			return fmt.Errorf("%s is %s: %s", o.Name, o.State, o.Message)
		}
	}
	if err := subject.Apply(ctx, nil); err != nil {
		return err
	}
	for _, o := range subject.Restore(ctx, originals) {
		bytes, err := files.ReadValue(pairs[o.Name][0])
		if err != nil || bytes != pairs[o.Name][1] || o.State != host.InSync {
			return fmt.Errorf("%s was restored (%s, %s), but %s is %q, %w", o.Name, o.State, o.Message, pairs[o.Name][0], bytes, err)
		}
	}
	return nil
}
