package fleet

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
)

// ProfileSets caches the last set of profiles while their declarations are unchanged, and reuses all unchanged profiles in the next set. Profiles
// are checked and merged once, not for every node and every pass. Any number of goroutines may share one; the zero value is empty.
type ProfileSets struct {
	checked store.Memo[declaration, *Profile]
	set     store.Memo[profileList, *ProfileSet]
}

// declaration is a copy of one version of a profile: its declared settings, and the plan in its status.
type declaration struct{ *v1alpha1.StorageClientProfile }

// IsSame implements the comparison of store.Memo.
func (d declaration) IsSame(newer declaration) bool {
	return showsSamePlan(d.StorageClientProfile, newer.StorageClientProfile) &&
		match.IsSameDeclaration(d.StorageClientProfile, newer.StorageClientProfile)
}

// profileList is a list of profiles, sorted by name.
type profileList []*Profile

// IsSame implements the comparison of store.Memo.
func (l profileList) IsSame(newer profileList) bool { return slices.Equal(l, newer) }

// Of returns the set of all current profiles. Their status, except the plan in it, is the status of the version that was checked. The set keeps no
// reference to its arguments. allow must be the same at every call.
func (s *ProfileSets) Of(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList) *ProfileSet {
	s.checked.Limit(len(profiles))
	list := make(profileList, len(profiles))
	for i := range profiles {
		profile := &profiles[i]
		list[i] = s.checked.Get(profile.Name, declaration{ptr.To(*profile)}, func() *Profile { return newProfile(profile.DeepCopy(), allow) })
	}
	slices.SortFunc(list, byName)
	return s.set.Get("", list, func() *ProfileSet { return newProfileSet(list) })
}

// showsSamePlan reports whether two versions of a profile show the same plan, on which an approval may depend.
func showsSamePlan(a, b *v1alpha1.StorageClientProfile) bool {
	return a.Status.Plan.Hash == b.Status.Plan.Hash && a.Status.ObservedGeneration == b.Status.ObservedGeneration
}
