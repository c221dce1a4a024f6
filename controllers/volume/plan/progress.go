package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
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
	// stoppedBy is the volume that could not be mounted; empty: none.
	stoppedBy string
	// proven are the option sets of batches that went well; shown those of them of which a volume still has the wanted list.
	proven, shown map[string]bool
	// busy are the batches that are not over, the first to be over first; begun is how many there have been, and last when
	// the last of them began.
	busy  []*batch
	begun int
	last  time.Time
	// joined is the batch that volumes join now, written in an earlier pass; nil: a new one begins.
	joined *batch
	// planned counts the volumes that are to be written now, and canary is whether that is the first of an option set.
	planned int
	canary  bool
	// soakMessage says what soaks, once somebody waits for it.
	soakMessage string
}

// batch is what was written at one time for one profile.
type batch struct {
	since, until time.Time
	// marked counts all volumes that carry its mark; volumes are those of them that still carry the list, and sets theirs.
	marked  int
	volumes []string
	sets    []string
	// outdated is whether other rules select one of them by now.
	outdated bool
	mounted  bool
}

func soakOf(p *judge.Profile) time.Duration {
	return time.Duration(*p.Rollout.SoakSeconds) * time.Second
}

// share is how many volumes a batch may have.
func (p *progress) share() int {
	return v1alpha1.ResolveShare(*p.profile.Rollout.MaxPerStep, p.matched)
}

// progressByProfile sorts what is known of all volumes by the profiles that act on them.
func progressByProfile(all []judged, s Snapshot, mounted map[string]bool) map[string]*progress {
	out := map[string]*progress{}
	for _, j := range all {
		for _, name := range j.verdict.Profiles {
			if out[name] == nil {
				out[name] = &progress{profile: s.Profiles.Get(name), batches: map[int64]*batch{}, proven: map[string]bool{}, shown: map[string]bool{}}
			}
			out[name].addVolume(j, mounted, s.FailedMounts)
		}
	}
	for _, j := range all {
		if j.FailedMount != nil {
			for _, p := range out {
				if j.FailedMount.Stops(p.profile) {
					p.stopBy(j.Volume.Name)
				}
			}
		}
	}
	for _, p := range out {
		p.closeBatches(s.Now)
	}
	return out
}

// stopBy keeps the name that comes first, so that a message does not change with the order of volumes.
func (p *progress) stopBy(volume string) {
	if p.stoppedBy == "" || volume < p.stoppedBy {
		p.stoppedBy = volume
	}
}

func (p *progress) addVolume(j judged, mounted map[string]bool, failed map[string]string) {
	if j.verdict.State != judge.StateBlocked || j.verdict.Contested {
		p.matched++
	}
	if j.Mark == nil || !isMarkFor(j.Mark, p.profile) {
		return
	}
	since := j.Mark.Since.Unix()
	b := p.batches[since]
	if b == nil {
		b = &batch{since: j.Mark.Since, until: j.Mark.Since.Add(soakOf(p.profile))}
		p.batches[since] = b
	}
	b.marked++
	if !j.CarriesOurs {
		return
	}
	b.volumes, b.sets = append(b.volumes, j.Volume.Name), append(b.sets, j.OptionSet)
	b.outdated = b.outdated || !j.IsMarkCurrent
	// A mount that shows other options, which are wanted by now, says nothing of what was written.
	b.mounted = b.mounted || (mounted[j.Volume.Name] && !j.Mark.Unprovable && j.IsMarkCurrent)
	if _, didFail := failed[j.Volume.Name]; didFail {
		p.stopBy(j.Volume.Name)
	}
}

// isMarkFor says whether a volume was written for what a profile declares today.
func isMarkFor(mark *judge.Mark, p *judge.Profile) bool {
	return mark.Rules[p.Name] == p.RulesHash
}

// closeBatches tells the batches that are over from those that are not, and finds the one that may be joined. A batch of
// which nothing is left is over, and has shown nothing.
func (p *progress) closeBatches(now time.Time) {
	for _, b := range p.batches {
		if len(b.volumes) == 0 {
			continue
		}
		p.begun++
		if b.since.After(p.last) {
			p.last = b.since
		}
		if !b.mounted && now.Before(b.until) {
			p.busy = append(p.busy, b)
			continue
		}
		for _, set := range b.sets {
			p.proven[set] = true
			p.shown[set] = p.shown[set] || !b.outdated
		}
	}
	slices.SortFunc(p.busy, func(a, b *batch) int { return a.until.Compare(b.until) })
	if len(p.busy) == 1 && p.mayJoin(p.busy[0], now) {
		p.joined = p.busy[0]
	}
}

// mayJoin says whether a batch may still grow: for a minute, and where it was no canary.
func (p *progress) mayJoin(b *batch, now time.Time) bool {
	return now.Before(b.since.Add(joinFor)) && !b.outdated &&
		!slices.ContainsFunc(b.sets, func(set string) bool { return !p.shown[set] })
}

// waitsFor says what keeps a change of an option set from a volume now; empty: nothing.
func (p *progress) waitsFor(set string, now time.Time) string {
	switch {
	case p.stoppedBy != "":
		return fmt.Sprintf("profile %s is stopped: %s could not be mounted", p.profile.Name, p.stoppedBy)
	case p.joined != nil && p.shown[set] && p.joined.marked+p.planned < p.share():
		return ""
	case len(p.busy) > 0:
		if p.soakMessage == "" {
			p.soakMessage = fmt.Sprintf("profile %s: %s", p.profile.Name, soakText(p.busy[0].volumes, p.begun == 1, p.busy[0].until))
		}
		return p.soakMessage
	case p.canary, p.planned > 0 && !p.proven[set], p.planned >= p.share(), p.batches[now.Unix()] != nil:
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
func (p *progress) countPlanned(set string) {
	p.planned++
	p.canary = p.canary || !p.proven[set]
}

// watches says whether a volume's batch soaks, or is the last one: nobody may have looked while it soaked.
func (p *progress) watches(mark *judge.Mark, now time.Time) bool {
	if !isMarkFor(mark, p.profile) {
		return false
	}
	return mark.Since.Equal(p.last) || now.Before(mark.Since.Add(soakOf(p.profile)))
}

func soakText(volumes []string, first bool, until time.Time) string {
	end := "until " + until.UTC().Format(time.RFC3339) + ", or until a node mounts "
	switch {
	case len(volumes) > 1:
		return text.List(volumes) + " soak " + end + "one of them"
	case first:
		return "the canary " + volumes[0] + " soaks " + end + "it"
	}
	return volumes[0] + " soaks " + end + "it"
}
