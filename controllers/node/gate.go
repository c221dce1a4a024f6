package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
)

// throughGate lets a decision that changes a host pass only where every profile concerned lets the node go now.
func (r *Reconciler) throughGate(ctx context.Context, in input, next decision) (decision, error) {
	if !next.gated && !next.limited {
		return next, nil
	}
	now, profiles := r.Clock.Now(), versions(in.view)
	var all *fleet.Snapshot
	for _, name := range concerned(in) {
		profile := in.view.Profile(name)
		known := r.verdicts[name]
		if !next.limited && known.denies(in.entry(profile), profiles, now) {
			return next.waiting(known.Notes[in.node.Name], nextTurn(known.soak(now))), nil
		}
		if all == nil {
			read, err := fleet.ReadSnapshot(ctx, r, in.view, r.AgentNamespace)
			if err != nil {
				return decision{}, err
			}
			all = &read
		}
		if next.limited {
			if note := mayRelease(*all, profile); note != "" {
				return next.waiting(note, turnAfter), nil
			}
			continue
		}
		nodes := nodesOf(*all, profile)
		verdict := newVerdict(livegate.Admit(nodes, livegate.PolicyOf(profile.Spec.WithDefaults().Rollout), now), profiles, nodes, now)
		if r.verdicts != nil {
			r.verdicts[name] = verdict
		}
		if !verdict.Admitted[in.node.Name] {
			return next.waiting(verdict.Notes[in.node.Name], nextTurn(verdict.Next)), nil
		}
	}
	return next, nil
}

// entry is the node as it stands among a profile's for the gate.
func (in input) entry(profile *fleet.Profile) livegate.Node {
	own := fleet.Snapshot{View: in.view, Ready: map[string]bool{in.node.Name: in.ready}}
	entry := entryOf(own, in.node, in.scn)
	entry.Wanted = in.wanted.Hash
	entry.Canary = canaryOf(profile).Matches(labels.Set(in.node.Labels))
	return entry
}

// nextTurn is when to ask again: often, and at the end of a soak exactly.
func nextTurn(soak time.Duration) time.Duration {
	if soak > 0 {
		return min(soak, turnAfter)
	}
	return turnAfter
}

// concerned are the profiles whose rollout rules a change of a node's settings has to keep: those that contribute,
// and those whose settings go.
func concerned(in input) []string {
	profiles := slices.Clone(in.wanted.Profiles)
	for _, source := range fleet.Sources(in.scn) {
		profile := in.view.Profile(source)
		if profile != nil && (profile.Standing == match.Leaving || !in.wanted.Managed) {
			profiles = append(profiles, source)
		}
	}
	return profiles
}

// nodesOf are a profile's nodes for the gate. A node that is left alone, or without anything to set, is not among them.
func nodesOf(all fleet.Snapshot, profile *fleet.Profile) []livegate.Node {
	var nodes []livegate.Node
	canary := canaryOf(profile)
	for i := range all.Nodes {
		node := &all.Nodes[i]
		scn := all.Objects[node.Name]
		if !node.DeletionTimestamp.IsZero() || match.Ignored(node) || (!profile.Selects(node) && !fleet.Concerns(profile.Name, scn)) {
			continue
		}
		wanted := all.View.Wanted(node, scn)
		if !wanted.Managed || (scn == nil && wanted.Hash == "") {
			continue
		}
		entry := entryOf(all, node, scn)
		entry.Wanted = wanted.Hash
		entry.Canary = canary.Matches(labels.Set(node.Labels))
		nodes = append(nodes, entry)
	}
	return nodes
}

// canaryOf selects the nodes that a profile chooses for its canary; where it chooses none, no node.
func canaryOf(profile *fleet.Profile) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(profile.Spec.WithDefaults().Rollout.Canary.NodeSelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func entryOf(all fleet.Snapshot, node *corev1.Node, scn *v1alpha1.StorageClientNode) livegate.Node {
	paused := pause.Annotated(node) || len(all.View.PausedBy(node, scn)) > 0
	entry := livegate.Node{Name: node.Name, Created: node.CreationTimestamp.Time, Alive: !paused && agentpod.NodeReady(node)}
	if scn == nil {
		return entry
	}
	report := fleet.Look(node, scn, all.Ready[node.Name], "")
	entry.Managed = !scn.Spec.Release
	entry.Carries = scn.Spec.Hash
	entry.Alive = entry.Alive && report.Silent == ""
	entry.Taken = !report.Applying && len(report.Failed) == 0
	entry.Failed = !report.Applying && len(report.Failed) > 0
	entry.TakenSince = takenSince(node, report)
	return entry
}

// takenSince is since when a node has looked well, by the condition that says so. That the node looks well now is
// observed afresh; only the time comes from the condition.
func takenSince(node *corev1.Node, report fleet.Report) time.Time {
	condition := conditionOf(node.Status.Conditions)
	if condition == nil || !report.Taken() {
		return time.Time{}
	}
	switch condition.Reason {
	case v1alpha1.NodeReasonTuned, v1alpha1.NodeReasonTunedWithExceptions, v1alpha1.NodeReasonRebootPending:
		return condition.LastHeartbeatTime.Time
	}
	return time.Time{}
}

// mayRelease says why a node that carries settings of a profile has to wait with being restored; empty: it may. What
// is restored is known to work, so there is no canary, but the limit holds. Nodes that are unreachable do not count, nor
// do those where it has failed: they would keep all others from being restored.
func mayRelease(all fleet.Snapshot, profile *fleet.Profile) string {
	carrying, releasing := 0, 0
	for i := range all.Nodes {
		node := &all.Nodes[i]
		scn := all.Objects[node.Name]
		if scn == nil || !fleet.Concerns(profile.Name, scn) {
			continue
		}
		carrying++
		if scn.Spec.Release && !scn.Status.Restored && !failedToRestore(scn) && agentpod.Silent(node, scn, all.Ready[node.Name]) == "" {
			releasing++
		}
	}
	limit := v1alpha1.ResolveShare(*profile.Spec.WithDefaults().Rollout.MaxConcurrentLive, carrying)
	if releasing >= limit {
		return fmt.Sprintf("waits for its turn to be restored, at most %d at a time", limit)
	}
	return ""
}

// failedToRestore reports whether the agent has said of the release that something could not be put back.
func failedToRestore(scn *v1alpha1.StorageClientNode) bool {
	return scn.Status.ObservedGeneration >= scn.Generation &&
		slices.ContainsFunc(scn.Status.Settings, func(s v1alpha1.SettingStatus) bool { return s.State == v1alpha1.SettingFailed })
}
