package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// IsFailing reports whether a storage server does not respond to a node, or not to all of its requests.
func IsFailing(s v1alpha1.ServerStatus) bool {
	return s.State == v1alpha1.ServerSilent || s.State == v1alpha1.ServerStuck
}

// IsStale reports whether a storage server responds to a node but no longer knows the files of some of its mounts. A stale mount does not delay a
// drain, because it can be unmounted.
func IsStale(s v1alpha1.ServerStatus) bool { return s.Reason == v1alpha1.ServerReasonStaleHandles }

// ServerText describes a failing server: the start of the failure, the checks to make, and its users.
func ServerText(s v1alpha1.ServerStatus) string {
	entry := fmt.Sprintf("%s server %s", s.Protocol, s.Server)
	switch {
	case IsStale(s):
		entry += " returns stale file handles"
	case s.State == v1alpha1.ServerSilent:
		entry += " does not respond"
	default:
		entry += " has overdue requests"
	}
	if s.Since != nil {
		entry += " since " + s.Since.UTC().Format(time.RFC3339)
	}
	entry += text.Labelled(": ", s.Message)
	if users := usersText(s); users != "" {
		entry += " (" + users + ")"
	}
	return entry
}

func usersText(s v1alpha1.ServerStatus) string {
	var parts []string
	if len(s.Volumes) > 0 {
		parts = append(parts, text.Count(len(s.Volumes), "volume")+" "+text.List(s.Volumes))
	}
	if len(s.PodUIDs) > 0 {
		parts = append(parts, text.Count(len(s.PodUIDs), "pod"))
	}
	return strings.Join(parts, "; ")
}
