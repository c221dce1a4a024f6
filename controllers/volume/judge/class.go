package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// provisionedBy is the annotation that a provisioner sets on its volumes. The provisioner copies the mount options of the StorageClass to them.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// followClass gives each rule that follows a StorageClass the options of the class in addition to the rule's options, which win.
func followClass(family mountoptions.Protocol, class []string, rules []rule) []rule {
	out := slices.Clone(rules)
	for i := range out {
		if !out[i].follows() {
			continue
		}
		out[i].followed = nil
		out[i].followed = append([]string{}, family.Join(out[i].options(), mountoptions.SplitOptions(class)).Options...)
	}
	return out
}

func (s *scope) followRules() []rule {
	if !s.HasClass || !slices.ContainsFunc(s.rules, rule.follows) {
		return s.rules
	}
	return followClass(s.target.options, s.knownOfClass(), s.rules)
}

// knownOfClass returns the options of the class. It omits unknown options that are already in the original mount options: these stay there.
func (s *scope) knownOfClass() []string {
	original := mountoptions.SplitOptions(s.base)
	return slices.DeleteFunc(mountoptions.SplitOptions(s.Class), func(o string) bool {
		return !s.target.options.Knows(o) && slices.Contains(original, o)
	})
}

// withoutFormerClass returns the original mount options without options that the class no longer has. On a provisioned volume, these are all options
// that are not in the class, except options that protect the volume, and options that no profile may set if the class has any options.
func (s *scope) withoutFormerClass() []string {
	if s.Volume.Annotations[provisionedBy] == "" || !s.HasClass || !slices.ContainsFunc(s.rules, func(r rule) bool {
		return r.follows() && r.OnConflict != v1alpha1.ConflictKeepVolume
	}) {
		return s.base
	}
	class, original := mountoptions.SplitOptions(s.Class), mountoptions.SplitOptions(s.base)
	remaining := slices.DeleteFunc(slices.Clone(original), func(o string) bool {
		maySet := s.target.options.Join(nil, []string{o}).Changed
		values := lists.Each(s.target.options.Settings([]string{o}), func(s mountoptions.Setting) string { return s.Option })
		return len(s.target.rivalsIn(class, values...)) == 0 && (maySet || len(class) == 0) && !s.target.options.Protects(o)
	})
	if len(remaining) == len(original) {
		return s.base
	}
	return remaining
}

// blockClass blocks volumes of rules that follow a missing class, or a class with options that no profile may set.
func (s *scope) blockClass() (Verdict, bool) {
	at := slices.IndexFunc(s.rules, rule.follows)
	if at < 0 {
		return Verdict{}, false
	}
	name := s.rules[at].profile.Name + "/" + s.rules[at].Name
	switch class := s.Volume.Spec.StorageClassName; {
	case class == "":
		return blockedFor(v1alpha1.VolumeReasonNoClass, fmt.Sprintf(
			"Not changed: rule %s uses the options of the StorageClass, and the volume has no StorageClass; exclude it from the rule's selector", name)), true
	case !s.HasClass:
		return blockedFor(v1alpha1.VolumeReasonNoClass, fmt.Sprintf("StorageClass %s does not exist; rule %s uses its options; "+
			"mountOptions stay %s until it exists", class, name, listText(s.current))), true
	}
	if problems := s.classProblems(); len(problems) > 0 {
		return blockedFor(v1alpha1.VolumeReasonInvalidOptions, fmt.Sprintf("StorageClass %s has options that rule %s must not set: %s",
			s.Volume.Spec.StorageClassName, name, text.Join(problems, "; "))), true
	}
	return Verdict{}, false
}

// classProblems returns the problems of class options that the original mount options do not contain.
func (s *scope) classProblems() []string {
	original := mountoptions.SplitOptions(s.base)
	added := slices.DeleteFunc(s.knownOfClass(), func(o string) bool { return slices.Contains(original, o) })
	return lists.Each(mountoptions.Errors(s.target.options, added), func(p mountoptions.Problem) string { return strings.TrimSpace(p.Option + " " + p.Message) })
}

func (s *scope) classText() string {
	if !slices.ContainsFunc(s.rules, rule.follows) {
		return ""
	}
	return " and StorageClass " + s.Volume.Spec.StorageClassName
}
