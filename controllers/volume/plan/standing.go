package plan

import (
	"maps"
	"slices"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Standing is the state of a volume in output for users. The status of profiles and all commands use it.
type Standing string

const (
	// StandingUpToDate means that the volume has the declared options.
	StandingUpToDate Standing = "UpToDate"
	// StandingPending means that the volume must be written.
	StandingPending Standing = "Pending"
	// StandingException means that the volume differs from the declared options because the rules, or the pause of another profile, allow it.
	StandingException Standing = "Exception"
	// StandingBlocked means that the volume differs from the declared options until a user resolves the cause.
	StandingBlocked Standing = "Blocked"
	// StandingHeld means that the volume stays unchanged because its profile does not act.
	StandingHeld Standing = "Held"
)

// Standings are all standings, in the order of summaries.
var Standings = []Standing{StandingUpToDate, StandingPending, StandingException, StandingBlocked, StandingHeld}

// standingFor returns the standing of a volume for the named profiles, which count as acting, and its explanation. Without names, it is the standing
// for all profiles as they are. An option of another profile, or a write for it, is no difference for the named ones.
func (j evaluation) standingFor(names ...string) (standing Standing, message string) {
	v := j.verdict
	if v.State == judge.StateHeld && len(names) == 0 {
		return StandingHeld, v.Message
	}
	switch v.State {
	case judge.StateHeld:
		return StandingException, v.Message
	case judge.StateBlocked:
		if v.Exceptions == nil {
			return StandingBlocked, v.Message
		}
	case judge.StatePending:
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !j.hasOptionsOf(name) }) {
			return StandingPending, v.Message
		}
	case judge.StateUnselected:
		return StandingPending, v.Message
	case judge.StateUpToDate:
	}
	if differences := differencesFrom(v, names); len(differences) > 0 {
		return StandingException, text.Join(differences, "; ")
	}
	return StandingUpToDate, v.Message
}

// hasOptionsOf reports whether a pending write takes and adds none of the options of a profile: the volume waits for another one.
func (j evaluation) hasOptionsOf(profile string) bool {
	current, v := j.Volume.Spec.MountOptions, j.verdict
	return v.Action == judge.ActionWrite &&
		!slices.ContainsFunc(v.Carried[profile], func(o string) bool { return !slices.Contains(current, o) }) &&
		!slices.ContainsFunc(current, func(o string) bool { return !slices.Contains(v.Options, o) })
}

// differencesFrom returns the differences from the named profiles that their rules allow, sorted. Without names, it returns those from all profiles.
func differencesFrom(v judge.Verdict, names []string) []string {
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(v.Exceptions))
	}
	return lists.Distinct(lists.Each(names, func(name string) []string { return v.Exceptions[name] })...)
}
