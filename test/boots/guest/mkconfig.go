package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// mkconfig is the story of a GRUB whose whole menu grub2-mkconfig makes. The agent is killed before it writes a menu with the trial,
// before it writes the permit, and before it removes the trial from the menu.
var mkconfig = story{loader.Grub2Mkconfig, append([]func(*machine) error{
	makeFirstMenu, stageInMenu, promoteMenu, stagePanicInMenu, undoMenu, endMenu,
}, killed{
	staging: moment{"", "grub.cfg", 1}, permit: moment{"", "grubenv", 1}, promotion: moment{"", "grub.cfg", 1},
}.steps(compareFiles)...)}

const (
	grubMenu = "/boot/grub2/grub.cfg"
	grubEnv  = "/boot/grub2/grubenv"
)

// makeMenu runs grub2-mkconfig like the installation of the system or of a kernel.
func (m *machine) makeMenu(file string) error {
	_, err := host.NewCommands(m.fs).Run(ctx, "grub2-mkconfig", "-o", file)
	return err
}

// inMenu checks whether the entries of 10_linux have an argument.
func inMenu(arg string, want bool) error {
	data, err := os.ReadFile(grubMenu)
	if err != nil {
		return err
	}
	_, section, found := strings.Cut(string(data), "### BEGIN /etc/grub.d/10_linux ###")
	section, _, ends := strings.Cut(section, "### END /etc/grub.d/10_linux ###")
	if !found || !ends {
		return fmt.Errorf("%s has no entries", grubMenu)
	}
	lines := 0
	for line := range strings.Lines(section) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "linux" {
			continue
		}
		if lines++; slices.Contains(words, arg) != want {
			return fmt.Errorf("%q in %s has %s: %t, want %t", line, grubMenu, arg, !want, want)
		}
	}
	if lines == 0 {
		return fmt.Errorf("%s has no kernel", grubMenu)
	}
	return nil
}

// noTrial checks that no part of a trial is left.
func noTrial() error {
	for file, text := range map[string]string{grubMenu: "storage-client", grubEnv: "storage_client"} {
		if data, err := os.ReadFile(file); err != nil || bytes.Contains(data, []byte(text)) {
			return errors.Join(err, fmt.Errorf("%s contains %s", file, text))
		}
	}
	if _, err := os.Stat(grubcfg.Generator); err == nil {
		return fmt.Errorf("%s exists", grubcfg.Generator)
	}
	return nil
}

func makeFirstMenu(m *machine) error { return m.makeMenu(grubMenu) }

func stageInMenu(m *machine) error {
	if err := errors.Join(saveFiles("/boot/grub2", "/etc"), m.kernelLog(false), inMenu(size, false)); err != nil {
		return err
	}
	return errors.Join(m.apply(map[string]host.State{size: host.Pending}, size), inMenu(size, true), m.subject.Rearm(true))
}

// promoteMenu also removes the argument once, and checks that all files have their original bytes.
func promoteMenu(m *machine) error {
	works := map[string]host.State{size: host.InSync}
	err := errors.Join(m.passes(size, true), m.kernelLog(true), m.apply(works, size), noTrial(), inMenu(size, true))
	return errors.Join(err, m.apply(nil), compareFiles(), m.apply(works, size), noTrial(), inMenu(size, true))
}

// stagePanicInMenu stages an argument with which the kernel panics. A kernel is installed before the trial.
func stagePanicInMenu(m *machine) error {
	waiting := map[string]host.State{size: host.InSync, panics: host.Pending}
	err := errors.Join(m.passes(size, true), m.kernelLog(true), m.apply(waiting, size, panics), inMenu(panics, true))
	if err != nil {
		return err
	}
	if _, err := linkKernel(); err != nil {
		return err
	}
	return errors.Join(m.makeMenu(grubMenu), m.apply(waiting, size, panics), m.subject.Rearm(true))
}

// linkKernel installs the running kernel as a newer version.
func linkKernel() (version string, err error) {
	names, err := filepath.Glob("/boot/vmlinuz-*")
	if err != nil || len(names) != 1 {
		return "", errors.Join(err, fmt.Errorf("kernels: %q", names))
	}
	version = strings.TrimPrefix(names[0], "/boot/vmlinuz-")
	for _, prefix := range []string{"/boot/vmlinuz-", "/boot/initrd.img-"} {
		if err := os.Link(prefix+version, prefix+"9"+version); err != nil {
			return "", err
		}
	}
	return version, nil
}

// undoMenu runs after the kernel has panicked and the machine has returned without help, with the kernel that booted before.
func undoMenu(m *machine) error {
	err := errors.Join(m.passes(panics, false), m.passes(size, true))
	if strings.Contains(m.cmdline, "/vmlinuz-9") {
		err = errors.Join(err, errors.New("the previous entry is not that of the previous kernel"))
	}
	// The menu keeps the failed argument, and boots the previous entry, until the profile changes.
	err = errors.Join(err, m.apply(map[string]host.State{size: host.InSync, panics: host.Failed}, size, panics), inMenu(panics, true))
	return errors.Join(err, m.apply(nil), inMenu(size, false), noTrial(), m.compareMenu())
}

// compareMenu compares the menu with what grub2-mkconfig makes now.
func (m *machine) compareMenu() error {
	const made = "/run/grub.cfg"
	if err := m.makeMenu(made); err != nil {
		return err
	}
	want, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(grubMenu)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s is %q, want %q", grubMenu, got, want)
	}
	return err
}

// endMenu boots the new kernel without the arguments. After its removal, all files have their original bytes.
func endMenu(m *machine) error {
	restored := m.subject.Restore(ctx, map[string]host.Original{"ihash_entries": {}})
	fmt.Printf("restored: %+v\n", restored)
	if len(restored) != 1 || restored[0].State != host.InSync || !strings.Contains(m.cmdline, "/vmlinuz-9") {
		return errors.New("not restored, or not booted with the new kernel")
	}
	names, err := filepath.Glob("/boot/*-9*")
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return errors.Join(err, m.passes(size, false), m.kernelLog(false), m.makeMenu(grubMenu), compareFiles())
}
