package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// outage is a period in which a storage server does not respond to a machine.
type outage struct{ since, until time.Time }

func (o outage) lastsAt(now time.Time) bool { return now.Before(o.until) }

// servers returns the server status that the agent reports.
func (o outage) servers(now time.Time) []v1alpha1.ServerStatus {
	if o.until.IsZero() {
		return nil
	}
	s := v1alpha1.ServerStatus{Server: "filer1", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering}
	if o.lastsAt(now) {
		s.State, s.Since = v1alpha1.ServerSilent, &metav1.Time{Time: o.since}
	}
	return []v1alpha1.ServerStatus{s}
}

// failStorage makes a server, or the network to it, unavailable for a while.
func (w *world) failStorage(n *simNode, d time.Duration) {
	w.narrate("the storage server of %s does not answer", n.Name)
	n.machine.storage = outage{since: w.now, until: w.now.Add(d)}
}

// checkStorage is the part of invariant 18 about storage. A node is disrupted or gets a permit only if its storage server
// responded at the last look.
func (m *manager) checkStorage(n *simNode, step plan.Step) {
	seen := m.seen[n.Name]
	if seen.ClientNode == nil || seen.ClientNode.Status.BootID != seen.BootID {
		return
	}
	for _, s := range seen.ClientNode.Status.Servers {
		if s.State == v1alpha1.ServerSilent {
			m.fail("invariant 18: %s, whose storage server %s does not respond", step, s.Server)
		}
	}
}
