//go:build attack

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/webhook"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/reaper"
)

const configDir = "../../config"

var scheme = runtime.NewScheme()

// cluster is a real API server with config/default and the guardrails. Only the webhooks run.
type cluster struct {
	environment *envtest.Environment
	config      *rest.Config
	// admin has all rights. It prepares and reads; it is no attacker.
	admin client.WithWatch
}

func TestMain(m *testing.M) {
	if err := reaper.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" || os.Getenv("KUSTOMIZE") == "" {
		t.Fatal(`KUBEBUILDER_ASSETS and KUSTOMIZE must name a control plane and kustomize: run "make test-attack", which builds them`)
	}
	ctrl.SetLogger(logr.Discard())
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		check.NoError(t, add(scheme))
	}
	c := &cluster{environment: &envtest.Environment{
		Scheme: scheme, CRDDirectoryPaths: []string{filepath.Join(configDir, "crd", "bases")}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: patience.Of(20 * time.Second), ControlPlaneStopTimeout: patience.Of(20 * time.Second),
	}}
	c.environment.ControlPlane.GetAPIServer().Configure().
		Set("authorization-mode", "Node", "RBAC").
		Append("enable-admission-plugins", "NodeRestriction")
	var err error
	c.config, err = c.environment.Start()
	check.NoError(t, err)
	t.Cleanup(func() { _ = c.environment.Stop() })
	c.config.QPS, c.config.Burst = -1, -1
	c.admin, err = client.NewWithWatch(c.config, client.Options{Scheme: scheme})
	check.NoError(t, err)
	return c
}

// install creates the objects of config/default and the guardrails. It creates the webhooks' configurations last, at an address of this
// machine. The webhooks run with the manager's token.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	site := &envtest.WebhookInstallOptions{}
	order := []string{"Namespace", "ServiceAccount", "ConfigMap"}
	objects := render(t, "guardrails")
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		rank := func(o *unstructured.Unstructured) int {
			if i := slices.Index(order, o.GetKind()); i >= 0 {
				return i
			}
			return len(order)
		}
		return rank(a) - rank(b)
	})
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition":
		case "ValidatingWebhookConfiguration":
			site.ValidatingWebhooks = append(site.ValidatingWebhooks, convert[admissionregistrationv1.ValidatingWebhookConfiguration](t, object))
		case "MutatingWebhookConfiguration":
			site.MutatingWebhooks = append(site.MutatingWebhooks, convert[admissionregistrationv1.MutatingWebhookConfiguration](t, object))
		default:
			if err := c.admin.Create(t.Context(), object); err != nil {
				t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
	c.aggregateRoles(t)
	setCeilings(t, c, nil)
	check.NoError(t, site.Install(c.config))
	t.Cleanup(func() { _ = site.Cleanup() })
	c.serveWebhooks(t, site)
}

// aggregateRoles fills the roles edit and view, as kube-controller-manager does.
func (c *cluster) aggregateRoles(t *testing.T) {
	t.Helper()
	var roles rbacv1.ClusterRoleList
	check.NoError(t, c.admin.List(t.Context(), &roles))
	for range 2 { // edit aggregates view
		for i := range roles.Items {
			role := &roles.Items[i]
			if role.AggregationRule == nil {
				continue
			}
			role.Rules = nil
			for _, wanted := range role.AggregationRule.ClusterRoleSelectors {
				selector, err := metav1.LabelSelectorAsSelector(&wanted)
				check.NoError(t, err)
				for _, part := range roles.Items {
					if selector.Matches(labels.Set(part.Labels)) {
						role.Rules = append(role.Rules, part.Rules...)
					}
				}
			}
			check.NoError(t, c.admin.Update(t.Context(), role))
		}
	}
}

// serveWebhooks runs the manager's webhooks with the manager's rights.
func (c *cluster) serveWebhooks(t *testing.T, site *envtest.WebhookInstallOptions) {
	t.Helper()
	secret := &corev1.Secret{}
	check.NoError(t, c.admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: webhook.Name}, secret))
	secret.Data = map[string][]byte{}
	for _, file := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		text, err := os.ReadFile(filepath.Join(site.LocalServingCertDir, file))
		check.NoError(t, err)
		secret.Data[file] = text
	}
	check.NoError(t, c.admin.Update(t.Context(), secret))
	mgr, err := ctrl.NewManager(c.withToken(t, v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, nil), ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), HealthProbeBindAddress: "0", Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: webhook.CacheByObject(v1alpha1.ManagerNamespace)},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	check.NoError(t, err)
	hooks := &webhook.Webhooks{Host: site.LocalServingHost, Port: site.LocalServingPort}
	check.NoError(t, hooks.SetupWithManager(mgr))
	life, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(life) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("the manager of the webhooks stopped: got error %v, want none", err)
		}
	})
	bad := profileOf("bad", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = sysctls("kernel.core_pattern", "core") })
	await(t, "a response of the webhooks", func() bool {
		return apierrors.IsInvalid(c.admin.Create(t.Context(), bad.DeepCopy(), client.DryRunAll))
	})
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !waitFor(t, condition) {
		t.Fatalf("timed out waiting for %s", what)
	}
}

func waitFor(t *testing.T, condition func() bool) bool {
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Of(15*time.Second), true, func(context.Context) (bool, error) { return condition(), nil })
	return err == nil
}

// giveCertificates replaces the roles with the roles of the installation with cert-manager.
func (c *cluster) giveCertificates(t *testing.T, manager *actor) {
	t.Helper()
	for _, object := range render(t, "guardrails", "cert-manager") {
		if object.GetKind() == "ClusterRole" || object.GetKind() == "Role" {
			live := object.DeepCopy()
			check.NoError(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(live), live))
			live.Object["rules"] = object.Object["rules"]
			check.NoError(t, c.admin.Update(t.Context(), live))
		}
	}
	await(t, "the roles to count", func() bool { return apierrors.IsForbidden(onlyTry(askedAboutPods)(manager.as(t))) })
}

// includeControlPlane replaces the policy on Nodes with the policy of the component control-plane.
func (c *cluster) includeControlPlane(t *testing.T, manager *actor) {
	t.Helper()
	for _, object := range render(t, "guardrails", "control-plane") {
		if object.GetKind() == "ValidatingAdmissionPolicy" && object.GetName() == "storage-client-manager-nodes" {
			live := object.DeepCopy()
			check.NoError(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(live), live))
			live.Object["spec"] = object.Object["spec"]
			check.NoError(t, c.admin.Update(t.Context(), live))
		}
	}
	await(t, "the policy to count", func() bool { return controlPlaneAttacks()[0].try(manager.as(t)) == nil })
}

// render builds config/default with components.
func render(t *testing.T, components ...string) []*unstructured.Unstructured {
	t.Helper()
	return build(t, func(config string) string {
		var overlay strings.Builder
		overlay.WriteString("resources: [" + config + "/default]\ncomponents:\n")
		for _, component := range components {
			fmt.Fprintf(&overlay, "- %s/components/%s\n", config, component)
		}
		return overlay.String()
	})
}

// build renders an overlay of the directory config. kustomize rejects absolute paths.
func build(t *testing.T, overlay func(config string) string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check.NoError(t, err)
	root, err := filepath.Abs(configDir)
	check.NoError(t, err)
	root, err = filepath.EvalSymlinks(root)
	check.NoError(t, err)
	relative, err := filepath.Rel(dir, root)
	check.NoError(t, err)
	check.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay(relative)), 0o600))
	command := exec.CommandContext(t.Context(), os.Getenv("KUSTOMIZE"), "build", dir)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	manifests, err := command.Output()
	if err != nil {
		t.Fatalf("kustomize build: %v: %s", err, complaints.String())
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		}
		check.NoError(t, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func convert[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	check.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out))
	return out
}
