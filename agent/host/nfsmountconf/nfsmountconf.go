// Package nfsmountconf sets default options for NFS mounts that the host itself makes, in a drop-in of nfsmount.conf. Existing mounts keep their
// options.
package nfsmountconf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// Name is the subject's part of a setting's key.
	Name = "nfsMountDefaults"
	// DropIn is the agent's file. It is read after all other files.
	DropIn = directory + "/zz-storage-client.conf"

	allServers = "_all"
)

// serverBytes and optionBytes match the bytes that may reach the drop-in, regardless of the author of the object.
var (
	serverBytes = regexp.MustCompile(`^[a-z0-9_][a-z0-9_.-]*$`)
	optionBytes = regexp.MustCompile(`^[a-z][A-Za-z0-9_.-]*(=[A-Za-z0-9_.:/@+-]+)?(,[a-z][A-Za-z0-9_.-]*(=[A-Za-z0-9_.:/@+-]+)?)*$`)
)

// mountHelpers are the programs that read the files. Without one of them, the host mounts no NFS.
var mountHelpers = []string{"/usr/sbin/mount.nfs", "/sbin/mount.nfs"}

// Subject implements host.Subject for the settings "nfsMountDefaults/<server>" and "nfsMountDefaults/_all".
type Subject struct {
	host.Inert

	fs host.FS
	// differences returns the names of the desired options that a mount with the observed options does not have.
	differences func(wanted, observed []string) []string
	// fileErr is the error of the last Apply if it could not keep the drop-in.
	fileErr error
	place   *mounts.Place
	// program is the last known mount.nfs, with the stamp of its files.
	program helper
	stamp   string
}

var _ host.Subject = &Subject{}

// New returns the subject for one host. differences returns the names of the desired options that a mount with the observed options does not have.
func New(files host.FS, differences func(wanted, observed []string) []string) *Subject {
	return &Subject{fs: files, differences: differences, place: mounts.NewPlace(files, directory)}
}

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

// Original implements host.Subject. Originally, the drop-in did not exist, so the original is empty.
func (s *Subject) Original(context.Context, string) (host.Original, error) {
	return host.Original{}, nil
}

// Apply implements host.Subject.
func (s *Subject) Apply(_ context.Context, desired []host.Setting) error {
	if !s.isInstalled() {
		desired = nil
	}
	// An unreadable drop-in contains no settings.
	dropIn, _ := s.readDropIn()
	program := helper{keepsTags: true}
	if len(desired) > 0 {
		program = s.readProgram()
	}
	obstacles := s.findObstacles(desired, program, dropIn)
	text := renderDropIn(slices.DeleteFunc(slices.Clone(desired), func(d host.Setting) bool { return obstacles[d.Name] != "" && !dropIn.contains(d) }))
	s.fileErr = s.place.RecordWrite(s.fs.KeepFile(DropIn, text))
	if text == "" && s.fileErr == nil {
		// No package of nfs-utils installs the directory, so an empty one comes from the agent.
		s.fileErr = s.fs.RemoveEmpty(directory)
	}
	return s.fileErr
}

func (s *Subject) isInstalled() bool { return slices.ContainsFunc(mountHelpers, s.fs.Exists) }

// readProgram reads mount.nfs again only if its files have another size or time. An unknown release may be a failed read.
func (s *Subject) readProgram() helper {
	var stamps []string
	for _, name := range mountHelpers {
		if info, err := s.fs.Stat(name); err == nil {
			stamps = append(stamps, fmt.Sprint(name, info.Size(), info.ModTime()))
		}
	}
	if stamp := strings.Join(stamps, " "); stamp != s.stamp || s.program.release == "" {
		s.program, s.stamp = readHelper(s.fs), stamp
	}
	return s.program
}

// renderDropIn writes one section per server, sorted by the names of the settings.
func renderDropIn(desired []host.Setting) string {
	var b strings.Builder
	for _, setting := range sortSettings(desired) {
		if checkSetting(setting) != nil {
			continue
		}
		if setting.Name == allServers {
			b.WriteString("[ NFSMount_Global_Options ]\n")
		} else {
			fmt.Fprintf(&b, "[ Server \"%s\" ]\n", setting.Name)
		}
		for option := range strings.SplitSeq(setting.Value, ",") {
			t := tagOf(option)
			fmt.Fprintf(&b, "%s=%s\n", t.field, t.value)
		}
	}
	return host.OwnText(b.String())
}

func sortSettings(desired []host.Setting) []host.Setting {
	return slices.SortedFunc(slices.Values(desired), func(a, b host.Setting) int { return strings.Compare(a.Name, b.Name) })
}

// findObstacles returns, by name, the conflicts of settings: a release of nfs-utils before fixedIn removes their options from another section.
// The settings in the drop-in keep an option that several settings contain, then the first by name.
func (s *Subject) findObstacles(desired []host.Setting, program helper, dropIn conf) map[string]string {
	obstacles := map[string]string{}
	if program.keepsTags {
		return obstacles
	}
	sections := readConf(s.fs, helper{keepsTags: true}, func(file string) bool { return file != DropIn })
	ordered := slices.DeleteFunc(sortSettings(desired), func(d host.Setting) bool { return checkSetting(d) != nil })
	for _, setting := range ordered {
		if dropIn.contains(setting) {
			sections.addOwn(setting)
		}
	}
	for _, setting := range ordered {
		target := sectionOf(setting.Name)
		for option := range strings.SplitSeq(setting.Value, ",") {
			field := strings.ToLower(tagOf(option).field)
			if other, file := sections.otherWith(target, field); file != "" {
				obstacles[setting.Name] = program.describeObstacle(field, other, file)
			}
		}
		if obstacles[setting.Name] == "" {
			sections.addOwn(setting)
		}
	}
	return obstacles
}

func (c conf) addOwn(setting host.Setting) {
	for option := range strings.SplitSeq(setting.Value, ",") {
		t := tagOf(option)
		t.field, t.file = strings.ToLower(t.field), DropIn
		c.assignTag(sectionOf(setting.Name), t)
	}
}

// contains reports whether a section has exactly the options of a setting.
func (c conf) contains(setting host.Setting) bool {
	return len(missingTags(c[sectionOf(setting.Name)], strings.Split(setting.Value, ","))) == 0
}

func (p helper) describeObstacle(field string, other section, file string) string {
	return fmt.Sprintf("nfs-utils %s reads %s from the last section for a server only, and %s sets it in [ Server %q ]: "+
		"leave it out of one of the two, or install nfs-utils %s or later", cmp.Or(p.release, "of this host (unknown release)"), field, file, other.arg, fixedIn)
}

func checkSetting(setting host.Setting) error {
	if !serverBytes.MatchString(setting.Name) || !optionBytes.MatchString(setting.Value) {
		return fmt.Errorf("NFS mount defaults %s=%q: must be a server and mount options", setting.Name, setting.Value)
	}
	return nil
}

func sectionOf(name string) section {
	if name == allServers {
		return section{name: globalSection}
	}
	return section{name: serverSection, arg: name}
}

// Observe implements host.Subject. Observed contains the options that mount.nfs would add to a mount of the server without options.
func (s *Subject) Observe(_ context.Context, desired []host.Setting) []host.Observation {
	s.place.Refresh()
	program := s.readProgram()
	all := readConf(s.fs, program, func(string) bool { return true })
	dropIn, err := s.readDropIn()
	obstacles := s.findObstacles(desired, program, dropIn)
	return host.ObserveEach(desired, host.NextMount, func(o *host.Observation, setting host.Setting) error {
		if err := checkSetting(setting); err != nil {
			return err
		}
		switch {
		case !s.isInstalled() && s.place.WriteProblem() != "":
			o.State = host.Unsupported
			o.Message = "mount.nfs is not installed here, and " + s.place.WriteProblem() + ": NFS mounts are made in containers"
		case !s.isInstalled():
			o.State = host.Unsupported
			o.Message = "mount.nfs is not installed here: install nfs-common (Debian, Ubuntu) or nfs-utils (others)"
		case err != nil:
			return err
		case obstacles[setting.Name] != "" && !dropIn.contains(setting):
			o.State, o.Message = host.Unsupported, obstacles[setting.Name]
		default:
			s.observeSetting(o, all, dropIn, obstacles[setting.Name])
		}
		return nil
	})
}

func (s *Subject) readDropIn() (conf, error) {
	dropIn := conf{}
	data, err := s.fs.ReadIfThere(DropIn)
	dropIn.parseFile(DropIn, string(data), helper{keepsTags: true})
	return dropIn, err
}

func (s *Subject) observeSetting(o *host.Observation, all, dropIn conf, obstacle string) {
	wanted := strings.Split(o.Desired, ",")
	server := sectionOf(o.Name).arg
	effective := all.optionsOf(server, "")
	o.Observed = strings.Join(effective, ",")
	switch missing := missingTags(dropIn[sectionOf(o.Name)], wanted); {
	case len(missing) > 0 && s.place.WriteProblem() != "":
		o.State, o.Message = host.Unsupported, s.place.WriteProblem()+", and mount.nfs reads its defaults only there"
	case len(missing) > 0 && s.fileErr != nil:
		o.State, o.Message = host.Failed, s.fileErr.Error()
	case len(missing) > 0:
		o.State, o.Message = host.Drifted, fmt.Sprintf("not in %s: %s", DropIn, host.ListNames(missing))
	default:
		o.State, o.Message = host.InSync, cmp.Or(obstacle, "applies to new mounts of the host")
		if message := s.shadowedBy(all, dropIn, server, wanted); message != "" {
			o.State, o.Message = host.Shadowed, cmp.Or(obstacle, message)
		}
	}
}

// missingTags returns the desired options that a section of the drop-in does not have, and options in it that are not desired.
func missingTags(tags []tag, wanted []string) []string {
	present := lists.Each(tags, tag.mountOption)
	missing := lists.Filter(wanted, func(option string) bool { return !slices.Contains(present, option) })
	return append(missing, lists.Filter(present, func(option string) bool { return !slices.Contains(wanted, option) })...)
}

// shadowedBy returns a message about the file that prevents a mount from having the desired options. Empty if there is none. A section for a mount
// point is narrower than the agent's sections. A section for a server is narrower than the section for all servers, and is intended if it is the
// agent's.
func (s *Subject) shadowedBy(all, dropIn conf, server string, wanted []string) string {
	if differing := s.differences(wanted, all.optionsOf(server, "")); len(differing) > 0 {
		return fmt.Sprintf("%s sets another value for %s, which wins", all.fileOf(server, differing), host.ListNames(differing))
	}
	for _, narrow := range slices.SortedFunc(maps.Keys(all), compareSections) {
		var effective []string
		switch {
		case narrow.name == pointSection:
			effective = all.optionsOf(server, narrow.arg)
		case narrow.name == serverSection && server == "" && len(dropIn[narrow]) == 0:
			effective = all.optionsOf(narrow.arg, "")
		default:
			continue
		}
		if differing := s.differences(wanted, effective); len(differing) > 0 {
			return fmt.Sprintf("%s has a section for %s, which sets another value for %s", all[narrow][0].file, narrow.arg, host.ListNames(differing))
		}
	}
	return ""
}

func compareSections(a, b section) int { return strings.Compare(a.name+" "+a.arg, b.name+" "+b.arg) }

// fileOf returns a foreign file that sets one of the options. If only sections of the drop-in disagree, it returns the drop-in.
func (c conf) fileOf(server string, options []string) string {
	tags := slices.Concat(c[section{serverSection, server}], c[section{globalSection, ""}])
	foreign := slices.DeleteFunc(tags, func(t tag) bool { return t.file == DropIn })
	if len(foreign) == 0 {
		return "the section for all servers in " + DropIn
	}
	i := slices.IndexFunc(foreign, func(t tag) bool {
		return slices.ContainsFunc(options, func(name string) bool { return t.field == name || t.field == strings.TrimPrefix(name, "no") })
	})
	return foreign[max(i, 0)].file
}

// Restore implements host.Subject. Apply has already removed the agent's lines.
func (s *Subject) Restore(_ context.Context, originals map[string]host.Original) []host.Observation {
	dropIn, err := s.readDropIn()
	return host.RestoreEach(originals, host.NextMount, func(o *host.Observation, _ host.Original) error {
		if err == nil && len(dropIn[sectionOf(o.Name)]) > 0 {
			return errors.New("still in " + DropIn)
		}
		return err
	})
}
