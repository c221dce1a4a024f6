package view

import (
	"fmt"
	"strings"

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
	rows := [][]string{}
	for _, profile := range p.Profiles {
		rows = append(rows, []string{code(profile.Name), profile.Action, fmt.Sprint(profile.Nodes), fmt.Sprint(profile.ChangedNodes), fmt.Sprint(profile.Reboots), p.volumesOf(profile)})
	}
	out.WriteString(table([]string{"Profile", "Action", "Nodes", "Changed", "Reboots", "Volumes"}, rows))
	p.markFields(&out)
	p.markNodes(&out)
	p.markReboots(&out)
	p.markVolumes(&out)
	rows = nil
	for _, c := range p.Conflicts {
		rows = append(rows, []string{escape(c.Text), escape(text.List(c.Nodes))})
	}
	fold(&out, "Conflicts between profiles of equal priority", []string{"Conflict", "Nodes"}, rows)
	rows = nil
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
	var rows [][]string
	for _, r := range p.Reboots {
		rows = append(rows, []string{code(r.Node), escape(r.Zone), escape(strings.Join(r.Profiles, ", ")), podsText(r.Pods), escape(rebootReason(r.JointReboot))})
	}
	if len(rows) > 0 {
		out.WriteByte('\n')
		for _, line := range p.rebootLines() {
			fmt.Fprintf(out, "- %s\n", escape(line))
		}
	}
	fold(out, p.rebootTitle(), []string{"Node", "Zone", "For", "Pods", "Reason"}, rows)
	rows = nil
	for _, r := range p.NotRebooted {
		rows = append(rows, []string{code(r.Node), escape(strings.Join(r.Reasons, "; ")), escape(r.Held)})
	}
	fold(out, count(int32(len(rows)), "node")+" would not be rebooted", []string{"Node", "Desired", "Blocked by"}, rows)
}

func (p FilePlan) markVolumes(out *strings.Builder) {
	if p.Volumes == nil {
		return
	}
	var rows [][]string
	for _, g := range groupVolumes(p.Volumes.Changes) {
		rows = append(rows, []string{fmt.Sprint(len(g.names)), escape(text.List(g.names)), code(listOf(g.Old)), code(listOf(g.New))})
	}
	fold(out, count(int32(len(p.Volumes.Changes)), "volume")+" would change", []string{"Number", "Volumes", "Old", "New"}, rows)
	rows = nil
	for _, c := range p.unchangedVolumes() {
		rows = append(rows, []string{code(c.Volume), escape(c.Reason), escape(c.Message)})
	}
	fold(out, count(int32(len(rows)), "volume")+" left unchanged", []string{"Volume", "Reason", "Message"}, rows)
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
