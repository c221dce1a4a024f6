package integration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/sample"
)

var _ = Describe("The shape of a sample", func() {
	const good = `id: a, seconds: 60, volumes: [pv-1], startBefore: "2026-09-01T12:00:00Z"`
	replace := func(old, by string) string { return "sample: {" + strings.Replace(good, old, by, 1) + "}" }

	DescribeTable("is refused in spec, and the error names the field, for",
		func(old, by, field string) {
			expectInvalid(createShape("StorageClientNode", replace(old, by)), field)
		},
		Entry("no id", "id: a, ", "", "spec.sample.id"),
		Entry("an id that holds more", "id: a", "id: a/b", "spec.sample.id"),
		Entry("an id that is too long", "id: a", "id: "+strings.Repeat("a", 65), "spec.sample.id"),
		Entry("a window that is too short", "60", "9", "spec.sample.seconds"),
		Entry("a window that is too long", "60", "3601", "spec.sample.seconds"),
		Entry("no window", "seconds: 60, ", "", "spec.sample.seconds"),
		Entry("no volume", "[pv-1]", "[]", "spec.sample.volumes"),
		Entry("a volume that is none", "pv-1", "../etc", "spec.sample.volumes[0]"),
		Entry("more than 8 volumes", "pv-1", list(9, "pv-%d"), "spec.sample.volumes"),
		Entry("a volume twice", "pv-1", "pv-1, pv-1", "spec.sample.volumes"),
	)

	It("holds 8 volumes and an hour, and needs no time to begin", func() {
		Expect(createShape("StorageClientNode", replace(`, startBefore: "2026-09-01T12:00:00Z"`, ""))).To(Succeed())
		Expect(createShape("StorageClientNode", replace("60, volumes: [pv-1]", "3600, volumes: ["+list(8, "pv-%d")+"]"))).To(Succeed())
	})

	DescribeTable("is refused in status, and the error names the field, for",
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

// Manager, agent and user have the credentials and roles that a cluster gives them, under all policies. The agent's counters are made up.
var _ = Describe("A sample", func() {
	const node, user, namespace = "a", "erin", "default"
	var reconciler *sample.Reconciler
	var agent client.Client
	var volumeClaim *corev1.PersistentVolumeClaim

	pass := func() {
		GinkgoHelper()
		_, err := reconciler.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
	}
	// answer has the agent see what it is asked, and answer that with as many GETATTR.
	answer := func(phase v1alpha1.SamplePhase, getattrs int64) {
		GinkgoHelper()
		Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			object := &v1alpha1.StorageClientNode{}
			if err := agent.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
				return err
			}
			object.Status.ObservedGeneration, object.Status.Sample = object.Generation, nil
			if asked := object.Spec.Sample; asked != nil {
				object.Status.Sample = &v1alpha1.NodeSampleStatus{ID: asked.ID, Phase: phase, Milliseconds: 60000}
				if phase == v1alpha1.SampleFinished {
					object.Status.Sample.Mounts = []v1alpha1.MountSample{{
						MountPoint: "/m", Volume: "pv", Server: "filer", Export: "/pv", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"},
						Operations: []v1alpha1.OperationSample{{Name: "GETATTR", Count: getattrs, BytesSent: 200 * getattrs, BytesReceived: 200 * getattrs, RoundTripMillis: getattrs}},
					}}
				}
			}
			return agent.Status().Update(ctx, object)
		})).To(Succeed())
	}
	asks := func() string {
		GinkgoHelper()
		live := &corev1.PersistentVolumeClaim{}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(volumeClaim), live)).To(Succeed())
		return live.Annotations[v1alpha1.SampleAnnotation]
	}

	BeforeEach(func() {
		installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml")
		manager := clientFor(managerConfig())
		awaitManagerPolicies(manager)
		reconciler = &sample.Reconciler{Client: cached(manager), Clock: clock.RealClock{}, ManagerNamespace: v1alpha1.ManagerNamespace, AgentNamespace: v1alpha1.AgentNamespace}
		owner := newNode(node).Create()
		agent = clientWithToken(tokenFor(agentPod(node)))
		object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID},
		}}}
		Expect(k8s.Create(ctx, object)).To(Succeed())
		agentReports(node, func(s *v1alpha1.StorageClientNodeStatus) {
			s.Mounts = []v1alpha1.MountStatus{{MountPoint: "/m", Volume: "pv", Server: "filer", Protocol: "NFSv4.1"}}
		})
		volumeClaim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tools", Labels: map[string]string{"role": "tools"}}}
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
		// The rule that the plugin names; nobody aggregates the role edit here.
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sample-" + user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "patch"}},
		}}
		binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
		for _, object := range []client.Object{role, binding} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func() { deleteNow(object) })
		}
		// The authorizer takes a moment to see a binding.
		config := rest.CopyConfig(restConfig)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		erin := clientFor(config)
		Eventually(func() error {
			return erin.Get(ctx, client.ObjectKeyFromObject(volumeClaim), &corev1.PersistentVolumeClaim{})
		}).Should(Succeed())
	})

	It("is asked for on a PersistentVolumeClaim, handed on by the manager, answered by the agent, and gone with the request", func() {
		request := v1alpha1.SampleRequest{ID: "r1", Seconds: 60, Nodes: []string{node}, Until: metav1.NewTime(time.Now().Add(2 * time.Minute))}
		before := findObject(node)
		metav1.SetMetaDataAnnotation(&volumeClaim.ObjectMeta, v1alpha1.SampleAnnotation, request.Encode())
		Expect(k8s.Update(ctx, volumeClaim)).To(Succeed())
		pass()
		asked := findObject(node)
		Expect(asked.Spec.Sample).NotTo(BeNil())
		Expect(asked.Spec.Sample.ID).To(Equal(string(volumeClaim.UID) + "-r1"))
		Expect(asked.Spec.Sample.Volumes).To(Equal([]string{"pv"}))
		Expect(asked.Spec.Sample.Seconds).To(BeEquivalentTo(60))
		asked.Spec.Sample = nil
		Expect(asked.Spec).To(Equal(before.Spec), "nothing else is written")

		By("The agent answers of its own node, and writes nothing else of it")
		answer(v1alpha1.SampleFinished, 16387)
		Expect(findObject(node).Status.Sample.Mounts).To(HaveLen(1))
		expectRefused(agent.Patch(ctx, asked.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sample":null}}`))), "cannot patch resource")

		By("The manager's answer is refused")
		expectRefused(reconciler.Status().Patch(ctx, asked.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"sample":null}}`))),
			"of a StorageClientNode's status, the manager may change rollout only")

		By("The rollout's hold keeps the request as it is")
		annotateNode := func(value any) {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.DisruptionAnnotation: value}}})
			Expect(err).NotTo(HaveOccurred())
			Expect(k8s.Patch(ctx, getNode(node), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		annotateNode("{}")
		Expect(k8s.Delete(ctx, volumeClaim, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(k8s.Patch(ctx, volumeClaim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Or(Succeed(), MatchError(ContainSubstring("not found"))))
		reconciler.Clock = later{time.Second * 5}
		pass()
		Expect(findObject(node).Spec.Sample).NotTo(BeNil())
		annotateNode(nil)
		reconciler.Clock = later{time.Second * 10}
		pass()
		Expect(findObject(node).Spec.Sample).To(BeNil())
		answer(v1alpha1.SampleFinished, 0)
		Expect(findObject(node).Status.Sample).To(BeNil())
	})

	Context("by the plugin", func() {
		// as lets manager and agent work until the plugin has ended.
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
				answer(v1alpha1.SampleFinished, getattrs)
				g.Expect(ended).To(Receive(&err))
			}).WithTimeout(time.Minute).Should(Succeed())
			return out.String(), complaints.String(), err
		}

		It("ends with profiles that the API server takes, for who may edit the namespace and view what is ours", func() {
			By("Without the right to view client nodes it names the rule")
			_, stderr, err := as(0)
			Expect(err).To(HaveOccurred())
			Expect(stderr).To(ContainSubstring(`{apiGroups: ["tuning.storageclient.dev"], resources: [storageclientnodes], verbs: [get, list]}`))

			bindUser(user, "storage-client-viewer")
			Eventually(func() string {
				_, stderr, _ := as(16387)
				return stderr
			}).WithTimeout(time.Minute).ShouldNot(ContainSubstring("forbidden"))
			stdout, stderr, err := as(16387)
			Expect(err).NotTo(HaveOccurred(), stderr)
			Expect(stdout).To(ContainSubstring("AttributeRevalidation (Client)"))
			Expect(asks()).To(BeEmpty())
			_, document, _ := strings.Cut(stdout, "\n---\n")
			proposed := parseManifests([]byte(document))
			Expect(proposed).To(HaveLen(1))
			Expect(proposed[0].GetName()).To(Equal("recommended-default-tools"))
			Expect(k8s.Create(ctx, proposed[0].DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())

			By("Of a volume that a profile selects, that profile is changed")
			newProfile("nfs").Volumes(v1alpha1.VolumeRule{Name: "all", MountOptions: []v1alpha1.MountOption{"nconnect=4"},
				Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}).Create()
			stdout, stderr, err = as(16387)
			Expect(err).NotTo(HaveOccurred(), stderr)
			_, document, _ = strings.Cut(stdout, "\n---\n")
			proposed = parseManifests([]byte(document))
			Expect(proposed).To(HaveLen(1))
			Expect(proposed[0].GetName()).To(Equal("nfs"))
			Expect(k8s.Patch(ctx, proposed[0], client.Apply, client.FieldOwner("kubectl"), client.ForceOwnership)).To(Succeed()) //nolint:staticcheck // as kubectl apply --server-side
			Expect(findProfile("nfs").Spec.Volumes[0].MountOptions).To(Equal([]v1alpha1.MountOption{"actimeo=30", "nconnect=4"}))

			By("Little work says little, and a node that is asked no more forgets")
			stdout, _, err = as(5)
			Expect(err).NotTo(HaveOccurred())
			Expect(stdout).To(ContainSubstring("Too little was done"))
			Eventually(func(g Gomega) {
				pass()
				answer(v1alpha1.SampleFinished, 0)
				g.Expect(findObject(node).Spec.Sample).To(BeNil())
				g.Expect(findObject(node).Status.Sample).To(BeNil())
			}).WithTimeout(time.Minute).Should(Succeed())
		})

		It("leaves nothing behind after Ctrl-C", func() {
			bindUser(user, "storage-client-viewer")
			var cmd *exec.Cmd
			complaints := &lockedBuffer{}
			Eventually(func(g Gomega) {
				cmd = exec.CommandContext(ctx, buildPlugin(), "recommend", "tools", "-n", namespace, "--kubeconfig", kubeconfig(), "--as", user)
				cmd.Stderr = complaints
				g.Expect(cmd.Start()).To(Succeed())
				g.Eventually(asks).WithTimeout(5 * time.Second).ShouldNot(BeEmpty())
			}).WithTimeout(time.Minute).Should(Succeed())
			Eventually(func(g Gomega) {
				pass()
				g.Expect(findObject(node).Spec.Sample).NotTo(BeNil())
			}).WithTimeout(time.Minute).Should(Succeed())
			answer(v1alpha1.SampleRunning, 0)
			Eventually(complaints.String).WithTimeout(time.Minute).Should(ContainSubstring("measures, until about"))
			Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
			Expect(cmd.Wait()).To(HaveOccurred())
			Expect(complaints.String()).To(ContainSubstring("the request is taken back"))
			Expect(asks()).To(BeEmpty())
			Eventually(func(g Gomega) {
				pass()
				g.Expect(findObject(node).Spec.Sample).To(BeNil())
			}).WithTimeout(time.Minute).Should(Succeed())
		})
	})
})

// later is a clock that is ahead.
type later struct{ by time.Duration }

func (l later) Now() time.Time                  { return time.Now().Add(l.by) }
func (l later) Since(t time.Time) time.Duration { return l.Now().Sub(t) }

// bindUser gives a user a role in the whole cluster.
func bindUser(user, role string) {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func() { deleteNow(binding) })
}
