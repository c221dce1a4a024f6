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

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/verdict"
)

var update = flag.Bool("update", false, "write the table into docs/values.md")

type document struct {
	ID, Title, Address, Guide, Profile, Try string
}

// figure is one measured comparison of another run than effects.json, with its command.
type figure struct {
	Compared, Counts, Time, Run string
}

type row struct {
	ID, Item, Setting string
	Rules             []string
	Figures           []figure
	// Note is about the row's comparisons in effects.json.
	Note string
	// Verified is the value that a test reads back for a row without an effect on speed.
	Verified    string
	NotMeasured string
}

type table struct {
	Documents []document
	Rows      []row

	measured Effects
}

// effects returns the comparisons of a row.
func (all table) effects(id string) (found []Effect) {
	for _, e := range all.measured.Effects {
		if e.Row == id {
			found = append(found, e)
		}
	}
	return found
}

func read(t *testing.T) table {
	t.Helper()
	content, err := os.ReadFile("rows.yaml")
	check.NoError(t, err)
	var all table
	check.NoError(t, yaml.UnmarshalStrict(content, &all))
	content, err = os.ReadFile("effects.json")
	check.NoError(t, err)
	check.NoError(t, yaml.UnmarshalStrict(content, &all.measured))
	return all
}

func page(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../..", path))
	check.NoError(t, err)
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
		for _, isGiven := range []bool{len(r.Figures)+len(all.effects(r.ID)) > 0, r.Verified != "", r.NotMeasured != ""} {
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

// Users repeat each recorded comparison with the end-to-end test, and the documentation has each comparison of that test.
func TestTheRecordedEffectsAreThoseOfTheEndToEndTest(t *testing.T) {
	var want, got []string
	for _, match := range regexp.MustCompile(`(?s)(?:seed|Row): "([A-D]\d+)",\s*(?:name|Compared): "([^"]*)"`).FindAllStringSubmatch(page(t, "test/e2e/effects_test.go"), -1) {
		want = append(want, match[1]+": "+match[2])
	}
	all := read(t)
	for _, e := range all.measured.Effects {
		got = append(got, e.Row+": "+e.Compared)
		if !slices.ContainsFunc(all.Rows, func(r row) bool { return r.ID == e.Row }) {
			t.Errorf("%s is no row", e.Row)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("comparisons of test/e2e/effects_test.go and of effects.json: %s", diff)
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
		check.NoError(t, os.WriteFile(path, []byte(want), 0o600))
	} else if diff := cmp.Diff(want, content); diff != "" {
		t.Errorf("run go test ./test/documents -update: %s", diff)
	}
}

func (all table) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Kernel %s on the node and its server, %d rounds.\n\n", all.measured.Kernel, all.measured.Rounds)
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
		out.WriteString("\n\n| row | recommendation | in a profile | advice | compared | server | counts | time |\n|---|---|---|---|---|---|---|---|\n")
		for _, r := range all.Rows {
			if strings.HasPrefix(r.ID, d.ID) {
				out.WriteString(r.markdown(all.effects(r.ID)))
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (r row) markdown(effects []Effect) string {
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
		return fmt.Sprintf("%s verified: %s | – | – | – |\n", first, r.Verified)
	case r.NotMeasured != "":
		return fmt.Sprintf("%s not measured: %s | – | – | – |\n", first, r.NotMeasured)
	}
	var out strings.Builder
	for i, e := range effects {
		took := e.time()
		if i == len(effects)-1 && r.Note != "" {
			took += ". " + r.Note
		}
		fmt.Fprintf(&out, "%s %s | %s | %s | %s |\n", first, e.Compared, e.Server, e.counts(), took)
		first = "| | | | |"
	}
	for _, f := range r.Figures {
		fmt.Fprintf(&out, "%s %s (%s) | – | %s | %s |\n", first, f.Compared, f.Run, f.Counts, f.Time)
		first = "| | | | |"
	}
	return out.String()
}

// counts returns the counts that differ, or else the number of requests.
func (e Effect) counts() string {
	var parts []string
	for i, r := range e.Results {
		isRepeated := slices.ContainsFunc(e.Results[i+1:], func(next Result) bool { return next.Before == r.Before && next.After == r.After })
		if r.Metric != verdict.Seconds && !isRepeated && (r.Outcome == verdict.Better || r.Outcome == verdict.Worse) {
			parts = append(parts, r.counts())
		}
	}
	if all := e.Result(verdict.Operations); len(parts) == 0 && all.Metric != "" {
		parts = append(parts, all.counts())
	}
	if len(parts) == 0 {
		return "–"
	}
	slices.Reverse(parts)
	return strings.Join(parts, ", ")
}

func (r Result) counts() string {
	if r.Metric == verdict.Bytes {
		return fmt.Sprintf("bytes %s → %s", inBytes(r.Before), inBytes(r.After))
	}
	name := r.Metric
	if name == verdict.Operations {
		name = "requests"
	}
	return fmt.Sprintf("%s %s → %s", name, grouped(r.Before), grouped(r.After))
}

func (e Effect) time() string {
	r := e.Result(verdict.Seconds)
	ratio := fmt.Sprintf("×%.2f to %.2f", r.Low, r.High)
	if r.Outcome != verdict.Better && r.Outcome != verdict.Worse {
		return "**no difference shown** (" + ratio + ")"
	}
	return fmt.Sprintf("%s → %s (%s)", strings.TrimSuffix(seconds(r.Before), " s"), seconds(r.After), ratio)
}

func seconds(n float64) string {
	return fmt.Sprintf("%.*f s", map[bool]int{true: 1, false: 2}[n >= 10], n)
}

func inBytes(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0f kB", n/1e3)
	}
	return grouped(n)
}

// grouped returns an integer with commas.
func grouped(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	if len(digits) > 3 {
		return digits[:len(digits)-3] + "," + digits[len(digits)-3:]
	}
	return digits
}

// The front pages have the figures of the first recorded comparison.
func TestTheFrontPagesHaveTheMeasuredEffect(t *testing.T) {
	e := read(t).effects("A1")[0]
	requests, took := e.Result("GETATTR"), e.Result(verdict.Seconds)
	for _, path := range []string{"README.md", "docs/index.md"} {
		content := strings.Join(strings.Fields(page(t, path)), " ")
		for _, figure := range []string{grouped(requests.Before), " " + grouped(requests.After) + " ", seconds(took.Before), seconds(took.After)} {
			if !strings.Contains(content, figure) {
				t.Errorf("%s does not contain %q", path, figure)
			}
		}
	}
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

// A mount option in the guide and in the profile of a document has the same values in both. So has the example of the front page, which is for Azure Files.
func TestGuidesAndProfilesAgree(t *testing.T) {
	compare := func(guide, path, profile string) {
		inGuide, inProfile := valuesOf(t, examplesOf(t, guide)), valuesOf(t, profile)
		common := 0
		for _, option := range sets.List(sets.KeySet(inProfile)) {
			if _, isInBoth := inGuide[option]; !isInBoth {
				continue
			}
			common++
			if foreign := inProfile[option].Difference(inGuide[option]); len(foreign) > 0 {
				t.Errorf("%s has %s=%v, %s has %v", path, option, sets.List(foreign), guide, sets.List(inGuide[option]))
			}
		}
		if common == 0 {
			t.Errorf("%s and %s have no mount option in common", path, guide)
		}
	}
	for _, d := range read(t).Documents {
		path := d.Profile + "/profile.yaml"
		compare(d.Guide, path, page(t, path))
	}
	compare("docs/guides/azure-files.md", "README.md", examplesOf(t, "README.md"))
}

// examplesOf returns the YAML examples of a page.
func examplesOf(t *testing.T, path string) string {
	t.Helper()
	var examples strings.Builder
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page(t, path), -1) {
		examples.WriteString("\n---\n" + block[1])
	}
	return examples.String()
}

// valuesOf returns the values of the mount options in profiles, by protocol and name.
func valuesOf(t *testing.T, manifests string) map[string]sets.Set[string] {
	t.Helper()
	values := map[string]sets.Set[string]{}
	for _, manifest := range regexp.MustCompile(`(?m)^---$`).Split(manifests, -1) {
		var p v1alpha1.StorageClientProfile
		check.NoError(t, yaml.Unmarshal([]byte(manifest), &p))
		for _, rule := range p.Spec.Volumes {
			for _, o := range rule.MountOptions {
				name, value, _ := strings.Cut(string(o), "=")
				key := fmt.Sprint(rule.Selector.Protocols, " ", name)
				values[key] = values[key].Union(sets.New(value))
			}
		}
	}
	return values
}
