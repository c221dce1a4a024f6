//go:build attack

package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// pairs are identities that act in turn. The first one writes, and the second one then tries the attacks that were stopped before. A
// storage server has no token: it acts as anonymous after the agent's report.
var pairs = [][2]string{{manager, nodeOne}, {author, author}, {author, tenant}, {agentOne, anonymous}}

// playPairs returns what pairs reach and no row allows.
func (a *arena) playPairs(t *testing.T, rows []*row, results []result) []string {
	t.Helper()
	var holes []string
	for _, p := range pairs {
		before := a.played.Load()
		for _, step := range a.steps(results, p[0]) {
			holes = append(holes, a.playPair(t, rows, results, p, step)...)
		}
		t.Logf("%s and %s: %d requests", p[0], p[1], a.played.Load()-before)
	}
	a.world.dirty.Store(true)
	a.world.reset(t)
	slices.Sort(holes)
	return slices.Compact(holes)
}

// steps returns one successful update of each part of each object by an identity.
func (a *arena) steps(results []result, by string) []result {
	parts := map[string]result{}
	for _, r := range results {
		if isProfile(r) && !strings.HasPrefix(r.object, "storageclientprofiles/automatic-") { // these profiles must not start
			continue
		}
		isPermanent := strings.HasPrefix(r.field, "spec.podCIDR") || strings.HasPrefix(r.field, "spec.providerID")
		if r.by != by || r.seen != notStopped || r.verb != "update" || r.change == "unchanged" || isPermanent || isArmed(r.body) && isProfile(r) {
			continue
		}
		depth := 2
		if isProfile(r) {
			depth = 3
		}
		part := strings.Join(strings.SplitN(index.ReplaceAllString(r.field, ""), ".", depth+1)[:min(depth, strings.Count(r.field, ".")+1)], ".")
		if isProfile(r) && strings.HasPrefix(r.field, "metadata.annotations") {
			part = r.field
		}
		key := r.object + ";" + r.change + ";" + part
		if _, isKnown := parts[key]; !isKnown {
			parts[key] = r
		}
	}
	var out []result
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, parts[key])
	}
	return out
}

func isProfile(r result) bool { return strings.HasPrefix(r.object, "storageclientprofiles/") }

// isArmed reports whether the manager may reboot nodes for a profile now.
func isArmed(profile map[string]any) bool {
	text, err := json.Marshal(profile)
	var p v1alpha1.StorageClientProfile
	if err != nil || json.Unmarshal(text, &p) != nil {
		return false
	}
	spec := p.Spec.WithDefaults()
	isApproved := p.Annotations[v1alpha1.ApprovedPlanAnnotation] != "" || spec.Rollout.Reboot.ApprovedPlan != ""
	mayReboot := spec.Rollout.Reboot.Policy == v1alpha1.RebootAutomatic || spec.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && isApproved
	return mayReboot && spec.Mode == v1alpha1.ModeEnforce && !spec.Paused && !v1alpha1.IsStopped(&p, v1alpha1.PausedAnnotation)
}

// playPair has the first identity write, and the second one try.
func (a *arena) playPair(t *testing.T, rows []*row, results []result, p [2]string, step result) []string {
	t.Helper()
	own := []result{step}
	a.refresh(t, own)
	a.played.Add(1)
	if _, err := a.send(t.Context(), p[0], step.target, own[0].text, false); err != nil {
		t.Errorf("%s by %s: got error %v, want none as in the dry run", step.generated, p[0], err)
		return nil
	}
	defer a.restore(t, step.target)
	current := a.currentVariants(t, step.target)
	var holes []string
	var mu sync.Mutex
	each(slices.DeleteFunc(slices.Clone(results), func(r result) bool { return !isSecond(r, p[1], step) }), func(r result) {
		if r.target == step.target {
			values := current[r.change+r.field]
			if r.choice >= len(values) {
				return
			}
			r.text, _ = json.Marshal(values[r.choice])
		}
		response, err := a.send(t.Context(), p[1], r.target, r.text, true)
		a.played.Add(1)
		after, _ := response.(map[string]any)
		if err != nil || isProfile(r) && r.verb == "update" && !isArmed(after) {
			return
		}
		if key := keyOf(p[0]+" and "+p[1], r.generated); !isAllowed(rows, key) {
			mu.Lock()
			defer mu.Unlock()
			holes = append(holes, fmt.Sprintf("%s (after %s %s)", key, step.change, step.field))
		}
	})
	return holes
}

// isSecond reports whether the second identity of a pair tries an attack after the step of the first one: each difference to the same
// object, and requests of identities with few rights for other objects. A step changes no right, so a request without the right stays one.
func isSecond(r result, by string, step result) bool {
	isOther := r.target != step.target
	switch {
	case r.by != by, isProfile(r) && !arming.MatchString(r.field):
		return false
	case isOther && by == anonymous:
		return r.change == "unchanged" && r.kind == step.kind
	case isOther:
		return by == tenant && r.change == "unchanged" && strings.HasPrefix(r.seen, "policy ")
	}
	return r.change != "unchanged" && (isProfile(r) || r.seen != notStopped)
}

// arming matches the fields of a profile that isArmed reads, and the objects that contain them.
var arming = regexp.MustCompile(`^(|spec|spec\.(mode|paused|rollout|rollout\.\*|rollout\.reboot.*)(=.*)?|` +
	`metadata|metadata\.annotations(\[tuning\.storageclient\.dev/(approved-plan|paused)\].*)?)$`)

// currentVariants returns the variants of the current object.
func (a *arena) currentVariants(t *testing.T, x *target) map[string][]any {
	t.Helper()
	live := &unstructured.Unstructured{Object: maps.Clone(x.body)}
	check.NoError(t, a.cluster.admin.Get(t.Context(), client.ObjectKeyFromObject(live), live))
	if x.kind.Group == "" {
		live.SetResourceVersion("")
	}
	out := map[string][]any{}
	for _, d := range a.schemas.variants(a.schemas.kinds[x.kind], plain(t, live.Object), "") {
		out[d.change+d.path] = d.alternatives
	}
	return out
}
