// Package reporter decides when a node agent writes the status of its StorageClientNode, and writes it.
package reporter

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
)

const (
	// Interval is the least time between two status writes that no one waits for.
	Interval = 10 * time.Second
	// A write that failed is tried again from minBackoff on, doubled each time, to maxBackoff.
	minBackoff = time.Second
	maxBackoff = 32 * time.Second
)

// API writes the status, all but rollout. Package apiclient does.
type API interface {
	// Prove makes a new connection to the API server and reads that many bytes over it, or all there is where that is less,
	// and declares the status over another.
	Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error
	// ApplyStatus declares the status. With a resource version, the write is a conflict where the client node has changed since.
	ApplyStatus(
		ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string,
	) (*v1alpha1.StorageClientNode, error)
}

// Reporter writes the status.
type Reporter struct {
	api   API
	clock clock.Clock
	ready atomic.Bool
	// last is what was written last; nil before the first time.
	last *v1alpha1.StorageClientNodeStatus
	// nextAt is when the next write may be that no one waits for; waiting is true while one is held back.
	nextAt  time.Time
	waiting bool
	// tryAt is when the API server is tried again after failures in a row.
	tryAt    time.Time
	failures int
}

// New returns a reporter that has written nothing yet.
func New(api API, clock clock.Clock) *Reporter { return &Reporter{api: api, clock: clock} }

// Ready reports whether a status has been written since the start.
func (r *Reporter) Ready() bool { return r.ready.Load() }

// Forget forgets what was written: there is another client node, or none.
func (r *Reporter) Forget() {
	r.last, r.nextAt, r.waiting, r.tryAt, r.failures = nil, time.Time{}, false, time.Time{}, 0
}

// Former returns the conditions that were reported last, by an agent before this one too.
func (r *Reporter) Former(clientNode *v1alpha1.StorageClientNode) []metav1.Condition {
	if r.last != nil {
		return r.last.Conditions
	}
	return clientNode.Status.Conditions
}

// Due returns when a write that is held back, or has failed, is due; zero if none is.
func (r *Reporter) Due() time.Time {
	switch {
	case !r.tryAt.IsZero():
		return r.tryAt
	case r.waiting:
		return r.nextAt
	}
	return time.Time{}
}

// MayTry reports whether the API server may be tried again.
func (r *Reporter) MayTry() bool { return !r.clock.Now().Before(r.tryAt) }

// NoteFailed has the API server left alone for a while, longer each time in a row.
func (r *Reporter) NoteFailed() {
	backoff := min(minBackoff<<min(r.failures, 8), maxBackoff)
	r.tryAt = r.clock.Now().Add(backoff + rand.N(backoff/4))
	r.failures++
}

// Run writes the status if that is due.
func (r *Reporter) Run(ctx context.Context, status v1alpha1.StorageClientNodeStatus) {
	if !r.isDue(status) {
		return
	}
	if err := r.Announce(ctx, status, ""); err != nil {
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Cannot write the status, trying again", "error", err.Error())
		}
		r.NoteFailed()
	}
}

// Announce writes the status at once, with a resource version on that version of the client node alone.
func (r *Reporter) Announce(ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string) error {
	_, err := r.api.ApplyStatus(ctx, status, resourceVersion)
	if err == nil {
		r.noteWritten(status)
	}
	return err
}

// Prove writes the status at once, over a new connection, and reads that many bytes from the API server over another.
func (r *Reporter) Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error {
	err := r.api.Prove(ctx, size, status)
	if err == nil {
		r.noteWritten(status)
	}
	return err
}

func (r *Reporter) noteWritten(status v1alpha1.StorageClientNodeStatus) {
	r.last, r.waiting, r.failures, r.tryAt = &status, false, 0, time.Time{}
	r.nextAt = r.clock.Now().Add(Interval + rand.N(Interval/4))
	r.ready.Store(true)
}

func (r *Reporter) isDue(status v1alpha1.StorageClientNodeStatus) bool {
	r.waiting = false
	if r.last != nil && equality.Semantic.DeepEqual(*r.last, status) {
		r.failures, r.tryAt = 0, time.Time{}
		return false
	}
	r.waiting = r.last != nil && !IsUrgent(*r.last, status) && r.clock.Now().Before(r.nextAt)
	return !r.waiting && r.MayTry()
}

// IsUrgent reports whether the rollout, or a user who has asked for it, waits for a change of the status.
func IsUrgent(former, status v1alpha1.StorageClientNodeStatus) bool {
	idle := func(s v1alpha1.StorageClientNodeStatus) bool {
		return len(s.BusyMounts) == 0 && s.BusyMountsOmitted == 0
	}
	return former.ObservedGeneration != status.ObservedGeneration || former.Hash != status.Hash ||
		former.RebootRequired != status.RebootRequired || former.Restored != status.Restored ||
		!equality.Semantic.DeepEqual(former.Reboot, status.Reboot) || !equality.Semantic.DeepEqual(former.Trial, status.Trial) ||
		!equality.Semantic.DeepEqual(former.Sample, status.Sample) ||
		idle(status) && !idle(former) || countUnconfirmed(former) != countUnconfirmed(status) || failingServers(former) != failingServers(status)
}

// failingServers names the servers that do not answer, with their states.
func failingServers(status v1alpha1.StorageClientNodeStatus) string {
	var names []string
	for _, s := range status.Servers {
		if s.State.IsFailing() {
			names = append(names, string(s.Protocol)+" "+s.Server+" "+string(s.State))
		}
	}
	return strings.Join(names, ",")
}

// countUnconfirmed counts the settings that new connections have yet to confirm.
func countUnconfirmed(status v1alpha1.StorageClientNodeStatus) (n int) {
	for _, s := range status.Settings {
		switch standing.Of(s, false) {
		case standing.Proving, standing.Unproven:
			n++
		default:
		}
	}
	return n
}
