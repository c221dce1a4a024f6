package life

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// spareSpace is the space, in bytes, that must be free in addition to the files that staging writes. It is for their directory, for grubenv and for
// the blocks of the file system itself.
const spareSpace = 64 << 10

// checkFreeSpace returns an error if the file system of the boot menu is read-only or has too little space for staging. It runs before any change.
// A new menu temporarily exists twice next to the present one: as grub-mkconfig's file and as the agent's.
func (s *Subject) checkFreeSpace(f state) error {
	dir := path.Dir(f.loader.MenuFile())
	space, err := s.Space(dir)
	if err != nil {
		return err
	}
	if space.ReadOnly {
		return fmt.Errorf("%s is on a file system that is mounted read-only", dir)
	}
	names, err := s.FS.Glob(dir, "*")
	if err != nil {
		return err
	}
	need := uint64(spareSpace)
	for _, name := range names {
		info, err := s.FS.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if path.Ext(name) == ".cfg" || path.Ext(name) == ".conf" {
			need += 2 * uint64(info.Size())
		}
	}
	if space.Free < need {
		return fmt.Errorf("%s has %d KiB left, staging needs %d KiB: remove unused kernels", dir, space.Free>>10, need>>10)
	}
	return nil
}

func (s *Subject) writeDropIn(d loader.Record, format loader.Form) error {
	return s.FS.KeepFileMode(format.File, d.Render(format), format.Perm)
}

// stageArguments makes the menu pass exactly the desired arguments of the agent. The order makes every crash recoverable. The drop-in records its
// previous arguments from before the menu is made until it is in place. One rename exchanges the menu.
func (s *Subject) stageArguments(ctx context.Context, f state, wanted []host.Argument) error {
	stale, retained := f.StaleArguments(wanted), f.retainedArguments(wanted, f.Trial.State)
	format, record := f.loader.Form(), loader.Record{Args: wanted, Failed: f.Failed}
	if !f.Record.Present && len(wanted) == 0 && len(stale) == 0 {
		return s.finishStaging(f.loader.EndTrial(f.Facts), s.RemoveTemp(format), wanted)
	}
	if !s.Attended && f.Entries.Lines != nil {
		// Without an agent after the boot, there is no trial.
		f.Menu = f.Entries
	}
	keepsAll := f.Record.Unfinished || len(argument.Without(f.Record.Replaces, retained)) == 0
	if f.Record.HoldsExactly(wanted) && f.Menu.FindProblem(wanted, stale) == "" && keepsAll && !s.isCutShort(f) && !f.Trial.IsBroken() {
		if s.Attended && len(f.NotBooted(wanted)) > 0 {
			record.Replaces, record.HasTrial = retained, f.Record.HasTrial
			return s.completeDropIn(format, record)
		}
		return s.finishStaging(f.loader.EndTrial(f.Facts), s.completeDropIn(format, record), wanted)
	}
	next := loader.Change{Desired: wanted, Stale: stale, Trial: f.loader.PrepareTrial(ctx, f.Facts, wanted)}
	if next.Trial.Printed != "" {
		next.Retained = f.retainedArguments(wanted, next.Trial.State)
		record.Replaces, record.HasTrial = next.Retained, f.Entries.Lines != nil
	}
	if err := cmp.Or(s.mayStage(f, wanted, stale), next.Trial.Err); err != nil {
		return errors.Join(fmt.Errorf("stage %q: %w", argument.Join(wanted), err), f.loader.Disarm())
	}
	if err := s.recordStaged(f, wanted); err != nil {
		return err
	}
	before, failed := f.recordBefore(), f.Failed
	if next.Trial.State == loader.TrialFailed {
		// A kill may leave no other trace of the failed trial.
		failed = append(f.NotBooted(wanted), failed...)
	}
	err := s.writeDropIn(loader.Record{Args: wanted, Unfinished: true, Replaces: before.ManagedArguments(), Failed: failed,
		HasTrial: record.HasTrial || f.Record.HasTrial}, format)
	if err == nil {
		err = f.loader.ChangeMenu(ctx, f.Facts, next)
	}
	if err != nil {
		err = fmt.Errorf("stage %q: %w", argument.Join(wanted), err)
		if undo := errors.Join(f.loader.UndoChange(f.Facts), s.completeDropIn(format, before)); undo != nil {
			return errors.Join(errors.New(err.Error()), undo)
		}
		return err
	}
	return s.finishStaging(f.loader.CompleteChange(next), s.completeDropIn(format, record), wanted)
}

// finishStaging clears the saved originals once the files contain none of the agent's arguments.
func (s *Subject) finishStaging(first, second error, wanted []host.Argument) error {
	err := errors.Join(first, second)
	if err != nil || len(wanted) > 0 || len(s.Facts.KeptFiles()) == 0 {
		return err
	}
	return s.Facts.KeepFiles(nil)
}

// isCutShort reports whether an interrupted change of saved files may have left no trace in the menu. A grub.cfg is exempt, because it is replaced
// as a whole.
func (s *Subject) isCutShort(f state) bool {
	records := s.Facts.KeptFiles()
	for _, place := range s.Places() {
		delete(records, place.MenuFile())
	}
	return f.Record.Unfinished && len(records) > 0
}

// mayStage returns the first obstacle to staging. It runs before any change.
func (s *Subject) mayStage(f state, wanted, stale []host.Argument) error {
	switch {
	case f.boundErr != nil:
		return f.boundErr
	case f.bound != "":
		return errors.New(f.bound)
	case f.Unprinted != "" && len(wanted) > 0:
		return f.Unprinted
	}
	if text := f.Menu.TooLong(stale, wanted); text != "" {
		return errors.New(text)
	}
	return s.checkFreeSpace(f)
}

// recordBefore returns the content that the drop-in gets again if staging fails. It has its previous arguments or, after an interrupted staging, the
// arguments that reached the menu, one of the entries, or another file of grubby.
func (f state) recordBefore() loader.Record {
	if !f.Record.Unfinished {
		return f.Record
	}
	record := loader.Record{Failed: f.Record.Failed, HasTrial: f.Record.HasTrial}
	for _, arg := range f.Record.ManagedArguments() {
		if f.Menu.HoldsArgument(arg) {
			record.Args = append(record.Args, arg)
		} else if argument.Has(f.Entries.ValuesOf(arg.Name), arg) || argument.Has(f.Written, arg) {
			record.Replaces = append(record.Replaces, arg)
		}
	}
	return record
}

// completeDropIn writes the arguments of the menu in place to the drop-in. The remains of making another menu go first: after the next change, copies
// of files from before this one would be restored.
func (s *Subject) completeDropIn(format loader.Form, record loader.Record) error {
	return errors.Join(s.RemoveTemp(format), s.writeDropIn(record, format))
}
