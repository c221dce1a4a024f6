package integration

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/nodevolumes"
)

// The agent is simulated: it reports the mounts and, after the request, its evaluation of them.
var _ = Describe("A node's volumes", func() {
	const name = "a"
	var manager keeper
	var volumes *nodevolumes.Reconciler

	visit := func() {
		GinkgoHelper()
		fakeClock.Step(3 * time.Second)
		_, err := volumes.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
	}
	mounted := func(state v1alpha1.MountState, message string) func(*v1alpha1.StorageClientNodeStatus) {
		return func(s *v1alpha1.StorageClientNodeStatus) {
			s.Mounts = []v1alpha1.MountStatus{{MountPoint: "/m", Volume: "pv", Server: "filer", Protocol: "NFSv4.1",
				Options: []string{"rw", "vers=4.1", "nconnect=4"}, Connections: 4, State: state, Message: message}}
		}
	}

	BeforeEach(func() {
		manager = newKeeper(k8s)
		volumes = &nodevolumes.Reconciler{Client: k8s, Clock: fakeClock}
		newNode(name).Create()
		agentPod(name)
		newVolume("pv").Options("nconnect=8").Claim("default", "data").Create()
		newPod("default", "user").On(name).Claim("data").Create()
		rule := v1alpha1.VolumeRule{Name: "nfs", MountOptions: []v1alpha1.MountOption{"nconnect=8"}, ReadAheadKiB: ptr.To[int32](1024),
			Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}
		newProfile("p").Sysctl("net.core.rmem_max", "16777216").Volumes(rule).Create()
		manager.settle([]string{"p"}, []string{name})
		agentsWork(name)
		manager.settle([]string{"p"}, []string{name})
	})

	It("are sent to its agent once they are mounted, and the agent's report counts", func() {
		visit()
		Expect(findObject(name).Spec.Volumes).To(BeEmpty(), "no volume is mounted yet")
		before := agentReports(name, mounted(v1alpha1.MountUnmanaged, ""))
		visit()
		sent := findObject(name)
		Expect(sent.Spec.Volumes).To(ConsistOf(v1alpha1.NodeVolume{Name: "pv", MountOptions: []string{"nconnect=8"}, ReadAheadKiB: ptr.To[int32](1024)}))
		Expect(sent.Spec.Hash).To(Equal(before.Spec.Hash))

		By("keeping the conditions although the generation is new")
		Expect(sent.Generation).To(Equal(before.Generation + 1))
		manager.settle([]string{"p"}, []string{name})
		Expect(tunedReason(name)).To(Equal(v1alpha1.NodeReasonTuned))
		Expect(findProfile("p")).To(haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonRollingOut), "the agent has not read the read-ahead yet")
		Expect(findObject(name).Spec.Volumes).To(HaveLen(1), "the node controller must keep the volumes")

		By("not writing before the agent has seen the spec, and not writing the same again")
		visit()
		Expect(findObject(name).Generation).To(Equal(sent.Generation))
		agentReports(name, mounted(v1alpha1.MountStale, "nconnect is 4, wanted 8: mount /old came first"))
		visit()
		Expect(findObject(name).Generation).To(Equal(sent.Generation))

		manager.settle([]string{"p"}, []string{name})
		profile := findProfile("p")
		Expect(profile.Status.Volumes.StaleMounts).To(Equal(int32(1)))
		Expect(profile).To(haveCondition("MountsEffective", metav1.ConditionFalse, v1alpha1.ReasonStaleMounts))
		Expect(profile).To(haveCondition("Ready", metav1.ConditionTrue, v1alpha1.ReasonUpToDate))
		agentReports(name, mounted(v1alpha1.MountEffective, ""))
		manager.settle([]string{"p"}, []string{name})
		Expect(findProfile("p").Status.Volumes.StaleMounts).To(BeZero())
	})

	It("and the requested sample are unchanged when settings change", func() {
		agentReports(name, mounted(v1alpha1.MountUnmanaged, ""))
		visit()
		requested := findObject(name)
		requested.Spec.Sample = &v1alpha1.NodeSample{ID: "s", Seconds: 60, Volumes: []string{"pv"}, StartBefore: ptr.To(metav1.Now())}
		Expect(k8s.Update(ctx, requested)).To(Succeed())
		agentReports(name, mounted(v1alpha1.MountUnmanaged, ""))
		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["net.core.rmem_max"] = "8388608" })).To(Succeed())
		manager.settle([]string{"p"}, []string{name})
		now := findObject(name)
		Expect(now.Spec.Hash).NotTo(Equal(requested.Spec.Hash), "the settings must change")
		Expect(now.Spec.Sample).NotTo(BeNil())
		Expect(now.Spec.Volumes).To(HaveLen(1))
	})

	It("are unchanged while the rollout disrupts the node", func() {
		agentReports(name, mounted(v1alpha1.MountUnmanaged, ""))
		node := getNode(name)
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.DisruptionAnnotation, "{}")
		Expect(k8s.Update(ctx, node)).To(Succeed())
		before := findObject(name)
		visit()
		Expect(findObject(name).ResourceVersion).To(Equal(before.ResourceVersion))
	})
})
