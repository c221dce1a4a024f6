package volume

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Source is where a PersistentVolume's data comes from, as far as the volume itself tells.
type Source struct {
	// Driver is the CSI driver's name, or the in-tree plugin's, e.g. kubernetes.io/nfs. Empty if neither is known.
	Driver string
	// Protocol is empty where the driver is not in the table.
	Protocol v1alpha1.VolumeProtocol
	// Server is the host name or address as the volume names it. Empty where the volume does not.
	Server string
	// FSType is the file system type as the volume names it, e.g. xfs.
	FSType string
}

// csiDriver says where a driver keeps protocol and server among the attributes of a volume.
type csiDriver struct {
	protocol func(*corev1.CSIPersistentVolumeSource) v1alpha1.VolumeProtocol
	server   func(*corev1.CSIPersistentVolumeSource) string
}

var csiDrivers = map[string]csiDriver{
	"nfs.csi.k8s.io": {protocol: always(v1alpha1.ProtocolNFS), server: attribute("server")},
	"smb.csi.k8s.io": {protocol: always(v1alpha1.ProtocolSMB), server: smbServer},
	// Azure Files speaks SMB unless the class asks for NFS, by either parameter.
	"file.csi.azure.com": {protocol: azureFileProtocol, server: azureFileServer},
	// Trident resolves the server when it publishes the volume; the volume does not name it.
	"csi.trident.netapp.io": {protocol: tridentProtocol, server: func(*corev1.CSIPersistentVolumeSource) string { return "" }},
}

// SourceOf reads driver, protocol and server of a volume.
func SourceOf(pv *corev1.PersistentVolume) Source {
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return csiSource(s.CSI)
	case s.NFS != nil:
		return Source{Driver: "kubernetes.io/nfs", Protocol: v1alpha1.ProtocolNFS, Server: s.NFS.Server}
	case s.ISCSI != nil:
		return Source{Driver: "kubernetes.io/iscsi", Protocol: v1alpha1.ProtocolBlock, Server: portalHost(s.ISCSI.TargetPortal), FSType: s.ISCSI.FSType}
	case s.FC != nil:
		return Source{Driver: "kubernetes.io/fc", Protocol: v1alpha1.ProtocolBlock, FSType: s.FC.FSType}
	case s.Local != nil:
		source := Source{Driver: "kubernetes.io/local-volume", Protocol: v1alpha1.ProtocolBlock}
		if s.Local.FSType != nil {
			source.FSType = *s.Local.FSType
		}
		return source
	}
	return Source{}
}

func csiSource(csi *corev1.CSIPersistentVolumeSource) Source {
	source := Source{Driver: csi.Driver, FSType: csi.FSType}
	if driver, ok := csiDrivers[csi.Driver]; ok {
		source.Protocol, source.Server = driver.protocol(csi), driver.server(csi)
	}
	return source
}

func always(p v1alpha1.VolumeProtocol) func(*corev1.CSIPersistentVolumeSource) v1alpha1.VolumeProtocol {
	return func(*corev1.CSIPersistentVolumeSource) v1alpha1.VolumeProtocol { return p }
}

func attribute(name string) func(*corev1.CSIPersistentVolumeSource) string {
	return func(csi *corev1.CSIPersistentVolumeSource) string { return attributeOf(csi, name) }
}

// attributeOf ignores case: the drivers lower the keys before they look.
func attributeOf(csi *corev1.CSIPersistentVolumeSource, name string) string {
	for key, value := range csi.VolumeAttributes {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// smbServer takes the host out of "//server/share".
func smbServer(csi *corev1.CSIPersistentVolumeSource) string {
	host, _, _ := strings.Cut(strings.TrimLeft(attributeOf(csi, "source"), `/\`), "/")
	return host
}

func azureFileProtocol(csi *corev1.CSIPersistentVolumeSource) v1alpha1.VolumeProtocol {
	if strings.EqualFold(attributeOf(csi, "protocol"), "nfs") || strings.EqualFold(attributeOf(csi, "fsType"), "nfs") {
		return v1alpha1.ProtocolNFS
	}
	return v1alpha1.ProtocolSMB
}

// azureFileServer follows the driver: the attribute server, else the storage account's name in the endpoint's
// domain. A volume handle is "resource group#account#share#...".
func azureFileServer(csi *corev1.CSIPersistentVolumeSource) string {
	if server := attributeOf(csi, "server"); server != "" {
		return server
	}
	account := attributeOf(csi, "storageAccount")
	if parts := strings.Split(csi.VolumeHandle, "#"); account == "" && len(parts) > 2 {
		account = parts[1]
	}
	if account == "" {
		return ""
	}
	return account + ".file." + cmp.Or(attributeOf(csi, "storageEndpointSuffix"), "core.windows.net")
}

// tridentProtocol goes by the attribute protocol, file or block. Of file volumes only SMB ones are staged with a
// secret, which holds the domain user.
func tridentProtocol(csi *corev1.CSIPersistentVolumeSource) v1alpha1.VolumeProtocol {
	switch attributeOf(csi, "protocol") {
	case "file":
		if csi.NodeStageSecretRef != nil {
			return v1alpha1.ProtocolSMB
		}
		return v1alpha1.ProtocolNFS
	case "block", "blockOnFile":
		return v1alpha1.ProtocolBlock
	}
	return ""
}

func portalHost(portal string) string {
	if i := strings.LastIndexByte(portal, ':'); i >= 0 && !strings.HasSuffix(portal, "]") {
		portal = portal[:i]
	}
	return strings.Trim(portal, "[]")
}
