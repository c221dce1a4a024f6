package simulation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
)

// zonePatience is the time for which other zones wait for a drain.
const zonePatience = 5 * time.Minute

// checkTurn checks that a node does not overtake the nodes that a profile puts before it: a busy zone, and selected canaries.
func (o *observer) checkTurn(name, profile string, claims map[string]string, seen *look) {
	now := o.w.present()
	p := now.profile(profile)
	if p == nil || o.touched[profile][1] > seen.write {
		return
	}
	for _, object := range now.nodes {
		other := object.(*corev1.Node)
		if other.Name == name || o.touched[other.Name][1] > seen.write || now.clientNode(other.Name) == nil {
			continue
		}
		o.checkZone(name, other, p, claims)
		o.checkSelectedCanary(name, other, p, seen)
	}
}

// checkZone checks that the rollout does not disrupt two zones of a profile at a time. Nodes that serve no pods yet do not count. Other zones wait
// for a drain, and for the time of a permit, but not longer.
func (o *observer) checkZone(name string, other *corev1.Node, p *v1alpha1.StorageClientProfile, claims map[string]string) {
	now := o.w.present()
	node, c := now.node(name), now.clientNode(other.Name)
	zone := func(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }
	value, isClaimed := claims[other.Name]
	if zone(node) == zone(other) || zone(node) == "" || hasUntunedTaint(node) || hasUntunedTaint(other) || !concerns(p, other, c) || !isClaimed && !hasMark(other) || hasFailed(c) {
		return
	}
	if mark := other.Annotations[v1alpha1.DisruptionAnnotation]; mark != "" {
		value = mark
	}
	disruption, err := v1alpha1.DecodeDisruption(value)
	started, startErr := v1alpha1.DecodeDisruption(claims[name])
	if err != nil || startErr != nil || !disruption.Since.Before(&started.Since) {
		return // One pass may have claimed both, the other node last and for another profile.
	}
	for _, object := range now.profiles {
		r := object.(*v1alpha1.StorageClientProfile).Spec.WithDefaults().Rollout
		limit := min(seconds(r.Drain.TimeoutSeconds), zonePatience)
		if c.Spec.RebootPermit != nil {
			limit = seconds(r.Drain.TimeoutSeconds) + seconds(r.Reboot.TimeoutSeconds) + seconds(r.SettleSeconds)
		}
		if !o.w.managerTime().Before(disruption.Since.Add(limit - clocks)) {
			return
		}
	}
	o.w.fail("zones: claim of %s in zone %s while %s in zone %s is out of service", name, zone(node), other.Name, zone(other))
}

func seconds(number *int32) time.Duration { return time.Duration(*number) * time.Second }

func hasUntunedTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.UntunedTaint })
}

// checkSelectedCanary checks that no node is claimed before a node that the profile selects as its canary, and that the rollout could claim.
func (o *observer) checkSelectedCanary(name string, other *corev1.Node, p *v1alpha1.StorageClientProfile, seen *look) {
	now := o.w.present()
	node, c, canary := now.node(name), now.clientNode(name), now.clientNode(other.Name)
	selector := p.Spec.Rollout.Canary.NodeSelector
	if selector == nil || isSelected(selector, node) || !isSelected(selector, other) || !concerns(p, other, canary) {
		return
	}
	isDue := !canary.Spec.Release && canary.Spec.BootHash == c.Spec.BootHash && isReported(other, canary) && slices.Contains(needers(canary), p.Name) &&
		differingSetting(canary, o.w.declared(other)) == "" && differingSetting(c, o.w.declared(node)) == ""
	note := canary.Status.Rollout
	isLeft := note != nil && (note.RetryAfter != nil || note.HeldSince != nil || note.DrainAttempts > 0) || hasFailed(canary)
	isLast := isControlPlane(other) || o.w.isManagerBound(other.Name) || o.w.isOnlySchedulable(other.Name)
	isFit := !isOut(other) && !seen.blind[other.Name] && o.mayDisrupt(&seen.state, other.Name) && o.mayDisrupt(now, other.Name) && len(blockingSettings(other, canary)) == 0 &&
		failingServer(canary) == ""
	if isDue && isFit && !isLeft && !isLast {
		o.w.fail("invariant 11: claim of %s before the selected canary %s", name, other.Name)
	}
}

func isSelected(selector *metav1.LabelSelector, node *corev1.Node) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(node.Labels))
}

// failingServer returns a storage server that does not respond to a node, empty if there is none.
func failingServer(c *v1alpha1.StorageClientNode) string {
	for _, server := range c.Status.Servers {
		if server.State == v1alpha1.ServerSilent {
			return server.Server
		}
	}
	return ""
}

// checkStorage is the part of invariant 18 about storage: a node is disrupted only if its storage server responded at the last look.
func (o *observer) checkStorage(what, name string, seen *look) {
	if o.clientNodeStood(seen, name, func(n *corev1.Node, c *v1alpha1.StorageClientNode) bool {
		return c.Status.BootID == n.Status.NodeInfo.BootID && failingServer(c) != ""
	}) {
		o.w.fail("invariant 18: %s for %s, whose storage server does not respond", what, name)
	}
}

// checkLoadBalancers checks that a drain starts only after the load balancers had the time that the profiles give them.
func (o *observer) checkLoadBalancers(name string, seen *look) {
	node, c := o.w.node(name), o.w.present().clientNode(name)
	if node == nil || c == nil || !hasMark(node) || o.touched[name][1] > seen.write {
		return
	}
	mark, err := v1alpha1.DecodeDisruption(node.Annotations[v1alpha1.DisruptionAnnotation])
	wait := int32(-1)
	for _, object := range o.w.present().profiles {
		p := object.(*v1alpha1.StorageClientProfile)
		if o.touched[p.Name][1] > seen.write || err != nil {
			return
		}
		if concerns(p, node, c) && (wait < 0 || p.Spec.Rollout.Drain.ExcludeFromLoadBalancersSeconds < wait) {
			wait = p.Spec.Rollout.Drain.ExcludeFromLoadBalancersSeconds
		}
	}
	if end := mark.Since.Add(time.Duration(wait)*time.Second - slack); wait > 0 && o.w.managerTime().Before(end) {
		o.w.fail("invariant 18: a pod is evicted from %s %s after its cordon, want %d s for the load balancers", name, o.w.managerTime().Sub(mark.Since.Time), wait)
	}
}
