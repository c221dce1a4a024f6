package standing

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// Setting is a setting of a node that is not Effective.
type Setting struct {
	Key, Message string
	Standing     Standing
	// boots reports whether the setting takes effect at the next boot.
	boots bool
	// connections are the connections that failed with the value.
	connections []string
}

// Report contains the standings of a node's settings.
type Report struct {
	// Settings are the settings that are not Effective, sorted by key.
	Settings []Setting
	// Applying is true until the agent has reported on the settings in the spec.
	Applying bool
	// Withheld is true while the spec omits settings that require a reboot, because a permitted reboot did not make them effective.
	Withheld bool
}

// Read returns the standings of a node's settings. With the name of a profile, it covers the settings of this profile. With an
// empty name, it covers all settings and the settings that are no longer in the spec.
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
		needsReboot := slices.Contains(status.RebootRequiredBy, key)
		switch {
		case at < 0:
			r.Settings = append(r.Settings, Setting{Key: key, Standing: Applying})
		case needsReboot || status.Settings[at].State != v1alpha1.SettingInSync:
			r.add(&status.Settings[at], Of(status.Settings[at], needsReboot))
		}
	}
	if profile == "" && found < len(status.Settings) {
		r.addRemoved(spec, status)
	}
	slices.SortFunc(r.Settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return r
}

// indexOf returns the index of the report on a setting, or -1. Agents report in the order of the spec, so at is the expected
// index.
func indexOf(key string, reported []v1alpha1.SettingStatus, at int) int {
	if at < len(reported) && reported[at].Key == key {
		return at
	}
	return slices.IndexFunc(reported, func(s v1alpha1.SettingStatus) bool { return s.Key == key })
}

func (r *Report) add(s *v1alpha1.SettingStatus, standing Standing) {
	r.Settings = append(r.Settings, Setting{
		Key:         s.Key,
		Message:     s.Message,
		Standing:    standing,
		boots:       s.TakesEffect == v1alpha1.EffectReboot,
		connections: s.FailedConnections,
	})
}

func (r *Report) addRemoved(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus) {
	for i := range status.Settings {
		s := &status.Settings[i]
		if !slices.ContainsFunc(spec.Settings, func(wanted v1alpha1.NodeSetting) bool { return wanted.Key == s.Key }) {
			r.add(s, ofRemoved(*s))
		}
	}
}

// isWithheld reports whether the spec omits settings because a permitted reboot did not make them effective. bootHash still covers
// them, so that the manager does not try them twice.
func isWithheld(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus) bool {
	if !RebootedWithoutEffect(spec, status) {
		return false
	}
	_, carried := nodesettings.Hashes(spec.Settings)
	return carried != spec.BootHash
}

// RebootedWithoutEffect reports whether a permitted reboot did not make the settings with the spec's bootHash effective.
func RebootedWithoutEffect(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus) bool {
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

// Exceptions returns the keys of the settings that differ from their declared value and are accepted.
func (r Report) Exceptions() []string {
	return keysOf(r.filter(func(s Setting) bool { return s.Standing.Exception() }))
}

func worstOf(settings []Setting) Standing {
	worst := Effective
	for _, s := range settings {
		worst = max(worst, s.Standing)
	}
	return worst
}

// Reason returns the reason of the conditions that summarize the settings, unless another fact about the node takes precedence.
func (r Report) Reason() string {
	if r.Withheld {
		return v1alpha1.NodeReasonSettingsFailed
	}
	return rules[worstOf(r.Settings)].reason
}

// IsTuned reports whether every setting has its desired value or is an exception.
func (r Report) IsTuned() bool { return !r.Applying && !r.Withheld && r.all(Standing.Tuned) }

// IsSettled reports whether the agent has applied or staged all settings without a failure.
func (r Report) IsSettled() bool { return !r.Applying && !r.Withheld && r.all(Standing.Settled) }

// HasFailed reports whether any desired setting has failed.
func (r Report) HasFailed() bool { return r.Withheld || r.Has(Failed) }

// Accuser returns the storage server whose word alone made all failed settings fail. Empty if there is another witness: the API server, a second
// server, or the kernel.
func (r Report) Accuser() string {
	failed := r.Select(Failed)
	if r.Withheld || len(failed) == 0 || len(failed[0].connections) != 1 || failed[0].connections[0] == v1alpha1.ConnectionAPIServer ||
		slices.ContainsFunc(failed, func(s Setting) bool { return !slices.Equal(s.connections, failed[0].connections) }) {
		return ""
	}
	return failed[0].connections[0]
}

// Soaks reports whether the time with these standings counts as the soak of a canary. A failed removal is ignored: it does not
// affect the desired settings.
func (r Report) Soaks() bool {
	return r.IsSettled() && worstOf(r.filter(func(s Setting) bool { return s.Standing != RestoreFailed })).Soaks()
}

func (r Report) all(accepts func(Standing) bool) bool {
	return !slices.ContainsFunc(r.Settings, func(s Setting) bool { return !accepts(s.Standing) })
}

// Obstacles returns the settings that forbid a reboot of the node. A boot would not make them effective, or their removal from the
// boot configuration failed. After a boot, a failed removal does not prevent the acceptance of the node.
func (r Report) Obstacles() []Setting {
	return r.filter(func(s Setting) bool {
		return s.Standing.Boot() == BootObstacle || s.Standing == RestoreFailed && s.boots
	})
}

// Missing returns the settings that prevent the acceptance of the node after a boot.
func (r Report) Missing() []Setting {
	return r.filter(func(s Setting) bool { return s.Standing.Boot() != BootAccepted })
}

// IsAccepted reports whether the node is accepted with these settings after a boot.
func (r Report) IsAccepted() bool {
	return r.all(func(s Standing) bool { return s.Boot() == BootAccepted })
}

// Ineffective returns the settings that neither a boot nor time makes effective.
func (r Report) Ineffective() []Setting { return r.Select(Failed, OverriddenAtBoot) }

func (r Report) filter(keep func(Setting) bool) []Setting { return lists.Filter(r.Settings, keep) }

func keysOf(settings []Setting) []string {
	return lists.Each(settings, func(s Setting) string { return s.Key })
}

// String returns the key with its message: the file that overrides the setting, or the reason of a failure.
func (s Setting) String() string { return strings.TrimSuffix(s.Key+": "+s.Message, ": ") }

// Describe returns the keys of settings with their messages.
func Describe(settings []Setting) string {
	return text.Join(lists.Each(settings, Setting.String), "; ")
}

// Drift compares two reports on a setting. healed is the number of external changes that the agent corrected in between. started
// reports whether the setting now differs from its desired value, or will at the next boot, and did not before. before is nil if
// the earlier report lacks the setting.
func Drift(before *v1alpha1.SettingStatus, after v1alpha1.SettingStatus) (healed int32, started bool) {
	if after.Drift != nil {
		healed = after.Drift.Count
		// A record that has started again counts from zero.
		if before != nil && before.Drift != nil && before.Drift.Count <= healed {
			healed -= before.Drift.Count
		}
	}
	return healed, before != nil && !differs(*before) && differs(after)
}

// differs reports whether another program, user or file keeps a setting from its desired value.
func differs(s v1alpha1.SettingStatus) bool {
	return slices.Contains([]Standing{Drifted, Unstaged, Overridden, OverriddenAtBoot}, Of(s, false))
}
