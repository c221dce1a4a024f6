package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

// Recommendation is what "recommend" prints.
type Recommendation struct {
	Namespace   string `json:"namespace"`
	VolumeClaim string `json:"volumeClaim"`
	Volume      string `json:"volume"`
	// Seconds is the window that was asked for.
	Seconds int `json:"seconds"`
	// Summary is what all mounts together say.
	Summary string `json:"summary"`
	// Mounts are what was measured, and what each says.
	Mounts []MeasuredMount `json:"mounts"`
	// MountsOmitted is how many mounts nodes had no room to tell of.
	MountsOmitted int `json:"mountsOmitted,omitempty"`
	// Silent are nodes that gave no sample, NotAsked those that have the volume mounted too.
	Silent   []SilentNode `json:"silent,omitempty"`
	NotAsked []string     `json:"notAsked,omitempty"`
	// Proposal is what to declare; empty where nothing helps.
	Proposal recommend.Proposal `json:"proposal,omitzero"`
	// Notes are what is not known of the proposal, or to be known.
	Notes []string `json:"notes,omitempty"`
}

// MeasuredMount is a mount on a node.
type MeasuredMount struct {
	Node             string `json:"node"`
	recommend.Sample `json:",inline"`
	Verdict          recommend.Verdict `json:"verdict"`
}

// SilentNode is a node that gave no sample.
type SilentNode struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Names are those of the profiles to apply.
func (r Recommendation) Names() []string {
	var names []string
	for i := range r.Proposal.Profiles {
		names = append(names, profileResource+r.Proposal.Profiles[i].Name)
	}
	return names
}

// AddSamples judges what a node has counted.
func (r *Recommendation) AddSamples(node string, samples []recommend.Sample, omitted int) {
	r.MountsOmitted += omitted
	for _, s := range samples {
		r.Mounts = append(r.Mounts, MeasuredMount{Node: node, Sample: s, Verdict: recommend.For(s)})
	}
}

// SampledNodes are the nodes that have told of a mount.
func (r *Recommendation) SampledNodes() []string {
	var nodes []string
	for _, m := range r.Mounts {
		if !slices.Contains(nodes, m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// Propose adds what to declare, and sums up.
func (r *Recommendation) Propose(t recommend.Target, notes []string) {
	var findings []recommend.Finding
	for _, m := range r.Mounts {
		findings = append(findings, m.Verdict.Findings...)
	}
	r.Proposal = recommend.Propose(t, findings)
	if len(r.Proposal.Profiles) > 0 {
		r.Notes = notes
	}
	r.Summary = r.sumUp(findings)
}

func (r *Recommendation) sumUp(findings []recommend.Finding) string {
	helps := slices.ContainsFunc(findings, func(f recommend.Finding) bool { return f.Cause == recommend.CauseClient })
	idle := !slices.ContainsFunc(r.Mounts, func(m MeasuredMount) bool { return !m.Verdict.TooLittle })
	switch {
	case helps && len(r.Proposal.Profiles) > 0:
		return "A setting of the client helps: the profile below declares it."
	case helps:
		return "A setting of the client may help, but only somebody who knows the programs can tell whether it is safe."
	case len(findings) > 0:
		return "No setting of the client will help: the findings say what would."
	case idle:
		return "Too little was done to say anything: measure while the work runs, or for longer (--window)."
	case slices.ContainsFunc(r.Mounts, func(m MeasuredMount) bool { return strings.HasPrefix(m.Protocol, "NFS") }):
		return "The mounts are healthy: nothing stands out, and no change is recommended."
	}
	return "Nothing stands out. Kinds, times and bytes of requests are known of NFS alone, so that little can be said of other mounts."
}

// WriteText prints it for people, with a profile to apply at its end.
func (r *Recommendation) WriteText(w io.Writer) error {
	out := &printer{w: w}
	out.line(fmt.Sprintf("%s/%s, volume %s, %d s on %s:\n", r.Namespace, r.VolumeClaim, r.Volume, r.Seconds, text.Count(len(r.SampledNodes()), "node")))
	rows := [][]string{{"NODE", "MOUNT", "PROTOCOL", "SECONDS", "VERDICT"}}
	for _, m := range r.Mounts {
		rows = append(rows, []string{m.Node, m.source(), m.Protocol, strconv.FormatFloat(m.Seconds, 'f', 0, 64), m.Verdict.Summary})
	}
	for _, s := range r.Silent {
		rows = append(rows, []string{s.Node, "", "", "", "No sample: " + s.Why})
	}
	out.table(rows)
	if r.MountsOmitted > 0 {
		out.line(fmt.Sprintf("%s left out: nodes had no room to tell of more.", text.Count(r.MountsOmitted, "mount")))
	}
	if len(r.NotAsked) > 0 {
		out.line("Not asked: " + text.List(r.NotAsked))
	}
	for _, rule := range recommend.Rules() {
		r.writeFindings(out, rule)
	}
	out.line("\n" + r.Summary)
	r.writeProposal(out)
	return out.err
}

// source is what is mounted.
func (m MeasuredMount) source() string {
	if m.Server == "" {
		return m.MountPoint
	}
	return m.Server + ":" + m.Export
}

// writeFindings says once of a rule what several mounts show.
func (r *Recommendation) writeFindings(out *printer, rule recommend.Rule) {
	var one recommend.Finding
	var seen []string
	for _, m := range r.Mounts {
		for _, f := range m.Verdict.Findings {
			if f.Rule == rule.ID {
				one, seen = f, append(seen, fmt.Sprintf("%s: %s, expected: %s", m.Node, f.Seen, f.Effect))
			}
		}
	}
	if len(seen) == 0 {
		return
	}
	out.line("\n" + rule.ID + " (" + string(rule.Cause) + "): " + rule.Title)
	const shown = 3
	for _, s := range seen[:min(len(seen), shown)] {
		out.line("  " + s)
	}
	if more := len(seen) - shown; more > 0 {
		out.line(fmt.Sprintf("  and on %d more", more))
	}
	if one.Against != "" {
		out.line("  against: " + one.Against)
	}
	out.line("  source:  " + one.Source)
}

func (r *Recommendation) writeProposal(out *printer) {
	for _, left := range r.Proposal.LeftOut {
		out.line("Left out of any profile, to be declared by hand if it is safe: " + left)
	}
	for _, note := range r.Notes {
		out.line(note)
	}
	if len(r.Proposal.Profiles) == 0 {
		return
	}
	out.line("\n# Save this, see what it changes with: kubectl storageclient plan -f FILE, and apply it with: kubectl apply -f FILE")
	for _, change := range r.Proposal.Changes {
		out.line("# " + change)
	}
	for i := range r.Proposal.Profiles {
		data, err := profileYAML(r.Proposal.Profiles[i])
		if err != nil {
			out.err = err
			return
		}
		out.line("---\n" + strings.TrimSuffix(string(data), "\n"))
	}
}

// profileYAML leaves out the status, which nobody applies.
func profileYAML(p v1alpha1.StorageClientProfile) ([]byte, error) {
	return yaml.Marshal(struct {
		APIVersion string                            `json:"apiVersion"`
		Kind       string                            `json:"kind"`
		Metadata   map[string]any                    `json:"metadata"`
		Spec       v1alpha1.StorageClientProfileSpec `json:"spec"`
	}{p.APIVersion, p.Kind, metadataOf(p), p.Spec})
}

func metadataOf(p v1alpha1.StorageClientProfile) map[string]any {
	metadata := map[string]any{"name": p.Name}
	if len(p.Labels) > 0 {
		metadata["labels"] = p.Labels
	}
	return metadata
}
