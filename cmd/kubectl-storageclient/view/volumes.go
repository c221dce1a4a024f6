package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// VolumeReport is the output of "volumes".
type VolumeReport struct {
	// Profile is the requested profile. Empty for all.
	Profile string `json:"profile,omitempty"`
	// Held is the reason why the profile is not applied and the desired options are not written. Empty if it is applied.
	Held    string   `json:"held,omitempty"`
	Volumes []Volume `json:"volumes"`
}

// Volume is one volume with its remedy.
type Volume struct {
	volumeplan.Listed `json:",inline"`
	// Remedy is the action for the user. Empty if there is none.
	Remedy string `json:"remedy,omitempty"`
}

// VolumeRemedies contains the actions of users, by the reason of a volume.
var VolumeRemedies = map[string]string{
	v1alpha1.VolumeReasonHeld:              "Activate the profile: run \"kubectl storageclient resume PROFILE\", set mode Enforce, or correct the spec.",
	v1alpha1.VolumeReasonIgnored:           "To tune the volume, remove the annotation " + v1alpha1.IgnoreAnnotation + ".",
	v1alpha1.VolumeReasonConflict:          "Restore the mount options that were written last, or give one of the profiles a higher priority; see the message.",
	v1alpha1.VolumeReasonDeclaredElsewhere: "Declare the mount options in the source of the volume, or set gitOpsOwned: Patch in the rule.",
	v1alpha1.VolumeReasonLegacyAnnotation:  "Move the annotation's options to spec.mountOptions and remove the annotation.",
	v1alpha1.VolumeReasonNoClass:           "Create the StorageClass, or exclude the volume from the rule's selector.",
	v1alpha1.VolumeReasonWrongProtocol:     "Set protocols, fsTypes, or drivers in the rule's selector.",
	v1alpha1.VolumeReasonNoMount:           "Exclude the volume from the rule's selector.",
	v1alpha1.VolumeReasonInvalidOptions:    "Change the rule's options; the message lists the conflict.",
	v1alpha1.VolumeReasonFailedMount:       "Change the rule; until then, no volume gets these options.",
}

// NewVolumeReport adds remedies to volumes. held is the reason why the profile is not applied. Empty if it is applied.
func NewVolumeReport(profile, heldReason string, listed []volumeplan.Listed) VolumeReport {
	r := VolumeReport{Profile: profile, Held: heldReason, Volumes: []Volume{}}
	for _, l := range listed {
		r.Volumes = append(r.Volumes, Volume{Listed: l, Remedy: VolumeRemedies[l.Reason]})
	}
	return r
}

// WriteText prints the volumes for users. If wide is set, tables have all columns.
func (r VolumeReport) WriteText(w io.Writer, wide bool) error {
	out := &printer{w: w}
	out.line(r.summarize())
	if r.Held != "" {
		out.line(r.Held)
	}
	if len(r.Volumes) == 0 {
		return out.err
	}
	out.line("")
	header := []string{"VOLUME", "CLAIM", "STATE", "REASON", "CURRENT", "DESIRED"}
	if wide {
		header = append(header, "PROFILES", "DRIVER", "PROTOCOL")
	}
	writeTable(out, header, r.Volumes, func(v Volume) []string {
		return []string{v.Volume, v.VolumeClaim, string(v.State), v.Reason, strings.Join(v.Now, ","), v.desiredText(),
			strings.Join(v.Profiles, ","), v.Driver, string(v.Protocol)}
	})
	r.writeReasons(out)
	return out.err
}

// desiredText returns "unchanged" if the desired options equal the current ones, and "undecided" if a problem prevents a decision.
func (v Volume) desiredText() string {
	switch {
	case slices.Equal(v.Now, v.Desired) && v.State == volumeplan.VolumeBlocked:
		return "undecided"
	case v.State == volumeplan.VolumeUpToDate, slices.Equal(v.Now, v.Desired):
		return "unchanged"
	}
	return cmp.Or(strings.Join(v.Desired, ","), "none")
}

func (r VolumeReport) summarize() string {
	concerns := "any profile"
	if r.Profile != "" {
		concerns = "profile " + r.Profile
	}
	if len(r.Volumes) == 0 {
		return "No volume matches " + concerns + "."
	}
	counts := map[volumeplan.VolumeState]int{}
	for _, v := range r.Volumes {
		counts[v.State]++
	}
	var parts []string
	for _, state := range volumeplan.VolumeStates {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	return fmt.Sprintf("%s %s: %s.", text.Count(len(r.Volumes), "volume matches", "volumes match"), concerns, strings.Join(parts, ", "))
}

// writeReasons prints the reason and the remedy for volumes that are not as declared. Volumes with the same reason and message share
// one entry.
func (r VolumeReport) writeReasons(out *printer) {
	undeclared := lists.Filter(r.Volumes, func(v Volume) bool { return v.State != volumeplan.VolumeUpToDate })
	for _, group := range lists.Group(undeclared, func(v Volume) string { return v.Reason + v.Message }) {
		names, v := lists.Each(group, func(v Volume) string { return v.Volume }), group[0]
		out.line(fmt.Sprintf("\n%s: %s: %s", text.List(names), v.Reason, v.Message))
		if v.Remedy != "" {
			out.line("  Action: " + v.Remedy)
		}
	}
}
