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

// expectClamped checks the node that has the profile and not the memory: the kernel would grant half of the hash.
func expectClamped(ctx SpecContext) {
	m := nodes.Small
	setting := settingOf(getSCN(ctx, Default, m.Name), "kernelArgument/ihash_entries")
	Expect(setting.State).To(Equal(v1alpha1.SettingClamped), setting.Message)
	Expect(setting.Desired).To(Equal("16777216"))
	Expect(setting.Message).To(And(ContainSubstring("not staged"), ContainSubstring("the largest value that fits is 8388608")))

	profile := getProfile(ctx, Default, profileName)
	Expect(profile.Status.Nodes.Matched).To(Equal(int32(3)))
	Expect(profile.Status.Nodes.Exceptions).To(Equal(int32(1)))
	Expect(profile.Status.Nodes.PendingReboot).To(BeZero())
	ready := conditionOf(Default, profile, v1alpha1.ConditionReady)
	Expect(ready.Reason).To(Equal(v1alpha1.ReasonReadyWithExceptions))
	Expect(ready.Message).To(ContainSubstring(m.Name))
	Expect(getNode(ctx, Default, m.Name).Status.Conditions).To(ContainElement(And(
		HaveField("Type", corev1.NodeConditionType(v1alpha1.TunedNodeCondition)),
		HaveField("Reason", v1alpha1.NodeReasonTunedWithExceptions))))

	By("asking the machine itself: neither booted nor staged, and with everything else in force")
	f := factsOf(ctx, m)
	for _, section := range []string{"cmdline", "inodeHash", "grub", "menu"} {
		Expect(f[section]).To(Equal(original.facts[m.Name][section]), "%s of %s", section, m.Name)
	}
	Expect(sysctls(f["sysctls"])).To(Equal(tunedSysctls))
	Expect(sysctls(f["slots"])).To(Equal(tunedSlots))
	Expect(bootsNow()[m.Name]).To(Equal(original.boots[m.Name]), "boots of %s", m.Name)
	Expect(watched.outOfService(m.Name, time.Time{})).To(BeEmpty())
}

// settingOf is what a node's agent reports of a setting.
func settingOf(scn *v1alpha1.StorageClientNode, key string) v1alpha1.SettingStatus {
	GinkgoHelper()
	at := slices.IndexFunc(scn.Status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == key })
	Expect(at).To(BeNumerically(">=", 0), "StorageClientNode %s does not report %s", scn.Name, key)
	return scn.Status.Settings[at]
}
