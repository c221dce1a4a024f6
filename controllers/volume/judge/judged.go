package judge

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// Judged is a volume with all that follows from it and its Input alone. It is never changed.
type Judged struct {
	// Volume is the volume.
	Volume *corev1.PersistentVolume
	// Verdict is the one on the volume alone.
	Verdict Verdict
	// Mark is that of the batch in which the volume was written, nil for none.
	Mark *Mark
	// FailedMount is the failed mount that an annotation holds. Nil if there is none.
	FailedMount *optionset.Failed
	// Record is what is remembered of the volume.
	Record Record
	// CarriesOurs is whether the list is the one that we wrote last.
	CarriesOurs bool
	// Source is where the volume's data comes from.
	Source Source
	// Unknown is set where nobody can say which protocol the volume speaks.
	Unknown *Unknown

	demand         demand
	bringsNconnect bool
	// withNconnectInForce is the verdict where other volumes of the server keep nconnect back.
	withNconnectInForce func() Verdict
}

// Judge judges one volume, alone, and reads what it remembers.
func Judge(in Input) *Judged {
	v, record := Volume(in), recallRecord(in.Volume, in.Entry)
	j := &Judged{
		Volume: in.Volume, Verdict: v, Mark: MarkOf(in.Volume), FailedMount: FailedMountOf(in.Volume),
		Record: record, CarriesOurs: record.CarriesOurs(in.Volume), Source: SourceOf(in.Volume), Unknown: unknownOf(in.Volume),
		demand: demandOf(in.Volume, listAfter(in.Volume, v)), bringsNconnect: bringsNconnect(v),
	}
	// What is asked for later holds on to none of the other profiles: a judgement outlives many versions of these.
	in.Profiles, in.nconnectInForce = in.Profiles.among(j), true
	j.withNconnectInForce = sync.OnceValue(func() Verdict { return Volume(in) })
	return j
}

// profilesOf are the names of the profiles whose rules select the volume, and of those that it carries.
func (j *Judged) profilesOf() []string {
	names := slices.Concat(j.Verdict.Profiles, j.Record.Profiles)
	slices.Sort(names)
	return slices.Compact(names)
}

// remembersFailure says whether the verdict rests on all profiles: whether any still declares what could not be mounted.
func (j *Judged) remembersFailure() bool {
	_, marked := j.Volume.Annotations[v1alpha1.FailedMountOptionsAnnotation]
	return marked
}

// WasFailedFor reports whether the failed mount that the volume holds was with the options of a profile.
func (j *Judged) WasFailedFor(profile string) bool {
	return j.FailedMount != nil && isOfProfile(j.FailedMount.Rules, profile)
}

// NamedProfiles returns the profiles that the volume's mark and failed mount name.
func (j *Judged) NamedProfiles() []string {
	names := j.Mark.Profiles()
	if j.FailedMount != nil {
		names = append(names, profilesOfRules(j.FailedMount.Rules)...)
	}
	return names
}

// MountsPerPod says whether each pod of a node has a mount of its own.
func MountsPerPod(pv *corev1.PersistentVolume) bool { return targetOf(pv).MountsPerPod() }

// Memory remembers what was judged of each volume, as long as nothing changes that it was judged by. It is for any number of goroutines.
type Memory struct {
	known store.Pool[remembered]
	// last is the difference that was asked for last: one volume after the other comes from the same profiles to the same ones. It is for
	// whoever holds known, which judges one volume at a time. Without it an edit of any profile has all volumes judged again: 0.7 s for
	// 20,000 instead of 0.13 s.
	last difference
}

// remembered is a judgement with the versions of what it was made from.
type remembered struct {
	*Judged
	volume, volumeClaim version
	class               []string
	hasClass            bool
	profiles            *Profiles
	entry               *ledger.Entry
}

// version is an object as it was at one time; none has an empty resource version.
type version struct{ uid, resourceVersion string }

func versionOf(o metav1.Object) version {
	return version{string(o.GetUID()), o.GetResourceVersion()}
}

// NewMemory remembers nothing yet.
func NewMemory() *Memory { return &Memory{} }

// Judge is the function Judge, but for what it remembers. A volume without a resource version, which was not read from
// an API server, is judged each time.
func (m *Memory) Judge(in Input) *Judged {
	now := remembered{volume: versionOf(in.Volume), class: in.Class, hasClass: in.HasClass, profiles: in.Profiles, entry: in.Entry}
	if in.VolumeClaim != nil {
		now.volumeClaim = versionOf(in.VolumeClaim)
	}
	return m.known.Update(in.Volume.Name, func(was remembered, known bool) remembered {
		if known && was.isBy(now) && (was.profiles == now.profiles || m.difference(was.profiles, now.profiles).spares(was.Judged, in)) {
			was.profiles = now.profiles
			return was
		}
		// A pointer into a list would keep the whole list of that pass in memory.
		in.Volume = ptr.To(*in.Volume)
		if in.VolumeClaim != nil {
			in.VolumeClaim = ptr.To(*in.VolumeClaim)
		}
		now.Judged = Judge(in)
		return now
	}).Judged
}

// isBy says whether a judgement was made from the same as another, profiles aside.
func (r remembered) isBy(other remembered) bool {
	return r.volume == other.volume && r.volumeClaim == other.volumeClaim && other.volume.resourceVersion != "" &&
		slices.Equal(r.class, other.class) && r.hasClass == other.hasClass && r.entry.IsSame(other.entry)
}

func (m *Memory) difference(from, to *Profiles) difference {
	if m.last.from != from || m.last.to != to {
		m.last = differenceOf(from, to)
	}
	return m.last
}

// Limit has it forget volumes that were not judged for long, where there are so many.
func (m *Memory) Limit(volumes int) { m.known.Limit(volumes) }
