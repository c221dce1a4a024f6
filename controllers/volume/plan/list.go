package plan

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// Listed is how one volume stands, for people.
type Listed struct {
	// Volume is its name, VolumeClaim the namespace/name of what it is bound to, empty for none.
	Volume      string `json:"volume"`
	VolumeClaim string `json:"volumeClaim,omitempty"`
	// Driver mounts it; Protocol is empty where the driver is not known.
	Driver   string                  `json:"driver,omitempty"`
	Protocol v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	// Profiles are those that select it, or whose options it carries.
	Profiles []string `json:"profiles,omitempty"`
	// Now is the list of the volume, Wanted the one that the profiles ask for, or that is to come back.
	Now    []string `json:"now"`
	Wanted []string `json:"wanted"`
	// State, Reason and Message are the plan's.
	State   judge.State `json:"state"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	// Exceptions say, in words, what stays otherwise than declared since the rules leave it so; none where all is as declared, or will be.
	Exceptions []string `json:"exceptions,omitempty"`
}

// List tells of all volumes that concern a profile, or any profile where the name is empty, by name. As in Summarize, a named
// profile that is paused or in mode Plan is judged as if it acted; held says so.
func List(name string, s Snapshot) (listed []Listed, held bool) {
	if s.Profiles == nil {
		return nil, false
	}
	if name != "" {
		if s.Profiles, held = s.Profiles.Freed(name); held {
			s.Memory = nil
		}
	}
	p := newPlanner(s)
	notes := p.decide().Notes
	for _, j := range p.volumes {
		profiles := slices.Concat(j.verdict.Profiles, judge.CarriedProfiles(j.Volume))
		slices.Sort(profiles)
		profiles = slices.Compact(profiles)
		note, concerns := notes[j.Volume.Name]
		if !concerns || name != "" && !slices.Contains(profiles, name) && !j.WasFailedFor(name) {
			continue
		}
		listed = append(listed, p.list(j, note, profiles, name))
	}
	slices.SortFunc(listed, func(a, b Listed) int { return strings.Compare(a.Volume, b.Volume) })
	return listed, held
}

// list tells of one volume; of one of its profiles, where it is named, what is an exception.
func (p *planner) list(j judged, note Note, profiles []string, of string) Listed {
	source := j.Source
	out := Listed{
		Volume: j.Volume.Name, Driver: source.Driver, Protocol: source.Protocol, Profiles: profiles,
		Now: ownList(j.Volume.Spec.MountOptions), Wanted: ownList(j.wantedList()), State: note.State, Reason: note.Reason, Message: note.Message,
	}
	for _, r := range []*optionset.Record{p.blamed[j.Volume.Name], p.sets[j.verdict.Set]} {
		if b := r.BlameOf(j.Volume.Name); b != nil {
			out.Message += "; it could not be mounted with " + judge.BlameText(r, *b)
			break
		}
	}
	for _, profile := range profiles {
		if of == "" || of == profile {
			out.Exceptions = append(out.Exceptions, j.verdict.Exceptions[profile]...)
		}
	}
	if ref := j.Volume.Spec.ClaimRef; ref != nil {
		out.VolumeClaim = ref.Namespace + "/" + ref.Name
	}
	return out
}

// wantedList is the list that the volume is to have in the end.
func (j judged) wantedList() []string {
	switch j.verdict.Action {
	case judge.ActionWrite, judge.ActionRestore:
		return j.verdict.Options
	case judge.ActionNone, judge.ActionRelease:
	}
	if j.verdict.Wanted == nil || j.verdict.State == judge.StateUpToDate {
		return j.Volume.Spec.MountOptions
	}
	return j.verdict.Wanted
}

// ownList is a list that is never nil, so that JSON shows an empty one.
func ownList(list []string) []string {
	if list == nil {
		return []string{}
	}
	return slices.Clone(list)
}
