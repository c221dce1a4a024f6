package fleet

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// selectorIndex finds the profiles that may select a node by the node's labels. Among hundreds of profiles, all except a few require a label that
// the node does not have.
type selectorIndex struct {
	// requiring contains the profiles by one of the labels that they require; any are the profiles that require none.
	requiring map[label][]*Profile
	any       []*Profile
}

type label struct{ key, value string }

// newSelectorIndex files each profile under its rarest required label: a label that all profiles share would exclude no profile.
func newSelectorIndex(profiles []*Profile) selectorIndex {
	requiredBy := map[label]int{}
	for _, profile := range profiles {
		for key, value := range profile.selector.RequiredLabels {
			requiredBy[label{key, value}]++
		}
	}
	index := selectorIndex{requiring: map[label][]*Profile{}}
	for _, profile := range profiles {
		required, rarest := profile.selector.RequiredLabels, label{}
		for _, key := range slices.Sorted(maps.Keys(required)) {
			if one := (label{key, required[key]}); rarest == (label{}) || requiredBy[one] < requiredBy[rarest] {
				rarest = one
			}
		}
		if rarest == (label{}) {
			index.any = append(index.any, profile)
			continue
		}
		index.requiring[rarest] = append(index.requiring[rarest], profile)
	}
	return index
}

// candidates returns the profiles that may select a node, each once, in no order. The caller owns the slice.
func (i selectorIndex) candidates(node *corev1.Node) []*Profile {
	found := slices.Clone(i.any)
	if len(i.requiring) < len(node.Labels) {
		for required, profiles := range i.requiring {
			if value, ok := node.Labels[required.key]; ok && value == required.value {
				found = append(found, profiles...)
			}
		}
		return found
	}
	for key, value := range node.Labels {
		found = append(found, i.requiring[label{key, value}]...)
	}
	return found
}
