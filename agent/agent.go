// Package agent is the loop of the node agent: it compares what one node is declared to hold with what the node
// holds, applies what is live, stages what needs a boot, reports, and reboots where it has a permit. It knows one
// node and one client node, and everything that it has to remember is in the client node, in the journal and in the boot ID.
package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/mounted"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
)

// stalledAfter is how long one pass may take: every command is bounded to three minutes.
const stalledAfter = 15 * time.Minute

// API is what the loop needs of the API server. Package apiclient is it.
type API interface {
	permit.API
	reporter.API
	// Follow calls changed with the client node as it is and at every change, and with nil where there is none, until
	// the context is done.
	Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode))
}

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
	parts
	api API
	// woken holds one entry if something that ran beside the loop has ended.
	woken chan struct{}
	// passAt is when the last pass ended, in nanoseconds by the boot clock.
	passAt atomic.Int64
}

// New returns the agent of a node. It reads the boot ID and the kernel's version, and changes nothing.
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
		mounts:   mounted.New(config.Host.Mounts, config.Host.Modules, config.Clock),
		servers:  servers.New(config.Host.Health, machine.AskServer, config.Clock, boot.id, a.startBeside),
		trial:    orders.NewTrial(config.Host.Probe, config.Clock, a.startBeside),
		sample:   orders.NewSample(config.Host.Sample, config.Clock, a.startBeside),
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

// startBeside runs something beside the loop, which makes a pass once it has ended.
func (a *Agent) startBeside(work func()) {
	go func() {
		work()
		select {
		case a.woken <- struct{}{}:
		default:
		}
	}()
}

func (a *Agent) notePass() { a.passAt.Store(int64(a.settings.machine.fromNow(0))) }

// Ready reports whether a status has been written since the start.
func (a *Agent) Ready() bool { return a.reporter.Ready() }

// Alive reports whether the agent still makes passes.
func (a *Agent) Alive() bool {
	return a.settings.machine.until(time.Duration(a.passAt.Load())+stalledAfter) > 0
}

// Metrics are the agent's own counters, how the node's settings stand, and whether its storage servers answer it.
func (a *Agent) Metrics() []prometheus.Collector {
	return []prometheus.Collector{a.settings.drift, &a.settings.metrics, a.servers.Metrics()}
}

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
		case <-a.woken:
			a.runPass(ctx)
		case <-timer.C():
			a.runPass(ctx)
		}
		timer.Reset(max(a.wakeAt().Sub(a.clock.Now()), 0))
	}
	if err := a.settings.proof.abandon(context.WithoutCancel(ctx)); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back what is not confirmed; the next agent does")
	}
	<-done
}

func (a *Agent) runPass(ctx context.Context) {
	defer a.notePass()
	a.run(ctx)
}
