package sample

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/tuning/recommend"
)

// shownOperations is the maximum number of operation kinds in the text output. Kinds with the longest execution time come first.
const shownOperations = 8

// Write writes the report as text, JSON, or YAML.
func (r Report) Write(w io.Writer, format string) error {
	return localreport.Encode(w, format, r, r.renderText)
}

func (r Report) renderText() ([]byte, error) {
	var b bytes.Buffer
	if len(r.Mounts) == 0 {
		return []byte("No NFS, SMB, or XFS file system was mounted during the whole measurement.\n"), nil
	}
	for i, m := range r.Mounts {
		if i > 0 {
			b.WriteString("\n")
		}
		if err := writeText(&b, m); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func writeText(b *bytes.Buffer, m recommend.Mount) error {
	about := m.Protocol
	if m.Volume != "" {
		about += ", volume " + m.Volume
	}
	localreport.Printf(b, "%s (%s)\n  %s\n", nameOf(m), about, m.Verdict.Summary)
	writeOperations(b, m)
	for _, f := range m.Verdict.Findings {
		localreport.Printf(b, "\n  %s: %s.\n    expected: %s\n", f.Rule, f.Seen, f.Effect)
		if f.Against != "" {
			localreport.Printf(b, "    against:  %s\n", f.Against)
		}
		if err := writeChange(b, f.Change); err != nil {
			return err
		}
	}
	return nil
}

func writeOperations(b *bytes.Buffer, m recommend.Mount) {
	if len(m.Operations) == 0 {
		return
	}
	longest := slices.SortedStableFunc(slices.Values(m.Operations), func(a, b recommend.Operation) int {
		return cmp.Or(cmp.Compare(b.ExecutionMillis, a.ExecutionMillis), cmp.Compare(b.Count, a.Count))
	})
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "  operation\tcount\tper second\tqueue ms\tround trip ms\tKiB each\terrors\t")
	for _, o := range longest[:min(len(longest), shownOperations)] {
		n := float64(o.Count)
		localreport.Printf(table, "  %s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t\n", o.Name, o.Count, n/m.Seconds, float64(o.QueueMillis)/n,
			float64(o.RoundTripMillis)/n, float64(o.BytesSent+o.BytesReceived)/n/1024, o.Errors)
	}
	_ = table.Flush()
	if hidden := len(longest) - shownOperations; hidden > 0 {
		localreport.Printf(b, "  and %d more, with -o json\n", hidden)
	}
}

// writeChange prints the recommended change in the form of a profile.
func writeChange(b *bytes.Buffer, c recommend.Change) error {
	if c.MountOptions == nil && c.ReadAheadKiB == 0 && c.Node == nil {
		return nil
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	b.WriteString("    declare:\n")
	for line := range strings.Lines(string(data)) {
		b.WriteString("      " + line)
	}
	return nil
}
