package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printer keeps the first error, so that one check is enough for all output.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(text string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, text)
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
			row[i] = cmp.Or(strings.ReplaceAll(row[i], "\n", " "), "-")
		}
		if _, p.err = fmt.Fprintln(tabs, strings.Join(row, "\t")); p.err != nil {
			return
		}
	}
	p.err = tabs.Flush()
}

// Prefixes of names in the output of -o name.
const (
	profileResource = "storageclientprofile.tuning.storageclient.dev/"
	nodeResource    = "storageclientnode.tuning.storageclient.dev/"
	volumeResource  = "persistentvolume/"
)
