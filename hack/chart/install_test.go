//go:build chart

package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/reaper"
)

func TestMain(m *testing.M) {
	if err := reaper.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

// newCluster starts an API server without controllers. It returns a client, and the path of a kubeconfig.
func newCluster(t *testing.T) (client.Client, string) {
	t.Helper()
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    filepath.Dir(tool(t, "kube-apiserver")),
		ControlPlaneStartTimeout: patience.Of(20 * time.Second), ControlPlaneStopTimeout: patience.Of(20 * time.Second),
	}
	access, err := environment.Start()
	check.NoError(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		check.NoError(t, add(scheme))
	}
	k8s, err := client.New(access, client.Options{Scheme: scheme})
	check.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.NoError(t, os.WriteFile(path, environment.KubeConfig, 0o600))
	return k8s, path
}

// documentedCommand returns a Helm command of the documentation, for a chart.
func documentedCommand(t *testing.T, verb, chart, kubeconfig string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	check.NoError(t, err)
	line := regexp.MustCompile(`(?m)^helm ` + verb + ` ([^#\n]*)`).FindSubmatch(text)
	if line == nil {
		t.Fatalf("docs/install.md has no helm %s", verb)
	}
	args := append([]string{verb}, strings.Fields(string(line[1]))...)
	for i := range args {
		if strings.HasSuffix(args[i], ".tgz") {
			args[i] = chart
		}
	}
	return append(args, "--kubeconfig", kubeconfig)
}

func TestInstallUpgradeAndUninstall(t *testing.T) {
	ctx := t.Context()
	k8s, kubeconfig := newCluster(t)
	get := func(name, namespace string, object client.Object) error {
		return k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	}
	requireObject := func(name, namespace string, object client.Object) {
		t.Helper()
		check.NoError(t, get(name, namespace, object))
	}
	run := func(args []string) {
		t.Helper()
		if out, err := helm(t, args...); err != nil {
			t.Fatalf("helm %v: %s", args, out)
		}
	}
	first := makeChart(t, options{version: "v1.0.0", managerImage: "m:1", agentImage: "a:1"})
	run(documentedCommand(t, "install", first, kubeconfig))

	for name, level := range map[string]string{v1alpha1.ManagerNamespace: "restricted", v1alpha1.AgentNamespace: "privileged"} {
		namespace := &corev1.Namespace{}
		requireObject(name, "", namespace)
		if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != level {
			t.Errorf("namespace %s: got %q enforced, want %q", name, got, level)
		}
	}
	manager := &appsv1.Deployment{}
	requireObject(v1alpha1.ManagerDeployment, v1alpha1.ManagerNamespace, manager)

	// The test writes the fields of chart objects that the manager would write, and creates a user's profile.
	webhooks := &admissionv1.MutatingWebhookConfiguration{}
	requireObject("storage-client-webhook", "", webhooks)
	webhooks.Webhooks[0].ClientConfig.CABundle = exampleCA(t)
	secret := &corev1.Secret{}
	requireObject("storage-client-webhook", v1alpha1.ManagerNamespace, secret)
	secret.Data = map[string][]byte{"tls.crt": []byte("of the manager")}
	for _, object := range []client.Object{webhooks, secret} {
		check.NoError(t, k8s.Update(ctx, object, client.FieldOwner(v1alpha1.ManagerFieldManager)))
	}
	// The manager does not run, so its webhook cannot validate the profile.
	check.NoError(t, k8s.Delete(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "storage-client-webhook"}}))
	profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	profile.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	check.NoError(t, k8s.Create(ctx, profile))

	second := makeChart(t, options{version: "v1.1.0", managerImage: "m:2", agentImage: "a:2"}, func(config string) {
		edit(t, filepath.Join(config, "crd/bases/tuning.storageclient.dev_storageclientprofiles.yaml"), "StorageClientProfile declares", "Of a later release, StorageClientProfile declares")
	})
	run(documentedCommand(t, "upgrade", second, kubeconfig))
	requireObject(v1alpha1.ManagerDeployment, v1alpha1.ManagerNamespace, manager)
	check.Equal(t, "image of the upgraded manager", "m:2", manager.Spec.Template.Spec.Containers[0].Image)
	definition := &apiextensionsv1.CustomResourceDefinition{}
	requireObject("storageclientprofiles.tuning.storageclient.dev", "", definition)
	if text := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Description; !strings.HasPrefix(text, "Of a later release") {
		t.Errorf("got a definition without the upgrade: %s", text)
	}
	after := &corev1.Secret{}
	requireObject("storage-client-webhook", v1alpha1.ManagerNamespace, after)
	if !bytes.Equal(after.Data["tls.crt"], secret.Data["tls.crt"]) {
		t.Errorf("the upgrade removed the manager's certificate: %v", after.Data)
	}
	requireObject("storage-client-webhook", "", webhooks)
	if !bytes.Equal(webhooks.Webhooks[0].ClientConfig.CABundle, exampleCA(t)) {
		t.Error("the upgrade removed the CA bundle from the webhooks")
	}
	current := &v1alpha1.StorageClientProfile{}
	requireObject("p", "", current)
	if current.UID != profile.UID || current.DeletionTimestamp != nil {
		t.Errorf("the upgrade changed the profile: %+v", current.ObjectMeta)
	}

	run([]string{"uninstall", "storage-client-operator", "--namespace", "kube-system", "--kubeconfig", kubeconfig})
	if err := get(v1alpha1.ManagerDeployment, v1alpha1.ManagerNamespace, manager); !apierrors.IsNotFound(err) {
		t.Errorf("the manager still exists after helm uninstall: %v", err)
	}
	requireObject("p", "", current)
	if current.UID != profile.UID || current.DeletionTimestamp != nil {
		t.Errorf("helm uninstall deleted the profile, although the manager cannot restore its settings any more: %+v", current.ObjectMeta)
	}

	// A controller removes the finalizer of a namespace. This cluster has no controllers.
	for _, name := range []string{v1alpha1.ManagerNamespace, v1alpha1.AgentNamespace} {
		namespace := &corev1.Namespace{}
		requireObject(name, "", namespace)
		namespace.Spec.Finalizers = nil
		check.NoError(t, k8s.SubResource("finalize").Update(ctx, namespace))
	}
	run(documentedCommand(t, "install", second, kubeconfig))
	requireObject(v1alpha1.ManagerDeployment, v1alpha1.ManagerNamespace, manager)
	requireObject("p", "", current)
}

func exampleCA(t *testing.T) []byte {
	t.Helper()
	authority, err := base64.StdEncoding.DecodeString(exampleAuthority(t))
	check.NoError(t, err)
	return authority
}

func edit(t *testing.T, path, before, after string) {
	t.Helper()
	content, err := os.ReadFile(path)
	check.NoError(t, err)
	if !bytes.Contains(content, []byte(before)) {
		t.Fatalf("%s does not say %q", path, before)
	}
	check.NoError(t, os.WriteFile(path, bytes.ReplaceAll(content, []byte(before), []byte(after)), 0o600))
}
