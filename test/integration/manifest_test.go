package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

var _ = Describe("The manifests", func() {
	DescribeTable("are admitted by the API server: config/",
		func(dir string) {
			for _, object := range render(dir) {
				Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.DryRunAll,
					client.FieldOwner("manifests"), client.ForceOwnership)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
			}
		},
		kustomizations(),
	)

	Context("of the whole operator", Ordered, func() {
		var objects []*unstructured.Unstructured
		BeforeAll(func() { objects = render("default") })

		It("hold what the API's names promise", func() {
			Expect(names(objects, "Deployment")).To(ConsistOf(v1alpha1.ManagerNamespace + "/" + v1alpha1.ManagerDeployment))
			for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
				Expect(names(objects, kind)).To(ConsistOf("/"+v1alpha1.AgentPolicy, "/"+v1alpha1.ApprovalPolicy), kind)
			}
			Expect(names(objects, "ClusterRole")).To(ContainElement("/" + v1alpha1.ApproverRole))
			Expect(names(objects, "Namespace")).To(ConsistOf("/"+v1alpha1.ManagerNamespace, "/"+v1alpha1.AgentNamespace))
			Expect(names(objects, "ServiceAccount")).To(ConsistOf(
				v1alpha1.ManagerNamespace+"/"+v1alpha1.ManagerDeployment, v1alpha1.AgentNamespace+"/"+v1alpha1.AgentServiceAccount))
		})

		It("leave the agent's DaemonSet to the manager, which looks for the fence first", func() {
			Expect(names(objects, "DaemonSet")).To(BeEmpty())
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

		It("give every role of a service account to somebody", func() {
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
			container := managerOf(objects).Spec.Template.Spec.Containers[0]
			Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
			Expect(container.ImagePullPolicy).To(Equal(corev1.PullIfNotPresent))
			Expect(container.LivenessProbe).NotTo(BeNil())
			Expect(container.ReadinessProbe).NotTo(BeNil())
		})

		It("give the agent's namespace the level that its host mount needs", func() {
			namespace := find(objects, "Namespace", v1alpha1.AgentNamespace)
			Expect(namespace.GetLabels()).To(HaveKeyWithValue(api.EnforceLevelLabel, string(api.LevelPrivileged)))
		})
	})
})

// kustomizations lists the folders of config that can be built by themselves.
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

// render builds a folder of config with the kustomize that make has built.
func render(dir string) []*unstructured.Unstructured {
	GinkgoHelper()
	kustomize := os.Getenv("KUSTOMIZE")
	if kustomize == "" {
		Fail("KUSTOMIZE names no kustomize: run \"make test\" or \"make test-integration\", which build it")
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := exec.CommandContext(bounded, kustomize, "build", filepath.Join(configDir, dir))
	command.Stderr = GinkgoWriter
	manifests, err := command.Output()
	Expect(err).NotTo(HaveOccurred(), "kustomize build %s", dir)
	return parseManifests(manifests)
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
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	Expect(i).To(BeNumerically(">=", 0), "no %s %s", kind, name)
	return objects[i]
}

func managerOf(objects []*unstructured.Unstructured) *appsv1.Deployment {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	object := find(objects, "Deployment", v1alpha1.ManagerDeployment)
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)).To(Succeed())
	return deployment
}
