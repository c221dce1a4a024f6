package integration

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/controllers/webhook"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/test/patience"
)

var _ = Describe("The webhooks", func() {
	Context("that are up", func() {
		BeforeEach(func() {
			serveWebhooks(installWebhooks())
			Eventually(func() error { return k8s.Create(ctx, badProfile(), client.DryRunAll) }).Should(MatchError(ContainSubstring("must be 1 to 16")), "the webhooks must respond")
		})

		It("reject a profile that can never work, and name field, value and remedy", func() {
			for _, wrong := range []struct {
				profile *profileBuilder
				texts   []string
			}{
				{newProfile("bad").Volumes(nfsRule("nconnect=17")), []string{"spec.volumes[0].mountOptions[0]", `"nconnect=17"`, "must be 1 to 16"}},
				{newProfile("bad").Volumes(nfsRule("nconect=4")), []string{"spec.volumes[0].mountOptions[0]", `"nconect=4"`, "Did you mean nconnect?"}},
				{newProfile("bad").Sysctl("kernel.core_pattern", "core"), []string{"spec.node.sysctls[kernel.core_pattern]", `"core"`, "--allow-parameter"}},
				{newProfile("bad").KernelArgument("ihash_entries=16M"), []string{"spec.node.kernelArguments[0]", `"16M"`, "write 16777216"}},
			} {
				err := k8s.Create(ctx, wrong.profile.Build())
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
				for _, text := range wrong.texts {
					Expect(err).To(MatchError(ContainSubstring(text)))
				}
			}

			By("rejecting a change of a stored profile")
			profile := nfsProfile("good", v1alpha1.GitOpsReportOnly, "nconnect=4")
			profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nconnect=17"}
			Expect(apierrors.IsInvalid(k8s.Update(ctx, profile))).To(BeTrue())
		})

		It("warn about valid but probably unintended settings", func() {
			warned := &warnings{}
			withWarnings := rest.CopyConfig(restConfig)
			withWarnings.WarningHandlerWithContext = warned
			c, err := client.New(withWarnings, client.Options{Scheme: scheme})
			Expect(err).NotTo(HaveOccurred())
			profile := newProfile("loose").Volumes(nfsRule("nocto", "actimeo=600", "rsize=1048576", "wsize=262144")).Build()
			Expect(c.Create(ctx, profile)).To(Succeed())
			Expect(warned.texts).To(ConsistOf(
				HavePrefix(`spec.volumes[0].mountOptions[0]: "nocto": clients may see old data for a long time`),
				HavePrefix(`spec.volumes[0].mountOptions[1]: "actimeo=600": clients may see old data for a long time`),
				HavePrefix("rsize-wsize: spec.volumes[0].mountOptions: rsize=1048576 and wsize=262144 differ"),
			))
		})

		It("merge proven options into a new volume at once, so that the reconciler writes nothing", func() {
			nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nconnect=4", "nocto")
			prove(&newVolume("pv").Options("hard").volume)
			var created *corev1.PersistentVolume
			Eventually(func(g Gomega) { // the webhook reads a cache, which may not contain the profile yet
				created = newVolume("pv").Options("hard").volume.DeepCopy()
				g.Expect(k8s.Create(ctx, created, client.DryRunAll)).To(Succeed())
				g.Expect(created.Spec.MountOptions).To(Equal([]string{"hard", "nconnect=4", "nocto"}))
			}).Should(Succeed())
			newVolume("pv").Options("hard").Create(client.FieldOwner("csi-provisioner"))
			pv := getVolume("pv")
			Expect(pv.Spec.MountOptions).To(Equal([]string{"hard", "nconnect=4", "nocto"}))
			Expect(pv.Annotations).To(And(
				HaveLen(4),
				HaveKeyWithValue(v1alpha1.OriginalMountOptionsAnnotation, `["hard"]`),
				HaveKeyWithValue(v1alpha1.AppliedMountOptionsAnnotation, `["hard","nconnect=4","nocto"]`),
				HaveKeyWithValue(v1alpha1.ProfilesAnnotation, "fast"),
				HaveKeyWithValue(v1alpha1.MountOptionsStepAnnotation, ContainSubstring(`"rules":["fast/nfs"],"created":true`)),
			))
			Expect(reconcileVolume("pv").ResourceVersion).To(Equal(pv.ResourceVersion))

			By("skipping volumes that are managed by GitOps, as the reconciler does")
			argoApply("declared", "hard")
			Expect(getVolume("declared").Spec.MountOptions).To(Equal([]string{"hard"}))
			object := &unstructured.Unstructured{Object: toMap(newVolume("applied").Options("hard").volume)}
			Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("somebody"))).To(Succeed())
			Expect(getVolume("applied").Spec.MountOptions).To(Equal([]string{"hard"}))

			By("keeping the options with a manifest without options")
			kubectlApply(newVolume("free").volume)
			Expect(getVolume("free").Spec.MountOptions).To(Equal([]string{"nconnect=4", "nocto"}))
			kubectlApply(newVolume("free").Label("tier", "gold").volume)
			free := getVolume("free")
			Expect(free.Labels).To(HaveKeyWithValue("tier", "gold"))
			Expect(reconcileVolume("free").ResourceVersion).To(Equal(free.ResourceVersion))
		})

		It("restore such a volume to its creator's options", func() {
			profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
			prove(&newVolume("pv").Options("hard").volume)
			Eventually(func() []string {
				pv := newVolume("pv").Options("hard").volume.DeepCopy()
				Expect(k8s.Create(ctx, pv, client.DryRunAll)).To(Succeed())
				return pv.Spec.MountOptions
			}).Should(ContainElement("nocto"))
			newVolume("pv").Options("hard").Create()
			Expect(k8s.Delete(ctx, profile)).To(Succeed())
			pv := reconcileVolume("pv")
			Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
			Expect(pv.Annotations).To(BeEmpty())
		})
	})

	Context("that are down", func() {
		It("let users pause and delete a profile and remove its finalizer, but not change its declarations", func() {
			profile := badProfile()
			profile.Finalizers = []string{v1alpha1.Finalizer}
			Expect(k8s.Create(ctx, profile)).To(Succeed())
			installWebhooks()
			Eventually(func() error { return k8s.Create(ctx, newProfile("other").Build(), client.DryRunAll) }).Should(MatchError(ContainSubstring("failed calling webhook")))

			patch := func(text string) error {
				return k8s.Patch(ctx, profile, client.RawPatch(types.MergePatchType, []byte(text)))
			}
			Expect(patch(`{"spec":{"priority":7}}`)).To(MatchError(ContainSubstring("failed calling webhook")))
			Expect(patch(`{"metadata":{"annotations":{"` + v1alpha1.PausedAnnotation + `":"true"}}}`)).To(Succeed())
			profile.Status.ObservedGeneration = 1
			Expect(k8s.Status().Update(ctx, profile)).To(Succeed())
			Expect(k8s.Delete(ctx, profile)).To(Succeed())
			Expect(patch(`{"spec":{"deletionPolicy":"Retain"}}`)).To(Succeed(), "Retain must allow the deletion without a restore")
			Expect(patch(`{"metadata":{"finalizers":null}}`)).To(Succeed())
			Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(profile), profile))).To(BeTrue())
		})

		It("let a volume be created unchanged, for the reconciler to update", func() {
			nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
			installWebhooks()
			newVolume("pv").Options("hard").Create()
			pv := getVolume("pv")
			Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
			Expect(pv.Annotations).To(BeEmpty())
			Expect(reconcileVolume("pv").Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
		})

		It("delay a volume for two seconds if there is no response, and others not at all", func() {
			site := installWebhooks()
			var requests atomic.Int32
			hang(site.LocalServingHost, site.LocalServingPort, &requests)
			Eventually(func() int32 {
				Expect(k8s.Create(ctx, newVolume("trial").volume.DeepCopy(), client.DryRunAll)).To(Succeed())
				return requests.Load()
			}).Should(BeNumerically(">", 0), "the API server must call the webhooks")

			// The API server waits for this time, and then admits the volume.
			Expect(site.MutatingWebhooks[0].Webhooks[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(2)))
			before := requests.Load()
			newVolume("pv").Options("hard").Create()
			Expect(requests.Load()).To(BeNumerically(">", before))
			Expect(getVolume("pv").Spec.MountOptions).To(Equal([]string{"hard"}))

			for value, ignores := range builders.StopValues {
				sent := requests.Load()
				pv := newVolume("ignored").Annotate(v1alpha1.IgnoreAnnotation, value).volume.DeepCopy()
				Expect(k8s.Create(ctx, pv, client.DryRunAll)).To(Succeed())
				if ignores {
					Expect(requests.Load()).To(Equal(sent), "%q", value)
				} else {
					Expect(requests.Load()).To(BeNumerically(">", sent), "%q", value)
				}
			}
			before = requests.Load()
			hostPath := newVolume("host-path").volume.DeepCopy()
			hostPath.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}
			Expect(k8s.Create(ctx, hostPath)).To(Succeed())
			pv := getVolume("pv")
			pv.Labels = map[string]string{"tier": "gold"}
			Expect(k8s.Update(ctx, pv)).To(Succeed())
			Expect(requests.Load()).To(Equal(before), "the API server must not call the webhook for volumes that it would skip")
		})
	})

	It("are served with a certificate that the manager makes, within its own rights", func() {
		installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml",
			"webhook/secret.yaml", "webhook/validating_webhook.yaml", "webhook/mutating_webhook.yaml")
		asManager, port := accessOfManager(), freePort()
		startWebhooks(asManager, &webhook.Webhooks{Host: "127.0.0.1", Port: port, KeepCertificates: true})

		By("filling the Secret and both configurations")
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: webhook.Name}
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, secret)).To(Succeed())
			g.Expect(secret.Data).To(And(HaveKey("tls.crt"), HaveKey("tls.key")))
		}).WithTimeout(patience.Of(30 * time.Second)).Should(Succeed())
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKey{Name: webhook.Name}, validating)).To(Succeed())
			g.Expect(k8s.Get(ctx, client.ObjectKey{Name: webhook.Name}, mutating)).To(Succeed())
			g.Expect(validating.Webhooks[0].ClientConfig.CABundle).To(Equal(secret.Data["ca.crt"]))
			g.Expect(mutating.Webhooks[0].ClientConfig.CABundle).To(Equal(secret.Data["ca.crt"]))
		}).Should(Succeed())
		Expect(validating.Webhooks[0].ClientConfig.Service.Path).To(HaveValue(Equal(webhook.ProfilePath)))
		Expect(mutating.Webhooks[0].ClientConfig.Service.Path).To(HaveValue(Equal(webhook.VolumePath)))

		By("serving the certificate to clients that trust the authority of the configurations")
		served := servedBy(port, validating.Webhooks[0].ClientConfig.CABundle)
		Eventually(served).Should(Equal(secret.Data["tls.crt"]))

		By("serving a new certificate as soon as the manager has created it")
		first := secret.Data["tls.crt"]
		delete(secret.Data, "tls.crt")
		Expect(k8s.Update(ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, secret)).To(Succeed())
			g.Expect(secret.Data["tls.crt"]).NotTo(Or(BeEmpty(), Equal(first)))
		}).WithTimeout(patience.Of(30 * time.Second)).Should(Succeed())
		Eventually(served).Should(Equal(secret.Data["tls.crt"]))

		By("reading no other Secret")
		c, err := client.New(asManager, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(apierrors.IsForbidden(c.List(ctx, &corev1.SecretList{}, client.InNamespace(v1alpha1.ManagerNamespace)))).To(BeTrue())
	})
})

var _ = DescribeTable("The webhooks with a certificate that the manager does not issue: config/components/",
	func(component string, files ...string) {
		objects := renderComponent(component, files...)
		DeferCleanup(forgetWebhooks)
		Expect(managerOf(objects).Spec.Template.Spec.Containers[0].Args).To(ContainElement("--webhook-certificates=Given"))
		Expect(names(objects, "Secret")).To(BeEmpty(), "the manifest must not overwrite the Secret")
		for _, rule := range managerRules(objects) {
			Expect(rule.Resources).NotTo(ContainElement(HaveSuffix("webhookconfigurations")), "%v", rule)
			if slices.Contains(rule.Resources, "secrets") {
				Expect(rule.Verbs).To(ConsistOf("list", "watch"))
			}
		}
		for _, object := range objects {
			if strings.HasSuffix(object.GetKind(), "Role") || strings.HasSuffix(object.GetKind(), "RoleBinding") ||
				strings.HasSuffix(object.GetKind(), "WebhookConfiguration") || object.GetName() == v1alpha1.ManagerDeployment && object.GetKind() == "ServiceAccount" {
				createTemporarily(object)
			}
		}
		authority, first := newCertificate(nil)
		_, second := newCertificate(authority)
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: webhook.Name}, Type: corev1.SecretTypeTLS, Data: first,
		}
		Expect(k8s.Create(ctx, secret, client.FieldOwner("cert-manager"))).To(Succeed())
		port := freePort()
		startWebhooks(accessOfManager(), &webhook.Webhooks{Host: "127.0.0.1", Port: port})
		served := servedBy(port, authority)
		Eventually(served).Should(Equal(first["tls.crt"]))

		By("serving a new certificate as soon as it exists")
		secret.Data = second
		Expect(k8s.Update(ctx, secret, client.FieldOwner("cert-manager"))).To(Succeed())
		Eventually(served).Should(Equal(second["tls.crt"]))

		By("not writing although the certificate expires soon, even with all rights")
		everything := freePort()
		startWebhooks(restConfig, &webhook.Webhooks{Host: "127.0.0.1", Port: everything})
		Eventually(servedBy(everything, authority)).Should(Equal(second["tls.crt"]))
		Consistently(servedBy(everything, authority)).WithTimeout(time.Second).Should(Equal(second["tls.crt"]))
		for _, object := range []client.Object{
			secret, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.Name}},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.Name}},
		} {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			for _, entry := range object.GetManagedFields() {
				Expect(entry.Manager).NotTo(Equal(v1alpha1.ManagerFieldManager), "%T", object)
			}
			manager, err := client.New(accessOfManager(), client.Options{Scheme: scheme})
			Expect(err).NotTo(HaveOccurred())
			touch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
			Expect(apierrors.IsForbidden(manager.Patch(ctx, object, touch))).To(BeTrue(), "%T", object)
		}
	},
	Entry("cert-manager", "cert-manager"),
	Entry("webhook-ca", "webhook-ca", "authority.example.yaml"),
)

// accessOfManager returns the access of the manager's service account.
func accessOfManager() *rest.Config {
	access := rest.CopyConfig(restConfig)
	access.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + v1alpha1.ManagerNamespace + ":" + v1alpha1.ManagerDeployment,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	return access
}

func freePort() int {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// servedBy requests the webhooks' certificate from a port, and trusts this authority.
func servedBy(port int, authority []byte) func() ([]byte, error) {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(authority)).To(BeTrue())
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: webhook.Name + "." + v1alpha1.ManagerNamespace + ".svc"}}
	return func() ([]byte, error) {
		bounded, cancel := context.WithTimeout(ctx, patience.Of(2*time.Second))
		defer cancel()
		connection, err := dialer.DialContext(bounded, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, err
		}
		leaf := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), connection.Close()
	}
}

var signer *rsa.PrivateKey

// newCertificate returns a certificate for the webhooks. It creates an authority if the argument is nil.
func newCertificate(authority []byte) ([]byte, map[string][]byte) {
	GinkgoHelper()
	maker := &rotator.CertRotator{
		CAName: "somebody", CAOrganization: "somebody", DNSName: webhook.Name + "." + v1alpha1.ManagerNamespace + ".svc",
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	pair := &rotator.KeyPairArtifacts{CertPEM: authority, Key: signer}
	if authority == nil {
		var err error
		pair, err = maker.CreateCACert(from, until)
		Expect(err).NotTo(HaveOccurred())
		signer = pair.Key
	} else {
		block, _ := pem.Decode(authority)
		var err error
		pair.Cert, err = x509.ParseCertificate(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
	}
	certificate, key, err := maker.CreateCertPEM(pair, from, until)
	Expect(err).NotTo(HaveOccurred())
	return pair.CertPEM, map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
}

func nfsRule(options ...string) v1alpha1.VolumeRule {
	rule := v1alpha1.VolumeRule{Name: "nfs", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}
	for _, o := range options {
		rule.MountOptions = append(rule.MountOptions, v1alpha1.MountOption(o))
	}
	return rule
}

func badProfile() *v1alpha1.StorageClientProfile {
	return newProfile("bad").Volumes(nfsRule("nconnect=17")).Build()
}

func reconcileVolume(name string) *corev1.PersistentVolume {
	GinkgoHelper()
	r := &volume.Reconciler{Client: k8s, Recorder: events.NewFakeRecorder(16)}
	_, err := r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
	Expect(err).NotTo(HaveOccurred())
	return getVolume(name)
}

// installWebhooks registers the webhooks of config/webhook until the spec ends, at an unused address of this machine.
func installWebhooks() *envtest.WebhookInstallOptions {
	GinkgoHelper()
	site := &envtest.WebhookInstallOptions{Paths: []string{filepath.Join(configDir, "webhook")}}
	DeferCleanup(func() {
		for _, configuration := range site.ValidatingWebhooks {
			Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), configuration))).To(Succeed())
		}
		for _, configuration := range site.MutatingWebhooks {
			Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), configuration))).To(Succeed())
		}
		forgetWebhooks()
		Expect(site.Cleanup()).To(Succeed())
	})
	Expect(site.Install(restConfig)).To(Succeed())
	Expect(site.ValidatingWebhooks).To(HaveLen(1))
	Expect(site.MutatingWebhooks).To(HaveLen(1))
	return site
}

// forgetWebhooks waits until the API server no longer calls the webhooks.
func forgetWebhooks() {
	GinkgoHelper()
	Eventually(func() error { return k8s.Create(context.Background(), badProfile(), client.DryRunAll) }).Should(Succeed())
}

// serveWebhooks serves the webhooks of installWebhooks with their expected certificate, until the spec ends.
func serveWebhooks(site *envtest.WebhookInstallOptions) {
	GinkgoHelper()
	serveCertificate(site)
	startWebhooks(restConfig, &webhook.Webhooks{Host: site.LocalServingHost, Port: site.LocalServingPort})
}

// serveCertificate stores the certificate that the API server expects, until the spec ends.
func serveCertificate(site *envtest.WebhookInstallOptions) {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: webhook.Name}, Data: map[string][]byte{},
	}
	for _, file := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		text, err := os.ReadFile(filepath.Join(site.LocalServingCertDir, file))
		Expect(err).NotTo(HaveOccurred())
		secret.Data[file] = text
	}
	Expect(k8s.Create(ctx, secret)).To(Succeed())
	DeferCleanup(func() { Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), secret))).To(Succeed()) })
}

// startWebhooks runs a manager with only the webhooks, until the spec ends.
func startWebhooks(access *rest.Config, webhooks *webhook.Webhooks) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(access, ctrl.Options{
		Scheme: scheme, Logger: logger, HealthProbeBindAddress: "0", Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: webhook.CacheByObject(v1alpha1.ManagerNamespace)},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(webhooks.SetupWithManager(mgr)).To(Succeed())
	life, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(life) }()
	DeferCleanup(func() {
		end()
		Eventually(done).WithTimeout(patience.Of(time.Minute)).Should(Receive(BeNil()))
	})
}

// hang accepts connections and never responds.
func hang(host string, port int, accepted *atomic.Int32) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			defer connection.Close() //nolint:gocritic // the connections are closed with the listener
			accepted.Add(1)
		}
	}()
	DeferCleanup(func() {
		Expect(listener.Close()).To(Succeed())
		<-done
	})
}

// installTemporarily creates the objects of manifests until the spec ends.
func installTemporarily(paths ...string) {
	GinkgoHelper()
	DeferCleanup(forgetWebhooks)
	for _, path := range paths {
		for _, object := range readManifests(filepath.Join(configDir, path)) {
			createTemporarily(object)
		}
	}
}

// createTemporarily creates an object until the spec ends, unless the suite has it already.
func createTemporarily(object *unstructured.Unstructured) {
	GinkgoHelper()
	err := k8s.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred(), "create %s %s", object.GetKind(), object.GetName())
	DeferCleanup(func() {
		Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), object))).To(Succeed())
	})
}

// warnings collects the warnings of the API server.
type warnings struct{ texts []string }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == 299 {
		w.texts = append(w.texts, text)
	}
}
