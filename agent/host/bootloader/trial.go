package bootloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// Generator prints the agent's section of the menu until a boot with the staged arguments comes up. As a generator, it survives an update-grub by
// another program, e.g. when a kernel is installed.
const Generator = generatorDir + "/42_storage-client"

const (
	generatorDir = "/etc/grub.d"
	// generatorHead makes a shell print the text after it, as 40_custom does.
	generatorHead = "#!/bin/sh\nexec tail -n +3 $0\n"

	// trialVariable is the agent's variable in GRUB's environment block. The agent sets it to trialArmed when it stages, and to trialPermitted right
	// before a permitted reboot. Before GRUB boots the new arguments, it changes these values to trialUsed and trialFailed. If GRUB finds one of the
	// latter, it boots the previous entry. The power may fail in any boot, so a boot without a permit is no proof: trialUsed is tried once more with
	// a permit.
	trialVariable  = "storage_client_trial"
	trialArmed     = "armed"
	trialPermitted = "permitted"
	trialUsed      = "used"
	trialFailed    = "failed"
	// previousID is the ID of the entry with the previous arguments.
	previousID = "storage-client-previous"

	// factArmed is the name of the boot fact that records that a trial was armed in the boot.
	factArmed = "trial-armed"
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

// writableFS are the file systems, by their names in grub-probe, on which GRUB can write a block of a file. They keep the block in place and do not
// checksum it.
var writableFS = []string{"ext2", "fat", "xfs"}

// entryHead matches the first line of an entry as 10_linux writes it: title, classes, id.
var entryHead = regexp.MustCompile(`^menuentry '([^']*)'(.*) \$menuentry_id_option '[^']*' \{\n`)

// trial is the state of a trial in the environment block, in /etc/grub.d and in the menu.
type trial struct {
	// state is the value of the trial variable. Empty if unset.
	state string
	// printed is the output of the agent's generator. section is the copy of it in the menu.
	printed, section string
	// selected is the ID of the boot loader entry of the next boot. Empty for the default.
	selected string
	armedNow bool
	// first is the text of the menu's first entry. Empty if 10_linux did not make it.
	first string
	// defaults are the values that the menu sets as the default entry, and lines are their line numbers. loads reports whether the menu reads the
	// environment block, and clears whether it clears the entry of the next boot there. ids reports whether it identifies entries by ID.
	defaults           []string
	lines              []int
	loads, clears, ids bool
	// seen reports whether the menu reads any block.
	seen bool
	// envErr is the reason why GRUB could not write to the environment block, if the file itself shows one.
	envErr error
	// reason is the reason why the staged arguments have no trial, or no entry to return to. Empty if they have both, or do not need them.
	reason string
}

func (t trial) isPresent() bool { return t.state != "" || t.printed != "" || t.section != "" }

// isDue reports whether GRUB boots the new arguments next and is ready to return to the previous entry.
func (t trial) isDue() bool {
	return t.section != "" && (t.state == trialArmed || t.state == trialPermitted)
}

// isOver reports whether GRUB has booted the new arguments once and boots the previous entry from now on.
func (t trial) isOver() bool {
	return t.section != "" && (t.state == trialUsed || t.state == trialFailed)
}

// isBroken reports whether GRUB boots the new arguments, but cannot return to the previous entry.
func (t trial) isBroken() bool { return t.section != "" && t.reason != "" }

// Attend implements host.BootTrier.
func (s *Subject) Attend(attended bool) { s.attended = attended }

// Rearm implements host.BootTrier.
func (s *Subject) Rearm(permitted bool) error { return s.loader().rearm(permitted) }

var readyStates = map[bool]string{true: trialPermitted, false: trialArmed}

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
	return g.setTrial(g.at, readyStates[permitted])
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
	env, _, err := g.readEnvironment(g.at.env())
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

// untriedReason returns the reason why the staged arguments have no trial. Empty if they have one, or do not need one.
func (s *Subject) untriedReason(f facts, findObstacle func() string) string {
	if f.notBooted(f.dropIn.args) == nil || f.trial.section != "" || !s.attended {
		return ""
	}
	return cmp.Or(findObstacle(), "the argument was staged without one")
}

// parseTrial returns the parts of a menu on which a trial depends.
func parseTrial(data string) trial { return readMenu(data).trial }

func (t *trial) readCommand(number int, text string) {
	if value, ok := strings.CutPrefix(text, "set default="); ok {
		t.defaults, t.lines = append(t.defaults, strings.Trim(value, `"`)), append(t.lines, number)
	}
	if strings.HasPrefix(text, "load_env") && !t.seen {
		// A second form is in the branch "elif", for a GRUB without the first.
		t.seen, t.loads = true, text == "load_env" || text == "load_env -f ${config_directory}/grubenv"
	}
	t.clears = t.clears || text == "save_env "+nextEntry
	t.ids = t.ids || text == `menuentry_id_option="--id"`
}

// notBooted returns the arguments that the running kernel was not booted with. The others are proven, because the agent is running.
func (f facts) notBooted(args []host.Argument) []host.Argument {
	if f.image {
		return nil
	}
	return argumentsWithout(args, f.cmdline)
}

// findTrialObstacle returns the reason why GRUB cannot try the staged arguments once and return to the present entry on its own. Empty if it can.
func (g grubDebian) findTrialObstacle(ctx context.Context, f facts) string {
	if reason := g.findMenuObstacle(f); reason != "" {
		return reason
	}
	if !g.fs.Exists(generatorDir) {
		return generatorDir + " is missing"
	}
	return g.findWriteObstacle(ctx, g.at)
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
		return t.envErr.Error() + ": run " + strings.Replace(g.at.mkconfig[0], "mkconfig", "editenv", 1) + " " + g.at.env() + " create"
	case t.envErr != nil:
		return t.envErr.Error()
	case !t.loads || len(t.defaults) == 0:
		return g.at.menu + " does not read " + g.at.env() + ": run " + g.at.remake
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

// findWriteObstacle runs the checks of Debian's 00_header, and only once: a disk does not change its format while it is mounted.
func (s *Subject) findWriteObstacle(ctx context.Context, names *grubNames) string {
	if s.writable != nil {
		return *s.writable
	}
	probe := []string{"grub-probe"}
	if names.menu == grub2Cfg {
		probe = []string{"grub2-probe"}
	}
	abstraction, err := s.runner.Run(ctx, probe[0], "--target=abstraction", path.Dir(names.menu))
	var kind []byte
	if err == nil {
		kind, err = s.runner.Run(ctx, probe[0], "--target=fs", path.Dir(names.menu))
	}
	if err != nil {
		return "cannot check whether GRUB can write to " + names.env() + ": " + err.Error()
	}
	found, reason := strings.Fields(string(abstraction)+" "+string(kind)), ""
	if i := slices.IndexFunc(found, func(name string) bool { return !slices.Contains(writableFS, name) }); i >= 0 {
		reason = "GRUB cannot write to " + names.env() + " on " + found[i]
	}
	s.writable = &reason
	return reason
}

func previousEntry(first string) (string, bool) {
	if !entryHead.MatchString(first) {
		return "", false
	}
	return entryHead.ReplaceAllString(first,
		"menuentry '${1}, before the kernel arguments that are tried'${2} $$menuentry_id_option '"+previousID+"' {\n"), true
}

// nextTrial is the trial of the arguments to stage: the desired output of the generator, and the value of the variable. Both are empty if the
// arguments need no trial, or cannot have one.
type nextTrial struct {
	printed, state string
	// err is the reason why the arguments must not be staged without a trial. Nil if they may be.
	err error
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
		entry, _ := previousEntry(f.provenEntry(f.notBooted(present)))
		printed = preamble + entry
	}
	return f.nextTrial(printed, untried)
}

// provenEntry returns the first entry with the arguments of the running kernel instead of the untried ones.
func (f facts) provenEntry(untried []host.Argument) string {
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

func (f facts) nextTrial(printed string, untried []host.Argument) nextTrial {
	if f.trial.isOver() && len(argumentsWithout(untried, f.dropIn.lastArguments())) == 0 {
		// Staging arguments again does not repeat a trial that they have failed.
		return nextTrial{printed: printed, state: f.trial.state}
	}
	return nextTrial{printed: printed, state: trialArmed}
}

// beginTrial prepares a menu with or without a trial. While the present menu has a trial, its variable stays.
func (g grubDebian) beginTrial(next nextTrial) error {
	if next.printed == "" {
		return g.writeGenerator("")
	}
	if err := g.setTrial(g.at, next.state); err != nil {
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
		return errors.Join(g.setTrial(g.at, ""), g.writeGenerator(""))
	}
	return fmt.Errorf("verify the new menu: it lacks the output of %s", Generator)
}

// endTrial makes the first entry the permanent default. It removes the variable first: without the variable, the rest has no effect.
func (g grubDebian) endTrial(f facts) error {
	if !f.trial.isPresent() {
		return nil
	}
	if err := g.setTrial(g.at, ""); err != nil {
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

// trialNote describes, for an argument that waits for its boot, the consequence of a failed boot.
func (t trial) trialNote() string {
	switch {
	case t.reason != "":
		return "; the boot menu has no fallback entry: " + t.reason
	case t.isOver() && t.selected != "":
		return ", but only with a permit, and after the boot of the selected entry " + t.selected
	case t.isOver():
		return ", but only with a permit: a boot without one failed, because of a power loss or this argument, or booted another entry, and the " +
			"machine boots the previous entry until then"
	case t.isDue():
		return "; trial boot: if the machine does not start with it, the boot after that uses the previous entry"
	}
	return ""
}
