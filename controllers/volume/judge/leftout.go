package judge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
)

// Unknown is a volume of which nobody can say which protocol it speaks: no rule that names protocols selects it.
type Unknown struct {
	// Driver is its driver, empty where not even that is known.
	Driver string
	// LooksLike is what it seems to be; empty where nothing tells.
	LooksLike v1alpha1.VolumeProtocol
}

// unknownOf is nil for a volume that is known, and for one that nobody mounts with options.
func unknownOf(pv *corev1.PersistentVolume) *Unknown {
	t := describeSource(pv)
	if t.IsKnown() || isRawBlock(pv) || match.Ignored(pv) || !pv.DeletionTimestamp.IsZero() {
		return nil
	}
	return &Unknown{Driver: t.Driver, LooksLike: t.LooksLike(pv.Spec.MountOptions)}
}

// LeavesOut says whether the named profile has a rule that may mean a volume, and selects it only where its protocol is known. A
// profile that another rule of selects the volume does not leave it out.
func (ps *Profiles) LeavesOut(name string, j *Judged, volumeClaim *metav1.PartialObjectMetadata) bool {
	p := ps.Get(name)
	if p == nil || p.Deleting || j.Unknown == nil {
		return false
	}
	if !isBoundTo(j.Volume, volumeClaim) {
		volumeClaim = nil
	}
	if len(p.rulesSelecting(j.Volume, volumeClaim)) > 0 {
		return false
	}
	return slices.ContainsFunc(p.spec.Volumes, func(r v1alpha1.VolumeRule) bool { return mayMean(&r.Selector, j, volumeClaim) })
}

// mayMean says whether all terms of a selector hold but that for the protocol, and that may.
func mayMean(s *v1alpha1.VolumeSelector, j *Judged, volumeClaim *metav1.PartialObjectMetadata) bool {
	if len(s.Protocols) == 0 || j.Unknown.LooksLike != "" && !slices.Contains(s.Protocols, j.Unknown.LooksLike) {
		return false
	}
	others := *s
	others.Protocols = nil
	return doAllHold(append(volumeTerms(&others, j.Volume), volumeClaimTerms(&others, volumeClaim)...))
}
