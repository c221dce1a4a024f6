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

// slack is the tolerance for times that are rounded to seconds, clocks the maximum difference between two clocks.
const (
	slack  = 3 * time.Second
	clocks = 15 * time.Second
)

// maxAttempts is the number of permits that a node gets for the same settings that require a reboot.
const maxAttempts = 3

// checkRollout compares a write of the rollout with the invariants.
func (o *observer) checkRollout(w memapi.Write, name string, seen *look) {
	switch {
	case w.Kind == memapi.ConfigMaps && name == v1alpha1.BudgetConfigMap:
		o.checkClaims(w, seen)
		o.checkLosses()
	case w.Kind == memapi.ConfigMaps:
		o.checkCleared(w, seen)
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

// checkClaims checks new and released claims.
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
		return // The node is deleted, or is disrupted already: its claim was missing.
	}
	if o.stood(seen, name, func(s *state) bool { return s.node(name) != nil && s.clientNode(name) == nil }) {
		o.w.fail("invariant 17: claim of %s, which has no StorageClientNode", name)
	}
	if c == nil {
		return
	}
	o.checkNeed(name, seen)
	o.checkMayStart("claim", name, seen)
	if o.w.isManagerBound(name) {
		o.w.fail("claim of %s, the only node that can run the manager", name)
	}
	if o.nodeStood(seen, name, isOut) {
		o.w.fail("invariant 1: claim of %s, which is out of service", name)
	}
	for _, profile := range needers(c) {
		o.checkBudget(name, profile, before, claims, seen)
		o.checkThreshold(name, profile, seen)
		o.checkCanary(name, profile, claims)
		o.checkTurn(name, profile, claims, seen)
	}
	o.checkBudget(name, "", before, claims, seen)
	o.checkBackOff(name, c)
	if o.firstClaim[c.Spec.BootHash] == 0 {
		o.firstClaim[c.Spec.BootHash] = o.writes
	}
	o.claimedFor[name] = claimed{bootHash: c.Spec.BootHash, needers: needers(c)}
}

// checkNeed is half of invariant 8: live drift is repaired without a disruption. Only settings that require a reboot justify one.
func (o *observer) checkNeed(name string, seen *look) {
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return isReported(n, c) && !c.Status.RebootRequired
	}) {
		o.w.fail("invariant 8: claim of %s, which needs no reboot", name)
	}
}

// isReported reports whether the agent has reported on the node's desired settings during this boot.
func isReported(node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	return c.Status.Hash == c.Spec.Hash && c.Status.BootID == node.Status.NodeInfo.BootID
}

// awaitsBoot reports whether desired settings that require a reboot are not effective, because they have drifted or are new.
func awaitsBoot(node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	return !c.Spec.Release && isReported(node, c) && len(needers(c)) > 0
}

// checkMayStart checks the conditions of claims and permits.
func (o *observer) checkMayStart(what, name string, seen *look) {
	if o.nodeStood(seen, name, isLeaving) {
		o.w.fail("invariant 18: %s for %s, which an autoscaler is about to remove", what, name)
	}
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool { return len(blockingSettings(n, c)) > 0 }) {
		o.w.fail("invariant 16: %s for %s, whose settings would fail after a reboot", what, name)
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
	o.checkStorage(what, name, seen)
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

// mayDisrupt reports whether users allow a disruption: it checks pauses, approvals and policies.
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

// checkControlPlane checks that the rollout never disrupts a second node of the control plane.
func (o *observer) checkControlPlane(what, name string, seen *look) {
	if node := o.w.node(name); node == nil || !isControlPlane(node) {
		return
	}
	claims := o.w.claims()
	if o.w.countControlPlanes() == 1 && o.nodeStood(seen, name, isControlPlane) {
		o.w.fail("invariant 18: %s for %s, the only control plane node", what, name)
	}
	for _, object := range o.w.api.All(memapi.Nodes) {
		other := object.(*corev1.Node)
		if other.Name == name || !isControlPlane(other) {
			continue
		}
		_, claimed := claims[other.Name]
		if what == "claim" && claimed || o.nodeStood(seen, other.Name, func(n *corev1.Node) bool { return hasMark(n) || !isReadyNode(n) || isLeaving(n) }) {
			o.w.fail("invariant 18: %s for control plane node %s while %s is out of service", what, name, other.Name)
		}
	}
}

// checkBudget checks the number of nodes that are out of service against the limit of the profile, or of the cluster if profile is "". A
// node uses the budgets of all profiles that select it, but needs only the budgets of profiles that need its reboot. So another node that
// the same write claims for other profiles does not count: it may come later.
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
		// If a user moves a node to the profile after the pass has read it, the node counts from the next pass on.
		if p != nil && (!concerns(p, node, c) || then != nil && !concerns(p, then, c)) {
			continue
		}
		nodes++
		_, claimed := claims[node.Name]
		switch {
		case claimed && before[node.Name] == "" && p != nil && c != nil && !slices.Contains(needers(c), profile):
		case claimed, o.nodeStood(seen, node.Name, hasMark), o.nodeStood(seen, node.Name, isOut),
			o.clientNodeStood(seen, node.Name, func(_ *corev1.Node, c *v1alpha1.StorageClientNode) bool { return hasFailed(c) && !o.isRetryDue(c) }):
			out++
		}
	}
	if p == nil {
		nodes = max(nodes, len(seen.nodes))
	}
	if most := resolve(limit, nodes); out > most {
		o.w.fail("invariant 1: claim of %s: got %d nodes out of service, want at most %d (profile %q)", name, out, most, profile)
	}
}

// isRetryDue reports whether the pause after an unused permit is over. Such a node is back in service, and its failure no longer counts.
func (o *observer) isRetryDue(c *v1alpha1.StorageClientNode) bool {
	r := c.Status.Rollout
	return r.Reason == v1alpha1.RolloutReasonRebootTimedOut && r.RetryAfter != nil && !o.w.managerTime().Add(clocks).Before(r.RetryAfter.Time)
}

func resolve(limit intstr.IntOrString, nodes int) int { return v1alpha1.ResolveShare(limit, nodes) }

// checkCanary checks that only the canary nodes start until they have had the profile's settings for the soak time. While users change
// the nodes that may start, the canary may change too, so the check is skipped.
func (o *observer) checkCanary(name, profile string, claims map[string]string) {
	now := o.w.present()
	p, c := now.profile(profile), now.clientNode(name)
	first := o.firstClaim[c.Spec.BootHash]
	if p == nil || p.Spec.Rollout.Canary.NodeSelector != nil || o.calmSince == 0 || o.upset > o.calmSince || first != 0 && first < o.calmSince {
		return
	}
	canaries, soak := int(*p.Spec.Rollout.Canary.Nodes), time.Duration(*p.Spec.Rollout.Canary.SoakSeconds)*time.Second
	// A node that needs a reboot to lose settings counts as proof if no profile reboots it for that.
	soaked, atBest, started := 0, 0, 1
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
			started++
		}
	}
	if soaked+atBest < canaries && soaked+started > canaries {
		o.w.fail("invariant 14: claim of %s while %d of %d canary nodes of %s have soaked and %d have started", name, soaked, canaries, profile, started)
	}
}

// checkBackOff checks that a node is not claimed again for a while after its drain timed out.
func (o *observer) checkBackOff(name string, c *v1alpha1.StorageClientNode) {
	if last, known := o.backOff[string(c.UID)]; known && last.of == c.Spec.BootHash && c.Status.Rollout != nil && c.Status.Rollout.Reason == v1alpha1.RolloutReasonDrainTimedOut && o.w.managerTime().Before(last.at.Add(5*time.Minute-slack)) {
		o.w.fail("invariant 18: claim of %s only %s after its drain timed out", name, o.w.managerTime().Sub(last.at))
	}
}

// managedKeys are the keys that the rollout may set and remove on a Node.
var managedKeys = sets.New(v1alpha1.DisruptionAnnotation, v1alpha1.DisruptionGuardsAnnotation,
	"cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt", corev1.LabelNodeExcludeBalancers)

// checkNodeWrite checks cordons and uncordons, and that the rollout changes no other part of the Node.
func (o *observer) checkNodeWrite(before, after *corev1.Node, seen *look) {
	name := after.Name
	o.checkOnlyManaged(before, after)
	_, claimed := o.w.claims()[name]
	c := o.w.present().clientNode(name)
	switch {
	case hasMark(after) && !hasMark(before):
		permitted := c != nil && c.Spec.RebootPermit != nil
		if !claimed && !o.w.lenient {
			o.w.fail("invariant 1: %s is cordoned without a claim", name)
		}
		if before.Spec.Unschedulable && !permitted {
			o.w.fail("invariant 5: the rollout cordons %s, which another client had cordoned", name)
		}
		if !permitted {
			o.checkMayStart("cordon", name, seen)
		}
	case hasMark(before) && !hasMark(after):
		o.checkUncordon(before, after, c, seen)
		if !claimed && !o.w.lenient && o.stood(seen, name, func(*state) bool { return true }) && before.Spec.Unschedulable {
			o.w.fail("invariant 1: %s is returned to service after its claim was released", name)
		}
	case hasMark(after) && before.Annotations[v1alpha1.DisruptionGuardsAnnotation] != "" && after.Annotations[v1alpha1.DisruptionGuardsAnnotation] == "":
		o.w.fail("invariant 5: the rollout removes the guards of %s, which it disrupts", name)
	case before.Spec.Unschedulable && !after.Spec.Unschedulable:
		o.w.fail("invariant 5: the rollout uncordons %s, which another client had cordoned", name)
	}
}

// checkOnlyManaged is invariant 5: the rollout changes only its own keys, taint and conditions.
func (o *observer) checkOnlyManaged(before, after *corev1.Node) {
	for _, keys := range [][2]map[string]string{{before.Annotations, after.Annotations}, {before.Labels, after.Labels}} {
		for _, pair := range [][2]map[string]string{keys, {keys[1], keys[0]}} {
			for key, value := range pair[0] {
				if there, found := pair[1][key]; (!found || there != value) && !managedKeys.Has(key) {
					o.w.fail("invariant 5: the rollout changes %s of %s", key, after.Name)
				}
			}
		}
	}
	for _, taint := range before.Spec.Taints {
		kept := slices.ContainsFunc(after.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		if !kept && taint.Key != v1alpha1.UntunedTaint {
			o.w.fail("invariant 5: the rollout removes taint %s of %s", taint.Key, after.Name)
		}
	}
	if len(after.Spec.Taints) > len(before.Spec.Taints) {
		o.w.fail("invariant 5: the rollout adds a taint to %s", after.Name)
	}
	others := func(n *corev1.Node) []corev1.NodeCondition {
		return slices.DeleteFunc(slices.Clone(n.Status.Conditions), func(c corev1.NodeCondition) bool { return c.Reason == "StorageClientRollout" })
	}
	if !equality.Semantic.DeepEqual(others(before), others(after)) {
		o.w.fail("invariant 5: the rollout changes conditions of other clients on %s", after.Name)
	}
}

// checkUncordon checks nodes that return to service. They must be up and have the settings that they rebooted for, and must not reboot
// anymore.
func (o *observer) checkUncordon(before, after *corev1.Node, c *v1alpha1.StorageClientNode, seen *look) {
	name := after.Name
	if o.nodeStood(seen, name, isLeaving) {
		o.w.fail("invariant 18: %s is returned to service although an autoscaler is about to remove it", name)
	}
	if c == nil {
		return
	}
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return c.Spec.RebootPermit != nil && c.Spec.RebootPermit.BootID == n.Status.NodeInfo.BootID
	}) {
		o.w.fail("invariant 2: %s is returned to service although it may still reboot", name)
	}
	isSettled := o.rulesChanged.IsZero() || o.w.now.Sub(o.rulesChanged) > time.Minute
	if r := c.Status.Rollout; isSettled && r != nil && r.Reason == v1alpha1.RolloutReasonDrainTimedOut {
		o.backOff[string(c.UID)] = moment{c.Spec.BootHash, r.Since.Time}
	}
	mark, _ := v1alpha1.DecodeDisruption(before.Annotations[v1alpha1.DisruptionAnnotation])
	if before.Spec.Unschedulable {
		o.checkUncordonFailed(name, seen)
	}
	permit := c.Spec.RebootPermit
	if permit == nil || hasFailed(c) || permit.BootID == after.Status.NodeInfo.BootID || !before.Spec.Unschedulable {
		return
	}
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return !isReadyNode(n) || !isWell(n, c) && c.Spec.RebootPermit != nil && c.Status.Rollout != nil && c.Status.Rollout.BootHash == target(c)
	}) {
		o.w.fail("invariant 4: %s is accepted although it is not healthy", name)
	}
	o.checkAccepted(after, c, mark.Profile, seen)
}

// checkUncordonFailed checks failed nodes that return to service. The node must be Ready and have its desired settings after all,
// unless its permit was not used.
func (o *observer) checkUncordonFailed(name string, seen *look) {
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool { return hasFailed(c) && !isReadyNode(n) }) {
		o.w.fail("invariant 4: failed node %s is returned to service while it is not Ready", name)
	}
	if o.stood(seen, name, func(s *state) bool {
		node, c := s.node(name), s.clientNode(name)
		// An unused permit caused no reboot: only this failure has a later attempt.
		isUnrebooted := c != nil && c.Status.Rollout != nil && c.Status.Rollout.RetryAfter != nil && c.Status.Rollout.Reason == v1alpha1.RolloutReasonRebootTimedOut
		return c != nil && hasFailed(c) && !isUnrebooted && !isWell(node, c)
	}) {
		o.w.fail("invariant 4: failed node %s is returned to service", name)
	}
}

// checkAccepted checks the settings of the machine as its agent last reported them before the manager looked. It also checks the time
// that the node was watched. The minimum is the shortest settle time of its profiles and of the profile that it was disrupted for.
func (o *observer) checkAccepted(node *corev1.Node, c *v1alpha1.StorageClientNode, leader string, seen *look) {
	m := o.w.machines[node.Name]
	for _, s := range c.Spec.Settings {
		if _, ailed := m.ailed[s.Key]; m.reported <= seen.write && !c.Spec.Release && isBootKey(s.Key) && !ailed && m.seen[s.Key] != s.Value && c.Status.Hash == c.Spec.Hash {
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
		o.w.fail("invariant 4: %s is accepted %s after it became healthy, want a settle time of %ds", node.Name, o.w.now.Sub(well.at), settle)
	}
}

// checkClientNodeWrite checks new and withdrawn permits, and notes.
func (o *observer) checkClientNodeWrite(before, after *v1alpha1.StorageClientNode, seen *look) {
	name := after.Name
	node := o.w.node(name)
	// The rollout may write a note for a Node of the cache, which may be stale. A note has no effect.
	cached := find[*corev1.Node](seen.cached, name)
	isNote := cached != nil && isOwned(before, cached) && equality.Semantic.DeepEqual(before.Spec, after.Spec)
	if !isNote && o.stood(seen, name, func(s *state) bool {
		n, c := s.node(name), find[*v1alpha1.StorageClientNode](s.clientNodes, name)
		return n != nil && c != nil && !isOwned(c, n)
	}) {
		o.w.fail("invariant 17: the rollout writes to the StorageClientNode of a former Node %s", name)
	}
	if node == nil || !isOwned(after, node) {
		return
	}
	permitted, previous := after.Spec.RebootPermit, before.Spec.RebootPermit
	a, b := after.Spec, before.Spec
	a.RebootPermit, b.RebootPermit = nil, nil
	if !equality.Semantic.DeepEqual(a, b) {
		o.w.fail("invariant 5: the rollout changes the settings of %s", name)
	}
	switch {
	case permitted != nil && previous != nil && permitted.ID != previous.ID:
		o.w.fail("invariant 3: %s gets a second permit", name)
	case permitted != nil && previous == nil:
		o.checkPermit(node, before, permitted, seen)
	case permitted == nil && previous != nil:
		o.checkClear(node, before, previous)
	}
	o.checkNote(node, before, after, seen)
}

// checkPermit contains all conditions of invariant 2.
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
		o.w.fail("invariant 2: permit for %s does not match the reboot that it needs", name)
	case len(s.BusyMounts) > 0:
		o.w.fail("invariant 2: permit for %s, which has busy mounts", name)
	case !hasSeenSettings(c, seen.clientNode(name)):
		o.w.fail("invariant 2: permit for %s, whose agent has not seen its spec", name)
	case s.Rollout == nil || s.Rollout.Phase != v1alpha1.RolloutRebooting || s.Rollout.BootHash != target(c) || s.Rollout.Attempts < 1:
		o.w.fail("invariant 9: permit for %s, but its note does not record it", name)
	}
	if pod := o.keptPod(name, seen); pod != "" {
		o.w.fail("invariant 2: permit for %s, which still runs pod %s", name, pod)
	}
	claim, err := v1alpha1.DecodeDisruption(o.w.claims()[name])
	if err != nil || claim.Permit == nil || claim.NodeUID != string(node.UID) || claim.Permit.BootHash != target(c) {
		o.w.fail("invariant 17: permit for %s, but its claim does not record it: %s", name, o.w.claims()[name])
	}
	o.checkMayStart("permit", name, seen)
	o.checkAttempts(m, c, permit)
}

// checkAttempts checks that a node gets no more permits for the same settings after its agent has used the maximum number. A permit that
// the agent rejected does not count.
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
	if o.withheld.Has(key) {
		o.w.fail("invariant 3: permit for %s, whose reboot for %s had no effect and whose settings were withheld", m.name, target(c))
	}
	if o.permits[key].Insert(permit.ID); used >= maxAttempts {
		o.w.fail("invariant 3: permit for %s, which has used %d permits for %s", m.name, used, target(c))
	}
}

// hasSeenSettings reports whether the rollout could know that an agent has seen its desired settings. The rollout does not wait
// until the agent has seen that an earlier permit was withdrawn.
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

// keptPod returns a pod on a node that a drain has to remove, empty if there is none.
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
	// The replacement of a pod that tolerates everything would start on the cordoned node.
	returns := len(pod.OwnerReferences) == 1 && len(pod.Spec.Tolerations) > 0 && pod.DeletionTimestamp == nil
	return !mirror && !daemon && !returns && pod.Status.Phase == corev1.PodRunning
}

// checkClear checks that a permit is never withdrawn while the node reboots.
func (o *observer) checkClear(node *corev1.Node, c *v1alpha1.StorageClientNode, permit *v1alpha1.RebootPermit) {
	if node.Status.NodeInfo.BootID != permit.BootID {
		return
	}
	if hasStarted(c) {
		o.w.fail("invariant 3: the permit of %s is withdrawn although the reboot has started", node.Name)
	}
}

// hasStarted reports whether the agent has announced the reboot of the node's permit.
func hasStarted(c *v1alpha1.StorageClientNode) bool {
	permit, response := c.Spec.RebootPermit, c.Status.Reboot
	return permit != nil && response != nil && response.PermitID == permit.ID && response.Phase == v1alpha1.RebootStarted
}

// checkAnnouncement checks that a permit is used only in its time, and that no complete pass has seen that a person has stopped the node.
func (w *world) checkAnnouncement(m *machine, c *v1alpha1.StorageClientNode) {
	permit := c.Spec.RebootPermit
	switch {
	case permit.NotAfter == nil:
		w.fail("invariant 31: the permit of %s has no end", m.name)
	case w.now.After(permit.NotAfter.Time):
		w.fail("invariant 31: %s starts its reboot %s after the end of its permit", m.name, w.now.Sub(permit.NotAfter.Time))
	}
	w.announced++
}

// checkStopped is the part of invariant 2 about permits that a person has stopped before a pass. The pass was complete, nothing changed in it, and its
// cache showed the stop.
func (p *process) checkStopped(cached *state) {
	for _, object := range cached.clientNodes {
		name := object.GetName()
		node, c, now := cached.node(name), cached.clientNode(name), p.clientNode(name)
		if node == nil || c == nil || c.Spec.RebootPermit == nil || now == nil || now.Spec.RebootPermit == nil {
			continue
		}
		isStopped := !node.Spec.Unschedulable || !p.mayDisrupt(cached, name)
		isStopped = isStopped && (!p.node(name).Spec.Unschedulable || !p.mayDisrupt(p.present(), name))
		isUnused := !hasStarted(now) && (now.Status.Reboot == nil || now.Status.Reboot.PermitID != now.Spec.RebootPermit.ID || now.Status.Reboot.Phase != v1alpha1.RebootFailed)
		isSame := c.Spec.RebootPermit.ID == now.Spec.RebootPermit.ID && now.Spec.RebootPermit.BootID == node.Status.NodeInfo.BootID
		if p.withdrawn++; isStopped && isUnused && isSame {
			p.fail("invariant 2: a pass leaves the permit of %s, which a person has stopped", name)
		}
	}
}

// checkDrains checks that no drain continues against the rules after a complete pass, whose cache showed the node and the rules.
func (p *process) checkDrains(cached *state) {
	for _, object := range cached.nodes {
		name := object.GetName()
		node, c := cached.node(name), cached.clientNode(name)
		now, current := p.node(name), p.present().clientNode(name)
		if now == nil || c == nil || current == nil || !hasMark(now) || !hasMark(node) || !now.DeletionTimestamp.IsZero() || isLeaving(now) {
			continue
		}
		note := current.Status.Rollout
		if current.Spec.RebootPermit != nil || hasFailed(current) || note != nil && note.Reason == v1alpha1.RolloutReasonPermitRefused {
			continue
		}
		p.drained++
		for _, profile := range needers(current) {
			if rules := cached.profile(profile); rules != nil && slices.Contains(needers(c), profile) && !isOpen(rules, p.began) {
				p.fail("invariant 2: the drain of %s continues outside the windows of profile %s", name, profile)
			}
		}
		if obstacles := blockingSettings(node, c); len(obstacles) > 0 && len(needers(c)) > 0 && equality.Semantic.DeepEqual(c.Status.Settings, current.Status.Settings) {
			p.fail("invariant 16: the drain of %s continues although the node would not be accepted: %v", name, obstacles)
		}
	}
	for _, object := range cached.nodes {
		node, now := object.(*corev1.Node), p.node(object.GetName())
		_, claimed := p.claims()[node.Name]
		c := p.present().clientNode(node.Name)
		isPermitted := c != nil && c.Spec.RebootPermit != nil
		isGuarded := node.Annotations[v1alpha1.DisruptionGuardsAnnotation] != "" && now != nil && now.Annotations[v1alpha1.DisruptionGuardsAnnotation] != ""
		if isGuarded && !hasMark(node) && !hasMark(now) && !claimed && !isPermitted && now.DeletionTimestamp.IsZero() {
			p.fail("invariant 5: guards remain on %s", node.Name)
		}
	}
}

// checkNote is the second half of invariant 16: no node fails after its reboot because of an obstacle that was known before.
func (o *observer) checkNote(node *corev1.Node, before, after *v1alpha1.StorageClientNode, seen *look) {
	a, b := after.Status, before.Status
	a.Rollout, b.Rollout = nil, nil
	if !equality.Semantic.DeepEqual(a, b) {
		o.w.fail("invariant 5: the rollout changes the report of the agent of %s", node.Name)
	}
	note, permit := after.Status.Rollout, after.Spec.RebootPermit
	previous := before.Status.Rollout
	o.checkInVain(node.Name, previous, note)
	if note != nil && note.Phase == v1alpha1.RolloutUpToDate && (previous == nil || previous.Phase != note.Phase) && o.clientNodeStood(seen, node.Name, awaitsBoot) {
		o.w.fail("invariant 8: %s is up to date without settings that require a reboot: %s", node.Name, note.Message)
	}
	if note == nil || note.Phase != v1alpha1.RolloutFailed || note.Reason != v1alpha1.RolloutReasonRebootWithoutEffect || permit == nil ||
		permit.BootID == node.Status.NodeInfo.BootID || permit.BootHash != after.Spec.BootHash || after.Spec.Release {
		return
	}
	m := o.w.machines[node.Name]
	if o.clientNodeStood(seen, node.Name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return isReadyNode(n) && c.Status.BootID == n.Status.NodeInfo.BootID && c.Status.ObservedGeneration == c.Generation
	}) && m.foul == m.foulThen {
		o.w.fail("invariant 16: %s fails because of an obstacle that was known before the reboot: %s", node.Name, note.Message)
	}
}

// checkInVain is the part of invariant 18 about drains that time out. Without faults, none does after it has evicted a pod, except attempts that
// cordon first.
func (o *observer) checkInVain(name string, before, after *v1alpha1.RolloutStatus) {
	if before != nil && after != nil && after.HeldSince != nil && before.Phase != v1alpha1.RolloutDraining && after.Phase == v1alpha1.RolloutDraining {
		o.cordonedFirst++
	}
	// A drain continues after the agent has rejected a permit.
	if after != nil && after.Phase == v1alpha1.RolloutDraining && (before == nil || before.Phase != v1alpha1.RolloutDraining && before.Phase != v1alpha1.RolloutRebooting) {
		o.drainedAt[name] = o.w.now
	}
	if before == nil || after == nil || before.Phase != v1alpha1.RolloutDraining || after.Phase == before.Phase || after.Reason != v1alpha1.RolloutReasonDrainTimedOut || after.Evictions == 0 {
		return
	}
	if before.HeldSince != nil {
		o.attempts += int(after.Evictions)
		return
	}
	o.inVain += int(after.Evictions)
	// Settings that change during the drain are another reason for a timeout.
	if o.w.quiet && before.Reason != v1alpha1.RolloutReasonSettingsChanging && before.Reason != v1alpha1.RolloutReasonApplying && o.drainedAt[name].After(o.w.calmAt) {
		o.w.fail("invariant 18: %d pods of %s are evicted in vain: %s", after.Evictions, name, after.Message)
	}
}

// checkEviction checks that the rollout evicts pods only from nodes that it has cordoned and that a drain can empty.
func (o *observer) checkEviction(pod *corev1.Pod, seen *look) {
	name := pod.Spec.NodeName
	cached := find[*corev1.Node](seen.cached, name)
	if o.unmarked[name] > seen.write {
		return // Another client has removed the annotation after the rollout sent the eviction.
	}
	if (cached == nil || !hasMark(cached)) && o.nodeStood(seen, name, func(n *corev1.Node) bool { return !hasMark(n) }) {
		o.w.fail("invariant 18: pod %s is evicted from %s, which the rollout has not cordoned", pod.Name, name)
	}
	if o.nodeStood(seen, name, isLeaving) && (cached == nil || isLeaving(cached)) {
		o.w.fail("invariant 18: pod %s is evicted from %s, which an autoscaler is about to remove", pod.Name, name)
	}
	o.checkLoadBalancers(name, seen)
	o.checkStuck(name, seen)
	if !mustLeave(pod) {
		o.w.fail("invariant 18: pod %s is evicted, but a drain must skip it", pod.Name)
	}
	if len(pod.OwnerReferences) == 1 && pod.OwnerReferences[0].Kind == "Job" {
		o.w.fail("invariant 18: pod %s of a Job is evicted", pod.Name)
	}
}

// stuckFor is the time after which a drain must not count on a terminating pod.
const stuckFor = 6 * time.Minute

// checkStuck checks that no pod is evicted from a node with a pod that has been terminating for long.
func (o *observer) checkStuck(name string, seen *look) {
	for _, object := range seen.pods {
		pod := object.(*corev1.Pod)
		if pod.Spec.NodeName == name && pod.Annotations[hangs] != "" && pod.DeletionTimestamp != nil &&
			o.w.managerTime().Sub(pod.DeletionTimestamp.Time) > stuckFor {
			o.w.fail("invariant 18: a pod is evicted from %s, whose pod %s does not terminate", name, pod.Name)
		}
	}
}

// checkReboot checks invariants 2, 3 and 8 on the machine: drifted settings take effect through the rollout, after the node is claimed.
func (w *world) checkReboot(m *machine, permit string) {
	node := w.node(m.name)
	if m.reboots[permit] > 0 {
		w.fail("invariant 3: %s reboots twice with permit %s", m.name, permit)
	}
	if node == nil || w.permittedAt[permit] < w.touched[m.name][1] && (!node.Spec.Unschedulable || !hasMark(node)) {
		return // A user has undone the cordon since the last pass.
	}
	if _, claimed := w.claims()[m.name]; !claimed && !w.lenient {
		w.fail("invariant 8: %s reboots without a claim", m.name)
	}
	if !node.Spec.Unschedulable {
		w.fail("invariant 2: %s reboots although it is not cordoned", m.name)
	}
	if w.permittedAt[permit] < w.uncordoned[m.name] {
		return // New pods have started since. The manager has cordoned the node again.
	}
	for _, o := range w.api.All(memapi.Pods) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == m.name && mustLeave(pod) {
			w.fail("invariant 2: %s reboots while it runs pod %s", m.name, pod.Name)
		}
	}
}

// clearBackOffs clears the backoffs after an edit that changes the profiles of nodes: the drain options may differ. A manager may see
// the edit later.
func (o *observer) clearBackOffs() {
	clear(o.backOff)
	o.rulesChanged = o.w.now
}

// allowRetries clears the records about nodes that are retried.
func (o *observer) allowRetries() {
	clear(o.permits)
	clear(o.backOff)
	clear(o.withheld)
	o.losses = nil
}

// checkNodeController compares a write of the node controller with the invariants.
func (o *observer) checkNodeController(w memapi.Write, name string, seen *look) {
	switch after := w.After.(type) {
	case *v1alpha1.StorageClientNode:
		before, _ := w.Before.(*v1alpha1.StorageClientNode)
		if before != nil && !equality.Semantic.DeepEqual(before.Spec.RebootPermit, after.Spec.RebootPermit) {
			o.w.fail("invariant 3: the node controller changes the permit of %s", name)
		}
		if before == nil || before.Spec.Hash != after.Spec.Hash {
			o.checkGate(after)
		} else if len(after.Spec.Settings) < len(before.Spec.Settings) && before.Spec.RebootPermit == nil && hasFailed(before) {
			o.withheld.Insert(string(after.UID) + " " + target(after))
		}
	case *corev1.Node:
		o.checkTuned(name, after, seen)
	}
}

// checkTuned is invariant 10: a node is Tuned if every value was read back, exceptions aside.
func (o *observer) checkTuned(name string, after *corev1.Node, seen *look) {
	isTuned := slices.ContainsFunc(after.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.TunedNodeCondition && c.Status == corev1.ConditionTrue
	})
	before := seen.node(name)
	wasTuned := before != nil && slices.ContainsFunc(before.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.TunedNodeCondition && c.Status == corev1.ConditionTrue
	})
	if isTuned && !wasTuned && o.clientNodeStood(seen, name, func(_ *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		// The condition is written before the settings that it refers to, so their hash may differ.
		return c.Status.Hash == c.Spec.Hash && slices.ContainsFunc(c.Status.Settings, func(s v1alpha1.SettingStatus) bool {
			return s.State == v1alpha1.SettingFailed || wants(c, s.Key) && s.State == v1alpha1.SettingDrifted
		})
	}) {
		o.w.fail("invariant 10: %s is Tuned although settings failed or drifted", name)
	}
	if isTuned && !wasTuned && o.clientNodeStood(seen, name, awaitsBoot) {
		o.w.fail("invariant 8: %s is Tuned without settings that require a reboot", name)
	}
}

// noteKept records the nodes that have their desired settings when the faults end. Their settings count as proof for the canary, like
// settings that nodes get later.
func (o *observer) noteKept() {
	now := o.w.present()
	for _, object := range now.nodes {
		node := object.(*corev1.Node)
		if c := now.clientNode(node.Name); c != nil && !c.Spec.Release && differingSetting(c, o.w.declared(node)) == "" {
			// The hash is computed from the settings: spec.hash still covers removed settings that require a reboot.
			o.given[node.Name], _ = nodesettings.Hashes(c.Spec.Settings)
		}
	}
}

// checkGate is invariant 11 for live values. It applies after the faults: only then the desired settings of every node are known.
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
			isApplied := c.Status.Hash == c.Spec.Hash
			if !isApplied {
				running++
			}
			if c.Spec.Hash != after.Spec.Hash || !isReadyNode(other) {
				continue // Other nodes do not wait forever for a node that is down.
			}
			carriers++
			if since := o.reportedSince[other.Name]; isApplied && since.of == c.Spec.Hash && !o.w.now.Before(since.at.Add(soak-slack)) {
				proven++
			}
		}
		limit := max(canaries, resolve(*p.Spec.Rollout.MaxConcurrentLive, nodes))
		switch {
		case proven < canaries && carriers > canaries:
			o.w.fail("invariant 11: %s gets settings that %d nodes have, but only %d of %d canary nodes of %s have proven them", after.Name, carriers, proven, canaries, p.Name)
		case running > limit:
			o.w.fail("invariant 11: got %d nodes of %s that apply new settings at a time, want at most %d", running, p.Name, limit)
		}
	}
}
