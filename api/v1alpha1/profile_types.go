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

// DeletionPolicy says what happens to nodes and volumes when the profile is deleted or no longer matches them.
// +kubebuilder:validation:Enum=Restore;Retain
type DeletionPolicy string

const (
	// DeletionRestore restores the original values. It is the default.
	DeletionRestore DeletionPolicy = "Restore"
	// DeletionRetain leaves nodes and volumes as they are.
	DeletionRetain DeletionPolicy = "Retain"
)

// UnsupportedPolicy says how settings that cannot work on a node affect the profile's Ready condition.
// +kubebuilder:validation:Enum=Report;Fail
type UnsupportedPolicy string

const (
	// UnsupportedReport keeps Ready True, with reason ReadyWithExceptions. It is the default.
	UnsupportedReport UnsupportedPolicy = "Report"
	// UnsupportedFail makes Ready False.
	UnsupportedFail UnsupportedPolicy = "Fail"
)

// ConflictPolicy says which value wins when a volume already has a different value of an option.
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

// MountOptionsSource is where options of a rule come from beside the profile.
// +kubebuilder:validation:Enum="";StorageClass
type MountOptionsSource string

const (
	// MountOptionsFromClass is the StorageClass of each volume, as it is today.
	MountOptionsFromClass MountOptionsSource = "StorageClass"
)

// GitOpsPolicy says what happens to volumes whose mount options are managed in Git.
// +kubebuilder:validation:Enum=ReportOnly;Patch
type GitOpsPolicy string

const (
	// GitOpsReportOnly reports the difference and writes nothing. It is the default.
	GitOpsReportOnly GitOpsPolicy = "ReportOnly"
	// GitOpsPatch changes the volume anyway.
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

// NodeFailurePolicy says what happens to a node that failed.
// +kubebuilder:validation:Enum=KeepCordoned;Uncordon
type NodeFailurePolicy string

const (
	// FailureKeepCordoned keeps a failed node cordoned until a person uncordons it. It is the default.
	FailureKeepCordoned NodeFailurePolicy = "KeepCordoned"
	// FailureUncordon returns a failed node to service once it is Ready; it still counts against the budget.
	FailureUncordon NodeFailurePolicy = "Uncordon"
)

// DrainTimeoutPolicy says what happens when a drain times out.
// +kubebuilder:validation:Enum=Release;Wait
type DrainTimeoutPolicy string

const (
	// DrainRelease uncordons the node and tries again later. It is the default.
	DrainRelease DrainTimeoutPolicy = "Release"
	// DrainWait keeps the node cordoned and keeps waiting.
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
	// RebootNever stages boot settings and reports the pending reboot.
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

// WholeNumbers are one to eight whole numbers in decimal digits, with one blank between them.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=151
// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,17})( (0|[1-9][0-9]{0,17})){0,7}$`
type WholeNumbers string

// StorageClientProfileSpec declares storage-client settings for the nodes of a pool and for PersistentVolumes.
// Defaults are resolved in code and shown by "kubectl storageclient plan"; they are not written into the object.
// +kubebuilder:validation:XValidation:rule="(has(self.nodeSelector) && (has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0 || has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)) != (has(self.allNodes) && self.allNodes)",fieldPath=".nodeSelector",message="give nodeSelector at least one label (matchLabels: {KEY: VALUE}) or expression, or allNodes: true instead of it"
type StorageClientProfileSpec struct {
	// nodeSelector selects the Linux nodes that the profile applies to, by at least one label or expression. Either it or allNodes is
	// given. Control-plane nodes are excluded unless includeControlPlane is true.
	// +optional
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitzero"`

	// allNodes applies the profile to all Linux nodes, instead of a nodeSelector. Default false.
	// +optional
	AllNodes bool `json:"allNodes,omitempty"`

	// includeControlPlane lets nodeSelector or allNodes match control-plane nodes as well. Default false.
	// +optional
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`

	// priority decides, setting by setting, between profiles that match the same node or volume: the higher one wins. If
	// profiles of equal priority disagree, the value in force stays and the condition Conflict is True. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// mode is Enforce (default), which applies the profile, or Plan, which reports what would happen and changes nothing.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// paused keeps the profile from starting anything new; nodes already being disrupted finish. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// deletionPolicy says what happens to nodes and volumes when the profile is deleted or no longer matches them: Restore
	// (default) restores the original values, Retain leaves the values in place.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// onUnsupported says how exceptions affect Ready: settings that cannot work on a node, that another file of the node overrides or
	// that take effect at a boot which nobody plans, and volumes that keep a value of their own or are managed elsewhere. Report
	// (default) keeps it True with reason ReadyWithExceptions, Fail makes it False.
	// +optional
	OnUnsupported UnsupportedPolicy `json:"onUnsupported,omitempty"`

	// node holds the settings of each node.
	// +optional
	Node *NodeTuning `json:"node,omitempty"`

	// volumes are rules for the mount options of PersistentVolumes. They apply cluster-wide: nodeSelector does not limit them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Volumes []VolumeRule `json:"volumes,omitempty"`

	// rollout controls how changes are rolled out to nodes and volumes.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`
}

// NodeTuning holds the settings of each node.
type NodeTuning struct {
	// sysctls maps kernel parameters, as dotted names, to their values. Inside an interface name, write "/" for a dot.
	// They are applied live and kept across boots in /etc/sysctl.d.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$|^net[.](ipv4|ipv6|mpls)[.](conf|neigh)[.][A-Za-z0-9_@:+-]+(/[A-Za-z0-9_@:+-]+)*[.][a-z0-9_]+$'))",message="a sysctl key is a dotted name of at most 128 characters, e.g. net.core.rmem_max; '/' stands only for a dot inside an interface name"
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`

	// sysctlsAtLeast maps kernel parameters, as dotted names, to the least that they are to be: one or more whole numbers. A number
	// is raised where the kernel's own is lower, and none is ever lowered. Of several profiles the largest counts, number by number;
	// an exact value in sysctls of a higher priority wins, and one of equal priority that is lower is a conflict.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$|^net[.](ipv4|ipv6|mpls)[.](conf|neigh)[.][A-Za-z0-9_@:+-]+(/[A-Za-z0-9_@:+-]+)*[.][a-z0-9_]+$'))",message="a sysctl key is a dotted name of at most 128 characters, e.g. net.core.rmem_max; '/' stands only for a dot inside an interface name"
	SysctlsAtLeast map[string]WholeNumbers `json:"sysctlsAtLeast,omitempty"`

	// sunrpc sets the slot table limits of the Sun RPC client (NFSv3 and NFSv4.0).
	// +optional
	Sunrpc *Sunrpc `json:"sunrpc,omitempty"`

	// kernelModules sets parameters of kernel modules in /etc/modprobe.d, and live where the parameter is writable.
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

	// readAhead sets the read-ahead of all of the node's mounts by file system type.
	// volumes[].readAheadKiB is more specific and wins.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ReadAhead []ReadAhead `json:"readAhead,omitempty"`

	// tuned selects the node's tuned profile, if tuned is installed.
	// +optional
	Tuned *Tuned `json:"tuned,omitempty"`

	// nfs4UniqueID is FromNode: the node's NFSv4 client introduces itself to servers by the Node's UID beside its host name, so that clients
	// of one host name do not take each other's locks and open files away. It is set in /etc/modprobe.d and counts from when the kernel
	// loads its module nfs, which is before the first NFS mount: on a node that has NFS mounts already, from its next boot on.
	// +optional
	NFS4UniqueID NFS4UniqueID `json:"nfs4UniqueID,omitempty"`

	// nfsMountDefaults are options for NFS mounts that the host itself makes. They are kept in a file under /etc/nfsmount.conf.d.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NFSMountDefaults []NFSMountDefaults `json:"nfsMountDefaults,omitempty"`

	// filesystems sets mount options of host file systems other than the root file system.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Filesystems []Filesystem `json:"filesystems,omitempty"`
}

// NFS4UniqueID says by what a node's NFSv4 client introduces itself.
// +kubebuilder:validation:Enum=FromNode
type NFS4UniqueID string

// NFS4UniqueIDFromNode derives it from the Node's UID, which no other Node of any cluster has.
const NFS4UniqueIDFromNode NFS4UniqueID = "FromNode"

// Sunrpc sets the slot table limits of the Sun RPC client, in requests in flight per connection.
// They affect NFSv3 and NFSv4.0 only; NFSv4.1 and 4.2 use nfs.max_session_slots.
type Sunrpc struct {
	// tcpSlotTableEntries is sunrpc.tcp_slot_table_entries, the number of slots that a connection starts with: 2 to 65536. Kernel default 2.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=65536
	TCPSlotTableEntries *int32 `json:"tcpSlotTableEntries,omitempty"`

	// tcpMaxSlotTableEntries is sunrpc.tcp_max_slot_table_entries, the number of slots that a connection can grow to: 2 to
	// 65536, or FromNconnect, which derives it from the largest nconnect that the node's profiles declare. Kernel default 65536.
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
	// server limits the options to mounts of one server. Default: all servers.
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
	// mountPoint is an absolute path at or below /mnt, /data, /srv or the directory of an application in /var/lib, or where the operator
	// admits more (--allow-filesystem). Globs are allowed after such a directory.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[^\s]+$`
	MountPoint string `json:"mountPoint"`

	// fsType limits the entry to file systems of this type, e.g. xfs. Default: any type.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9_]+$`
	FSType string `json:"fsType,omitempty"`

	// mountOptions are the options to mount the file system with.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions"`
}

// VolumeRule sets mount options of the PersistentVolumes that it selects.
type VolumeRule struct {
	// name identifies the rule within the profile.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`

	// selector selects the PersistentVolumes that the rule applies to.
	// +required
	Selector VolumeSelector `json:"selector"`

	// mountOptions are merged into the volumes' own options, e.g. [actimeo=30, nconnect=4, nocto].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions,omitempty"`

	// mountOptionsFrom takes more options from elsewhere. StorageClass: those that the volume's StorageClass has today, so that an edited
	// class reaches its old volumes; mountOptions win over them. What a volume of the class has counts as the class's of an earlier
	// day: other values are replaced, and of a volume that a provisioner made, options that the class has no longer go, unless
	// onConflict is KeepVolume. Its default is UseProfileOverClass then. Nothing that protects a volume goes.
	// +optional
	MountOptionsFrom MountOptionsSource `json:"mountOptionsFrom,omitempty"`

	// readAheadKiB is the read-ahead window of the volumes' mounts in KiB: 4 to 1048576. It overrides node.readAhead. The
	// node's agent sets it within seconds of a mount, on NFS and XFS. For SMB, use the mount option rasize instead.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB *int32 `json:"readAheadKiB,omitempty"`

	// onConflict says which value wins when a volume already has a different value of an option: KeepVolume (default, but for
	// mountOptionsFrom) keeps the volume's, UseProfileOverClass replaces a value that only comes from the StorageClass, UseProfile replaces it wherever it
	// comes from. Whatever it says, a value that would weaken a volume's protection (sec, xprtsec, ro, SMB version, quotas) stays out.
	// +optional
	OnConflict ConflictPolicy `json:"onConflict,omitempty"`

	// gitOpsOwned says what happens to volumes whose mount options are managed in Git: ReportOnly (default) reports the
	// difference, Patch changes the volume anyway.
	// +optional
	GitOpsOwned GitOpsPolicy `json:"gitOpsOwned,omitempty"`
}

// VolumeSelector selects PersistentVolumes. A volume must match all given terms; at least one is required.
// +kubebuilder:validation:XValidation:rule="(has(self.storageClassNames) && size(self.storageClassNames) > 0) || (has(self.drivers) && size(self.drivers) > 0) || (has(self.protocols) && size(self.protocols) > 0) || (has(self.fsTypes) && size(self.fsTypes) > 0) || (has(self.servers) && size(self.servers) > 0) || (has(self.accessModes) && size(self.accessModes) > 0) || (has(self.claimNamespaces) && size(self.claimNamespaces) > 0) || (has(self.volumeSelector) && ((has(self.volumeSelector.matchLabels) && size(self.volumeSelector.matchLabels) > 0) || (has(self.volumeSelector.matchExpressions) && size(self.volumeSelector.matchExpressions) > 0))) || (has(self.claimSelector) && ((has(self.claimSelector.matchLabels) && size(self.claimSelector.matchLabels) > 0) || (has(self.claimSelector.matchExpressions) && size(self.claimSelector.matchExpressions) > 0)))",message="a volume selector needs at least one non-empty term"
type VolumeSelector struct {
	// storageClassNames select volumes of these StorageClasses.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	StorageClassNames []string `json:"storageClassNames,omitempty"`

	// drivers select volumes of these CSI drivers, e.g. nfs.csi.k8s.io. In-tree volumes are kubernetes.io/nfs, kubernetes.io/iscsi
	// and kubernetes.io/local-volume.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Drivers []string `json:"drivers,omitempty"`

	// protocols select volumes by how they are mounted: NFS, SMB or Block.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Protocols []VolumeProtocol `json:"protocols,omitempty"`

	// fsTypes select block volumes with these file system types, e.g. xfs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	FSTypes []string `json:"fsTypes,omitempty"`

	// servers select volumes on these servers: host names or addresses, exactly as the volume gives them.
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

	// claimSelector selects by the labels of the PersistentVolumeClaim that the volume is bound to.
	// +optional
	ClaimSelector *metav1.LabelSelector `json:"claimSelector,omitempty"`

	// claimNamespaces select by the namespace of the PersistentVolumeClaim that the volume is bound to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ClaimNamespaces []string `json:"claimNamespaces,omitempty"`
}

// Rollout controls how changes are rolled out to nodes and volumes.
type Rollout struct {
	// maxUnavailable is how many of the profile's nodes may be out of service at a time: at least 1, or 1% to 100% of
	// them, rounded down and never under 1. Default 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxConcurrentLive is how many nodes take a live change at a time after the canary: at least 1, or 1% to 100% of the
	// profile's nodes, rounded down and never under 1. The manager's --max-concurrent-live bounds all profiles together. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxConcurrentLive *intstr.IntOrString `json:"maxConcurrentLive,omitempty"`

	// canary chooses the nodes that get every change first. Default: 1 node, with a soak of 60 seconds.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// failureThreshold stops the rollout once this many nodes have failed: 1 to 5000. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`

	// settleSeconds is how long a node must stay healthy after reboot before uncordon, in seconds: 0 to 86400. Default 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SettleSeconds *int32 `json:"settleSeconds,omitempty"`

	// onNodeFailure says what happens to a node that failed: KeepCordoned (default), or Uncordon once it is Ready.
	// +optional
	OnNodeFailure NodeFailurePolicy `json:"onNodeFailure,omitempty"`

	// ignoreUnavailableAfterSeconds is after how long an unavailable node no longer counts against the budget, in seconds: 0 to
	// 2592000. Default 0: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	IgnoreUnavailableAfterSeconds int32 `json:"ignoreUnavailableAfterSeconds,omitempty"`

	// windows are the times when disruptions may begin. Default: any time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// drain controls how a node is drained before its reboot.
	// +optional
	Drain Drain `json:"drain,omitzero"`

	// reboot says who may start a reboot and how long it may take.
	// +optional
	Reboot Reboot `json:"reboot,omitzero"`

	// volumes controls how changed mount options are rolled out to PersistentVolumes.
	// +optional
	Volumes *VolumeRollout `json:"volumes,omitempty"`
}

// Canary chooses the nodes that get every change first.
// +kubebuilder:validation:XValidation:rule="!(has(self.nodes) && has(self.nodeSelector))",message="give nodes or nodeSelector, not both"
type Canary struct {
	// nodes is how many nodes form the canary: 1 to 5000. Default 1. Not together with nodeSelector.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Nodes *int32 `json:"nodes,omitempty"`

	// nodeSelector selects the canary from the profile's nodes, in place of nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakSeconds is how long the canary must stay healthy before other nodes follow, in seconds: 0 to 2592000. For live changes
	// the manager's --min-live-soak holds where that is longer. Default 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`
}

// Window is a time span in which disruptions may begin.
type Window struct {
	// schedule is when the window opens, in cron format: minute, hour, day of month, month, day of week.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`

	// durationSeconds is how long the window stays open, in seconds: 1 to 604800.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds"`

	// timeZone is the schedule's time zone by its IANA name, e.g. Europe/Berlin. Default UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// Drain controls how a node is drained before its reboot.
type Drain struct {
	// timeoutSeconds is how long a drain may take, in seconds: 1 to 604800. Default 900.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// onTimeout says what happens when the drain times out: Release (default) uncordons the node and tries again later, Wait
	// keeps it cordoned and keeps waiting.
	// +optional
	OnTimeout DrainTimeoutPolicy `json:"onTimeout,omitempty"`

	// gracePeriodSeconds overrides the pods' own termination grace period, in seconds: 0 to 86400. Default -1: each pod's own.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// deleteEmptyDirData allows pods with emptyDir volumes to be evicted; the data in these volumes is lost. Default false.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// force allows pods without a controller to be evicted; nothing recreates them. Default false.
	// +optional
	Force bool `json:"force,omitempty"`

	// waitForJobs waits for pods of Jobs to finish instead of evicting them, and evicts no other pod of the node before. Default true.
	// +optional
	WaitForJobs *bool `json:"waitForJobs,omitempty"`

	// waitForPodSelector selects more pods to wait for as waitForJobs does.
	// +optional
	WaitForPodSelector *metav1.LabelSelector `json:"waitForPodSelector,omitempty"`

	// ignoreDaemonSetMounts reports the mounts of DaemonSet and static pods but lets the reboot proceed. Default true.
	// +optional
	IgnoreDaemonSetMounts *bool `json:"ignoreDaemonSetMounts,omitempty"`

	// excludeFromLoadBalancersSeconds takes the node out of external load balancers this long before the drain, in seconds: 0 to
	// 3600. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ExcludeFromLoadBalancersSeconds int32 `json:"excludeFromLoadBalancersSeconds,omitempty"`
}

// Reboot says who may start a reboot and how long it may take.
type Reboot struct {
	// policy is OnApproval (default), which waits for the plan to be approved, Automatic, which reboots within budget and
	// windows, or Never, which stages boot settings and reports the pending reboot. Automatic needs the verb approve on the
	// profile: to set it, and to change what a plan covers while it is set.
	// +optional
	Policy RebootPolicy `json:"policy,omitempty"`

	// approvedPlan approves the plan with this hash (status.plan.hash), so that an approval can be a commit.
	// The annotation tuning.storageclient.dev/approved-plan does the same. Both need the verb approve on the profile.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ApprovedPlan string `json:"approvedPlan,omitempty"`

	// timeoutSeconds is how long a reboot may take, from the permit until the node is Ready again, in seconds: 1 to 86400.
	// Default 900.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// restoreReboot also reboots nodes to remove boot arguments that Restore has already taken out of the boot configuration.
	// Default false: they stay active until the next reboot.
	// +optional
	RestoreReboot bool `json:"restoreReboot,omitempty"`
}

// VolumeRollout controls how changed mount options are rolled out to existing PersistentVolumes: first one volume, the canary,
// of each driver and list of options; then, once a pod has mounted it with them, maxPerStep at a time. New volumes get the options
// when they are created. Restore is not done in batches.
type VolumeRollout struct {
	// maxPerStep is how many volumes change at a time after the canary: at least 1, or 1% to 100% of the profile's matched
	// volumes that are not blocked, rounded down and never under 1. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxPerStep *intstr.IntOrString `json:"maxPerStep,omitempty"`

	// soakSeconds is the least time between one change of volumes and the next, in seconds: 0 to 2592000. Default 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`

	// probe is Auto or Never. With Auto, a list of options is first mounted once where that can be done without touching any mount of
	// the cluster: in a network namespace of its own, on a node with an agent, or where that shows nothing, as of SMB, by a clone of a
	// volume on a node without mounts of its server. A list that the kernel, the server or the driver refuses then is written to no
	// volume. Where neither can be done, and with Never, the first volume shows whether the list works. Default Auto.
	// +optional
	Probe ProbePolicy `json:"probe,omitempty"`

	// onNoEvidence is Wait (the default) or Proceed. With Wait, no further volume gets a list of options before a pod has mounted the
	// canary, or another volume with that list, since it was written: Reconciling says which mount it waits for. With Proceed,
	// soakSeconds without a failed mount is enough.
	// +optional
	OnNoEvidence NoEvidencePolicy `json:"onNoEvidence,omitempty"`
}

// ProbePolicy says whether a list of options is tried before any volume has it.
// +kubebuilder:validation:Enum=Auto;Never
type ProbePolicy string

const (
	// ProbeAuto tries a list wherever that can be done.
	ProbeAuto ProbePolicy = "Auto"
	// ProbeNever tries nothing.
	ProbeNever ProbePolicy = "Never"
)

// NoEvidencePolicy is what a rollout of mount options does as long as no mount has shown them to work.
// +kubebuilder:validation:Enum=Wait;Proceed
type NoEvidencePolicy string

const (
	// NoEvidenceWait waits for a mount.
	NoEvidenceWait NoEvidencePolicy = "Wait"
	// NoEvidenceProceed goes on after soakSeconds.
	NoEvidenceProceed NoEvidencePolicy = "Proceed"
)

// StorageClientProfileStatus says how far the rollout has come.
type StorageClientProfileStatus struct {
	// observedGeneration is the generation that this status describes; -1 until the manager has evaluated the profile.
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

	// lostNodes are nodes that failed with the present boot settings, or were lost under a reboot permit, and are gone; the latest
	// first, at most 20. nodes.failed counts them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	LostNodes []LostNode `json:"lostNodes,omitempty"`

	// volumes counts the profile's PersistentVolumes.
	// +optional
	// +kubebuilder:default={}
	Volumes VolumeCounts `json:"volumes,omitzero"`

	// plan says which reboots the profile needs.
	// +optional
	// +kubebuilder:default={}
	Plan Plan `json:"plan,omitzero"`

	// advice lists hints and warnings about the settings and how they work together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Advice []Advice `json:"advice,omitempty"`
}

// LostNode is a failed node that is gone.
type LostNode struct {
	// name is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// since is when it failed, or was found to be gone.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// reason is why it failed, as a single word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message says what happened.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeCounts counts the profile's nodes.
type NodeCounts struct {
	// matched is how many nodes the profile selects.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`
	// upToDate is how many of them have every setting read back with the value wanted, or as an exception.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	UpToDate int32 `json:"upToDate"`
	// exceptions is how many have Clamped, Unsupported or Shadowed settings.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Exceptions int32 `json:"exceptions"`
	// pendingReboot is how many are waiting for a reboot.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	PendingReboot int32 `json:"pendingReboot"`
	// disrupted is how many are out of service for this profile.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Disrupted int32 `json:"disrupted"`
	// failed is how many have failed with the present boot settings, those that are gone included.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
	// drifted is how many have settings that something else changed.
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
	// upToDate is how many have the declared options.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	UpToDate int32 `json:"upToDate"`
	// exceptions is how many differ from what is declared because the rules leave them so: they keep a value of their own
	// (onConflict, or the declared one would make the mount weaker), are managed elsewhere and only reported (gitOpsOwned), or carry
	// options of another profile that is paused.
	// They are not counted as upToDate.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Exceptions int32 `json:"exceptions"`
	// blocked is how many are not changed, because somebody else changed them, profiles disagree, or they cannot take the options.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Blocked int32 `json:"blocked"`
	// staleMounts is how many of their mounts on nodes still have options from before a change.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	StaleMounts int32 `json:"staleMounts"`
	// leftOut is how many volumes no rule selects though one that names protocols may mean them: nothing is known of their drivers,
	// which the advice names.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	LeftOut int32 `json:"leftOut"`
}

// Plan says which reboots the profile needs.
type Plan struct {
	// hash identifies the plan for its approval. It covers the profile's boot settings and all of its spec that decides which
	// nodes are disrupted for them and how: nodeSelector, includeControlPlane, priority, deletionPolicy, and of rollout all but
	// maxConcurrentLive, volumes and the approval itself. Another plan needs another approval.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
	// nodesToReboot is how many nodes are waiting for a reboot, without those that the rollout does not reboot as they stand.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	NodesToReboot int32 `json:"nodesToReboot"`
	// estimatedCompletion is the earliest time by which all of them can be rebooted; null if unknown.
	// +optional
	// +nullable
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// limitedBy says what holds the next reboot back, or why none of the nodes that lack a boot setting is rebooted.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=1024
	LimitedBy string `json:"limitedBy"`
	// examples are nodes that are waiting for a reboot, at most 20 names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	Examples []string `json:"examples,omitempty"`
}

// Severity says how serious advice is.
// +kubebuilder:validation:Enum=Info;Warning;Error
type Severity string

const (
	// SeverityInfo marks something worth knowing.
	SeverityInfo Severity = "Info"
	// SeverityWarning marks something that is probably not intended.
	SeverityWarning Severity = "Warning"
	// SeverityError marks something that causes harm.
	SeverityError Severity = "Error"
)

// Advice is a hint or a warning about settings and how they work together.
type Advice struct {
	// id is the name of the rule that the advice comes from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// severity is Info, Warning or Error.
	// +required
	Severity Severity `json:"severity"`
	// text says what the problem is and what to do.
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
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.matched`
// +kubebuilder:printcolumn:name="Up-To-Date",type=integer,JSONPath=`.status.nodes.upToDate`
// +kubebuilder:printcolumn:name="Pending-Reboot",type=integer,JSONPath=`.status.nodes.pendingReboot`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumes.matched`
// +kubebuilder:printcolumn:name="Volumes-Up-To-Date",type=integer,JSONPath=`.status.volumes.upToDate`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Disrupted",type=integer,priority=1,JSONPath=`.status.nodes.disrupted`
// +kubebuilder:printcolumn:name="Plan",type=string,priority=1,JSONPath=`.status.plan.hash`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type StorageClientProfile struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares the settings.
	// +required
	Spec StorageClientProfileSpec `json:"spec"`

	// status says how far the rollout has come.
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
