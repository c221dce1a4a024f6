//go:build attack

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// The generator derives attacks from the policies of the installation and of each component: each object that a policy matches, with
// each field of its schema added, changed and removed, by each identity and by pairs of identities. All requests are dry runs, except
// for the first half of a pair. An attack counts only if the API server accepts it from an administrator, or a policy rejects it.
// testdata/allowed.csv has the attacks that succeed.

// minimumAttacks is the minimum number of played attacks.
const minimumAttacks = 3000

// target is one request that a policy matches.
type target struct {
	verb string
	// object is the resource and the name, e.g. nodes/status/node-1.
	object   string
	url      string
	kind     schema.GroupVersionKind
	policies []string
	body     map[string]any
	// isSample reports whether the target is a further object of the same kind, which is not varied.
	isSample bool
	// response is the API server's response to the unchanged object.
	response any
}

// generated is one attack: a target with one difference.
type generated struct {
	*target
	field, change string
	text          []byte
	// seen is the defense against an administrator, denial the text of the error.
	seen, denial string
	// choice is the index of the valid alternative.
	choice int
}

func (g generated) String() string {
	return fmt.Sprintf("%s %s: %s %s", g.verb, g.object, g.change, g.field)
}

// arena is a cluster with a client of each identity.
type arena struct {
	cluster  *cluster
	world    *world
	schemas  *schemas
	policies []*policy
	people   map[string]*actor
	rest     map[string]rest.Interface
	played   atomic.Int64
}

const administrator = "administrator"

func newArena(t *testing.T) *arena {
	t.Helper()
	c := startCluster(t)
	c.install(t)
	a := &arena{cluster: c, world: newWorld(t, c), people: map[string]*actor{}, rest: map[string]rest.Interface{}}
	a.installComponents(t)
	a.keepMatched(t)
	identities := c.identities(t)
	identities[administrator] = c.config
	delete(identities, specWriter) // the administrator without the webhooks
	for name, config := range identities {
		a.people[name] = a.world.newActor(t, config)
		clients, err := kubernetes.NewForConfig(a.people[name].config)
		check.NoError(t, err)
		a.rest[name] = clients.Discovery().RESTClient()
	}
	awaitPolicies(t, a.people)
	a.world.dirty.Store(true)
	a.world.reset(t)
	a.schemas = readSchemas(t, c)
	return a
}

// installComponents adds the policies of each component that config/default does not have, with their roles and parameters.
func (a *arena) installComponents(t *testing.T) {
	t.Helper()
	components, err := filepath.Glob(filepath.Join(configDir, "components", "*", "*.yaml"))
	check.NoError(t, err)
	sets := map[string][]*unstructured.Unstructured{"": render(t)}
	for _, file := range components {
		text, err := os.ReadFile(file)
		check.NoError(t, err)
		name := filepath.Base(filepath.Dir(file))
		if _, ok := sets[name]; !ok && bytes.Contains(text, []byte("kind: ValidatingAdmissionPolicy")) {
			sets[name] = render(t, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		for _, object := range sets[name] {
			switch object.GetKind() {
			case "ValidatingAdmissionPolicy":
				if !slices.ContainsFunc(a.policies, func(p *policy) bool { return p.Name == object.GetName() }) {
					a.policies = append(a.policies, convert[policy](t, object))
				}
			case "ValidatingAdmissionPolicyBinding", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ConfigMap":
			default:
				continue
			}
			if err := a.cluster.admin.Create(t.Context(), object.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
}

// keepMatched adds the objects that only policies of components and of trials match.
func (a *arena) keepMatched(t *testing.T) {
	t.Helper()
	a.world.keep(t, trialOf(tenantNamespace, "mine"))
	a.world.keep(t, trialOf(tenantNamespace, "own", func(s *v1alpha1.StorageClientTrialSpec) {
		s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"nocto"}
	}))
	a.world.keep(t, configMap(v1alpha1.ManagerNamespace, v1alpha1.VolumesConfigMapPrefix+"1"))
	a.world.keep(t, configMap(v1alpha1.ManagerNamespace, "storage-client-guardrails"))
}

// objectsOf returns the objects of the world with a kind, in the form of the API server.
func (a *arena) objectsOf(t *testing.T, kind schema.GroupVersionKind) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, k := range a.world.objects {
		if kindOf(t, k) != kind {
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(kind)
		check.NoError(t, a.cluster.admin.Get(t.Context(), client.ObjectKeyFromObject(k.object), live))
		live.SetUID("")
		if kind.Group == "" { // an update without a version is unconditional
			live.SetResourceVersion("")
		}
		out = append(out, plain(t, live.Object))
	}
	return out
}

func kindOf(t *testing.T, k *savedObject) schema.GroupVersionKind {
	t.Helper()
	if u, ok := k.object.(*unstructured.Unstructured); ok {
		return u.GroupVersionKind()
	}
	kind, err := apiutil.GVKForObject(k.object, scheme)
	check.NoError(t, err)
	return kind
}

// restore restores the object of a target. A reset of the whole world would read all objects.
func (a *arena) restore(t *testing.T, x *target) {
	t.Helper()
	for _, k := range a.world.objects {
		if k.object.GetName() == nested(x.body, "name") && k.object.GetNamespace() == nested(x.body, "namespace") && kindOf(t, k) == x.kind {
			k.restore(t, a.cluster.admin)
			return
		}
	}
	t.Fatalf("no saved object for %s", x.object)
}

// plain returns an object as it is in JSON.
func plain(t *testing.T, object any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	check.NoError(t, err)
	var out map[string]any
	check.NoError(t, json.Unmarshal(text, &out))
	return out
}

func nested(object map[string]any, key string) string {
	metadata, _ := object["metadata"].(map[string]any)
	text, _ := metadata[key].(string)
	return text
}

// targets returns the requests that the policies match, each once.
func (a *arena) targets(t *testing.T) []*target {
	t.Helper()
	all := map[string]*target{}
	for _, policy := range a.policies {
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				for _, x := range a.targetsOf(t, policy.Spec.MatchConstraints.NamespaceSelector, rule, resource) {
					key := x.verb + " " + x.url + " " + x.object
					if all[key] == nil {
						all[key] = x
					}
					all[key].policies = append(all[key].policies, policy.Name)
				}
			}
		}
	}
	var out []*target
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[key])
	}
	return out
}

func (a *arena) targetsOf(t *testing.T, selector *metav1.LabelSelector, rule admissionregistrationv1.NamedRuleWithOperations, resource string) []*target {
	t.Helper()
	resource, part, _ := strings.Cut(resource, "/")
	of := schema.GroupVersionResource{Group: rule.APIGroups[0], Version: rule.APIVersions[0], Resource: resource}
	if of.Version == "*" {
		of.Version = ""
	}
	kind, err := a.cluster.admin.RESTMapper().KindFor(of)
	check.NoError(t, err)
	mapping, err := a.cluster.admin.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	check.NoError(t, err)
	var out []*target
	add := func(verb, name string, object map[string]any) {
		url := "/api/v1"
		if kind.Group != "" {
			url = "/apis/" + kind.Group + "/" + kind.Version
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			url += "/namespaces/" + nested(object, "namespace")
		}
		url += "/" + resource
		if verb != "create" {
			url += "/" + nested(object, "name")
		}
		if part != "" {
			url, name = url+"/"+part, part+"/"+name
		}
		out = append(out, &target{verb: verb, object: resource + "/" + name, url: url, kind: kind, body: object})
	}
	isNew := map[string]bool{}
	for _, operation := range rule.Operations {
		for _, object := range a.objectsOf(t, kind) {
			name := nested(object, "name")
			switch {
			case !isSelected(selector, object):
			case len(rule.ResourceNames) > 0 && !slices.Contains(rule.ResourceNames, name):
			case operation == admissionregistrationv1.Create && part == "" && len(rule.ResourceNames) == 0:
				add("create", name, asNew(object))
				out[len(out)-1].isSample = isNew[nested(object, "namespace")]
				isNew[nested(object, "namespace")] = true
			case operation == admissionregistrationv1.Update:
				add("update", name, object)
			case operation == admissionregistrationv1.Delete && part == "":
				add("delete", name, object)
			}
		}
	}
	return out
}

// isSelected reports whether a namespace selector can match the object. Selectors of policies name the namespace.
func isSelected(selector *metav1.LabelSelector, object map[string]any) bool {
	if selector == nil {
		return true
	}
	name, isNamed := selector.MatchLabels[corev1.LabelMetadataName]
	return !isNamed || name == nested(object, "namespace")
}

// asNew returns an object that can be created next to the original one.
func asNew(object map[string]any) map[string]any {
	out, metadata := without(object, "status"), map[string]any{}
	of, _ := object["metadata"].(map[string]any)
	for _, key := range []string{"namespace", "labels", "annotations", "finalizers", "ownerReferences"} {
		if of[key] != nil {
			metadata[key] = of[key]
		}
	}
	metadata["name"] = nested(object, "name") + "2"
	out["metadata"] = metadata
	return out
}

// send sends a request. It returns the response. An update is a patch of the whole object if the identity may only patch.
func (a *arena) send(ctx context.Context, by string, x *target, text []byte, isDryRun bool, parameters ...string) (any, error) {
	response, err := a.sendAs(ctx, by, methods[x.verb], x, text, isDryRun, parameters...)
	if x.verb == "update" && stoppedBy(err) == byRBAC {
		whole := slices.Concat([]byte(`[{"op":"replace","path":"","value":`), text, []byte("}]"))
		return a.sendAs(ctx, by, "PATCH", x, whole, isDryRun, parameters...)
	}
	return response, err
}

var methods = map[string]string{"create": "POST", "update": "PUT", "delete": "DELETE"}

func (a *arena) sendAs(ctx context.Context, by, method string, x *target, text []byte, isDryRun bool, parameters ...string) (any, error) {
	kind := "application/json"
	if method == "PATCH" {
		kind = string(types.JSONPatchType)
	}
	request := a.rest[by].Verb(method).AbsPath(x.url)
	if isDryRun {
		request = request.Param("dryRun", "All")
	}
	if x.verb != "delete" {
		request = request.Param("fieldValidation", "Strict").SetHeader("Content-Type", kind).Body(text)
	}
	for i := 0; i+1 < len(parameters); i += 2 {
		request = request.Param(parameters[i], parameters[i+1])
	}
	response := request.Do(ctx)
	if err := response.Error(); err != nil { // Raw has an error without its text
		return nil, err
	}
	raw, err := response.Raw()
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	if metadata, ok := out["metadata"].(map[string]any); ok {
		for _, key := range ownFields {
			delete(metadata, key)
		}
	}
	return out, nil
}

// generate returns the attacks on a target that the API server accepts from an administrator, or that a policy rejects.
func (a *arena) generate(t *testing.T, x *target) (all []generated, invalid []string) {
	t.Helper()
	text, err := json.Marshal(x.body)
	check.NoError(t, err)
	if x.response, err = a.send(t.Context(), administrator, x, text, true); err != nil {
		t.Errorf("%s %s, unchanged, by an administrator: got error %v, want none", x.verb, x.object, err)
		return nil, nil
	}
	all = append(all, generated{x, "", "unchanged", text, notStopped, "", 0})
	if x.verb == "delete" || x.isSample {
		return all, nil
	}
	for _, d := range a.schemas.variants(a.schemas.kinds[x.kind], x.body, "") {
		if isIgnored(x, d.path) {
			continue
		}
		choice := -1
		isValid := slices.ContainsFunc(d.alternatives, func(body any) bool {
			choice++
			text, err := json.Marshal(body)
			check.NoError(t, err)
			response, err := a.send(t.Context(), administrator, x, text, true)
			if isValid := err == nil && !reflect.DeepEqual(response, x.response) || err != nil && policyName.MatchString(err.Error()); !isValid {
				return false
			}
			all = append(all, generated{x, d.path, d.change, text, stoppedBy(err), textOf(err), choice})
			return true
		})
		if !isValid {
			invalid = append(invalid, x.verb+" "+x.object+": "+d.change+" "+d.path)
		}
	}
	return all, invalid
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// isIgnored reports whether the API server ignores a field in a request: the namespace of a cluster-scoped object, the status, or all other fields.
func isIgnored(x *target, path string) bool {
	if path == "metadata.namespace" && nested(x.body, "namespace") == "" {
		return true
	}
	isStatus := path == "status" || strings.HasPrefix(path, "status.")
	return isStatus != strings.Contains(x.object, "/status/") && !strings.HasPrefix(path, "metadata")
}

// each runs work in parallel.
func each[T any](all []T, work func(T)) {
	var group sync.WaitGroup
	queue := make(chan T)
	for range 4 {
		group.Go(func() {
			for x := range queue {
				work(x)
			}
		})
	}
	for _, x := range all {
		queue <- x
	}
	close(queue)
	group.Wait()
}

// row is a row of testdata/allowed.csv: patterns, and the reason.
type row struct {
	text    string
	pattern *regexp.Regexp
	// except contains texts that the field must not contain.
	except []string
	used   atomic.Bool
}

const allowedFile = "testdata/allowed.csv"

func readRows(t *testing.T, file string) []*row {
	t.Helper()
	text, err := os.ReadFile(file)
	check.NoError(t, err)
	var out []*row
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		columns := strings.SplitN(line, ";", 6)
		if len(columns) != 6 || strings.TrimSpace(columns[5]) == "" {
			t.Fatalf("%s: got row %q, want actor;verb;object;change;field;reason", file, line)
		}
		next := &row{text: file + ": " + line}
		fields := strings.Split(columns[4], "|")
		for _, field := range fields {
			if text, isExcept := strings.CutPrefix(field, "!"); isExcept {
				next.except = append(next.except, text)
			}
		}
		columns[4] = strings.Join(slices.DeleteFunc(fields, func(f string) bool { return strings.HasPrefix(f, "!") }), "|")
		for i, column := range columns[:5] {
			columns[i] = "(" + strings.NewReplacer(`\*`, "[^;]*", `\|`, "|").Replace(regexp.QuoteMeta(column)) + ")"
		}
		next.pattern = regexp.MustCompile("^" + strings.Join(columns[:5], ";") + "$")
		out = append(out, next)
	}
	return out
}

func keyOf(by string, g generated) string {
	return strings.Join([]string{by, g.verb, g.object, g.change, g.field}, ";")
}

func isAllowed(rows []*row, key string) bool {
	found := false
	for _, r := range rows {
		field := key[strings.LastIndex(key, ";")+1:]
		if r.pattern.MatchString(key) && !slices.ContainsFunc(r.except, func(text string) bool { return strings.Contains(field, text) }) {
			r.used.Store(true)
			found = true
		}
	}
	return found
}

// result is the outcome of an attack by an identity.
type result struct {
	by, seen, denial string
	generated
}

// play plays attacks by an identity. If the identity lacks the right to a request, one attack stands for all of its variants.
func (a *arena) play(t *testing.T, by string, all []generated) []result {
	t.Helper()
	var mu sync.Mutex
	var out []result
	withoutRight := map[*target]bool{}
	run := func(g generated) {
		_, err := a.send(t.Context(), by, g.target, g.text, true)
		a.played.Add(1)
		seen := stoppedBy(err)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, result{by, seen, textOf(err), g})
		if g.change == "unchanged" {
			withoutRight[g.target] = slices.Contains([]string{byRBAC, byToken, byNodeAuthz}, seen)
		}
	}
	isFirst := func(g generated) bool { return g.change == "unchanged" }
	each(slices.DeleteFunc(slices.Clone(all), func(g generated) bool { return !isFirst(g) }), run)
	each(slices.DeleteFunc(slices.Clone(all), func(g generated) bool { return isFirst(g) || withoutRight[g.target] }), run)
	return out
}

// TestGeneratedAttacks needs what "make test-attack" builds.
func TestGeneratedAttacks(t *testing.T) {
	t.Run("combinations", playGenerated) // -run=/manager-pv selects attacks of the table
}

func playGenerated(t *testing.T) {
	start := time.Now()
	a := newArena(t)
	rows := readRows(t, allowedFile)
	all := a.generateAll(t)
	t.Logf("%d attacks after %s", len(all), time.Since(start))
	results := a.playAll(t, all)
	t.Logf("%d requests after %s", a.played.Load(), time.Since(start))
	holes := unreviewed(t, rows, results)
	setCeilings(t, a.cluster, ceilings)
	results = append(results, a.play(t, editor, slices.DeleteFunc(slices.Clone(all), func(g generated) bool {
		return !strings.HasPrefix(g.object, "storageclientprofiles/")
	}))...)
	setCeilings(t, a.cluster, nil)
	holes = append(holes, a.playPairs(t, rows, results)...)
	t.Logf("%d requests with pairs after %s", a.played.Load(), time.Since(start))
	for _, r := range rows {
		if !r.used.Load() {
			t.Errorf("%s: the row matches no attack that succeeds: delete it", r.text)
		}
	}
	if played := a.played.Load(); played < minimumAttacks {
		t.Errorf("got %d attacks, want at least %d", played, minimumAttacks)
	}
	if len(holes) > 0 {
		t.Errorf("%d attacks are not stopped. Mend the policy, or add a row with a reason to %s:\n%s", len(holes), allowedFile, strings.Join(holes, "\n"))
	}
	a.findPlanted(t, results)
	t.Logf("%d requests with planted holes after %s", a.played.Load(), time.Since(start))
}

func (a *arena) generateAll(t *testing.T) []generated {
	t.Helper()
	var all []generated
	var invalid []string
	var mu sync.Mutex
	each(a.targets(t), func(x *target) {
		attacks, without := a.generate(t, x)
		mu.Lock()
		defer mu.Unlock()
		all, invalid = append(all, attacks...), append(invalid, without...)
	})
	t.Logf("the API server accepts no value for %d fields", len(invalid))
	if os.Getenv("ATTACK_INVALID") != "" {
		slices.Sort(invalid)
		t.Log(strings.Join(invalid, "\n"))
	}
	return all
}

// playAll plays the attacks by each identity. An administrator has already played them.
func (a *arena) playAll(t *testing.T, all []generated) []result {
	t.Helper()
	var results []result
	for _, by := range slices.Sorted(maps.Keys(a.people)) {
		if by == administrator {
			for _, g := range all {
				results = append(results, result{by, g.seen, g.denial, g})
			}
			continue
		}
		played := all
		if by == editor { // this role has all rights on profiles, and is played against the limits
			played = slices.DeleteFunc(slices.Clone(all), func(g generated) bool { return strings.HasPrefix(g.object, "storageclientprofiles/") })
		}
		results = append(results, a.play(t, by, played)...)
	}
	return results
}

// unreviewed returns the attacks that succeed and that no row allows.
func unreviewed(t *testing.T, rows []*row, results []result) []string {
	t.Helper()
	var holes []string
	for _, r := range results {
		isHarmless := r.by == administrator || r.verb == "update" && r.change == "unchanged"
		switch {
		case r.seen == notStopped && !isHarmless && !isAllowed(rows, keyOf(r.by, r.generated)):
			holes = append(holes, keyOf(r.by, r.generated))
		case strings.HasPrefix(r.seen, "no denial"), strings.HasPrefix(r.seen, "unknown denial"):
			t.Errorf("%s by %s: %s", r.generated, r.by, r.seen)
		}
	}
	slices.Sort(holes)
	return holes
}
