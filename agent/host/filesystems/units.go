package filesystems

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	systemDir  = "/etc/systemd/system"
	dropInName = "storage-client.conf"

	// DropIns is the pattern of the agent's drop-ins.
	DropIns = systemDir + "/*.mount.d/" + dropInName
)

// unitDirs are the directories of systemd.unit(5). The first directory with a unit wins. The lines of fstab are in generator.
var unitDirs = []string{
	systemDir, "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system", "/run/systemd/generator.late",
}

type unit struct {
	// name is the unit's name, e.g. mnt-disks-d1.mount.
	name, mountPoint, source, fsType string
	// options are the unit's options in all of its files except the agent's drop-in.
	options string
	// later is a drop-in that also sets options and is read after the agent's.
	later string
}

func (u unit) dropIn() string { return path.Join(systemDir, u.name+".d", dropInName) }

func (u unit) originalOptions() []string {
	if u.options == "" {
		return nil
	}
	return strings.Split(u.options, ",")
}

// renderDropIn returns the drop-in for these options. The later assignment replaces the earlier one.
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
		if u.mountPoint != "" {
			found[u.mountPoint] = u
		}
	}
	return found, nil
}

func readUnit(files host.FS, file string) (unit, error) {
	u := unit{name: path.Base(file)}
	// A masked unit is a link to /dev/null.
	if resolved, err := files.Resolve(file); err != nil || resolved == "/dev/null" {
		return unit{}, err
	}
	if _, err := u.readFile(files, file); err != nil {
		return unit{}, err
	}
	dirs := lists.Each(unitDirs, func(dir string) string { return path.Join(dir, u.name+".d") })
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
			u.mountPoint = path.Clean(value)
		case "What":
			u.source = value
		case "Type":
			u.fsType = value
		case "Options":
			u.options, setsOptions = value, true
		}
	}
	return setsOptions, nil
}

// reloadUnits makes systemd read its units again if one of them has changed, also after an agent that stopped between a write and the reload.
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
