package integration

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/test/memapi"
)

// evictionCase is a pod with its budgets, as the disruption controller and the kubelet would leave them. That controller does not run here.
type evictionCase struct {
	name    string
	pod     func(*corev1.Pod)
	budgets []func(*policyv1.PodDisruptionBudget)
}

func podIs(phase corev1.PodPhase, ready corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = phase
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	}
}

// budgetStatuses are states of a budget, by their descriptions.
var budgetStatuses = map[string]func(*policyv1.PodDisruptionBudget){
	"used up, enough healthy":          counted(0, 2, 2),
	"used up, too few healthy":         counted(0, 1, 2),
	"used up, none needed":             counted(0, 0, 0),
	"used up, more healthy than it is": counted(0, 3, 2),
	"allows one":                       counted(1, 3, 2),
	"allows one, but none is healthy":  counted(1, 0, 2),
	"never counted":                    func(*policyv1.PodDisruptionBudget) {},
	"never counted, failed":            failedSync,
	"changed since it was counted": func(b *policyv1.PodDisruptionBudget) {
		counted(1, 3, 2)(b)
		b.Status.ObservedGeneration = b.Generation - 1
	},
	"counted in a later generation": func(b *policyv1.PodDisruptionBudget) {
		counted(1, 3, 2)(b)
		b.Status.ObservedGeneration = b.Generation + 1
	},
	"counted, then failed": func(b *policyv1.PodDisruptionBudget) {
		counted(0, 1, 2)(b)
		failedSync(b)
	},
	"counted and healthy, then failed": func(b *policyv1.PodDisruptionBudget) {
		counted(0, 3, 2)(b)
		failedSync(b)
	},
	"too many evictions are pending": func(b *policyv1.PodDisruptionBudget) {
		counted(1, 1, 2)(b)
		b.Status.DisruptedPods = map[string]metav1.Time{}
		for i := range 2001 {
			b.Status.DisruptedPods["pod-"+strconv.Itoa(i)] = metav1.Now()
		}
	},
}

func counted(allowed, current, desired int32) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) {
		b.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: current, DesiredHealthy: desired, ExpectedPods: current,
		}
	}
}

const noScale = "runners.actions.example.com does not implement the scale subresource"

func failedSync(b *policyv1.PodDisruptionBudget) {
	b.Status.Conditions = []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: noScale,
		LastTransitionTime: metav1.Now(), ObservedGeneration: b.Status.ObservedGeneration,
	}}
}

// evictionCases combines policies, readiness and statuses of one budget, and adds pods and selectors that leave a budget without effect.
func evictionCases() []evictionCase {
	running, unready := podIs(corev1.PodRunning, corev1.ConditionTrue), podIs(corev1.PodRunning, corev1.ConditionFalse)
	spent, allows := counted(0, 2, 2), counted(1, 3, 2)
	var cases []evictionCase
	add := func(name string, pod func(*corev1.Pod), budgets ...func(*policyv1.PodDisruptionBudget)) {
		cases = append(cases, evictionCase{name: name, pod: pod, budgets: budgets})
	}
	for policy, unhealthy := range map[string]*policyv1.UnhealthyPodEvictionPolicyType{
		"unset": nil, "IfHealthyBudget": ptr.To(policyv1.IfHealthyBudget), "AlwaysAllow": ptr.To(policyv1.AlwaysAllow),
	} {
		for status, set := range budgetStatuses {
			of := func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = unhealthy; set(b) }
			add(policy+", ready, "+status, running, of)
			add(policy+", not ready, "+status, unready, of)
		}
	}
	for name, pod := range map[string]func(*corev1.Pod){
		"ready": running, "not ready": unready, "readiness unknown": podIs(corev1.PodRunning, corev1.ConditionUnknown),
		"pending": podIs(corev1.PodPending, corev1.ConditionFalse), "succeeded": podIs(corev1.PodSucceeded, corev1.ConditionFalse),
		"failed": podIs(corev1.PodFailed, corev1.ConditionFalse), "unknown phase": podIs(corev1.PodUnknown, corev1.ConditionTrue),
		"terminating": func(p *corev1.Pod) { running(p); p.Finalizers = []string{"example.com/stays"} },
	} {
		add(name+", no budget", pod)
		add(name+", two budgets", pod, spent, allows)
		add(name+", two budgets that allow it", pod, allows, allows)
		add(name+", used up", pod, counted(0, 1, 2))
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"no selector": nil, "another selector": {MatchLabels: map[string]string{"app": "other"}},
	} {
		add("ready, "+name, running, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = selector; spent(b) })
	}
	add("ready, another namespace", running, func(b *policyv1.PodDisruptionBudget) { b.Namespace = v1alpha1.ManagerNamespace; spent(b) })
	return cases
}

// create creates the objects of a case with their statuses. It returns them as the API server has them.
func (c evictionCase) create(index int) (*corev1.Pod, []policyv1.PodDisruptionBudget) {
	GinkgoHelper()
	app := "case-" + strconv.Itoa(index)
	var wanted corev1.Pod
	c.pod(&wanted)
	pod := newPod("default", app).On("a").Label("app", app).With(func(p *corev1.Pod) { p.Finalizers = wanted.Finalizers }).Create()
	pod.Status = wanted.Status
	Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
	if len(pod.Finalizers) > 0 {
		Expect(k8s.Delete(ctx, pod, client.GracePeriodSeconds(300))).To(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	}
	var budgets []policyv1.PodDisruptionBudget
	for i, change := range c.budgets {
		budget := &policyv1.PodDisruptionBudget{}
		budget.Namespace, budget.Name = "default", fmt.Sprintf("%s-%d", app, i)
		budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		change(budget)
		Expect(k8s.Create(ctx, budget)).To(Succeed())
		// Another generation separates the statuses.
		budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(2))
		Expect(k8s.Update(ctx, budget)).To(Succeed())
		change(budget)
		Expect(k8s.Status().Update(ctx, budget)).To(Succeed(), c.name)
		budgets = append(budgets, *budget)
	}
	return pod, budgets
}

// evictInMemory evicts the pod from the API server of the simulations.
func evictInMemory(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) error {
	server := memapi.NewServer(time.Now)
	server.Add("spec", pod)
	for _, budget := range budgets {
		budget.Status.ObservedGeneration += 1 - budget.Generation // memapi counts from 1
		server.Add("spec", &budget)
	}
	return drain.PolicyEvictor{Client: &memapi.Client{Server: server, Actor: "spec"}, DryRun: true}.Evict(ctx, pod)
}

// withoutRetries lets a client return the first response of a server that requires a retry.
type withoutRetries struct{ http.RoundTripper }

func (w withoutRetries) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

var _ = Describe("The judge of evictions", func() {
	It("decides as the API server does, and so does the API server of the simulations", func() {
		config := rest.CopyConfig(restConfig)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutRetries{next} })
		c, err := client.New(config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		evicted, kept := 0, 0
		for i, test := range evictionCases() {
			pod, budgets := test.create(i)
			var all policyv1.PodDisruptionBudgetList
			Expect(k8s.List(ctx, &all)).To(Succeed())
			judged := drain.JudgeEviction(pod, all.Items, time.Now())
			dryRun := drain.PolicyEvictor{Client: c, DryRun: true}.Evict(ctx, pod)
			inMemory := evictInMemory(pod, budgets)
			really := drain.PolicyEvictor{Client: c}.Evict(ctx, pod)
			if really == nil {
				evicted++
			} else {
				kept++
			}
			Expect(dryRun == nil).To(Equal(really == nil), "%s: got %v in a dry run, %v otherwise", test.name, dryRun, really)
			Expect(judged == nil).To(Equal(really == nil), "%s: judged %v, the API server responds %v", test.name, judged, really)
			Expect(apierrors.ReasonForError(inMemory) == apierrors.ReasonForError(really) || apierrors.IsInternalError(inMemory) && apierrors.IsInternalError(really)).
				To(BeTrue(), "%s: memapi responds %v, the API server %v", test.name, inMemory, really)
			// Each case has its own objects: none of another one decides.
			for _, budget := range budgets {
				Expect(k8s.Delete(ctx, &budget)).To(Succeed())
			}
		}
		By(fmt.Sprintf("%d pods were evicted, %d kept", evicted, kept))
		Expect(evicted).To(BeNumerically(">=", 40))
		Expect(kept).To(BeNumerically(">=", 40))
	})

	It("shows a budget that is never counted to the look ahead at once, and the drain evicts no other pod", func() {
		newPod("default", "web").On("a").Create()
		newPod("default", "runner").On("a").Label("app", "runner").Create()
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "runner"}}
		budget.Spec = policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "runner"}},
		}
		Expect(k8s.Create(ctx, budget)).To(Succeed())
		failedSync(budget)
		Expect(k8s.Status().Update(ctx, budget)).To(Succeed())
		options := v1alpha1.Drain{}
		want := "Eviction of Pod default/runner blocked by PodDisruptionBudget default/runner: its pods cannot be counted (" + noScale + "); set an integer minAvailable"

		drains := drain.NewRunner(k8s, k8s, time.Now)
		began := time.Now()
		result, err := drains.LookAhead(ctx, "a", options)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.String()).To(Equal(want))
		Expect(result.IsHeldByBudgets()).To(BeFalse(), "no cordon lifts the budget")
		Expect(time.Since(began)).To(BeNumerically("<", 5*time.Second), "the client waits 10 s if it asks about the budget")

		go func() {
			defer GinkgoRecover()
			Expect(drains.Start(ctx)).To(Succeed())
		}()
		Eventually(func(g Gomega) {
			result, err := drains.Drain(ctx, "a", options, drain.Start{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.String()).To(Equal(want + ". Waiting for pod default/web to terminate"))
		}).Should(Succeed())
		drains.Wait()
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, &corev1.Pod{})).To(Succeed())
	})
})
