package drivers

// What was read of each driver, and where.
var (
	nfsInTree = reading{
		release:  "Kubernetes 1.36.3",
		staging:  "pkg/volume/nfs/nfs.go, SetUpAt: mounts for each pod, below the pod's directory",
		handle:   "pkg/volume/nfs/nfs.go, GetVolumeName: there is none; server and path tell volumes apart",
		source:   "pkg/volume/nfs/nfs.go, SetUpAt: server and path of spec.nfs",
		order:    "pkg/volume/util/util.go, JoinMountOptions: a set, sorted by the alphabet",
		appends:  "pkg/volume/nfs/nfs.go, SetUpAt: ro, for a read-only claim of the pod; nothing else",
		replaces: "pkg/volume/util/util.go, MountOptionFromSpec: the annotation volume.beta.kubernetes.io/mount-options takes the place of the list",
		readOnly: "pkg/volume/nfs/nfs.go, getVolumeSource: of a PersistentVolume, what the pod's claim says; ro is sorted in, and rw in the list comes after it, " +
			"but GetAttributes has the containers' mounts read-only all the same",
	}
	nfsCSI = reading{
		release:  "csi-driver-nfs 4.13.4",
		staging:  "pkg/nfs/nfs.go, NewDriver: no STAGE_UNSTAGE_VOLUME; pkg/nfs/nodeserver.go, NodePublishVolume: mounts for each pod",
		handle:   "pkg/nfs/nodeserver.go, NodePublishVolume: names a lock, and the cache of NodeGetVolumeStats; nothing is read out of it",
		source:   "pkg/nfs/nodeserver.go, NodePublishVolume: server:share/subDir of the attributes, their names in any case",
		order:    "pkg/nfs/nodeserver.go, NodePublishVolume: kept",
		appends:  "pkg/nfs/nodeserver.go, NodePublishVolume: ro, for a read-only claim of the pod; then the attribute mountOptions, as it is written",
		replaces: "pkg/nfs/nodeserver.go, NodePublishVolume: nothing; an empty list stays empty",
		readOnly: "pkg/nfs/nodeserver.go, NodePublishVolume: ro after the list, so that it wins over rw there",
	}
	smbCSI = reading{
		release: "csi-driver-smb 1.20.3",
		staging: "pkg/smb/smb.go, Run: STAGE_UNSTAGE_VOLUME; pkg/smb/nodeserver.go, NodeStageVolume: mounts once a node, NodePublishVolume binds",
		handle:  "pkg/smb/nodeserver.go, NodeStageVolume: names a lock and the cache of Kerberos tickets; nothing is read out of it",
		source:  "pkg/smb/nodeserver.go, NodeStageVolume: source/subDir of the attributes, their names in any case",
		order:   "pkg/smb/nodeserver.go, NodeStageVolume: kept",
		appends: "pkg/smb/nodeserver.go, NodeStageVolume: for a pod with an fsGroup, unless the list begins an option with gid, gid, file_mode=0774 and " +
			"dir_mode=0775, or the group's rights in those of the list; domain, username and password of the secret, unless the list says guest",
		replaces: "pkg/smb/nodeserver.go, NodeStageVolume: nothing; an empty list stays empty",
		readOnly: "pkg/smb/nodeserver.go, NodePublishVolume: ro of the bind mount, for a read-only claim, access mode, or ro in the list",
	}
	azureFiles = reading{
		release: "azurefile-csi-driver 1.35.7",
		staging: "pkg/azurefile/azurefile.go, Run: STAGE_UNSTAGE_VOLUME; pkg/azurefile/nodeserver.go, NodeStageVolume: mounts once a node, " +
			"NodePublishVolume binds; with a service account's token for SMB, NodePublishVolume mounts for each pod",
		handle: "pkg/azurefile/azurefile.go, GetAccountInfo and GetFileShareInfo: resource group, account, share and disk are read out of it, where no " +
			"attribute says them",
		source: "pkg/azurefile/nodeserver.go, NodeStageVolume: of NFS server:/account/share/folderName; of SMB //server/share/folderName; of a disk's file " +
			"system, the disk on such a share",
		order: "pkg/util/util.go, JoinMountOptions: of NFS sorted by the alphabet; of SMB kept, but sorted for a read-only access mode",
		appends: "pkg/azurefile/nodeserver.go, NodeStageVolume: of NFS \"vers=4,minorversion=1,sec=sys\", sorted in; ro for a read-only access mode; gid of a " +
			"pod's fsGroup, of SMB; account and key, or sec=krb5. pkg/azurefile/azurefile.go, appendDefaultNfsMountOptions and " +
			"appendDefaultCifsMountOptions, in any order: what azureFileList has, by the flags' values in pkg/azurefile/azurefile_options.go " +
			"(nosharesock since 1.28; " + unknown + ": what flags a cluster sets)",
		replaces: "pkg/azurefile/nodeserver.go, NodeStageVolume: the list of a disk image on a share, altogether: the share gets options of the driver's own",
		readOnly: "pkg/azurefile/nodeserver.go, NodePublishVolume: ro of the bind mount, for a read-only claim",
	}
)
