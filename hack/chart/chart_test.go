//go:build chart

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/lists"
)

const config = "../../config"

// tool returns the path of a program from the set "chart", which "make test-chart" builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("SCO_BINARIES")
	if dir == "" {
		t.Fatal("SCO_BINARIES names no directory with helm and kustomize: run \"make test-chart\"")
	}
	return filepath.Join(dir, name)
}

// makeChart builds the chart. With edits, it builds the chart from an edited copy of config.
func makeChart(t *testing.T, o options, edits ...func(config string)) string {
	t.Helper()
	o.kustomize, o.config, o.output = tool(t, "kustomize"), config, t.TempDir()
	if len(edits) > 0 {
		o.config = filepath.Join(t.TempDir(), "config")
		check.NoError(t, os.CopyFS(o.config, os.DirFS(config)))
		for _, edit := range edits {
			edit(o.config)
		}
	}
	path, err := run(t.Context(), o)
	check.NoError(t, err)
	return path
}

func development(t *testing.T) string {
	return makeChart(t, options{version: "dev", managerImage: developmentManager, agentImage: developmentAgent})
}

// helm runs Helm and returns its output. If Helm fails, the result includes standard error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), tool(t, "helm"), args...)
	home := t.TempDir()
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, problem bytes.Buffer
	command.Stdout, command.Stderr = &out, &problem
	err := command.Run()
	if err != nil {
		out.Write(problem.Bytes())
	}
	return out.String(), err
}

// valuesFile writes values into a file for the flag -f.
func valuesFile(t *testing.T, values map[string]any) string {
	t.Helper()
	content, err := yaml.Marshal(values)
	check.NoError(t, err)
	path := filepath.Join(t.TempDir(), "values.yaml")
	check.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// rendered returns the objects of the chart.
func rendered(t *testing.T, chart string, values map[string]any) objects {
	t.Helper()
	out, err := helm(t, "template", "any", chart, "-f", valuesFile(t, values))
	if err != nil {
		t.Fatal(out)
	}
	// Helm prints the name of the template before each document.
	found, err := parse("\n" + out)
	check.NoError(t, err)
	return found
}

func built(t *testing.T, components ...string) objects {
	t.Helper()
	found, err := options{kustomize: tool(t, "kustomize"), config: config, managerImage: developmentManager, agentImage: developmentAgent}.build(t.Context(), feature{components: components})
	check.NoError(t, err)
	return found
}

// takeKept removes Helm's annotation from all objects, and returns the objects that had it.
func takeKept(all objects) []string {
	var resources []string
	for key, object := range all {
		metadata := object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations[keepAnnotation] != "keep" {
			continue
		}
		resources = append(resources, key)
		delete(annotations, keepAnnotation)
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	slices.Sort(resources)
	return resources
}

func exampleAuthority(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(config, "components/webhook-ca/authority.example.yaml"))
	check.NoError(t, err)
	example, err := parse(string(content))
	check.NoError(t, err)
	for _, object := range example {
		return object["data"].(map[string]any)["caBundle"].(string)
	}
	t.Fatal("the example is empty")
	return ""
}

func enabled(path string, pairs ...any) map[string]any {
	values := map[string]any{}
	for i, pair := 0, append([]any{path, true}, pairs...); i < len(pair); i += 2 {
		at, names := values, strings.Split(pair[i].(string), ".")
		for _, name := range names[:len(names)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[names[len(names)-1]] = pair[i+1]
	}
	return values
}

func TestChartAndManifestsAreTheSameObjects(t *testing.T) {
	chart, authority := development(t), exampleAuthority(t)
	everything := enabled("agentMetrics.enabled", "prometheus.alerts", true, "prometheus.dashboards", true, "prometheus.podMonitors", true, "guardrails.enabled", true,
		"networkPolicies.enabled", true, "gkeResourceQuota.enabled", true, "webhook.certificates", "CertManager")
	for name, test := range map[string]struct {
		values     map[string]any
		components []string
	}{
		"as it is":            {},
		"cert-manager":        {enabled("webhook.certificates", "webhook.certificates", "CertManager"), []string{"cert-manager"}},
		"a given certificate": {enabled("webhook.certificates", "webhook.certificates", "Given", "webhook.caBundle", authority), []string{"webhook-ca"}},
		"agents' metrics":     {enabled("agentMetrics.enabled"), []string{"agent-metrics"}},
		"pod monitors":        {enabled("prometheus.podMonitors"), []string{"agent-metrics", "prometheus-operator"}},
		"alerts":              {enabled("prometheus.alerts"), []string{"prometheus"}},
		"dashboards":          {enabled("prometheus.dashboards"), []string{"dashboards"}},
		"guardrails":          {enabled("guardrails.enabled"), []string{"guardrails"}},
		"network policies":    {enabled("networkPolicies.enabled"), []string{"network-policies"}},
		"GKE's quota":         {enabled("gkeResourceQuota.enabled"), []string{"gke-resource-quota"}},
		"both architectures":  {enabled("architectures", "architectures", []string{"amd64", "arm64"}), []string{"arm64"}},
		"everything at once": {everything, []string{
			"cert-manager", "agent-metrics", "prometheus-operator", "prometheus", "dashboards", "guardrails", "network-policies", "gke-resource-quota",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := rendered(t, chart, test.values), built(t, test.components...)
			desired := slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(key string) bool {
				return !strings.HasPrefix(key, "CustomResourceDefinition/") && key != certificate
			})
			check.Equal(t, "objects that Helm keeps", desired, takeKept(got))
			if len(want) < 50 {
				t.Errorf("got only %d objects from kustomize", len(want))
			}
			if different := changes(want, got); len(different) > 0 {
				t.Errorf("only in the chart, not in the output of kustomize: %s", lines(different))
			}
		})
	}
}

func lines(fields map[string]string) string {
	var all strings.Builder
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		all.WriteString("\n" + path + ": " + fields[path])
	}
	return all.String()
}

// leaves collects the values of a tree by their path.
func leaves(path string, tree any, found map[string]string) {
	switch node := tree.(type) {
	case objects:
		for key, object := range node {
			leaves(key, object, found)
		}
	case map[string]any:
		if len(node) == 0 {
			found[path] = "{}"
		}
		for key, value := range node {
			leaves(path+"."+key, value, found)
		}
	case []any:
		if len(node) == 0 {
			found[path] = "[]"
		}
		for i, value := range node {
			leaves(path+"."+strconv.Itoa(i), value, found)
		}
	default:
		text, err := json.Marshal(node)
		if err != nil {
			panic(err) // the value comes from YAML
		}
		found[path] = string(text)
	}
}

// changes returns the changed leaves with their new values. A removed leaf has the value "gone".
func changes(before, after objects) map[string]string {
	old, now, changed := map[string]string{}, map[string]string{}, map[string]string{}
	leaves("", before, old)
	leaves("", after, now)
	for path, value := range now {
		if old[path] != value {
			changed[path] = value
		}
	}
	for path := range old {
		if _, found := now[path]; !found {
			changed[path] = "gone"
		}
	}
	return changed
}

// valueTests contains, for each value, the fields that it changes. The baseline is the chart with the values in given.
var valueTests = map[string]struct {
	value    any
	baseline map[string]any
	want     map[string]string
}{
	"images.manager":            {value: "r/m@sha256:1", want: map[string]string{manager + "." + container + "image": `"r/m@sha256:1"`}},
	"images.nodeAgent":          {value: "r/a:1", want: map[string]string{nodeAgent + "." + container + "image": `"r/a:1"`, runner + "." + container + "image": `"r/a:1"`}},
	"images.pullPolicy":         {value: "Always", want: everyPod(container+"imagePullPolicy", `"Always"`)},
	"images.pullSecrets":        {value: []any{map[string]any{"name": "s"}}, want: everyPod("spec.template.spec.imagePullSecrets.0.name", `"s"`)},
	"architectures":             {value: []any{"arm64"}, want: everyPod(terms+"0.matchExpressions.0.values.0", `"arm64"`)},
	"manager.replicas":          {value: 3, want: map[string]string{manager + ".spec.replicas": "3"}},
	"manager.resources":         {value: map[string]any{"limits": map[string]any{"memory": "2Gi"}}, want: map[string]string{manager + "." + container + "resources.limits.memory": `"2Gi"`}},
	"manager.tolerations":       {value: []any{}, want: removed(manager+".spec.template.spec.tolerations.1", "key", "operator", "effect")},
	"nodeAgent.resources":       {value: map[string]any{"requests": map[string]any{"cpu": "20m"}}, want: map[string]string{nodeAgent + "." + container + "resources.requests.cpu": `"20m"`}},
	"nodeAgent.tolerations":     {value: []any{map[string]any{"key": "k", "operator": "Exists"}}, want: map[string]string{nodeAgent + ".spec.template.spec.tolerations.0.key": `"k"`}},
	"trialRunner.resources":     {value: map[string]any{"limits": map[string]any{"cpu": "1"}}, want: map[string]string{runner + "." + container + "resources.limits.cpu": `"1"`}},
	"trialRunner.tolerations":   {value: []any{}, want: emptied(runner+".spec.template.spec.tolerations", "operator")},
	"budget.maxUnavailable":     {value: "20%", want: map[string]string{manager + "." + container + "args.4": `"--max-unavailable=20%"`}},
	"budget.maxConcurrentLive":  {value: 7, want: map[string]string{manager + "." + container + "args.4": `"--max-concurrent-live=7"`}},
	"budget.minLiveSoak":        {value: "5m", want: map[string]string{manager + "." + container + "args.4": `"--min-live-soak=5m"`}},
	"budget.unmanagedCountsFor": {value: "0", want: map[string]string{manager + "." + container + "args.4": `"--unmanaged-counts-for=0"`}},
	"untunedTaint": {value: "ignore-taint.cluster-autoscaler.kubernetes.io/untuned", want: map[string]string{
		manager + "." + container + "args.4":                                                 `"--untuned-taint=ignore-taint.cluster-autoscaler.kubernetes.io/untuned"`,
		"ValidatingAdmissionPolicy/storage-client-manager-nodes.spec.variables.0.expression": `"'ignore-taint.cluster-autoscaler.kubernetes.io/untuned'"`,
		manager + ".spec.template.spec.tolerations.0.key":                                    `"ignore-taint.cluster-autoscaler.kubernetes.io/untuned"`,
	}},
	"allowParameters": {value: []any{`sysctl/vm\.swappiness`, "a"}, want: map[string]string{
		manager + "." + container + "args.4": `"--allow-parameter=sysctl/vm\\.swappiness"`, manager + "." + container + "args.5": `"--allow-parameter=a"`,
		nodeAgent + "." + container + "args.1": `"--allow-parameter=sysctl/vm\\.swappiness"`, nodeAgent + "." + container + "args.2": `"--allow-parameter=a"`,
	}},
	"allowFilesystems": {value: []any{"/scratch"}, want: map[string]string{
		manager + "." + container + "args.4": `"--allow-filesystem=/scratch"`, nodeAgent + "." + container + "args.1": `"--allow-filesystem=/scratch"`,
	}},
	"leavingMarks": {value: []any{"example.com/retire", "pool=old"}, want: map[string]string{
		manager + "." + container + "args.4": `"--leaving-mark=example.com/retire"`, manager + "." + container + "args.5": `"--leaving-mark=pool=old"`,
	}},
	"driverNames": {value: []any{"nfs.example.com=nfs.csi.k8s.io"}, want: map[string]string{
		manager + "." + container + "args.4": `"--driver-name=nfs.example.com=nfs.csi.k8s.io"`,
	}},
	"guardrails.ceilings": {
		value: map[string]any{"rollout.failureThreshold.maximum": "9", "readAheadKiB.maximum": nil}, baseline: enabled("guardrails.enabled"),
		want: map[string]string{ceilings + "rollout.failureThreshold.maximum": `"9"`, ceilings + "readAheadKiB.maximum": "gone"},
	},
	"webhook.caBundle": {
		value: "Yg==", baseline: enabled("webhook.certificates", "webhook.certificates", "Given", "webhook.caBundle", "YQ=="),
		want: map[string]string{
			"ValidatingWebhookConfiguration/storage-client-webhook.webhooks.0.clientConfig.caBundle": `"Yg=="`,
			"MutatingWebhookConfiguration/storage-client-webhook.webhooks.0.clientConfig.caBundle":   `"Yg=="`,
		},
	},
}

const ceilings = "ConfigMap/storage-client-system/storage-client-guardrails.data."

func everyPod(path, value string) map[string]string {
	return map[string]string{manager + "." + path: value, nodeAgent + "." + path: value, runner + "." + path: value}
}

// emptied returns the expected changes of a list that had one item with these fields.
func emptied(path string, fields ...string) map[string]string {
	found := removed(path+".0", fields...)
	found[path] = "[]"
	return found
}

// removed returns the expected changes if these fields of an item are removed.
func removed(path string, fields ...string) map[string]string {
	return lists.Map(fields, func(field string) (string, string) { return path + "." + field, "gone" })
}

// untolerated returns the startup taints, of each effect, that keep the scheduler from placing the manager.
func untolerated(t *testing.T, all objects, key string) (found []corev1.Taint) {
	t.Helper()
	content, err := yaml.Marshal(all[manager])
	check.NoError(t, err)
	var deployment appsv1.Deployment
	check.NoError(t, yaml.UnmarshalStrict(content, &deployment))
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute} {
		taints := []corev1.Taint{{Key: key, Value: "any", Effect: effect}}
		if taint, kept := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), taints, deployment.Spec.Template.Spec.Tolerations, nil, false); kept {
			found = append(found, taint)
		}
	}
	return found
}

// Only the manager removes the startup taint. In a cluster in which every node has it, the manager would never start.
func TestTheManagerToleratesTheStartupTaint(t *testing.T) {
	const changed = "startup-taint.cluster-autoscaler.kubernetes.io/untuned"
	replaceKey := func(config string) {
		for _, name := range []string{"manager.yaml", "policies.yaml"} {
			path := filepath.Join(config, "manager", name)
			content, err := os.ReadFile(path)
			check.NoError(t, err)
			check.NoError(t, os.WriteFile(path, bytes.Replace(content, []byte(v1alpha1.UntunedTaint), []byte(changed), 1), 0o600))
		}
	}
	chart, own := development(t), []any{map[string]any{"key": "dedicated", "operator": "Exists"}}
	edited := makeChart(t, options{version: "dev", managerImage: developmentManager, agentImage: developmentAgent}, replaceKey)
	for name, test := range map[string]struct {
		objects objects
		key     string
	}{
		"the manifests":                           {built(t), v1alpha1.UntunedTaint},
		"the chart":                               {rendered(t, chart, nil), v1alpha1.UntunedTaint},
		"the chart with other tolerations":        {rendered(t, chart, enabled("manager.tolerations", "manager.tolerations", own)), v1alpha1.UntunedTaint},
		"the chart without tolerations":           {rendered(t, chart, enabled("manager.tolerations", "manager.tolerations", nil)), v1alpha1.UntunedTaint},
		"the chart with another key":              {rendered(t, chart, enabled("untunedTaint", "untunedTaint", changed)), changed},
		"another key and other tolerations":       {rendered(t, chart, enabled("untunedTaint", "untunedTaint", changed, "manager.tolerations", own)), changed},
		"the chart of manifests with another key": {rendered(t, edited, nil), changed},
	} {
		if taints := untolerated(t, test.objects, test.key); len(taints) > 0 {
			t.Errorf("%s: the scheduler does not place the manager on a node with %v", name, taints)
		}
		if len(untolerated(t, test.objects, "example.com/other")) == 0 {
			t.Errorf("%s: the manager tolerates every taint", name)
		}
	}
}

func TestEachValueChangesWhatItSaysAndNothingElse(t *testing.T) {
	chart := development(t)
	for path, test := range valueTests {
		t.Run(path, func(t *testing.T) {
			baseline := test.baseline
			if baseline == nil {
				baseline = map[string]any{}
			}
			before := rendered(t, chart, baseline)
			content, err := yaml.Marshal(baseline)
			check.NoError(t, err)
			changed := map[string]any{}
			check.NoError(t, yaml.Unmarshal(content, &changed))
			at, names := changed, strings.Split(path, ".")
			for _, name := range names[:len(names)-1] {
				if at[name] == nil {
					at[name] = map[string]any{}
				}
				at = at[name].(map[string]any)
			}
			at[names[len(names)-1]] = test.value
			check.Equal(t, "fields", test.want, changes(before, rendered(t, chart, changed)))
		})
	}
}

// Every value has a test in valueTests. Values that enable a component are tested by the comparison with kustomize instead.
func TestNoValueIsForgotten(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(config, "chart/values.yaml"))
	check.NoError(t, err)
	values := map[string]any{}
	check.NoError(t, yaml.Unmarshal(content, &values))
	for _, f := range features {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(f.condition, "eq "), ".Values."), " ")
		section, field, _ := strings.Cut(name, ".")
		delete(values[section].(map[string]any), field)
	}
	var known []string
	for section, fields := range values {
		if fields, nested := fields.(map[string]any); nested {
			for field := range fields {
				known = append(known, section+"."+field)
			}
			continue
		}
		known = append(known, section)
	}
	slices.Sort(known)
	if diff := cmp.Diff(known, slices.Sorted(maps.Keys(valueTests))); diff != "" {
		t.Errorf("values (-values.yaml +tests):\n%s", diff)
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	chart := development(t)
	for name, test := range map[string]struct {
		values map[string]any
		want   string
	}{
		"a misspelt value":                {enabled("budget.maxUnavailabel"), "maxUnavailabel"},
		"a budget of nothing":             {enabled("budget.maxUnavailable", "budget.maxUnavailable", "0%"), "maxUnavailable"},
		"an unknown keeper":               {enabled("webhook.certificates", "webhook.certificates", "Vault"), "certificates"},
		"a certificate without authority": {enabled("webhook.certificates", "webhook.certificates", "Given"), "webhook.caBundle: certificates: Given needs the authority"},
		"an architecture without image":   {enabled("architectures", "architectures", []string{"s390x"}), "architectures"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, "template", "any", chart, "-f", valuesFile(t, test.values))
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("want an error that contains %q, got %v: %.400s", test.want, err, out)
			}
		})
	}
}

func TestHelmFindsNothingToSay(t *testing.T) {
	out, err := helm(t, "lint", "--strict", development(t))
	if err != nil || strings.Contains(out, "WARNING") {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
}

func TestARelease(t *testing.T) {
	o := options{version: "v1.2.3", managerImage: "r/m:v1.2.3@sha256:1", agentImage: "r/a:v1.2.3@sha256:2", components: []string{"arm64"}}
	first, second := makeChart(t, o), makeChart(t, o)
	if filepath.Base(first) != "storage-client-operator-1.2.3.tgz" {
		t.Errorf("got archive %s", first)
	}
	one, err := os.ReadFile(first)
	check.NoError(t, err)
	two, err := os.ReadFile(second)
	check.NoError(t, err)
	if !bytes.Equal(one, two) {
		t.Error("got two different charts from the same release")
	}
	got := rendered(t, first, nil)
	takeKept(got)
	want := built(t, "arm64")
	for _, object := range []string{manager, nodeAgent, runner} {
		image := o.agentImage
		if object == manager {
			image = o.managerImage
		}
		if _, err := replace(want[object], container+"image", image); err != nil {
			t.Fatal(err)
		}
	}
	if different := changes(want, got); len(different) > 0 {
		t.Errorf("only in the chart, not in the release's manifests: %s", lines(different))
	}
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "dev": "0.0.0-dev", "1.2.3": "0.0.0-1.2.3"} {
		if got := semantic(version); got != want {
			t.Errorf("version %s of the chart: got %s, want %s", version, got, want)
		}
	}
}
