package view

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Diff is the output of "diff": the desired state of a profile compared with the current state.
type Diff struct {
	Name string `json:"name"`
	// Held is the reason why the profile is not applied. Empty if it is applied.
	Held string `json:"held,omitempty"`
	overview.Diff
	// NodesRead is false if no data about nodes could be read.
	NodesRead bool `json:"nodesRead"`
	// Volumes are the volumes whose mount options differ from the desired ones, or keep a value of the volume. VolumesSame is the number
	// of other volumes.
	Volumes     []VolumeDiff `json:"volumes,omitempty"`
	VolumesSame int          `json:"volumesSame"`
	// Unknown lists data that could not be read.
	Unknown []string `json:"unknown,omitempty"`
}

// VolumeDiff describes volumes with the same difference.
type VolumeDiff struct {
	// Volumes are sorted.
	Volumes []string `json:"volumes"`
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Kept describes values that the rules leave different from the declared ones.
	Kept   []string               `json:"kept,omitempty"`
	State  volumeplan.VolumeState `json:"state"`
	Reason string                 `json:"reason"`
	// Message explains why a volume does not get the declared options. Empty for a volume that gets them.
	Message string `json:"message,omitempty"`
}

// AddVolumes adds the differences of volumes.
func (d *Diff) AddVolumes(listed []volumeplan.Listed) {
	for _, v := range listed {
		if v.State == volumeplan.VolumeUpToDate {
			d.VolumesSame++
			continue
		}
		one := VolumeDiff{Added: without(v.Desired, v.Now), Removed: without(v.Now, v.Desired), State: v.State, Reason: v.Reason, Kept: v.Exceptions}
		if v.State != volumeplan.VolumePending {
			one.Message = v.Message
		}
		same := lists.FindOrAdd(&d.Volumes, func(g VolumeDiff) bool {
			g.Volumes = nil
			return reflect.DeepEqual(g, one)
		}, one)
		same.Volumes = append(same.Volumes, v.Volume)
	}
	slices.SortStableFunc(d.Volumes, func(a, b VolumeDiff) int { return cmp.Compare(len(b.Volumes), len(a.Volumes)) })
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(o string) bool { return slices.Contains(other, o) })
}

// WriteText prints the differences for users. If wide is set, it lists all nodes and volumes of a group.
func (d Diff) WriteText(w io.Writer, wide bool) error {
	out := &printer{w: w}
	names := text.List[[]string]
	if wide {
		names = func(all []string) string { return strings.Join(all, ", ") }
	}
	if d.Refused != "" {
		out.line("Profile " + d.Name + " is invalid; nothing applied. " + d.Refused)
		return out.err
	}
	if d.Held != "" {
		out.line(d.Held)
	}
	for _, g := range d.Groups {
		out.line(fmt.Sprintf("%s (%s):", text.Count(len(g.Nodes), "node"), names(g.Nodes)))
		d.writeSettings(out, g.Settings)
		out.line("")
	}
	switch {
	case len(d.Same) > 0:
		out.line(fmt.Sprintf("%s all settings of %s.", text.Count(len(d.Same), "node has", "nodes have"), d.Name))
	case d.NodesRead && len(d.Groups) == 0:
		out.line("Profile " + d.Name + " selects no nodes.")
	}
	d.writeVolumes(out, names)
	out.lines("\nCannot read ", d.Unknown)
	return out.err
}

func (d Diff) writeSettings(out *printer, settings []overview.Difference) {
	writeTable(out, []string{"KEY", "EFFECTIVE", "DESIRED", "TAKES-EFFECT", "STATE"}, settings, func(s overview.Difference) []string {
		effective, desired := cmp.Or(s.Effective, unknownValue), s.Desired
		if s.OnRemoval != "" {
			desired = "original value"
			if s.OnRemoval == v1alpha1.DeletionRetain {
				desired = "unchanged"
			}
		}
		return []string{s.Key, effective, desired, string(s.TakesEffect), string(s.State)}
	})
	for _, s := range settings {
		out.message(s.Key, s.Message)
	}
}

func (d Diff) writeVolumes(out *printer, names func([]string) string) {
	for _, g := range d.Volumes {
		out.line(fmt.Sprintf("\n%s (%s): %s", text.Count(len(g.Volumes), "volume"), names(g.Volumes), g.Reason))
		out.lines("  - ", g.Removed)
		out.lines("  + ", g.Added)
		switch {
		case g.Message != "":
			out.line("  " + g.Message)
		case len(g.Added)+len(g.Removed) == 0:
			out.line("  the same options in another order")
		}
	}
	if d.VolumesSame > 0 {
		out.line(fmt.Sprintf("\n%s the mount options of %s.", text.Count(d.VolumesSame, "volume has", "volumes have"), d.Name))
	}
}
