package simulation

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/windows"
)

// slack is what rounding to seconds may cost, clocks how far clocks are apart at most.
const (
	slack  = 3 * time.Second
	clocks = 15 * time.Second
)

// maxAttempts is how many permits a node gets for the same boot settings.
const maxAttempts = 3

// checkRollout holds a write of the rollout against the invariants.
func (o *observer) checkRollout(w memapi.Write, name string, seen *look) {
	switch {
	case w.Kind == memapi.ConfigMaps && name == v1alpha1.BudgetConfigMap:
		o.checkClaims(w, seen)
		o.checkLosses()
	case w.Kind == memapi.ConfigMaps:
		o.checkLosses()
	case w.Kind == memapi.Nodes:
		o.checkNodeWrite(w.Before.(*corev1.Node), w.After.(*corev1.Node), seen)
	case w.Kind == memapi.ClientNodes:
		o.checkClientNodeWrite(w.Before.(*v1alpha1.StorageClientNode), w.After.(*v1alpha1.StorageClientNode), seen)
	case w.Kind == memapi.Pods && w.Eviction:
		o.checkEviction(w.Before.(*corev1.Pod), seen)
	}
}

func claimsOf(object memObject) map[string]string {
	if config, ok := object.(*corev1.ConfigMap); ok {
		return config.Data
	}
	return nil
}

// checkClaims is who is claimed, and whose claim goes.
func (o *observer) checkClaims(w memapi.Write, seen *look) {
	before, after := claimsOf(w.Before), claimsOf(w.After)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == "" {
			o.checkClaim(name, before, after, seen)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		claim, _ := v1alpha1.DecodeDisruption(before[name])
		if after[name] == "" && o.nodeStood(seen, name, func(n *corev1.Node) bool {
			return hasMark(n) && n.Spec.Unschedulable && claim.NodeUID == string(n.UID)
		}) {
			o.w.fail("invariant 1: the claim of %s is released while the node is cordoned by the rollout", name)
		}
	}
}

// checkClaim contains all conditions at the start of a disruption.
func (o *observer) checkClaim(name string, before, claims map[string]string, seen *look) {
	now := o.w.present()
	node, c := now.node(name), now.clientNode(name)
	if node == nil || hasMark(node) || c != nil && c.Spec.RebootPermit != nil {
		return // It has gone, or is disrupted already: its claim was missing.
	}
	if o.stood(seen, name, func(s *state) bool { return s.node(name) != nil && s.clientNode(name) == nil }) {
		o.w.fail("invariant 17: claim of %s, which has no client node of its own", name)
	}
	if c == nil {
		return
	}
	o.checkNeed(name, seen)
	o.checkMayBegin("claim", name, seen)
	if o.nodeStood(seen, name, isOut) {
		o.w.fail("invariant 1: claim of %s, which is out of service", name)
	}
	for _, profile := range needers(c) {
		o.checkBudget(name, profile, before, claims, seen)
		o.checkThreshold(name, profile, seen)
		o.checkCanary(name, profile, claims)
	}
	o.checkBudget(name, "", before, claims, seen)
	o.checkBackOff(name, c)
	if o.firstClaim[c.Spec.BootHash] == 0 {
		o.firstClaim[c.Spec.BootHash] = o.writes
	}
	o.claimedFor[name] = claimed{bootHash: c.Spec.BootHash, needers: needers(c)}
}

// checkNeed is one half of invariant 8: what drifts live is healed where it is, and a node is disrupted only for settings that require a reboot.
func (o *observer) checkNeed(name string, seen *look) {
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return isReported(n, c) && !c.Status.RebootRequired
	}) {
		o.w.fail("invariant 8: claim of %s, which needs no boot", name)
	}
}

// isReported reports whether the agent has reported in this boot on what its node is to have.
func isReported(node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	return c.Status.Hash == c.Spec.Hash && c.Status.BootID == node.Status.NodeInfo.BootID
}

// awaitsBoot reports whether desired settings that require a reboot are not effective, because they have drifted or are new.
func awaitsBoot(node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	return !c.Spec.Release && isReported(node, c) && len(needers(c)) > 0
}

// checkMayBegin is what has to hold for a claim and for a permit alike.
func (o *observer) checkMayBegin(what, name string, seen *look) {
	if o.nodeStood(seen, name, isLeaving) {
		o.w.fail("invariant 18: %s for %s, which others are about to remove", what, name)
	}
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool { return len(inTheWay(n, c)) > 0 }) {
		o.w.fail("invariant 16: %s for %s, which would not be accepted", what, name)
	}
	if o.stood(seen, name, func(s *state) bool { return !o.mayDisrupt(s, name) }) {
		o.w.fail("invariant 2: %s for %s against the rules of users", what, name)
	}
	if seen.blind[name] && o.stood(seen, name, func(s *state) bool { return !isAgentReady(s, name) }) {
		o.w.fail("invariant 2: %s for %s, whose agent is not Ready", what, name)
	}
	if c := o.w.present().clientNode(name); c != nil {
		for _, profile := range needers(c) {
			if p := seen.profile(profile); p != nil && o.touched[profile][1] <= seen.write && !isOpen(p, seen.began) && !isOpen(p, o.w.managerTime()) {
				o.w.fail("invariant 2: %s for %s outside the windows of %s", what, name, profile)
			}
		}
	}
	o.checkControlPlane(what, name, seen)
}

func isAgentReady(s *state, name string) bool {
	return slices.ContainsFunc(s.pods, func(o memObject) bool {
		pod := o.(*corev1.Pod)
		return isAgent(pod) && pod.Spec.NodeName == name && isReadyPod(pod)
	})
}

func isOpen(p *v1alpha1.StorageClientProfile, at time.Time) bool {
	set, err := windows.ParseSet(p.Spec.Rollout.Windows)
	if err != nil {
		return false
	}
	open, _ := set.At(at.Truncate(time.Second))
	return open
}

// mayDisrupt is what people wrote down: pauses, approvals and policies.
func (o *observer) mayDisrupt(s *state, name string) bool {
	node, c := s.node(name), s.clientNode(name)
	if node == nil || c == nil {
		return true
	}
	namespace := find[*corev1.Namespace](s.namespaces, v1alpha1.ManagerNamespace)
	for _, a := range []map[string]string{node.Annotations, namespace.Annotations} {
		if a[v1alpha1.PausedAnnotation] != "" || a[v1alpha1.NeverDisruptAnnotation] != "" {
			return false
		}
	}
	for _, profile := range needers(c) {
		p := s.profile(profile)
		if p == nil || p.Spec.Paused || p.Spec.Mode == v1alpha1.ModePlan {
			return false
		}
		switch p.Spec.Rollout.Reboot.Policy {
		case v1alpha1.RebootNever:
			return false
		case v1alpha1.RebootOnApproval:
			if !nodesettings.IsApproved(p, nodesettings.PlanHash(p)) {
				return false
			}
		case v1alpha1.RebootAutomatic:
		}
	}
	return true
}

// checkControlPlane is that no second node of the control plane is out through our doing.
func (o *observer) checkControlPlane(what, name string, seen *look) {
	if node := o.w.node(name); node == nil || !isControlPlane(node) {
		return
	}
	claims := o.w.claims()
	for _, object := range o.w.api.All(memapi.Nodes) {
		other := object.(*corev1.Node)
		if other.Name == name || !isControlPlane(other) {
			continue
		}
		_, claimed := claims[other.Name]
		if what == "claim" && claimed || o.nodeStood(seen, other.Name, func(n *corev1.Node) bool { return hasMark(n) || !isReadyNode(n) || isLeaving(n) }) {
			o.w.fail("invariant 18: %s for %s of the control plane while %s is out", what, name, other.Name)
		}
	}
}

// checkBudget is that no more are out than the profile, or for "" the cluster, lets be out. A node needs the budgets of the profiles that
// need its reboot, and uses up those of all profiles that select it: one that is claimed in the same write for others may come after.
func (o *observer) checkBudget(name, profile string, before, claims map[string]string, seen *look) {
	now := o.w.present()
	limit, nodes, out := o.w.maxUnavailable, 0, 0
	var p *v1alpha1.StorageClientProfile
	if profile != "" {
		if p = now.profile(profile); p == nil || o.touched[profile][1] > seen.write {
			return
		}
		limit = *p.Spec.Rollout.MaxUnavailable
	}
	for _, object := range now.nodes {
		node := object.(*corev1.Node)
		c := now.clientNode(node.Name)
		then := seen.node(node.Name)
		// Whoever moves a node to the profile after the pass has read it makes it count for the next pass.
		if p != nil && (!concerns(p, node, c) || then != nil && !concerns(p, then, c)) {
			continue
		}
		nodes++
		_, claimed := claims[node.Name]
		switch {
		case claimed && before[node.Name] == "" && p != nil && c != nil && !slices.Contains(needers(c), profile):
		case claimed, o.nodeStood(seen, node.Name, hasMark), o.clientNodeStood(seen, node.Name, func(_ *corev1.Node, c *v1alpha1.StorageClientNode) bool { return hasFailed(c) }):
			out++
		case o.nodeStood(seen, node.Name, isOut) && !o.mayBeForgiven(now, node) && !o.mayBeForgiven(&seen.state, node):
			out++
		}
	}
	if p == nil {
		nodes = max(nodes, len(seen.nodes))
	}
	if most := resolve(limit, nodes); out > most {
		o.w.fail("invariant 1: claim of %s makes %d out of service, the limit is %d (profile %q)", name, out, most, profile)
	}
}

func resolve(limit intstr.IntOrString, nodes int) int { return v1alpha1.ResolveShare(limit, nodes) }

// mayBeForgiven reports whether a profile of the node may mind it no more. Its last profile may let it go during a pass.
func (o *observer) mayBeForgiven(s *state, node *corev1.Node) bool {
	for _, object := range s.profiles {
		p := object.(*v1alpha1.StorageClientProfile)
		after := time.Duration(p.Spec.Rollout.IgnoreUnavailableAfterSeconds) * time.Second
		if after == 0 || !concerns(p, node, s.clientNode(node.Name)) {
			continue
		}
		if since := outSince(node); since.IsZero() || o.w.managerTime().After(since.Add(after-clocks)) {
			return true
		}
	}
	return false
}

func outSince(node *corev1.Node) time.Time {
	var since time.Time
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			since = c.LastTransitionTime.Time
		}
	}
	for _, t := range node.Spec.Taints {
		if t.TimeAdded != nil && (since.IsZero() || t.TimeAdded.Time.Before(since)) {
			since = t.TimeAdded.Time
		}
	}
	return since
}

// checkThreshold checks that no disruption starts once as many nodes have failed as a profile allows, including deleted nodes.
func (o *observer) checkThreshold(name, profile string, seen *look) {
	now := o.w.present()
	p, c := now.profile(profile), now.clientNode(name)
	if p == nil || o.touched[profile][1] > seen.write {
		return
	}
	failed := 0
	for _, object := range now.nodes {
		if other := object.(*corev1.Node); o.clientNodeStood(seen, other.Name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
			return hasFailed(c) && concerns(p, n, c)
		}) {
			failed++
		}
	}
	hash := ""
	for _, lost := range o.losses {
		if hash == "" {
			hash = nodesettings.PlanHash(p)
		}
		if lost.write <= seen.write && lost.target == target(c) && lost.plans[profile] == hash {
			failed++
		}
	}
	if failed >= int(*p.Spec.Rollout.FailureThreshold) {
		o.w.fail("invariant 17: claim of %s although %d nodes of %s have failed", name, failed, profile)
	}
}

// checkCanary is that until as many as the canary have had the profile's settings for the length of the soak, no more than those begin.
// Who is of the canary may change while people change who may go: then nobody can say.
func (o *observer) checkCanary(name, profile string, claims map[string]string) {
	now := o.w.present()
	p, c := now.profile(profile), now.clientNode(name)
	first := o.firstClaim[c.Spec.BootHash]
	if p == nil || p.Spec.Rollout.Canary.NodeSelector != nil || o.calmSince == 0 || o.upset > o.calmSince || first != 0 && first < o.calmSince {
		return
	}
	canaries, soak := int(*p.Spec.Rollout.Canary.Nodes), time.Duration(*p.Spec.Rollout.Canary.SoakSeconds)*time.Second
	// A node that needs a boot to lose settings is evidence where no profile has it rebooted for that.
	soaked, atBest, begun := 0, 0, 1
	for _, object := range now.nodes {
		node := object.(*corev1.Node)
		other := now.clientNode(node.Name)
		if other == nil || other.Spec.Release || other.Spec.BootHash != c.Spec.BootHash || !concerns(p, node, other) {
			continue
		}
		_, isClaimed := claims[node.Name]
		last := o.claimedFor[node.Name]
		done, isDone := o.doneSince[node.Name]
		switch {
		case isDone && !o.w.now.Before(done.at.Add(soak-slack)) && other.Status.RebootRequired:
			atBest++
		case isDone && !o.w.now.Before(done.at.Add(soak-slack)):
			soaked++
		case node.Name != name && (isClaimed || isDone) && last.bootHash == c.Spec.BootHash && slices.Contains(last.needers, profile):
			begun++
		}
	}
	if soaked+atBest < canaries && soaked+begun > canaries {
		o.w.fail("invariant 14: claim of %s while %d of %d of the canary of %s have soaked, and %d have started", name, soaked, canaries, profile, begun)
	}
}

// checkBackOff is that a node whose drain was given up is left alone for a while.
func (o *observer) checkBackOff(name string, c *v1alpha1.StorageClientNode) {
	if last, known := o.backOff[string(c.UID)]; known && last.of == c.Spec.BootHash && c.Status.Rollout != nil && c.Status.Rollout.Reason == v1alpha1.RolloutReasonDrainTimedOut && o.w.managerTime().Before(last.at.Add(5*time.Minute-slack)) {
		o.w.fail("invariant 18: claim of %s %s after a drain that finished without a reboot", name, o.w.managerTime().Sub(last.at))
	}
}

// ours are the keys that the rollout may set and remove on a Node.
var ours = sets.New(v1alpha1.DisruptionAnnotation, v1alpha1.DisruptionGuardsAnnotation,
	"cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt", corev1.LabelNodeExcludeBalancers)

// checkNodeWrite is cordons, uncordons, and that nothing else of the Node is touched.
func (o *observer) checkNodeWrite(before, after *corev1.Node, seen *look) {
	name := after.Name
	o.checkOnlyOurs(before, after)
	_, claimed := o.w.claims()[name]
	c := o.w.present().clientNode(name)
	switch {
	case hasMark(after) && !hasMark(before):
		permitted := c != nil && c.Spec.RebootPermit != nil
		if !claimed {
			o.w.fail("invariant 1: %s is cordoned without a claim", name)
		}
		if before.Spec.Unschedulable && !permitted {
			o.w.fail("invariant 5: %s is cordoned by the rollout, and was by others", name)
		}
		if !permitted {
			o.checkMayBegin("cordon", name, seen)
		}
	case hasMark(before) && !hasMark(after):
		o.checkUncordon(before, after, c, seen)
		if !claimed && o.stood(seen, name, func(*state) bool { return true }) && before.Spec.Unschedulable {
			o.w.fail("invariant 1: %s is returned to service after its claim", name)
		}
	case before.Spec.Unschedulable && !after.Spec.Unschedulable:
		o.w.fail("invariant 5: %s is uncordoned, and not by those who cordoned it", name)
	}
}

// checkOnlyOurs is invariant 5: what others have set stays.
func (o *observer) checkOnlyOurs(before, after *corev1.Node) {
	for _, keys := range [][2]map[string]string{{before.Annotations, after.Annotations}, {before.Labels, after.Labels}} {
		for _, pair := range [][2]map[string]string{keys, {keys[1], keys[0]}} {
			for key, value := range pair[0] {
				if there, found := pair[1][key]; (!found || there != value) && !ours.Has(key) {
					o.w.fail("invariant 5: %s of %s changes", key, after.Name)
				}
			}
		}
	}
	for _, taint := range before.Spec.Taints {
		kept := slices.ContainsFunc(after.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		if !kept && taint.Key != v1alpha1.UntunedTaint {
			o.w.fail("invariant 5: taint %s of %s is removed", taint.Key, after.Name)
		}
	}
	if len(after.Spec.Taints) > len(before.Spec.Taints) {
		o.w.fail("invariant 5: %s gets a taint", after.Name)
	}
	others := func(n *corev1.Node) []corev1.NodeCondition {
		return slices.DeleteFunc(slices.Clone(n.Status.Conditions), func(c corev1.NodeCondition) bool { return c.Reason == "StorageClientRollout" })
	}
	if !equality.Semantic.DeepEqual(others(before), others(after)) {
		o.w.fail("invariant 5: conditions of others on %s change", after.Name)
	}
}

// checkUncordon is that nothing is returned to service that may yet go down, or has not come up, or has not what it booted for.
func (o *observer) checkUncordon(before, after *corev1.Node, c *v1alpha1.StorageClientNode, seen *look) {
	name := after.Name
	if o.nodeStood(seen, name, isLeaving) {
		o.w.fail("invariant 18: %s is returned to service, which others are about to remove", name)
	}
	if c == nil {
		return
	}
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return c.Spec.RebootPermit != nil && c.Spec.RebootPermit.BootID == n.Status.NodeInfo.BootID
	}) {
		o.w.fail("invariant 2: %s is returned to service and may yet reboot", name)
	}
	isSettled := o.rulesChanged.IsZero() || o.w.now.Sub(o.rulesChanged) > time.Minute
	if r := c.Status.Rollout; isSettled && r != nil && r.Reason == v1alpha1.RolloutReasonDrainTimedOut {
		o.backOff[string(c.UID)] = moment{c.Spec.BootHash, r.Since.Time}
	}
	mark, _ := v1alpha1.DecodeDisruption(before.Annotations[v1alpha1.DisruptionAnnotation])
	if before.Spec.Unschedulable {
		o.checkUncordonFailed(name, mark.Profile, seen)
	}
	permit := c.Spec.RebootPermit
	if permit == nil || hasFailed(c) || permit.BootID == after.Status.NodeInfo.BootID || !before.Spec.Unschedulable {
		return
	}
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return !isReadyNode(n) || !isWell(n, c) && c.Spec.RebootPermit != nil && c.Status.Rollout != nil && c.Status.Rollout.BootHash == target(c)
	}) {
		o.w.fail("invariant 4: %s is accepted and is not healthy", name)
	}
	o.checkAccepted(after, c, mark.Profile, seen)
}

// checkUncordonFailed is that a node which has failed is returned to service only where it is Ready, and where a profile says so or it has
// what it is to have after all.
func (o *observer) checkUncordonFailed(name, leader string, seen *look) {
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool { return hasFailed(c) && !isReadyNode(n) }) {
		o.w.fail("invariant 4: %s, which has failed, is returned to service while it is not Ready", name)
	}
	if o.stood(seen, name, func(s *state) bool {
		node, c := s.node(name), s.clientNode(name)
		return c != nil && hasFailed(c) && !isWell(node, c) && !slices.ContainsFunc(s.profiles, func(o memObject) bool {
			p := o.(*v1alpha1.StorageClientProfile)
			return p.Spec.Rollout.OnNodeFailure == v1alpha1.FailureUncordon && (p.Name == leader || concerns(p, node, c))
		})
	}) {
		o.w.fail("invariant 4: %s, which has failed, is returned to service, and no profile says so", name)
	}
}

// checkAccepted is what the machine itself has, by what was told before the manager looked, and for how long it was watched: as one of its
// profiles asks, or the one that it was disrupted for.
func (o *observer) checkAccepted(node *corev1.Node, c *v1alpha1.StorageClientNode, leader string, seen *look) {
	m := o.w.machines[node.Name]
	for _, s := range c.Spec.Settings {
		if _, ailed := m.ailed[s.Key]; m.told <= seen.write && !c.Spec.Release && isBootKey(s.Key) && !ailed && m.seen[s.Key] != s.Value && c.Status.Hash == c.Spec.Hash {
			o.w.fail("invariant 4: %s is accepted without %s", node.Name, s.Key)
		}
	}
	settle := int32(-1)
	for _, object := range o.w.api.All(memapi.Profiles) {
		if p := object.(*v1alpha1.StorageClientProfile); (p.Name == leader || concerns(p, node, c)) && (settle < 0 || *p.Spec.Rollout.SettleSeconds < settle) {
			settle = *p.Spec.Rollout.SettleSeconds
		}
	}
	well := o.wellSince[node.Name]
	if end := well.at.Add(time.Duration(settle)*time.Second - slack); well.of == node.Status.NodeInfo.BootID && o.w.now.Before(end) {
		o.w.fail("invariant 4: %s is accepted %s after it was healthy, and the settle time is %ds", node.Name, o.w.now.Sub(well.at), settle)
	}
}

// checkClientNodeWrite is permits given and taken back, and notes.
func (o *observer) checkClientNodeWrite(before, after *v1alpha1.StorageClientNode, seen *look) {
	name := after.Name
	node := o.w.node(name)
	// A note may be written for a Node of the cache, which lags behind: it does nothing.
	cached := find[*corev1.Node](seen.cached, name)
	isNote := cached != nil && isOwned(before, cached) && equality.Semantic.DeepEqual(before.Spec, after.Spec)
	if !isNote && o.stood(seen, name, func(s *state) bool {
		n, c := s.node(name), find[*v1alpha1.StorageClientNode](s.clientNodes, name)
		return n != nil && c != nil && !isOwned(c, n)
	}) {
		o.w.fail("invariant 17: the client node of a former Node %s is written to", name)
	}
	if node == nil || !isOwned(after, node) {
		return
	}
	permitted, was := after.Spec.RebootPermit, before.Spec.RebootPermit
	a, b := after.Spec, before.Spec
	a.RebootPermit, b.RebootPermit = nil, nil
	if !equality.Semantic.DeepEqual(a, b) {
		o.w.fail("invariant 5: the rollout changes the settings of %s", name)
	}
	switch {
	case permitted != nil && was != nil && permitted.ID != was.ID:
		o.w.fail("invariant 3: %s gets a permit and has one", name)
	case permitted != nil && was == nil:
		o.checkPermit(node, before, permitted, seen)
	case permitted == nil && was != nil:
		o.checkClear(node, before, was)
	}
	o.checkNote(node, before, after, seen)
}

// checkPermit is invariant 2, all of it.
func (o *observer) checkPermit(node *corev1.Node, c *v1alpha1.StorageClientNode, permit *v1alpha1.RebootPermit, seen *look) {
	name := node.Name
	m := o.w.machines[name]
	o.permittedAt[permit.ID] = o.writes
	if m.foulThen = m.foulSeen; o.nodeStood(seen, name, func(n *corev1.Node) bool { return !hasMark(n) || !n.Spec.Unschedulable }) {
		o.w.fail("invariant 2: permit for %s, which is not cordoned by the rollout", name)
	}
	s := &c.Status
	switch {
	case permit.BootHash != c.Spec.BootHash, permit.BootID != s.BootID, !s.RebootRequired:
		o.w.fail("invariant 2: permit for %s that is not for what it needs", name)
	case len(s.BusyMounts) > 0:
		o.w.fail("invariant 2: permit for %s with a mount", name)
	case !hasSeenSettings(c, seen.clientNode(name)):
		o.w.fail("invariant 2: permit for %s, whose agent has not seen its spec", name)
	case s.Rollout == nil || s.Rollout.Phase != v1alpha1.RolloutRebooting || s.Rollout.BootHash != target(c) || s.Rollout.Attempts < 1:
		o.w.fail("invariant 9: permit for %s, and its note does not record it", name)
	}
	if pod := o.keptPod(name, seen); pod != "" {
		o.w.fail("invariant 2: permit for %s with pod %s", name, pod)
	}
	claim, err := v1alpha1.DecodeDisruption(o.w.claims()[name])
	if err != nil || claim.Permit == nil || claim.NodeUID != string(node.UID) || claim.Permit.BootHash != target(c) {
		o.w.fail("invariant 17: permit for %s, and its claim does not record it: %s", name, o.w.claims()[name])
	}
	o.checkMayBegin("permit", name, seen)
	o.checkAttempts(m, c, permit)
}

// checkAttempts is that a node gets no more permits for the same boot settings once its agent has used as many as it may. One that the
// agent refused was no attempt.
func (o *observer) checkAttempts(m *machine, c *v1alpha1.StorageClientNode, permit *v1alpha1.RebootPermit) {
	key := string(c.UID) + " " + target(c)
	if o.permits[key] == nil {
		o.permits[key] = sets.New[string]()
	}
	used := 0
	for id := range o.permits[key].Delete(permit.ID) {
		if m.used[id] != "" {
			used++
		}
	}
	if o.permits[key].Insert(permit.ID); used >= maxAttempts {
		o.w.fail("invariant 3: a permit for %s, which has used %d at %s", m.name, used, target(c))
	}
}

// hasSeenSettings reports whether an agent has seen what it is to do, as far as the rollout could know: that it has just taken back an
// earlier permit is nothing to wait for.
func hasSeenSettings(c, then *v1alpha1.StorageClientNode) bool {
	if c.Status.ObservedGeneration >= c.Generation {
		return true
	}
	if then == nil || then.Status.ObservedGeneration < then.Generation {
		return false
	}
	a, b := c.Spec, then.Spec
	a.RebootPermit, b.RebootPermit = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// keptPod is a pod on a node that a drain has to remove.
func (o *observer) keptPod(node string, seen *look) string {
	for _, object := range o.w.api.All(memapi.Pods) {
		pod := object.(*corev1.Pod)
		if pod.Spec.NodeName == node && mustLeave(pod) && slices.ContainsFunc(seen.pods, func(o memObject) bool { return o.GetUID() == pod.UID }) {
			return pod.Name
		}
	}
	return ""
}

func mustLeave(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	daemon := len(pod.OwnerReferences) == 1 && pod.OwnerReferences[0].Kind == "DaemonSet"
	return !mirror && !daemon && pod.Status.Phase == corev1.PodRunning
}

// checkClear checks that a permit is withdrawn only after the agent has responded, and never while the node reboots.
func (o *observer) checkClear(node *corev1.Node, c *v1alpha1.StorageClientNode, permit *v1alpha1.RebootPermit) {
	if node.Status.NodeInfo.BootID != permit.BootID {
		return
	}
	answer := c.Status.Reboot
	answered := answer != nil && answer.PermitID == permit.ID
	switch {
	case answered && answer.Phase == v1alpha1.RebootStarted:
		o.w.fail("invariant 3: the permit of %s is withdrawn although the reboot has started", node.Name)
	case !answered && (c.Status.ObservedGeneration < c.Generation || c.Status.BootID != node.Status.NodeInfo.BootID):
		o.w.fail("invariant 3: the permit of %s is withdrawn before the agent has responded", node.Name)
	}
}

// checkNote is the second half of invariant 16: none fails after its boot for what was no obstacle before.
func (o *observer) checkNote(node *corev1.Node, before, after *v1alpha1.StorageClientNode, seen *look) {
	a, b := after.Status, before.Status
	a.Rollout, b.Rollout = nil, nil
	if !equality.Semantic.DeepEqual(a, b) {
		o.w.fail("invariant 5: the rollout changes what the agent of %s reports", node.Name)
	}
	note, permit := after.Status.Rollout, after.Spec.RebootPermit
	was := before.Status.Rollout
	if note != nil && note.Phase == v1alpha1.RolloutUpToDate && (was == nil || was.Phase != note.Phase) && o.clientNodeStood(seen, node.Name, awaitsBoot) {
		o.w.fail("invariant 8: %s is called up to date, and is without boot settings: %s", node.Name, note.Message)
	}
	if note == nil || note.Phase != v1alpha1.RolloutFailed || note.Reason != v1alpha1.RolloutReasonRebootWithoutEffect || permit == nil ||
		permit.BootID == node.Status.NodeInfo.BootID || permit.BootHash != after.Spec.BootHash || after.Spec.Release {
		return
	}
	m := o.w.machines[node.Name]
	if o.clientNodeStood(seen, node.Name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return isReadyNode(n) && c.Status.BootID == n.Status.NodeInfo.BootID && c.Status.ObservedGeneration == c.Generation
	}) && m.foul == m.foulThen {
		o.w.fail("invariant 16: %s fails for what was no obstacle before: %s", node.Name, note.Message)
	}
}

// checkEviction is that pods are evicted from nodes alone that we have cordoned and that could be emptied.
func (o *observer) checkEviction(pod *corev1.Pod, seen *look) {
	name := pod.Spec.NodeName
	cached := find[*corev1.Node](seen.cached, name)
	if o.unmarked[name] > seen.write {
		return // Somebody has taken the mark off while the eviction was on its way.
	}
	if (cached == nil || !hasMark(cached)) && o.nodeStood(seen, name, func(n *corev1.Node) bool { return !hasMark(n) }) {
		o.w.fail("invariant 18: pod %s is evicted from %s, which the rollout has not cordoned", pod.Name, name)
	}
	if !mustLeave(pod) {
		o.w.fail("invariant 18: pod %s is evicted, which stays", pod.Name)
	}
	if len(pod.OwnerReferences) == 1 && pod.OwnerReferences[0].Kind == "Job" {
		o.w.fail("invariant 18: pod %s of a Job is evicted", pod.Name)
	}
}

// checkReboot is the machine's side of invariants 2, 3 and 8: what has drifted is put in force by the rollout, in the node's turn.
func (w *world) checkReboot(m *machine, permit string) {
	node := w.node(m.name)
	if m.reboots[permit] > 0 {
		w.fail("invariant 3: %s reboots twice with permit %s", m.name, permit)
	}
	if node == nil || w.permittedAt[permit] < w.touched[m.name][1] && (!node.Spec.Unschedulable || !hasMark(node)) {
		return // Somebody has undone the cordon since; the manager takes the permit back as soon as the agent answers, and no sooner.
	}
	if _, claimed := w.claims()[m.name]; !claimed {
		w.fail("invariant 8: %s reboots, and it is not its turn", m.name)
	}
	if !node.Spec.Unschedulable {
		w.fail("invariant 2: %s reboots and is not cordoned", m.name)
	}
	if w.permittedAt[permit] < w.uncordoned[m.name] {
		return // Pods have come since; the manager has cordoned the node again.
	}
	for _, o := range w.api.All(memapi.Pods) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == m.name && mustLeave(pod) {
			w.fail("invariant 2: %s reboots with pod %s", m.name, pod.Name)
		}
	}
}

// noteLoss writes down what goes with a Node, if it was lost to a permit.
func (w *world) noteLoss(node *corev1.Node) {
	c := w.present().clientNode(node.Name)
	claim, err := v1alpha1.DecodeDisruption(w.claims()[node.Name])
	if c == nil || err != nil || c.Spec.RebootPermit == nil || claim.Permit == nil || claim.NodeUID != string(node.UID) {
		return
	}
	if claim.Permit.Leaving != "" || isLeaving(node) {
		return
	}
	w.losses = append(w.losses, loss{
		name: node.Name, uid: string(node.UID), target: claim.Permit.BootHash, plans: maps.Clone(claim.Permit.Profiles), write: w.writes,
	})
}

// checkLosses is invariant 17: every lost machine is recorded, or its claim names it.
func (o *observer) checkLosses() {
	if len(o.losses) == 0 {
		return
	}
	var remembered map[string]string
	if object := o.w.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.FailuresConfigMap); object != nil {
		remembered = object.(*corev1.ConfigMap).Data
	}
	for _, lost := range o.losses {
		claim, _ := v1alpha1.DecodeDisruption(o.w.claims()[lost.name])
		if claim.NodeUID == lost.uid {
			continue
		}
		for profile, plan := range lost.plans {
			p := o.w.profile(profile)
			if p == nil || nodesettings.PlanHash(p) != plan {
				continue
			}
			failures, _ := v1alpha1.DecodeFailures(remembered[profile])
			named := slices.ContainsFunc(failures.Boots, func(b v1alpha1.BootFailures) bool {
				return b.BootHash == lost.target && slices.ContainsFunc(b.Nodes, func(f v1alpha1.FailedNode) bool { return f.UID == lost.uid })
			})
			if !named {
				o.w.fail("invariant 17: no record names %s (%s), lost to profile %s", lost.name, lost.uid, profile)
			}
		}
	}
}

// forgetBackOffs is for an edit that changes which profiles act on which nodes: drains of other options are another matter. Managers may
// take a moment to see it.
func (o *observer) forgetBackOffs() {
	clear(o.backOff)
	o.rulesChanged = o.w.now
}

// allowRetries forgets what was held against nodes that are to be retried.
func (o *observer) allowRetries() {
	clear(o.permits)
	clear(o.backOff)
	o.losses = nil
}

// checkNodeController holds a write of the node controller against the invariants.
func (o *observer) checkNodeController(w memapi.Write, name string, seen *look) {
	switch after := w.After.(type) {
	case *v1alpha1.StorageClientNode:
		before, _ := w.Before.(*v1alpha1.StorageClientNode)
		if before != nil && !equality.Semantic.DeepEqual(before.Spec.RebootPermit, after.Spec.RebootPermit) {
			o.w.fail("invariant 3: the node controller changes the permit of %s", name)
		}
		if before == nil || before.Spec.Hash != after.Spec.Hash {
			o.checkGate(after)
		}
	case *corev1.Node:
		o.checkTuned(name, after, seen)
	}
}

// checkTuned is invariant 10: a node is Tuned if every value was read back, exceptions aside.
func (o *observer) checkTuned(name string, after *corev1.Node, seen *look) {
	says := slices.ContainsFunc(after.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.TunedNodeCondition && c.Status == corev1.ConditionTrue
	})
	before := seen.node(name)
	said := before != nil && slices.ContainsFunc(before.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.TunedNodeCondition && c.Status == corev1.ConditionTrue
	})
	if says && !said && o.clientNodeStood(seen, name, func(_ *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		// The condition goes ahead of the settings that it speaks of, so their hash may be another.
		return c.Status.Hash == c.Spec.Hash && slices.ContainsFunc(c.Status.Settings, func(s v1alpha1.SettingStatus) bool {
			return s.State == v1alpha1.SettingFailed || wants(c, s.Key) && s.State == v1alpha1.SettingDrifted
		})
	}) {
		o.w.fail("invariant 10: %s is Tuned, and is not", name)
	}
	if says && !said && o.clientNodeStood(seen, name, awaitsBoot) {
		o.w.fail("invariant 8: %s is Tuned, and is without boot settings", name)
	}
}

// noteKept writes down which nodes have already what they are to have now that the faults are over: they prove it to the others like
// those that are yet to get it.
func (o *observer) noteKept() {
	now := o.w.present()
	for _, object := range now.nodes {
		node := object.(*corev1.Node)
		if c := now.clientNode(node.Name); c != nil && !c.Spec.Release && whyOtherSettings(c, o.w.declared(node)) == "" {
			// Of what they hold: the client node's own hash still speaks of boot settings that were taken back.
			o.given[node.Name], _ = nodesettings.Hashes(c.Spec.Settings)
		}
	}
}

// checkGate is invariant 11 for live values. It is asked once the faults are over: then it is known what every node is to have.
func (o *observer) checkGate(after *v1alpha1.StorageClientNode) {
	if o.calmSince == 0 || after.Spec.Hash == "" {
		return
	}
	o.given[after.Name] = after.Spec.Hash
	now := o.w.present()
	for _, object := range now.profiles {
		p := object.(*v1alpha1.StorageClientProfile)
		node := now.node(after.Name)
		if node == nil || !selects(p, node) || p.DeletionTimestamp != nil || p.Spec.Rollout.Canary.NodeSelector != nil {
			continue
		}
		canaries, soak := int(*p.Spec.Rollout.Canary.Nodes), time.Duration(*p.Spec.Rollout.Canary.SoakSeconds)*time.Second
		carriers, proven, running, nodes := 0, 0, 0, 0
		for _, object := range now.nodes {
			other := object.(*corev1.Node)
			c := now.clientNode(other.Name)
			if !concerns(p, other, c) {
				continue
			}
			nodes++
			if c == nil || o.given[other.Name] != c.Spec.Hash || c.Spec.Release {
				continue
			}
			taken := c.Status.Hash == c.Spec.Hash
			if !taken {
				running++
			}
			if c.Spec.Hash != after.Spec.Hash || !isReadyNode(other) {
				continue // Others do not wait for ever for a node that is down.
			}
			carriers++
			if since := o.takenSince[other.Name]; taken && since.of == c.Spec.Hash && !o.w.now.Before(since.at.Add(soak-slack)) {
				proven++
			}
		}
		limit := max(canaries, resolve(*p.Spec.Rollout.MaxConcurrentLive, nodes))
		switch {
		case proven < canaries && carriers > canaries:
			o.w.fail("invariant 11: %s gets settings that %d of %d of the canary of %s have proven, %d have them", after.Name, proven, canaries, p.Name, carriers)
		case running > limit:
			o.w.fail("invariant 11: %d nodes of %s take new settings at a time, the limit is %d", running, p.Name, limit)
		}
	}
}
