package tuned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	logFile  = "/var/log/tuned/tuned.log"
	mainConf = "/etc/tuned/tuned-main.conf"
)

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",; \t", r) })
}

// profileFile returns the first file of a profile that is not in seen. The last directory has precedence. Since tuned 2.24, the profiles are in
// subdirectories, and an option can name other directories.
func (s *Subject) profileFile(profile string, seen ...string) string {
	dirs := []string{"/usr/lib/tuned", "/etc/tuned"}
	if s.fs.Exists("/usr/lib/tuned/profiles") {
		main, _ := s.readAssignments(mainConf)
		dirs = splitList(cmp.Or(main["profile_dirs"], "/usr/lib/tuned/profiles,/etc/tuned/profiles"))
	}
	for _, dir := range slices.Backward(dirs) {
		if name := path.Join(dir, path.Base(profile), "tuned.conf"); s.fs.Exists(name) && !slices.Contains(seen, name) {
			return name
		}
	}
	return ""
}

// value is a sysctl that a profile sets. isFinal is true if reapply_sysctl does not undo it, because it is off, or the plug-in vm sets the value.
type value struct {
	text    string
	isFinal bool
}

type section struct {
	name    string
	options map[string]string
}

func isTrue(text string) bool { return text == "1" || text == "true" || text == "True" }

// profileSysctls returns the sysctls that profiles and the profiles that they include set, without evaluating variables, and limits after ">" or "<".
// hasPlugin reports whether they use the plug-in sysctl.
func (s *Subject) profileSysctls(profiles []string, isOld bool) (found map[string]value, hasPlugin bool, err error) {
	found = map[string]value{}
	sections, err := s.readSections(profiles, &[]string{}, isOld)
	for _, of := range merge(sections) {
		plugin := cmp.Or(of.options["type"], of.name)
		if !isTrue(cmp.Or(of.options["enabled"], "1")) {
			continue
		}
		hasPlugin = hasPlugin || plugin == "sysctl"
		for name, text := range of.options {
			switch {
			case plugin == "sysctl" && strings.Contains(name, "."):
				found[name] = value{text: text}
			case plugin == "vm" && strings.HasPrefix(name, "dirty_"):
				found["vm."+name] = value{text: text, isFinal: true}
			}
		}
	}
	return found, hasPlugin, err
}

// readSections returns the sections of profiles, each after its included profiles. No file is read twice.
func (s *Subject) readSections(profiles []string, seen *[]string, isOld bool) (all []section, err error) {
	for _, profile := range profiles {
		name := s.profileFile(strings.TrimPrefix(profile, "-"), *seen...)
		if name == "" {
			continue
		}
		*seen = append(*seen, name)
		data, err := s.fs.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read profile of tuned: %w", err)
		}
		sections := parseProfile(string(data), isOld)
		included, err := s.readSections(splitList(sections[0].options["include"]), seen, isOld)
		if err != nil {
			return nil, err
		}
		all = slices.Concat(all, included, sections)
	}
	return all, nil
}

// merge combines sections with the same name, and sorts them by priority.
func merge(sections []section) (merged []section) {
	for _, added := range sections {
		i := find(merged, added.name)
		if i < 0 {
			merged = append(merged, added)
			continue
		}
		if isTrue(added.options["replace"]) {
			clear(merged[i].options)
		}
		for _, name := range append(splitList(added.options["drop"]), "type", "enabled") {
			delete(merged[i].options, name)
		}
		maps.Copy(merged[i].options, added.options)
	}
	priority := func(of section) int { n, _ := strconv.Atoi(of.options["priority"]); return n }
	slices.SortStableFunc(merged, func(a, b section) int { return priority(a) - priority(b) })
	return merged
}

func find(sections []section, name string) int {
	return slices.IndexFunc(sections, func(of section) bool { return of.name == name })
}

// comment matches a comment. A semicolon starts one only at the start of a line.
var comment = regexp.MustCompile(`(^|\s)#.*|^\s*;.*`)

// parseProfile returns the sections: main, which needs no head, and the others in their order. A line with a larger indent than its option continues
// the value, and blanks are a part of a section's name. Both are different if isOld: in releases before 2.17.
func parseProfile(data string, isOld bool) []section {
	sections := []section{{"main", map[string]string{}}}
	options, last, indent := sections[0].options, "", 0
	for line := range strings.Lines(data) {
		text := strings.TrimSpace(comment.ReplaceAllString(line, ""))
		blanks := len(line) - len(strings.TrimLeft(line, " \t"))
		name, value, found := strings.Cut(text, "=")
		switch {
		case text == "":
		case last != "" && blanks > indent && !isOld:
			options[last] += " " + text
		case text[0] == '[':
			name, last = strings.Trim(text, map[bool]string{false: "[]", true: "[] "}[isOld]), ""
			i := find(sections, name)
			if i < 0 {
				i, sections = len(sections), append(sections, section{name, map[string]string{}})
			}
			options = sections[i].options
		case found:
			last, indent = strings.TrimSpace(name), blanks
			options[last] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return sections
}

// conflict is a declared sysctl that the profile sets to another value, directly or through its counterpart.
type conflict struct {
	declared, desired string
	// name and value are the profile's setting.
	name string
	value
}

type conflicts []conflict

// findConflicts returns the conflicts in old releases, new ones, or both: the release is unknown.
func (s *Subject) findConflicts(profile string, areOld ...bool) (found conflicts, err error) {
	declared, declaredErr := s.readAssignments(sysctl.DropIn)
	maps.Copy(declared, s.unconfirmed())
	reapplies, reapplyErr := s.readReapply()
	for _, isOld := range areOld {
		set, _, readErr := s.profileSysctls(strings.Fields(profile), isOld)
		err = cmp.Or(err, readErr)
		for _, name := range slices.Sorted(maps.Keys(declared)) {
			for _, other := range []string{name, new(sysctl.Subject).Counterpart(name)} {
				isFound := slices.ContainsFunc(found, func(c conflict) bool { return c.declared == name && c.name == other })
				v, ok := set[other]
				if ok && !isFound && (other != name || strings.ContainsAny(v.text, "<>$") || sysctl.Changes(name, v.text, declared[name])) {
					v.isFinal = v.isFinal || !reapplies(name)
					found = append(found, conflict{declared: name, desired: declared[name], name: other, value: v})
				}
			}
		}
	}
	return found, errors.Join(err, declaredErr, reapplyErr)
}

// readReapply returns a function that reports whether tuned applies the files of sysctl.d last when it starts, by the name of a sysctl.
func (s *Subject) readReapply() (reapplies func(name string) bool, err error) {
	main, err := s.readAssignments(mainConf)
	isOff := slices.Contains([]string{"0", "false", "no", "off"}, strings.ToLower(main["reapply_sysctl"]))
	return func(name string) bool {
		return !isOff && !slices.ContainsFunc(splitList(main["reapply_sysctl_exclude"]), func(pattern string) bool {
			matched, err := path.Match(pattern, name)
			return err == nil && matched
		})
	}, err
}

// ReappliesSysctl reports whether tuned sets a parameter of the host's files again when it starts. A profile without sysctls does not. If the
// state of the daemon cannot be read, tuned is expected to start.
func (s *Subject) ReappliesSysctl(ctx context.Context, name string) bool {
	reapplies, err := s.readReapply()
	active, activeErr := s.readText(profileFile)
	_, hasPlugin, readErr := s.profileSysctls(strings.Fields(active.text), false)
	_, hasPluginIfOld, _ := s.profileSysctls(strings.Fields(active.text), true)
	if errors.Join(err, activeErr, readErr) != nil || !reapplies(name) || !hasPlugin && !hasPluginIfOld || !s.isInstalled() {
		return false
	}
	st, err := s.readStatus(ctx)
	return err != nil || st.isRunning() || st.load == "loaded" && st.enabledAtBoot()
}

func (s *Subject) readAssignments(name string) (map[string]string, error) {
	data, err := s.fs.ReadIfThere(name)
	return parseProfile(string(data), false)[0].options, err
}

// String describes which value wins. Empty if there is no conflict. tuned starts after systemd-sysctl at boot (After=systemd-sysctl.service). With
// reapply_sysctl, its default, it reads /etc/sysctl.d again after its own values. That does not affect values of its plug-in vm.
func (c conflicts) String() string {
	if len(c) == 0 {
		return ""
	}
	names := lists.Each(c, func(x conflict) string {
		return fmt.Sprintf("%s=%s (declared: %s=%s)", x.name, x.text, x.declared, x.desired)
	})
	message := "the profile sets " + host.ListNames(names) + "; the declared sysctls override it: they are applied after it"
	if slices.ContainsFunc(c, func(x conflict) bool { return x.isFinal }) {
		return message + ", and within a minute after tuned restarts"
	}
	return message + ", by tuned itself when it starts (reapply_sysctl)"
}

func (c conflicts) isDeclared(failure string) bool {
	return slices.ContainsFunc(c, func(x conflict) bool {
		return strings.HasPrefix(failure, "'"+x.name+"' ") || strings.HasPrefix(failure, "'"+strings.TrimPrefix(x.name, "vm.")+"' ")
	})
}

// windowFailure matches the failure of a disk's read-ahead (STR_VERIFY_PROFILE_DEVICE_VALUE_FAIL in tuned/consts.py).
var windowFailure = regexp.MustCompile(`^device (\S+): 'readahead' = '([^']*)', expected '([^']*)'`)

// describeWindow describes the failure of a read-ahead that is declared for the disk. Empty for other failures.
func (s *Subject) describeWindow(failure string) string {
	m := windowFailure.FindStringSubmatch(failure)
	if m == nil {
		return ""
	}
	declared := s.windowSetting(m[1])
	if declared == "" {
		return ""
	}
	return fmt.Sprintf("readahead=%s for %s (declared: %s=%s)", m[3], m[1], declared, m[2])
}

var failureLine = regexp.MustCompile(`verify: failed: (.*)$`)

// verifyFailures returns the failures of the last verification in tuned's log, such as "'vm.swappiness' = '60', expected '10'".
func (s *Subject) verifyFailures() []string {
	data, err := s.fs.ReadFile(logFile)
	if err != nil {
		return nil
	}
	var failures []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "verifying profile") {
			failures = nil
		}
		if m := failureLine.FindStringSubmatch(line); m != nil {
			failures = append(failures, m[1])
		}
	}
	return failures
}
