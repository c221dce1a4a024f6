package fleet

import "github.com/storageclient/operator/api/v1alpha1"

// TimesHealed is how often a setting has been set again between two of its statuses. A drift record that has begun anew
// counts from nothing.
func TimesHealed(before, after v1alpha1.SettingStatus) int32 {
	switch {
	case after.Drift == nil:
		return 0
	case before.Drift == nil || after.Drift.Count < before.Drift.Count:
		return after.Drift.Count
	}
	return after.Drift.Count - before.Drift.Count
}

// HasDrifted reports whether something else keeps a setting from its wanted value, now or at the next boot.
func HasDrifted(state v1alpha1.SettingState) bool {
	return state == v1alpha1.SettingDrifted || state == v1alpha1.SettingShadowed
}
