// Package bounds has the bounds of a StorageClientNode's status, as the API has them: the parts of the agent that report keep to them.
package bounds

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of texts in characters.
const (
	Message    = 1024
	Observed   = 1024
	MountPoint = 1024
	Name       = 253
	UID        = 64
	Word       = 32
)

// Options is the most mount options of one mount.
const Options = 64

// First returns the first entries of a list, at most n.
func First[T any](list []T, n int) []T { return list[:min(len(list), n)] }

// Time returns a time in whole seconds, as the API has it; nil if it is zero.
func Time(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &at
}
