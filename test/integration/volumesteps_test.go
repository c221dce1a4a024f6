package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
)

var _ = Describe("Changed options of existing PersistentVolumes", func() {
	const count = 5

	// visit runs a pass of a manager that has just started: all its data is from the API.
	visit := func(c client.Client) error {
		r := &volume.Reconciler{Client: c, APIReader: inFakeTime{c}, Recorder: events.NewFakeRecorder(64), Clock: fakeClock}
		_, err := r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		return err
	}
	carrying := func() []string {
		GinkgoHelper()
		var all corev1.PersistentVolumeList
		Expect(k8s.List(ctx, &all)).To(Succeed())
		var out []string
		for i := range all.Items {
			if slices.Contains(all.Items[i].Spec.MountOptions, "nocto") {
				out = append(out, all.Items[i].Name)
			}
		}
		return out
	}
	create := func() *v1alpha1.StorageClientProfile {
		GinkgoHelper()
		for i := range count {
			name := fmt.Sprintf("pv%d", i)
			newVolume(name).Options("hard").Claim("default", name).Create()
		}
		profile := nfsProfile("fast", v1alpha1.GitOpsReportOnly, "nocto")
		profile.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("50%")), SoakSeconds: ptr.To[int32](60), OnNoEvidence: v1alpha1.NoEvidenceProceed}
		Expect(k8s.Update(ctx, profile)).To(Succeed())
		return profile
	}
	// fail has the kubelet of node n report a failed mount of a volume for its pod.
	fail := func(name string) {
		GinkgoHelper()
		pod := newPod("default", "pod-"+name).On("n").Claim(name).With(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }).Create()
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + name}, Reason: "FailedMount", Type: corev1.EventTypeWarning,
			Message:        fmt.Sprintf("MountVolume.SetUp failed for volume %q : mount failed: exit status 32 Output: mount.nfs: an incorrect mount option was specified", name),
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: pod.Name, UID: pod.UID},
			Source:         corev1.EventSource{Component: "kubelet", Host: "n"},
			FirstTimestamp: metav1.NewTime(fakeClock.Now()), LastTimestamp: metav1.NewTime(fakeClock.Now()),
		}
		Expect(k8s.Create(ctx, event)).To(Succeed())
		DeferCleanup(func() { deleteNow(event) })
	}

	It("reach the canary, then one step at a time, by soak if the profile allows that", func() {
		create()
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}))
		fakeClock.Step(59 * time.Second)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}))

		fakeClock.Step(time.Second)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0", "pv1", "pv2"}), "a step of 50% of five volumes must be rounded down")

		manager := newKeeper(k8s)
		_, err := manager.profile("fast")
		Expect(err).NotTo(HaveOccurred())
		profile := findProfile("fast")
		Expect(profile).To(And(haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonRollingOut), haveCondition("Reconciling", metav1.ConditionTrue, v1alpha1.ReasonRollingOut)))
		Expect(meta.FindStatusCondition(profile.Status.Conditions, "Ready").Message).To(And(
			ContainSubstring("3/5 volumes up to date"), ContainSubstring("pv1, pv2 soak until "+fakeClock.Now().Add(time.Minute).UTC().Format(time.RFC3339))))

		fakeClock.Step(time.Minute)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(HaveLen(count))
	})

	It("wait for a mount of the canary by default, and report how to cause it", func() {
		create()
		Expect(retryUpdate("fast", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Volumes.OnNoEvidence = "" })).To(Succeed())
		web := newPod("default", "web-0").On("a").Claim("pv0").OwnedBy("apps/v1", "StatefulSet", "web")
		pod := web.Create()
		Expect(visit(k8s)).To(Succeed())
		for range 3 {
			fakeClock.Step(24 * time.Hour)
			Expect(visit(k8s)).To(Succeed())
			Expect(carrying()).To(Equal([]string{"pv0"}))
		}
		manager := newKeeper(k8s)
		_, err := manager.profile("fast")
		Expect(err).NotTo(HaveOccurred())
		profile := findProfile("fast")
		Expect(profile).To(And(haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonRollingOut), haveCondition("Reconciling", metav1.ConditionTrue, v1alpha1.ReasonWaitingForEvidence)))
		Expect(meta.FindStatusCondition(profile.Status.Conditions, "Reconciling").Message).To(Equal(
			"4 volumes wait for a pod to mount pv0 with its new options: restart one of its pods: kubectl rollout restart -n default statefulset/web"))

		newNode("a").Create()
		Expect(k8s.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
		reportMount(pod, "pv0", "hard", "nocto")
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}), "a mount for a pod that has not started must not count as evidence")

		deleteNow(pod)
		restarted := web.Started().Create()
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}), "a mount for an earlier pod must not count as evidence")
		reportMount(restarted, "pv0", "hard", "nocto")
		fakeClock.Step(time.Minute)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0", "pv1", "pv2"}))
	})

	It("are not stopped by events that any user can write", func() {
		newNode("n").Create()
		create()
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}))
		newPod("default", "other").On("n").Claim("pv1").Create()
		for i, pod := range []string{"nobody", "other", "no/path", "..", ""} {
			event := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("forged-%d", i)}, Reason: "FailedMount", Type: corev1.EventTypeWarning,
				Message:        `MountVolume.SetUp failed for volume "pv0" : call +1-555`,
				InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: pod, UID: "0b0e3f0a-1111-2222-3333-444455556666"},
				Source:         corev1.EventSource{Component: "kubelet", Host: "n"},
				FirstTimestamp: metav1.NewTime(fakeClock.Now().Add(time.Second)),
			}
			Expect(k8s.Create(ctx, event)).To(Succeed())
			DeferCleanup(func() { deleteNow(event) })
		}
		fakeClock.Step(time.Minute)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0", "pv1", "pv2"}))
	})

	It("are reverted by an event with the times of the API server", func() {
		newNode("n").Create()
		create()
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}))
		fail("pv0")
		fakeClock.Step(time.Minute)
		r := &volume.Reconciler{Client: k8s, Recorder: events.NewFakeRecorder(64), Clock: fakeClock}
		_, err := r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		Expect(carrying()).To(BeEmpty())
	})

	It("stop at a FailedMount, and are reverted, until the rules change", func() {
		newNode("n").Create()
		profile := create()
		fail("pv0")
		fakeClock.Step(time.Minute)
		Expect(visit(k8s)).To(Succeed())
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0"}), "a failure from before the write must not count")

		fail("pv1")
		fakeClock.Step(time.Hour)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0", "pv1", "pv2"}))
		fail("pv2")
		fakeClock.Step(time.Hour)
		Expect(visit(k8s)).To(Succeed())
		Expect(carrying()).To(Equal([]string{"pv0", "pv1"}))
		reverted := getVolume("pv2")
		Expect(reverted.Spec.MountOptions).To(Equal([]string{"hard"}))
		Expect(reverted.Annotations).To(And(HaveLen(1), HaveKey(v1alpha1.FailedMountOptionsAnnotation)))

		_, err := newKeeper(k8s).profile("fast")
		Expect(err).NotTo(HaveOccurred())
		stalled := findProfile("fast")
		Expect(stalled).To(And(haveCondition("Stalled", metav1.ConditionTrue, v1alpha1.ReasonFailureThreshold), haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonFailureThreshold)))
		Expect(meta.FindStatusCondition(stalled.Status.Conditions, "Stalled").Message).To(ContainSubstring(
			`pv2 could not be mounted with ["hard","nocto"] (driver kubernetes.io/nfs, event: "MountVolume.SetUp failed for volume 'pv2' : mount failed: exit status 32`))

		By("declaring other options")
		Expect(retryUpdate("fast", func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"actimeo=30"}
		})).To(Succeed())
		Expect(visit(k8s)).To(Succeed())
		Expect(getVolume("pv0").Spec.MountOptions).To(Equal([]string{"hard", "actimeo=30"}))
		Expect(getVolume("pv1").Spec.MountOptions).To(Equal([]string{"hard", "nocto"}), "only the canary may change first")

		By("releasing, which does not wait")
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		Expect(visit(k8s)).To(Succeed())
		for i := range count {
			pv := getVolume(fmt.Sprintf("pv%d", i))
			Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
			Expect(pv.Annotations).To(BeEmpty())
		}
	})

	DescribeTable("with broken options affect at most the canary and one step", func(mounts func(soaked bool), want ...string) {
		newNode("n").Create()
		create()
		var mutex sync.Mutex // several volumes are written at a time
		touched := map[string]bool{}
		counting := interceptor.NewClient(k8s, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				err := c.Patch(ctx, o, p, opts...)
				if pv, ok := o.(*corev1.PersistentVolume); ok && err == nil && slices.Contains(pv.Spec.MountOptions, "nocto") {
					mutex.Lock()
					touched[pv.Name] = true
					mutex.Unlock()
				}
				return err
			},
		})
		Expect(visit(counting)).To(Succeed())
		fakeClock.Step(time.Second)
		mounts(false)
		fakeClock.Step(time.Minute)
		Expect(visit(counting)).To(Succeed())
		fakeClock.Step(time.Second)
		mounts(true)
		for range 5 {
			fakeClock.Step(time.Hour)
			Expect(visit(counting)).To(Succeed())
		}
		Expect(slices.Sorted(maps.Keys(touched))).To(Equal(want))
		for _, name := range want[len(want)-1:] {
			Expect(getVolume(name).Spec.MountOptions).To(Equal([]string{"hard"}))
		}
	},
		Entry("if the canary is mounted at once", func(soaked bool) {
			if !soaked {
				fail("pv0")
			}
		}, "pv0"),
		Entry("if the canary is not mounted, and the whole step fails", func(soaked bool) {
			if soaked {
				fail("pv1")
				fail("pv2")
			}
		}, "pv0", "pv1", "pv2"),
	)

	It("do not continue if the manager dies, and end with the original options", func() {
		newNode("n").Create()
		for writes := 0; ; writes++ {
			profile := create()
			died := false
			play := func(want ...string) {
				GinkgoHelper()
				dying := newMortal(writes)
				err := visit(dying.Client)
				if dying.Died() {
					died = true
					Expect(err).To(MatchError(ContainSubstring(errDead.Error())))
				}
				for _, name := range carrying() {
					Expect(want).To(ContainElement(name), "after %d writes", writes)
				}
				Expect(visit(k8s)).To(Succeed())
				// If the manager dies in a step, the next step includes the missing writes.
				fakeClock.Step(time.Minute)
			}
			play("pv0")
			play("pv0", "pv1", "pv2")
			last := carrying()
			fail(last[len(last)-1])
			play(last...)
			Expect(visit(k8s)).To(Succeed())
			// The options never worked. After their failure is settled, the other volumes lose them too.
			for _, name := range carrying() {
				Expect(last[:len(last)-1]).To(ContainElement(name), "after %d writes", writes)
			}

			Expect(k8s.Delete(ctx, profile)).To(Succeed())
			play(last...)
			// The record of a set outlives the last volume with its options by one pass. Then its failure is cleared.
			Expect(visit(k8s)).To(Succeed())
			for i := range count {
				pv := getVolume(fmt.Sprintf("pv%d", i))
				Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
				Expect(pv.Annotations).To(BeEmpty())
				deleteNow(pv)
			}
			deleteNow(profile)
			Expect(k8s.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace("default"))).To(Succeed())
			Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0))).To(Succeed())
			if !died {
				break
			}
		}
	})

	DescribeTable("never end in a conflict loop with", func(set func(name string)) {
		set("pv0")
		nfsProfile("fast", v1alpha1.GitOpsPatch, "nocto")
		before, writes := getVolume("pv0").ResourceVersion, 0
		for range 6 {
			Expect(visit(k8s)).To(Succeed())
			if now := getVolume("pv0").ResourceVersion; now != before {
				writes++
			}
			fakeClock.Step(10 * time.Minute)
			set("pv0")
			before = getVolume("pv0").ResourceVersion
		}
		Expect(writes).To(Equal(1), "the operator must write only before another client reverts the options")
		Expect(getVolume("pv0").Spec.MountOptions).To(Equal([]string{"soft"}))
	},
		Entry("Argo CD's forced server-side apply", func(name string) { argoApply(name, "soft") }),
		Entry("kubectl apply", func(name string) { kubectlApply(newVolume(name).Options("soft").volume) }),
		Entry("a provisioner", func(name string) {
			pv := &corev1.PersistentVolume{}
			if err := k8s.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
				newVolume(name).Options("soft").Create(client.FieldOwner("csi-provisioner"))
				return
			}
			pv.Spec.MountOptions = []string{"soft"}
			Expect(k8s.Update(ctx, pv, client.FieldOwner("csi-provisioner"))).To(Succeed())
		}),
	)
})

// inFakeTime reads as from an API server with the fake clock. The real one stamps events with its own clock, whose time the specs leave behind.
type inFakeTime struct{ client.Reader }

func (r inFakeTime) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := r.Reader.List(ctx, list, opts...)
	if all, ok := list.(*corev1.EventList); ok {
		for i := range all.Items {
			event := &all.Items[i]
			lead := event.FirstTimestamp.Sub(event.CreationTimestamp.Time)
			event.CreationTimestamp = event.FirstTimestamp
			for _, entry := range event.ManagedFields {
				entry.Time.Time = entry.Time.Add(lead)
			}
		}
	}
	return err
}

// reportMount has the agent of a pod's node report the pod's mount of a volume with these options, made now.
func reportMount(pod *corev1.Pod, volume string, options ...string) {
	GinkgoHelper()
	agentReports(pod.Spec.NodeName, func(status *v1alpha1.StorageClientNodeStatus) {
		status.Mounts = []v1alpha1.MountStatus{{
			MountPoint: "/mnt", Volume: volume, Protocol: "NFSv4.1", Options: append([]string{"rw"}, options...),
			PodUIDs: []string{string(pod.UID)}, Since: ptr.To(metav1.NewTime(fakeClock.Now())), Used: true,
		}}
	})
}
