//go:build attack && generated

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

// findPlanted removes each rule of each policy, and checks that an attack that the policy stopped now succeeds. The policies are
// independent of each other, so each round removes one rule of all policies.
func (a *arena) findPlanted(t *testing.T, results []result) {
	t.Helper()
	stopped := map[string][]result{}
	rounds := 0
	a.world.reset(t)
	a.refresh(t, results)
	for _, policy := range a.policies {
		rounds = max(rounds, len(policy.Spec.Validations))
		for _, r := range results {
			if r.seen == "policy "+policy.Name {
				stopped[policy.Name] = append(stopped[policy.Name], r)
			}
		}
		if len(stopped[policy.Name]) == 0 {
			t.Errorf("policy %s stops no attack", policy.Name)
		}
	}
	for round := range rounds {
		for _, hasLimits := range []bool{true, false} { // the limits would stop attacks on other policies
			if hasLimits {
				setCeilings(t, a.cluster, ceilings)
				a.plant(t, round, stopped)
			} else {
				setCeilings(t, a.cluster, nil)
			}
			for _, policy := range a.policies {
				if round < len(policy.Spec.Validations) && len(stopped[policy.Name]) > 0 && hasLimits == (policy.Name == guardrails) {
					a.findWithout(t, fmt.Sprintf("%s/%d", policy.Name, round), stopped[policy.Name])
				}
			}
		}
	}
	a.plant(t, rounds, stopped)
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
			must(t, a.cluster.admin.Get(t.Context(), client.ObjectKeyFromObject(live), live))
			versions[r.target] = live.GetResourceVersion()
		}
		r.text = version.ReplaceAll(r.text, []byte(`"resourceVersion":"`+versions[r.target]+`"`))
	}
}

var version = regexp.MustCompile(`"resourceVersion":"\d+"`)

// plant removes one rule of each policy. Each policy gets a rule that only a field manager with the number of the round violates: it
// shows that the change is effective.
func (a *arena) plant(t *testing.T, round int, stopped map[string][]result) {
	t.Helper()
	manager := fmt.Sprintf("planted-%d", round)
	for _, policy := range a.policies {
		live := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		must(t, a.cluster.admin.Get(t.Context(), client.ObjectKeyFromObject(policy), live))
		rules := slices.Clone(policy.Spec.Validations)
		if round < len(rules) {
			rules = slices.Delete(rules, round, round+1)
		}
		live.Spec.Validations = append([]admissionregistrationv1.Validation{{
			Expression: "!has(request.options) || dyn(request.options).?fieldManager.orValue('') != '" + manager + "'", Message: manager,
		}}, rules...)
		must(t, a.cluster.admin.Update(t.Context(), live))
	}
	for _, name := range slices.Sorted(maps.Keys(stopped)) {
		i := slices.IndexFunc(stopped[name], func(r result) bool { return r.verb != "delete" })
		if i < 0 {
			t.Fatalf("policy %s stops only deletions", name)
		}
		probe := stopped[name][i]
		await(t, "the changed policy "+name, func() bool {
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
