package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/test/patience"
)

var _ = Describe("A shared cache", func() {
	var shared client.Client

	BeforeEach(func() {
		manager, err := ctrl.NewManager(restConfig, ctrl.Options{
			Scheme: scheme, Logger: logger, Metrics: server.Options{BindAddress: "0"}, NewClient: objects.ShareCache,
			Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
			Cache:  cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Field: fields.OneTermEqualSelector("metadata.namespace", v1alpha1.AgentNamespace)}}},
		})
		Expect(err).NotTo(HaveOccurred())
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- manager.Start(running) }()
		DeferCleanup(func() {
			cancel()
			Eventually(ended).WithTimeout(patience.Of(time.Minute)).Should(Receive(BeNil()))
		})
		Expect(manager.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
		shared, err = objects.Separate(manager.GetClient())
		Expect(err).NotTo(HaveOccurred())
	})

	nodes := func() map[string]*corev1.Node {
		GinkgoHelper()
		found, err := objects.All[*corev1.Node](ctx, shared, &corev1.NodeList{})
		Expect(err).NotTo(HaveOccurred())
		out := map[string]*corev1.Node{}
		for _, node := range found {
			out[node.Name] = node
		}
		return out
	}

	It("lists its own objects, and waits for what it has written", func() {
		for i := range 50 {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("shared-%d", i)}}
			Expect(shared.Create(ctx, node)).To(Succeed())
			Expect(nodes()).To(HaveLen(i + 1))
		}
		one := nodes()["shared-7"]
		Expect(nodes()["shared-7"]).To(BeIdenticalTo(one), "the object was copied")
		changed := one.DeepCopy()
		changed.Labels = map[string]string{"pool": "x"}
		Expect(shared.Patch(ctx, changed, client.MergeFrom(one))).To(Succeed())
		Expect(nodes()["shared-7"].Labels).To(HaveKeyWithValue("pool", "x"))
		Expect(shared.Delete(ctx, changed)).To(Succeed())
		Expect(nodes()).To(HaveLen(49))

		labelled, err := objects.All[*corev1.Node](ctx, shared, &corev1.NodeList{}, client.MatchingLabels{"pool": "x"})
		Expect(err).NotTo(HaveOccurred())
		Expect(labelled).To(BeEmpty())
	})

	It("lists metadata apart from whole objects", func() {
		newVolume("shared").Create()
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeList"))
		Eventually(func(g Gomega) {
			metadata, err := objects.All[*metav1.PartialObjectMetadata](ctx, shared, list)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(metadata).To(ConsistOf(HaveField("Name", "shared")))
			whole, err := objects.All[*corev1.PersistentVolume](ctx, shared, &corev1.PersistentVolumeList{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(whole).To(ConsistOf(HaveField("Spec.AccessModes", Not(BeEmpty()))))
		}).Should(Succeed())
	})

	It("lists Pods of the namespaces that it keeps, and follows them", func() {
		pod := func(namespace string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shared"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		}
		stored := pod(v1alpha1.AgentNamespace)
		Expect(k8s.Create(ctx, stored)).To(Succeed())
		names := func(namespace string) func(g Gomega) []string {
			return func(g Gomega) []string {
				found, err := objects.All[*corev1.Pod](ctx, shared, &corev1.PodList{}, client.InNamespace(namespace))
				g.Expect(err).NotTo(HaveOccurred())
				out := []string{}
				for _, pod := range found {
					out = append(out, pod.Namespace+"/"+pod.Name)
				}
				return out
			}
		}
		Eventually(names(v1alpha1.AgentNamespace)).Should(Equal([]string{v1alpha1.AgentNamespace + "/shared"}))
		pods := func() []*corev1.Pod {
			GinkgoHelper()
			found, err := objects.All[*corev1.Pod](ctx, shared, &corev1.PodList{}, client.InNamespace(v1alpha1.AgentNamespace))
			Expect(err).NotTo(HaveOccurred())
			return found
		}
		Expect(pods()[0]).To(BeIdenticalTo(pods()[0]), "the object was copied")
		Expect(k8s.Delete(ctx, stored, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(names(v1alpha1.AgentNamespace)).Should(BeEmpty())
	})
})
