package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	proofTimeout = 10 * time.Second
	// proofJitter is the most by which the first attempt waits on all nodes but the canary: they are many at a time.
	proofJitter = 5 * time.Second
	// canarySize and fleetSize are how much is read from the API server, in bytes, on a canary and elsewhere.
	canarySize = 1 << 20
	fleetSize  = 64 << 10

	apiServer = "API server"
)

// proof proves live settings over new connections before they are kept. What must outlive the agent is in the journal.
type proof struct {
	machine Machine
	clock   clock.Clock
	bootID  string
	jitter  func(time.Duration) time.Duration
	// recovered is true once nothing of an earlier agent's is left unconfirmed.
	recovered bool
	confirmation
}

// confirmation is how far the proof of one spec's settings has come.
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

// judges are what a proof calls of the loop: prove reads that many bytes from the API server over a new connection and declares the
// status over another, and note has the status say how what is being proven stands.
type judges struct {
	prove func(ctx context.Context, size int64) error
	note  func(message string)
}

// recover is the first thing that an agent does on a host: it ends what an agent before it has set and did not prove.
func (p *proof) recover(ctx context.Context) {
	if p.recovered || p.machine.Journal.Load() != nil {
		// Every pass says so where nothing may be changed.
		return
	}
	if err := p.machine.endInterrupted(ctx, p.bootID); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back what was set and not confirmed, trying again")
		return
	}
	p.recovered = true
}

// abandon puts back what is being proven, since nobody wants it any more, or nobody will be there to prove it.
func (p *proof) abandon(ctx context.Context) error {
	return p.machine.endUnconfirmed(ctx, p.bootID, p.machine.Journal.Abandon)
}

// isOpen reports whether settings are being proven.
func (p *proof) isOpen() bool {
	_, open := p.machine.unconfirmed()
	return open
}

// due returns when the next attempt is due; zero if the proof cannot continue yet.
func (p *proof) due() time.Time {
	if !p.recovered {
		return time.Time{}
	}
	return p.clock.Now().Add(p.machine.until(p.nextAt))
}

// awaitsFirst reports whether settings are about to be proven for the first time: the proof itself writes the status, seconds later, and a
// write of its own would say the same.
func (p *proof) awaitsFirst() bool {
	u, open := p.machine.unconfirmed()
	return open && !u.PutBack && len(p.failures) == 0 && p.machine.until(p.nextAt) > 0
}

// begin sets what is to be proven, where that can be done now, and else notes why not. Nothing is set while a permit is undecided: what is
// proven reports the status, which would answer the permit.
func (p *proof) begin(ctx context.Context, pass *pass, spec *v1alpha1.StorageClientNodeSpec, permitUndecided bool) error {
	switch {
	case !pass.hasUnconfirmed():
		return nil
	case p.machine.until(p.retryAt) > 0:
		pass.unconfirmedNote = p.outage
		return nil
	case permitUndecided:
		pass.unconfirmedNote = "not set yet: a reboot permit is being answered"
		return nil
	}
	server, hasServer, err := p.machine.chooseServer(ctx)
	if err != nil {
		p.delay("not set: " + err.Error())
		pass.unconfirmedNote = p.outage
		return nil //nolint:nilerr // the settings wait, and say why
	}
	if err := pass.setUnconfirmed(ctx, spec.Hash, p.bootID, p.clock.Now); err != nil {
		return err
	}
	u, open := p.machine.unconfirmed()
	if !open {
		return nil
	}
	p.server, p.hasServer, p.failures, p.nextAt = server, hasServer, nil, p.machine.fromNow(0)
	if !spec.Canary {
		p.nextAt = p.machine.fromNow(p.jitter(proofJitter))
	}
	pass.proving, pass.unconfirmedNote = true, "set, proving over new connections until "+u.Deadline.Format(time.TimeOnly)+" UTC"
	logr.FromContextOrDiscard(ctx).Info("Proving settings over new connections", "settings", text.List(u.Keys()), "until", u.Deadline)
	return nil
}

// delay has what is to be proven wait, longer each time in a row.
func (p *proof) delay(reason string) {
	p.outage, p.retryAt = reason, p.machine.fromNow(waitAfter(p.outages))
	p.outages++
}

// run goes on with the proof of what is unconfirmed, where that is due. It reports whether the proof has ended, with the journal saying how.
func (p *proof) run(ctx context.Context, canary bool, j judges) bool {
	u, open := p.machine.unconfirmed()
	if !open || !p.recovered || p.machine.until(p.nextAt) > 0 {
		return false
	}
	defer func() { p.nextAt = p.machine.fromNow(proofPause) }()
	if u.PutBack {
		return p.retest(ctx, canary, j)
	}
	if left := p.machine.timeToProve(u, p.bootID); left > 0 {
		failures := p.tryConnections(ctx, min(proofTimeout, left), canary, j)
		if len(failures) == 0 {
			return p.keep(ctx)
		}
		p.failures = failures
		if p.machine.timeToProve(u, p.bootID) > 0 {
			return false
		}
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("settings", text.List(u.Keys()))
	log.Info("Putting settings back that new connections did not confirm in time", "failures", describeFailures(p.failures))
	if err := p.machine.putBackUnconfirmed(ctx, p.bootID); err != nil {
		log.Error(err, "Cannot put settings back, trying again")
		j.note(err.Error())
		return false
	}
	p.retestUntil = p.machine.fromNow(retestWithin)
	j.note("put back: trying the same connections again")
	return p.retest(ctx, canary, j)
}

// keep has the journal hold what was proven. The files follow.
func (p *proof) keep(ctx context.Context) bool {
	if err := p.machine.Journal.Confirm(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot note in the journal that settings are confirmed, trying again")
		return false
	}
	p.confirmation = confirmation{}
	return true
}

// retest tells the settings from an outage that is somebody else's: they are back, and the same connections work now, or still do not.
func (p *proof) retest(ctx context.Context, canary bool, j judges) bool {
	u, _ := p.machine.unconfirmed()
	broken := p.failures
	if len(p.failures) > 0 {
		broken = workAgain(p.failures, p.tryConnections(ctx, proofTimeout, canary, j))
	}
	var err error
	switch {
	case len(broken) > 0:
		err = p.machine.Journal.Refuse(brokeNote(u.Keys(), broken))
	case len(p.failures) == 0 || p.machine.until(p.retestUntil) == 0:
		if err = p.machine.Journal.Abandon(); err == nil {
			p.delay(outageNote(p.failures))
		}
	default:
		return false
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot note in the journal what became of settings, trying again")
	}
	return err == nil
}

// tryConnections makes new connections, and returns those that did not work.
func (p *proof) tryConnections(ctx context.Context, within time.Duration, canary bool, j judges) []failure {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var failures []failure
	size := int64(fleetSize)
	if canary {
		size = canarySize
	}
	// The mounted server first: it answers within its own time, and what is left is the API server's.
	if p.hasServer {
		if err := p.machine.AskServer(ctx, p.server); err != nil {
			failures = append(failures, failure{p.server.String(), err})
		}
	}
	if err := j.prove(ctx, size); err != nil {
		failures = append(failures, failure{apiServer, err})
	}
	return failures
}
