package gitops

import (
	"bytes"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const prefix = "tuning.storageclient.dev/"

func TestActionsAreOfferedOnlyIfTheyHaveAnEffect(t *testing.T) {
	script := read(t, filepath.Join(dir, "actions", "discovery.lua"))
	for name, test := range map[string]struct {
		state  string
		change func(*unstructured.Unstructured)
		want   []string
	}{
		"a plan that waits": {state: "waiting-approval.yaml", want: []string{"approve", "pause"}},
		"an approved plan": {state: "waiting-approval.yaml", change: func(o *unstructured.Unstructured) {
			hash, _, _ := unstructured.NestedString(o.Object, "status", "plan", "hash")
			o.SetAnnotations(map[string]string{prefix + "approved-plan": hash})
		}, want: []string{"pause"}},
		"a plan that is approved in Git": {state: "waiting-approval.yaml", change: func(o *unstructured.Unstructured) {
			hash, _, _ := unstructured.NestedString(o.Object, "status", "plan", "hash")
			_ = unstructured.SetNestedField(o.Object, hash, "spec", "rollout", "reboot", "approvedPlan")
		}, want: []string{"pause"}},
		"a plan without reboots": {state: "waiting-approval.yaml", change: func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "Never", "spec", "rollout", "reboot", "policy")
		}, want: []string{"pause"}},
		"a plan from before the latest edit": {state: "unobserved.yaml", want: []string{"pause"}},
		"a pause": {state: "healthy.yaml", change: func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{prefix + "paused": "true", prefix + "approved-plan": hashOf(o)})
		}, want: []string{"resume"}},
		"a pause by another value": {state: "healthy.yaml", change: func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{prefix + "paused": "yes", prefix + "approved-plan": hashOf(o)})
		}, want: []string{"resume"}},
		"no pause by False": {state: "healthy.yaml", change: func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{prefix + "paused": "False", prefix + "approved-plan": hashOf(o)})
		}, want: []string{"pause"}},
		"a profile that is stopped": {state: "stalled.yaml", change: func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{prefix + "approved-plan": hashOf(o)})
		}, want: []string{"pause", "retry"}},
	} {
		t.Run(name, func(t *testing.T) {
			object := readObject(t, filepath.Join(dir, "testdata", test.state))
			if test.change != nil {
				test.change(object)
			}
			var offered []string
			returned := runLua(t, script, object)
			returned.ForEach(func(name, action lua.LValue) {
				if table, isTable := action.(*lua.LTable); isTable && table.RawGetString("disabled") == lua.LFalse {
					offered = append(offered, name.String())
				}
			})
			slices.Sort(offered)
			if diff := cmp.Diff(test.want, offered); diff != "" {
				t.Errorf("offered (-want +got):\n%s", diff)
			}
		})
	}
}

func hashOf(o *unstructured.Unstructured) string {
	hash, _, _ := unstructured.NestedString(o.Object, "status", "plan", "hash")
	return hash
}

func TestActionsChangeOnlyOneAnnotation(t *testing.T) {
	waiting := filepath.Join(dir, "testdata", "waiting-approval.yaml")
	for action, want := range map[string]string{
		"approve": prefix + "approved-plan=" + regexp.QuoteMeta(hashOf(readObject(t, waiting))),
		"pause":   prefix + "paused=true",
		"resume":  "",
		"retry":   prefix + `retry=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`,
	} {
		for _, annotated := range []bool{false, true} {
			object := readObject(t, waiting)
			if object.SetAnnotations(nil); annotated {
				object.SetAnnotations(map[string]string{"example.com/kept": "x"})
				if action == "resume" {
					object.SetAnnotations(map[string]string{"example.com/kept": "x", prefix + "paused": "true"})
				}
			}
			got := fromLua(runLua(t, read(t, filepath.Join(dir, "actions", action, "action.lua")), object))
			result := &unstructured.Unstructured{Object: got.(map[string]any)}
			annotations := result.GetAnnotations()
			if annotated && annotations["example.com/kept"] != "x" {
				t.Errorf("%s removes the annotations of other users: %v", action, annotations)
			}
			delete(annotations, "example.com/kept")
			var changed []string
			for _, key := range slices.Sorted(maps.Keys(annotations)) {
				changed = append(changed, key+"="+annotations[key])
			}
			if line := strings.Join(changed, " "); !regexp.MustCompile("^" + want + "$").MatchString(line) {
				t.Errorf("%s: got %q, want %s", action, line, want)
			}
			before := fromLua(toLua(lua.NewState(), object.Object))
			for _, o := range []map[string]any{got.(map[string]any), before.(map[string]any)} {
				unstructured.RemoveNestedField(o, "metadata", "annotations")
			}
			if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("%s changes more than an annotation (-before +after):\n%s", action, diff)
			}
		}
	}
}

func TestTheConfigMapHoldsTheSameActions(t *testing.T) {
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../config/argocd/argocd-cm.yaml")), &configMap); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Discovery   string `json:"discovery.lua"`
		Definitions []struct {
			Name   string `json:"name"`
			Action string `json:"action.lua"`
		} `json:"definitions"`
	}
	if err := yaml.UnmarshalStrict([]byte(configMap.Data["resource.customizations.actions.tuning.storageclient.dev_StorageClientProfile"]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Discovery != read(t, filepath.Join(dir, "actions", "discovery.lua")) {
		t.Error("argocd-cm.yaml and discovery.lua differ")
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "actions", "*", "action.lua"))
	if err != nil || len(scripts) != len(got.Definitions) {
		t.Fatalf("got %d actions, and %d in argocd-cm.yaml (%v)", len(scripts), len(got.Definitions), err)
	}
	for _, d := range got.Definitions {
		if d.Action != read(t, filepath.Join(dir, "actions", d.Name, "action.lua")) {
			t.Errorf("argocd-cm.yaml and the script of %s differ", d.Name)
		}
	}
}

// The test simulates the fields of the ApplicationSet: each pool becomes an Application, in a step that selects it.
func TestTheApplicationSetMakesAnApplicationOfEachPool(t *testing.T) {
	content := read(t, "../../config/argocd/applicationset.yaml")
	var set struct {
		Kind string `json:"kind"`
		Spec struct {
			GoTemplate        bool     `json:"goTemplate"`
			GoTemplateOptions []string `json:"goTemplateOptions"`
			Strategy          struct {
				RollingSync struct {
					Steps []struct {
						MatchExpressions []struct {
							Key, Operator string
							Values        []string
						} `json:"matchExpressions"`
					} `json:"steps"`
				} `json:"rollingSync"`
			} `json:"strategy"`
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(content), &set); err != nil {
		t.Fatal(err)
	}
	if set.Kind != "ApplicationSet" || !set.Spec.GoTemplate || !slices.Contains(set.Spec.GoTemplateOptions, "missingkey=error") {
		t.Fatalf("got %+v", set)
	}
	raw, err := yaml.Marshal(set.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	for stage, wantStep := range map[string]int{"canary": 0, "production": 1} {
		var rendered bytes.Buffer
		pool := map[string]any{"stage": stage, "path": map[string]any{"basename": "eda", "path": "pools/eda"}}
		if err := template.Must(template.New("").Option("missingkey=error").Parse(string(raw))).Execute(&rendered, pool); err != nil {
			t.Fatal(err)
		}
		application := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(rendered.Bytes(), &application.Object); err != nil {
			t.Fatal(err)
		}
		path, _, _ := unstructured.NestedString(application.Object, "spec", "source", "path")
		options, _, _ := unstructured.NestedStringSlice(application.Object, "spec", "syncPolicy", "syncOptions")
		if application.GetName() != "storage-client-eda" || path != "pools/eda" || !slices.Contains(options, "Delete=confirm") || !slices.Contains(options, "Prune=confirm") {
			t.Errorf("got %s", rendered.String())
		}
		for i, step := range set.Spec.Strategy.RollingSync.Steps {
			takes := true
			for _, e := range step.MatchExpressions {
				takes = takes && slices.Contains(e.Values, application.GetLabels()[e.Key]) == (e.Operator == "In")
			}
			if takes != (i == wantStep) {
				t.Errorf("stage %s: step %d selects it: %t", stage, i, takes)
			}
		}
	}
}

func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case *lua.LTable:
		if v.MaxN() > 0 {
			var list []any
			v.ForEach(func(_, element lua.LValue) { list = append(list, fromLua(element)) })
			return list
		}
		out := map[string]any{}
		v.ForEach(func(key, element lua.LValue) { out[key.String()] = fromLua(element) })
		return out
	case lua.LString:
		return string(v)
	case lua.LBool:
		return bool(v)
	case lua.LNumber:
		return int64(v)
	}
	return nil
}
