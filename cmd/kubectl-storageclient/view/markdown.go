package view

import (
	"fmt"
	"strings"

	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// maxCommentRows is the maximum number of rows of a table in a comment: GitHub accepts 65,536 characters.
const maxCommentRows = 50

// Markdown returns the plan as a comment for a pull request: the summary first, then collapsed tables.
func (p FilePlan) Markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "### Storage client plan\n\n%s\n", escape(p.Summary))
	for _, rejection := range p.Rejections() {
		fmt.Fprintf(&out, "\n> **Rejected:** %s\n", escape(rejection))
	}
	out.WriteString(table([]string{"Profile", "Action", "Nodes", "Changed", "Reboots", "Volumes"}, lists.Each(p.Profiles, func(profile FileProfile) []string {
		return []string{code(profile.Name), profile.Action, fmt.Sprint(profile.Nodes), fmt.Sprint(profile.ChangedNodes), fmt.Sprint(profile.Reboots), p.volumesOf(profile)}
	})))
	p.markFields(&out)
	p.markNodes(&out)
	p.markReboots(&out)
	p.markVolumes(&out)
	fold(&out, "Conflicts between profiles of equal priority", []string{"Conflict", "Nodes"}, lists.Each(p.Conflicts, func(c overview.Dispute) []string {
		return []string{escape(c.Text), escape(text.List(c.Nodes))}
	}))
	var rows [][]string
	for _, profile := range p.Profiles {
		for _, note := range profile.Notes {
			rows = append(rows, []string{code(profile.Name), "Note", escape(note)})
		}
		for _, a := range profile.Advice {
			rows = append(rows, []string{code(profile.Name), string(a.Severity), escape(a.Text)})
		}
	}
	fold(&out, "Notes and advice", []string{"Profile", "Severity", "Text"}, rows)
	for _, unknown := range p.Unknown {
		fmt.Fprintf(&out, "\n**Unknown:** %s\n", escape(unknown))
	}
	out.WriteString("\nThe plan does not change the cluster.\n")
	return out.String()
}

func (p FilePlan) markFields(out *strings.Builder) {
	var rows [][]string
	for _, profile := range p.Profiles {
		for _, f := range profile.Fields {
			rows = append(rows, []string{code(profile.Name), code(f.Field), code(f.Old), code(f.New)})
		}
	}
	fold(out, "Fields", []string{"Profile", "Field", "Old", "New"}, rows)
}

func (p FilePlan) markNodes(out *strings.Builder) {
	var rows [][]string
	nodes := 0
	for _, c := range p.Nodes {
		nodes += len(c.Nodes)
		for _, s := range c.Settings {
			row := settingRow(s)
			rows = append(rows, []string{escape(text.List(c.Nodes)), code(row[0]), code(row[1]), code(row[2]), code(row[3]), row[4]})
		}
	}
	fold(out, count(int32(nodes), "node")+" would get new settings", []string{"Nodes", "Key", "Old", "New", "Profile", "Takes effect"}, rows)
}

func (p FilePlan) markReboots(out *strings.Builder) {
	if len(p.Reboots) > 0 {
		out.WriteByte('\n')
		for _, line := range p.rebootLines() {
			fmt.Fprintf(out, "- %s\n", escape(line))
		}
	}
	fold(out, count(int32(len(p.Reboots)), "node")+rebootTitle, []string{"Node", "Zone", "For", "Pods", "Reason"}, lists.Each(p.Reboots, func(r PlannedReboot) []string {
		return []string{code(r.Node), escape(r.Zone), escape(strings.Join(r.Profiles, ", ")), podsText(r.Pods), escape(rebootReason(r.Reboot))}
	}))
	title := count(int32(len(p.NotRebooted)), "node") + " would not be rebooted"
	fold(out, title, []string{"Node", "Desired", "Blocked by"}, lists.Each(p.NotRebooted, func(r overview.JointReboot) []string {
		return []string{code(r.Node), escape(strings.Join(r.Reasons, "; ")), escape(r.Held)}
	}))
}

func (p FilePlan) markVolumes(out *strings.Builder) {
	if p.Volumes == nil {
		return
	}
	title := count(int32(len(p.Volumes.Changes)), "volume") + " would change"
	fold(out, title, []string{"Number", "Volumes", "Old", "New"}, lists.Each(groupVolumes(p.Volumes.Changes), func(g volumeGroup) []string {
		return []string{fmt.Sprint(len(g.names)), escape(text.List(g.names)), code(listOf(g.Old)), code(listOf(g.New))}
	}))
	for _, changed := range []bool{false, true} {
		volumes := p.differingVolumes(changed)
		fold(out, differingTitle(volumes, changed), []string{"Volume", "Reason", "Message"}, lists.Each(volumes, func(c volumeplan.Change) []string {
			return []string{code(c.Volume), escape(c.Reason), escape(c.Message)}
		}))
	}
}

// fold writes a collapsed table. It does not write a table without rows.
func fold(out *strings.Builder, title string, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(out, "\n<details><summary>%s</summary>\n", title)
	out.WriteString(table(header, rows[:min(maxCommentRows, len(rows))]))
	if rest := len(rows) - maxCommentRows; rest > 0 {
		fmt.Fprintf(out, "\n%d more rows: see the plan with -o json.\n", rest)
	}
	out.WriteString("\n</details>\n")
}

func table(header []string, rows [][]string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat(" --- |", len(header)))
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
	}
	return out.String()
}

// escape prevents text from clusters and files from being parsed as Markdown, HTML or a mention.
func escape(s string) string {
	return strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "@", "&#64;", "#", "\\#").Replace(text.Escape(s, ""))
}

// code formats a value as code. It replaces backquotes, which would end the code.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.NewReplacer("`", "'", "|", "\\|").Replace(text.Escape(s, "")) + "`"
}
