package nodesettings

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// freeUnderAutomatic contains everything that an author may change without the verb approve while the policy is Automatic, each with
// the reason why it starts no reboot. The ValidatingAdmissionPolicy storage-client-approval rejects all other changes.
var freeUnderAutomatic = map[string]string{
	"spec.onUnsupported":               "only the text and status of Ready",
	"spec.volumes":                     "no volume disrupts a node",
	"spec.node.filesystems":            "applied live or at the next mount",
	"spec.node.kernelModules":          "applied live, or at a boot with another cause",
	"spec.node.nfs4UniqueID":           "applied at a boot with another cause",
	"spec.node.nfsMountDefaults":       "applied at the next mount",
	"spec.node.readAhead":              "applied live",
	"spec.node.sysctls":                "applied live",
	"spec.node.sysctlsAtLeast":         "applied live",
	"spec.node.tuned":                  "applied live",
	"spec.rollout.maxConcurrentLive":   "live changes take no node out of service",
	"spec.rollout.volumes":             "no volume disrupts a node",
	"spec.rollout.reboot.approvedPlan": "without effect under Automatic; a new value needs the verb under each policy",
	annotation("approved-plan"):        "without effect under Automatic; a new value needs the verb under each policy",
	annotation("server-limits"):        "only advice",
	annotation("server-chunk-kib"):     "only advice",
}

// freeIfItStops contains the changes that are free in one direction: they stop a rollout.
var freeIfItStops = map[string]string{
	"spec.mode":          "`Plan` starts no change",
	"spec.paused":        "`true` starts no change",
	annotation("paused"): "every value except `\"\"` and `\"false\"` starts no change",
}

// needsTheVerb contains the fields of the spec that only a user with the verb approve may change while the policy is Automatic.
var needsTheVerb = []string{
	"spec.nodeSelector", "spec.allNodes", "spec.includeControlPlane", "spec.priority", "spec.deletionPolicy", "spec.node.kernelArguments",
	"spec.rollout.maxUnavailable", "spec.rollout.canary", "spec.rollout.failureThreshold", "spec.rollout.settleSeconds",
	"spec.rollout.windows", "spec.rollout.drain",
	"spec.rollout.reboot.policy", "spec.rollout.reboot.timeoutSeconds", "spec.rollout.reboot.restoreReboot",
}

func annotation(name string) string {
	return "metadata.annotations[" + v1alpha1.GroupVersion.Group + "/" + name + "]"
}

// approvalPolicy returns the text literals of a variable of the policy.
func approvalPolicy(t *testing.T, variable string) []string {
	t.Helper()
	data, err := os.ReadFile("../../config/rbac/approval_policy.yaml")
	check.NoError(t, err)
	first, _, _ := strings.Cut(string(data), "\n---\n")
	var policy struct {
		Spec struct {
			Variables []struct{ Name, Expression string }
		}
	}
	check.NoError(t, yaml.Unmarshal([]byte(first), &policy))
	for _, v := range policy.Spec.Variables {
		if v.Name == variable {
			var out []string
			for _, match := range regexp.MustCompile(`'((?:spec|metadata)\.[^']*)'`).FindAllStringSubmatch(v.Expression, -1) {
				out = append(out, match[1])
			}
			return out
		}
	}
	t.Fatalf("the policy has no variable %s", variable)
	return nil
}

// comparedFields returns the paths that the policy compares: the fields of the given levels, except for the levels themselves.
func comparedFields(of reflect.Type, path string, levels []string) []string {
	var out []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		inner := of.Field(i).Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if slices.Contains(levels, path+name+".") {
			out = append(out, comparedFields(inner, path+name+".", levels)...)
			continue
		}
		out = append(out, path+name)
	}
	return out
}

// schemaFields is comparedFields of the CustomResourceDefinition.
func schemaFields(properties map[string]any, path string, levels []string) []string {
	var out []string
	for name, schema := range properties {
		if slices.Contains(levels, path+name+".") {
			inner, _ := schema.(map[string]any)["properties"].(map[string]any)
			out = append(out, schemaFields(inner, path+name+".", levels)...)
			continue
		}
		out = append(out, path+name)
	}
	return out
}

func definedFields(t *testing.T, levels []string) []string {
	t.Helper()
	data, err := os.ReadFile("../../config/crd/bases/tuning.storageclient.dev_storageclientprofiles.yaml")
	check.NoError(t, err)
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec struct{ Properties map[string]any }
						}
					}
				}
			}
		}
	}
	check.NoError(t, yaml.Unmarshal(data, &definition))
	var out []string
	for _, version := range definition.Spec.Versions {
		out = append(out, schemaFields(version.Schema.OpenAPIV3Schema.Properties.Spec.Properties, "spec.", levels)...)
	}
	return out
}

func TestEachFieldIsFreeUnderAutomaticForAReasonOrNeedsTheVerb(t *testing.T) {
	levels := approvalPolicy(t, "levels")
	types := comparedFields(reflect.TypeFor[v1alpha1.StorageClientProfileSpec](), "spec.", levels)
	if diff := cmp.Diff(slices.Sorted(slices.Values(types)), slices.Sorted(slices.Values(definedFields(t, levels)))); diff != "" {
		t.Errorf("the fields of the Go types and of the CustomResourceDefinition differ: -types +definition\n%s", diff)
	}
	for _, path := range types {
		lists := 0
		for _, isListed := range []bool{freeUnderAutomatic[path] != "", freeIfItStops[path] != "", slices.Contains(needsTheVerb, path)} {
			if isListed {
				lists++
			}
		}
		if lists != 1 {
			t.Errorf("%s is on %d lists, want one: can a change lead to a reboot? If in doubt, add it to needsTheVerb", path, lists)
		}
	}
	for _, path := range slices.Concat(slices.Collect(maps.Keys(freeUnderAutomatic)), slices.Collect(maps.Keys(freeIfItStops)), needsTheVerb) {
		if strings.HasPrefix(path, "spec.") && !slices.Contains(types, path) {
			t.Errorf("%s is listed, but the API has no such field", path)
		}
	}
}

// A field that the hash of a plan covers clears recorded failures when it changes, so that nodes reboot again.
func TestNoFieldOfThePlansHashIsFreeUnderAutomatic(t *testing.T) {
	for _, path := range fieldsOfSpec(reflect.TypeFor[v1alpha1.StorageClientProfileSpec](), "") {
		if _, leftOut := leftOutOfPlan[path]; !leftOut && (freeUnderAutomatic["spec."+path] != "" || freeIfItStops["spec."+path] != "") {
			t.Errorf("spec.%s is free under Automatic: got it in the plan's hash, want it left out", path)
		}
	}
}

func TestThePolicyAndItsPageHaveTheListOfFreeFields(t *testing.T) {
	sorted := func(list map[string]string) []string { return slices.Sorted(maps.Keys(list)) }
	for variable, want := range map[string][]string{"free": sorted(freeUnderAutomatic), "freeIfItStops": sorted(freeIfItStops)} {
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(approvalPolicy(t, variable)))); diff != "" {
			t.Errorf("variable %s of the policy: -want +got\n%s", variable, diff)
		}
	}
	page, err := os.ReadFile("../../docs/roles.md")
	check.NoError(t, err)
	for _, list := range []map[string]string{freeUnderAutomatic, freeIfItStops} {
		for path, reason := range list {
			if row := "| `" + path + "` | " + reason + " |\n"; !strings.Contains(string(page), row) {
				t.Errorf("docs/roles.md: want the row %s", row)
			}
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `(spec|metadata)\\.").FindAllString(string(page), -1)
	if want := len(freeUnderAutomatic) + len(freeIfItStops); len(rows) != want {
		t.Errorf("docs/roles.md: got %d rows of free fields, want %d", len(rows), want)
	}
}
