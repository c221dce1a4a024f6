//go:build gitops

package gitops

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

var profileKind = schema.GroupVersionKind{Group: "tuning.storageclient.dev", Version: "v1alpha1", Kind: "StorageClientProfile"}

// version is a version of the operator: a directory with its manifests, and the program of its manager.
type version struct {
	name, dir, manager string
	// differing are the objects that stay OutOfSync in Argo CD.
	differing []string
}

// differing has the earlier versions that Argo CD never shows as Synced: the default of a divisor that manifests omit is a difference for it.
var differing = map[string][]string{"a2b2bbac": {"Deployment storage-client-manager: OutOfSync"}}

// versions returns the earlier versions, the oldest first, and this one.
func versions(t *testing.T) []version {
	t.Helper()
	directories, isSet := os.LookupEnv("SCO_FORMERS")
	if !isSet {
		t.Fatal("SCO_FORMERS is not set: run \"make test-gitops\", which builds the files for this test")
	}
	if directories == "" {
		t.Skip("this clone lacks the earlier commits: an UPGRADE by Argo CD is NOT tried")
	}
	var out []version
	for _, dir := range filepath.SplitList(directories) {
		name := filepath.Base(dir)[:8]
		out = append(out, version{name: name, dir: dir, manager: filepath.Join(dir, "bin/manager"), differing: differing[name]})
	}
	return append(out, version{name: "current", dir: root, manager: variable(t, "SCO_MANAGER")})
}

// upgrade is a cluster in which Argo CD has installed the operator.
type upgrade struct {
	*argo
	// manager is the running manager. Nil before the first one.
	manager *controlplane.Process
	// profiles are the profiles that were stored under the first version, as that version returned them.
	profiles map[string]*unstructured.Unstructured
}

const operatorApp = "operator"

// TestUpgrade lets Argo CD install the operator in an empty cluster, and upgrade it. Each version has its manifests, its manager, and its
// definitions of the stored profiles.
func TestUpgrade(t *testing.T) {
	all := versions(t)
	w := startCluster(t, sandbox.Options{Root: t.TempDir(), Nodes: 2})
	u := &upgrade{argo: w.startArgoCD(t), profiles: map[string]*unstructured.Unstructured{}}
	step := func(what string, do func(*testing.T)) {
		t.Helper()
		if !t.Run(what, do) {
			t.FailNow()
		}
	}
	first := all[0]
	step("a manager that never becomes available does not hold back the next commit", func(t *testing.T) { u.install(t, first) })
	step("the first version is Synced and Healthy, and stores profiles", func(t *testing.T) { u.store(t, first) })
	for i, next := range all[1:] {
		step(fmt.Sprintf("Argo CD upgrades %s to %s", all[i].name, next.name), func(t *testing.T) { u.upgrade(t, all[i], next) })
	}
	step("nothing is out of sync afterwards", func(t *testing.T) {
		// The manager adds agents to nodes one after the other, and Argo CD shows Progressing until then.
		u.await(t, "an agent on each node", func() (bool, string) {
			got := u.kubectl(t, "--namespace storage-client-agent get daemonset storage-client-node-agent --output=jsonpath='{.status.desiredNumberScheduled} {.status.updatedNumberScheduled} {.status.numberAvailable}'")
			return got == "2 2 2", got
		})
		u.refresh(t, operatorApp)
		u.expectSucceeded(t, "Synced/Healthy", "")
		u.expectQuiet(t, operatorApp, time.Minute)
	})
}

// write replaces the manifests in Git by the manifests of a version, and pushes. It returns the commit.
func (u *upgrade) write(t *testing.T, v version) string {
	t.Helper()
	dir := filepath.Join(u.work, "operator", "config")
	check.NoError(t, os.RemoveAll(dir))
	check.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(v.dir, "config"))))
	return u.commit(t, "the operator "+v.name, nil)
}

// install applies the first version while no node accepts the manager's pods, and then another commit.
func (u *upgrade) install(t *testing.T, v version) {
	u.kubectl(t, "cordon "+strings.Join(u.Names, " "))
	revision := u.write(t, v)
	u.apply(t, u.applicationOf(operatorApp, "operator/config/default", "{automated: {selfHeal: true, prune: true}, syncOptions: [ServerSideApply=true]}"))
	u.expectSucceeded(t, "Synced/Progressing", revision)

	file := filepath.Join(u.work, "operator/config/default/kustomization.yaml")
	content, err := os.ReadFile(file)
	check.NoError(t, err)
	revision = u.commit(t, "three managers", map[string]string{"operator/config/default/kustomization.yaml": string(content) + "replicas: [{name: storage-client-manager, count: 3}]\n"})
	u.refresh(t, operatorApp)
	u.expectSucceeded(t, "Synced/Progressing", revision)
	if got := u.kubectl(t, "--namespace storage-client-system get deployment storage-client-manager --output=jsonpath={.spec.replicas}"); got != "3" {
		t.Errorf("the Deployment has %s replicas, want the 3 of the second commit", got)
	}
	u.kubectl(t, "uncordon "+strings.Join(u.Names, " "))
	u.expectSucceeded(t, "Synced/Healthy", revision)
}

// expectSucceeded waits until Argo CD shows a state of the operator for a revision ("" for any), with a sync that has succeeded.
func (u *upgrade) expectSucceeded(t *testing.T, state, revision string) {
	t.Helper()
	u.await(t, "the operator to be "+state, func() (bool, string) {
		p := pictureOf(u.application(t, operatorApp))
		return p.short() == state && (revision == "" || p.revision == revision) && p.phase == "Succeeded", fmt.Sprint(p, u.differing(t, operatorApp))
	})
	t.Logf("Argo CD shows: %s", pictureOf(u.application(t, operatorApp)))
}

// expectApplied waits until Argo CD has applied a version, and all is Healthy and Synced except for the objects that this version names.
func (u *upgrade) expectApplied(t *testing.T, v version, revision string) {
	t.Helper()
	u.await(t, v.name+" to be applied", func() (bool, string) {
		application := u.application(t, operatorApp)
		p, deployed := pictureOf(application), ""
		if history, _, _ := unstructured.NestedSlice(application.Object, "status", "history"); len(history) > 0 {
			deployed = fmt.Sprint(history[len(history)-1].(map[string]any)["revision"])
		}
		differing := u.differing(t, operatorApp)
		return deployed == revision && p.revision == revision && p.health == "Healthy" && slices.Equal(differing, v.differing), fmt.Sprint(p, differing)
	})
	t.Logf("Argo CD shows %s: %s %v", v.name, pictureOf(u.application(t, operatorApp)), u.differing(t, operatorApp))
}

// startManager replaces the running manager by the one of a version, with the arguments of the Deployment that Argo CD applied.
func (u *upgrade) startManager(t *testing.T, v version) {
	t.Helper()
	if u.manager != nil {
		u.manager.Kill()
	}
	var args []string
	check.NoError(t, json.Unmarshal([]byte(u.kubectl(t, "--namespace storage-client-system get deployment storage-client-manager --output=jsonpath={.spec.template.spec.containers[0].args}")), &args))
	config, err := u.ManagerConfig(t.Context(), "manager-"+v.name)
	check.NoError(t, err)
	// The last value of a flag counts. Other programs listen on these ports here, and the killed manager keeps its lease.
	argv := append(append([]string{v.manager}, args...), "--kubeconfig="+config, "--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-port="+webhookPort)
	if u.manager, err = u.Plane.RunAs("manager-"+v.name, argv...); err != nil {
		t.Fatal(err)
	}
}

// store runs the manager of the first version and creates the profiles that this version shipped.
func (u *upgrade) store(t *testing.T, v version) {
	u.routeWebhooks(t)
	u.startManager(t, v)
	files, err := filepath.Glob(filepath.Join(v.dir, "config/profiles/*/profile.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no profiles: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		// The webhook rejects all profiles until the manager has written its certificate.
		u.await(t, "profile "+name+" to be accepted", func() (bool, string) {
			output, err := u.try("kubectl", "apply", "--server-side", "--filename="+file)
			return err == nil, output
		})
	}
	u.await(t, "the manager to have read all profiles", func() (bool, string) {
		profiles := &unstructured.UnstructuredList{}
		profiles.SetGroupVersionKind(profileKind)
		if err := u.Client.List(t.Context(), profiles); err != nil {
			return false, err.Error()
		}
		for _, p := range profiles.Items {
			if observed, _, _ := unstructured.NestedInt64(p.Object, "status", "observedGeneration"); observed != p.GetGeneration() {
				return false, fmt.Sprintf("%s: observed generation %d of %d", p.GetName(), observed, p.GetGeneration())
			}
			u.profiles[p.GetName()] = p.DeepCopy()
		}
		return len(profiles.Items) == len(files), fmt.Sprintf("%d profiles", len(profiles.Items))
	})
	t.Logf("stored: %v", slices.Sorted(maps.Keys(u.profiles)))
	u.refresh(t, operatorApp)
	u.expectSucceeded(t, "Synced/Healthy", "")
}

// expectWebhook waits until the webhook rejects a profile that the definitions accept, with its own remedy.
func (u *upgrade) expectWebhook(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile.yaml")
	profile := "{apiVersion: tuning.storageclient.dev/v1alpha1, kind: StorageClientProfile, metadata: {name: rejected}, spec: {nodeSelector: {matchLabels: {pool: none}}, node: {sysctls: {vm.unknown: '1'}}}}"
	check.NoError(t, os.WriteFile(file, []byte(profile), 0o600))
	u.await(t, "the manager to serve the webhook", func() (bool, string) {
		output, _ := u.try("kubectl", "create", "--dry-run=server", "--filename="+file)
		return strings.Contains(output, "--allow-parameter"), output
	})
}

// upgrade lets Argo CD apply the next version, then replaces the manager, and checks each object.
func (u *upgrade) upgrade(t *testing.T, from, to version) {
	former, current := u.render(t, from), u.render(t, to)
	existing := u.uids(t, current)
	_, seen := u.seen.since(operatorApp, 0)
	revision := u.write(t, to)
	u.refresh(t, operatorApp)
	u.expectApplied(t, to, revision)
	u.startManager(t, to)
	u.expectWebhook(t)
	u.refresh(t, operatorApp)
	u.expectApplied(t, to, revision)
	states, _ := u.seen.since(operatorApp, seen)
	t.Logf("seen: %v", states)

	u.checkObjects(t, current)
	for id, uid := range u.uids(t, current) {
		if before, existed := existing[id]; existed && before != uid {
			t.Errorf("%s was created again: its UID was %s, is %s", id, before, uid)
		}
	}
	var added, adopted, removed []string
	for id := range current {
		_, existed := existing[id]
		switch {
		case former[id] != nil:
		case existed:
			adopted = append(adopted, id)
		default:
			added = append(added, id)
		}
	}
	for id, object := range former {
		if current[id] != nil {
			continue
		}
		removed = append(removed, id)
		if u.get(t, object.GroupVersionKind(), object.GetNamespace(), object.GetName()) != nil {
			t.Errorf("%s is not pruned", id)
		}
	}
	t.Logf("%d objects; new: %d; adopted: %v; pruned: %v", len(current), len(added), slices.Sorted(slices.Values(adopted)), slices.Sorted(slices.Values(removed)))
	u.checkProfiles(t)
}

// render returns the objects of a version's config/default.
func (u *upgrade) render(t *testing.T, v version) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq(u.run(t, "kustomize", "build", filepath.Join(v.dir, "config/default")), "\n---\n") {
		object := parse(t, document)
		gvk := object.GroupVersionKind()
		out[identity(gvk.Group, gvk.Kind, object.GetNamespace(), object.GetName())] = object
	}
	return out
}

func identity(group, kind, namespace, name string) string {
	return strings.Trim(kind+"."+group, ".") + " " + strings.Trim(namespace+"/"+name, "/")
}

// uids returns the UIDs of those objects that exist.
func (u *upgrade) uids(t *testing.T, objects map[string]*unstructured.Unstructured) map[string]types.UID {
	t.Helper()
	out := map[string]types.UID{}
	for id, object := range objects {
		if found := u.get(t, object.GroupVersionKind(), object.GetNamespace(), object.GetName()); found != nil {
			out[id] = found.GetUID()
		}
	}
	return out
}

// checkObjects checks that Argo CD lists exactly these objects, each of them Healthy if its kind has a health.
func (u *upgrade) checkObjects(t *testing.T, want map[string]*unstructured.Unstructured) {
	t.Helper()
	resources, _, _ := unstructured.NestedSlice(u.application(t, operatorApp).Object, "status", "resources")
	states := map[string]int{}
	var listed []string
	for _, r := range resources {
		resource := &unstructured.Unstructured{Object: r.(map[string]any)}
		field := func(path ...string) string {
			value, _, _ := unstructured.NestedString(resource.Object, path...)
			return value
		}
		id := identity(field("group"), field("kind"), field("namespace"), field("name"))
		state := strings.Trim(field("status")+" "+field("health", "status"), " ")
		if health := field("health", "status"); health != "" && health != "Healthy" {
			t.Errorf("%s is %s", id, state)
		}
		listed = append(listed, id)
		states[field("kind")+" "+state]++
	}
	slices.Sort(listed)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), listed); diff != "" {
		t.Errorf("objects of Argo CD (-manifests +listed):\n%s", diff)
	}
	t.Logf("Argo CD lists: %v", states)
}

// checkProfiles checks that each profile is the same object with the same fields, and that this version accepts its file.
func (u *upgrade) checkProfiles(t *testing.T) {
	t.Helper()
	for name, before := range u.profiles {
		after := u.get(t, profileKind, "", name)
		if after == nil {
			t.Errorf("profile %s is gone", name)
			continue
		}
		if after.GetUID() != before.GetUID() || after.GetGeneration() != before.GetGeneration() {
			t.Errorf("profile %s was written: UID %s, was %s; generation %d, was %d", name, after.GetUID(), before.GetUID(), after.GetGeneration(), before.GetGeneration())
		}
		var added []string
		if diff := cmp.Diff(before.Object["spec"], project(after.Object["spec"], before.Object["spec"], "spec", &added)); diff != "" {
			t.Errorf("fields of profile %s (-stored +after the upgrade):\n%s", name, diff)
		}
		if len(added) > 0 {
			t.Logf("profile %s: defaults of newer definitions: %v", name, slices.Sorted(slices.Values(added)))
		}
	}
}

// project returns value without the fields that like lacks, which it adds to added.
func project(value, like any, path string, added *[]string) any {
	fields, isMap := value.(map[string]any)
	known, both := like.(map[string]any)
	items, isList := value.([]any)
	others, lists := like.([]any)
	switch {
	case isMap && both:
		out := map[string]any{}
		for key, field := range fields {
			if other, exists := known[key]; exists {
				out[key] = project(field, other, path+"."+key, added)
			} else {
				*added = append(*added, path+"."+key)
			}
		}
		return out
	case isList && lists && len(items) == len(others):
		out := make([]any, len(items))
		for i := range items {
			out[i] = project(items[i], others[i], path+"[]", added)
		}
		return out
	}
	return value
}
