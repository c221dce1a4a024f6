// Package grubentries is GRUB with boot loader specification entries, which grubby changes.
package grubentries

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
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// Kind is the kind of GRUB with boot loader entries.
var Kind = loader.Kind{
	Detect: detectGrubby,
	Places: func(host.FS) []*loader.Place { return []*loader.Place{GrubPlace} },
	Open:   func(b loader.Base) loader.Loader { return Loader{bls.Loader{Base: b, Tool: tool{}}} },
}

// Loader also has copies of the entries.
type Loader struct{ bls.Loader }

// RemoveTemp implements Loader.
func (b Loader) RemoveTemp() error {
	return errors.Join(b.Loader.RemoveTemp(), removeCopies(b.Host))
}

func detectGrubby(fs host.FS) (loader.Detection, *loader.Place) {
	entries, err := fs.Glob(bls.EntriesDir, "*.conf")
	menu, menuErr := fs.ReadFile(grubcfg.Grub2)
	switch {
	case err != nil || len(entries) == 0 || !fs.Exists("/usr/sbin/grubby") || !readsEntries(fs):
		return loader.Detection{}, nil
	case fs.Exists("/etc/zipl.conf"):
		// On s390x the entries belong to zipl, which must run after every change.
		return loader.Detection{}, nil
	case menuErr != nil || !strings.Contains(string(menu), "blscfg"):
		return loader.Detection{Type: loader.GrubBLS, Message: "GRUB with boot loader entries, but " + grubcfg.Grub2 + " does not show that it reads them: " +
			"arguments are staged by grubby --update-kernel=ALL, and the node is not rebooted for them"}, GrubPlace
	}
	return loader.Detection{Type: loader.GrubBLS, Proven: true}, GrubPlace
}

// readsEntries reports whether GRUB's menu uses the boot loader entries. A menu that was made without them has its own lines "linux".
func readsEntries(fs host.FS) bool {
	if grubcfg.MenuOnEFI(fs) != "" {
		return false
	}
	menu, err := fs.ReadFile(grubcfg.Grub2)
	return err != nil || strings.Contains(string(menu), "blscfg") || len(grubcfg.Parse(string(menu)).Lines) == 0
}

// tool is the tool of a GRUB with entries.
type tool struct{}

// ReadBooted implements Tool.
func (tool) ReadBooted(b bls.Loader) (loader.Booted, string) {
	m, reason := grubOf(b).ReadBootedFrom(func() ([]*loader.Entry, error) { return readKernels(b) })
	return m, cmp.Or(reason, findUneditable(&m))
}

// readKernels returns the entries without those without a kernel, which GRUB skips.
func readKernels(b bls.Loader) ([]*loader.Entry, error) {
	entries, err := b.ReadEntries()
	return slices.DeleteFunc(entries, func(entry *loader.Entry) bool { return len(entry.Lines) == 0 }), err
}

// ReadLater implements Tool. grubby also changes the variable kernelopts. After an interrupted change, repairLater restores the copy.
func (tool) ReadLater(b bls.Loader, f *loader.Facts) error {
	copied, copyErr := b.FS.ReadIfThere(bls.CopyOf(bls.LaterFile))
	err := errors.Join(b.ReadLater(f), copyErr)
	env, _, _ := grubOf(b).ReadEnvironment(grubOf(b).Env())
	f.Written = slices.Concat(f.Written, host.ParseArguments(string(copied)), host.ParseArguments(env.Value("kernelopts")))
	rewritten, lacked := RewrittenArguments(b), f.LackedLater
	f.LackedLater = func(arg host.Argument) string {
		if rewritten != nil && !argument.Has(rewritten, arg) {
			return "the next kernel installation removes it from the boot entries, because kernel-install then runs grub2-mkconfig: run " + grubcfg.RemakeGrub2 +
				" now, and the agent stages it again"
		}
		return lacked(arg)
	}
	return err
}

// findUneditable returns the reason why grubby cannot change the arguments of an entry, and the remedy. It replaces each line that starts with
// "options", adds no line, and appends to the line. Empty if it can change all entries.
func findUneditable(b *loader.Booted) string {
	for _, entry := range b.Menu.Root.Children {
		lines := optionsLine.FindAllString(entry.Text, -1)
		switch {
		case entry.File == "":
		case len(lines) != 1 || lines[0][0] != 'o':
			return fmt.Sprintf("grubby cannot change the arguments of %s, which are not in one line that starts with options: write them into one line, "+
				"or remove the file", entry.File)
		case !argument.HasName(host.ParseArguments(b.Expand(bls.EntryOptions(entry.Text))+" "+bls.Appended), bls.Appended):
			return fmt.Sprintf("grubby cannot change the arguments of %s, which have words for init after --, or an open quote: remove these words", entry.File)
		}
	}
	return ""
}

var optionsLine = regexp.MustCompile(`(?m)^[ \t]*options([ \t]|$)`)

// Compare implements Tool.
func (tool) Compare(a, b *loader.Entry) int { return CompareEntries(b.ID, a.ID) }

// ReadMenu implements Tool.
func (tool) ReadMenu(ctx context.Context, b bls.Loader) (loader.Menu, error) {
	info, err := b.Runner.Run(ctx, "grubby", "--info=ALL")
	entries, entriesErr := readKernels(b)
	if err := errors.Join(err, entriesErr); err != nil {
		return loader.Menu{}, err
	}
	m := ParseEntries(string(info))
	m.Lines = slices.DeleteFunc(m.Lines, func(line loader.Line) bool {
		hasID := func(entry *loader.Entry) bool { return entry.ID == line.ID }
		return b.FS.Exists(path.Join(b.At.Entries, line.ID+".conf")) && !slices.ContainsFunc(entries, hasID)
	})
	return m, nil
}

// ParseEntries parses "grubby --info=ALL": for each entry a line "index=", then its fields, with values in quotes. If an argument has quotes, the
// quotes around args are not escaped.
func ParseEntries(info string) loader.Menu {
	m := loader.Menu{Whole: true}
	for line := range strings.Lines(info) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`)
		if field == "index" {
			m.Lines = append(m.Lines, loader.Line{ID: value, Title: "index " + value})
		}
		if len(m.Lines) == 0 {
			continue
		}
		entry := &m.Lines[len(m.Lines)-1]
		switch field {
		case "kernel":
			entry.Kernel = value
		case "args":
			entry.Args = append(entry.Args, host.ParseArguments(value)...)
		case "root":
			entry.Args = append(entry.Args, host.NewArgument("root="+value))
		case "title":
			entry.Title = value
		case "id":
			entry.ID = value
		}
	}
	// grubby also lists the entry that is booted once.
	m.Lines = slices.DeleteFunc(m.Lines, func(line loader.Line) bool { return line.Kernel == "" || line.Title == bls.OnceTitle })
	return m
}

// Change implements Tool.
func (tool) Change(ctx context.Context, b bls.Loader, f loader.Facts, next loader.Change, before map[string]host.SavedFile) error {
	argv := []string{"grubby", "--update-kernel=ALL"}
	options := len(argv)
	if len(next.Stale) > 0 {
		argv = append(argv, "--remove-args="+argument.Join(next.Stale))
	}
	// An interrupted grubby may have changed the entries, but not the other files.
	lacking := func(arg host.Argument) bool { return f.Record.Unfinished || !f.Menu.HoldsArgument(arg) }
	if add := slices.DeleteFunc(slices.Clone(next.Desired), func(arg host.Argument) bool { return !lacking(arg) }); len(add) > 0 {
		argv = append(argv, "--args="+argument.Join(add))
	}
	if len(argv) == options {
		return nil
	}
	// The last option is last: grubby's script skips the word after it.
	argv = append(append(argv, "--bls-directory="+bls.EntryCopies), noDefaultFileOf(b)...)
	if err := changeCopies(b, func() error { _, err := b.Runner.Run(ctx, argv...); return err }); err != nil {
		return err
	}
	err := errors.Join(restoreDefaults(b, before), b.ChangeLater(next, before))
	for _, name := range grubbyFiles {
		if b.FS.Exists(name) {
			err = errors.Join(err, b.FS.SyncFile(name))
		}
	}
	return err
}

// RewrittenArguments returns the arguments to which the next installation of a kernel sets all entries. Nil if it does not. Fedora's kernel-install
// runs grub2-mkconfig, which rewrites them unless it has an option for that (RHEL 9). A script in /etc masks the one of the same name.
func RewrittenArguments(b bls.Loader) []host.Argument {
	defaults, err := b.FS.ReadFile(loader.DefaultFile)
	leavesEntries := func(name string) bool { return b.Contains(name, "--update-bls-cmdline") }
	if err != nil || slices.ContainsFunc(grubcfg.Grub2Mkconfigs, leavesEntries) {
		return nil
	}
	scripts, _ := b.FS.Glob("/etc/kernel/install.d", "*.install")
	vendor, _ := b.FS.Glob("/usr/lib/kernel/install.d", "*.install")
	masked := map[string]bool{}
	for _, script := range append(scripts, vendor...) {
		info, err := b.FS.Stat(script)
		name := path.Base(script)
		if err != nil || masked[name] || info.Size() > 0 && info.Mode()&0o111 == 0 {
			continue
		}
		masked[name] = true
		if runsMkconfig(b, script) {
			return append([]host.Argument{}, argument.Assigned(string(defaults))...)
		}
	}
	return nil
}

// runsMkconfig reports whether a script runs grub2-mkconfig for the next kernel. If its condition is the age of /etc/kernel/cmdline, so is this one.
// In bash, a missing file is older than an existing one.
func runsMkconfig(b bls.Loader, script string) bool {
	later, err := b.FS.Stat(bls.LaterFile)
	defaults, defaultsErr := b.FS.Stat(loader.DefaultFile)
	isOlder := defaultsErr == nil && (errors.Is(err, fs.ErrNotExist) || err == nil && later.ModTime().Before(defaults.ModTime()))
	// On x86, 99-grub-mkconfig.install of RHEL makes a menu only for Xen.
	return path.Base(script) != "99-grub-mkconfig.install" && b.Contains(script, "grub2-mkconfig") &&
		(isOlder || !b.Contains(script, bls.LaterFile+" -ot "+loader.DefaultFile))
}

// grubbyFiles are the files that "grubby --update-kernel=ALL" may change in addition to the entries.
var grubbyFiles = []string{bls.LaterFile, loader.DefaultFile, "/boot/grub2/grubenv"}

const (
	// noDefaultFile prevents grubby from editing /etc/default/grub, in which it treats every line that starts with GRUB_CMDLINE_LINUX as that
	// variable. Releases without the option do not edit the file: grubby 8.40-39 of RHEL 8 and 8.40-43 of Fedora introduced both.
	noDefaultFile = "--no-etc-grub-update"
)

// grubbyScripts are the paths of grubby's script: a wrapper in /usr/sbin calls the script in /usr/libexec.
var grubbyScripts = []string{"/usr/libexec/grubby/grubby-bls", "/usr/sbin/grubby"}

func noDefaultFileOf(b bls.Loader) []string {
	if slices.ContainsFunc(grubbyScripts, func(script string) bool { return b.Contains(script, noDefaultFile[2:]) }) {
		return []string{noDefaultFile}
	}
	return nil
}

// restoreDefaults reverts grubby's changes to /etc/default/grub, which is not a source of the entries.
func restoreDefaults(b bls.Loader, before map[string]host.SavedFile) error {
	target, err := b.FS.Resolve(loader.DefaultFile)
	defaults := maps.Clone(before)
	maps.DeleteFunc(defaults, func(name string, _ host.SavedFile) bool { return name != loader.DefaultFile && name != target })
	return errors.Join(err, b.RestoreFiles(defaults))
}

// changeCopies runs grubby with copies of the entries, and then replaces each changed entry durably. grubby syncs no file, and a power failure could
// leave all entries empty. An entry that another program removes or changes in the meantime stays. The copy of LaterFile is for repairLater.
func changeCopies(b bls.Loader, run func() error) error {
	entries, err := readKernels(b)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.File)
	}
	err = errors.Join(err, removeCopies(b.Host), b.FS.MkdirAll(bls.EntryCopies, 0o700))
	copies := map[string]host.SavedFile{}
	for _, name := range append(names, bls.LaterFile) {
		target, resolveErr := b.FS.Resolve(name)
		file, saveErr := b.FS.SaveFile(target)
		copies[name] = file
		err = errors.Join(err, resolveErr, saveErr, b.FS.KeepFileMode(bls.CopyOf(name), string(file.Data), file.Mode))
	}
	if err == nil {
		err = run()
	}
	for _, name := range names {
		file := copies[name]
		now, nowErr := b.FS.ReadIfThere(name)
		data, readErr := b.FS.ReadIfThere(bls.CopyOf(name))
		err = errors.Join(err, nowErr, readErr)
		if err == nil && bytes.Equal(now, file.Data) && len(data) > 0 && !bytes.Equal(data, now) {
			// As with "sed -i", a file replaces a link.
			file.Data = data
			err = b.FS.RestoreFile(name, file)
		}
	}
	return err
}

// GrubPlace are the names of a GRUB with boot loader entries.
var GrubPlace = &loader.Place{Menu: grubcfg.Grub2, Title: bls.EntriesSource, Remake: grubcfg.RemakeGrub2, Once: bls.OnceID, Form: loader.RecordForm, Entries: bls.EntriesDir, Boot: "/boot",
	Files: grubbyFiles}

// ReadTrial implements Tool.
func (tool) ReadTrial(b bls.Loader, _ bool) (t loader.Trial, err error) {
	text, err := b.FS.ReadIfThere(b.At.OnceEntry())
	if err != nil {
		return t, err
	}
	env, _, envErr := grubOf(b).ReadEnvironment(grubOf(b).Env())
	// GRUB also reads a block that it could not write to.
	block, err := b.FS.ReadIfThere(grubOf(b).Env())
	return loader.Trial{Section: string(text), State: env.Value(loader.TrialVariable), Selected: grubcfg.Environment(block).Value(grubcfg.NextEntry), EnvErr: envErr}, err
}

// FindTrialObstacle implements Tool.
func (tool) FindTrialObstacle(ctx context.Context, b bls.Loader) (reason string, temporary bool) {
	data, err := grubOf(b).ReadOnce(b.At.Menu)
	if err != nil {
		return err.Error(), errors.Is(err, grubcfg.ErrBusy)
	}
	t, env := grubcfg.ParseTrial(string(data)), grubOf(b).Env()
	_, _, envErr := grubOf(b).ReadEnvironment(env)
	switch {
	case !b.Found.Proven:
		return b.Found.Message, false
	case envErr != nil:
		return envErr.Error(), false
	case !t.Loads || !t.Clears || !slices.Contains(t.Defaults, "${"+grubcfg.NextEntry+"}"):
		return fmt.Sprintf("the boot menu does not read %s from %s and clear it", grubcfg.NextEntry, env), false
	case b.OnceText(nil, nil) == "":
		return bls.ErrNoKernel.Error(), true
	}
	reason = grubOf(b).FindWriteObstacle(ctx)
	return reason, b.Writable == nil
}

// WriteTrial implements Tool. The entry exists whenever it is selected, although GRUB would boot the default instead of a missing one.
func (tool) WriteTrial(b bls.Loader, text, state string) error {
	if text == "" {
		if err := grubOf(b).SetTrial(""); err != nil {
			return err
		}
		return b.FS.Remove(b.At.OnceEntry())
	}
	if err := b.FS.KeepFile(b.At.OnceEntry(), text); err != nil {
		return err
	}
	return grubOf(b).SetTrial(state)
}

// CompareEntries compares the names of two entries like GRUB: by package name, version and release, which the last two dashes separate.
func CompareEntries(a, b string) int { return strings.Compare(entryKey(a), entryKey(b)) }

func entryKey(name string) string {
	parts := strings.Split(name, "-")
	if n := len(parts); n > 3 {
		parts = append([]string{strings.Join(parts[:n-2], "-")}, parts[n-2:]...)
	}
	parts = append(parts, "", "")
	const rpm = "~$+"
	return bls.VersionKey(parts[0], rpm) + bls.VersionKey(parts[1], rpm) + bls.VersionKey(parts[2], rpm)
}

func grubOf(b bls.Loader) grubcfg.Files { return grubcfg.Files{Base: b.Base} }

// removeCopies removes the copies, and the remains of a crash among them.
func removeCopies(h *loader.Host) (err error) {
	files, _ := h.FS.ReadDir(bls.EntryCopies)
	for _, file := range files {
		err = errors.Join(err, h.FS.Remove(path.Join(bls.EntryCopies, file.Name())))
	}
	return errors.Join(err, h.FS.RemoveEmpty(bls.EntryCopies))
}
