package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Mode says whether a profile acts.
// +kubebuilder:validation:Enum=Enforce;Plan
type Mode string

const (
	// ModeEnforce applies what the profile declares. It is the default.
	ModeEnforce Mode = "Enforce"
	// ModePlan computes and reports everything and touches nothing.
	ModePlan Mode = "Plan"
)

// DeletionPolicy says what happens to nodes and volumes when the profile, or the match, goes.
// +kubebuilder:validation:Enum=Restore;Retain
type DeletionPolicy string

const (
	// DeletionRestore puts the first original values back. It is the default.
	DeletionRestore DeletionPolicy = "Restore"
	// DeletionRetain leaves nodes and volumes as they are.
	DeletionRetain DeletionPolicy = "Retain"
)

// UnsupportedPolicy says what settings that cannot work on a node do to the profile's Ready condition.
// +kubebuilder:validation:Enum=Report;Fail
type UnsupportedPolicy string

const (
	// UnsupportedReport keeps Ready True, with reason ReadyWithExceptions. It is the default.
	UnsupportedReport UnsupportedPolicy = "Report"
	// UnsupportedFail makes Ready False.
	UnsupportedFail UnsupportedPolicy = "Fail"
)

// ConflictPolicy says who wins when a volume carries another value of an option.
// +kubebuilder:validation:Enum=KeepVolume;UseProfileOverClass;UseProfile
type ConflictPolicy string

const (
	// ConflictKeepVolume keeps the volume's value. It is the default.
	ConflictKeepVolume ConflictPolicy = "KeepVolume"
	// ConflictUseProfileOverClass replaces a value that only comes from the volume's StorageClass.
	ConflictUseProfileOverClass ConflictPolicy = "UseProfileOverClass"
	// ConflictUseProfile replaces the volume's value.
	ConflictUseProfile ConflictPolicy = "UseProfile"
)

// GitOpsPolicy says what happens to volumes whose mount options somebody declares in Git.
// +kubebuilder:validation:Enum=ReportOnly;Patch
type GitOpsPolicy string

const (
	// GitOpsReportOnly reports the difference and writes nothing. It is the default.
	GitOpsReportOnly GitOpsPolicy = "ReportOnly"
	// GitOpsPatch writes the volume all the same.
	GitOpsPatch GitOpsPolicy = "Patch"
)

// VolumeProtocol is the family of a volume's client.
// +kubebuilder:validation:Enum=NFS;SMB;Block
type VolumeProtocol string

const (
	// ProtocolNFS selects volumes that are mounted over NFS.
	ProtocolNFS VolumeProtocol = "NFS"
	// ProtocolSMB selects volumes that are mounted over SMB.
	ProtocolSMB VolumeProtocol = "SMB"
	// ProtocolBlock selects volumes with a host file system on a block device.
	ProtocolBlock VolumeProtocol = "Block"
)

// NodeFailurePolicy says what becomes of a node that failed.
// +kubebuilder:validation:Enum=KeepCordoned;Uncordon
type NodeFailurePolicy string

const (
	// FailureKeepCordoned keeps a failed node cordoned until somebody looks. It is the default.
	FailureKeepCordoned NodeFailurePolicy = "KeepCordoned"
	// FailureUncordon returns a failed node to service once it is Ready; it still uses up budget.
	FailureUncordon NodeFailurePolicy = "Uncordon"
)

// DrainTimeoutPolicy says what happens when a drain does not end in time.
// +kubebuilder:validation:Enum=Release;Wait
type DrainTimeoutPolicy string

const (
	// DrainRelease uncordons the node and tries again later. It is the default.
	DrainRelease DrainTimeoutPolicy = "Release"
	// DrainWait keeps the node cordoned and waits on.
	DrainWait DrainTimeoutPolicy = "Wait"
)

// RebootPolicy says who may start a reboot.
// +kubebuilder:validation:Enum=Automatic;OnApproval;Never
type RebootPolicy string

const (
	// RebootAutomatic reboots nodes within budget and windows.
	RebootAutomatic RebootPolicy = "Automatic"
	// RebootOnApproval waits until status.plan.hash has been approved. It is the default.
	RebootOnApproval RebootPolicy = "OnApproval"
	// RebootNever stages boot settings and reports that a reboot is due.
	RebootNever RebootPolicy = "Never"
)

// MountOption is one mount option as a comma-separated list would hold it, e.g. "nconnect=4" or "nocto".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[^,[:space:]]+$')",message="a mount option holds no comma and no blank: give each option as an entry of its own"
type MountOption string

// KernelArgument is one token of the kernel command line, e.g. "ihash_entries=16777216".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[!#%&(-\\\\[\\\\]-_a-~]+$')",message="a kernel argument is one token of printable ASCII without blank, quote, backslash, '$' or backtick"
type KernelArgument string

// SettingText is the value of a sysctl or of a module parameter.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="!self.contains('\\n') && !self.contains('\\r')",message="a value holds no newline"
type SettingText string

// StorageClientProfileSpec declares storage-client settings for the nodes of a pool and for PersistentVolumes.
// Defaults are resolved in code and shown by "kubectl storageclient plan"; they are not written into the object.
type StorageClientProfileSpec struct {
	// nodeSelector selects the Linux nodes that the profile is for. An empty selector selects all of them.
	// Control-plane nodes are left out unless includeControlPlane is set.
	// +required
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// includeControlPlane lets nodeSelector match control-plane nodes too. Default false.
	// +optional
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`

	// priority decides, key by key, between profiles of one node or volume: the higher one wins. Where equal
	// priorities disagree, what is in force for that key stays and Conflict is reported. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// mode says whether the profile acts: Enforce (default), or Plan, which computes and reports everything and touches nothing.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// paused keeps the profile from beginning anything new. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// deletionPolicy says what happens to nodes and volumes when the profile, or the match, goes: Restore (default) or Retain.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// onUnsupported says what settings that cannot work on a node do to Ready: Report (default) or Fail.
	// +optional
	OnUnsupported UnsupportedPolicy `json:"onUnsupported,omitempty"`

	// node holds what is set on each node.
	// +optional
	Node *NodeTuning `json:"node,omitempty"`

	// volumes are rules for the mount options of PersistentVolumes. PersistentVolumes belong to the cluster:
	// these rules are not scoped by nodeSelector.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Volumes []VolumeRule `json:"volumes,omitempty"`

	// rollout says how changes reach nodes and volumes.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`
}

// NodeTuning holds what is set on each node.
type NodeTuning struct {
	// sysctls maps kernel parameters, as dotted names, to their values. Inside an interface name a dot is written "/".
	// Applied live and kept across boots in /etc/sysctl.d.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$|^net[.](ipv4|ipv6|mpls)[.](conf|neigh)[.][A-Za-z0-9_@:+-]+(/[A-Za-z0-9_@:+-]+)*[.][a-z0-9_]+$'))",message="a sysctl key is a dotted name of at most 128 characters, e.g. net.core.rmem_max; '/' stands only for a dot inside an interface name"
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`

	// sunrpc sets the slot table limits of the Sun RPC client.
	// +optional
	Sunrpc *Sunrpc `json:"sunrpc,omitempty"`

	// kernelModules sets parameters of kernel modules, in modprobe.d, and live where the parameter is writable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	KernelModules []KernelModule `json:"kernelModules,omitempty"`

	// kernelArguments are appended to the kernel command line through the node's boot loader. They take effect at
	// the next boot; rollout.reboot says who may start it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	KernelArguments []KernelArgument `json:"kernelArguments,omitempty"`

	// readAhead sets the read-ahead of all mounts of some file system types on the node.
	// volumes[].readAheadKiB is narrower and wins.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ReadAhead []ReadAhead `json:"readAhead,omitempty"`

	// tuned selects the node's tuned profile, where tuned is installed.
	// +optional
	Tuned *Tuned `json:"tuned,omitempty"`

	// nfsMountDefaults are options for NFS mounts that the host makes, in a drop-in under /etc/nfsmount.conf.d.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NFSMountDefaults []NFSMountDefaults `json:"nfsMountDefaults,omitempty"`

	// filesystems sets mount options of host file systems other than the root.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Filesystems []Filesystem `json:"filesystems,omitempty"`
}

// Sunrpc sets the slot table limits of the Sun RPC client, in requests in flight a connection.
// They act on NFSv3 and NFSv4.0 only; NFSv4.1 and 4.2 go by nfs.max_session_slots.
type Sunrpc struct {
	// tcpSlotTableEntries is sunrpc.tcp_slot_table_entries, the slots that a connection starts with: 2 to 65536, kernel default 2.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=65536
	TCPSlotTableEntries *int32 `json:"tcpSlotTableEntries,omitempty"`

	// tcpMaxSlotTableEntries is sunrpc.tcp_max_slot_table_entries, the most slots that a connection grows to: 2 to
	// 65536, kernel default 65536; or FromNconnect, which derives it from the largest nconnect that the node's profiles declare.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? (self >= 2 && self <= 65536) : self == 'FromNconnect'",message="must be an integer from 2 to 65536, or FromNconnect"
	TCPMaxSlotTableEntries *intstr.IntOrString `json:"tcpMaxSlotTableEntries,omitempty"`
}

// KernelModule sets parameters of one kernel module.
type KernelModule struct {
	// name is the module's name, e.g. nfs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Name string `json:"name"`

	// parameters maps the module's parameters to their values.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 64 && k.matches('^[A-Za-z0-9_.-]+$'))",message="a module parameter's name is of letters, digits, '_', '.' and '-', at most 64"
	Parameters map[string]SettingText `json:"parameters"`
}

// ReadAhead sets the read-ahead of mounts by file system type.
type ReadAhead struct {
	// fsTypes are the file system types as the kernel names them, e.g. nfs (NFSv3) and nfs4.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9_]+$`
	FSTypes []string `json:"fsTypes"`

	// sizeKiB is the read-ahead window in KiB: 4 to 1048576. The kernel's default for NFS is 128.
	// +required
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	SizeKiB int32 `json:"sizeKiB"`
}

// Tuned selects a tuned profile.
type Tuned struct {
	// profile is the tuned profile's name, e.g. latency-performance.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+$`
	Profile string `json:"profile"`
}

// NFSMountDefaults are options for NFS mounts that the host makes.
type NFSMountDefaults struct {
	// server limits the options to mounts of one server. Left out, they hold for all.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]+$`
	Server string `json:"server,omitempty"`

	// options are the mount options.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Options []MountOption `json:"options"`
}

// Filesystem sets mount options of host file systems.
type Filesystem struct {
	// mountPoint is an absolute path other than "/"; a glob is allowed.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[^\s]+$`
	MountPoint string `json:"mountPoint"`

	// fsType limits the entry to file systems of this type, e.g. xfs.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9_]+$`
	FSType string `json:"fsType,omitempty"`

	// mountOptions are the options that the file system is to be mounted with.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions"`
}

// VolumeRule sets mount options of the PersistentVolumes that it selects.
type VolumeRule struct {
	// name tells the profile's rules apart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`

	// selector selects PersistentVolumes.
	// +required
	Selector VolumeSelector `json:"selector"`

	// mountOptions are merged into the volumes' own, e.g. [actimeo=30, nconnect=4, nocto].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions,omitempty"`

	// readAheadKiB is the read-ahead window of the volumes' mounts in KiB: 4 to 1048576. It wins over node.readAhead. The
	// node's agent sets it, within seconds of a mount, on NFS and XFS; for SMB declare the mount option rasize instead.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB *int32 `json:"readAheadKiB,omitempty"`

	// onConflict says who wins when a volume carries another value of an option: KeepVolume (default),
	// UseProfileOverClass or UseProfile.
	// +optional
	OnConflict ConflictPolicy `json:"onConflict,omitempty"`

	// gitOpsOwned says what happens to volumes whose mount options somebody declares in Git: ReportOnly (default) or Patch.
	// +optional
	GitOpsOwned GitOpsPolicy `json:"gitOpsOwned,omitempty"`
}

// VolumeSelector selects PersistentVolumes. All given terms must hold; at least one is required.
// +kubebuilder:validation:XValidation:rule="(has(self.storageClassNames) && size(self.storageClassNames) > 0) || (has(self.drivers) && size(self.drivers) > 0) || (has(self.protocols) && size(self.protocols) > 0) || (has(self.fsTypes) && size(self.fsTypes) > 0) || (has(self.servers) && size(self.servers) > 0) || (has(self.accessModes) && size(self.accessModes) > 0) || (has(self.claimNamespaces) && size(self.claimNamespaces) > 0) || (has(self.volumeSelector) && ((has(self.volumeSelector.matchLabels) && size(self.volumeSelector.matchLabels) > 0) || (has(self.volumeSelector.matchExpressions) && size(self.volumeSelector.matchExpressions) > 0))) || (has(self.claimSelector) && ((has(self.claimSelector.matchLabels) && size(self.claimSelector.matchLabels) > 0) || (has(self.claimSelector.matchExpressions) && size(self.claimSelector.matchExpressions) > 0)))",message="a volume selector needs at least one non-empty term"
type VolumeSelector struct {
	// storageClassNames are names of StorageClasses.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	StorageClassNames []string `json:"storageClassNames,omitempty"`

	// drivers are CSI driver names, e.g. nfs.csi.k8s.io; in-tree: kubernetes.io/nfs, kubernetes.io/iscsi, kubernetes.io/local-volume.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Drivers []string `json:"drivers,omitempty"`

	// protocols are NFS, SMB or Block.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Protocols []VolumeProtocol `json:"protocols,omitempty"`

	// fsTypes are file system types of block volumes, e.g. xfs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	FSTypes []string `json:"fsTypes,omitempty"`

	// servers are host names or addresses as the volume names them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Servers []string `json:"servers,omitempty"`

	// accessModes select volumes that offer one of these modes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadOnlyMany;ReadWriteMany;ReadWriteOncePod
	AccessModes []string `json:"accessModes,omitempty"`

	// volumeSelector selects by the PersistentVolume's labels.
	// +optional
	VolumeSelector *metav1.LabelSelector `json:"volumeSelector,omitempty"`

	// claimSelector selects by the labels of the claim that the volume is bound to.
	// +optional
	ClaimSelector *metav1.LabelSelector `json:"claimSelector,omitempty"`

	// claimNamespaces select by the namespace of the claim that the volume is bound to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ClaimNamespaces []string `json:"claimNamespaces,omitempty"`
}

// Rollout says how changes reach nodes and volumes.
type Rollout struct {
	// maxUnavailable is how many of the profile's nodes may be out of service at a time: at least 1, or 1% to 100%,
	// rounded down and never under 1. Default 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxConcurrentLive is how many nodes take a live change at a time, after the canary. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxConcurrentLive *intstr.IntOrString `json:"maxConcurrentLive,omitempty"`

	// canary names the nodes that take every change first. Default: 1 node and a soak of 60 seconds.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// failureThreshold stops the rollout after that many failed nodes: at least 1. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`

	// settleSeconds is how long a node must look well after its boot before it returns to service: 0 to 86400. Default 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SettleSeconds *int32 `json:"settleSeconds,omitempty"`

	// onNodeFailure says what becomes of a node that failed: KeepCordoned (default) or Uncordon.
	// +optional
	OnNodeFailure NodeFailurePolicy `json:"onNodeFailure,omitempty"`

	// ignoreUnavailableAfterSeconds frees the budget that a node holds by being unavailable for longer: 0 to 2592000. Default 0: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	IgnoreUnavailableAfterSeconds int32 `json:"ignoreUnavailableAfterSeconds,omitempty"`

	// windows are the times in which disruptions may begin. None given: always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// drain says how pods leave a node before its reboot.
	// +optional
	Drain Drain `json:"drain,omitzero"`

	// reboot says who may start a reboot, and how long it may take.
	// +optional
	Reboot Reboot `json:"reboot,omitzero"`

	// volumes says how changes of mount options reach PersistentVolumes.
	// +optional
	Volumes *VolumeRollout `json:"volumes,omitempty"`
}

// Canary names the nodes that take every change first.
// +kubebuilder:validation:XValidation:rule="!(has(self.nodes) && has(self.nodeSelector))",message="give nodes or nodeSelector, not both"
type Canary struct {
	// nodes is how many nodes form the canary: 1 to 5000. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Nodes *int32 `json:"nodes,omitempty"`

	// nodeSelector selects the canary among the profile's nodes instead.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakSeconds is how long the canary must look well before others follow: 0 to 2592000. Default 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`
}

// Window is a time in which disruptions may begin.
type Window struct {
	// schedule is the window's beginning in cron form: minute, hour, day of month, month, day of week.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`

	// durationSeconds is the window's length: 1 to 604800.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds"`

	// timeZone is a name of the IANA time zone database, e.g. Europe/Berlin. Default UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// Drain says how pods leave a node before its reboot.
type Drain struct {
	// timeoutSeconds bounds a drain: 1 to 604800. Default 900.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// onTimeout says what happens then: Release (default; uncordon, try again later) or Wait.
	// +optional
	OnTimeout DrainTimeoutPolicy `json:"onTimeout,omitempty"`

	// gracePeriodSeconds overrides the pods' own grace period: 0 to 86400. Default -1: the pod's own.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// deleteEmptyDirData evicts pods with emptyDir volumes too; their data is lost. Default false.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// force evicts pods without a controller too; nothing brings them back. Default false.
	// +optional
	Force bool `json:"force,omitempty"`

	// waitForJobs waits for pods of Jobs to end instead of evicting them. Default true.
	// +optional
	WaitForJobs *bool `json:"waitForJobs,omitempty"`

	// waitForPodSelector selects further pods that are waited for instead of evicted.
	// +optional
	WaitForPodSelector *metav1.LabelSelector `json:"waitForPodSelector,omitempty"`

	// ignoreDaemonSetMounts lists the mounts of DaemonSet and static pods without letting them hold the reboot back. Default true.
	// +optional
	IgnoreDaemonSetMounts *bool `json:"ignoreDaemonSetMounts,omitempty"`

	// excludeFromLoadBalancersSeconds takes the node out of external load balancers for that long before the drain: 0 to 3600. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ExcludeFromLoadBalancersSeconds int32 `json:"excludeFromLoadBalancersSeconds,omitempty"`
}

// Reboot says who may start a reboot, and how long it may take.
type Reboot struct {
	// policy is Automatic, OnApproval (default) or Never.
	// +optional
	Policy RebootPolicy `json:"policy,omitempty"`

	// approvedPlan approves the plan whose hash (status.plan.hash) it holds, so that an approval can be a commit.
	// The annotation tuning.storageclient.dev/approved-plan does the same.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ApprovedPlan string `json:"approvedPlan,omitempty"`

	// timeoutSeconds bounds the time from the permit to the node being Ready again: 1 to 86400. Default 900.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// restoreReboot also reboots nodes to be rid of boot arguments that Restore has taken out of the menu. Default false.
	// +optional
	RestoreReboot bool `json:"restoreReboot,omitempty"`
}

// VolumeRollout says how changed mount options reach existing PersistentVolumes: one volume first, as the canary, for each
// driver and list of options; then maxPerStep at a time. New volumes get them as they are created, and Restore is not stepped.
type VolumeRollout struct {
	// maxPerStep is how many volumes change in one step after the canary: at least 1, or 1% to 100% of the profile's matched
	// volumes that are not blocked, rounded down, never under 1. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxPerStep *intstr.IntOrString `json:"maxPerStep,omitempty"`

	// soakSeconds ends a step in which no node has mounted a changed volume well: 0 to 2592000. Default 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`
}

// StorageClientProfileStatus tells how far nodes and volumes carry what the profile declares.
type StorageClientProfileStatus struct {
	// observedGeneration is the generation that this status speaks of; -1 before the first visit.
	// +optional
	// +kubebuilder:default=-1
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration"`

	// conditions are Ready, MountsEffective, Reconciling, Stalled, Paused and Conflict.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the profile's nodes.
	// +optional
	// +kubebuilder:default={}
	Nodes NodeCounts `json:"nodes,omitzero"`

	// volumes counts the profile's PersistentVolumes.
	// +optional
	// +kubebuilder:default={}
	Volumes VolumeCounts `json:"volumes,omitzero"`

	// plan tells which reboots the profile needs.
	// +optional
	// +kubebuilder:default={}
	Plan Plan `json:"plan,omitzero"`

	// advice points out what the settings mean together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Advice []Advice `json:"advice,omitempty"`
}

// NodeCounts counts the profile's nodes.
type NodeCounts struct {
	// matched is how many nodes the profile selects.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`
	// upToDate is how many of them were read back with every declared value, exceptions included.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	UpToDate int32 `json:"upToDate"`
	// exceptions is how many have settings that are Clamped or Unsupported.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Exceptions int32 `json:"exceptions"`
	// pendingReboot is how many wait for a reboot.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	PendingReboot int32 `json:"pendingReboot"`
	// disrupted is how many are out of service for this profile.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Disrupted int32 `json:"disrupted"`
	// failed is how many have failed.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
	// drifted is how many have settings that no longer have the declared value.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Drifted int32 `json:"drifted"`
}

// VolumeCounts counts the profile's PersistentVolumes.
type VolumeCounts struct {
	// matched is how many PersistentVolumes the rules select.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`
	// upToDate is how many carry the declared options.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	UpToDate int32 `json:"upToDate"`
	// blocked is how many are left alone: declared elsewhere, or changed by somebody else.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Blocked int32 `json:"blocked"`
	// staleMounts is how many mounts of them on nodes still have old options.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	StaleMounts int32 `json:"staleMounts"`
}

// Plan tells which reboots the profile needs.
type Plan struct {
	// hash names the plan for an approval. It covers the profile's boot settings.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
	// nodesToReboot is how many nodes wait for a reboot.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	NodesToReboot int32 `json:"nodesToReboot"`
	// estimatedCompletion is the earliest time at which all of them can be done.
	// +optional
	// +nullable
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// limitedBy tells what holds the next reboot back.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=1024
	LimitedBy string `json:"limitedBy"`
	// examples are nodes that wait for a reboot, at most 20 names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	Examples []string `json:"examples,omitempty"`
}

// Severity of an advice.
// +kubebuilder:validation:Enum=Info;Warning;Error
type Severity string

const (
	// SeverityInfo tells something worth knowing.
	SeverityInfo Severity = "Info"
	// SeverityWarning tells something that probably is not meant.
	SeverityWarning Severity = "Warning"
	// SeverityError tells something that hurts.
	SeverityError Severity = "Error"
)

// Advice points out what settings mean together.
type Advice struct {
	// id names the rule.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// severity is Info, Warning or Error.
	// +required
	Severity Severity `json:"severity"`
	// text says what is the matter and what would be right.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Text string `json:"text"`
}

// StorageClientProfile declares storage-client settings for the nodes of a pool and for PersistentVolumes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=scp,categories=storageclient
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.matched`
// +kubebuilder:printcolumn:name="Up-To-Date",type=integer,JSONPath=`.status.nodes.upToDate`
// +kubebuilder:printcolumn:name="Pending-Reboot",type=integer,JSONPath=`.status.nodes.pendingReboot`
// +kubebuilder:printcolumn:name="Disrupted",type=integer,JSONPath=`.status.nodes.disrupted`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Plan",type=string,priority=1,JSONPath=`.status.plan.hash`
type StorageClientProfile struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares the settings.
	// +required
	Spec StorageClientProfileSpec `json:"spec"`

	// status tells how far nodes and volumes carry them.
	// +optional
	// +kubebuilder:default={}
	Status StorageClientProfileStatus `json:"status,omitzero"`
}

// StorageClientProfileList is a list of StorageClientProfiles.
//
// +kubebuilder:object:root=true
type StorageClientProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageClientProfile `json:"items"`
}
