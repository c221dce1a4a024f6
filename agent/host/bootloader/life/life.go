// Package life stages, tries, keeps and undoes arguments of the kernel, on any boot loader.
//
// The effect of an argument determines its state. Its presence in /proc/cmdline only proves that it was passed.
package life

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/bootloader/tpm"
)

// Name is the subject's part of a setting's key.
const Name = "kernelArgument"

// maxStaged limits the arguments that are recorded for a boot. The oldest are dropped first.
const maxStaged = 128

// HashSize predicts the size of a hash table that an argument requests (ihash_entries, dhash_entries), for a kernel with that memory in bytes.
// clamped reports whether the kernel may grant less than requested. In that case, granted is the largest value that it grants for certain.
type HashSize func(name string, entries, memory uint64) (granted uint64, clamped bool)

// Subject implements host.Subject for the settings "kernelArgument/...".
type Subject struct {
	host.Inert

	*loader.Host
	// hashSize is called before an argument that sizes a hash table is staged. If nil, such an argument is never reported as clamped before the boot.
	hashSize HashSize
	// failure is the error of the last Apply. Nil if it could stage, or if it waits for the reason in delay.
	failure error
	// named are the arguments of the last settings.
	named []string
}

var _ host.Subject = &Subject{}

// New returns the subject for one host with these kinds of boot loaders.
func New(fs host.FS, runner host.Runner, facts loader.BootFacts, hashSize HashSize, kinds []loader.Kind) *Subject {
	return &Subject{hashSize: hashSize, Host: &loader.Host{
		FS: fs, Runner: runner, Facts: facts, Space: fs.FreeSpace, ReadFile: fs.ReadFile, Pause: time.Sleep, BootClock: host.SystemBootClock{}, Kinds: kinds,
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
	arg, ok := argument.Last(args, name)
	return host.Original{Present: ok, Value: arg.Value}, nil
}

// Apply implements host.Subject. On success, the menu contains the desired arguments. On error, it contains its previous arguments.
func (s *Subject) Apply(ctx context.Context, desired []host.Setting) error {
	f, err := s.gatherFacts(ctx, desired)
	if err == nil {
		err = s.applySettings(ctx, f, desired)
	}
	var unprinted loader.UnprintedError
	if s.hold(err) || errors.As(err, &unprinted) {
		// A kernel is being installed, or the host does not support staging, which is not a failure. Observe reports the reason.
		err = nil
	}
	s.failure = err
	return err
}

func (s *Subject) applySettings(ctx context.Context, f state, desired []host.Setting) error {
	if !f.loader.CanStage() {
		for _, place := range s.Places() {
			if err := place.Disarm(); err != nil {
				return err
			}
		}
		if f.Record.Present {
			return fmt.Errorf("cannot remove %s: %s", f.loader.Form().File, f.loader.Detection().Message)
		}
		return nil
	}
	var wanted []host.Argument
	for _, setting := range desired {
		if _, stage := f.evaluateSetting(setting, nil); stage {
			arg, err := ArgumentOf(setting)
			if err != nil {
				return err
			}
			wanted = append(wanted, arg)
		}
	}
	f.Failed = slices.DeleteFunc(f.Failed, func(arg host.Argument) bool { return !argument.Has(wanted, arg) })
	wanted = append(argument.Without(wanted, f.Failed), f.ReplacedByFailed()...)
	slices.SortFunc(wanted, func(a, b host.Argument) int { return strings.Compare(a.Name, b.Name) })
	return s.stageArguments(ctx, f, wanted)
}

// Observe implements host.Subject.
func (s *Subject) Observe(ctx context.Context, desired []host.Setting) []host.Observation {
	f, err := s.gatherFacts(ctx, desired)
	return host.ObserveEach(desired, host.Reboot, func(o *host.Observation, setting host.Setting) error {
		if err != nil {
			return errors.New(loader.OneLine(err.Error()))
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
			return errors.New(loader.OneLine(err.Error()))
		}
		f.evaluateRestored(o, original, s.failure)
		if o.State == host.Pending && len(s.ChangedByOthers) > 0 {
			o.Message += "; " + host.ListNames(s.ChangedByOthers) + " changed in the meantime: removed only the agent's arguments"
		}
		return nil
	})
}

func (s *Subject) gatherFacts(ctx context.Context, settings []host.Setting) (state, error) {
	s.named = s.named[:0]
	for _, setting := range settings {
		s.named = append(s.named, setting.Name)
	}
	f := state{loader: s.Loader(), hashSize: s.hashSize, Facts: loader.Facts{Image: s.FS.IsImage()}}
	var err error
	if !f.Image {
		if f.BootID, err = s.FS.ReadValue(loader.BootIDFile); err != nil {
			return f, err
		}
		if f.Cmdline, err = s.ReadCommandLine(); err != nil {
			return f, err
		}
	}
	if f.Record, err = s.ReadRecord(f.loader.Form()); err != nil {
		return f, err
	}
	if f.Menu, err = f.loader.ReadMenu(ctx); err != nil {
		return f, err
	}
	if err := f.loader.ReadFacts(ctx, &f.Facts, settings); err != nil {
		return f, err
	}
	f.Failed, f.delay = f.failedArguments(settings), s.Delay
	if f.loader.CanStage() && !f.Image && (len(settings) > 0 || f.Record.Present) {
		f.bound, f.boundErr = tpm.FindBoundVolume(ctx, s.Host)
	}
	sized := func(setting host.Setting) bool { return isHashTable(setting.Name) }
	if f.Image || !slices.ContainsFunc(settings, sized) {
		return f, nil
	}
	if f.sizes, err = s.hashSizes(ctx, f.BootID); err != nil {
		return f, err
	}
	f.memory, err = s.memoryForTables(f.sizes)
	return f, err
}

// recordStaged records arguments before they are staged, so that the agent recognizes them even without its drop-in.
func (s *Subject) recordStaged(f state, wanted []host.Argument) error {
	if f.Image {
		return nil
	}
	if err := s.RecordAtBoot(f.BootID, f.AtBoot); err != nil {
		return err
	}
	added := argument.Without(wanted, f.StagedSince)
	if len(added) == 0 {
		return nil
	}
	all := append(slices.Clone(f.StagedSince), added...)
	return s.Facts.SetBootFact(f.BootID, loader.FactStagedSince, argument.Join(all[max(0, len(all)-maxStaged):]))
}

// effectiveArguments returns the arguments that the kernel was booted with. For an image, it returns the arguments that a boot would pass.
func (s *Subject) effectiveArguments(ctx context.Context) ([]host.Argument, error) {
	if !s.FS.IsImage() {
		return s.ReadCommandLine()
	}
	present, err := s.Loader().ReadMenu(ctx)
	for _, line := range present.Lines {
		if !line.Recovery {
			return line.Args, err
		}
	}
	return nil, err
}

// Attend implements host.Subject.
func (s *Subject) Attend(attended bool) { s.Attended = attended }

// Rearm implements host.Subject.
func (s *Subject) Rearm(permitted bool) error { return s.Loader().Rearm(permitted) }

// MaxHold is the maximum time during which temporary obstacles to staging are no failure. An installation of a kernel takes 20 to 60 seconds, mostly for
// its initramfs.
const MaxHold = 5 * time.Minute

// hold reports whether a failure is temporary, and has not lasted too long.
func (s *Subject) hold(err error) bool {
	var temporary loader.TemporaryError
	if s.Delay = ""; !errors.As(err, &temporary) {
		s.DelayEnd = 0
		return false
	}
	now, err := s.BootClock.SinceBoot()
	if s.DelayEnd == 0 {
		s.DelayEnd = now + MaxHold
	}
	if err == nil && now < s.DelayEnd {
		s.Delay = loader.OneLine(temporary.Error())
	}
	return s.Delay != ""
}
