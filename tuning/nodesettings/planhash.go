package nodesettings

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// released is part of the plan hash of a profile that is being deleted. The approval of a change is then not an approval of its
// removal.
const released = "released"

// PlanHash returns the hash of a profile's plan, which an approval of its reboots refers to. It covers the settings that take
// effect at boot, and the part of the spec that selects the disrupted nodes and controls their disruption. Empty for a profile
// without settings that take effect at boot.
func PlanHash(p *v1alpha1.StorageClientProfile) string {
	return hashOf(bootSettings(Settings(p)), marksOf(p, disruptionText(p))...)
}

// IsApproved reports whether a profile approves the plan with a hash, by the annotation or by the field.
func IsApproved(p *v1alpha1.StorageClientProfile, hash string) bool {
	return p.Annotations[v1alpha1.ApprovedPlanAnnotation] == hash || p.Spec.Rollout.Reboot.ApprovedPlan == hash
}

// BootSettingsHash returns the hash of a profile's settings that require a reboot, for which failures are recorded.
func BootSettingsHash(p *v1alpha1.StorageClientProfile) string {
	return hashOf(bootSettings(Settings(p)), marksOf(p)...)
}

func marksOf(p *v1alpha1.StorageClientProfile, marks ...string) []string {
	if !p.DeletionTimestamp.IsZero() {
		return append(marks, released)
	}
	return marks
}

// disruptionText returns the part of a spec, without its settings, that selects the disrupted nodes and controls their disruption.
// Specs with the same meaning have the same text. The text must never change for an unchanged profile: see the package's testdata.
// New fields of the spec are included unless this function removes them.
func disruptionText(p *v1alpha1.StorageClientProfile) string {
	spec := p.Spec.WithDefaults()
	spec.Mode, spec.Paused, spec.OnUnsupported, spec.Node, spec.Volumes = "", false, "", nil, nil
	rollout := &spec.Rollout
	rollout.MaxConcurrentLive, rollout.Volumes = nil, nil
	rollout.Reboot.Policy, rollout.Reboot.ApprovedPlan = "", ""

	spec.NodeSelector = *sortSelector(&spec.NodeSelector)
	rollout.Canary.NodeSelector = sortSelector(rollout.Canary.NodeSelector)
	rollout.Drain.WaitForPodSelector = sortSelector(rollout.Drain.WaitForPodSelector)
	slices.SortFunc(rollout.Windows, func(a, b v1alpha1.Window) int {
		return cmp.Or(strings.Compare(a.Schedule, b.Schedule), strings.Compare(a.TimeZone, b.TimeZone),
			cmp.Compare(a.DurationSeconds, b.DurationSeconds))
	})
	rollout.Windows = slices.Compact(rollout.Windows)
	return marshalSorted(spec)
}

// sortSelector returns the canonical form of selectors with the same terms: expressions, sorted.
func sortSelector(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil {
		return nil
	}
	var terms []metav1.LabelSelectorRequirement
	for key, value := range selector.MatchLabels {
		terms = append(terms, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	for _, term := range selector.MatchExpressions {
		term.Values = slices.Compact(slices.Sorted(slices.Values(term.Values)))
		terms = append(terms, term)
	}
	compare := func(a, b metav1.LabelSelectorRequirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	}
	slices.SortFunc(terms, compare)
	same := func(a, b metav1.LabelSelectorRequirement) bool { return compare(a, b) == 0 }
	return &metav1.LabelSelector{MatchExpressions: slices.CompactFunc(terms, same)}
}

// marshalSorted returns JSON with sorted keys, so that the order of the fields in the API's types does not matter. A spec contains
// only plain data: its encoding cannot fail.
func marshalSorted(spec v1alpha1.StorageClientProfileSpec) string {
	var sorted map[string]any
	if err := json.Unmarshal([]byte(text.JSON(spec)), &sorted); err != nil {
		panic(err)
	}
	// Earlier releases encoded an empty selector, which selected all nodes.
	if _, ok := sorted["nodeSelector"]; !ok {
		sorted["nodeSelector"] = map[string]any{}
	}
	// They also had these fields, with these defaults.
	rollout := sorted["rollout"].(map[string]any)
	drain := rollout["drain"].(map[string]any)
	rollout["onNodeFailure"], drain["onTimeout"], drain["waitForJobs"], drain["gracePeriodSeconds"] = "KeepCordoned", "Release", true, -1
	return text.JSON(sorted)
}

// TakesEffectAtBoot reports whether a setting with the key takes effect only at boot.
func TakesEffectAtBoot(key string) bool {
	return catalogue.Key(key).AtBoot()
}

// Hashes returns two hashes of a set of settings by their keys and values. hash covers all settings, bootHash only the settings
// that take effect at boot. A hash has 16 hexadecimal digits and is empty for an empty set. The profile and the order of the
// settings do not matter.
func Hashes(settings []v1alpha1.NodeSetting) (hash, bootHash string) {
	return hashOf(settings), hashOf(bootSettings(settings))
}

func bootSettings(settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	return slices.DeleteFunc(slices.Clone(settings), func(s v1alpha1.NodeSetting) bool { return !TakesEffectAtBoot(s.Key) })
}

// hashOf must never change: see the package's testdata.
func hashOf(settings []v1alpha1.NodeSetting, marks ...string) string {
	if len(settings) == 0 {
		return ""
	}
	lines := lists.Each(slices.SortedFunc(slices.Values(settings), byKey), func(s v1alpha1.NodeSetting) string { return s.Key + "=" + s.Value })
	return text.Hash(strings.Join(append(lines, marks...), "\n")+"\n", 8)
}
