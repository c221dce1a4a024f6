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
	"github.com/storageclient/operator/tuning/lists"
)

// kernelImages is the story of unified kernel images. ukify, systemd-stub and systemd-boot are the real ones. The agent is killed when the entry that is
// booted once has only the name of its temporary file, when its permit is written and not selected again, and when the addon has only a temporary name.
var kernelImages = story{loader.UKI, lists.Each(append([]func(*machine) error{
	stageImage, promoteImage, stageOther, promoteOther, stagePanicImage, undoImage, endImage,
}, killed{
	staging: moment{host.OpRename, onceName, 1}, permit: moment{host.OpSyncDir, "/loader/entries", 1}, promotion: moment{host.OpRename, "addon.efi", 1},
}.steps(compareImages)...), withESP)}

const (
	// other is another value of the argument that works.
	other     = "ihash_entries=2097152"
	otherSize = "entries: 2097152 "
	efiImages = "/efi/EFI/Linux"
	addon     = "/efi/loader/addons/storage-client.addon.efi"
)

// inAddon checks whether the addon has an argument. The images and the arguments of later images never have it.
func inAddon(arg string, want bool) error {
	data, err := os.ReadFile(addon)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	words := strings.Fields(strings.ReplaceAll(string(data), "\x00", " "))
	if found := slices.Contains(words, arg); found != want {
		return fmt.Errorf("the addon has %s: %t, want %t", arg, found, want)
	}
	return nil
}

// installImage installs the running kernel as another version with the real ukify.
func installImage(m *machine, prefix string) error {
	names, err := filepath.Glob("/boot/vmlinuz-6*")
	if err != nil || len(names) != 1 {
		return errors.Join(err, fmt.Errorf("kernels: %q", names))
	}
	version := strings.TrimPrefix(names[0], "/boot/vmlinuz-")
	output, err := host.NewCommands(m.fs).Run(ctx, "ukify", "build", "--linux=/boot/vmlinuz-"+version, "--initrd=/boot/initrd.img-"+version,
		"--uname="+version, "--cmdline=@/etc/kernel/cmdline", "--os-release=@/etc/os-release", "--output="+efiImages+"/debian-"+prefix+version+".efi")
	fmt.Printf("ukify: %v %s\n", err, output)
	return err
}

// isBooted checks which entry systemd-boot has booted.
func isBooted(part string) error {
	data, err := os.ReadFile("/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")
	name := strings.ReplaceAll(string(data), "\x00", "")
	fmt.Println("booted", name)
	if !strings.Contains(name, part) {
		err = errors.Join(err, fmt.Errorf("booted %q, want %s", name, part))
	}
	return err
}

func stageImage(m *machine) error {
	err := errors.Join(saveFiles("/efi", "/etc"), m.kernelLog(false), isSelected(false), m.apply(map[string]host.State{size: host.Pending}, size),
		inAddon(size, false), isSelected(true))
	// An image that is installed before the promotion lacks the argument.
	err = errors.Join(err, installImage(m, "5"), m.apply(map[string]host.State{size: host.Pending}, size), inAddon(size, false))
	list, listErr := host.NewCommands(m.fs).Run(ctx, "bootctl", "list", "--esp-path=/efi", "--no-pager")
	fmt.Printf("bootctl list: %v\n%s", listErr, list)
	return errors.Join(err, m.subject.Rearm(true), isSelected(true))
}

func promoteImage(m *machine) error {
	return errors.Join(isBooted("~storage-client"), m.passes(size, true), m.kernelLog(true), inAddon(size, false), isSelected(false),
		m.apply(map[string]host.State{size: host.InSync}, size), inAddon(size, true))
}

// stageOther runs in an image with the addon, and stages another value. The addon would also reach the trial, so it loses the previous value.
func stageOther(m *machine) error {
	return errors.Join(isBooted(".efi"), m.passes(size, true), m.kernelLog(true), m.apply(map[string]host.State{other: host.Pending}, other),
		inAddon(size, false), inAddon(other, false), m.subject.Rearm(true), isSelected(true))
}

func promoteOther(m *machine) error {
	return errors.Join(isBooted("~storage-client"), m.passes(other, true), m.passes(size, false), m.logShows(otherSize, true),
		m.apply(map[string]host.State{other: host.InSync}, other), inAddon(other, true))
}

// stagePanicImage stages an argument with which the kernel panics. An image is installed before the trial.
func stagePanicImage(m *machine) error {
	waiting := map[string]host.State{other: host.InSync, panics: host.Pending}
	err := errors.Join(isBooted(".efi"), m.passes(other, true), m.logShows(otherSize, true), m.apply(waiting, other, panics))
	return errors.Join(err, installImage(m, "9"), m.apply(waiting, other, panics), inAddon(panics, false), inAddon(other, true), m.subject.Rearm(true),
		isSelected(true))
}

// undoImage runs after the kernel has panicked and the machine has returned without help, with the image that was installed last. It has the addon, too.
func undoImage(m *machine) error {
	return errors.Join(isBooted("debian-9"), m.passes(panics, false), m.passes(other, true), m.logShows(otherSize, true),
		m.apply(map[string]host.State{other: host.InSync, panics: host.Failed}, other, panics), m.apply(nil), compareImages())
}

func endImage(m *machine) error {
	restored := m.subject.Restore(ctx, map[string]host.Original{"ihash_entries": {}})
	fmt.Printf("restored: %+v\n", restored)
	if len(restored) != 1 || restored[0].State != host.InSync {
		return errors.New("not restored")
	}
	return errors.Join(m.passes(other, false), m.logShows(otherSize, false), compareImages())
}

// compareImages compares all files with the original ones. Only the new images are not among them.
func compareImages() error {
	names, err := filepath.Glob(efiImages + "/*")
	entries, entriesErr := filepath.Glob(efiEntries + "/*")
	addons, addonsErr := filepath.Glob(filepath.Dir(addon) + "/*")
	if len(names) != 3 || len(entries)+len(addons) > 0 {
		err = errors.Join(err, fmt.Errorf("images: %q, entries: %q, addons: %q", names, entries, addons))
	}
	return errors.Join(err, entriesErr, addonsErr, compareFiles(), isSelected(false))
}
