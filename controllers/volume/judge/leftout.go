package judge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
)

// Unknown is a volume of unknown protocol. Rules that name protocols do not select it.
type Unknown struct {
	// Driver is the volume's driver. Empty if unknown.
	Driver string
	// LooksLike is the probable protocol. Empty if there is no indication.
	LooksLike v1alpha1.VolumeProtocol
}

// unknownOf returns nil for a volume of known protocol, and for a volume that is not mounted with options.
func unknownOf(pv *corev1.PersistentVolume) *Unknown {
	t := describeSource(pv)
	if t.IsKnown() || isRawBlock(pv) || match.IsIgnored(pv) || !pv.DeletionTimestamp.IsZero() {
		return nil
	}
	return &Unknown{Driver: t.Driver, LooksLike: t.LooksLike(pv.Spec.MountOptions)}
}

// LeavesOut reports whether the named profile has a rule that would select a volume if its protocol were known. It reports false if another
// rule of the profile selects the volume.
func (ps *Profiles) LeavesOut(name string, j *Evaluation, volumeClaim *metav1.PartialObjectMetadata) bool {
	p := ps.Get(name)
	if p == nil || p.Deleting || j.Unknown == nil {
		return false
	}
	volumeClaim = onlyBound(j.Volume, volumeClaim)
	return len(p.rulesSelecting(j.Volume, volumeClaim)) == 0 && slices.ContainsFunc(p.spec.Volumes, func(r v1alpha1.VolumeRule) bool {
		return mayMean(&r.Selector, j, volumeClaim)
	})
}

// mayMean reports whether a selector would match if the volume had one of its protocols. It reports false if the probable protocol is another one.
func mayMean(s *v1alpha1.VolumeSelector, j *Evaluation, volumeClaim *metav1.PartialObjectMetadata) bool {
	if len(s.Protocols) == 0 || j.Unknown.LooksLike != "" && !slices.Contains(s.Protocols, j.Unknown.LooksLike) {
		return false
	}
	withoutProtocols := *s
	withoutProtocols.Protocols = nil
	return doAllMatch(append(volumeTerms(&withoutProtocols, j.Volume), volumeClaimTerms(&withoutProtocols, volumeClaim)...))
}
