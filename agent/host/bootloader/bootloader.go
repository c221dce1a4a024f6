// Package bootloader passes arguments to the kernel at boot. On Debian's, Ubuntu's and Azure Linux's GRUB it stages them: a
// drop-in that appends, a menu made from it and read back before it takes the place of the present one. Where GRUB can
// keep a note of its own, it tries them once, and comes back to the entry before where no agent has said since that the
// machine is up. On GRUB with
// boot loader specification entries it has grubby change them, reads them back, and keeps what was there before as bytes. For any other boot loader it says
// what was found and what to use instead. An argument counts by its effect; that it
// stands on /proc/cmdline only proves that it was passed.
//
// The agent replaces a grub.cfg only if no line of it is lost. Two rules decide:
//
//   - Every line is in a section of a generator ("### BEGIN /etc/grub.d/10_linux ###"), except comments before the first one. Otherwise
//     grub-mkconfig has not made the file alone. The text shows this at every check.
//   - The new menu has every line of the present one, in the same section or entry. Only a new menu shows this, so the two are compared
//     when an argument is staged. The result is valid until the file changes.
//
// The comparison ignores everything that the generator itself prints differently at another time: the language, the place of a disk in
// the firmware's order, entries of kernels that are gone, and our own arguments. A menu may be from another locale, from an image's build, or for
// another set of kernels.
//
// The bytes of a grub.cfg are journaled before the first change, and restored when no argument of ours is desired any more. If the present
// file is not ours to the byte, or the generator prints something else now, a new menu is made instead. If that one would lose a line,
// our arguments are removed from the present menu and nothing else changes.
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

// Names under which is noted for a boot what the menu passed of ours when it began, and what we have staged since.
const (
	factAtBoot      = "menu-arguments"
	factStagedSince = "staged-arguments"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// maxStaged bounds what is remembered of a boot; the oldest goes first.
const maxStaged = 128

// HashSize predicts what a kernel with that memory, in bytes, makes of a hash table that is asked for by an
// argument (ihash_entries, dhash_entries). clamped is true where it may grant less than asked for; granted is
// then the largest value that is sure to be granted.
type HashSize func(name string, entries, memory uint64) (granted uint64, clamped bool)

// Options are what the subject takes from outside.
type Options struct {
	// HashSize is asked before an argument is staged that sizes a hash table. Where it is nil, such an argument is
	// never found to be clamped before the boot.
	HashSize HashSize
}

// BootFacts keeps what is known of one boot until the next, and what files were before a program of the host changed them.
// The agent's journal implements it.
type BootFacts interface {
	BootFact(bootID, name string) (value string, ok bool)
	SetBootFact(bootID, name, value string) error
	KeptFiles() map[string]host.KeptFile
	KeepFiles(files map[string]host.KeptFile) error
}

// Subject serves the settings "kernelArgument/...". It implements host.Subject.
type Subject struct {
	fs      host.FS
	runner  host.Runner
	facts   BootFacts
	options Options
	// space tells what the file system of a directory has left.
	space func(dir string) (host.Space, error)
	// readFile reads a menu, and pause waits for somebody who is writing it.
	readFile func(name string) ([]byte, error)
	pause    func(time.Duration)
	// failure is why the last Apply could not stage.
	failure  error
	attended bool
	// changedByOthers are files that somebody has changed since they were kept: they were not put back to the byte.
	changedByOthers []string
	// writable is why GRUB cannot write to its environment block, empty where it can; nil until that is known.
	writable *string
	// finding is the line that the last new menu would have lost. Empty if none.
	finding menuFinding
}

var _ host.BootTrier = &Subject{}

// New returns the subject for one host.
func New(fs host.FS, runner host.Runner, facts BootFacts, options Options) *Subject {
	return &Subject{fs: fs, runner: runner, facts: facts, options: options, space: fs.FreeSpace, readFile: fs.ReadFile, pause: time.Sleep}
}

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

// Original implements host.Subject. In an image, it is what the menu passes.
func (s *Subject) Original(ctx context.Context, name string) (host.Original, error) {
	args, err := s.inForce(ctx)
	if err != nil {
		return host.Original{}, err
	}
	arg, ok := lastNamed(args, name)
	return host.Original{Present: ok, Value: arg.Value}, nil
}

// Apply implements host.Subject. The menu holds the wanted arguments when it returns without an error, or what
// it held before when it returns with one.
func (s *Subject) Apply(ctx context.Context, desired []host.Setting) error {
	f, err := s.gatherFacts(ctx, desired)
	if err == nil {
		err = s.applySettings(ctx, f, desired)
	}
	var unprinted unprintedError
	if errors.As(err, &unprinted) {
		// This host does not support it, which is no failure. Observe says why.
		err = nil
	}
	s.failure = err
	return err
}

func (s *Subject) applySettings(ctx context.Context, f facts, desired []host.Setting) error {
	if !f.loader.canStage() {
		if f.dropIn.present {
			return fmt.Errorf("cannot remove %s: %s", f.loader.form().file, f.loader.detection().Message)
		}
		return nil
	}
	var wanted []host.Argument
	for _, setting := range desired {
		if _, stage := f.judgeSetting(setting, nil); stage {
			arg, err := argumentOf(setting)
			if err != nil {
				return err
			}
			wanted = append(wanted, arg)
		}
	}
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
		*o, _ = f.judgeSetting(setting, s.failure)
		return nil
	})
}

// Restore implements host.Subject. Nothing of a boot can be put back live: it tells what still is to go.
func (s *Subject) Restore(ctx context.Context, originals map[string]host.Original) []host.Observation {
	var asked []host.Setting
	for name := range originals {
		asked = append(asked, host.Setting{Name: name})
	}
	f, err := s.gatherFacts(ctx, asked)
	return host.RestoreEach(originals, host.Reboot, func(o *host.Observation, original host.Original) error {
		if err != nil {
			return errors.New(oneLine(err.Error()))
		}
		f.judgeRestored(o, original, s.failure)
		if o.State == host.Pending && len(s.changedByOthers) > 0 {
			o.Message += "; " + host.ListNames(s.changedByOthers) + " changed meanwhile: only our arguments were taken out"
		}
		return nil
	})
}

func (s *Subject) gatherFacts(ctx context.Context, asked []host.Setting) (facts, error) {
	f := facts{loader: s.loader(), hashSize: s.options.HashSize, image: s.fs.IsImage()}
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
	if err := f.loader.readFacts(ctx, &f, asked); err != nil {
		return f, err
	}
	if f.loader.canStage() && !f.image && (len(asked) > 0 || f.dropIn.present) {
		f.bound, f.boundErr = s.findBoundVolume(ctx)
	}
	sized := func(setting host.Setting) bool { return isHashTable(setting.Name) }
	if f.image || !slices.ContainsFunc(asked, sized) {
		return f, nil
	}
	if f.sizes, err = s.hashSizes(ctx, f.bootID); err != nil {
		return f, err
	}
	f.memory, err = s.memoryForTables(f.sizes)
	return f, err
}

func (s *Subject) gatherNotes(f *facts) error {
	if f.image {
		return nil
	}
	var err error
	if noted, ok := s.facts.BootFact(f.bootID, factStagedSince); ok {
		f.stagedSince = host.ParseArguments(noted)
	}
	f.atBoot, err = s.atBoot(f.bootID, *f)
	return err
}

// atBoot tells what the menu passed of ours when this boot began: all of its entries, or, where a change was cut short, the one that was
// booted. It is noted at the first read in a boot that finds something of ours, and before the first change at the latest.
func (s *Subject) atBoot(bootID string, f facts) ([]host.Argument, error) {
	if noted, ok := s.facts.BootFact(bootID, factAtBoot); ok {
		return host.ParseArguments(noted), nil
	}
	if !f.dropIn.present {
		return nil, nil
	}
	args := slices.DeleteFunc(f.dropIn.ourArguments(), func(arg host.Argument) bool {
		return !f.menu.holdsArgument(arg) && !hasArgument(f.cmdline, arg)
	})
	return args, s.noteAtBoot(bootID, args)
}

func (s *Subject) noteAtBoot(bootID string, args []host.Argument) error {
	if _, ok := s.facts.BootFact(bootID, factAtBoot); ok {
		return nil
	}
	return s.facts.SetBootFact(bootID, factAtBoot, joinArguments(args))
}

// noteStaged notes what is about to be staged, so that it is known for ours even without our drop-in.
func (s *Subject) noteStaged(f facts, wanted []host.Argument) error {
	if f.image {
		return nil
	}
	if err := s.noteAtBoot(f.bootID, f.atBoot); err != nil {
		return err
	}
	more := argumentsWithout(wanted, f.stagedSince)
	if len(more) == 0 {
		return nil
	}
	all := append(slices.Clone(f.stagedSince), more...)
	return s.facts.SetBootFact(f.bootID, factStagedSince, joinArguments(all[max(0, len(all)-maxStaged):]))
}

func (f facts) argumentsInMenu() []host.Argument {
	return slices.DeleteFunc(f.dropIn.ourArguments(), func(arg host.Argument) bool { return !f.menu.holdsArgument(arg) })
}

// inForce are the arguments that the kernel was booted with; of an image, those that it would be.
func (s *Subject) inForce(ctx context.Context) ([]host.Argument, error) {
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

func (s *Subject) readCommandLine() ([]host.Argument, error) {
	data, err := s.fs.ReadFile(commandLine)
	return host.ParseArguments(string(data)), err
}
