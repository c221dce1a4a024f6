package simulation

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/tuning/nodesettings"
)

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
			return hasFailed(c) && !o.isRetryDue(c) && concerns(p, n, c)
		}) {
			failed++
		}
	}
	hash := ""
	for _, lost := range o.losses {
		if hash == "" {
			hash = nodesettings.BootSettingsHash(p)
		}
		if lost.write <= seen.write && lost.target == target(c) && lost.plans[profile] == hash {
			failed++
		}
	}
	if failed >= int(*p.Spec.Rollout.FailureThreshold) {
		o.w.fail("invariant 17: claim of %s although %d nodes of %s have failed", name, failed, profile)
	}
}

// noteLoss records a Node that is deleted, if it was lost to a permit.
func (w *world) noteLoss(node *corev1.Node) {
	c := w.present().clientNode(node.Name)
	claim, err := v1alpha1.DecodeDisruption(w.claims()[node.Name])
	if c == nil || err != nil || c.Spec.RebootPermit == nil || claim.Permit == nil || claim.NodeUID != string(node.UID) {
		return
	}
	if claim.Permit.Leaving != "" && isLeaving(node) && !w.markedReady[string(node.UID)] && !w.lenient {
		w.fail("invariant 17: the claim of %s says that it was about to be removed, but the mark came while it was down", node.Name)
	}
	if claim.Permit.Leaving != "" || isLeaving(node) && w.markedReady[string(node.UID)] {
		return
	}
	w.losses = append(w.losses, loss{
		name: node.Name, uid: string(node.UID), target: claim.Permit.BootHash, plans: maps.Clone(claim.Permit.Profiles), write: w.writes,
	})
}

// checkLosses is invariant 17: every lost machine is recorded, or its claim names it.
func (o *observer) checkLosses() {
	if o.w.lenient {
		return
	}
	var recorded map[string]string
	if object := o.w.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.FailuresConfigMap); object != nil {
		recorded = object.(*corev1.ConfigMap).Data
	}
	o.checkRecords(recorded)
	for _, lost := range o.losses {
		claim, _ := v1alpha1.DecodeDisruption(o.w.claims()[lost.name])
		if claim.NodeUID == lost.uid {
			continue
		}
		for profile, plan := range lost.plans {
			p := o.w.profile(profile)
			if p == nil || nodesettings.BootSettingsHash(p) != plan {
				continue
			}
			failures, _ := v1alpha1.DecodeFailures(recorded[profile])
			named := slices.ContainsFunc(failures.Boots, func(b v1alpha1.BootFailures) bool {
				return b.BootHash == lost.target && slices.ContainsFunc(b.Nodes, func(f v1alpha1.FailedNode) bool { return f.UID == lost.uid })
			})
			if !named {
				o.w.fail("invariant 17: no record names %s (%s), lost to profile %s", lost.name, lost.uid, profile)
			}
		}
	}
}

// checkRecords checks that no record names a machine twice, and that a profile does not lose more machines to the same settings than its threshold
// and the budget allow.
func (o *observer) checkRecords(recorded map[string]string) {
	for profile, value := range recorded {
		failures, _ := v1alpha1.DecodeFailures(value)
		for _, boot := range failures.Boots {
			named := sets.New[string]()
			for _, node := range boot.Nodes {
				if named.Has(node.UID) {
					o.w.fail("invariant 17: two records of %s for profile %s", node.Name, profile)
				}
				named.Insert(node.UID)
			}
		}
	}
	counts := map[string]int{}
	for _, lost := range o.losses {
		for profile, plan := range lost.plans {
			p := o.w.profile(profile)
			if p == nil || nodesettings.BootSettingsHash(p) != plan {
				continue
			}
			counts[profile+" "+lost.target]++
			budget := resolve(o.w.maxUnavailable, len(o.w.machines)+len(o.losses))
			if most := int(*p.Spec.Rollout.FailureThreshold) - 1 + budget; counts[profile+" "+lost.target] > most {
				o.w.fail("invariant 17: profile %s has lost more than %d machines at %q", profile, most, lost.target)
			}
		}
	}
}

// checkCleared checks that a record is removed only for a retry, for other settings, or because the node has no part in them any longer.
func (o *observer) checkCleared(w memapi.Write, seen *look) {
	after := claimsOf(w.After)
	for profile, value := range claimsOf(w.Before) {
		before, _ := v1alpha1.DecodeFailures(value)
		next, _ := v1alpha1.DecodeFailures(after[profile])
		_, retried, _ := strings.Cut(next.Retry, "/")
		p := o.w.profile(profile)
		for _, boot := range before.Boots {
			isOver := p == nil || o.touched[profile][1] > seen.write || boot.Settings != nodesettings.BootSettingsHash(p)
			for _, failed := range boot.Nodes {
				isRetried := next.Retry != before.Retry && (retried == "" || retried == failed.Name)
				isNamed := slices.ContainsFunc(next.Boots, func(b v1alpha1.BootFailures) bool {
					return b.BootHash == boot.BootHash && slices.ContainsFunc(b.Nodes, func(f v1alpha1.FailedNode) bool { return f.UID == failed.UID })
				})
				if !isOver && !isRetried && !isNamed && !o.mayForget(p, boot.BootHash, failed, seen) {
					o.w.fail("invariant 17: the record of %s for profile %s at %q is removed", failed.Name, profile, boot.BootHash)
				}
			}
		}
	}
}

// mayForget reports whether a node was there when the manager looked and its failure no longer counts.
func (o *observer) mayForget(p *v1alpha1.StorageClientProfile, bootHash string, failed v1alpha1.FailedNode, seen *look) bool {
	node, c := seen.node(failed.Name), seen.clientNode(failed.Name)
	if node == nil || string(node.UID) != failed.UID {
		return false
	}
	now := o.w.present()
	if current := now.node(failed.Name); current == nil || current.UID != node.UID {
		return true // It was removed after the look, and its claim records that.
	}
	return c == nil || !concerns(p, node, c) || target(c) != bootHash || differingSetting(c, o.w.declared(node)) != "" || !hasFailed(c) || isWell(node, c) || o.isRetryDue(c)
}
