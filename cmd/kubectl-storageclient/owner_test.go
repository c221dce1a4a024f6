package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var update = flag.Bool("update", false, "write the golden file instead of comparing with it")

// ownersFile contains profiles after the plugin changed them. test/gitops applies them with Flux's code.
const ownersFile = "../../test/gitops/testdata/owners.yaml"

// earlierManager is the field manager of the plugin in earlier releases.
const earlierManager = "kubectl-storageclient"

// annotating is a merge patch of a profile's annotations by a field manager.
type annotating struct {
	manager     string
	annotations map[string]any
}

func set(manager, key, value string) annotating {
	return annotating{manager, map[string]any{key: value}}
}

func (w annotating) do(ctx context.Context, c client.Client) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": w.annotations}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, eda(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(w.manager))
}

const pausedKey, approvedKey, retryKey = v1alpha1.PausedAnnotation, v1alpha1.ApprovedPlanAnnotation, v1alpha1.RetryAnnotation

func TestThePluginOwnsItsAnnotations(t *testing.T) {
	profiles := map[string]*v1alpha1.StorageClientProfile{}
	for name, test := range map[string]struct {
		before  []annotating
		command string
		// want contains the field managers of each annotation.
		want map[string][]string
	}{
		"a pause":                      {nil, "pause eda", map[string][]string{pausedKey: {v1alpha1.PluginFieldManager}}},
		"an approval":                  {nil, "approve eda", map[string][]string{approvedKey: {v1alpha1.PluginFieldManager}}},
		"a pause, and another's retry": {[]annotating{set(earlierManager, retryKey, "1")}, "pause eda", map[string][]string{pausedKey: {v1alpha1.PluginFieldManager}, retryKey: {earlierManager}}},
		"an approval of another plan than the earlier plugin's": {[]annotating{set(earlierManager, approvedKey, "another")}, "approve eda", map[string][]string{approvedKey: {v1alpha1.PluginFieldManager}}},
		"an approval of the same plan":                          {[]annotating{set(earlierManager, approvedKey, planOfEDA)}, "approve eda", map[string][]string{approvedKey: {earlierManager, v1alpha1.PluginFieldManager}}},
		"a pause where the earlier plugin paused":               {[]annotating{set(earlierManager, pausedKey, "true")}, "pause eda", map[string][]string{pausedKey: {earlierManager, v1alpha1.PluginFieldManager}}},
		"a pause where a person paused with kubectl": {
			[]annotating{set("kubectl-annotate", "other", "stays"), set("kubectl-annotate", pausedKey, "true")}, "pause eda",
			map[string][]string{"other": {"kubectl-annotate"}, pausedKey: {"kubectl-annotate", v1alpha1.PluginFieldManager}},
		},
		"a pause next to an annotation of its own": {
			[]annotating{set(v1alpha1.PluginFieldManager, retryKey, "1"), set("kubectl-edit", pausedKey, "true")}, "pause eda",
			map[string][]string{retryKey: {v1alpha1.PluginFieldManager}, pausedKey: {"kubectl-edit", v1alpha1.PluginFieldManager}},
		},
		"a second pause": {[]annotating{set(v1alpha1.PluginFieldManager, pausedKey, "true")}, "pause eda", map[string][]string{pausedKey: {v1alpha1.PluginFieldManager}}},
		"nothing after the end of the earlier pause": {[]annotating{set(earlierManager, pausedKey, "true")}, "resume eda", map[string][]string{}},
		"nothing after the end of a shared pause":    {[]annotating{set(earlierManager, pausedKey, "true"), set(v1alpha1.PluginFieldManager, retryKey, "1")}, "resume eda", map[string][]string{retryKey: {v1alpha1.PluginFieldManager}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientWithOwners(t, interceptor.Funcs{})
			for _, w := range test.before {
				check.NoError(t, w.do(t.Context(), c))
			}
			r := executeIn(t, &environment{connect: func() (client.WithWatch, error) { return c, nil }}, interceptor.Funcs{}, nil, strings.Fields(test.command)...)
			check.NoError(t, r.err)
			profile, err := getProfile(t.Context(), c, "eda")
			check.NoError(t, err)
			check.Equal(t, "field managers of annotations", test.want, ownersOf(t, profile))
			profiles[name] = profile
		})
	}
	compareOwners(t, profiles)
}

// compareOwners compares annotations and managed fields with the golden file. It ignores fields that differ between runs.
func compareOwners(t *testing.T, profiles map[string]*v1alpha1.StorageClientProfile) {
	t.Helper()
	metadata := map[string]any{}
	for name, profile := range profiles {
		// The order of the entries depends on the time.
		slices.SortFunc(profile.ManagedFields, func(a, b metav1.ManagedFieldsEntry) int { return strings.Compare(a.Manager, b.Manager) })
		for i := range profile.ManagedFields {
			profile.ManagedFields[i].Time = nil
		}
		metadata[name] = map[string]any{"annotations": profile.Annotations, "managedFields": profile.ManagedFields}
	}
	got, err := yaml.Marshal(metadata)
	check.NoError(t, err)
	if *update {
		check.NoError(t, os.WriteFile(ownersFile, got, 0o600))
	}
	want, err := os.ReadFile(ownersFile)
	if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
		t.Errorf("%s: run with -update to write it (-want +got): %v\n%s", ownersFile, err, diff)
	}
}

// clientWithOwners returns the client of an in-memory cluster that tracks managed fields like an API server.
func clientWithOwners(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	scheme, err := newScheme()
	check.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(append(cluster(), eda())...).
		WithStatusSubresource(&v1alpha1.StorageClientProfile{}).WithInterceptorFuncs(funcs).Build()
}

// ownersOf returns the field managers of each annotation.
func ownersOf(t *testing.T, profile *v1alpha1.StorageClientProfile) map[string][]string {
	t.Helper()
	owners := map[string][]string{}
	for _, entry := range profile.ManagedFields {
		var fields struct {
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		check.NoError(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		for key := range fields.Metadata.Annotations {
			if name, isKey := strings.CutPrefix(key, "f:"); isKey {
				owners[name] = append(owners[name], entry.Manager)
				slices.Sort(owners[name])
			}
		}
	}
	return owners
}

// The manager can write the profile's status at any time.
func TestThePluginOwnsAnAnnotationDespiteConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("storageclientprofiles").GroupResource(), "eda", errors.New("changed"))
	for name, test := range map[string]struct {
		failure error
		want    []string
		err     string
	}{
		"a conflict":       {nil, []string{earlierManager, v1alpha1.PluginFieldManager}, ""},
		"a conflict again": {conflict, []string{earlierManager, v1alpha1.PluginFieldManager}, ""},
		"another failure": {errors.New("no leader"), []string{earlierManager},
			"take ownership of annotation " + pausedKey + " of StorageClientProfile eda (it is set, but Flux can remove it): no leader"},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			c := clientWithOwners(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				data, err := patch.Data(o)
				if err != nil {
					return err
				}
				if strings.Contains(string(data), "managedFields") {
					if attempts++; attempts == 1 {
						// Another client changes the profile, so that the version that the plugin read is outdated.
						if err := set("argocd-server", "other", "new").do(ctx, c); err != nil {
							return err
						}
						if test.failure != nil {
							return test.failure
						}
					}
				}
				return c.Patch(ctx, o, patch, opts...)
			}})
			check.NoError(t, set(earlierManager, pausedKey, "true").do(t.Context(), c))
			r := executeIn(t, &environment{connect: func() (client.WithWatch, error) { return c, nil }}, interceptor.Funcs{}, nil, "pause", "eda")
			if test.err == "" && r.err != nil || test.err != "" && (r.err == nil || r.err.Error() != test.err) {
				t.Errorf("got error %v, want %q", r.err, test.err)
			}
			profile, err := getProfile(t.Context(), c, "eda")
			check.NoError(t, err)
			check.Equal(t, "field managers", map[string][]string{pausedKey: test.want, "other": {"argocd-server"}}, ownersOf(t, profile))
		})
	}
}
