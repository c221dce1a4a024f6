package dashboards

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/test/check"
)

// docs/monitoring.md describes each alert with its severity and duration, in the order of the rules.
func TestThePageDescribesEachAlert(t *testing.T) {
	content, err := os.ReadFile("../../config/components/prometheus/alerts.yaml")
	check.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert  string            `json:"alert"`
				For    string            `json:"for"`
				Labels map[string]string `json:"labels"`
			} `json:"rules"`
		} `json:"groups"`
	}
	check.NoError(t, yaml.Unmarshal(content, &rules))
	var want, got [][3]string
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.For == "" {
				r.For = "at once"
			}
			want = append(want, [3]string{r.Alert, r.Labels["severity"], r.For})
		}
	}
	page, err := os.ReadFile("../../docs/monitoring.md")
	check.NoError(t, err)
	for _, row := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(runbooks/\w+\.md\) \| ([^|]+) \| ([^|]+) \|`).FindAllStringSubmatch(string(page), -1) {
		got = append(got, [3]string{row[1], row[2], row[3]})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alerts (-rules +page):\n%s", diff)
	}
}

// The page also describes each dashboard.
func TestThePageDescribesEachDashboard(t *testing.T) {
	page, err := os.ReadFile("../../docs/monitoring.md")
	check.NoError(t, err)
	for file := range readDashboards(t) {
		if !regexp.MustCompile(`(?m)^\| ` + file + ` \|`).Match(page) {
			t.Errorf("docs/monitoring.md has no row for the dashboard %s", file)
		}
	}
}
