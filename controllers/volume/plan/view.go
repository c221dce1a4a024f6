package plan

import (
	"slices"

	"github.com/storageclient/operator/controllers/volume/judge"
)

// View is all volumes as one Snapshot has them judged, for the summaries of any number of profiles. What these share is worked out once.
// It is for one goroutine; a nil View knows no volumes.
type View struct {
	snapshot Snapshot
	// judged is by the profiles as they are, acting as if the manager's namespace were not paused; both are the same where it is not.
	judged, acting *planner
	// concerned are the volumes that concern each profile; nil: nobody has asked yet.
	concerned map[string][]*judged
	// stale are the mounts from before a change, by profile; nil: nobody has asked yet.
	stale map[string]Stale
}

// NewView judges all volumes.
func NewView(s Snapshot) *View {
	v := &View{snapshot: s}
	if s.Profiles == nil { // nothing could be read
		return v
	}
	v.judged = newPlanner(s)
	v.acting = v.judged
	if profiles, differ := s.Profiles.WithoutGlobalPause(); differ {
		s.Profiles, s.Memory = profiles, nil
		v.acting = newPlanner(s)
	}
	return v
}

// Summarize is the function Summarize, of what the View was made from.
func (v *View) Summarize(name string) Summary {
	if v == nil || v.judged == nil {
		return Summary{}
	}
	planner, own := v.freed(name)
	var out Summary
	for _, j := range own {
		out.addVolume(name, j)
		out.addServer(name, j)
		if (j.WasFailedFor(name) || slices.Contains(j.Record.Profiles, name)) && v.isUnrestored(j, planner) {
			out.Unrestored = append(out.Unrestored, j.Volume.Name)
		}
	}
	out.addBatches(v.snapshot.Profiles, planner.sets, name, own)
	out.addEvidence(planner, own, name)
	out.addProbes(planner, own, name)
	out.Stale = v.staleMounts(planner, name, out.Volumes)
	out.LeftOut = planner.leftOut(name, planner.volumes)
	slices.Sort(out.Unrestored)
	out.BlockedExamples, out.ExceptionExamples = firstOf(out.BlockedExamples), firstOf(out.ExceptionExamples)
	return out
}

// isUnrestored says whether a volume has still to be put back, by the profiles as they are.
func (v *View) isUnrestored(j *judged, by *planner) bool {
	verdict := j.verdict
	if by != v.judged {
		verdict = v.snapshot.judgeAlone(j.Volume).Verdict
	}
	return verdict.State == judge.StatePending || verdict.State == judge.StateHeld || verdict.Action == judge.ActionRelease
}

// freed is the planner by the profiles as if the named one acted, and the volumes that concern it. The others are not judged again.
func (v *View) freed(name string) (*planner, []*judged) {
	if v.concerned == nil {
		v.concerned = concernedBy(v.acting.volumes)
	}
	profiles, differ := v.acting.Profiles.Freed(name)
	if !differ {
		return v.acting, v.concerned[name]
	}
	carrying := map[string]bool{}
	for _, j := range v.concerned[name] {
		carrying[j.Volume.Name] = true
	}
	s := v.snapshot
	s.Profiles, s.Memory = profiles, nil
	s.judgedBefore = func(i int) *judge.Judged {
		before := v.acting.volumes[i].Judged
		if carrying[before.Volume.Name] || profiles.Selects(name, before.Volume, s.volumeClaimOf(before.Volume)) {
			return nil
		}
		return before
	}
	planner := newPlanner(s)
	return planner, concernedBy(planner.volumes)[name]
}

// concernedBy are the volumes that concern each profile: that it selects, or that carry something of it.
func concernedBy(volumes []judged) map[string][]*judged {
	out := map[string][]*judged{}
	for i := range volumes {
		j := &volumes[i]
		names := slices.Concat(j.verdict.Profiles, j.Record.Profiles, j.NamedProfiles())
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			out[name] = append(out[name], j)
		}
	}
	return out
}

func (v *View) staleMounts(planner *planner, name string, volumes []Volume) Stale {
	if planner != v.acting {
		return countStale(carriedBy(name, volumes), v.snapshot.ClientNodes)[name]
	}
	if v.stale == nil {
		v.stale = v.findStaleMounts()
	}
	return v.stale[name]
}

func (v *View) findStaleMounts() map[string]Stale {
	all := carried{}
	for _, j := range v.acting.volumes {
		if j.verdict.State == judge.StateUpToDate {
			all[j.Volume.Name] = j.verdict.Carried
		}
	}
	return countStale(all, v.snapshot.ClientNodes)
}
