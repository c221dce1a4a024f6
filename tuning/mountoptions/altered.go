package mountoptions

import (
	"fmt"
	"slices"
)

// Altered returns the options of a volume that have a different meaning in handed, the mount options that its driver passes to mount.
// The driver's options can come later and override them, and the order can differ. mount also rejects a second version.
func (p Protocol) Altered(options, handed []string) []Problem {
	t := tableOf(p)
	own, all := Parse(options), Parse(handed)
	meant, made := t.resolve(own), t.resolve(all)
	twoVersions := t.oneVersionOnly && len(checkVersions(t, own)) == 0 && len(checkVersions(t, all)) > 0
	var problems []Problem
	for _, o := range own {
		if t.groupOf(o) == keyVersion && twoVersions {
			others := slices.DeleteFunc(t.inGroup(all, keyVersion), func(other Option) bool { return slices.Contains(own, other) })
			problems = append(problems, Problem{Option: o.String(),
				Message: fmt.Sprintf("the driver adds its own version (%v), and mount accepts only one: leave it out", texts(others))})
			continue
		}
		for _, key := range t.keysOf(o, meant) {
			if meant[key] != made[key] {
				problems = append(problems, Problem{Option: o.String(),
					Message: fmt.Sprintf("does not take effect: with the options that the driver adds, or in its order, %s is %s", key, made[key])})
				break
			}
		}
	}
	return problems
}

// WithoutGiven removes the version from the options if the driver passes the same version to mount anyway. given
// contains the options that the driver passes to mount for a volume without options.
func (p Protocol) WithoutGiven(options, given []string) (left, out []string) {
	t := tableOf(p)
	version := t.resolve(t.inGroup(Parse(given), keyVersion))[keyVersion]
	if !t.oneVersionOnly || version == "" || t.resolve(t.inGroup(Parse(options), keyVersion))[keyVersion] != version {
		return options, nil
	}
	for _, o := range Parse(options) {
		if t.groupOf(o) == keyVersion {
			out = append(out, o.String())
		} else {
			left = append(left, o.String())
		}
	}
	return left, out
}
