//go:build gitops

package gitops

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/simnode"
)

const (
	root = "../../.."
	// pools is the number of pools, each with two nodes. A further pool has one node that ignores a kernel argument.
	pools      = 3
	brokenPool = "broken"
	// patient bounds each wait.
	patient = 90 * time.Second
	// webhookPort is the port of the webhook's Service: no kube-proxy translates it here.
	webhookPort = "443"
)

// world is the cluster with its engines.
type world struct {
	*sandbox.Sandbox
	*repository
	dir, binaries string
}

// start starts the cluster with the operator and its manager, and a Git repository.
func start(t *testing.T) *world {
	t.Helper()
	w := startCluster(t, sandbox.Options{Root: root, Nodes: 2 * pools, Pools: pools})
	w.addBrokenNode(t)
	for _, file := range []string{"config/webhook/secret.yaml", "config/webhook/service.yaml"} {
		check.NoError(t, w.ApplyFile(t.Context(), filepath.Join(root, file)))
	}
	w.routeWebhooks(t)
	if _, err := w.StartManager(t.Context(), "--webhook-port="+webhookPort); err != nil {
		t.Fatal(err)
	}
	return w
}

// startCluster starts a cluster without a manager, and a Git repository.
func startCluster(t *testing.T, options sandbox.Options) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), binaries: variable(t, "SCO_BINARIES")}
	options.Options = controlplane.Options{Binaries: w.binaries, Dir: w.dir, Audit: true}
	options.Manager, options.BootTime, options.Progress = variable(t, "SCO_MANAGER"), time.Second, t.Logf
	var err error
	if w.Sandbox, err = sandbox.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("SCO_KEEP_LOGS") != "" {
			_ = exec.Command("cp", "-r", w.dir, os.Getenv("SCO_KEEP_LOGS")).Run()
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.repository = startRepository(t)
	return w
}

// routeWebhooks makes the address of the webhooks' Service an address of this machine: no kube-proxy serves it here.
func (w *world) routeWebhooks(t *testing.T) {
	t.Helper()
	service := &corev1.Service{}
	check.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: "storage-client-webhook"}, service))
	w.run(t, "ip", "address", "replace", service.Spec.ClusterIP+"/32", "dev", "lo")
}

func (w *world) addBrokenNode(t *testing.T) {
	t.Helper()
	node := &corev1.Node{}
	check.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: w.Names[0]}, node))
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-broken", Labels: map[string]string{}, Annotations: map[string]string{controlplane.NodeAnnotation: "fake"}}}
	for _, label := range []string{corev1.LabelOSStable, corev1.LabelArchStable} {
		object.Labels[label] = node.Labels[label]
	}
	object.Labels[corev1.LabelHostname], object.Labels[sandbox.PoolNumberLabel] = object.Name, brokenPool
	object.Status.Capacity, object.Status.Allocatable = node.Status.Capacity, node.Status.Allocatable
	dir := filepath.Join(w.dir, object.Name)
	check.NoError(t, os.Mkdir(dir, 0o755))
	machine, err := simnode.NewMachine(dir, simnode.Options{BrokenArguments: []string{"dhash_entries"}})
	check.NoError(t, err)
	check.NoError(t, w.Fleet.Add(t.Context(), object, machine))
}

func variable(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run \"make test-gitops\", which builds the files for this test", name)
	}
	return value
}

// run runs a program and returns its output.
func (w *world) run(t *testing.T, argv ...string) string {
	t.Helper()
	output, err := w.try(argv...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, output)
	}
	return output
}

func (w *world) try(argv ...string) (string, error) {
	// A plugin of kubectl is found by PATH.
	cmd := exec.Command(argv[0], argv[1:]...)
	if tool := filepath.Join(w.binaries, argv[0]); exists(tool) {
		cmd = exec.Command(tool, argv[1:]...)
	}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Plane.Kubeconfig, "PATH="+filepath.Dir(os.Getenv("SCO_PLUGIN"))+":"+w.binaries+":"+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// kubectl runs a command line as a user would type it.
func (w *world) kubectl(t *testing.T, line string) string {
	t.Helper()
	return w.run(t, "bash", "-c", "cd "+root+" && kubectl "+line)
}

func (w *world) apply(t *testing.T, manifest string) {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object := parse(t, document)
		if object.Object == nil {
			continue
		}
		if err := w.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func parse(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, document)
	}
	return object
}

func (w *world) get(t *testing.T, gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

func (w *world) profile(t *testing.T, name string) *v1alpha1.StorageClientProfile {
	t.Helper()
	profile := &v1alpha1.StorageClientProfile{}
	err := w.Client.Get(t.Context(), client.ObjectKey{Name: name}, profile)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return profile
}

// describe returns the conditions of a profile as text.
func (w *world) describe(t *testing.T, name string) string {
	t.Helper()
	profile := w.profile(t, name)
	if profile == nil {
		return "no profile"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "generation %d/%d", profile.Status.ObservedGeneration, profile.Generation)
	for _, c := range profile.Status.Conditions {
		fmt.Fprintf(&b, " %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	return b.String()
}

func (w *world) isReady(t *testing.T, name string) bool {
	t.Helper()
	p := w.profile(t, name)
	return p != nil && p.Status.ObservedGeneration == p.Generation && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
}

// planHash waits for a plan that needs an approval, and returns its hash.
func (w *world) planHash(t *testing.T, name string) string {
	t.Helper()
	var hash string
	w.await(t, "a plan of "+name+" that waits for its approval", func() (bool, string) {
		p := w.profile(t, name)
		if p == nil || p.Status.ObservedGeneration != p.Generation {
			return false, w.describe(t, name)
		}
		hash = p.Status.Plan.Hash
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
		return hash != "" && c != nil && c.Reason == "WaitingForApproval", w.describe(t, name)
	})
	return hash
}

// await waits until a condition holds. done returns the current state for the message of a timeout.
func (w *world) await(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	began, last := time.Now(), ""
	for bound := patience.Of(patient); time.Since(began) < bound; time.Sleep(time.Second / 4) {
		ok, state := done()
		if ok {
			t.Logf("%s: %.0f s", what, time.Since(began).Seconds())
			return
		}
		last = state
	}
	t.Fatalf("waiting for %s, got: %s\nthe end of the manager's log:\n%s", what, last, w.ManagerLog())
}

// profileOf returns the manifest of a profile for one pool. rollout is a YAML map in flow style, without its braces.
func profileOf(name, pool, argument, rollout string) string {
	return fmt.Sprintf(`apiVersion: tuning.storageclient.dev/v1alpha1
kind: StorageClientProfile
metadata: {name: %s}
spec:
  nodeSelector: {matchLabels: {%s: %q}}
  node: {kernelArguments: [%s]}
  rollout: {canary: {soakSeconds: 1}, settleSeconds: 1%s}
`, name, sandbox.PoolNumberLabel, pool, argument, rollout)
}

func (w *world) delete(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(w.Client.Delete(ctx, object))
}
