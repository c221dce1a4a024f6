package nfsmountconf

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
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

// fixedIn is the release of nfs-utils that keeps a tag in each section. In earlier releases, a tag of a section for one server removes the same tag
// from the sections for all other servers. Mount points likewise.
const fixedIn = "2.8.3"

// releaseText is in the program mount.nfs: the text that "mount.nfs -V" prints.
var releaseText = regexp.MustCompile(`\(linux nfs-utils (\d{1,4}(\.\d{1,4}){1,2})`)

// helper describes the program mount.nfs of a host.
type helper struct {
	// release is the release of nfs-utils. Empty if unknown.
	release string
	// keepsTags reports whether each section keeps its tags. An unknown release does not.
	keepsTags bool
}

// readHelper reads the release from the program. A program that cannot be read has an unknown release.
func readHelper(files host.FS) helper {
	for _, name := range mountHelpers {
		data, _ := files.ReadIfThere(name)
		if m := releaseText.FindSubmatch(data); m != nil {
			return helper{release: string(m[1]), keepsTags: slices.Compare(numbersOf(string(m[1])), numbersOf(fixedIn)) >= 0}
		}
	}
	return helper{}
}

func numbersOf(release string) []int {
	return lists.Each(strings.Split(release, "."), func(digits string) int { n, _ := strconv.Atoi(digits); return n })
}

// readConf reads the files as mount.nfs does: first the main file, then the files of the directory by name. A later assignment replaces an earlier
// one of the same section, and of other sections if the program does not keep them. mount.nfs skips an unreadable file.
func readConf(files host.FS, program helper, pick func(file string) bool) conf {
	names, _ := files.Glob(directory, "*.conf")
	c := conf{}
	for _, name := range append([]string{mainFile}, names...) {
		if !pick(name) {
			continue
		}
		data, _ := files.ReadIfThere(name)
		c.parseFile(name, string(data), program)
	}
	return c
}

func (c conf) parseFile(file, data string, program helper) {
	var current section
	// A backslash continues a line.
	for line := range strings.Lines(strings.ReplaceAll(data, "\\\n", "  ")) {
		isTerminated := strings.HasSuffix(line, "\n")
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || !isTerminated {
			// mount.nfs ignores a last line without a line end.
			continue
		}
		if line[0] == '[' {
			current = parseSection(line)
			continue
		}
		field, text, found := strings.Cut(line, "=")
		value := quoted.FindStringSubmatch(strings.TrimSpace(text))
		field = strings.ToLower(strings.TrimSpace(field))
		// An included file is not read.
		if !found || value == nil || current.name == "" || field == "" || field == "include" {
			continue
		}
		t := tag{field: field, value: strings.TrimSpace(value[1] + value[2] + value[3]), file: file}
		if other, _ := c.otherWith(current, t.field); !program.keepsTags {
			c.removeTag(other, t.field)
		}
		c.assignTag(current, t)
	}
}

func (c conf) assignTag(s section, t tag) {
	c.removeTag(s, t.field)
	c[s] = append([]tag{t}, c[s]...)
}

func (c conf) removeTag(s section, field string) {
	c[s] = slices.DeleteFunc(slices.Clone(c[s]), func(old tag) bool { return old.field == field })
	if len(c[s]) == 0 {
		delete(c, s)
	}
}

// otherWith returns the first section of the same kind, for another server or mount point, that has a tag, and the tag's file. Empty if there
// is no such section.
func (c conf) otherWith(s section, field string) (other section, file string) {
	for _, other := range slices.SortedFunc(maps.Keys(c), compareSections) {
		i := slices.IndexFunc(c[other], func(t tag) bool { return t.field == field })
		if other.name == s.name && other != s && i >= 0 {
			return other, c[other][i].file
		}
	}
	return section{}, ""
}

var head = regexp.MustCompile(`^\[([^]"]*)(?:"([^]"]*)")?[^]]*\]`)

// parseSection parses `[ Server "filer1" ] # text`. Without a bracket at its end, mount.nfs ignores the section.
func parseSection(line string) section {
	m := head.FindStringSubmatch(strings.ToLower(line))
	if m == nil {
		return section{}
	}
	return section{name: strings.TrimSpace(m[1]), arg: m[2]}
}

// quoted matches a value in quotes, or one before a comment. mount.nfs ignores a line without the second quote.
var quoted = regexp.MustCompile(`^(?:"([^"]*)".*|'([^']*)'.*|([^"'#;][^#;]*)?(?:[#;].*)?)$`)

// sized matches a value with a unit. mount.nfs converts every value that ends like a unit: "flock" is 0.
var sized = regexp.MustCompile(`^(0x[0-9A-Fa-f]+|\d*).*([kKmMgG])$`)

func inBytes(value string) string {
	m := sized.FindStringSubmatch(value)
	if m == nil {
		return value
	}
	n, _ := strconv.ParseInt(m[1], 0, 64)
	return strconv.FormatInt(n<<map[string]int{"k": 10, "m": 20, "g": 30}[strings.ToLower(m[2])], 10)
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
			if hasOption(t.field) || negative && hasOption(opposite) || hasOption("no"+t.field) || versioned && isVersion(t.field) {
				continue
			}
			versioned = versioned || isVersion(t.field)
			out = append(out, tag{field: t.field, value: inBytes(t.value)}.mountOption())
		}
	}
	// mount.nfs uses Defaultvers and Defaultproto itself.
	return slices.DeleteFunc(out, func(o string) bool { return strings.HasPrefix(o, "default") })
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
