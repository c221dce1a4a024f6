package status

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/order"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/windows"
)

// maxExamples is how many nodes status.plan names.
const maxExamples = 20

// planStatus tells which reboots are due, in the order of the rollout, and what keeps them waiting. old is the plan as the
// status has it, for the generation that is observed there.
func (r Report) planStatus(old v1alpha1.Plan, observed int64, now time.Time) v1alpha1.Plan {
	due, free := r.plannedInOrder()
	next := v1alpha1.Plan{
		Hash:          nodesettings.PlanHash(r.profile.StorageClientProfile),
		NodesToReboot: int32(len(due)),
		LimitedBy:     text.CutBytes(r.limitedBy(now), maxMessage),
		Examples:      due[:min(len(due), maxExamples)],
	}
	if free == 0 || !r.canEstimate() {
		return next
	}
	// An estimate that moves with the clock would make a write of every pass.
	if old.EstimatedCompletion != nil && old.EstimatedCompletion.After(now) && observed == r.profile.Generation {
		next.EstimatedCompletion = old.EstimatedCompletion
		if equality.Semantic.DeepEqual(old, next) {
			return next
		}
	}
	next.EstimatedCompletion = nil
	if last := overview.ForecastReboots(r.profile.StorageClientProfile, free, r.limits, now).Last; !last.IsZero() {
		next.EstimatedCompletion = ptr.To(metav1.NewTime(last.Truncate(time.Second)))
	}
	return next
}

// plannedInOrder are the nodes that the plan reboots, in the order of the rollout, and how many of them nothing on the Node keeps
// from that.
func (r Report) plannedInOrder() (names []string, free int) {
	if len(r.nodes.planned) == 0 || r.invalidReason != "" {
		return nil, 0
	}
	held := map[string]string{}
	for _, p := range r.nodes.planned {
		held[p.node] = p.held
	}
	for _, turn := range order.InTurn(r.nodes.turns, *r.profile.Spec.WithDefaults().Rollout.Canary) {
		why, due := held[turn.Name]
		if !due {
			continue
		}
		names = append(names, turn.Name)
		if why == "" {
			free++
		}
	}
	return names, free
}

// canEstimate reports whether an estimate makes sense. In mode Plan, and while an approval is missing, it is the one of a
// rollout that would begin now; nobody can tell when a pause or a failure ends.
func (r Report) canEstimate() bool {
	never := r.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever
	paused := !r.isPlanMode() && r.paused.status == metav1.ConditionTrue
	return !never && !paused && r.judgeStalled().status != metav1.ConditionTrue
}

// limitedBy tells what keeps the next reboot waiting; empty: nothing does.
func (r Report) limitedBy(now time.Time) string {
	if kept := r.keptNodes(); len(r.nodes.planned) == 0 && len(kept) > 0 {
		return "Not rebooted: " + text.Join(kept, ", ")
	}
	if len(r.nodes.planned) == 0 {
		return ""
	}
	if hold := r.rebootHold(); hold != "" {
		return hold + r.nextWindow(now)
	}
	if r.paused.status == metav1.ConditionTrue {
		return r.paused.message + r.nextWindow(now)
	}
	for _, waits := range slices.Concat(r.nodes.disrupted, r.nodes.pending) {
		if waits.message != "" {
			return fmt.Sprintf("%s: %s", waits.node, waits.message)
		}
	}
	return ""
}

// nextWindow adds when the profile's windows open next, where they are closed: what the planner says of it is to be seen
// only once nothing else keeps the reboots waiting.
func (r Report) nextWindow(now time.Time) string {
	open, again := r.windowsAt(now)
	if open || r.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return ""
	}
	return "; next window opens at " + again.UTC().Format(time.RFC3339)
}

// windowsAt tells whether the profile's windows are open, and when that may change. Windows that cannot be read make the
// profile Stalled.
func (r Report) windowsAt(now time.Time) (open bool, again time.Time) {
	set, err := windows.ParseSet(r.profile.Spec.Rollout.Windows)
	if err != nil {
		return true, time.Time{}
	}
	return set.At(now)
}

// RequeueAfter is in how long the status reads otherwise although nothing has changed: when windows open or close, or a soak ends.
// 0: never.
func (r Report) RequeueAfter(now time.Time) time.Duration {
	after := r.evidenceDue(now)
	if len(r.nodes.planned) == 0 {
		return after
	}
	if _, again := r.windowsAt(now); !again.IsZero() && (after == 0 || again.Sub(now) < after) {
		return again.Sub(now)
	}
	return after
}
