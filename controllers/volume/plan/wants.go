package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
)

const (
	// observeEvery is how often volumes are observed while a batch soaks: the kubelet tells of a failed mount
	// within two minutes, and client nodes report mounts without an event for us.
	observeEvery = 10 * time.Second
	// watchEvery is how often volumes that have options of the operator are observed at all other times.
	watchEvery = time.Minute
	// MinInspection is the shortest time between two inspections of mounts.
	MinInspection = observeEvery
	// maxAwaited is of how many volumes of a set a mount is looked for among pods.
	maxAwaited = 3
)

// Wanted is what must be observed for a plan. None of it is in the cache.
type Wanted struct {
	// Watched are the volumes of which it matters whether a pod could not mount them.
	Watched []Watched
	// InCure are the volumes of which it matters how pods mount them with their own lists.
	InCure []InCure
	// Awaited are volumes whose mount would show their set of options to work, which nothing has yet.
	Awaited []Awaited
	// Candidates are the volumes of sets that nothing has shown to work: one that a pod is about to mount goes first.
	Candidates []*corev1.PersistentVolume
	// Every is how often all but the candidates must be observed.
	Every time.Duration
}

// IsEmpty reports whether there are no volumes of which it matters how pods mount them.
func (w Wanted) IsEmpty() bool { return len(w.Watched)+len(w.InCure)+len(w.Awaited) == 0 }

// Wants returns what must be observed of the volumes of a snapshot before For decides.
func Wants(s Snapshot) Wanted {
	p, out := newPlanner(s), Wanted{Every: watchEvery}
	if p.isAnySoaking() {
		out.Every = observeEvery
	}
	p.watchLists(&out)
	p.awaitEvidence(&out)
	return out
}

// watchLists names the volumes whose failed mounts matter: all that carry a list of ours, whatever became of the rules since and for as
// long as they carry it. Nobody knows when the next pod mounts one of them.
func (p *planner) watchLists(out *Wanted) {
	for _, j := range p.volumes {
		if j.isWatched() {
			out.Watched = append(out.Watched, Watched{Volume: j.Volume, Since: j.carriedSince(), AsksOtherwise: judge.AsksOtherwise(j.Volume, j.Record.Original)})
		}
		if p.isInCure(j) {
			b := p.blameOf(j)
			out.InCure = append(out.InCure, InCure{Volume: j.Volume, Failure: b.Failure, Since: b.RevertedAt})
		}
	}
}

// awaitEvidence names the volumes whose mount would show what nothing has shown yet and others wait for, and those that may be the
// first of their set.
func (p *planner) awaitEvidence(out *Wanted) {
	waiting, awaited := map[string]bool{}, map[string]int{}
	for _, j := range p.volumes {
		if p.sets.isProven(j) || !j.verdict.ChangesList(j.Volume) {
			continue
		}
		waiting[j.verdict.Set] = true
		if !j.isUnused() && j.Volume.Spec.ClaimRef != nil {
			out.Candidates = append(out.Candidates, j.Volume)
		}
	}
	for _, j := range p.volumes {
		set := j.verdict.Set
		if p.sets.isProven(j) || !waiting[set] || awaited[set] == maxAwaited || !j.carriesSet() || !j.mayBeTakenBack() || j.isUnused() || j.Volume.Spec.ClaimRef == nil {
			continue
		}
		awaited[set]++
		out.Awaited = append(out.Awaited, Awaited{Volume: j.Volume, Set: set, Written: j.writtenAt(), After: j.writtenAt().Add(clockTolerance)})
	}
}
