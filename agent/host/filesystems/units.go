package filesystems

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	systemDir  = "/etc/systemd/system"
	dropInName = "storage-client.conf"

	// DropIns are our files, with wildcards.
	DropIns = systemDir + "/*.mount.d/" + dropInName
)

// unitDirs are those of systemd.unit(5), the first one that has a unit counts. The lines of fstab are in generator.
var unitDirs = []string{
	systemDir, "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system", "/run/systemd/generator.late",
}

type unit struct {
	// name is e.g. mnt-disks-d1.mount.
	name, where, what, fsType string
	// options are its own, as its files other than ours have them.
	options string
	// later is a drop-in that is read after ours and sets options too.
	later string
}

func (u unit) dropIn() string { return path.Join(systemDir, u.name+".d", dropInName) }

func (u unit) ownOptions() []string {
	if u.options == "" {
		return nil
	}
	return strings.Split(u.options, ",")
}

// renderDropIn is our drop-in with these options. The later assignment replaces the earlier one.
func renderDropIn(options []string) string {
	return host.OwnHeader + "[Mount]\nOptions=" + strings.Join(options, ",") + "\n"
}

func readUnits(files host.FS) (map[string]unit, error) {
	names, err := files.DropIns(unitDirs, ".mount")
	if err != nil {
		return nil, err
	}
	found := map[string]unit{}
	for _, file := range names {
		u, err := readUnit(files, file)
		if err != nil {
			return nil, err
		}
		if u.where != "" {
			found[u.where] = u
		}
	}
	return found, nil
}

func readUnit(files host.FS, file string) (unit, error) {
	u := unit{name: path.Base(file)}
	// One that is masked leads to /dev/null.
	if resolved, err := files.Resolve(file); err != nil || resolved == "/dev/null" {
		return unit{}, err
	}
	if _, err := u.readFile(files, file); err != nil {
		return unit{}, err
	}
	dirs := make([]string, 0, len(unitDirs))
	for _, dir := range unitDirs {
		dirs = append(dirs, path.Join(dir, u.name+".d"))
	}
	dropIns, err := files.DropIns(dirs, ".conf")
	if err != nil {
		return unit{}, err
	}
	for _, dropIn := range dropIns {
		if path.Base(dropIn) == dropInName {
			continue
		}
		set, err := u.readFile(files, dropIn)
		if err != nil {
			return unit{}, err
		}
		if set && path.Base(dropIn) > dropInName {
			u.later = dropIn
		}
	}
	return u, nil
}

// readFile takes over what a file of the unit sets, and tells whether it sets options.
func (u *unit) readFile(files host.FS, file string) (setsOptions bool, err error) {
	data, err := files.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read mount unit: %w", err)
	}
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found || section != "[Mount]" {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "Where":
			u.where = path.Clean(value)
		case "What":
			u.what = value
		case "Type":
			u.fsType = value
		case "Options":
			u.options, setsOptions = value, true
		}
	}
	return setsOptions, nil
}

// reloadUnits has systemd read its units again where it says that one of them has changed: also when the agent ended
// between writing a file and this.
func (s *Subject) reloadUnits(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	argv := append([]string{"systemctl", "show", "--property=NeedDaemonReload"}, slices.Compact(names)...)
	out, err := s.runner.Run(ctx, argv...)
	if err != nil || !strings.Contains(string(out), "NeedDaemonReload=yes") {
		return err
	}
	_, err = s.runner.Run(ctx, "systemctl", "daemon-reload")
	return err
}
