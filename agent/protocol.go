package agent

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	maxVersion = 128
	maxBuild   = 256
)

// parts contains the parts of an agent and their shared state. The parts do not depend on each other.
type parts struct {
	clock clock.Clock
	boot  boot
	// clientNode is the newest known object. Nil if there is none.
	clientNode *v1alpha1.StorageClientNode

	settings *settings
	mounts   *mountwatch.Watch
	servers  *servers.Watch
	trial    *orders.Trial
	sample   *orders.Sample
	permit   *permit.Permit
	reporter *reporter.Reporter
	modules  Modules
}

// run makes one pass. The order of its steps is the protocol of the agent. A crash may follow any step, and the next agent starts at step
// 1. Each part does its due work, and run passes data between the parts.
func (p *parts) run(ctx context.Context) {
	// 1. Revert settings that an earlier agent set and did not prove, even if the API server is unavailable.
	p.settings.proof.recover(ctx)

	// 2. Without a StorageClientNode, revert the settings under test. Do not report, and do not change anything else.
	if p.clientNode == nil {
		if err := p.settings.proof.abandon(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Cannot revert unconfirmed settings; trying again")
		}
		return
	}

	// 3. Process mounts before settings. A new mount immediately gets the current settings and is not drift.
	if p.mounts.Run() && p.settings.followMounts(ctx, p.clientNode) {
		p.mounts.Read()
	}

	// 4. Read servers in the background. They do not depend on other parts and refer to the mounts of this pass.
	p.servers.Run(ctx, p.clientNode.Status)

	// 5. Apply settings before the report. A proof must not report a spec whose permit is undecided.
	undecided := p.permit.IsOpen(p.clientNode.Spec.RebootPermit)
	if p.settings.run(ctx, p.clientNode, undecided) {
		p.mounts.Read()
	}

	// 6. Continue a proof in progress. It writes the status over the test connections. After the result, kept or rejected, settings are
	// applied again.
	p.settings.prove(ctx, p.clientNode, undecided, func(ctx context.Context, size int64) error {
		return p.reporter.Prove(ctx, size, p.currentStatus())
	})

	// 7. Run orders. They do not change the host. They measure the applied settings, and a permit stops them.
	p.trial.Run(ctx, p.clientNode)
	p.sample.Run(ctx, p.clientNode)

	// 8. Decide on a permit from the current state of the settings. Do not report while it is undecided.
	p.permit.Run(ctx, p.clientNode, p.settings.forPermit())
	if p.permit.IsOpen(p.clientNode.Spec.RebootPermit) {
		return
	}

	// 9. Report the result of all steps. If a first proof is about to write the status, skip the report.
	status := p.currentStatus()
	p.settings.metrics.note(status.Settings)
	if !p.settings.proof.awaitsFirst() {
		p.reporter.Run(ctx, status)
	}
}

// takeClientNode stores the newest StorageClientNode. An object with another UID is unrelated to the previous one, whose state is
// cleared.
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

// nodeUIDOf returns the UID of the owning Node. Empty if there is none.
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
	status := v1alpha1.StorageClientNodeStatus{BootID: p.boot.id, KernelVersion: text.Cut(p.boot.kernelVersion, maxVersion),
		KernelBuild: text.Cut(text.Line(p.boot.kernelBuild), maxBuild)}
	p.settings.report(&status, spec.Hash)
	p.mounts.Report(&status, spec, p.settings.outcome.volumes)
	p.servers.Report(&status, former, p.mounts.Mounts())
	p.trial.Report(&status)
	p.sample.Report(&status)
	p.permit.Report(&status)
	status.Conditions = reporter.Conditions(spec, &status, p.settings.outcome.carriedOut, p.reporter.Former(p.clientNode), p.clock.Now())
	return status
}

// wakeAt returns the time of the next pass. Orders have no due time. Their background work wakes the loop, and mount checks run often
// enough to detect the timeout of a sample.
func (p *parts) wakeAt() time.Time {
	if p.clientNode == nil {
		return p.clock.Now().Add(driftInterval)
	}
	times := []time.Time{p.settings.dueAt(), p.servers.Due(), p.permit.Due()}
	if !p.settings.proof.awaitsFirst() {
		times = append(times, p.reporter.Due())
	}
	return slices.MinFunc(append(slices.DeleteFunc(times, time.Time.IsZero), p.mounts.Due()), time.Time.Compare)
}
