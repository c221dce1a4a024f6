package plan

import (
	"slices"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/lists"
)

// View is an evaluation of all volumes of one Snapshot, for the summaries of any number of profiles. It computes shared results once. It is
// not safe for concurrent use. A nil View has no volumes.
type View struct {
	snapshot Snapshot
	// current uses the current profiles, acting the profiles without the global pause. Both are the same if there is no global pause.
	current, acting *planner
	// concerned are the volumes that concern each profile. Computed on demand.
	concerned map[string][]*evaluation
	// stale are the mounts from before a change, by profile. Computed on demand.
	stale map[string]Stale
}

// NewView evaluates all volumes.
func NewView(s Snapshot) *View {
	v := &View{snapshot: s}
	if s.Profiles == nil { // the profiles could not be read
		return v
	}
	v.current = newPlanner(s)
	v.acting = v.current
	if profiles, differ := s.Profiles.WithoutGlobalPause(); differ {
		s.Profiles, s.Memory = profiles, nil
		v.acting = newPlanner(s)
	}
	return v
}

// Summarize is the function Summarize for the snapshot of the View.
func (v *View) Summarize(name string) Summary {
	if v == nil || v.current == nil {
		return Summary{}
	}
	planner, volumes := v.actingPlanner(name)
	var out Summary
	parsed := transports{}
	for _, j := range volumes {
		out.addVolume(name, j)
		out.Servers = parsed.withServerOf(j, name, out.Servers)
		if (j.WasFailedFor(name) || slices.Contains(j.Record.Profiles, name)) && v.isUnrestored(j, planner) {
			out.Unrestored = append(out.Unrestored, j.Volume.Name)
		}
	}
	out.addBatches(v.snapshot.Profiles, planner.sets, name, volumes, v.snapshot.Now)
	out.addEvidence(planner, volumes, name)
	out.addProbes(planner, volumes, name)
	out.Stale = v.staleMounts(planner, name, out.Volumes)
	out.LeftOut = planner.leftOut(name, planner.volumes)
	slices.Sort(out.Unrestored)
	out.BlockedExamples, out.ExceptionExamples = firstOf(out.BlockedExamples), firstOf(out.ExceptionExamples)
	return out
}

// ReadAheads returns the read-ahead windows that a profile sets, by volume.
func (v *View) ReadAheads(name string) map[string]judge.ReadAhead {
	out := map[string]judge.ReadAhead{}
	if v == nil || v.current == nil {
		return out
	}
	_, volumes := v.actingPlanner(name)
	for _, j := range volumes {
		if m, concerned := j.mounted(); concerned && !m.KeepReadAhead && m.ReadAhead != nil && m.ReadAhead.Profile == name {
			out[j.Volume.Name] = *m.ReadAhead
		}
	}
	return out
}

// isUnrestored reports whether a volume must still be restored, by the current profiles.
func (v *View) isUnrestored(j *evaluation, p *planner) bool {
	verdict := j.verdict
	if p != v.current {
		verdict = &v.snapshot.evaluateAlone(j.Volume).Verdict
	}
	return verdict.State == judge.StatePending || verdict.State == judge.StateHeld || verdict.Action == judge.ActionRelease
}

// actingPlanner returns the planner as if the named profile acted, and the volumes that concern it. It does not evaluate other volumes again.
func (v *View) actingPlanner(name string) (*planner, []*evaluation) {
	if v.concerned == nil {
		v.concerned = concernedBy(v.acting.volumes)
	}
	profiles, differ := v.acting.Profiles.WithoutHold(name)
	if !differ {
		return v.acting, v.concerned[name]
	}
	carrying := lists.Map(v.concerned[name], func(j *evaluation) (string, bool) { return j.Volume.Name, true })
	s := v.snapshot
	s.Profiles, s.Memory = profiles, nil
	s.previousEvaluation = func(i int) *judge.Evaluation {
		before := v.acting.volumes[i].Evaluation
		if carrying[before.Volume.Name] || profiles.Selects(name, before.Volume, s.volumeClaimOf(before.Volume)) {
			return nil
		}
		return before
	}
	planner := newPlanner(s)
	return planner, concernedBy(planner.volumes)[name]
}

// concernedBy returns the volumes that concern each profile: the profile selects them, or they carry options or marks of it.
func concernedBy(volumes []evaluation) map[string][]*evaluation {
	out := map[string][]*evaluation{}
	for i := range volumes {
		j := &volumes[i]
		for _, name := range lists.Distinct(j.verdict.Profiles, j.Record.Profiles, j.NamedProfiles()) {
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
	all := map[string]map[string][]string{}
	for _, j := range v.acting.volumes {
		if j.verdict.State == judge.StateUpToDate {
			all[j.Volume.Name] = j.verdict.Carried
		}
	}
	return countStale(all, v.snapshot.ClientNodes)
}
