package standing

import "github.com/storageclient/operator/api/v1alpha1"

// Drift compares two reports on a setting: healed is the number of changes by something else that the agent corrected in between, started
// is true if the setting has just begun to differ from its desired value, now or at the next boot. before is nil if the earlier
// report has no such setting.
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

// differs reports whether something else keeps a setting from its desired value.
func differs(s v1alpha1.SettingStatus) bool {
	switch Of(s, false) {
	case Drifted, Unstaged, Overridden, OverriddenAtBoot:
		return true
	case Effective, Deferred, Restoring, RestoreAtBoot, Unavailable, PendingReboot, Proving, Unproven, Applying, RestoreFailed, Failed:
	}
	return false
}
