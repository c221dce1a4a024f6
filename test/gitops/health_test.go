// Package gitops compares the health of a profile, as Argo CD's script and kstatus (Flux, Helm) report it, for states from the
// integration tests (test/integration/gitops_test.go). It is a separate module, so that the operator does not depend on its libraries.
package gitops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const dir = "../../config/argocd/resource_customizations/tuning.storageclient.dev/StorageClientProfile"

// healthTests has the form of Argo CD's health_test.yaml.
type healthTests struct {
	Tests []struct {
		InputPath    string `json:"inputPath"`
		HealthStatus struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"healthStatus"`
	} `json:"tests"`
}

// kstatusOf contains the expected kstatus result for each state.
var kstatusOf = map[string]status.Status{
	"testdata/new.yaml":              status.InProgressStatus,
	"testdata/healthy.yaml":          status.CurrentStatus,
	"testdata/progressing.yaml":      status.InProgressStatus,
	"testdata/unobserved.yaml":       status.InProgressStatus,
	"testdata/stalled.yaml":          status.FailedStatus,
	"testdata/plan-mode.yaml":        status.InProgressStatus,
	"testdata/waiting-approval.yaml": status.InProgressStatus,
	"testdata/waiting-evidence.yaml": status.InProgressStatus,
	"testdata/restoring.yaml":        status.TerminatingStatus,
}

func TestEachStateHasItsHealth(t *testing.T) {
	tests := readTests(t)
	files, err := filepath.Glob(filepath.Join(dir, "testdata", "*.yaml"))
	if err != nil || len(files) != len(tests.Tests) || len(files) != len(kstatusOf) {
		t.Fatalf("got %d states, %d health tests, %d for kstatus (%v): each state needs one of both", len(files), len(tests.Tests), len(kstatusOf), err)
	}
	script := read(t, filepath.Join(dir, "health.lua"))
	for _, test := range tests.Tests {
		t.Run(test.InputPath, func(t *testing.T) {
			object := readObject(t, filepath.Join(dir, test.InputPath))
			health, message := runHealth(t, script, object)
			if health != test.HealthStatus.Status || message != test.HealthStatus.Message {
				t.Errorf("got %s: %q from Argo CD, want %s: %q", health, message, test.HealthStatus.Status, test.HealthStatus.Message)
			}
			result, err := status.Compute(object)
			if err != nil || result.Status != kstatusOf[test.InputPath] {
				t.Errorf("got %v (%v) from kstatus, want %s", result, err, kstatusOf[test.InputPath])
			}
		})
	}
}

func TestTheConfigMapHoldsTheSameScript(t *testing.T) {
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../config/argocd/argocd-cm.yaml")), &configMap); err != nil {
		t.Fatal(err)
	}
	got := configMap.Data["resource.customizations.health.tuning.storageclient.dev_StorageClientProfile"]
	if strings.TrimSpace(got) != strings.TrimSpace(read(t, filepath.Join(dir, "health.lua"))) {
		t.Error("argocd-cm.yaml and health.lua differ")
	}
}

func readTests(t *testing.T) healthTests {
	t.Helper()
	var tests healthTests
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(dir, "health_test.yaml"))), &tests); err != nil {
		t.Fatal(err)
	}
	return tests
}

func readObject(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	// Not plain JSON: kstatus requires integers.
	if err := object.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return object
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func runHealth(t *testing.T, script string, object *unstructured.Unstructured) (health, message string) {
	t.Helper()
	table := runLua(t, script, object)
	return table.RawGetString("status").String(), table.RawGetString("message").String()
}

// runLua runs a script with the libraries that Argo CD opens: base, package, table, and the time functions of os. There is no string
// library.
func runLua(t *testing.T, script string, object *unstructured.Unstructured) *lua.LTable {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	t.Cleanup(l.Close)
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.OsLibName: lua.OpenOs,
	} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	if os, isTable := l.GetGlobal(lua.OsLibName).(*lua.LTable); isTable {
		for _, name := range []string{"execute", "exit", "getenv", "remove", "rename", "setenv", "setlocale", "tmpname"} {
			os.RawSetString(name, lua.LNil)
		}
	}
	l.SetGlobal("obj", toLua(l, object.Object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	table, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %v, not a table", l.Get(-1))
	}
	return table
}

func toLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, element := range v {
			table.RawSetString(key, toLua(l, element))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, element := range v {
			table.Append(toLua(l, element))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
