package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// joinFor is the time after the start of a batch during which volumes may still join it. A batch that is too large for one pass takes several.
const joinFor = time.Minute

type progress struct {
	profile *judge.Profile
	// matched is the number of the profile's volumes, without blocked ones.
	matched int
	batches map[int64]*batch
	// soaked are the option sets of batches that have soaked. soakedUnused are the sets of batches whose volumes no pod can mount. A soak is no
	// evidence, but a profile may accept it.
	soaked, soakedUnused map[string]bool
	sets                 sets
	// busy are the batches that still soak, sorted by their end. batchCount is the number of batches so far.
	busy       []*batch
	batchCount int
	// joined is the batch of an earlier pass that volumes join now. Nil if a new one starts.
	joined *batch
	// planned is the number of volumes that must be written now. canary is true if one of them is the first of an option set.
	planned int
	canary  bool
	// reverted is the number of volumes that are restored because of another volume's failure.
	reverted int
	// soakMessage describes the current soak. awaitMessages describe the mounts that volumes wait for, by set. Both are built on demand.
	soakMessage   string
	awaitMessages map[string]string
}

// batch is the set of volumes that were written at one time for one profile.
type batch struct {
	start, end time.Time
	// marked is the number of volumes with its mark. volumes are the marked volumes that still carry the options.
	marked  int
	volumes []evaluation
}

func soakOf(p *judge.Profile) time.Duration {
	return time.Duration(*p.Rollout.Volumes.SoakSeconds) * time.Second
}

// share returns the maximum number of volumes in a batch.
func (p *progress) share() int {
	return v1alpha1.ResolveShare(*p.profile.Rollout.Volumes.MaxPerStep, p.matched)
}

// progressByProfile groups the state of all volumes by the profiles that act on them.
func (p *planner) progressByProfile() map[string]*progress {
	out := map[string]*progress{}
	for _, j := range p.volumes {
		for _, name := range j.verdict.Profiles {
			if out[name] == nil {
				out[name] = newProgress(p.Profiles.Get(name), p.sets)
			}
			out[name].addVolume(j)
		}
	}
	for _, progress := range out {
		progress.closeBatches(p.Now)
	}
	return out
}

func newProgress(profile *judge.Profile, known sets) *progress {
	return &progress{
		profile: profile, sets: known, batches: map[int64]*batch{},
		soaked: map[string]bool{}, soakedUnused: map[string]bool{}, awaitMessages: map[string]string{},
	}
}

func (p *progress) addVolume(j evaluation) {
	if j.verdict.State != judge.StateBlocked || j.verdict.Contested {
		p.matched++
	}
	if !j.Mark.IsBatchOf(p.profile.Name) {
		return
	}
	start := j.Mark.Since.Unix()
	b := p.batches[start]
	if b == nil {
		b = &batch{start: j.Mark.Since, end: j.Mark.Since.Add(soakOf(p.profile))}
		p.batches[start] = b
	}
	b.marked++
	// A volume that gets other options now does not soak.
	if j.carriesBatch() {
		b.volumes = append(b.volumes, j)
	}
}

// closeBatches separates finished batches from busy ones, and finds the batch that volumes may join. A batch without remaining volumes is
// finished and is no evidence.
func (p *progress) closeBatches(now time.Time) {
	for _, b := range p.batches {
		if len(b.volumes) == 0 {
			continue
		}
		p.batchCount++
		if now.Before(b.end) {
			p.busy = append(p.busy, b)
			continue
		}
		for _, j := range b.volumes {
			if j.isUnused() {
				p.soakedUnused[j.carriedSet()] = true
			} else {
				p.soaked[j.carriedSet()] = true
			}
		}
	}
	slices.SortFunc(p.busy, func(a, b *batch) int { return a.end.Compare(b.end) })
	if len(p.busy) == 1 && p.mayJoin(p.busy[0], now) {
		p.joined = p.busy[0]
	}
}

// mayJoin reports whether a batch may still grow: only within a minute, and only if it was no canary. Later evidence, for its option set or for another
// set that is declared since, does not change a canary batch into another one.
func (p *progress) mayJoin(b *batch, now time.Time) bool {
	return now.Before(b.start.Add(joinFor)) && !slices.ContainsFunc(b.volumes, func(j evaluation) bool {
		return !j.isCurrent() || j.Mark.Unproven && !p.hasSoakedEnough(j) || !p.isProven(j)
	})
}

// waitsFor returns the reason why a volume must wait for its options. Empty if there is none. unmounted are the volumes that have the options
// but have not been mounted with them.
func (p *progress) waitsFor(j evaluation, unmounted []string, now time.Time) string {
	set, isProven := j.verdict.Set, p.isProven(j)
	switch {
	case p.sets[set].Stops():
		return fmt.Sprintf("StorageClientProfile %s: these options are stopped: PersistentVolume %s could not be mounted with them",
			p.profile.Name, p.sets[set].BlamedVolume())
	case p.joined != nil && isProven && p.joined.marked+p.planned < p.share():
		return ""
	case len(p.busy) > 0:
		if p.soakMessage == "" {
			p.soakMessage = fmt.Sprintf("StorageClientProfile %s: %s", p.profile.Name, soakText(p.busy[0].names(), p.batchCount == 1, p.busy[0].end))
		}
		return p.soakMessage
	case !isProven && len(unmounted) > 0 && p.profile.Rollout.Volumes.OnNoEvidence != v1alpha1.NoEvidenceProceed:
		if p.awaitMessages[set] == "" {
			p.awaitMessages[set] = fmt.Sprintf("StorageClientProfile %s: %s", p.profile.Name, awaitText(unmounted))
		}
		return p.awaitMessages[set]
	case p.canary, p.planned > 0 && !isProven, p.planned >= p.share(), p.batches[now.Unix()] != nil:
		return fmt.Sprintf("StorageClientProfile %s: another batch comes first", p.profile.Name)
	}
	return ""
}

// batchTime returns the start of the batch that a new write would join.
func (p *progress) batchTime(now time.Time) time.Time {
	if p.joined != nil {
		return p.joined.start
	}
	return now.UTC().Truncate(time.Second)
}

func (p *progress) countPlanned(j evaluation) {
	p.planned++
	p.canary = p.canary || !p.isProven(j)
}

// isProven reports whether the volume's options have passed the canary.
func (p *progress) isProven(j evaluation) bool {
	return p.sets[j.verdict.Set].State(j.Source.Server) == optionset.Works || p.hasSoakedEnough(j)
}

// hasSoakedEnough reports whether the profile accepts a soak as evidence, and the soak is over. A soak of volumes that no pod can mount counts
// only for such volumes.
func (p *progress) hasSoakedEnough(j evaluation) bool {
	return p.profile.Rollout.Volumes.OnNoEvidence == v1alpha1.NoEvidenceProceed && (p.soaked[j.verdict.Set] || j.isUnused() && p.soakedUnused[j.verdict.Set])
}

// isUnused reports whether no pod can mount the volume in its current phase.
func (j evaluation) isUnused() bool { return IsUnused(j.Volume) }

// IsUnused reports whether no pod can mount a volume in its current phase.
func IsUnused(pv *corev1.PersistentVolume) bool {
	phase := pv.Status.Phase
	return phase == corev1.VolumeAvailable || phase == corev1.VolumeReleased || phase == corev1.VolumeFailed
}

func (b *batch) names() []string {
	return lists.Each(b.volumes, func(j evaluation) string { return j.Volume.Name })
}

func soakText(volumes []string, first bool, endTime time.Time) string {
	end := "until " + endTime.UTC().Format(time.RFC3339)
	switch {
	case len(volumes) > 1:
		return "PersistentVolumes " + text.List(volumes) + " soak " + end
	case first:
		return "canary PersistentVolume " + volumes[0] + " soaks " + end
	}
	return "PersistentVolume " + volumes[0] + " soaks " + end
}

func awaitText(volumes []string) string {
	if len(volumes) == 1 {
		return "no pod has mounted PersistentVolume " + volumes[0] + " since it got these options"
	}
	return "no pod has mounted any of PersistentVolumes " + text.List(volumes) + " since they got these options"
}
