package status

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/windows"
)

const maxExamples = 20

// planStatus returns the due reboots, in the order of the rollout, and the reason for which they wait. old is the plan in the current status, for
// the generation that is observed there.
func (r Report) planStatus(old v1alpha1.Plan, observed int64, now time.Time) v1alpha1.Plan {
	dueNodes, free := r.plannedInOrder()
	next := v1alpha1.Plan{
		Hash:          nodesettings.PlanHash(r.profile.StorageClientProfile),
		NodesToReboot: int32(len(dueNodes)),
		LimitedBy:     text.CutBytes(r.limitedBy(now), maxMessage),
		Examples:      dueNodes[:min(len(dueNodes), maxExamples)],
	}
	if free == 0 || !r.canEstimate() {
		return next
	}
	// An estimate that moves with the clock would cause a write in every pass.
	if old.EstimatedCompletion != nil && old.EstimatedCompletion.After(now) && observed == r.profile.Generation {
		next.EstimatedCompletion = old.EstimatedCompletion
		if equality.Semantic.DeepEqual(old, next) {
			return next
		}
	}
	limits := overview.Fleet{Matched: int(r.nodes.counts.Matched), All: len(r.snapshot.All.Nodes), MaxUnavailable: r.snapshot.MaxUnavailable}
	next.EstimatedCompletion = overview.WhenKnown(overview.ForecastReboots(r.profile.StorageClientProfile, free, limits, now).Last)
	return next
}

// plannedInOrder returns the nodes that the plan reboots, in the order of the rollout. free is the number of them whose Node does not prevent it.
func (r Report) plannedInOrder() (names []string, free int) {
	if len(r.nodes.planned) == 0 || r.invalidReason != "" {
		return nil, 0
	}
	holds := lists.Map(r.nodes.planned, func(p planned) (string, string) { return p.node, p.hold })
	for _, turn := range match.InTurn(r.nodes.turns, *r.profile.Spec.WithDefaults().Rollout.Canary) {
		if _, isDue := holds[turn.Name]; isDue {
			names = append(names, turn.Name)
		}
	}
	return names, len(lists.Filter(names, func(name string) bool { return holds[name] == "" }))
}

// canEstimate reports whether an estimate makes sense. In mode Plan, and while an approval is missing, it assumes a rollout that starts now. The
// end of a pause or a failure is unknown.
func (r Report) canEstimate() bool {
	never := r.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever
	paused := !r.isPlanMode() && r.paused.status == metav1.ConditionTrue
	return !never && !paused && r.evaluateStalled().status != metav1.ConditionTrue
}

func (r Report) limitedBy(now time.Time) string {
	if len(r.nodes.planned) == 0 {
		return text.Labelled("Not rebooted: ", text.Join(r.skippedNodes(), ", "))
	}
	if hold := r.rebootHold(); hold != "" {
		return hold + r.nextWindow(now)
	}
	if r.paused.status == metav1.ConditionTrue {
		return r.paused.message + r.nextWindow(now)
	}
	for _, w := range slices.Concat(r.nodes.disrupted, r.nodes.pending) {
		if w.message != "" {
			return fmt.Sprintf("%s: %s", w.node, w.message)
		}
	}
	return ""
}

// nextWindow adds the time at which the profile's windows next open, if they are closed. The planner reports it only if no other reason delays the
// reboots.
func (r Report) nextWindow(now time.Time) string {
	open, changeAt := r.windowsAt(now)
	if open || r.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return ""
	}
	return "; next window opens at " + changeAt.UTC().Format(time.RFC3339)
}

// windowsAt reports whether the profile's windows are open, and when that may change. A profile with invalid windows is Stalled.
func (r Report) windowsAt(now time.Time) (open bool, changeAt time.Time) {
	set, err := windows.ParseSet(r.profile.Spec.Rollout.Windows)
	if err != nil {
		return true, time.Time{}
	}
	return set.At(now)
}

// readAheadEvery is the interval of passes while a read-ahead is pending: the reasons for it change without an event.
const readAheadEvery = 15 * time.Second

// RequeueAfter returns the time until the status changes without an event: windows open or close, or a soak ends. 0: never.
func (r Report) RequeueAfter(now time.Time) time.Duration {
	after := r.evidenceDue(now)
	if len(r.unread) > 0 {
		after = store.Sooner(after, readAheadEvery)
	}
	if len(r.nodes.planned) == 0 {
		return after
	}
	if _, changeAt := r.windowsAt(now); !changeAt.IsZero() {
		return store.Sooner(after, changeAt.Sub(now))
	}
	return after
}
