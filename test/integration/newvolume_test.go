package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/controllers/webhook"
)

// Three volumes are created as for the claims of a StatefulSet. Two replicas of the manager serve the webhook.
var _ = Describe("New PersistentVolumes with unproven options", func() {
	names, option := []string{"pv0", "pv1", "pv2"}, ""
	var warned *warnings
	var c client.Client

	// provisioned returns a volume as a provisioner creates it for a claim.
	provisioned := func(name string) *corev1.PersistentVolume {
		b := newVolume(name).Options("hard").Claim("default", name)
		b.volume.Spec.ClaimRef.UID = types.UID("claim-" + name)
		return b.volume.DeepCopy()
	}
	create := func(names ...string) {
		GinkgoHelper()
		errs := make([]error, len(names))
		var wait sync.WaitGroup
		for i, name := range names {
			wait.Go(func() { errs[i] = c.Create(ctx, provisioned(name)) })
		}
		wait.Wait()
		Expect(errs).To(HaveEach(BeNil()))
	}
	carrying := func() []string {
		GinkgoHelper()
		var all corev1.PersistentVolumeList
		Expect(k8s.List(ctx, &all)).To(Succeed())
		var out []string
		for i := range all.Items {
			if slices.Contains(all.Items[i].Spec.MountOptions, option) {
				out = append(out, all.Items[i].Name)
			}
		}
		return out
	}
	reserved := func() []string {
		GinkgoHelper()
		var all corev1.ConfigMapList
		Expect(k8s.List(ctx, &all, client.InNamespace(v1alpha1.ManagerNamespace))).To(Succeed())
		var out []string
		for _, r := range ledger.ReservationsIn(all.Items) {
			out = append(out, r.Data["volume"]+" "+r.Data["claim"])
		}
		return out
	}
	var reconciler *volume.Reconciler
	visit := func() {
		GinkgoHelper()
		_, err := reconciler.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		fakeClock.Step(2 * time.Second)
	}
	status := func() string {
		GinkgoHelper()
		_, err := newKeeper(k8s).profile("fast")
		Expect(err).NotTo(HaveOccurred())
		return meta.FindStatusCondition(findProfile("fast").Status.Conditions, "Ready").Message
	}
	// fail has the kubelet of node a report a failed mount of a volume.
	fail := func(name, cause string) *corev1.Pod {
		GinkgoHelper()
		pod := newPod("default", "pod-"+name).On("a").Claim(name).With(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }).Create()
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + name}, Reason: "FailedMount", Type: corev1.EventTypeWarning,
			Message:        fmt.Sprintf("MountVolume.SetUp failed for volume %q : mount failed: exit status 32 Output: mount.nfs: %s", name, cause),
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: pod.Name, UID: pod.UID},
			Source:         corev1.EventSource{Component: "kubelet", Host: "a"},
			FirstTimestamp: metav1.NewTime(fakeClock.Now()), LastTimestamp: metav1.NewTime(fakeClock.Now()),
		}
		Expect(k8s.Create(ctx, event)).To(Succeed())
		DeferCleanup(func() { deleteNow(event) })
		return pod
	}
	// mount has a Pod of a claim start on node a, whose agent reports the mount.
	mount := func(name string) {
		GinkgoHelper()
		reportMount(newPod("default", "pod-"+name).On("a").Claim(name).Started().Create(), name, getVolume(name).Spec.MountOptions...)
	}

	declare := func() {
		GinkgoHelper()
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, option)
		profile.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{
			Probe: v1alpha1.ProbeNever, SoakSeconds: ptr.To[int32](60), MaxPerStep: ptr.To(intstr.FromString("100%")),
		}
		Expect(k8s.Update(ctx, profile)).To(Succeed())
		Eventually(func(g Gomega) { // until both replicas have the profile in their caches
			for range 4 {
				warned.texts = nil
				g.Expect(c.Create(ctx, provisioned("try"), client.DryRunAll)).To(Succeed())
				g.Expect(warned.texts).NotTo(BeEmpty())
			}
		}).Should(Succeed())
		warned.texts = nil
	}

	BeforeEach(func() {
		warned, option = &warnings{}, "nocto"
		access := rest.CopyConfig(restConfig)
		access.WarningHandlerWithContext = warned
		var err error
		c, err = client.New(access, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		reconciler = &volume.Reconciler{Client: k8s, APIReader: inFakeTime{k8s}, Recorder: events.NewFakeRecorder(64), Clock: fakeClock}
		newNode("a").Create()
		Expect(k8s.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
		site := installWebhooks()
		serveCertificate(site)
		ports := []int{freePort(), freePort()}
		for _, port := range ports {
			startWebhooks(restConfig, &webhook.Webhooks{Host: site.LocalServingHost, Port: port})
		}
		balance(net.JoinHostPort(site.LocalServingHost, strconv.Itoa(site.LocalServingPort)), site.LocalServingHost, ports)
		Eventually(func() error { return k8s.Create(ctx, badProfile(), client.DryRunAll) }).Should(MatchError(ContainSubstring("must be 1 to 16")), "the webhooks must respond")
	})

	It("are one canary and others that get the options after its mount", func() {
		declare()
		create(names...)
		canary := carrying()
		Expect(canary).To(HaveLen(1))
		Expect(reserved()).To(ConsistOf(canary[0] + " claim-" + canary[0]))
		Expect(warned.texts).To(HaveLen(2))
		Expect(warned.texts).To(HaveEach("created without mountOptions of StorageClientProfile fast: not proven yet; added after the first successful mount"))
		Expect(getVolume(canary[0]).Annotations).To(HaveKeyWithValue(v1alpha1.MountOptionsStepAnnotation, ContainSubstring(`"unproven":true,"created":true`)))
		for _, name := range names {
			if name != canary[0] {
				Expect(getVolume(name).Annotations).To(BeEmpty())
			}
		}
		visit()
		Expect(carrying()).To(Equal(canary))
		fakeClock.Step(time.Minute)
		visit()
		Expect(carrying()).To(Equal(canary))
		Expect(status()).To(And(ContainSubstring("2 volumes wait for a pod to mount "+canary[0]+" with its new options; no Pod uses it"),
			MatchRegexp("; then restart the Pods of pv[0-2]")))

		By("mounting the canary")
		mount(canary[0])
		visit()
		fakeClock.Step(time.Minute)
		visit()
		Expect(carrying()).To(Equal(names))
		Expect(reserved()).To(BeEmpty())

		By("creating the next volume with the options")
		warned.texts = nil
		Eventually(func(g Gomega) {
			tried := provisioned("next")
			g.Expect(c.Create(ctx, tried, client.DryRunAll)).To(Succeed())
			g.Expect(tried.Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
		}).Should(Succeed())
		create("next")
		Expect(getVolume("next").Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
		Expect(getVolume("next").Annotations[v1alpha1.MountOptionsStepAnnotation]).NotTo(ContainSubstring("unproven"))
	})

	DescribeTable("stay without options that the canary cannot be mounted with",
		func(bad, cause string) {
			option = bad
			declare()
			create(names...)
			canary := carrying()
			Expect(canary).To(HaveLen(1))
			visit()
			fail(canary[0], cause)
			fakeClock.Step(time.Minute)
			visit()
			Expect(carrying()).To(BeEmpty())
			Expect(getVolume(canary[0]).Spec.MountOptions).To(Equal([]string{"hard"}))
			visit()
			Expect(carrying()).To(BeEmpty())
			Expect(reserved()).To(BeEmpty())
			Eventually(func(g Gomega) { // until both replicas know
				for range 4 {
					warned.texts = nil
					g.Expect(c.Create(ctx, provisioned("next"), client.DryRunAll)).To(Succeed())
					g.Expect(warned.texts).To(ConsistOf(HavePrefix("mountOptions stay unchanged; the options of fast are stopped: PersistentVolume " + canary[0])))
				}
			}).Should(Succeed())
			create("next")
			Expect(getVolume("next").Spec.MountOptions).To(Equal([]string{"hard"}))
			Expect(reserved()).To(BeEmpty())
		},
		Entry("a wrong option", "nocto", "an incorrect mount option was specified"),
		Entry("a slow option", "nconnect=4", "Connection timed out"),
	)

	It("wait for an existing volume, which is the canary", func() {
		Expect(k8s.Create(ctx, provisioned("old"))).To(Succeed())
		declare()
		create(names...)
		Expect(carrying()).To(BeEmpty())
		Expect(reserved()).To(BeEmpty())
		Expect(warned.texts).To(HaveLen(3))
		visit()
		Expect(carrying()).To(HaveLen(1))
		canary := carrying()[0]
		fakeClock.Step(time.Minute)
		mount(canary)
		visit()
		visit()
		Expect(carrying()).To(ConsistOf("old", "pv0", "pv1", "pv2"))
	})

	It("are reserved again once the canary is deleted, or did not appear for two minutes", func() {
		declare()
		create("pv0")
		Expect(carrying()).To(Equal([]string{"pv0"}))
		visit()
		deleteNow(getVolume("pv0"))
		visit()
		Expect(reserved()).To(BeEmpty())

		By("reserving a volume that the API server then rejects")
		invalid := provisioned("pv1")
		invalid.Spec.Capacity = nil
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsInvalid(c.Create(ctx, invalid.DeepCopy()))).To(BeTrue())
			g.Expect(reserved()).To(ConsistOf("pv1 claim-pv1"))
		}).Should(Succeed())
		create("pv2")
		Expect(carrying()).To(BeEmpty())
		visit()
		Expect(carrying()).To(BeEmpty(), "the reserved volume may still appear")

		By("retrying its creation")
		Eventually(func(g Gomega) { // until both replicas know the reservation
			for range 4 {
				tried := provisioned("pv1")
				g.Expect(c.Create(ctx, tried, client.DryRunAll)).To(Succeed())
				g.Expect(tried.Spec.MountOptions).To(ContainElement("nocto"))
			}
		}).Should(Succeed())
		create("pv1")
		Expect(carrying()).To(Equal([]string{"pv1"}))
		visit()

		By("reserving one more, which never appears")
		deleteNow(getVolume("pv1"))
		deleteNow(getVolume("pv2"))
		visit()
		Expect(reserved()).To(BeEmpty())
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsInvalid(c.Create(ctx, invalid.DeepCopy()))).To(BeTrue())
			g.Expect(reserved()).To(ConsistOf("pv1 claim-pv1"))
		}).Should(Succeed())
		visit()
		Expect(reserved()).To(HaveLen(1))
		fakeClock.Step(3 * time.Minute)
		visit()
		Expect(reserved()).To(BeEmpty())
	})

	It("are not reserved in a dry run", func() {
		declare()
		tried := provisioned("pv0")
		Expect(c.Create(ctx, tried, client.DryRunAll)).To(Succeed())
		Expect(tried.Spec.MountOptions).To(Equal([]string{"hard"}))
		Expect(warned.texts).To(HaveLen(1))
		Expect(reserved()).To(BeEmpty())
	})
})

// prove records a pod's mount with the options that a volume would get.
func prove(pv *corev1.PersistentVolume) {
	GinkgoHelper()
	v, _, err := (&snapshot.Reader{Reader: k8s}).EvaluateNew(ctx, pv, true)
	Expect(err).NotTo(HaveOccurred())
	set, changes := judge.SetOf(judge.SourceOf(pv), v.Set, v.RuleSet, v.Rules), ledger.Changes{}
	set.Next(optionset.Event{Kind: optionset.Mounted, Blame: optionset.Blame{Volume: "first", Text: "n1 has mounted first"}})
	for key, value := range set.Encode() {
		changes[types.UID(key)] = ledger.KeepSet(value)
	}
	writes, _ := new(ledger.Reader).Read(nil).Apply(changes)
	Expect(writes).To(HaveLen(1))
	page := writes[0].Page
	page.Namespace = v1alpha1.ManagerNamespace
	Expect(k8s.Create(ctx, page)).To(Succeed())
}

// balance forwards the connections to an address to several ports in turn, until the spec ends.
func balance(address, host string, ports []int) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	var turn atomic.Int32
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			port := ports[int(turn.Add(1))%len(ports)]
			to, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
	DeferCleanup(func() { Expect(listener.Close()).To(Succeed()) })
}
