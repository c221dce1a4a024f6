package view

import (
	"fmt"
	"io"
	"strconv"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/terminal"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

// Recommendation is the output of "recommend".
type Recommendation struct {
	Namespace   string `json:"namespace"`
	VolumeClaim string `json:"volumeClaim"`
	Volume      string `json:"volume"`
	// Seconds is the requested length of the window.
	Seconds int `json:"seconds"`
	// Summary is the combined result of all mounts.
	Summary string `json:"summary"`
	// Mounts are the measured mounts with their verdicts.
	Mounts []recommend.Mount `json:"mounts"`
	// MountsOmitted is the number of mounts that nodes omitted for lack of space.
	MountsOmitted int `json:"mountsOmitted,omitempty"`
	// Silent are nodes without a sample. NotSampled is the number of other nodes with the volume.
	Silent     []SilentNode `json:"silent,omitempty"`
	NotSampled int          `json:"notAsked,omitempty"`
	// Proposal is the proposed change. Empty if there is none.
	Proposal recommend.Proposal `json:"proposal,omitzero"`
	// Notes contain missing and additional information about the proposal.
	Notes []string `json:"notes,omitempty"`
}

// SilentNode is a node without a sample.
type SilentNode struct {
	Node   string `json:"node"`
	Reason string `json:"why"`
}

// Names returns the names of the proposed profiles.
func (r Recommendation) Names() []string {
	return lists.Each(r.Proposal.Profiles, func(p v1alpha1.StorageClientProfile) string { return profileResource + p.Name })
}

// SampledNodes returns the nodes with a sample.
func (r *Recommendation) SampledNodes() []string {
	return lists.AddMissing(nil, lists.Each(r.Mounts, func(m recommend.Mount) string { return m.Node })...)
}

// Propose adds the proposal and the summary.
func (r *Recommendation) Propose(t recommend.Target, notes []string) {
	r.Proposal = recommend.Propose(t, recommend.FindingsOf(r.Mounts))
	if len(r.Proposal.Profiles) > 0 {
		r.Notes = notes
	}
	r.Summary = r.sumUp()
}

func (r *Recommendation) sumUp() string {
	outcome := recommend.Conclude(r.Mounts)
	if outcome == recommend.Helps && len(r.Proposal.Profiles) > 0 {
		return "A client setting helps: the profile below declares it."
	}
	if outcome == recommend.Helps {
		outcome = recommend.MayHelp
	}
	return outcome.Text()
}

// WriteText prints the recommendation for users, followed by a profile that can be applied.
func (r *Recommendation) WriteText(w io.Writer, _ bool) error {
	out := &printer{w: w}
	out.line(fmt.Sprintf("%s/%s, volume %s, %d s on %s:\n", r.Namespace, r.VolumeClaim, r.Volume, r.Seconds, text.Count(len(r.SampledNodes()), "node")))
	rows := [][]string{{"NODE", "MOUNT", "PROTOCOL", "SECONDS", "VERDICT"}}
	for _, m := range r.Mounts {
		rows = append(rows, []string{m.Node, sourceOf(m), m.Protocol, strconv.FormatFloat(m.Seconds, 'f', 0, 64), m.Verdict.Summary})
	}
	for _, s := range r.Silent {
		rows = append(rows, []string{s.Node, "", "", "", "No sample: " + s.Reason})
	}
	out.table(rows)
	if r.MountsOmitted > 0 {
		out.line(fmt.Sprintf("%s omitted: the reports of the nodes are full.", text.Count(r.MountsOmitted, "mount")))
	}
	if r.NotSampled > 0 {
		out.line(fmt.Sprintf("Not measured, because %d are enough: %s.", len(r.SampledNodes())+len(r.Silent), text.Count(r.NotSampled, "node")))
	}
	for _, g := range recommend.ByRule(r.Mounts) {
		writeFindings(out, g)
	}
	out.line("\n" + r.Summary)
	r.writeProposal(out)
	return out.err
}

func sourceOf(m recommend.Mount) string {
	if m.Server == "" {
		return m.MountPoint
	}
	return m.Server + ":" + m.Export
}

// writeFindings prints the findings of a rule on several mounts once.
func writeFindings(out *printer, g recommend.Group) {
	out.line("\n" + g.Rule.ID + " (" + string(g.Rule.Cause) + "): " + g.Rule.Title)
	const maxFindings = 3
	for i, f := range g.Findings[:min(len(g.Findings), maxFindings)] {
		out.line(fmt.Sprintf("  %s: %s, expected: %s", g.Nodes[i], f.Seen, f.Effect))
	}
	if rest := len(g.Findings) - maxFindings; rest > 0 {
		out.line(fmt.Sprintf("  and on %d more", rest))
	}
	last := g.Findings[len(g.Findings)-1]
	if last.Against != "" {
		out.line("  risk:    " + last.Against)
	}
	out.line("  source:  " + last.Source)
}

func (r *Recommendation) writeProposal(out *printer) {
	out.lines("Not in a profile; declare it yourself if it is safe: ", r.Proposal.LeftOut)
	out.lines("", r.Notes)
	if len(r.Proposal.Profiles) == 0 {
		return
	}
	for _, p := range r.Proposal.Profiles {
		out.writeAdvice(p.Name, r.Proposal.Advice[p.Name])
	}
	out.line("\n# Save this, review the changes with: kubectl storageclient plan -f FILE, and apply it with: kubectl apply -f FILE")
	out.lines("# ", r.Proposal.Changes)
	for i := range r.Proposal.Profiles {
		data, err := terminal.YAML(r.Proposal.Profiles[i])
		if err != nil {
			out.err = err
			return
		}
		out.line("---")
		out.block(string(data), "")
	}
}
