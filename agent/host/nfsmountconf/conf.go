package nfsmountconf

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	mainFile  = "/etc/nfsmount.conf"
	directory = "/etc/nfsmount.conf.d"

	globalSection = "nfsmount_global_options"
	serverSection = "server"
	pointSection  = "mountpoint"
)

// section is one section of nfsmount.conf, merged from all files.
type section struct {
	// name and arg are in lower case, because mount.nfs ignores case.
	name, arg string
}

type tag struct {
	field, value, file string
}

// conf contains the values of mount.nfs after it has read its files. Newer assignments come first.
type conf map[section][]tag

// readConf reads the files as mount.nfs does: first the main file, then the files of the directory by name. A later assignment replaces an earlier
// one of the same section.
func readConf(files host.FS) (conf, error) {
	names, err := files.Glob(directory, "*.conf")
	if err != nil {
		return nil, err
	}
	c := conf{}
	for _, name := range append([]string{mainFile}, names...) {
		data, err := files.ReadIfThere(name)
		if err != nil {
			return nil, err
		}
		c.parseFile(name, string(data))
	}
	return c, nil
}

func (c conf) parseFile(file, data string) {
	var current section
	for line := range strings.Lines(data) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			current = parseSection(line)
			continue
		}
		field, value, found := strings.Cut(line, "=")
		if !found || current.name == "" {
			continue
		}
		c.assignTag(current, tag{
			field: strings.ToLower(strings.TrimSpace(field)), value: strings.Trim(strings.TrimSpace(value), `"'`), file: file,
		})
	}
}

func (c conf) assignTag(s section, t tag) {
	rest := slices.DeleteFunc(slices.Clone(c[s]), func(old tag) bool { return old.field == t.field })
	c[s] = append([]tag{t}, rest...)
}

// parseSection parses `[ Server "filer1" ]`.
func parseSection(line string) section {
	line = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(line, "["), "]"))
	name, arg, _ := strings.Cut(line, `"`)
	return section{name: strings.ToLower(strings.TrimSpace(name)), arg: strings.ToLower(strings.TrimSuffix(strings.TrimSpace(arg), `"`))}
}

// optionsOf returns the options that a mount of a server at a mount point gets, if its command sets none. It merges them like configfile.c of
// nfs-utils, the narrowest section first. It omits an option if the option or its opposite is already present. It does not recognize options with the
// same meaning and another name: the kernel uses the last one.
func (c conf) optionsOf(server, point string) []string {
	var out []string
	hasOption := func(name string) bool {
		return slices.ContainsFunc(out, func(o string) bool { return o == name || strings.HasPrefix(o, name+"=") })
	}
	for _, s := range []section{{pointSection, strings.ToLower(point)}, {serverSection, strings.ToLower(server)}, {globalSection, ""}} {
		versioned := slices.ContainsFunc(out, isVersion)
		for _, t := range c[s] {
			opposite, negative := strings.CutPrefix(t.field, "no")
			if hasOption(t.field) || negative && hasOption(opposite) || hasOption("no"+t.field) {
				continue
			}
			if isVersion(t.field) {
				if versioned {
					continue
				}
				versioned = true
			}
			out = append(out, t.mountOption())
		}
	}
	return out
}

func isVersion(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return slices.Contains([]string{"v3", "v4", "vers", "nfsvers", "minorversion"}, name) || strings.HasPrefix(name, "v4.")
}

func (t tag) mountOption() string {
	switch strings.ToLower(t.value) {
	case "true":
		return t.field
	case "false":
		return "no" + t.field
	default:
		return t.field + "=" + t.value
	}
}

// tagOf returns an option in the form of nfsmount.conf(5). A flag is True. A flag that starts with "no" is its base name with False.
func tagOf(option string) tag {
	name, value, found := strings.Cut(option, "=")
	switch {
	case found:
		return tag{field: name, value: value}
	case strings.HasPrefix(name, "no"):
		return tag{field: strings.TrimPrefix(name, "no"), value: "False"}
	default:
		return tag{field: name, value: "True"}
	}
}
