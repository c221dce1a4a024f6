package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	disruptor "github.com/storageclient/operator/controllers/rollout"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	bootArgument      = "kernelArgument/ihash_entries"
	scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	doNotDisrupt      = "karpenter.sh/do-not-disrupt"
)

var _ = Describe("The rollout", func() {
	It("drains, reboots, verifies and uncordons one node after the other", func() {
		pool("a", "b")
		newPod("default", "web").On("a").Create()
		s := newStory(k8s, k8s)
		s.play()

		for _, name := range []string{"a", "b"} {
			expectReturned(name)
			Expect(getNode(name).Status.NodeInfo.BootID).To(Equal("boot-2"))
			Expect(findObject(name).Status.Rollout.Attempts).To(BeEquivalentTo(1))
		}
		Expect(claims()).To(BeEmpty())
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, &corev1.Pod{})).To(MatchError(apierrors.IsNotFound, "not found"))
		Expect(s.most).To(Equal(1), "maximum number of nodes that were cordoned at a time")
		Expect(s.reasons()).To(HaveEach("RolloutProgress"))
		fakeClock.Step(time.Minute)
		s.passes(1)
		Expect(s.nodesIn("Cordoned: ")).To(ConsistOf("a", "b"))
		Expect(s.nodesIn("May reboot: ")).To(ConsistOf("a", "b"))
		Expect(s.nodesIn("Settings verified after the reboot, in service: ")).To(ConsistOf("a", "b"))
	})

	It("reboots and accepts a node if another file overrides a setting, and does not reboot a node that would not be accepted", func() {
		const file = "/etc/sysctl.d/zzz-site.conf sets it to \"4096\""
		const conf = "/etc/modprobe.d/zz.conf sets it to \"64\""
		pool("a", "b")
		s := newStory(k8s, k8s)
		s.ails = map[string]v1alpha1.SettingStatus{
			"a": {Key: "module/nfs/max_session_slots", Desired: "180", Observed: "64", State: v1alpha1.SettingShadowed, TakesEffect: v1alpha1.EffectReboot, Message: conf},
			"b": {Key: "sysctl/net.core.rmem_max", Desired: "16777216", Observed: "16777216", State: v1alpha1.SettingShadowed, TakesEffect: v1alpha1.EffectLive, Message: file},
		}
		s.declareAilments()
		for range 20 {
			s.passes(1)
			s.turn()
		}
		Expect(findObject("a").Status.Rollout).To(And(HaveField("Phase", v1alpha1.RolloutWaiting), HaveField("Reason", "SettingsFailed"),
			HaveField("Message", ContainSubstring("module/nfs/max_session_slots: "+conf))))
		Expect(getNode("a").Status.NodeInfo.BootID).To(Equal("boot-1"))
		expectReturned("a")
		expectReturned("b")
		Expect(getNode("b").Status.NodeInfo.BootID).To(Equal("boot-2"))
		Expect(findObject("b").Status.Rollout).To(HaveField("Phase", v1alpha1.RolloutUpToDate))
		Expect(s.reasons()).To(HaveEach("RolloutProgress"))
		Expect(s.nodesIn("Cordoned: ")).To(ConsistOf("b"), "only the canary b may be cordoned")
	})

	It("reaches the same state if the manager dies between any two writes", func() {
		for writes := 0; ; writes++ {
			By(fmt.Sprintf("dying before write %d", writes+1))
			pool("a")
			newPod("default", "web").On("a").Create()
			dying := newMortal(writes)
			newStory(dying.Client, dying.Client).play()
			if dying.Died() {
				newStory(k8s, k8s).play()
			}
			expectReturned("a")
			Expect(getNode("a").Status.NodeInfo.BootID).To(Equal("boot-2"))
			Expect(claims()).To(BeEmpty())
			if !dying.Died() {
				Expect(writes).To(BeNumerically(">=", 12), "number of writes in the story")
				return
			}
			deleteAll()
		}
	})

	It("reports the pod and the budget that block a drain, and finally releases the node", func() {
		pool("a")
		newPod("default", "db").On("a").Label("app", "db").Create()
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-budget"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: ptr.To(intstr.FromInt32(1)),
				Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			},
		}
		Expect(k8s.Create(ctx, budget)).To(Succeed())
		budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
		Expect(k8s.Status().Update(ctx, budget)).To(Succeed())
		s := newStory(k8s, k8s)
		s.passes(2)

		passedOver := "blocked by PodDisruptionBudget default/db-budget"
		Expect(findObject("a").Status.Rollout).To(And(
			HaveField("Phase", v1alpha1.RolloutWaiting), HaveField("Reason", "DrainBlocked"), HaveField("Message", ContainSubstring(passedOver))))
		expectReturned("a")

		By("not showing it in dry runs")
		s.reconciler.Drains.DryRunEvictor = drain.PolicyEvictor{Client: interceptor.NewClient(k8s, interceptor.Funcs{
			SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
				return apierrors.NewNotFound(corev1.Resource("pods"), "db")
			},
		})}
		fakeClock.Step(5 * time.Minute)
		s.emitted()
		s.seen = nil
		s.passes(4)

		blocked := "Eviction of Pod default/db blocked by PodDisruptionBudget default/db-budget"
		Expect(findObject("a").Status.Rollout).To(And(
			HaveField("Phase", v1alpha1.RolloutDraining), HaveField("Reason", "DrainBlocked"), HaveField("Message", blocked)))
		Expect(s.emitted()).To(ContainElement("Warning DrainBlocked " + blocked))
		Expect(conditions("a")).To(ConsistOf(corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress))
		Expect(s.reasons()).To(ConsistOf("RolloutProgress", "DrainBlocked"), "the event must be sent once")

		fakeClock.Step(15 * time.Minute)
		s.passes(2)
		Expect(findObject("a").Status.Rollout).To(And(HaveField("Phase", v1alpha1.RolloutWaiting), HaveField("Reason", "DrainTimedOut")))
		expectReturned("a")
		Expect(s.reasons()).To(ContainElement("DrainTimedOut"))
	})

	It("keeps the permit of a node with a busy host, and withdraws it on a pause", func() {
		pool("a")
		s := newStory(k8s, k8s)
		for range 20 {
			if s.passes(1); findObject("a").Spec.RebootPermit != nil {
				break
			}
			if object := findObject("a"); object.Status.ObservedGeneration < object.Generation {
				agentReports("a", rebootDue(bootArgument))
			}
		}
		permit := findObject("a").Spec.RebootPermit
		Expect(permit).NotTo(BeNil())
		const lock = "/var/lib/dpkg/lock-frontend is locked by apt-get (process 1234)"
		agentReports("a", func(status *v1alpha1.StorageClientNodeStatus) {
			rebootDue(bootArgument)(status)
			status.Reboot = &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootWaiting, Message: lock}
		})
		s.passes(2)
		Expect(findObject("a").Status.Rollout).To(And(HaveField("Phase", v1alpha1.RolloutRebooting),
			HaveField("Reason", v1alpha1.RolloutReasonHostBusy), HaveField("Message", ContainSubstring(lock))))
		Expect(findObject("a").Spec.RebootPermit).To(Equal(permit))

		setAnnotation(getNode("a"), v1alpha1.PausedAnnotation, `"true"`)
		s.passes(2)
		Expect(findObject("a").Spec.RebootPermit).To(BeNil())
		Expect(findObject("a").Status.Rollout).To(And(HaveField("Phase", v1alpha1.RolloutWaiting),
			HaveField("Reason", v1alpha1.RolloutReasonNodePaused), HaveField("Attempts", BeZero())))
		expectReturned("a")
		Expect(s.reasons()).To(ConsistOf("RolloutProgress", "HostBusy", "NodeUncordoned"))
	})

	It("protects a cordoned node from autoscalers, and keeps the annotations of other users", func() {
		pool("a")
		setAnnotation(getNode("a"), doNotDisrupt, `"true"`)
		s := newStory(k8s, k8s)
		for range 60 {
			s.passes(1)
			if getNode("a").Spec.Unschedulable {
				Expect(getNode("a").Annotations).To(HaveKeyWithValue(scaleDownDisabled, "true"))
			} else {
				Expect(getNode("a").Annotations).NotTo(HaveKey(scaleDownDisabled))
			}
			if s.turn() {
				break
			}
		}
		Expect(s.most).To(Equal(1))
		expectReturned("a")
		Expect(getNode("a").Annotations).To(HaveKeyWithValue(doNotDisrupt, "true"))
	})

	It("removes a node from load balancers before its drain", func() {
		pool("a")
		Expect(retryUpdate("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Drain.ExcludeFromLoadBalancersSeconds = 60 })).To(Succeed())
		web := newPod("default", "web").On("a").Create()
		s := newStory(k8s, k8s)
		s.passes(4)
		Expect(getNode("a").Labels).To(HaveKey(corev1.LabelNodeExcludeBalancers))
		Expect(findObject("a").Status.Rollout.Reason).To(Equal("LeavingLoadBalancers"))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		s.play()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(web), web)).To(MatchError(apierrors.IsNotFound, "not found"))
		expectReturned("a")
	})

	It("skips a node that another user has cordoned, and counts it", func() {
		pool("a", "b")
		newNode("spare").Create()
		cordon("a")
		s := newStory(k8s, k8s)
		s.passes(3)

		Expect(claims()).To(BeEmpty())
		Expect(getNode("a").Spec.Unschedulable).To(BeTrue())
		Expect(getNode("b").Spec.Unschedulable).To(BeFalse())
		Expect(findObject("b").Status.Rollout.Message).To(ContainSubstring(": a is cordoned by another user or controller; bring a back"))
	})

	It("does not use budget that only a stale cache shows", func() {
		pool("a", "b")
		stale := &corev1.NodeList{}
		Expect(k8s.List(ctx, stale)).To(Succeed())
		cordon("b")
		cached := interceptor.NewClient(k8s, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if nodes, ok := list.(*corev1.NodeList); ok {
					stale.DeepCopyInto(nodes)
					return nil
				}
				return c.List(ctx, list, opts...)
			},
		})
		newStory(cached, k8s).passes(3)
		Expect(claims()).To(BeEmpty())
	})

	It("writes cordon and annotation in one patch, and fails if the Node was replaced", func() {
		pool("a")
		var patches []string
		recorded := interceptor.NewClient(k8s, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if _, isNode := object.(*corev1.Node); isNode {
					body, err := patch.Data(object)
					Expect(err).NotTo(HaveOccurred())
					patches = append(patches, string(body))
					setAnnotation(object, "example.com/somebody", `"was faster"`)
				}
				return c.Patch(ctx, object, patch, opts...)
			},
		})
		s := newStory(recorded, k8s)
		s.passes(1)
		Expect(patches).To(HaveLen(1))
		var body struct {
			Metadata struct {
				ResourceVersion string
				Annotations     map[string]string
			}
			Spec struct{ Unschedulable bool }
		}
		Expect(json.Unmarshal([]byte(patches[0]), &body)).To(Succeed())
		Expect(body.Spec.Unschedulable).To(BeTrue())
		Expect(body.Metadata.Annotations).To(HaveKey(v1alpha1.DisruptionAnnotation))
		Expect(body.Metadata.ResourceVersion).NotTo(BeEmpty())
		Expect(getNode("a").Spec.Unschedulable).To(BeFalse())
		Expect(s.reasons()).To(BeEmpty())
	})

	It("removes only the untuned taint from a tuned node", func() {
		pool("a")
		node := getNode("a")
		other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule}
		node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}, other}
		Expect(k8s.Update(ctx, node)).To(Succeed())
		agentReports("a", nil)
		newStory(k8s, k8s).passes(2)
		Expect(getNode("a").Spec.Taints).To(ConsistOf(other))
	})

	It("does not change conditions of the same type that others set", func() {
		pool("a")
		node := getNode("a")
		theirs := corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionFalse, Reason: "Firmware"}
		node.Status.Conditions = append(node.Status.Conditions, theirs)
		Expect(k8s.Status().Update(ctx, node)).To(Succeed())
		newStory(k8s, k8s).play()
		Expect(getNode("a").Status.Conditions).To(ContainElement(
			And(HaveField("Type", corev1.NodeDrained), HaveField("Reason", "Firmware"))))
	})
})

// pool creates a profile with a kernel argument, and nodes that have staged it, each with its agent.
func pool(nodes ...string) {
	GinkgoHelper()
	profile := newProfile("eda").KernelArgument("ihash_entries=16777216").RebootPolicy(v1alpha1.RebootAutomatic).
		With(func(s *v1alpha1.StorageClientProfileSpec) {
			s.Rollout.SettleSeconds = ptr.To[int32](0)
			s.Rollout.Canary = &v1alpha1.Canary{SoakSeconds: ptr.To[int32](0)}
		}).Build()
	profile.Finalizers = []string{v1alpha1.Finalizer}
	Expect(k8s.Create(ctx, profile)).To(Succeed())
	for _, name := range nodes {
		builder := newNode(name)
		if len(nodes) == 1 {
			// The only node that takes pods without tolerations would not be claimed.
			builder.Taint(corev1.Taint{Key: "example.com/dedicated", Effect: corev1.TaintEffectNoSchedule})
		}
		node := builder.Create()
		agentPod(name)
		merged := nodesettings.Merge([]v1alpha1.StorageClientProfile{*profile}, nil)
		object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
		}}
		object.Spec.Settings, object.Spec.Hash, object.Spec.BootHash = merged.Settings, merged.Hash, merged.BootHash
		Expect(k8s.Create(ctx, object)).To(Succeed())
		agentReports(name, rebootDue(bootArgument))
	}
}

// story is a rollout with agents and machines that follow their specs.
type story struct {
	reconciler *disruptor.Reconciler
	recorder   *events.FakeRecorder
	seen       []string
	// most is the maximum number of nodes that were cordoned at a time.
	most int
	// ails contains, by node, a setting that has the same status before and after a reboot.
	ails map[string]v1alpha1.SettingStatus
}

// declareAilments adds the settings that ail to the specs of the nodes.
func (s *story) declareAilments() {
	GinkgoHelper()
	for name, ail := range s.ails {
		object := findObject(name)
		object.Spec.Settings = append(object.Spec.Settings, v1alpha1.NodeSetting{Key: ail.Key, Value: ail.Desired, Profile: "eda", OnRemoval: v1alpha1.DeletionRestore})
		Expect(k8s.Update(ctx, object)).To(Succeed())
		agentReports(name, s.withAilment(name, rebootDue(bootArgument)))
	}
}

// withAilment also reports the current status of a node's setting that ails.
func (s *story) withAilment(node string, change func(*v1alpha1.StorageClientNodeStatus)) func(*v1alpha1.StorageClientNodeStatus) {
	return func(status *v1alpha1.StorageClientNodeStatus) {
		if change != nil {
			change(status)
		}
		for i := range status.Settings {
			if status.Settings[i].Key == s.ails[node].Key {
				status.Settings[i] = s.ails[node]
			}
		}
	}
}

// newStory returns a manager whose client reads from c. For live reads it uses live.
func newStory(c client.Client, live client.Reader) *story {
	recorder := events.NewFakeRecorder(1000)
	drains := drain.NewRunner(live, c, time.Now)
	drainsCtx, stop := context.WithCancel(ctx)
	go func() { _ = drains.Start(drainsCtx) }()
	DeferCleanup(stop)
	return &story{recorder: recorder, reconciler: &disruptor.Reconciler{
		Drains: drains,
		Client: c, APIReader: live, Recorder: recorder, Clock: fakeClock,
		MaxUnavailable: intstr.FromInt32(1),
		UntunedTaint:   v1alpha1.UntunedTaint,
	}}
}

// pass reconciles once and advances the clock. Agents and machines do not delay it for long.
func (s *story) pass() (ctrl.Result, error) {
	result, err := s.reconciler.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
	s.reconciler.Drains.Wait()
	fakeClock.Step(min(max(result.RequeueAfter, time.Second), 10*time.Second))
	return result, err
}

func (s *story) passes(count int) {
	GinkgoHelper()
	for range count {
		_, err := s.pass()
		Expect(err).NotTo(HaveOccurred())
	}
}

// play runs passes until every node is up to date, or the manager has died.
func (s *story) play() {
	GinkgoHelper()
	for range 60 {
		if _, err := s.pass(); err != nil {
			Expect(err).To(MatchError(errDead))
			return
		}
		if s.turn() {
			return
		}
	}
	Fail("the rollout did not end within 60 passes")
}

// turn runs the agents and machines between two passes. It reports whether all is done.
func (s *story) turn() bool {
	GinkgoHelper()
	nodes, done, cordoned := &corev1.NodeList{}, true, 0
	Expect(k8s.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		node := &nodes.Items[i]
		object := findObject(node.Name)
		if object == nil {
			continue
		}
		if node.Spec.Unschedulable {
			cordoned++
		}
		booted := node.Status.NodeInfo.BootID == "boot-2"
		switch permit := object.Spec.RebootPermit; {
		case permit != nil && permit.BootID == node.Status.NodeInfo.BootID:
			agentReports(node.Name, s.withAilment(node.Name, func(status *v1alpha1.StorageClientNodeStatus) {
				rebootDue(bootArgument)(status)
				status.Reboot = &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootStarted}
			}))
			reboot(node.Name, "boot-2", corev1.ConditionTrue)
		case object.Status.ObservedGeneration == object.Generation && object.Status.BootID == node.Status.NodeInfo.BootID:
		case booted:
			agentReports(node.Name, s.withAilment(node.Name, nil))
		default:
			agentReports(node.Name, s.withAilment(node.Name, rebootDue(bootArgument)))
		}
		phase := ptr.Deref(object.Status.Rollout, v1alpha1.RolloutStatus{}).Phase
		done = done && phase == v1alpha1.RolloutUpToDate && !node.Spec.Unschedulable && object.Spec.RebootPermit == nil
	}
	s.most = max(s.most, cordoned)
	return done && len(claims()) == 0
}

// nodesIn returns the nodes that progress events name with this text.
func (s *story) nodesIn(text string) []string {
	var nodes []string
	for _, event := range s.emitted() {
		_, rest, found := strings.Cut(event, text)
		if list, _, _ := strings.Cut(rest, ". "); found {
			nodes = append(nodes, strings.Split(list, ", ")...)
		}
	}
	return nodes
}

// emitted returns the events so far: type, reason, note.
func (s *story) emitted() []string {
	for {
		select {
		case event := <-s.recorder.Events:
			s.seen = append(s.seen, event)
		default:
			return s.seen
		}
	}
}

func (s *story) reasons() []string {
	var out []string
	for _, event := range s.emitted() {
		out = append(out, strings.Fields(event)[1])
	}
	return out
}

// expectReturned expects that a node carries no trace of the rollout.
func expectReturned(name string) {
	GinkgoHelper()
	node := getNode(name)
	Expect(node.Spec.Unschedulable).To(BeFalse())
	Expect(node.Annotations).NotTo(HaveKey(v1alpha1.DisruptionAnnotation))
	Expect(node.Annotations).NotTo(HaveKey(v1alpha1.DisruptionGuardsAnnotation))
	Expect(node.Annotations).NotTo(HaveKey(scaleDownDisabled))
	Expect(node.Labels).NotTo(HaveKey(corev1.LabelNodeExcludeBalancers))
	Expect(conditions(name)).To(BeEmpty())
	Expect(findObject(name).Spec.RebootPermit).To(BeNil())
}

// conditions returns the maintenance conditions on a Node.
func conditions(name string) []corev1.NodeConditionType {
	GinkgoHelper()
	var out []corev1.NodeConditionType
	for _, c := range getNode(name).Status.Conditions {
		switch c.Type {
		case corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained:
			out = append(out, c.Type)
		}
	}
	return out
}

func claims() map[string]v1alpha1.Disruption {
	GinkgoHelper()
	out := map[string]v1alpha1.Disruption{}
	budget := &corev1.ConfigMap{}
	err := k8s.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, budget)
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	for name, value := range budget.Data {
		claim, err := v1alpha1.DecodeDisruption(value)
		Expect(err).NotTo(HaveOccurred())
		out[name] = claim
	}
	return out
}

func cordon(name string) {
	GinkgoHelper()
	node := getNode(name)
	node.Spec.Unschedulable = true
	Expect(k8s.Update(ctx, node)).To(Succeed())
}
