package judge

import (
	"maps"
	"slices"
)

// difference is the change between two versions of the profiles.
type difference struct {
	from, to *Profiles
	// inAll is true if the change affects all volumes.
	inAll bool
	// names are the names of new, deleted and changed profiles. current are the current versions of the new and changed ones.
	names   map[string]bool
	current []*Profile
}

func differenceOf(from, to *Profiles) difference {
	d := difference{from: from, to: to, names: map[string]bool{}}
	d.inAll = from.pausedAll != to.pausedAll || !maps.EqualFunc(from.classes, to.classes, slices.Equal)
	for _, p := range to.byPrecedence {
		if from.Get(p.Name) != p {
			d.names[p.Name], d.current = true, append(d.current, p)
		}
	}
	for _, p := range from.byPrecedence {
		if to.Get(p.Name) == nil {
			d.names[p.Name] = true
		}
	}
	return d
}

// skipsReevaluation reports whether both versions give a volume the same verdict. No changed profile selects it or selected it, it carries the
// options of none, and it records no failed mount.
func (d difference) skipsReevaluation(j *Evaluation, in Input) bool {
	if d.inAll || j.hasRecordedFailure() || slices.ContainsFunc(j.profilesOf(), func(name string) bool { return d.names[name] }) {
		return false
	}
	volumeClaim := onlyBound(in.Volume, in.VolumeClaim)
	return !slices.ContainsFunc(d.current, func(p *Profile) bool { return len(p.rulesSelecting(in.Volume, volumeClaim)) > 0 })
}
