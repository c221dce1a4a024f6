package agent

import (
	"context"
	"fmt"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/report"
	"github.com/storageclient/operator/api/v1alpha1"
)

// noServerNote is why nothing can be proven on a machine without a cluster.
const noServerNote = "not set: this machine mounts from no server over TCP, so no new connection can prove it: mount one first, or use --no-confirm"

// proofOf says how a setting is proven before it is kept, "" where it needs no proof.
func (l Local) proofOf(p *pass, it *item) string {
	if !p.needsProof(it) {
		return ""
	}
	servers, err := l.Host.listServers()
	switch {
	case err != nil:
		return "cannot be proven: " + err.Error()
	case len(servers) == 0:
		return "cannot be proven: this machine mounts from no server over TCP; apply refuses it without --no-confirm"
	}
	return fmt.Sprintf("kept once a new connection to %s has worked within %s, else put back", servers[0], confirmWithin)
}

// confirm sets what is to be proven, asks a server over new connections, and keeps it or puts it back. It returns the pass that
// has come of it.
func (l Local) confirm(ctx context.Context, p *pass, r *report.Report, spec v1alpha1.StorageClientNodeSpec) (*pass, error) {
	server, ok, err := l.Host.chooseServer(ctx)
	if err != nil {
		p.failUnconfirmed("not set: " + err.Error())
		return p, nil //nolint:nilerr // the settings say it
	}
	if !ok {
		p.failUnconfirmed(noServerNote)
		return p, nil
	}
	if err := p.setUnconfirmed(ctx, spec.Hash, r.BootID, l.Clock.Now); err != nil {
		return p, err
	}
	u, open := l.Host.unconfirmed()
	if !open {
		return p, nil
	}
	broken := l.askWhile(ctx, server, func() bool { return l.Host.timeToProve(u, r.BootID) > 0 })
	if broken == nil {
		if err := l.Host.Journal.Confirm(); err != nil {
			return p, err
		}
		return l.carryOut(ctx, spec)
	}
	return p, l.giveUp(ctx, p, u, r.BootID, failure{server.String(), broken}, server)
}

// giveUp puts back what was not confirmed, and finds out whether the settings were the cause.
func (l Local) giveUp(ctx context.Context, p *pass, u journal.Unconfirmed, bootID string, broken failure, server connect.Server) error {
	// Whoever stops the command wants the old values all the more.
	settled := context.WithoutCancel(ctx)
	if err := l.Host.endUnconfirmed(settled, bootID, l.Host.Journal.Abandon); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped, and put back what was not confirmed: %w", err)
	}
	note := brokeNote(u.Keys(), []failure{broken})
	retestUntil := l.Host.fromNow(retestWithin)
	if l.askWhile(ctx, server, func() bool { return l.Host.until(retestUntil) > 0 }) != nil {
		note = outageNote([]failure{broken})
	}
	p.observeAll(settled)
	p.failUnconfirmed(note)
	return nil
}

// askWhile asks a server over new connections until one works, as long as there is time. It returns why the last did not work.
func (l Local) askWhile(ctx context.Context, server connect.Server, hasTime func() bool) error {
	for {
		err := l.Host.AskServer(ctx, server)
		if err == nil || ctx.Err() != nil || !hasTime() {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.Clock.After(proofPause):
		}
	}
}

// failUnconfirmed has all that was to be proven fail, and keeps the rest.
func (p *pass) failUnconfirmed(why string) {
	for _, it := range p.only((*item).isSettable) {
		it.failed = why
	}
}
