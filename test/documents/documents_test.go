// Package documents keeps the table of the four source documents in docs/values.md, and the ways from the front page to it.
package documents

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/tuning/advice"
)

var update = flag.Bool("update", false, "write the table into docs/values.md")

type document struct {
	ID, Title, Address, Guide, Profile, Try string
}

// figure is one measured comparison. Run names the run if it is not that of the label effects.
type figure struct {
	Compared, Counts, Time, Run string
}

type row struct {
	ID, Item, Setting string
	Rules             []string
	Figures           []figure
	// Verified is the value that a test reads back for a row without an effect on speed.
	Verified    string
	NotMeasured string
}

type table struct {
	Documents []document
	Rows      []row
}

func read(t *testing.T) table {
	t.Helper()
	content, err := os.ReadFile("rows.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all table
	if err := yaml.UnmarshalStrict(content, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func page(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The end-to-end test has the rows of the documents with their settings, so it decides which rows exist.
func TestEachRowOfTheDocumentsHasAFigureOrAReason(t *testing.T) {
	all := read(t)
	rules := sets.New[string]()
	for _, r := range advice.Rules() {
		rules.Insert(r.ID)
	}
	var ids []string
	for _, r := range all.Rows {
		ids = append(ids, r.ID)
		answers := 0
		for _, isGiven := range []bool{len(r.Figures) > 0, r.Verified != "", r.NotMeasured != ""} {
			if isGiven {
				answers++
			}
		}
		if answers != 1 {
			t.Errorf("%s has %d of figures, verified and notMeasured, want one", r.ID, answers)
		}
		if unknown := sets.New(r.Rules...).Difference(rules); len(unknown) > 0 {
			t.Errorf("%s: no advice has the ids %v", r.ID, sets.List(unknown))
		}
		if r.Setting == "" && len(r.Rules) == 0 {
			t.Errorf("%s has neither a setting nor a rule", r.ID)
		}
	}
	var want []string
	for _, match := range regexp.MustCompile(`(?m)^\t\{id: "([A-D]\d+)"`).FindAllStringSubmatch(page(t, "test/e2e/documents_rows_test.go"), -1) {
		want = append(want, match[1])
	}
	if diff := cmp.Diff(want, ids); diff != "" || len(want) == 0 {
		t.Errorf("rows of test/e2e/documents_rows_test.go and of this table: %s", diff)
	}
}

// A measured row without a comparison in the end-to-end test cannot be repeated.
func TestEachFigureOfTheEffectsCanBeRepeated(t *testing.T) {
	claims := page(t, "test/e2e/effects_test.go")
	for _, r := range read(t).Rows {
		isRepeated := slices.ContainsFunc(r.Figures, func(f figure) bool { return f.Run == "" })
		if isRepeated && !regexp.MustCompile(`seed: "([A-Z0-9, ]*, )?`+r.ID+`[",]`).MatchString(claims) {
			t.Errorf("%s has a figure, and test/e2e/effects_test.go has no claim with that row", r.ID)
		}
	}
}

func TestTheTableInTheDocumentationIsCurrent(t *testing.T) {
	const path = "../../docs/values.md"
	const begin, end = "<!-- test/documents/rows.yaml: begin -->\n", "<!-- end -->\n"
	content := page(t, "docs/values.md")
	head, rest, hasBegin := strings.Cut(content, begin)
	_, tail, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no place for the table", path)
	}
	want := head + begin + "\n" + read(t).markdown() + "\n" + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, content); diff != "" {
		t.Errorf("run go test ./test/documents -update: %s", diff)
	}
}

func (all table) markdown() string {
	var out strings.Builder
	for _, d := range all.Documents {
		title := d.Title
		if d.Address != "" {
			title = fmt.Sprintf("[%s](%s)", d.Title, d.Address)
		}
		fmt.Fprintf(&out, "### %s: %s\n\n", d.ID, title)
		fmt.Fprintf(&out, "Guide: [%s](%s). Profile: [%s](../%s).", filepath.Base(d.Guide), strings.TrimPrefix(d.Guide, "docs/"), filepath.Base(d.Profile), d.Profile)
		if d.Try != "" {
			fmt.Fprintf(&out, " On your own volume:\n\n```sh\n%s\n```", d.Try)
		} else {
			out.WriteString(" Trials mount NFS and SMB only, so measure your own work before and after.")
		}
		out.WriteString("\n\n| row | recommendation | in a profile | advice | compared | counts | time |\n|---|---|---|---|---|---|---|\n")
		for _, r := range all.Rows {
			if strings.HasPrefix(r.ID, d.ID) {
				out.WriteString(r.markdown())
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (r row) markdown() string {
	field, rules := "–", "–"
	if r.Setting != "" {
		field = "`" + strings.ReplaceAll(r.Setting, ", ", "`, `") + "`"
	}
	if len(r.Rules) > 0 {
		rules = "`" + strings.Join(r.Rules, "`, `") + "`"
	}
	first := fmt.Sprintf("| %s | %s | %s | %s |", r.ID, r.Item, field, rules)
	switch {
	case r.Verified != "":
		return fmt.Sprintf("%s verified: %s | – | – |\n", first, r.Verified)
	case r.NotMeasured != "":
		return fmt.Sprintf("%s not measured: %s | – | – |\n", first, r.NotMeasured)
	}
	var out strings.Builder
	for _, f := range r.Figures {
		compared := f.Compared
		if f.Run != "" {
			compared += " (" + f.Run + ")"
		}
		fmt.Fprintf(&out, "%s %s | %s | %s |\n", first, compared, f.Counts, f.Time)
		first = "| | | | |"
	}
	return out.String()
}

// Each page that a reader opens first names the commands that measure on the reader's own volume.
func TestTheFirstPagesNameTrialsAndRecommendations(t *testing.T) {
	guides, err := filepath.Glob("../../docs/guides/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatal(guides, err)
	}
	pages := []string{"README.md", "docs/index.md"}
	for _, guide := range guides {
		pages = append(pages, "docs/guides/"+filepath.Base(guide))
	}
	for _, path := range pages {
		wanted := []string{"kubectl storageclient trial ", "kubectl storageclient recommend "}
		if path == "docs/guides/xfs.md" {
			wanted = []string{"Trials mount NFS and SMB only"}
		}
		for _, command := range wanted {
			if !strings.Contains(page(t, path), command) {
				t.Errorf("%s does not contain %q", path, command)
			}
		}
	}
}

// A reader of one of the documents finds its guide, profile and rows from the guides' index.
func TestTheGuidesNameEachDocument(t *testing.T) {
	index := page(t, "docs/guides/index.md")
	for _, d := range read(t).Documents {
		for _, path := range []string{strings.TrimPrefix(d.Guide, "docs/guides/"), "../../" + d.Profile} {
			if !strings.Contains(index, "]("+path) {
				t.Errorf("docs/guides/index.md has no link to %s for document %s", path, d.ID)
			}
		}
		if d.Address != "" && !strings.Contains(index, d.Address) {
			t.Errorf("docs/guides/index.md does not contain the address of document %s, %s", d.ID, d.Address)
		}
		if _, err := os.Stat(filepath.Join("../..", d.Profile)); err != nil {
			t.Error(err)
		}
	}
}
