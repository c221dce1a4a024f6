package bootloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/storageclient/operator/agent/host"
)

// stageArguments makes the menu pass exactly the desired arguments of the agent. The order makes every crash recoverable. The drop-in records its
// previous arguments from before the menu is made until it is in place. One rename exchanges the menu.
func (s *Subject) stageArguments(ctx context.Context, f state, wanted []host.Argument) error {
	stale, retained := f.staleArguments(wanted), f.retainedArguments(wanted, f.trial.state)
	format, record := f.loader.form(), dropIn{args: wanted, failed: f.failed}
	if !f.dropIn.present && len(wanted) == 0 && len(stale) == 0 {
		return s.finishStaging(f.loader.endTrial(f.facts), s.removeTemp(format), wanted)
	}
	if !s.attended && f.entries.lines != nil {
		// Without an agent after the boot, there is no trial.
		f.menu = f.entries
	}
	keepsAll := f.dropIn.unfinished || len(argumentsWithout(f.dropIn.replaces, retained)) == 0
	if f.dropIn.holdsExactly(wanted) && f.menu.findProblem(wanted, stale) == "" && keepsAll && !s.isCutShort(f) && !f.trial.isBroken() {
		if s.attended && len(f.notBooted(wanted)) > 0 {
			record.replaces, record.hasTrial = retained, f.dropIn.hasTrial
			return s.completeDropIn(format, record)
		}
		return s.finishStaging(f.loader.endTrial(f.facts), s.completeDropIn(format, record), wanted)
	}
	next := change{desired: wanted, stale: stale, trial: f.loader.prepareTrial(ctx, f.facts, wanted)}
	if next.trial.printed != "" {
		next.retained = f.retainedArguments(wanted, next.trial.state)
		record.replaces, record.hasTrial = next.retained, f.entries.lines != nil
	}
	if err := cmp.Or(s.mayStage(f, wanted, stale), next.trial.err); err != nil {
		return errors.Join(fmt.Errorf("stage %q: %w", joinArguments(wanted), err), f.loader.disarm())
	}
	if err := s.recordStaged(f, wanted); err != nil {
		return err
	}
	before, failed := f.recordBefore(), f.failed
	if next.trial.state == trialFailed {
		// A kill may leave no other trace of the failed trial.
		failed = append(f.notBooted(wanted), failed...)
	}
	err := s.writeDropIn(dropIn{args: wanted, unfinished: true, replaces: before.managedArguments(), failed: failed,
		hasTrial: record.hasTrial || f.dropIn.hasTrial}, format)
	if err == nil {
		err = f.loader.changeMenu(ctx, f.facts, next)
	}
	if err != nil {
		err = fmt.Errorf("stage %q: %w", joinArguments(wanted), err)
		if undo := errors.Join(f.loader.undoChange(f.facts), s.completeDropIn(format, before)); undo != nil {
			return errors.Join(errors.New(err.Error()), undo)
		}
		return err
	}
	return s.finishStaging(f.loader.completeChange(next), s.completeDropIn(format, record), wanted)
}

// finishStaging clears the saved originals once the files contain none of the agent's arguments.
func (s *Subject) finishStaging(first, second error, wanted []host.Argument) error {
	err := errors.Join(first, second)
	if err != nil || len(wanted) > 0 || len(s.facts.KeptFiles()) == 0 {
		return err
	}
	return s.facts.KeepFiles(nil)
}

// isCutShort reports whether an interrupted change of saved files may have left no trace in the menu. A grub.cfg is exempt, because it is replaced
// as a whole.
func (s *Subject) isCutShort(f state) bool {
	records := s.facts.KeptFiles()
	for _, place := range s.places() {
		delete(records, place.menuFile())
	}
	return f.dropIn.unfinished && len(records) > 0
}

// mayStage returns the first obstacle to staging. It runs before any change.
func (s *Subject) mayStage(f state, wanted, stale []host.Argument) error {
	switch {
	case f.boundErr != nil:
		return f.boundErr
	case f.bound != "":
		return errors.New(f.bound)
	case f.unprinted != "" && len(wanted) > 0:
		return f.unprinted
	}
	if text := f.menu.tooLong(stale, wanted); text != "" {
		return errors.New(text)
	}
	return s.checkFreeSpace(f)
}

// recordBefore returns the content that the drop-in gets again if staging fails. It has its previous arguments or, after an interrupted staging, the
// arguments that reached the menu, one of the entries, or another file of grubby.
func (f state) recordBefore() dropIn {
	if !f.dropIn.unfinished {
		return f.dropIn
	}
	record := dropIn{failed: f.dropIn.failed, hasTrial: f.dropIn.hasTrial}
	for _, arg := range f.dropIn.managedArguments() {
		if f.menu.holdsArgument(arg) {
			record.args = append(record.args, arg)
		} else if hasArgument(f.entries.valuesOf(arg.Name), arg) || hasArgument(f.written, arg) {
			record.replaces = append(record.replaces, arg)
		}
	}
	return record
}

// completeDropIn writes the arguments of the menu in place to the drop-in. It removes the remains of making another menu.
func (s *Subject) completeDropIn(format form, record dropIn) error {
	return errors.Join(s.writeDropIn(record, format), s.removeTemp(format))
}
