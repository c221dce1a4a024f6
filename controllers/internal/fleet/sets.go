package fleet

import (
	"slices"
	"strings"
	"sync"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// ProfileSets keeps the last set of profiles for as long as they stay the same: profiles are checked and merged once, not for every node
// and every pass. Any number of goroutines may share one; the zero value holds nothing.
type ProfileSets struct {
	mutex    sync.Mutex
	last     *ProfileSet
	versions string
}

// Of is the set of all profiles as they are now. It keeps nothing of what it is handed. allow is the same at every call.
func (s *ProfileSets) Of(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList) *ProfileSet {
	versions, known := versionsOf(profiles)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if known && s.last != nil && versions == s.versions {
		return s.last
	}
	kept := make([]v1alpha1.StorageClientProfile, len(profiles))
	for i := range profiles {
		profiles[i].DeepCopyInto(&kept[i])
	}
	set := NewProfileSet(kept, allow)
	if known {
		s.last, s.versions = set, versions
	}
	return set
}

// versionsOf names the profiles in the versions that they have, in whatever order; false where one has none.
func versionsOf(profiles []v1alpha1.StorageClientProfile) (string, bool) {
	versions := make([]string, len(profiles))
	for i := range profiles {
		if profiles[i].UID == "" || profiles[i].ResourceVersion == "" {
			return "", false
		}
		versions[i] = string(profiles[i].UID) + " " + profiles[i].ResourceVersion
	}
	slices.Sort(versions)
	return strings.Join(versions, "\n"), true
}
