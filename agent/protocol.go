package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/mounted"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const maxVersion = 128

// parts are the parts of an agent, which know nothing of each other, and what all of them are about.
type parts struct {
	clock clock.Clock
	boot  boot
	// clientNode is the newest one known; nil where there is none.
	clientNode *v1alpha1.StorageClientNode

	settings *settings
	mounts   *mounted.Watch
	servers  *servers.Watch
	trial    *orders.Trial
	sample   *orders.Sample
	permit   *permit.Permit
	reporter *reporter.Reporter
	modules  Modules
}

// run makes one pass. Its order is the protocol of the agent: any step may be the last before a crash, and the next agent begins at the
// first one. Each part does what is due for it, and what a part needs of another is handed to it here.
func (p *parts) run(ctx context.Context) {
	// 1. What an earlier agent set and did not prove goes back before all else, with or without an API server: nobody proves it any more.
	p.settings.proof.recover(ctx)

	// 2. Without a client node nothing is declared. Nothing is changed and nothing reported, and what is being proven goes back.
	if p.clientNode == nil {
		if err := p.settings.proof.abandon(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back what is not confirmed, trying again")
		}
		return
	}

	// 3. Mounts come before settings: a new one gets the settings that the host holds already at once, and is no drift.
	if p.mounts.Run() && p.settings.followMounts(ctx, p.clientNode) {
		p.mounts.Read()
	}

	// 4. Servers are read beside the loop. They rest on no other part, and name the mounts of this pass.
	p.servers.Run(ctx, p.clientNode.Status)

	// 5. Settings follow the spec before anything is said of it. What a permit has still to decide, a proof must not report.
	undecided := p.permit.IsOpen(p.clientNode.Spec.RebootPermit)
	if p.settings.run(ctx, p.clientNode, undecided) {
		p.mounts.Read()
	}

	// 6. A proof that was begun goes on. It writes the status itself, over the connections that prove: kept or refused, settings are applied
	// again.
	p.settings.prove(ctx, p.clientNode, undecided, func(ctx context.Context, size int64) error {
		return p.reporter.Prove(ctx, size, p.currentStatus())
	})

	// 7. Orders change nothing on the host. They come after the settings that they are measured with, and before a permit, which ends them.
	p.trial.Run(ctx, p.clientNode)
	p.sample.Run(ctx, p.clientNode)

	// 8. A permit rests on how the settings stand now. While it is undecided nothing is reported.
	if p.permit.Run(ctx, p.clientNode, p.settings.forPermit()) == permit.Undecided {
		return
	}

	// 9. The report is last, and speaks of all that was done. One that a first proof is about to write is left to it.
	status := p.currentStatus()
	p.settings.metrics.note(status.Settings)
	if !p.settings.proof.awaitsFirst() {
		p.reporter.Run(ctx, status)
	}
}

// takeClientNode takes over the client node as the watch shows it. One that was created again has nothing to do with the old one.
func (p *parts) takeClientNode(clientNode *v1alpha1.StorageClientNode) {
	if p.clientNode == nil || clientNode == nil || p.clientNode.UID != clientNode.UID {
		p.settings.forget(clientNode)
		p.trial.End()
		p.sample.End()
		p.permit.Forget()
		p.reporter.Forget()
	}
	p.clientNode = clientNode
	if clientNode != nil {
		p.modules.SetNodeUID(nodeUIDOf(clientNode))
	}
}

// nodeUIDOf is the UID of the Node that a client node belongs to; empty where it belongs to none.
func nodeUIDOf(clientNode *v1alpha1.StorageClientNode) string {
	for _, owner := range clientNode.OwnerReferences {
		if owner.Kind == "Node" {
			return string(owner.UID)
		}
	}
	return ""
}

func (p *parts) currentStatus() v1alpha1.StorageClientNodeStatus {
	spec, former := &p.clientNode.Spec, p.clientNode.Status
	status := v1alpha1.StorageClientNodeStatus{BootID: p.boot.id, KernelVersion: text.Cut(p.boot.kernelVersion, maxVersion)}
	p.settings.report(&status, spec.Hash)
	p.mounts.Report(&status, spec, p.settings.outcome.volumes)
	p.servers.Report(&status, former, p.mounts.Mounts())
	p.trial.Report(&status)
	p.sample.Report(&status)
	p.permit.Report(&status)
	status.Conditions = reporter.Conditions(spec, &status, p.settings.outcome.carriedOut, p.reporter.Former(p.clientNode), p.clock.Now())
	return status
}

// wakeAt is when something is due again. Orders have no time of their own: what they started beside the loop wakes it, and the mounts do
// before a sample is given up.
func (p *parts) wakeAt() time.Time {
	if p.clientNode == nil {
		return p.clock.Now().Add(driftInterval)
	}
	times := []time.Time{p.settings.due(), p.servers.Due(), p.permit.Due()}
	if !p.settings.proof.awaitsFirst() {
		times = append(times, p.reporter.Due())
	}
	at := p.mounts.Due()
	for _, other := range times {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	return at
}
