package tuned

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/sysctl"
)

const (
	logFile  = "/var/log/tuned/tuned.log"
	mainConf = "/etc/tuned/tuned-main.conf"
	// maxIncludes limits the files from which a profile is combined.
	maxIncludes = 32
)

// profileDirs contain a directory for each profile; the first with the profile wins. Since tuned 2.23, the profiles are in a subdirectory.
var profileDirs = []string{"/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"}

// exclusive are pairs of sysctls: the kernel clears one when the other is set.
var exclusive = map[string]string{
	"vm.dirty_ratio": "vm.dirty_bytes", "vm.dirty_bytes": "vm.dirty_ratio",
	"vm.dirty_background_ratio": "vm.dirty_background_bytes", "vm.dirty_background_bytes": "vm.dirty_background_ratio",
}

func (s *Subject) profileFile(profile string) string {
	for _, dir := range profileDirs {
		if name := path.Join(dir, path.Base(profile), "tuned.conf"); s.fs.Exists(name) {
			return name
		}
	}
	return ""
}

func (s *Subject) profileExists(profile string) bool { return s.profileFile(profile) != "" }

// value is a sysctl that a profile sets. byVM is true if the profile's plug-in vm sets it: reapply_sysctl does not undo that.
type value struct {
	text string
	byVM bool
}

// profileSysctls returns the sysctls that a profile and the profiles that it includes set.
func (s *Subject) profileSysctls(profile string) (map[string]value, error) {
	found := map[string]value{}
	var seen []string
	var load func(profile string) error
	load = func(profile string) error {
		name := s.profileFile(profile)
		if name == "" || slices.Contains(seen, name) || len(seen) == maxIncludes {
			return nil
		}
		seen = append(seen, name)
		data, err := s.fs.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read profile of tuned: %w", err)
		}
		sections := parseProfile(string(data))
		for _, included := range strings.FieldsFunc(sections["main"]["include"], func(r rune) bool { return strings.ContainsRune(",; \t", r) }) {
			if err := load(strings.TrimPrefix(included, "-")); err != nil {
				return err
			}
		}
		for _, section := range slices.Sorted(maps.Keys(sections)) {
			collectSysctls(section, sections[section], found)
		}
		return nil
	}
	return found, load(profile)
}

func collectSysctls(section string, options map[string]string, found map[string]value) {
	plugin := cmp.Or(options["type"], section)
	for name, text := range options {
		switch {
		case plugin == "sysctl" && strings.Contains(name, "."):
			found[name] = value{text: text}
		case plugin == "vm" && strings.HasPrefix(name, "dirty_"):
			found["vm."+name] = value{text: text, byVM: true}
		}
	}
}

func parseProfile(data string) map[string]map[string]string {
	sections := map[string]map[string]string{}
	section := ""
	for line := range strings.Lines(data) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			continue
		}
		name, text, found := strings.Cut(line, "=")
		if !found {
			continue
		}
		if sections[section] == nil {
			sections[section] = map[string]string{}
		}
		sections[section][strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(text), `"`)
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

type conflicts struct {
	list []conflict
	// reapplied is true if tuned applies the files of sysctl.d last when it starts.
	reapplied bool
}

func (s *Subject) findConflicts(profile string) (conflicts, error) {
	var c conflicts
	set, err := s.profileSysctls(profile)
	if err != nil {
		return c, err
	}
	declared, err := s.readAssignments(sysctl.OurFile.NameOn(s.fs))
	if err != nil {
		return c, err
	}
	if c.reapplied, _, err = s.readReapply(); err != nil {
		return c, err
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		for _, other := range []string{name, exclusive[name]} {
			v, ok := set[other]
			if ok && (other != name || v.text != declared[name]) {
				c.list = append(c.list, conflict{declared: name, desired: declared[name], name: other, value: v})
			}
		}
	}
	return c, nil
}

// readReapply returns the options reapply_sysctl and reapply_sysctl_exclude. The latter contains patterns of names.
func (s *Subject) readReapply() (reapplies bool, excluded []string, err error) {
	main, err := s.readAssignments(mainConf)
	reapplies = !slices.Contains([]string{"0", "false", "no", "off"}, strings.ToLower(main["reapply_sysctl"]))
	return reapplies, strings.FieldsFunc(main["reapply_sysctl_exclude"], func(r rune) bool { return strings.ContainsRune(",; \t", r) }), err
}

// ReappliesSysctl reports whether tuned sets a parameter of the host's files again when it starts. A profile without sysctls does not. If the
// state of the daemon cannot be read, tuned is expected to start.
func (s *Subject) ReappliesSysctl(ctx context.Context, name string) bool {
	reapplies, excluded, err := s.readReapply()
	isExcluded := slices.ContainsFunc(excluded, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
	active, activeErr := s.readText(profileFile)
	hasSysctls := slices.ContainsFunc(strings.Fields(active.text), func(profile string) bool {
		set, err := s.profileSysctls(profile)
		return err == nil && slices.ContainsFunc(slices.Collect(maps.Values(set)), func(v value) bool { return !v.byVM })
	})
	if err != nil || activeErr != nil || !reapplies || isExcluded || !hasSysctls || !s.isInstalled() {
		return false
	}
	st, err := s.readStatus(ctx)
	return err != nil || st.isRunning() || st.load == "loaded" && st.enabledAtBoot()
}

func (s *Subject) readAssignments(name string) (map[string]string, error) {
	data, err := s.fs.ReadIfThere(name)
	if err != nil {
		return nil, err
	}
	return parseProfile(string(data))[""], nil
}

// String describes which value wins. Empty if there is no conflict. tuned starts after systemd-sysctl at boot (After=systemd-sysctl.service). With
// reapply_sysctl, its default, it reads /etc/sysctl.d again after its own values. That does not affect values of its plug-in vm.
func (c conflicts) String() string {
	if len(c.list) == 0 {
		return ""
	}
	var names []string
	agentReapplies := !c.reapplied
	for _, x := range c.list {
		names = append(names, fmt.Sprintf("%s=%s (declared: %s=%s)", x.name, x.text, x.declared, x.desired))
		agentReapplies = agentReapplies || x.byVM
	}
	message := "the profile sets " + host.ListNames(names) + "; the declared sysctls override it: they are applied after it"
	if agentReapplies {
		return message + ", and within a minute after tuned restarts"
	}
	return message + ", by tuned itself when it starts (reapply_sysctl)"
}

func (c conflicts) isDeclared(failure string) bool {
	return slices.ContainsFunc(c.list, func(x conflict) bool {
		return strings.HasPrefix(failure, "'"+x.name+"' ") || strings.HasPrefix(failure, "'"+strings.TrimPrefix(x.name, "vm.")+"' ")
	})
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
