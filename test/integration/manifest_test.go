package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/agent/trialrunner"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/webhook"
	"github.com/storageclient/operator/test/cluster/rights"
	"github.com/storageclient/operator/test/patience"
)

var _ = Describe("The manifests", func() {
	DescribeTable("are admitted by the API server: config/",
		func(dir string) {
			for _, object := range render(dir) {
				admit(object)
			}
		},
		kustomizations(),
	)

	DescribeTable("are admitted with each component: config/components/",
		func(component string, files ...string) {
			for _, object := range renderComponent(component, files...) {
				admit(object)
			}
		},
		components(),
	)

	It("have cert-manager issue the certificate for the Service, into the Secret that the manager reads", func() {
		objects := renderComponent("cert-manager")
		get := func(kind, name string, fields ...string) any {
			value, found, err := unstructured.NestedFieldNoCopy(find(objects, kind, name).Object, fields...)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(BeTrue(), "%s %s: %v", kind, name, fields)
			return value
		}
		service := find(objects, "Service", webhook.Name)
		Expect(get("Certificate", webhook.Name, "spec", "dnsNames")).To(ConsistOf(service.GetName() + "." + service.GetNamespace() + ".svc"))
		Expect(get("Certificate", webhook.Name, "spec", "secretName")).To(Equal(webhook.Name))
		issuer := get("Certificate", webhook.Name, "spec", "issuerRef", "name").(string)
		authority := get("Issuer", issuer, "spec", "ca", "secretName")
		Expect(get("Certificate", webhook.Name+"-ca", "spec", "secretName")).To(Equal(authority))
		Expect(get("Certificate", webhook.Name+"-ca", "spec", "isCA")).To(BeTrue())
		find(objects, "Issuer", get("Certificate", webhook.Name+"-ca", "spec", "issuerRef", "name").(string))
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
			Expect(find(objects, kind, webhook.Name).GetAnnotations()).To(
				HaveKeyWithValue("cert-manager.io/inject-ca-from", v1alpha1.ManagerNamespace+"/"+webhook.Name), kind)
		}
	})

	It("have the API server trust the given authority in all webhooks, and cannot be built without one", func() {
		objects := renderComponent("webhook-ca", "authority.example.yaml")
		authority, _, err := unstructured.NestedString(readManifests(filepath.Join(configDir, "components/webhook-ca/authority.example.yaml"))[0].Object, "data", "caBundle")
		Expect(err).NotTo(HaveOccurred())
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
			webhooks, _, err := unstructured.NestedSlice(find(objects, kind, webhook.Name).Object, "webhooks")
			Expect(err).NotTo(HaveOccurred())
			Expect(webhooks).NotTo(BeEmpty())
			for _, hook := range webhooks {
				bundle, _, err := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle")
				Expect(err).NotTo(HaveOccurred())
				Expect(bundle).To(Equal(authority), kind)
			}
		}
		Expect(names(objects, "ConfigMap")).To(BeEmpty())
		_, err = build(writeOverlay(componentOverlay("webhook-ca")))
		Expect(err).To(HaveOccurred())
	})

	It("allow only the manager's own connections into and out of its namespace", func() {
		objects := renderComponent("network-policies")
		policies := map[string]networkingv1.NetworkPolicy{}
		for _, name := range names(objects, "NetworkPolicy") {
			policy := networkingv1.NetworkPolicy{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(find(objects, "NetworkPolicy", filepath.Base(name)).Object, &policy)).To(Succeed())
			Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
			Expect(policy.Namespace).To(Equal(v1alpha1.ManagerNamespace))
			policies[policy.Name] = policy
		}
		Expect(policies).To(HaveLen(2))
		Expect(policies["storage-client-default"].Spec).To(And(
			HaveField("PodSelector", metav1.LabelSelector{}), HaveField("Ingress", BeEmpty()), HaveField("Egress", BeEmpty())), "everything is denied")
		manager := managerOf(objects)
		served := map[string]int32{}
		for _, port := range manager.Spec.Template.Spec.Containers[0].Ports {
			served[port.Name] = port.ContainerPort
		}
		allowed := policies[v1alpha1.ManagerDeployment].Spec
		Expect(&allowed.PodSelector).To(Equal(manager.Spec.Selector))
		Expect(portsOf(allowed.Ingress)).To(ConsistOf(served["webhook"], served["metrics"]), "probes come from the node of the pod and need no rule")
		var ports []int32
		for _, rule := range allowed.Egress {
			for _, port := range rule.Ports {
				ports = append(ports, port.Port.IntVal)
			}
		}
		Expect(ports).To(ConsistOf(int32(443), int32(6443), int32(53), int32(53)))
	})

	Context("of the whole operator", Ordered, func() {
		var objects []*unstructured.Unstructured
		BeforeAll(func() { objects = render("default") })

		It("contain the objects that the API's constants name", func() {
			for kind, name := range map[string]string{
				"Deployment":                       v1alpha1.ManagerNamespace + "/" + v1alpha1.ManagerDeployment,
				"DaemonSet":                        v1alpha1.AgentNamespace + "/" + v1alpha1.AgentDaemonSet,
				"ValidatingAdmissionPolicy":        "/" + v1alpha1.AgentPolicy,
				"ValidatingAdmissionPolicyBinding": "/" + v1alpha1.AgentPolicy,
			} {
				Expect(names(objects, kind)).To(ContainElement(name), kind)
			}
			for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
				Expect(names(objects, kind)).To(HaveEach(Or(Equal("/"+v1alpha1.AgentPolicy), Equal("/"+v1alpha1.ApprovalPolicy), Equal("/"+v1alpha1.TrialPolicy), HavePrefix("/"+v1alpha1.ManagerDeployment+"-"))), kind)
			}
			Expect(names(objects, "ClusterRole")).To(ContainElement("/" + v1alpha1.ApproverRole))
			Expect(names(objects, "Namespace")).To(ConsistOf("/"+v1alpha1.ManagerNamespace, "/"+v1alpha1.AgentNamespace))
			Expect(names(objects, "ServiceAccount")).To(ConsistOf(
				v1alpha1.ManagerNamespace+"/"+v1alpha1.ManagerDeployment, v1alpha1.AgentNamespace+"/"+v1alpha1.AgentServiceAccount,
				v1alpha1.AgentNamespace+"/"+v1alpha1.TrialDaemonSet))
			Expect(names(objects, "DaemonSet")).To(ConsistOf(
				v1alpha1.AgentNamespace+"/"+v1alpha1.AgentDaemonSet, v1alpha1.AgentNamespace+"/"+v1alpha1.TrialDaemonSet))
		})

		It("give the manager no right on workloads: an attacker with it does not control hosts", func() {
			for _, rule := range managerRules(objects) {
				Expect(rule.APIGroups).NotTo(ContainElement(Or(Equal("*"), Equal("apps"), Equal("batch"))), "%v", rule)
				Expect(rule.Resources).NotTo(ContainElement(Or(HavePrefix("*"), Equal("replicationcontrollers"), Equal("podtemplates"))), "%v", rule)
				Expect(rule.Verbs).NotTo(ContainElement(Or(Equal("*"), Equal("escalate"), Equal("bind"))), "%v", rule)
				if slices.Contains(rule.Verbs, "impersonate") {
					// The manager tests the fence as an agent with a node's name, by dry runs: config/agent/policy.yaml admits only those.
					agent := rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{v1alpha1.AgentServiceAccount}}
					node := rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"userextras/authentication.kubernetes.io/node-name"}}
					Expect(rule).To(Or(Equal(agent), Equal(node)))
				}
				if slices.Contains(rule.Resources, "pods") {
					Expect(rule.Verbs).To(HaveEach(BeElementOf("get", "list", "watch")), "%v", rule)
				}
			}
		})

		// The default installation is compared with the manager's requests by make test-kwok.
		It("give the manager no right to create or delete volumes, claims and pods, and no other right with any component", func() {
			rightsOf := func(objects []*unstructured.Unstructured) map[string]bool {
				var roles []client.Object
				for _, object := range objects {
					into := map[string]client.Object{"Role": &rbacv1.Role{}, "ClusterRole": &rbacv1.ClusterRole{}, "RoleBinding": &rbacv1.RoleBinding{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}}[object.GetKind()]
					if into != nil {
						Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)).To(Succeed())
						roles = append(roles, into)
					}
				}
				granted, err := rights.OfAccount(roles, v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment)
				Expect(err).NotTo(HaveOccurred())
				texts := map[string]bool{}
				for _, right := range granted {
					texts[right.String()] = true
				}
				return texts
			}
			byDefault := rightsOf(objects)
			for right := range byDefault {
				Expect(right).NotTo(MatchRegexp("^(create|delete|deletecollection) (persistentvolume|persistentvolumeclaim|pod)s( |$)"))
			}
			for name, files := range componentFiles() {
				var more []string
				for right := range rightsOf(renderComponent(name, files...)) {
					if !byDefault[right] {
						more = append(more, right)
					}
				}
				Expect(more).To(BeEmpty(), name)
			}
		})

		It("bind roles that are among them to service accounts that are among them", func() {
			for _, binding := range objects {
				if binding.GetKind() != "RoleBinding" && binding.GetKind() != "ClusterRoleBinding" {
					continue
				}
				role, _, _ := unstructured.NestedStringMap(binding.Object, "roleRef")
				namespace := binding.GetNamespace()
				if role["kind"] == "ClusterRole" {
					namespace = ""
				}
				Expect(names(objects, role["kind"])).To(ContainElement(namespace+"/"+role["name"]), binding.GetName())
				subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
				for _, subject := range subjects {
					account := subject.(map[string]any)
					Expect(names(objects, "ServiceAccount")).To(ContainElement(fmt.Sprintf("%s/%s", account["namespace"], account["name"])), binding.GetName())
				}
			}
		})

		It("bind every policy with Deny, and fail closed", func() {
			for _, object := range objects {
				if object.GetKind() != "ValidatingAdmissionPolicy" {
					continue
				}
				failurePolicy, _, _ := unstructured.NestedString(object.Object, "spec", "failurePolicy")
				Expect(failurePolicy).To(Equal("Fail"), object.GetName())
				// A missing parameter would reject every request, regardless of matchConditions.
				binding := find(objects, "ValidatingAdmissionPolicyBinding", object.GetName())
				Expect(binding.Object["spec"]).To(Equal(map[string]any{"policyName": object.GetName(), "validationActions": []any{"Deny"}}))
			}
		})

		It("bind every role of a service account", func() {
			var bound []string
			for _, binding := range objects {
				if binding.GetKind() == "RoleBinding" || binding.GetKind() == "ClusterRoleBinding" {
					role, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
					bound = append(bound, binding.GetNamespace()+"/"+role)
				}
			}
			for _, role := range names(objects, "Role") {
				Expect(bound).To(ContainElement(role))
			}
		})

		It("run the manager within Pod Security's restricted level, as its namespace enforces", func() {
			namespace := find(objects, "Namespace", v1alpha1.ManagerNamespace)
			Expect(namespace.GetLabels()).To(HaveKeyWithValue(api.EnforceLevelLabel, string(api.LevelRestricted)))
			template := managerOf(objects).Spec.Template
			evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
			Expect(err).NotTo(HaveOccurred())
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(
				api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &template.ObjectMeta, &template.Spec))
			Expect(result.Allowed).To(BeTrue(), "%s: %s", result.ForbiddenReason(), result.ForbiddenDetail())
		})

		It("run the manager with a root that nothing can write, probed, and by images that need not be pulled", func() {
			pod := managerOf(objects).Spec.Template.Spec
			Expect(pod.SecurityContext.SeccompProfile).To(HaveField("Type", corev1.SeccompProfileTypeRuntimeDefault))
			container := pod.Containers[0]
			Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
			Expect(container.ImagePullPolicy).To(Equal(corev1.PullIfNotPresent))
			Expect(container.LivenessProbe).NotTo(BeNil())
			Expect(container.ReadinessProbe).NotTo(BeNil())
		})

		It("run the agent with a root that nothing can write, without the host's processes, and where its node is fenced", func() {
			agent := &appsv1.DaemonSet{}
			object := find(objects, "DaemonSet", v1alpha1.AgentDaemonSet)
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, agent)).To(Succeed())
			pod := agent.Spec.Template.Spec
			Expect(pod.Containers).To(HaveLen(1))
			Expect(pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
			Expect(pod.HostPID || pod.HostIPC).To(BeFalse())
			Expect(pod.ServiceAccountName).To(Equal(v1alpha1.AgentServiceAccount))
			Expect(pod.NodeSelector).To(Equal(map[string]string{v1alpha1.ManagedLabel: v1alpha1.True, corev1.LabelOSStable: "linux"}))
			Expect(agent.Spec.Template.Labels).To(HaveKeyWithValue("app.kubernetes.io/component", "node-agent"),
				"the manager selects the agent's Pods by this label")
		})

		It("run the trial runner in the pod network, on nodes labelled for a trial, without a token and without the host's files", func() {
			runner := &appsv1.DaemonSet{}
			object := find(objects, "DaemonSet", v1alpha1.TrialDaemonSet)
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, runner)).To(Succeed())
			pod := runner.Spec.Template.Spec
			Expect(pod.HostNetwork || pod.HostPID || pod.HostIPC).To(BeFalse())
			Expect(pod.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
			Expect(pod.NodeSelector).To(Equal(map[string]string{v1alpha1.TrialLabel: v1alpha1.True, corev1.LabelOSStable: "linux"}))
			Expect(pod.PriorityClassName).To(BeEmpty(), "a trial must not preempt other pods")
			Expect(pod.Volumes).To(ConsistOf(HaveField("VolumeSource.HostPath.Path", trialrunner.Dir)))
			Expect(pod.Containers).To(ConsistOf(And(HaveField("Args", []string{"trial-runner"}),
				HaveField("SecurityContext.ReadOnlyRootFilesystem", HaveValue(BeTrue())),
				HaveField("VolumeMounts", ConsistOf(HaveField("MountPath", trialrunner.Dir))))))
			Expect(runner.Spec.Template.Labels).NotTo(HaveKeyWithValue("app.kubernetes.io/component", "node-agent"),
				"the manager must not mistake a runner Pod for a Ready agent")
			for _, binding := range objects {
				subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
				Expect(subjects).NotTo(ContainElement(HaveKeyWithValue("name", v1alpha1.TrialDaemonSet)), "%s", binding.GetName())
			}
		})

		It("run on the architecture that the images have, and with the component for arm64 on that, too", func() {
			for architectures, objects := range map[string][]*unstructured.Unstructured{"amd64": objects, "amd64 arm64": renderComponent("arm64")} {
				pods := map[string]string{}
				for _, object := range objects {
					if spec, found, _ := unstructured.NestedMap(object.Object, "spec", "template", "spec"); found {
						pods[object.GetName()] = strings.Join(architecturesOf(spec), " ")
					}
				}
				Expect(pods).To(Equal(map[string]string{
					v1alpha1.ManagerDeployment: architectures, v1alpha1.AgentDaemonSet: architectures, v1alpha1.TrialDaemonSet: architectures,
				}))
			}
		})

		It("give the agent's namespace the level that its host mount needs", func() {
			namespace := find(objects, "Namespace", v1alpha1.AgentNamespace)
			Expect(namespace.GetLabels()).To(HaveKeyWithValue(api.EnforceLevelLabel, string(api.LevelPrivileged)))
		})
	})
})

// kustomizations lists the folders of config that can be built separately.
func kustomizations() []TableEntry {
	var entries []TableEntry
	err := filepath.WalkDir(configDir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "kustomization.yaml" {
			return err
		}
		dir, err := filepath.Rel(configDir, filepath.Dir(path))
		if err == nil && filepath.Dir(dir) != "components" {
			entries = append(entries, Entry(dir, dir))
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return entries
}

func portsOf(rules []networkingv1.NetworkPolicyIngressRule) []int32 {
	var ports []int32
	for _, rule := range rules {
		for _, port := range rule.Ports {
			ports = append(ports, port.Port.IntVal)
		}
	}
	return ports
}

// admit creates an object of the manifests as a dry run, unless another program installs its kind.
func admit(object *unstructured.Unstructured) {
	GinkgoHelper()
	if slices.Contains([]string{"cert-manager.io", "monitoring.coreos.com"}, object.GroupVersionKind().Group) {
		return
	}
	declared := atomicFields("", object.DeepCopy().Object)
	Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.DryRunAll,
		client.FieldOwner("manifests"), client.ForceOwnership)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	Expect(atomicFields("", object.Object)).To(Equal(declared), "%s %s: declare the defaults of these fields: Argo CD would compare them as a whole, and show the object as OutOfSync",
		object.GetKind(), object.GetName())
}

// atomicFields returns the references to fields by their paths. A server-side apply has one owner for each of them, with the defaults of the API server.
func atomicFields(path string, value any) map[string]any {
	fields := map[string]any{}
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			if key == "fieldRef" || key == "resourceFieldRef" {
				fields[path+"."+key] = element
				continue
			}
			maps.Copy(fields, atomicFields(path+"."+key, element))
		}
	case []any:
		for i, element := range v {
			maps.Copy(fields, atomicFields(fmt.Sprintf("%s[%d]", path, i), element))
		}
	}
	return fields
}

// components lists the folders of config/components, with the example of the files that their users supply.
func components() []TableEntry {
	var entries []TableEntry
	files := componentFiles()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		args := []any{name}
		for _, file := range files[name] {
			args = append(args, file)
		}
		entries = append(entries, Entry(name, args...))
	}
	return entries
}

// componentFiles returns the example files of each component.
func componentFiles() map[string][]string {
	all := map[string][]string{}
	dirs, err := filepath.Glob(filepath.Join(configDir, "components", "*"))
	if err != nil {
		panic(err)
	}
	for _, dir := range dirs {
		examples, err := filepath.Glob(filepath.Join(dir, "*.example.yaml"))
		if err != nil {
			panic(err)
		}
		all[filepath.Base(dir)] = nil
		for _, example := range examples {
			all[filepath.Base(dir)] = append(all[filepath.Base(dir)], filepath.Base(example))
		}
	}
	return all
}

// renderComponent builds the operator with a component, and with files of the component's folder as resources.
func renderComponent(component string, files ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	var paths []string
	for _, file := range files {
		paths = append(paths, filepath.Join(configDir, "components", component, file))
	}
	return renderOverlay(componentOverlay(component, files...), paths...)
}

func componentOverlay(component string, resources ...string) string {
	resources = append([]string{"github.com/storageclient/operator/config/default?ref=v0.1.0"}, resources...)
	return fmt.Sprintf("resources: [%s]\ncomponents: [github.com/storageclient/operator/config/components/%s?ref=v0.1.0]\n", strings.Join(resources, ", "), component)
}

// render builds a folder of config.
func render(dir string) []*unstructured.Unstructured {
	GinkgoHelper()
	return renderDir(filepath.Join(configDir, dir))
}

func renderDir(dir string) []*unstructured.Unstructured {
	GinkgoHelper()
	manifests, err := build(dir)
	Expect(err).NotTo(HaveOccurred(), "kustomize build %s", dir)
	return parseManifests(manifests)
}

// build builds a folder with the kustomize that make has installed.
func build(dir string) ([]byte, error) {
	GinkgoHelper()
	kustomize := os.Getenv("KUSTOMIZE")
	if kustomize == "" {
		Fail("KUSTOMIZE names no kustomize: run \"make test\" or \"make test-integration\", which build it")
	}
	bounded, cancel := context.WithTimeout(ctx, patience.Of(time.Minute))
	defer cancel()
	command := exec.CommandContext(bounded, kustomize, "build", dir)
	command.Stderr = GinkgoWriter
	return command.Output()
}

// names lists the objects of a kind as namespace/name.
func names(objects []*unstructured.Unstructured, kind string) []string {
	var found []string
	for _, object := range objects {
		if object.GetKind() == kind {
			found = append(found, object.GetNamespace()+"/"+object.GetName())
		}
	}
	return found
}

func find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	GinkgoHelper()
	return objects[indexOf(objects, kind, name)]
}

func indexOf(objects []*unstructured.Unstructured, kind, name string) int {
	GinkgoHelper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	Expect(i).To(BeNumerically(">=", 0), "no %s %s", kind, name)
	return i
}

// managerRules returns the rules of all roles that are bound to the manager.
func managerRules(objects []*unstructured.Unstructured) []rbacv1.PolicyRule {
	GinkgoHelper()
	rules := rulesOf(objects)
	Expect(len(rules)).To(BeNumerically(">", 10))
	return rules
}

func rulesOf(objects []*unstructured.Unstructured) []rbacv1.PolicyRule {
	GinkgoHelper()
	var rules []rbacv1.PolicyRule
	for _, object := range objects {
		if !strings.HasSuffix(object.GetKind(), "Role") || !strings.HasPrefix(object.GetName(), v1alpha1.ManagerDeployment) {
			continue
		}
		role := &rbacv1.ClusterRole{} // a Role has the same fields
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role)).To(Succeed())
		rules = append(rules, role.Rules...)
	}
	return rules
}

func managerOf(objects []*unstructured.Unstructured) *appsv1.Deployment {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	object := find(objects, "Deployment", v1alpha1.ManagerDeployment)
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)).To(Succeed())
	return deployment
}

// architecturesOf returns the required architectures of a Pod. It expects one term with one expression.
func architecturesOf(podSpec map[string]any) []string {
	GinkgoHelper()
	pod := corev1.PodSpec{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(podSpec, &pod)).To(Succeed())
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return nil
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	Expect(terms).To(HaveLen(1))
	Expect(terms[0].MatchExpressions[0]).To(And(HaveField("Key", corev1.LabelArchStable), HaveField("Operator", corev1.NodeSelectorOpIn)))
	return terms[0].MatchExpressions[0].Values
}
