package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	proofTimeout = 10 * time.Second
	// proofJitter is the maximum delay of the first attempt. It applies to all nodes except the canary, because many of them start
	// together.
	proofJitter = 5 * time.Second
	// canarySize and fleetSize are the bytes read from the API server, on a canary and on all other nodes.
	canarySize = 1 << 20
	fleetSize  = 64 << 10

	apiServer = "API server"
)

// proof tests live settings over new connections before they are kept. State that must outlive the agent is in the journal.
type proof struct {
	machine Machine
	clock   clock.Clock
	bootID  string
	jitter  func(time.Duration) time.Duration
	// recovered is true once no settings of an earlier agent are unconfirmed.
	recovered bool
	confirmation
}

// confirmation is the progress of the proof of one spec.
type confirmation struct {
	// servers are the chosen servers. The first one is tested in addition to the API server.
	servers []connect.Server
	// nextAt is the time of the next attempt. retestUntil is the end of the connection tests after a revert. All times are boot clock
	// times.
	nextAt, retestUntil time.Duration
	// failures are the connections that failed in the last attempt with the new settings effective.
	failures []failure
	// outages counts consecutive failures that the settings did not cause. outage describes the last one, and retryAt is the next attempt.
	outages int
	outage  string
	retryAt time.Duration
}

// callbacks contains the callbacks of a proof. prove reads size bytes from the API server over one new connection, and writes the status
// over another. note sets the message of the settings under test.
type callbacks struct {
	prove func(ctx context.Context, size int64) error
	note  func(message string)
}

// recover reverts the settings that an earlier agent set and did not prove. It runs before everything else on a host.
func (p *proof) recover(ctx context.Context) {
	if p.recovered || p.machine.Journal.Load() != nil {
		// If the journal cannot be loaded, every pass reports it.
		return
	}
	if err := p.machine.endInterrupted(ctx, p.bootID); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot revert unconfirmed settings; trying again")
		return
	}
	p.recovered = true
}

// abandon reverts the settings under test: they are no longer desired, or the agent stops.
func (p *proof) abandon(ctx context.Context) error {
	return p.machine.endUnconfirmed(ctx, p.bootID, p.machine.Journal.Abandon)
}

func (p *proof) isOpen() bool {
	_, open := p.machine.unconfirmed()
	return open
}

// dueAt returns the time of the next attempt. Zero if the proof cannot continue yet.
func (p *proof) dueAt() time.Time {
	if !p.recovered {
		return time.Time{}
	}
	return p.clock.Now().Add(p.machine.timeUntil(p.nextAt))
}

// awaitsFirst reports whether the first attempt of a proof is pending. That attempt writes the status seconds later, so a separate write
// is redundant.
func (p *proof) awaitsFirst() bool {
	u, open := p.machine.unconfirmed()
	return open && !u.Reverted && len(p.failures) == 0 && p.machine.timeUntil(p.nextAt) > 0
}

// begin sets the unconfirmed settings, or records the reason for a delay. It sets nothing while a permit is undecided, because a proof
// writes the status, which would count as the response to the permit.
func (p *proof) begin(ctx context.Context, pass *pass, spec *v1alpha1.StorageClientNodeSpec, permitUndecided bool) error {
	switch {
	case !pass.hasUnconfirmed():
		return nil
	case p.machine.timeUntil(p.retryAt) > 0:
		pass.unconfirmedNote = p.outage
		return nil
	case permitUndecided:
		pass.unconfirmedNote = "not set yet: a reboot permit is pending"
		return nil
	}
	servers, err := p.machine.chooseServers(ctx)
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
	p.servers, p.failures, p.nextAt = servers, nil, p.machine.fromNow(0)
	if !spec.Canary {
		p.nextAt = p.machine.fromNow(p.jitter(proofJitter))
	}
	pass.proving, pass.unconfirmedNote = true, "set, proving over new connections until "+u.Deadline.Format(time.TimeOnly)+" UTC"
	logr.FromContextOrDiscard(ctx).Info("Proving settings over new connections", "settings", text.List(u.Keys()), "until", u.Deadline)
	return nil
}

// delay postpones the proof. The delay grows with each consecutive call.
func (p *proof) delay(reason string) {
	p.outage, p.retryAt = reason, p.machine.fromNow(waitAfter(p.outages))
	p.outages++
}

// run continues the proof if an attempt is due. It reports whether the proof has finished; the journal contains the result.
func (p *proof) run(ctx context.Context, canary bool, j callbacks) bool {
	u, open := p.machine.unconfirmed()
	if !open || !p.recovered || p.machine.timeUntil(p.nextAt) > 0 {
		return false
	}
	defer func() { p.nextAt = p.machine.fromNow(proofPause) }()
	if u.Reverted {
		return p.retest(ctx, canary, j)
	}
	if remaining := p.machine.timeToProve(u, p.bootID); remaining > 0 {
		failures := p.tryConnections(ctx, min(proofTimeout, remaining), canary, j)
		if len(failures) == 0 {
			return p.keep(ctx)
		}
		p.failures = failures
		if p.machine.timeToProve(u, p.bootID) > 0 {
			return false
		}
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("settings", text.List(u.Keys()))
	log.Info("Reverting settings that new connections did not confirm in time", "failures", describeFailures(p.failures))
	if err := p.machine.revertUnconfirmed(ctx, p.bootID); err != nil {
		log.Error(err, "Cannot revert settings; trying again")
		j.note(err.Error())
		return false
	}
	p.retestUntil = p.machine.fromNow(retestWithin)
	j.note("reverted: testing the same connections again")
	return p.retest(ctx, canary, j)
}

// keep confirms the proven settings in the journal. The caller then writes their files.
func (p *proof) keep(ctx context.Context) bool {
	if err := p.machine.Journal.Confirm(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot record in the journal that settings are confirmed; trying again")
		return false
	}
	p.confirmation = confirmation{}
	return true
}

// retest determines whether the settings or an unrelated outage broke the connections. The settings are reverted, and the same
// connections are tested again.
func (p *proof) retest(ctx context.Context, canary bool, j callbacks) bool {
	u, _ := p.machine.unconfirmed()
	broken := p.failures
	if len(p.failures) > 0 {
		broken = workAgain(p.failures, p.tryConnections(ctx, proofTimeout, canary, j))
	}
	var err error
	switch {
	case len(broken) > 0:
		err = p.machine.Journal.Reject(brokeNote(u.Keys(), broken), namesOf(broken)...)
	case !slices.ContainsFunc(p.failures, failure.isBroken) || p.machine.timeUntil(p.retestUntil) == 0:
		if err = p.machine.Journal.Abandon(); err == nil {
			p.delay(outageNote(p.failures))
		}
	default:
		return false
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot record the result of the proof in the journal; trying again")
	}
	return err == nil
}

func (p *proof) tryConnections(ctx context.Context, within time.Duration, canary bool, j callbacks) (failures []failure) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	size := int64(fleetSize)
	if canary {
		size = canarySize
	}
	// Test the storage server first. It has its own timeout, and the API server gets the remaining time. The witness is only needed if the
	// tested server has failed.
	for i, server := range p.servers {
		if i > 0 && len(failures)+len(p.failures) == 0 {
			break
		}
		if err := p.machine.AskServer(ctx, server); err != nil {
			failures = append(failures, failure{server.String(), server.Name, err})
		}
	}
	if err := j.prove(ctx, size); err != nil {
		failures = append(failures, failure{apiServer, v1alpha1.ConnectionAPIServer, err})
	}
	return failures
}

const (
	// retestWithin is the time to test the same connections after the settings are reverted.
	retestWithin = 30 * time.Second
	proofPause   = 2 * time.Second
	// maxAsked is the maximum number of servers to test before the agent reports that none responds.
	maxAsked = 3
	// maxChosen is the maximum number of servers to choose.
	maxChosen = 2
)

// chooseServers returns servers that the host mounts from and that respond to a new connection now. A later failure can then be attributed
// to a setting. The first one is tested, the second one is its witness. There is none if the host has no mounts over TCP.
func (m Machine) chooseServers(ctx context.Context) (chosen []connect.Server, err error) {
	servers, err := m.Servers()
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	var silent []string
	for _, server := range servers[:min(len(servers), maxAsked)] {
		if err := m.AskServer(ctx, server); err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", server, err))
		} else if chosen = append(chosen, server); len(chosen) == maxChosen {
			break
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no mounted server responds to a new connection: " + strings.Join(silent, "; "))
	}
	return chosen, nil
}

// failure is a connection that failed. name identifies it in the status.
type failure struct {
	to, name string
	err      error
}

// isBroken reports whether the settings may be the cause. A busy API server has responded, so no setting has broken the connection.
func (f failure) isBroken() bool { return !errors.Is(f.err, reporter.ErrBusy) }

func namesOf(failures []failure) []string {
	return lists.Distinct(lists.Each(failures, func(f failure) string { return text.Cut(f.name, bounds.Name) }))
}

func describeFailures(failures []failure) string {
	all := lists.Each(failures, func(f failure) string { return f.to + ": " + f.err.Error() })
	return text.Cut(strings.Join(all, "; "), bounds.Message/2)
}

// workAgain returns the broken connections in before that now work. A busy API server proves neither.
func workAgain(before, now []failure) []failure {
	return slices.DeleteFunc(slices.Clone(before), func(f failure) bool {
		return !f.isBroken() || slices.ContainsFunc(now, func(n failure) bool { return n.to == f.to })
	})
}

// brokeNote returns the message for reverted settings that broke connections, if the connections work again.
func brokeNote(keys []string, broken []failure) string {
	together := ""
	if len(keys) > 1 {
		together = "set together: " + text.List(keys) + "; "
	}
	return fmt.Sprintf("broke new connections, reverted: %s%s; they work again without it", together, describeFailures(broken))
}

// outageNote returns the message for reverted settings that may not have caused the failures.
func outageNote(failures []failure) string {
	if !slices.ContainsFunc(failures, failure.isBroken) {
		return strings.TrimSuffix("reverted: verification timed out: "+describeFailures(failures), ": ")
	}
	return "reverted: new connections fail with and without it, so it is not the cause: " + describeFailures(failures)
}
