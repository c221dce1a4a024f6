package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SettingEffect says when a setting takes effect.
// +kubebuilder:validation:Enum=Live;NextMount;NewTransport;Reboot;Action
type SettingEffect string

const (
	// EffectLive takes effect immediately.
	EffectLive SettingEffect = "Live"
	// EffectNextMount takes effect at the next mount.
	EffectNextMount SettingEffect = "NextMount"
	// EffectNewTransport takes effect on the connections to a server once no mount of it is left on the node.
	EffectNewTransport SettingEffect = "NewTransport"
	// EffectReboot takes effect at the next boot.
	EffectReboot SettingEffect = "Reboot"
	// EffectAction is done once and cannot be read back.
	EffectAction SettingEffect = "Action"
)

// SettingState says whether a setting is in force on the node.
// +kubebuilder:validation:Enum=InSync;Pending;Drifted;Shadowed;Clamped;Unsupported;Failed
type SettingState string

const (
	// SettingInSync means that the value in force is the value wanted.
	SettingInSync SettingState = "InSync"
	// SettingPending means that the setting takes effect later: at the next mount, new connection or boot.
	SettingPending SettingState = "Pending"
	// SettingDrifted means that something else changed the value.
	SettingDrifted SettingState = "Drifted"
	// SettingShadowed means that another file overrides the value: at each boot, after which the agent sets it again, or for good
	// where takesEffect is Reboot.
	SettingShadowed SettingState = "Shadowed"
	// SettingClamped means that the kernel would grant less than the value wanted, so it is never staged.
	SettingClamped SettingState = "Clamped"
	// SettingUnsupported means that the setting cannot work on this node.
	SettingUnsupported SettingState = "Unsupported"
	// SettingFailed means that applying or reading the setting failed.
	SettingFailed SettingState = "Failed"
)

// SettingWait is an event that a Pending setting waits for.
// +kubebuilder:validation:Enum=Proof;Connections;Boot;Mount;Transport;Module
type SettingWait string

const (
	// WaitsForProof means that the value is set, and that the agent confirms it over new connections.
	WaitsForProof SettingWait = "Proof"
	// WaitsForConnections means that new connections must confirm the value, and cannot do so now. The agent tries again.
	WaitsForConnections SettingWait = "Connections"
	// WaitsForBoot means that the next boot brings the value.
	WaitsForBoot SettingWait = "Boot"
	// WaitsForMount means that the next mount gets the value.
	WaitsForMount SettingWait = "Mount"
	// WaitsForTransport means that the next connection to a server gets the value, once no mount of the server is left on the node.
	WaitsForTransport SettingWait = "Transport"
	// WaitsForModule means that the agent sets the value when the kernel module is loaded.
	WaitsForModule SettingWait = "Module"
)

// MountState says whether a mount has the options that its volume declares.
// +kubebuilder:validation:Enum=Effective;Stale;Unmanaged
type MountState string

const (
	// MountEffective means that the mount has every declared option, as far as kernel and server grant them.
	MountEffective MountState = "Effective"
	// MountStale means that the mount, or a connection that it shares, was made before the options changed.
	MountStale MountState = "Stale"
	// MountUnmanaged means that no profile declares options for the mount.
	MountUnmanaged MountState = "Unmanaged"
)

// ServerProtocol is what the node's mounts speak with a storage server.
// +kubebuilder:validation:Enum=NFS;SMB
type ServerProtocol string

const (
	// ServerNFS is NFS of any version.
	ServerNFS ServerProtocol = "NFS"
	// ServerSMB is SMB 2 and 3.
	ServerSMB ServerProtocol = "SMB"
)

// ServerState says whether a storage server answers the node.
// +kubebuilder:validation:Enum=Answering;Idle;Silent;Stuck
type ServerState string

const (
	// ServerAnswering means that it has answered within five minutes, and owes no answer for a minute or longer.
	ServerAnswering ServerState = "Answering"
	// ServerIdle means that nothing was asked of it for five minutes: whether it would answer is not known.
	ServerIdle ServerState = "Idle"
	// ServerSilent means that it has answered nothing for a minute or longer, though it was asked.
	ServerSilent ServerState = "Silent"
	// ServerStuck means that requests have waited for a minute or longer, while it answers others: over other connections, or for
	// other files.
	ServerStuck ServerState = "Stuck"
)

// IsFailing reports whether a server leaves requests without an answer.
func (s ServerState) IsFailing() bool { return s == ServerSilent || s == ServerStuck }

// BootloaderType is the boot loader that keeps a node's kernel command line.
// +kubebuilder:validation:Enum=GrubDebian;Grub2Mkconfig;GrubBLS;RPMOSTree;Unsupported
type BootloaderType string

const (
	// BootloaderGrubDebian is GRUB with /etc/default/grub.d, as on Debian and Ubuntu.
	BootloaderGrubDebian BootloaderType = "GrubDebian"
	// BootloaderGrub2Mkconfig is GRUB with grub2-mkconfig and /etc/default/grub.d, as on Azure Linux.
	BootloaderGrub2Mkconfig BootloaderType = "Grub2Mkconfig"
	// BootloaderGrubBLS is GRUB with boot loader specification entries, changed by grubby.
	BootloaderGrubBLS BootloaderType = "GrubBLS"
	// BootloaderRPMOSTree is rpm-ostree, which keeps the command line itself.
	BootloaderRPMOSTree BootloaderType = "RPMOSTree"
	// BootloaderUnsupported is anything else.
	BootloaderUnsupported BootloaderType = "Unsupported"
)

// RebootPhase says what the agent has done with a permit.
// +kubebuilder:validation:Enum=Waiting;Refused;Started;Failed
type RebootPhase string

const (
	// RebootWaiting means that something on the host must not be interrupted; the message names it. The permit is not used up:
	// the agent reboots once the host is free, unless the manager has taken the permit back.
	RebootWaiting RebootPhase = "Waiting"
	// RebootRefused means that the agent refused the permit and did not reboot; the message says why.
	RebootRefused RebootPhase = "Refused"
	// RebootStarted means that the permit is used up and the reboot was requested, or is about to be.
	RebootStarted RebootPhase = "Started"
	// RebootFailed means that the permit is used up and the host refused the reboot.
	RebootFailed RebootPhase = "Failed"
)

// RolloutPhase says where a node stands in the rollout.
// +kubebuilder:validation:Enum=Applying;UpToDate;Waiting;Claimed;Draining;Rebooting;Settling;Failed;Releasing
type RolloutPhase string

const (
	// RolloutApplying means that the agent has not reported the current settings yet.
	RolloutApplying RolloutPhase = "Applying"
	// RolloutUpToDate means that the node needs no disruption.
	RolloutUpToDate RolloutPhase = "UpToDate"
	// RolloutWaiting means that the node needs a reboot and is waiting; the reason says for what.
	RolloutWaiting RolloutPhase = "Waiting"
	// RolloutClaimed means that the node counts against the budget and is about to be cordoned.
	RolloutClaimed RolloutPhase = "Claimed"
	// RolloutDraining means that the node is being drained: pods are evicted and their mounts go away.
	RolloutDraining RolloutPhase = "Draining"
	// RolloutRebooting means that the agent has a permit to reboot the node.
	RolloutRebooting RolloutPhase = "Rebooting"
	// RolloutSettling means that the node is back and must stay healthy for a while before it is uncordoned.
	RolloutSettling RolloutPhase = "Settling"
	// RolloutFailed means that the node failed with these boot settings and is not tried again.
	RolloutFailed RolloutPhase = "Failed"
	// RolloutReleasing means that the node is being returned to service.
	RolloutReleasing RolloutPhase = "Releasing"
)

// TrialKind says what a trial is for.
// +kubebuilder:validation:Enum=Probe;Trial
type TrialKind string

const (
	// TrialProbe mounts a list of options once, to see whether it works before any volume has it.
	TrialProbe TrialKind = "Probe"
	// TrialTrial mounts two lists in turn and measures the same work on each, for a StorageClientTrial.
	TrialTrial TrialKind = "Trial"
)

// TrialPhase says how far the agent has come with a trial.
// +kubebuilder:validation:Enum=Running;Finished;Void;Refused
type TrialPhase string

const (
	// TrialRunning means that the node's trial runner has the order, or is waited for.
	TrialRunning TrialPhase = "Running"
	// TrialFinished means that the mount was tried; succeeded says whether it worked, and message how it failed.
	TrialFinished TrialPhase = "Finished"
	// TrialVoid means that nothing was tried, or that a proof of validity is missing: the result says nothing about the options. The
	// message says why.
	TrialVoid TrialPhase = "Void"
	// TrialRefused means that the agent refused the order, and nothing was tried; the message says why.
	TrialRefused TrialPhase = "Refused"
)

// TrialProofType names what makes the result of a trial valid.
// +kubebuilder:validation:Enum=OwnNetwork;Identifier;NoOtherMount;OwnDevice;Transports
type TrialProofType string

const (
	// ProofOwnNetwork means that the runner's network namespace is not the node's: no connection of the node's mounts is shared.
	ProofOwnNetwork TrialProofType = "OwnNetwork"
	// ProofIdentifier means that the NFSv4 client had an identifier of its own before anything was mounted, so that no server takes
	// it for the node's client, whose state it would lose.
	ProofIdentifier TrialProofType = "Identifier"
	// ProofNoOtherMount means that nothing else was mounted from the server in that network namespace, neither before nor beside it.
	ProofNoOtherMount TrialProofType = "NoOtherMount"
	// ProofOwnDevice means that the mount has a superblock, and so a cache, that no other mount has.
	ProofOwnDevice TrialProofType = "OwnDevice"
	// ProofTransports means that the mount has as many connections to the server as the list asks for.
	ProofTransports TrialProofType = "Transports"
)

// NodeSetting is one merged setting of a node.
type NodeSetting struct {
	// key is the setting's canonical key, "<subject>/<name>": sysctl/net.core.rmem_max, module/sunrpc/tcp_max_slot_table_entries,
	// kernelArgument/ihash_entries, readAhead/nfs4, tuned/profile, nfsMountDefaults/filer1, filesystem/mnt/disks/*.
	// "*" and "?" are for mount points only: generated files never hold a glob, only the mount points that it matches.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_.,:=/@+-]+|filesystem/[A-Za-z0-9_.,:=/@+*?-]+)$`
	Key string `json:"key"`

	// value is the value wanted. Empty for a kernel argument without a value.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+ -]*$`
	Value string `json:"value,omitempty"`

	// profile is the StorageClientProfile that the value comes from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Profile string `json:"profile"`

	// onRemoval says what happens when the setting is removed: Restore or Retain.
	// +required
	OnRemoval DeletionPolicy `json:"onRemoval"`
}

// RebootPermit is the right to reboot once.
type RebootPermit struct {
	// id identifies the permit; an agent uses it once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// bootHash is the hash of the boot settings that the permit is for.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// bootID is the boot that the permit may end; it is void after any other reboot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID"`

	// ignorePodUIDs are the DaemonSet and static pods that a drain leaves on the node; their mounts do not hold the reboot back.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	IgnorePodUIDs []string `json:"ignorePodUIDs,omitempty"`
}

// NodeVolume is a PersistentVolume that the node has mounted and that a profile's volume rules select.
type NodeVolume struct {
	// name is the name of the PersistentVolume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name"`

	// mountOptions are the options that profiles declare and the volume has. The agent only compares mounts with them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^,[:space:]]+$`
	MountOptions []string `json:"mountOptions,omitempty"`

	// readAheadKiB is the read-ahead window wanted for the volume's mounts, in KiB: 4 to 1048576. It overrides the
	// setting readAhead of the file system type.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB *int32 `json:"readAheadKiB,omitempty"`
}

// NodeTrialPass is a pass of an order: mount, work, unmount.
type NodeTrialPass struct {
	// round is the number of the round that the pass belongs to.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=40
	Round int32 `json:"round,omitempty"`

	// arm is Before or Again, with ownMountOptions, or After, with mountOptions.
	// +required
	Arm TrialArm `json:"arm,omitempty"`
}

// NodeTrialWork is the work that is done in each pass.
// +kubebuilder:validation:XValidation:rule="self.name != 'Observe'",message="Observe is no work for a trial runner"
// +kubebuilder:validation:XValidation:rule="!(self.name in ['CreateUnlink', 'WriteSequential']) || (has(self.allowWrites) && self.allowWrites)",message="this workload writes, and allowWrites is not true"
type NodeTrialWork struct {
	// name is the workload.
	// +required
	Name TrialWorkloadName `json:"name,omitempty"`

	// path is the directory that the work is done in, relative to the root of the mount.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be relative to the volume's root, and must not hold '..'"
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+-]*$`
	Path string `json:"path,omitempty"`

	// allowWrites is whether the work may write. Without it, the mount is read-only to it.
	// +optional
	AllowWrites bool `json:"allowWrites,omitempty"`

	// pauseSeconds is how long to wait before the work is repeated on the same mount: 0 to 60 s.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	PauseSeconds int32 `json:"pauseSeconds,omitempty"`
}

// NodeTrial is an order to mount a volume with lists of options, beside the node's own mounts and without touching them: in a
// network namespace of its own, by the node's trial runner. The agent accepts it only as its own catalogue of options does.
// +kubebuilder:validation:XValidation:rule="self.kind == 'Trial' ? has(self.work) && has(self.passes) && size(self.passes) > 0 && self.runAsUser > 0 : !has(self.work) && !has(self.passes)",message="a Trial has work, passes and a user that is not root; a Probe has neither work nor passes"
type NodeTrial struct {
	// id identifies the order; an agent carries one out once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// kind is Probe: the mount is made, its root is read, and it is unmounted; or Trial: each of passes mounts, does the work, and unmounts.
	// +required
	Kind TrialKind `json:"kind"`

	// work is what a Trial does in each pass.
	// +optional
	Work *NodeTrialWork `json:"work,omitempty"`

	// passes are those of a Trial, in the order in which they are run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	Passes []NodeTrialPass `json:"passes,omitempty"`

	// volume is the name of the PersistentVolume that server and path are of.
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

	// path is what is mounted from the server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9_.,:=/@+-]*$`
	Path string `json:"path"`

	// fsType is the type given to mount: nfs, of which mountOptions say or mount negotiates the version, or nfs4.
	// +required
	// +kubebuilder:validation:Enum=nfs;nfs4
	FSType string `json:"fsType"`

	// mountOptions are the exact list that mount would get, in its order. Under NFSv3 the runner adds nolock: what keeps locks on the
	// host is not there in its network namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.:=/@+-]+$`
	MountOptions []string `json:"mountOptions,omitempty"`

	// ownMountOptions are the list that the volume has today. Where mountOptions fail, the volume is mounted with these too: if that
	// fails alike, something other than the options is in the way.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.:=/@+-]+$`
	OwnMountOptions []string `json:"ownMountOptions,omitempty"`

	// runAsUser is the user ID, with the group of the same number, that reads the root of the mount: 0 to 2147483647. That this user
	// may not read it is no failure of the list.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser int64 `json:"runAsUser"`

	// timeoutSeconds is how long the whole may take, from the order to its result: 5 to 600 s. What is mounted then is unmounted.
	// +required
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=600
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// StorageClientNodeSpec is what the node's agent has to do. Only the manager writes it.
type StorageClientNodeSpec struct {
	// settings are the merged settings of the node's profiles.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=256
	Settings []NodeSetting `json:"settings,omitempty"`

	// hash is the hash of the keys and values of settings.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// bootHash is the hash of those settings that take effect at boot.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// canary is true where the settings are proven on this node before others get them: the agent then reads 1 MiB over the new
	// connection that is to confirm them, elsewhere 64 KiB. No hash covers it.
	// +optional
	Canary bool `json:"canary,omitempty"`

	// volumes are the profiles' volumes that the node has mounted. No hash covers them and nothing waits for them: they are
	// updated while the node is not being disrupted, once the agent has seen the previous update.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Volumes []NodeVolume `json:"volumes,omitempty"`

	// rebootPermit is the right to reboot once.
	// +optional
	RebootPermit *RebootPermit `json:"rebootPermit,omitempty"`

	// release tells the agent to restore everything in its journal and to report when it is done.
	// +optional
	Release bool `json:"release,omitempty"`

	// trial is a mount that the node's trial runner is to make once, beside all mounts of the node. No hash covers it, and neither the
	// rollout nor what counts as reported takes notice of it. Without it, status.trial goes.
	// +optional
	Trial *NodeTrial `json:"trial,omitempty"`

	// sample asks for one sample of what the mounts of some volumes do, which the agent answers in status.sample. No hash covers it, and
	// neither the rollout nor what counts as reported takes notice of it. Without it, status.sample goes.
	// +optional
	Sample *NodeSample `json:"sample,omitempty"`
}

// Bootloader is the boot loader that keeps the node's kernel command line.
type Bootloader struct {
	// type is GrubDebian, Grub2Mkconfig, GrubBLS, RPMOSTree or Unsupported.
	// +required
	Type BootloaderType `json:"type"`

	// proven is false for a boot loader that this project's own tests have never rebooted: arguments are staged only.
	// +optional
	Proven bool `json:"proven"`

	// message says what was found and, if it is not supported, what to use instead.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Drift counts changes by something else that the agent has corrected.
type Drift struct {
	// count is how often the agent found the setting changed and set it again. It survives restarts of agent and node, and
	// starts over when the setting is declared again. After 5 times within an hour the agent leaves the setting alone and
	// stops counting.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`

	// lastTime is when that last happened.
	// +required
	LastTime metav1.Time `json:"lastTime"`

	// lastObserved is what the agent found then: the value, or what was wrong with the files that keep it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastObserved string `json:"lastObserved,omitempty"`
}

// SettingStatus is the state of one setting on the node.
type SettingStatus struct {
	// key is the setting's canonical key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Key string `json:"key"`

	// desired is the value wanted. Empty for a setting that is being restored and had no value originally.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Desired string `json:"desired,omitempty"`

	// observed is the value in force, which may differ from what was written.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Observed string `json:"observed,omitempty"`

	// original is the value from before the operator first changed it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Original string `json:"original,omitempty"`

	// takesEffect is Live, NextMount, NewTransport, Reboot or Action.
	// +optional
	TakesEffect SettingEffect `json:"takesEffect,omitempty"`

	// state is InSync, Pending, Drifted, Shadowed, Clamped, Unsupported or Failed.
	// +required
	State SettingState `json:"state"`

	// waitsFor is the event that a Pending setting waits for: Proof, Connections, Boot, Mount, Transport or Module. Absent in other states,
	// for an action, and from an agent of a release before this field.
	// +optional
	WaitsFor SettingWait `json:"waitsFor,omitempty"`

	// message says why the state is not InSync.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// drift counts changes by something else that the agent has corrected. Absent if there were none.
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

	// volume is the PersistentVolume that the mount belongs to, if any.
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

	// connections is the number of open connections (transports) to the server that this mount uses.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connections int32 `json:"connections,omitempty"`

	// slotLimit is the kernel's limit of requests in flight per connection.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SlotLimit int32 `json:"slotLimit,omitempty"`

	// readAheadKiB is the read-ahead window in KiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// since is when the kernel mounted it, to the second and by the node's clock. Mounts that share a superblock have the time of the
	// first. Of SMB and XFS it is when the node was last seen without it. Absent where that is not known.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// used is true once an operation on it, other than those that mounting makes itself, has ended since. SMB counts operations by
	// share, not by mount.
	// +optional
	Used bool `json:"used,omitempty"`

	// state is Effective, Stale or Unmanaged, compared with spec.volumes. A volume that is new on the node is Unmanaged
	// until the manager has added it there.
	// +optional
	State MountState `json:"state,omitempty"`

	// message says why the mount is Stale: the option, the value in force and the value wanted; and, if another mount of the
	// server keeps the connections open, which one and the pods to restart first. Otherwise it says what cannot be granted here.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ServerStatus is a storage server that the node has mounts of, and whether it answers. The agent tells it from the kernel's counters
// and its log; it never touches a mount for it, since that would hang where the server is gone.
type ServerStatus struct {
	// server is the server's host name or address as the mounts have it, as in mounts.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server"`

	// protocol is NFS or SMB.
	// +required
	Protocol ServerProtocol `json:"protocol"`

	// address is the address and port that the connections go to.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Address string `json:"address,omitempty"`

	// state is Answering, Idle, Silent or Stuck.
	// +required
	State ServerState `json:"state"`

	// reason is the cause as a single word, such as ConnectionRefused, Unreachable, NoAnswer, TunnelGone, SessionDown, TransportStuck or
	// RequestsStuck.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says what is wrong and what to check. Empty where nothing is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is when the state began: where it is Silent or Stuck, when the first request was seen that has no answer.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// lastAnswerTime is when the server had answered last when its state began; it changes with the state only. So it says of one that is
	// Silent or Idle when an answer came last, and of one that is Answering no more than that it answered then.
	// +optional
	LastAnswerTime *metav1.Time `json:"lastAnswerTime,omitempty"`

	// connections is the number of connections that the node's mounts have to the server.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connections int32 `json:"connections,omitempty"`

	// stuckConnections is how many of them have requests without an answer, while the state is Silent or Stuck.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StuckConnections int32 `json:"stuckConnections,omitempty"`

	// waitingRequests is how many requests have no answer, rounded down to a power of two, while the state is Silent or Stuck.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WaitingRequests int32 `json:"waitingRequests,omitempty"`

	// volumes are the names of the volumes that the node has mounted from it, while the state is Silent or Stuck, and those whose handles are
	// stale, while the reason is StaleHandles; the first 16.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Volumes []string `json:"volumes,omitempty"`

	// podUIDs are the pods that use the mounts of these volumes, in the same states; the first 32.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	PodUIDs []string `json:"podUIDs,omitempty"`

	// forgetting is true where the server has made this NFSv4 client introduce itself anew three times or more in ten minutes: another
	// client calls itself the same, and each takes the other's locks and open files away.
	// +optional
	Forgetting bool `json:"forgetting,omitempty"`
}

// BusyMount is a workload's NFS, SMB or block mount under the kubelet's directory.
type BusyMount struct {
	// mountPoint is where it is mounted on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// podUID is the pod that the mount belongs to; empty for a driver's global mount, which counts until it is unstaged.
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

// RebootStatus is what the agent has done with a permit.
type RebootStatus struct {
	// permitID is the id of the permit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PermitID string `json:"permitID"`

	// phase is Waiting, Refused, Started or Failed.
	// +required
	Phase RebootPhase `json:"phase"`

	// message says what a permit waits for, or why it was refused or failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// TrialProof is one thing that makes the result of a trial valid, and whether it was observed.
type TrialProof struct {
	// type is OwnNetwork, Identifier, NoOtherMount, OwnDevice or Transports.
	// +required
	Type TrialProofType `json:"type"`

	// holds is true where it was observed.
	// +optional
	Holds bool `json:"holds"`

	// message says what was observed.
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

// TrialMount is how one mount of a trial ended.
type TrialMount struct {
	// succeeded is true where the mount was made and answered.
	// +optional
	Succeeded bool `json:"succeeded"`

	// cause is the cause of the failure: Options, Elsewhere or Unknown. Absent if the mount succeeded.
	// +optional
	Cause MountFailureCause `json:"cause,omitempty"`

	// sameFailure is true if this mount failed in the same way as the mount with mountOptions. Default: false.
	// +optional
	SameFailure bool `json:"sameFailure,omitempty"`

	// message is the kernel's own text where it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeTrialStatus is what became of an order in spec.trial. All of it fits into 16 KiB.
type NodeTrialStatus struct {
	// id is that of the order.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// phase is Running, Finished, Void or Refused.
	// +required
	Phase TrialPhase `json:"phase"`

	// succeeded is true where a mount with exactly mountOptions was made, answered, and is valid by all of its proofs; of a Trial, where
	// all passes were run so.
	// +optional
	Succeeded bool `json:"succeeded"`

	// cause is the cause of the failed mount with mountOptions: Options, Elsewhere or Unknown. Absent unless phase is Finished and succeeded
	// is false, and from an agent of a release before this field.
	// +optional
	Cause MountFailureCause `json:"cause,omitempty"`

	// message is the text of the kernel or the server where the mount failed, and else says why nothing was tried, or why the result is
	// void.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// observedOptions are the options in force while it was mounted, as the kernel showed them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	ObservedOptions []string `json:"observedOptions,omitempty"`

	// transports is the number of connections to the server that the mount had.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Transports int32 `json:"transports,omitempty"`

	// identifier is what the NFSv4 client was set to call itself, beside its host name.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Identifier string `json:"identifier,omitempty"`

	// proofs are what makes the result valid. One that does not hold makes it void.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Proofs []TrialProof `json:"proofs,omitempty"`

	// own is how the mount with ownMountOptions ended. Absent where it was not made: mountOptions worked, or nothing was tried.
	// +optional
	Own *TrialMount `json:"own,omitempty"`

	// passes are those of a Trial that were valid, in the order in which they were run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	Passes []TrialPass `json:"passes,omitempty"`
}

// RolloutTuned is the time from which a node has had its settings.
type RolloutTuned struct {
	// hash is spec.hash of these settings.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// since is the time from which the agent has reported them as applied or staged, without a failure or drift. The soak of a canary starts
	// at this time.
	// +required
	Since metav1.Time `json:"since"`
}

// RolloutStatus is the node's state in the rollout. Only the manager writes it.
type RolloutStatus struct {
	// phase is Applying, UpToDate, Waiting, Claimed, Draining, Rebooting, Settling, Failed or Releasing.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// reason is why the node is in this phase, as a single word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says what the node is waiting for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// refusal is the answer of the API server that rejected a write which the next step needs. The manager tries again. Absent if there is
	// none.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Refusal string `json:"refusal,omitempty"`

	// tuned is the time from which the node has had the settings of a hash. Absent until its first settings are applied, while a setting has
	// failed, drifted or lost its proof, and while the agent is silent.
	// +optional
	Tuned *RolloutTuned `json:"tuned,omitempty"`

	// since is when the phase began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// attempts is how many permits have been given for bootHash.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// evictions is how many pods the rollout has evicted from the node in its last drain. It is written with the next change of the
	// other fields.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Evictions int32 `json:"evictions,omitempty"`

	// drainAttempts is how many drains of the node in a row have ended without a reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainAttempts int32 `json:"drainAttempts,omitempty"`

	// retryAfter is until when the node is left alone, since a drain of it has ended without a reboot, or would have: five minutes after
	// the first, twice as long after each more, six hours at most.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`

	// drainedFor is a hash of the settings and the drain options that drainAttempts and retryAfter refer to: a change resets them.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DrainedFor string `json:"drainedFor,omitempty"`

	// bootHash is the hash of the boot settings that attempts and a failure refer to.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootHash string `json:"bootHash,omitempty"`

	// bootID is the boot in which the node is watched while it is Settling: after another one, the watch begins anew.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
}

// StorageClientNodeStatus is what the node's agent observes; the manager writes rollout.
type StorageClientNodeStatus struct {
	// observedGeneration is the generation of spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions sum up the settings: Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// hash is the hash of the settings that were applied, or staged if they take effect later.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// bootID is the boot that this status describes. The status is valid only while it equals the Node's boot ID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`

	// kernelVersion is the running kernel's release.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	KernelVersion string `json:"kernelVersion,omitempty"`

	// bootloader is the boot loader that keeps the node's kernel command line.
	// +optional
	Bootloader *Bootloader `json:"bootloader,omitempty"`

	// settings is the state of each setting. A setting that is being restored is listed until that is done.
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

	// mountsOmitted is how many mounts did not fit into mounts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`

	// nfs4ClientName is what the node's NFSv4 client introduces itself by to storage servers, beside the protocol's version: the host name,
	// with the client's identifier and a slash before it where one is set. Empty while the node has no NFSv4 mount. Two nodes with the same
	// take each other's locks and open files away.
	// +optional
	// +kubebuilder:validation:MaxLength=384
	NFS4ClientName string `json:"nfs4ClientName,omitempty"`

	// servers are the storage servers that the node has mounts of, those that do not answer first where there are too many.
	// +optional
	// +listType=map
	// +listMapKey=server
	// +listMapKey=protocol
	// +kubebuilder:validation:MaxItems=64
	Servers []ServerStatus `json:"servers,omitempty"`

	// rebootRequired is true when settings take effect at the next boot.
	// +optional
	RebootRequired bool `json:"rebootRequired"`

	// rebootRequiredBy are the keys of those settings. A key that is not in spec.settings is one whose removal takes effect then.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	RebootRequiredBy []string `json:"rebootRequiredBy,omitempty"`

	// busyMounts are workloads' mounts under the kubelet's directory; they hold a reboot back.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=128
	BusyMounts []BusyMount `json:"busyMounts,omitempty"`

	// busyMountsOmitted is how many busy mounts did not fit; they hold a reboot back too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BusyMountsOmitted int32 `json:"busyMountsOmitted,omitempty"`

	// reboot is what the agent has done with a permit.
	// +optional
	Reboot *RebootStatus `json:"reboot,omitempty"`

	// restored is true once spec.release is done and read back: nothing of ours is left on the host except boot arguments
	// that are removed from the boot configuration and stay active until the next reboot.
	// +optional
	Restored bool `json:"restored,omitempty"`

	// trial is what became of the order in spec.trial, at most 16 KiB. Absent where there is none.
	// +optional
	Trial *NodeTrialStatus `json:"trial,omitempty"`

	// sample is the answer to spec.sample, at most 64 KiB. Absent where nothing is asked.
	// +optional
	Sample *NodeSampleStatus `json:"sample,omitempty"`

	// rollout is the node's state in the rollout. Only the manager writes it.
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

	// spec is what the node's agent has to do.
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
