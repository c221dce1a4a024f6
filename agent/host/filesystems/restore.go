package filesystems

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
)

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
