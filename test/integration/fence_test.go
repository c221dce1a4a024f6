package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// The specs hold real tokens that the API server signed for a real Pod, as the kubelet would request them.
var _ = Describe("The fence around a node agent", func() {
	const refusedByRBAC = `User "system:serviceaccount:storage-client-agent:storage-client-node-agent" cannot`

	var agent client.Client

	BeforeEach(func() {
		for _, name := range []string{"node-1", "node-2"} {
			newNode(name).Create()
			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
			object.Spec.Settings = []v1alpha1.NodeSetting{
				{Key: "sysctl/net.core.rmem_max", Value: "16777216", Profile: "nfs", OnRemoval: v1alpha1.DeletionRestore},
			}
			Expect(k8s.Create(ctx, object)).To(Succeed())
			object.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: "Window"}
			Expect(k8s.Status().Update(ctx, object)).To(Succeed())
		}
		agent = clientWithToken(tokenFor(agentPod("node-1")))
		// A policy takes a moment to be compiled after its creation.
		Eventually(func() error { return report(agent, "node-2") }).Should(MatchError(ContainSubstring("its own StorageClientNode only")))
	})

	status := func(change func(*v1alpha1.StorageClientNode)) func(client.Client) error {
		return func(c client.Client) error {
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				object := &v1alpha1.StorageClientNode{}
				if err := k8s.Get(ctx, client.ObjectKey{Name: "node-1"}, object); err != nil {
					return err
				}
				change(object)
				return c.Status().Update(ctx, object)
			})
		}
	}
	mergePatch := func(name, patch string) func(client.Client) error {
		return func(c client.Client) error {
			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
			return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
		}
	}

	It("admits the status of the agent's own node, and leaves status.rollout standing", func() {
		Expect(report(agent, "node-1")).To(Succeed())
		object := &v1alpha1.StorageClientNode{}
		Expect(agent.Get(ctx, client.ObjectKey{Name: "node-1"}, object)).To(Succeed())
		Expect(object.Status.Hash).To(Equal("0123456789abcdef"))
		Expect(object.Status.Rollout).To(HaveField("Phase", v1alpha1.RolloutWaiting))
	})

	It("refuses the status of another node", func() {
		expectRefused(report(agent, "node-2"), "the agent of node node-1 may write its own StorageClientNode only, not node-2")
		object := &v1alpha1.StorageClientNode{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "node-2"}, object)).To(Succeed())
		Expect(object.Status.Hash).To(BeEmpty())
	})

	It("refuses a token of the same service account that is bound to no Pod", func() {
		expectRefused(report(clientWithToken(unboundToken()), "node-1"), "the token is not bound to a Pod on a node")
	})

	It("refuses the token of a Pod that no node runs", func() {
		homeless := newPod(v1alpha1.AgentNamespace, "homeless").
			With(func(p *corev1.Pod) { p.Spec.ServiceAccountName = v1alpha1.AgentServiceAccount }).Create()
		expectRefused(report(clientWithToken(tokenFor(homeless)), "node-1"), "the token is not bound to a Pod on a node")
	})

	DescribeTable("refuses to have status.rollout",
		func(change func(*v1alpha1.StorageClientNode)) {
			expectRefused(status(change)(agent), "status.rollout is the manager's")
		},
		Entry("changed", func(n *v1alpha1.StorageClientNode) { n.Status.Rollout.Phase = v1alpha1.RolloutUpToDate }),
		Entry("dropped", func(n *v1alpha1.StorageClientNode) { n.Status.Rollout = nil }),
		Entry("given a new field", func(n *v1alpha1.StorageClientNode) { n.Status.Rollout.Attempts = 3 }),
	)

	It("refuses to have status.rollout added where there is none", func() {
		Expect(status(func(n *v1alpha1.StorageClientNode) { n.Status.Rollout = nil })(k8s)).To(Succeed())
		add := status(func(n *v1alpha1.StorageClientNode) {
			n.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate}
		})
		expectRefused(add(agent), "status.rollout is the manager's")
	})

	It("gives no right on spec, on Nodes, on Pods or on profiles", func() {
		expectRefused(mergePatch("node-1", `{"spec":{"release":true}}`)(agent), refusedByRBAC)
		cordon := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
		expectRefused(agent.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, cordon), refusedByRBAC)
		expectRefused(agent.Get(ctx, client.ObjectKey{Name: "node-1"}, &corev1.Node{}), refusedByRBAC)
		expectRefused(agent.List(ctx, &corev1.PodList{}), refusedByRBAC)
		expectRefused(agent.List(ctx, &v1alpha1.StorageClientProfileList{}), refusedByRBAC)
	})

	Context("when somebody has granted its service account everything", func() {
		BeforeEach(func() {
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}}
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
			binding.Subjects = []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentServiceAccount,
			}}
			Expect(k8s.Create(ctx, binding)).To(Succeed())
			DeferCleanup(func() { deleteNow(binding) })
			Eventually(func() error { return agent.List(ctx, &corev1.PodList{}) }).Should(Succeed())
		})

		DescribeTable("still refuses",
			func(write func(client.Client) error, reason string) { expectRefused(write(agent), reason) },
			Entry("a change of spec", mergePatch("node-1", `{"spec":{"release":true}}`), "spec is the manager's"),
			Entry("volumes of its own choice", mergePatch("node-1", `{"spec":{"volumes":[{"name":"pv","readAheadKiB":4}]}}`), "spec is the manager's"),
			Entry("the removal of spec", mergePatch("node-1", `{"spec":null}`), "spec is the manager's"),
			Entry("a label", mergePatch("node-1", `{"metadata":{"labels":{"a":"b"}}}`), "labels, annotations, owner references and finalizers are the manager's"),
			Entry("an annotation", mergePatch("node-1", `{"metadata":{"annotations":{"a":"b"}}}`), "labels, annotations, owner references and finalizers are the manager's"),
			Entry("a finalizer", mergePatch("node-1", `{"metadata":{"finalizers":["a.example/b"]}}`), "labels, annotations, owner references and finalizers are the manager's"),
			Entry("an owner reference", mergePatch("node-1", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-1","uid":"u"}]}}`),
				"labels, annotations, owner references and finalizers are the manager's"),
			Entry("another node's spec", mergePatch("node-2", `{"spec":{"release":true}}`), "its own StorageClientNode only"),
			Entry("the deletion of its own object", func(c client.Client) error {
				return c.Delete(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
			}, "may neither create nor delete"),
			Entry("the creation of its own object", func(c client.Client) error {
				return c.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
			}, "may neither create nor delete"),
			Entry("the creation of another", func(c client.Client) error {
				return c.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-3"}})
			}, "its own StorageClientNode only"),
		)
	})

	It("concerns nobody else: the manager writes every node", func() {
		for _, name := range []string{"node-1", "node-2"} {
			Expect(mergePatch(name, `{"spec":{"release":true},"metadata":{"labels":{"a":"b"}}}`)(k8s)).To(Succeed())
		}
	})
})

// report writes a node's status as the agent does: a forced apply of what the agent owns.
func report(c client.Client, node string) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": node},
		"status":   map[string]any{"observedGeneration": int64(1), "hash": "0123456789abcdef", "bootID": "boot-1", "rebootRequired": false},
	}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StorageClientNode"))
	return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(v1alpha1.AgentFieldManager), client.ForceOwnership)
}

func expectRefused(err error, reason string) {
	GinkgoHelper()
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "want Forbidden, got %v", err)
	Expect(err).To(MatchError(ContainSubstring(reason)))
}

func clientWithToken(token string) client.Client {
	GinkgoHelper()
	config := rest.AnonymousClientConfig(restConfig)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: k8s.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// tokenFor requests the token that a kubelet would mount into the Pod.
func tokenFor(pod *corev1.Pod) string {
	GinkgoHelper()
	return requestToken(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

func unboundToken() string {
	GinkgoHelper()
	return requestToken(nil)
}

func requestToken(bound *authenticationv1.BoundObjectReference) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentServiceAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	Expect(k8s.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}
