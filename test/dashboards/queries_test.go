//go:build promtool

package dashboards

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/agent/host/mounts"
	agentmetrics "github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/metrics"
	"github.com/storageclient/operator/test/check"
)

// series contains the series that Prometheus has scraped: the name and labels of each line, and whether it is a counter.
type series map[string]bool

func (s series) add(name string, labels map[string]string, counts bool) {
	var pairs []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", label, labels[label]))
	}
	s[name+"{"+strings.Join(pairs, ",")+"}"] = counts
}

// gather adds the metrics of collectors, with the labels that the scraper adds.
func (s series) gather(t *testing.T, scraped map[string]string, collectors ...prometheus.Collector) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	check.NoError(t, err)
	for _, family := range families {
		for _, m := range family.Metric {
			labels := maps.Clone(scraped)
			for _, pair := range m.Label {
				labels[pair.GetName()] = pair.GetValue()
			}
			if m.Histogram == nil {
				s.add(family.GetName(), labels, family.GetType().String() == "COUNTER")
				continue
			}
			for _, bucket := range m.Histogram.Bucket {
				labels["le"] = fmt.Sprint(bucket.GetUpperBound())
				s.add(family.GetName()+"_bucket", labels, true)
			}
			labels["le"] = "+Inf"
			s.add(family.GetName()+"_bucket", labels, true)
		}
	}
}

// record runs the manager's and the agent's collectors for a cluster in which every state occurs once.
func record(t *testing.T) series {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		check.NoError(t, add(scheme))
	}
	profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda"}}
	for _, condition := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		profile.Status.Conditions = append(profile.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.NodeInfo.BootID = "b"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "a", Labels: map[string]string{"app.kubernetes.io/component": "node-agent"}}}
	agent.Spec.NodeName = node.Name
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	clientNode := func(phase v1alpha1.RolloutPhase, reason string, at int64, state v1alpha1.SettingState) *v1alpha1.StorageClientNode {
		since := metav1.Unix(at, 0)
		c := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		c.Status.BootID = "b"
		c.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Reason: reason, Since: &since}
		c.Status.Settings = []v1alpha1.SettingStatus{{Key: "sysctl/net.core.rmem_max", State: state}}
		c.Status.Servers = []v1alpha1.ServerStatus{{Server: "filer1", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerSilent, Connections: 2}}
		return c
	}
	failed := clientNode(v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, 900, v1alpha1.SettingDrifted)
	claims := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap},
		Data:       map[string]string{node.Name: `{"profile":"eda","bootHash":"h","since":"2026-08-01T00:00:00Z"}`},
	}
	leading := make(chan struct{})
	close(leading)
	collector := &metrics.Collector{
		Reader:         fake.NewClientBuilder().WithScheme(scheme).WithObjects(profile, node, agent, failed, claims).Build(),
		MaxUnavailable: intstr.FromString("5%"),
		Leading:        leading, Log: logr.Discard(),
	}
	transitions := metrics.NewTransitions()
	draining := clientNode(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, 0, v1alpha1.SettingInSync)
	rebooting := clientNode(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, 90, v1alpha1.SettingInSync)
	transitions.CountChanges(draining, rebooting)
	transitions.CountChanges(rebooting, failed)

	recorded := series{}
	recorded.gather(t, map[string]string{"pod": "manager-a"}, collector, transitions)
	recorded.gather(t, map[string]string{"pod": "agent-a", "node": node.Name}, &agentmetrics.Collector{Mounts: mounted{}, Log: logr.Discard()})

	known := map[string]bool{}
	for line := range recorded {
		family, _, _ := strings.Cut(line, "{")
		known[strings.TrimSuffix(family, "_bucket")] = true
	}
	for family, m := range served(t) {
		if known[family] {
			continue
		}
		// Series of collectors that only their own packages can run.
		labels := map[string]string{"pod": "manager-a"}
		if m.agent {
			labels = map[string]string{"pod": "agent-a", "node": node.Name}
		}
		for _, label := range m.labels {
			labels[label] = "any"
		}
		recorded.add(family, labels, m.kind == "counter")
	}
	return recorded
}

type mounted struct{}

func (mounted) Superblocks() ([]mounts.Superblock, error) {
	return []mounts.Superblock{{
		Mount: mounts.Mount{
			Device: "0:52", Volume: "pv1", Server: "filer1", Export: "/e", Protocol: "NFSv4.1", Connections: 2, SlotLimit: 64, ReadAheadKiB: 128,
		},
		Volumes: []string{"pv1"}, Nconnect: 4, Operations: []mounts.Operation{{Name: "READ", Count: 8}},
	}}, nil
}

// Grafana's macros, and the variables of label filters, which select everything.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$profile", ".*", "$node", ".*", "$server", ".*", "$volume", ".*")

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// expectations returns expressions whose result is 1 if a query returns a number with the labels of its legend.
func expectations(t *testing.T, d dashboard) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		parts := labelValues.FindStringSubmatch(v.Definition)
		if parts == nil {
			t.Errorf("%s: variable %s: unknown definition %q", d.Title, v.Name, v.Definition)
			continue
		}
		found["variable "+v.Name] = fmt.Sprintf(`count(count by (%[2]s) (%[1]s) and on (%[2]s) %[1]s{%[2]s!=""}) > bool 0`, parts[1], parts[2])
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			query := variables.Replace(target.Expr)
			found["panel "+p.Title+": "+target.LegendFormat] = fmt.Sprintf("count((%[1]s) == (%[1]s)) > bool 0", query)
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				found["legend "+label[1]+" of "+p.Title+": "+target.LegendFormat] = fmt.Sprintf(`count(count by (%s) (%s) unless count(%[2]s)) > bool 0`, label[1], query)
			}
		}
	}
	return found
}

// evaluate runs promtool on expressions half an hour after the first scrape. The result of each must be 1.
func evaluate(t *testing.T, recorded series, expressions map[string]string) (string, error) {
	t.Helper()
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type expectation struct {
		Expr     string   `json:"expr"`
		EvalTime string   `json:"eval_time"`
		Samples  []sample `json:"exp_samples"`
	}
	var input []map[string]string
	for _, line := range slices.Sorted(maps.Keys(recorded)) {
		input = append(input, map[string]string{"series": line, "values": map[bool]string{true: "0+1x60", false: "1x60"}[recorded[line]]})
	}
	var expected []expectation
	for _, name := range slices.Sorted(maps.Keys(expressions)) {
		expected = append(expected, expectation{Expr: expressions[name], EvalTime: "30m", Samples: []sample{{Labels: "{}", Value: 1}}})
	}
	content, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": []any{map[string]any{
		"interval": "1m", "input_series": input, "promql_expr_test": expected,
	}}})
	check.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboards.yaml")
	check.NoError(t, os.WriteFile(file, content, 0o600))
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		promtool = "promtool"
	}
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	return string(out), err
}

func TestEveryQueryHasAResult(t *testing.T) {
	recorded := record(t)
	for file, d := range readDashboards(t) {
		expressions := expectations(t, d)
		if len(expressions) < len(d.Panels) {
			t.Errorf("%s: got %d panels and %d expressions", file, len(d.Panels), len(expressions))
		}
		if out, err := evaluate(t, recorded, expressions); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// The test must detect renamed metrics, states and labels.
func TestAQueryOfAnUnknownMetricHasNoResult(t *testing.T) {
	recorded := record(t)
	for _, query := range []string{
		`max(storageclient_knots)`, `max(storageclient_nodes{state="silenced"})`, `sum(rate(storageclient_mount_read_bytes_total{share=~".+"}[5m]))`,
	} {
		if out, err := evaluate(t, recorded, map[string]string{query: fmt.Sprintf("count((%[1]s) == (%[1]s)) > bool 0", query)}); err == nil {
			t.Errorf("%s: got a result, want none: %s", query, out)
		}
	}
	if out, err := evaluate(t, recorded, map[string]string{"": `count(count by (volume) (storageclient_nodes) unless count(storageclient_nodes)) > bool 0`}); err == nil {
		t.Errorf("got no error for a legend with a missing label: %s", out)
	}
}
