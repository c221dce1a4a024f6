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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
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
	ApplyStatus(ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string) error
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
	err := r.api.ApplyStatus(ctx, status, resourceVersion)
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

// Conditions returns the conditions that summarize a status. carriedOut is true if all settings were processed. former are the last
// reported conditions: an unchanged condition keeps its transition time.
func Conditions(
	spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus, carriedOut bool, former []metav1.Condition, now time.Time,
) []metav1.Condition {
	ready := readyCondition(spec, status, carriedOut)
	stalled := metav1.Condition{Type: v1alpha1.ClientNodeConditionStalled, Status: metav1.ConditionFalse, Reason: ready.Reason, Message: ready.Message}
	if ready.Reason == v1alpha1.NodeReasonSettingsFailed {
		stalled.Status = metav1.ConditionTrue
	}
	var conditions []metav1.Condition
	for _, c := range []metav1.Condition{ready, stalled} {
		if before := meta.FindStatusCondition(former, c.Type); before != nil {
			conditions = append(conditions, *before)
		}
		c.ObservedGeneration, c.LastTransitionTime = status.ObservedGeneration, metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions
}

// readyCondition returns the Ready condition. It uses the reasons of the Node condition Tuned that depend only on the data of the agent.
func readyCondition(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus, carriedOut bool) metav1.Condition {
	verdict := func(state metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ClientNodeConditionReady, Status: state, Reason: reason, Message: message}
	}
	report := standing.Read(spec, status, "")
	failed := report.Keys(standing.Failed, standing.RestoreFailed)
	switch {
	case len(failed) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonSettingsFailed, "Settings failed: "+text.List(failed))
	case status.Restored:
		return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonRestored, "Original values restored")
	case spec.Release:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonRestoring, "Restoring the original values")
	case !carriedOut:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying, "The settings have not been applied yet")
	}
	switch reason := report.Reason(); reason {
	case v1alpha1.NodeReasonApplying:
		return verdict(metav1.ConditionFalse, reason, applyingMessage(report))
	case v1alpha1.NodeReasonRebootPending:
		return verdict(metav1.ConditionFalse, reason, "Takes effect at the next boot: "+text.List(report.Keys(standing.PendingReboot)))
	case v1alpha1.NodeReasonDrifted:
		return verdict(metav1.ConditionFalse, reason, "Changed by another program: "+text.List(report.Keys(standing.Drifted, standing.Unstaged)))
	case v1alpha1.NodeReasonTunedWithExceptions:
		return verdict(metav1.ConditionTrue, reason, "Not as declared on this node: "+text.List(report.Exceptions()))
	default:
		return verdict(metav1.ConditionTrue, reason, text.Count(len(spec.Settings), "setting")+" verified")
	}
}

func applyingMessage(report standing.Report) string {
	if applying := report.Keys(standing.Applying); len(applying) > 0 {
		return "Not applied yet: " + text.List(applying)
	}
	return "Not confirmed over new connections yet: " + text.List(report.Keys(standing.Proving, standing.Unproven))
}
