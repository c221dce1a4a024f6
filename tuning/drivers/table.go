package drivers

import "github.com/storageclient/operator/tuning/mountoptions"

const (
	takesOthers  = "uses its own options, none of NFS, SMB or XFS"
	doesNotMount = "the kubelet does not mount hostPath volumes that have mount options"
)

// tridentBackend contains options that Trident uses for volumes without mount options (ControllerPublishVolume in
// frontend/csi/controller_server.go). They include nouuid for all XFS volumes (PublishLUN in storage_drivers/ontap).
var tridentBackend = backend{text: "the backend's nfsMountOptions; nouuid for XFS",
	needs: map[mountoptions.Protocol]string{mountoptions.NFS: "nfsvers", mountoptions.XFS: "nouuid"}}

// table contains the kubelet's plugins as of Kubernetes 1.36 and CSI drivers as of August 2026, based on the sources in readings.yaml. The
// first row of a driver that matches a volume wins.
var table = []row{
	{driver: "kubernetes.io/nfs", protocol: nfs, server: specServer, path: specPath, reads: atPublish, changes: sorted, freeHandle: true},
	{driver: "kubernetes.io/iscsi", protocol: block, server: specPortal, reads: atStage},
	{driver: "kubernetes.io/fc", protocol: block, reads: atStage},
	{driver: "kubernetes.io/local-volume", protocol: block, reads: atStage},
	{driver: "kubernetes.io/host-path", unsupported: doesNotMount},
	{driver: "kubernetes.io/cephfs", unsupported: "CephFS " + takesOthers},
	{driver: "kubernetes.io/glusterfs", unsupported: "GlusterFS " + takesOthers},

	{driver: "nfs.csi.k8s.io", protocol: nfs, server: nfsServer, path: nfsPath, reads: atPublish, additional: attribute("mountOptions"),
		freeHandle: true},
	{driver: "smb.csi.k8s.io", protocol: smb, server: uncServer, reads: atStage, freeHandle: true},

	{driver: "file.csi.azure.com", protocol: nfs, selector: either(attributeIs("fsType", "nfs"), attributeIs("protocol", "nfs")),
		server: azureServer, path: azurePath,
		reads: atStage, changes: azureNFS},
	// A disk image on an SMB share: the mount options apply to its file system. The driver has separate options for the share.
	{driver: "file.csi.azure.com", protocol: block, selector: diskImage, server: azureServer, fsType: attribute("fsType"), reads: atStage,
		rare: true},
	{driver: "file.csi.azure.com", protocol: smb, server: azureServer, reads: atStage, changes: azureSMB},
	{driver: "blob.csi.azure.com", protocol: nfs, selector: attributeIs("protocol", "nfs", "nfsv3", "aznfs"), server: blobServer, client: ClientAZNFS,
		reads: atStage, changes: blobNFS},
	{driver: "blob.csi.azure.com", unsupported: "blobfuse " + takesOthers},
	{driver: "disk.csi.azure.com", protocol: block, fsType: diskFSType, reads: atStage, changes: diskList},

	{driver: "efs.csi.aws.com", protocol: nfs, client: ClientEFS, reads: atPublish, changes: efsList},
	{driver: "ebs.csi.aws.com", protocol: block, reads: atStage, changes: diskOnceList},
	{driver: "fsx.openzfs.csi.aws.com", protocol: nfs, server: attribute("DNSName"), path: openZFSPath, reads: atPublish, changes: once,
		freeHandle: true},
	{driver: "fsx.csi.aws.com", unsupported: "Lustre " + takesOthers},

	{driver: "filestore.csi.storage.gke.io", protocol: nfs, server: attribute("ip"), path: sharedPath, reads: atStage,
		additional: attribute("mountOptions")},
	{driver: "pd.csi.storage.gke.io", protocol: block, reads: atStage, changes: diskList},

	{driver: "csi.trident.netapp.io", protocol: smb, selector: both(attributeIs("protocol", "file"), stageSecret), reads: atAttach},
	{driver: "csi.trident.netapp.io", protocol: nfs, selector: attributeIs("protocol", "file"), reads: atAttach, empty: tridentBackend},
	{driver: "csi.trident.netapp.io", protocol: block, selector: attributeIs("protocol", "block", "blockOnFile"), reads: atAttach,
		empty: tridentBackend},

	{driver: "csi.vsphere.vmware.com", protocol: nfs, selector: attributeIs("type", "vSphere CNS File Volume"), reads: atPublish, changes: vsphereNFS},
	{driver: "csi.vsphere.vmware.com", protocol: block, reads: atStage},

	{driver: "cinder.csi.openstack.org", protocol: block, reads: atStage, changes: diskList},
	{driver: "nfs.manila.csi.openstack.org", protocol: nfs, reads: atPublish},
	{driver: "cephfs.manila.csi.openstack.org", unsupported: "CephFS " + takesOthers},

	{driver: "csi-isilon.dellemc.com", protocol: nfs, server: serviceIP, reads: atPublish, changes: readWrite},
	{driver: "csi-unity.dellemc.com", protocol: nfs, selector: attributeIs("protocol", "nfs"), reads: atStage, changes: readWrite},
	{driver: "csi-unity.dellemc.com", protocol: block, reads: atStage, changes: diskList},

	{driver: "driver.longhorn.io", protocol: nfs, selector: attributeIs("share", "true"), reads: atStage,
		unsupported: "Longhorn mounts shared volumes with the parameter nfsOptions of their class, regardless of mountOptions"},
	{driver: "driver.longhorn.io", protocol: block, reads: atStage, changes: diskList},

	{driver: "csi.hpe.com", protocol: nfs, selector: attributeIs("accessProtocol", "nfs"), reads: atPublish},
	{driver: "csi.hpe.com", protocol: nfs, selector: attributeIs("nfsResources", "true"), reads: atPublish,
		unsupported: "HPE's driver mounts these volumes with the parameter nfsMountOptions of their class, regardless of mountOptions"},
	{driver: "csi.hpe.com", protocol: block, reads: atStage},

	{driver: "csi.vastdata.com", protocol: nfs, server: attribute("vip_pool_fqdn"), client: ClientVAST, reads: atPublish, changes: vastList,
		empty: backend{text: "attribute mount_options", attribute: "mount_options"}},

	{driver: "csi.san.synology.com", protocol: nfs, selector: attributeIs("protocol", "nfs"), server: attribute("dsm"), reads: atPublish},
	{driver: "csi.san.synology.com", protocol: smb, selector: attributeIs("protocol", "smb"), server: uncServer, reads: atStage},
	{driver: "csi.san.synology.com", protocol: block, reads: atStage},

	// Users choose the driver name; these names are from the driver's charts.
	{driver: "org.democratic-csi.*", protocol: nfs, selector: attributeIs("node_attach_driver", "nfs"), server: attribute("server"), reads: atStage},
	{driver: "org.democratic-csi.*", protocol: smb, selector: attributeIs("node_attach_driver", "smb"), server: attribute("server"), reads: atStage},
	{driver: "org.democratic-csi.*", protocol: block, selector: attributeIs("node_attach_driver", "iscsi", "nvmeof"), reads: atStage, changes: diskList},
	{driver: "org.democratic-csi.*", unsupported: "democratic-csi mounts this volume with a client that " + takesOthers,
		selector: attributeIs("node_attach_driver", "lustre", "hostpath", "oneclient", "zfs-local", "objectivefs")},

	// Rook adds its namespace as a prefix to these names.
	{driver: "*.nfs.csi.ceph.com", protocol: nfs, server: attribute("server"), reads: atPublish, freeHandle: true},
	{driver: "*.rbd.csi.ceph.com", protocol: block, reads: atStage},
	{driver: "*.cephfs.csi.ceph.com", unsupported: "CephFS " + takesOthers},
	{driver: "seaweedfs-csi-driver", unsupported: "SeaweedFS " + takesOthers},
}
