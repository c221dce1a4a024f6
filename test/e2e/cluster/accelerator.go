package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// accelerator is the way in which QEMU runs the machines' processors.
type accelerator struct {
	description string
	flags       []string
}

var (
	hardware = accelerator{"hardware virtualisation", []string{"-accel", "kvm", "-cpu", "host"}}
	// Some features only take time under emulation: page tables of five levels, nested virtualization, and the switch that lets the kernel read
	// memory of programs. With erms, the kernel copies and clears memory by "rep movsb", which QEMU emulates byte by byte: 60 starts of a program
	// took 1.5 s with these features, and 0.8 s without them.
	software = accelerator{"software emulation", []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu",
		"max,la57=off,svm=off,smap=off,erms=off,fsrm=off"}}
)

// qemu returns the start of a machine's command line; memory in MiB.
func (a accelerator) qemu(memory int) []string {
	return append([]string{"qemu-system-x86_64", "-machine", "pc,graphics=off", "-vga", "none", "-display", "none",
		"-smp", "1", "-m", strconv.Itoa(memory)}, a.flags...)
}

var virtualisationFlags = regexp.MustCompile(`(?m)^flags\s*:.*\b(vmx|svm)\b`)

// chooseAccelerator selects hardware virtualization only if a kernel starts with it. A machine may have an accessible /dev/kvm although
// its processor does not support it. Guests hang there.
func chooseAccelerator(ctx context.Context, dirs Dirs) accelerator {
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !virtualisationFlags.Match(cpuinfo) {
		return software
	}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return software
	}
	defer kvm.Close()
	if !startsKernel(ctx, hardware, dirs) {
		return software
	}
	return hardware
}

// startsKernel boots the base disk's kernel without a disk, until it prints its first output.
func startsKernel(ctx context.Context, a accelerator, dirs Dirs) bool {
	base, err := baseDisk(dirs)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	console := filepath.Join(dirs.Logs(), "probe.console")
	probe, stop := context.WithCancel(ctx)
	defer stop()
	var ended sync.WaitGroup
	ended.Go(func() {
		// Stopping it ends it, which is not an error here.
		_ = command(probe, append(a.qemu(256), "-no-reboot", "-nic", "none", "-serial", "file:"+console,
			"-kernel", base.kernel(), "-append", "console=ttyS0 panic=-1")...)
	})
	err = poll(ctx, 200*time.Millisecond, func() error {
		if info, err := os.Stat(console); err != nil || info.Size() == 0 {
			return fmt.Errorf("%s is empty", console)
		}
		return nil
	})
	stop()
	ended.Wait()
	return err == nil
}
