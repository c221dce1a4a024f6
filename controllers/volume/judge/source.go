package judge

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// Source is the source of a PersistentVolume's data, based on the volume alone.
type Source = drivers.Source

// SourceOf returns the driver, protocol and server of a volume.
func SourceOf(pv *corev1.PersistentVolume) Source { return describeSource(pv).Source() }

// ClaimOf returns the PersistentVolumeClaim that a volume names. named is false if there is none.
func ClaimOf(pv *corev1.PersistentVolume) (volumeClaim types.NamespacedName, named bool) {
	ref := ptr.Deref(pv.Spec.ClaimRef, corev1.ObjectReference{})
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, pv.Spec.ClaimRef != nil
}

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
		return drivers.Volume{Driver: "kubernetes.io/local-volume", FSType: ptr.Deref(s.Local.FSType, "")}
	case s.HostPath != nil:
		return drivers.Volume{Driver: "kubernetes.io/host-path"}
	case s.CephFS != nil:
		return drivers.Volume{Driver: "kubernetes.io/cephfs", ReadOnly: s.CephFS.ReadOnly}
	case s.Glusterfs != nil:
		return drivers.Volume{Driver: "kubernetes.io/glusterfs", ReadOnly: s.Glusterfs.ReadOnly}
	}
	return migratedSource(pv)
}

// migratedSource returns the source of in-tree volumes that the kubelet passes to a CSI driver, translated in the same way. The tests compare
// it with k8s.io/csi-translation-lib. That library copies whole volumes and logs, and is intended for callers that write the result.
func migratedSource(pv *corev1.PersistentVolume) drivers.Volume {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.AzureFile != nil:
		return azureFileSource(pv, s.AzureFile)
	case s.AzureDisk != nil:
		return drivers.Volume{Driver: "disk.csi.azure.com", FSType: ptr.Deref(s.AzureDisk.FSType, ""), ReadOnly: ptr.Deref(s.AzureDisk.ReadOnly, false)}
	case s.AWSElasticBlockStore != nil:
		return drivers.Volume{Driver: "ebs.csi.aws.com", FSType: s.AWSElasticBlockStore.FSType, ReadOnly: s.AWSElasticBlockStore.ReadOnly}
	case s.GCEPersistentDisk != nil:
		return drivers.Volume{Driver: "pd.csi.storage.gke.io", FSType: s.GCEPersistentDisk.FSType, ReadOnly: s.GCEPersistentDisk.ReadOnly}
	case s.Cinder != nil:
		return drivers.Volume{Driver: "cinder.csi.openstack.org", FSType: s.Cinder.FSType, ReadOnly: s.Cinder.ReadOnly}
	case s.VsphereVolume != nil:
		return drivers.Volume{Driver: "csi.vsphere.vmware.com", FSType: s.VsphereVolume.FSType}
	case s.PortworxVolume != nil:
		return drivers.Volume{Driver: "pxd.portworx.com", FSType: s.PortworxVolume.FSType, ReadOnly: s.PortworxVolume.ReadOnly}
	case s.FlexVolume != nil:
		return drivers.Volume{Driver: s.FlexVolume.Driver, FSType: s.FlexVolume.FSType, Attributes: s.FlexVolume.Options, ReadOnly: s.FlexVolume.ReadOnly}
	}
	return drivers.Volume{}
}

// azureFileSource derives the storage account from the secret's name if a provisioner named it.
func azureFileSource(pv *corev1.PersistentVolume, s *corev1.AzureFilePersistentVolumeSource) drivers.Volume {
	account := s.SecretName
	if name, ok := strings.CutPrefix(account, "azure-storage-account-"); ok && strings.HasSuffix(name, "-secret") {
		account = strings.TrimSuffix(name, "-secret")
	}
	volumeClaim, _ := ClaimOf(pv)
	namespace := cmp.Or(ptr.Deref(s.SecretNamespace, ""), volumeClaim.Namespace)
	handle := strings.Join([]string{pv.Annotations["kubernetes.io/azure-file-resource-group"], account, s.ShareName, pv.Name, namespace}, "#")
	return drivers.Volume{
		Driver: "file.csi.azure.com", Handle: handle, Attributes: map[string]string{"shareName": s.ShareName}, StageSecret: true, ReadOnly: s.ReadOnly,
	}
}

// isRawBlock reports whether pods get the device itself, without a mount.
func isRawBlock(pv *corev1.PersistentVolume) bool {
	return ptr.Deref(pv.Spec.VolumeMode, "") == corev1.PersistentVolumeBlock
}

type target struct {
	drivers.Volume
	options mountoptions.Protocol
	// keepsNconnect keeps the current nconnect, regardless of rules.
	keepsNconnect bool
}

// targetOf treats a volume of an unknown driver as XFS if its fsType is xfs, and as NFS otherwise. The options are written only if a rule names the
// driver.
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

// ChangesRequests reports whether the current mount options change the requests to the server, compared with the options before.
func ChangesRequests(pv *corev1.PersistentVolume, before []string) bool {
	t := targetOf(pv)
	return t.options.ChangesTransport(t.PassedOptions(before), t.PassedOptions(pv.Spec.MountOptions))
}

// cacheKey distinguishes targets for which one list may have two results.
func (t target) cacheKey() []string {
	return []string{
		string(t.options), t.Driver, string(t.Source().Protocol), t.Source().NconnectRejection(), strings.Join(t.PassedOptions(nil), ","),
		fmt.Sprint(t.ReadOnly, t.keepsNconnect),
	}
}

func portalHost(portal string) string {
	if i := strings.LastIndexByte(portal, ':'); i >= 0 && !strings.HasSuffix(portal, "]") {
		portal = portal[:i]
	}
	return portal
}
