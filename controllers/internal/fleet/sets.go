package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/catalogue"
)

// ProfileSets keeps the last set of profiles for as long as these ask for the same, and of one that has changed whatever has not:
// profiles are checked and merged once, not for every node and every pass. Any number of goroutines may share one; the zero value holds
// nothing.
type ProfileSets struct {
	mutex sync.Mutex
	last  *ProfileSet
	// seen are the resource versions of the last call that asked for the same as last does, by UID.
	seen map[types.UID]string
}

// Of is the set of all profiles as they are now; their status is that of the version which was checked, but for the plan that it shows. It keeps nothing of what it is
// handed. allow is the same at every call.
func (s *ProfileSets) Of(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList) *ProfileSet {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	seen, kept := make(map[types.UID]string, len(profiles)), make([]*Profile, len(profiles))
	isSame := s.last != nil && len(profiles) == len(s.last.profiles)
	for i := range profiles {
		profile := &profiles[i]
		seen[profile.UID] = profile.ResourceVersion
		if kept[i] = s.recall(profile); kept[i] == nil {
			isSame, kept[i] = false, newProfile(profile.DeepCopy(), allow)
		}
	}
	s.seen = seen
	if !isSame {
		s.last = newProfileSet(kept)
	}
	return s.last
}

// recall is what the last set holds of a profile, nil where that asks for something else.
func (s *ProfileSets) recall(profile *v1alpha1.StorageClientProfile) *Profile {
	if s.last == nil {
		return nil
	}
	known := s.last.ByName(profile.Name)
	if known == nil || known.UID != profile.UID || !showsSamePlan(known.StorageClientProfile, profile) {
		return nil
	}
	version := s.seen[profile.UID]
	if version != "" && version == profile.ResourceVersion || match.IsSameDeclaration(known.StorageClientProfile, profile) {
		return known
	}
	return nil
}

// showsSamePlan reports whether two versions of a profile show the same plan: which one is approved may go by that.
func showsSamePlan(a, b *v1alpha1.StorageClientProfile) bool {
	return a.Status.Plan.Hash == b.Status.Plan.Hash && a.Status.ObservedGeneration == b.Status.ObservedGeneration
}
