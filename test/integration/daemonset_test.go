package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
)

// In earlier releases the manager applied this DaemonSet. The golden files contain its output: without any agent flags, and with all of
// them.
const (
	plainAgent  = "agent-plain.golden.yaml"
	shapedAgent = "agent-shaped.golden.yaml"
)

var _ = Describe("The agent's DaemonSet", func() {
	It("equals the DaemonSet of earlier managers in every field, and declares the architectures of its image", func() {
		Expect(defaulted(find(render("default"), "DaemonSet", v1alpha1.AgentDaemonSet))).To(Equal(defaulted(onArchitectures(readGolden(plainAgent)))))
	})

	It("and the trial runner's leave out control-plane nodes, and the component control-plane includes them", func() {
		component := renderOverlay("resources: [github.com/storageclient/operator/config/default?ref=v0.1.0]\ncomponents: [" +
			"github.com/storageclient/operator/config/components/control-plane?ref=v0.1.0, github.com/storageclient/operator/config/components/arm64?ref=v0.1.0]\n")
		for _, name := range []string{v1alpha1.AgentDaemonSet, v1alpha1.TrialDaemonSet} {
			excluded := func(objects []*unstructured.Unstructured) (keys []string) {
				set := &appsv1.DaemonSet{}
				Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(find(objects, "DaemonSet", name).Object, set)).To(Succeed())
				for _, term := range set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					for _, e := range term.MatchExpressions {
						if e.Operator == corev1.NodeSelectorOpDoesNotExist {
							keys = append(keys, e.Key)
						} else {
							Expect(e.Key).To(Equal(corev1.LabelArchStable))
						}
					}
				}
				return keys
			}
			Expect(excluded(render("default"))).To(Equal(v1alpha1.ControlPlaneLabels), name)
			Expect(excluded(component)).To(BeEmpty(), name)
		}
		policy, _, err := unstructured.NestedSlice(find(render("default"), "ValidatingAdmissionPolicy", "storage-client-manager-nodes").Object, "spec", "variables")
		Expect(err).NotTo(HaveOccurred())
		for _, variable := range policy {
			if v := variable.(map[string]any); v["name"] == "controlPlaneLabels" {
				Expect(strings.Split(strings.NewReplacer("[", "", "]", "", "'", "", "\n", "", " ", "").Replace(v["expression"].(string)), ",")).To(Equal(v1alpha1.ControlPlaneLabels))
			}
		}
		args := func(objects []*unstructured.Unstructured) []string {
			return managerOf(objects).Spec.Template.Spec.Containers[0].Args
		}
		Expect(args(render("default"))).NotTo(ContainElement("--include-control-plane"))
		Expect(args(component)).To(ContainElement("--include-control-plane"))
	})

	It("does so with the documented patches too, and the manager allows the same parameters as the agent", func() {
		objects := renderDocumentedOverlay()
		earlier := withImage(readGolden(shapedAgent), "registry.example.com/storageclient/node-agent:1")
		Expect(defaulted(find(objects, "DaemonSet", v1alpha1.AgentDaemonSet))).To(Equal(defaulted(onArchitectures(earlier))))
		manager := managerOf(objects).Spec.Template.Spec.Containers[0]
		Expect(manager.Image).To(Equal("registry.example.com/storageclient/manager:1"))
		Expect(manager.Args).To(ContainElement(`--allow-parameter=sysctl/vm\.swappiness`))
		Expect(manager.Args).NotTo(ContainElement(HavePrefix("--metrics-bind-address=127")))
	})

	plain := func() *unstructured.Unstructured {
		return find(render("default"), "DaemonSet", v1alpha1.AgentDaemonSet)
	}
	shaped := func() *unstructured.Unstructured {
		return withImage(find(renderDocumentedOverlay(), "DaemonSet", v1alpha1.AgentDaemonSet), "localhost/storageclient/node-agent:dev")
	}

	// A release that adds architectures also has a new image, which replaces each agent once anyway.
	DescribeTable("takes over the running DaemonSet, adds the architectures and makes no other change",
		func(golden string, daemonSet func() *unstructured.Unstructured, apply func(*unstructured.Unstructured) (string, error)) {
			before := runAsEarlierManager(golden)
			output, err := apply(daemonSet())
			Expect(err).NotTo(HaveOccurred(), output)
			after := getAgentDaemonSet()
			Expect(after.UID).To(Equal(before.UID))
			Expect(after.Spec.Template.Spec.Affinity).NotTo(BeNil())
			after.Spec.Template.Spec.Affinity = nil
			Expect(after.Spec).To(Equal(before.Spec))

			output, err = apply(daemonSet())
			Expect(err).NotTo(HaveOccurred(), output)
			Expect(getAgentDaemonSet().Generation).To(Equal(after.Generation), "the second apply must not replace the pods again")
		},
		Entry("kubectl apply", plainAgent, plain, kubectlApplies()),
		Entry("kubectl apply --server-side", plainAgent, plain, kubectlApplies("--server-side")),
		Entry("Argo CD and Flux, by force", plainAgent, plain, kubectlApplies("--server-side", "--force-conflicts", "--field-manager=argocd-controller")),
		Entry("kubectl apply, shaped", shapedAgent, shaped, kubectlApplies()),
		Entry("kubectl apply --server-side, shaped", shapedAgent, shaped, kubectlApplies("--server-side")),
	)

	DescribeTable("drops arguments that the manager had set and that are not in the manifest",
		func(apply func(*unstructured.Unstructured) (string, error)) {
			before := runAsEarlierManager(shapedAgent)
			output, err := apply(withImage(plain(), "agent:2"))
			Expect(err).NotTo(HaveOccurred(), output)
			after := getAgentDaemonSet()
			Expect(after.UID).To(Equal(before.UID))
			Expect(after.Spec.Selector).To(Equal(before.Spec.Selector))
			container := after.Spec.Template.Spec.Containers[0]
			Expect(container.Image).To(Equal("agent:2"))
			Expect(container.Args).To(Equal([]string{"run"}))
		},
		Entry("kubectl apply", kubectlApplies()),
		Entry("kubectl apply --server-side --force-conflicts", kubectlApplies("--server-side", "--force-conflicts")),
	)

	It("is taken over with another image only by force, as documented", func() {
		runAsEarlierManager(plainAgent)
		output, err := kubectlApplies("--server-side")(withImage(plain(), "agent:2"))
		Expect(err).To(HaveOccurred())
		Expect(output).To(And(ContainSubstring(v1alpha1.ManagerFieldManager), ContainSubstring("--force-conflicts")))
		Expect(readInstallPage()).To(ContainSubstring("kubectl apply --server-side --force-conflicts -f dist/install.yaml"))
	})

	It("stays until all nodes are restored: make uninstall", func() {
		Expect(k8s.Create(ctx, readGolden(plainAgent))).To(Succeed())
		profile := newProfile("p").Build()
		profile.Finalizers = []string{v1alpha1.Finalizer}
		Expect(k8s.Create(ctx, profile)).To(Succeed())
		output, err := uninstall(plainAgent, "TIMEOUT=1")
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring("1 profile: p"))
		Expect(getAgentDaemonSet().DeletionTimestamp).To(BeNil())

		// An earlier manager stopped before it removed its label.
		tried := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tried", Labels: map[string]string{v1alpha1.TrialLabel: v1alpha1.True, "kept": "true"}}}
		Expect(k8s.Create(ctx, tried)).To(Succeed())
		DeferCleanup(func() { Expect(client.IgnoreNotFound(k8s.Delete(ctx, tried))).To(Succeed()) })
		Expect(k8s.Patch(ctx, profile, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		output, err = uninstall(plainAgent, "TIMEOUT=30")
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(tried), tried)).To(Succeed())
		Expect(tried.Labels).To(And(HaveKey("kept"), Not(HaveKey(v1alpha1.TrialLabel))))
		err = k8s.Get(ctx, client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}, &appsv1.DaemonSet{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})

	It("is not recreated by the running manager, whose right on it is removed first", func() {
		objects := render("default")
		for _, object := range objects {
			if object.GetKind() == "ServiceAccount" && object.GetName() == v1alpha1.ManagerDeployment {
				createTemporarily(object)
			}
		}
		for _, object := range readManifests("testdata/earlier-role.yaml") {
			createTemporarily(object)
		}
		earlier, err := client.New(accessOfManager(), client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		writeBack := func() error {
			return earlier.Apply(ctx, client.ApplyConfigurationFromUnstructured(readGolden(plainAgent)), client.FieldOwner(v1alpha1.ManagerFieldManager), client.ForceOwnership)
		}
		Eventually(writeBack).Should(Succeed())

		apply := kubectlApplies("--server-side", "--force-conflicts")
		for _, object := range objects {
			switch {
			case object.GetKind() == "DaemonSet":
				output, err := apply(withImage(object, "agent:2"))
				Expect(err).NotTo(HaveOccurred(), output)
				Expect(apierrors.IsForbidden(writeBack())).To(BeTrue())
				set := getAgentDaemonSet()
				Expect(set.Spec.Template.Spec.Containers[0].Image).To(Equal("agent:2"))
				Expect(apierrors.IsForbidden(earlier.Delete(ctx, set))).To(BeTrue(), "an earlier manager without a profile deletes the DaemonSet")
			case object.GetNamespace() == v1alpha1.AgentNamespace && strings.HasPrefix(object.GetKind(), "Role"):
				output, err := apply(object)
				Expect(err).NotTo(HaveOccurred(), output)
				// The API server needs a moment to see the change.
				Eventually(func() bool { return apierrors.IsForbidden(writeBack()) }).Should(BeTrue(), object.GetKind())
			}
		}
	})

	It("comes after all roles of the manifest", func() {
		objects := render("default")
		daemonSet := indexOf(objects, "DaemonSet", v1alpha1.AgentDaemonSet)
		for i, object := range objects {
			if strings.HasPrefix(object.GetKind(), "Role") || strings.HasPrefix(object.GetKind(), "ClusterRole") {
				Expect(i).To(BeNumerically("<", daemonSet), "%s %s", object.GetKind(), object.GetName())
			}
		}
	})
})

// runAsEarlierManager applies the DaemonSet of an earlier manager, under its field manager.
func runAsEarlierManager(golden string) *appsv1.DaemonSet {
	GinkgoHelper()
	Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(readGolden(golden)), client.FieldOwner(v1alpha1.ManagerFieldManager), client.ForceOwnership)).To(Succeed())
	return getAgentDaemonSet()
}

// defaulted returns a DaemonSet with the API server's defaults.
func defaulted(object *unstructured.Unstructured) appsv1.DaemonSet {
	GinkgoHelper()
	object = object.DeepCopy()
	Expect(k8s.Create(ctx, object, client.DryRunAll)).To(Succeed())
	set := appsv1.DaemonSet{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &set)).To(Succeed())
	set.ObjectMeta = metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name, Labels: set.Labels}
	return set
}

func getAgentDaemonSet() *appsv1.DaemonSet {
	GinkgoHelper()
	set := &appsv1.DaemonSet{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}, set)).To(Succeed())
	return set
}

// onArchitectures adds the architectures that later manifests declare for the image.
func onArchitectures(daemonSet *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	expressions := []any{map[string]any{"key": corev1.LabelArchStable, "operator": string(corev1.NodeSelectorOpIn), "values": []any{"amd64"}}}
	for _, label := range v1alpha1.ControlPlaneLabels {
		expressions = append(expressions, map[string]any{"key": label, "operator": string(corev1.NodeSelectorOpDoesNotExist)})
	}
	terms := []any{map[string]any{"matchExpressions": expressions}}
	Expect(unstructured.SetNestedSlice(daemonSet.Object, terms,
		"spec", "template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")).To(Succeed())
	return daemonSet
}

func readGolden(file string) *unstructured.Unstructured {
	GinkgoHelper()
	return readManifests(filepath.Join("testdata", file))[0]
}

func withImage(daemonSet *unstructured.Unstructured, image string) *unstructured.Unstructured {
	GinkgoHelper()
	containers, _, err := unstructured.NestedSlice(daemonSet.Object, "spec", "template", "spec", "containers")
	Expect(err).NotTo(HaveOccurred())
	containers[0].(map[string]any)["image"] = image
	Expect(unstructured.SetNestedSlice(daemonSet.Object, containers, "spec", "template", "spec", "containers")).To(Succeed())
	return daemonSet
}

// kubectlApplies runs the real "kubectl apply" and returns its output.
func kubectlApplies(flags ...string) func(*unstructured.Unstructured) (string, error) {
	return func(object *unstructured.Unstructured) (string, error) {
		GinkgoHelper()
		manifest, err := yaml.Marshal(object.Object)
		Expect(err).NotTo(HaveOccurred())
		args := append([]string{"--kubeconfig", kubeconfig(), "apply", "-f", "-"}, flags...)
		command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
		command.Stdin = strings.NewReader(string(manifest))
		output, err := command.CombinedOutput()
		return string(output), err
	}
}

// uninstall runs the commands of "make uninstall", with a manifest of testdata.
func uninstall(manifest string, env ...string) (string, error) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "../../hack/uninstall.sh", filepath.Join("testdata", manifest))
	command.Env = append(os.Environ(), "KUBECTL="+filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")+" --kubeconfig "+kubeconfig())
	command.Env = append(command.Env, env...)
	output, err := command.CombinedOutput()
	return string(output), err
}

func readInstallPage() string {
	GinkgoHelper()
	text, err := os.ReadFile("../../docs/install.md")
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// renderDocumentedOverlay builds the example overlay of docs/install.md from this repository.
func renderDocumentedOverlay() []*unstructured.Unstructured {
	GinkgoHelper()
	blocks := regexp.MustCompile("(?s)```yaml\n(apiVersion: kustomize.*?)```").FindStringSubmatch(readInstallPage())
	Expect(blocks).NotTo(BeNil(), "docs/install.md has no kustomization")
	return renderOverlay(blocks[1])
}

// renderOverlay builds a kustomization from this repository. The kustomization refers to parts of config by their GitHub address, and may
// use extra files.
func renderOverlay(kustomization string, files ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	return renderDir(writeOverlay(kustomization, files...))
}

func writeOverlay(kustomization string, files ...string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	config, err := filepath.Abs(configDir)
	Expect(err).NotTo(HaveOccurred())
	config, err = filepath.Rel(dir, config)
	Expect(err).NotTo(HaveOccurred())
	kustomization = regexp.MustCompile(`github\.com/storageclient/operator/config/([^?\s\]]*)\?ref=v[0-9.]+`).ReplaceAllString(kustomization, config+"/$1")
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600)).To(Succeed())
	for _, file := range files {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o600)).To(Succeed())
	}
	return dir
}
