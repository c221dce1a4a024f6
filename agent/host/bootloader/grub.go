package bootloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/storageclient/operator/agent/host"
)

// grubDebian is GRUB with /etc/default/grub.d: grub-mkconfig makes a menu from the agent's drop-in. Azure Linux has other names for both.
type grubDebian struct{ grubBase }

var (
	debianNames = &grubNames{
		menu: grubCfg, title: grubCfg, mkconfig: []string{"grub-mkconfig", "-o"}, remake: "update-grub", form: grubForm,
	}
	grub2Names = &grubNames{
		menu: grub2Cfg, title: grub2Cfg, mkconfig: []string{"grub2-mkconfig", "-o"}, remake: remakeGrub2, form: grubForm,
	}
)

// scratch returns the path at which a new menu is made and verified before it replaces the present one.
func (g grubDebian) scratch() string { return g.at.menu + ".storage-client" }

func (g grubDebian) removeTemp() error {
	// grub-mkconfig itself writes to the second name first.
	return errors.Join(g.fs.Remove(g.scratch()), g.fs.Remove(g.scratch()+".new"), g.fs.RemoveTemp(g.at.menu), g.fs.RemoveTemp(g.env()))
}

func (g grubDebian) readBooted() (bootedMenu, string) {
	return g.readBootedFrom(func() ([]*menuEntry, error) { return nil, nil })
}

func (g grubDebian) readMenu(context.Context) (menu, error) {
	data, err := g.readSettled(g.at.menu)
	return parseMenu(string(data)), err
}

func (g grubDebian) readFacts(ctx context.Context, f *facts, _ []host.Setting) error {
	var err error
	if f.foreign, err = g.foreignFiles(); err != nil {
		return err
	}
	if f.unprinted, err = g.findLostLine(); err != nil {
		return err
	}
	if err = g.readRecords(f); err != nil || f.image {
		return err
	}
	return g.gatherTrial(ctx, f)
}

// detection is not proven for the other names if the staged or later arguments have no trial boot on this host: real boots have shown only these.
func (g grubDebian) detection() Detection {
	if g.at == debianNames || !g.found.Proven || g.fs.IsImage() {
		return g.found
	}
	var f facts
	var errs [3]error
	f.cmdline, errs[0] = g.readCommandLine()
	f.dropIn, errs[1] = g.readDropIn(g.at.form)
	ctx := context.Background()
	errs[2] = g.gatherTrial(ctx, &f)
	reason := cmp.Or(g.findTrialObstacle(ctx, f), f.trial.reason)
	if err := errors.Join(errs[:]...); err != nil {
		reason = oneLine(err.Error())
	}
	if reason == "" {
		return g.found
	}
	return Detection{Type: g.found.Type, Message: "arguments are staged in " + DropIn + ", and the node is not rebooted for them, because they have no " +
		"trial boot: " + reason}
}

// changeMenu never replaces a menu that has foreign lines. To restore such a menu, it removes only the agent's arguments.
func (g grubDebian) changeMenu(ctx context.Context, f facts, next change) error {
	if err := g.beginTrial(next.trial); err != nil {
		return err
	}
	err := g.makeMenu(ctx, f, next)
	var unprinted unprintedError
	if len(next.desired) == 0 && errors.As(err, &unprinted) {
		return g.cutArguments(next.stale)
	}
	return err
}

func (g grubDebian) undoChange(f facts) error {
	return errors.Join(g.setTrial(f.trial.state), g.writeGenerator(f.trial.printed))
}

// completeChange ends the trial of the previous menu. The trial's variable stays as long as that menu is in place.
func (g grubDebian) completeChange(next change) error {
	if next.trial.printed != "" {
		return nil
	}
	return g.setTrial("")
}

// makeMenu makes a menu next to the present one, verifies it, and then replaces the present one. On error, the present menu is unchanged.
func (g grubDebian) makeMenu(ctx context.Context, f facts, next change) error {
	if err := g.Host.removeTemp(grubForm); err != nil {
		return err
	}
	if len(next.desired) > 0 && !f.dropIn.present {
		// Check this first, because making a menu takes seconds: a menu that cannot be journaled is not replaced.
		if _, err := g.fs.SaveFile(g.at.menu); err != nil {
			return err
		}
	}
	before := g.menuVersion(g.at.menu)
	if _, err := g.runner.Run(ctx, append(slices.Clone(g.at.mkconfig), g.scratch())...); err != nil {
		return err
	}
	data, err := g.fs.ReadFile(g.scratch())
	if err != nil {
		return err
	}
	made := parseMenu(string(data))
	if text := made.findProblem(next.desired, next.stale); text != "" {
		return errors.New("verify the new menu: " + text + g.laterFilesNote())
	}
	if text := made.tooLong(nil, nil); text != "" {
		return errors.New("verify the new menu: " + text)
	}
	if err := g.checkTrial(parseTrial(string(data)).section, next.trial.printed); err != nil {
		return err
	}
	present, err := g.readPresent()
	if err != nil {
		return err
	}
	managed := append(f.managedArguments(), next.desired...)
	if err := g.compareMenus(string(present.data), string(data), managed); err != nil {
		return g.recordUnprinted(before, err)
	}
	return g.exchangeMenu(f, next, present, data)
}

// laterFilesNote names the files that are sourced after the drop-in. One of them may have assigned the variable again.
func (g grubDebian) laterFilesNote() string {
	later := g.laterFiles()
	if len(later) == 0 {
		return ""
	}
	return fmt.Sprintf(" (read after %s: %s)", path.Base(DropIn), host.ListNames(later))
}

// compareMenus returns an error if a new menu lacks an entry, an argument or a line of the present one. It ignores the agent's arguments.
func (g grubDebian) compareMenus(data, madeData string, managed []host.Argument) error {
	number, err := g.compareArguments(parseMenu(data), parseMenu(madeData), managed)
	present := readMenuText(data, managed)
	if line, lost := present.firstLost(readMenuText(madeData, managed), g.isInstalled); lost && (err == nil || line.number < number) {
		return foreignTo(g.at, present, line)
	}
	return err
}

// compareArguments finds the first entry that would be lost, or would lose an argument. It returns the entry's line number.
func (g grubDebian) compareArguments(present, made menu, managed []host.Argument) (number int, err error) {
	for _, line := range present.lines {
		if !g.isInstalled(line.kernel) {
			// An entry of a removed kernel may be lost.
			continue
		}
		successor, ok := made.matchLine(line)
		if !ok {
			return line.number, unprintedError(fmt.Sprintf("%s line %d: the new menu no longer has entry %q (%s): %s",
				g.at.menu, line.number, line.title, line.kernel, remedy(g.at)))
		}
		missing := g.missingArguments(line.args, successor.args, managed)
		if len(missing) == 1 && missing[0].Is("root") {
			// The generator detects the root device, and may detect it at its next run.
			return line.number, fmt.Errorf("the new menu's entry %q would lose %s", line.title, missing[0])
		}
		if len(missing) > 0 {
			return line.number, unprintedError(fmt.Sprintf("%s line %d: the new menu's entry %q would lose %s, which is not in GRUB's configuration files: %s",
				g.at.menu, line.number, line.title, joinArguments(missing), remedy(g.at)))
		}
	}
	return 0, nil
}

func (g grubDebian) isInstalled(kernel string) bool {
	return g.fs.Exists(path.Join("/boot", path.Base(kernel)))
}

// appendsArguments matches the form of an assignment that only bash takes for one.
var appendsArguments = regexp.MustCompile(`\bGRUB_CMDLINE_LINUX[A-Z_]*\+=`)

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
		data, err := g.fs.ReadIfThere(file)
		if err != nil {
			return nil, err
		}
		if shell, err := g.fs.Resolve("/bin/sh"); err == nil && path.Base(shell) != "bash" && path.Base(shell) != "sh" {
			data = appendsArguments.ReplaceAll(data, nil)
		}
		for _, arg := range assignedArguments(string(data)) {
			found = append(found, source{file: file, arg: arg})
		}
	}
	return found, nil
}

func (g grubDebian) laterFiles() []string {
	files, err := g.fs.Glob(dropInDir, "*.cfg")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(files, func(file string) bool { return path.Base(file) <= path.Base(DropIn) })
}
