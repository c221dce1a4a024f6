package judge

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Candidate returns the mount options of a volume for an isolated test mount, by the rules of one profile, even if the profile is held. obstacle
// explains why there are no options. Empty if there are.
func Candidate(
	in Input, profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList, classes map[string][]string,
) (list []string, obstacle string) {
	p := compileProfile(profile, allow)
	if reason, message := match.Check(profile, allow); reason != "" {
		return nil, message
	}
	if p.Deleting {
		return nil, "StorageClientProfile " + p.Name + " is being deleted"
	}
	p.hold = nil
	alone := []*Profile{p}
	in.Profiles = newProfiles(alone, false, followedClasses(alone, classes))
	v := Volume(in)
	unusable := []string{
		v1alpha1.VolumeReasonNoMount, v1alpha1.VolumeReasonNoClass, v1alpha1.VolumeReasonWrongProtocol, v1alpha1.VolumeReasonInvalidOptions,
	}
	switch {
	case v.Desired == nil && v.Reason == v1alpha1.VolumeReasonIgnored:
		return nil, v.Message
	case v.Desired == nil:
		return nil, "no rule of StorageClientProfile " + p.Name + " selects the volume"
	case slices.Contains(unusable, v.Reason):
		return nil, v.Message
	}
	return v.Desired, ""
}
