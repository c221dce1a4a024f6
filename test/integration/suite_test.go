// Package integration runs the controllers against a real API server, without kubelets or built-in controllers.
//
// Specs call Reconcile and step the fake clock; no test polls a controller or sleeps. At the start of a spec
// these variables are set:
//
//	ctx        ends with the spec
//	k8s        an uncached client with all rights; k8s.Status(), client.Apply and Watch work
//	restConfig the same rights, for code that takes a rest.Config or a clientset
//	scheme     the client's scheme: the kinds of Kubernetes, CustomResourceDefinitions and the operator
//	fakeClock  starts each spec at the current second, so that it agrees with times that the server sets; Step it
//	logger     pass it to all code that logs: a spec fails if a write conflict or a panic is logged
//
// The suite installs the CustomResourceDefinitions, both namespaces and config/agent with its policy. It also installs the manager's
// policies, and the users' roles with the policy on approvals. All objects that a spec creates
// are deleted after it, even with finalizers: Nodes, Pods, PersistentVolumes, claims, StorageClasses, DaemonSets, budgets,
// the ConfigMaps, Leases and Secrets of the manager's namespace, and the operator's kinds.
// buildPlugin compiles the plugin once.
//
// builders_test.go creates objects and acts as the node's agent; mortal_test.go contains a manager that dies at its nth write.
package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/reaper"
)

const configDir = "../../config"

var (
	ctx        context.Context
	k8s        client.WithWatch
	restConfig *rest.Config
	scheme     = runtime.NewScheme()
	fakeClock  *testclock.FakeClock
	logger     logr.Logger

	logWatch = &watchedLog{}
)

func TestIntegration(t *testing.T) {
	check.NoError(t, reaper.Start())
	RegisterFailHandler(Fail)
	// The API server needs a moment to see a new role or to compile a new policy, and longer on a busy machine.
	SetDefaultEventuallyTimeout(patience.Of(20 * time.Second))
	RunSpecs(t, "Integration")
}

var _ = BeforeSuite(func() {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		Fail("KUBEBUILDER_ASSETS names no directory with etcd and kube-apiserver: run \"make test\" or \"make test-integration\", which build them")
	}
	logger = funcr.New(logWatch.line, funcr.Options{Verbosity: 1})
	ctrl.SetLogger(logger)
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	DeferCleanup(func() error { return os.RemoveAll(pluginDir) })
	startAPIServer()
	installManifests("manager/namespace.yaml", "manager/policies.yaml", "agent/namespace.yaml", "agent/service_account.yaml", "agent/role.yaml", "agent/role_binding.yaml", "agent/policy.yaml")
	installManifests("rbac/user_roles.yaml", "rbac/approval_policy.yaml", "rbac/trial_policy.yaml")
	awaitFence()
})

// pluginDir contains the plugin; empty until buildPlugin runs.
var pluginDir string

// buildPlugin compiles the plugin, once for all specs.
var buildPlugin = sync.OnceValue(func() string {
	GinkgoHelper()
	var err error
	pluginDir, err = os.MkdirTemp("", "plugin")
	Expect(err).NotTo(HaveOccurred())
	binary := filepath.Join(pluginDir, "kubectl-storageclient")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "../../cmd/kubectl-storageclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return binary
})

var _ = BeforeEach(func() {
	var cancel context.CancelFunc
	ctx, cancel = context.WithCancel(context.Background())
	DeferCleanup(cancel)
	fakeClock = testclock.NewFakeClock(time.Now().Truncate(time.Second))
	logWatch.take()
})

var _ = AfterEach(func() {
	Expect(logWatch.take()).To(BeEmpty(), "logged write conflicts and panics")
	deleteAll()
})

func startAPIServer() {
	GinkgoHelper()
	environment := &envtest.Environment{
		Scheme:                scheme,
		CRDDirectoryPaths:     []string{filepath.Join(configDir, "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		// These are the defaults of envtest.
		ControlPlaneStartTimeout: patience.Of(20 * time.Second), ControlPlaneStopTimeout: patience.Of(20 * time.Second),
	}
	auditApprovals(environment.ControlPlane.GetAPIServer().Configure())
	var err error
	restConfig, err = environment.Start()
	Expect(err).NotTo(HaveOccurred(), "start etcd and kube-apiserver of %s", os.Getenv("KUBEBUILDER_ASSETS"))
	DeferCleanup(environment.Stop)
	restConfig.QPS, restConfig.Burst = -1, -1
	k8s, err = client.NewWithWatch(restConfig, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
}

func installManifests(paths ...string) {
	GinkgoHelper()
	for _, path := range paths {
		for _, object := range readManifests(filepath.Join(configDir, path)) {
			Expect(k8s.Create(context.Background(), object)).To(Succeed(), "create %s %s", object.GetKind(), object.GetName())
		}
	}
}

func readManifests(path string) []*unstructured.Unstructured {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return parseManifests(content)
}

// parseManifests returns the documents of a YAML stream.
func parseManifests(content []byte) []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred())
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// deleteAll removes the objects that specs create. It removes finalizers too, because no controller of Kubernetes runs here.
func deleteAll() {
	GinkgoHelper()
	inManagerNamespace := client.InNamespace(v1alpha1.ManagerNamespace)
	for _, kind := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{list: &corev1.PodList{}},
		{list: &appsv1.DaemonSetList{}}, {list: &appsv1.ReplicaSetList{}}, {list: &appsv1.DeploymentList{}}, {list: &appsv1.StatefulSetList{}},
		{list: &batchv1.JobList{}}, {list: &policyv1.PodDisruptionBudgetList{}},
		{list: &v1alpha1.StorageClientTrialList{}}, {list: &v1alpha1.StorageClientProfileList{}}, {list: &v1alpha1.StorageClientNodeList{}},
		{list: &corev1.PersistentVolumeClaimList{}}, {list: &corev1.PersistentVolumeList{}}, {list: &storagev1.StorageClassList{}},
		{list: &corev1.NodeList{}},
		{list: &corev1.ConfigMapList{}, options: []client.ListOption{inManagerNamespace}},
		{list: &corev1.SecretList{}, options: []client.ListOption{inManagerNamespace}},
		{list: &coordinationv1.LeaseList{}, options: []client.ListOption{inManagerNamespace}},
	} {
		Expect(k8s.List(context.Background(), kind.list, kind.options...)).To(Succeed())
		Expect(meta.EachListItem(kind.list, func(item runtime.Object) error {
			deleteNow(item.(client.Object))
			return nil
		})).To(Succeed())
	}
	unpause := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))
	namespace := &corev1.Namespace{}
	namespace.Name = v1alpha1.ManagerNamespace
	Expect(k8s.Patch(context.Background(), namespace, unpause)).To(Succeed())
}

// deleteNow deletes an object together with its finalizers.
func deleteNow(object client.Object) {
	GinkgoHelper()
	if len(object.GetFinalizers()) > 0 {
		without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		Expect(client.IgnoreNotFound(k8s.Patch(context.Background(), object, without))).To(Succeed())
	}
	err := k8s.Delete(context.Background(), object, client.GracePeriodSeconds(0))
	Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// watchedLog keeps the logged lines that fail a spec.
type watchedLog struct {
	mu  sync.Mutex
	bad []string
}

// A conflict is an ordinary reason to requeue. Logged as an error, it hides real errors.
var badLogMarks = []string{
	"please apply your changes to the latest version",
	"Observed a panic",
	"[recovered]",
}

// line prints a logged line if the spec fails, and keeps a bad line.
func (w *watchedLog) line(name, line string) {
	GinkgoWriter.Println(name, line)
	if slices.ContainsFunc(badLogMarks, func(mark string) bool { return strings.Contains(line, mark) }) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bad = append(w.bad, line)
	}
}

// take returns the lines since its last call.
func (w *watchedLog) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := w.bad
	w.bad = nil
	return bad
}
