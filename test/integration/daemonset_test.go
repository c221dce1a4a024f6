package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/daemonset"
	"github.com/storageclient/operator/controllers/fence"
)

var _ = Describe("The agent's DaemonSet", func() {
	reconcileWith := func(image string, reader client.Reader) ctrl.Result {
		GinkgoHelper()
		r := &daemonset.Reconciler{
			Client: k8s, Fence: newFence(reader, restConfig), AgentImage: image, AgentNamespace: v1alpha1.AgentNamespace,
		}
		result, err := r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		return result
	}
	find := func() *appsv1.DaemonSet {
		GinkgoHelper()
		set := &appsv1.DaemonSet{}
		err := k8s.Get(ctx, client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}, set)
		if apierrors.IsNotFound(err) {
			return nil
		}
		Expect(err).NotTo(HaveOccurred())
		return set
	}

	It("comes with the first profile and goes with the last node", func() {
		reconcileWith("agent:1", k8s)
		Expect(find()).To(BeNil())

		created := newProfile("p").Create()
		reconcileWith("agent:1", k8s)
		Expect(find()).NotTo(BeNil())

		newNode("a").Label(v1alpha1.ManagedLabel, "true").Create()
		Expect(k8s.Delete(ctx, created)).To(Succeed())
		reconcileWith("agent:1", k8s)
		Expect(find()).NotTo(BeNil(), "a node is still to be restored")

		Expect(k8s.Delete(ctx, getNode("a"))).To(Succeed())
		reconcileWith("agent:1", k8s)
		Expect(find()).To(Or(BeNil(), HaveField("DeletionTimestamp", Not(BeNil()))))
	})

	It("runs on managed Linux nodes, privileged, in the node's network, with the host below /host", func() {
		newProfile("p").Create()
		reconcileWith("agent:1", k8s)
		set := find()
		spec := set.Spec.Template.Spec
		Expect(spec.NodeSelector).To(Equal(map[string]string{v1alpha1.ManagedLabel: "true", corev1.LabelOSStable: "linux"}))
		Expect(spec.Tolerations).To(HaveExactElements(corev1.Toleration{Operator: corev1.TolerationOpExists}))
		Expect(spec.PriorityClassName).To(Equal("system-node-critical"))
		Expect(spec.HostNetwork).To(BeTrue())
		Expect(spec.HostPID).To(BeFalse())
		Expect(spec.ServiceAccountName).To(Equal(v1alpha1.AgentServiceAccount))
		Expect(set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable).To(Equal(ptr.To(intstr.FromString("10%"))))
		container := spec.Containers[0]
		Expect(container.Image).To(Equal("agent:1"))
		Expect(container.SecurityContext.Privileged).To(Equal(ptr.To(true)))
		Expect(container.VolumeMounts).To(HaveExactElements(And(
			HaveField("MountPath", "/host"), HaveField("MountPropagation", ptr.To(corev1.MountPropagationHostToContainer)))))
		Expect(container.ReadinessProbe.HTTPGet.Host).To(Equal("127.0.0.1"))
		Expect(set.Spec.Template.Labels).To(HaveKeyWithValue("app.kubernetes.io/component", "node-agent"), "which its Pods are found by")
	})

	It("is replaced for a new image only", func() {
		newProfile("p").Create()
		reconcileWith("agent:1", k8s)
		reconcileWith("agent:1", k8s)
		Expect(find().Generation).To(Equal(int64(1)))
		reconcileWith("agent:2", k8s)
		Expect(find().Generation).To(Equal(int64(2)))
	})

	It("is not rolled out where the fence is missing, and stays where it was", func() {
		newProfile("p").Create()
		Expect(reconcileWith("agent:1", withoutFence()).RequeueAfter).To(Equal(fence.RecheckAfter))
		Expect(find()).To(BeNil())
		reconcileWith("agent:1", k8s)
		reconcileWith("agent:2", withoutFence())
		Expect(find().Spec.Template.Spec.Containers[0].Image).To(Equal("agent:1"))
	})
})
