// Package health sends events on Nodes about storage servers that stop responding, and that respond again. Agents send no events; the package uses
// their reports in status.servers.
package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
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
	// Reader is the manager's cache. It is listed once.
	Reader client.Reader

	mutex sync.Mutex
	// nodes are the sorted names of the nodes with an NFSv4 client name, by that name. Nil before the first read.
	nodes map[string][]string
}

// SetupWithManager adds the reporter to the manager's cache of StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(watch.ClientNodeUpdates(mgr, r.ReportChanges), watch.ClientNodeDeletions(mgr, r.ReportDeletion))
}

// ReportDeletion removes a deleted node from the nodes with its NFSv4 client name.
func (r *Reporter) ReportDeletion(deleted *v1alpha1.StorageClientNode) {
	r.rename(deleted.Name, deleted.Status.NFS4ClientName, "")
}

// rename records the client name of a node, and returns the other nodes with that name.
func (r *Reporter) rename(node, before, after string) []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// Changes before the manager leads are not seen, so the first name is the time of the read.
	if r.nodes == nil && (after == "" || !r.readNodes()) {
		return nil
	}
	if i, found := slices.BinarySearch(r.nodes[before], node); found {
		if r.nodes[before] = slices.Delete(r.nodes[before], i, i+1); len(r.nodes[before]) == 0 {
			delete(r.nodes, before)
		}
	}
	if after == "" {
		return nil
	}
	i, found := slices.BinarySearch(r.nodes[after], node)
	if !found {
		r.nodes[after] = slices.Insert(r.nodes[after], i, node)
	}
	return slices.Concat(r.nodes[after][:i], r.nodes[after][i+1:])
}

// readNodes reads the client names of all nodes once, and reports whether that was possible. Later changes arrive as events.
func (r *Reporter) readNodes() bool {
	var list v1alpha1.StorageClientNodeList
	// An event handler gets no context. The list comes from the cache, which the manager has filled before it leads.
	if err := r.Reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	r.nodes = map[string][]string{}
	for i := range list.Items {
		if name := list.Items[i].Status.NFS4ClientName; name != "" {
			r.nodes[name] = append(r.nodes[name], list.Items[i].Name)
		}
	}
	for _, nodes := range r.nodes {
		slices.Sort(nodes)
	}
	return true
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
	// If the other nodes cannot be read, the metric and the plugin still report duplicates.
	if old, name := before.Status.NFS4ClientName, after.Status.NFS4ClientName; name != old {
		if otherNodes := r.rename(after.Name, old, name); len(otherNodes) > 0 {
			r.sendEvent(after, corev1.EventTypeWarning, eventNamesake, fmt.Sprintf(
				"The node shares the NFSv4 client ID %q with %s %s; on a server that both mount, each client revokes the locks and open files of the other; "+
					"declare node.nfs4UniqueID: FromNode, or set unique host names", name, nodeNoun(len(otherNodes)), text.List(otherNodes)))
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
