package plan

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/text"
)

// Change is the change of one volume's mount options.
type Change struct {
	Volume string `json:"volume"`
	// Profiles are the profiles that select the volume or whose options it carries, sorted.
	Profiles []string `json:"profiles"`
	// Old are the current mount options, New the resulting ones. They are equal if the volume stays unchanged.
	Old []string `json:"old"`
	New []string `json:"new"`
	// Reason and Message explain the change.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Preview is the effect of profiles on volumes.
type Preview struct {
	// Matched is the number of volumes that the profiles select, UpToDate the number of these that have their options.
	Matched  int `json:"matched"`
	UpToDate int `json:"upToDate"`
	// Changes are the volumes whose mount options change. Exceptions are the volumes with differences that rules allow. Blocked are the volumes
	// that stay unchanged until a user resolves the cause. All are sorted by name.
	Changes    []Change `json:"changes,omitempty"`
	Exceptions []Change `json:"exceptions,omitempty"`
	Blocked    []Change `json:"blocked,omitempty"`
	// ChangedBy is the number of Changes that each profile contributes to. Servers are the servers of its NFS volumes.
	ChangedBy map[string]int             `json:"-"`
	Servers   map[string][]advice.Server `json:"-"`
	// LeftOut are the volumes that no rule of a profile selects, although one may mean them, by profile.
	LeftOut map[string][]advice.LeftOut `json:"-"`
}

// PreviewVolumes returns the effect of the named profiles on the volumes that they select, or that carry their options, after all writes. It
// evaluates each volume once.
func PreviewVolumes(names []string, s Snapshot) Preview {
	requested := make(map[string]bool, len(names))
	for _, name := range names {
		requested[name] = true
	}
	out := Preview{ChangedBy: map[string]int{}, Servers: map[string][]advice.Server{}, LeftOut: map[string][]advice.LeftOut{}}
	all := s.evaluateAll()
	for _, name := range names {
		out.LeftOut[name] = s.leftOut(name, all)
	}
	for _, j := range all {
		profiles := slices.Concat(j.verdict.Profiles, judge.CarriedProfiles(j.Volume))
		slices.Sort(profiles)
		profiles = slices.Compact(profiles)
		if slices.ContainsFunc(profiles, func(name string) bool { return requested[name] }) {
			out.addVolume(requested, profiles, j)
		}
	}
	for _, list := range [][]Change{out.Changes, out.Exceptions, out.Blocked} {
		slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Volume, b.Volume) })
	}
	return out
}

func (p *Preview) addVolume(requested map[string]bool, profiles []string, j evaluation) {
	v := j.verdict
	change := Change{
		Volume: j.Volume.Name, Profiles: profiles, Old: nonNilList(j.Volume.Spec.MountOptions), New: nonNilList(j.Volume.Spec.MountOptions),
		Reason: v.Reason, Message: v.Message,
	}
	if writes := v.Action == judge.ActionWrite || v.Action == judge.ActionRestore; writes && !slices.Equal(change.Old, v.Options) {
		change.New = nonNilList(v.Options)
		p.Changes = append(p.Changes, change)
		for _, name := range profiles {
			p.ChangedBy[name]++
		}
	}
	selecting := slices.DeleteFunc(slices.Clone(v.Profiles), func(name string) bool { return !requested[name] })
	if len(selecting) == 0 {
		return
	}
	p.Matched++
	var differences []string
	for _, name := range selecting {
		p.addServer(name, j)
		differences = append(differences, v.Exceptions[name]...)
	}
	switch {
	case v.State == judge.StateHeld:
		p.addAtRest(change, []string{v.Message})
	case v.State == judge.StateUpToDate, v.State == judge.StateBlocked && v.Exceptions != nil:
		p.addAtRest(change, differences)
	case v.State == judge.StateBlocked:
		p.Blocked = append(p.Blocked, change)
	}
}

// addAtRest adds a volume that the rules leave unchanged, with its differences from their options.
func (p *Preview) addAtRest(change Change, differences []string) {
	if len(differences) == 0 {
		p.UpToDate++
		return
	}
	slices.Sort(differences)
	change.Message = text.Join(slices.Compact(differences), "; ")
	p.Exceptions = append(p.Exceptions, change)
}

func (p *Preview) addServer(profile string, j evaluation) {
	known := Summary{Servers: p.Servers[profile]}
	known.addServer(profile, &j)
	p.Servers[profile] = known.Servers
}
