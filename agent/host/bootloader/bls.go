package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	entriesDir = "/boot/loader/entries"
	// entriesSource is how a message names entries that hold an argument which is not ours.
	entriesSource = entriesDir + "/*.conf"
	// kernelCmdline is what kernel-install gives an entry of a kernel that is installed later. grubby keeps it too
	// (8.40-64 and newer).
	kernelCmdline = "/etc/kernel/cmdline"
)

// grubbyFiles are what "grubby --update-kernel=ALL" may change besides the entries.
var grubbyFiles = []string{kernelCmdline, defaultFile, "/boot/grub2/grubenv"}

// blsForm is how the arguments of ours are kept on a host whose boot entries have no drop-ins: in a file that is not
// read by anything else and says which arguments of the entries are ours.
var blsForm = form{
	file: "/var/lib/storage-client/journal/boot-arguments", perm: 0o600,
	write: func(args []host.Argument) string { return join(args) + "\n" },
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

// readEntries reads what the boot entries pass, by grubby's own account of them.
func (s *Subject) readEntries(ctx context.Context) (menu, error) {
	info, err := s.runner.Run(ctx, "grubby", "--info=ALL")
	if err != nil {
		return menu{}, err
	}
	return parseEntries(string(info)), nil
}

// parseEntries reads "grubby --info=ALL": for each entry a line "index=", and then its fields, values in quotes. The
// quotes around args are not escaped where an argument has quotes of its own.
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
	// grubby lists what boots no Linux as well.
	m.lines = slices.DeleteFunc(m.lines, func(line bootLine) bool { return line.kernel == "" })
	return m
}

// gatherEntries reads what judging needs of a host with boot entries. Whatever all of them pass and is not known for
// ours is somebody else's, and so is another value of an argument that is asked for.
func (s *Subject) gatherEntries(ctx context.Context, f *facts, asked []host.Setting) error {
	var err error
	if f.menu, err = s.readEntries(ctx); err != nil {
		return err
	}
	if err := s.gatherNotes(f); err != nil {
		return err
	}
	for _, setting := range asked {
		for _, present := range f.menu.find(setting.Name) {
			same := present.Value == setting.Value
			if !contains(f.ours(), present) && (!same || f.menu.holds(present)) {
				f.foreign = append(f.foreign, source{file: entriesSource, arg: present})
			}
		}
	}
	data, err := s.fs.ReadFile(kernelCmdline)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.later, f.hasLater = host.ParseArguments(string(data)), true
	return err
}

// changeEntries makes every entry pass exactly the wanted arguments of ours. Where grubby fails, or what it has made
// is not that, its files are put back as they were.
func (s *Subject) changeEntries(ctx context.Context, f facts, wanted, stale []host.Argument) error {
	before, err := s.saveEntries()
	if err != nil {
		return err
	}
	argv := []string{"grubby", "--update-kernel=ALL"}
	if len(stale) > 0 {
		argv = append(argv, "--remove-args="+join(stale))
	}
	lacking := func(arg host.Argument) bool { return !f.menu.holds(arg) }
	if add := slices.DeleteFunc(slices.Clone(wanted), func(arg host.Argument) bool { return !lacking(arg) }); len(add) > 0 {
		argv = append(argv, "--args="+join(add))
	}
	_, err = s.runner.Run(ctx, argv...)
	if err == nil {
		err = s.checkEntries(ctx, f, wanted, stale)
	}
	if err != nil {
		return errors.Join(err, s.putBack(before))
	}
	return nil
}

// checkEntries reads back what grubby has made.
func (s *Subject) checkEntries(ctx context.Context, f facts, wanted, stale []host.Argument) error {
	made, err := s.readEntries(ctx)
	if err != nil {
		return err
	}
	if text := made.problem(wanted, stale); text != "" {
		return errors.New("read the boot entries back: " + text)
	}
	if text := made.tooLong(nil, nil); text != "" {
		return errors.New("read the boot entries back: " + text)
	}
	for _, line := range f.menu.lines {
		successor, ok := made.match(line)
		if !ok {
			return fmt.Errorf("the boot entry %q is gone", line.title)
		}
		if missing := s.missing(line.args, successor.args, append(f.ours(), wanted...)); len(missing) > 0 {
			return fmt.Errorf("the boot entry %q would lose %s", line.title, join(missing))
		}
	}
	return nil
}

// saved is what a file held and who might read it.
type saved struct {
	data []byte
	perm fs.FileMode
}

// saveEntries reads all files that grubby may change; one that is missing is nil.
func (s *Subject) saveEntries() (map[string]*saved, error) {
	entries, err := s.fs.Glob(entriesDir, "*.conf")
	if err != nil {
		return nil, err
	}
	before := map[string]*saved{}
	for _, file := range append(entries, grubbyFiles...) {
		if file, err = s.fs.Resolve(file); err != nil {
			return nil, err
		}
		info, err := s.fs.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			before[file] = nil
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := s.fs.ReadFile(file)
		if err != nil {
			return nil, err
		}
		before[file] = &saved{data: data, perm: info.Mode().Perm()}
	}
	return before, nil
}

// putBack makes the files hold again what they held, those that have come into being included.
func (s *Subject) putBack(before map[string]*saved) error {
	var all []error
	for file, was := range before {
		data, err := s.fs.ReadFile(file)
		switch {
		case was == nil && errors.Is(err, fs.ErrNotExist), was != nil && err == nil && string(data) == string(was.data):
		case was == nil:
			all = append(all, s.fs.Remove(file))
		default:
			all = append(all, s.fs.WriteFileAtomic(file, was.data, was.perm))
		}
	}
	return errors.Join(all...)
}

// lackedLater tells what a kernel that is installed later would not get.
func (f facts) lackedLater(arg host.Argument) string {
	if !f.hasLater || contains(f.later, arg) {
		return ""
	}
	return "a kernel that is installed later will not have it: " + kernelCmdline + " lacks it"
}

// bootDir is the directory in which staging writes.
func (d Detection) bootDir() string {
	if d.Type == GrubBLS {
		return entriesDir
	}
	return path.Dir(grubCfg)
}
