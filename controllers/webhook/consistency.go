package webhook

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// longestTimer is the longest default time that NFS caches attributes, in seconds: acregmax and acdirmax of nfs(5). SMB caches them for one
// second.
const longestTimer = 60

// looseCaches are the caches of mount.cifs(8) and the kernel that trust their content even if other clients write.
var looseCaches = []string{"loose", "ro", "singleclient"}

// consistencyWarnings reports options that give up consistency between clients. It checks rules for volumes whose owners did not request that:
// the rule neither selects by label nor selects only read-only volumes.
func consistencyWarnings(profile *v1alpha1.StorageClientProfile) []string {
	var warnings []string
	for i := range profile.Spec.Volumes {
		rule := &profile.Spec.Volumes[i]
		if hasTerms(rule.Selector.VolumeSelector) || hasTerms(rule.Selector.ClaimSelector) || readOnly(rule.Selector.AccessModes) {
			continue
		}
		for j, option := range rule.MountOptions {
			if losesConsistency(string(option)) {
				warnings = append(warnings, fmt.Sprintf("spec.volumes[%d].mountOptions[%d]: %q: clients may see old data for a long time; "+
					"select PersistentVolumeClaims or volumes by label, or only accessModes [%s]", i, j, option, corev1.ReadOnlyMany))
			}
		}
	}
	return warnings
}

func hasTerms(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

func readOnly(modes []string) bool {
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(mode string) bool { return mode != string(corev1.ReadOnlyMany) })
}

func losesConsistency(option string) bool {
	return slices.ContainsFunc(mountoptions.Parse([]string{option}), func(o mountoptions.Option) bool {
		switch o.Name {
		case "nocto":
			return true
		case "cache":
			return slices.Contains(looseCaches, o.Value)
		case "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax":
			seconds, err := strconv.ParseInt(o.Value, 10, 64)
			return err == nil && seconds > longestTimer
		}
		return false
	})
}
