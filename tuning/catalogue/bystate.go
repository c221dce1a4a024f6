package catalogue

import "github.com/storageclient/operator/api/v1alpha1"

// ByState are the keys of settings by what an agent reports of them. What is in none of its lists is in force, or comes with the next mount.
type ByState struct {
	// Failed, Drifted and Exceptions are by state: Clamped, Unsupported and Shadowed are exceptions.
	Failed, Drifted, Exceptions []string
	// Shadowed are those of the exceptions that another file overrides.
	Shadowed []string
	// RebootPending take effect at the next boot only.
	RebootPending []string
	// Unconfirmed are live settings that new connections have yet to confirm.
	Unconfirmed []string
}

// Add files one setting.
func (b *ByState) Add(s v1alpha1.SettingStatus) {
	switch s.State {
	case v1alpha1.SettingFailed:
		b.Failed = append(b.Failed, s.Key)
	case v1alpha1.SettingDrifted:
		b.Drifted = append(b.Drifted, s.Key)
	case v1alpha1.SettingShadowed:
		b.Shadowed = append(b.Shadowed, s.Key)
		b.Exceptions = append(b.Exceptions, s.Key)
	case v1alpha1.SettingClamped, v1alpha1.SettingUnsupported:
		b.Exceptions = append(b.Exceptions, s.Key)
	case v1alpha1.SettingPending:
		if s.TakesEffect == v1alpha1.EffectReboot {
			b.RebootPending = append(b.RebootPending, s.Key)
		}
		if IsUnconfirmed(s) {
			b.Unconfirmed = append(b.Unconfirmed, s.Key)
		}
	case v1alpha1.SettingInSync:
	}
}
