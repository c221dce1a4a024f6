package plan

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
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

// Changes reports whether the mount options change.
func (c Change) Changes() bool { return !slices.Equal(c.Old, c.New) }

// Preview is the effect of profiles on volumes.
type Preview struct {
	// Matched is the number of volumes that the profiles select, UpToDate the number of these that have their options and do not change.
	Matched  int `json:"matched"`
	UpToDate int `json:"upToDate"`
	// Changes are the volumes whose mount options change. Exceptions and Blocked are the volumes that differ from the profiles after all writes:
	// because rules allow it, or until a user resolves the cause. A volume with other changes is in Changes too. All are sorted by name.
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
// evaluates volumes as the manager does, until no write is left.
func PreviewVolumes(names []string, s Snapshot) Preview {
	out := Preview{ChangedBy: map[string]int{}, Servers: map[string][]advice.Server{}, LeftOut: map[string][]advice.LeftOut{}}
	before := newPlanner(s)
	for _, name := range names {
		out.LeftOut[name] = s.leftOut(name, before.volumes)
	}
	for i, after := range before.settle() {
		j := before.volumes[i]
		profiles := lists.Distinct(j.verdict.Profiles, judge.CarriedProfiles(j.Volume))
		if slices.ContainsFunc(profiles, func(name string) bool { return slices.Contains(names, name) }) {
			out.addVolume(names, profiles, j, after)
		}
	}
	for _, list := range [][]Change{out.Changes, out.Exceptions, out.Blocked} {
		slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Volume, b.Volume) })
	}
	return out
}

// maxSettle limits the evaluations of a preview. A write can make another one necessary, for volumes that share a server.
const maxSettle = 10

// settle returns the volumes after all writes, in the same order. Options of a set that failed are not written.
func (p *planner) settle() []evaluation {
	s, all := p.Snapshot, p.volumes
	s.Memory, s.previousEvaluation = nil, nil
	for range maxSettle {
		s.Volumes = slices.Clone(s.Volumes)
		written := false
		for i, j := range all {
			v := j.verdict
			switch {
			case p.hasFailingSet(j), p.blameOf(j) != nil && j.mayRevert():
				v = &judge.Verdict{Action: judge.ActionRestore, Options: j.Record.Original}
			case p.rejection(j) != "":
				continue
			}
			if volume := v.Apply(j.Volume); volume != nil {
				s.Volumes[i], written = volume, true
			}
		}
		if !written {
			break
		}
		all = s.evaluateAll()
	}
	all = slices.Clone(all)
	for i := range all {
		if reason := p.rejection(all[i]); reason != "" {
			v := *all[i].verdict
			v.State, v.Reason, v.Message, v.Exceptions = judge.StateBlocked, v1alpha1.VolumeReasonFailedMount, "Not changed: "+reason, nil
			all[i].verdict = &v
		}
	}
	return all
}

// rejection explains why a volume does not get its declared options: they failed on another volume. Empty if it gets them or has them.
func (p *planner) rejection(j evaluation) string {
	if !j.verdict.ChangesOptions(j.Volume) {
		return ""
	}
	return judge.RejectionText(p.sets[j.verdict.Set], j.Source.Server)
}

// addVolume adds one volume by its evaluations before and after all writes.
func (p *Preview) addVolume(requested, profiles []string, j, after evaluation) {
	change := Change{
		Volume: j.Volume.Name, Profiles: profiles, Old: nonNilList(j.Volume.Spec.MountOptions), New: nonNilList(after.Volume.Spec.MountOptions),
		Reason: j.verdict.Reason, Message: j.verdict.Message,
	}
	if change.Changes() {
		p.Changes = append(p.Changes, change)
		for _, name := range profiles {
			p.ChangedBy[name]++
		}
	}
	selecting := slices.DeleteFunc(slices.Clone(after.verdict.Profiles), func(name string) bool { return !slices.Contains(requested, name) })
	if len(selecting) == 0 {
		return
	}
	p.Matched++
	for _, name := range selecting {
		p.Servers[name] = transports{}.withServerOf(&after, name, p.Servers[name])
	}
	standing, message := after.stateFor(selecting...)
	change.Reason, change.Message = after.verdict.Reason, message
	switch standing {
	case VolumeUpToDate:
		if !change.Changes() {
			p.UpToDate++
		}
	case VolumeException, VolumeHeld:
		p.Exceptions = append(p.Exceptions, change)
	case VolumeBlocked, VolumePending:
		p.Blocked = append(p.Blocked, change)
	}
}
