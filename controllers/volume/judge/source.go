package judge

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// Source is where a PersistentVolume's data comes from, as far as the volume itself tells.
type Source = drivers.Source

// SourceOf reads driver, protocol and server of a volume.
func SourceOf(pv *corev1.PersistentVolume) Source { return describeSource(pv).Source() }

// describeSource is what a volume tells of its source.
func describeSource(pv *corev1.PersistentVolume) drivers.Volume {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return drivers.Volume{Driver: s.CSI.Driver, Handle: s.CSI.VolumeHandle, Attributes: s.CSI.VolumeAttributes, FSType: s.CSI.FSType,
			StageSecret: s.CSI.NodeStageSecretRef != nil, ReadOnly: s.CSI.ReadOnly}
	case s.NFS != nil:
		return drivers.Volume{Driver: "kubernetes.io/nfs", Host: s.NFS.Server, Path: s.NFS.Path, ReadOnly: s.NFS.ReadOnly}
	case s.ISCSI != nil:
		return drivers.Volume{Driver: "kubernetes.io/iscsi", Host: portalHost(s.ISCSI.TargetPortal), FSType: s.ISCSI.FSType, ReadOnly: s.ISCSI.ReadOnly}
	case s.FC != nil:
		return drivers.Volume{Driver: "kubernetes.io/fc", FSType: s.FC.FSType, ReadOnly: s.FC.ReadOnly}
	case s.Local != nil:
		local := drivers.Volume{Driver: "kubernetes.io/local-volume"}
		if s.Local.FSType != nil {
			local.FSType = *s.Local.FSType
		}
		return local
	case s.HostPath != nil:
		return drivers.Volume{Driver: "kubernetes.io/host-path"}
	}
	return drivers.Volume{}
}

// isRawBlock says whether pods get the device itself: there is nothing to mount.
func isRawBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// target is what a volume's options are merged for.
type target struct {
	drivers.Volume
	options mountoptions.Protocol
	// nconnectInForce leaves nconnect as the volume's list has it, whatever rules declare.
	nconnectInForce bool
}

// targetOf takes a driver that is not in the table for XFS where the volume says so, and for NFS otherwise: without a
// rule that names it, nothing is written.
func targetOf(pv *corev1.PersistentVolume) target {
	t := target{Volume: describeSource(pv)}
	source := t.Source()
	t.options = source.Options()
	switch {
	case t.options != "":
	case source.FSType == "xfs":
		t.options = mountoptions.XFS
	default:
		t.options = mountoptions.NFS
	}
	return t
}

// AsksOtherwise says whether a volume's list has its server asked in another way than its own list of before.
func AsksOtherwise(pv *corev1.PersistentVolume, before []string) bool {
	t := targetOf(pv)
	return t.options.AsksOtherwise(t.Hands(before), t.Hands(pv.Spec.MountOptions))
}

// cacheKey tells targets apart for which one list may become two.
func (t target) cacheKey() []string {
	readOnly := ""
	if t.ReadOnly {
		readOnly = "ro"
	}
	nconnect := ""
	if t.nconnectInForce {
		nconnect = "in force"
	}
	return []string{string(t.options), t.Driver, string(t.Source().Protocol), t.OwnOptions(), readOnly, nconnect}
}

func portalHost(portal string) string {
	if i := strings.LastIndexByte(portal, ':'); i >= 0 && !strings.HasSuffix(portal, "]") {
		portal = portal[:i]
	}
	return strings.Trim(portal, "[]")
}
