package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/test/memapi"
)

// story is a world without random faults. Machines, users and workloads act only if the story lets them.
type story struct {
	*world
	t *testing.T
	// arguments and values are the keys of the settings of each profile: a kernel argument and a live value.
	arguments, values map[string]string
}

// tell returns an empty cluster whose budget is one node. It has no manager before the first turn.
func tell(t *testing.T) *story {
	t.Helper()
	w := newWorld(7)
	w.quiet, w.verbose, w.brief = true, true, true
	w.maxUnavailable = intstr.FromInt32(1)
	w.rejections, w.ailing = 1<<30, 1<<30
	w.limits = plan.Limits{MaxConcurrentLive: intstr.FromString("100%"), UntunedTaint: v1alpha1.UntunedTaint}
	s := &story{world: w, t: t, arguments: map[string]string{}, values: map[string]string{}}
	t.Cleanup(func() {
		if w.manager != nil {
			w.manager.end()
		}
		if w.broken != nil {
			t.Error(w.broken)
		}
		if t.Failed() {
			t.Logf("%s", strings.Join(w.log[max(0, len(w.log)-200):], "\n"))
		}
	})
	return s
}

// nodes adds machines, the oldest first.
func (s *story) nodes(names ...string) {
	for _, name := range names {
		s.node(name)
	}
}

func (s *story) node(name string, changes ...func(*corev1.Node)) *machine {
	m, node := s.newMachine(name)
	for _, change := range changes {
		change(node)
	}
	node.CreationTimestamp = metav1.NewTime(s.now.Add(time.Duration(s.serial)*time.Second - time.Hour))
	s.register(m, node)
	return m
}

func untuned(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule})
}

func (s *story) profile(name string, change func(*v1alpha1.StorageClientProfile), nodes ...string) {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.NodeSelector.MatchLabels = map[string]string{name: "yes"}
	p.Spec.IncludeControlPlane = true
	p.Spec.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
	p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromString("100%"))
	p.Spec = p.Spec.WithDefaults()
	number := len(s.arguments)
	s.arguments[name] = [...]string{"ihash_entries", "dhash_entries"}[number]
	s.values[name] = [...]string{"net.core.somaxconn", "net.core.netdev_max_backlog"}[number]
	s.setVersion(p, 1)
	if change != nil {
		change(p)
	}
	for _, node := range nodes {
		s.selectNode(name, node)
	}
	s.checkProfile(p)
	s.api.Add(byPeople, p)
}

// selectNode has a profile select a node.
func (s *story) selectNode(profile, node string) {
	s.changeNode(byPeople, node, func(n *corev1.Node) { n.Labels[profile] = "yes" })
}

// setVersion declares other values.
func (s *story) setVersion(p *v1alpha1.StorageClientProfile, version int) {
	number := strconv.Itoa(1<<15 + version)
	p.Spec.Node = &v1alpha1.NodeTuning{
		Sysctls:         map[string]v1alpha1.SettingText{s.values[p.Name]: v1alpha1.SettingText(number)},
		KernelArguments: []v1alpha1.KernelArgument{v1alpha1.KernelArgument(s.arguments[p.Name] + "=" + number)},
	}
}

// edit changes a profile.
func (s *story) edit(profile string, change func(*v1alpha1.StorageClientProfile)) {
	s.rulesChanged = s.now
	memapi.Change(s.api, byPeople, s.world.profile(profile), change)
}

// retry acts as a user who requests a retry.
func (s *story) retry(profile, value string) {
	s.edit(profile, func(p *v1alpha1.StorageClientProfile) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.RetryAnnotation, value)
	})
	s.allowRetries()
}

// pod adds a pod of its own app to a node. Its owner replaces it nowhere.
func (s *story) pod(name, node string) *app {
	a := &app{name: name, owner: "ReplicaSet", atLeast: -1}
	s.apps = append(s.apps, a)
	s.addPod(name, node, a.owner, a)
	return a
}

// blocked adds a pod whose budget does not let it go for a while.
func (s *story) blocked(name, node string, d time.Duration) *app {
	a := s.pod(name, node)
	a.blockedUntil = s.now.Add(d)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	s.api.Add(byPeople, budget)
	return a
}

// unseen adds a pod whose budget does not let it go for a while, and which no dry run shows.
func (s *story) unseen(name, node string, d time.Duration) *app {
	a := s.blocked(name, node, d)
	a.unseen = true
	return a
}

// job adds a pod that runs to completion.
func (s *story) job(name, node string, d time.Duration) {
	a := &app{name: name, owner: "Job", atLeast: -1}
	s.addPod(name, node, a.owner, a)
	pod := s.api.Get(memapi.Pods, workloads, name).(*corev1.Pod)
	memapi.Change(s.api, byPeople, pod, func(p *corev1.Pod) { p.Annotations = map[string]string{endsAt: s.now.Add(d).Format(time.RFC3339)} })
}

// start starts the manager, if none runs.
func (s *story) start() {
	s.countBudgets()
	if s.manager == nil {
		s.manager = s.startManager()
	}
}

// play lets time pass.
func (s *story) play(d time.Duration) {
	s.start()
	s.stopAt = s.now.Add(d)
	for s.now.Before(s.stopAt) && s.broken == nil {
		s.turn()
	}
}

// turn lets all controllers and agents work once, and time pass.
func (s *story) turn() {
	s.start()
	s.playCalmly()
}

// prepare gives the nodes their settings, and lets their agents report, before the rollout may reboot any.
func (s *story) prepare() {
	setPolicy := func(policy v1alpha1.RebootPolicy) {
		for _, name := range s.names(memapi.Profiles) {
			s.edit(name, func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.Policy = policy })
		}
	}
	setPolicy(v1alpha1.RebootNever)
	s.play(5 * time.Minute)
	setPolicy(v1alpha1.RebootAutomatic)
	s.manager.cache.Sync()
}

// pass lets the rollout make one pass.
func (s *story) pass() {
	s.start()
	s.manager.cache.Sync()
	s.manager.due = true
	s.manager.runRollout()
}

// until plays until a condition is true.
func (s *story) until(what string, is func() bool) {
	s.t.Helper()
	s.start()
	for range 4000 {
		if is() {
			return
		}
		if s.turn(); s.broken != nil {
			s.t.Fatal(s.broken)
		}
	}
	s.t.Fatalf("never: %s", what)
}

func (s *story) note(node string) v1alpha1.RolloutStatus {
	if c := s.clientNode(node); c != nil && c.Status.Rollout != nil {
		return *c.Status.Rollout
	}
	return v1alpha1.RolloutStatus{}
}

func (s *story) isClaimed(node string) bool {
	_, claimed := s.claims()[node]
	return claimed
}

func (s *story) isCordonedNode(node string) bool { return s.world.node(node).Spec.Unschedulable }

func (s *story) isPermitted(node string) bool {
	c := s.clientNode(node)
	return c != nil && c.Spec.RebootPermit != nil
}

// isDone reports whether a node has the value of a profile's kernel argument.
func (s *story) isDone(node, profile string) bool {
	want := string(s.world.profile(profile).Spec.Node.KernelArguments[0])
	return s.arguments[profile]+"="+s.machines[node].inForce["kernelArgument/"+s.arguments[profile]] == want
}

// reboots counts the reboots of all machines for permits.
func (s *story) rebooted() int {
	sum := 0
	for _, m := range s.machines {
		for _, count := range m.reboots {
			sum += count
		}
	}
	return sum
}

// wantInService checks that a node is in service and has no trace of the rollout.
func (s *story) wantInService(node string) {
	s.t.Helper()
	if n := s.world.node(node); n.Spec.Unschedulable || hasMark(n) || s.isPermitted(node) || s.isClaimed(node) {
		s.t.Errorf("%s: got cordoned %t, annotation %t, permit %t, claim %t; want a node in service", node, n.Spec.Unschedulable, hasMark(n), s.isPermitted(node), s.isClaimed(node))
	}
}

// describeStep describes a write of the rollout in a line, or of the node controller about settings; empty for other writes.
func describeStep(w memapi.Write) string {
	switch after := w.After.(type) {
	case *corev1.ConfigMap:
		return describeClaims(claimsOf(w.Before), after)
	case *corev1.Node:
		if before, known := w.Before.(*corev1.Node); known && w.Actor == byRollout {
			return describeNode(before, after)
		}
	case *v1alpha1.StorageClientNode:
		before, known := w.Before.(*v1alpha1.StorageClientNode)
		if !known {
			return "gives " + after.Name + " settings"
		}
		return describeClientNode(before, after)
	case *corev1.Pod:
		if w.Eviction {
			return "evicts pod " + after.Name
		}
	}
	return ""
}

func describeClaims(before map[string]string, after *corev1.ConfigMap) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(after.Data)) {
		switch {
		case before[key] == after.Data[key]:
		case after.Name == v1alpha1.FailuresConfigMap:
			failures, _ := v1alpha1.DecodeFailures(after.Data[key])
			for _, boot := range failures.Boots {
				for _, node := range boot.Nodes {
					out = append(out, fmt.Sprintf("failure of %s for %s: %s", node.Name, key, node.Reason))
				}
			}
			if len(failures.Boots) == 0 {
				out = append(out, "no failures for "+key)
			}
		case before[key] == "":
			claim, _ := v1alpha1.DecodeDisruption(after.Data[key])
			out = append(out, fmt.Sprintf("claims %s for %s", key, claim.Profile))
		default:
			claim, _ := v1alpha1.DecodeDisruption(after.Data[key])
			out = append(out, fmt.Sprintf("claim of %s: permit %t", key, claim.Permit != nil))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if after.Data[key] == "" {
			out = append(out, "releases "+key)
		}
	}
	return strings.Join(out, ", ")
}

func describeNode(before, after *corev1.Node) string {
	conditions := func(n *corev1.Node) string {
		var out []string
		for _, c := range n.Status.Conditions {
			if c.Reason == "StorageClientRollout" {
				out = append(out, string(c.Type))
			}
		}
		return strings.Join(out, " ")
	}
	switch {
	case !hasMark(before) && hasMark(after):
		return "cordons " + after.Name
	case hasMark(before) && !hasMark(after):
		return "uncordons " + after.Name
	case hasUntunedTaint(before) && !hasUntunedTaint(after):
		return "removes the untuned taint of " + after.Name
	case conditions(before) != conditions(after):
		return "conditions of " + after.Name + ": " + conditions(after)
	}
	return ""
}

func describeClientNode(before, after *v1alpha1.StorageClientNode) string {
	a, b := ptr.Deref(before.Status.Rollout, v1alpha1.RolloutStatus{}), ptr.Deref(after.Status.Rollout, v1alpha1.RolloutStatus{})
	switch {
	case before.Spec.RebootPermit == nil && after.Spec.RebootPermit != nil:
		return "permits the reboot of " + after.Name
	case before.Spec.RebootPermit != nil && after.Spec.RebootPermit == nil:
		return "withdraws the permit of " + after.Name
	case !before.Spec.Release && after.Spec.Release:
		return "restores " + after.Name
	case len(before.Spec.Settings) != len(after.Spec.Settings):
		return fmt.Sprintf("gives %s %d settings", after.Name, len(after.Spec.Settings))
	case before.Spec.Hash != after.Spec.Hash:
		return "gives " + after.Name + " settings"
	case a.Phase != b.Phase || a.Reason != b.Reason:
		return fmt.Sprintf("note of %s: %s %s", after.Name, b.Phase, b.Reason)
	}
	return ""
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
