package standing

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// Setting is a setting of a node that is not Effective.
type Setting struct {
	Key, Message string
	Standing     Standing
	// boots is true if the setting takes effect at the next boot.
	boots bool
}

// Report is how the settings of a node stand.
type Report struct {
	// Settings are those that are not Effective, sorted by key.
	Settings []Setting
	// Applying is true until the agent has reported on the settings that the spec holds.
	Applying bool
	// Withheld is true while boot settings are left out of the spec, since a permitted reboot did not bring them.
	Withheld bool
}

// Read reads how the settings of a node stand. With the name of a profile it covers those that come from this profile, with an empty
// one all, and those that the spec no longer holds.
func Read(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus, profile string) Report {
	r := Report{Applying: status.Hash != spec.Hash || status.ObservedGeneration == 0, Withheld: isWithheld(spec, status)}
	found := 0
	for i := range spec.Settings {
		key := spec.Settings[i].Key
		at := indexOf(key, status.Settings, i)
		if at >= 0 {
			found++
		}
		if profile != "" && spec.Settings[i].Profile != profile {
			continue
		}
		due := slices.Contains(status.RebootRequiredBy, key)
		switch {
		case at < 0:
			r.Settings = append(r.Settings, Setting{Key: key, Standing: Applying})
		case due || status.Settings[at].State != v1alpha1.SettingInSync:
			r.add(&status.Settings[at], Of(status.Settings[at], due))
		}
	}
	if profile == "" && found < len(status.Settings) {
		r.addRemoved(spec, status)
	}
	slices.SortFunc(r.Settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return r
}

// indexOf returns the index of the report on a setting, or -1. Agents report in the order of the spec: at is its index then.
func indexOf(key string, reported []v1alpha1.SettingStatus, at int) int {
	if at < len(reported) && reported[at].Key == key {
		return at
	}
	return slices.IndexFunc(reported, func(s v1alpha1.SettingStatus) bool { return s.Key == key })
}

func (r *Report) add(s *v1alpha1.SettingStatus, standing Standing) {
	r.Settings = append(r.Settings, Setting{Key: s.Key, Message: s.Message, Standing: standing, boots: s.TakesEffect == v1alpha1.EffectReboot})
}

func (r *Report) addRemoved(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus) {
	for i := range status.Settings {
		s := &status.Settings[i]
		if !slices.ContainsFunc(spec.Settings, func(wanted v1alpha1.NodeSetting) bool { return wanted.Key == s.Key }) {
			r.add(s, ofRemoved(*s))
		}
	}
}

// isWithheld reports whether the spec lacks boot settings that a permitted reboot did not bring. bootHash still names them, so that nothing
// is tried twice.
func isWithheld(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus) bool {
	if !BootedInVain(spec, status) {
		return false
	}
	_, carried := nodesettings.Hashes(spec.Settings)
	return carried != spec.BootHash
}

// BootedInVain reports whether a permitted reboot did not bring the boot settings that the spec asks for.
func BootedInVain(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus) bool {
	rollout := status.Rollout
	return rollout != nil && rollout.Phase == v1alpha1.RolloutFailed && rollout.Reason == v1alpha1.RolloutReasonRebootWithoutEffect &&
		rollout.BootHash == spec.BootHash
}

// Select returns the settings with one of the standings, sorted by key.
func (r Report) Select(standings ...Standing) []Setting {
	return r.filter(func(s Setting) bool { return slices.Contains(standings, s.Standing) })
}

// Keys returns the keys of the settings with one of the standings, sorted.
func (r Report) Keys(standings ...Standing) []string { return keysOf(r.Select(standings...)) }

// Has reports whether a setting has one of the standings.
func (r Report) Has(standings ...Standing) bool {
	return slices.ContainsFunc(r.Settings, func(s Setting) bool { return slices.Contains(standings, s.Standing) })
}

// Exceptions returns the keys of the settings that differ from what is declared, and are accepted like that.
func (r Report) Exceptions() []string {
	return keysOf(r.filter(func(s Setting) bool { return s.Standing.Exception() }))
}

// Worst returns the worst standing of all settings.
func (r Report) Worst() Standing { return worstOf(r.Settings) }

func worstOf(settings []Setting) Standing {
	worst := Effective
	for _, s := range settings {
		worst = max(worst, s.Standing)
	}
	return worst
}

// Reason returns the reason of the conditions that sum up the settings, if nothing else is to be said of the node.
func (r Report) Reason() string {
	if r.Withheld {
		return v1alpha1.NodeReasonSettingsFailed
	}
	return rules[r.Worst()].reason
}

// IsTuned reports whether every setting has its desired value, exceptions aside.
func (r Report) IsTuned() bool { return !r.Applying && !r.Withheld && r.all(Standing.Tuned) }

// IsTaken reports whether the agent has applied the settings without a failure: what is live, and staged what takes effect later.
func (r Report) IsTaken() bool { return !r.Applying && !r.Withheld && r.all(Standing.Taken) }

// HasFailed reports whether settings failed that the node should have.
func (r Report) HasFailed() bool { return r.Withheld || r.Has(Failed) }

// Soaks reports whether the time in which the settings stand like this counts as the soak of a canary. A removal that failed says nothing
// about the settings that the node should have.
func (r Report) Soaks() bool {
	return r.IsTaken() && worstOf(r.filter(func(s Setting) bool { return s.Standing != RestoreFailed })).Soaks()
}

func (r Report) all(accepts func(Standing) bool) bool {
	return !slices.ContainsFunc(r.Settings, func(s Setting) bool { return !accepts(s.Standing) })
}

// Obstacles returns the settings for which the node must not be rebooted: a boot would not bring them, or the boot configuration still has a
// removed one, since it could not be written. After a boot such a removal is held against no node.
func (r Report) Obstacles() []Setting {
	return r.filter(func(s Setting) bool {
		return s.Standing.Boot() == BootObstacle || s.Standing == RestoreFailed && s.boots
	})
}

// Missing returns the settings that keep the node from being accepted after a boot.
func (r Report) Missing() []Setting {
	return r.filter(func(s Setting) bool { return s.Standing.Boot() != BootAccepted })
}

// IsAccepted reports whether the node is accepted with these settings after a boot.
func (r Report) IsAccepted() bool {
	return r.all(func(s Standing) bool { return s.Boot() == BootAccepted })
}

// Refused returns the settings that neither a boot nor time brings.
func (r Report) Refused() []Setting { return r.Select(Failed, OverriddenAtBoot) }

func (r Report) filter(keep func(Setting) bool) []Setting {
	var out []Setting
	for _, s := range r.Settings {
		if keep(s) {
			out = append(out, s)
		}
	}
	return out
}

func keysOf(settings []Setting) []string {
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.Key)
	}
	return keys
}

// String names the setting with its message: the file that overrides it, or the reason of a failure.
func (s Setting) String() string { return strings.TrimSuffix(s.Key+": "+s.Message, ": ") }

// Describe names settings with their messages.
func Describe(settings []Setting) string {
	var out []string
	for _, s := range settings {
		out = append(out, s.String())
	}
	return text.Join(out, "; ")
}
