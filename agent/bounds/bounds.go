// Package bounds contains the API limits of the StorageClientNode status, for the parts of the agent that report it.
package bounds

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of strings, in characters.
const (
	Message    = 1024
	Observed   = 1024
	MountPoint = 1024
	Name       = 253
	UID        = 64
	Word       = 32
)

// Limits of a read-ahead window, in KiB.
const (
	MinReadAhead = 4
	MaxReadAhead = 1 << 20
)

// Options is the maximum number of mount options of one mount.
const Options = 64

// First returns at most the first n entries of a list.
func First[T any](list []T, n int) []T { return list[:min(len(list), n)] }

// Time returns a time in whole seconds, as in the API. Nil if it is zero.
func Time(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &at
}
