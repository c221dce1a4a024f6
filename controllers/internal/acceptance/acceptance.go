// Package acceptance says whether a node would be accepted after a boot. The rollout asks it before it claims a node, before it
// permits the reboot and once the node is back, and previews count by it: one answer, so that no node is rebooted in vain.
package acceptance

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// Setting is a wanted setting, and what its agent says of it.
type Setting struct {
	Key, Message string
}

// Verdict is how the wanted settings of a node stand, by what a boot makes of them. What is in none of the lists is read back,
// or waits for no boot. All lists are sorted by key.
type Verdict struct {
	// Refused are those that neither a boot nor time brings: they failed, or only a boot could bring them and another file wins there.
	Refused []Setting
	// Unstaged are boot settings that the next boot would not bring as things stand. The agent stages them again, unless it
	// leaves them alone.
	Unstaged []Setting
	// Awaited come with the boot, or by themselves after it.
	Awaited []Setting
	// Exceptions hold no boot back and fail none: the node cannot take them (Clamped, Unsupported), or another file sets them at
	// boot and the agent sets them again after it (Shadowed).
	Exceptions []Setting
	// Drifted are live values that something else keeps changing. A boot is no remedy for that, and no cause.
	Drifted []Setting
}

// Judge judges what the agent reports of the wanted settings. A setting that it does not report is awaited.
func Judge(wanted []v1alpha1.NodeSetting, reported []v1alpha1.SettingStatus) Verdict {
	var out Verdict
	for i, s := range wanted {
		report := reportOn(s.Key, reported, i)
		if list := out.listOf(report); list != nil {
			*list = append(*list, Setting{Key: s.Key, Message: report.Message})
		}
	}
	for _, list := range []*[]Setting{&out.Refused, &out.Unstaged, &out.Awaited, &out.Exceptions, &out.Drifted} {
		slices.SortFunc(*list, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	}
	return out
}

// reportOn is what is reported of a setting, nothing where nothing is. Agents report in the order that they are asked in: at is where it
// stands then.
func reportOn(key string, reported []v1alpha1.SettingStatus, at int) *v1alpha1.SettingStatus {
	if at >= len(reported) || reported[at].Key != key {
		at = slices.IndexFunc(reported, func(s v1alpha1.SettingStatus) bool { return s.Key == key })
	}
	if at < 0 {
		return &v1alpha1.SettingStatus{}
	}
	return &reported[at]
}

// listOf is the list that a setting belongs to, nil where it has its value or waits for something that is no boot.
func (v *Verdict) listOf(s *v1alpha1.SettingStatus) *[]Setting {
	boots := s.TakesEffect == v1alpha1.EffectReboot
	switch s.State {
	case v1alpha1.SettingInSync:
		return nil
	case v1alpha1.SettingClamped, v1alpha1.SettingUnsupported:
		return &v.Exceptions
	case v1alpha1.SettingFailed:
		return &v.Refused
	case v1alpha1.SettingShadowed:
		if boots {
			return &v.Refused
		}
		return &v.Exceptions
	case v1alpha1.SettingDrifted:
		if boots {
			return &v.Unstaged
		}
		return &v.Drifted
	case v1alpha1.SettingPending:
		if s.TakesEffect == v1alpha1.EffectNextMount || s.TakesEffect == v1alpha1.EffectNewTransport || catalogue.IsUnconfirmed(*s) {
			return nil
		}
	}
	return &v.Awaited
}

// IsAccepted reports whether every value has been read back, but for what no boot decides on.
func (v Verdict) IsAccepted() bool {
	return len(v.Refused)+len(v.Unstaged)+len(v.Awaited) == 0
}

// Obstacles are the settings that would keep the node from being accepted after the next boot.
func (v Verdict) Obstacles() []Setting {
	return slices.Concat(v.Refused, v.Unstaged)
}

// Missing are the settings that keep the node from being accepted now.
func (v Verdict) Missing() []Setting {
	return slices.Concat(v.Refused, v.Unstaged, v.Awaited)
}

// Describe names settings with what is said of them: the file that is in the way, or why one failed.
func Describe(settings []Setting) string {
	var out []string
	for _, s := range settings {
		out = append(out, strings.TrimSuffix(s.Key+": "+s.Message, ": "))
	}
	return text.Join(out, "; ")
}
