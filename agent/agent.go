// Package agent is the loop of the node agent: it compares what one node is declared to hold with what the node
// holds, applies what is live, stages what needs a boot, reports, and reboots where it has a permit. It knows one
// node and one client node, and everything that it has to remember is in the client node, in the journal and in the boot ID.
package agent

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// driftInterval is how often all settings are read back, and the mounts with all their numbers.
	driftInterval = time.Minute
	// mountsInterval is how often the mount table is looked at: a drain waits for the last mount to go.
	mountsInterval = 5 * time.Second
	// holdersInterval is how often the host is asked whether it is free for a reboot that it holds back.
	holdersInterval = 15 * time.Second
	// maxRetry bounds the doubled wait before something that failed is tried again.
	maxRetry = 16 * driftInterval
	// stalledAfter is how long one pass may take: every command is bounded to three minutes.
	stalledAfter = 15 * time.Minute
)

// Config is what an agent is made of.
type Config struct {
	// Host is the machine.
	Host Host
	// API is the way to the client node.
	API API
	// Allowed is what is admitted beyond the catalogue.
	Allowed Allowed
	// Clock tells the time.
	Clock clock.Clock
}

// Agent is the loop for one node.
type Agent struct {
	host    Host
	api     API
	allowed Allowed
	clock   clock.Clock
	boot    boot

	// clientNode is the newest one known; nil where there is none. applied is the version of spec that outcome speaks of,
	// appliedSpec what it says beside volumes, trial and sample.
	clientNode  *v1alpha1.StorageClientNode
	applied     version
	appliedSpec v1alpha1.StorageClientNodeSpec
	outcome     outcome
	heals       healTimes
	healed      healed
	retries     int
	retryAt     time.Time
	driftAt     time.Time

	// confirmation is how far the proof of live settings has come; recovered is true once nothing of an earlier agent's is
	// left unconfirmed.
	confirmation confirmation
	recovered    bool
	jitter       func(time.Duration) time.Duration

	bootloader v1alpha1.Bootloader

	// table is what was mounted when it could be read last, tableErr why it cannot be read now.
	table    mounts.Table
	tableErr error
	mountsAt time.Time
	tableAt  time.Time
	// sightings tell since when what is mounted is.
	sightings sightings

	// reboot is what became of the permit that the client node has; while it waits, holdersAt is when the host is asked again.
	reboot    *v1alpha1.RebootStatus
	holdersAt time.Time
	reporter  reporter

	trial  trialState
	sample sampleState

	// servers tell whether the storage servers answer.
	servers serverWatch

	drift         *prometheus.CounterVec
	settings      settingMetrics
	serverMetrics serverMetrics

	ready atomic.Bool
	// passAt is when the last pass ended, in nanoseconds by the boot clock.
	passAt atomic.Int64
}

// version names one spec of one client node.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(clientNode *v1alpha1.StorageClientNode) version {
	return version{uid: clientNode.UID, generation: clientNode.Generation}
}

// New returns the agent of a node. It reads the boot ID and the kernel's version, and changes nothing.
func New(config Config) (*Agent, error) {
	boot, err := config.Host.readBoot()
	if err != nil {
		return nil, err
	}
	if _, err := config.Allowed.list(); err != nil {
		return nil, err
	}
	a := &Agent{
		host: config.Host, api: config.API, allowed: config.Allowed, clock: config.Clock, boot: boot,
		reporter: reporter{clock: config.Clock}, jitter: jitterUpTo, trial: newTrialState(), sample: newSampleState(), servers: newServerWatch(),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "storageclient_agent_drift_total",
			Help: "How often something else had changed a setting and it was set again, by its key. One that is left alone, after 5 times within an hour, counts no further.",
		}, []string{"key"}),
	}
	a.host.attended = true
	a.passAt.Store(int64(a.host.fromNow(0)))
	return a, nil
}

// Ready tells whether a status has been written since the start.
func (a *Agent) Ready() bool { return a.ready.Load() }

// Alive reports whether the agent still makes passes.
func (a *Agent) Alive() bool {
	return a.host.until(time.Duration(a.passAt.Load())+stalledAfter) > 0
}

// Metrics are the agent's own counters.
func (a *Agent) Metrics() prometheus.Collector { return a.drift }

// Run makes passes until the context is done. Its end changes nothing on the host, but for what is not confirmed: that goes back.
func (a *Agent) Run(ctx context.Context) {
	clientNodes := make(chan *v1alpha1.StorageClientNode, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.api.Follow(ctx, func(clientNode *v1alpha1.StorageClientNode) {
			// Only the newest counts. Nobody else sends.
			select {
			case <-clientNodes:
			default:
			}
			clientNodes <- clientNode
		})
	}()
	timer := a.clock.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case clientNode := <-clientNodes:
			a.takeClientNode(clientNode)
			a.runPass(ctx)
		case answer := <-a.trial.answers:
			a.takeAnswer(answer)
			a.runPass(ctx)
		case reading := <-a.sample.readings:
			a.takeReading(reading)
			a.runPass(ctx)
		case result := <-a.servers.results:
			a.takeServerResult(ctx, result)
			a.runPass(ctx)
		case <-timer.C():
			a.runPass(ctx)
		}
		timer.Reset(max(a.wakeAt().Sub(a.clock.Now()), 0))
	}
	if err := a.abandonUnconfirmed(context.WithoutCancel(ctx)); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back what is not confirmed; the next agent does")
	}
	<-done
}

// takeClientNode takes over the client node as the watch shows it. One that was created again has nothing to do with the old one.
func (a *Agent) takeClientNode(clientNode *v1alpha1.StorageClientNode) {
	if a.clientNode == nil || clientNode == nil || a.clientNode.UID != clientNode.UID {
		a.applied, a.reboot = version{}, nil
		a.endTrial()
		a.forgetSample()
		a.reporter.forgetReports()
		a.healed = healedIn(clientNode)
	}
	a.clientNode = clientNode
	if clientNode != nil && a.host.SetNodeUID != nil {
		a.host.SetNodeUID(nodeUIDOf(clientNode))
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

// runPass does what is due. Without a client node nothing is changed and nothing reported, and what is not confirmed goes back.
func (a *Agent) runPass(ctx context.Context) {
	defer func() { a.passAt.Store(int64(a.host.fromNow(0))) }()
	a.endInterrupted(ctx)
	if a.clientNode == nil {
		if err := a.abandonUnconfirmed(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back what is not confirmed, trying again")
		}
		return
	}
	if a.readMounts() {
		a.followMounts(ctx)
	}
	a.followServers(ctx)
	a.applySpecIfDue(ctx)
	a.confirm(ctx)
	a.followTrial(ctx)
	a.followSample(ctx)
	if !a.decidePermit(ctx) {
		return
	}
	a.reportStatus(ctx)
}

// applySpecIfDue applies a new spec, and checks for drift in between.
func (a *Agent) applySpecIfDue(ctx context.Context) {
	now := a.clock.Now()
	spec := a.clientNode.Spec
	spec.Volumes, spec.Trial, spec.Sample = nil, nil, nil
	switch {
	case a.applied.uid == a.clientNode.UID && a.applied.generation != a.clientNode.Generation && equality.Semantic.DeepEqual(a.appliedSpec, spec):
		// A change of volumes, of the trial or of the sample alone resets nothing: neither the count of heals nor a wait.
		a.applied = versionOf(a.clientNode)
		a.applyVolumes(ctx)
		return
	case a.applied != versionOf(a.clientNode):
		a.applied, a.appliedSpec = versionOf(a.clientNode), spec
		a.heals = healTimes{}
		a.healed.keepDeclared(spec.Settings)
		a.retries = 0
		a.confirmation = confirmation{}
		a.applySpec(ctx)
	case a.isConfirming():
		// Nothing else is changed while it is to be seen what a change does.
		return
	case !now.Before(a.driftAt):
		a.checkDrift(ctx)
	default:
		return
	}
	if len(a.outcome.volumes) > 0 {
		a.readTable()
	}
	a.driftAt = now.Add(driftInterval)
	a.bootloader = bootloaderStatus(a.host.Bootloader())
}

// applySpec brings the host to what the spec wants.
func (a *Agent) applySpec(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	spec := a.clientNode.Spec
	p, err := a.host.beginPass(spec, a.allowed)
	if err == nil {
		err = a.abandonUnconfirmed(ctx)
	}
	if err == nil {
		err = p.carryOut(ctx)
	}
	if err == nil {
		err = a.beginConfirmation(ctx, p)
	}
	if err != nil {
		log.Error(err, "Cannot apply settings, nothing changed on this node", "generation", a.clientNode.Generation)
		a.keepOutcome(refuseAll(spec, err))
		return
	}
	p.forgetRestored(spec.Release)
	a.keepOutcome(p.sumUp(spec))
	if a.outcome.restored {
		a.removeJournal(ctx)
	}
}

// applyVolumes brings the read-ahead of volumes to what the spec wants, and touches nothing else.
func (a *Agent) applyVolumes(ctx context.Context) {
	p, err := a.host.beginPass(a.clientNode.Spec, a.allowed)
	if err == nil {
		p.onlyVolumes()
		err = p.carryOut(ctx)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot apply the read-ahead of volumes, trying again at the next check")
		return
	}
	p.forgetRestored(false)
	out := p.sumUp(a.clientNode.Spec)
	a.outcome.volumes = out.volumes
	if out.failed && !a.outcome.failed {
		a.outcome.failed, a.retryAt = true, a.clock.Now().Add(driftInterval)
	}
	a.readTable()
}

// keepOutcome keeps an outcome, and when to try again where something failed.
func (a *Agent) keepOutcome(out outcome) {
	a.outcome = out
	if !out.failed {
		a.retries = 0
		return
	}
	a.retryAt = a.clock.Now().Add(min(driftInterval<<min(a.retries, 8), maxRetry))
	a.retries++
}

func (a *Agent) removeJournal(ctx context.Context) {
	if _, err := a.host.Journal.Remove(a.boot.id); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot remove the empty journal")
	}
}

// readMounts reads the mount table often, and all of the mounts' numbers when it has changed or a minute has
// passed: then it returns true.
func (a *Agent) readMounts() bool {
	now := a.clock.Now()
	if now.Before(a.mountsAt) {
		return false
	}
	a.mountsAt = now.Add(mountsInterval)
	busy, malformed, err := a.host.Mounts.Busy()
	same := err == nil && malformed == a.table.Malformed && slices.Equal(busy, a.table.Busy)
	if same && a.tableErr == nil && now.Before(a.tableAt) {
		a.sightings.noteUnchanged(now)
		return false
	}
	return a.readTable()
}

func (a *Agent) readTable() bool {
	table, err := a.host.Mounts.Read()
	a.tableErr = err
	if err == nil {
		now := a.clock.Now()
		a.table, a.tableAt = table, now.Add(driftInterval)
		a.sightings.noteMounts(table.Mounts, now)
	}
	return err == nil
}

// wakeAt is when something is due again.
func (a *Agent) wakeAt() time.Time {
	if a.clientNode == nil {
		return a.clock.Now().Add(driftInterval)
	}
	at := a.driftAt
	times := []time.Time{a.mountsAt, a.servers.readAt, a.reporter.dueAt()}
	if a.recovered && a.isConfirming() {
		times = append(times, a.clock.Now().Add(a.host.until(a.confirmation.nextAt)))
	}
	for _, other := range times {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	return at
}

func addJitter(d time.Duration) time.Duration { return d + rand.N(d/4) }
