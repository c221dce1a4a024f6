// Package reporter schedules and writes the status of a node agent's StorageClientNode.
package reporter

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
)

const (
	// Interval is the minimum time between two status writes that are not urgent.
	Interval = 10 * time.Second
	// After a failed write, the delay doubles from minBackoff to maxBackoff.
	minBackoff = time.Second
	maxBackoff = 32 * time.Second
)

// ErrBusy means that the API server has rejected the read of a proof with 429. It can be reached, but the proof has no result.
var ErrBusy = errors.New("the API server is busy")

// API writes the status, except for status.rollout. Package apiclient implements it.
type API interface {
	// Prove reads up to size bytes from the API server over one new connection, and writes the status over another.
	Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error
	// ApplyStatus writes the status. With a resource version, it returns a conflict if the StorageClientNode has changed since that
	// version.
	ApplyStatus(
		ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string,
	) (*v1alpha1.StorageClientNode, error)
}

// Reporter writes the status.
type Reporter struct {
	api   API
	clock clock.Clock
	ready atomic.Bool
	// last is the last written status. Nil before the first write.
	last *v1alpha1.StorageClientNodeStatus
	// nextAt is the earliest time of the next write that is not urgent. waiting is true while such a write is delayed.
	nextAt  time.Time
	waiting bool
	// tryAt is the time of the next attempt after consecutive failures.
	tryAt    time.Time
	failures int
}

// New returns a reporter without a written status.
func New(api API, clock clock.Clock) *Reporter { return &Reporter{api: api, clock: clock} }

// Ready reports whether a status has been written since the start.
func (r *Reporter) Ready() bool { return r.ready.Load() }

// Forget clears the written status, because the StorageClientNode was replaced or deleted.
func (r *Reporter) Forget() {
	r.last, r.nextAt, r.waiting, r.tryAt, r.failures = nil, time.Time{}, false, time.Time{}, 0
}

// Former returns the last reported conditions, including those from an earlier agent.
func (r *Reporter) Former(clientNode *v1alpha1.StorageClientNode) []metav1.Condition {
	if r.last != nil {
		return r.last.Conditions
	}
	return clientNode.Status.Conditions
}

// Due returns the time of a delayed or failed write. Zero if there is none.
func (r *Reporter) Due() time.Time {
	switch {
	case r.waiting && r.nextAt.After(r.tryAt):
		return r.nextAt
	case !r.tryAt.IsZero():
		return r.tryAt
	}
	return time.Time{}
}

// MayTry reports whether the backoff after failures has passed.
func (r *Reporter) MayTry() bool { return !r.clock.Now().Before(r.tryAt) }

// NoteFailed starts a backoff for the API server, which grows with each consecutive failure.
func (r *Reporter) NoteFailed() {
	backoff := min(minBackoff<<min(r.failures, 8), maxBackoff)
	r.tryAt = r.clock.Now().Add(backoff + rand.N(backoff/4))
	r.failures++
}

// Run writes the status if a write is due.
func (r *Reporter) Run(ctx context.Context, status v1alpha1.StorageClientNodeStatus) {
	if !r.isDue(status) {
		return
	}
	if err := r.Announce(ctx, status, ""); err != nil {
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Cannot write the status; trying again", "error", err.Error())
		}
		r.NoteFailed()
	}
}

// Announce writes the status immediately. With a resource version, it writes only to that version of the StorageClientNode.
func (r *Reporter) Announce(ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string) error {
	_, err := r.api.ApplyStatus(ctx, status, resourceVersion)
	if err == nil {
		r.noteWritten(status)
	}
	return err
}

// Prove writes the status immediately over a new connection, and reads size bytes from the API server over another. A
// busy API server that rejects the status with 429 has been reached: the status is written later.
func (r *Reporter) Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error {
	err := r.api.Prove(ctx, size, status)
	switch {
	case err == nil:
		r.noteWritten(status)
	case apierrors.IsTooManyRequests(err):
		r.NoteFailed()
		return nil
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

// IsUrgent reports whether the rollout or a user waits for a change of the status.
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

// failingServers returns the names and states of servers that do not respond.
func failingServers(status v1alpha1.StorageClientNodeStatus) string {
	failing := lists.Filter(status.Servers, func(s v1alpha1.ServerStatus) bool { return s.State.IsFailing() })
	describe := func(s v1alpha1.ServerStatus) string {
		return string(s.Protocol) + " " + s.Server + " " + string(s.State)
	}
	return strings.Join(lists.Each(failing, describe), ",")
}

// countUnconfirmed counts the settings that new connections have not confirmed yet.
func countUnconfirmed(status v1alpha1.StorageClientNodeStatus) (n int) {
	for _, s := range status.Settings {
		if state := standing.Of(s, false); state == standing.Proving || state == standing.Unproven {
			n++
		}
	}
	return n
}
