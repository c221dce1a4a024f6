package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/text"
)

// joinFor is for how long after a batch began volumes may still join it: one that is too large for a single pass is
// written in several.
const joinFor = time.Minute

// progress is how far one profile's changes have come.
type progress struct {
	profile *judge.Profile
	// matched are the profile's volumes, without blocked ones.
	matched int
	batches map[int64]*batch
	// soaked are the sets of options of batches that have soaked, soakedUnused those of batches whose volumes nobody can mount. Nothing
	// is shown by that, but a profile may have it be enough.
	soaked, soakedUnused map[string]bool
	sets                 sets
	// busy are the batches that are not over, the first to be over first; begun is how many there have been.
	busy  []*batch
	begun int
	// joined is the batch that volumes join now, written in an earlier pass; nil: a new one begins.
	joined *batch
	// planned counts the volumes that are to be written now, and canary is whether that is the first of an option set.
	planned int
	canary  bool
	// putBack counts the volumes that are given their own lists back for the failure of another.
	putBack int
	// soakMessage says what soaks, and awaitMessages which mounts are waited for, by set, once somebody waits for it.
	soakMessage   string
	awaitMessages map[string]string
}

// batch is what was written at one time for one profile.
type batch struct {
	since, until time.Time
	// marked counts all volumes that carry its mark; volumes are those of them that still carry the list.
	marked  int
	volumes []judged
}

func soakOf(p *judge.Profile) time.Duration {
	return time.Duration(*p.Rollout.SoakSeconds) * time.Second
}

// share is how many volumes a batch may have.
func (p *progress) share() int {
	return v1alpha1.ResolveShare(*p.profile.Rollout.MaxPerStep, p.matched)
}

// progressByProfile sorts what is known of all volumes by the profiles that act on them.
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
		profile: profile, sets: known, batches: map[int64]*batch{}, soaked: map[string]bool{}, soakedUnused: map[string]bool{}, awaitMessages: map[string]string{},
	}
}

func (p *progress) addVolume(j judged) {
	if j.verdict.State != judge.StateBlocked || j.verdict.Contested {
		p.matched++
	}
	if !j.Mark.IsBatchOf(p.profile.Name) {
		return
	}
	since := j.Mark.Since.Unix()
	b := p.batches[since]
	if b == nil {
		b = &batch{since: j.Mark.Since, until: j.Mark.Since.Add(soakOf(p.profile))}
		p.batches[since] = b
	}
	b.marked++
	// What was written for other options than those that are declared by now says nothing of these.
	if !j.CarriesOurs || !j.isMarkCurrent() {
		return
	}
	b.volumes = append(b.volumes, j)
}

// closeBatches tells the batches that are over from those that are not, and finds the one that may be joined. A batch of
// which nothing is left is over, and has shown nothing.
func (p *progress) closeBatches(now time.Time) {
	for _, b := range p.batches {
		if len(b.volumes) == 0 {
			continue
		}
		p.begun++
		if now.Before(b.until) {
			p.busy = append(p.busy, b)
			continue
		}
		for _, j := range b.volumes {
			if j.isUnused() {
				p.soakedUnused[j.verdict.Set] = true
			} else {
				p.soaked[j.verdict.Set] = true
			}
		}
	}
	slices.SortFunc(p.busy, func(a, b *batch) int { return a.until.Compare(b.until) })
	if len(p.busy) == 1 && p.mayJoin(p.busy[0], now) {
		p.joined = p.busy[0]
	}
}

// mayJoin says whether a batch may still grow: for a minute, and where it was no canary. Evidence that comes while the canary soaks
// makes it no less one.
func (p *progress) mayJoin(b *batch, now time.Time) bool {
	return now.Before(b.since.Add(joinFor)) && !slices.ContainsFunc(b.volumes, func(j judged) bool {
		return j.Mark.Unproven && !p.hasSoakedEnough(j) || !p.isProven(j)
	})
}

// waitsFor says what keeps a change of its list from a volume now; empty: nothing. unmounted are the volumes that have its list, and
// have yet to be mounted with it.
func (p *progress) waitsFor(j judged, unmounted []string, now time.Time) string {
	set, isProven := j.verdict.Set, p.isProven(j)
	switch {
	case p.sets[set].Stops():
		return fmt.Sprintf("profile %s: these options are stopped: %s could not be mounted with them", p.profile.Name, p.sets[set].BlamedVolume())
	case p.joined != nil && isProven && p.joined.marked+p.planned < p.share():
		return ""
	case len(p.busy) > 0:
		if p.soakMessage == "" {
			p.soakMessage = fmt.Sprintf("profile %s: %s", p.profile.Name, soakText(p.busy[0].names(), p.begun == 1, p.busy[0].until))
		}
		return p.soakMessage
	case !isProven && len(unmounted) > 0 && p.profile.Rollout.OnNoEvidence != v1alpha1.NoEvidenceProceed:
		if p.awaitMessages[set] == "" {
			p.awaitMessages[set] = fmt.Sprintf("profile %s: %s", p.profile.Name, awaitText(unmounted))
		}
		return p.awaitMessages[set]
	case p.canary, p.planned > 0 && !isProven, p.planned >= p.share(), p.batches[now.Unix()] != nil:
		return fmt.Sprintf("profile %s: another batch comes first", p.profile.Name)
	}
	return ""
}

// batchTime is the time of the batch that a volume would be written in.
func (p *progress) batchTime(now time.Time) time.Time {
	if p.joined != nil {
		return p.joined.since
	}
	return now.UTC().Truncate(time.Second)
}

// countPlanned notes that a volume is to be written now.
func (p *progress) countPlanned(j judged) {
	p.planned++
	p.canary = p.canary || !p.isProven(j)
}

// isProven says whether the volume's options are no canary's any more.
func (p *progress) isProven(j judged) bool {
	return p.sets[j.verdict.Set].MayWrite(j.Source.Server) == optionset.Batch || p.hasSoakedEnough(j)
}

// hasSoakedEnough says whether time is enough for the profile, and has passed. What volumes show that nobody can mount holds for no
// others.
func (p *progress) hasSoakedEnough(j judged) bool {
	return p.profile.Rollout.OnNoEvidence == v1alpha1.NoEvidenceProceed && (p.soaked[j.verdict.Set] || j.isUnused() && p.soakedUnused[j.verdict.Set])
}

// isUnused says whether no pod can mount the volume as it is.
func (j judged) isUnused() bool {
	switch j.Volume.Status.Phase {
	case corev1.VolumeAvailable, corev1.VolumeReleased, corev1.VolumeFailed:
		return true
	}
	return false
}

func (b *batch) names() []string {
	names := make([]string, len(b.volumes))
	for i, j := range b.volumes {
		names[i] = j.Volume.Name
	}
	return names
}

func soakText(volumes []string, first bool, until time.Time) string {
	end := "until " + until.UTC().Format(time.RFC3339)
	switch {
	case len(volumes) > 1:
		return text.List(volumes) + " soak " + end
	case first:
		return "the canary " + volumes[0] + " soaks " + end
	}
	return volumes[0] + " soaks " + end
}

func awaitText(volumes []string) string {
	if len(volumes) == 1 {
		return "no pod has mounted " + volumes[0] + " since it got these options"
	}
	return "no pod has mounted any of " + text.List(volumes) + " since they got these options"
}
