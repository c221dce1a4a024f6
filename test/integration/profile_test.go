package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
)

// haveCondition matches a profile with a condition of that type, status and reason.
func haveCondition(name string, status metav1.ConditionStatus, reason string) gomegatypes.GomegaMatcher {
	return WithTransform(func(p *v1alpha1.StorageClientProfile) string {
		condition := meta.FindStatusCondition(p.Status.Conditions, name)
		if condition == nil {
			return ""
		}
		return fmt.Sprintf("%s %s", condition.Status, condition.Reason)
	}, Equal(fmt.Sprintf("%s %s", status, reason)))
}

// withoutFence returns a reader of a cluster without a fence.
func withoutFence() client.Reader {
	return interceptor.NewClient(k8s, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, policy := object.(*admissionv1.ValidatingAdmissionPolicy); policy {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "validatingadmissionpolicies"}, key.Name)
			}
			return c.Get(ctx, key, object, opts...)
		},
	})
}

// versions returns the resourceVersions of all objects that a profile may change. Every write changes one of them.
func versions() map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &v1alpha1.StorageClientNodeList{}, &corev1.PersistentVolumeList{}} {
		Expect(k8s.List(ctx, list)).To(Succeed())
		Expect(meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			out[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
			return nil
		})).To(Succeed())
	}
	return out
}

var _ = Describe("Profiles", func() {
	var manager keeper

	BeforeEach(func() { manager = newKeeper(k8s) })

	visit := func(name string) *v1alpha1.StorageClientProfile {
		GinkgoHelper()
		fakeClock.Step(3 * time.Second)
		_, err := manager.profile(name)
		Expect(err).NotTo(HaveOccurred())
		return findProfile(name)
	}
	tuneNode := func(profile, name string) {
		GinkgoHelper()
		newNode(name).Create()
		agentPod(name)
		manager.settle([]string{profile}, []string{name})
		agentReports(name, nil)
		manager.settle([]string{profile}, []string{name})
	}

	It("have the finalizer and all six conditions after the first reconciliation", func() {
		created := newProfile("p").Create()
		Expect(created.Status.ObservedGeneration).To(Equal(int64(-1)))
		visited := visit("p")
		Expect(visited.Finalizers).To(ContainElement(v1alpha1.Finalizer))
		Expect(visited.Status.ObservedGeneration).To(Equal(visited.Generation))
		var types []string
		for _, condition := range visited.Status.Conditions {
			types = append(types, condition.Type)
			Expect(condition.ObservedGeneration).To(Equal(visited.Generation))
		}
		Expect(types).To(Equal([]string{"Ready", "Reconciling", "Stalled", "MountsEffective", "Paused", "Conflict"}))
		Expect(visited).To(haveCondition("Ready", metav1.ConditionTrue, v1alpha1.ReasonNothingMatched))
		Expect(visit("p").ResourceVersion).To(Equal(visited.ResourceVersion), "a second pass must not write")
	})

	It("are Stalled and apply nothing if they are invalid", func() {
		newNode("a").Create()
		newProfile("wrong").Sysctl("kernel.core_pattern", "x").Create()
		manager.settle([]string{"wrong"}, []string{"a"})
		Expect(findProfile("wrong")).To(And(
			haveCondition("Stalled", metav1.ConditionTrue, v1alpha1.ReasonInvalid),
			haveCondition("Reconciling", metav1.ConditionFalse, v1alpha1.ReasonInvalid),
			haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonInvalid)))
		Expect(meta.FindStatusCondition(findProfile("wrong").Status.Conditions, "Stalled").Message).To(ContainSubstring("spec.node.sysctls[kernel.core_pattern]"))
		expectClean("a")
	})

	It("are Stalled if the fence is missing", func() {
		newProfile("p").Create()
		manager.profiles.Fence = newFence(withoutFence(), restConfig)
		Expect(visit("p")).To(haveCondition("Stalled", metav1.ConditionTrue, v1alpha1.ReasonFenceMissing))
		result, err := manager.profile("p")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", 0), "the fence has no watch, so the profile must be requeued")
	})

	It("check the fence every hour, and detect that it is no longer effective", func() {
		tuneNode(newProfile("p").Sysctl("net.core.rmem_max", "16777216").Create().Name, "a")
		manager.profiles.Fence = newFence(k8s, restConfig)
		Expect(visit("p")).To(haveCondition("Stalled", metav1.ConditionFalse, v1alpha1.ReasonProgressing))
		fakeClock.Step(3 * time.Second)
		result, err := manager.profile("p")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Hour)))

		grantEverything()
		changeTemporarily(aPolicy, v1alpha1.AgentPolicy, withoutRule("a node agent may not change spec"))
		Eventually(missingFor(restConfig)).ShouldNot(BeEmpty())
		fakeClock.Step(30 * time.Second)
		Expect(visit("p")).To(haveCondition("Stalled", metav1.ConditionTrue, v1alpha1.ReasonFenceMissing))
	})

	It("have their status written at most every two seconds", func() {
		newProfile("p").Create()
		visit("p")
		newNode("a").Create()
		result, err := manager.profile("p")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(2 * time.Second))
		Expect(findProfile("p").Status.Nodes.Matched).To(BeZero())
		fakeClock.Step(2 * time.Second)
		_, err = manager.profile("p")
		Expect(err).NotTo(HaveOccurred())
		Expect(findProfile("p").Status.Nodes.Matched).To(Equal(int32(1)))
	})

	It("report the plan and its obstacles, and accept the approval until the plan changes", func() {
		newProfile("p").KernelArgument("ihash_entries=16777216").Create()
		tuneNode("p", "a")
		agentReports("a", rebootDue("kernelArgument/ihash_entries"))
		waiting := visit("p")
		Expect(waiting).To(And(
			haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonRebootPending),
			haveCondition("Reconciling", metav1.ConditionTrue, v1alpha1.ReasonWaitingForApproval),
			haveCondition("Stalled", metav1.ConditionFalse, v1alpha1.ReasonProgressing)))
		Expect(waiting.Status.Plan.NodesToReboot).To(Equal(int32(1)))
		Expect(waiting.Status.Plan.Examples).To(Equal([]string{"a"}))
		Expect(waiting.Status.Plan.Hash).NotTo(BeEmpty())
		Expect(waiting.Status.Plan.EstimatedCompletion).NotTo(BeNil(), "the estimate assumes an approval now")

		setAnnotation(waiting, v1alpha1.ApprovedPlanAnnotation, fmt.Sprintf("%q", waiting.Status.Plan.Hash))
		approved := visit("p")
		Expect(approved).To(haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonRollingOut))
		Expect(approved.Status.Plan.EstimatedCompletion).NotTo(BeNil())

		By("editing the selector: other nodes need another approval")
		Expect(mergePatch(k8s, "p", `{"spec":{"allNodes":null,"nodeSelector":{"matchExpressions":[{"key":"windy","operator":"DoesNotExist"}]}}}`)).To(Succeed())
		edited := visit("p")
		Expect(edited.Status.Plan.Hash).NotTo(Equal(waiting.Status.Plan.Hash))
		Expect(edited).To(haveCondition("Reconciling", metav1.ConditionTrue, v1alpha1.ReasonWaitingForApproval))
	})

	It("make no changes in mode Plan, and report the planned changes", func() {
		newNode("a").Create()
		newProfile("p").KernelArgument("ihash_entries=16777216").With(func(spec *v1alpha1.StorageClientProfileSpec) { spec.Mode = v1alpha1.ModePlan }).Create()
		manager.settle([]string{"p"}, []string{"a"})
		planned := findProfile("p")
		Expect(planned).To(And(haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonPlanMode), haveCondition("Paused", metav1.ConditionTrue, v1alpha1.ReasonPlanMode)))
		Expect(planned.Status.Nodes.Matched).To(Equal(int32(1)))
		Expect(planned.Status.Plan.NodesToReboot).To(Equal(int32(1)))
		expectClean("a")
	})

	It("write only their own status in mode Plan, with a preview of the changes", func() {
		newProfile("base").Sysctl("net.core.rmem_max", "16777216").Select("tier", "gold").Create()
		for _, name := range []string{"a", "b", "c"} {
			node := newNode(name).Label(corev1.LabelTopologyZone, map[string]string{"a": "y", "b": "x", "c": "x"}[name])
			if name == "c" {
				node.Label("tier", "gold")
			}
			node.Create()
			agentPod(name)
		}
		newVolume("pv").Create()
		manager.settle([]string{"base"}, []string{"a", "b", "c"})
		agentReports("c", nil)
		story := newStory(k8s, k8s)
		work := func(profiles ...string) {
			GinkgoHelper()
			manager.settle(profiles, []string{"a", "b", "c"})
			story.passes(3)
			volumes := &volume.Reconciler{Client: k8s, Recorder: story.recorder}
			_, err := volumes.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
			Expect(err).NotTo(HaveOccurred())
		}
		work("base")
		before := versions()

		opens := fakeClock.Now().UTC().Truncate(time.Minute).Add(time.Hour)
		newProfile("p").KernelArgument("ihash_entries=16777216").RebootPolicy(v1alpha1.RebootAutomatic).
			Volumes(v1alpha1.VolumeRule{Name: "nfs", MountOptions: []v1alpha1.MountOption{"nocto"},
				Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}).
			With(func(spec *v1alpha1.StorageClientProfileSpec) {
				spec.Mode = v1alpha1.ModePlan
				spec.Rollout.Windows = []v1alpha1.Window{{
					Schedule: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), DurationSeconds: 3600, TimeZone: "UTC",
				}}
			}).Create()
		work("base", "p")

		Expect(versions()).To(Equal(before))
		Expect(findProfile("p").Status.Volumes).To(HaveField("Matched", int32(1)))
		preview := findProfile("p").Status.Plan
		Expect(preview.Hash).NotTo(BeEmpty())
		Expect(preview.NodesToReboot).To(Equal(int32(3)))
		Expect(preview.Examples).To(Equal([]string{"b", "c", "a"}), "the examples must be in the order of zones")
		Expect(preview.LimitedBy).To(Equal("Mode Plan makes no changes; next window opens at " + opens.Format(time.RFC3339)))
		Expect(preview.EstimatedCompletion.UTC()).To(Equal(opens.Add(3 * (5*time.Minute + 30*time.Second))))

		By("applying the changes after the mode changes")
		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModeEnforce })).To(Succeed())
		work("base", "p")
		Expect(getVolume("pv").Spec.MountOptions).To(Equal([]string{"nocto"}))
		Expect(findObject("a").Spec.BootHash).NotTo(BeEmpty())
		Expect(findProfile("p").Status.Plan.Hash).To(Equal(preview.Hash))
	})

	It("are deleted without waiting for an unreachable node, which restores when it returns", func() {
		created := newProfile("p").Sysctl("net.core.rmem_max", "16777216").Create()
		tuneNode("p", "a")
		reboot("a", "boot-1", corev1.ConditionFalse)
		Expect(k8s.Delete(ctx, created)).To(Succeed())
		manager.settle([]string{"p"}, []string{"a"})
		Expect(findProfile("p")).To(BeNil())
		Expect(findObject("a").Spec.Release).To(BeTrue())
		Expect(getNode("a").Labels).To(HaveKey(v1alpha1.ManagedLabel))

		reboot("a", "boot-1", corev1.ConditionTrue)
		agentReports("a", nil)
		manager.settle(nil, []string{"a"})
		expectClean("a")
	})

	It("wait for their volumes to be restored", func() {
		created := newProfile("p").Create()
		visit("p")
		newVolume("pv").Options("nocto").
			Annotate(v1alpha1.OriginalMountOptionsAnnotation, `[]`).
			Annotate(v1alpha1.AppliedMountOptionsAnnotation, `["nocto"]`).
			Annotate(v1alpha1.ProfilesAnnotation, "p").Create()
		Expect(k8s.Delete(ctx, created)).To(Succeed())
		waiting := visit("p")
		Expect(waiting).To(haveCondition("Reconciling", metav1.ConditionTrue, v1alpha1.ReasonRestoring))
		Expect(meta.FindStatusCondition(waiting.Status.Conditions, "Reconciling").Message).To(ContainSubstring("Volumes not yet restored: pv"))

		pv := getVolume("pv")
		pv.Annotations, pv.Spec.MountOptions = nil, nil
		Expect(k8s.Update(ctx, pv)).To(Succeed())
		Expect(visit("p")).To(BeNil())
	})

	It("are released at once if Retain is set during deletion, paused or not", func() {
		created := newProfile("p").Sysctl("net.core.rmem_max", "16777216").Create()
		tuneNode("p", "a")
		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })).To(Succeed())
		Expect(k8s.Delete(ctx, created)).To(Succeed())
		manager.settle([]string{"p"}, []string{"a"})
		Expect(findProfile("p")).NotTo(BeNil(), "a paused profile must not be released")
		Expect(findObject("a").Spec.Release).To(BeFalse())

		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain })).To(Succeed())
		manager.settle([]string{"p"}, []string{"a"})
		Expect(findProfile("p")).To(BeNil())
		Expect(findObject("a").Spec).To(And(
			HaveField("Release", true), HaveField("Settings", HaveExactElements(HaveField("OnRemoval", v1alpha1.DeletionRetain)))))
		agentReports("a", nil)
		manager.settle(nil, []string{"a"})
		expectClean("a")
	})

	It("wait for the reboot that restoreReboot requires", func() {
		created := newProfile("p").KernelArgument("ihash_entries=16777216").
			With(func(spec *v1alpha1.StorageClientProfileSpec) { spec.Rollout.Reboot.RestoreReboot = true }).Create()
		tuneNode("p", "a")
		Expect(k8s.Delete(ctx, created)).To(Succeed())
		manager.settle([]string{"p"}, []string{"a"})
		agentReports("a", rebootDue("kernelArgument/ihash_entries"))
		manager.settle([]string{"p"}, []string{"a"})
		Expect(findObject("a")).NotTo(BeNil())
		Expect(findProfile("p")).NotTo(BeNil())
		Expect(findProfile("p").Status.Plan.NodesToReboot).To(Equal(int32(1)))

		reboot("a", "boot-2", corev1.ConditionTrue)
		agentReports("a", nil)
		manager.settle([]string{"p"}, []string{"a"})
		expectClean("a")
		Expect(findProfile("p")).To(BeNil())
	})
})
