package main

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Names of the images in the manifests of config.
const (
	developmentManager = "localhost/storageclient/manager:dev"
	developmentAgent   = "localhost/storageclient/node-agent:dev"
)

// feature is a set of components of config that a value enables.
type feature struct {
	condition  string
	components []string
}

var features = []feature{
	{condition: `eq .Values.webhook.certificates "CertManager"`, components: []string{"cert-manager"}},
	{condition: `eq .Values.webhook.certificates "Given"`, components: []string{"webhook-ca"}},
	{condition: `.Values.agentMetrics.enabled`, components: []string{"agent-metrics"}},
	{condition: `.Values.prometheus.podMonitors`, components: []string{"agent-metrics", "prometheus-operator"}},
	{condition: `.Values.prometheus.alerts`, components: []string{"prometheus"}},
	{condition: `.Values.prometheus.dashboards`, components: []string{"dashboards"}},
	{condition: `.Values.guardrails.enabled`, components: []string{"guardrails"}},
	{condition: `.Values.networkPolicies.enabled`, components: []string{"network-policies"}},
	{condition: `.Values.controlPlane.enabled`, components: []string{"control-plane"}},
	{condition: `.Values.gkeResourceQuota.enabled`, components: []string{"gke-resource-quota"}},
}

const (
	manager   = "Deployment/storage-client-system/storage-client-manager"
	nodeAgent = "DaemonSet/storage-client-agent/storage-client-node-agent"
	runner    = "DaemonSet/storage-client-agent/storage-client-trial-runner"
	// certificate is the Secret in which the manager keeps its certificate for webhooks.
	certificate = "Secret/storage-client-system/storage-client-webhook"

	keepAnnotation = "helm.sh/resource-policy"

	container = "spec.template.spec.containers.0."
	terms     = "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms."
)

// slot is a place in an object that a value fills. The default of the value comes from the manifest.
type slot struct {
	object, path, value string
}

var slots = []slot{
	{manager, container + "image", "images.manager"},
	{nodeAgent, container + "image", "images.nodeAgent"},
	{runner, container + "image", "images.nodeAgent"},
	{manager, container + "imagePullPolicy", "images.pullPolicy"},
	{nodeAgent, container + "imagePullPolicy", "images.pullPolicy"},
	{runner, container + "imagePullPolicy", "images.pullPolicy"},
	{manager, terms + "0.matchExpressions.0.values", "architectures"},
	{nodeAgent, terms + "0.matchExpressions.0.values", "architectures"},
	{runner, terms + "0.matchExpressions.0.values", "architectures"},
	{manager, "spec.replicas", "manager.replicas"},
	{manager, container + "resources", "manager.resources"},
	{manager, "spec.template.spec.tolerations", "manager.tolerations"},
	{nodeAgent, container + "resources", "nodeAgent.resources"},
	{nodeAgent, "spec.template.spec.tolerations", "nodeAgent.tolerations"},
	{runner, container + "resources", "trialRunner.resources"},
	{runner, "spec.template.spec.tolerations", "trialRunner.tolerations"},
	{"ConfigMap/storage-client-system/storage-client-guardrails", "data", "guardrails.ceilings"},
}

// argument is a flag that the chart sets only if its value is given.
type argument struct {
	object, flag, value string
	many                bool
}

var arguments = []argument{
	{object: manager, flag: "--max-unavailable", value: "budget.maxUnavailable"},
	{object: manager, flag: "--max-concurrent-live", value: "budget.maxConcurrentLive"},
	{object: manager, flag: "--min-live-soak", value: "budget.minLiveSoak"},
	{object: manager, flag: "--unmanaged-counts-for", value: "budget.unmanagedCountsFor"},
	{object: manager, flag: "--untuned-taint", value: "untunedTaint"},
	{object: manager, flag: "--allow-parameter", value: "allowParameters", many: true},
	{object: nodeAgent, flag: "--allow-parameter", value: "allowParameters", many: true},
	{object: manager, flag: "--allow-filesystem", value: "allowFilesystems", many: true},
	{object: manager, flag: "--leaving-mark", value: "leavingMarks", many: true},
	{object: manager, flag: "--driver-name", value: "driverNames", many: true},
	{object: nodeAgent, flag: "--allow-filesystem", value: "allowFilesystems", many: true},
}

// fillSlots replaces the fields that values change by expressions, and collects the previous contents as defaults.
func fillSlots(variant objects, defaults map[string]any) error {
	for _, s := range slots {
		object, found := variant[s.object]
		if !found {
			continue // It belongs to a component that this variant does not include.
		}
		before, err := replace(object, s.path, expression("toJson .Values."+s.value))
		if err != nil {
			return fmt.Errorf("%s: %w", s.object, err)
		}
		if known, seen := defaults[s.value]; seen && !reflect.DeepEqual(known, before) {
			return fmt.Errorf("%s: %s is %v, and the value %s is %v elsewhere", s.object, s.path, before, s.value, known)
		}
		defaults[s.value] = before
	}
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		webhooks, _ := variant[kind+"/storage-client-webhook"]["webhooks"].([]any)
		for i := range webhooks {
			config, _ := webhooks[i].(map[string]any)["clientConfig"].(map[string]any)
			if config["caBundle"] != nil {
				config["caBundle"] = expression(`required "webhook.caBundle: certificates: Given needs the authority, as base64" .Values.webhook.caBundle | toJson`)
			}
		}
	}
	return fillUntunedTaint(variant)
}

// fillUntunedTaint makes the policy and the manager's first toleration use the same taint key as the manager's flag. The value of the other
// tolerations cannot remove it.
func fillUntunedTaint(variant objects) error {
	policy := variant["ValidatingAdmissionPolicy/storage-client-manager-nodes"]
	spec, _ := policy["spec"].(map[string]any)
	variables, _ := spec["variables"].([]any)
	for _, variable := range variables {
		v, _ := variable.(map[string]any)
		if v["name"] != "untunedTaint" {
			continue
		}
		key, _ := v["expression"].(string)
		taint := "(default " + strconv.Quote(strings.Trim(key, "'")) + " .Values.untunedTaint)"
		v["expression"] = expression(`printf "'%s'" ` + taint + ` | toJson`)
		podOf(variant[manager])["tolerations"] = expression(
			`prepend (default list .Values.manager.tolerations) (dict "key" ` + taint + ` "operator" "Exists") | toJson`)
		return nil
	}
	return errors.New("ValidatingAdmissionPolicy storage-client-manager-nodes has no variable untunedTaint")
}

// replace sets the value at a path, and returns the previous value.
func replace(tree any, path string, with any) (any, error) {
	name, rest, deeper := strings.Cut(path, ".")
	var child any
	var set func(any)
	switch parent := tree.(type) {
	case map[string]any:
		child = parent[name]
		set = func(value any) { parent[name] = value }
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(parent) {
			return nil, fmt.Errorf("no %s in a list of %d", name, len(parent))
		}
		child = parent[i]
		set = func(value any) { parent[i] = value }
	}
	if child == nil {
		return nil, fmt.Errorf("%s: there is no such field", path)
	}
	if deeper {
		return replace(child, rest, with)
	}
	set(with)
	return child, nil
}

// addOptions adds the arguments, pull secrets and annotations to the merged objects. Arguments and pull secrets depend on values.
func addOptions(merged objects) {
	for _, a := range arguments {
		item := choice{branches: []branch{{condition: "with .Values." + a.value, value: flagged(a.flag)}}}
		if a.many {
			item.branches[0].condition = "range .Values." + a.value
		}
		first := podOf(merged[a.object])["containers"].([]any)[0].(map[string]any)
		first["args"] = append(first["args"].([]any), item)
	}
	secrets := choice{branches: []branch{{condition: "with .Values.images.pullSecrets", value: expression("toJson .")}}}
	for _, object := range []string{manager, nodeAgent, runner} {
		podOf(merged[object])["imagePullSecrets"] = secrets
	}
	for key, object := range merged {
		if strings.HasPrefix(key, "CustomResourceDefinition/") {
			// Deleting the definition would delete every profile, restored or not.
			keep(object)
		}
	}
	// An upgrade to a certificate that the user supplies would delete that certificate.
	keep(merged[certificate][""].(choice).branches[0].value.(map[string]any))
}

// keep makes Helm never delete an object.
func keep(object map[string]any) {
	metadata := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[keepAnnotation] = "keep"
	metadata["annotations"] = annotations
}

func flagged(flag string) expression {
	return expression(`printf "` + flag + `=%v" . | toJson`)
}

func podOf(object map[string]any) map[string]any {
	return object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
}

// fillDefaults replaces each <NAME> in values.yaml by the default from the manifests.
func fillDefaults(values []byte, defaults map[string]any) ([]byte, error) {
	for value, content := range defaults {
		place := []byte("<" + value + ">")
		if bytes.Count(values, place) != 1 {
			return nil, fmt.Errorf("values.yaml has %s %d times, want it once", place, bytes.Count(values, place))
		}
		before, _, _ := bytes.Cut(values, place)
		line := values[bytes.LastIndexByte(before, '\n')+1:]
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("encode the default of %s: %w", value, err)
		}
		filled := strings.TrimSpace(string(text))
		if _, isString := content.(string); !isString && strings.ContainsAny(filled, "\n:-") {
			filled = "\n" + indented(filled, indent+2)
		}
		values = bytes.Replace(values, place, []byte(filled), 1)
	}
	if i := bytes.IndexByte(values, '<'); i >= 0 {
		return nil, fmt.Errorf("values.yaml: nothing fills %.40s", values[i:])
	}
	return bytes.ReplaceAll(values, []byte(": \n"), []byte(":\n")), nil
}
