//go:build gitops

package gitops

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

// source is a form of the operator's manifests, below the folder operator of the Git repository.
type source struct {
	app, path string
	// write creates the files in a directory.
	write func(t *testing.T, dir string)
	// isShort limits the soak to a minute.
	isShort bool
}

var (
	manifests = source{app: "operator", path: "config/default", write: func(t *testing.T, dir string) {
		check.NoError(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(root, "config"))))
	}}
	chart = source{app: "operator-chart", path: "storage-client-operator", isShort: true, write: func(t *testing.T, dir string) {
		if out, err := exec.Command("tar", "--extract", "--gzip", "--directory", dir, "--file", variable(t, "SCO_CHART")).CombinedOutput(); err != nil {
			t.Fatalf("unpack the chart: %v: %s", err, out)
		}
	}}
)

// operatorStory lets Argo CD manage the manifests of the operator, or its chart.
func operatorStory(t *testing.T, a *argo, from source) {
	app, dir := from.app, filepath.Join(a.work, "operator")
	check.NoError(t, os.MkdirAll(dir, 0o755))
	from.write(t, dir)
	revision := a.commit(t, "the operator: "+from.path, nil)
	a.apply(t, a.applicationOf(app, "operator/"+from.path, "{automated: {selfHeal: true, prune: true}, syncOptions: [ServerSideApply=true]}"))
	a.await(t, "the operator to be Synced and Healthy", func() (bool, string) {
		application := a.application(t, app)
		p := pictureOf(application)
		return p.short() == "Synced/Healthy" && p.revision == revision, fmt.Sprint(p, a.differing(t, app))
	})
	t.Logf("Argo CD shows: %s", pictureOf(a.application(t, app)))
	duration := *soak
	if from.isShort {
		duration = min(duration, time.Minute)
	}
	a.expectQuiet(t, app, duration)
	a.kubectl(t, "--namespace storage-client-system scale deployment storage-client-manager --replicas=5")
	a.await(t, "self-heal of the Deployment", func() (bool, string) {
		got := a.kubectl(t, "--namespace storage-client-system get deployment storage-client-manager --output=jsonpath={.spec.replicas}")
		return got != "5", got
	})
	// The operator stays: only its Application goes.
	a.patch(t, app, []byte(`{"metadata":{"finalizers":null}}`))
	check.NoError(t, a.delete(t.Context(), a.application(t, app)))
	a.expectGone(t, app)
}

// expectQuiet checks for a duration that an Application stays Synced and Healthy, and that no sync runs.
func (a *argo) expectQuiet(t *testing.T, app string, duration time.Duration) {
	t.Helper()
	_, last := a.seen.since(app, 0)
	operations := a.operations(t, app)
	for began := time.Now(); time.Since(began) < duration; time.Sleep(max(time.Second, duration/360)) {
		a.refresh(t, app)
		if p := pictureOf(a.application(t, app)); p.short() != "Synced/Healthy" {
			t.Fatalf("after %s: %s: %v", time.Since(began), p, a.differing(t, app))
		}
	}
	if states, _ := a.seen.since(app, last); len(states) > 0 {
		t.Errorf("states during the soak: %v", states)
	}
	if got := a.operations(t, app); !slices.Equal(got, operations) {
		t.Errorf("self-heal ran: operations %v, before %v", got, operations)
	}
}
