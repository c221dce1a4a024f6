package sysctl

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	// DropIn is the agent's file. Letters sort after digits, so it is read after the files of distributions and clouds, such as the
	// 999-sysctl-aks.conf of AKS.
	DropIn = "/etc/sysctl.d/zz-storage-client.conf"
	// doneMark starts the comment that lists completed actions. They are not repeated at boot.
	doneMark = "# Done once, not at boot: "
	// SystemConf is read by procps ("sysctl --system") after all others. systemd-sysctl does not know it. If it is read at boot, a link in
	// /etc/sysctl.d leads to it: 99-sysctl.conf on most systems, and none on Debian 13.
	SystemConf = "/etc/sysctl.conf"
)

// systemdSysctl sets sysctls at boot if it is installed. Otherwise, procps does.
var systemdSysctl = []string{"/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl"}

var directories = host.ConfigDirs("sysctl.d")

type content struct {
	settings map[string]string
	done     map[string]string
}

// renderDropIn returns the text of the drop-in. Empty if there is nothing to record.
func (c content) renderDropIn() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		fmt.Fprintf(&b, "%s = %s\n", name, c.settings[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.done)) {
		fmt.Fprintf(&b, "%s%s = %s\n", doneMark, name, c.done[name])
	}
	return host.OwnText(b.String())
}

func (s *Subject) readDropIn() (content, error) {
	c := content{settings: map[string]string{}, done: map[string]string{}}
	data, err := s.fs.ReadIfThere(DropIn)
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(data)) {
		into := c.settings
		if rest, ok := strings.CutPrefix(line, doneMark); ok {
			into, line = c.done, rest
		}
		if name, value, ok := ParseLine(line); ok {
			into[name] = value
		}
	}
	maps.Copy(c.done, s.done)
	return c, nil
}

func (s *Subject) writeDropIn(c content) error {
	err := s.place.RecordWrite(s.fs.KeepFile(DropIn, c.renderDropIn()))
	s.done = nil
	if err == nil && s.place.WriteProblem() != "" {
		s.done = c.done
	}
	return err
}

type assignment struct {
	file  string
	line  int
	value string
}

// isLater reports whether a file is read after the drop-in. isForeign reports whether it is not the drop-in.
func (s *Subject) isLater(file string) bool { return path.Base(file) > path.Base(DropIn) }

func isForeign(file string) bool { return file != DropIn }

// FilesAtBoot returns the files that set sysctls at boot, in the order of their reader.
func FilesAtBoot(files host.FS) ([]string, error) {
	names, err := files.DropIns(directories, ".conf")
	if err == nil && !slices.ContainsFunc(systemdSysctl, files.Exists) {
		names = append(names, SystemConf)
	}
	return names, err
}

// readAssignments returns, by dotted name, the last value in the picked files. It skips wildcards, which explicit names override.
func (s *Subject) readAssignments(pick func(file string) bool) (map[string]assignment, error) {
	files, err := FilesAtBoot(s.fs)
	if err != nil {
		return nil, err
	}
	return s.readFiles(slices.DeleteFunc(files, func(file string) bool { return file != SystemConf && !pick(file) }), ParseLine)
}

// readReapplied returns the values that tuned sets after the drop-in when it starts. Unlike systemd-sysctl, tuned prefers files of /run to
// files of /etc, does not read files of /usr, reads SystemConf last, and ignores names with a dash. A file that cannot be read sets nothing.
func (s *Subject) readReapplied() map[string]assignment {
	files, _ := s.fs.DropIns([]string{"/run/sysctl.d", "/etc/sysctl.d"}, ".conf")
	files = slices.DeleteFunc(files, func(file string) bool { return !s.isLater(file) })
	set, _ := s.readFiles(append(files, SystemConf), func(line string) (name, value string, ok bool) {
		name, value, ok = ParseLine(line)
		return name, value, ok && strings.HasPrefix(strings.TrimSpace(line), name)
	})
	return set
}

// readFiles returns, by dotted name, the last value in files. On an error, it returns the values of the other files, too.
func (s *Subject) readFiles(files []string, parse func(line string) (name, value string, ok bool)) (map[string]assignment, error) {
	set, failed := map[string]assignment{}, error(nil)
	for _, file := range files {
		data, err := s.fs.ReadIfThere(file)
		failed = errors.Join(failed, err)
		number := 0
		for line := range strings.Lines(string(data)) {
			number++
			if name, value, ok := parse(line); ok {
				set[DottedName(name)] = assignment{file: file, line: number, value: normaliseValue(value)}
			}
		}
	}
	return set, failed
}

// ParseLine parses one line of sysctl.d(5). A leading dash means that errors are ignored.
func ParseLine(line string) (name, value string, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ';' {
		return "", "", false
	}
	name, value, ok = strings.Cut(line, "=")
	// systemd-sysctl sets no value for a name with a dash and without a value.
	ok = ok || line[0] == '-'
	name = strings.TrimSpace(strings.TrimPrefix(name, "-"))
	return name, strings.TrimSpace(value), ok && name != ""
}
