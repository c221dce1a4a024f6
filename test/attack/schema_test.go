//go:build attack

package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// A variant is an object with one difference. The API server may reject a value, so there are alternatives; the first valid one counts.
type variant struct {
	// path is the changed field, e.g. spec.containers[0].image.
	path         string
	change       string
	alternatives []any
}

const (
	added   = "add"
	changed = "change"
	removed = "remove"
)

// schemas contains the OpenAPI schemas of the API server.
type schemas struct {
	named map[string]map[string]any
	kinds map[schema.GroupVersionKind]map[string]any
	// keys are the annotations and labels of the operator, and a foreign one.
	keys []string
}

func readSchemas(t *testing.T, c *cluster) *schemas {
	t.Helper()
	s := &schemas{named: map[string]map[string]any{}, kinds: map[schema.GroupVersionKind]map[string]any{}}
	clients, err := kubernetes.NewForConfig(c.config)
	check.NoError(t, err)
	paths, err := clients.Discovery().OpenAPIV3().Paths()
	check.NoError(t, err)
	for at, group := range paths {
		if !strings.HasPrefix(at, "api") {
			continue
		}
		text, err := group.Schema("application/json")
		check.NoError(t, err)
		var document struct {
			Components struct{ Schemas map[string]map[string]any }
		}
		check.NoError(t, json.Unmarshal(text, &document))
		for name, definition := range document.Components.Schemas {
			s.named[name] = definition
			kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
			for _, k := range kinds {
				kind, _ := k.(map[string]any)
				text := func(key string) string { v, _ := kind[key].(string); return v }
				s.kinds[schema.GroupVersionKind{Group: text("group"), Version: text("version"), Kind: text("kind")}] = definition
			}
		}
	}
	names, err := os.ReadFile(root + "/api/v1alpha1/names.go")
	check.NoError(t, err)
	s.keys = []string{"example.com/attack"}
	for _, match := range regexp.MustCompile(`"(`+regexp.QuoteMeta(v1alpha1.GroupVersion.Group)+`/[a-z0-9-]+)"`).FindAllStringSubmatch(string(names), -1) {
		s.keys = append(s.keys, match[1])
	}
	return s
}

// resolve follows references. The name of the last one selects a seed.
func (s *schemas) resolve(node map[string]any) (map[string]any, string) {
	name := ""
	for {
		ref, _ := node["$ref"].(string)
		if parts, ok := node["allOf"].([]any); ref == "" && ok && len(parts) == 1 {
			ref, _ = parts[0].(map[string]any)["$ref"].(string)
		}
		if ref == "" {
			return node, name
		}
		name = path.Base(ref)
		node = s.named[name]
	}
}

// Values of new objects that a schema does not require but validation does, by the end of the schema's name.
var seeds = map[string]map[string]any{
	".v1.Container":                     {"name": "extra", "image": "example.com/app:1", "securityContext": restricted},
	".v1.EphemeralContainer":            {"name": "extra", "image": "example.com/app:1", "securityContext": restricted},
	".v1.Volume":                        {"name": "extra"},
	".v1.VolumeMount":                   {"name": "volume", "mountPath": "/node-agent"},
	".v1.VolumeDevice":                  {"name": "volume", "devicePath": "/dev/a"},
	".v1.EnvVar":                        {"name": "A"},
	".v1.Toleration":                    {"operator": "Exists"},
	".v1.Taint":                         {"key": "example.com/attack", "effect": "NoExecute"},
	".v1.OwnerReference":                {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u"},
	".v1.SecretReference":               {"name": "registry", "namespace": v1alpha1.ManagerNamespace},
	".v1.LocalObjectReference":          {"name": "registry"},
	".v1.LabelSelector":                 {"matchLabels": map[string]any{"example.com/pool": "green"}},
	".v1.LabelSelectorRequirement":      {"key": "example.com/pool", "operator": "Exists"},
	".v1.HostAlias":                     {"ip": "192.0.2.1", "hostnames": []any{"filer.example.com"}},
	".v1.CSIPersistentVolumeSource":     {"driver": "smb.csi.k8s.io", "volumeHandle": "a"},
	".v1.ServiceAccountTokenProjection": {"path": "token"},
	".v1.ContainerPort":                 {"containerPort": 80.0},
	".v1.Probe":                         {"exec": map[string]any{"command": []any{"/volume/evil"}}},
	".v1.LifecycleHandler":              {"exec": map[string]any{"command": []any{"/volume/evil"}}},
	".v1.PodReadinessGate":              {"conditionType": "example.com/attack"},
	".v1.NodeCondition":                 {"type": "example.com/Attack", "status": "True"},
	".v1.ContainerResizePolicy":         {"resourceName": "cpu", "restartPolicy": "NotRequired"},
}

var restricted = map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}}

// Texts that can be valid, by the name of the field. All other texts try the list of the empty name.
var texts = map[string][]any{
	"name": {"registry", "attack"}, "secretName": {"registry"}, "namespace": {v1alpha1.ManagerNamespace}, "claimName": {"data"},
	"mountPath": {"/node-agent"}, "server": {"evil.example.com"}, "path": {"/etc", "evil"}, "kernelArguments": {"ihash_entries=2097152"},
	"mountOptions": {"suid", "nocto", "nconnect=8"}, "options": {"nconnect=8"}, "storage": {"2Gi"}, "effect": {"NoExecute"}, "subPath": {"evil"},
	"schedule": {"0 3 * * *"}, "timeZone": {"Europe/Berlin"}, "profile": {"throughput-performance", "fleet"}, "mountPoint": {"/mnt/data"},
	"operator": {"Exists", "In"}, "command": {"/volume/evil"}, "args": {"run"}, "drivers": {"smb.csi.k8s.io"}, "ip": {"192.0.2.2"},
	"nodeName": {"node-2"}, "volumeName": {"pv-1"}, "podCIDR": {"192.0.2.0/24"}, "podCIDRs": {"192.0.2.0/24"},
	"accessModes": {"ReadOnlyMany"}, "finalizers": {"example.com/attack"}, "sysctls": {"33554432"}, "sysctlsAtLeast": {"33554432"}, "parameters": {"129"}, "data": {"eda/credentials"},
	"": {"attack", "2097152", "/attack", "example.com/attack", "1Gi"},
}

// Keys of maps, by the name of the field.
var mapKeys = map[string][]string{
	"sysctls": {"net.core.wmem_max"}, "sysctlsAtLeast": {"net.core.wmem_max"}, "requests": {"cpu", "nvidia.com/gpu"}, "limits": {"nvidia.com/gpu", "ephemeral-storage"},
	"parameters": {"max_session_slots"}, "data": {"attack", "rollout.drain.deleteEmptyDirData.allowed"}, "capacity": {"example.com/attack"}, "nodeSelector": {"kubernetes.io/hostname"},
}

// Fields that the API server maintains itself.
var ownFields = []string{"apiVersion", "kind", "managedFields", "selfLink", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "generation"}

// variants returns all objects with one difference to value.
func (s *schemas) variants(node map[string]any, value any, at string) []variant {
	node, _ = s.resolve(node)
	switch v := value.(type) {
	case map[string]any:
		if properties, ok := node["properties"].(map[string]any); ok {
			return s.fields(properties, v, at)
		}
		if inner, ok := node["additionalProperties"].(map[string]any); ok {
			return s.entries(inner, v, at)
		}
		return nil
	case []any:
		inner, _ := node["items"].(map[string]any)
		var out []variant
		if len(v) > 0 {
			for _, d := range s.variants(inner, v[0], at+"[0]") {
				out = append(out, d.within(func(x any) any { return append([]any{x}, v[1:]...) }))
			}
			out = append(out, variant{at + "[0]", removed, []any{append([]any{}, v[1:]...)}})
		}
		for _, d := range s.fresh(inner, at+"[new]", 0) {
			out = append(out, d.within(func(x any) any { return append(slices.Clone(v), x) }))
		}
		return out
	}
	if _, isEnum := node["enum"]; isEnum {
		return slices.DeleteFunc(s.fresh(node, at, 0), func(d variant) bool { return d.alternatives[0] == value })
	}
	var others []any
	for _, other := range s.scalars(node, at) {
		if other != value {
			others = append(others, other)
		}
	}
	if text, ok := value.(string); ok {
		others = append(others, text+"x")
	}
	if number, ok := value.(float64); ok {
		others = append(others, number+1, number-1)
	}
	return []variant{{at, changed, others}}
}

func (d variant) within(wrap func(any) any) variant {
	out := variant{path: d.path, change: d.change}
	for _, x := range d.alternatives {
		out.alternatives = append(out.alternatives, wrap(x))
	}
	return out
}

func (d variant) or(more []any) variant {
	d.alternatives = append(d.alternatives, more...)
	return d
}

// exchanges returns objects in which a new field replaces another one, for kinds of which an object can have only one, e.g. the
// sources of a volume.
func exchanges(object map[string]any, name string, d variant) []any {
	var out []any
	for other, value := range object {
		if _, isObject := value.(map[string]any); isObject && other != name && object[name] == nil && len(d.alternatives) > 0 && len(object) < 12 {
			out = append(out, with(without(object, other), name)(d.alternatives[0]))
		}
	}
	return out
}

func with(object map[string]any, key string) func(any) any {
	return func(x any) any {
		out := maps.Clone(object)
		out[key] = x
		return out
	}
}

func without(object map[string]any, key string) map[string]any {
	out := maps.Clone(object)
	delete(out, key)
	return out
}

func (s *schemas) fields(properties, object map[string]any, at string) []variant {
	var out []variant
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(ownFields, name) && (at == "" || at == "metadata") {
			continue
		}
		inner, _ := properties[name].(map[string]any)
		below := strings.TrimPrefix(at+"."+name, ".")
		value, exists := object[name]
		all := s.fresh(inner, below, 0)
		if exists {
			all = s.variants(inner, value, below)
			out = append(out, variant{below, removed, []any{without(object, name)}})
		}
		for _, d := range all {
			out = append(out, d.within(with(object, name)).or(exchanges(object, name, d)))
		}
	}
	return out
}

func (s *schemas) entries(inner, object map[string]any, at string) []variant {
	var out []variant
	for _, key := range slices.Sorted(maps.Keys(object)) {
		for _, d := range s.variants(inner, object[key], at+"["+key+"]") {
			out = append(out, d.within(with(object, key)))
		}
		out = append(out, variant{at + "[" + key + "]", removed, []any{without(object, key)}})
	}
	for _, key := range s.keysOf(at) {
		if _, exists := object[key]; exists {
			continue
		}
		for _, d := range s.fresh(inner, at+"["+key+"]", 0) {
			out = append(out, d.within(with(object, key)))
		}
	}
	return out
}

func (s *schemas) keysOf(at string) []string {
	name := fieldName(at)
	switch keys := mapKeys[name]; {
	case keys != nil:
		return keys
	case strings.HasPrefix(at, "metadata."):
		return s.keys
	}
	return []string{"example.com/attack"}
}

var index = regexp.MustCompile(`\[[^]]*\]$`)

// fieldName returns the name of the field that contains a value.
func fieldName(at string) string {
	for index.MatchString(at) {
		at = index.ReplaceAllString(at, "")
	}
	return at[strings.LastIndex(at, ".")+1:]
}

// deepest is the number of new objects within each other.
const deepest = 2

// fresh returns new values of a field that does not exist: the smallest one, one with all scalars, and one for each field within.
func (s *schemas) fresh(node map[string]any, at string, depth int) []variant {
	node, name := s.resolve(node)
	properties, isObject := node["properties"].(map[string]any)
	inner, isMap := node["additionalProperties"].(map[string]any)
	items, isList := node["items"].(map[string]any)
	switch {
	case depth > deepest:
		return nil
	case isMap:
		var out []variant
		for _, key := range s.keysOf(at) {
			for _, d := range s.fresh(inner, at+"["+key+"]", depth+1) {
				out = append(out, d.within(func(x any) any { return map[string]any{key: x} }))
			}
		}
		return out
	case isList:
		var out []variant
		for _, d := range s.fresh(items, at+"[new]", depth+1) {
			out = append(out, d.within(func(x any) any { return []any{x} }))
		}
		return out
	case node["enum"] != nil:
		var out []variant
		for _, value := range s.scalars(node, at) {
			out = append(out, variant{fmt.Sprintf("%s=%v", at, value), added, []any{value}})
		}
		return out
	case !isObject:
		return []variant{{at, added, s.scalars(node, at)}}
	}
	base, full := s.smallest(node, name, at), map[string]any{}
	out := []variant{{at, added, []any{base}}}
	if strings.HasSuffix(name, "Container") { // the fields of an existing container are varied
		return out
	}
	for _, field := range slices.Sorted(maps.Keys(properties)) {
		definition, _ := properties[field].(map[string]any)
		if resolved, _ := s.resolve(definition); isScalar(resolved) {
			full[field] = s.scalars(resolved, at+"."+field)[0]
		}
		if _, exists := base[field]; exists {
			continue
		}
		for _, d := range s.fresh(definition, at+"."+field, depth+1) {
			out = append(out, d.within(with(base, field)))
		}
	}
	maps.Copy(full, base)
	return append(out, variant{at + ".*", added, []any{full}})
}

func isScalar(node map[string]any) bool {
	for _, key := range []string{"properties", "additionalProperties", "items"} {
		if node[key] != nil {
			return false
		}
	}
	return true
}

// smallest returns an object with only the required fields.
func (s *schemas) smallest(node map[string]any, name, at string) map[string]any {
	out := map[string]any{}
	required, _ := node["required"].([]any)
	properties, _ := node["properties"].(map[string]any)
	for _, r := range required {
		field, _ := r.(string)
		definition, _ := properties[field].(map[string]any)
		out[field] = s.least(definition, at+"."+field)
	}
	for suffix, seed := range seeds {
		if strings.HasSuffix(name, suffix) {
			maps.Copy(out, seed)
		}
	}
	return out
}

// least returns one value of a field.
func (s *schemas) least(node map[string]any, at string) any {
	node, name := s.resolve(node)
	inner, isMap := node["additionalProperties"].(map[string]any)
	items, isList := node["items"].(map[string]any)
	switch {
	case isMap:
		return map[string]any{s.keysOf(at)[0]: s.least(inner, at+"[]")}
	case isList:
		return []any{s.least(items, at+"[]")}
	case node["properties"] != nil:
		return s.smallest(node, name, at)
	}
	return s.scalars(node, at)[0]
}

// scalars returns values of a field, the most daring one first.
func (s *schemas) scalars(node map[string]any, at string) []any {
	if values, ok := node["enum"].([]any); ok {
		return slices.Clone(values)
	}
	kind, _ := node["type"].(string)
	format, _ := node["format"].(string)
	_, isEither := node["x-kubernetes-int-or-string"]
	_, hasChoice := node["oneOf"]
	switch {
	case kind == "boolean":
		return []any{true, false}
	case kind == "integer", kind == "number":
		var out []any
		for _, limit := range []string{"maximum", "minimum"} {
			if value, ok := node[limit].(float64); ok {
				out = append(out, value)
			}
		}
		return append(out, 2.0, 60.0, 0.0)
	case isEither, hasChoice, format == "int-or-string":
		return []any{"100%", 2.0, 1.0, "2", "5Gi"}
	case format == "date-time":
		return []any{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z"}
	case format == "byte":
		return []any{"YXR0YWNr"}
	case kind == "object":
		return []any{map[string]any{}}
	}
	return append(slices.Clone(texts[fieldName(at)]), texts[""]...)
}
