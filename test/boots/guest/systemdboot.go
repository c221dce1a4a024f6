package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/tuning/lists"
)

// systemdBoot is the story of systemd-boot. bootctl and kernel-install are the real ones. The agent is killed when the entry that is booted once has only
// the name of its temporary file, when its permit is written and not selected again, and when one of three default entries has the argument.
var systemdBoot = story{loader.SystemdBoot, lists.Each(append([]func(*machine) error{
	stageSystemd, promoteSystemd, stagePanicSystemd, undoSystemd, endSystemd,
}, killed{
	staging: moment{host.OpRename, onceName, 1}, permit: moment{host.OpSyncDir, "/loader/entries", 1}, promotion: moment{host.OpRename, "/entries/0", 2},
}.steps(compareSystemd)...), withESP)}

const (
	efiEntries = "/efi/loader/entries"
	oneShot    = "/sys/firmware/efi/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
)

// withESP mounts the EFI partition and the variables of the firmware for a step.
func withESP(step func(*machine) error) func(*machine) error {
	return func(m *machine) error {
		if err := unix.Mount("efivarfs", "/sys/firmware/efi/efivars", "efivarfs", 0, ""); err != nil {
			return fmt.Errorf("mount efivarfs: %w", err)
		}
		if err := unix.Mount("/dev/vda1", "/efi", "vfat", 0, "umask=0077"); err != nil {
			return fmt.Errorf("mount /efi: %w", err)
		}
		return errors.Join(linkESP(), step(m), unix.Unmount("/efi", 0))
	}
}

// linkESP makes the link of udev, which does not run here, to the partition that systemd-boot was loaded from.
func linkESP() error {
	data, err := os.ReadFile("/sys/firmware/efi/efivars/LoaderDevicePartUUID-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")
	if err != nil {
		return err
	}
	const dir = "/dev/disk/by-partuuid/"
	name := dir + strings.ToLower(strings.ReplaceAll(string(data[4:]), "\x00", ""))
	if err := os.Symlink("../../vda1", name); err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("../../vda1", name))
}

// inSystemdDefaults checks whether the permanent entries and the arguments of later kernels have an argument.
func inSystemdDefaults(arg string, want bool) error {
	names, err := filepath.Glob(efiEntries + "/0*.conf")
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

// isSelected checks whether the firmware has the variable that selects the entry of the next boot.
func isSelected(want bool) error {
	_, err := os.Stat(oneShot)
	if (err == nil) != want {
		return fmt.Errorf("an entry is selected for one boot: %t, want %t (%w)", !want, want, err)
	}
	return nil
}

func stageSystemd(m *machine) error {
	err := errors.Join(saveFiles("/efi", "/etc"), m.kernelLog(false), isSelected(false), m.apply(map[string]host.State{size: host.Pending}, size),
		inSystemdDefaults(size, false), isSelected(true))
	// A kernel that is installed before the promotion lacks the argument.
	err = errors.Join(err, installKernel(m, "5"), inSystemdDefaults(size, false), m.apply(map[string]host.State{size: host.Pending}, size))
	list, listErr := host.NewCommands(m.fs).Run(ctx, "bootctl", "list", "--esp-path=/efi", "--no-pager")
	fmt.Printf("bootctl list: %v\n%s", listErr, list)
	return errors.Join(err, m.subject.Rearm(true), isSelected(true))
}

func promoteSystemd(m *machine) error {
	return errors.Join(m.passes(size, true), m.kernelLog(true), inSystemdDefaults(size, false), isSelected(false),
		m.apply(map[string]host.State{size: host.InSync}, size), inSystemdDefaults(size, true))
}

// stagePanicSystemd stages an argument with which the kernel panics. A kernel is installed before the trial.
func stagePanicSystemd(m *machine) error {
	waiting := map[string]host.State{size: host.InSync, panics: host.Pending}
	err := errors.Join(m.passes(size, true), m.kernelLog(true), m.apply(waiting, size, panics))
	return errors.Join(err, installKernel(m, "9"), inSystemdDefaults(panics, false), inSystemdDefaults(size, true), m.apply(waiting, size, panics),
		inSystemdDefaults(panics, false), m.subject.Rearm(true), isSelected(true))
}

// installKernel installs the running kernel as another version with the real kernel-install.
func installKernel(m *machine, prefix string) error {
	names, err := filepath.Glob("/boot/vmlinuz-6*")
	if err != nil || len(names) != 1 {
		return errors.Join(err, fmt.Errorf("kernels: %q", names))
	}
	version := strings.TrimPrefix(names[0], "/boot/vmlinuz-")
	for _, file := range []string{"/boot/vmlinuz-", "/boot/initrd.img-"} {
		if err := os.Link(file+version, file+prefix+version); err != nil {
			return err
		}
	}
	if err := os.Symlink(version, "/usr/lib/modules/"+prefix+version); err != nil {
		return err
	}
	_, err = host.NewCommands(m.fs).Run(ctx, "kernel-install", "add", prefix+version, "/boot/vmlinuz-"+prefix+version)
	return err
}

// undoSystemd runs after the kernel has panicked and the machine has returned without help, with the default entry: the newest kernel's.
func undoSystemd(m *machine) error {
	selected, err := os.ReadFile("/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")
	if name := strings.ReplaceAll(string(selected), "\x00", ""); !strings.Contains(name, "-9") {
		err = errors.Join(err, fmt.Errorf("the default entry is not that of the new kernel but %q", name))
	}
	return errors.Join(err, m.passes(panics, false), m.passes(size, true), m.apply(map[string]host.State{size: host.InSync, panics: host.Failed}, size, panics),
		m.apply(nil), compareSystemd())
}

func endSystemd(m *machine) error {
	restored := m.subject.Restore(ctx, map[string]host.Original{"ihash_entries": {}})
	fmt.Printf("restored: %+v\n", restored)
	if len(restored) != 1 || restored[0].State != host.InSync {
		return errors.New("not restored")
	}
	return errors.Join(m.passes(size, false), m.kernelLog(false), compareSystemd())
}

// compareSystemd compares all files with the original ones. Only the entries and files of the new kernels are not among them.
func compareSystemd() error {
	names, err := filepath.Glob(efiEntries + "/*")
	if err == nil && len(names) != 3 {
		err = fmt.Errorf("entries: %q", names)
	}
	return errors.Join(err, compareFiles(), inSystemdDefaults(size, false), isSelected(false))
}
