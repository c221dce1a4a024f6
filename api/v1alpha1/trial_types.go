package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Condition types of a StorageClientTrial.
const (
	// TrialConditionComplete is True once the trial has a verdict or recommendations. The trial does not change after that.
	TrialConditionComplete = "Complete"
	// TrialConditionFailed is True once the trial has finished without a verdict and recommendations. The message explains the
	// failure. If a mount failed, it contains the error text of the kernel or the server.
	TrialConditionFailed = "Failed"
	// TrialConditionReconciling is True while the trial waits or runs.
	TrialConditionReconciling = "Reconciling"
	// TrialConditionStalled is True whenever Failed is True. Tools based on kstatus read this condition.
	TrialConditionStalled = "Stalled"
)

// Reasons of a StorageClientTrial's conditions.
const (
	// TrialReasonWaiting is set while the trial has not started or waits for a node. The message names the event that it waits for.
	// No action needed, unless the message requests one.
	TrialReasonWaiting = "Waiting"
	// TrialReasonRunning is set while passes run or nodes count.
	// No action needed.
	TrialReasonRunning = "Running"
	// TrialReasonDecided is set on Complete=True. The result is in status.verdict, for Observe in status.recommendations.
	// No action needed.
	TrialReasonDecided = "Decided"
	// TrialReasonNotMounted is set on Failed=True when a mount with one of the sets of options failed, or the workload could not run
	// on it.
	// Correct the options, path or runAsUser that the message names, and create another trial.
	TrialReasonNotMounted = "NotMounted"
	// TrialReasonNotPossible is set on Failed=True when a comparison is not possible: the claim, the profile or the options do not
	// allow it. For Observe, no node has the volume mounted.
	// Correct the problem that the message names, and create another trial.
	TrialReasonNotPossible = "NotPossible"
	// TrialReasonVoid is set on Failed=True when a proof of validity is missing, so that the measurement is invalid.
	// Resolve the problem that the message names, and create another trial.
	TrialReasonVoid = "Void"
	// TrialReasonTimedOut is set on Failed=True when timeoutSeconds have passed and no round was complete. For Observe, no node has
	// counted.
	// Check the event that the trial has waited for. Choose less work or a longer time.
	TrialReasonTimedOut = "TimedOut"
)

// TrialWorkloadName is the name of a trial's work on each mount.
// +kubebuilder:validation:Enum=Observe;Mount;ListDirectory;ListNames;Interleaved;WalkTree;ReadSequential;ReadRandom;CreateUnlink;WriteSequential;CopyFiles
type TrialWorkloadName string

const (
	// WorkloadObserve makes no mount and runs no work. Nodes count the activity of the volume's mounts, and the trial recommends
	// changes.
	WorkloadObserve TrialWorkloadName = "Observe"
	// WorkloadMount mounts, reads the root once and unmounts.
	WorkloadMount TrialWorkloadName = "Mount"
	// WorkloadListDirectory reads the directory and the attributes of each entry, twice with a pause.
	WorkloadListDirectory TrialWorkloadName = "ListDirectory"
	// WorkloadListNames reads only the names in the directory.
	WorkloadListNames TrialWorkloadName = "ListNames"
	// WorkloadInterleaved does the same as ListDirectory in parts of 100 entries.
	WorkloadInterleaved TrialWorkloadName = "Interleaved"
	// WorkloadWalkTree does the same as ListDirectory in the directory and all directories below it.
	WorkloadWalkTree TrialWorkloadName = "WalkTree"
	// WorkloadReadSequential reads the directory's files from start to end.
	WorkloadReadSequential TrialWorkloadName = "ReadSequential"
	// WorkloadReadRandom reads blocks at random positions of the directory's files.
	WorkloadReadRandom TrialWorkloadName = "ReadRandom"
	// WorkloadCreateUnlink creates small files and removes them.
	WorkloadCreateUnlink TrialWorkloadName = "CreateUnlink"
	// WorkloadWriteSequential writes one file from start to end, and removes it.
	WorkloadWriteSequential TrialWorkloadName = "WriteSequential"
	// WorkloadCopyFiles copies the directory's files, and removes the copies.
	WorkloadCopyFiles TrialWorkloadName = "CopyFiles"
)

// MountedWorkloads are the workloads that run on a trial's mounts: all except Observe.
var MountedWorkloads = []TrialWorkloadName{
	WorkloadMount, WorkloadListDirectory, WorkloadListNames, WorkloadInterleaved, WorkloadWalkTree, WorkloadReadSequential, WorkloadReadRandom,
	WorkloadCreateUnlink, WorkloadWriteSequential, WorkloadCopyFiles,
}

// Writes reports whether the workload writes.
func (n TrialWorkloadName) Writes() bool {
	return n == WorkloadCreateUnlink || n == WorkloadWriteSequential || n == WorkloadCopyFiles
}

// TrialArm selects the mount options of a pass.
// +kubebuilder:validation:Enum=Before;Again;After
type TrialArm string

const (
	// ArmBefore selects the current mount options of the volume.
	ArmBefore TrialArm = "Before"
	// ArmAgain selects the current mount options once more. Differences between Before and Again are noise.
	ArmAgain TrialArm = "Again"
	// ArmAfter selects the candidate.
	ArmAfter TrialArm = "After"
)

// TrialVerdict is the result of a trial.
// +kubebuilder:validation:Enum=Better;Worse;NoDifference;FewerRequests;Undecided
type TrialVerdict string

// TrialLoad is the amount of a trial's concurrent work, and its use of caches.
type TrialLoad struct {
	// workers is the number of concurrent workers: 1 to 64. They share the entries, the files, or the parts of fewer files. In
	// ListNames, ListDirectory, Interleaved and WalkTree, each reads all names. CreateUnlink and WriteSequential have separate files for
	// each. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Workers int32 `json:"workers,omitempty"`

	// blockKiB is the size of a read or write in KiB, a multiple of 4: 4 to 16384. ReadRandom reads each block in runs of 4 KiB. The
	// product of workers and blockKiB is at most 65536. Default 64, for WriteSequential 1024.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=16384
	// +kubebuilder:validation:MultipleOf=4
	BlockKiB int32 `json:"blockKiB,omitempty"`

	// sync makes WriteSequential wait until each block is in stable storage (O_DSYNC). Default false.
	// +optional
	Sync bool `json:"sync,omitempty"`

	// direct makes ReadSequential, ReadRandom and WriteSequential bypass the page cache of the node (O_DIRECT). Default false.
	// +optional
	Direct bool `json:"direct,omitempty"`

	// cached makes ListDirectory, Interleaved and WalkTree accept cached attributes of any age (AT_STATX_DONT_SYNC), and ReadSequential,
	// ReadRandom and CopyFiles use the page cache. If false, the kernel checks the age, and files are evicted first. Default false.
	// +optional
	Cached bool `json:"cached,omitempty"`

	// throughClient makes CopyFiles read and write the data on the node. If false, the server copies it, if protocol and server can
	// (copy_file_range). Default false.
	// +optional
	ThroughClient bool `json:"throughClient,omitempty"`
}

// TrialWorkload is the work of a trial on each mount.
// +kubebuilder:validation:XValidation:rule="!(self.name in ['CreateUnlink', 'WriteSequential', 'CopyFiles']) || (has(self.allowWrites) && self.allowWrites)",fieldPath=".allowWrites",message="this workload writes: set allowWrites to true, or choose a workload that only reads"
// +kubebuilder:validation:XValidation:rule="!(self.name in ['Observe', 'Mount']) || !has(self.workers) || self.workers == 1",fieldPath=".workers",message="Observe and Mount have no workers: remove workers, or choose another workload"
// +kubebuilder:validation:XValidation:rule="!has(self.blockKiB) || (has(self.workers) ? self.workers : 1) * self.blockKiB <= 65536",fieldPath=".blockKiB",message="workers times blockKiB exceeds 65536 KiB: choose fewer workers or smaller blocks"
// +kubebuilder:validation:XValidation:rule="!has(self.blockKiB) || self.name in ['ReadSequential', 'ReadRandom', 'WriteSequential'] || has(self.throughClient) && self.throughClient",fieldPath=".blockKiB",message="only ReadSequential, ReadRandom, WriteSequential and CopyFiles with throughClient have blocks: remove blockKiB, or choose one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.sync) || !self.sync || self.name == 'WriteSequential'",fieldPath=".sync",message="only WriteSequential waits for each block: remove sync, or choose WriteSequential"
// +kubebuilder:validation:XValidation:rule="!has(self.direct) || !self.direct || self.name in ['ReadSequential', 'ReadRandom', 'WriteSequential']",fieldPath=".direct",message="only ReadSequential, ReadRandom and WriteSequential can bypass the page cache: remove direct, or choose one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.cached) || !self.cached || self.name in ['ListDirectory', 'Interleaved', 'WalkTree', 'CopyFiles'] || self.name in ['ReadSequential', 'ReadRandom'] && !(has(self.direct) && self.direct)",fieldPath=".cached",message="this workload cannot use a cache: remove cached, or choose ListDirectory, Interleaved, WalkTree, CopyFiles, ReadSequential or ReadRandom without direct"
// +kubebuilder:validation:XValidation:rule="!has(self.throughClient) || !self.throughClient || self.name == 'CopyFiles'",fieldPath=".throughClient",message="only CopyFiles copies: remove throughClient, or choose CopyFiles"
// +kubebuilder:validation:XValidation:rule="!has(self.windowSeconds) || self.name == 'Observe'",fieldPath=".windowSeconds",message="only Observe has a window: remove windowSeconds, or choose Observe"
type TrialWorkload struct {
	// name is Observe, Mount, ListDirectory, ListNames, Interleaved, WalkTree, ReadSequential, ReadRandom, CreateUnlink, WriteSequential
	// or CopyFiles. Observe makes no mount, accepts no candidate, and counts the activity of the volume's mounts. CreateUnlink,
	// WriteSequential and CopyFiles write to a directory .storage-client-trial-ID in path, and remove it.
	// +required
	Name TrialWorkloadName `json:"name,omitempty"`

	// path is the directory of the work, relative to the root of the volume, without "..". Default ".", the root.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be relative to the volume's root and must not contain '..'"
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+-]*$`
	Path string `json:"path,omitempty"`

	// runAsUser is the user ID, and the group ID, of the work: 1 to 2147483647. It is never root. Default 65534.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	TrialLoad `json:",inline"`

	// allowWrites allows CreateUnlink, WriteSequential and CopyFiles. If false, the work gets a read-only mount. Default false.
	// +optional
	AllowWrites bool `json:"allowWrites,omitempty"`

	// windowSeconds is the time that nodes count for Observe, in seconds: 10 to 3600. The window and 60 s for the requests to the
	// nodes must fit into timeoutSeconds. Only Observe has a window. Default 60.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	WindowSeconds *int32 `json:"windowSeconds,omitempty"`
}

// TrialGoal is the improvement that the candidate must reach.
type TrialGoal struct {
	// metric is Seconds, Operations, Bytes, or the name of an operation of the protocol, e.g. GETATTR. For all of them, less is
	// better. With Seconds, only the time can make the verdict Better or Worse. Default Seconds.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	Metric string `json:"metric,omitempty"`

	// betterByPercent is the improvement in percent that the whole confidence interval must reach: 1 to 99. Smaller differences do not
	// count. Default 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	BetterByPercent *int32 `json:"betterByPercent,omitempty"`

	// timeMarginPercent is the limit for more time, in percent: 1 to 99. A verdict is Better only if the confidence interval of each
	// phase's time is below it. Default 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	TimeMarginPercent *int32 `json:"timeMarginPercent,omitempty"`
}

// StorageClientTrialSpec describes the comparison. It is immutable: create another trial for another comparison.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a trial is immutable: delete it and create a new one"
// +kubebuilder:validation:XValidation:rule="self.workload.name == 'Observe' ? !(has(self.profile) && size(self.profile) > 0) && !(has(self.mountOptions) && size(self.mountOptions) > 0) && !has(self.readAheadKiB) && !(has(self.sysctls) && size(self.sysctls) > 0) : (has(self.profile) && size(self.profile) > 0) != (has(self.mountOptions) && size(self.mountOptions) > 0 || has(self.readAheadKiB) || has(self.sysctls) && size(self.sysctls) > 0)",fieldPath=".workload",message="set either profile, or any of mountOptions, readAheadKiB and sysctls, as the candidate; Observe must have no candidate"
// +kubebuilder:validation:XValidation:rule="self.workload.name != 'Observe' || (has(self.workload.windowSeconds) ? self.workload.windowSeconds : 60) + 60 <= (has(self.timeoutSeconds) ? self.timeoutSeconds : 3600)",fieldPath=".workload.windowSeconds",messageExpression="'windowSeconds %d plus 60 s to query the nodes exceeds timeoutSeconds %d: choose a shorter window or a longer timeout'.format([(has(self.workload.windowSeconds) ? self.workload.windowSeconds : 60), (has(self.timeoutSeconds) ? self.timeoutSeconds : 3600)])"
type StorageClientTrialSpec struct {
	// claimName is the name of a bound PersistentVolumeClaim in the trial's namespace. Its volume must be NFS or SMB; Observe also
	// supports XFS.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	ClaimName string `json:"claimName,omitempty"`

	// profile is the name of the StorageClientProfile whose rules produce the candidate from the volume's mount options. It may be in
	// mode Plan. Set either profile, or any of mountOptions, readAheadKiB and sysctls. Observe has no candidate.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$`
	Profile string `json:"profile,omitempty"`

	// mountOptions are the candidate, instead of a profile. They are merged with the volume's mount options in the same way as a rule
	// with onConflict UseProfile. Users who set them need the verb "try" on storageclientprofiles. At most 32 options.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions,omitempty"`

	// readAheadKiB is the read-ahead window of the candidate's mounts in KiB, alone or with mountOptions: 4 to 1048576. The other passes
	// have the window of the volume's mounts on the nodes; if there are none, the kernel's default. Users who set it need the verb "try"
	// on storageclientprofiles. It requires a volume that the trial runner can mount itself. If unset, all passes have the default.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=1048576
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// sysctls maps kernel parameters of a network namespace to the values of the candidate, alone or with mountOptions and readAheadKiB:
	// net.ipv4.tcp_rmem and the other keys that docs/trials.md lists. The trial sets them only in the network namespace of the trial
	// runner, with the limits of spec.node.sysctls in a profile. The other passes have the node's values. Users who set them need the
	// verb "try" on storageclientprofiles. They require a volume that the trial runner can mount itself. At most 16 entries.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-z][a-z0-9_-]*([.][A-Za-z0-9_-]+)+$'))",message="a sysctl key must be a dotted name of at most 128 characters, e.g. net.ipv4.tcp_rmem"
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`

	// workload is the work of the trial on each mount.
	// +required
	Workload TrialWorkload `json:"workload,omitzero"`

	// goal is the improvement that the candidate must reach.
	// +optional
	Goal TrialGoal `json:"goal,omitzero"`

	// rounds is the number of rounds: 1 to 40. Each round has three passes: two passes with the volume's mount options and one pass
	// for the candidate. With 0, the first rounds determine the number that a decision needs, at most 40. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=40
	Rounds int32 `json:"rounds,omitempty"`

	// nodeSelector selects the nodes for the trial by labels, among the nodes with an agent. For Observe, it selects the nodes that
	// count. If empty, it selects all of them.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelText `json:"nodeSelector,omitempty"`

	// timeoutSeconds is the maximum duration of the trial in seconds: 60 to 86400. Waits for other trials do not count. After that,
	// the trial evaluates the measurements that exist. Default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// LabelText is the value of a label.
// +kubebuilder:validation:MaxLength=63
type LabelText string

// Defaults of a trial.
const (
	// DefaultTrialUser is the user ID of a trial's work. It has no special rights on any server.
	DefaultTrialUser = 65534
	// DefaultTrialTimeoutSeconds is the maximum duration of a trial.
	DefaultTrialTimeoutSeconds = 3600
	// MaxTrialRounds is the maximum number of rounds of a trial.
	MaxTrialRounds = 40
	// MaxOrderPasses is the maximum number of passes of one order. It keeps status.trial of a StorageClientNode below 16 KiB.
	MaxOrderPasses = 6
	// MinWindowSeconds, MaxWindowSeconds and DefaultWindowSeconds are the limits and the default of the time that nodes count for
	// Observe.
	MinWindowSeconds     = 10
	MaxWindowSeconds     = 3600
	DefaultWindowSeconds = 60
	// MaxTrialSamples is the maximum number of nodes that count for Observe.
	MaxTrialSamples = 16
	// MaxTrialOperations is the maximum number of operations that are reported for one phase.
	MaxTrialOperations = 16
)

// User returns the user ID of the work.
func (s *StorageClientTrialSpec) User() int64 {
	return ptr.Deref(s.Workload.RunAsUser, DefaultTrialUser)
}

// Timeout returns the maximum duration of the trial in seconds.
func (s *StorageClientTrialSpec) Timeout() int32 {
	return ptr.Deref(s.TimeoutSeconds, DefaultTrialTimeoutSeconds)
}

// Window returns the time that nodes count for Observe, in seconds.
func (s *StorageClientTrialSpec) Window() int32 {
	return ptr.Deref(s.Workload.WindowSeconds, DefaultWindowSeconds)
}

// TrialOperation is the count of one kind of request.
type TrialOperation struct {
	// name is the protocol's name of the operation, e.g. GETATTR.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=24
	Name string `json:"name,omitempty"`

	// count is the number of completed requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`
}

// Names of a pass's phases, in their order.
const (
	PhaseFirst    = "First"
	PhaseRepeated = "Repeated"
)

// PassPhases are both phases of a pass, in order.
var PassPhases = []string{PhaseFirst, PhaseRepeated}

// TrialPassPhase is a part of a pass: the first execution of the work on a fresh mount, or its repetition after a pause.
type TrialPassPhase struct {
	// name is the name of the phase: First or Repeated.
	// +required
	// +kubebuilder:validation:Enum=First;Repeated
	Name string `json:"name,omitempty"`

	// microseconds is the duration of the phase in microseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Microseconds int64 `json:"microseconds,omitempty"`

	// units is the amount of completed work: the number of entries, files or blocks.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Units int64 `json:"units,omitempty"`

	// bytesSent is the number of bytes sent to the server, including headers. For SMB, it is the number of bytes written to files.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesSent int64 `json:"bytesSent,omitempty"`

	// bytesReceived is the number of bytes received from the server, including headers. For SMB, it is the number of bytes read from
	// files.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesReceived int64 `json:"bytesReceived,omitempty"`

	// operations are the requests of the phase by kind. At most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Operations []TrialOperation `json:"operations,omitempty"`
}

// TrialPass is the work on a separate mount, from mounting to unmounting.
type TrialPass struct {
	// round is the number of the round. The three passes of a round are compared with each other.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=40
	Round int32 `json:"round,omitempty"`

	// arm selects the mount options of the pass: Before and Again (the volume's options) or After (the candidate).
	// +required
	Arm TrialArm `json:"arm,omitempty"`

	// node is the name of the node that ran the pass. Empty in status.trial of that node's StorageClientNode.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// readAheadKiB is the read-ahead window of the mount during the pass in KiB, as read back. Absent if the order has none for the pass.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// phases contains the measurements of the pass.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2
	Phases []TrialPassPhase `json:"phases,omitempty"`
}

// TrialResult is the comparison of one metric in one phase.
type TrialResult struct {
	// phase is the phase of the compared measurements: First or Repeated.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`

	// metric is the compared metric: Operations, Bytes, Seconds or the name of an operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Metric string `json:"metric,omitempty"`

	// unit is the unit of before and after.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Unit string `json:"unit,omitempty"`

	// before is the median with the volume's mount options, as a decimal number.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Before string `json:"before,omitempty"`

	// after is the median with the candidate, as a decimal number.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	After string `json:"after,omitempty"`

	// ratio is after divided by before, as a decimal number. Empty if there are too few rounds.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Ratio string `json:"ratio,omitempty"`

	// low is the lower end of the ratio's confidence interval, of at least 95 % for all results together.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Low string `json:"low,omitempty"`

	// high is the upper end of the ratio's confidence interval.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	High string `json:"high,omitempty"`

	// verdict is the verdict for this metric and phase alone: Better, Worse, NoDifference or Undecided.
	// +required
	Verdict TrialVerdict `json:"verdict,omitempty"`

	// decides is true if the trial's verdict depends on this result.
	// +optional
	Decides bool `json:"decides,omitempty"`

	// note explains why there is no verdict, or a limitation of the numbers.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Note string `json:"note,omitempty"`
}

// TrialSample is the activity of the volume's mounts on one node, as counted by its agent. The size of all samples of a trial
// together is at most 256 KiB.
type TrialSample struct {
	// node is the name of the node that counted.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// phase is Finished if the sample exists, and Failed if it never will. Absent while the sample may still arrive, and if
	// the trial finished before it.
	// +optional
	Phase SamplePhase `json:"phase,omitempty"`

	// message explains why the sample is missing. Empty if the sample exists or may still arrive.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// milliseconds is the actual length of the window in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Milliseconds int64 `json:"milliseconds,omitempty"`

	// mounts contains the counts of one mount of each file system. Numbers are the differences between the end and the start of the
	// window, unless their description states otherwise. At most 32.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Mounts []MountSample `json:"mounts,omitempty"`

	// mountsOmitted is the number of mounts that exceed the size limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`
}

// TrialCause is the location of a bottleneck.
// +kubebuilder:validation:Enum=Client;Server;Network;Application
type TrialCause string

// TrialRecommendation is the finding of one rule and a change that helps; or, without a rule, the reason for no recommendation.
type TrialRecommendation struct {
	// rule is the name of the rule, as in docs/knowledge.md. Empty if no rule found a bottleneck.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rule string `json:"rule,omitempty"`

	// cause is the location of the bottleneck: Client if a setting of the client helps; Server, Network or Application if none does.
	// +optional
	Cause TrialCause `json:"cause,omitempty"`

	// text describes the observation with its numbers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Text string `json:"text,omitempty"`

	// options are the declarations for a profile: mount options in their original form, e.g. actimeo=30, and other fields by their
	// names, e.g. readAheadKiB=1024 or node.nfs4UniqueID=FromNode. At most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Options []string `json:"options,omitempty"`

	// byHand is true if only a person who knows the programs can decide whether the options are safe. Default false.
	// +optional
	ByHand bool `json:"byHand,omitempty"`

	// effect is the expected effect of the options, or an alternative that helps.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Effect string `json:"effect,omitempty"`

	// against is the disadvantage of the options.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Against string `json:"against,omitempty"`

	// source is the reference for the rule.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Source string `json:"source,omitempty"`

	// nodes is the number of nodes with this observation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes,omitempty"`
}

// StorageClientTrialStatus reports the progress and the results of a trial.
type StorageClientTrialStatus struct {
	// observedGeneration is the generation of the trial that this status describes; -1 until the manager has seen the trial.
	// +optional
	// +kubebuilder:default=-1
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration"`

	// conditions are Complete, Failed, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// verdict is Better, Worse, NoDifference, FewerRequests or Undecided, once the trial is Complete. Better means that the goal is
	// reached and the time is not longer. FewerRequests means that the counts reach it, and that the time does not or is unknown.
	// Observe has no verdict.
	// +optional
	Verdict TrialVerdict `json:"verdict,omitempty"`

	// startTime is the time when the manager first saw the trial.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// waitingSince is the time since which the trial waits for other trials or probes. It is empty while the trial does not wait for
	// them. The wait does not count for timeoutSeconds.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`

	// waitedSeconds is the duration of earlier waits for other trials and probes, in seconds. It extends timeoutSeconds. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WaitedSeconds int64 `json:"waitedSeconds,omitempty"`

	// completionTime is the time when the trial finished.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// volume is the name of the PersistentVolume of the claim.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`

	// node is the name of the node that runs the trial, or ran it last.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// before are the volume's mount options at the start of the trial, in the form that mount gets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	Before []string `json:"before,omitempty"`

	// after are the mount options of the candidate, in the same form as before.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	After []string `json:"after,omitempty"`

	// sysctls are the node's values of the sysctls of a network namespace, without empty ones, as read back in the passes Before and
	// Again. The passes of the candidate have spec.sysctls instead, and these otherwise. Absent without spec.sysctls.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Sysctls map[string]SettingText `json:"sysctls,omitempty"`

	// load is the load of the workload in the complete rounds. Absent before the first round.
	// +optional
	Load *TrialLoad `json:"load,omitempty"`

	// rounds is the number of complete rounds.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Rounds int32 `json:"rounds"`

	// roundsWanted is the planned number of rounds. Zero if unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RoundsWanted int32 `json:"roundsWanted,omitempty"`

	// roundsReason explains the planned number of rounds.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	RoundsReason string `json:"roundsReason,omitempty"`

	// results are the comparisons by metric and phase, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Results []TrialResult `json:"results,omitempty"`

	// passes are the measurements of all passes. Each pass starts on a fresh mount: the client has no cached attributes, names or
	// data. The state of the server's caches is unknown.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=120
	Passes []TrialPass `json:"passes,omitempty"`

	// samples are the counts of nodes for Observe. At most 16 nodes count, among the nodes that have the volume mounted.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=16
	Samples []TrialSample `json:"samples,omitempty"`

	// nodesOmitted is the number of nodes that have the volume mounted but do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodesOmitted int32 `json:"nodesOmitted,omitempty"`

	// recommendations are changes that the samples suggest, at most 32; or a single entry that explains why there is no
	// recommendation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Recommendations []TrialRecommendation `json:"recommendations,omitempty"`
}

// StorageClientTrial compares a set of mount options with the current options of a volume, on isolated test mounts. With the
// workload Observe, it recommends changes for the work on the volume's real mounts.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=sct,categories=storageclient
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.claimName`
// +kubebuilder:printcolumn:name="Workload",type=string,JSONPath=`.spec.workload.name`
// +kubebuilder:printcolumn:name="Rounds",type=integer,JSONPath=`.status.rounds`
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
type StorageClientTrial struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the comparison. It is immutable: create another trial for another comparison.
	// +required
	Spec StorageClientTrialSpec `json:"spec,omitzero"`

	// status reports the progress and the results of the trial.
	// +optional
	// +kubebuilder:default={}
	Status StorageClientTrialStatus `json:"status,omitzero"`
}

// StorageClientTrialList is a list of StorageClientTrials.
//
// +kubebuilder:object:root=true
type StorageClientTrialList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageClientTrial `json:"items"`
}
