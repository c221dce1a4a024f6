package integration

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
)

var _ = Describe("PersistentVolumes that follow their StorageClass", func() {
	const count = 4

	visit := func() {
		GinkgoHelper()
		r := &volume.Reconciler{Client: k8s, Recorder: events.NewFakeRecorder(64), Clock: fakeClock}
		_, err := r.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
	}
	lists := func() []string {
		GinkgoHelper()
		out := make([]string, count)
		for i := range out {
			out[i] = fmt.Sprint(getVolume(fmt.Sprintf("pv%d", i)).Spec.MountOptions)
		}
		return out
	}
	setClass := func(options ...string) {
		GinkgoHelper()
		var class storagev1.StorageClass
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "nfs"}, &class)).To(Succeed())
		class.MountOptions = options
		Expect(k8s.Update(ctx, &class)).To(Succeed())
	}
	// mount starts a new pod of pv0, and has the agent of its node report the pod's mount with these options.
	mount := func(options ...string) {
		GinkgoHelper()
		fakeClock.Step(time.Minute)
		pod := newPod("default", "web").On("a").Claim("pv0").Started()
		deleteNow(&pod.pod)
		reportMount(pod.Create(), "pv0", options...)
	}
	create := func() {
		GinkgoHelper()
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs.csi.k8s.io", MountOptions: []string{"hard", "timeo=600", "nolock"}}
		Expect(k8s.Create(ctx, class)).To(Succeed())
		DeferCleanup(func() { deleteNow(class) })
		for i := range count {
			name := fmt.Sprintf("pv%d", i)
			newVolume(name).Class("nfs").Options("hard", "timeo=600", "nolock").Annotate("pv.kubernetes.io/provisioned-by", "nfs.csi.k8s.io").Claim("default", name).Create()
		}
		newNode("a").Create()
		Expect(k8s.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
		profile := nfsProfile("follow", v1alpha1.GitOpsReportOnly)
		profile.Spec.Volumes[0].MountOptionsFrom = v1alpha1.MountOptionsFromClass
		Expect(k8s.Update(ctx, profile)).To(Succeed())
	}

	It("get the options of an edited class in steps and with evidence, keep them without the class, and are restored with the profile's deletion", func() {
		create()
		old, edited, again := "[hard timeo=600 nolock]", "[hard timeo=300 nocto]", "[hard timeo=150 nocto]"
		visit()
		Expect(lists()).To(HaveEach(old), "a volume with the options of its class needs no write")
		Expect(getVolume("pv0").Annotations).NotTo(HaveKey(v1alpha1.AppliedMountOptionsAnnotation))

		By("editing the class, which changes the canary first")
		setClass("hard", "timeo=300", "nocto")
		visit()
		Expect(lists()).To(Equal([]string{edited, old, old, old}))
		Expect(getVolume("pv0").Annotations).To(HaveKeyWithValue(v1alpha1.OriginalMountOptionsAnnotation, `["hard","timeo=600","nolock"]`))
		for range 3 {
			fakeClock.Step(24 * time.Hour)
			visit()
			Expect(lists()).To(Equal([]string{edited, old, old, old}), "time alone must not count as evidence")
		}
		mount("hard", "timeo=300", "nocto")
		for range count {
			fakeClock.Step(10 * time.Minute)
			visit()
		}
		Expect(lists()).To(HaveEach(edited))

		By("editing the class again, and deleting it before the other volumes change")
		setClass("hard", "timeo=150", "nocto")
		fakeClock.Step(10 * time.Minute)
		visit()
		Expect(lists()).To(Equal([]string{again, edited, edited, edited}))
		deleteNow(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}})
		mount("hard", "timeo=150", "nocto")
		for range count {
			fakeClock.Step(10 * time.Minute)
			visit()
		}
		Expect(lists()).To(Equal([]string{again, edited, edited, edited}), "without the class the volumes must keep their options")
		_, err := newKeeper(k8s).profile("follow")
		Expect(err).NotTo(HaveOccurred())
		Expect(findProfile("follow")).To(haveCondition("Conflict", metav1.ConditionTrue, v1alpha1.ReasonVolumeConflict))
		Expect(meta.FindStatusCondition(findProfile("follow").Status.Conditions, "Conflict").Message).To(ContainSubstring("StorageClass nfs does not exist"))

		By("deleting the profile")
		Expect(k8s.Delete(ctx, findProfile("follow"))).To(Succeed())
		fakeClock.Step(time.Minute)
		visit()
		Expect(lists()).To(HaveEach(old))
		var all corev1.PersistentVolumeList
		Expect(k8s.List(ctx, &all)).To(Succeed())
		for i := range all.Items {
			Expect(all.Items[i].Annotations).NotTo(HaveKey(v1alpha1.AppliedMountOptionsAnnotation))
		}
	})

	It("cannot have another source in the CRD", func() {
		profile := nfsProfile("other", v1alpha1.GitOpsReportOnly)
		profile.Spec.Volumes[0].MountOptionsFrom = "ConfigMap"
		Expect(k8s.Update(ctx, profile)).To(MatchError(ContainSubstring("spec.volumes[0].mountOptionsFrom")))
	})
})
