// Package status works out a profile's status from a snapshot: how far nodes and volumes carry what the profile declares,
// what they wait for, and which reboots are due. It has no client and no clock.
package status

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/advice"
)

// Snapshot is all that a profile's status rests on.
type Snapshot struct {
	// All are all nodes, with all profiles.
	All fleet.Snapshot
	// Volumes are all volumes; nil: they could not be read.
	Volumes *plan.View
	// PausedAll is whether the manager's namespace is paused.
	PausedAll bool
	// FenceMissing says what of the agent's fence is missing.
	FenceMissing string
	// MaxUnavailable is the cluster's budget.
	MaxUnavailable intstr.IntOrString
	// Failures is what is remembered of the profile's failed nodes, FailuresUnread says why that cannot be read.
	Failures       v1alpha1.ProfileFailures
	FailuresUnread string
	// Immutable names those of the rollout's ConfigMaps, claims and failures, that are immutable, ManagerNamespace is where they are.
	Immutable        []string
	ManagerNamespace string
	// ManagerNode is the node that the manager's own Pod runs on, empty outside the cluster.
	ManagerNode string
}

// Report is how a profile stands.
type Report struct {
	snapshot Snapshot
	profile  *fleet.Profile
	// invalidReason and invalidMessage say why nothing of the profile may be applied; empty: it may.
	invalidReason, invalidMessage string
	nodes                         tally
	volumes                       plan.Summary
	// paused is the condition Paused. coming are the pending nodes that will be rebooted as things stand, staged the others, with why.
	paused         verdict
	coming, staged []wait
	// now is when that was judged, and pods use the volumes that are to be mounted: see WithPods.
	now   time.Time
	pods  map[types.NamespacedName][]Pod
	stale plan.Stale
	// advice is what the rules across settings say.
	advice []v1alpha1.Advice
	// limits bound the rollout beyond the profile's own rules.
	limits overview.Fleet
	// removal is what a profile that is being deleted waits for.
	removal removal
}

// Judge says how the profile of that name stands.
func Judge(name string, s Snapshot, now time.Time) Report {
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
	r.stale = r.volumes.Stale
	r.invalidReason, r.invalidMessage = profile.InvalidReason, profile.InvalidMessage
	r.paused = judgePaused(profile, s.PausedAll)
	for _, w := range r.nodes.pending {
		if why := r.whyStaged(w); why != "" {
			w.message = why
			r.staged = append(r.staged, w)
		} else {
			r.coming = append(r.coming, w)
		}
	}
	r.advice = advice.For(overview.AdviceAbout(profile.StorageClientProfile, selectedNodes(profile, s.All), s.All.ClientNodes, r.volumes.Servers, r.volumes.LeftOut))
	r.limits = overview.Fleet{Matched: int(r.nodes.counts.Matched), All: len(s.All.Nodes), MaxUnavailable: s.MaxUnavailable}
	return r
}

// Status is what to write; old is what the profile has now.
func (r Report) Status(old v1alpha1.StorageClientProfileStatus, now time.Time) v1alpha1.StorageClientProfileStatus {
	next := *old.DeepCopy()
	generation := r.profile.Generation
	next.ObservedGeneration = generation
	next.Conditions = r.conditions(old.Conditions, generation, metav1.NewTime(now))
	next.Nodes = r.nodes.counts
	next.LostNodes = r.nodes.lost
	next.Volumes = v1alpha1.VolumeCounts{
		Matched: r.volumes.Matched, UpToDate: r.volumes.UpToDate, Exceptions: r.volumes.Exceptions, Blocked: r.volumes.Blocked,
		StaleMounts: r.stale.Count, LeftOut: int32(advice.CountLeftOut(r.volumes.LeftOut)),
	}
	next.Advice = r.advice
	next.Plan = r.planStatus(old.Plan, old.ObservedGeneration, now)
	return next
}

// IsDeleting reports whether the profile is on its way out.
func (r Report) IsDeleting() bool { return r.profile.Standing == match.Leaving }

// IsReleased reports whether nothing keeps a profile that is being deleted any longer.
func (r Report) IsReleased() bool {
	if len(r.removal.nodes) > 0 || len(r.volumes.Unrestored) > 0 {
		return false
	}
	retain := r.profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain
	return retain || (!r.profile.Paused && !r.snapshot.PausedAll)
}

// Unreachable are the nodes that a deleted profile leaves to restore when they can be reached.
func (r Report) Unreachable() []string { return r.removal.unreachable }
