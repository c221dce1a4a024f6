package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SettingEffect is the event that makes a setting effective.
// +kubebuilder:validation:Enum=Live;NextMount;NewTransport;Reboot;Action
type SettingEffect string

const (
	// EffectLive means that the setting takes effect immediately.
	EffectLive SettingEffect = "Live"
	// EffectNextMount means that the setting takes effect at the next mount.
	EffectNextMount SettingEffect = "NextMount"
	// EffectNewTransport means that the setting takes effect on new connections to a server, once the node has no mount of the server
	// left.
	EffectNewTransport SettingEffect = "NewTransport"
	// EffectReboot means that the setting takes effect at the next boot.
	EffectReboot SettingEffect = "Reboot"
	// EffectAction means that the setting is a single action that cannot be read back.
	EffectAction SettingEffect = "Action"
)

// SettingState is the state of a setting on the node.
// +kubebuilder:validation:Enum=InSync;Pending;Drifted;Shadowed;Clamped;Unsupported;Failed
type SettingState string

const (
	// SettingInSync means that the effective value is the desired value.
	SettingInSync SettingState = "InSync"
	// SettingPending means that the setting takes effect later: at the next mount, new connection or boot.
	SettingPending SettingState = "Pending"
	// SettingDrifted means that another program or user changed the value.
	SettingDrifted SettingState = "Drifted"
	// SettingShadowed means that another file overrides the value. If takesEffect is Reboot, the override is permanent. Otherwise, it
	// happens at each boot and the agent then sets the value again.
	SettingShadowed SettingState = "Shadowed"
	// SettingClamped means that the kernel would limit the value to less than the desired value. The agent does not stage such a
	// setting.
	SettingClamped SettingState = "Clamped"
	// SettingUnsupported means that the setting cannot work on this node.
	SettingUnsupported SettingState = "Unsupported"
	// SettingFailed means that applying or reading the setting failed.
	SettingFailed SettingState = "Failed"
)

// SettingWait is the event that a Pending setting waits for.
// +kubebuilder:validation:Enum=Proof;Connections;Boot;Mount;Transport;Module
type SettingWait string

const (
	// WaitsForProof means that the value is set and the agent is confirming it over new connections.
	WaitsForProof SettingWait = "Proof"
	// WaitsForConnections means that new connections must confirm the value but currently cannot. The agent tries again.
	WaitsForConnections SettingWait = "Connections"
	// WaitsForBoot means that the value takes effect at the next boot.
	WaitsForBoot SettingWait = "Boot"
	// WaitsForMount means that the value takes effect at the next mount.
	WaitsForMount SettingWait = "Mount"
	// WaitsForTransport means that the value takes effect on the next connection to a server, once the node has no mount of the
	// server left.
	WaitsForTransport SettingWait = "Transport"
	// WaitsForModule means that the agent sets the value when the kernel module is loaded.
	WaitsForModule SettingWait = "Module"
)

// MountState is the result of the comparison of a mount with the declared options of its volume.
// +kubebuilder:validation:Enum=Effective;Stale;Unmanaged
type MountState string

const (
	// MountEffective means that the mount has every declared option that the kernel and the server grant.
	MountEffective MountState = "Effective"
	// MountStale means that the mount, or a connection that it shares, was made before the options changed.
	MountStale MountState = "Stale"
	// MountUnmanaged means that no profile declares options for the mount.
	MountUnmanaged MountState = "Unmanaged"
)

// ServerProtocol is the protocol between the node's mounts and a storage server.
// +kubebuilder:validation:Enum=NFS;SMB
type ServerProtocol string

const (
	// ServerNFS is NFS of any version.
	ServerNFS ServerProtocol = "NFS"
	// ServerSMB is SMB 2 and 3.
	ServerSMB ServerProtocol = "SMB"
)

// ServerState is the state of a storage server from the view of the node.
// +kubebuilder:validation:Enum=Answering;Idle;Silent;Stuck
type ServerState string

const (
	// ServerAnswering means that the server has responded within five minutes, and no request has been pending for a minute or
	// longer.
	ServerAnswering ServerState = "Answering"
	// ServerIdle means that the node has sent no request for five minutes. It is unknown whether the server would respond.
	ServerIdle ServerState = "Idle"
	// ServerSilent means that requests are pending and the server has not responded for a minute or longer.
	ServerSilent ServerState = "Silent"
	// ServerStuck means that some requests have been pending for a minute or longer, while the server responds to others. The others
	// use other connections, or other files.
	ServerStuck ServerState = "Stuck"
)

// IsFailing reports whether requests to the server remain without a response.
func (s ServerState) IsFailing() bool { return s == ServerSilent || s == ServerStuck }

// BootloaderType is the boot loader that manages a node's kernel command line.
// +kubebuilder:validation:Enum=GrubDebian;Grub2Mkconfig;GrubBLS;SystemdBoot;UKI;RPMOSTree;Unsupported
type BootloaderType string

const (
	// BootloaderGrubDebian is GRUB with /etc/default/grub.d, as on Debian and Ubuntu.
	BootloaderGrubDebian BootloaderType = "GrubDebian"
	// BootloaderGrub2Mkconfig is GRUB with grub2-mkconfig and /etc/default/grub.d, as on Azure Linux.
	BootloaderGrub2Mkconfig BootloaderType = "Grub2Mkconfig"
	// BootloaderGrubBLS is GRUB with entries of the Boot Loader Specification, changed by grubby.
	BootloaderGrubBLS BootloaderType = "GrubBLS"
	// BootloaderSystemdBoot is systemd-boot with entries that kernel-install writes.
	BootloaderSystemdBoot BootloaderType = "SystemdBoot"
	// BootloaderUKI is systemd-boot with unified kernel images, to whose command lines an addon appends.
	BootloaderUKI BootloaderType = "UKI"
	// BootloaderRPMOSTree is rpm-ostree, which manages the command line itself.
	BootloaderRPMOSTree BootloaderType = "RPMOSTree"
	// BootloaderUnsupported is any other boot loader.
	BootloaderUnsupported BootloaderType = "Unsupported"
)

// RebootPhase is the agent's progress with a reboot permit.
// +kubebuilder:validation:Enum=Waiting;Refused;Started;Failed
type RebootPhase string

const (
	// RebootWaiting means that an activity on the host must not be interrupted; the message names it. The permit is still unused: the
	// agent reboots once the host is free, unless the manager has withdrawn the permit.
	RebootWaiting RebootPhase = "Waiting"
	// RebootRefused means that the agent rejected the permit and did not reboot. The message contains the reason.
	RebootRefused RebootPhase = "Refused"
	// RebootStarted means that the permit is used and the agent has requested the reboot, or is about to request it.
	RebootStarted RebootPhase = "Started"
	// RebootFailed means that the permit is used and the host rejected the reboot.
	RebootFailed RebootPhase = "Failed"
)

// RolloutPhase is the state of a node in the rollout.
// +kubebuilder:validation:Enum=Applying;UpToDate;Waiting;Claimed;Draining;Rebooting;Settling;Failed;Releasing
type RolloutPhase string

const (
	// RolloutApplying means that the agent has not reported the current settings yet.
	RolloutApplying RolloutPhase = "Applying"
	// RolloutUpToDate means that the node needs no disruption.
	RolloutUpToDate RolloutPhase = "UpToDate"
	// RolloutWaiting means that the node needs a reboot and waits for it. The reason names the event that it waits for.
	RolloutWaiting RolloutPhase = "Waiting"
	// RolloutClaimed means that the node counts against the budget and is about to be cordoned.
	RolloutClaimed RolloutPhase = "Claimed"
	// RolloutDraining means that the node is being drained: pods are evicted and their mounts disappear.
	RolloutDraining RolloutPhase = "Draining"
	// RolloutRebooting means that the agent has a permit to reboot the node.
	RolloutRebooting RolloutPhase = "Rebooting"
	// RolloutSettling means that the node is back and must stay healthy for a while before it is uncordoned.
	RolloutSettling RolloutPhase = "Settling"
	// RolloutFailed means that the node failed with its current settings that require a reboot. The rollout does not retry it, unless
	// its agent did not use the reboot permit: then it does so after retryAfter.
	RolloutFailed RolloutPhase = "Failed"
	// RolloutReleasing means that the node is being returned to service.
	RolloutReleasing RolloutPhase = "Releasing"
)

// IsInService reports whether a phase means that the rollout does not disrupt the node, and that the node has not failed. True for no phase.
func (p RolloutPhase) IsInService() bool {
	return p == "" || p == RolloutApplying || p == RolloutUpToDate || p == RolloutWaiting
}

// TrialKind is the purpose of an order to mount.
// +kubebuilder:validation:Enum=Probe;Trial
type TrialKind string

const (
	// TrialProbe mounts a volume once to test mount options before any volume gets them.
	TrialProbe TrialKind = "Probe"
	// TrialTrial mounts a volume with two sets of mount options in turn and measures the same work on each, for a StorageClientTrial.
	TrialTrial TrialKind = "Trial"
)

// TrialPhase is the agent's progress with a trial.
// +kubebuilder:validation:Enum=Running;Finished;Void;Refused
type TrialPhase string

const (
	// TrialRunning means that the node's trial runner has the order, or that the agent waits for the runner.
	TrialRunning TrialPhase = "Running"
	// TrialFinished means that the mount was attempted. The field succeeded contains the result, and message describes a failure.
	TrialFinished TrialPhase = "Finished"
	// TrialVoid means that no mount was attempted, or that a proof of validity is missing. The result is not valid for the mount
	// options. The message contains the reason.
	TrialVoid TrialPhase = "Void"
	// TrialRefused means that the agent rejected the order and attempted no mount. The message contains the reason.
	TrialRefused TrialPhase = "Refused"
)

// TrialProofType is a proof that the result of a trial is valid.
// +kubebuilder:validation:Enum=OwnNetwork;Identifier;NoOtherMount;OwnDevice;Transports;Sysctls
type TrialProofType string

const (
	// ProofOwnNetwork means that the runner's network namespace differs from the node's. The trial shares no connection with the
	// node's mounts.
	ProofOwnNetwork TrialProofType = "OwnNetwork"
	// ProofIdentifier means that the NFSv4 client had a separate client ID before anything was mounted. No server then mistakes it
	// for the node's client, whose state would be lost.
	ProofIdentifier TrialProofType = "Identifier"
	// ProofNoOtherMount means that the network namespace had no other mount of the server, neither before the trial nor during it.
	ProofNoOtherMount TrialProofType = "NoOtherMount"
	// ProofOwnDevice means that the mount has a separate superblock, and therefore a separate cache.
	ProofOwnDevice TrialProofType = "OwnDevice"
	// ProofTransports means that the mount has the number of connections to the server that its options request.
	ProofTransports TrialProofType = "Transports"
	// ProofSysctls means that the network namespace had the sysctls of the pass before the mount, during it and after the work.
	ProofSysctls TrialProofType = "Sysctls"
)

// NodeSetting is one merged setting of a node.
type NodeSetting struct {
	// key is the canonical key of the setting, "SUBJECT/NAME": sysctl/net.core.rmem_max, module/sunrpc/tcp_max_slot_table_entries,
	// kernelArgument/ihash_entries, readAhead/nfs4, tuned/profile, nfsMountDefaults/filer1, filesystem/mnt/disks/*. "*" and "?" are
	// for mount points only. Generated files never contain a glob, only the matching mount points.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_.,:=/@+-]+|filesystem/[A-Za-z0-9_.,:=/@+*?-]+)$`
	Key string `json:"key"`

	// value is the desired value. Empty for a kernel argument without a value.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+ -]*$`
	Value string `json:"value,omitempty"`

	// profile is the name of the StorageClientProfile that declares the value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Profile string `json:"profile"`

	// onRemoval controls the value when the setting is removed: Restore or Retain.
	// +required
	OnRemoval DeletionPolicy `json:"onRemoval"`
}

// RebootPermit allows one reboot.
type RebootPermit struct {
	// id identifies the permit. An agent uses it once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// bootHash is the hash of the settings that the permit is for.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// bootID is the ID of the boot that the permit may end. After any other reboot, the permit is invalid.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID"`

	// ignorePodUIDs are the UIDs of DaemonSet and static pods that a drain leaves on the node. Their mounts do not block the reboot.
	// At most 256.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	IgnorePodUIDs []string `json:"ignorePodUIDs,omitempty"`

	// notAfter is the end of the permit, by the clock of the API server. Later, the agent rejects the permit. If unset, the permit has
	// no end.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}

// NodeVolume is a PersistentVolume that the node has mounted and that a profile's volume rules select.
type NodeVolume struct {
	// name is the name of the PersistentVolume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name"`

	// mountOptions are the volume's options that profiles declare. The agent only compares mounts with them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^,[:space:]]+$`
	MountOptions []string `json:"mountOptions,omitempty"`

	// readAheadKiB is the desired read-ahead window of the volume's mounts, in KiB: 4 to 1048576. It overrides the setting readAhead
	// of the file system type. If unset, that setting applies.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB *int32 `json:"readAheadKiB,omitempty"`
}

// NodeTrialPass is one pass of an order: mount, work, unmount.
type NodeTrialPass struct {
	// round is the number of the round that contains the pass: 1 to 40.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=40
	Round int32 `json:"round,omitempty"`

	// arm selects the mount options of the pass: ownMountOptions for Before and Again, mountOptions for After.
	// +required
	Arm TrialArm `json:"arm,omitempty"`

	// readAheadKiB is the read-ahead window of the pass's mount in KiB: 4 to 1048576. If unset, the mount has the kernel's default.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`
}

// NodeTrialWork is the work of each pass.
// +kubebuilder:validation:XValidation:rule="self.name != 'Observe'",message="Observe is not a workload for a trial runner"
// +kubebuilder:validation:XValidation:rule="!(self.name in ['CreateUnlink', 'WriteSequential', 'CopyFiles']) || (has(self.allowWrites) && self.allowWrites)",message="this workload writes: set allowWrites to true"
type NodeTrialWork struct {
	// name is the name of the workload.
	// +required
	Name TrialWorkloadName `json:"name,omitempty"`

	// path is the directory of the work, relative to the root of the mount. If empty, the root.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be relative to the volume's root and must not contain '..'"
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+-]*$`
	Path string `json:"path,omitempty"`

	TrialLoad `json:",inline"`

	// allowWrites allows the work to write. If false, the work gets a read-only mount. Default false.
	// +optional
	AllowWrites bool `json:"allowWrites,omitempty"`

	// pauseSeconds is the pause before the work is repeated on the same mount, in seconds: 0 to 60. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	PauseSeconds int32 `json:"pauseSeconds,omitempty"`
}

// NodeTrial is an order to mount a volume with sets of mount options, isolated from the node's mounts. The node's trial runner
// makes the mounts in a separate network namespace. The agent rejects options that its catalogue does not allow.
// +kubebuilder:validation:XValidation:rule="self.kind == 'Trial' ? has(self.work) && has(self.passes) && size(self.passes) > 0 && self.runAsUser > 0 : !has(self.work) && !has(self.passes) && !has(self.sysctls)",message="a Trial must have work, passes and a non-root user; a Probe must have no work, passes or sysctls"
type NodeTrial struct {
	// id identifies the order. An agent runs it once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// kind is Probe or Trial. A Probe mounts once, reads the root and unmounts. A Trial mounts, does the work and unmounts in each of
	// the passes.
	// +required
	Kind TrialKind `json:"kind"`

	// work is the work of a Trial in each pass.
	// +optional
	Work *NodeTrialWork `json:"work,omitempty"`

	// passes are the passes of a Trial in the order of their execution. At most 6.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	Passes []NodeTrialPass `json:"passes,omitempty"`

	// sysctls are the sysctls of the runner's network namespace in the passes After of a Trial. All passes have the node's values of the
	// other ones. The agent rejects keys and values that its catalogue does not allow. At most 16.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$'))",message="a sysctl key must be a dotted name of at most 128 characters, e.g. net.ipv4.tcp_rmem"
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`

	// volume is the name of the PersistentVolume that contains server and path.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Volume string `json:"volume"`

	// server is the host name or address of the NFS server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$|^[0-9A-Fa-f:]+$`
	Server string `json:"server"`

	// path is the exported path that is mounted from the server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9_.,:=/@+-]*$`
	Path string `json:"path"`

	// fsType is the type argument of the mount command: nfs or nfs4. With nfs, mountOptions or negotiation selects the NFS version.
	// +required
	// +kubebuilder:validation:Enum=nfs;nfs4
	FSType string `json:"fsType"`

	// mountOptions are the full mount options in the order of a real mount. Under NFSv3, the runner adds nolock: its network
	// namespace cannot reach the host's lock daemon.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.:=/@+-]+$`
	MountOptions []string `json:"mountOptions,omitempty"`

	// ownMountOptions are the current mount options of the volume. If a mount with mountOptions fails, the runner also mounts with
	// these options. If both fail in the same way, the options are not the cause.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.:=/@+-]+$`
	OwnMountOptions []string `json:"ownMountOptions,omitempty"`

	// runAsUser is the user ID, and the group ID, that reads the root of the mount: 0 to 2147483647. If this user has no permission
	// to read it, the mount still counts as successful. A Trial requires a user other than root.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser int64 `json:"runAsUser"`

	// timeoutSeconds is the maximum time from the order to its result, in seconds: 5 to 600. Then all remaining mounts are unmounted.
	// +required
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=600
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// StorageClientNodeSpec contains the work of the node's agent. Only the manager writes it.
type StorageClientNodeSpec struct {
	// settings are the merged settings of all profiles that match the node. At most 256.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=256
	Settings []NodeSetting `json:"settings,omitempty"`

	// hash is the hash of the keys and values of settings.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// bootHash is the hash of the settings that require a reboot.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// canary is true if this node proves the settings before other nodes get them. The agent then reads 1 MiB over the new connection
	// that confirms them, on other nodes 64 KiB. No hash covers it. Default false.
	// +optional
	Canary bool `json:"canary,omitempty"`

	// volumes are the profiles' volumes that the node has mounted. No hash covers them and no other field waits for them. The manager
	// updates them while the node is not being disrupted, once the agent has seen the previous update. At most 128.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Volumes []NodeVolume `json:"volumes,omitempty"`

	// rebootPermit allows the agent to reboot the node once. If unset, the agent does not reboot the node.
	// +optional
	RebootPermit *RebootPermit `json:"rebootPermit,omitempty"`

	// release makes the agent restore all original values in its journal and report the result in status.restored. Default false.
	// +optional
	Release bool `json:"release,omitempty"`

	// trial is an order for the node's trial runner to make an isolated mount once. No hash covers it and it does not affect the
	// rollout or the reported state. If unset, status.trial is removed.
	// +optional
	Trial *NodeTrial `json:"trial,omitempty"`

	// sample requests one sample of the activity of some volumes' mounts. The agent responds in status.sample. No hash covers it and
	// it does not affect the rollout or the reported state. If unset, status.sample is removed.
	// +optional
	Sample *NodeSample `json:"sample,omitempty"`
}

// Bootloader is the boot loader that manages the node's kernel command line.
type Bootloader struct {
	// type is the type of the boot loader: GrubDebian, Grub2Mkconfig, GrubBLS, SystemdBoot, UKI, RPMOSTree or Unsupported.
	// +required
	Type BootloaderType `json:"type"`

	// proven is false if the project's tests have never rebooted this boot loader, or if the machine may boot another menu. Kernel arguments
	// are then only staged, and the node is not rebooted for them.
	// +optional
	Proven bool `json:"proven"`

	// message describes the boot loader and, if it is not supported, an alternative.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Drift counts changes by other programs or users that the agent has corrected.
type Drift struct {
	// count is the number of times that the agent found the setting changed and set it again. Restarts of agent and node do not reset
	// it. A new declaration of the setting resets it. After 5 corrections within an hour, the agent stops correcting the setting and
	// stops counting.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`

	// lastTime is the time of the last correction.
	// +required
	LastTime metav1.Time `json:"lastTime"`

	// lastObserved is the value that the agent found at the last correction, or the problem of the files that contain the value.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastObserved string `json:"lastObserved,omitempty"`
}

// SettingStatus is the state of one setting on the node.
type SettingStatus struct {
	// key is the canonical key of the setting, as in spec.settings.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Key string `json:"key"`

	// desired is the desired value. Empty for a setting that is being restored and had no original value.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Desired string `json:"desired,omitempty"`

	// observed is the effective value, which may differ from the written value.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Observed string `json:"observed,omitempty"`

	// original is the value before the operator first changed the setting.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Original string `json:"original,omitempty"`

	// takesEffect is the event that makes the setting effective: Live (immediately), NextMount, NewTransport (a new connection),
	// Reboot or Action (done once).
	// +optional
	TakesEffect SettingEffect `json:"takesEffect,omitempty"`

	// state is the state of the setting: InSync, Pending, Drifted, Shadowed, Clamped, Unsupported or Failed. Drifted means that
	// another program or user changed the value; Shadowed, that another file overrides it; Clamped, that the kernel limits it to
	// less.
	// +required
	State SettingState `json:"state"`

	// waitsFor is the event that a Pending setting waits for: Proof, Connections, Boot, Mount, Transport or Module. With Proof, new
	// connections are confirming the value; with Connections, they currently cannot. Transport is a new connection to a server;
	// Module is the load of the kernel module. Absent in other states, for an action, and if the agent's release is older than this
	// field.
	// +optional
	WaitsFor SettingWait `json:"waitsFor,omitempty"`

	// message explains why the state is not InSync.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// failedConnections are the connections that failed with the value and work again without it: APIServer, or the name of a storage
	// server as in status.servers. The word of a single storage server only holds the nodes that mount from it; all others continue.
	// Absent if the setting failed for another reason, and if the agent's release is older than this field: the failure then counts
	// for all nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=253
	FailedConnections []string `json:"failedConnections,omitempty"`

	// drift counts changes by other programs or users that the agent has corrected. Absent if there were none.
	// +optional
	Drift *Drift `json:"drift,omitempty"`
}

// ConnectionAPIServer is the connection to the API server in failedConnections.
const ConnectionAPIServer = "APIServer"

// MountStatus is a network or XFS mount of the node.
type MountStatus struct {
	// mountPoint is the path of the mount on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// volume is the name of the mount's PersistentVolume, if any.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`

	// podUIDs are the UIDs of the pods that use the mount. At most 64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	PodUIDs []string `json:"podUIDs,omitempty"`

	// server is the name or address of the server, as the kernel shows it. It includes the port if the address is a tunnel on the node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server,omitempty"`

	// protocol is the file system type and version, e.g. NFSv4.1.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Protocol string `json:"protocol,omitempty"`

	// options are the effective mount options.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Options []string `json:"options,omitempty"`

	// connections is the number of open connections (transports) to the server that this mount uses.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connections int32 `json:"connections,omitempty"`

	// slotLimit is the kernel's limit of requests in flight for each connection.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SlotLimit int32 `json:"slotLimit,omitempty"`

	// readAheadKiB is the effective read-ahead window of the mount in KiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// readAheadState is the state of the readAheadKiB of spec.volumes on the node, as in settings; message has the reason. Failed and
	// Unsupported do not change on their own. Empty if spec.volumes has none.
	// +optional
	ReadAheadState SettingState `json:"readAheadState,omitempty"`

	// since is the time of the mount, to the second and by the node's clock. Mounts that share a superblock have the time of the
	// first one. For SMB and XFS, it is the last time that the agent saw the node without the mount. Absent if unknown.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// used is true if an operation on the mount has completed since it was mounted, except for the operations of mounting itself. SMB
	// counts operations for each share, not for each mount.
	// +optional
	Used bool `json:"used,omitempty"`

	// state is the result of the comparison with spec.volumes: Effective, Stale (made before the options changed) or Unmanaged (no
	// profile declares options). A volume that is new on the node is Unmanaged until the manager has added it to spec.volumes.
	// +optional
	State MountState `json:"state,omitempty"`

	// message explains why the mount is Stale: the option, its effective value and its desired value. If another mount of the server
	// keeps the connections open, it names that mount and the pods to restart first. For other states, it names options that the
	// kernel or the server cannot grant. It starts with "orphan" if no process of the mount's pod runs on the node for five minutes,
	// with the pod's UID, the server, and the last change of the pod's directory.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ServerStatus is the state of a storage server that the node has mounts of. The agent derives it from the kernel's counters and
// log. It never accesses a mount for this purpose, because the access would hang if the server is down.
type ServerStatus struct {
	// server is the host name or address of the server, as in status.mounts. It includes the port if the address is a tunnel on the
	// node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server"`

	// protocol is the protocol of the mounts: NFS or SMB.
	// +required
	Protocol ServerProtocol `json:"protocol"`

	// address is the address and port of the connections to the server.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Address string `json:"address,omitempty"`

	// state is the state of the server from the view of the node: Answering, Idle, Silent or Stuck. Idle means no requests for five
	// minutes. Silent means no response for a minute or longer; Stuck means the same for some requests only.
	// +required
	State ServerState `json:"state"`

	// reason is the cause of the state as a single word, e.g. ConnectionRefused, Unreachable, NoAnswer, TunnelGone, TunnelTaken,
	// SessionDown, TransportStuck or RequestsStuck.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message describes the problem and the checks to do. Empty if there is no problem.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is the start time of the state. For Silent and Stuck, it is the time when the first pending request was seen.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// lastAnswerTime is the time of the server's last response before its state changed. It is updated only when the state changes.
	// For a Silent or Idle server, it is the time of the last response. An Answering server may have responded later.
	// +optional
	LastAnswerTime *metav1.Time `json:"lastAnswerTime,omitempty"`

	// connections is the number of connections that the node's mounts have to the server.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connections int32 `json:"connections,omitempty"`

	// stuckConnections is the number of connections with pending requests. Zero unless the state is Silent or Stuck.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StuckConnections int32 `json:"stuckConnections,omitempty"`

	// waitingRequests is the number of pending requests, rounded down to a power of two. Zero unless the state is Silent or Stuck.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WaitingRequests int32 `json:"waitingRequests,omitempty"`

	// volumes are the names of affected volumes, at most 16. While the state is Silent or Stuck, they are all volumes that the node
	// has mounted from the server. While the reason is StaleHandles, they are the volumes with stale handles.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Volumes []string `json:"volumes,omitempty"`

	// podUIDs are the UIDs of the pods that use the mounts of the server's affected volumes, which the field volumes names. At most
	// 32.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	PodUIDs []string `json:"podUIDs,omitempty"`

	// forgetting is true if the server has made this NFSv4 client identify itself again at least three times in ten minutes. Another
	// client then has a duplicate NFSv4 client ID, and the two clients remove each other's locks and open files.
	// +optional
	Forgetting bool `json:"forgetting,omitempty"`
}

// BusyMount is an NFS, SMB or block mount of a workload under the kubelet's directory.
type BusyMount struct {
	// mountPoint is the path of the mount on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// podUID is the UID of the mount's pod. Empty for a driver's global mount, which counts until it is unstaged, see podUIDs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID,omitempty"`

	// podUIDs are the UIDs of the pods that use a global mount. The mount does not count if the mounts of all these pods are ignored.
	// Empty if the pods are unknown, or if there are more than 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	PodUIDs []string `json:"podUIDs,omitempty"`

	// volume is the name of the PersistentVolume, or of the volume in the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`

	// fsType is the file system type of the mount.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	FSType string `json:"fsType,omitempty"`
}

// IsIgnored reports whether the mount does not block a reboot that ignores the mounts of the pods with the given UIDs. The driver keeps a
// global mount while any of its pods is on the node, so it is ignored like the mounts of these pods.
func (m *BusyMount) IsIgnored(ignoredPods []string) bool {
	users := m.PodUIDs
	if m.PodUID != "" {
		users = []string{m.PodUID}
	}
	return len(users) > 0 && !slices.ContainsFunc(users, func(uid string) bool { return !slices.Contains(ignoredPods, uid) })
}

// RebootStatus is the agent's progress with a reboot permit.
type RebootStatus struct {
	// permitID is the ID of the permit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PermitID string `json:"permitID"`

	// phase is the agent's progress with the permit: Waiting (for the host), Refused (no reboot), Started or Failed (the host
	// rejected the reboot).
	// +required
	Phase RebootPhase `json:"phase"`

	// message names the event that the permit waits for, or explains its rejection or failure.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// TrialProof is one proof that the result of a trial is valid, with its observed state.
type TrialProof struct {
	// type is the type of the proof: OwnNetwork, Identifier, NoOtherMount, OwnDevice or Transports.
	// +required
	Type TrialProofType `json:"type"`

	// holds is true if the runner observed the proof.
	// +optional
	Holds bool `json:"holds"`

	// message describes the observation.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// MountFailureCause is the cause of a failed mount.
// +kubebuilder:validation:Enum=Options;Elsewhere;Unknown
type MountFailureCause string

const (
	// MountFailureOptions means that the kernel or the server rejected the mount options.
	MountFailureOptions MountFailureCause = "Options"
	// MountFailureElsewhere means that the mount would have failed with any options.
	MountFailureElsewhere MountFailureCause = "Elsewhere"
	// MountFailureUnknown means that only a mount with other options shows the cause.
	MountFailureUnknown MountFailureCause = "Unknown"
)

// TrialMount is the result of one mount of a trial.
type TrialMount struct {
	// succeeded is true if the mount was made and responded.
	// +optional
	Succeeded bool `json:"succeeded"`

	// cause is the cause of the failure: Options (rejected by the kernel or the server), Elsewhere (any options would fail) or
	// Unknown. Absent if the mount succeeded.
	// +optional
	Cause MountFailureCause `json:"cause,omitempty"`

	// sameFailure is true if this mount failed in the same way as the mount with mountOptions. Default false.
	// +optional
	SameFailure bool `json:"sameFailure,omitempty"`

	// message is the kernel's original error text. Empty if the mount succeeded.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeTrialStatus is the result of the order in spec.trial. Its total size is at most 16 KiB.
type NodeTrialStatus struct {
	// id is the ID of the order.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// phase is the agent's progress with the order: Running, Finished, Void (the result is invalid) or Refused (the agent attempted
	// no mount).
	// +required
	Phase TrialPhase `json:"phase"`

	// succeeded is true if a mount with exactly mountOptions was made, responded, and is valid by all of its proofs. For a Trial, all
	// passes must meet this condition.
	// +optional
	Succeeded bool `json:"succeeded"`

	// cause is the cause of the failed mount with mountOptions: Options (rejected by the kernel or the server), Elsewhere (any
	// options would fail) or Unknown. Absent unless phase is Finished and succeeded is false. Also absent if the agent's release is
	// older than this field.
	// +optional
	Cause MountFailureCause `json:"cause,omitempty"`

	// message is the error text of the kernel or the server if the mount failed. Otherwise, it explains why no mount was attempted or
	// why the result is invalid.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// observedOptions are the effective options during the mount, as the kernel showed them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	ObservedOptions []string `json:"observedOptions,omitempty"`

	// transports is the number of connections to the server that the mount had.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Transports int32 `json:"transports,omitempty"`

	// identifier is the configured client ID of the NFSv4 client. The client sends it together with its host name.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Identifier string `json:"identifier,omitempty"`

	// proofs are the conditions for a valid result. If one does not hold, the result is invalid.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Proofs []TrialProof `json:"proofs,omitempty"`

	// own is the result of the mount with ownMountOptions. Absent if this mount was not made: mountOptions worked, or no mount was
	// attempted.
	// +optional
	Own *TrialMount `json:"own,omitempty"`

	// work is the work that the runner got. Absent for a Probe, and if the agent's release is older than this field.
	// +optional
	Work *NodeTrialWork `json:"work,omitempty"`

	// passes are the valid passes of a Trial in the order of their execution. At most 6.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	Passes []TrialPass `json:"passes,omitempty"`

	// sysctls are the node's values of the sysctls of a network namespace, without empty ones. The runner copies them and reads them
	// back. Absent without spec.trial.sysctls, and if the agent's release is older than this field.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`
}

// RolloutTuned is the start of the time in which a node has had its settings.
type RolloutTuned struct {
	// hash is the spec.hash of these settings.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// since is the time from which the agent has reported the settings as applied or staged, without a failure or drift. The soak of
	// a canary starts at this time.
	// +required
	Since metav1.Time `json:"since"`
}

// RolloutStatus is the node's state in the rollout. Only the manager writes it.
type RolloutStatus struct {
	// phase is the node's state in the rollout: Applying, UpToDate, Waiting, Claimed, Draining, Rebooting, Settling, Failed or
	// Releasing.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// reason is the cause of the phase as a single word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message describes the event that the node waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// refusal is the error of the API server for a rejected write that the next step needs. The manager tries again. Absent if no
	// write was rejected.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Refusal string `json:"refusal,omitempty"`

	// tuned is the time from which the node has had the settings of a hash. Absent until its first settings are applied, while a
	// setting has failed, drifted or lost its proof, and while the agent does not report.
	// +optional
	Tuned *RolloutTuned `json:"tuned,omitempty"`

	// since is the start time of the phase.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// attempts is the number of reboot permits that the node has received for bootHash.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// evictions is the number of pods that the rollout evicted from the node in its last drain. It is written together with the next
	// change of another field.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Evictions int32 `json:"evictions,omitempty"`

	// drainAttempts is the number of consecutive drains of the node that finished without a reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainAttempts int32 `json:"drainAttempts,omitempty"`

	// retryAfter is the earliest time of the next drain. It is set after a drain finished without a reboot, or if a drain would not
	// finish. The delay is five minutes after the first drain and doubles each time, up to six hours.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`

	// heldSince is the time from which only PodDisruptionBudgets have kept the node from its drain. It is set if
	// rollout.drain.lookAhead is CordonFirst, until the node is claimed without a cordon first, or until such an attempt ends.
	// +optional
	HeldSince *metav1.Time `json:"heldSince,omitempty"`

	// drainedFor is a hash of the settings and the drain options that drainAttempts and retryAfter refer to. A change resets both
	// fields.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DrainedFor string `json:"drainedFor,omitempty"`

	// bootHash is the hash of the settings that attempts and a failure refer to.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// bootID is the ID of the boot that the rollout observes while the node is Settling. After another boot, the observation starts
	// again.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
}

// HasFailedUnrebooted reports whether the node has failed because its agent did not use the permit. Only such a failure is followed by a pause.
func (in *RolloutStatus) HasFailedUnrebooted() bool {
	return in.Phase == RolloutFailed && in.Reason == RolloutReasonRebootTimedOut && in.Since.Before(in.RetryAfter)
}

// StorageClientNodeStatus contains the observations of the node's agent. The manager writes only rollout.
type StorageClientNodeStatus struct {
	// observedGeneration is the generation of spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready and Stalled. They summarize the settings.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// hash is the hash of the settings that the agent has applied, or staged if they take effect later.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// bootID is the ID of the boot that this status describes. The status is valid only if it equals the Node's boot ID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`

	// kernelVersion is the release of the running kernel.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	KernelVersion string `json:"kernelVersion,omitempty"`

	// kernelBuild is the text of /proc/version_signature or /proc/version. It contains the stable release that kernelVersion hides on
	// Debian and Ubuntu. Absent if the agent cannot read it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	KernelBuild string `json:"kernelBuild,omitempty"`

	// bootloader is the boot loader that manages the node's kernel command line.
	// +optional
	Bootloader *Bootloader `json:"bootloader,omitempty"`

	// settings contains the state of each setting. A setting that is being restored is listed until the restore is complete.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=512
	Settings []SettingStatus `json:"settings,omitempty"`

	// mounts are the network and XFS mounts of the node. At most 128.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=128
	Mounts []MountStatus `json:"mounts,omitempty"`

	// mountsOmitted is the number of mounts that exceed the limit of mounts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`

	// signs are the IDs of known problems of which the node shows a sign in its current boot: failed or too many requests of a mount,
	// or a line of the kernel log. tuning/knownbad/entries.yaml contains the problems. A profile reports them as advice unless
	// the node's kernel has the fix. At most 32.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	Signs []string `json:"signs,omitempty"`

	// nfs4ClientName is the client ID that the node's NFSv4 client sends to storage servers, without the protocol version. It is the
	// host name, preceded by the configured client ID and a slash if one is set. Empty while the node has no NFSv4 mount. Two nodes
	// with the same client ID remove each other's locks and open files.
	// +optional
	// +kubebuilder:validation:MaxLength=384
	NFS4ClientName string `json:"nfs4ClientName,omitempty"`

	// servers are the storage servers that the node has mounts of. The agent derives their state from the kernel's counters and log,
	// without access to a mount. At most 64, failing servers first.
	// +optional
	// +listType=map
	// +listMapKey=server
	// +listMapKey=protocol
	// +kubebuilder:validation:MaxItems=64
	Servers []ServerStatus `json:"servers,omitempty"`

	// rebootRequired is true if settings take effect at the next boot.
	// +optional
	RebootRequired bool `json:"rebootRequired"`

	// rebootRequiredBy are the keys of settings that take effect at the next boot. For a key that is not in spec.settings, the
	// removal takes effect at the next boot.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	RebootRequiredBy []string `json:"rebootRequiredBy,omitempty"`

	// busyMounts are workloads' mounts under the kubelet's directory. They block a reboot. At most 128.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=128
	BusyMounts []BusyMount `json:"busyMounts,omitempty"`

	// busyMountsOmitted is the number of busy mounts that exceed the limit of busyMounts. They also block a reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BusyMountsOmitted int32 `json:"busyMountsOmitted,omitempty"`

	// reboot is the agent's progress with a reboot permit.
	// +optional
	Reboot *RebootStatus `json:"reboot,omitempty"`

	// restored is true once spec.release is complete and read back. The host then has no values of the operator left. Kernel
	// arguments are removed from the boot configuration but stay active until the next reboot.
	// +optional
	Restored bool `json:"restored,omitempty"`

	// trial is the result of the order in spec.trial, at most 16 KiB. Absent if there is no order.
	// +optional
	Trial *NodeTrialStatus `json:"trial,omitempty"`

	// sample is the response to spec.sample, at most 64 KiB. Absent if there is no request.
	// +optional
	Sample *NodeSampleStatus `json:"sample,omitempty"`

	// rollout is the node's state in the rollout. Only the manager writes it.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
}

// StorageClientNode is the contract between the manager and the agent of one node.
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
	// metadata is the metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec contains the work of the node's agent.
	// +optional
	Spec StorageClientNodeSpec `json:"spec,omitzero"`

	// status contains the observations of the node's agent.
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
