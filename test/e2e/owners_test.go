//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
)

const (
	// owned labels the spec, and is the name of its profile and namespace.
	owned      = "owners"
	ownedLabel = "e2e.local/owners"
	homeLabel  = "e2e.local/owners-home"
	// onlyTaint leaves one node in service for pods without tolerations.
	onlyTaint = "e2e.local/only"
	// slowBy is the delay of the clock on the node with the pods.
	slowBy = 5 * time.Minute
)

// slowClock is a unit that sets the clock back at each boot, before the kubelet starts.
const slowClock = `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/date '--set=%d seconds ago'
[Install]
WantedBy=sysinit.target
`

// expectOwnersAsked plays the owners that a drain meets: a budget that is lifted only after a cordon, and a Deployment whose pod starts again
// on a cordoned node. The clock of their node is behind. First that node is the only one for pods, and then the only one for the manager.
func expectOwnersAsked(ctx SpecContext) {
	installOperator(ctx)
	home, other := firstInTurn(ctx)
	DeferCleanup(cleanUpOwners, home, other, NodeTimeout(patience.Of(10*time.Minute)))
	setClockBack(ctx, home)
	mustKubectl(ctx, "label", "node", home.Name, homeLabel+"=true", ownedLabel+"=true", "--overwrite")
	mustKubectl(ctx, "create", "-f", "testdata/owners.yaml")
	eventually(ctx, podStart, "the pods run on "+home.Name, func(g Gomega) {
		for _, app := range []string{"primary", "tolerant"} {
			pods := ownedPods(ctx, g, app)
			g.Expect(pods).To(HaveLen(1), app)
			g.Expect(isReady(pods[0])).To(BeTrue(), app)
			g.Expect(pods[0].Spec.NodeName).To(Equal(home.Name), app)
		}
	})
	primary, tolerant := ownedPods(ctx, Default, "primary")[0], ownedPods(ctx, Default, "tolerant")[0]
	boots := map[string]int{home.Name: len(watched.boots(home.Name)), other.Name: len(watched.boots(other.Name))}

	began := time.Now()
	mustKubectl(ctx, "taint", "node", other.Name, onlyTaint+"=true:NoSchedule")
	mustKubectl(ctx, "create", "-f", "testdata/owners-profile.yaml")
	expectReason(ctx, home, v1alpha1.RolloutReasonOnlySchedulableNode)
	pinManager(ctx, homeLabel)
	mustKubectl(ctx, "taint", "node", other.Name, onlyTaint+"-")
	expectReason(ctx, home, v1alpha1.RolloutReasonOnlyManagerNode)
	Expect(watched.outOfService(home.Name, began)).To(BeEmpty(), "%s is the only node, and stays in service", home.Name)
	pinManager(ctx, "")

	owner := startOwner(ctx, home)
	mustKubectl(ctx, "label", "node", other.Name, ownedLabel+"=true", "--overwrite")
	expectRebooted(ctx, rebootAll, other, boots)
	var note *v1alpha1.RolloutStatus
	eventually(ctx, rebootAll, home.Name+" is held by its budget alone, and the message names the field", func(g Gomega) {
		note = getSCN(ctx, g, home.Name).Status.Rollout
		g.Expect(note.HeldSince).NotTo(BeNil(), note.Message)
		g.Expect(note.Message).To(And(ContainSubstring(owned+"/primary"), ContainSubstring("rollout.drain.lookAhead")))
	})
	By(home.Name + ": " + note.Message)
	expectRebooted(ctx, plan.HeldPause+rebootAll, home, boots)

	cordoned, lifted := owner.times()
	Expect(lifted).NotTo(BeZero(), "the owner lifted its budget")
	Expect(cordoned.Sub(note.HeldSince.Time)).To(BeNumerically(">=", plan.HeldPause), "the pause before the cordon")
	Expect(owner.seen("primary")).To(HaveLen(2), "the pod of the lifted budget was evicted once")
	Expect(owner.seen("primary")).To(HaveKey(primary.UID))
	Expect(owner.seen("tolerant")).To(HaveLen(1), "a pod that would start again on the cordoned node is not evicted")
	Expect(owner.seen("tolerant")).To(HaveKey(tolerant.UID))
	Expect(clockOffset(ctx, home)).To(BeNumerically("~", -slowBy, time.Minute), "the clock of %s after its boot", home.Name)

	mustKubectl(ctx, "delete", "storageclientprofile", owned, "--wait=false")
	waitUntilGone(ctx, 2*plan.HeldPause+rebootAll, owned)
	expectInService(ctx)
}

// expectReason waits until the node of a rollout waits for this reason.
func expectReason(ctx context.Context, m *cluster.Machine, reason string) {
	GinkgoHelper()
	eventually(ctx, podStart, m.Name+" waits: "+reason, func(g Gomega) {
		note := getSCN(ctx, g, m.Name).Status.Rollout
		g.Expect(note).NotTo(BeNil())
		g.Expect(note.Reason).To(Equal(reason), note.Message)
	})
	By(m.Name + ": " + getSCN(ctx, Default, m.Name).Status.Rollout.Message)
}

func expectRebooted(ctx context.Context, within time.Duration, m *cluster.Machine, before map[string]int) {
	GinkgoHelper()
	eventually(ctx, within, m.Name+" is rebooted and in service", func(g Gomega) {
		g.Expect(watched.boots(m.Name)).To(HaveLen(before[m.Name] + 1))
		note := getSCN(ctx, g, m.Name).Status.Rollout
		g.Expect(note.Phase).To(Equal(v1alpha1.RolloutUpToDate), note.Message)
		g.Expect(stateOf(getNode(ctx, g, m.Name)).available()).To(BeTrue())
	})
}

// pinManager lets the manager run only on nodes with a label. Without a label it may run on both again.
func pinManager(ctx context.Context, label string) {
	GinkgoHelper()
	value := "null"
	if label != "" {
		value = `"true"`
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%s}}}}}`, homeLabel, value)
	mustKubectl(ctx, "patch", "deployment", "-n", v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, "--type=merge", "-p", patch)
	waitForManagers(ctx, 2)
}

func setClockBack(ctx context.Context, m *cluster.Machine) {
	GinkgoHelper()
	unit := fmt.Sprintf(slowClock, int(slowBy.Seconds()))
	run(ctx, m, "cat >/etc/systemd/system/slow-clock.service <<'UNIT'\n"+unit+"UNIT\nsystemctl daemon-reload; systemctl -q enable --now slow-clock.service")
	Expect(clockOffset(ctx, m)).To(BeNumerically("~", -slowBy, time.Minute))
}

// clockOffset returns how far the clock of a machine is ahead of this machine's. It is negative if the clock is behind.
func clockOffset(ctx context.Context, m *cluster.Machine) time.Duration {
	GinkgoHelper()
	out, err := m.Run(ctx, "date +%s")
	Expect(err).NotTo(HaveOccurred())
	var seconds int64
	_, err = fmt.Sscan(strings.TrimSpace(out), &seconds)
	Expect(err).NotTo(HaveOccurred(), out)
	return time.Until(time.Unix(seconds, 0))
}

func ownedPods(ctx context.Context, g Gomega, app string) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	g.Expect(api.List(ctx, &pods, client.InNamespace(owned), client.MatchingLabels{"app": app})).To(Succeed())
	return pods.Items
}

// owner lifts the budget of its pod once the node is cordoned, as the owners of databases do. It records every pod that it sees.
type owner struct {
	sync.Mutex
	cordoned, lifted time.Time
	permitted        bool
	pods             map[string]sets.Set[types.UID]
}

func startOwner(ctx context.Context, home *cluster.Machine) *owner {
	o := &owner{pods: map[string]sets.Set[types.UID]{"primary": {}, "tolerant": {}}}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	DeferCleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			o.look(ctx, home)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return o
}

// look ignores errors: it looks again after a second. From the permit on, it ignores the pod that tolerates everything: a kubelet that shuts
// down rejects each pod, and its Deployment creates another one.
func (o *owner) look(ctx context.Context, home *cluster.Machine) {
	o.Lock()
	defer o.Unlock()
	var scn v1alpha1.StorageClientNode
	if api.Get(ctx, client.ObjectKey{Name: home.Name}, &scn) != nil {
		return
	}
	o.permitted = o.permitted || scn.Status.Rollout != nil && scn.Status.Rollout.Phase == v1alpha1.RolloutRebooting
	for app, seen := range o.pods {
		if app == "tolerant" && o.permitted {
			continue
		}
		var pods corev1.PodList
		if api.List(ctx, &pods, client.InNamespace(owned), client.MatchingLabels{"app": app}) == nil {
			for _, pod := range pods.Items {
				seen.Insert(pod.UID)
			}
		}
	}
	var node corev1.Node
	if api.Get(ctx, client.ObjectKey{Name: home.Name}, &node) != nil || !node.Spec.Unschedulable || !o.lifted.IsZero() {
		return
	}
	if o.cordoned.IsZero() {
		o.cordoned = time.Now()
	}
	budget := policyv1.PodDisruptionBudget{}
	budget.Namespace, budget.Name = owned, "primary"
	lift := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxUnavailable":1}}`))
	if api.Patch(ctx, &budget, lift) == nil {
		o.lifted = time.Now()
	}
}

func (o *owner) times() (cordoned, lifted time.Time) {
	o.Lock()
	defer o.Unlock()
	return o.cordoned, o.lifted
}

// seen returns the UIDs of all pods of an application.
func (o *owner) seen(app string) sets.Set[types.UID] {
	o.Lock()
	defer o.Unlock()
	return o.pods[app].Clone()
}

func cleanUpOwners(ctx context.Context, home, other *cluster.Machine) {
	mustKubectl(ctx, "delete", "namespace", owned, "--ignore-not-found", "--wait=false")
	mustKubectl(ctx, "label", "node", "--all", ownedLabel+"-", homeLabel+"-")
	_, _ = kubectl(ctx, "taint", "node", other.Name, onlyTaint+"-")
	run(ctx, home, fmt.Sprintf("systemctl -q disable slow-clock.service && rm /etc/systemd/system/slow-clock.service && "+
		"date -s @$(( $(date +%%s) + %d ))", int(slowBy.Seconds())))
}
