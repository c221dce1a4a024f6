package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Listed is the state of one volume in output for users.
type Listed struct {
	// Volume is the name of the volume, VolumeClaim the namespace/name of the PersistentVolumeClaim that it is bound to. Empty if there is none.
	Volume      string `json:"volume"`
	VolumeClaim string `json:"volumeClaim,omitempty"`
	// Driver mounts the volume. Protocol is empty if the driver is unknown.
	Driver   string                  `json:"driver,omitempty"`
	Protocol v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	// Profiles are the profiles that select the volume, or whose options it carries.
	Profiles []string `json:"profiles,omitempty"`
	// Now are the current mount options, Wanted the declared or original options that the volume must get.
	Now     []string `json:"now"`
	Desired []string `json:"wanted"`
	// State is the standing for the requested profile. Reason and Message explain it. The message of a pending volume also explains its wait.
	State   VolumeState `json:"state"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	// Exceptions describe differences from the profiles that the rules allow. Empty if there are none, or if pending writes remove them.
	Exceptions []string `json:"exceptions,omitempty"`
}

// List returns the volumes that a profile selects, and the volumes that must be written because it no longer does, by name. An empty name matches any profile. Like Summarize, it treats a named profile that
// is paused or in mode Plan as if it acted. held is true in that case.
func List(name string, s Snapshot) (listed []Listed, isHeld bool) {
	if s.Profiles == nil {
		return nil, false
	}
	if name != "" {
		if s.Profiles, isHeld = s.Profiles.WithoutHold(name); isHeld {
			s.Memory = nil
		}
	}
	p := newPlanner(s)
	notes := p.decide().Notes
	for _, j := range p.volumes {
		profiles := lists.Distinct(j.verdict.Profiles, judge.CarriedProfiles(j.Volume))
		note, concerns := notes[j.Volume.Name]
		isOfProfile := slices.Contains(j.verdict.Profiles, name) || note.State == judge.StatePending && slices.Contains(profiles, name)
		if !concerns || name != "" && !isOfProfile && !j.WasFailedFor(name) {
			continue
		}
		listed = append(listed, p.list(j, note, profiles, name))
	}
	slices.SortFunc(listed, func(a, b Listed) int { return strings.Compare(a.Volume, b.Volume) })
	return listed, isHeld
}

// list returns the entry of one volume. of limits the exceptions to one profile. Empty means all.
func (p *planner) list(j evaluation, note Note, profiles []string, of string) Listed {
	source := j.Source
	out := Listed{
		Volume: j.Volume.Name, Driver: source.Driver, Protocol: source.Protocol, Profiles: profiles,
		Now: nonNilList(j.Volume.Spec.MountOptions), Desired: nonNilList(j.desiredOptions()), Reason: note.Reason,
	}
	var names []string
	if of != "" {
		names = []string{of}
	}
	out.State, out.Message = j.stateFor(names...)
	if note.State == judge.StatePending && (of == "" || !j.hasOptionsOf(of)) {
		out.State = VolumePending
	}
	if out.State != VolumeException || j.verdict.State == judge.StateHeld {
		out.Message = note.Message
	}
	for _, r := range []*optionset.Record{p.blamed[j.Volume.Name], p.sets[j.verdict.Set]} {
		if b := r.BlameOf(j.Volume.Name); b != nil {
			out.Message += "; it could not be mounted with " + judge.BlameText(r, *b)
			break
		}
	}
	if out.State == VolumeException {
		out.Exceptions = differencesFrom(j.verdict, names)
	}
	if volumeClaim, named := judge.ClaimOf(j.Volume); named {
		out.VolumeClaim = volumeClaim.String()
	}
	return out
}

func (j evaluation) desiredOptions() []string {
	switch j.verdict.Action {
	case judge.ActionWrite, judge.ActionRestore:
		return j.verdict.Options
	case judge.ActionNone, judge.ActionRelease:
	}
	if j.verdict.Desired == nil || j.verdict.State == judge.StateUpToDate {
		return j.Volume.Spec.MountOptions
	}
	return j.verdict.Desired
}

// nonNilList returns a list that is never nil, so that JSON shows an empty one.
func nonNilList(list []string) []string {
	if list == nil {
		return []string{}
	}
	return slices.Clone(list)
}

// VolumeState is the state of a volume in output for users. The status of profiles and all commands use it.
type VolumeState string

const (
	// VolumeUpToDate means that the volume has the declared options.
	VolumeUpToDate VolumeState = "UpToDate"
	// VolumePending means that the volume must be written.
	VolumePending VolumeState = "Pending"
	// VolumeException means that the volume differs from the declared options because the rules, or the pause of another profile, allow it.
	VolumeException VolumeState = "Exception"
	// VolumeBlocked means that the volume differs from the declared options until a user resolves the cause.
	VolumeBlocked VolumeState = "Blocked"
	// VolumeHeld means that the volume stays unchanged because its profile does not act.
	VolumeHeld VolumeState = "Held"
)

// VolumeStates are all states, in the order of summaries.
var VolumeStates = []VolumeState{VolumeUpToDate, VolumePending, VolumeException, VolumeBlocked, VolumeHeld}

// stateFor returns the standing of a volume for the named profiles, which count as acting, and its explanation. Without names, it is the standing
// for all profiles as they are. An option of another profile, or a write for it, is no difference for the named ones.
func (j evaluation) stateFor(names ...string) (state VolumeState, message string) {
	v := j.verdict
	if v.State == judge.StateHeld && len(names) == 0 {
		return VolumeHeld, v.Message
	}
	switch v.State {
	case judge.StateHeld:
		return VolumeException, v.Message
	case judge.StateBlocked:
		if v.Exceptions == nil {
			return VolumeBlocked, v.Message
		}
	case judge.StatePending:
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !j.hasOptionsOf(name) }) {
			return VolumePending, v.Message
		}
	case judge.StateUnselected:
		return VolumePending, v.Message
	case judge.StateUpToDate:
	}
	if differences := differencesFrom(v, names); len(differences) > 0 {
		return VolumeException, text.Join(differences, "; ")
	}
	return VolumeUpToDate, v.Message
}

// hasOptionsOf reports whether a pending write takes and adds none of the options of a profile: the volume waits for another one.
func (j evaluation) hasOptionsOf(profile string) bool {
	current, v := j.Volume.Spec.MountOptions, j.verdict
	return v.Action == judge.ActionWrite &&
		!slices.ContainsFunc(v.Carried[profile], func(o string) bool { return !slices.Contains(current, o) }) &&
		!slices.ContainsFunc(current, func(o string) bool { return !slices.Contains(v.Options, o) })
}

// differencesFrom returns the differences from the named profiles that their rules allow, sorted. Without names, it returns those from all profiles.
func differencesFrom(v *judge.Verdict, names []string) []string {
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(v.Exceptions))
	}
	return lists.Distinct(lists.Each(names, func(name string) []string { return v.Exceptions[name] })...)
}
