package integration

import (
	"io"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/api/v1alpha1"
)

const scraper = "storage-client-scraper"

var _ = Describe("Metrics of the agents", func() {
	It("are available only to users whom the API server authorizes, and the agent needs no additional right", func() {
		for _, object := range renderComponent("agent-metrics") {
			if object.GetName() == scraper && object.GetKind() != "Secret" {
				Expect(k8s.Create(ctx, object)).To(Succeed())
				DeferCleanup(func() { Expect(k8s.Delete(ctx, object)).To(Succeed()) })
			}
		}
		// The agent uses its own token. This token must not reach the API server.
		config := rest.AnonymousClientConfig(restConfig)
		config.BearerToken = unboundToken()
		authorizer, err := metrics.NewAuthorizer(config, clock.RealClock{})
		Expect(err).NotTo(HaveOccurred())
		page := authorizer.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
		statusFor := func(token string) int {
			request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			request.Header.Set("Authorization", "Bearer "+token)
			recorder := httptest.NewRecorder()
			page.ServeHTTP(recorder, request)
			return recorder.Code
		}
		Eventually(func() int { return statusFor(requestToken(v1alpha1.AgentNamespace, scraper, nil)) }).Should(Equal(http.StatusOK))
		Expect(statusFor(unboundToken())).To(Equal(http.StatusForbidden), "an agent must not read metrics")
		Expect(statusFor("made-up")).To(Equal(http.StatusUnauthorized))
	})

	It("are exposed by the component, and scraped with a token that has no other right", func() {
		objects := renderOverlay("resources: [github.com/storageclient/operator/config/default?ref=v0.1.0]\ncomponents: [" +
			"github.com/storageclient/operator/config/components/agent-metrics?ref=v0.1.0, github.com/storageclient/operator/config/components/prometheus-operator?ref=v0.1.0]\n")
		agent, manager := &appsv1.DaemonSet{}, &appsv1.Deployment{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(find(objects, "DaemonSet", v1alpha1.AgentDaemonSet).Object, agent)).To(Succeed())
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(find(objects, "Deployment", v1alpha1.ManagerDeployment).Object, manager)).To(Succeed())
		container := agent.Spec.Template.Spec.Containers[0]
		Expect(container.Args).To(ContainElements("--metrics-bind-address=[$(HOST_IP)]:9810", "--metrics-secure"))
		Expect(container.Env).To(ContainElement(HaveField("Name", "HOST_IP")))
		Expect(container.Ports).To(ConsistOf(corev1.ContainerPort{Name: "metrics", ContainerPort: 9810, HostPort: 9810, Protocol: corev1.ProtocolTCP}))

		secret := find(objects, "Secret", scraper)
		Expect(secret.GetAnnotations()).To(HaveKeyWithValue(corev1.ServiceAccountNameKey, scraper))
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(find(objects, "ClusterRoleBinding", scraper).Object, binding)).To(Succeed())
		Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: "ServiceAccount", Namespace: v1alpha1.AgentNamespace, Name: scraper}))
		role := &rbacv1.ClusterRole{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(find(objects, "ClusterRole", binding.RoleRef.Name).Object, role)).To(Succeed())
		Expect(role.Rules).To(ConsistOf(rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}))

		for name, template := range map[string]corev1.PodTemplateSpec{v1alpha1.AgentDaemonSet: agent.Spec.Template, v1alpha1.ManagerDeployment: manager.Spec.Template} {
			monitor := find(objects, "PodMonitor", name)
			Expect(monitor.GetNamespace()).To(Equal(secret.GetNamespace()), "a PodMonitor reads only Secrets of the same namespace")
			var selector metav1.LabelSelector
			field, _, err := unstructured.NestedMap(monitor.Object, "spec", "selector")
			Expect(err).NotTo(HaveOccurred())
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(field, &selector)).To(Succeed())
			chosen, err := metav1.LabelSelectorAsSelector(&selector)
			Expect(err).NotTo(HaveOccurred())
			Expect(chosen.Matches(labels.Set(template.Labels))).To(BeTrue(), name)
			endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
			Expect(err).NotTo(HaveOccurred())
			Expect(endpoints).To(HaveLen(1))
			endpoint := endpoints[0].(map[string]any)
			Expect(template.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", endpoint["port"])), name)
			Expect(endpoint).To(And(HaveKeyWithValue("scheme", "https"), HaveKeyWithValue("path", "/metrics")))
			credentials, _, err := unstructured.NestedStringMap(endpoint, "authorization", "credentials")
			Expect(err).NotTo(HaveOccurred())
			Expect(credentials).To(Equal(map[string]string{"name": secret.GetName(), "key": corev1.ServiceAccountTokenKey}))
		}
	})
})
