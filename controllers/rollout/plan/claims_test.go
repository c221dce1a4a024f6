package plan

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

// TestTheClaimsOfManyNodesFitIntoTheirConfigMap has 5,000 nodes and two profiles with the longest names, and limits that allow all reboots.
func TestTheClaimsOfManyNodesFitIntoTheirConfigMap(t *testing.T) {
	long := func(i int) string { return fmt.Sprintf("%0253d", i) }
	var names []string
	for i := range 5000 {
		names = append(names, long(i))
	}
	f := cluster(names...)
	f.Budget = 5000
	f.profile(long(5001))
	for i := range f.Profiles {
		f.Profiles[i].SettingsHash = strings.Repeat("a", 64)
		f.Profiles[i].Rollout.MaxUnavailable, f.Profiles[i].Rollout.Canary.Nodes = ptr.To(intstr.FromInt32(5000)), ptr.To[int32](5000)
	}
	for i := range f.Nodes {
		f.Nodes[i].TakesPods, f.Nodes[i].TakesManager = true, true
		f.Nodes[i].Profiles = []string{"eda", long(5001)}
	}
	claimed := map[string]bool{}
	// Later passes add claims to the claims of the first one.
	for pass := range 3 {
		plan := For(f.Snapshot)
		for _, step := range plan.Steps {
			if added, ok := step.(AddClaim); ok {
				f.Claims[added.Node], claimed[added.Node] = added.Claim, true
				f.node(added.Node).Unschedulable, f.node(added.Node).Mark = true, &added.Claim
			}
		}
		size := 0
		for name, claim := range f.Claims {
			claim.Permit = &v1alpha1.ClaimedPermit{BootHash: claim.BootHash, Profiles: map[string]string{
				"eda": f.Profiles[0].SettingsHash, long(5001): f.Profiles[1].SettingsHash,
			}, Leaving: strings.Repeat("l", 64)}
			size += len(name) + len(claim.Encode())
		}
		if size > 1<<20 || len(claimed) < 500 {
			t.Fatalf("pass %d: got %d claims of %d bytes with their permits, want many that fit into 1 MiB", pass, len(claimed), size)
		}
	}
	waiting := 0
	for name, note := range For(f.Snapshot).Notes {
		if !claimed[name] && strings.Contains(note.Message, "ConfigMap storage-client-rollout has no room for another claim") {
			waiting++
		}
	}
	if waiting != len(names)-len(claimed) || waiting == 0 {
		t.Errorf("got %d notes about the full ConfigMap, want %d", waiting, len(names)-len(claimed))
	}
}

// TestPermitsWithBudgetsFitIntoTheirConfigMap has drained nodes with hundreds of pods that stay, each in a PodDisruptionBudget with the longest name.
func TestPermitsWithBudgetsFitIntoTheirConfigMap(t *testing.T) {
	budget := strings.Repeat("n", 63) + "/" + strings.Repeat("b", 253)
	for name, test := range map[string]struct{ pods, permits int }{
		"no pods": {0, 20}, "ten pods": {10, 20}, "as many as a node has by default": {110, 20}, "so many that few nodes fit": {500, 6}, "too many for any node": {4000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for i := range 20 {
				names = append(names, fmt.Sprintf("n%02d", i))
			}
			f := cluster(names...)
			f.Budget = 20
			f.Profiles[0].Rollout.MaxUnavailable, f.Profiles[0].Rollout.Canary.Nodes = ptr.To(intstr.FromInt32(20)), ptr.To[int32](20)
			for _, name := range names {
				f.cordoned(name, 0)
				f.node(name).Drain = &DrainProgress{Gone: true, Budgets: map[string]BudgetShare{budget: {test.pods, 1 << 20}}}
			}
			given := 0
			// Later passes add permits to the permits of the first one.
			for pass := range 3 {
				plan := For(f.Snapshot)
				for _, step := range plan.Steps {
					if updated, ok := step.(UpdateClaim); ok {
						f.Claims[updated.Node] = updated.Claim
					}
				}
				for _, node := range permitsIn(plan) {
					given++
					claim := f.Claims[node]
					f.permitted(node, 0)
					f.Claims[node], f.node(node).Drain = claim, nil
				}
				size := 0
				for name, claim := range f.Claims {
					size += len(name) + len(claim.Encode())
				}
				if size > 1<<20 || given != test.permits {
					t.Fatalf("pass %d: got %d permits and claims of %d bytes, want %d permits that fit into 1 MiB", pass, given, size, test.permits)
				}
				for _, name := range names[given:] {
					if note := plan.Notes[name]; note.Reason != v1alpha1.RolloutReasonWaitingForBudget || !strings.Contains(note.Message, "ConfigMap storage-client-rollout has no room") {
						t.Errorf("pass %d: got note %s %q of a node without a permit", pass, note.Reason, note.Message)
					}
				}
			}
		})
	}
}
