package bootloader

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// stage makes the menu pass exactly the wanted arguments of ours. The order makes every crash recoverable: our
// drop-in says from before the menu is made until it is in place what it held before, and the menu is exchanged
// by one rename.
func (s *Subject) stage(ctx context.Context, f facts, wanted []host.Argument) error {
	stale := f.stale(wanted)
	as := f.loader.form()
	if !f.dropIn.present && len(wanted) == 0 && len(stale) == 0 {
		return errors.Join(f.loader.endTrial(f), s.tidy(as))
	}
	if f.dropIn.holds(wanted) && f.menu.problem(wanted, stale) == "" {
		if s.attended && len(f.unproven(wanted)) > 0 {
			return s.settle(as, wanted)
		}
		return errors.Join(f.loader.endTrial(f), s.settle(as, wanted))
	}
	if err := s.mayStage(f, wanted, stale); err != nil {
		return fmt.Errorf("stage %q: %w", join(wanted), err)
	}
	if err := s.noteStaged(f, wanted); err != nil {
		return err
	}
	before := f.before()
	next := f.loader.prepareChange(ctx, f, wanted, stale)
	err := s.writeDropIn(dropIn{args: wanted, unfinished: true, replaces: before}, as)
	if err == nil {
		err = f.loader.changeMenu(ctx, f, next)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("stage %q: %w", join(wanted), err), f.loader.undoChange(f), s.settle(as, before))
	}
	return errors.Join(f.loader.completeChange(next), s.settle(as, wanted))
}

// mayStage finds what is in the way before anything is touched.
func (s *Subject) mayStage(f facts, wanted, stale []host.Argument) error {
	switch {
	case f.boundErr != nil:
		return f.boundErr
	case f.bound != "":
		return errors.New(f.bound)
	}
	if text := f.menu.tooLong(stale, wanted); text != "" {
		return errors.New(text)
	}
	return s.roomToStage(f)
}

// before is what our drop-in goes back to when staging fails: what it said, or what a staging that was cut short
// has brought into the menu.
func (f facts) before() []host.Argument {
	if f.dropIn.unfinished {
		return f.held()
	}
	return f.dropIn.args
}

// settle makes our drop-in say what the menu in place passes, and removes what is left of making another.
func (s *Subject) settle(as form, args []host.Argument) error {
	return errors.Join(s.writeDropIn(dropIn{args: args}, as), s.tidy(as))
}

func (s *Subject) tidy(as form) error {
	// The second name is what grub-mkconfig itself writes to first.
	for _, file := range []string{scratch, scratch + ".new"} {
		if err := s.fs.Remove(file); err != nil {
			return err
		}
	}
	return errors.Join(s.fs.Tidy(as.file), s.fs.Tidy(grubCfg))
}

// missing lists what is passed less often than before. Another name for the same root device is not missing.
func (s *Subject) missing(before, after, ours []host.Argument) []host.Argument {
	var missing []host.Argument
	for _, arg := range without(before, ours) {
		if count(after, arg) >= count(before, arg) || contains(missing, arg) {
			continue
		}
		if root, ok := last(after, "root"); arg.Is("root") && ok && s.sameDevice(arg.Value, root.Value) {
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
