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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
)

var _ = Describe("PersistentVolumes", func() {
	var recorder *events.FakeRecorder

	BeforeEach(func() { recorder = events.NewFakeRecorder(16) })

	passWith := func(c client.Client) (ctrl.Result, error) {
		r := &volume.Reconciler{Client: c, Recorder: recorder}
		return r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
	}
	reconcile := func(name string) *corev1.PersistentVolume {
		GinkgoHelper()
		_, err := passWith(k8s)
		Expect(err).NotTo(HaveOccurred())
		return getVolume(name)
	}

	It("writes options and annotations in one write, owns them, and restores the original", func() {
		newVolume("pv").Options("hard").Create(client.FieldOwner("csi-provisioner"))
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nconnect=4", "nocto")

		pv := reconcile("pv")
		Expect(pv.Spec.MountOptions).To(Equal([]string{"hard", "nconnect=4", "nocto"}))
		Expect(pv.Annotations).To(And(HaveLen(4),
			HaveKeyWithValue(v1alpha1.OriginalMountOptionsAnnotation, `["hard"]`),
			HaveKeyWithValue(v1alpha1.AppliedMountOptionsAnnotation, `["hard","nconnect=4","nocto"]`),
			HaveKeyWithValue(v1alpha1.ProfilesAnnotation, "fast"),
			HaveKey(v1alpha1.MountOptionsStepAnnotation)))
		Expect(ownersOfOptions(pv)).To(ConsistOf(v1alpha1.VolumesFieldManager))
		Expect(reconcile("pv").ResourceVersion).To(Equal(pv.ResourceVersion), "a second pass must not write")

		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		pv = reconcile("pv")
		Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
		Expect(pv.Annotations).To(BeEmpty())
		Expect(ownersOfOptions(pv)).To(ConsistOf(v1alpha1.VolumesFieldManager), "the operator must keep the ownership of the restored options")
	})

	It("removes the field if the original was empty", func() {
		newVolume("pv").Create()
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		Expect(reconcile("pv").Spec.MountOptions).To(Equal([]string{"nocto"}))
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		pv := reconcile("pv")
		Expect(pv.Spec.MountOptions).To(BeNil())
		Expect(ownersOfOptions(pv)).To(BeEmpty())
	})

	It("keeps the options with Retain, and removes the annotations", func() {
		newVolume("pv").Options("hard").Create()
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		reconcile("pv")
		profile.Spec.DeletionPolicy = v1alpha1.DeletionRetain
		Expect(k8s.Update(ctx, profile)).To(Succeed())
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		pv := reconcile("pv")
		Expect(pv.Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
		Expect(pv.Annotations).To(BeEmpty())
	})

	It("skips a volume after the first time that another user reverts its options", func() {
		newVolume("pv").Options("hard").Create()
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		pv := reconcile("pv")

		pv.Spec.MountOptions = []string{"hard"}
		Expect(k8s.Update(ctx, pv, client.FieldOwner("kubectl-edit"))).To(Succeed())
		left := reconcile("pv")
		Expect(left.ResourceVersion).To(Equal(pv.ResourceVersion))
		Expect(recorder.Events).To(Receive(HavePrefix("Normal VolumeOptionsMerged")))
		Expect(recorder.Events).To(Receive(HavePrefix("Warning VolumeConflict")))

		By("managing it again once it has the operator's options")
		left.Spec.MountOptions = []string{"hard", "nocto"}
		Expect(k8s.Update(ctx, left, client.FieldOwner("kubectl-edit"))).To(Succeed())
		profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"actimeo=30"}
		Expect(k8s.Update(ctx, profile)).To(Succeed())
		// A batch is identified by the second in which it started.
		Eventually(func() []string { return reconcile("pv").Spec.MountOptions }).Should(Equal([]string{"hard", "actimeo=30"}))

		By("releasing a changed volume when the profile is deleted")
		pv = getVolume("pv")
		pv.Spec.MountOptions = []string{"soft"}
		Expect(k8s.Update(ctx, pv, client.FieldOwner("kubectl-edit"))).To(Succeed())
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		pv = reconcile("pv")
		Expect(pv.Spec.MountOptions).To(Equal([]string{"soft"}))
		Expect(pv.Annotations).To(BeEmpty())
	})

	It("does not fight kubectl apply", func() {
		nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		By("applying a manifest with mountOptions")
		kubectlApply(newVolume("declared").Options("hard").volume)
		declared := getVolume("declared")
		Expect(reconcile("declared").ResourceVersion).To(Equal(declared.ResourceVersion))
		Expect(recorder.Events).To(Receive(HavePrefix("Warning VolumeDeclaredElsewhere")))

		By("applying a manifest without mountOptions again after the operator's write")
		kubectlApply(newVolume("free").volume)
		Expect(reconcile("free").Spec.MountOptions).To(Equal([]string{"nocto"}))
		kubectlApply(newVolume("free").Label("tier", "gold").volume)
		pv := getVolume("free")
		Expect(pv.Labels).To(HaveKeyWithValue("tier", "gold"))
		Expect(pv.Spec.MountOptions).To(Equal([]string{"nocto"}))
		Expect(reconcile("free").ResourceVersion).To(Equal(pv.ResourceVersion))
	})

	It("does not fight Argo CD's forced server-side apply", func() {
		argoApply("pv", "hard")
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		before := getVolume("pv")
		Expect(reconcile("pv").ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(recorder.Events).To(Receive(And(HavePrefix("Warning VolumeDeclaredElsewhere"), ContainSubstring("jsonPointers: [/spec/mountOptions]"))))

		By("writing with gitOpsOwned: Patch")
		profile.Spec.Volumes[0].GitOpsOwned = v1alpha1.GitOpsPatch
		Expect(k8s.Update(ctx, profile)).To(Succeed())
		Expect(reconcile("pv").Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
		Expect(recorder.Events).To(Receive(HavePrefix("Normal VolumeOptionsMerged")))

		By("skipping it after the first time that Argo CD reverts it")
		argoApply("pv", "hard")
		before = getVolume("pv")
		Expect(before.Spec.MountOptions).To(Equal([]string{"hard"}))
		Expect(reconcile("pv").ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(recorder.Events).To(Receive(HavePrefix("Warning VolumeConflict")))
	})

	It("recognizes another apply manager by the managed fields only", func() {
		object := &unstructured.Unstructured{Object: toMap(newVolume("pv").Options("hard").volume)}
		Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("somebody"))).To(Succeed())
		nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		before := getVolume("pv")
		Expect(reconcile("pv").ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(recorder.Events).To(Receive(ContainSubstring(`apply manager "somebody"`)))
	})

	It("does not overwrite a volume that changed since it was read", func() {
		newVolume("pv").Options("hard").Create()
		nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		late := interceptor.NewClient(k8s, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				changed := getVolume(o.GetName())
				changed.Spec.MountOptions = []string{"soft"}
				if err := c.Update(ctx, changed); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
		result, err := passWith(late)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		Expect(getVolume("pv").Spec.MountOptions).To(Equal([]string{"soft"}))
		Expect(recorder.Events).NotTo(Receive())
	})

	It("does not recreate a volume that was deleted since it was read", func() {
		newVolume("pv").Create()
		nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		late := interceptor.NewClient(k8s, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				deleteNow(getVolume(o.GetName()))
				return c.Patch(ctx, o, p, opts...)
			},
		})
		_, err := passWith(late)
		Expect(err).NotTo(HaveOccurred())
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: "pv"}, &corev1.PersistentVolume{}))).To(BeTrue())
	})

	It("reaches the same state whenever the manager dies", func() {
		for writes := 0; ; writes++ {
			newVolume("pv").Options("hard").Create()
			profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
			first := newMortal(writes)
			_, err := passWith(first.Client)
			if first.Died() {
				Expect(err).To(MatchError(ContainSubstring(errDead.Error())))
			}
			pv := reconcile("pv")
			Expect(pv.Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
			Expect(pv.Annotations).To(HaveKeyWithValue(v1alpha1.OriginalMountOptionsAnnotation, `["hard"]`))

			Expect(k8s.Delete(ctx, profile)).To(Succeed())
			second := newMortal(writes)
			_, err = passWith(second.Client)
			if second.Died() {
				Expect(err).To(MatchError(ContainSubstring(errDead.Error())))
			}
			pv = reconcile("pv")
			Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
			Expect(pv.Annotations).To(BeEmpty())
			deleteNow(pv)
			deleteNow(profile)
			if !first.Died() && !second.Died() {
				break
			}
		}
	})

	It("uses the labels of the bound claim", func() {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", Labels: map[string]string{"role": "tools"}}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		claim.Spec.Resources.Requests = newVolume("pv").volume.Spec.Capacity
		Expect(k8s.Create(ctx, claim)).To(Succeed())
		pv := newVolume("pv").Claim("default", "data").Create()
		profile := newProfile("fast").Volumes(v1alpha1.VolumeRule{Name: "tools", MountOptions: []v1alpha1.MountOption{"nocto"},
			Selector: v1alpha1.VolumeSelector{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}}})
		profile.profile.Finalizers = []string{v1alpha1.Finalizer}
		profile.Create()
		Expect(reconcile("pv").Spec.MountOptions).To(BeEmpty(), "labels of an unbound claim must not count")

		pv.Spec.ClaimRef.UID = claim.UID
		Expect(k8s.Update(ctx, pv)).To(Succeed())
		Expect(reconcile("pv").Spec.MountOptions).To(Equal([]string{"nocto"}))

		claim.Labels["role"] = "scratch"
		Expect(k8s.Update(ctx, claim)).To(Succeed())
		Expect(reconcile("pv").Spec.MountOptions).To(BeEmpty())
	})
})

// nfsProfile creates a profile with the finalizer and one rule for all NFS volumes. The finalizer keeps the profile during its deletion,
// because no controller removes it here.
func nfsProfile(name string, gitOps v1alpha1.GitOpsPolicy, options ...string) *v1alpha1.StorageClientProfile {
	GinkgoHelper()
	rule := v1alpha1.VolumeRule{Name: "nfs", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, GitOpsOwned: gitOps}
	for _, o := range options {
		rule.MountOptions = append(rule.MountOptions, v1alpha1.MountOption(o))
	}
	b := newProfile(name).Volumes(rule)
	b.profile.Finalizers = []string{v1alpha1.Finalizer}
	return b.Create()
}

func getVolume(name string) *corev1.PersistentVolume {
	GinkgoHelper()
	pv := &corev1.PersistentVolume{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, pv)).To(Succeed())
	return pv
}

// ownersOfOptions returns the field managers that own the volume's mount options.
func ownersOfOptions(pv *corev1.PersistentVolume) []string {
	var owners []string
	for _, entry := range pv.ManagedFields {
		if strings.Contains(entry.FieldsV1.GetRawString(), `"f:mountOptions"`) {
			owners = append(owners, entry.Manager)
		}
	}
	return owners
}

// argoApply applies a volume as Argo CD's server-side apply does: forced, with its tracking annotation.
func argoApply(name string, options ...string) {
	GinkgoHelper()
	b := newVolume(name).Options(options...).Annotate("argocd.argoproj.io/tracking-id", "app:/PersistentVolume:/"+name)
	object := &unstructured.Unstructured{Object: toMap(b.volume)}
	Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("argocd-controller"), client.ForceOwnership)).To(Succeed())
}

// kubectlApply runs the real "kubectl apply", client-side.
func kubectlApply(pv corev1.PersistentVolume) {
	GinkgoHelper()
	manifest, err := yaml.Marshal(toMap(pv))
	Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "--kubeconfig", kubeconfig(), "apply", "-f", "-")
	command.Stdin = strings.NewReader(string(manifest))
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

func toMap(pv corev1.PersistentVolume) map[string]any {
	GinkgoHelper()
	pv.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolume"))
	data, err := yaml.Marshal(pv)
	Expect(err).NotTo(HaveOccurred())
	object := map[string]any{}
	Expect(yaml.Unmarshal(data, &object)).To(Succeed())
	delete(object, "status")
	return object
}

// kubeconfig writes a kubeconfig of the suite and returns its path. The file exists until the spec ends.
func kubeconfig() string {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: restConfig.Host, CertificateAuthorityData: restConfig.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: restConfig.CertData, ClientKeyData: restConfig.KeyData}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}
