// Package filesystems sets mount options of host file systems other than the root. For the next mount, it writes a drop-in to systemd's mount unit,
// including units from fstab. It sets access times immediately, because a remount really changes only these. A remount accepts all other options,
// returns success and does not change them.
package filesystems

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Name is the subject's part of a setting's key.
const Name = "filesystem"

var (
	nameBytes  = regexp.MustCompile(`^[A-Za-z0-9_.,:=/@+*?-]+$`)
	valueBytes = regexp.MustCompile(`^([a-z0-9_]*):([A-Za-z0-9_.:=/@+-]+(?:,[A-Za-z0-9_.:=/@+-]+)*)$`)
)

// Options are the external functions and data about mount options.
type Options struct {
	// Merge merges the desired options into a unit's options. Desired options replace contradicting ones.
	Merge func(original, desired []string) []string
	// Differences returns the names of the desired options that a mount with the observed options does not have.
	Differences func(desired, observed []string) []string
	// Declined describes the Differences that a new mount may have too, because the device does not support the option.
	Declined func(desired, observed []string) []string
	// Weakened returns a desired option that would make a mount weaker, and the current option that it would remove. Empty if there is none.
	Weakened func(current, desired []string) (option, loses string)
	// Hazardous reports whether an option can break a file system that the system needs.
	Hazardous func(option string) bool
	// SystemDirs are directories that the node needs to work. The subject never changes a file system that contains one of them.
	SystemDirs []string
}

// Subject implements host.Subject for the settings "filesystem/<mount point>". The mount point may be a glob.
type Subject struct {
	host.Inert

	Options
	fs      host.FS
	runner  host.Runner
	entries func() ([]mounts.Entry, error)
	// checkPlace is set by Confine. Nil if every place may be changed.
	checkPlace func(place string) string
	// types are the file system types that were requested last, by the name of the setting.
	types map[string]string
	// failed contains, by mount point, the error of the last Apply.
	failed map[string]string
	// place is the directory of the drop-ins.
	place *mounts.Place
}

var _ host.Subject = &Subject{}

// New returns the subject for one host. entries reads its mount table.
func New(files host.FS, runner host.Runner, entries func() ([]mounts.Entry, error), options Options) *Subject {
	return &Subject{
		Options: options, fs: files, runner: runner, entries: entries,
		types: map[string]string{}, failed: map[string]string{}, place: mounts.NewPlace(files, systemDir),
	}
}

// Confine implements host.Subject.
func (s *Subject) Confine(checkPlace func(place string) string) { s.checkPlace = checkPlace }

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

func parseSetting(setting host.Setting) (glob, fsType string, options []string, err error) {
	m := valueBytes.FindStringSubmatch(setting.Value)
	glob = "/" + setting.Name
	if m == nil || !nameBytes.MatchString(setting.Name) || path.Clean(glob) != glob {
		return "", "", nil, fmt.Errorf("file system %s=%q: must be a mount point, a type and mount options", glob, setting.Value)
	}
	return glob, m[1], strings.Split(m[2], ","), nil
}

// desiredByPoint merges the settings by mount point. If two settings match one file system, the later one by name wins.
func (s *Subject) desiredByPoint(ctx context.Context, t table, desired []host.Setting) map[string]target {
	targets := map[string]target{}
	for _, setting := range desired {
		glob, fsType, options, err := parseSetting(setting)
		if err != nil {
			continue
		}
		for _, at := range t.targetsOf(glob, fsType) {
			at.desired = s.Merge(targets[at.point].desired, options)
			targets[at.point] = at
		}
	}
	for point, at := range targets {
		if at.problem = s.findPlaceObstacle(t, at); at.problem != "" {
			at.stays = s.mayStay(at)
		} else {
			at.problem = s.findObstacle(ctx, t, at)
		}
		targets[point] = at
	}
	return targets
}

func (s *Subject) dropInText(at target) string {
	return renderDropIn(s.Merge(at.unit.originalOptions(), at.desired))
}

// Apply implements host.Subject.
func (s *Subject) Apply(ctx context.Context, desired []host.Setting) error {
	s.failed = map[string]string{}
	t, err := s.readTable()
	if err != nil {
		return err
	}
	targets := s.desiredByPoint(ctx, t, desired)
	retained, touched := map[string]bool{}, []string{}
	for _, point := range slices.Sorted(maps.Keys(targets)) {
		at := targets[point]
		if at.stays || at.problem == "" {
			retained[at.unit.dropIn()] = true
		}
		if at.problem != "" {
			continue
		}
		touched = append(touched, at.unit.name)
		if err := s.fs.KeepFile(at.unit.dropIn(), s.dropInText(at)); err != nil {
			return err
		}
	}
	dropped, err := s.removeDropIns(retained)
	if err != nil {
		return err
	}
	if err := s.reloadUnits(ctx, append(touched, dropped...)); err != nil {
		return err
	}
	for _, point := range slices.Sorted(maps.Keys(targets)) {
		if at := targets[point]; at.problem == "" {
			if err := s.applyLive(ctx, at); err != nil {
				s.failed[point] = err.Error()
			}
		}
	}
	return nil
}

func (s *Subject) removeDropIns(retained map[string]bool) ([]string, error) {
	existing, err := s.fs.Glob(systemDir, strings.TrimPrefix(DropIns, systemDir+"/"))
	if err != nil {
		return nil, err
	}
	var dropped []string
	for _, file := range existing {
		if retained[file] {
			continue
		}
		if err := s.fs.Remove(file); err != nil {
			return nil, err
		}
		if err := s.fs.RemoveEmpty(path.Dir(file)); err != nil {
			return nil, err
		}
		dropped = append(dropped, strings.TrimSuffix(path.Base(path.Dir(file)), ".d"))
	}
	return dropped, nil
}

// live are the names of options that can be changed while a file system is mounted.
var live = []string{"atime", "diratime"}

func (s *Subject) applyLive(ctx context.Context, at target) error {
	if at.mount == nil {
		return nil
	}
	differing := s.Differences(at.desired, effectiveOptions(at.mount))
	if !slices.ContainsFunc(differing, func(name string) bool { return slices.Contains(live, name) }) {
		return nil
	}
	return s.remountEntry(ctx, at.mount, at.desired)
}

// accessTimes are options of a mount that exclude each other. The last option of a group is effective if the kernel shows none.
var accessTimes = [][]string{{"noatime", "relatime", "strictatime"}, {"nodiratime", "diratime"}}

// remountEntry changes the access times of a mount, and keeps its other flags and its superblock. systemd runs the command, because these flags
// belong to a mount in the host's mount namespace, and a container has only a copy of that.
func (s *Subject) remountEntry(ctx context.Context, m *mounts.Entry, desired []string) error {
	if !plain.MatchString(m.Source) || !plain.MatchString(m.Point) {
		return fmt.Errorf("remount %s: device or mount point has characters that are not allowed", m.Point)
	}
	flags := slices.Clone(m.Flags)
	for _, group := range accessTimes {
		chosen := cmp.Or(lastOf(desired, group), lastOf(m.Flags, group), group[len(group)-1])
		flags = slices.DeleteFunc(flags, func(f string) bool { return slices.Contains(group, f) })
		flags = append(flags, chosen)
	}
	_, err := s.runner.Run(ctx, "systemd-run", "--quiet", "--wait", "--collect",
		"mount", "-o", "remount,bind,"+strings.Join(flags, ","), m.Source, m.Point)
	return err
}

func lastOf(options, group []string) string {
	for _, o := range slices.Backward(options) {
		if slices.Contains(group, o) {
			return o
		}
	}
	return ""
}

// Observe implements host.Subject.
func (s *Subject) Observe(ctx context.Context, desired []host.Setting) []host.Observation {
	t, err := s.readTable()
	var targets map[string]target
	if err == nil {
		targets = s.desiredByPoint(ctx, t, desired)
	}
	return host.ObserveEach(desired, host.NextMount, func(o *host.Observation, setting host.Setting) error {
		glob, fsType, options, parseErr := parseSetting(setting)
		if all := errors.Join(parseErr, err); all != nil {
			return all
		}
		s.types[setting.Name] = fsType
		if !slices.ContainsFunc(options, func(option string) bool { return !slices.Contains(slices.Concat(accessTimes...), option) }) {
			o.Effect = host.Live
		}
		s.observeSetting(o, targets, t.targetsOf(glob, fsType))
		return nil
	})
}

// severity orders states, to combine the states of several file systems. States that need an action outrank exceptions.
var severity = []host.State{host.InSync, host.Unsupported, host.Pending, host.Shadowed, host.Drifted, host.Failed}

func (s *Subject) observeSetting(o *host.Observation, targets map[string]target, found []target) {
	o.State = host.InSync
	var observed, notes, costs []string
	for _, at := range found {
		at = targets[at.point]
		state, note := s.evaluateTarget(at)
		if slices.Index(severity, state) > slices.Index(severity, o.State) {
			o.State = state
		}
		if note != "" {
			notes = append(notes, at.point+": "+note)
		}
		if at.mount != nil {
			observed = append(observed, at.point+" "+strings.Join(effectiveOptions(at.mount), ","))
		}
		if cost := bufferNote(at.desired, at.mount); cost != "" && at.problem == "" {
			costs = append(costs, at.point+": "+cost)
		}
	}
	if len(found) == 0 {
		o.State = host.Unsupported
		notes = []string{"no match among mounts, fstab and mount units"}
	}
	o.Observed = strings.Join(observed, "; ")
	o.Message = text.Combine("; ", host.ListNames(notes), host.ListNames(costs))
}

func (s *Subject) evaluateTarget(at target) (host.State, string) {
	if at.stays {
		return host.Unsupported, at.problem + "; the last applied value stays"
	}
	if at.problem != "" {
		return host.Unsupported, at.problem
	}
	data, err := s.fs.ReadFile(at.unit.dropIn())
	switch {
	case s.failed[at.point] != "":
		return host.Failed, s.failed[at.point]
	case err != nil || string(data) != s.dropInText(at):
		return host.Drifted, "not staged in " + at.unit.dropIn()
	case at.mount == nil && at.unit.later == "":
		return host.Pending, "not mounted; takes effect at the next mount"
	}
	var differing, declined []string
	if at.mount != nil {
		now := effectiveOptions(at.mount)
		differing, declined = s.Differences(at.desired, now), s.Declined(at.desired, now)
	}
	waiting := slices.DeleteFunc(slices.Clone(differing), func(name string) bool { return slices.Contains(live, name) })
	switch {
	case len(waiting) < len(differing):
		return host.Drifted, "access time options differ from the declared ones"
	case at.unit.later != "":
		return host.Shadowed, at.unit.later + " also sets its options and is read after the agent's file"
	case len(waiting) > len(declined):
		return host.Pending, fmt.Sprintf("%s staged: takes effect when systemd mounts it again, at boot at the latest; a remount has no effect",
			host.ListNames(waiting))
	case len(declined) > 0:
		return host.Unsupported, "staged; " + host.ListNames(declined)
	}
	return host.InSync, ""
}

// managedOptions are the names of options that a setting may have changed on a mount. Write access and quotas are not among them.
var managedOptions = []string{
	"atime", "diratime", "logbufs", "logbsize", "allocsize", "largeio", "discard", "swalloc", "filestreams", "wsync",
	"lazytime", "inode64", "sync", "suid", "dev", "exec",
}

// Original implements host.Subject. The original is the options of every mounted file system that the setting matches.
func (s *Subject) Original(_ context.Context, name string) (host.Original, error) {
	t, err := s.readTable()
	if err != nil {
		return host.Original{}, err
	}
	var words []string
	for _, at := range t.targetsOf("/"+name, s.types[name]) {
		if at.mount != nil && at.mount.Device != t.root && plain.MatchString(at.point) {
			words = append(words, at.point, strings.Join(effectiveOptions(at.mount), ","))
		}
	}
	return host.Original{Present: len(words) > 0, Value: strings.Join(words, " ")}, nil
}

// Restore implements host.Subject. Apply has already removed the drop-ins.
func (s *Subject) Restore(ctx context.Context, originals map[string]host.Original) []host.Observation {
	return host.RestoreEach(originals, host.Live, func(o *host.Observation, _ host.Original) error { return s.restoreSetting(ctx, o) })
}

func (s *Subject) restoreSetting(ctx context.Context, o *host.Observation) error {
	t, err := s.readTable()
	if err != nil {
		return err
	}
	units := lists.Pick(t.targetsOf("/"+o.Name, ""), func(at target) (string, bool) { return at.unit.name, at.unit.name != "" })
	if err := s.reloadUnits(ctx, units); err != nil {
		return err
	}
	originals := map[string][]string{}
	words := strings.Fields(o.Desired)
	for i := 0; i+1 < len(words); i += 2 {
		originals[words[i]] = strings.Split(words[i+1], ",")
	}
	var waiting []string
	for _, point := range slices.Sorted(maps.Keys(originals)) {
		m := t.mounts[point]
		if m == nil {
			continue
		}
		now := effectiveOptions(m)
		changed := append(s.Differences(originals[point], now), s.Differences(now, originals[point])...)
		changed = slices.DeleteFunc(changed, func(name string) bool { return !slices.Contains(managedOptions, name) })
		rest := slices.DeleteFunc(slices.Clone(changed), func(name string) bool { return slices.Contains(live, name) })
		if len(rest) < len(changed) {
			if err := s.remountEntry(ctx, m, explicitOptions(originals[point])); err != nil {
				return err
			}
		}
		if len(rest) > 0 {
			waiting = append(waiting, fmt.Sprintf("%s: %s", point, host.ListNames(rest)))
		}
	}
	if len(waiting) > 0 {
		o.State, o.Effect, o.Message = host.Pending, host.NextMount, "still effective until the next mount: "+host.ListNames(waiting)
	}
	return nil
}

// explicitOptions adds the access times that the kernel does not show.
func explicitOptions(options []string) []string {
	for _, group := range accessTimes {
		if lastOf(options, group) == "" {
			options = append(slices.Clone(options), group[len(group)-1])
		}
	}
	return options
}
