//go:build e2e

package e2e

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// clamped labels the spec, and is the name of its profile.
const clamped = "clamped"

// expectClamped declares a hash that is too large for the memory of the small node: the kernel would set half of it.
func expectClamped(ctx SpecContext) {
	installOperator(ctx)
	m := nodes.Small
	began, boots, previous := time.Now(), bootsNow()[m.Name], factsOf(ctx, m)
	mustKubectl(ctx, "create", "-f", "testdata/clamped.yaml")
	eventually(ctx, podStart, "the profile is Ready with an exception for the node", func(g Gomega) {
		profile := getProfile(ctx, g, clamped)
		ready := conditionOf(g, profile, v1alpha1.ConditionReady)
		g.Expect(ready.Reason).To(Equal(v1alpha1.ReasonReadyWithExceptions), ready.Message)
		g.Expect(ready.Message).To(ContainSubstring(m.Name))
		g.Expect(profile.Status.Nodes).To(And(HaveField("Matched", int32(1)), HaveField("Exceptions", int32(1)), HaveField("PendingReboot", int32(0))))
	})
	setting := settingOf(getSCN(ctx, Default, m.Name), "kernelArgument/ihash_entries")
	Expect(setting.State).To(Equal(v1alpha1.SettingClamped), setting.Message)
	Expect(setting.Desired).To(Equal("16777216"))
	Expect(setting.Message).To(And(ContainSubstring("not staged"), ContainSubstring("the largest value that fits is 8388608")))
	Expect(getNode(ctx, Default, m.Name).Status.Conditions).To(ContainElement(And(
		HaveField("Type", corev1.NodeConditionType(v1alpha1.TunedNodeCondition)),
		HaveField("Reason", v1alpha1.NodeReasonTunedWithExceptions))))

	By("checking on the machine: the argument is neither booted nor staged, and all other settings are effective")
	f := factsOf(ctx, m)
	for _, section := range []string{"cmdline", "inodeHash", "grub", "menu"} {
		Expect(f[section]).To(Equal(previous[section]), "%s of %s", section, m.Name)
	}
	Expect(sysctls(f["sysctls"])).To(HaveKeyWithValue("vm.dirty_background_ratio", "5"))

	mustKubectl(ctx, "delete", "storageclientprofile", clamped, "--wait=false")
	waitUntilGone(ctx, podStart, clamped)
	Expect(factsOf(ctx, m)["etc"]).To(Equal(previous["etc"]))
	Expect(bootsNow()[m.Name]).To(Equal(boots), "boots of %s", m.Name)
	Expect(watched.outOfService(m.Name, began)).To(BeEmpty())
}

// settingOf returns the report of a node's agent about a setting.
func settingOf(scn *v1alpha1.StorageClientNode, key string) v1alpha1.SettingStatus {
	GinkgoHelper()
	at := slices.IndexFunc(scn.Status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == key })
	Expect(at).To(BeNumerically(">=", 0), "StorageClientNode %s does not report %s", scn.Name, key)
	return scn.Status.Settings[at]
}
