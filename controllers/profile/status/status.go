// Package status derives a profile's status from a snapshot: the progress of nodes and volumes, the reasons for which they wait, and the due
// reboots. It has no client and no clock.
package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/advice"
)

// Snapshot is the complete input of a profile's status.
type Snapshot struct {
	// All contains all nodes, with all profiles.
	All fleet.Snapshot
	// Volumes contains all volumes; nil if they could not be read.
	Volumes *plan.View
	// ReadAheadWaits are the reasons for which nodes do not have the profile's read-ahead of volumes. MayGetReadAhead reports whether a node may get
	// that of a volume: its report of a mount alone does not count. Nil if unknown: then every mount counts.
	ReadAheadWaits  []string
	MayGetReadAhead func(volume, node string) bool
	// PausedAll is true if the manager's namespace is paused.
	PausedAll bool
	// OddPause is OddStop of the manager's namespace.
	OddPause string
	// FenceMissing is the missing part of the agent's fence.
	FenceMissing string
	// MaxUnavailable is the cluster's budget.
	MaxUnavailable intstr.IntOrString
	// Failures are the recorded failures of the profile; FailuresUnread is the reason why they cannot be read.
	Failures       v1alpha1.ProfileFailures
	FailuresUnread string
	// Immutable contains the names of the immutable ConfigMaps of the rollout (claims, failures).
	Immutable []string
	// ManagerNode is the node that runs the manager's Pod, empty outside the cluster.
	ManagerNode string
}

// Report is the state of a profile.
type Report struct {
	snapshot Snapshot
	profile  *fleet.Profile
	// invalidReason and invalidMessage contain the reason why the profile may not be applied; empty if it may.
	invalidReason, invalidMessage string
	nodes                         tally
	volumes                       plan.Summary
	// unread are the nodes with a mount that does not have the profile's read-ahead.
	unread []string
	// paused is the condition Paused. coming are the pending nodes that will be rebooted under the current rules, staged the others with the
	// reason.
	paused         verdict
	coming, staged []waitingNode
	// now is the time of the evaluation; pods use the volumes that must be mounted: see WithPods.
	now     time.Time
	pods    map[types.NamespacedName][]corev1.Pod
	removal removal
}

// Evaluate returns the report on the named profile.
func Evaluate(name string, s Snapshot, now time.Time) Report {
	profile := s.All.Profiles.ByName(name)
	r := Report{
		snapshot: s,
		profile:  profile,
		now:      now,
		nodes:    countNodes(profile, s.All, s.ManagerNode),
		volumes:  s.Volumes.Summarize(name),
		removal:  findRemaining(profile, s.All, now),
	}
	r.nodes.addRecalled(recallFailures(profile, s.All, s.Failures))
	r.nodes.addStuck(profile, s.All, now)
	r.unread = r.nodes.addUnread(s, s.Volumes.ReadAheads(name))
	r.invalidReason, r.invalidMessage = profile.InvalidReason, profile.InvalidMessage
	r.paused = evaluatePaused(profile, s.PausedAll, s.OddPause)
	for _, w := range r.nodes.pending {
		if reason := r.stagedReason(w); reason != "" {
			w.message = reason
			r.staged = append(r.staged, w)
		} else {
			r.coming = append(r.coming, w)
		}
	}
	return r
}

// Status returns the new status; old is the current status of the profile.
func (r Report) Status(old v1alpha1.StorageClientProfileStatus, now time.Time) v1alpha1.StorageClientProfileStatus {
	next := *old.DeepCopy()
	generation := r.profile.Generation
	next.ObservedGeneration = generation
	next.Conditions = r.conditions(old.Conditions, generation, metav1.NewTime(now))
	next.Nodes = r.nodes.counts
	next.LostNodes = r.nodes.lost
	next.Volumes = v1alpha1.VolumeCounts{
		Matched: r.volumes.Matched, UpToDate: r.volumes.UpToDate, Exceptions: r.volumes.Exceptions, Blocked: r.volumes.Blocked,
		StaleMounts: r.volumes.Stale.Count, LeftOut: int32(advice.CountLeftOut(r.volumes.LeftOut)),
	}
	all := r.snapshot.All
	next.Advice = advice.For(overview.AdviceAbout(r.profile.StorageClientProfile, selectedNodes(r.profile, all), all.ClientNodes,
		r.volumes.Servers, r.volumes.LeftOut))
	next.Plan = r.planStatus(old.Plan, old.ObservedGeneration, now)
	return next
}

// IsDeleting reports whether the profile is being deleted.
func (r Report) IsDeleting() bool { return r.profile.Phase == match.Leaving }

// IsReleased reports whether the deletion of the profile can complete.
func (r Report) IsReleased() bool {
	if len(r.removal.nodes) > 0 || len(r.volumes.Unrestored) > 0 {
		return false
	}
	retain := r.profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain
	return retain || (!r.profile.Paused && !r.snapshot.PausedAll)
}

// Unreachable returns the nodes that are restored after the profile is gone, when they can be reached.
func (r Report) Unreachable() []string { return r.removal.unreachable }

// Change is a condition that has changed, for an event on the profile.
type Change struct {
	// Kind is Normal, or Warning if a user must act.
	Kind string
	metav1.Condition
}

// Changes returns the changes between two sets of conditions: the state of the profile, then new conflicts and stale mounts. A new message alone is
// no change: an event for each step of each node would be too many.
func Changes(before, after []metav1.Condition) []Change {
	var out []Change
	main := headline(after)
	if main != nil && !isSame(headline(before), main) {
		out = append(out, Change{kindOf(main), *main})
	}
	for _, other := range []struct {
		name   string
		status metav1.ConditionStatus
	}{{v1alpha1.ConditionConflict, metav1.ConditionTrue}, {v1alpha1.ConditionMountsEffective, metav1.ConditionFalse}} {
		c := meta.FindStatusCondition(after, other.name)
		if c == nil || c.Status != other.status || isSame(meta.FindStatusCondition(before, other.name), c) || main != nil && main.Reason == c.Reason {
			continue
		}
		out = append(out, Change{kindOf(c), *c})
	}
	return out
}

// headline returns the condition that best describes the state of a profile, nil if it has none.
func headline(conditions []metav1.Condition) *metav1.Condition {
	for _, name := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReady, v1alpha1.ConditionPaused, v1alpha1.ConditionReconciling} {
		if meta.IsStatusConditionTrue(conditions, name) {
			return meta.FindStatusCondition(conditions, name)
		}
	}
	return meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
}

func isSame(a, b *metav1.Condition) bool {
	return a != nil && a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
}

func kindOf(c *metav1.Condition) string {
	if c.Status == metav1.ConditionTrue && (c.Type == v1alpha1.ConditionStalled || c.Type == v1alpha1.ConditionConflict) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
