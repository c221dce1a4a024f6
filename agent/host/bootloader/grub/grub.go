// Package grub is GRUB whose menu grub-mkconfig makes. The agent replaces a grub.cfg only if no line of it is lost. Two rules decide:
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
package grub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/tuning/text"
)

// Kinds of GRUB that make their menu from /etc/default/grub.d.
var (
	Debian = kindOf(loader.GrubDebian, DebianPlace, isDebian)
	Grub2  = kindOf(loader.Grub2Mkconfig, Grub2Place, isGrub2)
)

// kindOf returns a kind. Its Detect rejects a menu with lines that its generator does not print. After staging, such lines do not matter, so that
// the arguments can be removed again.
func kindOf(name string, at *loader.Place, isUsed func(fs host.FS) bool) loader.Kind {
	return loader.Kind{
		Detect: func(fs host.FS) (loader.Detection, *loader.Place) {
			if !isUsed(fs) {
				return loader.Detection{}, nil
			}
			menu, err := fs.ReadFile(at.Menu)
			if reason := FindUnprinted(at, string(menu)); err == nil && reason != "" && !fs.Exists(loader.DropIn) {
				return loader.UnsupportedBy(reason.Error()), nil
			}
			return loader.Detection{Type: name, Proven: true}, at
		},
		Places:  func(host.FS) []*loader.Place { return []*loader.Place{at} },
		Open:    func(b loader.Base) loader.Loader { return mkconfig{grubcfg.Files{Base: b}} },
		Explain: func(fs host.FS) string { return explainMenu(fs, at) },
	}
}

func isDebian(fs host.FS) bool {
	script, err := fs.ReadFile("/usr/sbin/grub-mkconfig")
	// Upstream's script does not read grub.d, so a drop-in would have no effect.
	return err == nil && strings.Contains(string(script), "/default/grub.d/") && fs.Exists(loader.DefaultFile) && fs.Exists(grubcfg.Debian)
}

// isGrub2 recognizes a GRUB whose files are called grub2, if it sources drop-ins and its menu was made by grub2-mkconfig. On Azure Linux,
// /etc/default/grub itself sources the drop-ins (microsoft/azurelinux, toolkit/resources/assets/grub2/grub).
func isGrub2(fs host.FS) bool {
	menu, err := fs.ReadFile(grubcfg.Grub2)
	return err == nil && sourcesDropIns(fs) && len(grubcfg.Parse(string(menu)).Lines) > 0
}

// sourcesDropIns reports whether grub2-mkconfig reads /etc/default/grub.d, directly or through /etc/default/grub.
func sourcesDropIns(fs host.FS) bool {
	defaults, err := fs.ReadFile(loader.DefaultFile)
	if err != nil {
		return false
	}
	for _, name := range grubcfg.Grub2Mkconfigs {
		if script, err := fs.ReadFile(name); err == nil {
			return namesDropIns(string(script)) || namesDropIns(string(defaults))
		}
	}
	return false
}

func namesDropIns(script string) bool {
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.Contains(line, "/default/grub.d/") {
			return true
		}
	}
	return false
}

// explainMenu returns the reason why the agent cannot stage with a GRUB, and the alternative. Empty without a menu.
func explainMenu(fs host.FS, n *loader.Place) string {
	if !fs.Exists(n.Menu) {
		return ""
	}
	system := "GRUB in " + path.Dir(n.Menu)
	if name := text.CutBytes(loader.OSRelease(fs, "PRETTY_NAME"), loader.MaxMessage/8); name != "" {
		system = name
	}
	data, err := fs.ReadFile(n.Menu)
	menu := string(data)
	switch {
	case err != nil:
		return fmt.Sprintf("%s: cannot read its menu: %v", system, err)
	case strings.Contains(menu, "blscfg"):
		return system + ": its menu uses boot loader entries, and grubby, which changes them, is not installed: install grubby"
	case len(grubcfg.Parse(menu).Lines) > 0:
		return system + ": its " + n.Mkconfig[0] + " does not read " + loader.DropInDir + ": add the argument to " + loader.AppendTo + " in " + loader.DefaultFile +
			" and run " + strings.Join(n.Mkconfig, " ") + " " + n.Menu
	case strings.Contains(menu, "$kernelopts"):
		// CBL-Mariner 2 (microsoft/azurelinux 2.0, toolkit/resources/assets/grub2/grub.cfg).
		return system + ": its menu was not made by " + n.Mkconfig[0] + " and uses kernelopts of GRUB's environment: " +
			"use grub2-editenv " + path.Dir(n.Menu) + "/grubenv set kernelopts=..."
	}
	return system + ": its menu was not made by " + n.Mkconfig[0] + ": add the argument to the kernel command line in " + n.Menu
}

// mkconfig is GRUB with /etc/default/grub.d: grub-mkconfig makes a menu from the agent's drop-in. Azure Linux has other names for both.
type mkconfig struct{ grubcfg.Files }

// Places of the menu.
var (
	DebianPlace = &loader.Place{
		Menu: grubcfg.Debian, Title: grubcfg.Debian, Mkconfig: []string{"grub-mkconfig", "-o"}, Remake: "update-grub", Form: loader.DropInForm,
	}
	Grub2Place = &loader.Place{
		Menu: grubcfg.Grub2, Title: grubcfg.Grub2, Mkconfig: []string{"grub2-mkconfig", "-o"}, Remake: grubcfg.RemakeGrub2, Form: loader.DropInForm,
	}
)

// scratch returns the path at which a new menu is made and verified before it replaces the present one.
func (g mkconfig) scratch() string { return g.At.Menu + ".storage-client" }

// RemoveTemp implements Loader.
func (g mkconfig) RemoveTemp() error {
	// grub-mkconfig itself writes to the second name first.
	return errors.Join(g.FS.Remove(g.scratch()), g.FS.Remove(g.scratch()+".new"), g.FS.RemoveTemp(g.At.Menu), g.FS.RemoveTemp(g.Env()))
}

// ReadBooted implements Loader.
func (g mkconfig) ReadBooted() (loader.Booted, string) {
	return g.ReadBootedFrom(func() ([]*loader.Entry, error) { return nil, nil })
}

// ReadMenu implements Loader.
func (g mkconfig) ReadMenu(context.Context) (loader.Menu, error) {
	data, err := g.ReadSettled(g.At.Menu)
	return grubcfg.Parse(string(data)), err
}

// ReadFacts implements Loader.
func (g mkconfig) ReadFacts(ctx context.Context, f *loader.Facts, _ []host.Setting) error {
	var err error
	if f.Foreign, err = g.foreignFiles(); err != nil {
		return err
	}
	if f.Unprinted, err = g.findLostLine(); err != nil {
		return err
	}
	if err = g.ReadRecords(f); err != nil || f.Image {
		return err
	}
	return g.gatherTrial(ctx, f)
}

// Detection is not proven if the menu has a trial whose promise no longer holds. For the other names, it is not proven either if the staged or later
// arguments have no trial boot on this host: real boots have shown only these.
func (g mkconfig) Detection() loader.Detection {
	if !g.Found.Proven || g.FS.IsImage() {
		return g.Found
	}
	var f loader.Facts
	var errs [3]error
	f.Cmdline, errs[0] = g.ReadCommandLine()
	f.Record, errs[1] = g.ReadRecord(g.At.Form)
	ctx := context.Background()
	errs[2] = g.gatherTrial(ctx, &f)
	reason := f.Trial.Reason
	if g.At != DebianPlace {
		reason = cmp.Or(g.FindTrialObstacle(ctx, f), reason)
	} else if f.Trial.Section == "" {
		return g.Found
	}
	if err := errors.Join(errs[:]...); err != nil {
		reason = loader.OneLine(err.Error())
	}
	if reason == "" {
		return g.Found
	}
	return loader.Detection{Type: g.Found.Type, Message: "arguments are staged in " + loader.DropIn + ", and the node is not rebooted for them, because they have no " +
		"trial boot: " + reason}
}

// ChangeMenu never replaces a menu that has foreign lines. To restore such a menu, it removes only the agent's arguments.
func (g mkconfig) ChangeMenu(ctx context.Context, f loader.Facts, next loader.Change) error {
	if err := g.beginTrial(next.Trial); err != nil {
		return err
	}
	err := g.makeMenu(ctx, f, next)
	var unprinted loader.UnprintedError
	if len(next.Desired) == 0 && errors.As(err, &unprinted) {
		return g.cutArguments(next.Stale)
	}
	return err
}

// UndoChange implements Loader.
func (g mkconfig) UndoChange(f loader.Facts) error {
	return errors.Join(g.SetTrial(f.Trial.State), g.writeGenerator(f.Trial.Printed))
}

// CompleteChange ends the trial of the previous menu. The trial's variable stays as long as that menu is in place.
func (g mkconfig) CompleteChange(next loader.Change) error {
	if next.Trial.Printed != "" {
		return nil
	}
	return g.SetTrial("")
}

// makeMenu makes a menu next to the present one, verifies it, and then replaces the present one. On error, the present menu is unchanged.
func (g mkconfig) makeMenu(ctx context.Context, f loader.Facts, next loader.Change) error {
	if err := g.Host.RemoveTemp(loader.DropInForm); err != nil {
		return err
	}
	if len(next.Desired) > 0 && !f.Record.Present {
		// Check this first, because making a menu takes seconds: a menu that cannot be journaled is not replaced.
		if _, err := g.FS.SaveFile(g.At.Menu); err != nil {
			return err
		}
	}
	before := g.MenuVersion(g.At.Menu)
	if _, err := g.Runner.Run(ctx, append(slices.Clone(g.At.Mkconfig), g.scratch())...); err != nil {
		return err
	}
	data, err := g.FS.ReadFile(g.scratch())
	if err != nil {
		return err
	}
	made := grubcfg.Parse(string(data))
	if text := made.FindProblem(next.Desired, next.Stale); text != "" {
		return errors.New("verify the new menu: " + text + g.laterFilesNote())
	}
	if text := made.TooLong(nil, nil); text != "" {
		return errors.New("verify the new menu: " + text)
	}
	if err := g.checkTrial(grubcfg.ParseTrial(string(data)).Section, next.Trial.Printed); err != nil {
		return err
	}
	present, err := g.readPresent()
	if err != nil {
		return err
	}
	managed := append(f.ManagedArguments(), next.Desired...)
	if err := g.compareMenus(string(present.data), string(data), managed); err != nil {
		return g.recordUnprinted(before, err)
	}
	return g.exchangeMenu(f, next, present, data)
}

// laterFilesNote names the files that are sourced after the drop-in. One of them may have assigned the variable again.
func (g mkconfig) laterFilesNote() string {
	later := g.laterFiles()
	if len(later) == 0 {
		return ""
	}
	return fmt.Sprintf(" (read after %s: %s)", path.Base(loader.DropIn), host.ListNames(later))
}

// compareMenus returns an error if a new menu lacks an entry, an argument or a line of the present one. It ignores the agent's arguments.
func (g mkconfig) compareMenus(data, madeData string, managed []host.Argument) error {
	number, err := g.compareArguments(grubcfg.Parse(data), grubcfg.Parse(madeData), managed)
	present := readMenuText(data, managed)
	if line, lost := present.firstLost(readMenuText(madeData, managed), g.isInstalled); lost && (err == nil || line.number < number) {
		return foreignTo(g.At, present, line)
	}
	return err
}

// compareArguments finds the first entry that would be lost, or would lose an argument. It returns the entry's line number.
func (g mkconfig) compareArguments(present, made loader.Menu, managed []host.Argument) (number int, err error) {
	for _, line := range present.Lines {
		if !g.isInstalled(line.Kernel) {
			// An entry of a removed kernel may be lost.
			continue
		}
		successor, ok := made.MatchLine(line)
		if !ok {
			return line.Number, loader.UnprintedError(fmt.Sprintf("%s line %d: the new menu no longer has entry %q (%s): %s",
				g.At.Menu, line.Number, line.Title, line.Kernel, remedy(g.At)))
		}
		missing := g.MissingArguments(line.Args, successor.Args, managed)
		if len(missing) == 1 && missing[0].Is("root") {
			// The generator detects the root device, and may detect it at its next run.
			return line.Number, fmt.Errorf("the new menu's entry %q would lose %s", line.Title, missing[0])
		}
		if len(missing) > 0 {
			return line.Number, loader.UnprintedError(fmt.Sprintf("%s line %d: the new menu's entry %q would lose %s, which is not in GRUB's configuration files: %s",
				g.At.Menu, line.Number, line.Title, argument.Join(missing), remedy(g.At)))
		}
	}
	return 0, nil
}

func (g mkconfig) isInstalled(kernel string) bool {
	return g.FS.Exists(path.Join("/boot", path.Base(kernel)))
}

// appendsArguments matches the form of an assignment that only bash takes for one.
var appendsArguments = regexp.MustCompile(`\bGRUB_CMDLINE_LINUX[A-Z_]*\+=`)

func (g mkconfig) foreignFiles() ([]loader.Source, error) {
	files, err := g.FS.Glob(loader.DropInDir, "*.cfg")
	if err != nil {
		return nil, err
	}
	var found []loader.Source
	for _, file := range append([]string{loader.DefaultFile}, files...) {
		if file == loader.DropIn {
			continue
		}
		data, err := g.FS.ReadIfThere(file)
		if err != nil {
			return nil, err
		}
		if shell, err := g.FS.Resolve("/bin/sh"); err == nil && path.Base(shell) != "bash" && path.Base(shell) != "sh" {
			data = appendsArguments.ReplaceAll(data, nil)
		}
		for _, arg := range argument.Assigned(string(data)) {
			found = append(found, loader.Source{File: file, Arg: arg})
		}
	}
	return found, nil
}

func (g mkconfig) laterFiles() []string {
	files, err := g.FS.Glob(loader.DropInDir, "*.cfg")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(files, func(file string) bool { return path.Base(file) <= path.Base(loader.DropIn) })
}
