package mountoptions

import (
	"fmt"
	"slices"
)

// AlteredOptions returns the options of a volume that have a different meaning in passed, the mount options that its driver passes to mount.
// The driver's options can come later and override them, and the order can differ. mount also rejects a second version.
func (p Protocol) AlteredOptions(options, passed []string) []Problem {
	t := tableOf(p)
	original, passedOptions := Parse(options), Parse(passed)
	desired, effective := t.resolve(original), t.resolve(passedOptions)
	twoVersions := t.OneVersionOnly && len(checkVersions(t, original)) == 0 && len(checkVersions(t, passedOptions)) > 0
	var problems []Problem
	for _, o := range original {
		if t.groupOf(o) == keyVersion && twoVersions {
			driverVersions := slices.DeleteFunc(t.inGroup(passedOptions, keyVersion), func(other Option) bool { return slices.Contains(original, other) })
			problems = append(problems, Problem{Option: o.String(),
				Message: fmt.Sprintf("the driver adds its own version (%v), and mount accepts only one: leave it out", texts(driverVersions))})
			continue
		}
		for _, key := range t.keysOf(o, desired) {
			if desired[key] != effective[key] {
				problems = append(problems, Problem{Option: o.String(),
					Message: fmt.Sprintf("does not take effect: with the options that the driver adds, or in its order, %s is %s", key, effective[key])})
				break
			}
		}
	}
	return problems
}

// WithoutDriverVersion removes the version from the options if the driver passes the same version to mount anyway. driverOptions
// contains the options that the driver passes to mount for a volume without options.
func (p Protocol) WithoutDriverVersion(options, driverOptions []string) (remaining, removed []string) {
	t := tableOf(p)
	version := t.resolve(t.inGroup(Parse(driverOptions), keyVersion))[keyVersion]
	if !t.OneVersionOnly || version == "" || t.resolve(t.inGroup(Parse(options), keyVersion))[keyVersion] != version {
		return options, nil
	}
	for _, o := range Parse(options) {
		if t.groupOf(o) == keyVersion {
			removed = append(removed, o.String())
		} else {
			remaining = append(remaining, o.String())
		}
	}
	return remaining, removed
}
