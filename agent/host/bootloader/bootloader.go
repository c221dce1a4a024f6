// Package bootloader passes arguments to the kernel at boot. It supports four kinds of boot loaders:
//
//   - GRUB of Debian, Ubuntu and Azure Linux: the agent stages arguments. It writes a drop-in that appends them, makes a menu from it, and
//     verifies that menu before it replaces the present one. If GRUB can write to its environment block, it tries the arguments once. It
//     then returns to the previous entry, unless an agent has reported since that the machine is up.
//   - GRUB with boot loader specification entries: the agent tries the arguments in an entry that GRUB boots once. Then grubby changes the other
//     entries. The agent verifies them, and keeps the previous files byte by byte.
//   - Unified kernel images of systemd-boot, without Secure Boot: the agent tries the arguments in an entry that systemd-boot boots once. The entry
//     loads the default image with another command line. Then an addon appends the arguments to the command lines of all images.
//   - Any other boot loader: the agent reports the boot loader and the tool to use instead.
//
// The effect of an argument determines its state. Its presence in /proc/cmdline only proves that it was passed.
//
// The agent replaces a grub.cfg only if no line of it is lost. Two rules decide:
//
//   - Every line is in a section of a generator ("### BEGIN /etc/grub.d/10_linux ###"), except comments before the first section. Otherwise,
//     grub-mkconfig is not the only author of the file. The text shows this at every check.
//   - The new menu has every line of the present one, in the same section or entry. Only a new menu shows this, so the agent compares the two
//     when it stages an argument. The result is valid until the file changes.
//
// The comparison ignores everything that the generator itself prints differently at another time: the language, the place of a disk in the firmware's
// order, entries of removed kernels, and the agent's arguments. A menu may come from another locale or an image build, or may list another set of
// kernels.
//
// The agent journals the bytes of a grub.cfg before the first change. It restores them when none of its arguments is desired. If the agent did not
// write the exact present file, or the generator now prints something different, the agent makes a new menu instead. If that menu would lose a line,
// the agent removes only its arguments from the present menu.
package bootloader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
)

// Name is the subject's part of a setting's key.
const Name = "kernelArgument"

// Names of facts about a boot: the agent's arguments in the menu when the boot started, and the arguments that it has staged since.
const (
	factAtBoot      = "menu-arguments"
	factStagedSince = "staged-arguments"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// maxStaged limits the arguments that are recorded for a boot. The oldest are dropped first.
const maxStaged = 128

// HashSize predicts the size of a hash table that an argument requests (ihash_entries, dhash_entries), for a kernel with that memory in bytes.
// clamped reports whether the kernel may grant less than requested. In that case, granted is the largest value that it grants for certain.
type HashSize func(name string, entries, memory uint64) (granted uint64, clamped bool)

// BootFacts stores facts about one boot until the next, and the contents of files before a program of the host changed them. The agent's journal
// implements it.
type BootFacts interface {
	BootFact(bootID, name string) (value string, ok bool)
	SetBootFact(bootID, name, value string) error
	KeptFiles() map[string]host.FileRecord
	KeepFiles(files map[string]host.FileRecord) error
}

// Host is the machine, as the boot loaders see it, and what is known about it until the agent restarts.
type Host struct {
	fs     host.FS
	runner host.Runner
	facts  BootFacts
	// space returns the free space of a directory's file system.
	space func(dir string) (host.Space, error)
	// readFile reads a menu. pause waits while another program is writing it.
	readFile  func(name string) ([]byte, error)
	pause     func(time.Duration)
	bootClock host.BootClock
	// delay is the reason why the last Apply waits until delayEnd (since the boot). Empty if it does not wait.
	delay    string
	delayEnd time.Duration
	// attended is true if an agent runs after the boot.
	attended bool
	// changedByOthers are files that another program or user has changed since the agent saved them. They were not restored byte by byte.
	changedByOthers []string
	// writable is the reason why GRUB cannot write to its environment block. Empty if it can; nil if unknown.
	writable *string
	// finding is the line that the last new menu would have lost. Empty if none.
	finding menuFinding
	// kinds are all kinds of boot loaders.
	kinds []Kind
}

// Subject implements host.Subject for the settings "kernelArgument/...".
type Subject struct {
	*Host
	// hashSize is called before an argument that sizes a hash table is staged. If nil, such an argument is never reported as clamped before the boot.
	hashSize HashSize
	// failure is the error of the last Apply. Nil if it could stage, or if it waits for the reason in delay.
	failure error
	// named are the arguments of the last settings.
	named []string
}

var _ host.BootTrier = &Subject{}

// New returns the subject for one host with these kinds of boot loaders.
func New(fs host.FS, runner host.Runner, facts BootFacts, hashSize HashSize, kinds []Kind) *Subject {
	return &Subject{hashSize: hashSize, Host: &Host{
		fs: fs, runner: runner, facts: facts, space: fs.FreeSpace, readFile: fs.ReadFile, pause: time.Sleep, bootClock: host.SystemBootClock{}, kinds: kinds,
	}}
}

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

// Original implements host.Subject. For an image, the original is the value in the menu.
func (s *Subject) Original(ctx context.Context, name string) (host.Original, error) {
	args, err := s.effectiveArguments(ctx)
	if err != nil {
		return host.Original{}, err
	}
	arg, ok := lastNamed(args, name)
	return host.Original{Present: ok, Value: arg.Value}, nil
}

// Apply implements host.Subject. On success, the menu contains the desired arguments. On error, it contains its previous arguments.
func (s *Subject) Apply(ctx context.Context, desired []host.Setting) error {
	f, err := s.gatherFacts(ctx, desired)
	if err == nil {
		err = s.applySettings(ctx, f, desired)
	}
	var unprinted unprintedError
	if s.hold(err) || errors.As(err, &unprinted) {
		// A kernel is being installed, or the host does not support staging, which is not a failure. Observe reports the reason.
		err = nil
	}
	s.failure = err
	return err
}

func (s *Subject) applySettings(ctx context.Context, f state, desired []host.Setting) error {
	if !f.loader.canStage() {
		for _, place := range s.places() {
			if err := place.disarm(); err != nil {
				return err
			}
		}
		if f.dropIn.present {
			return fmt.Errorf("cannot remove %s: %s", f.loader.form().file, f.loader.detection().Message)
		}
		return nil
	}
	var wanted []host.Argument
	for _, setting := range desired {
		if _, stage := f.evaluateSetting(setting, nil); stage {
			arg, err := argumentOf(setting)
			if err != nil {
				return err
			}
			wanted = append(wanted, arg)
		}
	}
	f.failed = slices.DeleteFunc(f.failed, func(arg host.Argument) bool { return !hasArgument(wanted, arg) })
	wanted = append(argumentsWithout(wanted, f.failed), f.replacedByFailed()...)
	slices.SortFunc(wanted, func(a, b host.Argument) int { return strings.Compare(a.Name, b.Name) })
	return s.stageArguments(ctx, f, wanted)
}

// Observe implements host.Subject.
func (s *Subject) Observe(ctx context.Context, desired []host.Setting) []host.Observation {
	f, err := s.gatherFacts(ctx, desired)
	return host.ObserveEach(desired, host.Reboot, func(o *host.Observation, setting host.Setting) error {
		if err != nil {
			return errors.New(oneLine(err.Error()))
		}
		*o, _ = f.evaluateSetting(setting, s.failure)
		return nil
	})
}

// Restore implements host.Subject. Kernel arguments cannot be restored live, so Restore only reports which ones must still be removed.
func (s *Subject) Restore(ctx context.Context, originals map[string]host.Original) []host.Observation {
	var settings []host.Setting
	for name := range originals {
		settings = append(settings, host.Setting{Name: name})
	}
	f, err := s.gatherFacts(ctx, settings)
	return host.RestoreEach(originals, host.Reboot, func(o *host.Observation, original host.Original) error {
		if err != nil {
			return errors.New(oneLine(err.Error()))
		}
		f.evaluateRestored(o, original, s.failure)
		if o.State == host.Pending && len(s.changedByOthers) > 0 {
			o.Message += "; " + host.ListNames(s.changedByOthers) + " changed in the meantime: removed only the agent's arguments"
		}
		return nil
	})
}

func (s *Subject) gatherFacts(ctx context.Context, settings []host.Setting) (state, error) {
	s.named = s.named[:0]
	for _, setting := range settings {
		s.named = append(s.named, setting.Name)
	}
	f := state{loader: s.loader(), hashSize: s.hashSize, facts: facts{image: s.fs.IsImage()}}
	var err error
	if !f.image {
		if f.bootID, err = s.fs.ReadValue(bootIDFile); err != nil {
			return f, err
		}
		if f.cmdline, err = s.readCommandLine(); err != nil {
			return f, err
		}
	}
	if f.dropIn, err = s.readDropIn(f.loader.form()); err != nil {
		return f, err
	}
	if f.menu, err = f.loader.readMenu(ctx); err != nil {
		return f, err
	}
	if err := f.loader.readFacts(ctx, &f.facts, settings); err != nil {
		return f, err
	}
	f.failed, f.delay = f.failedArguments(settings), s.delay
	if f.loader.canStage() && !f.image && (len(settings) > 0 || f.dropIn.present) {
		f.bound, f.boundErr = findBoundVolume(ctx, s.Host)
	}
	sized := func(setting host.Setting) bool { return isHashTable(setting.Name) }
	if f.image || !slices.ContainsFunc(settings, sized) {
		return f, nil
	}
	if f.sizes, err = s.hashSizes(ctx, f.bootID); err != nil {
		return f, err
	}
	f.memory, err = s.memoryForTables(f.sizes)
	return f, err
}

func (h *Host) readRecords(f *facts) error {
	if f.image {
		return nil
	}
	var err error
	if value, ok := h.facts.BootFact(f.bootID, factStagedSince); ok {
		f.stagedSince = host.ParseArguments(value)
	}
	f.atBoot, err = h.atBoot(f.bootID, *f)
	return err
}

// atBoot returns the agent's arguments that the menu passed when this boot started: in all entries or, after an interrupted change, in the booted
// entry. They are recorded at the first read in a boot that finds any, and at the latest before the first change.
func (h *Host) atBoot(bootID string, f facts) ([]host.Argument, error) {
	if value, ok := h.facts.BootFact(bootID, factAtBoot); ok {
		return host.ParseArguments(value), nil
	}
	if !f.dropIn.present {
		return nil, nil
	}
	args := slices.DeleteFunc(f.dropIn.managedArguments(), func(arg host.Argument) bool {
		return !f.menu.holdsArgument(arg) && !hasArgument(f.cmdline, arg)
	})
	return args, h.recordAtBoot(bootID, args)
}

func (h *Host) recordAtBoot(bootID string, args []host.Argument) error {
	if _, ok := h.facts.BootFact(bootID, factAtBoot); ok {
		return nil
	}
	return h.facts.SetBootFact(bootID, factAtBoot, joinArguments(args))
}

// recordStaged records arguments before they are staged, so that the agent recognizes them even without its drop-in.
func (s *Subject) recordStaged(f state, wanted []host.Argument) error {
	if f.image {
		return nil
	}
	if err := s.recordAtBoot(f.bootID, f.atBoot); err != nil {
		return err
	}
	added := argumentsWithout(wanted, f.stagedSince)
	if len(added) == 0 {
		return nil
	}
	all := append(slices.Clone(f.stagedSince), added...)
	return s.facts.SetBootFact(f.bootID, factStagedSince, joinArguments(all[max(0, len(all)-maxStaged):]))
}

// effectiveArguments returns the arguments that the kernel was booted with. For an image, it returns the arguments that a boot would pass.
func (s *Subject) effectiveArguments(ctx context.Context) ([]host.Argument, error) {
	if !s.fs.IsImage() {
		return s.readCommandLine()
	}
	present, err := s.loader().readMenu(ctx)
	for _, line := range present.lines {
		if !line.recovery {
			return line.args, err
		}
	}
	return nil, err
}

func (h *Host) readCommandLine() ([]host.Argument, error) {
	data, err := h.fs.ReadFile(commandLine)
	return host.ParseArguments(string(data)), err
}

// Attend implements host.BootTrier.
func (s *Subject) Attend(attended bool) { s.attended = attended }

// Rearm implements host.BootTrier.
func (s *Subject) Rearm(permitted bool) error { return s.loader().rearm(permitted) }
