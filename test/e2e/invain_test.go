//go:build e2e

package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
)

const (
	// inVain labels the spec, and is the name of its profile and namespace.
	inVain       = "in-vain"
	inVainLabel  = "e2e.local/in-vain"
	keeperLabel  = "e2e.local/keeper"
	keeperBudget = inVain + "/keep-all"
)

// expectPassedOver creates a budget that never permits an eviction on the first node of the rollout. No pod is evicted there. The status
// must name budget and pod, and the other node becomes the canary.
func expectPassedOver(ctx SpecContext) {
	installOperator(ctx)
	blocked, other := firstInTurn(ctx)
	boots := map[string]int{blocked.Name: len(watched.boots(blocked.Name)), other.Name: len(watched.boots(other.Name))}
	DeferCleanup(cleanUpInVain, NodeTimeout(patience.Of(5*time.Minute)))
	mustKubectl(ctx, "label", "node", blocked.Name, keeperLabel+"=true", "--overwrite")
	mustKubectl(ctx, "create", "-f", "testdata/in-vain.yaml")
	var keeper corev1.Pod
	eventually(ctx, podStart, "the protected pod runs on "+blocked.Name, func(g Gomega) {
		keeper = keeperPod(ctx, g)
		g.Expect(isReady(keeper)).To(BeTrue())
		g.Expect(keeper.Spec.NodeName).To(Equal(blocked.Name))
	})
	began := time.Now()
	mustKubectl(ctx, "label", "node", blocked.Name, other.Name, inVainLabel+"=true", "--overwrite")
	mustKubectl(ctx, "create", "-f", "testdata/in-vain-profile.yaml")

	expectSkipped := func(g Gomega) {
		rollout := getSCN(ctx, g, blocked.Name).Status.Rollout
		g.Expect(rollout).NotTo(BeNil())
		g.Expect(rollout.Phase).To(Equal(v1alpha1.RolloutWaiting), rollout.Message)
		g.Expect(rollout.Message).To(And(ContainSubstring(keeperBudget), ContainSubstring(keeper.Name)))
		g.Expect(keeperPod(ctx, g).UID).To(Equal(keeper.UID), "the pod was evicted in vain")
		g.Expect(watched.outOfService(blocked.Name, began)).To(BeEmpty(), "%s is left in service", blocked.Name)
		g.Expect(watched.boots(blocked.Name)).To(HaveLen(boots[blocked.Name]), "boot IDs of %s", blocked.Name)
	}
	eventually(ctx, podStart, blocked.Name+" is skipped, and the reason names budget and pod", expectSkipped)
	By(blocked.Name + ": " + getSCN(ctx, Default, blocked.Name).Status.Rollout.Message)
	eventually(ctx, rebootAll, other.Name+" is rebooted as the canary", func(g Gomega) {
		expectSkipped(g)
		g.Expect(watched.boots(other.Name)).To(HaveLen(boots[other.Name] + 1))
		g.Expect(getSCN(ctx, g, other.Name).Status.Rollout.Phase).To(Equal(v1alpha1.RolloutUpToDate))
		g.Expect(stateOf(getNode(ctx, g, other.Name)).available()).To(BeTrue())
		g.Expect(getProfile(ctx, g, inVain).Status.Nodes.UpToDate).To(Equal(int32(1)))
	})
	Consistently(expectSkipped).WithContext(ctx).WithTimeout(30 * time.Second).WithPolling(5 * time.Second).Should(Succeed())

	mustKubectl(ctx, "delete", "storageclientprofile", inVain, "--wait=false")
	waitUntilGone(ctx, rebootAll, inVain)
	expectInService(ctx)
	Expect(keeperPod(ctx, Default).UID).To(Equal(keeper.UID), "the pod still runs after the rollout, because its node was skipped")
	Expect(watched.boots(blocked.Name)).To(HaveLen(boots[blocked.Name]), "boot IDs of %s", blocked.Name)
}

// firstInTurn returns the first node of the rollout, and the other one. The node of the leading manager is last. If the leader is on
// neither, the older node is first.
func firstInTurn(ctx context.Context) (first, last *cluster.Machine) {
	GinkgoHelper()
	var lease coordinationv1.Lease
	Expect(api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerLease}, &lease)).To(Succeed())
	Expect(lease.Spec.HolderIdentity).NotTo(BeNil(), "holder of the manager's lease")
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	var leader corev1.Pod
	Expect(api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: pod}, &leader)).To(Succeed())
	first, last = nodes.Nodes[0], nodes.Nodes[1]
	Expect(leader.Spec.NodeName).To(BeElementOf(first.Name, last.Name))
	if leader.Spec.NodeName == first.Name {
		return last, first
	}
	return first, last
}

func keeperPod(ctx context.Context, g Gomega) corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	g.Expect(api.List(ctx, &pods, client.InNamespace(inVain), client.MatchingLabels{"app": "keeper"})).To(Succeed())
	g.Expect(pods.Items).To(HaveLen(1))
	return pods.Items[0]
}

func cleanUpInVain(ctx context.Context) {
	mustKubectl(ctx, "delete", "namespace", inVain, "--ignore-not-found", "--wait=false")
	mustKubectl(ctx, "label", "node", "--all", inVainLabel+"-", keeperLabel+"-")
}
