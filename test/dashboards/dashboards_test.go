// Package dashboards compares the dashboards of config/components/dashboards with the metrics of manager and agents. It records metrics
// from the collectors if other packages can run them. Other metrics come from the rows of docs/reference.md, which is generated from the
// source. "make alerts" evaluates the queries.
package dashboards

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
)

const dir = "../../config/components/dashboards"

// dashboard contains the relevant fields of a Grafana dashboard.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		GridPos struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	check.NoError(t, err)
	found := map[string]dashboard{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		check.NoError(t, err)
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[strings.TrimSuffix(filepath.Base(file), ".json")] = d
	}
	if diff := cmp.Diff([]string{"fleet", "node", "profile", "server", "volume"}, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Fatalf("dashboards (-want +got):\n%s", diff)
	}
	return found
}

// served returns the metrics of docs/reference.md with their labels and their sources.
func served(t *testing.T) map[string]metric {
	t.Helper()
	content, err := os.ReadFile("../../docs/reference.md")
	check.NoError(t, err)
	_, agents, found := strings.Cut(string(content), "## Metrics of the node agent")
	if !found {
		t.Fatal("docs/reference.md has no metrics of the agent")
	}
	metrics := map[string]metric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(storageclient_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(content), -1) {
		m := metric{kind: row[2], agent: strings.Contains(agents, "`"+row[1]+"`")}
		if labels := strings.TrimSpace(row[3]); labels != "" {
			m.labels = strings.Split(labels, ", ")
		}
		metrics[row[1]] = m
	}
	if len(metrics) < 40 {
		t.Fatalf("docs/reference.md has only %d metrics", len(metrics))
	}
	return metrics
}

type metric struct {
	kind   string
	labels []string
	agent  bool
}

var name = regexp.MustCompile(`storageclient_\w+`)

// A renamed or new metric must be added to a dashboard.
func TestEveryMetricIsOnADashboard(t *testing.T) {
	shown := map[string]bool{}
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, used := range name.FindAllString(target.Expr, -1) {
					shown[strings.TrimSuffix(used, "_bucket")] = true
				}
			}
		}
	}
	want := slices.Sorted(maps.Keys(served(t)))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(shown))); diff != "" {
		t.Errorf("metrics (-served +shown):\n%s", diff)
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	for file, d := range readDashboards(t) {
		if d.UID != "storage-client-"+file {
			t.Errorf("%s: got UID %s", file, d.UID)
		}
		taken := map[[2]int]string{}
		for i, p := range d.Panels {
			if p.ID != i+1 || p.Title == "" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d: got ID %d, title %q, %d queries", file, i+1, p.ID, p.Title, len(p.Targets))
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: panel %q overlaps %q or is outside the grid", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
