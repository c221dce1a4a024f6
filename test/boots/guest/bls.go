package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// bls is the story of a GRUB with boot loader entries. The agent is killed when the entry that is booted once has only the name of its temporary file,
// when it is written and not selected, and while grubby writes its second file.
var bls = story{loader.GrubBLS, append([]func(*machine) error{stageEntry, promoteEntry, stagePanicEntry, undoEntry, endEntry}, killed{
	staging: moment{host.OpRename, onceName, 1}, permit: moment{"", "grubenv", 1}, promotion: moment{host.OpWrite, "grubby", 2},
}.steps(compareEntries)...)}

const (
	entries = "/boot/loader/entries"
	later   = "/etc/kernel/cmdline"
)

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

func stageEntry(m *machine) error {
	return errors.Join(saveFiles("/boot/loader", "/boot/grub2", "/etc"), m.kernelLog(false), m.apply(map[string]host.State{size: host.Pending}, size),
		inDefaults(size, false), m.subject.Rearm(true))
}

func promoteEntry(m *machine) error {
	return errors.Join(m.passes(size, true), m.kernelLog(true), inDefaults(size, false),
		m.apply(map[string]host.State{size: host.InSync}, size), inDefaults(size, true))
}

// stagePanicEntry stages an argument with which the kernel panics. A kernel is installed before the trial.
func stagePanicEntry(m *machine) error {
	waiting := map[string]host.State{size: host.InSync, panics: host.Pending}
	err := errors.Join(m.passes(size, true), m.kernelLog(true), m.apply(waiting, size, panics))
	return errors.Join(err, installEntry(), m.apply(waiting, size, panics), inDefaults(panics, false), inDefaults(size, true), m.subject.Rearm(true))
}

// installEntry installs the running kernel as a newer version, like kernel-install: with the arguments of later kernels.
func installEntry() error {
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

// undoEntry runs after the kernel has panicked and the machine has returned without help.
func undoEntry(m *machine) error {
	err := errors.Join(m.passes(panics, false), m.passes(size, true))
	if !strings.Contains(m.cmdline, "/vmlinuz-9") {
		err = errors.Join(err, errors.New("the default entry is not that of the new kernel"))
	}
	return errors.Join(err, m.apply(map[string]host.State{size: host.InSync, panics: host.Failed}, size, panics), m.apply(nil), compareEntries())
}

func endEntry(m *machine) error {
	restored := m.subject.Restore(ctx, map[string]host.Original{"ihash_entries": {}})
	fmt.Printf("restored: %+v\n", restored)
	if len(restored) != 1 || restored[0].State != host.InSync {
		return errors.New("not restored")
	}
	return errors.Join(m.passes(size, false), m.kernelLog(false), compareEntries())
}

// compareEntries compares all files with the original ones. Only the entry of the new kernel is not among them.
func compareEntries() error {
	names, err := filepath.Glob(entries + "/*")
	if err == nil && len(names) != 3 {
		err = fmt.Errorf("entries: %q", names)
	}
	return errors.Join(err, compareFiles(), inDefaults(size, false))
}
