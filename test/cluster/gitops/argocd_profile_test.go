//go:build gitops

package gitops

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// confirmed is the policy of docs/gitops.md. Argo CD 3.2 obeys its last two options only as annotations of the profile, see withConfirmation.
const confirmed = "{automated: {selfHeal: true, prune: true}, syncOptions: [Prune=confirm, Delete=confirm]}"

// deletionApproved is the annotation by which a person confirms a deletion; the button of Argo CD sets it.
const deletionApproved = "argocd.argoproj.io/deletion-approved"

// withConfirmation adds the annotation of docs/gitops.md to a profile.
func withConfirmation(manifest string) string {
	return strings.Replace(manifest, "metadata: {", "metadata: {annotations: {argocd.argoproj.io/sync-options: 'Prune=confirm,Delete=confirm'}, ", 1)
}

// profileStory is the life of a profile in Argo CD. Its steps depend on each other.
func profileStory(t *testing.T, a *argo) {
	const app, name, file = "pool-zero", "pool-zero", "pools/zero/profile.yaml"
	onApproval := func(argument, more string) map[string]string {
		return map[string]string{file: withConfirmation(profileOf(name, "0", argument, ", reboot: {policy: OnApproval"+more+"}"))}
	}
	annotated := func(key string) string { return a.profile(t, name).Annotations[key] }
	// selfHeals changes a field that Git declares and waits until Argo CD has reverted it, so that self-heal is known to have run.
	selfHeals := func(t *testing.T) {
		t.Helper()
		a.kubectl(t, `patch scp `+name+` --type=merge --patch '{"spec":{"rollout":{"settleSeconds":7}}}'`)
		a.await(t, "self-heal", func() (bool, string) {
			settle := a.profile(t, name).Spec.Rollout.SettleSeconds
			return settle != nil && *settle == 1, fmt.Sprint("settleSeconds ", *settle)
		})
	}
	step := func(what string, do func(*testing.T)) {
		t.Helper()
		if !t.Run(what, do) {
			t.FailNow()
		}
	}

	step("the first sync is Synced, Progressing, and Suspended for the approval", func(t *testing.T) {
		revision := a.commit(t, "a pool", onApproval("ihash_entries=16777216", ""))
		a.apply(t, a.applicationOf(app, "pools/zero", confirmed))
		p := a.expect(t, app, "Synced/Suspended", revision)
		if p.phase != "Succeeded" {
			t.Errorf("the operation waits: %s", p)
		}
		states, _ := a.seen.since(app, 0)
		t.Logf("seen: %v", states)
		if !slices.Contains(states, "Synced/Progressing") || slices.Contains(states, "Synced/Healthy") || slices.Contains(states, "Synced/Degraded") {
			t.Errorf("got the states %v, want Synced/Progressing and neither Healthy nor Degraded", states)
		}
	})
	step("an approval by commit is Progressing, then Healthy", func(t *testing.T) {
		_, from := a.seen.since(app, 0)
		revision := a.commit(t, "approve", onApproval("ihash_entries=16777216", ", approvedPlan: "+a.planHash(t, name)))
		a.refresh(t, app)
		a.expect(t, app, "Synced/Healthy", revision)
		states, _ := a.seen.since(app, from)
		t.Logf("seen: %v", states)
		if slices.Contains(states, "Synced/Degraded") {
			t.Errorf("got the states %v, want no Degraded", states)
		}
	})
	step("outside its window a rollout is Suspended", func(t *testing.T) {
		closed := fmt.Sprintf("0 0 1 %d *", int(time.Now().UTC().AddDate(0, 6, 0).Month()))
		windows := func(schedule string, seconds int) map[string]string {
			return map[string]string{file: withConfirmation(profileOf(name, "0", "ihash_entries=8388608", fmt.Sprintf(", reboot: {policy: Automatic}, windows: [{schedule: %q, durationSeconds: %d}]", schedule, seconds)))}
		}
		revision := a.commit(t, "a window", windows(closed, 3600))
		a.refresh(t, app)
		a.await(t, "the wait for the window", func() (bool, string) {
			p := a.profile(t, name)
			c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
			return c != nil && c.Reason == "WaitingForWindow", a.describe(t, name)
		})
		a.expect(t, app, "Synced/Suspended", revision)
		revision = a.commit(t, "the window is open", windows("* * * * *", 3600))
		a.refresh(t, app)
		a.expect(t, app, "Synced/Healthy", revision)
	})
	step("a pause by annotation outlives self-heal and is Suspended", func(t *testing.T) {
		a.commit(t, "another size", onApproval("ihash_entries=4194304", ""))
		a.refresh(t, app)
		a.planHash(t, name)
		t.Log(a.kubectl(t, "annotate scp "+name+" tuning.storageclient.dev/paused=true --field-manager=storageclient-plugin"))
		selfHeals(t)
		for range 3 {
			a.refresh(t, app)
		}
		if annotated(v1alpha1.PausedAnnotation) != "true" {
			t.Error("Argo CD removed the pause")
		}
		p := a.expect(t, app, "Synced/Suspended", "")
		if c := meta.FindStatusCondition(a.profile(t, name).Status.Conditions, v1alpha1.ConditionPaused); c == nil || c.Reason != v1alpha1.ReasonPausedByAnnotation {
			t.Errorf("%s; %s", p, a.describe(t, name))
		}
		t.Log(a.kubectl(t, "storageclient resume "+name))
	})
	step("an approval by the plugin outlives self-heal and ends Healthy", func(t *testing.T) {
		hash := a.planHash(t, name)
		t.Log(a.kubectl(t, "storageclient approve "+name))
		selfHeals(t)
		if got := annotated(v1alpha1.ApprovedPlanAnnotation); got != hash {
			t.Errorf("approved-plan is %q after self-heal, want %q", got, hash)
		}
		a.expect(t, app, "Synced/Healthy", "")
	})
	step("an approval by kubectl annotate outlives self-heal too", func(t *testing.T) {
		revision := a.commit(t, "yet another size", onApproval("ihash_entries=2097152", ""))
		a.refresh(t, app)
		hash := a.planHash(t, name)
		a.kubectl(t, "annotate --overwrite scp "+name+" tuning.storageclient.dev/approved-plan="+hash)
		selfHeals(t)
		a.expect(t, app, "Synced/Healthy", revision)
	})
	step("spec.paused stays where Git does not name it", func(t *testing.T) {
		a.kubectl(t, `patch scp `+name+` --type=merge --patch '{"spec":{"paused":true}}'`)
		selfHeals(t)
		if p := a.refresh(t, app); !a.profile(t, name).Spec.Paused {
			t.Errorf("Argo CD reverted spec.paused: %s", p)
		}
		a.expect(t, app, "Synced/Suspended", "")
		a.kubectl(t, `patch scp `+name+` --type=merge --patch '{"spec":{"paused":null}}'`)
		a.expect(t, app, "Synced/Healthy", "")
	})
	step("Prune=confirm keeps the profile until a person confirms; then it is restored and deleted", func(t *testing.T) {
		a.commit(t, "no pool", map[string]string{file: "", "pools/zero/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"})
		a.refresh(t, app)
		a.await(t, "the request to confirm", func() (bool, string) {
			p := pictureOf(a.application(t, app))
			return p.phase == "Running" && strings.Contains(p.message, "confirm"), p.String()
		})
		t.Logf("Argo CD shows: %s", pictureOf(a.application(t, app)))
		if p := a.profile(t, name); p == nil || p.DeletionTimestamp != nil {
			t.Fatal("the profile was pruned without a confirmation")
		}
		if a.get(t, configMapKind, "default", "other") != nil {
			t.Log("the other object of the Application was applied before the confirmation")
		} else {
			t.Log("the other object of the Application waits for the confirmation too")
		}
		a.mark(t, app, deletionApproved, time.Now().UTC().Format(time.RFC3339))
		a.await(t, "the profile to be pruned", func() (bool, string) { return a.profile(t, name) == nil, a.describe(t, name) })
		a.expect(t, app, "Synced/Healthy", "")
	})
	step("Delete=confirm keeps an Application and its profile until a person confirms", func(t *testing.T) {
		a.commit(t, "the pool again", map[string]string{"pools/zero/other.yaml": "", file: withConfirmation(profileOf(name, "0", "ihash_entries=16777216", ", reboot: {policy: Automatic, restoreReboot: true}"))})
		a.refresh(t, app)
		a.expect(t, app, "Synced/Healthy", "")
		check.NoError(t, a.delete(t.Context(), a.application(t, app)))
		for range 3 {
			time.Sleep(time.Second)
			if p := a.profile(t, name); p == nil || p.DeletionTimestamp != nil {
				t.Fatal("the profile was deleted without a confirmation")
			}
		}
		a.mark(t, app, deletionApproved, time.Now().UTC().Format(time.RFC3339))
		a.expectGone(t, app)
		if p := a.profile(t, name); p != nil {
			t.Errorf("the Application is gone before its profile: %s", a.describe(t, name))
		}
		checkRestored(t, a.world, "0")
	})
}

// failureStory is a node that fails.
func failureStory(t *testing.T, a *argo) {
	const app, name, file = "pool-broken", "pool-broken", "pools/broken/profile.yaml"
	rollout := ", reboot: {policy: Automatic}"
	revision := a.commit(t, "a pool whose node ignores an argument", map[string]string{file: profileOf(name, brokenPool, "dhash_entries=16777216", rollout)})
	a.apply(t, a.applicationOf(app, "pools/broken", confirmed))
	p := a.expect(t, app, "Synced/Degraded", revision)
	if p.phase != "Succeeded" {
		t.Errorf("the sync without waves fails with the node: %s", p)
	}
	t.Log(a.kubectl(t, "storageclient status "+name))
	revision = a.commit(t, "without the argument", map[string]string{file: profileOf(name, brokenPool, "ihash_entries=16777216", rollout)})
	a.refresh(t, app)
	a.expect(t, app, "Synced/Healthy", revision)
	states, _ := a.seen.since(app, 0)
	t.Logf("seen: %v", states)
	// Argo CD 3.2 requires no confirmation for the options of an Application. The page therefore annotates the profile.
	check.NoError(t, a.delete(t.Context(), a.application(t, app)))
	a.expectGone(t, app)
}

// checkRestored checks that no kernel argument is left on the machines of a pool.
func checkRestored(t *testing.T, w *world, pool string) {
	t.Helper()
	for i, name := range w.Names {
		if strconv.Itoa(i%pools) != pool {
			continue
		}
		if line, err := w.Fleet.Machine(name).Read("/proc/cmdline"); err != nil || strings.Contains(line, "hash_entries") {
			t.Errorf("%s: got the command line %q (%v), want none of the profile's arguments", name, line, err)
		}
	}
}
