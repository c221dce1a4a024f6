package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
)

const (
	// observeInterval is the interval between observations of volumes while a batch soaks. The kubelet reports a failed mount within two minutes, and
	// a report of mounts by a StorageClientNode triggers no pass.
	observeInterval = 10 * time.Second
	// watchInterval is the interval between observations of volumes with options of the operator at all other times.
	watchInterval = time.Minute
	// MinInspection is the shortest time between two inspections of mounts.
	MinInspection = observeInterval
	// maxAwaited is the maximum number of volumes of a set whose mounts are searched among pods.
	maxAwaited = 3
)

// Observations are the observations that a plan requires. They are not in the cache.
type Observations struct {
	// Watched are the volumes whose failed mounts matter.
	Watched []Watched
	// RollbackChecks are the volumes with a rollback check.
	RollbackChecks []RollbackCheck
	// Awaited are volumes whose mount would be the first evidence for their option set.
	Awaited []Awaited
	// Candidates are the volumes of unproven sets. A volume that a pod is about to mount comes first.
	Candidates []*corev1.PersistentVolume
	// Interval is the interval between observations, except for candidates.
	Interval time.Duration
}

// IsEmpty reports whether there is no volume whose mounts matter.
func (w Observations) IsEmpty() bool { return len(w.Watched)+len(w.RollbackChecks)+len(w.Awaited) == 0 }

// RequiredObservations returns the required observations of the volumes of a snapshot before For decides.
func RequiredObservations(s Snapshot) Observations {
	p, out := newPlanner(s), Observations{Interval: watchInterval}
	if p.isAnySoaking() {
		out.Interval = observeInterval
	}
	p.watchLists(&out)
	p.awaitEvidence(&out)
	return out
}

// watchLists adds the volumes whose failed mounts matter: all volumes with options of the operator, even if the rules have changed. The next
// mount by a pod may come at any time.
func (p *planner) watchLists(out *Observations) {
	for _, j := range p.volumes {
		if j.isWatched() {
			watched := Watched{Volume: j.Volume, Since: j.carriedSince(), ChangesRequests: judge.ChangesRequests(j.Volume, j.Record.Original)}
			if j.Mark != nil && j.Mark.Failed {
				watched.Rewritten = j.writtenAt()
			}
			out.Watched = append(out.Watched, watched)
		}
		if p.isInRollbackCheck(j) {
			out.RollbackChecks = append(out.RollbackChecks, RollbackCheck{Volume: j.Volume, Blame: *p.blameOf(j)})
		}
	}
}

// awaitEvidence adds the volumes whose mount would be evidence that others wait for, the volumes of which nodes report one, and the volumes that
// may be the first of their set.
func (p *planner) awaitEvidence(out *Observations) {
	waiting, awaited := map[string]bool{}, map[string]int{}
	for _, j := range p.volumes {
		changes := j.verdict.ChangesOptions(j.Volume)
		if p.sets.isProven(j) || !changes && !j.isNewCanary() {
			continue
		}
		waiting[j.verdict.Set] = true
		if changes && !j.isUnused() && j.Volume.Spec.ClaimRef != nil {
			out.Candidates = append(out.Candidates, j.Volume)
		}
	}
	claims, reported := p.findReported(), map[string][]evaluation{}
	for _, j := range p.volumes {
		set := j.verdict.Set
		switch {
		case !p.lacksMount(j) || j.isUnused() || j.Volume.Spec.ClaimRef == nil:
		case claims[j.Volume.Name]:
			reported[set] = append(reported[set], j)
		case waiting[set] && awaited[set] < maxAwaited && !p.sets.isProven(j) && j.mayRevert():
			awaited[set]++
			out.Awaited = append(out.Awaited, j.awaitMount())
		}
	}
	// Each pass looks at others: a node that reports mounts of all volumes must not hide the real ones.
	turn := uint64(p.Now.Unix()) * 0x9E3779B97F4A7C15 >> 40
	for _, set := range slices.Sorted(maps.Keys(reported)) {
		all := reported[set]
		for i := range min(len(all), maxAwaited) {
			out.Awaited = append(out.Awaited, all[(int(turn)+i)%len(all)].awaitMount())
		}
	}
}

// isNewCanary reports whether the volume was created as the canary of its set. New volumes may wait for its mount at any time.
func (j evaluation) isNewCanary() bool {
	return j.carriesSet() && j.Mark.IsNewCanary()
}

func (j evaluation) awaitMount() Awaited {
	after := j.writtenAt().Add(judge.ClockTolerance)
	if j.carriesSet() && j.Mark != nil && j.Mark.Created { // it never had other options
		after = j.writtenAt().Add(-judge.ClockTolerance)
	}
	return Awaited{
		Volume: j.Volume, Set: j.verdict.Set, Written: j.writtenAt(), After: after,
		Options: j.verdict.DeclaredOptions(), AnyAge: j.Mark.IsOfEarlierRelease(),
	}
}
