package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
)

const (
	// observeEvery is the interval between observations of volumes while a batch soaks. The kubelet reports a failed mount within two minutes, and
	// a report of mounts by a StorageClientNode triggers no pass.
	observeEvery = 10 * time.Second
	// watchEvery is the interval between observations of volumes with options of the operator at all other times.
	watchEvery = time.Minute
	// MinInspection is the shortest time between two inspections of mounts.
	MinInspection = observeEvery
	// maxAwaited is the maximum number of volumes of a set whose mounts are searched among pods.
	maxAwaited = 3
)

// Wanted are the observations that a plan requires. They are not in the cache.
type Wanted struct {
	// Watched are the volumes whose failed mounts matter.
	Watched []Watched
	// InCure are the volumes with a rollback check.
	InCure []InCure
	// Awaited are volumes whose mount would be the first evidence for their option set.
	Awaited []Awaited
	// Candidates are the volumes of unproven sets. A volume that a pod is about to mount comes first.
	Candidates []*corev1.PersistentVolume
	// Every is the interval between observations, except for candidates.
	Every time.Duration
}

// IsEmpty reports whether there is no volume whose mounts matter.
func (w Wanted) IsEmpty() bool { return len(w.Watched)+len(w.InCure)+len(w.Awaited) == 0 }

// Wants returns the required observations of the volumes of a snapshot before For decides.
func Wants(s Snapshot) Wanted {
	p, out := newPlanner(s), Wanted{Every: watchEvery}
	if p.isAnySoaking() {
		out.Every = observeEvery
	}
	p.watchLists(&out)
	p.awaitEvidence(&out)
	return out
}

// watchLists adds the volumes whose failed mounts matter: all volumes with options of the operator, even if the rules have changed. The next
// mount by a pod may come at any time.
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

// awaitEvidence adds the volumes whose mount would be evidence that others wait for, and the volumes that may be the first of their set.
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
