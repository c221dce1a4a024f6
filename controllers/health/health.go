// Package health sends events on Nodes about storage servers that stop responding, and that respond again. Agents send no events; the package uses
// their reports in status.servers.
package health

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/tuning/servermap"
	"github.com/storageclient/operator/tuning/text"
)

// Reasons of events on Nodes.
const (
	// eventUnreachable is set when requests of the node to a storage server have been pending for a minute. The note contains the start of the
	// failure, the checks to make, the affected volumes and the number of affected pods.
	eventUnreachable = "StorageUnreachable"
	// eventReachable is set when a storage server that had stopped responding has no overdue requests anymore.
	eventReachable = "StorageReachable"
	// eventForgotten is set when a server keeps discarding the node's NFSv4 client: another client uses the same client ID.
	eventForgotten = "StorageClientForgotten"
	// eventStale is set when a storage server responds, but every request of a mount with existing file handles has failed for a minute. The note
	// contains the affected volumes and the number of affected pods.
	eventStale = "StorageHandlesStale"
	// eventNamesake is set when the node's NFSv4 client starts to use the same client name as other nodes' clients. The note names these nodes.
	eventNamesake = "StorageClientNamesake"
)

// maxNote is the maximum length of a note in the events API.
const maxNote = 1024

// Reporter watches StorageClientNodes.
type Reporter struct {
	Recorder events.EventRecorder
	// Reader is the manager's cache.
	Reader client.Reader
}

// SetupWithManager adds the reporter to the manager's cache of StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	return watch.ClientNodeUpdates(mgr, r.ReportChanges)
}

type serverKey struct {
	server   string
	protocol v1alpha1.ServerProtocol
}

// ReportChanges sends one event for each server that has started or stopped failing for a node between two versions of its StorageClientNode.
func (r *Reporter) ReportChanges(before, after *v1alpha1.StorageClientNode) {
	previous := map[serverKey]v1alpha1.ServerStatus{}
	for _, s := range before.Status.Servers {
		previous[serverKey{s.Server, s.Protocol}] = s
	}
	for _, s := range after.Status.Servers {
		old := previous[serverKey{s.Server, s.Protocol}]
		switch failed, fails := fleet.IsFailing(old), fleet.IsFailing(s); {
		case fails && !failed:
			r.sendEvent(after, corev1.EventTypeWarning, eventUnreachable, fleet.ServerText(s))
		case failed && !fails:
			r.sendEvent(after, corev1.EventTypeNormal, eventReachable, backText(old, s))
		}
		if fleet.IsStale(s) && !fleet.IsStale(old) {
			r.sendEvent(after, corev1.EventTypeWarning, eventStale, fleet.ServerText(s))
		}
		if s.Forgetting && !old.Forgetting {
			r.sendEvent(after, corev1.EventTypeWarning, eventForgotten, fmt.Sprintf(
				"NFS server %s keeps discarding this node's client; another client uses the same client ID, and both lose locks and open files; "+
					"compare the host names and machine IDs of the server's clients", s.Server))
		}
	}
	if name := after.Status.NFS4ClientName; name != "" && name != before.Status.NFS4ClientName {
		r.reportNamesakes(after)
	}
}

// reportNamesakes reports nodes with the same client name. If they cannot be read, the metric and the plugin still report them.
func (r *Reporter) reportNamesakes(clientNode *v1alpha1.StorageClientNode) {
	var list v1alpha1.StorageClientNodeList
	// An event handler gets no context. The list comes from the cache, which the manager has filled before it leads.
	if err := r.Reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for _, same := range servermap.FindDuplicateClientIDs(list.Items) {
		otherNodes := slices.DeleteFunc(slices.Clone(same.Nodes), func(node string) bool { return node == clientNode.Name })
		if len(otherNodes) < len(same.Nodes) {
			r.sendEvent(clientNode, corev1.EventTypeWarning, eventNamesake, fmt.Sprintf(
				"The node shares the NFSv4 client ID %q with %s %s; on a server that both mount, each client revokes the locks and open files of the other; "+
					"declare node.nfs4UniqueID: FromNode, or set unique host names", same.Name, nodeNoun(len(otherNodes)), text.List(otherNodes)))
		}
	}
}

func nodeNoun(nodes int) string {
	if nodes == 1 {
		return "node"
	}
	return "nodes"
}

func backText(old, s v1alpha1.ServerStatus) string {
	note := fmt.Sprintf("%s server %s has no overdue requests", s.Protocol, s.Server)
	if old.Since != nil {
		note += " for the first time since " + old.Since.UTC().Format(time.RFC3339)
	}
	return note
}

func (r *Reporter) sendEvent(clientNode *v1alpha1.StorageClientNode, kind, reason, note string) {
	r.Recorder.Eventf(fleet.NodeOf(clientNode), clientNode, kind, reason, "Report", "%s", text.CutBytes(note, maxNote))
}
