package profile

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/order"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/windows"
)

// maxExamples is how many nodes status.plan names.
const maxExamples = 20

// planned tells which reboots are due, in the order of the rollout, and what holds them back. old is the plan as the
// status has it, for the generation that is observed there.
func (f facts) planned(old v1alpha1.Plan, observed int64, now time.Time) v1alpha1.Plan {
	due := f.inTurn()
	next := v1alpha1.Plan{
		Hash:          nodesettings.PlanHash(f.profile.StorageClientProfile),
		NodesToReboot: int32(len(due)),
		LimitedBy:     capped(f.limitedBy(now)),
		Examples:      due[:min(len(due), maxExamples)],
	}
	if len(due) == 0 || !f.foreseeable() {
		return next
	}
	// An estimate that moves with the clock would make a write of every look.
	if old.EstimatedCompletion != nil && old.EstimatedCompletion.After(now) && observed == f.profile.Generation {
		next.EstimatedCompletion = old.EstimatedCompletion
		if equality.Semantic.DeepEqual(old, next) {
			return next
		}
	}
	next.EstimatedCompletion = nil
	if last := overview.Foresee(f.profile.StorageClientProfile, len(due), f.fleet, now).Last; !last.IsZero() {
		next.EstimatedCompletion = ptr.To(metav1.NewTime(last.Truncate(time.Second)))
	}
	return next
}

// inTurn are the nodes that are to be rebooted, in the order of the rollout.
func (f facts) inTurn() []string {
	due := sets.New(f.dueNodes()...)
	if len(due) == 0 {
		return nil
	}
	var out []string
	for _, turn := range order.InTurn(f.nodes.turns, *f.profile.Spec.WithDefaults().Rollout.Canary) {
		if due.Has(turn.Name) {
			out = append(out, turn.Name)
		}
	}
	return out
}

// foreseeable reports whether an estimate makes sense. In mode Plan, and while an approval is missing, it is the one of a
// rollout that would begin now; nobody can tell when a pause or a failure ends.
func (f facts) foreseeable() bool {
	never := f.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever
	held := !f.plan() && f.paused().status == metav1.ConditionTrue
	return !never && !held && f.stalled().status != metav1.ConditionTrue
}

// limitedBy tells what holds the next reboot back; empty: nothing does.
func (f facts) limitedBy(now time.Time) string {
	if len(f.dueNodes()) == 0 {
		return ""
	}
	if held := f.rebootHeldBack(); held != "" {
		return held + f.closed(now)
	}
	if paused := f.paused(); paused.status == metav1.ConditionTrue {
		return paused.message + f.closed(now)
	}
	for _, waits := range slices.Concat(f.nodes.disrupted, f.nodes.pending) {
		if waits.message != "" {
			return fmt.Sprintf("%s: %s", waits.node, waits.message)
		}
	}
	return ""
}

// closed adds when the profile's windows open next, where they are closed: what the planner says of it is to be seen
// only once nothing else holds the reboots back.
func (f facts) closed(now time.Time) string {
	open, again := f.windowsAt(now)
	if open || f.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return ""
	}
	return "; the next window opens at " + again.UTC().Format(time.RFC3339)
}

// windowsAt tells whether the profile's windows are open, and when that may change. Windows that cannot be read make the
// profile Stalled.
func (f facts) windowsAt(now time.Time) (open bool, again time.Time) {
	set, err := windows.ParseSet(f.profile.Spec.Rollout.Windows)
	if err != nil {
		return true, time.Time{}
	}
	return set.At(now)
}

// lookAgain is in how long the plan reads otherwise although nothing has changed: when windows open or close. 0: never.
func (f facts) lookAgain(now time.Time) time.Duration {
	if len(f.dueNodes()) == 0 {
		return 0
	}
	if _, again := f.windowsAt(now); !again.IsZero() {
		return again.Sub(now)
	}
	return 0
}
