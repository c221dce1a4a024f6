package integration

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/trial"
	"github.com/storageclient/operator/test/patience"
)

var _ = Describe("The shape of a sample", func() {
	const good = `id: a, seconds: 60, volumes: [pv-1], startBefore: "2026-09-01T12:00:00Z"`
	replace := func(old, by string) string { return "sample: {" + strings.Replace(good, old, by, 1) + "}" }

	DescribeTable("is rejected in spec, and the error names the field, for",
		func(old, by, field string) {
			expectInvalid(createShape("StorageClientNode", replace(old, by)), field)
		},
		Entry("no id", "id: a, ", "", "spec.sample.id"),
		Entry("an id with other characters", "id: a", "id: a/b", "spec.sample.id"),
		Entry("an id that is too long", "id: a", "id: "+strings.Repeat("a", 65), "spec.sample.id"),
		Entry("a window that is too short", "60", "9", "spec.sample.seconds"),
		Entry("a window that is too long", "60", "3601", "spec.sample.seconds"),
		Entry("no window", "seconds: 60, ", "", "spec.sample.seconds"),
		Entry("no volume", "[pv-1]", "[]", "spec.sample.volumes"),
		Entry("an invalid volume name", "pv-1", "../etc", "spec.sample.volumes[0]"),
		Entry("more than 8 volumes", "pv-1", list(9, "pv-%d"), "spec.sample.volumes"),
		Entry("a volume twice", "pv-1", "pv-1, pv-1", "spec.sample.volumes"),
	)

	It("accepts 8 volumes and an hour, and needs no start time", func() {
		Expect(createShape("StorageClientNode", replace(`, startBefore: "2026-09-01T12:00:00Z"`, ""))).To(Succeed())
		Expect(createShape("StorageClientNode", replace("60, volumes: [pv-1]", "3600, volumes: ["+list(8, "pv-%d")+"]"))).To(Succeed())
	})

	DescribeTable("is rejected in status, and the error names the field, for",
		func(status, field string) {
			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "shape"}}
			Expect(k8s.Create(ctx, object)).To(Succeed())
			write := func(status string) error {
				return k8s.Status().Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"rebootRequired":false,"sample":`+status+`}}`)))
			}
			Expect(write(`{"id":"a","phase":"Finished","mounts":[{"mountPoint":"/a","volume":"v","operations":[{"name":"READ","count":1}]}]}`)).To(Succeed())
			expectInvalid(write(status), field)
		},
		Entry("no id", `{"id":"","phase":"Running"}`, "status.sample.id"),
		Entry("an unknown phase", `{"id":"a","phase":"Done"}`, "status.sample.phase"),
		Entry("a long message", `{"id":"a","phase":"Failed","message":"`+strings.Repeat("x", 1025)+`"}`, "status.sample.message"),
		Entry("more than 32 mounts", `{"id":"a","phase":"Finished","mounts":[`+list(33, `{"mountPoint":"/%d","volume":"v"}`)+`]}`, "status.sample.mounts"),
		Entry("a mount of no volume", `{"id":"a","phase":"Finished","mounts":[{"mountPoint":"/a"}]}`, "status.sample.mounts[0].volume"),
		Entry("a mount point twice", `{"id":"a","phase":"Finished","mounts":[{"mountPoint":"/a","volume":"v"},{"mountPoint":"/a","volume":"v"}]}`, "status.sample.mounts[1]"),
		Entry("more than 80 kinds of operations", `{"id":"a","phase":"Finished","mounts":[{"mountPoint":"/a","volume":"v","operations":[`+list(81, `{"name":"O%d"}`)+`]}]}`,
			"status.sample.mounts[0].operations"),
		Entry("more than 48 options", `{"id":"a","phase":"Finished","mounts":[{"mountPoint":"/a","volume":"v","options":[`+list(49, `"o%d"`)+`]}]}`, "status.sample.mounts[0].options"),
		Entry("a counter that ran backwards", `{"id":"a","phase":"Finished","mounts":[{"mountPoint":"/a","volume":"v","requests":-1}]}`, "status.sample.mounts[0].requests"),
	)
})

// Manager, agent and user have the credentials and roles of a real cluster, under all policies. The agent's counters are made up.
var _ = Describe("A trial that observes", func() {
	const node, user, namespace = "a", "erin", "default"
	var reconciler *trial.Reconciler
	var agent client.Client
	var erin client.WithWatch
	var clock *testclock.FakeClock

	pass := func() {
		GinkgoHelper()
		_, err := reconciler.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		clock.Step(2 * time.Second)
	}
	// respond has the agent see the request and report this number of GETATTR operations.
	respond := func(phase v1alpha1.SamplePhase, getattrs int64) {
		GinkgoHelper()
		Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			object := &v1alpha1.StorageClientNode{}
			if err := agent.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
				return err
			}
			object.Status.ObservedGeneration, object.Status.Sample = object.Generation, nil
			if requested := object.Spec.Sample; requested != nil {
				object.Status.Sample = &v1alpha1.NodeSampleStatus{ID: requested.ID, Phase: phase, Milliseconds: 60000}
				if phase == v1alpha1.SampleFinished {
					object.Status.Sample.Mounts = []v1alpha1.MountSample{{
						MountPoint: "/m", Volume: "pv", Server: "filer", Export: "/pv", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"}, Events: v1alpha1.EventSample{Listings: 35},
						Operations: []v1alpha1.OperationSample{{Name: "GETATTR", Count: getattrs, BytesSent: 200 * getattrs, BytesReceived: 200 * getattrs, RoundTripMillis: getattrs}},
					}}
				}
			}
			return agent.Status().Update(ctx, object)
		})).To(Succeed())
	}
	trials := func() []v1alpha1.StorageClientTrial {
		GinkgoHelper()
		var list v1alpha1.StorageClientTrialList
		Expect(k8s.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		return list.Items
	}
	grant := func(name string, rule rbacv1.PolicyRule) {
		GinkgoHelper()
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{rule}}
		binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
		for _, object := range []client.Object{role, binding} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func() { deleteNow(object) })
		}
	}

	BeforeEach(func() {
		installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml")
		manager := clientFor(managerConfig())
		awaitManagerPolicies(manager)
		clock = testclock.NewFakeClock(time.Now())
		reconciler = &trial.Reconciler{
			Client: cached(manager), Clock: clock, Results: &trial.Results{Clock: clock},
		}
		owner := newNode(node).Create()
		agent = clientWithToken(tokenFor(agentPod(node)))
		object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID},
		}}}
		Expect(k8s.Create(ctx, object)).To(Succeed())
		agentReports(node, func(s *v1alpha1.StorageClientNodeStatus) {
			s.Mounts = []v1alpha1.MountStatus{{MountPoint: "/m", Volume: "pv", Server: "filer", Protocol: "NFSv4.1"}}
		})
		volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tools", Labels: map[string]string{"role": "tools"}}}
		volumeClaim.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeName: "pv",
			Resources: corev1.VolumeResourceRequirements{Requests: newVolume("pv").volume.Spec.Capacity},
		}
		Expect(k8s.Create(ctx, volumeClaim)).To(Succeed())
		volumeClaim.Status.Phase = corev1.ClaimBound
		Expect(k8s.Status().Update(ctx, volumeClaim)).To(Succeed())
		pv := newVolume("pv").Claim(namespace, "tools")
		pv.volume.Spec.ClaimRef.UID = volumeClaim.UID
		bound := pv.Create()
		bound.Status.Phase = corev1.VolumeBound
		Expect(k8s.Status().Update(ctx, bound)).To(Succeed())
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "trials-" + user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "storage-client-trial-editor"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
		Expect(k8s.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func() { deleteNow(binding) })
		config := rest.CopyConfig(restConfig)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		erin = clientFor(config)
		// The authorizer needs a moment to see a binding.
		Eventually(func() error { return erin.List(ctx, &v1alpha1.StorageClientTrialList{}, client.InNamespace(namespace)) }).Should(Succeed())
	})

	It("queries the agent and recommends based on its response, for a user who may only create trials", func() {
		before := findObject(node)
		object := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "t-"}}
		object.Spec = v1alpha1.StorageClientTrialSpec{ClaimName: "tools", Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadObserve}}
		Expect(erin.Create(ctx, object)).To(Succeed())
		pass()
		pass()
		requested := findObject(node)
		Expect(requested.Spec.Sample).NotTo(BeNil())
		Expect(requested.Spec.Sample.ID).To(Equal(string(object.UID)))
		Expect(requested.Spec.Sample.Volumes).To(Equal([]string{"pv"}))
		Expect(requested.Spec.Sample.Seconds).To(BeEquivalentTo(60))
		requested.Spec.Sample = nil
		Expect(requested.Spec).To(Equal(before.Spec), "only the sample may be written")
		Expect(getNode(node).Labels).NotTo(HaveKey(v1alpha1.TrialLabel), "observing must not mount the volume")

		By("The agent writes only the sample of its own node; a write by the manager is rejected")
		respond(v1alpha1.SampleFinished, 16387)
		expectRejected(agent.Patch(ctx, requested.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sample":null}}`))),
			"cannot patch resource")
		expectRejected(reconciler.Status().Patch(ctx, requested.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"sample":null}}`))),
			"in a StorageClientNode's status, the manager may change only rollout")
		pass()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.TrialConditionComplete)).To(BeTrue(), "%+v", object.Status.Conditions)
		Expect(object.Status.Verdict).To(BeEmpty())
		Expect(object.Status.Recommendations).To(HaveLen(1))
		Expect(object.Status.Recommendations[0].Options).To(Equal([]string{"acregmin=30"}))
		Expect(object.Status.Samples[0].Mounts[0].Operations[0].Count).To(BeEquivalentTo(16387))

		By("During a rollout the request is unchanged, and no node is queried after the end")
		annotateNode := func(value any) {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.DisruptionAnnotation: value}}})
			Expect(err).NotTo(HaveOccurred())
			Expect(k8s.Patch(ctx, getNode(node), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		annotateNode("{}")
		pass()
		Expect(findObject(node).Spec.Sample).NotTo(BeNil())
		annotateNode(nil)
		Eventually(func(g Gomega) {
			pass()
			g.Expect(findObject(node).Spec.Sample).To(BeNil())
		}).Should(Succeed())
		respond(v1alpha1.SampleFinished, 0)
		Expect(findObject(node).Status.Sample).To(BeNil())
		Expect(erin.Delete(ctx, object)).To(Succeed())
	})

	Context("by the plugin", func() {
		// as runs manager and agent until the plugin has finished.
		as := func(getattrs int64) (stdout, stderr string, err error) {
			GinkgoHelper()
			cmd := exec.CommandContext(ctx, buildPlugin(), "recommend", "tools", "-n", namespace, "--kubeconfig", kubeconfig(), "--as", user)
			out, complaints := &lockedBuffer{}, &lockedBuffer{}
			cmd.Stdout, cmd.Stderr = out, complaints
			Expect(cmd.Start()).To(Succeed())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			Eventually(func(g Gomega) {
				pass()
				respond(v1alpha1.SampleFinished, getattrs)
				g.Expect(ended).To(Receive(&err))
			}).WithTimeout(patience.Of(time.Minute)).Should(Succeed())
			Expect(trials()).To(BeEmpty())
			return out.String(), complaints.String(), err
		}
		// proposed returns the only profile in the output.
		proposed := func(stdout string) *unstructured.Unstructured {
			GinkgoHelper()
			_, document, _ := strings.Cut(stdout, "\n---\n")
			profiles := parseManifests([]byte(document))
			Expect(profiles).To(HaveLen(1))
			return profiles[0]
		}

		It("ends with profiles that the API server accepts", func() {
			By("A user who may only create trials gets a new profile with a list of unknown facts")
			stdout, stderr, err := as(16387)
			Expect(err).NotTo(HaveOccurred(), stderr)
			Expect(stderr).To(ContainSubstring("A client setting helps: acregmin=30"))
			Expect(stdout).To(ContainSubstring("AttributeRevalidation (Client)"))
			Expect(stdout).To(ContainSubstring("No permission to read the PersistentVolumeClaim"))
			profile := proposed(stdout)
			Expect(profile.GetName()).To(Equal("recommended-default-tools"))
			Expect(k8s.Create(ctx, profile, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())

			By("The profile that selects a volume is changed, for a user who may view both")
			newProfile("nfs").Volumes(v1alpha1.VolumeRule{Name: "all", MountOptions: []v1alpha1.MountOption{"nconnect=4"},
				Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}).Create()
			grant("claims", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get"}})
			bindUser(user, "storage-client-viewer")
			Eventually(func() error {
				return errors.Join(erin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tools"}, &corev1.PersistentVolumeClaim{}),
					erin.List(ctx, &v1alpha1.StorageClientProfileList{}))
			}).Should(Succeed())
			stdout, stderr, err = as(16387)
			Expect(err).NotTo(HaveOccurred(), stderr)
			profile = proposed(stdout)
			Expect(profile.GetName()).To(Equal("nfs"))
			Expect(k8s.Patch(ctx, profile, client.Apply, client.FieldOwner("kubectl"), client.ForceOwnership)).To(Succeed()) //nolint:staticcheck // as kubectl apply --server-side
			Expect(findProfile("nfs").Spec.Volumes[0].MountOptions).To(Equal([]v1alpha1.MountOption{"acregmin=30", "nconnect=4"}))

			By("A small workload gives few recommendations, and a node clears a finished request")
			stdout, _, err = as(5)
			Expect(err).NotTo(HaveOccurred())
			Expect(stdout).To(ContainSubstring("Too few operations"))
			Eventually(func(g Gomega) {
				pass()
				respond(v1alpha1.SampleFinished, 0)
				g.Expect(findObject(node).Spec.Sample).To(BeNil())
				g.Expect(findObject(node).Status.Sample).To(BeNil())
			}).WithTimeout(patience.Of(time.Minute)).Should(Succeed())
		})

		It("leaves nothing behind after Ctrl-C", func() {
			complaints := &lockedBuffer{}
			cmd := exec.CommandContext(ctx, buildPlugin(), "recommend", "tools", "-n", namespace, "--kubeconfig", kubeconfig(), "--as", user)
			cmd.Stderr = complaints
			Expect(cmd.Start()).To(Succeed())
			Eventually(trials).WithTimeout(patience.Of(time.Minute)).Should(HaveLen(1))
			Eventually(func(g Gomega) {
				pass()
				g.Expect(findObject(node).Spec.Sample).NotTo(BeNil())
			}).WithTimeout(patience.Of(time.Minute)).Should(Succeed())
			respond(v1alpha1.SampleRunning, 0)
			Eventually(func() string {
				pass()
				return complaints.String()
			}).WithTimeout(patience.Of(time.Minute)).WithPolling(time.Second).Should(ContainSubstring("Counting on " + node))
			Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
			Expect(cmd.Wait()).To(HaveOccurred())
			Expect(complaints.String()).To(ContainSubstring("interrupted before the trial finished"))
			Expect(trials()).To(BeEmpty())
			Eventually(func(g Gomega) {
				pass()
				g.Expect(findObject(node).Spec.Sample).To(BeNil())
			}).WithTimeout(patience.Of(time.Minute)).Should(Succeed())
		})
	})
})

// bindUser gives a user a role in the whole cluster.
func bindUser(user, role string) {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func() { deleteNow(binding) })
}
