package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const generatorDir = "/etc/grub.d"

// Generator prints the agent's section of the menu until a boot with the staged arguments comes up. As a generator, it survives an update-grub by
// another program, e.g. when a kernel is installed.
const Generator = generatorDir + "/42_storage-client"

const (
	// generatorHead makes a shell print the text after it, as 40_custom does.
	generatorHead = "#!/bin/sh\nexec tail -n +3 $0\n"

	// previousID is the ID of the entry with the previous arguments.
	previousID = "storage-client-previous"
)

// preamble decides at GRUB's start. If grub-reboot or custom.cfg selects another entry than the first one, preamble keeps that selection and the
// trial stays unused. The menu may have read another block than the one of $prefix, to which save_env writes. If their states differ, or GRUB does not
// read back the written state, the next start would repeat the trial: it boots the previous entry instead. If the previous entry cannot be loaded,
// GRUB continues with the first one.
const preamble = `# Written by storage-client-node-agent, which takes this away once the machine has come up with its new arguments.
if [ "${default}" = "0" ]; then
  set storage_client_read="${` + trialVariable + `}"
  set ` + trialVariable + `=
  load_env ` + trialVariable + `
  if [ "${` + trialVariable + `}" != "${storage_client_read}" ]; then
    set ` + trialVariable + `=unsaved
  elif [ "${` + trialVariable + `}" = "` + trialArmed + `" ]; then
    set storage_client_next=` + trialUsed + `
  elif [ "${` + trialVariable + `}" = "` + trialPermitted + `" ]; then
    set storage_client_next=` + trialFailed + `
  fi
  if [ "${storage_client_next}" ]; then
    set ` + trialVariable + `="${storage_client_next}"
    save_env ` + trialVariable + `
    set ` + trialVariable + `=unsaved
    load_env ` + trialVariable + `
  fi
  if [ "${` + trialVariable + `}" != "${storage_client_next}" ]; then
    set default=` + previousID + `
    set fallback=0
  fi
fi
`

// entryHead matches the first line of an entry as 10_linux writes it: title, classes, id.
var entryHead = regexp.MustCompile(`^menuentry '([^']*)'(.*) \$menuentry_id_option '[^']*' \{\n`)

func (g grubDebian) rearm(permitted bool) error {
	data, err := g.readSettled(g.at.menu)
	section := parseTrial(string(data)).section
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && section == "":
		return nil
	case err == nil && permitted && g.lacksPrevious(section):
		err = errNoPrevious
	}
	if err != nil {
		return err
	}
	return g.setTrial(readyStates[permitted])
}

var errNoPrevious = errors.New("the kernel or initrd of the previous entry is missing")

// lacksPrevious reports whether the kernel or an initrd of the previous entry is missing, e.g. because that kernel was removed after the staging.
func (g grubDebian) lacksPrevious(section string) bool {
	for line := range strings.Lines(section) {
		words := splitWords(line)
		switch {
		case len(words) > 1 && isLinuxCommand(words[0]):
			words = words[1:2]
		case len(words) > 1 && slices.Contains([]string{"initrd", "initrd16", "initrdefi"}, words[0]):
			words = words[1:]
		default:
			continue
		}
		if slices.ContainsFunc(words, func(file string) bool { return !g.fs.Exists(file) && !g.isInstalled(file) }) {
			return true
		}
	}
	return false
}

func (g grubDebian) gatherTrial(ctx context.Context, f *facts) error {
	data, err := g.readSettled(g.at.menu)
	if err != nil {
		return err
	}
	f.trial = parseTrial(string(data))
	env, _, err := g.readEnvironment(g.env())
	f.trial.state, f.trial.envErr = env.value(trialVariable), err
	script, err := g.fs.ReadIfThere(Generator)
	if err != nil {
		return err
	}
	f.trial.printed = strings.TrimPrefix(string(script), generatorHead)
	_, f.trial.armedNow = g.facts.BootFact(f.bootID, factArmed)
	f.trial.reason = g.untriedReason(*f, func() string { return g.findTrialObstacle(ctx, *f) })
	if f.notBooted(f.dropIn.args) != nil && g.lacksPrevious(f.trial.section) {
		f.trial.reason = errNoPrevious.Error()
	}
	return nil
}

// findTrialObstacle returns the reason why GRUB cannot try the staged arguments once and return to the present entry on its own. Empty if it can.
func (g grubDebian) findTrialObstacle(ctx context.Context, f facts) string {
	if reason := g.findMenuObstacle(f); reason != "" {
		return reason
	}
	if !g.fs.Exists(generatorDir) {
		return generatorDir + " is missing"
	}
	return g.findWriteObstacle(ctx)
}

func (g grubDebian) findMenuObstacle(f facts) string {
	t := f.trial
	_, form := previousEntry(t.first)
	other := slices.IndexFunc(t.defaults, func(d string) bool { return d != "0" && d != "${next_entry}" })
	passed, _ := lastNamed(f.cmdline, "panic")
	switch {
	case !g.found.Proven:
		return g.found.Message
	case errors.Is(t.envErr, fs.ErrNotExist):
		return t.envErr.Error() + ": run " + strings.Replace(g.at.mkconfig[0], "mkconfig", "editenv", 1) + " " + g.env() + " create"
	case t.envErr != nil:
		return t.envErr.Error()
	case !t.loads || len(t.defaults) == 0:
		return g.at.menu + " does not read " + g.env() + ": run " + g.at.remake
	case !t.ids:
		return g.at.menu + " has no entry ids"
	case other >= 0:
		return fmt.Sprintf("%s line %d: the default is %q and not the first entry: set GRUB_DEFAULT=0 in %s and run %s", g.at.menu, t.lines[other],
			t.defaults[other], defaultFile, g.at.remake)
	case !form:
		return "the boot menu's first entry was not written by 10_linux"
	case strings.Contains(t.first, "initrdfail") && passed.Value != "-1":
		// GRUB would start a second time within one boot, and mistake the first attempt for a hang.
		return "GRUB boots this kernel only at the second attempt, with an initrd"
	}
	return ""
}

func previousEntry(first string) (string, bool) {
	if !entryHead.MatchString(first) {
		return "", false
	}
	return entryHead.ReplaceAllString(first,
		"menuentry '${1}, before the kernel arguments that are tried'${2} $$menuentry_id_option '"+previousID+"' {\n"), true
}

func (g grubDebian) prepareTrial(ctx context.Context, f facts, wanted []host.Argument) nextTrial {
	untried := f.notBooted(wanted)
	if !g.attended || len(untried) == 0 || g.findTrialObstacle(ctx, f) != "" {
		return nextTrial{}
	}
	printed := f.trial.section
	present := slices.DeleteFunc(f.managedArguments(), func(arg host.Argument) bool { return !hasArgument(f.menu.valuesOf(arg.Name), arg) })
	switch {
	case len(f.notBooted(present)) == 0:
		entry, _ := previousEntry(f.trial.first)
		printed = preamble + entry
	case f.trial.section == "":
		// The present entry has not been booted either, and no other entry is known.
		return nextTrial{}
	case f.trial.isBroken():
		entry, _ := previousEntry(provenEntry(f, f.notBooted(present)))
		printed = preamble + entry
	}
	return f.nextTrial(printed, untried)
}

// provenEntry returns the first entry with the arguments of the running kernel instead of the untried ones.
func provenEntry(f facts, untried []host.Argument) string {
	f.failed = untried
	var b strings.Builder
	for line := range strings.Lines(f.trial.first) {
		if words := strings.Fields(line); len(words) > 0 && isLinuxCommand(words[0]) {
			line = addWords(cutWords(line, untried), f.replacedByFailed())
		}
		b.WriteString(line)
	}
	return b.String()
}

// beginTrial prepares a menu with or without a trial. While the present menu has a trial, its variable stays.
func (g grubDebian) beginTrial(next nextTrial) error {
	if next.printed == "" {
		return g.writeGenerator("")
	}
	if err := g.setTrial(next.state); err != nil {
		return err
	}
	return g.writeGenerator(next.printed)
}

// checkTrial checks that a new menu has the section that the agent's generator prints. If grub-mkconfig omits the whole section, the arguments are
// staged without a trial.
func (g grubDebian) checkTrial(section, printed string) error {
	switch section {
	case printed:
		return nil
	case "":
		return errors.Join(g.setTrial(""), g.writeGenerator(""))
	}
	return fmt.Errorf("verify the new menu: it lacks the output of %s", Generator)
}

// endTrial makes the first entry the permanent default. It removes the variable first: without the variable, the rest has no effect.
func (g grubDebian) endTrial(f facts) error {
	if !f.trial.isPresent() {
		return nil
	}
	if err := g.setTrial(""); err != nil {
		return err
	}
	if err := g.writeGenerator(""); err != nil {
		return err
	}
	return g.cutSection()
}

// cutSection removes the agent's section from the menu in place. grub-mkconfig makes the same menu without the agent's generator.
func (g grubDebian) cutSection() error {
	info, err := g.fs.Lstat(g.at.menu)
	if err != nil {
		return err
	}
	data, err := g.readSettled(g.at.menu)
	if err != nil {
		return err
	}
	next, err := withoutSection(string(data))
	if err == nil && next != string(data) && !info.Mode().IsRegular() {
		err = errSection
	}
	if err != nil {
		return fmt.Errorf("%w from %s", err, g.at.menu)
	}
	if next == string(data) {
		return nil
	}
	if file, ok := g.facts.KeptFiles()[g.at.menu]; ok {
		if err := g.keepMenu(file, isRecordedMenu(file, data), data, []byte(next)); err != nil {
			return err
		}
	}
	return g.fs.WriteFileAtomic(g.at.menu, []byte(next), info.Mode().Perm())
}

var errSection = errors.New(Generator + " cannot be removed")

func withoutSection(data string) (string, error) {
	const begin, end = "\n### BEGIN " + Generator + " ###\n", "### END " + Generator + " ###\n"
	before, rest, found := strings.Cut(data, begin)
	_, after, ends := strings.Cut(rest, end)
	if found && !ends {
		return "", errSection
	}
	return before + after, nil
}

// writeGenerator makes the agent's generator print a text, or removes the generator if the text is empty.
func (g grubDebian) writeGenerator(printed string) error {
	if printed != "" {
		printed = generatorHead + printed
	}
	return g.fs.KeepFileMode(Generator, printed, 0o755)
}
