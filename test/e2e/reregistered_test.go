//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

// reRegistered labels the spec, and is the name of its profile.
const reRegistered = "re-registered"

// expectRemembered deletes the Node of a machine that hangs with its kernel argument. The machine then comes back and registers again, as
// with a cloud's auto-repair. The profile records the failure, and neither the next node nor the new one gets the argument.
func expectRemembered(ctx SpecContext) {
	installFailingBoot(ctx)
	began, boots, hung := time.Now(), map[string]int{}, map[string]int{}
	for _, m := range nodes.Members() {
		boots[m.Name], hung[m.Name] = len(watched.boots(m.Name)), panics(m)
	}
	mustKubectl(ctx, "create", "-f", "testdata/re-registered.yaml")
	var lost *cluster.Machine
	eventually(ctx, rebootAll, "a node panics with its kernel argument", func(g Gomega) {
		for _, m := range nodes.Members() {
			if panics(m) > hung[m.Name] {
				lost = m
			}
		}
		g.Expect(lost).NotTo(BeNil())
	})
	former := getNode(ctx, Default, lost.Name).UID
	mustKubectl(ctx, "delete", "node", lost.Name)
	eventually(ctx, podStart, lost.Name+" counts as lost, and the profile has stopped", func(g Gomega) { expectLost(ctx, g, lost) })

	Expect(nodes.PowerCycle(lost)).To(Succeed())
	eventually(ctx, podStart, lost.Name+" has registered again, and its agent reports", func(g Gomega) {
		node := getNode(ctx, g, lost.Name)
		g.Expect(node.UID).NotTo(Equal(former))
		g.Expect(stateOf(node).available()).To(BeTrue(), stateOf(node).String())
		scn := getSCN(ctx, g, lost.Name)
		g.Expect(scn.Status.BootID).To(Equal(stateOf(node).bootID))
		g.Expect(scn.Status.Rollout).NotTo(BeNil())
	})
	By(lost.Name + ": " + getSCN(ctx, Default, lost.Name).Status.Rollout.Message)
	untouched := func(g Gomega) {
		expectLost(ctx, g, lost)
		for _, m := range nodes.Members() {
			want := boots[m.Name]
			if m == lost {
				want++ // The previous entry, once its power was cut.
			} else {
				g.Expect(watched.outOfService(m.Name, began)).To(BeEmpty(), "%s is left in service", m.Name)
			}
			g.Expect(watched.boots(m.Name)).To(HaveLen(want), "boot IDs of %s", m.Name)
			g.Expect(getSCN(ctx, g, m.Name).Spec.RebootPermit).To(BeNil(), m.Name)
			g.Expect(stateOf(getNode(ctx, g, m.Name)).available()).To(BeTrue(), m.Name)
		}
	}
	eventually(ctx, time.Minute, "no node is disrupted", untouched)
	Consistently(untouched).WithContext(ctx).WithTimeout(time.Minute).WithPolling(5 * time.Second).Should(Succeed())
	Expect(panics(lost)).To(Equal(hung[lost.Name]+1), "on the console of %s", lost.Name)

	mustKubectl(ctx, "delete", "storageclientprofile", reRegistered, "--wait=false")
	waitUntilGone(ctx, podStart, reRegistered)
	expectInService(ctx)
	expectHostsAsBefore(ctx)
}

// expectLost checks that a deleted node is recorded as failed, in the ConfigMap and in the profile's status. The profile must have
// stopped for it, and no claim may exist.
func expectLost(ctx context.Context, g Gomega, lost *cluster.Machine) {
	GinkgoHelper()
	profile := getProfile(ctx, g, reRegistered)
	g.Expect(profile.Status.LostNodes).To(ConsistOf(And(HaveField("Name", lost.Name), HaveField("Reason", v1alpha1.RolloutReasonNodeLost))))
	stalled := conditionOf(g, profile, v1alpha1.ConditionStalled)
	g.Expect(stalled.Reason).To(Equal(v1alpha1.ReasonFailureThreshold), stalled.Message)
	var failures, claims corev1.ConfigMap
	g.Expect(api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.FailuresConfigMap}, &failures)).To(Succeed())
	g.Expect(failures.Data).To(HaveKeyWithValue(reRegistered, ContainSubstring(`"`+lost.Name+`"`)))
	err := api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, &claims)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	g.Expect(claims.Data).To(BeEmpty(), "claims of the budget")
}
