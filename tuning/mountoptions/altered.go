package mountoptions

import (
	"fmt"
	"slices"
)

// Altered says which options of a volume's list no longer mean what they say in the list that its driver hands to mount,
// handed: there the driver's own come later and win, or the order is another, or there is a second version, which mount
// refuses.
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

// WithoutGiven leaves the version out of a list where the driver gives the same one itself: given is what it hands to
// mount for a volume without options.
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
