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

const (
	entriesDir = "/boot/loader/entries"
	// entriesSource is the name, in messages, of entries that contain an argument that the agent does not manage.
	entriesSource = entriesDir + "/*.conf"
	// kernelCmdline contains the arguments that kernel-install gives to the entry of a new kernel. grubby also updates it (8.40-64 and newer).
	kernelCmdline = "/etc/kernel/cmdline"
)

// blsForm is the format for a host whose boot entries have no drop-ins. The file records the agent's arguments; no other program reads it.
var blsForm = form{
	file: "/var/lib/storage-client/journal/boot-arguments", perm: 0o600,
	write: func(args []host.Argument) string { return joinArguments(args) + "\n" },
	read: func(data string) []host.Argument {
		var args []host.Argument
		for line := range strings.Lines(data) {
			if !strings.HasPrefix(line, "#") {
				args = append(args, host.ParseArguments(line)...)
			}
		}
		return args
	},
}

// entryLoader is a loader with boot loader entries: GRUB, whose entries grubby changes, or systemd-boot.
type entryLoader struct{ base }

// entryTool is the part of a loader with entries that differs between GRUB and systemd-boot.
type entryTool interface {
	// readBooted returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry.
	readBooted(s *Subject, names *grubNames) (b bootedMenu, reason string)
	// compare returns the order of two entries in the menu.
	compare(a, b *menuEntry) int
	// readMenu reads the permanent entries that change changes.
	readMenu(ctx context.Context, b entryLoader) (menu, error)
	// change changes the entries and the arguments of later kernels. before are the current files.
	change(ctx context.Context, b entryLoader, f facts, next change, before map[string]host.SavedFile) error
	// readTrial reads the entry that is booted once, its state, and the entry that is selected for the next boot.
	readTrial(b entryLoader, armedNow bool) (trial, error)
	// writeTrial writes the entry that is booted once and its state, and selects the entry if it must be booted. An empty text removes both.
	writeTrial(b entryLoader, text, state string) error
	// findTrialObstacle returns the reason why the loader cannot boot another entry once and return to the default entry on its own, and whether that
	// is temporary. The reason is empty if it can.
	findTrialObstacle(ctx context.Context, b entryLoader) (reason string, temporary bool)
}

// grubby is the tool of a GRUB with entries.
type grubby struct{}

func (grubby) readBooted(s *Subject, names *grubNames) (bootedMenu, string) {
	b, reason := s.grubMenu(names)
	return b, cmp.Or(reason, b.findUneditable())
}

// findUneditable returns the reason why grubby cannot change the arguments of an entry, and the remedy. It replaces each line that starts with
// "options", adds no line, and appends to the line. Empty if it can change all entries.
func (b *bootedMenu) findUneditable() string {
	for _, entry := range b.menu.root.children {
		lines := optionsLine.FindAllString(entry.text, -1)
		switch {
		case entry.file == "":
		case len(lines) != 1 || lines[0][0] != 'o':
			return fmt.Sprintf("grubby cannot change the arguments of %s, which are not in one line that starts with options: write them into one line, "+
				"or remove the file", entry.file)
		case !hasName(host.ParseArguments(b.expand(entryOptions(entry.text))+" "+appended), appended):
			return fmt.Sprintf("grubby cannot change the arguments of %s, which have words for init after --, or an open quote: remove these words", entry.file)
		}
	}
	return ""
}

var optionsLine = regexp.MustCompile(`(?m)^[ \t]*options([ \t]|$)`)

func (grubby) compare(a, b *menuEntry) int { return compareEntries(b.id, a.id) }

// entryNames returns the names of the loaders with entries whose trial may be pending.
func (s *Subject) entryNames() []*grubNames {
	return append(append(systemdPlaces(s.fs), imagePlaces(s.fs)...), blsNames)
}

// detection is not proven while a permanent entry has an argument without a trial, or while another program changes the entries.
func (b entryLoader) detection() Detection {
	untried := b.untriedDefaults(b.at)
	switch {
	case !b.found.Proven:
		return b.found
	case b.delay != "":
		return Detection{Type: b.found.Type, Message: "the node is not rebooted yet: " + b.delay}
	case len(untried) == 0:
		return b.found
	}
	return Detection{Type: b.found.Type, Message: "the boot entries have " + joinArguments(untried) + ", which has neither booted nor a trial boot, e.g. " +
		"because an earlier release staged it, and the node is not rebooted for it: reboot the node by hand once, or edit the profile"}
}

func (b entryLoader) readMenu(ctx context.Context) (menu, error) { return b.at.tool.readMenu(ctx, b) }

func (grubby) readMenu(ctx context.Context, b entryLoader) (menu, error) {
	info, err := b.runner.Run(ctx, "grubby", "--info=ALL")
	entries, entriesErr := b.readEntries(b.at)
	if err := errors.Join(err, entriesErr); err != nil {
		return menu{}, err
	}
	m := parseEntries(string(info))
	m.lines = slices.DeleteFunc(m.lines, func(line bootLine) bool {
		hasID := func(entry *menuEntry) bool { return entry.id == line.id }
		return b.fs.Exists(path.Join(b.at.entries, line.id+".conf")) && !slices.ContainsFunc(entries, hasID)
	})
	return m, nil
}

// parseEntries parses "grubby --info=ALL": for each entry a line "index=", then its fields, with values in quotes. If an argument has quotes, the
// quotes around args are not escaped.
func parseEntries(info string) menu {
	m := menu{whole: true}
	for line := range strings.Lines(info) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`)
		if field == "index" {
			m.lines = append(m.lines, bootLine{id: value, title: "index " + value})
		}
		if len(m.lines) == 0 {
			continue
		}
		entry := &m.lines[len(m.lines)-1]
		switch field {
		case "kernel":
			entry.kernel = value
		case "args":
			entry.args = append(entry.args, host.ParseArguments(value)...)
		case "root":
			entry.args = append(entry.args, host.NewArgument("root="+value))
		case "title":
			entry.title = value
		case "id":
			entry.id = value
		}
	}
	// grubby also lists the entry that is booted once.
	m.lines = slices.DeleteFunc(m.lines, func(line bootLine) bool { return line.kernel == "" || line.title == onceTitle })
	return m
}

// readFacts reads the facts that the evaluation needs on a host with boot entries. A present value of a requested argument is foreign if the agent
// did not set it and one condition holds: all entries pass the value, or it differs from the requested value.
func (b entryLoader) readFacts(ctx context.Context, f *facts, settings []host.Setting) (err error) {
	if err := errors.Join(b.gatherTrial(ctx, f), b.readRecords(f)); err != nil {
		return err
	}
	if b.delay != "" {
		b.checkHold(ctx)
	}
	for _, setting := range settings {
		for _, present := range f.entries.valuesOf(setting.Name) {
			same := present.Value == setting.Value
			if !hasArgument(f.managedArguments(), present) && (!same || f.entries.holdsArgument(present)) {
				f.foreign = append(f.foreign, source{file: b.at.title, arg: present})
			}
		}
	}
	if b.at.addon != "" {
		return nil
	}
	f.rewritten = b.rewrittenArguments()
	f.later, f.laterFile, err = b.laterArguments()
	env, _, _ := b.readEnvironment(b.at.env())
	f.written = append(slices.Clone(f.later), host.ParseArguments(env.value("kernelopts"))...)
	return err
}

// laterFiles contain the arguments of kernels that are installed later. kernel-install reads only the first that exists.
var laterFiles = []string{kernelCmdline, "/usr/lib/kernel/cmdline"}

// laterArguments returns the arguments in the first of laterFiles. Since systemd 254, kernel-install ignores comments.
func (s *Subject) laterArguments() (args []host.Argument, file string, err error) {
	for _, file := range laterFiles {
		data, err := s.fs.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return host.ParseArguments(comment.ReplaceAllString(string(data), "")), file, err
	}
	return nil, "", nil
}

var comment = regexp.MustCompile(`(?m)^\s*#.*$`)

// changeMenu makes every entry pass exactly the desired arguments of the agent. Untried arguments are only in the entry that is booted once, and the
// other entries keep the arguments that they replace. First, it journals the original files durably.
func (b entryLoader) changeMenu(ctx context.Context, f facts, next change) error {
	proven := next
	if next.trial.printed != "" {
		proven.desired = append(argumentsWithout(next.desired, f.notBooted(next.desired)), next.retained...)
		proven.stale, proven.trial = argumentsWithout(next.stale, next.retained), nextTrial{}
	}
	if next.trial.printed == "" || f.dropIn.unfinished || f.entries.findProblem(proven.desired, proven.stale) != "" {
		// grubby would also change the entry that is booted once, and may take the arguments of later kernels from it.
		if err := b.endTrial(f); err != nil {
			return err
		}
		if err := b.changeEntries(ctx, f, proven); err != nil {
			return err
		}
	} else if _, err := b.keepFiles(f, next); err != nil {
		return err
	}
	if next.trial.printed == "" {
		return nil
	}
	return b.writeTrial(b.onceText(next.desired, next.stale), next.trial.state)
}

// changeEntries changes the entries with grubby. If grubby fails, or its result is not the desired one, it restores the files to their state before
// this change.
func (b entryLoader) changeEntries(ctx context.Context, f facts, next change) error {
	before, err := b.keepFiles(f, next)
	if err == nil {
		// The first read may have seen partial files, which are repaired now.
		f.menu, err = b.readMenu(ctx)
	}
	if err != nil {
		return err
	}
	if len(next.desired) == 0 {
		err = b.revertFiles(ctx, f, next, before)
	} else {
		err = b.runTool(ctx, f, next, before)
	}
	if err == nil {
		return nil
	}
	if err = errors.Join(err, b.restoreFiles(before)); b.isIncomplete() {
		err = temporaryError{err}
	}
	return err
}

// runTool changes the files, if necessary, and verifies the result.
func (b entryLoader) runTool(ctx context.Context, f facts, next change, before map[string]host.SavedFile) error {
	if err := b.at.tool.change(ctx, b, f, next, before); err != nil {
		return err
	}
	if err := b.checkEntries(ctx, f, next.desired, next.stale); err != nil {
		return err
	}
	return b.recordResults(before)
}

func (grubby) change(ctx context.Context, b entryLoader, f facts, next change, before map[string]host.SavedFile) error {
	argv := []string{"grubby", "--update-kernel=ALL"}
	options := len(argv)
	if len(next.stale) > 0 {
		argv = append(argv, "--remove-args="+joinArguments(next.stale))
	}
	// An interrupted grubby may have changed the entries, but not the other files.
	lacking := func(arg host.Argument) bool { return f.dropIn.unfinished || !f.menu.holdsArgument(arg) }
	if add := slices.DeleteFunc(slices.Clone(next.desired), func(arg host.Argument) bool { return !lacking(arg) }); len(add) > 0 {
		argv = append(argv, "--args="+joinArguments(add))
	}
	if len(argv) == options {
		return nil
	}
	// The last option is last: grubby's script skips the word after it.
	argv = append(append(argv, "--bls-directory="+entryCopies), b.noDefaultFile()...)
	if err := b.changeCopies(func() error { _, err := b.runner.Run(ctx, argv...); return err }); err != nil {
		return err
	}
	err := errors.Join(b.restoreDefaults(before), b.changeLater(next, before))
	for _, name := range grubbyFiles {
		if b.fs.Exists(name) {
			err = errors.Join(err, b.fs.SyncFile(name))
		}
	}
	return err
}

// changeLater edits the kernelCmdline from before the change: grubby keeps only one line of it, or makes it from the last entry. If no other program
// has made the file, the agent copies the vendor's file and adds its arguments there. If the vendor has none either, kernel-install reads
// /proc/cmdline, which has the desired arguments after their boot.
func (b entryLoader) changeLater(next change, before map[string]host.SavedFile) error {
	if err := b.fs.RestoreFile(kernelCmdline, before[kernelCmdline]); err != nil {
		return err
	}
	file, err := b.fs.Resolve(kernelCmdline)
	if err != nil {
		return err
	}
	saved, unchanged := before[file], before[file]
	if record, ok := b.facts.KeptFiles()[file]; !saved.Present || ok && isManaged(record) {
		saved, unchanged = host.SavedFile{Present: true, Mode: 0o644}, host.SavedFile{}
		if len(next.desired) > 0 {
			saved.Data, err = b.fs.ReadIfThere(laterFiles[1])
		}
	}
	holdsArguments := func(line string) bool { return !comment.MatchString(line) && strings.TrimSpace(line) != "" }
	if err != nil || !slices.ContainsFunc(strings.Split(string(saved.Data), "\n"), holdsArguments) {
		return errors.Join(err, b.fs.RestoreFile(file, unchanged))
	}
	if err := b.fs.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	return b.editArguments(file, saved, holdsArguments, next)
}

func (b entryLoader) checkEntries(ctx context.Context, f facts, wanted, stale []host.Argument) error {
	made, err := b.readMenu(ctx)
	if err != nil {
		return err
	}
	if text := cmp.Or(made.findProblem(wanted, stale), made.tooLong(nil, nil)); text != "" {
		return errors.New("verify the boot entries: " + text)
	}
	for _, line := range f.menu.lines {
		successor, ok := made.matchLine(line)
		if !ok {
			return temporaryError{fmt.Errorf("the boot entry %q is gone", line.title)}
		}
		if missing := b.missingArguments(line.args, successor.args, append(f.managedArguments(), wanted...)); len(missing) > 0 {
			return fmt.Errorf("the boot entry %q would lose %s", line.title, joinArguments(missing))
		}
	}
	return nil
}

// rewrittenArguments returns the arguments to which the next installation of a kernel sets all entries. Nil if it does not. Fedora's kernel-install
// runs grub2-mkconfig, which rewrites them unless it has an option for that (RHEL 9). A script in /etc masks the one of the same name.
func (b entryLoader) rewrittenArguments() []host.Argument {
	defaults, err := b.fs.ReadFile(defaultFile)
	leavesEntries := func(name string) bool { return b.contains(name, "--update-bls-cmdline") }
	if err != nil || !slices.Contains(b.at.files, defaultFile) || slices.ContainsFunc(grub2Mkconfigs, leavesEntries) {
		return nil
	}
	scripts, _ := b.fs.Glob("/etc/kernel/install.d", "*.install")
	vendor, _ := b.fs.Glob("/usr/lib/kernel/install.d", "*.install")
	masked := map[string]bool{}
	for _, script := range append(scripts, vendor...) {
		info, err := b.fs.Stat(script)
		name := path.Base(script)
		if err != nil || masked[name] || info.Size() > 0 && info.Mode()&0o111 == 0 {
			continue
		}
		masked[name] = true
		if b.runsMkconfig(script) {
			return append([]host.Argument{}, assignedArguments(string(defaults))...)
		}
	}
	return nil
}

// runsMkconfig reports whether a script runs grub2-mkconfig for the next kernel. If its condition is the age of /etc/kernel/cmdline, so is this one.
// In bash, a missing file is older than an existing one.
func (b entryLoader) runsMkconfig(script string) bool {
	later, err := b.fs.Stat(kernelCmdline)
	defaults, defaultsErr := b.fs.Stat(defaultFile)
	isOlder := defaultsErr == nil && (errors.Is(err, fs.ErrNotExist) || err == nil && later.ModTime().Before(defaults.ModTime()))
	// On x86, 99-grub-mkconfig.install of RHEL makes a menu only for Xen.
	return path.Base(script) != "99-grub-mkconfig.install" && b.contains(script, "grub2-mkconfig") &&
		(isOlder || !b.contains(script, kernelCmdline+" -ot "+defaultFile))
}

func (s *Subject) contains(name, text string) bool {
	data, err := s.fs.ReadFile(name)
	return err == nil && strings.Contains(comment.ReplaceAllString(string(data), ""), text)
}

// lackedLater returns a note if kernels that are installed later will lack the argument. Empty if they will have it.
func (f facts) lackedLater(arg host.Argument) string {
	switch {
	case f.trial.section != "":
		return ""
	case f.rewritten != nil && !hasArgument(f.rewritten, arg):
		return "the next kernel installation removes it from the boot entries, because kernel-install then runs grub2-mkconfig: run " + remakeGrub2 +
			" now, and the agent stages it again"
	case f.laterFile != "" && !hasArgument(f.later, arg):
		return "kernels installed later will not have it: " + f.laterFile + " lacks it"
	}
	return ""
}
