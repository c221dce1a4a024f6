package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SettingEffect says when a setting takes effect.
// +kubebuilder:validation:Enum=Live;NextMount;NewTransport;Reboot;Action
type SettingEffect string

const (
	// EffectLive takes effect at once.
	EffectLive SettingEffect = "Live"
	// EffectNextMount takes effect at the next mount.
	EffectNextMount SettingEffect = "NextMount"
	// EffectNewTransport takes effect for a server once every mount of it has left the node.
	EffectNewTransport SettingEffect = "NewTransport"
	// EffectReboot takes effect at the next boot.
	EffectReboot SettingEffect = "Reboot"
	// EffectAction is done once and cannot be read back.
	EffectAction SettingEffect = "Action"
)

// SettingState says how a setting stands on the node.
// +kubebuilder:validation:Enum=InSync;Pending;Drifted;Shadowed;Clamped;Unsupported;Failed
type SettingState string

const (
	// SettingInSync means that what is in force is what was asked for.
	SettingInSync SettingState = "InSync"
	// SettingPending means that the setting waits for its moment: a mount, a transport or a boot.
	SettingPending SettingState = "Pending"
	// SettingDrifted means that something else changed the value.
	SettingDrifted SettingState = "Drifted"
	// SettingShadowed means that another file would win at the next boot.
	SettingShadowed SettingState = "Shadowed"
	// SettingClamped means that the kernel would grant less than was asked for; it is never staged.
	SettingClamped SettingState = "Clamped"
	// SettingUnsupported means that the setting cannot work on this node.
	SettingUnsupported SettingState = "Unsupported"
	// SettingFailed means that applying or reading the setting failed.
	SettingFailed SettingState = "Failed"
)

// MountState says whether a mount carries what its volume declares.
// +kubebuilder:validation:Enum=Effective;Stale;Unmanaged
type MountState string

const (
	// MountEffective means that the mount has every declared option, as far as kernel and server grant it.
	MountEffective MountState = "Effective"
	// MountStale means that the mount was made before the options changed, or shares a transport that was.
	MountStale MountState = "Stale"
	// MountUnmanaged means that no profile declares options for the mount.
	MountUnmanaged MountState = "Unmanaged"
)

// BootloaderType is how a node's kernel command line is kept.
// +kubebuilder:validation:Enum=GrubDebian;GrubBLS;RPMOSTree;Unsupported
type BootloaderType string

const (
	// BootloaderGrubDebian is GRUB with /etc/default/grub.d, as on Debian and Ubuntu.
	BootloaderGrubDebian BootloaderType = "GrubDebian"
	// BootloaderGrubBLS is GRUB with boot loader specification entries, changed by grubby.
	BootloaderGrubBLS BootloaderType = "GrubBLS"
	// BootloaderRPMOSTree is rpm-ostree, which keeps the command line itself.
	BootloaderRPMOSTree BootloaderType = "RPMOSTree"
	// BootloaderUnsupported is anything else.
	BootloaderUnsupported BootloaderType = "Unsupported"
)

// RebootPhase says how far the agent is with a permit.
// +kubebuilder:validation:Enum=Refused;Started;Failed
type RebootPhase string

const (
	// RebootRefused means that the agent will not use the permit; the message says why. Nothing was rebooted.
	RebootRefused RebootPhase = "Refused"
	// RebootStarted means that the permit is used up and the reboot has been asked for, or is about to be.
	RebootStarted RebootPhase = "Started"
	// RebootFailed means that the permit is used up and the host refused the reboot.
	RebootFailed RebootPhase = "Failed"
)

// RolloutPhase says where a node stands in the rollout.
// +kubebuilder:validation:Enum=Applying;UpToDate;Waiting;Claimed;Draining;Rebooting;Settling;Failed;Releasing
type RolloutPhase string

const (
	// RolloutApplying means that the agent has not reported the declared settings yet.
	RolloutApplying RolloutPhase = "Applying"
	// RolloutUpToDate means that the node needs no disruption.
	RolloutUpToDate RolloutPhase = "UpToDate"
	// RolloutWaiting means that the node needs a reboot and waits; the reason says for what.
	RolloutWaiting RolloutPhase = "Waiting"
	// RolloutClaimed means that the node uses up budget and is about to be cordoned.
	RolloutClaimed RolloutPhase = "Claimed"
	// RolloutDraining means that pods and mounts are leaving the node.
	RolloutDraining RolloutPhase = "Draining"
	// RolloutRebooting means that the agent holds a permit.
	RolloutRebooting RolloutPhase = "Rebooting"
	// RolloutSettling means that the node is back and has to look well for a while.
	RolloutSettling RolloutPhase = "Settling"
	// RolloutFailed means that the node failed at this boot hash and is not tried again.
	RolloutFailed RolloutPhase = "Failed"
	// RolloutReleasing means that the node is being returned to service.
	RolloutReleasing RolloutPhase = "Releasing"
)

// NodeSetting is one merged setting of a node.
type NodeSetting struct {
	// key is the setting's canonical key, "<subject>/<name>": sysctl/net.core.rmem_max, module/sunrpc/tcp_max_slot_table_entries,
	// kernelArgument/ihash_entries, readAhead/nfs4, tuned/profile, nfsMountDefaults/filer1, filesystem/mnt/disks/*.
	// "*" and "?" are for mount points only: a glob never reaches a generated file, the mount points that it finds do.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_.,:=/@+-]+|filesystem/[A-Za-z0-9_.,:=/@+*?-]+)$`
	Key string `json:"key"`

	// value is what the setting is to be. Empty for a kernel argument without a value.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+ -]*$`
	Value string `json:"value,omitempty"`

	// profile is the StorageClientProfile that the value comes from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Profile string `json:"profile"`

	// onRemoval says what happens when the setting goes: Restore or Retain.
	// +required
	OnRemoval DeletionPolicy `json:"onRemoval"`
}

// RebootPermit is the right to reboot once.
type RebootPermit struct {
	// id is the permit's own name; an agent uses it once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// bootHash is the boot hash that the permit was given for.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// bootID is the boot that the permit ends.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID"`

	// ignorePodUIDs are pods that a drain leaves on the node, DaemonSet and static ones; their mounts do not hold the reboot back.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	IgnorePodUIDs []string `json:"ignorePodUIDs,omitempty"`
}

// NodeVolume is a PersistentVolume of a profile's volume rules that the node has mounted: what its mounts are to show.
type NodeVolume struct {
	// name is the PersistentVolume's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name"`

	// mountOptions are the options that profiles declare and the volume carries. The agent compares mounts with them; it
	// never mounts with them and writes them nowhere.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^,[:space:]]+$`
	MountOptions []string `json:"mountOptions,omitempty"`

	// readAheadKiB is the read-ahead window that the volume's mounts are to have, in KiB: 4 to 1048576. It wins over the
	// setting readAhead of the mounts' type.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB *int32 `json:"readAheadKiB,omitempty"`
}

// StorageClientNodeSpec is what a node's agent is to do. The manager alone writes it.
type StorageClientNodeSpec struct {
	// settings are the merged settings of the node's profiles.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=256
	Settings []NodeSetting `json:"settings,omitempty"`

	// hash covers the canonical keys and values of settings.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// bootHash covers those of the settings that take effect at boot.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// volumes are the volumes of profiles that the node has mounted. No hash covers them, and nothing waits for them: they
	// are written while the rollout does not hold the node, and the agent has seen what was written before.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Volumes []NodeVolume `json:"volumes,omitempty"`

	// rebootPermit is the right to reboot once.
	// +optional
	RebootPermit *RebootPermit `json:"rebootPermit,omitempty"`

	// release asks the agent to restore what its journal holds, and to report so.
	// +optional
	Release bool `json:"release,omitempty"`
}

// Bootloader is how the node's kernel command line is kept.
type Bootloader struct {
	// type is GrubDebian, GrubBLS, RPMOSTree or Unsupported.
	// +required
	Type BootloaderType `json:"type"`

	// proven is false for a boot loader that has never been rebooted in this project's own tests: arguments are staged only.
	// +optional
	Proven bool `json:"proven"`

	// message says what was found, and what to use instead where it is not supported.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Drift is what something else has done to a setting that the agent set again.
type Drift struct {
	// count is how often the agent found the setting changed and set it again. It goes on counting when the agent or the
	// node starts anew, and begins again when the setting is declared anew. One that is left alone, after 5 times within an
	// hour, counts no further.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`

	// lastTime is when that was last.
	// +required
	LastTime metav1.Time `json:"lastTime"`

	// lastObserved is what was found then: the value, or what was wrong with the files that keep it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastObserved string `json:"lastObserved,omitempty"`
}

// SettingStatus is how one setting stands on the node.
type SettingStatus struct {
	// key is the setting's canonical key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Key string `json:"key"`

	// desired is the value asked for. Empty for a setting that is being put back and has no original value.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Desired string `json:"desired,omitempty"`

	// observed is what is in force, not what was written.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Observed string `json:"observed,omitempty"`

	// original is the first value that the journal holds.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Original string `json:"original,omitempty"`

	// takesEffect is Live, NextMount, NewTransport, Reboot or Action.
	// +optional
	TakesEffect SettingEffect `json:"takesEffect,omitempty"`

	// state is InSync, Pending, Drifted, Shadowed, Clamped, Unsupported or Failed.
	// +required
	State SettingState `json:"state"`

	// message says why, where the state is not InSync.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// drift tells of changes by something else that the agent has undone. Absent where there were none.
	// +optional
	Drift *Drift `json:"drift,omitempty"`
}

// MountStatus is a network or XFS mount of the node.
type MountStatus struct {
	// mountPoint is where it is mounted on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// volume is the PersistentVolume, where the mount belongs to one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`

	// podUIDs are the pods that use the mount.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	PodUIDs []string `json:"podUIDs,omitempty"`

	// server is the server's name or address as the kernel shows it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server,omitempty"`

	// protocol is the file system type and version, e.g. NFSv4.1.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Protocol string `json:"protocol,omitempty"`

	// options are the options in force.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Options []string `json:"options,omitempty"`

	// connections are the transports (xprt) that are open to the server for this mount.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connections int32 `json:"connections,omitempty"`

	// slotLimit is the most requests in flight a transport, as the kernel has it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SlotLimit int32 `json:"slotLimit,omitempty"`

	// readAheadKiB is the read-ahead window in KiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// state is Effective, Stale or Unmanaged, by what spec.volumes wants. A volume that is new on the node is Unmanaged
	// until the manager has named it there.
	// +optional
	State MountState `json:"state,omitempty"`

	// message says why, where the state is Stale: option, value in force and value wanted and, where another mount of the
	// server holds its connections, which one and the pods that must go first. Otherwise it says what cannot be had here.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// BusyMount is a workload's NFS, SMB or block mount under the kubelet's directory.
type BusyMount struct {
	// mountPoint is where it is mounted on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// podUID is the pod that it belongs to; empty for a global mount, which counts until it is unstaged.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID,omitempty"`

	// volume is the PersistentVolume or the pod's volume.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`

	// fsType is the file system type.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	FSType string `json:"fsType,omitempty"`
}

// RebootStatus is how far the agent is with a permit.
type RebootStatus struct {
	// permitID is the permit that this speaks of.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PermitID string `json:"permitID"`

	// phase is Refused, Started or Failed.
	// +required
	Phase RebootPhase `json:"phase"`

	// message says why a permit was refused or failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RolloutStatus is where the node stands in the rollout. The manager alone writes it.
type RolloutStatus struct {
	// phase is Applying, UpToDate, Waiting, Claimed, Draining, Rebooting, Settling, Failed or Releasing.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// reason is a single word for why.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says what the node waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is when the phase began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// attempts is how many permits have been given for bootHash.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// bootHash is the boot hash that attempts and a failure speak of.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`
}

// StorageClientNodeStatus is what the node's agent observes; rollout is the manager's.
type StorageClientNodeStatus struct {
	// observedGeneration is the generation of spec that this status speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// hash is the hash of the settings that have been applied, or staged where they take effect later.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// bootID is the boot that this status speaks of. The status is valid only while it equals the Node's.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`

	// kernelVersion is the running kernel's release.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	KernelVersion string `json:"kernelVersion,omitempty"`

	// bootloader is how the node's kernel command line is kept.
	// +optional
	Bootloader *Bootloader `json:"bootloader,omitempty"`

	// settings is how each setting stands; a setting that is being put back is listed until it is back.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=512
	Settings []SettingStatus `json:"settings,omitempty"`

	// mounts are the node's network and XFS mounts.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=128
	Mounts []MountStatus `json:"mounts,omitempty"`

	// mountsOmitted is how many mounts did not fit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`

	// rebootRequired is true when settings wait for a boot.
	// +optional
	RebootRequired bool `json:"rebootRequired"`

	// rebootRequiredBy are the keys of those settings. A key that is not among spec.settings waits for its removal to take effect.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	RebootRequiredBy []string `json:"rebootRequiredBy,omitempty"`

	// busyMounts are workloads' mounts under the kubelet's directory, which hold a reboot back.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=128
	BusyMounts []BusyMount `json:"busyMounts,omitempty"`

	// busyMountsOmitted is how many busy mounts did not fit; they hold a reboot back too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BusyMountsOmitted int32 `json:"busyMountsOmitted,omitempty"`

	// reboot is how far the agent is with a permit.
	// +optional
	Reboot *RebootStatus `json:"reboot,omitempty"`

	// restored is true once spec.release has been carried out and read back: nothing of ours is left on the host, but for
	// boot arguments that are gone from the menu and still in force until the next boot.
	// +optional
	Restored bool `json:"restored,omitempty"`

	// rollout is where the node stands in the rollout. The manager alone writes it.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
}

// StorageClientNode is the contract between the manager and one node's agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=scn,categories=storageclient
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.rollout.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.rollout.reason`
// +kubebuilder:printcolumn:name="Reboot-Required",type=boolean,JSONPath=`.status.rebootRequired`
// +kubebuilder:printcolumn:name="Bootloader",type=string,JSONPath=`.status.bootloader.type`
// +kubebuilder:printcolumn:name="Kernel",type=string,priority=1,JSONPath=`.status.kernelVersion`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.rollout.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StorageClientNode struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the node's agent is to do.
	// +optional
	Spec StorageClientNodeSpec `json:"spec,omitzero"`

	// status is what the node's agent observes.
	// +optional
	Status StorageClientNodeStatus `json:"status,omitzero"`
}

// StorageClientNodeList is a list of StorageClientNodes.
//
// +kubebuilder:object:root=true
type StorageClientNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageClientNode `json:"items"`
}
