// Package lists contains the loops over lists that package slices does not have.
package lists

import (
	"cmp"
	"slices"
)

// Each returns the conversion of each item, in order. The result is nil for an empty list.
func Each[T, R any](items []T, convert func(T) R) []R {
	if len(items) == 0 {
		return nil
	}
	out := make([]R, len(items))
	for i, item := range items {
		out[i] = convert(item)
	}
	return out
}

// Filter returns the items that match, in order. The result is nil if there are none.
func Filter[T any](items []T, matches func(T) bool) (out []T) {
	for _, item := range items {
		if matches(item) {
			out = append(out, item)
		}
	}
	return out
}

// Map returns a map with the entry of each item. If two items have the same key, the later one wins.
func Map[T any, K comparable, V any](items []T, entry func(T) (K, V)) map[K]V {
	out := make(map[K]V, len(items))
	for _, item := range items {
		key, value := entry(item)
		out[key] = value
	}
	return out
}

// FindOrAdd returns the first item that matches. If there is none, it appends added and returns that. The pointer is valid until the next append.
func FindOrAdd[T any](items *[]T, matches func(T) bool, added T) *T {
	i := slices.IndexFunc(*items, matches)
	if i < 0 {
		i, *items = len(*items), append(*items, added)
	}
	return &(*items)[i]
}

// Group puts the items with the same key together. The groups are in the order of their first items.
func Group[T any, K comparable](items []T, key func(T) K) (groups [][]T) {
	positions := map[K]int{}
	for _, item := range items {
		at, known := positions[key(item)]
		if !known {
			at = len(groups)
			positions[key(item)], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], item)
	}
	return groups
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// Pick returns the conversions of the items for which convert returns true, in order. The result is nil if there are none.
func Pick[T, R any](items []T, convert func(T) (R, bool)) (out []R) {
	for _, item := range items {
		if converted, ok := convert(item); ok {
			out = append(out, converted)
		}
	}
	return out
}

// AddMissing appends each item that the list does not contain yet, in order.
func AddMissing[T comparable](list []T, items ...T) []T {
	for _, item := range items {
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return list
}

// Distinct returns the sorted items of all lists, each once. The result is nil if there are none. It does not change the lists.
func Distinct[T cmp.Ordered](all ...[]T) []T {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(all...))))
}
