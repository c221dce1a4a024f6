package bootloader

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// grubby is the tool of a GRUB with entries.
type grubby struct{}

func (grubby) readBooted(b entryLoader) (bootedMenu, string) {
	m, reason := grubOf(b).readBootedFrom(func() ([]*menuEntry, error) { return readKernels(b) })
	return m, cmp.Or(reason, findUneditable(&m))
}

// readKernels returns the entries without those without a kernel, which GRUB skips.
func readKernels(b entryLoader) ([]*menuEntry, error) {
	entries, err := b.readEntries()
	return slices.DeleteFunc(entries, func(entry *menuEntry) bool { return len(entry.lines) == 0 }), err
}

// readLater implements entryTool. grubby also changes the variable kernelopts.
func (grubby) readLater(b entryLoader, f *facts) error {
	err := b.readLater(f)
	env, _, _ := grubOf(b).readEnvironment(grubOf(b).env())
	f.written = append(slices.Clone(f.written), host.ParseArguments(env.value("kernelopts"))...)
	rewritten, lacked := rewrittenArguments(b), f.lackedLater
	f.lackedLater = func(arg host.Argument) string {
		if rewritten != nil && !hasArgument(rewritten, arg) {
			return "the next kernel installation removes it from the boot entries, because kernel-install then runs grub2-mkconfig: run " + remakeGrub2 +
				" now, and the agent stages it again"
		}
		return lacked(arg)
	}
	return err
}

// findUneditable returns the reason why grubby cannot change the arguments of an entry, and the remedy. It replaces each line that starts with
// "options", adds no line, and appends to the line. Empty if it can change all entries.
func findUneditable(b *bootedMenu) string {
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

func (grubby) readMenu(ctx context.Context, b entryLoader) (menu, error) {
	info, err := b.runner.Run(ctx, "grubby", "--info=ALL")
	entries, entriesErr := readKernels(b)
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
	argv = append(append(argv, "--bls-directory="+entryCopies), noDefaultFileOf(b)...)
	if err := changeCopies(b, func() error { _, err := b.runner.Run(ctx, argv...); return err }); err != nil {
		return err
	}
	err := errors.Join(restoreDefaults(b, before), b.changeLater(next, before))
	for _, name := range grubbyFiles {
		if b.fs.Exists(name) {
			err = errors.Join(err, b.fs.SyncFile(name))
		}
	}
	return err
}

// rewrittenArguments returns the arguments to which the next installation of a kernel sets all entries. Nil if it does not. Fedora's kernel-install
// runs grub2-mkconfig, which rewrites them unless it has an option for that (RHEL 9). A script in /etc masks the one of the same name.
func rewrittenArguments(b entryLoader) []host.Argument {
	defaults, err := b.fs.ReadFile(defaultFile)
	leavesEntries := func(name string) bool { return b.contains(name, "--update-bls-cmdline") }
	if err != nil || slices.ContainsFunc(grub2Mkconfigs, leavesEntries) {
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
		if runsMkconfig(b, script) {
			return append([]host.Argument{}, assignedArguments(string(defaults))...)
		}
	}
	return nil
}

// runsMkconfig reports whether a script runs grub2-mkconfig for the next kernel. If its condition is the age of /etc/kernel/cmdline, so is this one.
// In bash, a missing file is older than an existing one.
func runsMkconfig(b entryLoader, script string) bool {
	later, err := b.fs.Stat(kernelCmdline)
	defaults, defaultsErr := b.fs.Stat(defaultFile)
	isOlder := defaultsErr == nil && (errors.Is(err, fs.ErrNotExist) || err == nil && later.ModTime().Before(defaults.ModTime()))
	// On x86, 99-grub-mkconfig.install of RHEL makes a menu only for Xen.
	return path.Base(script) != "99-grub-mkconfig.install" && b.contains(script, "grub2-mkconfig") &&
		(isOlder || !b.contains(script, kernelCmdline+" -ot "+defaultFile))
}

// grubbyFiles are the files that "grubby --update-kernel=ALL" may change in addition to the entries.
var grubbyFiles = []string{kernelCmdline, defaultFile, "/boot/grub2/grubenv"}

const (
	// noDefaultFile prevents grubby from editing /etc/default/grub, in which it treats every line that starts with GRUB_CMDLINE_LINUX as that
	// variable. Releases without the option do not edit the file: grubby 8.40-39 of RHEL 8 and 8.40-43 of Fedora introduced both.
	noDefaultFile = "--no-etc-grub-update"
)

// grubbyScripts are the paths of grubby's script: a wrapper in /usr/sbin calls the script in /usr/libexec.
var grubbyScripts = []string{"/usr/libexec/grubby/grubby-bls", "/usr/sbin/grubby"}

func noDefaultFileOf(b entryLoader) []string {
	if slices.ContainsFunc(grubbyScripts, func(script string) bool { return b.contains(script, noDefaultFile[2:]) }) {
		return []string{noDefaultFile}
	}
	return nil
}

// restoreDefaults reverts grubby's changes to /etc/default/grub, which is not a source of the entries.
func restoreDefaults(b entryLoader, before map[string]host.SavedFile) error {
	target, err := b.fs.Resolve(defaultFile)
	defaults := maps.Clone(before)
	maps.DeleteFunc(defaults, func(name string, _ host.SavedFile) bool { return name != defaultFile && name != target })
	return errors.Join(err, b.restoreFiles(defaults))
}

// changeCopies runs grubby with copies of the entries, and then replaces each changed entry durably. grubby syncs no file, and a power failure could
// leave all entries empty. An entry that another program removes or changes in the meantime stays. The copy of kernelCmdline is for repairLater.
func changeCopies(b entryLoader, run func() error) error {
	entries, err := readKernels(b)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.file)
	}
	err = errors.Join(err, removeCopies(b.Host), b.fs.MkdirAll(entryCopies, 0o700))
	copies := map[string]host.SavedFile{}
	for _, name := range append(names, kernelCmdline) {
		target, resolveErr := b.fs.Resolve(name)
		file, saveErr := b.fs.SaveFile(target)
		copies[name] = file
		err = errors.Join(err, resolveErr, saveErr, b.fs.KeepFileMode(copyOf(name), string(file.Data), file.Mode))
	}
	if err == nil {
		err = run()
	}
	for _, name := range names {
		file := copies[name]
		now, nowErr := b.fs.ReadIfThere(name)
		data, readErr := b.fs.ReadIfThere(copyOf(name))
		err = errors.Join(err, nowErr, readErr)
		if err == nil && bytes.Equal(now, file.Data) && len(data) > 0 && !bytes.Equal(data, now) {
			// As with "sed -i", a file replaces a link.
			file.Data = data
			err = b.fs.RestoreFile(name, file)
		}
	}
	return err
}

// blsNames are the names of a GRUB with boot loader entries.
var blsNames = &grubNames{menu: grub2Cfg, title: entriesSource, remake: remakeGrub2, once: onceID, form: blsForm, entries: entriesDir, boot: "/boot",
	files: grubbyFiles}

func (grubby) readTrial(b entryLoader, _ bool) (t trial, err error) {
	text, err := b.fs.ReadIfThere(b.at.onceEntry())
	if err != nil {
		return t, err
	}
	env, _, envErr := grubOf(b).readEnvironment(grubOf(b).env())
	// GRUB also reads a block that it could not write to.
	block, err := b.fs.ReadIfThere(grubOf(b).env())
	return trial{section: string(text), state: env.value(trialVariable), selected: environment(block).value(nextEntry), envErr: envErr}, err
}

func (grubby) findTrialObstacle(ctx context.Context, b entryLoader) (reason string, temporary bool) {
	data, err := grubOf(b).readOnce(b.at.menu)
	if err != nil {
		return err.Error(), errors.Is(err, errBusy)
	}
	t, env := parseTrial(string(data)), grubOf(b).env()
	_, _, envErr := grubOf(b).readEnvironment(env)
	switch {
	case !b.found.Proven:
		return b.found.Message, false
	case envErr != nil:
		return envErr.Error(), false
	case !t.loads || !t.clears || !slices.Contains(t.defaults, "${"+nextEntry+"}"):
		return fmt.Sprintf("the boot menu does not read %s from %s and clear it", nextEntry, env), false
	case b.onceText(nil, nil) == "":
		return errNoKernel.Error(), true
	}
	reason = grubOf(b).findWriteObstacle(ctx)
	return reason, b.writable == nil
}

// The entry exists whenever it is selected, although GRUB would boot the default instead of a missing one.
func (grubby) writeTrial(b entryLoader, text, state string) error {
	if text == "" {
		if err := grubOf(b).setTrial(""); err != nil {
			return err
		}
		return b.fs.Remove(b.at.onceEntry())
	}
	if err := b.fs.KeepFile(b.at.onceEntry(), text); err != nil {
		return err
	}
	return grubOf(b).setTrial(state)
}

// compareEntries compares the names of two entries like GRUB: by package name, version and release, which the last two dashes separate.
func compareEntries(a, b string) int { return strings.Compare(entryKey(a), entryKey(b)) }

func entryKey(name string) string {
	parts := strings.Split(name, "-")
	if n := len(parts); n > 3 {
		parts = append([]string{strings.Join(parts[:n-2], "-")}, parts[n-2:]...)
	}
	parts = append(parts, "", "")
	const rpm = "~$+"
	return versionKey(parts[0], rpm) + versionKey(parts[1], rpm) + versionKey(parts[2], rpm)
}

func grubOf(b entryLoader) grubBase { return grubBase{base: b.base} }

// removeCopies removes the copies, and the remains of a crash among them.
func removeCopies(h *Host) (err error) {
	files, _ := h.fs.ReadDir(entryCopies)
	for _, file := range files {
		err = errors.Join(err, h.fs.Remove(path.Join(entryCopies, file.Name())))
	}
	return errors.Join(err, h.fs.RemoveEmpty(entryCopies))
}
