package profile

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/node/livegate"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	// nominalDrain and nominalBoot are what a node takes where nothing holds it up. They are for orientation: a
	// virtual machine boots in one to three minutes, a server with much memory takes longer.
	nominalDrain = 2 * time.Minute
	nominalBoot  = 3 * time.Minute
	// maxExamples is how many nodes status.plan names.
	maxExamples = 20
)

// planned tells which reboots are due and what holds them back. budget is the cluster's, nodes is how many nodes there are.
func (f facts) planned(old v1alpha1.Plan, budget intstr.IntOrString, nodes int, now time.Time) v1alpha1.Plan {
	pending := f.pendingNodes()
	next := v1alpha1.Plan{
		Hash:          nodesettings.PlanHash(f.profile.StorageClientProfile),
		NodesToReboot: int32(len(pending)),
		LimitedBy:     capped(f.limitedBy()),
		Examples:      pending[:min(len(pending), maxExamples)],
	}
	if len(pending) == 0 || !f.foreseeable() {
		return next
	}
	// An estimate that moves with the clock would make a write of every look.
	if old.NodesToReboot == next.NodesToReboot && old.EstimatedCompletion != nil && old.EstimatedCompletion.After(now) {
		next.EstimatedCompletion = old.EstimatedCompletion
		return next
	}
	next.EstimatedCompletion = ptr.To(metav1.NewTime(now.Add(f.duration(len(pending), budget, nodes)).Truncate(time.Second)))
	return next
}

// foreseeable reports whether an estimate makes sense. In mode Plan, and while an approval is missing, it is the one of a
// rollout that would begin now; nobody can tell when a pause or a failure ends.
func (f facts) foreseeable() bool {
	never := f.profile.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever
	held := !f.plan() && f.paused().status == metav1.ConditionTrue
	return !never && !held && f.stalled().status != metav1.ConditionTrue
}

// duration is the shortest time in which a number of reboots can be done: as many waves as the smaller of the two budgets
// makes of them, each a nominal drain and boot with the profile's settleSeconds.
func (f facts) duration(reboots int, budget intstr.IntOrString, nodes int) time.Duration {
	rollout := f.profile.Spec.WithDefaults().Rollout
	atOnce := min(livegate.Share(*rollout.MaxUnavailable, int(f.nodes.counts.Matched)), livegate.Share(budget, nodes))
	waves := (reboots + atOnce - 1) / atOnce
	each := nominalDrain + nominalBoot + time.Duration(*rollout.SettleSeconds)*time.Second
	return time.Duration(waves) * each
}

// limitedBy tells what holds the next reboot back; empty: nothing does.
func (f facts) limitedBy() string {
	if len(f.nodes.pending) == 0 {
		return ""
	}
	if held := f.rebootHeldBack(); held != "" {
		return held
	}
	if paused := f.paused(); paused.status == metav1.ConditionTrue {
		return paused.message
	}
	for _, pending := range slices.Concat(f.nodes.disrupted, f.nodes.pending) {
		if pending.message != "" {
			return fmt.Sprintf("%s: %s", pending.node, pending.message)
		}
	}
	return ""
}
