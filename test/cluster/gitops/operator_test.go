//go:build gitops

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// operatorStory lets Argo CD manage the manifests of the operator.
func operatorStory(t *testing.T, a *argo) {
	const app = "operator"
	if err := os.CopyFS(filepath.Join(a.work, "operator", "config"), os.DirFS(filepath.Join(root, "config"))); err != nil {
		t.Fatal(err)
	}
	revision := a.commit(t, "the operator", nil)
	a.apply(t, a.applicationOf(app, "operator/config/default", "{automated: {selfHeal: true, prune: true}, syncOptions: [ServerSideApply=true]}"))
	a.await(t, "the operator to be Synced and Healthy", func() (bool, string) {
		application := a.application(t, app)
		p := pictureOf(application)
		return p.short() == "Synced/Healthy" && p.revision == revision, fmt.Sprint(p, a.differing(t, app))
	})
	t.Logf("Argo CD shows: %s", pictureOf(a.application(t, app)))
	_, from := a.seen.since(app, 0)
	operations := a.operations(t, app)
	for began := time.Now(); time.Since(began) < *soak; time.Sleep(time.Second) {
		a.refresh(t, app)
		if p := pictureOf(a.application(t, app)); p.short() != "Synced/Healthy" {
			t.Fatalf("after %s: %s: %v", time.Since(began), p, a.differing(t, app))
		}
	}
	if states, _ := a.seen.since(app, from); len(states) > 0 {
		t.Errorf("states during the soak: %v", states)
	}
	if got := a.operations(t, app); !slices.Equal(got, operations) {
		t.Errorf("self-heal ran: operations %v, before %v", got, operations)
	}
	a.kubectl(t, "--namespace storage-client-system scale deployment storage-client-manager --replicas=5")
	a.await(t, "self-heal of the Deployment", func() (bool, string) {
		got := a.kubectl(t, "--namespace storage-client-system get deployment storage-client-manager --output=jsonpath={.spec.replicas}")
		return got != "5", got
	})
	// The operator stays: only its Application goes.
	a.patch(t, app, []byte(`{"metadata":{"finalizers":null}}`))
	if err := a.delete(t.Context(), a.application(t, app)); err != nil {
		t.Fatal(err)
	}
	a.expectGone(t, app)
}
