// Package fleet merges the settings that all profiles declare for a node, and reads the progress of the node from its StorageClientNode. All
// controllers share it, so that they make the same decisions. It works on the objects that it is given; package read reads them.
package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// Profile is a profile with the data that nodes need.
type Profile struct {
	*v1alpha1.StorageClientProfile
	Phase  match.Phase
	Paused bool
	// InvalidReason and InvalidMessage are the results of match.Check: the reason why the profile may not be applied.
	InvalidReason, InvalidMessage string
	selector                      match.Selector
}

// Selects reports whether the profile's selector, control-plane rule and operating system fit a node.
func (p *Profile) Selects(node *corev1.Node) bool { return p.selector.Matches(node) }

// LacksControlPlane reports whether the profile selects a control-plane node, and the installation excludes it.
func (p *Profile) LacksControlPlane(node *corev1.Node) bool {
	return p.Spec.IncludeControlPlane && match.IsControlPlane(node) && !p.Selects(node) &&
		match.SelectorOf(p.StorageClientProfile, catalogue.AllowList{}).Matches(node)
}

// ProfileSet contains all profiles at one time. It serves any number of nodes, in any number of goroutines.
type ProfileSet struct {
	profiles []*Profile
	byName   map[string]*Profile
	index    selectorIndex
	// paused are the paused profiles; held is true if any profile is Held.
	paused  []*Profile
	hasHeld bool
	// merged caches merge results. A result depends only on the profiles and on the current values of the keys about which they disagree, so
	// thousands of nodes share a few results. disputed caches those keys.
	merged   *store.Pool[nodesettings.Result]
	disputed *store.Pool[[]string]
}

// maxMerged is the maximum number of cached merge results in a set.
const maxMerged = 1 << 13

// NewProfileSet returns a set of all current profiles. It keeps the elements of the slice, but not the slice.
func NewProfileSet(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList) *ProfileSet {
	list := make([]*Profile, len(profiles))
	for i := range profiles {
		list[i] = newProfile(&profiles[i], allow)
	}
	return newProfileSet(list)
}

func newProfile(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) *Profile {
	p := &Profile{StorageClientProfile: profile, Paused: match.IsProfilePaused(profile), selector: match.SelectorOf(profile, allow)}
	p.InvalidReason, p.InvalidMessage = match.Check(profile, allow)
	p.Phase = match.PhaseOfChecked(profile, p.InvalidReason)
	return p
}

func newProfileSet(profiles []*Profile) *ProfileSet {
	set := &ProfileSet{
		profiles: profiles, byName: make(map[string]*Profile, len(profiles)),
		merged: store.NewPool[nodesettings.Result](maxMerged), disputed: store.NewPool[[]string](maxMerged),
	}
	slices.SortFunc(set.profiles, byName)
	for _, profile := range set.profiles {
		set.byName[profile.Name] = profile
		set.hasHeld = set.hasHeld || profile.Phase == match.Held
		if profile.Paused {
			set.paused = append(set.paused, profile)
		}
	}
	set.index = newSelectorIndex(set.profiles)
	return set
}

func byName(a, b *Profile) int { return cmp.Compare(a.Name, b.Name) }

// Acting returns a copy of the set in which one profile is active, regardless of its mode and its pause.
func (s *ProfileSet) Acting(name string) *ProfileSet {
	profiles := slices.Clone(s.profiles)
	for i, profile := range profiles {
		if profile.Name == name {
			acting := *profile
			acting.Phase, acting.Paused = match.Active, false
			profiles[i] = &acting
		}
	}
	return newProfileSet(profiles)
}

// With returns the set with the current version of one profile. It returns the same set if the declaration has not changed.
func (s *ProfileSet) With(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) *ProfileSet {
	known := s.byName[profile.Name]
	if known != nil && match.IsSameDeclaration(known.StorageClientProfile, profile) {
		return s
	}
	profiles := slices.DeleteFunc(slices.Clone(s.profiles), func(p *Profile) bool { return p == known })
	return newProfileSet(append(profiles, newProfile(profile.DeepCopy(), allow)))
}

// ByName returns a profile by its name, or nil.
func (s *ProfileSet) ByName(name string) *Profile { return s.byName[name] }

// All returns all profiles, sorted by name. The caller must not change the slice.
func (s *ProfileSet) All() []*Profile { return s.profiles }

// Desired contains the settings that the profiles declare for a node.
type Desired struct {
	// Managed is false if no profile has settings for the node, so that the node must be released.
	Managed bool
	// Profiles are the names of the profiles that contribute, sorted.
	Profiles []string
	nodesettings.Result
}

// Desired merges the settings that the profiles declare for a node. Settings in clientNode that come from a Held profile stay. If profiles of equal
// priority disagree, the current value stays. clientNode is nil if the node is not managed.
func (s *ProfileSet) Desired(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) Desired {
	inForce := currentSettings(clientNode)
	contributing := s.heldSources(inForce)
	hasHeld := len(contributing) > 0
	contributing = append(contributing, lists.Filter(s.Selecting(node), func(p *Profile) bool { return p.Phase == match.Active })...)
	slices.SortFunc(contributing, byName)
	wanted := Desired{Managed: len(contributing) > 0, Profiles: lists.Each(contributing, func(p *Profile) string { return p.Name })}
	wanted.Result = s.mergeProfiles(contributing, strings.Join(wanted.Profiles, "\n")+"\n", hasHeld, inForce)
	return wanted
}

// heldSources returns the Held profiles whose settings the node has.
func (s *ProfileSet) heldSources(inForce []v1alpha1.NodeSetting) []*Profile {
	if !s.hasHeld {
		return nil
	}
	var sources []*Profile
	for _, setting := range inForce {
		if profile := s.byName[setting.Profile]; profile != nil && profile.Phase == match.Held && !slices.Contains(sources, profile) {
			sources = append(sources, profile)
		}
	}
	return sources
}

// Selecting returns the profiles that select a node, regardless of their state, sorted by name.
func (s *ProfileSet) Selecting(node *corev1.Node) []*Profile {
	selecting := slices.DeleteFunc(s.index.candidates(node), func(p *Profile) bool { return !p.Selects(node) })
	slices.SortFunc(selecting, byName)
	return selecting
}

// Concerning returns the profiles that select a node, and the profiles whose settings it has, sorted by name.
func (s *ProfileSet) Concerning(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) []*Profile {
	return s.withSources(s.Selecting(node), clientNode)
}

// Carried returns the profiles whose settings a node has, sorted by name.
func (s *ProfileSet) Carried(clientNode *v1alpha1.StorageClientNode) []*Profile {
	return s.withSources(nil, clientNode)
}

func (s *ProfileSet) withSources(profiles []*Profile, clientNode *v1alpha1.StorageClientNode) []*Profile {
	for _, name := range SourcesOf(clientNode) {
		if profile := s.byName[name]; profile != nil && !slices.Contains(profiles, profile) {
			profiles = append(profiles, profile)
		}
	}
	slices.SortFunc(profiles, byName)
	return profiles
}

func (s *ProfileSet) mergeProfiles(profiles []*Profile, names string, hasHeld bool, inForce []v1alpha1.NodeSetting) nodesettings.Result {
	if len(profiles) == 0 {
		return nodesettings.Result{}
	}
	if hasHeld {
		return s.mergeUncached(profiles, inForce)
	}
	keys := s.disputed.Share(names, func() []string {
		disputed := lists.Each(s.mergeUncached(profiles, inForce).Conflicts, func(conflict nodesettings.Conflict) string { return conflict.Key })
		return append(disputed, lists.Each(disputed, catalogue.CounterpartKey)...)
	})
	return s.merged.Share(names+describeCurrent(keys, inForce), func() nodesettings.Result { return s.mergeUncached(profiles, inForce) })
}

func (s *ProfileSet) mergeUncached(profiles []*Profile, inForce []v1alpha1.NodeSetting) nodesettings.Result {
	declared, holding := make([]v1alpha1.StorageClientProfile, 0, len(profiles)), sets.New[string]()
	for _, profile := range profiles {
		declared = append(declared, *profile.StorageClientProfile)
		if profile.Phase == match.Held {
			holding.Insert(profile.Name)
		}
	}
	result := nodesettings.MergeHolding(declared, inForce, holding)
	s.keepHeldPolicies(result.Settings, inForce)
	return result
}

// describeCurrent encodes the current settings of some keys.
func describeCurrent(keys []string, inForce []v1alpha1.NodeSetting) string {
	var out strings.Builder
	for _, setting := range inForce {
		if slices.Contains(keys, setting.Key) {
			fmt.Fprintf(&out, "%q\n", setting)
		}
	}
	return out.String()
}

// keepHeldPolicies keeps onRemoval of a held profile's settings unchanged: a hold makes no changes.
func (s *ProfileSet) keepHeldPolicies(settings, inForce []v1alpha1.NodeSetting) {
	for i := range settings {
		profile := s.byName[settings[i].Profile]
		if profile == nil || profile.Phase != match.Held {
			continue
		}
		for _, old := range inForce {
			if old.Key == settings[i].Key {
				settings[i].OnRemoval = old.OnRemoval
			}
		}
	}
}

// SourcesOf returns the names of the profiles whose settings a node has, sorted.
func SourcesOf(clientNode *v1alpha1.StorageClientNode) []string {
	var sources []string
	for _, setting := range currentSettings(clientNode) {
		if last := len(sources) - 1; last < 0 || sources[last] != setting.Profile {
			sources = append(sources, setting.Profile)
		}
	}
	slices.Sort(sources)
	return slices.Compact(sources)
}

// CarriesSettingsOf reports whether a node has settings of a profile.
func CarriesSettingsOf(profile string, clientNode *v1alpha1.StorageClientNode) bool {
	return slices.ContainsFunc(currentSettings(clientNode), func(s v1alpha1.NodeSetting) bool { return s.Profile == profile })
}

func currentSettings(clientNode *v1alpha1.StorageClientNode) []v1alpha1.NodeSetting {
	if clientNode == nil {
		return nil
	}
	return clientNode.Spec.Settings
}

// IsPlanApproved reports whether the plan of a profile is approved, by the annotation or by the field.
func IsPlanApproved(profile *v1alpha1.StorageClientProfile) bool {
	hash := nodesettings.PlanHash(profile)
	return hash != "" && nodesettings.IsApproved(profile, hash)
}

// ProfileSets caches the last set of profiles while their declarations are unchanged, and reuses all unchanged profiles in the next set. Profiles
// are checked and merged once, not for every node and every pass. Any number of goroutines may share one; the zero value is empty.
type ProfileSets struct {
	checked store.Pool[*Profile]
	set     store.Memo[profileList, *ProfileSet]
}

// profileList is a list of profiles, sorted by name.
type profileList []*Profile

// IsSame implements the comparison of store.Memo.
func (l profileList) IsSame(newer profileList) bool { return slices.Equal(l, newer) }

// Of returns the set of all current profiles. Their status is the status of the version that was checked. The set keeps no reference to its
// arguments. allow must be the same at every call.
func (s *ProfileSets) Of(profiles []*v1alpha1.StorageClientProfile, allow catalogue.AllowList) *ProfileSet {
	s.checked.Limit(len(profiles))
	list := make(profileList, len(profiles))
	for i, profile := range profiles {
		list[i] = s.checked.Update(profile.Name, func(known *Profile, found bool) *Profile {
			if found && match.IsSameDeclaration(known.StorageClientProfile, profile) {
				return known
			}
			return newProfile(profile.DeepCopy(), allow)
		})
	}
	slices.SortFunc(list, byName)
	return s.set.Get("", list, func() *ProfileSet { return newProfileSet(list) })
}

// selectorIndex finds the profiles that may select a node by the node's labels. Among hundreds of profiles, all except a few require a label that
// the node does not have.
type selectorIndex struct {
	// requiring contains the profiles by one of the labels that they require; any are the profiles that require none.
	requiring map[label][]*Profile
	any       []*Profile
}

type label struct{ key, value string }

// newSelectorIndex files each profile under its rarest required label: a label that all profiles share would exclude no profile.
func newSelectorIndex(profiles []*Profile) selectorIndex {
	requiredBy := map[label]int{}
	for _, profile := range profiles {
		for key, value := range profile.selector.RequiredLabels {
			requiredBy[label{key, value}]++
		}
	}
	index := selectorIndex{requiring: map[label][]*Profile{}}
	for _, profile := range profiles {
		required, rarest := profile.selector.RequiredLabels, label{}
		for _, key := range slices.Sorted(maps.Keys(required)) {
			if one := (label{key, required[key]}); rarest == (label{}) || requiredBy[one] < requiredBy[rarest] {
				rarest = one
			}
		}
		if rarest == (label{}) {
			index.any = append(index.any, profile)
			continue
		}
		index.requiring[rarest] = append(index.requiring[rarest], profile)
	}
	return index
}

// candidates returns the profiles that may select a node, each once, in no order. The caller owns the slice.
func (i selectorIndex) candidates(node *corev1.Node) []*Profile {
	found := slices.Clone(i.any)
	if len(i.requiring) < len(node.Labels) {
		for required, profiles := range i.requiring {
			if value, ok := node.Labels[required.key]; ok && value == required.value {
				found = append(found, profiles...)
			}
		}
		return found
	}
	for key, value := range node.Labels {
		found = append(found, i.requiring[label{key, value}]...)
	}
	return found
}
