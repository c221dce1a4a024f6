package judge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/drivers"
)

type term struct{ isSet, matches bool }

// Selects reports whether all given terms of a selector match. A selector without any term selects nothing. volumeClaim is the
// PersistentVolumeClaim that the volume is bound to. Nil if there is none.
func Selects(s *v1alpha1.VolumeSelector, pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) bool {
	if len(s.StorageClassNames) > 0 && !slices.Contains(s.StorageClassNames, pv.Spec.StorageClassName) {
		return false // checked first: of hundreds of rules, most name other classes
	}
	terms := append(volumeTerms(s, pv), volumeClaimTerms(s, volumeClaim)...)
	return doAllMatch(terms) && slices.ContainsFunc(terms, func(t term) bool { return t.isSet })
}

func doAllMatch(terms []term) bool {
	return !slices.ContainsFunc(terms, func(t term) bool { return t.isSet && !t.matches })
}

func volumeTerms(s *v1alpha1.VolumeSelector, pv *corev1.PersistentVolume) []term {
	source := SourceOf(pv)
	return []term{
		{len(s.StorageClassNames) > 0, slices.Contains(s.StorageClassNames, pv.Spec.StorageClassName)},
		{len(s.Drivers) > 0, slices.Contains(s.Drivers, source.Driver)},
		{len(s.Protocols) > 0, slices.Contains(s.Protocols, source.Protocol)},
		{len(s.FSTypes) > 0, slices.Contains(s.FSTypes, source.FSType)},
		{len(s.Servers) > 0, slices.ContainsFunc(s.Servers, func(server string) bool { return drivers.ServerIdentity(server) == source.Server })},
		{len(s.AccessModes) > 0, slices.ContainsFunc(pv.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
			return slices.Contains(s.AccessModes, string(m))
		})},
		{!isEmpty(s.VolumeSelector), labelsMatch(s.VolumeSelector, pv.Labels)},
	}
}

func volumeClaimTerms(s *v1alpha1.VolumeSelector, volumeClaim *metav1.PartialObjectMetadata) []term {
	return []term{
		{!isEmpty(s.ClaimSelector), volumeClaim != nil && labelsMatch(s.ClaimSelector, volumeClaim.Labels)},
		{len(s.ClaimNamespaces) > 0, volumeClaim != nil && slices.Contains(s.ClaimNamespaces, volumeClaim.Namespace)},
	}
}

func isEmpty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// labelsMatch reports whether a selector matches. An invalid selector matches nothing. The validation of the profile reports it.
func labelsMatch(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

// onlyBound returns the PersistentVolumeClaim if the volume is bound to it, and not to another one of the same name. Nil otherwise.
func onlyBound(pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	if ref := pv.Spec.ClaimRef; ref != nil && volumeClaim != nil && ref.Namespace == volumeClaim.Namespace && ref.Name == volumeClaim.Name &&
		ref.UID != "" && ref.UID == volumeClaim.UID {
		return volumeClaim
	}
	return nil
}

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
