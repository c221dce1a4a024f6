// Package agent implements the reconcile loop of the node agent. It compares the desired settings of one node with the host and applies
// live settings. It stages settings that require a boot, reports the status, and reboots the host when it has a permit. All state that
// must survive a restart is in the StorageClientNode, the journal, and the boot ID.
package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
)

// stalledAfter is the maximum duration of one pass. Each command has a timeout of three minutes.
const stalledAfter = 15 * time.Minute

// API is the part of the API client that the loop uses. Package apiclient implements it.
type API interface {
	permit.API
	reporter.API
	// Follow calls changed with the current StorageClientNode and on every change, until the context is done. The argument is nil if the
	// object does not exist.
	Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode))
}

// Config contains the dependencies of an agent.
type Config struct {
	// Host is the machine that the agent changes.
	Host Host
	// API reads and writes the StorageClientNode.
	API API
	// Allowed extends the catalogue of permitted settings.
	Allowed Allowed
	// Clock is the source of the current time.
	Clock clock.Clock
}

// Agent runs the loop for one node.
type Agent struct {
	parts
	api API
	// woken contains one entry if background work has finished.
	woken chan struct{}
	// passAt is the end of the last pass, in nanoseconds of the boot clock.
	passAt atomic.Int64
}

// New returns the agent of a node. It reads the boot ID and the kernel version, and does not change the host.
func New(config Config) (*Agent, error) {
	machine := config.Host.Machine
	boot, err := machine.readBoot()
	if err != nil {
		return nil, err
	}
	if _, err := config.Allowed.list(); err != nil {
		return nil, err
	}
	a := &Agent{api: config.API, woken: make(chan struct{}, 1)}
	a.parts = parts{
		clock: config.Clock, boot: boot, modules: config.Host.Modules,
		settings: newSettings(machine, config.Allowed, config.Clock, boot.id),
		mounts:   mountwatch.New(config.Host.Mounts, config.Host.Modules, config.Clock),
		servers:  servers.New(config.Host.Health, machine.AskServer, config.Clock, boot.id, a.runInBackground),
		trial:    orders.NewTrial(config.Host.Probe, sysctl.New(machine.FS).Original, config.Clock, a.runInBackground),
		sample:   orders.NewSample(config.Host.Sample, config.Clock, a.runInBackground),
		reporter: reporter.New(config.API, config.Clock),
	}
	a.permit = permit.New(permit.Config{
		API: config.API, Clock: config.Clock, BootID: boot.id, Journal: machine.Journal, Rebooter: config.Host.Rebooter, Reporter: a.reporter,
		FindBusy: a.mounts.FindBusy, RearmTrial: machine.rearmTrial,
		Announce: func(ctx context.Context, resourceVersion string) error {
			return a.reporter.Announce(ctx, a.currentStatus(), resourceVersion)
		},
	})
	a.notePass()
	return a, nil
}

// runInBackground runs work in the background and triggers a pass when it is done.
func (a *Agent) runInBackground(work func()) {
	go func() {
		work()
		select {
		case a.woken <- struct{}{}:
		default:
		}
	}()
}

func (a *Agent) notePass() { a.passAt.Store(int64(a.settings.machine.fromNow(0))) }

// Ready reports whether the agent has written a status since it started.
func (a *Agent) Ready() bool { return a.reporter.Ready() }

// Alive reports whether the loop still makes passes.
func (a *Agent) Alive() bool {
	return a.settings.machine.timeUntil(time.Duration(a.passAt.Load())+stalledAfter) > 0
}

// Metrics returns the collectors of the agent: drift counters, setting states, and the state of the storage servers.
func (a *Agent) Metrics() []prometheus.Collector {
	return []prometheus.Collector{a.settings.drift, &a.settings.metrics, a.servers.Metrics()}
}

// Run makes passes until the context is done. On exit it reverts unconfirmed settings and leaves the rest of the host unchanged.
func (a *Agent) Run(ctx context.Context) {
	clientNodes := make(chan *v1alpha1.StorageClientNode, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.api.Follow(ctx, func(clientNode *v1alpha1.StorageClientNode) {
			// Keep only the newest object. This is the only sender.
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
		case <-a.woken:
			a.runPass(ctx)
		case <-timer.C():
			a.runPass(ctx)
		}
		timer.Reset(max(a.wakeAt().Sub(a.clock.Now()), 0))
	}
	if err := a.settings.proof.abandon(context.WithoutCancel(ctx)); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot revert unconfirmed settings; the next agent reverts them")
	}
	<-done
}

func (a *Agent) runPass(ctx context.Context) {
	defer a.notePass()
	a.run(ctx)
}
