package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

// Snapshot is what is known of all volumes at one time. Its objects are shared with the cache: read only.
type Snapshot struct {
	Volumes []*corev1.PersistentVolume
	// VolumeClaims are the metadata of all PersistentVolumeClaims.
	VolumeClaims map[types.NamespacedName]*metav1.PartialObjectMetadata
	// Classes holds the mount options of each StorageClass.
	Classes  map[string][]string
	Profiles *judge.Profiles
	// Ledger holds the volumes' records beside their annotations; nil: nothing is known of it.
	Ledger *ledger.Ledger
	// Memory remembers what was judged in an earlier snapshot; nil: nothing is remembered.
	Memory *judge.Memory
	// judgedBefore returns what was judged of a volume, by its index, for whoever judges a part anew; nil, and what it returns nil for:
	// nothing.
	judgedBefore func(i int) *judge.Judged

	// What follows is for a plan, and nobody else.

	// Now is the time of the plan.
	Now time.Time
	// ClientNodes tell what is mounted.
	ClientNodes []*v1alpha1.StorageClientNode
	// FailedMounts are failed mounts, by volume, of those volumes that a plan wants to know of.
	FailedMounts map[string]Failure
	// Cures say how volumes mount with their own lists, of those on cure that a plan has asked for.
	Cures map[string]Cure
	// Probes are what probes have shown of sets of options; nil: nothing is probed.
	Probes map[ProbeKey]Probe
	// Evidence is what has shown sets of options to work, apart from the reports of client nodes, by set.
	Evidence map[string]Evidence
	// Coming are the volumes, of those that a plan has asked for, that a pod is about to mount.
	Coming map[string]bool
	// Refused are the volumes whose last write the API server refused, with when it may be tried again.
	Refused map[string]time.Time
}

// Failure is a failed mount, as an event tells of it that does not put it down to something else than the options.
type Failure struct {
	// Text is what the event says. Kind is the same for all events of one failure, of whichever volume and pod.
	Text, Kind string
	// SpeaksOfOptions is true where the text does, rather than leaving open what is to blame.
	SpeaksOfOptions bool
}

// Evidence is an observation that shows a set of options to work.
type Evidence struct {
	// Text says what was seen, where and when.
	Text string
	// Volume is the one that was mounted, and Written when it had got its list. It shows nothing any more once the volume has got another
	// one.
	Volume  string
	Written time.Time
}

// Cure is what pods show of a volume that has its own list back.
type Cure string

const (
	// CureWorked is said where a pod has mounted it since.
	CureWorked Cure = "Mounts"
	// CureFailed is said where a pod cannot mount it with its own list either.
	CureFailed Cure = "Fails"
	// CureEnded is said where no pod waits for it any more.
	CureEnded Cure = "Ended"
)

// judged is a volume with the verdict on it among the others of its server.
type judged struct {
	*judge.Judged
	verdict judge.Verdict
}

// isMarkCurrent says whether the list was written for the very options that are declared now, and is to stay.
func (j judged) isMarkCurrent() bool {
	return j.Mark != nil && j.Mark.Set == j.verdict.Set && !j.verdict.ChangesList(j.Volume)
}

// judgeAll judges all volumes, each among the others of its server.
func (s Snapshot) judgeAll() []judged {
	all, servers := make([]judged, len(s.Volumes)), judge.NewServers()
	for i := range s.Volumes {
		if s.judgedBefore != nil {
			all[i].Judged = s.judgedBefore(i)
		}
		if all[i].Judged == nil {
			all[i].Judged = s.judgeAlone(s.Volumes[i])
		}
		servers.Add(all[i].Judged)
	}
	for i := range all {
		all[i].verdict = servers.Judge(all[i].Judged)
	}
	if s.Memory != nil {
		s.Memory.Limit(len(s.Volumes))
	}
	return all
}

func (s Snapshot) judgeAlone(pv *corev1.PersistentVolume) *judge.Judged {
	in := judge.Input{Volume: pv, VolumeClaim: s.volumeClaimOf(pv), Profiles: s.Profiles, Entry: s.Ledger.EntryOf(pv.UID)}
	in.Class, in.HasClass = s.Classes[pv.Spec.StorageClassName]
	if s.Memory == nil {
		return judge.Judge(in)
	}
	return s.Memory.Judge(in)
}

// volumeClaimOf is the PersistentVolumeClaim that a volume names, nil if there is none.
func (s Snapshot) volumeClaimOf(pv *corev1.PersistentVolume) *metav1.PartialObjectMetadata {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return s.VolumeClaims[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
}
