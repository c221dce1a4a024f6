package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

// removeAnnotationsPatch is a merge patch that removes the operator's annotations from a volume.
const removeAnnotationsPatch = `{"metadata":{"annotations":{"tuning.storageclient.dev/original-mount-options":null,` +
	`"tuning.storageclient.dev/applied-mount-options":null,"tuning.storageclient.dev/profiles":null,"tuning.storageclient.dev/mount-options-step":null}}}`

// sign adds the annotations or labels of a tool to a volume.
type sign func(*volumeBuilder) *volumeBuilder

func unsigned(b *volumeBuilder) *volumeBuilder { return b }

func labelled(key, value string) sign {
	return func(b *volumeBuilder) *volumeBuilder { return b.Label(key, value) }
}

func annotated(key, value string) sign {
	return func(b *volumeBuilder) *volumeBuilder { return b.Annotate(key, value) }
}

// replaceWhole replaces the whole volume each time, with the option "soft".
func replaceWhole(manager string, s sign) func(string) {
	return func(name string) {
		GinkgoHelper()
		pv := s(newVolume(name).Options("soft")).volume.DeepCopy()
		live := &corev1.PersistentVolume{}
		if err := k8s.Get(ctx, client.ObjectKey{Name: name}, live); apierrors.IsNotFound(err) {
			Expect(k8s.Create(ctx, pv, client.FieldOwner(manager))).To(Succeed())
			return
		}
		pv.ResourceVersion = live.ResourceVersion
		Expect(k8s.Update(ctx, pv, client.FieldOwner(manager))).To(Succeed())
	}
}

// applyForced applies the volume by server-side apply each time, with the option "soft".
func applyForced(manager string, s sign) func(string) {
	return func(name string) {
		GinkgoHelper()
		object := &unstructured.Unstructured{Object: toMap(s(newVolume(name).Options("soft")).volume)}
		Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager), client.ForceOwnership)).To(Succeed())
	}
}

// patchList creates the volume, and then reverts its options each time, as a three-way merge does.
func patchList(manager string, s sign) func(string) {
	return func(name string) {
		GinkgoHelper()
		if err := k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.PersistentVolume{}); apierrors.IsNotFound(err) {
			s(newVolume(name).Options("soft")).Create(client.FieldOwner(manager))
			return
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"mountOptions":["soft"]}}`))
		Expect(k8s.Patch(ctx, &newVolume(name).volume, patch, client.FieldOwner(manager))).To(Succeed())
	}
}

// stripAnnotations creates the volume, and then removes unknown annotations each time.
func stripAnnotations(manager string, s sign) func(string) {
	return func(name string) {
		GinkgoHelper()
		if err := k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.PersistentVolume{}); apierrors.IsNotFound(err) {
			s(newVolume(name).Options("soft")).Create(client.FieldOwner(manager))
			return
		}
		Expect(k8s.Patch(ctx, &newVolume(name).volume, client.RawPatch(types.MergePatchType, []byte(removeAnnotationsPatch)), client.FieldOwner(manager))).To(Succeed())
	}
}

// kubectlReplace runs the real "kubectl replace".
func kubectlReplace(options ...string) func(string) {
	return func(name string) {
		GinkgoHelper()
		verb := "replace"
		if err := k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.PersistentVolume{}); apierrors.IsNotFound(err) {
			verb = "create"
		}
		manifest, err := yaml.Marshal(toMap(newVolume(name).Options(options...).volume))
		Expect(err).NotTo(HaveOccurred())
		command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "--kubeconfig", kubeconfig(), verb, "-f", "-")
		command.Stdin = strings.NewReader(string(manifest))
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
}

func readLedger() *ledger.Ledger {
	GinkgoHelper()
	var pages corev1.ConfigMapList
	Expect(k8s.List(ctx, &pages, client.InNamespace(v1alpha1.ManagerNamespace))).To(Succeed())
	return new(ledger.Reader).Read(pages.Items)
}

var _ = Describe("The ledger of volumes", func() {
	const (
		reportOnly = v1alpha1.GitOpsReportOnly
		patched    = v1alpha1.GitOpsPatch
	)
	var recorder *events.FakeRecorder
	var writes int
	BeforeEach(func() { recorder, writes = events.NewFakeRecorder(64), 0 })

	pass := func() {
		GinkgoHelper()
		counting := interceptor.NewClient(k8s, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				writes++
				return c.Patch(ctx, o, p, opts...)
			},
		})
		r := &volume.Reconciler{Client: counting, Recorder: recorder}
		_, err := r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
	}
	emitted := func() string {
		var all []string
		for len(recorder.Events) > 0 {
			all = append(all, <-recorder.Events)
		}
		return strings.Join(all, "\n")
	}

	DescribeTable("needs less than ten rounds against:", func(
		gitOps v1alpha1.GitOpsPolicy, act func(name string), most int, restored string, texts ...string,
	) {
		act("pv")
		profile := nfsProfile("fast", gitOps, "nocto")
		pass()
		for range 10 {
			act("pv")
			pass()
		}
		Expect(writes).To(Equal(most), "number of writes on the volume")
		got := emitted()
		for _, text := range texts {
			Expect(got).To(ContainSubstring(text))
		}

		By("deleting the profile")
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		pass()
		pass()
		pv := getVolume("pv")
		Expect(strings.Join(pv.Spec.MountOptions, ",")).To(Equal(restored))
		for key := range pv.Annotations {
			Expect(key).NotTo(HavePrefix("tuning.storageclient.dev/"))
		}
		Expect(readLedger().EntryOf(pv.UID)).To(BeNil(), "the record must be deleted with the profile")
	},
		Entry("kubectl replace", reportOnly, kubectlReplace("soft"), 1, "soft", `kubectl replace (field manager "kubectl-replace")`, "in the manifest: spec: {mountOptions: "),
		Entry("a user who replaces volumes", reportOnly, replaceWhole("curl", unsigned), 1, "soft", "Another user or controller replaced the volume", "kubectl annotate --overwrite pv pv "),
		Entry("a user who removes annotations", reportOnly, stripAnnotations("curl", unsigned), 2, "soft", "Restored the operator's annotations", "removed again"),
		Entry("Argo CD with Replace=true", reportOnly, replaceWhole("argocd-controller", annotated("argocd.argoproj.io/tracking-id", "a")), 0, "soft", "Argo CD", "jsonPointers: [/spec/mountOptions]"),
		Entry("Argo CD with Replace=true and no sign", reportOnly, replaceWhole("argocd-controller", unsigned), 0, "soft", "Argo CD", "jsonPointers: [/spec/mountOptions]"),
		Entry("Argo CD with Replace=true, written all the same", patched, replaceWhole("argocd-controller", annotated("argocd.argoproj.io/tracking-id", "a")), 1, "soft", "Argo CD", "remove Replace=true from"),
		Entry("Argo CD's server-side apply, written all the same", patched, applyForced("argocd-controller", annotated("argocd.argoproj.io/tracking-id", "a")), 1, "soft", "Argo CD"),
		Entry("Argo CD's client-side apply, written all the same", patched, func(name string) {
			kubectlApply(newVolume(name).Options("soft").Annotate("argocd.argoproj.io/tracking-id", "a").volume)
		}, 1, "soft", "Argo CD"),
		Entry("Flux, written all the same", patched, applyForced("kustomize-controller", labelled("kustomize.toolkit.fluxcd.io/name", "a")), 1, "soft", "Flux", "in the Kustomization's spec"),
		Entry("Helm, written all the same", patched, patchList("helm", labelled("app.kubernetes.io/managed-by", "Helm")), 1, "soft", "Helm", "in the chart's template"),
		Entry("kapp, written all the same", patched, replaceWhole("kapp", labelled("kapp.k14s.io/app", "1")), 1, "soft", "kapp", "rebaseRules"),
		Entry("kapp that ignores the options and not annotations", patched, stripAnnotations("kapp", labelled("kapp.k14s.io/app", "1")), 2, "soft", "kapp", "[metadata, annotations, tuning.storageclient.dev/profiles]"),
		Entry("Pulumi, written all the same", patched, applyForced("pulumi-kubernetes-1a2b", unsigned), 1, "soft", "Pulumi", "ignoreChanges"),
		Entry("Crossplane, written all the same", patched, replaceWhole("crossplane-kubernetes-provider", unsigned), 1, "soft", "Crossplane", "in the Object's spec.forProvider.manifest"),
		Entry("Terraform", reportOnly, stripAnnotations("HashiCorp", unsigned), 0, "soft", "Terraform", "metadata[0].annotations"),
		Entry("Terraform, written all the same", patched, replaceWhole("HashiCorp", unsigned), 1, "soft", "Terraform", "metadata[0].annotations"),
		Entry("Terraform that ignores the options and not annotations", patched, stripAnnotations("HashiCorp", unsigned), 2, "soft", "Restored the operator's annotations", "Terraform"),
	)

	It("lets kubectl replace declare the operator's options", func() {
		kubectlReplace("soft")("pv")
		profile := nfsProfile("fast", reportOnly, "nocto")
		pass()
		for range 3 {
			kubectlReplace("soft")("pv")
			pass()
		}
		for range 3 {
			kubectlReplace("soft", "nocto")("pv")
			pass()
		}
		Expect(writes).To(Equal(1))
		By("keeping them when the profile is deleted")
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		pass()
		Expect(getVolume("pv").Spec.MountOptions).To(Equal([]string{"soft", "nocto"}))
	})

	It("manages a volume again after the command in the message", func() {
		replaceWhole("curl", unsigned)("pv")
		nfsProfile("fast", reportOnly, "nocto")
		pass()
		replaceWhole("curl", unsigned)("pv")
		pass()
		_, command, found := strings.Cut(emitted(), "run: kubectl ")
		Expect(found).To(BeTrue())
		script := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl") + " --kubeconfig " + kubeconfig() + " " + strings.SplitN(command, "\n", 2)[0]
		output, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		Eventually(func() []string { pass(); return getVolume("pv").Spec.MountOptions }).Should(Equal([]string{"soft", "nocto"}))
		Expect(getVolume("pv").Annotations).To(HaveKeyWithValue(v1alpha1.OriginalMountOptionsAnnotation, `["soft"]`))
	})

	It("is restored from the annotations, and repaired", func() {
		newVolume("pv").Options("soft").Create()
		nfsProfile("fast", reportOnly, "nocto")
		pass()
		uid := getVolume("pv").UID
		Expect(readLedger().EntryOf(uid)).NotTo(BeNil())
		page := &corev1.ConfigMap{}
		page.Namespace, page.Name = v1alpha1.ManagerNamespace, v1alpha1.VolumesConfigMapPrefix+"0"
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(page), page)).To(Succeed())
		page.Data[string(uid)] = "gone"
		Expect(k8s.Update(ctx, page)).To(Succeed())
		pass()
		want := ledger.Lists{Original: []string{"soft"}, Applied: []string{"soft", "nocto"}}
		Expect(readLedger().EntryOf(uid).IsSettled(want, []string{"fast"})).To(BeTrue())
		Expect(k8s.Delete(ctx, page)).To(Succeed())
		pass()
		Expect(readLedger().EntryOf(uid).IsSettled(want, []string{"fast"})).To(BeTrue())
		Expect(writes).To(Equal(1))

		By("clearing the record of a deleted volume")
		deleteNow(getVolume("pv"))
		pass()
		Expect(readLedger().EntryOf(uid)).To(BeNil())
	})
})
