//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
)

const (
	// shadowed labels the spec, and is the name of its profile.
	shadowed = "shadowed"
	// shadowedLabel is the label of the one node that the profile selects.
	shadowedLabel = "e2e.local/shadowed"

	// siteFile sorts after the operator's file.
	siteFile    = "/etc/sysctl.d/zzz-site.conf"
	siteRmemMax = "4194304"
	shadowKey   = "sysctl/net.core.rmem_max"
	shadowArg   = "kernelArgument/ihash_entries"
	shadowWant  = "16777216"
)

// expectShadowed reboots a node for a kernel argument while a site's file overrides the operator's file at that boot. The node is
// accepted, the agent sets the value again, and Ready names the file.
func expectShadowed(ctx SpecContext) {
	installOperator(ctx)
	m := nodes.Nodes[0]
	before, boots, began := factsOf(ctx, m), len(watched.boots(m.Name)), time.Now()
	_, err := m.Run(ctx, "echo 'net.core.rmem_max = "+siteRmemMax+"' >"+siteFile)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cleanUpShadowed, m, NodeTimeout(patience.Of(time.Minute)))
	mustKubectl(ctx, "label", "node", m.Name, shadowedLabel+"=true", "--overwrite")
	mustKubectl(ctx, "create", "-f", "testdata/shadowed.yaml")

	eventually(ctx, rebootAll, "the node has been rebooted and accepted, and Ready names the file", func(g Gomega) {
		profile := getProfile(ctx, g, shadowed)
		if stalled := meta.FindStatusCondition(profile.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
			StopTrying("the profile is stalled: " + stalled.Message).Now()
		}
		g.Expect(watched.boots(m.Name)).To(HaveLen(boots + 1))
		ready := conditionOf(g, profile, v1alpha1.ConditionReady)
		g.Expect(ready.Reason).To(Equal(v1alpha1.ReasonReadyWithExceptions), ready.Message)
		g.Expect(ready.Status).To(Equal(metav1.ConditionTrue))
		g.Expect(ready.Message).To(And(ContainSubstring(m.Name), ContainSubstring(shadowKey), ContainSubstring(siteFile)))
		g.Expect(profile.Status.Nodes.UpToDate).To(Equal(int32(1)))
		g.Expect(profile.Status.Nodes.Exceptions).To(Equal(int32(1)))
		g.Expect(profile.Status.Plan.NodesToReboot).To(BeZero())
	})
	expectInService(ctx)
	expectShadowInForce(ctx, m)
	Expect(getSCN(ctx, Default, m.Name).Status.Rollout.Phase).To(Equal(v1alpha1.RolloutUpToDate))
	Expect(watched.outOfService(m.Name, began)).NotTo(BeEmpty(), "the node was drained for the kernel argument")

	By("removing the file clears the exception without a reboot")
	_, err = m.Run(ctx, "rm "+siteFile)
	Expect(err).NotTo(HaveOccurred())
	eventually(ctx, 3*time.Minute, "the profile is up to date", func(g Gomega) {
		ready := conditionOf(g, getProfile(ctx, g, shadowed), v1alpha1.ConditionReady)
		g.Expect(ready.Reason).To(Equal(v1alpha1.ReasonUpToDate), ready.Message)
	})
	Expect(watched.boots(m.Name)).To(HaveLen(boots + 1))

	mustKubectl(ctx, "delete", "storageclientprofile", shadowed, "--wait=false")
	waitUntilGone(ctx, rebootAll, shadowed)
	Expect(watched.boots(m.Name)).To(HaveLen(boots+2), "boots, including the one that removes the kernel argument")
	expectInService(ctx)
	now := factsOf(ctx, m)
	for _, section := range []string{"sysctls", "cmdline", "inodeHash", "etc", "ours"} {
		Expect(now[section]).To(Equal(before[section]), "%s of %s", section, m.Name)
	}
}

// expectShadowInForce reads the value from the machine, and the report from its agent.
func expectShadowInForce(ctx context.Context, m *cluster.Machine) {
	GinkgoHelper()
	f := factsOf(ctx, m)
	Expect(f.arguments()).To(ContainElement("ihash_entries=" + shadowWant))
	Expect(f["inodeHash"]).To(Equal(tunedHash))
	Expect(sysctls(f["sysctls"])).To(HaveKeyWithValue("net.core.rmem_max", shadowWant), "set again after the boot")
	scn := getSCN(ctx, Default, m.Name)
	Expect(settingOf(scn, shadowArg).State).To(Equal(v1alpha1.SettingInSync))
	setting := settingOf(scn, shadowKey)
	Expect(setting.State).To(Equal(v1alpha1.SettingShadowed), setting.Message)
	Expect(setting.Observed).To(Equal(shadowWant))
	Expect(setting.Message).To(And(ContainSubstring(siteFile), ContainSubstring(siteRmemMax)))
	Expect(setting.Drift).To(BeNil(), "drift after a boot")
	console, err := m.Run(ctx, "journalctl --boot --output=cat --unit=systemd-sysctl.service; cat "+siteFile)
	Expect(err).NotTo(HaveOccurred())
	By(m.Name + ": " + console)
}

func cleanUpShadowed(ctx context.Context, m *cluster.Machine) {
	mustKubectl(ctx, "label", "node", m.Name, shadowedLabel+"-")
	_, err := m.Run(ctx, "rm -f "+siteFile)
	Expect(err).NotTo(HaveOccurred())
}
