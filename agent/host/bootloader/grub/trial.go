package grub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

const (
	// generatorHead makes a shell print the text after it, as 40_custom does.
	generatorHead = "#!/bin/sh\nexec tail -n +3 $0\n"

	// PreviousID is the ID of the entry with the previous arguments.
	PreviousID = "storage-client-previous"
)

// preamble decides at GRUB's start. If grub-reboot or custom.cfg selects another entry than the first one, preamble keeps that selection and the
// trial stays unused. The menu may have read another block than the one of $prefix, to which save_env writes. If their states differ, or GRUB does not
// read back the written state, the next start would repeat the trial: it boots the previous entry instead. If the previous entry cannot be loaded,
// GRUB continues with the first one.
const preamble = `# Written by storage-client-node-agent, which takes this away once the machine has come up with its new arguments.
if [ "${default}" = "0" ]; then
  set storage_client_read="${` + loader.TrialVariable + `}"
  set ` + loader.TrialVariable + `=
  load_env ` + loader.TrialVariable + `
  if [ "${` + loader.TrialVariable + `}" != "${storage_client_read}" ]; then
    set ` + loader.TrialVariable + `=unsaved
  elif [ "${` + loader.TrialVariable + `}" = "` + loader.TrialArmed + `" ]; then
    set storage_client_next=` + loader.TrialUsed + `
  elif [ "${` + loader.TrialVariable + `}" = "` + loader.TrialPermitted + `" ]; then
    set storage_client_next=` + loader.TrialFailed + `
  fi
  if [ "${storage_client_next}" ]; then
    set ` + loader.TrialVariable + `="${storage_client_next}"
    save_env ` + loader.TrialVariable + `
    set ` + loader.TrialVariable + `=unsaved
    load_env ` + loader.TrialVariable + `
  fi
  if [ "${` + loader.TrialVariable + `}" != "${storage_client_next}" ]; then
    set default=` + PreviousID + `
    set fallback=0
  fi
fi
`

// entryHead matches the first line of an entry as 10_linux writes it: title, classes, id.
var entryHead = regexp.MustCompile(`^menuentry '([^']*)'(.*) \$menuentry_id_option '[^']*' \{\n`)

// Rearm implements Loader.
func (g mkconfig) Rearm(permitted bool) error {
	var f loader.Facts
	err := g.readTrial(&f)
	if errors.Is(err, fs.ErrNotExist) || err == nil && f.Trial.Section == "" {
		return nil
	}
	if err == nil && permitted {
		err = g.checkPromise(f)
	}
	if err != nil {
		return err
	}
	return g.SetTrial(loader.ReadyStates[permitted])
}

// checkPromise returns an error if the trial of arguments that have not booted yet must not be used.
func (g mkconfig) checkPromise(f loader.Facts) error {
	var errs [2]error
	f.Cmdline, errs[0] = g.ReadCommandLine()
	f.Record, errs[1] = g.ReadRecord(g.At.Form)
	if err := errors.Join(errs[:]...); err != nil || f.NotBooted(f.Record.Args) == nil {
		return err
	}
	return g.findBrokenPromise(f)
}

// findBrokenPromise returns the reason why GRUB would not return to the previous entry on its own, although the menu has a trial: users may have changed
// the default, or removed a kernel, since the staging.
func (g mkconfig) findBrokenPromise(f loader.Facts) error {
	if g.lacksPrevious(f.Trial.Section) {
		return ErrNoPrevious
	}
	if reason := g.findMenuObstacle(f); reason != "" {
		return errors.New(reason)
	}
	return nil
}

// ErrNoPrevious makes a trial impossible: there is no way back.
var ErrNoPrevious = errors.New("the kernel or initrd of the previous entry is missing")

// lacksPrevious reports whether the kernel or an initrd of the previous entry is missing, e.g. because that kernel was removed after the staging.
func (g mkconfig) lacksPrevious(section string) bool {
	for line := range strings.Lines(section) {
		words := argument.Split(line)
		switch {
		case len(words) > 1 && grubcfg.IsLinuxCommand(words[0]):
			words = words[1:2]
		case len(words) > 1 && slices.Contains([]string{"initrd", "initrd16", "initrdefi"}, words[0]):
			words = words[1:]
		default:
			continue
		}
		if slices.ContainsFunc(words, func(file string) bool { return !g.FS.Exists(file) && !g.isInstalled(file) }) {
			return true
		}
	}
	return false
}

// readTrial reads the parts of the menu on which a trial depends, and the state of the trial.
func (g mkconfig) readTrial(f *loader.Facts) error {
	data, err := g.ReadSettled(g.At.Menu)
	if err != nil {
		return err
	}
	f.Trial = grubcfg.ParseTrial(string(data))
	env, _, err := g.ReadEnvironment(g.Env())
	f.Trial.State, f.Trial.EnvErr = env.Value(loader.TrialVariable), err
	return nil
}

func (g mkconfig) gatherTrial(ctx context.Context, f *loader.Facts) error {
	if err := g.readTrial(f); err != nil {
		return err
	}
	script, err := g.FS.ReadIfThere(grubcfg.Generator)
	if err != nil {
		return err
	}
	f.Trial.Printed = strings.TrimPrefix(string(script), generatorHead)
	_, f.Trial.ArmedNow = g.Facts.BootFact(f.BootID, loader.FactArmed)
	f.Trial.Reason = g.UntriedReason(*f, func() string { return g.FindTrialObstacle(ctx, *f) })
	if f.NotBooted(f.Record.Args) != nil && f.Trial.Section != "" {
		if broken := g.findBrokenPromise(*f); broken != nil {
			f.Trial.Reason = broken.Error()
		}
	}
	return nil
}

// FindTrialObstacle returns the reason why GRUB cannot try the staged arguments once and return to the present entry on its own. Empty if it can.
func (g mkconfig) FindTrialObstacle(ctx context.Context, f loader.Facts) string {
	if reason := g.findMenuObstacle(f); reason != "" {
		return reason
	}
	if !g.FS.Exists(grubcfg.GeneratorDir) {
		return grubcfg.GeneratorDir + " is missing"
	}
	return g.FindWriteObstacle(ctx)
}

func (g mkconfig) findMenuObstacle(f loader.Facts) string {
	t := f.Trial
	_, form := previousEntry(t.First)
	other := slices.IndexFunc(t.Defaults, func(d string) bool { return d != "0" && d != "${next_entry}" })
	passed, _ := argument.Last(f.Cmdline, "panic")
	switch {
	case !g.Found.Proven:
		return g.Found.Message
	case errors.Is(t.EnvErr, fs.ErrNotExist):
		return t.EnvErr.Error() + ": run " + strings.Replace(g.At.Mkconfig[0], "mkconfig", "editenv", 1) + " " + g.Env() + " create"
	case t.EnvErr != nil:
		return t.EnvErr.Error()
	case !t.Loads || len(t.Defaults) == 0:
		return g.At.Menu + " does not read " + g.Env() + ": run " + g.At.Remake
	case !t.IDs:
		return g.At.Menu + " has no entry ids"
	case other >= 0:
		return fmt.Sprintf("%s line %d: the default is %q and not the first entry: set GRUB_DEFAULT=0 in %s and run %s", g.At.Menu, t.Lines[other],
			t.Defaults[other], loader.DefaultFile, g.At.Remake)
	case g.customDefault() != "":
		return fmt.Sprintf("%s sets the default to %q: remove that line", g.CustomMenu(), g.customDefault())
	case !form:
		return "the boot menu's first entry was not written by 10_linux"
	case strings.Contains(t.First, "initrdfail") && passed.Value != "-1":
		// GRUB would start a second time within one boot, and mistake the first attempt for a hang.
		return "GRUB boots this kernel only at the second attempt, with an initrd"
	}
	return ""
}

// assignment finds a default where GRUB's shell reads a command: at the start of a line, or after a separator or a keyword.
var assignment = regexp.MustCompile(`(?:^|[;{|&]|\b(?:then|else|do))\s*(?:set\s+)?default=("[^"]*"|'[^']*'|[^\s;]*)`)

// customDefault returns a default entry of custom.cfg that is not the first entry, if the menu reads the file. Empty if it sets none.
func (g mkconfig) customDefault() string {
	menu, _ := g.FS.ReadIfThere(g.At.Menu)
	custom, _ := g.FS.ReadIfThere(g.CustomMenu())
	if !strings.Contains(string(menu), "/custom.cfg") {
		return ""
	}
	for line := range strings.Lines(string(custom)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, found := range assignment.FindAllStringSubmatch(line, -1) {
			if value := strings.Trim(found[1], `"'`); value != "0" {
				return cmp.Or(value, `""`)
			}
		}
	}
	return ""
}

func previousEntry(first string) (string, bool) {
	if !entryHead.MatchString(first) {
		return "", false
	}
	return entryHead.ReplaceAllString(first,
		"menuentry '${1}, before the kernel arguments that are tried'${2} $$menuentry_id_option '"+PreviousID+"' {\n"), true
}

// PrepareTrial implements Loader.
func (g mkconfig) PrepareTrial(ctx context.Context, f loader.Facts, wanted []host.Argument) loader.NextTrial {
	untried := f.NotBooted(wanted)
	if !g.Attended || len(untried) == 0 || g.FindTrialObstacle(ctx, f) != "" {
		return loader.NextTrial{}
	}
	printed := f.Trial.Section
	present := slices.DeleteFunc(f.ManagedArguments(), func(arg host.Argument) bool { return !argument.Has(f.Menu.ValuesOf(arg.Name), arg) })
	switch {
	case len(f.NotBooted(present)) == 0:
		entry, _ := previousEntry(f.Trial.First)
		printed = preamble + entry
	case f.Trial.Section == "":
		// The present entry has not been booted either, and no other entry is known.
		return loader.NextTrial{}
	case f.Trial.IsBroken():
		entry, _ := previousEntry(provenEntry(f, f.NotBooted(present)))
		printed = preamble + entry
	}
	return f.NextTrial(printed, untried)
}

// provenEntry returns the first entry with the arguments of the running kernel instead of the untried ones.
func provenEntry(f loader.Facts, untried []host.Argument) string {
	f.Failed = untried
	var b strings.Builder
	for line := range strings.Lines(f.Trial.First) {
		if words := strings.Fields(line); len(words) > 0 && grubcfg.IsLinuxCommand(words[0]) {
			line = argument.Add(argument.Cut(line, untried), f.ReplacedByFailed())
		}
		b.WriteString(line)
	}
	return b.String()
}

// beginTrial prepares a menu with or without a trial. While the present menu has a trial, its variable stays.
func (g mkconfig) beginTrial(next loader.NextTrial) error {
	if next.Printed == "" {
		return g.writeGenerator("")
	}
	if err := g.SetTrial(next.State); err != nil {
		return err
	}
	return g.writeGenerator(next.Printed)
}

// checkTrial checks that a new menu has the section that the agent's generator prints. If grub-mkconfig omits the whole section, the arguments are
// staged without a trial.
func (g mkconfig) checkTrial(section, printed string) error {
	switch section {
	case printed:
		return nil
	case "":
		return errors.Join(g.SetTrial(""), g.writeGenerator(""))
	}
	return fmt.Errorf("verify the new menu: it lacks the output of %s", grubcfg.Generator)
}

// EndTrial makes the first entry the permanent default. It removes the variable first: without the variable, the rest has no effect.
func (g mkconfig) EndTrial(f loader.Facts) error {
	if !f.Trial.IsPresent() {
		return nil
	}
	if err := g.SetTrial(""); err != nil {
		return err
	}
	if err := g.writeGenerator(""); err != nil {
		return err
	}
	return g.cutSection()
}

// cutSection removes the agent's section from the menu in place. grub-mkconfig makes the same menu without the agent's generator.
func (g mkconfig) cutSection() error {
	info, err := g.FS.Lstat(g.At.Menu)
	if err != nil {
		return err
	}
	data, err := g.ReadSettled(g.At.Menu)
	if err != nil {
		return err
	}
	next, err := WithoutSection(string(data))
	if err == nil && next != string(data) && !info.Mode().IsRegular() {
		err = errSection
	}
	if err != nil {
		return fmt.Errorf("%w from %s", err, g.At.Menu)
	}
	if next == string(data) {
		return nil
	}
	if file, ok := g.Facts.KeptFiles()[g.At.Menu]; ok {
		if err := g.keepMenu(file, isRecordedMenu(file, data), data, []byte(next)); err != nil {
			return err
		}
	}
	return g.FS.WriteFileAtomic(g.At.Menu, []byte(next), info.Mode().Perm())
}

var errSection = errors.New(grubcfg.Generator + " cannot be removed")

// WithoutSection returns a menu without the section of the agent.
func WithoutSection(data string) (string, error) {
	const begin, end = "\n### BEGIN " + grubcfg.Generator + " ###\n", "### END " + grubcfg.Generator + " ###\n"
	before, rest, found := strings.Cut(data, begin)
	_, after, ends := strings.Cut(rest, end)
	if found && !ends {
		return "", errSection
	}
	return before + after, nil
}

// writeGenerator makes the agent's generator print a text, or removes the generator if the text is empty.
func (g mkconfig) writeGenerator(printed string) error {
	if printed != "" {
		printed = generatorHead + printed
	}
	return g.FS.KeepFileMode(grubcfg.Generator, printed, 0o755)
}
