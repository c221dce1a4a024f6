package judge

import (
	"maps"
	"slices"
)

// difference is what has changed from some profiles to others.
type difference struct {
	from, to *Profiles
	// inAll is set where what all volumes are judged by differs.
	inAll bool
	// names are the profiles that are new, gone or not as they were, and now those of them that there are.
	names map[string]bool
	now   []*Profile
}

func differenceOf(from, to *Profiles) difference {
	d := difference{from: from, to: to, names: map[string]bool{}}
	d.inAll = from.pausedAll != to.pausedAll || !maps.EqualFunc(from.classes, to.classes, slices.Equal)
	for _, p := range to.byPrecedence {
		if from.Get(p.Name) != p {
			d.names[p.Name], d.now = true, append(d.now, p)
		}
	}
	for _, p := range from.byPrecedence {
		if to.Get(p.Name) == nil {
			d.names[p.Name] = true
		}
	}
	return d
}

// spares says whether a volume would be judged by the later profiles as it was by the earlier ones: none that differs selects it, or did, or
// is carried by it.
func (d difference) spares(j *Judged, in Input) bool {
	if d.inAll || j.remembersFailure() || slices.ContainsFunc(j.profilesOf(), func(name string) bool { return d.names[name] }) {
		return false
	}
	volumeClaim := in.VolumeClaim
	if !isBoundTo(in.Volume, volumeClaim) {
		volumeClaim = nil
	}
	return !slices.ContainsFunc(d.now, func(p *Profile) bool { return len(p.rulesSelecting(in.Volume, volumeClaim)) > 0 })
}
