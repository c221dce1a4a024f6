//go:build gitops

package gitops

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/test/check"
)

var applicationKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}

// argo is a running Argo CD.
type argo struct {
	*world
	seen *sightings
}

// sightings are the states that each Application has had, without repetitions.
type sightings struct {
	mu sync.Mutex
	of map[string][]string
}

// wrappers are scripts that the repo server expects in PATH.
var wrappers = []string{"hack/git-verify-wrapper.sh", "hack/gpg-wrapper.sh"}

func (w *world) startArgoCD(t *testing.T) *argo {
	t.Helper()
	source := variable(t, "SCO_ARGOCD")
	w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: argocd}\n")
	w.kubectl(t, "create --filename "+filepath.Join(source, "manifests/crds/application-crd.yaml")+
		" --filename "+filepath.Join(source, "manifests/crds/appproject-crd.yaml")+" --filename "+filepath.Join(source, "manifests/crds/applicationset-crd.yaml"))
	for _, name := range []string{"argocd-cm.yaml", "argocd-cmd-params-cm.yaml", "argocd-rbac-cm.yaml", "argocd-gpg-keys-cm.yaml", "argocd-ssh-known-hosts-cm.yaml", "argocd-tls-certs-cm.yaml"} {
		w.kubectl(t, "create --namespace argocd --filename "+filepath.Join(source, "manifests/base/config", name))
	}
	w.apply(t, `apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/name: argocd-secret, app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: c2VjcmV0LWtleS1vZi10aGUtdGVzdA==, admin.password: x, admin.passwordMtime: "2026-01-01T00:00:00Z"}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec: {sourceRepos: ['*'], destinations: [{namespace: '*', server: '*'}], clusterResourceWhitelist: [{group: '*', kind: '*'}]}
`)
	// The command of config/argocd/argocd-cm.yaml, word for word.
	w.kubectl(t, "-n argocd patch configmap argocd-cm --patch-file config/argocd/argocd-cm.yaml --field-manager=storageclient-plugin")

	path := filepath.Join(w.dir, "argocd-bin")
	for _, dir := range []string{path, filepath.Join(w.dir, "argocd-home"), filepath.Join(w.dir, "argocd-tmp")} {
		check.NoError(t, os.Mkdir(dir, 0o755))
	}
	for _, script := range wrappers {
		content, err := os.ReadFile(filepath.Join(source, script))
		check.NoError(t, err)
		check.NoError(t, os.WriteFile(filepath.Join(path, filepath.Base(script)), content, 0o755))
	}
	check.NoError(t, w.Plane.AddAdministrator("argocd", filepath.Join(w.dir, "argocd.kubeconfig")))
	if _, err := w.Plane.Run("redis-server", "--bind", "127.0.0.1", "--port", "6379", "--save", "", "--appendonly", "no", "--dir", w.dir); err != nil {
		t.Fatal(err)
	}
	a := &argo{world: w, seen: &sightings{of: map[string][]string{}}}
	a.startRole(t, "repo-server", "--disable-tls", "--redis=127.0.0.1:6379")
	// An Application that Argo CD reads too early would show an error until its next refresh.
	a.awaitPorts(t, "6379", "8081")
	a.startRole(t, "application-controller", "--repo-server-plaintext", "--repo-server=127.0.0.1:8081", "--redis=127.0.0.1:6379", "--kubeconfig="+a.config(), "--namespace=argocd",
		// The backoff would otherwise make a test of many syncs take hours.
		"--self-heal-backoff-cap-seconds=2", "--self-heal-backoff-cooldown-seconds=1")
	a.watch(t)
	return a
}

func (w *world) awaitPorts(t *testing.T, ports ...string) {
	t.Helper()
	for _, port := range ports {
		w.await(t, "port "+port, func() (bool, string) {
			connection, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				return false, err.Error()
			}
			_ = connection.Close()
			return true, ""
		})
	}
}

func (a *argo) config() string { return filepath.Join(a.dir, "argocd.kubeconfig") }

// startRole starts one of Argo CD's programs, all of which are one binary.
func (a *argo) startRole(t *testing.T, role string, flags ...string) {
	t.Helper()
	home := filepath.Join(a.dir, "argocd-home")
	argv := append([]string{
		"env", "ARGOCD_BINARY_NAME=argocd-" + role, "HOME=" + home, "TMPDIR=" + filepath.Join(a.dir, "argocd-tmp"), "ARGOCD_GPG_ENABLED=false", "ARGOCD_GNUPGHOME=" + home,
		"ARGOCD_ASK_PASS_SOCK=" + filepath.Join(a.dir, "ask-"+role), "KUBECONFIG=" + a.config(), "POD_NAMESPACE=argocd", "NAMESPACE=argocd",
		"ARGOCD_FAKE_IN_CLUSTER=true", // "in cluster" is the cluster of KUBECONFIG
		"PATH=" + filepath.Join(a.dir, "argocd-bin") + ":" + a.binaries + ":" + os.Getenv("PATH"), filepath.Join(a.binaries, "argocd"),
	}, flags...)
	if _, err := a.Plane.RunAs("argocd-"+role, argv...); err != nil {
		t.Fatal(err)
	}
}

// watch records what Argo CD shows of each Application.
func (a *argo) watch(t *testing.T) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(applicationKind)
	watcher, err := a.Client.Watch(t.Context(), list, client.InNamespace("argocd"))
	check.NoError(t, err)
	t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok {
				a.seen.add(object.GetName(), pictureOf(object).short())
			}
		}
	}()
}

func (s *sightings) add(name, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[name]; len(have) == 0 || have[len(have)-1] != state {
		s.of[name] = append(have, state)
	}
}

// since returns the states of an Application after the first n, and their number.
func (s *sightings) since(name string, n int) ([]string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.of[name]
	return slices.Clone(have[min(n, len(have)):]), len(have)
}

// picture is the state of an Application in Argo CD.
type picture struct{ sync, health, phase, message, revision, conditions string }

func (p picture) short() string { return p.sync + "/" + p.health }

func (p picture) String() string {
	return fmt.Sprintf("%s %s, operation %s: %s %s at %.7s", p.sync, p.health, p.phase, p.message, p.conditions, p.revision)
}

func pictureOf(application *unstructured.Unstructured) picture {
	field := func(path ...string) string {
		value, _, _ := unstructured.NestedString(application.Object, path...)
		return value
	}
	conditions, _, _ := unstructured.NestedSlice(application.Object, "status", "conditions")
	texts := []string{}
	for _, c := range conditions {
		texts = append(texts, fmt.Sprint(c.(map[string]any)["type"], ": ", c.(map[string]any)["message"]))
	}
	return picture{
		field("status", "sync", "status"), field("status", "health", "status"), field("status", "operationState", "phase"),
		field("status", "operationState", "message"), field("status", "sync", "revision"), strings.Join(texts, "; "),
	}
}

func (a *argo) application(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return a.get(t, applicationKind, "argocd", name)
}

// applicationOf returns the manifest of an Application. policy is its syncPolicy in flow style.
func (a *argo) applicationOf(name, path, policy string) string {
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %q, targetRevision: main, path: %s}
  destination: {server: 'https://kubernetes.default.svc', namespace: default}
  syncPolicy: %s
`, name, a.url, path, policy)
}

// refresh lets Argo CD read Git and compare, and waits until it has.
func (a *argo) refresh(t *testing.T, name string) picture {
	t.Helper()
	a.mark(t, name, "argocd.argoproj.io/refresh", "hard")
	var p picture
	a.await(t, "a refresh of "+name, func() (bool, string) {
		application := a.application(t, name)
		if application == nil {
			return false, "no Application"
		}
		p = pictureOf(application)
		_, asked := application.GetAnnotations()["argocd.argoproj.io/refresh"]
		return !asked, p.String()
	})
	return p
}

func (a *argo) mark(t *testing.T, name, annotation, value string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}}})
	check.NoError(t, err)
	a.patch(t, name, patch)
}

func (a *argo) patch(t *testing.T, name string, patch []byte) {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(applicationKind)
	object.SetNamespace("argocd")
	object.SetName(name)
	check.NoError(t, a.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch)))
}

// sync starts a sync by hand, like the button, and waits for its end.
func (a *argo) sync(t *testing.T, name string) picture {
	t.Helper()
	began := a.startSync(t, name)
	var p picture
	a.await(t, "a sync of "+name, func() (bool, string) {
		application := a.application(t, name)
		p = pictureOf(application)
		started, _, _ := unstructured.NestedString(application.Object, "status", "operationState", "startedAt")
		if started == began && application.Object["operation"] == nil {
			a.startSync(t, name) // an automated sync came first
		}
		return started != began && p.phase != "Running" && application.Object["operation"] == nil, p.String()
	})
	return p
}

// startSync starts a sync by hand, with the options of the Application as the server does. It returns the start of the previous one. Argo CD
// would discard the request during another sync.
func (a *argo) startSync(t *testing.T, name string) string {
	t.Helper()
	var application *unstructured.Unstructured
	a.await(t, "the end of an earlier sync of "+name, func() (bool, string) {
		application = a.application(t, name)
		p := pictureOf(application)
		return p.phase != "Running" && application.Object["operation"] == nil, p.String()
	})
	began, _, _ := unstructured.NestedString(application.Object, "status", "operationState", "startedAt")
	options, _, _ := unstructured.NestedStringSlice(application.Object, "spec", "syncPolicy", "syncOptions")
	// Times are in seconds: a second sync within one second would look like the first.
	if at, err := time.Parse(time.RFC3339, began); err == nil {
		time.Sleep(time.Until(at.Add(time.Second)))
	}
	patch, err := json.Marshal(map[string]any{"operation": map[string]any{"initiatedBy": map[string]any{"username": "test"}, "sync": map[string]any{"revision": "main", "syncOptions": options}}})
	check.NoError(t, err)
	a.patch(t, name, patch)
	return began
}

// expect waits until Argo CD shows a state, such as Synced/Healthy, for a revision ("" for any), and prints the picture.
func (a *argo) expect(t *testing.T, name, state, revision string) picture {
	t.Helper()
	var p picture
	a.await(t, name+" to be "+state, func() (bool, string) {
		application := a.application(t, name)
		if application == nil {
			return false, "no Application"
		}
		p = pictureOf(application)
		return p.short() == state && (revision == "" || p.revision == revision), p.String()
	})
	t.Logf("Argo CD shows %s: %s", name, p)
	return p
}

// expectGone waits until an Application is deleted.
func (a *argo) expectGone(t *testing.T, name string) {
	t.Helper()
	a.await(t, "Application "+name+" to be gone", func() (bool, string) {
		application := a.application(t, name)
		if application == nil {
			return true, ""
		}
		return false, pictureOf(application).String()
	})
}

// operations returns the starts of an Application's syncs.
func (a *argo) operations(t *testing.T, name string) []string {
	t.Helper()
	history, _, _ := unstructured.NestedSlice(a.application(t, name).Object, "status", "history")
	started, _, _ := unstructured.NestedString(a.application(t, name).Object, "status", "operationState", "startedAt")
	out := []string{started}
	for _, h := range history {
		out = append(out, fmt.Sprint(h.(map[string]any)["deployStartedAt"]))
	}
	return out
}

// differing returns the objects of an Application that are not Synced.
func (a *argo) differing(t *testing.T, name string) []string {
	t.Helper()
	resources, _, _ := unstructured.NestedSlice(a.application(t, name).Object, "status", "resources")
	var out []string
	for _, r := range resources {
		resource := r.(map[string]any)
		if resource["status"] != "Synced" {
			out = append(out, fmt.Sprint(resource["kind"], " ", resource["name"], ": ", resource["status"]))
		}
	}
	return out
}

func toYAML(t *testing.T, value any) string {
	t.Helper()
	out, err := yaml.Marshal(value)
	check.NoError(t, err)
	return string(out)
}
