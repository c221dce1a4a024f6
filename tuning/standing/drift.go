package standing

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

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
