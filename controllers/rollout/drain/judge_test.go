package drain

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func unhealthyPolicy(policy policyv1.UnhealthyPodEvictionPolicyType) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &policy }
}

// TestJudgeEviction has the rules of the API server. An integration spec compares them with the real one.
func TestJudgeEviction(t *testing.T) {
	always, healthyOnly := unhealthyPolicy(policyv1.AlwaysAllow), unhealthyPolicy(policyv1.IfHealthyBudget)
	age := func(d time.Duration) func(*policyv1.PodDisruptionBudget) {
		return uncounted(metav1.NewTime(noon.Add(-d)))
	}
	counted := func(b *policyv1.PodDisruptionBudget) { b.Generation, b.Status.ObservedGeneration = 1, 1 }
	pending := func(b *policyv1.PodDisruptionBudget) {
		b.Status.DisruptedPods = map[string]metav1.Time{}
		for i := range maxDisruptedPods + 1 {
			b.Status.DisruptedPods[fmt.Sprint(i)] = metav1.NewTime(noon)
		}
	}
	other := func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }
	phase := func(phase corev1.PodPhase) *corev1.Pod {
		return pod("db", ready, func(p *corev1.Pod) { p.Status.Phase = phase })
	}
	running, unready, spent := pod("db", ready), pod("db"), budget("pdb", "db")
	const named = "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb"
	const outdated = named + ": its status is outdated; check the kube-controller-manager if that lasts longer than a minute"
	const uncountable = named + ": its pods cannot be counted (runners.actions.example.com does not implement the scale subresource); set an integer minAvailable"
	type budgets = []*policyv1.PodDisruptionBudget
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		budgets budgets
		want    string
		// later is true if the obstacle is about to end, uncounted if the server would ask the client to retry.
		later, uncounted bool
	}{
		"no budget":                         {pod: running},
		"a budget of another namespace":     {pod: running, budgets: budgets{budget("pdb", "db", other)}},
		"a budget of other pods":            {pod: running, budgets: budgets{budget("pdb", "web")}},
		"a budget without a selector":       {pod: running, budgets: budgets{budget("pdb", "db", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil })}},
		"it allows one":                     {pod: running, budgets: budgets{budget("pdb", "db", allows(1))}},
		"it is used up":                     {pod: running, budgets: budgets{spent}, want: named},
		"it is used up, the pod is pending": {pod: phase(corev1.PodPending), budgets: budgets{spent}},
		"it is used up, the pod succeeded":  {pod: phase(corev1.PodSucceeded), budgets: budgets{spent}},
		"it is used up, the pod failed":     {pod: phase(corev1.PodFailed), budgets: budgets{spent}},
		"it is used up, the pod terminates": {pod: pod("db", ready, terminating), budgets: budgets{spent}},
		"unready, too few are healthy":      {pod: unready, budgets: budgets{budget("pdb", "db", healthy(1, 2))}, want: named},
		"unready, enough are healthy":       {pod: unready, budgets: budgets{budget("pdb", "db", healthy(2, 2))}},
		"unready, none needs to be healthy": {pod: unready, budgets: budgets{budget("pdb", "db", healthy(0, 0))}, want: named},
		"ready, enough are healthy":         {pod: running, budgets: budgets{budget("pdb", "db", healthy(2, 2))}, want: named},
		"IfHealthyBudget, unready, too few": {pod: unready, budgets: budgets{budget("pdb", "db", healthyOnly, healthy(1, 2))}, want: named},
		"IfHealthyBudget, unready, enough":  {pod: unready, budgets: budgets{budget("pdb", "db", healthyOnly, healthy(2, 2))}},
		"AlwaysAllow, unready, too few":     {pod: unready, budgets: budgets{budget("pdb", "db", always, healthy(1, 2))}},
		"AlwaysAllow, unready, uncounted":   {pod: unready, budgets: budgets{budget("pdb", "db", always, age(time.Hour))}},
		"AlwaysAllow, ready":                {pod: running, budgets: budgets{budget("pdb", "db", always, healthy(1, 2))}, want: named},
		"not counted, new":                  {pod: running, budgets: budgets{budget("pdb", "db", age(59*time.Second), allows(1))}, want: named, later: true, uncounted: true},
		"not counted, of a clock ahead":     {pod: running, budgets: budgets{budget("pdb", "db", age(-time.Hour))}, want: named, later: true, uncounted: true},
		"not counted for a minute":          {pod: running, budgets: budgets{budget("pdb", "db", age(time.Minute), allows(1))}, want: outdated, uncounted: true},
		"not counted since an edit":         {pod: running, budgets: budgets{budget("pdb", "db", counted, allows(1), func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 })}, want: outdated, uncounted: true},
		"new, and cannot be counted":        {pod: running, budgets: budgets{budget("pdb", "db", age(0), failedSync)}, want: uncountable, uncounted: true},
		"it can no longer be counted":       {pod: running, budgets: budgets{budget("pdb", "db", counted, failedSync)}, want: uncountable},
		"counted again since":               {pod: running, budgets: budgets{budget("pdb", "db", counted, failedSync, allows(1))}},
		"too many evictions are pending":    {pod: running, budgets: budgets{budget("pdb", "db", allows(1), pending)}, want: outdated},
		"fewer than none are allowed":       {pod: running, budgets: budgets{budget("pdb", "db", allows(-1))}, want: outdated},
		"two budgets": {
			pod: unready, budgets: budgets{budget("b", "db", allows(1), always), budget("a", "db", allows(1), always)},
			want: "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/a, eda/b: a pod that several budgets select cannot be evicted; " +
				"change a budget's selector, or delete a budget",
		},
		"two budgets, the pod is pending": {pod: phase(corev1.PodPending), budgets: budgets{budget("a", "db"), budget("b", "db")}},
	} {
		var all []policyv1.PodDisruptionBudget
		for _, b := range c.budgets {
			all = append(all, *b)
		}
		got := JudgeEviction(c.pod, all, noon)
		if got.IsNew() != c.later || ptr.Deref(got, Blocker{}).Uncounted != c.uncounted || (got == nil) != (c.want == "") || got != nil && got.String() != c.want {
			t.Errorf("%s: got %v, want %q (later: %t, uncounted: %t)", name, got, c.want, c.later, c.uncounted)
		}
	}
}
