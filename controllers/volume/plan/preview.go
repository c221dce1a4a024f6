package plan

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/advice"
)

// Change is what becomes of one volume's mount options.
type Change struct {
	Volume string `json:"volume"`
	// Profiles are those that select the volume, and those whose options it carries, sorted.
	Profiles []string `json:"profiles"`
	// Old is the list that the volume has, New the one that it gets; the same where it is left alone.
	Old []string `json:"old"`
	New []string `json:"new"`
	// Reason and Message say why.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Preview is what becomes of the volumes of profiles.
type Preview struct {
	// Matched is how many volumes the profiles select, UpToDate how many of them have their options.
	Matched  int `json:"matched"`
	UpToDate int `json:"upToDate"`
	// Changes are the volumes that get another list, Blocked those that are left alone although other options are declared. Both
	// are sorted by name.
	Changes []Change `json:"changes,omitempty"`
	Blocked []Change `json:"blocked,omitempty"`
	// ChangedBy is in how many of Changes each profile has a part, Servers the servers of its NFS volumes.
	ChangedBy map[string]int             `json:"-"`
	Servers   map[string][]advice.Server `json:"-"`
}

// PreviewVolumes tells what becomes of the volumes that profiles of these names select, or whose options they carry, once all that
// is to be written is written. All volumes are judged once.
func PreviewVolumes(names []string, s Snapshot) Preview {
	ours := make(map[string]bool, len(names))
	for _, name := range names {
		ours[name] = true
	}
	out := Preview{ChangedBy: map[string]int{}, Servers: map[string][]advice.Server{}}
	for _, j := range s.judgeAll() {
		profiles := slices.Concat(j.verdict.Profiles, judge.CarriedProfiles(j.Volume))
		slices.Sort(profiles)
		profiles = slices.Compact(profiles)
		if slices.ContainsFunc(profiles, func(name string) bool { return ours[name] }) {
			out.addVolume(ours, profiles, j)
		}
	}
	for _, list := range [][]Change{out.Changes, out.Blocked} {
		slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Volume, b.Volume) })
	}
	return out
}

func (p *Preview) addVolume(ours map[string]bool, profiles []string, j judged) {
	v, old := j.verdict, slices.Concat([]string{}, j.Volume.Spec.MountOptions)
	change := Change{Volume: j.Volume.Name, Profiles: profiles, Old: old, New: old, Reason: v.Reason, Message: v.Message}
	if slices.ContainsFunc(v.Profiles, func(name string) bool { return ours[name] }) {
		p.Matched++
		if v.State == judge.StateUpToDate {
			p.UpToDate++
		}
	}
	for _, name := range v.Profiles {
		if ours[name] {
			p.addServer(name, j)
		}
	}
	writes := v.Action == judge.ActionWrite || v.Action == judge.ActionRestore
	switch {
	case writes && !slices.Equal(old, v.Options):
		change.New = slices.Concat([]string{}, v.Options)
		p.Changes = append(p.Changes, change)
		for _, name := range profiles {
			p.ChangedBy[name]++
		}
	case v.State == judge.StateBlocked:
		p.Blocked = append(p.Blocked, change)
	}
}

func (p *Preview) addServer(profile string, j judged) {
	known := Summary{Servers: p.Servers[profile]}
	known.addServer(profile, j)
	p.Servers[profile] = known.Servers
}
