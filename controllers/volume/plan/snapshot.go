package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/clocktime"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// Snapshot is the state of all volumes at one time. It shares its objects with the cache: callers must not change them.
type Snapshot struct {
	Volumes []*corev1.PersistentVolume
	// VolumeClaims are the metadata of all PersistentVolumeClaims.
	VolumeClaims map[types.NamespacedName]*metav1.PartialObjectMetadata
	// Classes holds the mount options of each StorageClass.
	Classes  map[string][]string
	Profiles *judge.Profiles
	// Cluster is the UID of the cluster. Empty if it is unknown.
	Cluster types.UID
	// Ledger holds the copy of the volumes' records. Nil if it is unknown.
	Ledger *ledger.Ledger
	// Memory caches verdicts of earlier snapshots. Nil disables the cache.
	Memory *judge.Memory
	// previousEvaluation returns the existing verdict on a volume, by its index, for a partial evaluation. If it is nil or returns nil, the volume is
	// evaluated.
	previousEvaluation func(i int) *judge.Evaluation

	// Only plans use the following fields.

	// Now is the time of the plan.
	Now time.Time
	// ClientNodes report mounts. A report alone is no evidence.
	ClientNodes []*v1alpha1.StorageClientNode
	// FailedMounts are failed mounts of watched volumes, by volume.
	FailedMounts map[string]Failure
	// RollbackResults are results of rollback checks that a plan requested, by volume: OwnMounted, OwnFailed, OwnUnknown or NoPodWaits.
	RollbackResults map[string]optionset.Kind
	// Probes are results of probes. Nil disables probes.
	Probes map[ProbeKey]Probe
	// Evidence is the evidence for option sets, by set.
	Evidence map[string]Evidence
	// Appeared are the reservations, by UID, whose volume existed at some time.
	Appeared map[types.UID]bool
	// Coming are the requested volumes that a pod is about to mount.
	Coming map[string]bool
	// Rejected are the volumes whose last write the API server rejected, with the time of the next attempt.
	Rejected map[string]time.Time
}

// Failure is a failed mount from an event that does not exclude the options as the cause.
type Failure struct {
	// Text is the message of the event. Kind is the same for all events of one failure, for any volume and pod.
	Text, Kind string
	// NamesOptions is true if the text names the options. Otherwise, the cause is unknown.
	NamesOptions bool
}

// Evidence is an observation that shows that an option set works.
type Evidence struct {
	// Text describes the observation, with its place and time.
	Text string
	// Volume is the mounted volume. Written is the time at which it got its mount options. The evidence becomes invalid when they change again.
	Volume  string
	Written time.Time
}

// evaluation is a volume with its verdict among the other volumes of its server.
type evaluation struct {
	*judge.Evaluation
	verdict *judge.Verdict
	// isAhead is true if a time of the stored mark is in the future, which Mark does not contain: the mark must be written again.
	isAhead bool
}

// withTimesUntil replaces times in the volume's mark that are in the future. A clock was ahead when the mark was written, or was set back since. A
// summary has no clock.
func (j evaluation) withTimesUntil(now time.Time) evaluation {
	if j.Mark == nil || now.IsZero() || !clocktime.IsAhead(j.Mark.Since, now) && !clocktime.IsAhead(j.Mark.Written, now) {
		return j
	}
	mark, corrected := *j.Mark, *j.Evaluation
	mark.Since, mark.Written = clocktime.Past(mark.Since, now.Truncate(time.Second)), clocktime.Past(mark.Written, now)
	corrected.Mark = &mark
	return evaluation{Evaluation: &corrected, verdict: j.verdict, isAhead: true}
}

// carriesBatch reports whether the volume has the options of its batch and keeps them. The declared set may be another one, as for a volume that Git
// declares since, and that the operator may not write.
func (j evaluation) carriesBatch() bool {
	return j.HasAppliedOptions && j.Mark != nil && !j.verdict.ChangesOptions(j.Volume)
}

// isCurrent reports whether the mount options that the operator wrote are of the currently declared set and must stay.
func (j evaluation) isCurrent() bool {
	return !j.verdict.ChangesOptions(j.Volume) && j.carriedSet() == j.verdict.Set
}

func byName(all []evaluation) map[string]evaluation {
	return lists.Map(all, func(j evaluation) (string, evaluation) { return j.Volume.Name, j })
}

// evaluateAll evaluates all volumes, each among the others of its server.
func (s Snapshot) evaluateAll() []evaluation {
	all, servers := make([]evaluation, len(s.Volumes)), judge.NewServers()
	for i := range s.Volumes {
		if s.previousEvaluation != nil {
			all[i].Evaluation = s.previousEvaluation(i)
		}
		if all[i].Evaluation == nil {
			all[i].Evaluation = s.evaluateAlone(s.Volumes[i])
		}
		servers.Add(all[i].Evaluation)
	}
	for i := range all {
		all[i].verdict = servers.Evaluate(all[i].Evaluation)
		all[i] = all[i].withTimesUntil(s.Now.UTC())
	}
	if s.Memory != nil {
		s.Memory.Limit(len(s.Volumes))
	}
	return all
}

func (s Snapshot) evaluateAlone(pv *corev1.PersistentVolume) *judge.Evaluation {
	in := judge.Input{Volume: pv, VolumeClaim: s.volumeClaimOf(pv), Profiles: s.Profiles, Cluster: s.Cluster, Entry: s.Ledger.EntryOf(pv.UID)}
	in.Class, in.HasClass = s.Classes[pv.Spec.StorageClassName]
	if s.Memory == nil {
		return judge.Evaluate(in)
	}
	return s.Memory.Evaluate(in)
}

// volumeClaimOf returns the PersistentVolumeClaim that a volume names. Nil if there is none.
func (s Snapshot) volumeClaimOf(pv *corev1.PersistentVolume) *metav1.PartialObjectMetadata {
	volumeClaim, _ := judge.ClaimOf(pv)
	return s.VolumeClaims[volumeClaim]
}

// VolumeBoundTo returns the volume that a PersistentVolumeClaim is bound to. Both must name each other. Nil if there is none.
func (s Snapshot) VolumeBoundTo(volumeClaim types.NamespacedName) *corev1.PersistentVolume {
	metadata := s.VolumeClaims[volumeClaim]
	i := slices.IndexFunc(s.Volumes, func(pv *corev1.PersistentVolume) bool {
		ref := pv.Spec.ClaimRef
		return metadata != nil && ref != nil && ref.Namespace == volumeClaim.Namespace && ref.Name == volumeClaim.Name &&
			ref.UID == metadata.UID && pv.Status.Phase == corev1.VolumeBound
	})
	if i < 0 {
		return nil
	}
	return s.Volumes[i]
}

// TrialTarget returns the mount that a trial of a profile's rules would make for a volume. obstacle explains why there is none. Empty if there is
// one.
func (s Snapshot) TrialTarget(
	pv *corev1.PersistentVolume, profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList,
) (t judge.ProbeTarget, obstacle string) {
	in := judge.Input{Volume: pv, VolumeClaim: s.volumeClaimOf(pv), Entry: s.Ledger.EntryOf(pv.UID)}
	in.Class, in.HasClass = s.Classes[pv.Spec.StorageClassName]
	list, obstacle := judge.Candidate(in, profile, allow, s.Classes)
	if obstacle != "" {
		return t, obstacle
	}
	return judge.ProbeTargetOf(pv, list), ""
}
