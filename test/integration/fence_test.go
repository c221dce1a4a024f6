package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/fence"
)

// The specs use real tokens that the API server signed for a real Pod, as the kubelet would request them.
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
		// The API server needs a moment to compile a new policy.
		Eventually(func() error { return report(agent, "node-2") }).Should(MatchError(ContainSubstring("only its own StorageClientNode")))
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

	It("admits the status of the agent's own node, and keeps status.rollout", func() {
		Expect(report(agent, "node-1")).To(Succeed())
		object := &v1alpha1.StorageClientNode{}
		Expect(agent.Get(ctx, client.ObjectKey{Name: "node-1"}, object)).To(Succeed())
		Expect(object.Status.Hash).To(Equal("0123456789abcdef"))
		Expect(object.Status.Rollout).To(HaveField("Phase", v1alpha1.RolloutWaiting))
	})

	It("rejects the status of another node", func() {
		expectRejected(report(agent, "node-2"), "the agent of node node-1 may write only its own StorageClientNode, not node-2")
		object := &v1alpha1.StorageClientNode{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "node-2"}, object)).To(Succeed())
		Expect(object.Status.Hash).To(BeEmpty())
	})

	It("rejects a token of the same service account that is not bound to a Pod", func() {
		expectRejected(report(clientWithToken(unboundToken()), "node-1"), "the token is not bound to a Pod on a node")
	})

	It("rejects the token of a Pod without a node", func() {
		homeless := newPod(v1alpha1.AgentNamespace, "homeless").
			With(func(p *corev1.Pod) { p.Spec.ServiceAccountName = v1alpha1.AgentServiceAccount }).Create()
		expectRejected(report(clientWithToken(tokenFor(homeless)), "node-1"), "the token is not bound to a Pod on a node")
	})

	DescribeTable("rejects status.rollout",
		func(change func(*v1alpha1.StorageClientNode)) {
			expectRejected(status(change)(agent), "a node agent may not change status.rollout")
		},
		Entry("changed", func(n *v1alpha1.StorageClientNode) { n.Status.Rollout.Phase = v1alpha1.RolloutUpToDate }),
		Entry("dropped", func(n *v1alpha1.StorageClientNode) { n.Status.Rollout = nil }),
		Entry("given a new field", func(n *v1alpha1.StorageClientNode) { n.Status.Rollout.Attempts = 3 }),
		Entry("given the time from which settings soak", func(n *v1alpha1.StorageClientNode) {
			n.Status.Rollout.Tuned = &v1alpha1.RolloutTuned{Hash: "0123456789abcdef", Since: metav1.NewTime(time.Unix(1, 0))}
		}),
	)

	// docs/upgrade.md: install the CustomResourceDefinitions first.
	It("rejects an agent's report with an unknown field, and drops an unknown field from status.rollout", func() {
		object := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "node-1"}, "status": map[string]any{"hash": "0123456789abcdef", "later": "x"},
		}}
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StorageClientNode"))
		err := agent.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(v1alpha1.AgentFieldManager), client.ForceOwnership)
		Expect(err).To(MatchError(ContainSubstring(".status.later: field not declared in schema")))
		note := client.RawPatch(types.MergePatchType, []byte(`{"status":{"rollout":{"reason":"Later","later":"x"}}}`))
		Expect(k8s.Status().Patch(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, note)).To(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "node-1"}, object)).To(Succeed())
		Expect(object.Object["status"]).To(HaveKeyWithValue("rollout", Equal(map[string]any{"phase": "Waiting", "reason": "Later"})))
	})

	It("rejects the addition of status.rollout", func() {
		Expect(status(func(n *v1alpha1.StorageClientNode) { n.Status.Rollout = nil })(k8s)).To(Succeed())
		add := status(func(n *v1alpha1.StorageClientNode) {
			n.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate}
		})
		expectRejected(add(agent), "a node agent may not change status.rollout")
	})

	It("grants no right on spec, Nodes, Pods or profiles", func() {
		expectRejected(mergePatch("node-1", `{"spec":{"release":true}}`)(agent), refusedByRBAC)
		cordon := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
		expectRejected(agent.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, cordon), refusedByRBAC)
		expectRejected(agent.Get(ctx, client.ObjectKey{Name: "node-1"}, &corev1.Node{}), refusedByRBAC)
		expectRejected(agent.List(ctx, &corev1.PodList{}), refusedByRBAC)
		expectRejected(agent.List(ctx, &v1alpha1.StorageClientProfileList{}), refusedByRBAC)
	})

	Context("when its service account has all rights", func() {
		BeforeEach(func() {
			grantEverything()
			Eventually(func() error { return agent.List(ctx, &corev1.PodList{}) }).Should(Succeed())
		})

		DescribeTable("still rejects",
			func(write func(client.Client) error, reason string) { expectRejected(write(agent), reason) },
			Entry("a change of spec", mergePatch("node-1", `{"spec":{"release":true}}`), "a node agent may not change spec"),
			Entry("volumes that the agent chose", mergePatch("node-1", `{"spec":{"volumes":[{"name":"pv","readAheadKiB":4}]}}`), "a node agent may not change spec"),
			Entry("the removal of spec", mergePatch("node-1", `{"spec":null}`), "a node agent may not change spec"),
			Entry("a label", mergePatch("node-1", `{"metadata":{"labels":{"a":"b"}}}`), "a node agent may not change labels, annotations, owner references or finalizers"),
			Entry("an annotation", mergePatch("node-1", `{"metadata":{"annotations":{"a":"b"}}}`), "a node agent may not change labels, annotations, owner references or finalizers"),
			Entry("a finalizer", mergePatch("node-1", `{"metadata":{"finalizers":["a.example/b"]}}`), "a node agent may not change labels, annotations, owner references or finalizers"),
			Entry("an owner reference", mergePatch("node-1", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-1","uid":"u"}]}}`),
				"a node agent may not change labels, annotations, owner references or finalizers"),
			Entry("another node's spec", mergePatch("node-2", `{"spec":{"release":true}}`), "only its own StorageClientNode"),
			Entry("the deletion of its own object", func(c client.Client) error {
				return c.Delete(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
			}, "may not create or delete"),
			Entry("the creation of its own object", func(c client.Client) error {
				return c.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
			}, "may not create or delete"),
			Entry("the creation of another", func(c client.Client) error {
				return c.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-3"}})
			}, "only its own StorageClientNode"),
		)
	})

	It("rejects a token that is bound only to the node", func() {
		bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: getNode("node-1").UID}
		expectRejected(report(clientWithToken(requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, bound)), "node-1"),
			"the token is not bound to a Pod, so it may only send dry-run requests")
	})

	Context("when the manager tests it", func() {
		var manager *rest.Config

		BeforeEach(func() {
			installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml")
			manager = managerConfig()
		})

		asAgent := func(extra map[string][]string) client.Client {
			GinkgoHelper()
			config := rest.CopyConfig(manager)
			config.Impersonate = rest.ImpersonationConfig{
				UserName: "system:serviceaccount:" + v1alpha1.AgentNamespace + ":" + v1alpha1.AgentServiceAccount, Extra: extra,
			}
			c, err := client.New(config, client.Options{Scheme: scheme, Mapper: k8s.RESTMapper()})
			Expect(err).NotTo(HaveOccurred())
			return c
		}
		hash := func(c client.Client, options ...client.SubResourcePatchOption) error {
			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
			return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"status":{"hash":"forged"}}`)), options...)
		}

		It("is effective, and the test leaves no trace", func() {
			before := findObject("node-1").ResourceVersion
			// The manager has its rights when the API server has seen the roles.
			Eventually(missingFor(manager)).Should(BeEmpty())
			Expect(findObject("node-1").ResourceVersion).To(Equal(before))
		})

		It("lets the manager send only dry-run requests as an agent", func() {
			agent := asAgent(map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}})
			Eventually(func() error { return hash(agent, client.DryRunAll) }).Should(Succeed())
			expectRejected(hash(agent), "the token is not bound to a Pod, so it may only send dry-run requests")
			Expect(findObject("node-1").Status.Hash).To(BeEmpty())
		})

		It("does not let the manager impersonate an agent's Pod", func() {
			agent := asAgent(map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}})
			Eventually(func() error { return hash(agent, client.DryRunAll) }).Should(Succeed())
			for extra, value := range map[string]string{"authentication.kubernetes.io/pod-name": "p", "authentication.kubernetes.io/pod-uid": "u", "x": "y"} {
				expectRejected(hash(asAgent(map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}, extra: {value}})), `cannot impersonate resource "userextras/`+extra)
			}
			for _, user := range []string{"system:serviceaccount:storage-client-agent:default", "system:serviceaccount:kube-system:storage-client-node-agent", "system:admin"} {
				config := rest.CopyConfig(manager)
				config.Impersonate.UserName = user
				c, err := client.New(config, client.Options{Scheme: scheme, Mapper: k8s.RESTMapper()})
				Expect(err).NotTo(HaveOccurred())
				expectRejected(hash(c, client.DryRunAll), "cannot impersonate resource")
			}
		})

		DescribeTable("is detected as ineffective if",
			func(kind client.Object, patch, want string) {
				changeTemporarily(kind, v1alpha1.AgentPolicy, patch)
				Eventually(missingFor(manager)).Should(ContainSubstring(want))
				for range 3 {
					Expect(missingFor(manager)()).To(ContainSubstring(want))
				}
			},
			Entry("the policy admits everything", aPolicy, `[{"op":"replace","path":"/spec/validations","value":[{"expression":"true"}]}]`,
				"an agent may write the status of another node's StorageClientNode"),
			Entry("the policy rejects everything", aPolicy, `[{"op":"replace","path":"/spec/validations","value":[{"expression":"false"}]}]`,
				"an agent may not write the status of its StorageClientNode"),
			Entry("the policy is about another user", aPolicy,
				`[{"op":"replace","path":"/spec/matchConditions/0/expression","value":"request.userInfo.username == 'system:serviceaccount:elsewhere:storage-client-node-agent'"}]`,
				"an agent may write the status of another node's StorageClientNode"),
			Entry("the policy is about another resource", aPolicy, `[{"op":"replace","path":"/spec/matchConstraints/resourceRules/0/resources","value":["storageclientnodes"]}]`,
				"an agent may write the status of another node's StorageClientNode"),
			Entry("the policy matches only creation", aPolicy, `[{"op":"replace","path":"/spec/matchConstraints/resourceRules/0/operations","value":["CREATE"]}]`,
				"an agent may write the status of another node's StorageClientNode"),
			Entry("the policy selects by label", aPolicy, `[{"op":"replace","path":"/spec/matchConstraints/objectSelector","value":{"matchLabels":{"a":"b"}}}]`,
				"ValidatingAdmissionPolicy storage-client-node-agent excludes some StorageClientNodes"),
			Entry("the policy treats dry runs as writes", aPolicy, `[{"op":"replace","path":"/spec/variables/2/expression","value":"false"}]`,
				"an agent may not write the status of its StorageClientNode"),
			Entry("the policy does not check the node", aPolicy, withoutRule("only its own StorageClientNode"), "an agent may write the status of another node's StorageClientNode"),
			Entry("the policy does not check status.rollout", aPolicy, withoutRule("a node agent may not change status.rollout"), "an agent may write status.rollout"),
			Entry("the binding warns", aBinding, `[{"op":"replace","path":"/spec/validationActions","value":["Warn"]}]`, "does not enforce"),
			Entry("the binding audits", aBinding, `[{"op":"replace","path":"/spec/validationActions","value":["Audit"]}]`, "does not enforce"),
			Entry("the binding excludes the resource", aBinding,
				`[{"op":"add","path":"/spec/matchResources","value":{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["storageclientnodes/*"]}]}}]`,
				"an agent may write the status of another node's StorageClientNode"),
			Entry("the binding is about another resource", aBinding,
				`[{"op":"add","path":"/spec/matchResources","value":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["pods"]}]}}]`,
				"an agent may write the status of another node's StorageClientNode"),
			Entry("the binding selects by label", aBinding, `[{"op":"add","path":"/spec/matchResources","value":{"objectSelector":{"matchLabels":{"a":"b"}}}}]`,
				"ValidatingAdmissionPolicyBinding storage-client-node-agent excludes some StorageClientNodes"),
			Entry("agents have no right to report", &rbacv1.ClusterRole{}, `[{"op":"replace","path":"/rules","value":[]}]`,
				"an agent may not write the status of its StorageClientNode"),
		)

		It("ignores a binding's namespace selector, because StorageClientNodes have no namespace", func() {
			changeTemporarily(aBinding, v1alpha1.AgentPolicy, `[{"op":"add","path":"/spec/matchResources","value":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}]`)
			Consistently(missingFor(manager)).WithTimeout(time.Second).Should(BeEmpty())
			expectRejected(report(agent, "node-2"), "only its own StorageClientNode")
		})

		DescribeTable("is detected as ineffective if agents have an additional right that the policy does not deny:",
			func(rule, want string) {
				grantEverything()
				changeTemporarily(aPolicy, v1alpha1.AgentPolicy, withoutRule(rule))
				Eventually(missingFor(manager)).Should(ContainSubstring(want))
			},
			Entry("spec", "a node agent may not change spec", "an agent may write the spec"),
			Entry("metadata", "labels, annotations", "an agent may write the metadata"),
		)

		It("cannot be tested if the manager lacks the right", func() {
			changeTemporarily(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace}}, v1alpha1.ManagerDeployment,
				`[{"op":"replace","path":"/rules","value":[]}]`)
			Eventually(missingFor(manager)).Should(ContainSubstring("the manager may not impersonate an agent"))
		})
	})

	It("does not affect other users: the manager writes every node", func() {
		for _, name := range []string{"node-1", "node-2"} {
			Expect(mergePatch(name, `{"spec":{"release":true},"metadata":{"labels":{"a":"b"}}}`)(k8s)).To(Succeed())
		}
	})
})

var (
	aPolicy  = &admissionv1.ValidatingAdmissionPolicy{}
	aBinding = &admissionv1.ValidatingAdmissionPolicyBinding{}
)

// missingFor queries a new fence, without cached results.
func missingFor(config *rest.Config) func() (string, error) {
	return func() (string, error) { return newFence(clientFor(config), config).Missing(ctx) }
}

// newFence returns a fence like the manager's.
func newFence(reader client.Reader, config *rest.Config) *fence.Fence {
	return &fence.Fence{APIReader: reader, AsAgent: fence.Impersonate(config, scheme, k8s.RESTMapper()), Clock: fakeClock}
}

// grantEverything gives the agents' service account all rights until the spec ends.
func grantEverything() {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}}
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	binding.Subjects = []rbacv1.Subject{{
		Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentServiceAccount,
	}}
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func() { deleteNow(binding) })
}

// changeTemporarily changes an object that the suite has installed, by a JSON patch, until the spec ends.
func changeTemporarily(kind client.Object, name, patch string) {
	GinkgoHelper()
	object := kind.DeepCopyObject().(client.Object)
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: kind.GetNamespace(), Name: name}, object)).To(Succeed())
	original := object.DeepCopyObject().(client.Object)
	Expect(k8s.Patch(ctx, object, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
	DeferCleanup(func() {
		Expect(k8s.Get(context.Background(), client.ObjectKeyFromObject(original), object)).To(Succeed())
		original.SetResourceVersion(object.GetResourceVersion())
		Expect(k8s.Update(context.Background(), original)).To(Succeed())
		if _, isRole := kind.(*rbacv1.Role); !isRole {
			awaitFence()
		}
	})
}

// awaitFence waits until the API server has compiled the policy and seen the binding and the agents' rights.
func awaitFence() {
	GinkgoHelper()
	probe := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	Expect(k8s.Create(context.Background(), probe)).To(Succeed())
	fresh := func() (string, error) {
		return (&fence.Fence{APIReader: k8s, AsAgent: fence.Impersonate(restConfig, scheme, k8s.RESTMapper()), Clock: clock.RealClock{}}).Missing(context.Background())
	}
	Eventually(fresh).Should(BeEmpty())
	Expect(k8s.Delete(context.Background(), probe)).To(Succeed())
}

// withoutRule returns a patch of the agents' policy that removes the validation with this text.
func withoutRule(text string) string {
	content, err := os.ReadFile(filepath.Join(configDir, "agent", "policy.yaml"))
	if err != nil {
		panic(err)
	}
	var policy admissionv1.ValidatingAdmissionPolicy
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(&policy); err != nil {
		panic(err)
	}
	at := slices.IndexFunc(policy.Spec.Validations, func(v admissionv1.Validation) bool { return strings.Contains(v.Message+v.MessageExpression, text) })
	if at < 0 {
		panic("no validation contains " + text)
	}
	return fmt.Sprintf(`[{"op":"remove","path":"/spec/validations/%d"}]`, at)
}

// report writes a node's status as the agent does: a forced apply of the agent's fields.
func report(c client.Client, node string) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": node},
		"status":   map[string]any{"observedGeneration": int64(1), "hash": "0123456789abcdef", "bootID": "boot-1", "rebootRequired": false},
	}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StorageClientNode"))
	return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(v1alpha1.AgentFieldManager), client.ForceOwnership)
}

func expectRejected(err error, reason string) {
	GinkgoHelper()
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "want Forbidden, got %v", err)
	Expect(err).To(MatchError(ContainSubstring(reason)))
}

func clientWithToken(token string) client.Client {
	GinkgoHelper()
	return clientFor(configWithToken(token))
}

func configWithToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(restConfig)
	config.BearerToken = token
	return config
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: k8s.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// managerConfig returns a configuration with the manager's rights. It uses a token of the service account, which must be installed.
func managerConfig() *rest.Config {
	GinkgoHelper()
	config := configWithToken(requestToken(v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, nil))
	config.QPS, config.Burst = -1, -1
	return config
}

// tokenFor returns a token that a kubelet would mount into the Pod.
func tokenFor(pod *corev1.Pod) string {
	GinkgoHelper()
	return requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

func unboundToken() string {
	GinkgoHelper()
	return requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, nil)
}

func requestToken(namespace, name string, bound *authenticationv1.BoundObjectReference) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	Expect(k8s.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}
