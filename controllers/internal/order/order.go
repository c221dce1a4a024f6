// Package order sorts nodes into the order of the rollout. The planner uses it, and previews show it. It is pure: no client, no clock.
package order

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Turn contains the data that determines a node's place in the order of the rollout.
type Turn struct {
	// Name is the node's name.
	Name string
	// Created is the creation time of the Node.
	Created time.Time
	// Labels are the Node's labels, Zone is the value of its zone label, empty if it has none.
	Labels map[string]string
	Zone   string
	// Manager marks the node that runs the manager's pod.
	Manager bool
	// BootHash is the desired boot hash: a canary is evidence for the nodes with the same hash.
	BootHash string
	// Blocked is true if the node currently cannot be rebooted. It is no canary, and comes after all other nodes.
	Blocked bool
}

// Compare sorts nodes in the order of the rollout: zone by zone, nodes without a zone last. Within a zone, the oldest node is first. The manager's
// node comes after all others.
func (t Turn) Compare(other Turn) int {
	return cmp.Or(
		compareBool(t.Manager, other.Manager), compareBool(t.Zone == "", other.Zone == ""), cmp.Compare(t.Zone, other.Zone),
		t.Created.Compare(other.Created), cmp.Compare(t.Name, other.Name),
	)
}

// InTurn returns the nodes of a profile in the order in which the rollout reboots them without other delays: the canaries of its groups, then the
// others. rule is the profile's, with defaults.
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

// LabelMatcher matches the labels that a selector selects; an invalid selector selects none.
func LabelMatcher(selector *metav1.LabelSelector) func(map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		parsed = labels.Nothing()
	}
	return func(set map[string]string) bool { return parsed.Matches(labels.Set(set)) }
}

// compareBool sorts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
