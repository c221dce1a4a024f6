package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// wrong is a mistake in a profile. Its author must see the field, the value and the remedy.
type wrong struct {
	name   string
	spec   func(*v1alpha1.StorageClientProfileSpec)
	field  string
	value  string
	remedy string
}

var wrongs = []wrong{
	{"an unknown mount option", inVolumes("nconect=4"), "spec.volumes[0].mountOptions[0]", `"nconect=4"`, "Did you mean nconnect?"},
	{"more connections than a client makes", inVolumes("hard", "nconnect=17"), "spec.volumes[0].mountOptions[1]", `"nconnect=17"`, "must be 1 to 16"},
	{"a mount option that lets programs be root", inVolumes("suid"), "spec.volumes[0].mountOptions[0]", `"suid"`, "leave it out"},
	{"a sysctl outside the catalogue", inSysctls("kernel.core_pattern", "core"), "spec.node.sysctls[kernel.core_pattern]", `"core"`, "--allow-parameter"},
	{"a sysctl out of range", inSysctls("vm.dirty_ratio", "200"), "spec.node.sysctls[vm.dirty_ratio]", `"200"`, "must be 0 to 100"},
	{"a kernel argument with a unit", inArguments("ihash_entries=16M"), "spec.node.kernelArguments[0]", `"16M"`, "write 16777216"},
	{"a kernel argument outside the catalogue", inArguments("init=/bin/sh"), "spec.node.kernelArguments[0]", `"/bin/sh"`, "--allow-parameter"},
}

func inVolumes(options ...string) func(*v1alpha1.StorageClientProfileSpec) {
	return func(s *v1alpha1.StorageClientProfileSpec) { s.Volumes = []v1alpha1.VolumeRule{nfsRule(options...)} }
}

func inSysctls(key, value string) func(*v1alpha1.StorageClientProfileSpec) {
	return func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "8388608", key: v1alpha1.SettingText(value)}
	}
}

func inArguments(argument string) func(*v1alpha1.StorageClientProfileSpec) {
	return func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.KernelArguments = []v1alpha1.KernelArgument{v1alpha1.KernelArgument(argument)}
	}
}

// explained matches a text that names the field, the value and the remedy.
func (w wrong) explained() OmegaMatcher {
	return And(ContainSubstring(w.field), ContainSubstring(w.value), ContainSubstring(w.remedy))
}

var _ = Describe("A mistake in a profile", func() {
	var manager keeper
	const node, volume = "a", "pv"

	// good is effective on the node and on the volume before each mistake.
	good := func(name string) *v1alpha1.StorageClientProfile {
		return newProfile(name).Sysctl("net.core.rmem_max", "16777216").Volumes(nfsRule("nconnect=4")).Build()
	}
	settle := func(profiles ...string) {
		GinkgoHelper()
		manager.settle(profiles, []string{node})
		if findObject(node) != nil {
			agentReports(node, nil)
		}
		reconcileVolume(volume)
		manager.settle(profiles, []string{node})
	}
	inForce := func() (*v1alpha1.StorageClientNode, *corev1.PersistentVolume) {
		return findObject(node), getVolume(volume)
	}

	BeforeEach(func() {
		manager = newKeeper(k8s)
		newNode(node).Create()
		agentPod(node)
		newVolume(volume).Options("hard").Create()
	})

	Context("while the webhook is up", func() {
		BeforeEach(func() {
			serveWebhooks(installWebhooks())
			Eventually(func() error { return k8s.Create(ctx, badProfile(), client.DryRunAll) }).Should(MatchError(ContainSubstring("must be 1 to 16")), "the webhooks must respond")
		})

		It("is rejected with the field, the value and the remedy, on creation and on update", func() {
			Expect(k8s.Create(ctx, good("good"))).To(Succeed())
			settle("good")
			object, pv := inForce()
			Expect(object.Spec.Settings).To(HaveLen(1))
			Expect(pv.Spec.MountOptions).To(ContainElement("nconnect=4"))
			for _, w := range wrongs {
				By(w.name)
				bad := good("bad")
				w.spec(&bad.Spec)
				err := k8s.Create(ctx, bad)
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
				Expect(err.Error()).To(w.explained())
				err = retryUpdate("good", func(p *v1alpha1.StorageClientProfile) { w.spec(&p.Spec) })
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
				Expect(err.Error()).To(w.explained())
			}
			settle("good")
			after, pvAfter := inForce()
			Expect(after.Spec).To(Equal(object.Spec))
			Expect(pvAfter.ResourceVersion).To(Equal(pv.ResourceVersion))
			Expect(findProfile("bad")).To(BeNil())
		})
	})

	Context("while there is no webhook", func() {
		It("stalls a new profile with the field, the value and the remedy, and nothing of it is applied", func() {
			for _, w := range wrongs {
				By(w.name)
				bad := good("bad")
				w.spec(&bad.Spec)
				Expect(k8s.Create(ctx, bad)).To(Succeed())
				settle("bad")
				stalled := findProfile("bad")
				Expect(stalled).To(And(
					haveCondition("Stalled", metav1.ConditionTrue, v1alpha1.ReasonInvalid),
					haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonInvalid)))
				Expect(meta.FindStatusCondition(stalled.Status.Conditions, v1alpha1.ConditionStalled).Message).To(w.explained())
				expectClean(node)
				pv := getVolume(volume)
				Expect(pv.Spec.MountOptions).To(Equal([]string{"hard"}))
				Expect(pv.Annotations).To(BeEmpty())
				deleteNow(findProfile("bad"))
			}
		})

		It("stalls a changed profile, and the current settings stay, including the valid parts", func() {
			for _, w := range wrongs {
				By(w.name)
				Expect(k8s.Create(ctx, good("p"))).To(Succeed())
				settle("p")
				object, pv := inForce()
				Expect(findProfile("p")).To(haveCondition("Ready", metav1.ConditionTrue, v1alpha1.ReasonUpToDate))
				Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { w.spec(&p.Spec) })).To(Succeed())
				settle("p")
				stalled := findProfile("p")
				Expect(stalled).To(haveCondition("Stalled", metav1.ConditionTrue, v1alpha1.ReasonInvalid))
				Expect(meta.FindStatusCondition(stalled.Status.Conditions, v1alpha1.ConditionStalled).Message).To(w.explained())
				after, pvAfter := inForce()
				Expect(after.Spec).To(Equal(object.Spec))
				Expect(pvAfter.ResourceVersion).To(Equal(pv.ResourceVersion))

				By("continuing after the correction")
				Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec = good("p").Spec })).To(Succeed())
				settle("p")
				Expect(findProfile("p")).To(And(
					haveCondition("Stalled", metav1.ConditionFalse, v1alpha1.ReasonProgressing),
					haveCondition("Ready", metav1.ConditionTrue, v1alpha1.ReasonUpToDate)))
				deleteNow(findProfile("p"))
				deleteNow(findObject(node))
				reconcileVolume(volume)
				Expect(getVolume(volume).Spec.MountOptions).To(Equal([]string{"hard"}))
			}
		})
	})
})

var _ = Describe("Profiles of equal priority that disagree", func() {
	It("keep the current value of that key only, and report the declared values, until one profile has a higher priority", func() {
		manager := newKeeper(k8s)
		settle := func() {
			GinkgoHelper()
			for range 2 {
				manager.settle([]string{"first", "second"}, []string{"a"})
				agentReports("a", nil)
			}
			manager.settle([]string{"first", "second"}, []string{"a"})
		}
		values := func() map[string]string {
			GinkgoHelper()
			found := map[string]string{}
			for _, s := range findObject("a").Spec.Settings {
				found[s.Key] = s.Profile + " " + s.Value
			}
			return found
		}
		newNode("a").Create()
		agentPod("a")
		newProfile("first").Sysctl("net.core.rmem_max", "16777216").Create()
		manager.settle([]string{"first"}, []string{"a"})
		agentReports("a", nil)
		manager.settle([]string{"first"}, []string{"a"})

		newProfile("second").Sysctl("net.core.rmem_max", "33554432").Sysctl("net.core.wmem_max", "33554432").Create()
		settle()
		Expect(values()).To(Equal(map[string]string{
			"sysctl/net.core.rmem_max": "first 16777216", "sysctl/net.core.wmem_max": "second 33554432",
		}))
		for _, name := range []string{"first", "second"} {
			p := findProfile(name)
			Expect(p).To(And(
				haveCondition("Conflict", metav1.ConditionTrue, v1alpha1.ReasonSettingConflict),
				haveCondition("Ready", metav1.ConditionFalse, v1alpha1.ReasonSettingConflict)))
			Expect(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionConflict).Message).To(And(
				ContainSubstring("sysctl/net.core.rmem_max"), ContainSubstring("first"), ContainSubstring("second"),
				ContainSubstring("16777216"), ContainSubstring("33554432"), ContainSubstring("keeping 16777216")))
		}

		Expect(retryUpdate("second", func(p *v1alpha1.StorageClientProfile) { p.Spec.Priority = 1 })).To(Succeed())
		settle()
		Expect(values()).To(HaveKeyWithValue("sysctl/net.core.rmem_max", "second 33554432"))
		for _, name := range []string{"first", "second"} {
			Expect(findProfile(name)).To(haveCondition("Conflict", metav1.ConditionFalse, v1alpha1.ReasonNoConflict))
		}
	})
})
