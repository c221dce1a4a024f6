//go:build attack

package attack

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/test/check"
)

// undetected contains the rules whose removal no generated attack shows, with the reason: the policy, a slash and the index.
var undetected = map[string]string{
	"storage-client-guardrails/0":       "only a broken ConfigMap violates it",
	"storage-client-manager-profiles/0": "RBAC stops these requests too",
	"storage-client-manager-volumes/3":  "RBAC stops these requests too",
	"storage-client-node-agent/1":       "it does not apply to dry runs",
	"storage-client-node-agent/3":       "RBAC stops these requests too",
	"storage-client-node-agent/4":       "RBAC stops these requests too",
	"storage-client-node-agent/5":       "RBAC stops these requests too",
}

// unreached contains the policies that no generated attack reaches, with the reason.
var unreached = map[string]string{
	"storage-client-guardrails-trials": "a generated trial has the first valid value of each sysctl, which exceeds no ceiling",
}

// findPlanted removes each rule of each policy, and checks that an attack that the policy stopped now succeeds. The policies are
// independent of each other, so each round removes one rule of all policies. The limits would stop attacks on other policies, so the
// guardrails come last.
func (a *arena) findPlanted(t *testing.T, results []result) {
	t.Helper()
	a.policies = slices.DeleteFunc(slices.Clone(a.policies), func(p *policy) bool { return unreached[p.Name] != "" })
	a.world.reset(t)
	a.refresh(t, results)
	stopped := a.samples(t, results)
	limits := slices.IndexFunc(a.policies, func(p *policy) bool { return p.Name == guardrails })
	others := slices.Delete(slices.Clone(a.policies), limits, limits+1)
	a.removeRules(t, others, stopped)
	setCeilings(t, a.cluster, ceilings)
	a.removeRules(t, a.policies[limits:limits+1], stopped)
}

type policy = admissionregistrationv1.ValidatingAdmissionPolicy

// samples returns attacks that each policy stopped: a few for each text of a denial, because each rule has another text, and
// for each identity, request and field.
func (a *arena) samples(t *testing.T, results []result) map[string][]result {
	t.Helper()
	out, count := map[string][]result{}, map[string]int{}
	for _, r := range results {
		name, isPolicy := strings.CutPrefix(r.seen, "policy ")
		if !isPolicy {
			continue
		}
		_, text, _ := strings.Cut(r.denial, "denied request: ")
		fields := strings.SplitN(index.ReplaceAllString(r.field, ""), ".", 3)
		key := name + r.by + r.verb + r.object + text[:min(len(text), 60)] + strings.Join(fields[:min(len(fields), 2)], ".")
		if count[key]++; count[key] <= 2 {
			out[name] = append(out[name], r)
		}
	}
	for _, p := range a.policies {
		if len(out[p.Name]) == 0 {
			t.Errorf("policy %s stops no attack", p.Name)
		}
	}
	return out
}

// removeRules removes one rule of each policy at a time. After the last round the policies are complete again.
func (a *arena) removeRules(t *testing.T, policies []*policy, stopped map[string][]result) {
	t.Helper()
	rounds := 0
	for _, p := range policies {
		rounds = max(rounds, len(p.Spec.Validations))
	}
	for round := range rounds + 1 {
		a.plant(t, round, policies, stopped)
		each(policies, func(p *policy) {
			if round < len(p.Spec.Validations) && len(stopped[p.Name]) > 0 {
				a.findWithout(t, fmt.Sprintf("%s/%d", p.Name, round), stopped[p.Name])
			}
		})
	}
}

const guardrails = "storage-client-guardrails"

func (a *arena) findWithout(t *testing.T, rule string, stopped []result) {
	t.Helper()
	found := a.firstThatSucceeds(t, stopped)
	if _, isKnown := undetected[rule]; (found == "") != isKnown {
		t.Errorf("the policy without rule %s: got attack %q", rule, found)
	}
	t.Logf("without rule %s: %s", rule, found)
}

// refresh sets the current version of each object in the attacks: an update needs it.
func (a *arena) refresh(t *testing.T, results []result) {
	t.Helper()
	versions := map[*target]string{}
	for i := range results {
		r := &results[i]
		if r.verb != "update" || r.kind.Group == "" {
			continue
		}
		if versions[r.target] == "" {
			live := &unstructured.Unstructured{Object: maps.Clone(r.body)}
			check.NoError(t, a.cluster.admin.Get(t.Context(), client.ObjectKeyFromObject(live), live))
			versions[r.target] = live.GetResourceVersion()
		}
		r.text = version.ReplaceAll(r.text, []byte(`"resourceVersion":"`+versions[r.target]+`"`))
	}
}

var version = regexp.MustCompile(`"resourceVersion":"\d+"`)

// plant removes one rule of each policy. Each policy gets a rule that only a field manager with the number of the round violates: it
// shows that the change is effective.
func (a *arena) plant(t *testing.T, round int, policies []*policy, stopped map[string][]result) {
	t.Helper()
	manager := fmt.Sprintf("planted-%d", round)
	for _, p := range policies {
		live := &policy{}
		check.NoError(t, a.cluster.admin.Get(t.Context(), client.ObjectKeyFromObject(p), live))
		rules := slices.Clone(p.Spec.Validations)
		if round < len(rules) {
			rules = slices.Delete(rules, round, round+1)
		}
		live.Spec.Validations = append([]admissionregistrationv1.Validation{{
			Expression: "!has(request.options) || dyn(request.options).?fieldManager.orValue('') != '" + manager + "'", Message: manager,
		}}, rules...)
		check.NoError(t, a.cluster.admin.Update(t.Context(), live))
	}
	for _, p := range policies {
		i := slices.IndexFunc(stopped[p.Name], func(r result) bool { return r.verb != "delete" })
		if i < 0 {
			t.Fatalf("policy %s stops only deletions", p.Name)
		}
		probe := stopped[p.Name][i]
		await(t, "the changed policy "+p.Name, func() bool {
			_, err := a.send(t.Context(), probe.by, probe.target, probe.text, true, "fieldManager", manager)
			return err != nil && strings.Contains(err.Error(), manager)
		})
	}
}

func (a *arena) firstThatSucceeds(t *testing.T, all []result) string {
	t.Helper()
	for _, r := range all {
		_, err := a.send(t.Context(), r.by, r.target, r.text, true)
		a.played.Add(1)
		if err == nil {
			return keyOf(r.by, r.generated)
		}
	}
	return ""
}
