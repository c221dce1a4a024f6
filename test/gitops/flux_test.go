package gitops

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/ssa"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// kustomizeController is the name of Flux's controller, and its field manager.
const kustomizeController = "kustomize-controller"

// takenOver contains the field managers whose fields kustomize-controller takes over, from
// internal/controller/kustomization_controller.go of v1.9.6. Each name is a prefix.
var takenOver = []ssa.FieldManager{
	{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
	{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
	{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
	{Name: kustomizeController, OperationType: metav1.ManagedFieldsOperationUpdate},
}

// testdata/owners.yaml contains annotations and managed fields that the plugin sets (cmd/kubectl-storageclient/owner_test.go). Flux's
// code applies the profile over them.
func TestFluxKeepsTheAnnotationsOfThePlugin(t *testing.T) {
	var left map[string]struct {
		Annotations   map[string]string           `json:"annotations"`
		ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "testdata/owners.yaml")), &left); err != nil {
		t.Fatal(err)
	}
	kept, removed := 0, 0
	for name, metadata := range left {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			for key, value := range metadata.Annotations {
				if owners := ownersOf(t, metadata.ManagedFields, key); slices.ContainsFunc(owners, func(owner string) bool { return !strings.HasPrefix(owner, "kubectl") }) {
					want[key] = value
				}
			}
			kept, removed = kept+len(want), removed+len(metadata.Annotations)-len(want)
			c := clientFor(t)
			applyAsFlux(t, c)
			live := get(t, c)
			patch(t, c, map[string]any{"annotations": metadata.Annotations})
			patch(t, c, map[string]any{"managedFields": append(live.GetManagedFields(), metadata.ManagedFields...)})
			if diff := cmp.Diff(metadata.Annotations, get(t, c).GetAnnotations()); diff != "" {
				t.Fatalf("annotations before Flux (-want +got):\n%s", diff)
			}
			applyAsFlux(t, c)
			got := maps.Collect(maps.All(get(t, c).GetAnnotations()))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("annotations that Flux leaves (-want +got):\n%s", diff)
			}
		})
	}
	if kept < 8 || removed < 1 {
		t.Errorf("got %d annotations to keep and %d to remove, want at least 8 and 1", kept, removed)
	}
}

// ownersOf returns the field managers of an annotation.
func ownersOf(t *testing.T, entries []metav1.ManagedFieldsEntry, annotation string) []string {
	t.Helper()
	var owners []string
	for _, entry := range entries {
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		if _, owns, _ := unstructured.NestedFieldNoCopy(fields, "f:metadata", "f:annotations", "f:"+annotation); owns {
			owners = append(owners, entry.Manager)
		}
	}
	return owners
}

// profile returns the profile in Git.
func profile() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tuning.storageclient.dev/v1alpha1", "kind": "StorageClientProfile",
		"metadata": map[string]any{"name": "eda"}, "spec": map[string]any{"paused": false},
	}}
}

// schema is the schema of a profile for the fields that Flux and the plugin write. The API server knows the metadata fields of every
// kind.
const schema = `{"profile": {
	"type": "object", "x-kubernetes-group-version-kind": [{"group": "tuning.storageclient.dev", "version": "v1alpha1", "kind": "StorageClientProfile"}],
	"properties": {
		"apiVersion": {"type": "string"}, "kind": {"type": "string"},
		"metadata": {"type": "object", "properties": {
			"name": {"type": "string"},
			"annotations": {"type": "object", "additionalProperties": {"type": "string"}},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}}
		}},
		"spec": {"type": "object", "properties": {"paused": {"type": "boolean"}}}
	}
}}`

func clientFor(t *testing.T) client.Client {
	t.Helper()
	var schemas map[string]*spec.Schema
	if err := json.Unmarshal([]byte(schema), &schemas); err != nil {
		t.Fatal(err)
	}
	types, err := managedfields.NewTypeConverter(schemas, true)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(profile().GroupVersionKind(), &unstructured.Unstructured{})
	return fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(types).WithReturnManagedFields().Build()
}

func applyAsFlux(t *testing.T, c client.Client) {
	t.Helper()
	options := ssa.DefaultApplyOptions()
	options.Cleanup.FieldManagers = takenOver
	manager := ssa.NewResourceManager(c, nil, ssa.Owner{Field: kustomizeController, Group: "kustomize.toolkit.fluxcd.io"})
	object := profile()
	manager.SetOwnerLabels([]*unstructured.Unstructured{object}, "pools", "flux-system")
	if _, err := manager.Apply(t.Context(), object, options); err != nil {
		t.Fatal(err)
	}
}

func patch(t *testing.T, c client.Client, metadata map[string]any) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), profile(), client.RawPatch(types.MergePatchType, data), client.FieldOwner("before")); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c client.Client) *unstructured.Unstructured {
	t.Helper()
	object := profile()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	return object
}
