package plan

import (
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/text"
)

// failingServers are the storage servers that do not answer the node. What was reported before its last boot is of other connections.
func (n *nodeState) failingServers() []v1alpha1.ServerStatus {
	if !n.hasReportedSinceBoot() {
		return nil
	}
	failing := make([]v1alpha1.ServerStatus, 0, len(n.ClientNode.Status.Servers))
	for _, s := range n.ClientNode.Status.Servers {
		if fleet.IsFailing(s) {
			failing = append(failing, s)
		}
	}
	return failing
}

// checkServers refuses a node whose storage does not answer: processes that use it cannot end, and neither a drain nor a shutdown would.
func (n *nodeState) checkServers() (reason, message string) {
	failing := n.failingServers()
	if len(failing) == 0 {
		return "", ""
	}
	return v1alpha1.RolloutReasonStorageUnreachable, "Not draining, since it would hang: " + describeServers(failing, nil)
}

// describeServers names the servers, and of a drain the pods that wait for them.
func describeServers(failing []v1alpha1.ServerStatus, drain *DrainProgress) string {
	entries := make([]string, 0, len(failing))
	for _, s := range failing {
		entry := fleet.ServerText(s)
		if pods := podsOf(s, drain); len(pods) > 0 {
			entry += ": held by it: " + text.List(pods)
		}
		entries = append(entries, entry)
	}
	return text.Join(entries, "; ")
}

// podsOf names the pods of a drain that use a server.
func podsOf(s v1alpha1.ServerStatus, drain *DrainProgress) []string {
	if drain == nil {
		return nil
	}
	var pods []string
	for _, uid := range s.PodUIDs {
		if name, remains := drain.Names[uid]; remains {
			pods = append(pods, "Pod "+name)
		}
	}
	return pods
}

// hasLostStorageBefore reports whether a storage server has stopped answering the node before a time.
func (n *nodeState) hasLostStorageBefore(end time.Time) bool {
	return slices.ContainsFunc(n.failingServers(), func(s v1alpha1.ServerStatus) bool { return s.Since == nil || s.Since.Time.Before(end) })
}
