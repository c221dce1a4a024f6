package drivers

// reading contains the source file and function of each fact about a driver.
type reading struct {
	// repo is the repository of the source, and release the newest release that was read.
	repo, release string
	// staging is the time of the mount: once per node or for each pod. handle is the use of the handle. source is the origin of server and
	// path, and the attribute that distinguishes kinds of volumes.
	staging, handle, source string
	// order describes changes to the order of the mount options, and appends the added options. replaces describes the options that
	// replace non-empty mount options, or are replaced by them. readOnly is the effect of a pod's read-only claim.
	order, appends, replaces, readOnly string
	// ran reports whether test/e2e mounts volumes of the driver.
	ran bool
}

// unknown marks a fact that is not in the source.
const unknown = "not known"

// readings maps each driver to the sources of its facts. Without a reading, the rows of a driver are only based on its name.
var readings = map[string]reading{
	"kubernetes.io/nfs": {
		repo: "kubernetes/kubernetes", release: "Kubernetes 1.36.3", ran: true,
		staging:  "pkg/volume/nfs/nfs.go, SetUpAt: mounts for each pod, below the pod's directory",
		handle:   "pkg/volume/nfs/nfs.go, GetVolumeName: there is none; server and path identify the volume",
		source:   "pkg/volume/nfs/nfs.go, SetUpAt: server and path of spec.nfs",
		order:    "pkg/volume/util/util.go, JoinMountOptions: a set, sorted alphabetically",
		appends:  "pkg/volume/nfs/nfs.go, SetUpAt: ro, for a read-only claim of the pod; nothing else",
		replaces: "pkg/volume/util/util.go, MountOptionFromSpec: the annotation volume.beta.kubernetes.io/mount-options replaces the list",
		readOnly: "pkg/volume/nfs/nfs.go, getVolumeSource: for a PersistentVolume, readOnly of the pod's claim; ro is sorted in, and rw in the " +
			"list comes after it, but GetAttributes still makes the containers' mounts read-only",
	},
	"nfs.csi.k8s.io": {
		repo: "kubernetes-csi/csi-driver-nfs", release: "csi-driver-nfs 4.13.4",
		staging:  "pkg/nfs/nfs.go, NewDriver: no STAGE_UNSTAGE_VOLUME; pkg/nfs/nodeserver.go, NodePublishVolume: mounts for each pod",
		handle:   "pkg/nfs/nodeserver.go, NodePublishVolume: the name of a lock and of the cache of NodeGetVolumeStats; not parsed",
		source:   "pkg/nfs/nodeserver.go, NodePublishVolume: server:share/subDir of the attributes, the case of their names is ignored",
		order:    "pkg/nfs/nodeserver.go, NodePublishVolume: kept",
		appends:  "pkg/nfs/nodeserver.go, NodePublishVolume: ro, for a read-only claim of the pod; then the attribute mountOptions, as it is written",
		replaces: "pkg/nfs/nodeserver.go, NodePublishVolume: none; an empty list stays empty",
		readOnly: "pkg/nfs/nodeserver.go, NodePublishVolume: ro after the list, so that it wins over rw there",
	},
	"smb.csi.k8s.io": {
		repo: "kubernetes-csi/csi-driver-smb", release: "csi-driver-smb 1.20.3",
		staging: "pkg/smb/smb.go, Run: STAGE_UNSTAGE_VOLUME; pkg/smb/nodeserver.go, NodeStageVolume: mounts once per node, NodePublishVolume binds",
		handle:  "pkg/smb/nodeserver.go, NodeStageVolume: the name of a lock and of the cache of Kerberos tickets; not parsed",
		source:  "pkg/smb/nodeserver.go, NodeStageVolume: source/subDir of the attributes, the case of their names is ignored",
		order:   "pkg/smb/nodeserver.go, NodeStageVolume: kept",
		appends: "pkg/smb/nodeserver.go, NodeStageVolume: for a pod with an fsGroup, unless an option in the list starts with gid: gid, " +
			"file_mode=0774 and dir_mode=0775, or the group's rights in the modes of the list; domain, username and password of the secret, " +
			"unless the list has guest",
		replaces: "pkg/smb/nodeserver.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: "pkg/smb/nodeserver.go, NodePublishVolume: ro on the bind mount, for a read-only claim, access mode, or ro in the list",
	},
	"file.csi.azure.com": {
		repo: "kubernetes-sigs/azurefile-csi-driver", release: "azurefile-csi-driver 1.35.7",
		staging: "pkg/azurefile/azurefile.go, Run: STAGE_UNSTAGE_VOLUME; pkg/azurefile/nodeserver.go, NodeStageVolume: mounts once per node, " +
			"NodePublishVolume binds; with a service account's token for SMB, NodePublishVolume mounts for each pod",
		handle: "pkg/azurefile/azurefile.go, GetAccountInfo and GetFileShareInfo: resource group, account, share and disk are read from it, if no " +
			"attribute has them",
		source: "pkg/azurefile/nodeserver.go, NodeStageVolume: for NFS server:/account/share/folderName; for SMB //server/share/folderName; for a disk's " +
			"file system, the disk on such a share",
		order: "pkg/util/util.go, JoinMountOptions: for NFS sorted alphabetically; for SMB kept, but sorted for a read-only access mode",
		appends: "pkg/azurefile/nodeserver.go, NodeStageVolume: for NFS \"vers=4,minorversion=1,sec=sys\", sorted in; ro for a read-only access " +
			"mode; gid of a pod's fsGroup, for SMB; account and key, or sec=krb5. pkg/azurefile/azurefile.go, appendDefaultNfsMountOptions and " +
			"appendDefaultCifsMountOptions, in any order: the options in the table, by the values of the flags in pkg/azurefile/azurefile_options.go " +
			"(nosharesock since 1.28; " + unknown + ": what flags a cluster sets)",
		replaces: "pkg/azurefile/nodeserver.go, NodeStageVolume: the entire list of a disk image on a share: the share gets the driver's options",
		readOnly: "pkg/azurefile/nodeserver.go, NodePublishVolume: ro on the bind mount, for a read-only claim",
	},
	"blob.csi.azure.com": {
		repo: "kubernetes-sigs/blob-csi-driver", release: "blob-csi-driver 1.27.9",
		staging: "pkg/blob/blob.go, NewDriver: STAGE_UNSTAGE_VOLUME; pkg/blob/nodeserver.go, NodeStageVolume: mounts once per node, " +
			"NodePublishVolume binds; with a service account's token, NodePublishVolume mounts for each pod",
		handle: "pkg/blob/blob.go, GetContainerInfo: resource group, account and container are read from it",
		source: "pkg/blob/blob.go, isNFSProtocol: the attribute protocol is nfs, nfsv3 or aznfs; pkg/blob/nodeserver.go, NodeStageVolume: " +
			"server:/account/container, by mount.aznfs if the driver is configured so and the protocol is not nfsv3; any other protocol is " +
			"blobfuse, to which each option is an argument",
		order:    "pkg/util/util.go, JoinMountOptions: for NFS sorted alphabetically",
		appends:  "pkg/blob/nodeserver.go, NodeStageVolume: for NFS \"sec=sys,vers=3,nolock\", sorted in; ro for a read-only access mode",
		replaces: "pkg/blob/nodeserver.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: "pkg/blob/nodeserver.go, NodePublishVolume: ro on the bind mount, for a read-only claim",
	},
	"disk.csi.azure.com": {
		repo: "kubernetes-sigs/azuredisk-csi-driver", release: "azuredisk-csi-driver 1.34.5",
		staging:  "pkg/azuredisk/nodeserver.go, NodeStageVolume: formats and mounts once per node; NodePublishVolume binds",
		handle:   "pkg/azuredisk/nodeserver.go, NodeStageVolume: the disk's resource ID; the driver parses it",
		source:   "pkg/azuredisk/nodeserver.go, NodeStageVolume: the attribute fsType goes before the volume's field",
		order:    "pkg/azuredisk/nodeserver.go, collectMountOptions: kept",
		appends:  "pkg/azuredisk/nodeserver.go, collectMountOptions: nouuid if the volume's field is xfs",
		replaces: "pkg/azuredisk/nodeserver.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: unknown,
	},
	"efs.csi.aws.com": {
		repo: "kubernetes-sigs/aws-efs-csi-driver", release: "aws-efs-csi-driver 3.4.1, efs-utils 3.2.0",
		staging: "pkg/driver/node.go, NodeStageVolume: returns Unimplemented; NodePublishVolume: mounts for each pod",
		handle:  "pkg/driver/node.go, parseVolumeId: file system, path and access point are read from it",
		source: "pkg/driver/node.go, NodePublishVolume: mount.efs of the file system's ID, which it resolves; no attribute names a server. " +
			"Handles that start with s3files: are mounted by mount.s3files, of the same source",
		order: "pkg/driver/node.go, NodePublishVolume: kept, each option once and in lower case; src/efs_utils_common/mount_options.py, " +
			"get_nfs_mount_options: kept",
		appends: "pkg/driver/node.go, NodePublishVolume: accesspoint and tls before the list, ro before it for a read-only claim; " +
			"src/efs_utils_common/mount_options.py, get_nfs_mount_options: version 4.1 (4.2 of S3 Files), rsize, wsize, hard, timeo, retrans and noresvport " +
			"if missing, and the tunnel's port",
		replaces: "pkg/driver/node.go, NodePublishVolume: nothing; awscredsuri is left out, tls is rejected with encryptInTransit: false, " +
			"crossaccount always",
		readOnly: "pkg/driver/node.go, NodePublishVolume: ro before the list, so that rw there wins",
	},
	"ebs.csi.aws.com": {
		repo: "kubernetes-sigs/aws-ebs-csi-driver", release: "aws-ebs-csi-driver 1.64.0",
		staging:  "pkg/driver/node.go, NodeStageVolume: formats and mounts once per node; NodePublishVolume binds, with the list again",
		handle:   "pkg/driver/node.go, NodeStageVolume: the volume's ID; the driver parses it",
		source:   "pkg/driver/node.go, NodeStageVolume: a device of the node",
		order:    "pkg/driver/node.go, collectMountOptions: kept, each option once",
		appends:  "pkg/driver/node.go, collectMountOptions: nouuid for XFS",
		replaces: "pkg/driver/node.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: "pkg/driver/node.go, NodePublishVolume: ro on the bind mount, for a read-only claim",
	},
	"fsx.openzfs.csi.aws.com": {
		repo: "kubernetes-sigs/aws-fsx-openzfs-csi-driver", release: "aws-fsx-openzfs-csi-driver 1.2.0",
		staging: "pkg/driver/node.go, NodeStageVolume: returns Unimplemented; NodePublishVolume: mounts for each pod",
		handle:  "pkg/driver/node.go, NodePublishVolume: the name of a lock; not parsed",
		source: "pkg/driver/node.go, NodePublishVolume: DNSName:VolumePath, of a file system DNSName:fsx; names of attributes as they are " +
			"written",
		order:    "pkg/driver/node.go, NodePublishVolume: kept, each option once",
		appends:  "pkg/driver/node.go, NodePublishVolume: ro before the list, for a read-only claim; nothing else",
		replaces: "pkg/driver/node.go, NodePublishVolume: none; an empty list stays empty",
		readOnly: "pkg/driver/node.go, NodePublishVolume: ro before the list, so that rw there wins",
	},
	"fsx.csi.aws.com": {
		repo: "kubernetes-sigs/aws-fsx-csi-driver", release: "aws-fsx-csi-driver 1.9.0",
		staging:  "pkg/driver/node.go, NodePublishVolume: mounts for each pod",
		handle:   "pkg/driver/node.go, NodePublishVolume: the name of a lock; not parsed",
		source:   "pkg/driver/node.go, NodePublishVolume: Lustre, dnsname@tcp:/mountname",
		order:    "pkg/driver/node.go, NodePublishVolume: kept, each option once",
		appends:  "pkg/driver/node.go, NodePublishVolume: ro before the list, for a read-only claim",
		replaces: "pkg/driver/node.go, NodePublishVolume: none; an empty list stays empty",
		readOnly: "pkg/driver/node.go, NodePublishVolume: ro before the list",
	},
	"filestore.csi.storage.gke.io": {
		repo: "kubernetes-sigs/gcp-filestore-csi-driver", release: "gcp-filestore-csi-driver 1.13.1",
		staging: "pkg/csi_driver/gcfs_driver.go, NewGCFSDriver: STAGE_UNSTAGE_VOLUME; pkg/csi_driver/node.go, NodeStageVolume: mounts once per " +
			"node, NodePublishVolume binds, with the list again",
		handle:   "pkg/csi_driver/node.go, NodeStageVolume: for several shares of an instance, names are read from it; the name of a lock",
		source:   "pkg/csi_driver/node.go, NodeStageVolume: ip:/volume of the attributes, ip:/share of the handle for one of several shares",
		order:    "pkg/csi_driver/node.go, NodeStageVolume: kept",
		appends:  "pkg/csi_driver/node.go, NodeStageVolume: the attribute mountOptions, as it is written",
		replaces: "pkg/csi_driver/node.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: "pkg/csi_driver/node.go, NodePublishVolume: ro on the bind mount, for a read-only claim",
	},
	"pd.csi.storage.gke.io": {
		repo: "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver", release: "gcp-compute-persistent-disk-csi-driver 1.26.4",
		staging:  "pkg/gce-pd-csi-driver/node.go, NodeStageVolume: formats and mounts once per node; NodePublishVolume binds, with the list again",
		handle:   "pkg/gce-pd-csi-driver/node.go, NodeStageVolume: the disk's name; the driver parses it",
		source:   "pkg/gce-pd-csi-driver/node.go, NodeStageVolume: a device of the node",
		order:    "pkg/gce-pd-csi-driver/utils.go, collectMountOptions: kept",
		appends:  "pkg/gce-pd-csi-driver/utils.go, collectMountOptions: nouuid for XFS; read_ahead_kb and flags of btrfs are removed",
		replaces: "pkg/gce-pd-csi-driver/node.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: "pkg/gce-pd-csi-driver/node.go, NodePublishVolume: ro on the bind mount, for a read-only claim",
	},
	"csi.trident.netapp.io": {
		repo: "NetApp/trident", release: "Trident 26.06.0",
		staging: "frontend/csi/controller_server.go, ControllerPublishVolume: the list is read when the volume is attached to the node; " +
			"core/node/mount.go: for NFS, each pod's mount uses the options that were read then",
		handle: "frontend/csi/controller_server.go, ControllerPublishVolume: the volume's name at Trident; the driver parses it",
		source: "frontend/csi/controller_server.go, getCSIVolumeFromTridentVolume: the attribute protocol is file or block; the server comes " +
			"with the attachment. File volumes with a secret to stage them are SMB, which the driver mounts on Windows alone " +
			"(utils/mount/mount_linux.go, MountSMBPath)",
		order:   "frontend/csi/controller_server.go, ControllerPublishVolume: kept",
		appends: "core/node/mount.go: ro for a read-only claim; nothing else once the volume has options",
		replaces: "frontend/csi/controller_server.go, ControllerPublishVolume: all options of the backend, including nouuid for XFS " +
			"(storage_drivers/ontap/ontap_common.go, PublishLUN)",
		readOnly: "core/node/mount.go: ro after the list",
	},
	"csi.vsphere.vmware.com": {
		repo: "kubernetes-sigs/vsphere-csi-driver", release: "vsphere-csi-driver 3.7.3",
		staging: "pkg/csi/service/osutils/linux_os_utils.go, PublishFileVolume: mounts file volumes for each pod; pkg/csi/service/node.go, " +
			"NodeStageVolume: block volumes once per node",
		handle: "pkg/csi/service/node.go, NodePublishVolume: the volume's ID at CNS; the driver parses it",
		source: "pkg/csi/service/vanilla/controller.go: the attribute type is vSphere CNS File Volume or vSphere CNS Block Volume; the server " +
			"comes with the attachment (Nfsv4AccessPoint)",
		order: "pkg/csi/service/osutils/linux_os_utils.go, PublishFileVolume: kept",
		appends: "pkg/csi/service/osutils/linux_os_utils.go, PublishFileVolume: ro for a read-only claim, then hard, sec=sys, vers=4, " +
			"minorversion=1",
		replaces: "pkg/csi/service/osutils/linux_os_utils.go, PublishFileVolume: none; an empty list stays empty",
		readOnly: "pkg/csi/service/osutils/linux_os_utils.go, PublishFileVolume: ro after the list",
	},
	"cinder.csi.openstack.org": {
		repo: "kubernetes/cloud-provider-openstack", release: "cloud-provider-openstack 1.36.0",
		staging:  "pkg/csi/cinder/nodeserver.go, NodeStageVolume: formats and mounts once per node",
		handle:   "pkg/csi/cinder/nodeserver.go, NodeStageVolume: the volume's ID; the driver parses it",
		source:   "pkg/csi/cinder/nodeserver.go, NodeStageVolume: a device of the node",
		order:    "pkg/csi/cinder/nodeserver.go, collectMountOptions: kept",
		appends:  "pkg/csi/cinder/nodeserver.go, collectMountOptions: nouuid for XFS",
		replaces: "pkg/csi/cinder/nodeserver.go, NodeStageVolume: none; an empty list stays empty",
		readOnly: unknown,
	},
	"nfs.manila.csi.openstack.org": {
		repo: "kubernetes/cloud-provider-openstack", release: "cloud-provider-openstack 1.36.0",
		staging: "pkg/csi/manila/nodeserver.go, NodePublishVolume: forwarded to csi-driver-nfs of the node, which mounts for each pod",
		handle:  "pkg/csi/manila/nodeserver.go, NodePublishVolume: the share's ID; the driver parses it",
		source: "pkg/csi/manila/shareadapters/nfs.go, BuildVolumeContext: the node requests server and share from Manila; " +
			"charts/manila-csi-plugin: the driver's name begins with the protocol",
		order:    "pkg/csi/manila/nodeserver.go, NodePublishVolume: as csi-driver-nfs has it: kept",
		appends:  "pkg/csi/manila/nodeserver.go, NodePublishVolume: nothing; attributes are replaced, so none contains options",
		replaces: "pkg/csi/manila/nodeserver.go, NodePublishVolume: none; an empty list stays empty",
		readOnly: "pkg/csi/manila/nodeserver.go, NodePublishVolume: as csi-driver-nfs has it: ro after the list",
	},
	"csi-isilon.dellemc.com": {
		repo: "dell/csi-powerscale", release: "csi-powerscale 2.16.0",
		staging: "service/node.go, NodeStageVolume: does nothing; service/mount.go, publishVolume: mounts for each pod",
		handle:  "common/utils/identifiers/volume.go, ParseNormalizedVolumeID: name, export, zone and cluster are read from it",
		source: "service/node.go, NodePublishVolume: AzServiceIP:Path of the attributes; another address with a custom topology, or if that " +
			"is localhost",
		order:    "service/mount.go, publishVolume: kept",
		appends:  "service/mount.go, publishVolume: rw, or ro for a read-only claim, last",
		replaces: "service/mount.go, publishVolume: none; an empty list stays empty",
		readOnly: "service/mount.go, publishVolume: ro after the list",
	},
	"csi-unity.dellemc.com": {
		repo: "dell/csi-unity", release: "csi-unity 2.16.0",
		staging: "service/node.go, NodeGetCapabilities: STAGE_UNSTAGE_VOLUME; service/mount.go, stagePublishNFS: mounts once per node, publishNFS " +
			"binds with the list again",
		handle:   "service/validator.go: array and protocol are read from it",
		source:   "service/validator.go, ValidateAndGetProtocol: the attribute protocol; the driver requests the server from the array",
		order:    "service/mount.go, stagePublishNFS: kept",
		appends:  "service/mount.go, stagePublishNFS: rw; vers=3 if a first try without a version failed; for XFS nouuid",
		replaces: "service/mount.go, stagePublishNFS: none; an empty list stays empty",
		readOnly: "service/mount.go, publishNFS: ro on the bind mount, for a read-only claim",
	},
	"driver.longhorn.io": {
		repo: "longhorn/longhorn-manager", release: "Longhorn 1.12.1",
		staging: "csi/node_server.go, NodeStageVolume: mounts once per node; NodePublishVolume binds with the list",
		handle:  "csi/node_server.go, NodeStageVolume: the volume's name; the driver parses it",
		source: "csi/controller_server.go, CreateVolume: the attribute share is set on volumes that several nodes may write; the " +
			"driver requests the server from Longhorn",
		order:   "csi/node_server.go, NodeStageVolume: kept, for block volumes",
		appends: "csi/node_server.go, NodeStageVolume: nouuid for XFS",
		replaces: "csi/node_server.go, nodeStageSharedVolume: for shared volumes, the list is not read: vers=4.1, noresvport, timeo=600, " +
			"retrans=5, softerr, or the attribute nfsOptions",
		readOnly: "csi/node_server.go, NodePublishVolume: ro on the bind mount, for a read-only claim",
	},
	"csi.hpe.com": {
		repo: "hpe-storage/csi-driver", release: "HPE CSI driver 3.2.0",
		staging: "pkg/driver/node_server.go, NodePublishVolume: file volumes and volumes of a server in the cluster are mounted for each pod, " +
			"disks once per node",
		handle: "pkg/flavor/kubernetes/nfs.go, getNFSResourceNameByVolumeID: the driver parses it",
		source: "pkg/driver/driver.go, IsFileRequest and IsNFSResourceRequest: the attributes accessProtocol and nfsResources; the server " +
			"comes with the attachment, or is a Service",
		order:   "pkg/flavor/kubernetes/file.go, HandleFileNodePublish: kept",
		appends: "pkg/flavor/kubernetes/file.go, HandleFileNodePublish: addr of the server, then ro for a read-only claim; for disks: not known",
		replaces: "pkg/flavor/kubernetes/nfs.go, HandleNFSNodePublish: for a server in the cluster, the list is not read: nolock, vers=4, or the " +
			"attribute nfsMountOptions",
		readOnly: "pkg/flavor/kubernetes/file.go, HandleFileNodePublish: ro after the list",
	},
	"csi.vastdata.com": {
		repo: "vast-data/vast-csi", release: "vast-csi 2.4.2",
		staging: "vast_csi/server.py, NodeGetCapabilities: no STAGE_UNSTAGE_VOLUME; NodePublishVolume: mounts for each pod",
		handle:  "vast_csi/server.py, ControllerPublishVolume: the export's last directory; the driver parses it",
		source: "vast_csi/server.py, ControllerPublishVolume: vip_pool_fqdn of the attributes, or an address of the pool vip_pool_name that is " +
			"drawn for each attachment; vast_csi/server.py, mount: mount(8), by the client that the node has",
		order:   "vast_csi/server.py, NodePublishVolume: kept",
		appends: "vast_csi/server.py, NodePublishVolume: ro before the list, for a read-only claim",
		replaces: "vast_csi/server.py, NodePublishVolume: the entire attribute mount_options; its options are used, in no order, if the list is " +
			"empty",
		readOnly: "vast_csi/server.py, NodePublishVolume: ro before the list, so that rw there wins",
	},
	"csi.san.synology.com": {
		repo: "SynologyOpenSource/synology-csi", release: "synology-csi 1.2.1",
		staging: "pkg/driver/nodeserver.go, NodePublishVolume: mounts NFS for each pod; NodeStageVolume: SMB and disks once per node",
		handle:  unknown,
		source: "pkg/driver/nodeserver.go, NodePublishVolume: for NFS dsm:baseDir of the attributes; NodeStageVolume: for SMB the attribute " +
			"source",
		order: "pkg/driver/nodeserver.go, NodePublishVolume: kept",
		appends: "pkg/driver/nodeserver.go, NodePublishVolume: for NFS ro before the list, for a read-only claim; nodeStageSMBVolume: gid of a " +
			"pod's fsGroup, domain; nodeStageISCSIVolume: rw before the list",
		replaces: "pkg/driver/nodeserver.go, NodePublishVolume: none; an empty list stays empty",
		readOnly: "pkg/driver/nodeserver.go, NodePublishVolume: for NFS ro before the list, so that rw there wins",
	},
	"org.democratic-csi.*": {
		repo: "democratic-csi/democratic-csi", release: "democratic-csi 1.9.4",
		staging: "src/driver/index.js, NodeStageVolume: mounts once per node",
		handle:  unknown,
		source:  "src/driver/index.js, NodeStageVolume: the attribute node_attach_driver; server:share, //server/share",
		order:   "src/driver/index.js, NodeStageVolume: kept",
		appends: "src/driver/index.js, NodeStageVolume: the options in the driver's configuration (node.mount.mount_flags) and the secret, which " +
			"the volume does not show; guest for SMB if there is no username; nouuid for XFS",
		replaces: "src/driver/index.js, NodeStageVolume: none; an empty list stays empty",
		readOnly: unknown,
	},
	"*.nfs.csi.ceph.com": {
		repo: "ceph/ceph-csi", release: "ceph-csi 3.12.2",
		staging: "internal/nfs/nodeserver/nodeserver.go, NodeGetCapabilities: no STAGE_UNSTAGE_VOLUME; NodePublishVolume: mounts for each pod",
		handle:  "internal/nfs/nodeserver/nodeserver.go, NodePublishVolume: logged; not parsed",
		source: "internal/nfs/nodeserver/nodeserver.go, getSource: server:share of the attributes; mountNFS: in another network namespace " +
			"if the cluster's configuration sets one",
		order:    "internal/nfs/nodeserver/nodeserver.go, mountNFS: kept",
		appends:  "internal/nfs/nodeserver/nodeserver.go, NodePublishVolume: ro for a read-only claim",
		replaces: "internal/nfs/nodeserver/nodeserver.go, NodePublishVolume: none; an empty list stays empty",
		readOnly: "internal/nfs/nodeserver/nodeserver.go, NodePublishVolume: ro after the list",
	},
}
