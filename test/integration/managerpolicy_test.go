package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/nodevolumes"
	"github.com/storageclient/operator/controllers/volume"
)

// cached reads like the manager's cache, through the lists and watches that its roles grant. It writes as the manager.
func cached(manager client.WithWatch) client.WithWatch {
	return interceptor.NewClient(manager, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			return k8s.Get(ctx, key, object, opts...)
		},
	})
}

// The specs use a real token of the manager's service account, with only the roles of config/rbac.
var _ = Describe("What the manager may write", func() {
	var manager client.WithWatch

	BeforeEach(func() {
		installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml")
		manager = clientFor(managerConfig())
		awaitManagerPolicies(manager)
	})

	Context("by its code", func() {
		It("goes through on Nodes, client nodes and profiles", func() {
			newNode("a").Create()
			created := newProfile("p").Sysctl("net.core.rmem_max", "16777216").Create()
			k := newKeeper(cached(manager))
			k.nodes.Fence = newFence(manager, managerConfig())
			k.settle([]string{"p"}, []string{"a"})
			Expect(getNode("a").Labels).To(HaveKeyWithValue(v1alpha1.ManagedLabel, "true"))
			agentPod("a")
			agentReports("a", nil)
			k.settle([]string{"p"}, []string{"a"})
			Expect(tunedReason("a")).To(Equal(v1alpha1.NodeReasonTuned))
			Expect(findProfile("p")).To(haveCondition("Ready", metav1.ConditionTrue, v1alpha1.ReasonUpToDate))
			Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["net.core.rmem_max"] = "8388608" })).To(Succeed())
			k.settle([]string{"p"}, []string{"a"})
			agentReports("a", nil)
			Expect(k8s.Delete(ctx, created)).To(Succeed())
			k.settle([]string{"p"}, []string{"a"})
			agentReports("a", nil)
			k.settle([]string{"p"}, []string{"a"})
			expectClean("a")
			Expect(findProfile("p")).To(BeNil())
		})

		It("goes through in a rollout with load balancers, eviction, reboot and the untuned taint", func() {
			pool("a", "b")
			newNode("spare").Create()
			Expect(retryUpdate("eda", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Rollout.Drain.ExcludeFromLoadBalancersSeconds = 1
			})).To(Succeed())
			newPod("default", "web").On("a").Create()
			tainted := getNode("b")
			other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule}
			tainted.Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}, other}
			Expect(k8s.Update(ctx, tainted)).To(Succeed())
			s := newStory(manager, manager)
			excluded := false
			for range 60 {
				s.passes(1)
				_, label := getNode("a").Labels[corev1.LabelNodeExcludeBalancers]
				excluded = excluded || label
				if s.turn() {
					break
				}
			}
			s.passes(2)
			Expect(excluded).To(BeTrue())
			for _, name := range []string{"a", "b"} {
				expectReturned(name)
				Expect(getNode(name).Status.NodeInfo.BootID).To(Equal("boot-2"))
			}
			Expect(getNode("b").Spec.Taints).To(ConsistOf(other))
		})

		It("goes through on PersistentVolumes and on the volumes of StorageClientNodes", func() {
			newVolume("pv").Options("hard").Annotate("example.com/theirs", "x").Create()
			volumes := &volume.Reconciler{Client: manager, APIReader: manager, Recorder: events.NewFakeRecorder(16), Clock: fakeClock}
			pass := func() {
				GinkgoHelper()
				_, err := volumes.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
				Expect(err).NotTo(HaveOccurred())
			}
			profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
			pass()
			Expect(getVolume("pv").Spec.MountOptions).To(Equal([]string{"hard", "nocto"}))
			Expect(getVolume("pv").Annotations).To(HaveKey(v1alpha1.MountOptionsStepAnnotation))

			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: "a", UID: newNode("a").Create().UID},
			}}}
			Expect(k8s.Create(ctx, object)).To(Succeed())
			agentPod("a")
			agentReports("a", func(s *v1alpha1.StorageClientNodeStatus) {
				s.Mounts = []v1alpha1.MountStatus{{MountPoint: "/m", Volume: "pv", Protocol: "NFSv4.1"}}
			})
			nodeVolumes := &nodevolumes.Reconciler{Client: manager, Clock: fakeClock}
			fakeClock.Step(3 * time.Second)
			_, err := nodeVolumes.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
			Expect(err).NotTo(HaveOccurred())
			Expect(findObject("a").Spec.Volumes).To(HaveLen(1))

			Expect(k8s.Delete(ctx, profile)).To(Succeed())
			pass()
			Expect(getVolume("pv").Spec.MountOptions).To(Equal([]string{"hard"}))
			Expect(getVolume("pv").Annotations).To(Equal(map[string]string{"example.com/theirs": "x"}))
		})
	})

	// Writes of the same shape as the code's writes, each with a similar write that must be rejected.
	Context("on Nodes", func() {
		BeforeEach(func() {
			newNode("a").Label("example.com/theirs", "x").Annotate("example.com/theirs", "x").
				Taint(corev1.Taint{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}).
				Taint(corev1.Taint{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}).
				Create()
			Expect(patch(k8s, "nodes", `{"metadata":{"finalizers":["example.com/theirs"],"ownerReferences":[`+anOwner+`]}}`)).To(Succeed())
			Expect(patch(k8s, "nodes/status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`)).To(Succeed())
		})

		DescribeTable("admits",
			func(resource, body string) { Expect(patch(manager, resource, body)).To(Succeed()) },
			Entry("a cordon with annotation and protection annotations", "nodes", `{"spec":{"unschedulable":true},"metadata":{"annotations":{
				"tuning.storageclient.dev/disruption":"{}","tuning.storageclient.dev/disruption-guards":"{}",
				"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true","karpenter.sh/do-not-disrupt":"true"},
				"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}}}`),
			Entry("labels that bring agents", "nodes", `{"metadata":{"labels":{"tuning.storageclient.dev/managed":"true","tuning.storageclient.dev/trial":"true"}}}`),
			Entry("the removal of the untuned taint", "nodes", `{"spec":{"taints":[{"key":"example.com/theirs","effect":"NoSchedule"}]}}`),
			Entry("its conditions", "nodes/status", `{"status":{"conditions":[{"type":"tuning.storageclient.dev/Tuned","status":"True"},
				{"type":"tuning.storageclient.dev/StorageReachable","status":"True"},{"type":"MaintenanceInProgress","status":"True"},
				{"type":"DrainInProgress","status":"True"},{"type":"Drained","status":"True"}]}}`),
		)

		DescribeTable("rejects",
			func(resource, body, why string) {
				before := getNode("a")
				expectRejected(patch(manager, resource, body), why)
				Expect(getNode("a").ResourceVersion).To(Equal(before.ResourceVersion))
			},
			Entry("another field of spec", "nodes", `{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`, "only unschedulable and taints"),
			Entry("its provider", "nodes", `{"spec":{"providerID":"forged"}}`, "only unschedulable and taints"),
			Entry("the removal of another taint", "nodes", `{"spec":{"taints":[{"key":"tuning.storageclient.dev/untuned","effect":"NoSchedule"}]}}`,
				"only taints with the key tuning.storageclient.dev/untuned. If its flag --untuned-taint has another key"),
			Entry("the removal of all taints", "nodes", `{"spec":{"taints":null}}`, ". If its flag --untuned-taint"),
			Entry("another effect of a taint", "nodes", `{"spec":{"taints":[{"key":"tuning.storageclient.dev/untuned","effect":"NoSchedule"},
				{"key":"example.com/theirs","effect":"PreferNoSchedule"}]}}`, ". If its flag --untuned-taint"),
			Entry("another effect of the untuned taint", "nodes", `{"spec":{"taints":[{"key":"tuning.storageclient.dev/untuned","effect":"NoExecute"},
				{"key":"example.com/theirs","effect":"NoSchedule"}]}}`, ". If its flag --untuned-taint"),
			Entry("one more taint", "nodes", `{"spec":{"taints":[{"key":"tuning.storageclient.dev/untuned","effect":"NoSchedule"},
				{"key":"example.com/theirs","effect":"NoSchedule"},{"key":"example.com/new","effect":"NoExecute"}]}}`, ". If its flag --untuned-taint"),
			Entry("one more untuned taint", "nodes", `{"spec":{"taints":[{"key":"tuning.storageclient.dev/untuned","effect":"NoSchedule"},
				{"key":"tuning.storageclient.dev/untuned","effect":"NoExecute"},{"key":"example.com/theirs","effect":"NoSchedule"}]}}`, ". If its flag --untuned-taint"),
			Entry("another label", "nodes", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "in a Node's labels"),
			Entry("a label by way of status", "nodes/status", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "in a Node's labels"),
			Entry("another value of a label", "nodes", `{"metadata":{"labels":{"example.com/theirs":"y"}}}`, "in a Node's labels"),
			Entry("the removal of a label", "nodes", `{"metadata":{"labels":{"example.com/theirs":null}}}`, "in a Node's labels"),
			Entry("another annotation", "nodes", `{"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":"0"}}}`, "in a Node's annotations"),
			Entry("an annotation that only users set", "nodes", `{"metadata":{"annotations":{"tuning.storageclient.dev/never-disrupt":"false"}}}`, "in a Node's annotations"),
			Entry("another value of an annotation", "nodes", `{"metadata":{"annotations":{"example.com/theirs":"y"}}}`, "in a Node's annotations"),
			Entry("the removal of an annotation", "nodes/status", `{"metadata":{"annotations":{"example.com/theirs":null}}}`, "in a Node's annotations"),
			Entry("a finalizer", "nodes", `{"metadata":{"finalizers":["example.com/theirs","example.com/new"]}}`, "may not change owner references or finalizers"),
			Entry("the removal of a finalizer", "nodes", `{"metadata":{"finalizers":null}}`, "may not change owner references or finalizers"),
			Entry("the removal of an owner", "nodes", `{"metadata":{"ownerReferences":null}}`, "may not change owner references or finalizers"),
			Entry("its capacity", "nodes/status", `{"status":{"capacity":{"cpu":"1000"}}}`, "in a Node's status"),
			Entry("its addresses", "nodes/status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.2"}]}}`, "in a Node's status"),
			Entry("the removal of its addresses", "nodes/status", `{"status":{"addresses":null}}`, "in a Node's status"),
			Entry("its boot ID", "nodes/status", `{"status":{"nodeInfo":{"bootID":"forged"}}}`, "in a Node's status"),
			Entry("another condition", "nodes/status", `{"status":{"conditions":[{"type":"example.com/new","status":"True"}]}}`, "in a Node's conditions"),
			Entry("another status of Ready", "nodes/status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "in a Node's conditions"),
			Entry("the removal of Ready", "nodes/status", `{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`, "in a Node's conditions"),
		)

		It("uses another key of the taint if the policy has another", func() {
			DeferCleanup(func() {
				newNode("a").Taint(corev1.Taint{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}).Create()
				Eventually(func() error { return patch(manager, "nodes", `{"spec":{"taints":null}}`, client.DryRunAll) }).ShouldNot(Succeed())
				deleteNow(getNode("a"))
			})
			changeTemporarily(aPolicy, "storage-client-manager-nodes", `[{"op":"replace","path":"/spec/variables/0/expression","value":"'example.com/theirs'"}]`)
			untuned := `{"spec":{"taints":[{"key":"example.com/theirs","effect":"NoSchedule"}]}}`
			theirs := `{"spec":{"taints":[{"key":"tuning.storageclient.dev/untuned","effect":"NoSchedule"}]}}`
			Eventually(func() error { return patch(manager, "nodes", theirs, client.DryRunAll) }).Should(Succeed())
			expectRejected(patch(manager, "nodes", untuned), "only taints with the key example.com/theirs")
			Expect(patch(manager, "nodes", theirs)).To(Succeed())
		})

		It("can afford large Nodes", func() {
			metadata, spec, status := map[string]any{}, map[string]any{}, map[string]any{}
			labels, annotations := map[string]string{}, map[string]string{}
			for i := range 60 {
				if i < 50 {
					labels[fmt.Sprintf("example.com/label-with-a-long-name-%d", i)] = "a-value-of-some-length"
				}
				annotations[fmt.Sprintf("example.com/annotation-with-a-long-name-%d", i)] = fmt.Sprintf("%01000d", i)
			}
			var taints []corev1.Taint
			for i := range 20 {
				taints = append(taints, corev1.Taint{Key: fmt.Sprintf("example.com/taint-%d", i), Value: "value", Effect: corev1.TaintEffectNoSchedule})
			}
			taints = append(taints, corev1.Taint{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule})
			var conditions []corev1.NodeCondition
			for i := range 30 {
				conditions = append(conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprintf("example.com/Condition%d", i)),
					Status: corev1.ConditionTrue, Reason: "Reason", Message: fmt.Sprintf("%0500d", i)})
			}
			var images []corev1.ContainerImage
			for i := range 50 {
				images = append(images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/image-%d@sha256:%064d", i, i), fmt.Sprintf("registry.example.com/image-%d:v1", i)}})
			}
			metadata["labels"], metadata["annotations"], spec["taints"], status["conditions"], status["images"] = labels, annotations, taints, conditions, images
			Expect(patch(k8s, "nodes", toJSON(map[string]any{"metadata": metadata, "spec": spec}))).To(Succeed())
			Expect(patch(k8s, "nodes/status", toJSON(map[string]any{"status": status}))).To(Succeed())

			By("a cordon that also removes a taint")
			Expect(patch(manager, "nodes", toJSON(map[string]any{
				"metadata": map[string]any{"annotations": map[string]string{v1alpha1.DisruptionAnnotation: "{}"}},
				"spec":     map[string]any{"unschedulable": true, "taints": taints[:20]},
			}))).To(Succeed())
			By("a condition")
			Expect(patch(manager, "nodes/status", `{"status":{"conditions":[{"type":"Drained","status":"True"}]}}`)).To(Succeed())
			Expect(patch(manager, "nodes/status", `{"status":{"conditions":[{"type":"Drained","$patch":"delete"}]}}`)).To(Succeed())
		})
	})

	Context("on PersistentVolumes", func() {
		BeforeEach(func() {
			newVolume("a").Options("hard").Label("example.com/theirs", "x").Annotate("example.com/theirs", "x").Claim("default", "data").Create()
			Expect(patch(k8s, "persistentvolumes", `{"metadata":{"finalizers":["example.com/theirs"],"ownerReferences":[`+anOwner+`]}}`)).To(Succeed())
		})

		DescribeTable("admits",
			func(body string) { Expect(patch(manager, "persistentvolumes", body)).To(Succeed()) },
			Entry("options with all records", `{"spec":{"mountOptions":["hard","nocto"]},"metadata":{"annotations":{
				"tuning.storageclient.dev/original-mount-options":"[]","tuning.storageclient.dev/applied-mount-options":"[]","tuning.storageclient.dev/profiles":"p",
				"tuning.storageclient.dev/mount-options-step":"{}","tuning.storageclient.dev/failed-mount-options":"{}"}}}`),
			Entry("no options", `{"spec":{"mountOptions":null}}`),
		)

		DescribeTable("rejects",
			func(body, why string) { expectRejected(patch(manager, "persistentvolumes", body), why) },
			Entry("its reclaim policy", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`, "only mountOptions"),
			Entry("another claim", `{"spec":{"claimRef":{"namespace":"mine","name":"data"}}}`, "only mountOptions"),
			Entry("the removal of its claim", `{"spec":{"claimRef":null}}`, "only mountOptions"),
			Entry("its size", `{"spec":{"capacity":{"storage":"2Gi"}}}`, "only mountOptions"),
			Entry("its node affinity", `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}}}`, "only mountOptions"),
			Entry("another annotation", `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"x"}}}`, "in a PersistentVolume's annotations"),
			Entry("an annotation that only users set", `{"metadata":{"annotations":{"tuning.storageclient.dev/ignore":"true"}}}`, "in a PersistentVolume's annotations"),
			Entry("another value of an annotation", `{"metadata":{"annotations":{"example.com/theirs":"y"}}}`, "in a PersistentVolume's annotations"),
			Entry("the removal of an annotation", `{"metadata":{"annotations":{"example.com/theirs":null}}}`, "in a PersistentVolume's annotations"),
			Entry("a label", `{"metadata":{"labels":{"example.com/new":"x"}}}`, "may not change labels, owner references or finalizers"),
			Entry("the removal of a finalizer", `{"metadata":{"finalizers":null}}`, "may not change labels, owner references or finalizers"),
			Entry("the removal of an owner", `{"metadata":{"ownerReferences":null}}`, "may not change labels, owner references or finalizers"),
		)
	})

	Context("on StorageClientNodes", func() {
		BeforeEach(func() {
			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"example.com/theirs": "x"}}}
			Expect(k8s.Create(ctx, object)).To(Succeed())
			Expect(patch(k8s, "storageclientnodes", `{"metadata":{"ownerReferences":[`+anOwner+`]}}`)).To(Succeed())
			Expect(report(k8s, "a")).To(Succeed())
		})

		It("admits creation, deletion, spec and the note", func() {
			Expect(patch(manager, "storageclientnodes", `{"spec":{"release":true,"rebootPermit":{"id":"1","bootID":"boot-1"}}}`)).To(Succeed())
			Expect(patch(manager, "storageclientnodes/status", `{"status":{"rollout":{"phase":"Waiting","attempts":1}}}`)).To(Succeed())
			Expect(patch(manager, "storageclientnodes/status", `{"status":{"rollout":null}}`)).To(Succeed())
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "b", UID: newNode("b").Create().UID}
			Expect(manager.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "b", OwnerReferences: []metav1.OwnerReference{owner}}})).To(Succeed())
			Expect(manager.Delete(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "b"}})).To(Succeed())
		})

		DescribeTable("rejects",
			func(resource, body, why string) { expectRejected(patch(manager, resource, body), why) },
			Entry("the hash of the agent's report", "storageclientnodes/status", `{"status":{"hash":"forged"}}`, "only rollout"),
			Entry("a field that the agent has not reported", "storageclientnodes/status", `{"status":{"restored":true}}`, "only rollout"),
			Entry("the removal of a field that the agent has reported", "storageclientnodes/status", `{"status":{"bootID":null}}`, "only rollout"),
			Entry("a label", "storageclientnodes", `{"metadata":{"labels":{"example.com/theirs":"y"}}}`, "may not change labels, annotations, owner references or finalizers"),
			Entry("an annotation", "storageclientnodes", `{"metadata":{"annotations":{"a":"b"}}}`, "may not change labels, annotations, owner references or finalizers"),
			Entry("the removal of an owner", "storageclientnodes", `{"metadata":{"ownerReferences":null}}`, "may not change labels, annotations, owner references or finalizers"),
			Entry("a finalizer", "storageclientnodes", `{"metadata":{"finalizers":["example.com/new"]}}`, "may not change labels, annotations, owner references or finalizers"),
		)
	})

	Context("on profiles", func() {
		BeforeEach(func() {
			profile := newProfile("a").Annotate("example.com/theirs", "x").Build()
			profile.Finalizers = []string{"example.com/theirs"}
			Expect(k8s.Create(ctx, profile)).To(Succeed())
		})

		It("admits status and our finalizer", func() {
			Expect(patch(manager, "storageclientprofiles", `{"metadata":{"finalizers":["example.com/theirs","tuning.storageclient.dev/restore"]}}`)).To(Succeed())
			Expect(patch(manager, "storageclientprofiles/status", `{"status":{"observedGeneration":1}}`)).To(Succeed())
			Expect(patch(manager, "storageclientprofiles", `{"metadata":{"finalizers":["example.com/theirs"]}}`)).To(Succeed())
		})

		DescribeTable("rejects",
			func(body, why string) { expectRejected(patch(manager, "storageclientprofiles", body), why) },
			// The policy on approvals rejects these too; the API server may name either policy.
			Entry("an approval by annotation", `{"metadata":{"annotations":{"tuning.storageclient.dev/approved-plan":"0123"}}}`, "ValidatingAdmissionPolicy 'storage-client-"),
			Entry("an approval in spec", `{"spec":{"rollout":{"reboot":{"approvedPlan":"0123"}}}}`, "ValidatingAdmissionPolicy 'storage-client-"),
			Entry("a pause in spec", `{"spec":{"paused":true}}`, "may not change the spec"),
			Entry("its node selector", `{"spec":{"allNodes":null,"nodeSelector":{"matchLabels":{"a":"b"}}}}`, "may not change the spec"),
			Entry("the removal of an annotation", `{"metadata":{"annotations":{"example.com/theirs":null}}}`, "may not change labels, annotations or owner references"),
			Entry("a label", `{"metadata":{"labels":{"a":"b"}}}`, "may not change labels, annotations or owner references"),
			Entry("an owner", `{"metadata":{"ownerReferences":[`+anOwner+`]}}`, "may not change labels, annotations or owner references"),
			Entry("another finalizer", `{"metadata":{"finalizers":["example.com/theirs","example.com/new"]}}`, "finalizers, the manager may change only tuning.storageclient.dev/restore"),
			Entry("the removal of another finalizer", `{"metadata":{"finalizers":null}}`, "finalizers, the manager may change only tuning.storageclient.dev/restore"),
		)
	})

	Context("on ConfigMaps", func() {
		configMap := func(namespace, name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"a": "b"}}
		}

		// Roles do not matter here: only the policy is tested.
		BeforeEach(func() {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: "all-configmaps"}}
			role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"update"}}}
			binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
			binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}
			for _, object := range []client.Object{role, binding} {
				Expect(k8s.Create(ctx, object)).To(Succeed())
				DeferCleanup(func() { deleteNow(object) })
			}
			Eventually(func() error {
				return manager.Update(ctx, configMap(v1alpha1.ManagerNamespace, "storage-client-rollout"))
			}).Should(MatchError(apierrors.IsNotFound, "the role is known"))
		})

		DescribeTable("admits",
			func(name string) {
				object := configMap(v1alpha1.ManagerNamespace, name)
				Expect(manager.Create(ctx, object)).To(Succeed())
				object.Data["a"] = "c"
				Expect(manager.Update(ctx, object)).To(Succeed())
			},
			Entry("the budget", "storage-client-rollout"),
			Entry("failures", "storage-client-failures"),
			Entry("volumes", "storage-client-volumes-0"),
			Entry("many volumes", "storage-client-volumes-217"),
			Entry("the reservation of a canary", "storage-client-canary-0123456789abcdef"),
		)

		DescribeTable("rejects",
			func(name string) {
				object := configMap(v1alpha1.ManagerNamespace, name)
				expectRejected(manager.Create(ctx, object), "the manager may write only the ConfigMaps")
				Expect(k8s.Create(ctx, object)).To(Succeed())
				object.Data["a"] = "c"
				expectRejected(manager.Update(ctx, object), "the manager may write only the ConfigMaps")
			},
			Entry("another ConfigMap", "theirs"),
			Entry("a longer name", "storage-client-rollout-2"),
			Entry("volumes without a number", "storage-client-volumes-x"),
			Entry("a reservation without a hash", "storage-client-canary"),
			Entry("a reservation with more than a hash", "storage-client-canary-0a.x"),
			Entry("volumes with more than a number", "storage-client-volumes-1-x"),
			Entry("a name with the same suffix", "x-storage-client-volumes-1"),
		)

		It("lets it delete only reservations of canaries", func() {
			reservation := configMap(v1alpha1.ManagerNamespace, "storage-client-canary-0123456789abcdef")
			Expect(manager.Create(ctx, reservation)).To(Succeed())
			Expect(manager.Delete(ctx, reservation)).To(Succeed())
			for _, name := range []string{"storage-client-rollout", "storage-client-volumes-0", "theirs"} {
				object := configMap(v1alpha1.ManagerNamespace, name)
				Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, object))).To(Succeed())
				expectRejected(manager.Delete(ctx, object), "delete only the last")
			}
		})
	})

	Context("when it has all rights", func() {
		BeforeEach(func() {
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "too-much-for-the-manager"}}
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
			binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}
			Expect(k8s.Create(ctx, binding)).To(Succeed())
			DeferCleanup(func() { deleteNow(binding) })
			Eventually(func() error { return manager.List(ctx, &corev1.SecretList{}) }).Should(Succeed())
		})

		It("is still rejected", func() {
			profile := newProfile("a").Build()
			expectRejected(manager.Create(ctx, profile), "may not create or delete a StorageClientProfile")
			Expect(k8s.Create(ctx, profile.DeepCopy())).To(Succeed())
			expectRejected(manager.Delete(ctx, profile), "may not create or delete a StorageClientProfile")
			newVolume("a").Create()
			expectRejected(patch(manager, "persistentvolumes/status", `{"status":{"phase":"Failed"}}`), "the status of a PersistentVolume")
			otherNamespace := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.BudgetConfigMap}}
			expectRejected(manager.Create(ctx, otherNamespace), "the manager may write only the ConfigMaps")
		})
	})

	It("does not affect other users", func() {
		newNode("a").Create()
		newVolume("a").Create()
		newProfile("a").Create()
		Expect(k8s.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
		for resource := range kinds {
			Expect(patch(k8s, resource, `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`)).To(Succeed(), resource)
		}
	})
})

const anOwner = `{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"u"}`

// kinds maps the resources that patch supports to their types.
var kinds = map[string]client.Object{
	"nodes": &corev1.Node{}, "persistentvolumes": &corev1.PersistentVolume{},
	"storageclientnodes": &v1alpha1.StorageClientNode{}, "storageclientprofiles": &v1alpha1.StorageClientProfile{},
}

// patch patches the object "a": a strategic merge for Nodes, as in much of the manager's code, and a merge patch for the others.
func patch(c client.Client, resource, body string, options ...client.PatchOption) error {
	name, status := strings.CutSuffix(resource, "/status")
	object := kinds[name].DeepCopyObject().(client.Object)
	object.SetName("a")
	kind := types.MergePatchType
	if _, node := object.(*corev1.Node); node && status {
		kind = types.StrategicMergePatchType
	}
	change := client.RawPatch(kind, []byte(body))
	if !status {
		return c.Patch(ctx, object, change, options...)
	}
	return c.Status().Patch(ctx, object, change)
}

// awaitManagerPolicies waits until the API server has compiled the policies and seen the manager's roles.
func awaitManagerPolicies(manager client.Client) {
	GinkgoHelper()
	Eventually(func() error { return manager.List(ctx, &v1alpha1.StorageClientProfileList{}) }).Should(Succeed())
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: "theirs"}}
	Eventually(func() error { return manager.Create(ctx, theirs.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("denied request")))
}

func toJSON(value any) string {
	GinkgoHelper()
	data, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}
