package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// confirmWithin is how long unconfirmed settings stay in force once all are set. It ends before the kubelet's liveness probes, which are new
	// connections too, end an agent that they no longer reach: three of them 20 s apart, 5 s each.
	confirmWithin = 40 * time.Second
	// retestWithin is for how long the same connections are tried once the settings are back.
	retestWithin = 30 * time.Second
	// proofTimeout bounds one attempt to prove, and proofPause lies between two.
	proofTimeout = 10 * time.Second
	proofPause   = 2 * time.Second
	// proofJitter is the most by which the first attempt waits on all nodes but the canary: they are many at a time.
	proofJitter = 5 * time.Second
	// canarySize and fleetSize are how much is read from the API server, in bytes, on a canary and elsewhere.
	canarySize = 1 << 20
	fleetSize  = 64 << 10

	apiServer = "API server"
)

// confirmation is how far the proof of the unconfirmed settings has come. What must outlive the agent is in the journal.
type confirmation struct {
	// server is asked as well, where there is one.
	server    connect.Server
	hasServer bool
	// nextAt is when the next attempt is due, retestUntil until when connections are tried after the settings were put back. All
	// times are by the boot clock.
	nextAt, retestUntil time.Duration
	// failures are what did not work at the last attempt with the settings in force.
	failures []failure
	// outages counts the times in a row that it was not the settings, outage says what it was, and retryAt when to try again.
	outages int
	outage  string
	retryAt time.Duration
}

// endInterrupted is the first thing that an agent does on a host, with or without an API server: nobody proves any more what an
// agent before it has set.
func (a *Agent) endInterrupted(ctx context.Context) {
	if a.recovered {
		return
	}
	if a.host.Journal.Load() != nil {
		// Every pass says so where nothing may be changed.
		return
	}
	if err := a.host.endInterrupted(ctx, a.boot.id); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back what was set and not confirmed, trying again")
		return
	}
	a.recovered = true
}

// abandonUnconfirmed puts back what is being proven, since nobody wants it any more, or nobody will be there to prove it.
func (a *Agent) abandonUnconfirmed(ctx context.Context) error {
	return a.host.endUnconfirmed(ctx, a.boot.id, a.host.Journal.Abandon)
}

// isConfirming tells whether settings are being proven.
func (a *Agent) isConfirming() bool {
	_, open := a.host.unconfirmed()
	return open
}

// awaitsFirstProof tells whether settings are about to be proven for the first time: the proof itself writes the status, seconds later, and
// a write of its own would say the same.
func (a *Agent) awaitsFirstProof() bool {
	u, open := a.host.unconfirmed()
	return open && !u.PutBack && len(a.confirmation.failures) == 0 && a.host.until(a.confirmation.nextAt) > 0
}

// beginConfirmation sets what is to be proven, where that can be done now, and else notes why not.
func (a *Agent) beginConfirmation(ctx context.Context, p *pass) error {
	c := &a.confirmation
	switch {
	case !p.hasUnconfirmed():
		return nil
	case a.host.until(c.retryAt) > 0:
		p.unconfirmedNote = c.outage
		return nil
	case a.hasUndecidedPermit():
		// What is proven reports the status, which would answer the permit.
		p.unconfirmedNote = "not set yet: a reboot permit is being answered"
		return nil
	}
	server, hasServer, err := a.host.chooseServer(ctx)
	if err != nil {
		a.delayConfirmation("not set: " + err.Error())
		p.unconfirmedNote = c.outage
		return nil //nolint:nilerr // the settings wait, and say why
	}
	if err := p.setUnconfirmed(ctx, a.clientNode.Spec.Hash, a.boot.id, a.clock.Now); err != nil {
		return err
	}
	u, open := a.host.unconfirmed()
	if !open {
		return nil
	}
	c.server, c.hasServer, c.failures, c.nextAt = server, hasServer, nil, a.host.fromNow(0)
	if !a.clientNode.Spec.Canary {
		c.nextAt = a.host.fromNow(a.jitter(proofJitter))
	}
	p.proving, p.unconfirmedNote = true, "set, proving over new connections until "+u.Deadline.Format(time.TimeOnly)+" UTC"
	logr.FromContextOrDiscard(ctx).Info("Proving settings over new connections", "settings", text.List(u.Keys()), "until", u.Deadline)
	return nil
}

func (a *Agent) hasUndecidedPermit() bool {
	permit := a.clientNode.Spec.RebootPermit
	return permit != nil && (a.reboot == nil || a.reboot.PermitID != permit.ID)
}

// delayConfirmation has what is to be proven wait, longer each time in a row.
func (a *Agent) delayConfirmation(why string) {
	c := &a.confirmation
	c.outage, c.retryAt = why, a.host.fromNow(min(driftInterval<<min(c.outages, 8), maxRetry))
	c.outages++
}

// confirm goes on with the proof of what is unconfirmed, where that is due.
func (a *Agent) confirm(ctx context.Context) {
	u, open := a.host.unconfirmed()
	c := &a.confirmation
	if !open || !a.recovered || a.host.until(c.nextAt) > 0 {
		return
	}
	defer func() { c.nextAt = a.host.fromNow(proofPause) }()
	if u.PutBack {
		a.retestConnections(ctx)
		return
	}
	if left := a.host.timeToProve(u, a.boot.id); left > 0 {
		failures := a.tryConnections(ctx, min(proofTimeout, left))
		if len(failures) == 0 {
			a.keepConfirmed(ctx)
			return
		}
		c.failures = failures
		if a.host.timeToProve(u, a.boot.id) > 0 {
			return
		}
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("settings", text.List(u.Keys()))
	log.Info("Putting settings back that new connections did not confirm in time", "failures", describeFailures(c.failures))
	if err := a.host.putBackUnconfirmed(ctx, a.boot.id); err != nil {
		log.Error(err, "Cannot put settings back, trying again")
		a.noteUnconfirmed(err.Error())
		return
	}
	c.retestUntil = a.host.fromNow(retestWithin)
	a.noteUnconfirmed("put back: trying the same connections again")
	a.retestConnections(ctx)
}

// keepConfirmed has the journal hold what was proven, and then the files.
func (a *Agent) keepConfirmed(ctx context.Context) {
	if err := a.host.Journal.Confirm(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot note in the journal that settings are confirmed, trying again")
		return
	}
	a.confirmation = confirmation{}
	a.applySpec(ctx)
}

// retestConnections tells the settings from an outage that is somebody else's: they are back, and the same connections work now,
// or still do not.
func (a *Agent) retestConnections(ctx context.Context) {
	c := &a.confirmation
	u, _ := a.host.unconfirmed()
	broken := c.failures
	if len(c.failures) > 0 {
		broken = workAgain(c.failures, a.tryConnections(ctx, proofTimeout))
	}
	var err error
	switch {
	case len(broken) > 0:
		err = a.host.Journal.Refuse(brokeNote(u.Keys(), broken))
	case len(c.failures) == 0 || a.host.until(c.retestUntil) == 0:
		if err = a.host.Journal.Abandon(); err == nil {
			a.delayConfirmation(outageNote(c.failures))
		}
	default:
		return
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot note in the journal what became of settings, trying again")
		return
	}
	a.applySpec(ctx)
}

// tryConnections makes new connections, and returns those that did not work.
func (a *Agent) tryConnections(ctx context.Context, within time.Duration) []failure {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var failures []failure
	size := int64(fleetSize)
	if a.clientNode.Spec.Canary {
		size = canarySize
	}
	status := a.currentStatus()
	// The mounted server first: it answers within its own time, and what is left is the API server's.
	if c := a.confirmation; c.hasServer {
		if err := a.host.AskServer(ctx, c.server); err != nil {
			failures = append(failures, failure{c.server.String(), err})
		}
	}
	if err := a.api.Prove(ctx, size, status); err != nil {
		return append(failures, failure{apiServer, err})
	}
	a.noteWritten(status)
	return failures
}

// noteUnconfirmed has the status say how what is being proven stands.
func (a *Agent) noteUnconfirmed(note string) {
	u, _ := a.host.unconfirmed()
	for i := range a.outcome.settings {
		if s := &a.outcome.settings[i]; u.Settings[s.Key].Entry.Applied != "" {
			s.Message, s.WaitsFor = note, v1alpha1.WaitsForConnections
		}
	}
}

func jitterUpTo(d time.Duration) time.Duration { return rand.N(d) }
