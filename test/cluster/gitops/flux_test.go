//go:build gitops

package gitops

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
)

var (
	kustomizationKind = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	sourceKind        = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	volumeKind        = schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"}
)

// sourceDefinition defines a GitRepository without a schema. source-controller does not run: publish writes its status, as source-controller
// does after it has read a commit.
const sourceDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.source.toolkit.fluxcd.io}
spec:
  group: source.toolkit.fluxcd.io
  names: {kind: %s, listKind: %sList, plural: %s, singular: %s}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// flux is a running kustomize-controller.
type flux struct {
	*world
	controller *controlplane.Process
}

// gate is the flag of docs/gitops.md.
const gate = "--feature-gates=CancelHealthCheckOnNewRevision=true"

func (w *world) startFlux(t *testing.T, flags ...string) *flux {
	t.Helper()
	f := &flux{world: w}
	w.kubectl(t, "create --filename "+filepath.Join(variable(t, "SCO_FLUX"), "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"))
	for _, kind := range []string{"GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"} {
		plural := strings.ToLower(kind) + "s"
		if strings.HasSuffix(kind, "Repository") {
			plural = strings.ToLower(strings.TrimSuffix(kind, "y")) + "ies"
		}
		w.apply(t, fmt.Sprintf(sourceDefinition, plural, kind, kind, plural, strings.ToLower(kind)))
	}
	w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n")
	w.kubectl(t, "wait --for=condition=Established --timeout=60s crd/gitrepositories.source.toolkit.fluxcd.io crd/kustomizations.kustomize.toolkit.fluxcd.io crd/externalartifacts.source.toolkit.fluxcd.io")
	w.apply(t, "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: platform, namespace: flux-system}\nspec: {url: '"+w.url+"', interval: 1m}\n")
	check.NoError(t, w.Plane.AddAdministrator("flux", filepath.Join(w.dir, "flux.kubeconfig")))
	f.startController(t, flags...)
	return f
}

// startController starts the controller, in place of the running one.
func (f *flux) startController(t *testing.T, flags ...string) {
	t.Helper()
	if f.controller != nil {
		f.controller.Kill()
	}
	argv := append([]string{
		"env", "KUBECONFIG=" + filepath.Join(f.dir, "flux.kubeconfig"), "RUNTIME_NAMESPACE=flux-system", "TMPDIR=" + f.dir,
		filepath.Join(f.binaries, "kustomize-controller"), "--metrics-addr=127.0.0.1:9081", "--health-addr=127.0.0.1:9441", "--requeue-dependency=2s",
	}, flags...)
	var err error
	if f.controller, err = f.Plane.RunAs("kustomize-controller", argv...); err != nil {
		t.Fatal(err)
	}
}

// publish makes the latest commit the artifact of the GitRepository.
func (f *flux) publish(t *testing.T, commit string) string {
	t.Helper()
	archive := filepath.Join(string(f.files), commit+".tar.gz")
	git(t, f.work, "archive", "--format=tar.gz", "--output="+archive, commit)
	content := f.run(t, "sha256sum", archive)
	digest, _, _ := strings.Cut(content, " ")
	if len(digest) != 2*sha256.Size {
		t.Fatalf("got %q", content)
	}
	revision := "main@sha1:" + commit
	source := f.get(t, sourceKind, "flux-system", "platform")
	status, err := json.Marshal(map[string]any{"status": map[string]any{
		"observedGeneration": source.GetGeneration(),
		"artifact": map[string]any{
			"digest": "sha256:" + digest, "path": commit, "url": f.host + "/files/" + filepath.Base(archive), "revision": revision,
			"lastUpdateTime": time.Now().UTC().Format(time.RFC3339), "size": 1,
		},
		"conditions": []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded", LastTransitionTime: metav1.Now(), ObservedGeneration: source.GetGeneration()}},
	}})
	check.NoError(t, err)
	check.NoError(t, f.Client.Status().Patch(t.Context(), source, client.RawPatch(types.MergePatchType, status)))
	return revision
}

// kustomizationOf returns the Kustomization of config/flux/pools.yaml for the canary pool, with another name, path and timeout.
func (f *flux) kustomizationOf(t *testing.T, name, path string, prune bool, timeout string) string {
	t.Helper()
	document, _, _ := strings.Cut(f.kubectlFile(t, "config/flux/pools.yaml"), "\n---\n")
	object := parse(t, document)
	object.SetName(name)
	for field, value := range map[string]any{"path": "./" + path, "prune": prune, "timeout": timeout} {
		check.NoError(t, unstructured.SetNestedField(object.Object, value, "spec", field))
	}
	return toYAML(t, object.Object)
}

func (f *flux) kubectlFile(t *testing.T, path string) string {
	t.Helper()
	return f.run(t, "cat", filepath.Join(root, path))
}

// shown returns what Flux shows of a Kustomization.
func (f *flux) shown(t *testing.T, name string) (ready, text string) {
	t.Helper()
	object := f.get(t, kustomizationKind, "flux-system", name)
	if object == nil {
		return "", "no Kustomization"
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var out []string
	for _, c := range conditions {
		condition := c.(map[string]any)
		out = append(out, fmt.Sprintf("%s=%s/%s: %.160s", condition["type"], condition["status"], condition["reason"], condition["message"]))
		if condition["type"] == "Ready" {
			ready = fmt.Sprint(condition["status"])
		}
	}
	applied, _, _ := unstructured.NestedString(object.Object, "status", "lastAppliedRevision")
	attempted, _, _ := unstructured.NestedString(object.Object, "status", "lastAttemptedRevision")
	return ready, fmt.Sprintf("%s; applied %s, attempted %s", strings.Join(out, "; "), applied, attempted)
}

// reconcile does what "flux reconcile kustomization" does, and waits until the controller has handled it.
func (f *flux) reconcile(t *testing.T, name string) {
	t.Helper()
	at := time.Now().UTC().Format(time.RFC3339Nano)
	object := f.get(t, kustomizationKind, "flux-system", name)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, at)
	check.NoError(t, f.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch)))
	f.await(t, "Flux to reconcile "+name, func() (bool, string) {
		object := f.get(t, kustomizationKind, "flux-system", name)
		handled, _, _ := unstructured.NestedString(object.Object, "status", "lastHandledReconcileAt")
		_, text := f.shown(t, name)
		return handled == at, text
	})
}

// expect waits until a Kustomization shows a text.
func (f *flux) expect(t *testing.T, name, want string) {
	t.Helper()
	f.await(t, name+" to show "+want, func() (bool, string) {
		_, text := f.shown(t, name)
		return strings.Contains(text, want), text
	})
	_, text := f.shown(t, name)
	t.Logf("Flux shows %s: %s", name, text)
}

// reverts changes a field that Git declares and reconciles until Flux has reverted it, so that Flux is known to have applied the profile.
func (f *flux) reverts(t *testing.T, kustomization, profile string) {
	t.Helper()
	f.kubectl(t, `patch scp `+profile+` --type=merge --field-manager=test --patch '{"spec":{"rollout":{"settleSeconds":7}}}'`)
	f.await(t, "Flux to revert a change", func() (bool, string) {
		f.reconcile(t, kustomization)
		p := f.profile(t, profile)
		return p.Spec.Rollout.SettleSeconds != nil && *p.Spec.Rollout.SettleSeconds == 1, fmt.Sprint(p.Spec.Rollout)
	})
}

// fluxStory applies a profile and a volume with a short timeout, so that Flux reconciles while the profile waits.
func fluxStory(t *testing.T, f *flux) {
	const name, path = "pool-flux", "flux/pool"
	const timeout = "2s"
	file, volumeFile := path+"/profile.yaml", path+"/volume.yaml"
	onApproval := func(argument, more string) map[string]string {
		return map[string]string{file: profileOf(name, "1", argument, ", reboot: {policy: OnApproval"+more+"}")}
	}
	annotation := func(key string) string { return f.profile(t, name).Annotations[key] }
	step := func(what string, do func(*testing.T)) {
		t.Helper()
		if !t.Run(what, do) {
			t.FailNow()
		}
	}

	step("a profile that waits for approval is in progress", func(t *testing.T) {
		files := onApproval("ihash_entries=16777216", "")
		files[volumeFile] = volumeOf("flux-volume", "[hard]")
		f.publish(t, f.commit(t, "flux", files))
		f.apply(t, f.kustomizationOf(t, name, path, true, timeout))
		f.planHash(t, name)
		f.expect(t, name, "HealthCheckFailed")
		if _, text := f.shown(t, name); !strings.Contains(text, "InProgress") {
			t.Errorf("got %s, want a timeout while InProgress", text)
		}
	})
	step("a pause by the plugin outlives a reconcile and is Failed", func(t *testing.T) {
		t.Log(f.kubectl(t, "storageclient pause "+name))
		f.reverts(t, name, name)
		if annotation(v1alpha1.PausedAnnotation) != "true" {
			t.Error("Flux removed the pause")
		}
		f.expect(t, name, "stalled resources")
	})
	step("resume outlives a reconcile", func(t *testing.T) {
		t.Log(f.kubectl(t, "storageclient resume "+name))
		f.reverts(t, name, name)
		if got := annotation(v1alpha1.PausedAnnotation); got == "true" {
			t.Errorf("paused is %q after resume and a reconcile", got)
		}
		f.planHash(t, name)
	})
	step("the command of the page pauses, and a plain kubectl annotate does not", func(t *testing.T) {
		f.kubectl(t, "annotate scp "+name+" tuning.storageclient.dev/paused=true")
		f.reverts(t, name, name)
		if got := annotation(v1alpha1.PausedAnnotation); got != "" {
			t.Errorf("paused is %q: Flux keeps annotations of kubectl, and the page says that it removes them", got)
		}
		f.kubectl(t, "annotate scp "+name+" tuning.storageclient.dev/paused=true --field-manager=storageclient-plugin")
		f.reverts(t, name, name)
		if got := annotation(v1alpha1.PausedAnnotation); got != "true" {
			t.Error("Flux removed the pause of the page's command")
		}
		f.kubectl(t, "storageclient resume "+name)
	})
	step("an approval by the plugin outlives a reconcile and ends Ready", func(t *testing.T) {
		hash := f.planHash(t, name)
		t.Log(f.kubectl(t, "storageclient approve "+name))
		f.reverts(t, name, name)
		if got := annotation(v1alpha1.ApprovedPlanAnnotation); got != hash {
			t.Errorf("approved-plan is %q, want %q", got, hash)
		}
		f.await(t, "the rollout", func() (bool, string) { return f.isReady(t, name), f.describe(t, name) })
		f.reconcile(t, name)
		f.expect(t, name, "Ready=True")
	})
	step("spec.paused is reverted", func(t *testing.T) {
		f.kubectl(t, `patch scp `+name+` --type=merge --patch '{"spec":{"paused":true}}'`)
		f.await(t, "spec.paused to be reverted", func() (bool, string) {
			f.reconcile(t, name)
			return !f.profile(t, name).Spec.Paused, f.describe(t, name)
		})
	})
	step("the marks of a volume outlive a reconcile", func(t *testing.T) {
		marks := []string{"tuning.storageclient.dev/ignore=true", `tuning.storageclient.dev/original-mount-options=["hard"]`}
		for _, mark := range marks {
			f.kubectl(t, "annotate --overwrite pv flux-volume '"+mark+"' --field-manager=storageclient-plugin")
		}
		f.reconcile(t, name)
		f.reconcile(t, name)
		have := f.get(t, volumeKind, "", "flux-volume").GetAnnotations()
		for _, mark := range marks {
			key, value, _ := strings.Cut(mark, "=")
			if have[key] != value {
				t.Errorf("after a reconcile %s is %q, want %q", key, have[key], value)
			}
		}
	})
	step("an approval by commit needs the feature gate while Flux waits for the profile", func(t *testing.T) {
		f.kubectl(t, "patch kustomization --namespace flux-system "+name+` --type=merge --patch '{"spec":{"timeout":"24h"}}'`)
		f.publish(t, f.commit(t, "another size", onApproval("ihash_entries=8388608", "")))
		hash := f.planHash(t, name)
		f.expect(t, name, "Running health checks")
		revision := f.publish(t, f.commit(t, "approve", onApproval("ihash_entries=8388608", ", approvedPlan: "+hash)))
		f.expect(t, name, "applied "+revision)
		if !f.isReady(t, name) {
			t.Errorf("Flux reports the revision before the profile is Ready: %s", f.describe(t, name))
		}
	})
	step("without the feature gate an approval by commit waits, and an approval by the plugin ends the wait", func(t *testing.T) {
		f.startController(t)
		f.publish(t, f.commit(t, "yet another size", onApproval("ihash_entries=4194304", "")))
		hash := f.planHash(t, name)
		f.expect(t, name, "Running health checks")
		revision := f.publish(t, f.commit(t, "approve", onApproval("ihash_entries=4194304", ", approvedPlan: "+hash)))
		for range 10 {
			time.Sleep(time.Second)
			if got := f.profile(t, name).Spec.Rollout.Reboot.ApprovedPlan; got == hash {
				t.Fatal("without the feature gate Flux applied a commit while it waits for the profile")
			}
		}
		_, text := f.shown(t, name)
		t.Logf("Flux shows after the second commit: %s", text)
		t.Log(f.kubectl(t, "storageclient approve "+name))
		f.expect(t, name, "applied "+revision)
		f.startController(t, gate)
	})
	step("a profile that is gone from Git is pruned", func(t *testing.T) {
		f.kubectl(t, "patch kustomization --namespace flux-system "+name+` --type=merge --patch '{"spec":{"timeout":"1m"}}'`)
		f.publish(t, f.commit(t, "no profile", map[string]string{file: ""}))
		f.await(t, "the profile to be pruned", func() (bool, string) { return f.profile(t, name) == nil, f.describe(t, name) })
	})
	check.NoError(t, f.delete(t.Context(), f.get(t, kustomizationKind, "flux-system", name)))
	f.await(t, "the Kustomization to be gone", func() (bool, string) {
		return f.get(t, kustomizationKind, "flux-system", name) == nil, ""
	})
}
