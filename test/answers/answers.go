// Package answers writes golden files of results for many combinations of inputs. Rows with the same results become one line, so that a
// diff shows exactly the combinations whose results changed.
package answers

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
)

// Row is one combination, a label for each dimension, with its results.
type Row struct {
	Labels []string
	Answer string
}

// File is a golden file under construction.
type File struct{ text strings.Builder }

// Printf adds text.
func (f *File) Printf(format string, args ...any) { fmt.Fprintf(&f.text, format, args...) }

// Add adds rows. All must have the same number of labels.
func (f *File) Add(rows []Row) {
	for _, r := range collapse(rows) {
		f.Printf("%s: %s\n", strings.Join(r.Labels, " "), r.Answer)
	}
}

// Check compares the file with the stored one, or stores it.
func (f *File) Check(t *testing.T, name string, store bool) {
	t.Helper()
	got := f.text.String()
	if store {
		check.NoError(t, os.WriteFile(name, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(name)
	check.NoError(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs, run with -update if the new results are correct (-want +got):\n%s", name, diff)
	}
}

// collapse joins values of a dimension that have the same rows, from the last dimension to the first. "any" stands for all values of a
// dimension.
func collapse(rows []Row) []Row {
	if len(rows[0].Labels) == 0 {
		return rows[:1]
	}
	var order []string
	byLabel := map[string][]Row{}
	for _, r := range rows {
		label := r.Labels[0]
		if _, seen := byLabel[label]; !seen {
			order = append(order, label)
		}
		byLabel[label] = append(byLabel[label], Row{r.Labels[1:], r.Answer})
	}
	type group struct {
		labels []string
		rows   []Row
	}
	var groups []group
	for _, label := range order {
		inner := collapse(byLabel[label])
		at := slices.IndexFunc(groups, func(g group) bool { return slices.EqualFunc(g.rows, inner, isSame) })
		if at < 0 {
			at, groups = len(groups), append(groups, group{rows: inner})
		}
		groups[at].labels = append(groups[at].labels, label)
	}
	var out []Row
	for _, g := range groups {
		label := strings.Join(g.labels, ",")
		if len(g.labels) == len(order) && len(order) > 1 {
			label = "any"
		}
		for _, r := range g.rows {
			out = append(out, Row{slices.Concat([]string{label}, r.Labels), r.Answer})
		}
	}
	return out
}

func isSame(a, b Row) bool { return a.Answer == b.Answer && slices.Equal(a.Labels, b.Labels) }
