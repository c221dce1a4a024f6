//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const failingName = "failing-boot"

// victim is the first node that got the failing kernel argument.
var victim *cluster.Machine

// admitFailingArgument configures managers and agents to accept the kernel argument that makes the kernel panic. They restart for it.
func admitFailingArgument(ctx context.Context) {
	GinkgoHelper()
	for _, workload := range [][]string{
		{"deployment", "-n", v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment}, {"daemonset", "-n", v1alpha1.AgentNamespace, v1alpha1.AgentDaemonSet},
	} {
		mustKubectl(ctx, append(append([]string{"patch"}, workload...), "--type=json",
			`-p=[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--allow-parameter=kernelArgument/rdinit"}]`)...)
	}
}

// installFailingBoot installs the operator and permits that argument, unless an earlier spec has done so.
func installFailingBoot(ctx context.Context) {
	GinkgoHelper()
	if operatorInstalled {
		return
	}
	installOperator(ctx)
	admitFailingArgument(ctx)
	waitForManagers(ctx, 2)
	rememberHosts(ctx)
}

// expectStopped applies a profile whose kernel argument makes the kernel panic.
func expectStopped(ctx SpecContext) {
	installFailingBoot(ctx)
	began, boots := time.Now(), map[string]int{}
	for _, m := range nodes.Members() {
		boots[m.Name] = len(watched.boots(m.Name))
	}
	mustKubectl(ctx, "create", "-f", "testdata/failing-boot.yaml")
	eventually(ctx, rebootAll, "the profile has stopped", func(g Gomega) {
		stalled := conditionOf(g, getProfile(ctx, g, failingName), v1alpha1.ConditionStalled)
		g.Expect(stalled.Reason).To(Equal(v1alpha1.ReasonFailureThreshold), stalled.Message)
	})
	victim = failedNode(ctx)
	rollout := getSCN(ctx, Default, victim.Name).Status.Rollout
	By(victim.Name + ": " + rollout.Message)
	Expect(rollout.Reason).To(Equal("RebootTimedOut"))
	Expect(rollout.Message).To(ContainSubstring("still has its old boot ID 2m0s after the permit"))
	Expect(panics(victim)).To(Equal(1), "on the console of %s", victim.Name)

	untouched := func(g Gomega) { expectOthersUntouched(ctx, g, began, boots) }
	// The agent may have reached the last nodes only during the boot of the first one.
	eventually(ctx, podStart, "every other node reports the reason for its wait", untouched)
	Consistently(untouched).WithContext(ctx).WithTimeout(20 * time.Second).WithPolling(5 * time.Second).Should(Succeed())
}

// failedNode returns the one node whose rollout has failed. It stays out of service and uses the budget.
func failedNode(ctx context.Context) *cluster.Machine {
	GinkgoHelper()
	profile := getProfile(ctx, Default, failingName)
	Expect(profile.Status.Nodes.Failed).To(Equal(int32(1)))
	Expect(profile.Status.Nodes.Disrupted).To(Equal(int32(1)))
	at := slices.IndexFunc(nodes.Members(), func(m *cluster.Machine) bool {
		rollout := getSCN(ctx, Default, m.Name).Status.Rollout
		return rollout != nil && rollout.Phase == v1alpha1.RolloutFailed
	})
	Expect(at).To(BeNumerically(">=", 0), "no StorageClientNode has failed")
	m := nodes.Members()[at]
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReady} {
		Expect(conditionOf(Default, profile, kind).Message).To(ContainSubstring(m.Name), kind)
	}
	state := stateOf(getNode(ctx, Default, m.Name))
	Expect(state.cordoned).To(BeTrue(), state.String())
	Expect(state.disrupted).To(BeTrue(), state.String())
	return m
}

// expectOthersUntouched checks that no other node was rebooted or taken out of service, and that the reason is reported.
func expectOthersUntouched(ctx context.Context, g Gomega, began time.Time, boots map[string]int) {
	GinkgoHelper()
	var claims corev1.ConfigMap
	g.Expect(api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, &claims)).To(Succeed())
	g.Expect(claims.Data).To(And(HaveLen(1), HaveKey(victim.Name)), "claims of the budget")
	for _, m := range nodes.Members() {
		g.Expect(watched.boots(m.Name)).To(HaveLen(boots[m.Name]), "boot IDs of %s", m.Name)
		if m == victim {
			continue
		}
		g.Expect(watched.outOfService(m.Name, began)).To(BeEmpty(), "%s is left in service", m.Name)
		g.Expect(stateOf(getNode(ctx, g, m.Name)).available()).To(BeTrue(), m.Name)
		scn := getSCN(ctx, g, m.Name)
		g.Expect(scn.Spec.RebootPermit).To(BeNil(), m.Name)
		g.Expect(scn.Status.Rollout).To(HaveField("Reason", v1alpha1.ReasonFailureThreshold), m.Name)
	}
}

// panics counts the kernel's panics on a machine's console.
func panics(m *cluster.Machine) int {
	GinkgoHelper()
	console, err := os.ReadFile(m.ConsolePath())
	Expect(err).NotTo(HaveOccurred())
	return bytes.Count(console, []byte("end Kernel panic"))
}

// expectRecovered cuts the node's power, as an administrator does with a node that hangs. GRUB then starts the previous entry without
// help. Finally the profile is deleted.
func expectRecovered(ctx SpecContext) {
	failedBoot := getNode(ctx, Default, victim.Name).Status.NodeInfo.BootID
	Expect(nodes.PowerCycle(victim)).To(Succeed())
	eventually(ctx, podStart, victim.Name+" is Ready, its agent reports, and it stays out of service as failed", func(g Gomega) {
		state := stateOf(getNode(ctx, g, victim.Name))
		g.Expect(state.ready && state.cordoned && state.disrupted).To(BeTrue(), state.String())
		scn := getSCN(ctx, g, victim.Name)
		g.Expect(scn.Status.BootID).To(And(Equal(state.bootID), Not(Equal(failedBoot))))
		g.Expect(scn.Spec.RebootPermit).To(BeNil(), "a permit is valid for one boot")
		g.Expect(scn.Status.Rollout.Phase).To(Equal(v1alpha1.RolloutFailed))
		g.Expect(scn.Status.Rollout.Reason).To(Equal("RebootWithoutEffect"))
		g.Expect(scn.Status.Rollout.Message).To(ContainSubstring("kernelArgument/rdinit"))
	})
	By(victim.Name + ": " + getSCN(ctx, Default, victim.Name).Status.Rollout.Message)
	Expect(panics(victim)).To(Equal(1), "on the console of %s", victim.Name)
	Expect(factsOf(ctx, victim)["cmdline"]).To(Equal(original.facts[victim.Name]["cmdline"]), "of %s", victim.Name)
	stalled := conditionOf(Default, getProfile(ctx, Default, failingName), v1alpha1.ConditionStalled)
	Expect(stalled.Status).To(Equal(metav1.ConditionTrue), "a node that came back without its desired values has failed")

	mustKubectl(ctx, "delete", "storageclientprofile", failingName, "--wait=false")
	waitUntilGone(ctx, podStart, failingName)
	expectInService(ctx)
	expectHostsAsBefore(ctx)
}

// expectHostsAsBefore checks that no node has traces of a kernel argument that was never confirmed.
func expectHostsAsBefore(ctx context.Context) {
	GinkgoHelper()
	for _, m := range nodes.Members() {
		now := factsOf(ctx, m)
		for _, section := range []string{"sysctls", "slots", "etc", "grub", "menu", "trial", "cmdline"} {
			Expect(now[section]).To(Equal(original.facts[m.Name][section]), "%s of %s", section, m.Name)
		}
		Expect(now["ours"]).To(BeEmpty(), "files of the operator on %s", m.Name)
	}
}
