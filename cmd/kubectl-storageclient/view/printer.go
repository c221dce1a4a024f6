package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// printer keeps the first error, so that one check is enough for all output.
type printer struct {
	w   io.Writer
	err error
}

// line prints one line. Line ends at the start and the end are blank lines. All others belong to data, and it shows them as escapes.
func (p *printer) line(s string) {
	if p.err == nil {
		body := strings.Trim(s, "\n")
		_, p.err = fmt.Fprintln(p.w, strings.Replace(s, body, text.Escape(body, ""), 1))
	}
}

// lines prints texts with a prefix, one line for each text.
func (p *printer) lines(prefix string, all []string) {
	for _, s := range all {
		p.line(prefix + s)
	}
}

// message prints the message about an object of a table, if there is one.
func (p *printer) message(name, message string) {
	if message != "" {
		p.line(fmt.Sprintf("  %s: %s", name, message))
	}
}

func (p *printer) block(s, indent string) {
	for line := range strings.Lines(s) {
		p.line(indent + strings.TrimSuffix(line, "\n"))
	}
}

func (p *printer) table(rows [][]string) {
	if p.err != nil {
		return
	}
	const padding = 3
	tabs := tabwriter.NewWriter(p.w, 0, 0, padding, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = cmp.Or(text.Escape(row[i], ""), "-")
		}
		if _, p.err = fmt.Fprintln(tabs, strings.Join(row, "\t")); p.err != nil {
			return
		}
	}
	p.err = tabs.Flush()
}

// writeTable prints a table with one row for each item. It cuts rows to the columns of the header.
func writeTable[T any](p *printer, header []string, items []T, row func(T) []string) {
	p.table(append([][]string{header}, lists.Each(items, func(item T) []string { return row(item)[:len(header)] })...))
}

// writeSection prints a title and a table. It prints neither without items.
func writeSection[T any](p *printer, title string, header []string, items []T, row func(T) []string) {
	if len(items) > 0 {
		p.line("\n" + title)
		writeTable(p, header, items, row)
	}
}

// Prefixes of names in the output of -o name.
const (
	profileResource = "storageclientprofile.tuning.storageclient.dev/"
	nodeResource    = "storageclientnode.tuning.storageclient.dev/"
	volumeResource  = "persistentvolume/"
)

// Names returns the output of -o name.
func (s Status) Names() []string {
	return lists.Each(s.Profiles, func(p Profile) string { return profileResource + p.Name })
}

// Names returns the output of -o name.
func (p Plan) Names() []string { return []string{profileResource + p.Name} }

// Names returns the output of -o name.
func (r NodeReport) Names() []string { return []string{nodeResource + r.Name} }

// Names returns the output of -o name.
func (v VolumeReport) Names() []string {
	return lists.Each(v.Volumes, func(volume Volume) string { return volumeResource + volume.Volume })
}

// Names returns the output of -o name: the nodes and volumes that differ.
func (d Diff) Names() []string {
	var names []string
	for _, g := range d.Groups {
		names = append(names, lists.Each(g.Nodes, func(node string) string { return nodeResource + node })...)
	}
	for _, g := range d.Volumes {
		names = append(names, lists.Each(g.Volumes, func(volume string) string { return volumeResource + volume })...)
	}
	return names
}
