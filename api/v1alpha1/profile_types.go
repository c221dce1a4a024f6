package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Mode selects between applying a profile and only reporting its effect.
// +kubebuilder:validation:Enum=Enforce;Plan
type Mode string

const (
	// ModeEnforce applies the declared settings and mount options. It is the default.
	ModeEnforce Mode = "Enforce"
	// ModePlan computes and reports all changes but does not apply them.
	ModePlan Mode = "Plan"
)

// DeletionPolicy controls the values on nodes and volumes when the profile is deleted or no longer matches them.
// +kubebuilder:validation:Enum=Restore;Retain
type DeletionPolicy string

const (
	// DeletionRestore restores the original values. It is the default.
	DeletionRestore DeletionPolicy = "Restore"
	// DeletionRetain leaves the current values in place.
	DeletionRetain DeletionPolicy = "Retain"
)

// UnsupportedPolicy controls the effect of exceptions on the profile's Ready condition.
// +kubebuilder:validation:Enum=Report;Fail
type UnsupportedPolicy string

const (
	// UnsupportedReport keeps Ready True, with reason ReadyWithExceptions. It is the default.
	UnsupportedReport UnsupportedPolicy = "Report"
	// UnsupportedFail makes Ready False.
	UnsupportedFail UnsupportedPolicy = "Fail"
)

// ConflictPolicy selects the value that wins when a volume already has a different value of an option.
// +kubebuilder:validation:Enum=KeepVolume;UseProfileOverClass;UseProfile
type ConflictPolicy string

const (
	// ConflictKeepVolume keeps the volume's value. It is the default.
	ConflictKeepVolume ConflictPolicy = "KeepVolume"
	// ConflictUseProfileOverClass replaces a value that equals the value in the volume's StorageClass. Other values are kept.
	ConflictUseProfileOverClass ConflictPolicy = "UseProfileOverClass"
	// ConflictUseProfile replaces the volume's value.
	ConflictUseProfile ConflictPolicy = "UseProfile"
)

// MountOptionsSource is the source of additional mount options of a rule.
// +kubebuilder:validation:Enum="";StorageClass
type MountOptionsSource string

const (
	// MountOptionsFromClass is the current StorageClass of each volume.
	MountOptionsFromClass MountOptionsSource = "StorageClass"
)

// GitOpsPolicy controls changes to volumes whose mount options are managed in Git.
// +kubebuilder:validation:Enum=ReportOnly;Patch
type GitOpsPolicy string

const (
	// GitOpsReportOnly reports the difference and does not change the volume. It is the default.
	GitOpsReportOnly GitOpsPolicy = "ReportOnly"
	// GitOpsPatch changes the volume anyway.
	GitOpsPatch GitOpsPolicy = "Patch"
)

// VolumeProtocol is the protocol family of a volume.
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

// DrainLookAhead controls nodes whose pods PodDisruptionBudgets keep.
// +kubebuilder:validation:Enum=DryRun;CordonFirst
type DrainLookAhead string

const (
	// LookAheadDryRun skips the node while dry runs show that a budget rejects an eviction. It is the default.
	LookAheadDryRun DrainLookAhead = "DryRun"
	// LookAheadCordonFirst cordons such a node if no other node can be claimed, and first evicts the pods that the budgets keep.
	LookAheadCordonFirst DrainLookAhead = "CordonFirst"
)

// RebootPolicy controls the start of reboots.
// +kubebuilder:validation:Enum=Automatic;OnApproval;Never
type RebootPolicy string

const (
	// RebootAutomatic reboots nodes within the budget and the windows.
	RebootAutomatic RebootPolicy = "Automatic"
	// RebootOnApproval waits until the plan in status.plan.hash is approved. It is the default.
	RebootOnApproval RebootPolicy = "OnApproval"
	// RebootNever stages settings that require a reboot and reports the pending reboot.
	RebootNever RebootPolicy = "Never"
)

// MountOption is one mount option in the form of a comma-separated list entry, e.g. "nconnect=4" or "nocto".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[^,[:space:]]+$')",message="a mount option must not contain a comma or a space: use a separate entry for each option"
type MountOption string

// KernelArgument is one token of the kernel command line, e.g. "ihash_entries=16777216".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[!#%&(-\\\\[\\\\]-_a-~]+$')",message="a kernel argument must be one token of printable ASCII without spaces, quotes, backslashes, '$' or backticks"
type KernelArgument string

// SettingText is the value of a sysctl or of a module parameter.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="!self.contains('\\n') && !self.contains('\\r')",message="a value must not contain a newline"
type SettingText string

// WholeNumbers contains one to eight whole decimal numbers, separated by single spaces, e.g. "4096 1048576 16777216".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=151
// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,17})( (0|[1-9][0-9]{0,17})){0,7}$`
type WholeNumbers string

// StorageClientProfileSpec declares settings for a set of nodes and mount options for PersistentVolumes.
// Defaults are not written into the object; "kubectl storageclient plan" shows them.
// +kubebuilder:validation:XValidation:rule="(has(self.nodeSelector) && (has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0 || has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)) != (has(self.allNodes) && self.allNodes)",fieldPath=".nodeSelector",message="set at least one label (matchLabels: {KEY: VALUE}) or expression in nodeSelector, or set allNodes: true instead"
type StorageClientProfileSpec struct {
	// nodeSelector selects the nodes of the profile by at least one label or expression. Set either nodeSelector or allNodes. Only
	// Linux nodes match. Control-plane nodes match only if includeControlPlane is true.
	// +optional
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitzero"`

	// allNodes applies the profile to all Linux nodes instead of a nodeSelector. Control-plane nodes match only if
	// includeControlPlane is also true. Default false.
	// +optional
	AllNodes bool `json:"allNodes,omitempty"`

	// includeControlPlane allows nodeSelector or allNodes to match control-plane nodes, if the component control-plane is installed. If
	// false, control-plane nodes and members of etcd never match. Default false.
	// +optional
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`

	// priority selects the winner, for each setting, among profiles that match the same node or volume: -1000000 to 1000000. The
	// higher priority wins. If profiles of equal priority disagree, the current value stays and the Conflict condition is True.
	// Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// mode is Enforce or Plan. Enforce applies the profile. Plan does not change nodes or volumes. status.nodes, status.volumes and
	// status.plan then contain the numbers of nodes and volumes that Enforce would change. "kubectl storageclient plan" and "kubectl
	// storageclient volumes" list the changes. Default Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// paused prevents new changes by this profile. Nodes finish once the reboot has started; other disrupted nodes return to service.
	// Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// deletionPolicy controls the values on nodes and volumes when the profile is deleted or no longer matches them. Restore restores
	// the original values. Retain leaves the current values in place. Default Restore.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// onUnsupported controls the effect of exceptions on the Ready condition. Report keeps Ready True, with reason
	// ReadyWithExceptions. Fail makes Ready False. Default Report. Exceptions are settings that a node does not support, that
	// another file overrides, or that wait for a boot that no plan covers. Volumes that keep their original value, or that another
	// tool manages, are also exceptions.
	// +optional
	OnUnsupported UnsupportedPolicy `json:"onUnsupported,omitempty"`

	// node contains the settings for each matched node. If unset, the profile changes no nodes.
	// +optional
	Node *NodeTuning `json:"node,omitempty"`

	// volumes contains rules for the mount options and the read-ahead of PersistentVolumes. Rules apply to all volumes of the
	// cluster; nodeSelector does not limit them. At most 32 rules. If unset, the profile changes no volumes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Volumes []VolumeRule `json:"volumes,omitempty"`

	// rollout controls the rollout of changes to nodes and volumes.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`
}

// NodeTuning contains the settings for each node.
type NodeTuning struct {
	// sysctls maps kernel parameters to their exact values. Keys are dotted names, e.g. net.core.rmem_max; write "/" for a dot inside
	// an interface name. The agent applies values live and stores them in /etc/sysctl.d for later boots. At most 256 entries.
	//
	// sunrpc.tcp_max_slot_table_entries is the maximum number of requests in flight for each connection to a server. It affects NFSv3
	// and NFSv4.0 only, on connections that the node opens after the change; for NFSv4.1 and 4.2, set max_session_slots of the module
	// nfs in kernelModules instead. Its value is 2 to 65536, or FromNconnect: the limit for the largest nconnect in
	// volumes[].mountOptions and node.nfsMountDefaults[].options of all profiles that match the node. That limit is 128 without
	// nconnect or for nconnect=1, 256 for up to 4, and 512 for up to 8; above 8, the value does not change.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$|^net[.](ipv4|ipv6|mpls)[.](conf|neigh)[.][A-Za-z0-9_@:+-]+(/[A-Za-z0-9_@:+-]+)*[.][a-z0-9_]+$'))",message="a sysctl key must be a dotted name of at most 128 characters, e.g. net.core.rmem_max; use '/' only for a dot in an interface name"
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`

	// sysctlsAtLeast maps kernel parameters to minimum values, e.g. net.ipv4.tcp_rmem: "4096 1048576 16777216". Keys are dotted
	// names. A value is one to eight whole numbers, separated by single spaces. Each number is raised if the kernel's value is lower.
	// The agent never lowers a current value. Like sysctls, values are applied live and stored for later boots. A boot sets the larger
	// of each declared number and its original, from the kernel on which the value was first set. If several profiles set the same
	// key, the largest value of each number wins. Between an exact value in sysctls and a larger minimum, the profile with the higher
	// priority wins; with equal priority, it is a conflict. At most 64 entries.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$|^net[.](ipv4|ipv6|mpls)[.](conf|neigh)[.][A-Za-z0-9_@:+-]+(/[A-Za-z0-9_@:+-]+)*[.][a-z0-9_]+$'))",message="a sysctl key must be a dotted name of at most 128 characters, e.g. net.core.rmem_max; use '/' only for a dot in an interface name"
	SysctlsAtLeast map[string]WholeNumbers `json:"sysctlsAtLeast,omitempty"`

	// kernelModules sets parameters of kernel modules in /etc/modprobe.d. Writable parameters of loaded modules also change live.
	// Other parameters take effect when the kernel loads the module, at the latest at the next boot. The rollout does not reboot
	// nodes for them alone. At most 32 modules.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	KernelModules []KernelModule `json:"kernelModules,omitempty"`

	// kernelArguments are appended to the kernel command line through the node's boot loader, e.g. ihash_entries=16777216. They take
	// effect at the next boot; rollout.reboot controls that reboot. At most 32 arguments.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	KernelArguments []KernelArgument `json:"kernelArguments,omitempty"`

	// readAhead sets the read-ahead window of all mounts on the node by file system type. If a volume rule sets readAheadKiB, that
	// value wins for the volume.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ReadAhead []ReadAhead `json:"readAhead,omitempty"`

	// tuned selects the profile of the tuned daemon. If tuned is not installed on the node, the setting is Unsupported. Values in
	// sysctls override the values of the tuned profile.
	// +optional
	Tuned *Tuned `json:"tuned,omitempty"`

	// nfs4UniqueID sets the client ID of the node's NFSv4 client. FromNode adds the Node's UID to the host name. Clients with the
	// same host name then no longer remove each other's locks and open files on a server. The agent sets the ID in /etc/modprobe.d.
	// It takes effect when the kernel loads the module nfs, before the first NFS mount. On a node that already has NFS mounts, it
	// takes effect at the next boot; the rollout does not reboot nodes for this setting alone. If unset, the client ID does not
	// change.
	// +optional
	NFS4UniqueID NFS4UniqueID `json:"nfs4UniqueID,omitempty"`

	// nfsMountDefaults are options for NFS mounts that the host itself makes, e.g. in-tree and inline NFS volumes. Mounts by CSI
	// drivers do not use them. The agent writes them to a file in /etc/nfsmount.conf.d; they take effect at the next mount.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NFSMountDefaults []NFSMountDefaults `json:"nfsMountDefaults,omitempty"`

	// filesystems sets mount options of host file systems other than the root file system. The options are merged into the options in
	// fstab or in the systemd mount unit; a file system without either is Unsupported. Access time options, e.g. noatime, change at
	// once. All other options take effect at the next mount, at the latest at the next boot.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Filesystems []Filesystem `json:"filesystems,omitempty"`
}

// NFS4UniqueID is the source of the client ID of a node's NFSv4 client.
// +kubebuilder:validation:Enum=FromNode
type NFS4UniqueID string

// NFS4UniqueIDFromNode derives the client ID from the Node's UID, which is unique across clusters.
const NFS4UniqueIDFromNode NFS4UniqueID = "FromNode"

// KernelModule sets parameters of one kernel module.
type KernelModule struct {
	// name is the name of the kernel module, e.g. nfs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Name string `json:"name"`

	// parameters maps the names of module parameters to their values, e.g. max_session_slots: "180". 1 to 32 entries.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 64 && k.matches('^[A-Za-z0-9_.-]+$'))",message="a module parameter name must have at most 64 characters: letters, digits, '_', '.' and '-'"
	Parameters map[string]SettingText `json:"parameters"`
}

// ReadAhead sets the read-ahead window of mounts by file system type.
type ReadAhead struct {
	// fsTypes are the file system types by their kernel names, e.g. nfs (NFSv3) and nfs4.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9_]+$`
	FSTypes []string `json:"fsTypes"`

	// sizeKiB is the read-ahead window in KiB: 4 to 1048576. The kernel default for NFS is 128.
	// +required
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	SizeKiB int32 `json:"sizeKiB"`
}

// Tuned selects a tuned profile.
type Tuned struct {
	// profile is the name of the tuned profile, e.g. latency-performance.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+$`
	Profile string `json:"profile"`
}

// NFSMountDefaults are options for NFS mounts that the host itself makes.
type NFSMountDefaults struct {
	// server limits the options to mounts of one server, by its host name or IPv4 address. If unset, the options apply to all
	// servers.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]+$`
	Server string `json:"server,omitempty"`

	// options are the mount options, one option for each entry.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Options []MountOption `json:"options"`
}

// Filesystem sets mount options of host file systems.
type Filesystem struct {
	// mountPoint is an absolute path at or below /mnt, /data, /srv, /var/mnt, /var/srv or an application's directory in /var/lib. The
	// flag --allow-filesystem of manager and agents allows more directories. Globs are allowed after such a directory; "*" and "?" do
	// not match "/".
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[^\s]+$`
	MountPoint string `json:"mountPoint"`

	// fsType limits the entry to file systems of this type, e.g. xfs. If unset, file systems of any type on a disk match.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9_]+$`
	FSType string `json:"fsType,omitempty"`

	// mountOptions are merged into the original options of the file system, e.g. [noatime, logbsize=256k]; different values are
	// replaced. Access time options change at once, all others at the next mount.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions"`
}

// VolumeRule sets mount options and the read-ahead window of the PersistentVolumes that it selects.
type VolumeRule struct {
	// name identifies the rule within the profile. Messages refer to the rule as PROFILE/NAME.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`

	// selector selects the PersistentVolumes of the rule. At least one term is required, and a volume must match all terms.
	// +required
	Selector VolumeSelector `json:"selector"`

	// mountOptions are merged into the volumes' original mount options, e.g. [actimeo=30, nconnect=4, nocto]. onConflict selects the
	// value if a volume has a different one. At most 32 options.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions,omitempty"`

	// mountOptionsFrom adds mount options from another source. StorageClass adds the current options of the volume's StorageClass. An
	// edited class then also changes its existing volumes. mountOptions of the rule win over options of the class. A volume's
	// different values are treated as former values of its class and are replaced. If a provisioner created the volume, options that
	// its class no longer has are removed. KeepVolume in onConflict prevents both; with StorageClass, onConflict defaults to
	// UseProfileOverClass. Options that protect a volume are never removed. If unset, only mountOptions apply.
	// +optional
	MountOptionsFrom MountOptionsSource `json:"mountOptionsFrom,omitempty"`

	// readAheadKiB is the read-ahead window of the volumes' mounts in KiB: 4 to 1048576. It overrides node.readAhead. It applies on
	// every node that runs the agent, also outside nodeSelector. The agent sets it within seconds of a mount, on NFS and XFS. For
	// SMB, use the mount option rasize instead. If unset, node.readAhead applies.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB *int32 `json:"readAheadKiB,omitempty"`

	// onConflict selects the value if a volume already has a different value of an option. KeepVolume keeps the volume's value,
	// including a value from its StorageClass. UseProfileOverClass replaces a value that equals the current value in the volume's
	// StorageClass, in any spelling, or that equaled it when it was replaced. UseProfile replaces any value. Default KeepVolume; UseProfileOverClass if mountOptionsFrom is set. No policy
	// allows a value that weakens a volume's protection (sec, xprtsec, ro, SMB version, quotas).
	// +optional
	OnConflict ConflictPolicy `json:"onConflict,omitempty"`

	// gitOpsOwned controls changes to volumes whose mount options are managed in Git. ReportOnly reports the difference and does not
	// change the volume. Patch changes the volume anyway. Default ReportOnly.
	// +optional
	GitOpsOwned GitOpsPolicy `json:"gitOpsOwned,omitempty"`
}

// VolumeSelector selects PersistentVolumes. A volume must match all terms that are set; at least one term is required.
// +kubebuilder:validation:XValidation:rule="(has(self.storageClassNames) && size(self.storageClassNames) > 0) || (has(self.drivers) && size(self.drivers) > 0) || (has(self.protocols) && size(self.protocols) > 0) || (has(self.fsTypes) && size(self.fsTypes) > 0) || (has(self.servers) && size(self.servers) > 0) || (has(self.accessModes) && size(self.accessModes) > 0) || (has(self.claimNamespaces) && size(self.claimNamespaces) > 0) || (has(self.volumeSelector) && ((has(self.volumeSelector.matchLabels) && size(self.volumeSelector.matchLabels) > 0) || (has(self.volumeSelector.matchExpressions) && size(self.volumeSelector.matchExpressions) > 0))) || (has(self.claimSelector) && ((has(self.claimSelector.matchLabels) && size(self.claimSelector.matchLabels) > 0) || (has(self.claimSelector.matchExpressions) && size(self.claimSelector.matchExpressions) > 0)))",message="a volume selector needs at least one non-empty term"
type VolumeSelector struct {
	// storageClassNames select volumes of any of these StorageClasses.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	StorageClassNames []string `json:"storageClassNames,omitempty"`

	// drivers select volumes of any of these CSI drivers, e.g. nfs.csi.k8s.io. In-tree volumes have the names kubernetes.io/nfs,
	// kubernetes.io/iscsi and kubernetes.io/local-volume.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Drivers []string `json:"drivers,omitempty"`

	// protocols select volumes by their protocol: NFS, SMB or Block. If the operator does not know the protocol of a driver, its
	// volumes do not match, and status.volumes.leftOut counts them. To select them, name the driver in drivers of a rule without
	// protocols.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Protocols []VolumeProtocol `json:"protocols,omitempty"`

	// fsTypes select block volumes with any of these file system types, e.g. xfs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	FSTypes []string `json:"fsTypes,omitempty"`

	// servers select volumes on any of these servers: host names or addresses as in the volume, in upper or lower case.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Servers []string `json:"servers,omitempty"`

	// accessModes select volumes that support at least one of these modes: ReadWriteOnce, ReadOnlyMany, ReadWriteMany or
	// ReadWriteOncePod.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadOnlyMany;ReadWriteMany;ReadWriteOncePod
	AccessModes []string `json:"accessModes,omitempty"`

	// volumeSelector selects volumes by the labels of the PersistentVolume.
	// +optional
	VolumeSelector *metav1.LabelSelector `json:"volumeSelector,omitempty"`

	// claimSelector selects volumes by the labels of the bound PersistentVolumeClaim.
	// +optional
	ClaimSelector *metav1.LabelSelector `json:"claimSelector,omitempty"`

	// claimNamespaces select volumes whose bound PersistentVolumeClaim is in any of these namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ClaimNamespaces []string `json:"claimNamespaces,omitempty"`
}

// Rollout controls the rollout of changes to nodes and volumes.
type Rollout struct {
	// maxUnavailable is the maximum number of the profile's nodes that are out of service at the same time: at least 1, or 1% to
	// 100%. A percentage refers to the profile's nodes and is rounded down, to no less than 1. The manager's --max-unavailable
	// limits the whole cluster. Default 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxConcurrentLive is the maximum number of nodes that apply a live change together after the canary: at least 1, or 1% to
	// 100%. A percentage refers to the profile's nodes and is rounded down, to no less than 1. The manager's --max-concurrent-live
	// limits all profiles together. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxConcurrentLive *intstr.IntOrString `json:"maxConcurrentLive,omitempty"`

	// canary selects the nodes that get every change first. Default: 1 node with a soak of 60 seconds.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// failureThreshold is the number of failed nodes that stops the rollout: 1 to 5000. Failed reboots stop reboots; nodes that fail
	// to apply live settings stop live changes. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`

	// settleSeconds is the time that a node must stay healthy between its reboot and its uncordon, in seconds: 0 to 86400. Default
	// 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SettleSeconds *int32 `json:"settleSeconds,omitempty"`

	// windows are the times for disruptions. Outside of them, no node is cordoned, and a drain that is still running ends and the
	// node returns to service. A reboot that has started finishes. Live changes and mount options do not wait for windows. At most
	// 16. If unset, disruptions may start at any time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// drain controls the drain of a node before its reboot.
	// +optional
	Drain Drain `json:"drain,omitzero"`

	// reboot controls the start of reboots and limits their duration.
	// +optional
	Reboot Reboot `json:"reboot,omitzero"`

	// volumes controls the rollout of changed mount options to existing PersistentVolumes. For each driver and set of mount options,
	// one volume is the canary and changes first. The other volumes change in batches after a pod has mounted the canary.
	// +optional
	Volumes *VolumeRollout `json:"volumes,omitempty"`
}

// Canary selects the nodes that get every change first.
// +kubebuilder:validation:XValidation:rule="!(has(self.nodes) && has(self.nodeSelector))",message="set nodes or nodeSelector, not both"
type Canary struct {
	// nodes is the number of canary nodes: 1 to 5000. Do not set it together with nodeSelector. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Nodes *int32 `json:"nodes,omitempty"`

	// nodeSelector selects the canary nodes among the profile's nodes, instead of nodes. If unset, nodes applies. For the read-ahead of
	// volumes, it applies only if no node may set its labels itself: use the prefix node-restriction.kubernetes.io/. Otherwise the
	// oldest node is the canary there.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakSeconds is the time that the canary must stay healthy before other nodes follow, in seconds: 0 to 2592000. For live
	// changes, the manager's --min-live-soak applies if it is longer. Default 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`
}

// Window is a time span for disruptions.
type Window struct {
	// schedule is the opening time of the window in cron format: minute, hour, day of month, month, day of week. E.g. "0 2 * * 6" is
	// Saturday at 02:00. If both day fields are set, the window opens on each day that matches either field.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`

	// durationSeconds is the length of the window in seconds: 1 to 604800.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds"`

	// timeZone is the IANA name of the schedule's time zone, e.g. Europe/Berlin. Default UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// Drain controls the drain of a node before its reboot.
type Drain struct {
	// timeoutSeconds is the maximum duration of a drain in seconds: 1 to 604800. It includes the wait for pods of Jobs. After it, the
	// node returns to service. The drain is tried again after 5 minutes, then after twice as long each time, at most 6 hours. The node is
	// not counted as failed. Default 900.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// deleteEmptyDirData allows the eviction of pods with emptyDir volumes. The data in these volumes is lost. If false, such a pod
	// blocks the drain. Default false.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// waitForPodSelector selects pods to wait for, in addition to pods of Jobs, until they finish. Until then, no other pod of the node is
	// evicted. The drain does not wait for a pod that has not started within 10 minutes, or whose image or configuration is missing. If
	// unset, only pods of Jobs are awaited.
	// +optional
	WaitForPodSelector *metav1.LabelSelector `json:"waitForPodSelector,omitempty"`

	// ignoreDaemonSetMounts allows the reboot to proceed while DaemonSet and static pods have mounts. These mounts are still
	// reported. Default true.
	// +optional
	IgnoreDaemonSetMounts *bool `json:"ignoreDaemonSetMounts,omitempty"`

	// excludeFromLoadBalancersSeconds is the time between the node's removal from external load balancers and its drain, in seconds:
	// 0 to 3600. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ExcludeFromLoadBalancersSeconds int32 `json:"excludeFromLoadBalancersSeconds,omitempty"`

	// lookAhead controls a node whose pods only PodDisruptionBudgets keep. DryRun skips it until dry-run evictions succeed.
	// CordonFirst skips it for 10 minutes. Then, if no other node can be claimed, it cordons the node and evicts only these pods. The
	// other pods follow once each of these is gone or may be evicted. Use CordonFirst for pods that move only after a cordon or an
	// eviction, for example pods of CloudNativePG, Longhorn or KubeVirt. Default DryRun.
	// +optional
	LookAhead DrainLookAhead `json:"lookAhead,omitempty"`
}

// Reboot controls the start of reboots and limits their duration.
type Reboot struct {
	// policy is OnApproval, Automatic or Never. OnApproval waits until the plan is approved. Automatic reboots nodes within the
	// budget and the windows. Never stages settings that require a reboot and reports the pending reboot. Automatic requires the verb
	// approve on the profile: to set it, and for each change that can lead to a reboot while it is set. An author without the verb may
	// still pause the profile and change live settings and mount options. Default OnApproval.
	// +optional
	Policy RebootPolicy `json:"policy,omitempty"`

	// approvedPlan approves the plan with this hash (status.plan.hash), so that an approval can be a commit. The annotation
	// tuning.storageclient.dev/approved-plan has the same effect. Both require the verb approve on the profile.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ApprovedPlan string `json:"approvedPlan,omitempty"`

	// timeoutSeconds is the maximum duration of a reboot, from the permit until the node is Ready again, in seconds: 1 to 86400.
	// Default 900.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// restoreReboot also reboots nodes to remove kernel arguments that deletionPolicy Restore has already deleted from the boot
	// configuration. If false, they stay active until the next reboot. Default false.
	// +optional
	RestoreReboot bool `json:"restoreReboot,omitempty"`
}

// VolumeRollout controls the rollout of changed mount options to existing PersistentVolumes.
// One volume of each driver and each set of mount options is the canary and changes first. After a pod has mounted it with the new
// options, the others change, at most maxPerStep at a time. New volumes get them at creation once a probe or a pod has
// proven them. Restore is not done in batches.
type VolumeRollout struct {
	// maxPerStep is the maximum number of volumes that change at the same time after the canary: at least 1, or 1% to 100%. A
	// percentage refers to the profile's matched volumes that are not blocked and is rounded down, to no less than 1. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be an integer of at least 1 or a percentage from 1% to 100%"
	MaxPerStep *intstr.IntOrString `json:"maxPerStep,omitempty"`

	// soakSeconds is the minimum time between two changes of volumes, in seconds: 0 to 2592000. Default 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`

	// probe is Auto or Never. With Auto, new mount options are first tested with one isolated mount that does not affect any other
	// mount of the cluster. A node with an agent makes this mount in a separate network namespace, for NFS without Kerberos, TLS and
	// RDMA. Options that the kernel or the server rejects in the test are not written to any volume. Without a test, and with Never,
	// the first volume shows whether the options work. Default Auto.
	// +optional
	Probe ProbePolicy `json:"probe,omitempty"`

	// onNoEvidence is Wait or Proceed. With Wait, other volumes get mount options only after a pod has mounted the canary, or another
	// volume, with these options. The Reconciling condition names the mount that the rollout waits for. With Proceed, soakSeconds
	// without a failed mount is enough. Default Wait.
	// +optional
	OnNoEvidence NoEvidencePolicy `json:"onNoEvidence,omitempty"`
}

// ProbePolicy controls the test of mount options before they are written to volumes.
// +kubebuilder:validation:Enum=Auto;Never
type ProbePolicy string

const (
	// ProbeAuto tests mount options whenever a test is possible.
	ProbeAuto ProbePolicy = "Auto"
	// ProbeNever disables the test.
	ProbeNever ProbePolicy = "Never"
)

// NoEvidencePolicy controls a rollout of mount options while no mount has shown that they work.
// +kubebuilder:validation:Enum=Wait;Proceed
type NoEvidencePolicy string

const (
	// NoEvidenceWait waits for a mount.
	NoEvidenceWait NoEvidencePolicy = "Wait"
	// NoEvidenceProceed continues after soakSeconds.
	NoEvidenceProceed NoEvidencePolicy = "Proceed"
)

// StorageClientProfileStatus reports the progress of the rollout.
type StorageClientProfileStatus struct {
	// observedGeneration is the generation of the profile that this status describes; -1 until the manager has evaluated the profile.
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

	// nodes contains counts of the profile's nodes.
	// +optional
	// +kubebuilder:default={}
	Nodes NodeCounts `json:"nodes,omitzero"`

	// lostNodes are failed nodes that no longer exist: they failed with the current settings that require a reboot, or they
	// disappeared under a reboot permit. The latest is first; at most 20 entries. nodes.failed counts them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	LostNodes []LostNode `json:"lostNodes,omitempty"`

	// volumes contains counts of the PersistentVolumes that the profile's rules select.
	// +optional
	// +kubebuilder:default={}
	Volumes VolumeCounts `json:"volumes,omitzero"`

	// plan describes the reboots that the profile needs.
	// +optional
	// +kubebuilder:default={}
	Plan Plan `json:"plan,omitzero"`

	// advice contains hints and warnings about the settings and their interaction. At most 50 entries.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Advice []Advice `json:"advice,omitempty"`
}

// LostNode is a failed node that no longer exists.
type LostNode struct {
	// name is the name of the lost node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// since is the time of the failure, or the time when the node was found missing.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// reason is the cause of the failure as a single word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message describes the failure.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeCounts contains counts of the profile's nodes.
type NodeCounts struct {
	// matched is the number of nodes that the profile selects.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`
	// upToDate is the number of matched nodes whose settings were all read back with their desired value or are exceptions.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	UpToDate int32 `json:"upToDate"`
	// exceptions is the number of matched nodes with Clamped, Unsupported or Shadowed settings.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Exceptions int32 `json:"exceptions"`
	// pendingReboot is the number of matched nodes that wait for a reboot.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	PendingReboot int32 `json:"pendingReboot"`
	// disrupted is the number of nodes that are out of service for this profile.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Disrupted int32 `json:"disrupted"`
	// failed is the number of nodes that failed with the current settings that require a reboot, including nodes that no longer
	// exist.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
	// drifted is the number of matched nodes with settings that another program or user changed.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Drifted int32 `json:"drifted"`
}

// VolumeCounts contains counts of the PersistentVolumes that the profile's rules select.
type VolumeCounts struct {
	// matched is the number of PersistentVolumes that the rules select.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`
	// upToDate is the number of matched volumes that have the declared options.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	UpToDate int32 `json:"upToDate"`
	// exceptions is the number of matched volumes that differ from the declared options because the rules leave them unchanged. It
	// counts volumes that keep their original value because of onConflict, or because the declared value would weaken the mount. It
	// also counts volumes that another tool manages (gitOpsOwned), and volumes with options of another profile that is paused.
	// upToDate does not include these volumes.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Exceptions int32 `json:"exceptions"`
	// blocked is the number of matched volumes that are not changed. Another controller or user changed their options, profiles
	// disagree, or the volumes do not support the options.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Blocked int32 `json:"blocked"`
	// staleMounts is the number of mounts of matched volumes, on all nodes, that still have options from before a change.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	StaleMounts int32 `json:"staleMounts"`
	// leftOut is the number of volumes that a rule with protocols does not select only because the protocol of their driver is
	// unknown. status.advice names these drivers.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	LeftOut int32 `json:"leftOut"`
}

// Plan describes the reboots that the profile needs.
type Plan struct {
	// hash identifies the plan for its approval. It covers the settings that require a reboot, and nodeSelector, allNodes,
	// includeControlPlane, priority and deletionPolicy. It also covers rollout, except for maxConcurrentLive, volumes, reboot.policy
	// and reboot.approvedPlan. A plan with another hash needs another approval.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
	// nodesToReboot is the number of nodes that wait for a reboot, without nodes that the rollout currently does not reboot.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	NodesToReboot int32 `json:"nodesToReboot"`
	// estimatedCompletion is the earliest time by which all nodes that nodesToReboot counts can be rebooted; null if unknown.
	// +optional
	// +nullable
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// limitedBy is the reason why the next reboot has to wait, or why no node with a pending setting is rebooted. Empty if there is
	// none.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=1024
	LimitedBy string `json:"limitedBy"`
	// examples are the names of nodes that wait for a reboot. At most 20 names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	Examples []string `json:"examples,omitempty"`
}

// Severity is the severity of advice.
// +kubebuilder:validation:Enum=Info;Warning;Error
type Severity string

const (
	// SeverityInfo marks useful information.
	SeverityInfo Severity = "Info"
	// SeverityWarning marks something that is probably not intended.
	SeverityWarning Severity = "Warning"
	// SeverityError marks something that causes harm.
	SeverityError Severity = "Error"
)

// Advice is a hint or a warning about settings and their interaction.
type Advice struct {
	// id is the name of the rule that produced the advice. "kubectl storageclient explain NAME" describes it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// severity is the severity of the advice: Info, Warning or Error.
	// +required
	Severity Severity `json:"severity"`
	// text describes the problem and its solution.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Text string `json:"text"`
}

// StorageClientProfile declares settings for a set of nodes and mount options for PersistentVolumes.
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
	// metadata is the metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec declares the settings. Defaults are not written into the object; "kubectl storageclient plan" shows them.
	// +required
	Spec StorageClientProfileSpec `json:"spec"`

	// status reports the progress of the rollout.
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
