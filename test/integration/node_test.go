package integration

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/node"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/controllers/profile"
	"github.com/storageclient/operator/tuning/standing"
)

// keeper is the part of the manager that handles profiles, and the objects, labels and conditions of nodes.
type keeper struct {
	nodes    *node.Reconciler
	profiles *profile.Reconciler
}

func newKeeper(c client.Client) keeper {
	agentFence := newFence(c, restConfig)
	return keeper{
		nodes: &node.Reconciler{
			Client: c, Clock: fakeClock, Fence: agentFence,
			Limits: plan.Limits{MaxConcurrentLive: intstr.FromString("100%"), UntunedTaint: v1alpha1.UntunedTaint},
		},
		profiles: &profile.Reconciler{
			Client: c, Clock: fakeClock,
			Fence: agentFence, Recorder: &events.FakeRecorder{},
		},
	}
}

func (k keeper) node(name string) (ctrl.Result, error) {
	return k.nodes.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
}

func (k keeper) profile(name string) (ctrl.Result, error) {
	return k.profiles.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
}

// round reconciles the profiles once and then the nodes, a few seconds after the previous round.
func (k keeper) round(profiles, nodes []string) error {
	fakeClock.Step(3 * time.Second)
	for _, name := range nodes {
		if err := noteTuned(name); err != nil {
			return err
		}
	}
	for _, name := range profiles {
		if _, err := k.profile(name); err != nil {
			return err
		}
	}
	for _, name := range nodes {
		if _, err := k.node(name); err != nil {
			return err
		}
	}
	return nil
}

// noteTuned writes the rollout's note for a node in service: the time since which it has had its settings.
func noteTuned(name string) error {
	object := &v1alpha1.StorageClientNode{}
	if err := k8s.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	note := &v1alpha1.RolloutStatus{}
	if object.Status.Rollout != nil {
		note = object.Status.Rollout
	}
	isNoted := note.Tuned != nil && note.Tuned.Hash == object.Spec.Hash
	if isNoted || object.Spec.Release || !standing.Read(&object.Spec, &object.Status, "").Soaks() {
		return nil
	}
	note.Tuned = &v1alpha1.RolloutTuned{Hash: object.Spec.Hash, Since: metav1.NewTime(fakeClock.Now().Truncate(time.Second))}
	object.Status.Rollout = note
	return k8s.Status().Update(ctx, object)
}

// settle runs enough rounds for all steps that do not wait for an agent or for time.
func (k keeper) settle(profiles, nodes []string) {
	GinkgoHelper()
	for range 3 {
		Expect(k.round(profiles, nodes)).To(Succeed())
	}
}

func getNode(name string) *corev1.Node {
	GinkgoHelper()
	object := &corev1.Node{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, object)).To(Succeed())
	return object
}

// findObject returns a node's StorageClientNode, or nil.
func findObject(name string) *v1alpha1.StorageClientNode {
	GinkgoHelper()
	object := &v1alpha1.StorageClientNode{}
	err := k8s.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return object
}

// findProfile returns a profile, or nil.
func findProfile(name string) *v1alpha1.StorageClientProfile {
	GinkgoHelper()
	object := &v1alpha1.StorageClientProfile{}
	err := k8s.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return object
}

func tunedCondition(name string) *corev1.NodeCondition {
	GinkgoHelper()
	conditions := getNode(name).Status.Conditions
	for i := range conditions {
		if conditions[i].Type == v1alpha1.TunedNodeCondition {
			return &conditions[i]
		}
	}
	return nil
}

// tunedReason returns the reason of a node's condition Tuned, empty if there is none.
func tunedReason(name string) string {
	GinkgoHelper()
	if condition := tunedCondition(name); condition != nil {
		return condition.Reason
	}
	return ""
}

// agentsWork has the agents of the nodes apply their specs, if they have one.
func agentsWork(nodes ...string) {
	GinkgoHelper()
	for _, name := range nodes {
		if object := findObject(name); object != nil && object.Status.ObservedGeneration != object.Generation {
			agentReports(name, nil)
		}
	}
}

// expectClean expects that a Node carries no trace of the operator.
func expectClean(name string) {
	GinkgoHelper()
	object := getNode(name)
	Expect(findObject(name)).To(BeNil())
	Expect(object.Labels).NotTo(HaveKey(v1alpha1.ManagedLabel))
	Expect(tunedCondition(name)).To(BeNil())
}

var _ = Describe("Nodes", func() {
	const rmem = "sysctl/net.core.rmem_max"
	var manager keeper

	BeforeEach(func() { manager = newKeeper(k8s) })

	withSysctl := func(name string) *profileBuilder { return newProfile(name).Sysctl("net.core.rmem_max", "16777216") }
	// noSoak lets all nodes start in one round.
	noSoak := func(spec *v1alpha1.StorageClientProfileSpec) {
		spec.Rollout.Canary = &v1alpha1.Canary{SoakSeconds: new(int32(0))}
	}

	It("get an object, the label and the condition, and are clean after the profile is deleted", func() {
		owner := newNode("a").Create()
		created := withSysctl("p").Create()

		By("starting nothing before the finalizer is set")
		_, err := manager.node("a")
		Expect(err).NotTo(HaveOccurred())
		expectClean("a")

		By("creating the object, then the label")
		manager.settle([]string{"p"}, []string{"a"})
		object := findObject("a")
		Expect(object).NotTo(BeNil())
		Expect(object.OwnerReferences).To(HaveExactElements(HaveField("UID", owner.UID)))
		Expect(object.Spec.Settings).To(HaveExactElements(v1alpha1.NodeSetting{
			Key: rmem, Value: "16777216", Profile: "p", OnRemoval: v1alpha1.DeletionRestore,
		}))
		Expect(object.Spec.Hash).NotTo(BeEmpty())
		Expect(getNode("a").Labels).To(HaveKeyWithValue(v1alpha1.ManagedLabel, "true"))
		Expect(tunedCondition("a")).To(HaveField("Status", corev1.ConditionUnknown))

		By("believing the agent once it is Ready and has reported in this boot")
		agentPod("a")
		agentReports("a", nil)
		manager.settle([]string{"p"}, []string{"a"})
		Expect(tunedCondition("a")).To(HaveField("Status", corev1.ConditionTrue))
		Expect(findProfile("p").Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", metav1.ConditionTrue))))

		By("not writing again")
		before, beforeObject := getNode("a").ResourceVersion, findObject("a").ResourceVersion
		manager.settle([]string{"p"}, []string{"a"})
		Expect(getNode("a").ResourceVersion).To(Equal(before))
		Expect(findObject("a").ResourceVersion).To(Equal(beforeObject))

		By("releasing it when the profile is deleted, and waiting for the agent")
		Expect(k8s.Delete(ctx, created)).To(Succeed())
		manager.settle([]string{"p"}, []string{"a"})
		Expect(findObject("a").Spec.Release).To(BeTrue())
		Expect(findObject("a").Spec.Settings).To(HaveLen(1), "the spec must keep the settings until they are restored")
		Expect(tunedReason("a")).To(Equal(v1alpha1.NodeReasonRestoring))
		Expect(findProfile("p")).NotTo(BeNil())

		By("removing every trace after the agent has restored")
		agentReports("a", nil)
		manager.settle([]string{"p"}, []string{"a"})
		expectClean("a")
		Expect(getNode("a").Status.Conditions).To(ContainElement(HaveField("Type", corev1.NodeReady)), "conditions of other users must stay")
		Expect(findProfile("p")).To(BeNil())
	})

	It("reach the same state after a crash between any two writes", func() {
		newNode("a").Create()
		agentPod("a")
		for deaths := 0; ; deaths++ {
			Expect(deaths).To(BeNumerically("<", 100), "the story must end")
			name := fmt.Sprintf("p%d", deaths)
			created := withSysctl(name).Create()
			dead := newMortal(deaths)
			story := func(k keeper, until func() bool) {
				for range 12 {
					if k.round([]string{name}, []string{"a"}) != nil || until() {
						return
					}
					agentsWork("a")
				}
			}
			tuned := func() bool { return tunedReason("a") == v1alpha1.NodeReasonTuned }
			story(newKeeper(dead.Client), tuned)
			story(newKeeper(k8s), tuned)
			Expect(tuned()).To(BeTrue(), "after %d writes", deaths)

			Expect(k8s.Delete(ctx, created)).To(Succeed())
			gone := func() bool { return findProfile(name) == nil }
			story(newKeeper(dead.Client), gone)
			story(newKeeper(k8s), gone)
			Expect(gone()).To(BeTrue(), "after %d writes", deaths)
			expectClean("a")
			if !dead.Died() {
				return
			}
		}
	})

	It("apply a change canary first, and then within the limit", func() {
		nodes := []string{"a", "b", "c", "d", "e"}
		for _, name := range nodes {
			newNode(name).Create()
			agentPod(name)
		}
		withSysctl("p").With(func(spec *v1alpha1.StorageClientProfileSpec) {
			limit := intOrString("40%")
			spec.Rollout.MaxConcurrentLive = &limit
		}).Create()
		given := func() int {
			count := 0
			for _, name := range nodes {
				if findObject(name) != nil {
					count++
				}
			}
			return count
		}
		manager.settle([]string{"p"}, nodes)
		Expect(given()).To(Equal(1), "only the canary may have the settings")
		Expect(findObject("a")).NotTo(BeNil(), "the canary must be the oldest node, or the first by name")

		By("holding the others while the canary soaks")
		agentReports("a", nil)
		manager.settle([]string{"p"}, nodes)
		Expect(given()).To(Equal(1))

		By("letting two of five follow")
		fakeClock.Step(time.Minute)
		manager.settle([]string{"p"}, nodes)
		Expect(given()).To(Equal(3))

		By("continuing with each finished node")
		agentReports("b", nil)
		manager.settle([]string{"p"}, nodes)
		Expect(given()).To(Equal(4))

		By("stopping if a node fails")
		agentReports("c", func(status *v1alpha1.StorageClientNodeStatus) { status.Settings[0].State = v1alpha1.SettingFailed })
		agentReports("d", nil)
		manager.settle([]string{"p"}, nodes)
		Expect(given()).To(Equal(4))
		Expect(findProfile("p").Status.Conditions).To(ContainElement(And(
			HaveField("Type", "Stalled"), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1alpha1.ReasonFailureThreshold))))

		By("starting with a canary again for another value, even if its agent is fast")
		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["net.core.rmem_max"] = "8388608" })).To(Succeed())
		for range 5 {
			Expect(manager.round([]string{"p"}, nodes)).To(Succeed())
			agentsWork(nodes...)
		}
		changed := 0
		for _, name := range nodes {
			if object := findObject(name); object != nil && object.Spec.Settings[0].Value == "8388608" {
				changed++
			}
		}
		Expect(changed).To(Equal(1), "only the canary may change during the soak")
	})

	It("are skipped during a pause, and while they are ignored", func() {
		newNode("a").Create()
		agentPod("a")
		withSysctl("p").With(noSoak).Create()
		manager.settle([]string{"p"}, []string{"a"})
		agentReports("a", nil)
		manager.settle([]string{"p"}, []string{"a"})
		value := func() string { return findObject("a").Spec.Settings[0].Value }
		change := func(to string) {
			Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.Sysctls["net.core.rmem_max"] = v1alpha1.SettingText(to)
			})).To(Succeed())
			manager.settle([]string{"p"}, []string{"a"})
		}
		for name, object := range map[string]client.Object{
			v1alpha1.PausedAnnotation + " on the profile": &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p"}},
			v1alpha1.PausedAnnotation + " on the Node":    &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			v1alpha1.PausedAnnotation + " on everything":  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace}},
			v1alpha1.IgnoreAnnotation + " on the Node":    &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		} {
			By(name)
			key, _, _ := cutLast(name)
			change("16777216")
			agentReports("a", nil)
			setAnnotation(object, key, `"true"`)
			change("8388608")
			Expect(value()).To(Equal("16777216"))
			Expect(getNode("a").Labels).To(HaveKey(v1alpha1.ManagedLabel))
			setAnnotation(object, key, "null")
			manager.settle([]string{"p"}, []string{"a"})
			Expect(value()).To(Equal("8388608"))
			agentReports("a", nil)
			manager.settle([]string{"p"}, []string{"a"})
		}
	})

	It("keep the settings of the other profile, and their reboot permit, when one of two profiles is deleted", func() {
		newNode("a").Create()
		agentPod("a")
		first := withSysctl("p").With(noSoak).Create()
		newProfile("q").Sysctl("net.core.wmem_max", "16777216").With(noSoak).Create()
		both, one := []string{"p", "q"}, []string{"a"}
		manager.settle(both, one)
		agentReports("a", nil)
		object := findObject("a")
		Expect(object.Spec.Settings).To(HaveLen(2))
		permit := &v1alpha1.RebootPermit{ID: "id", BootID: "boot-1"}
		object.Spec.RebootPermit = permit
		Expect(k8s.Update(ctx, object)).To(Succeed())

		Expect(k8s.Delete(ctx, first)).To(Succeed())
		manager.settle(both, one)
		object = findObject("a")
		Expect(object.Spec.Settings).To(HaveExactElements(HaveField("Profile", "q")))
		Expect(object.Spec.Release).To(BeFalse())
		Expect(object.Spec.RebootPermit).To(Equal(permit))
		Expect(findProfile("p")).NotTo(BeNil(), "the profile must stay until the agent has restored the setting")

		object.Spec.RebootPermit = nil
		Expect(k8s.Update(ctx, object)).To(Succeed())
		agentReports("a", nil)
		manager.settle(both, one)
		Expect(findProfile("p")).To(BeNil())
		Expect(getNode("a").Labels).To(HaveKey(v1alpha1.ManagedLabel))
	})

	It("get no agent while the fence is not effective, report the reason, and get it later", func() {
		newNode("a").Create()
		withSysctl("p").Create()
		healthy := manager.nodes.Fence
		manager.nodes.Fence = newFence(withoutFence(), restConfig)
		manager.settle([]string{"p"}, []string{"a"})
		Expect(findObject("a")).NotTo(BeNil(), "the test of the fence needs an object")
		Expect(getNode("a").Labels).NotTo(HaveKey(v1alpha1.ManagedLabel))
		Expect(tunedCondition("a")).To(And(
			HaveField("Status", corev1.ConditionUnknown), HaveField("Reason", v1alpha1.NodeReasonFenceMissing),
			HaveField("Message", ContainSubstring("ValidatingAdmissionPolicy storage-client-node-agent is missing; apply the operator's manifest again"))))
		result, err := manager.node("a")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(30*time.Second), "the fence has no watch, so the node must be requeued")

		By("rolling out its agent")
		manager.nodes.Fence = healthy
		manager.settle([]string{"p"}, []string{"a"})
		Expect(getNode("a").Labels).To(HaveKeyWithValue(v1alpha1.ManagedLabel, "true"))
		Expect(tunedReason("a")).To(Equal(v1alpha1.NodeReasonAgentSilent))

		By("keeping the agent when the fence is removed")
		manager.nodes.Fence = newFence(withoutFence(), restConfig)
		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["net.core.rmem_max"] = "8388608" })).To(Succeed())
		manager.settle([]string{"p"}, []string{"a"})
		Expect(getNode("a").Labels).To(HaveKeyWithValue(v1alpha1.ManagedLabel, "true"))
		Expect(tunedReason("a")).NotTo(Equal(v1alpha1.NodeReasonFenceMissing))
	})

	It("do not inherit the object of a former Node of their name", func() {
		newNode("a").Create()
		agentPod("a")
		withSysctl("p").With(noSoak).Create()
		manager.settle([]string{"p"}, []string{"a"})
		agentReports("a", nil)
		former := findObject("a").UID
		Expect(k8s.Delete(ctx, getNode("a"))).To(Succeed())
		_, err := manager.node("a")
		Expect(err).NotTo(HaveOccurred())

		successor := newNode("a").BootID("boot-2").Create()
		manager.settle([]string{"p"}, []string{"a"})
		object := findObject("a")
		Expect(object.UID).NotTo(Equal(former))
		Expect(object.OwnerReferences).To(HaveExactElements(HaveField("UID", successor.UID)))
		Expect(object.Status.Hash).To(BeEmpty(), "the report of the former machine must not count")
	})

	It("are unknown after a boot until their agent has reported", func() {
		newNode("a").Create()
		agentPod("a")
		withSysctl("p").With(noSoak).Create()
		manager.settle([]string{"p"}, []string{"a"})
		agentReports("a", nil)
		manager.settle([]string{"p"}, []string{"a"})
		Expect(tunedReason("a")).To(Equal(v1alpha1.NodeReasonTuned))
		reboot("a", "boot-2", corev1.ConditionTrue)
		manager.settle([]string{"p"}, []string{"a"})
		Expect(tunedCondition("a")).To(And(HaveField("Status", corev1.ConditionUnknown), HaveField("Reason", v1alpha1.NodeReasonAgentSilent)))
		agentReports("a", nil)
		manager.settle([]string{"p"}, []string{"a"})
		Expect(tunedReason("a")).To(Equal(v1alpha1.NodeReasonTuned))
	})

	It("report whether their storage servers respond, until they are no longer managed", func() {
		newNode("a").Create()
		agentPod("a")
		created := withSysctl("p").With(noSoak).Create()
		reachable := func() *corev1.NodeCondition {
			for _, c := range getNode("a").Status.Conditions {
				if c.Type == v1alpha1.StorageReachableNodeCondition {
					return &c
				}
			}
			return nil
		}
		reports := func(state v1alpha1.ServerState) {
			agentReports("a", func(status *v1alpha1.StorageClientNodeStatus) {
				since := metav1.NewTime(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
				status.Servers = []v1alpha1.ServerStatus{{
					Server: "filer1", Protocol: v1alpha1.ServerNFS, State: state, Reason: v1alpha1.ServerReasonUnreachable, Since: &since,
					Message: "Check the network", Volumes: []string{"pv1"}, PodUIDs: []string{"u1"},
				}}
			})
			manager.settle([]string{"p"}, []string{"a"})
		}
		manager.settle([]string{"p"}, []string{"a"})
		Expect(reachable()).To(HaveValue(And(HaveField("Status", corev1.ConditionUnknown), HaveField("Reason", v1alpha1.StorageReasonAgentSilent))))
		reports(v1alpha1.ServerAnswering)
		Expect(reachable()).To(HaveValue(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", v1alpha1.StorageReasonReachable))))
		reports(v1alpha1.ServerSilent)
		Expect(reachable()).To(HaveValue(And(
			HaveField("Status", corev1.ConditionFalse), HaveField("Reason", v1alpha1.StorageReasonServerSilent),
			HaveField("Message", "NFS server filer1 does not respond since 2026-11-23T08:00:00Z: Check the network (1 volume pv1; 1 pod)"))))
		Expect(tunedReason("a")).To(Equal(v1alpha1.NodeReasonTuned), "a silent server must not change the condition Tuned")
		reports(v1alpha1.ServerAnswering)
		Expect(reachable()).To(HaveValue(HaveField("Status", corev1.ConditionTrue)))

		Expect(k8s.Delete(ctx, created)).To(Succeed())
		for range 6 {
			manager.settle([]string{"p"}, []string{"a"})
			agentsWork("a")
		}
		expectClean("a")
		Expect(reachable()).To(BeNil())
	})

	It("retry without an error if their object has changed", func() {
		newNode("a").Create()
		agentPod("a")
		withSysctl("p").With(noSoak).Create()
		manager.settle([]string{"p"}, []string{"a"})
		agentReports("a", nil)
		Expect(retryUpdate("p", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["net.core.rmem_max"] = "8388608" })).To(Succeed())
		stale := newKeeper(staleReads(func() {
			agentReports("a", func(status *v1alpha1.StorageClientNodeStatus) { status.KernelVersion = "6.12.1" })
		}))
		result, err := stale.node("a")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		Expect(findObject("a").Spec.Settings[0].Value).To(Equal("16777216"))
	})
})
