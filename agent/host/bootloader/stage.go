package bootloader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// stageArguments makes the menu pass exactly the wanted arguments of ours. The order makes every crash recoverable: our
// drop-in says from before the menu is made until it is in place what it held before, and the menu is exchanged
// by one rename.
func (s *Subject) stageArguments(ctx context.Context, f facts, wanted []host.Argument) error {
	stale := f.staleArguments(wanted)
	as := f.loader.form()
	if !f.dropIn.present && len(wanted) == 0 && len(stale) == 0 {
		return s.finishStaging(f.loader.endTrial(f), s.removeTemp(as), wanted)
	}
	if f.dropIn.holdsExactly(wanted) && f.menu.findProblem(wanted, stale) == "" && !s.isCutShort(f) {
		if s.attended && len(f.notBooted(wanted)) > 0 {
			return s.completeDropIn(as, wanted)
		}
		return s.finishStaging(f.loader.endTrial(f), s.completeDropIn(as, wanted), wanted)
	}
	if err := s.mayStage(f, wanted, stale); err != nil {
		return fmt.Errorf("stage %q: %w", joinArguments(wanted), err)
	}
	if err := s.noteStaged(f, wanted); err != nil {
		return err
	}
	before := f.argumentsBefore()
	next := f.loader.prepareChange(ctx, f, wanted, stale)
	err := s.writeDropIn(dropIn{args: wanted, unfinished: true, replaces: before}, as)
	if err == nil {
		err = f.loader.changeMenu(ctx, f, next)
	}
	if err != nil {
		err = fmt.Errorf("stage %q: %w", joinArguments(wanted), err)
		if undo := errors.Join(f.loader.undoChange(f), s.completeDropIn(as, before)); undo != nil {
			return errors.Join(errors.New(err.Error()), undo)
		}
		return err
	}
	return s.finishStaging(f.loader.completeChange(next), s.completeDropIn(as, wanted), wanted)
}

// finishStaging lets go of what files were before our first change, once nothing of ours is in them.
func (s *Subject) finishStaging(first, second error, wanted []host.Argument) error {
	err := errors.Join(first, second)
	if err != nil || len(wanted) > 0 || len(s.facts.KeptFiles()) == 0 {
		return err
	}
	return s.facts.KeepFiles(nil)
}

// isCutShort reports whether a change of kept files may have been cut short without a trace in the menu. A grub.cfg is replaced as a whole.
func (s *Subject) isCutShort(f facts) bool {
	kept := s.facts.KeptFiles()
	maps.DeleteFunc(kept, func(name string, _ host.KeptFile) bool { return name == grubCfg || name == grub2Cfg })
	return f.dropIn.unfinished && len(kept) > 0
}

// mayStage finds what is in the way before anything is touched.
func (s *Subject) mayStage(f facts, wanted, stale []host.Argument) error {
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
	return s.roomToStage(f)
}

// argumentsBefore is what our drop-in goes back to when staging fails: what it said, or what a staging that was cut short
// has brought into the menu.
func (f facts) argumentsBefore() []host.Argument {
	if f.dropIn.unfinished {
		return f.argumentsInMenu()
	}
	return f.dropIn.args
}

// completeDropIn makes our drop-in say what the menu in place passes, and removes what is left of making another.
func (s *Subject) completeDropIn(as form, args []host.Argument) error {
	return errors.Join(s.writeDropIn(dropIn{args: args}, as), s.removeTemp(as))
}

func (s *Subject) removeTemp(as form) error {
	for _, names := range []*grubNames{debianNames, grub2Names} {
		// The second name is what grub-mkconfig itself writes to first.
		for _, file := range []string{names.scratch(), names.scratch() + ".new"} {
			if err := s.fs.Remove(file); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.fs.RemoveTemp(as.file), s.fs.RemoveTemp(grubCfg), s.fs.RemoveTemp(grub2Cfg))
}

// missingArguments lists what is passed less often than before. Another name for the same root device is not missing.
func (s *Subject) missingArguments(before, after, ours []host.Argument) []host.Argument {
	var missing []host.Argument
	for _, arg := range argumentsWithout(before, ours) {
		if countArgument(after, arg) >= countArgument(before, arg) || hasArgument(missing, arg) {
			continue
		}
		if root, ok := lastNamed(after, "root"); arg.Is("root") && ok && s.sameDevice(arg.Value, root.Value) {
			continue
		}
		missing = append(missing, arg)
	}
	return missing
}

// sameDevice tells whether two values of root= lead to the same device.
func (s *Subject) sameDevice(a, b string) bool {
	deviceA, errA := s.fs.Resolve(deviceName(a))
	deviceB, errB := s.fs.Resolve(deviceName(b))
	return errA == nil && errB == nil && deviceA == deviceB && s.fs.Exists(deviceA)
}

func deviceName(root string) string {
	for tag, dir := range map[string]string{"UUID=": "by-uuid", "PARTUUID=": "by-partuuid", "LABEL=": "by-label"} {
		if value, ok := strings.CutPrefix(root, tag); ok {
			return path.Join("/dev/disk", dir, value)
		}
	}
	return path.Join("/", root)
}
