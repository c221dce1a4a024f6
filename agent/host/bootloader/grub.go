package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/storageclient/operator/agent/host"
)

// grubDebian is GRUB with /etc/default/grub.d: a drop-in of ours, and a menu that grub-mkconfig makes from it. Azure Linux
// names both otherwise.
type grubDebian struct {
	*Subject
	found Detection
	at    *grubNames
}

// grubNames are the names that distributions give to the menu, and to the program that makes it.
type grubNames struct {
	menu     string
	mkconfig []string
}

var (
	debianNames = &grubNames{menu: grubCfg, mkconfig: []string{"grub-mkconfig", "-o"}}
	grub2Names  = &grubNames{menu: grub2Cfg, mkconfig: []string{"grub2-mkconfig", "-o"}}
)

// scratch is where a new menu is made and read before it takes the place of the present one.
func (n *grubNames) scratch() string { return n.menu + ".storage-client" }

func (g grubDebian) detection() Detection { return g.found }

func (g grubDebian) canStage() bool { return true }

func (g grubDebian) form() form { return grubForm }

func (g grubDebian) bootDir() string { return path.Dir(g.at.menu) }

func (g grubDebian) menuFile() string { return g.at.menu }

func (g grubDebian) readMenu(context.Context) (menu, error) { return g.readMenuFile() }

func (g grubDebian) readMenuFile() (menu, error) {
	data, err := g.readSettled(g.at.menu)
	return parseMenu(string(data)), err
}

func (g grubDebian) readFacts(ctx context.Context, f *facts, _ []host.Setting) error {
	var err error
	if f.foreign, err = g.foreignFiles(); err != nil {
		return err
	}
	if err = g.gatherNotes(f); err != nil || f.image {
		return err
	}
	if g.at == debianNames {
		return g.gatherTrial(ctx, f)
	}
	if g.attended && f.notBooted(f.dropIn.args) != nil {
		f.trial.why = onlyDebianTries
	}
	return nil
}

// onlyDebianTries is why a boot is not tried once with another distribution's GRUB.
const onlyDebianTries = "this project's tests do not cover trial boots with this distribution's GRUB"

func (g grubDebian) prepareChange(ctx context.Context, f facts, wanted, stale []host.Argument) change {
	return change{wanted: wanted, stale: stale, trial: g.prepareTrial(ctx, f, wanted)}
}

func (g grubDebian) changeMenu(ctx context.Context, f facts, next change) error {
	if err := g.beginTrial(f, next.trial); err != nil {
		return err
	}
	return g.makeMenu(ctx, f, next)
}

func (g grubDebian) undoChange(f facts) error { return g.resumeTrial(f.trial) }

// completeChange ends the trial of the menu before, whose variable stays as long as that menu is in place.
func (g grubDebian) completeChange(next change) error {
	if next.trial.printed != "" {
		return nil
	}
	return g.setTrial("")
}

// makeMenu makes a menu beside the present one, reads it back, and puts it in its place. The present one is
// untouched when it returns an error.
func (g grubDebian) makeMenu(ctx context.Context, f facts, next change) error {
	if err := g.removeTemp(grubForm); err != nil {
		return err
	}
	if _, err := g.runner.Run(ctx, append(slices.Clone(g.at.mkconfig), g.at.scratch())...); err != nil {
		return err
	}
	data, err := g.fs.ReadFile(g.at.scratch())
	if err != nil {
		return err
	}
	made := parseMenu(string(data))
	if text := made.findProblem(next.wanted, next.stale); text != "" {
		return errors.New("read the new menu back: " + text + g.laterFilesNote())
	}
	if text := made.tooLong(nil, nil); text != "" {
		return errors.New("read the new menu back: " + text)
	}
	if err := g.checkTrial(parseTrial(string(data)).section, next.trial.printed); err != nil {
		return err
	}
	mode, err := g.compareMenus(made, append(f.ourArguments(), next.wanted...))
	if err != nil {
		return err
	}
	if err := g.fs.Chmod(g.at.scratch(), mode); err != nil {
		return err
	}
	return g.fs.Rename(g.at.scratch(), g.at.menu)
}

// laterFilesNote names the files that are sourced after ours: one of them may have assigned the variable again.
func (g grubDebian) laterFilesNote() string {
	later := g.laterFiles()
	if len(later) == 0 {
		return ""
	}
	return fmt.Sprintf(" (read after %s: %s)", path.Base(DropIn), host.ListNames(later))
}

// compareMenus refuses a new menu that lacks an entry or an argument of the present one, ours aside. The present one
// is read only now, since a kernel's installation may have exchanged it in the meantime. It returns the
// permissions of the present menu.
func (g grubDebian) compareMenus(made menu, ours []host.Argument) (fs.FileMode, error) {
	info, err := g.fs.Lstat(g.at.menu)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", g.at.menu)
	}
	present, err := g.readMenuFile()
	if err != nil {
		return 0, err
	}
	for _, line := range present.lines {
		if !g.fs.Exists(path.Join("/boot", path.Base(line.kernel))) {
			// An entry of a kernel that is gone is lost rightly.
			continue
		}
		successor, ok := made.matchLine(line)
		if !ok {
			return 0, fmt.Errorf("the new menu no longer has entry %q (%s)", line.title, line.kernel)
		}
		if missing := g.missingArguments(line.args, successor.args, ours); len(missing) > 0 {
			return 0, fmt.Errorf("the new menu's entry %q would lose %s, which is not in GRUB's configuration files; "+
				"run update-grub if that is right", line.title, joinArguments(missing))
		}
	}
	return info.Mode().Perm(), nil
}

// source is an argument that somebody else passes, and where.
type source struct {
	file string
	arg  host.Argument
}

// foreignFiles reads what others' files add to command lines.
func (g grubDebian) foreignFiles() ([]source, error) {
	files, err := g.fs.Glob(dropInDir, "*.cfg")
	if err != nil {
		return nil, err
	}
	var found []source
	for _, file := range append([]string{defaultFile}, files...) {
		if file == DropIn {
			continue
		}
		data, err := g.fs.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, arg := range assignedArguments(string(data)) {
			found = append(found, source{file: file, arg: arg})
		}
	}
	return found, nil
}

// laterFiles are those of others that are sourced after ours.
func (g grubDebian) laterFiles() []string {
	files, err := g.fs.Glob(dropInDir, "*.cfg")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(files, func(file string) bool { return path.Base(file) <= path.Base(DropIn) })
}
