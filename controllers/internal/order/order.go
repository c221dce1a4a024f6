// Package order puts nodes into the order in which the rollout takes them. The planner goes by it, and previews show it. It is
// pure: no client, no clock.
package order

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Turn is what a node's place in the order of the rollout hangs on.
type Turn struct {
	// Name is the node's name.
	Name string
	// Created is when the Node was created.
	Created time.Time
	// Labels are the Node's labels, Zone is the one of its zone, empty if it has none.
	Labels map[string]string
	Zone   string
	// Manager marks the node that the manager's own pod runs on.
	Manager bool
	// BootHash is what the node is to have: a canary is evidence for the nodes that get the same.
	BootHash string
	// Blocked is true for a node that cannot go as it stands. It is no canary, and comes after all that can.
	Blocked bool
}

// Compare puts nodes in the order of the rollout: zone by zone, those without one last, in a zone the oldest first, and
// the manager's own after all others.
func (t Turn) Compare(other Turn) int {
	return cmp.Or(
		compareBool(t.Manager, other.Manager), compareBool(t.Zone == "", other.Zone == ""), cmp.Compare(t.Zone, other.Zone),
		t.Created.Compare(other.Created), cmp.Compare(t.Name, other.Name),
	)
}

// InTurn returns the nodes of a profile in the order in which the rollout takes them where nothing else delays them:
// the canaries of its groups, then the others. rule is the profile's, with defaults.
func InTurn(nodes []Turn, rule v1alpha1.Canary) []Turn {
	const canary, other, blocked = 0, 1, 2
	chosen := LabelMatcher(rule.NodeSelector)
	proving, ranks := map[string]int32{}, make(map[string]int, len(nodes))
	out := slices.SortedFunc(slices.Values(nodes), Turn.Compare)
	for _, t := range out {
		switch {
		case t.Blocked:
			ranks[t.Name] = blocked
		case rule.NodeSelector != nil && chosen(t.Labels), rule.NodeSelector == nil && proving[t.BootHash] < *rule.Nodes:
			ranks[t.Name] = canary
			proving[t.BootHash]++
		default:
			ranks[t.Name] = other
		}
	}
	slices.SortStableFunc(out, func(a, b Turn) int { return cmp.Compare(ranks[a.Name], ranks[b.Name]) })
	return out
}

// LabelMatcher matches the labels that a selector selects; one that cannot be parsed selects none.
func LabelMatcher(selector *metav1.LabelSelector) func(map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		parsed = labels.Nothing()
	}
	return func(set map[string]string) bool { return parsed.Matches(labels.Set(set)) }
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
