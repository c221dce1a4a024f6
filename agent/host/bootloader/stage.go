package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// stage makes the menu pass exactly the wanted arguments of ours. The order makes every crash recoverable: our
// drop-in says from before the menu is made until it is in place what it held before, and the menu is exchanged
// by one rename.
func (s *Subject) stage(ctx context.Context, f facts, wanted []host.Argument) error {
	stale := f.stale(wanted)
	as := f.detection.form()
	if !f.dropIn.present && len(wanted) == 0 && len(stale) == 0 {
		return errors.Join(s.endTrial(f), s.tidy(as))
	}
	if f.dropIn.holds(wanted) && f.menu.problem(wanted, stale) == "" {
		if s.attended && len(f.unproven(wanted)) > 0 {
			return s.settle(as, wanted)
		}
		return errors.Join(s.endTrial(f), s.settle(as, wanted))
	}
	if err := s.mayStage(f, wanted, stale); err != nil {
		return fmt.Errorf("stage %q: %w", join(wanted), err)
	}
	if err := s.noteStaged(f, wanted); err != nil {
		return err
	}
	before := f.before()
	printed, state := s.nextTrial(ctx, f, wanted)
	err := s.writeDropIn(dropIn{args: wanted, unfinished: true, replaces: before}, as)
	if err == nil {
		err = s.beginTrial(f, printed, state)
	}
	if err == nil {
		err = s.change(ctx, f, wanted, stale, printed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("stage %q: %w", join(wanted), err), s.resumeTrial(f.trial), s.settle(as, before))
	}
	if printed == "" {
		err = s.setTrial("")
	}
	return errors.Join(err, s.settle(as, wanted))
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

func (s *Subject) change(ctx context.Context, f facts, wanted, stale []host.Argument, printed string) error {
	if f.detection.Type == GrubBLS {
		return s.changeEntries(ctx, f, wanted, stale)
	}
	return s.makeMenu(ctx, f, wanted, stale, printed)
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

// makeMenu makes a menu beside the present one, reads it back, and puts it in its place. The present one is
// untouched when it returns an error. printed is what our generator prints.
func (s *Subject) makeMenu(ctx context.Context, f facts, wanted, stale []host.Argument, printed string) error {
	if err := s.tidy(grubForm); err != nil {
		return err
	}
	if _, err := s.runner.Run(ctx, "grub-mkconfig", "-o", scratch); err != nil {
		return err
	}
	data, err := s.fs.ReadFile(scratch)
	if err != nil {
		return err
	}
	made := parseMenu(string(data))
	if text := made.problem(wanted, stale); text != "" {
		return errors.New("read the new menu back: " + text + s.blame())
	}
	if text := made.tooLong(nil, nil); text != "" {
		return errors.New("read the new menu back: " + text)
	}
	if err := s.checkTrial(parseTrial(string(data)).section, printed); err != nil {
		return err
	}
	mode, err := s.compare(made, append(f.ours(), wanted...))
	if err != nil {
		return err
	}
	if err := s.fs.Chmod(scratch, mode); err != nil {
		return err
	}
	return s.fs.Rename(scratch, grubCfg)
}

// blame names the files that are sourced after ours: one of them may have assigned the variable anew.
func (s *Subject) blame() string {
	later := s.laterFiles()
	if len(later) == 0 {
		return ""
	}
	return fmt.Sprintf(" (read after %s: %s)", path.Base(DropIn), host.Names(later))
}

// compare refuses a new menu that lacks an entry or an argument of the present one, ours aside. The present one
// is read only now, since a kernel's installation may have exchanged it in the meantime. It returns the
// permissions of the present menu.
func (s *Subject) compare(made menu, ours []host.Argument) (fs.FileMode, error) {
	info, err := s.fs.Lstat(grubCfg)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", grubCfg)
	}
	present, err := s.readMenu(grubCfg)
	if err != nil {
		return 0, err
	}
	for _, line := range present.lines {
		if !s.fs.Exists(path.Join("/boot", path.Base(line.kernel))) {
			// An entry of a kernel that is gone is lost rightly.
			continue
		}
		successor, ok := made.match(line)
		if !ok {
			return 0, fmt.Errorf("the new menu has no entry %q (%s) any more", line.title, line.kernel)
		}
		if missing := s.missing(line.args, successor.args, ours); len(missing) > 0 {
			return 0, fmt.Errorf("the new menu's entry %q would lose %s, which the files that it is made from do not hold; "+
				"run update-grub if that is right", line.title, join(missing))
		}
	}
	return info.Mode().Perm(), nil
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
