package sysctl

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	// DropIn is our file. Letters sort after digits: it is read after what distributions and clouds bring, such as the
	// 999-sysctl-aks.conf of AKS.
	DropIn = "/etc/sysctl.d/zz-storage-client.conf"
	// FormerDropIn is what earlier releases called it.
	FormerDropIn = "/etc/sysctl.d/99-zz-storage-client.conf"
)

// OurFile is our file under either name.
var OurFile = host.OwnFile{Name: DropIn, Former: FormerDropIn}

// TakeOverFiles implements host.Renamer.
func (s *Subject) TakeOverFiles() {
	if err := OurFile.TakeOver(s.fs); err != nil {
		s.fileErr = err
	}
}

const (
	// doneMark begins the comment that says which actions were done. They are not repeated at boot.
	doneMark = "# Done once, not at boot: "
	// sysctlConf is read by procps ("sysctl --system") after all others. systemd-sysctl does not know it: where it is read at boot,
	// a link in /etc/sysctl.d leads to it, 99-sysctl.conf on most systems and none on Debian 13.
	sysctlConf = "/etc/sysctl.conf"
)

// systemdSysctl sets sysctls at boot where it is there, and procps elsewhere.
var systemdSysctl = []string{"/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl"}

var directories = []string{
	"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d",
}

// content is what our drop-in says.
type content struct {
	settings map[string]string
	done     map[string]string
}

func (c content) renderDropIn() []byte {
	var b strings.Builder
	b.WriteString(host.OwnHeader)
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		fmt.Fprintf(&b, "%s = %s\n", name, c.settings[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.done)) {
		fmt.Fprintf(&b, "%s%s = %s\n", doneMark, name, c.done[name])
	}
	return []byte(b.String())
}

// readDropIn reads our file; where there is none, it says nothing.
func (s *Subject) readDropIn() (content, error) {
	c := content{settings: map[string]string{}, done: map[string]string{}}
	data, err := s.fs.ReadIfThere(OurFile.NameOn(s.fs))
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(data)) {
		into := c.settings
		if rest, ok := strings.CutPrefix(line, doneMark); ok {
			into, line = c.done, rest
		}
		if name, value, ok := parseLine(line); ok {
			into[name] = value
		}
	}
	maps.Copy(c.done, s.done)
	return c, nil
}

// writeDropIn makes our file say c, and nothing else changes where it does already.
func (s *Subject) writeDropIn(c content) error {
	text := ""
	if len(c.settings)+len(c.done) > 0 {
		text = string(c.renderDropIn())
	}
	err := s.place.NoteWrite(s.fs.KeepOwnFile(OurFile, text))
	s.done = nil
	if err == nil && s.place.WhyNotWritable() != "" {
		s.done = c.done
	}
	return err
}

type assignment struct {
	file, value string
}

// isLater picks the files that are read after ours, and isNotOurs all but ours.
func (s *Subject) isLater(file string) bool { return path.Base(file) > path.Base(OurFile.NameOn(s.fs)) }

func isNotOurs(file string) bool { return file != DropIn && file != FormerDropIn }

// readAssignments collects by dotted name what the picked files set, the last one of each. Names with wildcards are left out: systemd-sysctl does not apply them to a name that a file sets by
// itself.
func (s *Subject) readAssignments(pick func(file string) bool) (map[string]assignment, error) {
	files, err := s.fs.DropIns(directories, ".conf")
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return !pick(file) })
	if !slices.ContainsFunc(systemdSysctl, s.fs.Exists) {
		files = append(files, sysctlConf)
	}
	set := map[string]assignment{}
	for _, file := range files {
		data, err := s.fs.ReadIfThere(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if name, value, ok := parseLine(line); ok {
				set[dottedName(name)] = assignment{file: file, value: normaliseValue(value)}
			}
		}
	}
	return set, nil
}

// parseLine reads one line of sysctl.d(5); a dash in front says that errors do not matter.
func parseLine(line string) (name, value string, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ';' {
		return "", "", false
	}
	name, value, ok = strings.Cut(line, "=")
	return strings.TrimSpace(strings.TrimPrefix(name, "-")), strings.TrimSpace(value), ok
}
