//go:build gitops

package gitops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// wavesStory is a sync with waves: the profile is in the first wave, a ConfigMap in the second.
func wavesStory(t *testing.T, a *argo) {
	const app, name, file = "waves", "pool-waves", "waves/profile.yaml"
	profile := func(argument, more string) string {
		return inWave(profileOf(name, "2", argument, ", reboot: {policy: OnApproval"+more+"}"), "0")
	}
	waits := func(t *testing.T) {
		t.Helper()
		a.await(t, "the sync to wait for the profile", func() (bool, string) {
			p := pictureOf(a.application(t, app))
			return p.phase == "Running" && p.health != "Healthy" && strings.Contains(p.message, "waiting for healthy state"), p.String()
		})
		if a.get(t, configMapKind, "default", "after") != nil {
			t.Error("the second wave was applied while the profile is Suspended")
		}
		t.Logf("Argo CD shows: %s", pictureOf(a.application(t, app)))
	}
	a.commit(t, "waves", map[string]string{
		file: profile("ihash_entries=16777216", ""), "waves/after.yaml": inWave("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: after}\n", "1"),
	})
	a.apply(t, a.applicationOf(app, "waves", "{automated: {selfHeal: true}}"))
	hash := a.planHash(t, name)
	waits(t)

	a.commit(t, "approve", map[string]string{file: profile("ihash_entries=16777216", ", approvedPlan: "+hash)})
	for range 3 {
		a.refresh(t, app)
	}
	waits(t)
	if got := a.profile(t, name).Spec.Rollout.Reboot.ApprovedPlan; got != "" {
		t.Errorf("the approval by commit arrived while a sync with waves waits: approvedPlan is %q", got)
	}
	// Automated sync or a sync by hand then applies the newer commit.
	a.terminate(t, app)
	a.startSync(t, app)
	a.await(t, "the second wave", func() (bool, string) {
		return a.get(t, configMapKind, "default", "after") != nil, pictureOf(a.application(t, app)).String()
	})
	a.expect(t, app, "Synced/Healthy", "")

	// The action and the plugin approve while the sync waits.
	for argument, approve := range map[string]func(){
		"ihash_entries=8388608": func() { t.Log(a.kubectl(t, "storageclient approve "+name)) },
		"ihash_entries=4194304": func() { a.act(t, app, name, "approve") },
	} {
		revision := a.commit(t, "another size", map[string]string{file: profile(argument, "")})
		a.refresh(t, app)
		hash := a.planHash(t, name)
		a.await(t, "the sync to wait again", func() (bool, string) {
			p := pictureOf(a.application(t, app))
			return p.phase == "Running" && strings.Contains(p.message, "waiting for healthy state"), p.String()
		})
		approve()
		if got := a.profile(t, name).Annotations[v1alpha1.ApprovedPlanAnnotation]; got != hash {
			t.Errorf("approved-plan is %q, want %q", got, hash)
		}
		a.expect(t, app, "Synced/Healthy", revision)
		a.await(t, "the end of the sync", func() (bool, string) {
			p := pictureOf(a.application(t, app))
			return p.phase == "Succeeded", p.String()
		})
	}

	a.removeApplication(t, app)
}

// inWave adds a wave to a manifest.
func inWave(manifest, wave string) string {
	return strings.Replace(manifest, "metadata: {", `metadata: {annotations: {argocd.argoproj.io/sync-wave: "`+wave+`"}, `, 1)
}

// terminate ends a running sync, as the button "Terminate" does.
func (a *argo) terminate(t *testing.T, app string) {
	t.Helper()
	a.patch(t, app, []byte(`{"status":{"operationState":{"phase":"Terminating"}}}`))
	a.await(t, "the end of the sync", func() (bool, string) {
		p := pictureOf(a.application(t, app))
		return p.phase != "Terminating", p.String()
	})
	t.Logf("terminated: %s", pictureOf(a.application(t, app)))
}

func (a *argo) removeApplication(t *testing.T, app string) {
	t.Helper()
	check.NoError(t, a.delete(t.Context(), a.application(t, app)))
	a.expectGone(t, app)
}

// failedWavesStory is a profile in the first wave that a node fails, and the ways back.
func failedWavesStory(t *testing.T, a *argo) {
	const app, name = "failed-waves", "pool-failed-waves"
	size := 0
	// commit changes the kernel argument, to a size that is no default of the node, and the object of the second wave.
	commit := func(argument string) (revision, value string) {
		size++
		value = strconv.Itoa(size)
		return a.commit(t, argument, map[string]string{
			"failed-waves/profile.yaml": inWave(profileOf(name, brokenPool, fmt.Sprintf("%s=%d", argument, 1<<24>>(size%3)), ", reboot: {policy: Automatic}"), "0"),
			"failed-waves/second.yaml":  inWave("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}\ndata: {value: '"+value+"'}\n", "1"),
		}), value
	}
	retry := func(policy string) {
		a.patch(t, app, fmt.Appendf(nil, `{"spec":{"syncPolicy":{"retry":%s}}}`, policy))
	}
	second := func() string {
		value := ""
		if object := a.get(t, configMapKind, "default", "second"); object != nil {
			value, _, _ = unstructured.NestedString(object.Object, "data", "value")
		}
		return value
	}
	// expectRecovered waits until the second wave of a commit is applied.
	expectRecovered := func(t *testing.T, revision, value string) {
		t.Helper()
		a.expect(t, app, "Synced/Healthy", revision)
		if got := second(); got != value {
			t.Errorf("the second wave has the value %q, want %q", got, value)
		}
	}
	// fails waits until the sync of a commit has failed once or more.
	fails := func(t *testing.T, phase, message string) {
		t.Helper()
		a.await(t, "the sync to fail with the node", func() (bool, string) {
			p := pictureOf(a.application(t, app))
			return p.health == "Degraded" && p.phase == phase && strings.Contains(p.message, message), p.String()
		})
		t.Logf("Argo CD shows: %s", pictureOf(a.application(t, app)))
	}
	step := func(what string, do func(*testing.T)) {
		t.Helper()
		if !t.Run(what, do) {
			t.FailNow()
		}
	}

	revision, value := commit("ihash_entries")
	a.apply(t, a.applicationOf(app, "failed-waves", "{automated: {selfHeal: true}}"))
	expectRecovered(t, revision, value)
	step("a newer commit waits for the retries of a failed sync, unless a person terminates it", func(t *testing.T) {
		retry(`{"limit":5,"backoff":{"duration":"1h","maxDuration":"1h"}}`)
		commit("dhash_entries")
		a.refresh(t, app)
		fails(t, "Running", "Retrying attempt #1")
		before := a.operations(t, app)
		fixed, fixedValue := commit("ihash_entries")
		for range 3 {
			a.refresh(t, app)
		}
		fails(t, "Running", "Retrying attempt #1")
		if got := a.operations(t, app); !slices.Equal(got, before) {
			t.Errorf("a sync started during the wait for a retry: operations %v, before %v", got, before)
		}
		retry(`{"limit":5,"backoff":{"duration":"1s","factor":1,"maxDuration":null}}`)
		a.terminate(t, app)
		a.refresh(t, app)
		expectRecovered(t, fixed, fixedValue)
	})
	step("with retry.refresh a retry applies the newer commit", func(t *testing.T) {
		retry(`{"limit":5,"refresh":true,"backoff":{"duration":"10s","factor":1}}`)
		commit("dhash_entries")
		a.refresh(t, app)
		fails(t, "Running", "Retrying attempt #")
		fixed, fixedValue := commit("ihash_entries")
		expectRecovered(t, fixed, fixedValue)
	})
	step("after five retries the sync is Failed, and only a newer commit starts another", func(t *testing.T) {
		retry(`{"limit":5,"refresh":null,"backoff":{"duration":"1s","factor":1}}`)
		_, failed := commit("dhash_entries")
		a.refresh(t, app)
		fails(t, "Failed", "(retried 5 times)")
		before := a.operations(t, app)
		for range 3 {
			a.refresh(t, app)
		}
		p := pictureOf(a.application(t, app))
		if got := a.operations(t, app); !slices.Equal(got, before) || p.sync != "OutOfSync" || !strings.Contains(p.conditions, "SyncError") {
			t.Errorf("after the failure: %s; operations %v, before %v", p, got, before)
		}
		if second() == failed {
			t.Error("the second wave was applied although the first one failed")
		}
		t.Logf("Argo CD shows: %s", p)
		fixed, fixedValue := commit("ihash_entries")
		a.refresh(t, app)
		expectRecovered(t, fixed, fixedValue)
	})
	a.removeApplication(t, app)
}

// startServer starts Argo CD's server without authentication, for actions.
func (a *argo) startServer(t *testing.T) {
	t.Helper()
	a.startRole(t, "server", "--disable-auth", "--insecure", "--port=8085", "--metrics-port=8086", "--repo-server=127.0.0.1:8081", "--repo-server-plaintext", "--redis=127.0.0.1:6379",
		"--staticassets="+a.dir, "--namespace=argocd", "--kubeconfig="+a.config())
	a.awaitPorts(t, "8085")
}

// act runs an action on a profile, like the menu of Argo CD.
func (a *argo) act(t *testing.T, app, profile, action string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{
		"name": app, "appNamespace": "argocd", "resourceName": profile, "version": "v1alpha1", "group": "tuning.storageclient.dev",
		"kind": "StorageClientProfile", "action": action,
	})
	check.NoError(t, err)
	response, err := http.Post("http://127.0.0.1:8085/api/v1/applications/"+app+"/resource/actions/v2", "application/json", bytes.NewReader(body))
	check.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("action %s: %s: %s (%v)", action, response.Status, text, err)
	}
}

// rollingStory uses config/argocd/applicationset.yaml, first with the default of Argo CD, then with progressive syncs.
func rollingStory(t *testing.T, a *argo) {
	files := map[string]string{}
	for i, pool := range []string{"canary", "eda"} {
		stage := map[string]string{"canary": "canary", "eda": "production"}[pool]
		files["pools/"+pool+"/pool.yaml"] = "stage: " + stage + "\n"
		files["pools/"+pool+"/profile.yaml"] = profileOf("pool-"+pool, strconv.Itoa(i), "ihash_entries=16777216", ", reboot: {policy: OnApproval}")
		files["pools/"+pool+"/kustomization.yaml"] = "resources: [profile.yaml]\n"
	}
	a.commit(t, "pools", files)
	set := strings.ReplaceAll(a.run(t, "cat", root+"/config/argocd/applicationset.yaml"), "https://git.example.com/platform/storage-client.git", a.url)
	controller := func(flags ...string) func() {
		a.startRole(t, "applicationset-controller", append([]string{
			"--argocd-repo-server=127.0.0.1:8081", "--repo-server-plaintext", "--metrics-addr=127.0.0.1:8180", "--probe-addr=127.0.0.1:8181", "--kubeconfig=" + a.config(), "--namespace=argocd",
		}, flags...)...)
		processes := a.Plane.Processes()
		return processes[len(processes)-1].Kill
	}
	stop := controller()
	// Argo CD caches the revision of a branch for three minutes. The refresh ignores that cache, as a webhook of the Git server does.
	a.apply(t, strings.Replace(set, "metadata:\n", "metadata:\n  annotations: {argocd.argoproj.io/application-set-refresh: \"true\"}\n", 1))
	for _, pool := range []string{"canary", "eda"} {
		a.expect(t, "storage-client-"+pool, "OutOfSync/Missing", "")
	}
	for range 3 {
		time.Sleep(time.Second)
		for _, pool := range []string{"canary", "eda"} {
			if p := a.profile(t, "pool-"+pool); p != nil {
				t.Errorf("without progressive syncs %s was synced, although no person started it", pool)
			}
		}
	}
	t.Log("without progressive syncs each Application waits for a sync by hand")
	stop()

	controller("--enable-progressive-syncs")
	a.expect(t, "storage-client-canary", "Synced/Suspended", "")
	a.planHash(t, "pool-canary")
	a.refresh(t, "storage-client-eda")
	if p := a.profile(t, "pool-eda"); p != nil {
		t.Error("the second pool was synced before the canary pool is Healthy")
	}
	a.kubectl(t, "storageclient approve pool-canary")
	a.expect(t, "storage-client-canary", "Synced/Healthy", "")
	a.expect(t, "storage-client-eda", "Synced/Suspended", "")
	states, _ := a.seen.since("storage-client-eda", 0)
	t.Logf("seen of the second pool: %v", states)
	a.kubectl(t, "storageclient approve pool-eda")
	a.expect(t, "storage-client-eda", "Synced/Healthy", "")
	a.kubectl(t, "--namespace argocd delete applicationset storage-client-profiles")
	for _, pool := range []string{"canary", "eda"} {
		a.await(t, "pool-"+pool+" to be deleted, or its Application to wait for a confirmation", func() (bool, string) {
			application := a.application(t, "storage-client-"+pool)
			return application == nil || application.GetDeletionTimestamp() != nil, "not deleted"
		})
		if a.application(t, "storage-client-"+pool) != nil {
			a.mark(t, "storage-client-"+pool, deletionApproved, time.Now().UTC().Add(time.Second).Format(time.RFC3339))
			a.expectGone(t, "storage-client-"+pool)
		}
	}
	for _, pool := range []string{"canary", "eda"} {
		t.Logf("after the ApplicationSet: %s: %s", pool, a.describe(t, "pool-"+pool))
		a.kubectl(t, "delete scp --ignore-not-found --timeout=120s pool-"+pool)
	}
}
