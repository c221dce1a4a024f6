package machine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/hosttest"
	hostgrub "github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/agent/host/journal"
)

// The kinds of hosts whose boot entries the agent tries before it keeps them.
const (
	GrubEntries = "rocky-9-trial"
	SystemdBoot = "systemd-boot-trial"
	// KernelImages is a host with systemd-boot and unified kernel images.
	KernelImages = "uki-trial"
)

const (
	// EFIPartition is the directory of the EFI partition of systemd-boot, and efiVariables that of its variables.
	EFIPartition = "/efi"
	efiVariables = "/sys/firmware/efi/efivars"
	loaderID     = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	// pristineVariables has the variables of the firmware.
	pristineVariables = "/pristine-variables"
	// onceID is the ID of the entry that is booted once.
	onceID        = "~storage-client"
	environment   = "/boot/grub2/grubenv"
	kernelCmdline = "/etc/kernel/cmdline"
	nextEntry     = "next_entry="
	// kernelImages is the directory of the unified kernel images, and addon appends to the command lines of all.
	kernelImages = EFIPartition + "/EFI/Linux"
	addon        = EFIPartition + "/loader/addons/storage-client.addon.efi"
	// addonCode is the start of the code of an addon.
	addonCode = "\x48\xb8"
)

// The progress messages of a trial. permitting, permitted and booted are followed by the number of the change.
const (
	permitting = "PERMITTING"
	permitted  = "PERMITTED"
	powered    = "POWERED"
	booted     = "BOOTED"
)

// Trials is a host whose agent tries each argument in an entry that is booted once.
type Trials struct {
	State
	root, entries string
	fs            host.FS
	subject       *life.Subject
}

func newTrials(root string, state State, files host.FS) *Trials {
	m := &Trials{State: state, root: root, fs: files, entries: "/boot/loader/entries"}
	if m.isSystemdBoot() {
		m.entries = EFIPartition + "/loader/entries"
	}
	return m
}

func (m *Trials) isSystemdBoot() bool { return !m.fs.Exists(environment) }

func (m *Trials) hasImages() bool { return m.fs.Exists(kernelImages) }

// Run checks the host, and boots it, which counts as the trial of an argument. It checks the host again, and restores everything after every second
// change. Then it tries and keeps one argument after the other.
func (m *Trials) Run(out io.Writer) error {
	if err := m.Check(); err != nil {
		return fmt.Errorf("before the boot: %w", err)
	}
	if err := m.boot(out); err != nil {
		return err
	}
	if err := m.Check(); err != nil {
		return err
	}
	fmt.Fprintln(out, Checked)
	if m.Doing%2 == 0 {
		m.say(out, restoring)
		if err := m.Restore(); err != nil {
			return fmt.Errorf("restore after change %d: %w", m.Doing, err)
		}
		m.say(out, restored)
		if err := m.boot(out); err != nil {
			return err
		}
	}
	for {
		if err := m.try(out, m.Doing+1); err != nil {
			return fmt.Errorf("change %d: %w", m.Doing, err)
		}
	}
}

// say prints a message, and notes it like the process that reads it.
func (m *Trials) say(out io.Writer, message ...any) {
	text := fmt.Sprintln(message...)
	fmt.Fprint(out, text)
	_ = m.Hear(strings.TrimSpace(text)) // Only a failure is an error.
}

// try stages an argument, boots it once, and keeps it.
func (m *Trials) try(out io.Writer, n int) error {
	m.say(out, doing, n)
	if err := m.apply(n, host.Pending); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	m.say(out, permitting, n)
	if err := m.subject.Rearm(true); err != nil {
		return fmt.Errorf("permit: %w", err)
	}
	m.say(out, permitted, n)
	if err := m.boot(out); err != nil {
		return err
	}
	if got := lastValue(m.read("/proc/cmdline")); got != text(n) {
		return fmt.Errorf("the permitted trial booted with %q, want %s", got, text(n))
	}
	if err := m.apply(n, host.InSync); err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	m.say(out, did, n)
	return nil
}

// lastValue returns the value of the argument that is effective on a command line.
func lastValue(options string) string {
	return between(options[max(0, strings.LastIndex(options, argument+"=")):]+"\n", argument+"=")
}

// text returns the value of change n. Zero is the original host.
func text(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(1<<20 + n)
}

func (m *Trials) apply(n int, want host.State) error {
	wanted := []host.Setting{{Name: argument, Value: text(n)}}
	if err := m.subject.Apply(context.Background(), wanted); err != nil {
		return err
	}
	if got := m.subject.Observe(context.Background(), wanted)[0]; got.State != want {
		return fmt.Errorf("got %s, want %s: %s", got.State, want, got.Message)
	}
	return nil
}

// boot simulates a boot: the boot loader selects an entry, and the agent starts. It prints the change whose argument is running.
func (m *Trials) boot(out io.Writer) error {
	name, err := m.selectEntry()
	if err != nil {
		return err
	}
	m.say(out, powered)
	options := "BOOT_IMAGE=(hd0,msdos1)/vmlinuz-5.14.0-427.13.1.el9_4.x86_64 " + between(m.read(name), "\noptions ")
	if m.isSystemdBoot() {
		options = `initrd=\token\initrd ` + between(m.read(name), "\noptions ")
		if m.hasImages() {
			if options, err = m.stubOptions(name); err != nil {
				return err
			}
		}
		if err := os.WriteFile(m.root+efiVariables+"/LoaderEntrySelected-"+loaderID, []byte(hosttest.EncodeVariable(filepath.Base(name))), 0o644); err != nil {
			return err
		}
	}
	for file, data := range map[string]string{"/proc/cmdline": options + "\n", "/proc/sys/kernel/random/boot_id": rand.Text() + "\n"} {
		if err := os.WriteFile(m.root+file, []byte(data), 0o644); err != nil {
			return err
		}
	}
	if value := lastValue(options); value != "" && value == text(m.Doing) {
		m.say(out, booted, m.Doing)
	}
	records := journal.New(m.fs)
	if err := records.Load(); err != nil {
		return err
	}
	commands := &hosttest.Commands{Dir: m.root, KernelLog: kernelLog, Output: map[string]string{
		"grub2-probe --target=abstraction /boot/grub2": "\n", "grub2-probe --target=fs /boot/grub2": "xfs\n",
	}}
	m.subject = life.New(m.fs, commands, records, nil, bootloader.Kinds)
	m.subject.Attend(true)
	return nil
}

// stubOptions returns the command line that systemd-stub gives to the kernel of an image: that of the entry, or else that of the image, and then that of
// the addon. It ignores an addon that is not in the PE format.
func (m *Trials) stubOptions(name string) (string, error) {
	options := between(m.read(name), "\noptions ")
	if strings.HasPrefix(name, kernelImages) {
		var err error
		if options, err = hosttest.ImageSection(m.read(name), ".cmdline"); err != nil {
			return "", fmt.Errorf("boot %s: %w", name, err)
		}
	}
	if added, err := hosttest.ImageSection(m.read(addon), ".cmdline"); err == nil {
		options += " " + added
	}
	return options, nil
}

// selectEntry returns the entry that the boot loader boots: the selected one, which it unselects first, or the last one by name. It leaves out
// entries without a kernel.
func (m *Trials) selectEntry() (string, error) {
	var selected string
	var err error
	if m.isSystemdBoot() {
		if data := m.read(hosttest.OneShotVariable); data != "" {
			selected = m.entries + "/" + onceID + ".conf"
			err = os.Remove(m.root + hosttest.OneShotVariable)
		}
	} else if id := between(m.read(environment), nextEntry); id != "" {
		selected = m.entries + "/" + id + ".conf"
		err = m.clearNext(id)
	}
	if err != nil {
		return "", err
	}
	found, err := m.complete()
	if err != nil {
		return "", err
	}
	if slices.Contains(found, selected) {
		return selected, nil
	}
	found = slices.DeleteFunc(found, func(name string) bool { return filepath.Base(name) == onceID+".conf" })
	if len(found) == 0 {
		return "", errors.New("no default entry can be booted")
	}
	return slices.Max(found), nil
}

// clearNext writes the environment block in place, as GRUB does.
func (m *Trials) clearNext(id string) error {
	lines := strings.TrimRight(strings.Replace(m.read(environment), nextEntry+id+"\n", nextEntry+"\n", 1), "#")
	file, err := os.OpenFile(m.root+environment, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(hostgrub.PadBlock(lines))
	return errors.Join(err, file.Sync(), file.Close())
}

// complete returns the entries with a kernel that exists, and all images.
func (m *Trials) complete() (found []string, err error) {
	all, err := m.fs.Glob(m.entries, "*.conf")
	if m.hasImages() {
		images, imageErr := m.fs.Glob(kernelImages, "*.efi")
		found, err = images, errors.Join(err, imageErr)
	}
	for _, name := range all {
		boot := "/boot"
		if m.isSystemdBoot() {
			boot = EFIPartition
		}
		kernel := cmp.Or(between(m.read(name), "\nlinux "), between(m.read(name), "\nefi "))
		if kernel != "" && m.fs.Exists(boot+kernel) && between(m.read(name), "\noptions ") != "" {
			found = append(found, name)
		}
	}
	return found, err
}

func (m *Trials) read(name string) string { return (&Machine{root: m.root}).read(name) }

// Check checks that the entry that is booted once is complete, and that every default entry and the arguments of later kernels are the original file
// with an argument that has booted, or without one. An argument that was never booted must not be there.
func (m *Trials) Check() error {
	allowed := []string{text(m.Done)}
	if m.Restored {
		allowed = []string{""}
	} else if m.Restoring {
		allowed = append(allowed, "")
	}
	for _, n := range m.Proven {
		// After an interrupted promotion, the entries have two values. The next change keeps neither.
		allowed = append(allowed, text(n), "")
	}
	names, err := m.fs.Glob(m.entries, "*.conf")
	if err != nil {
		return err
	}
	bootable, err := m.complete()
	if err != nil {
		return err
	}
	if !m.hasImages() {
		names = append(names, kernelCmdline)
	} else if err := m.checkImages(allowed); err != nil {
		return err
	}
	for _, name := range names {
		data := m.read(name)
		if filepath.Base(name) == onceID+".conf" {
			// On VFAT, a cut can leave a new name with an empty file, which systemd-boot ignores.
			isEmpty := data == "" && m.isSystemdBoot() && m.Doing > m.Done
			if !isEmpty && (!slices.Contains(bootable, name) || !strings.HasSuffix(data, "\n")) {
				return fmt.Errorf("%s is incomplete: %q", name, data)
			}
			continue
		}
		// grubby writes this file without a sync. The next pass of the agent restores an empty file.
		if name == kernelCmdline && strings.Trim(data, "\x00") == "" && !m.isSystemdBoot() && (m.Doing > m.Done || m.Restoring) {
			continue
		}
		value := between(strings.ReplaceAll(data, " ", "\n"), argument+"=")
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("%s has %q, which is not one of %q", name, value, allowed)
		}
		// grubby folds blanks. The restore brings them back.
		original := strings.Fields(m.read(pristineHost + name))
		if kept := strings.Fields(strings.ReplaceAll(data, " "+argument+"="+value, "")); !slices.Equal(kept, original) || !strings.HasSuffix(data, "\n") {
			return fmt.Errorf("%s is %q, was %q", name, kept, original)
		}
	}
	return nil
}

// checkImages checks that all images and the arguments of later kernels are unchanged, and that the addon has exactly one argument, which has booted.
// The addon is removed while another value has its trial. On VFAT, a cut can leave an empty file, which systemd-stub ignores.
func (m *Trials) checkImages(allowed []string) error {
	if err := compareTrees(m.root, "efi/EFI", "etc/kernel"); err != nil {
		return err
	}
	isChanging := m.Doing > m.Done || m.Restoring
	if isChanging {
		allowed = append(allowed, "")
	}
	data, value := m.read(addon), ""
	if data != "" {
		options, err := hosttest.ImageSection(data, ".cmdline")
		code, codeErr := hosttest.ImageSection(data, ".text")
		if value = strings.TrimPrefix(options, argument+"="); err != nil || codeErr != nil || value == options || value == "" || !strings.HasPrefix(code, addonCode) {
			return fmt.Errorf("%s is incomplete: %q", addon, data)
		}
	} else if m.fs.Exists(addon) && !isChanging {
		return errors.New(addon + " is empty")
	}
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("%s has %q, which is not one of %q", addon, value, allowed)
	}
	return nil
}

// Restore restores everything, and checks that all files have their original content.
func (m *Trials) Restore() error {
	if m.subject == nil {
		if err := m.boot(io.Discard); err != nil {
			return err
		}
	}
	if err := m.subject.Apply(context.Background(), nil); err != nil {
		return err
	}
	return m.CompareFiles()
}

// CompareFiles compares /etc, /boot and /efi with their original content, except for the selection of the next boot.
func (m *Trials) CompareFiles() error {
	if m.isSystemdBoot() {
		return compareTrees(m.root, "boot", "etc", "efi")
	}
	return compareTrees(m.root, "boot", "etc")
}

// BootLive creates the variables of the firmware. They are not part of the disk. The firmware keeps the selection of the next boot.
func (m *Trials) BootLive() error {
	if !m.isSystemdBoot() {
		return nil
	}
	if err := unix.Mount("efivarfs", m.root+efiVariables, "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.CopyFS(m.root+efiVariables, os.DirFS(m.root+pristineVariables)); err != nil {
		return err
	}
	if m.Permit != Given {
		return nil
	}
	return os.WriteFile(m.root+hosttest.OneShotVariable, []byte(hosttest.EncodeVariable(onceID+".conf")), 0o644)
}
