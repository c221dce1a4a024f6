package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a StorageClientTrial.
const (
	// TrialConditionComplete is True once the trial has a verdict, or recommendations. Nothing more happens then.
	TrialConditionComplete = "Complete"
	// TrialConditionFailed is True once the trial has ended without either; the message says why, in the words of the kernel or the
	// server where a list could not be mounted.
	TrialConditionFailed = "Failed"
	// TrialConditionReconciling is True while the trial waits or runs.
	TrialConditionReconciling = "Reconciling"
	// TrialConditionStalled is True where Failed is: kstatus knows this one.
	TrialConditionStalled = "Stalled"
)

// Reasons of a StorageClientTrial's conditions.
const (
	// TrialReasonWaiting is set while the trial has not begun, or waits for a node; the message says what for.
	// Nothing to do, unless the message asks for something.
	TrialReasonWaiting = "Waiting"
	// TrialReasonRunning is set while passes are run, or nodes count.
	// Nothing to do.
	TrialReasonRunning = "Running"
	// TrialReasonDecided is set on Complete=True; status.verdict is the verdict, and of Observe status.recommendations are what would help.
	// Nothing to do.
	TrialReasonDecided = "Decided"
	// TrialReasonNotMounted is set on Failed=True when a list could not be mounted, or the workload could not be run on it.
	// Correct the options, path or runAsUser that the message speaks of, and make another trial.
	TrialReasonNotMounted = "NotMounted"
	// TrialReasonNotPossible is set on Failed=True when nothing can be compared: the claim, the profile or the options do not allow it. Of
	// Observe: no node has the volume mounted.
	// Correct what the message names, and make another trial.
	TrialReasonNotPossible = "NotPossible"
	// TrialReasonVoid is set on Failed=True when a proof of validity is missing, so that what was measured says nothing.
	// See to what the message says, and make another trial.
	TrialReasonVoid = "Void"
	// TrialReasonTimedOut is set on Failed=True when timeoutSeconds are over and no round was complete. Of Observe: no node has counted.
	// See what the trial has waited for; choose less work, or a longer time.
	TrialReasonTimedOut = "TimedOut"
)

// TrialWorkloadName names what a trial does on each mount.
// +kubebuilder:validation:Enum=Observe;Mount;ListDirectory;WalkTree;ReadSequential;ReadRandom;CreateUnlink;WriteSequential
type TrialWorkloadName string

const (
	// WorkloadObserve mounts and runs nothing: nodes count what the volume's mounts do, and the trial says what would help.
	WorkloadObserve TrialWorkloadName = "Observe"
	// WorkloadMount mounts, reads the root once and unmounts.
	WorkloadMount TrialWorkloadName = "Mount"
	// WorkloadListDirectory reads the directory and asks for the attributes of each entry, twice with a pause.
	WorkloadListDirectory TrialWorkloadName = "ListDirectory"
	// WorkloadWalkTree does so in all directories below it.
	WorkloadWalkTree TrialWorkloadName = "WalkTree"
	// WorkloadReadSequential reads the directory's files from beginning to end.
	WorkloadReadSequential TrialWorkloadName = "ReadSequential"
	// WorkloadReadRandom reads blocks of them anywhere.
	WorkloadReadRandom TrialWorkloadName = "ReadRandom"
	// WorkloadCreateUnlink creates small files and removes them.
	WorkloadCreateUnlink TrialWorkloadName = "CreateUnlink"
	// WorkloadWriteSequential writes one file from beginning to end, and removes it.
	WorkloadWriteSequential TrialWorkloadName = "WriteSequential"
)

// MountedWorkloads are those that trials do on mounts of their own: all but Observe.
var MountedWorkloads = []TrialWorkloadName{
	WorkloadMount, WorkloadListDirectory, WorkloadWalkTree, WorkloadReadSequential, WorkloadReadRandom, WorkloadCreateUnlink, WorkloadWriteSequential,
}

// Writes says whether the workload writes.
func (n TrialWorkloadName) Writes() bool {
	return n == WorkloadCreateUnlink || n == WorkloadWriteSequential
}

// TrialArm is the list of a pass.
// +kubebuilder:validation:Enum=Before;Again;After
type TrialArm string

const (
	// ArmBefore is the list that the volume has.
	ArmBefore TrialArm = "Before"
	// ArmAgain is the same list once more: what differs between the two is noise.
	ArmAgain TrialArm = "Again"
	// ArmAfter is the candidate.
	ArmAfter TrialArm = "After"
)

// TrialRoute is the way to the mounts of a trial, which are nobody's.
// +kubebuilder:validation:Enum=OwnNetwork;Clone
type TrialRoute string

const (
	// RouteOwnNetwork has the trial runner of a node mount in a network namespace of its own.
	RouteOwnNetwork TrialRoute = "OwnNetwork"
	// RouteClone has the volume's driver mount a clone of it for each pass, on a node without any mount of its server.
	RouteClone TrialRoute = "Clone"
)

// TrialVerdict is how a trial ends.
// +kubebuilder:validation:Enum=Better;Worse;NoDifference;Undecided
type TrialVerdict string

// TrialWorkload is the work that is done on each mount.
// +kubebuilder:validation:XValidation:rule="!(self.name in ['CreateUnlink', 'WriteSequential']) || (has(self.allowWrites) && self.allowWrites)",fieldPath=".allowWrites",message="this workload writes: set allowWrites to true, or choose one that reads"
// +kubebuilder:validation:XValidation:rule="!has(self.windowSeconds) || self.name == 'Observe'",fieldPath=".windowSeconds",message="only Observe has a window: leave it out, or choose Observe"
type TrialWorkload struct {
	// name is Observe, Mount, ListDirectory, WalkTree, ReadSequential, ReadRandom, CreateUnlink or WriteSequential. Observe mounts nothing,
	// takes no candidate, and counts what the volume's own mounts do. The last two write below a directory .storage-client-trial-ID in path, and remove it.
	// +required
	Name TrialWorkloadName `json:"name,omitempty"`

	// path is the directory of the volume that the work is done in, relative to its root, without "..". Default ".", the root.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be relative to the volume's root, and must not hold '..'"
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.,:=/@+-]*$`
	Path string `json:"path,omitempty"`

	// runAsUser is the user ID, with the group of the same number, that does the work: 1 to 2147483647. Never root. Default 65534.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// allowWrites allows CreateUnlink and WriteSequential. Without it, the mount is read-only to the work. Default false.
	// +optional
	AllowWrites bool `json:"allowWrites,omitempty"`

	// windowSeconds is how long Observe has nodes count: 10 to 3600 s, and with 60 s to ask them no more than timeoutSeconds. Default 60.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	WindowSeconds *int32 `json:"windowSeconds,omitempty"`
}

// TrialGoal is what the candidate is to reach.
type TrialGoal struct {
	// metric is Seconds, Operations, Bytes, or the name of an operation of the protocol, e.g. GETATTR. Less is better of each. Default
	// Seconds: counts decide then too.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]*$`
	Metric string `json:"metric,omitempty"`

	// betterByPercent is the smallest difference that matters: 1 to 99. Default 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	BetterByPercent *int32 `json:"betterByPercent,omitempty"`
}

// StorageClientTrialSpec says what is compared. It never changes: another question is another trial.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a trial never changes: delete it and create another one"
// +kubebuilder:validation:XValidation:rule="self.workload.name == 'Observe' ? !(has(self.profile) && size(self.profile) > 0) && !(has(self.mountOptions) && size(self.mountOptions) > 0) : (has(self.profile) && size(self.profile) > 0) != (has(self.mountOptions) && size(self.mountOptions) > 0)",fieldPath=".workload",message="a workload needs a candidate, profile or mountOptions, and not both; Observe takes none"
// +kubebuilder:validation:XValidation:rule="self.workload.name != 'Observe' || (has(self.workload.windowSeconds) ? self.workload.windowSeconds : 60) + 60 <= (has(self.timeoutSeconds) ? self.timeoutSeconds : 3600)",fieldPath=".workload.windowSeconds",messageExpression="'windowSeconds %d, and 60 s to ask the nodes, do not fit into timeoutSeconds %d: choose a shorter window, or a longer timeout'.format([(has(self.workload.windowSeconds) ? self.workload.windowSeconds : 60), (has(self.timeoutSeconds) ? self.timeoutSeconds : 3600)])"
type StorageClientTrialSpec struct {
	// claimName is a bound PersistentVolumeClaim of this namespace, of an NFS or SMB volume; Observe takes XFS as well.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	ClaimName string `json:"claimName,omitempty"`

	// profile is the StorageClientProfile whose rules make the candidate of the volume's list. It may be in mode Plan.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$`
	Profile string `json:"profile,omitempty"`

	// mountOptions are the candidate in place of a profile: they are merged with the volume's list as a rule with onConflict UseProfile
	// would. Who gives them needs the verb "try" on storageclientprofiles.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MountOptions []MountOption `json:"mountOptions,omitempty"`

	// workload is the work that is done on each mount.
	// +required
	Workload TrialWorkload `json:"workload,omitzero"`

	// goal is what the candidate is to reach.
	// +optional
	Goal TrialGoal `json:"goal,omitzero"`

	// rounds is how many rounds are run, of three passes each: the volume's list twice, and the candidate. 1 to 40; 0, the default, is as
	// many as the first ones say a decision needs, at most 40.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=40
	Rounds int32 `json:"rounds,omitempty"`

	// nodeSelector selects the nodes that the trial may run on, or that Observe may ask, of those that have an agent. Empty selects all of them.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]LabelText `json:"nodeSelector,omitempty"`

	// timeoutSeconds is how long the trial may take: 60 to 86400 s. Default 3600. What is measured by then is judged.
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
	// DefaultTrialUser does a trial's work: nobody, who has no rights of its own on any server.
	DefaultTrialUser = 65534
	// DefaultTrialTimeoutSeconds is how long a trial may take.
	DefaultTrialTimeoutSeconds = 3600
	// MaxTrialRounds bounds a trial's rounds.
	MaxTrialRounds = 40
	// MaxOrderPasses bounds the passes of one order: with it, status.trial of a client node stays below 16 KiB.
	MaxOrderPasses = 6
	// MinWindowSeconds, MaxWindowSeconds and DefaultWindowSeconds are for how long Observe has nodes count.
	MinWindowSeconds     = 10
	MaxWindowSeconds     = 3600
	DefaultWindowSeconds = 60
	// MaxTrialSamples is how many nodes Observe asks.
	MaxTrialSamples = 16
	// MaxTrialOperations bounds the operations that are told of one phase.
	MaxTrialOperations = 16
)

// User is who does the work.
func (s *StorageClientTrialSpec) User() int64 {
	if s.Workload.RunAsUser == nil {
		return DefaultTrialUser
	}
	return *s.Workload.RunAsUser
}

// Timeout is how long the trial may take, in seconds.
func (s *StorageClientTrialSpec) Timeout() int32 {
	if s.TimeoutSeconds == nil {
		return DefaultTrialTimeoutSeconds
	}
	return *s.TimeoutSeconds
}

// Window is how long Observe has nodes count, in seconds.
func (s *StorageClientTrialSpec) Window() int32 {
	if s.Workload.WindowSeconds == nil {
		return DefaultWindowSeconds
	}
	return *s.Workload.WindowSeconds
}

// TrialOperation counts one kind of request.
type TrialOperation struct {
	// name is the operation as the protocol calls it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=24
	Name string `json:"name,omitempty"`

	// count is how many were completed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`
}

// Names of a pass's phases, in their order.
const (
	PhaseFirst    = "First"
	PhaseRepeated = "Repeated"
)

// PassPhases are both.
var PassPhases = []string{PhaseFirst, PhaseRepeated}

// TrialPassPhase is a part of a pass: the work for the first time on a fresh mount, or repeated after a pause.
type TrialPassPhase struct {
	// name is First or Repeated.
	// +required
	// +kubebuilder:validation:Enum=First;Repeated
	Name string `json:"name,omitempty"`

	// microseconds is how long it took.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Microseconds int64 `json:"microseconds,omitempty"`

	// units is how much work was done: entries, files or blocks.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Units int64 `json:"units,omitempty"`

	// bytesSent is what went to the server, headers included; of SMB, what was written to files alone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesSent int64 `json:"bytesSent,omitempty"`

	// bytesReceived is what came from it; of SMB, what was read of files alone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesReceived int64 `json:"bytesReceived,omitempty"`

	// operations are the requests that were made.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Operations []TrialOperation `json:"operations,omitempty"`
}

// TrialPass is the work on a mount of its own, from mounting to unmounting.
type TrialPass struct {
	// round is the number of the round; the three passes of a round are compared with each other.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=40
	Round int32 `json:"round,omitempty"`

	// arm is Before, Again or After.
	// +required
	Arm TrialArm `json:"arm,omitempty"`

	// node is where it was run. Left out in status.trial of that node's StorageClientNode.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// phases are what was measured.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2
	Phases []TrialPassPhase `json:"phases,omitempty"`
}

// TrialResult is one metric of one phase, before and after.
type TrialResult struct {
	// phase is First or Repeated.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Phase string `json:"phase,omitempty"`

	// metric is Operations, Bytes, Seconds or the name of an operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Metric string `json:"metric,omitempty"`

	// unit is what before and after are counted in.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Unit string `json:"unit,omitempty"`

	// before is the median with the volume's list, as a decimal number.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Before string `json:"before,omitempty"`

	// after is the median with the candidate, as a decimal number.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	After string `json:"after,omitempty"`

	// ratio is after over before, as a decimal number. Empty where there are too few rounds.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Ratio string `json:"ratio,omitempty"`

	// low is the lower end of the ratio's interval, of at least 95 % for all results together.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Low string `json:"low,omitempty"`

	// high is its upper end.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	High string `json:"high,omitempty"`

	// verdict is this result's own.
	// +required
	Verdict TrialVerdict `json:"verdict,omitempty"`

	// decides is true for those that the trial's verdict rests on.
	// +optional
	Decides bool `json:"decides,omitempty"`

	// note says why nothing can be said, or what to know of the numbers.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Note string `json:"note,omitempty"`
}

// TrialSample is what the volume's mounts on one node did, as its agent has counted. All of a trial's fit into 256 KiB.
type TrialSample struct {
	// node is where it was counted.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// phase is Finished if there is a sample, and Failed if there will be none. Absent while it may still come, if the trial ended before, and in
	// a trial that a manager of a release before this field started.
	// +optional
	Phase SamplePhase `json:"phase,omitempty"`

	// message says why there is no sample; empty where there is one, or may be one yet.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// milliseconds is how long the window was in the end.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Milliseconds int64 `json:"milliseconds,omitempty"`

	// mounts are what was counted, of one mount of each file system.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Mounts []MountSample `json:"mounts,omitempty"`

	// mountsOmitted is how many mounts there was no room to tell of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`
}

// TrialCause is whose a bottleneck is.
// +kubebuilder:validation:Enum=Client;Server;Network;Application
type TrialCause string

// TrialRecommendation is what one rule has found, and what would help; or, without a rule, why nothing is recommended.
type TrialRecommendation struct {
	// rule is the name of the rule, as docs/knowledge.md lists them. Empty where no rule has found anything.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rule string `json:"rule,omitempty"`

	// cause is Client where a setting of the client helps; Server, Network or Application where none does.
	// +optional
	Cause TrialCause `json:"cause,omitempty"`

	// text says what was seen, with its numbers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Text string `json:"text,omitempty"`

	// options are what a profile would declare: mount options as they stand, e.g. actimeo=30, and other fields by their names, e.g.
	// readAheadKiB=1024 or node.sunrpc.tcpMaxSlotTableEntries=128.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Options []string `json:"options,omitempty"`

	// byHand is true where only somebody who knows the programs can tell whether the options are safe.
	// +optional
	ByHand bool `json:"byHand,omitempty"`

	// effect is what is expected of the options, or what would help in their stead.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Effect string `json:"effect,omitempty"`

	// against is what speaks against them.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Against string `json:"against,omitempty"`

	// source is where the rule is known from.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Source string `json:"source,omitempty"`

	// nodes is on how many nodes it was seen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes,omitempty"`
}

// StorageClientTrialStatus says how far a trial is, and what it has shown.
type StorageClientTrialStatus struct {
	// observedGeneration is the generation that this status describes; -1 until the manager has seen the trial.
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

	// verdict is Better, Worse, NoDifference or Undecided, once the trial is Complete. Observe compares nothing, and has none.
	// +optional
	Verdict TrialVerdict `json:"verdict,omitempty"`

	// startTime is when the manager first saw the trial.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when it ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// volume is the PersistentVolume of the claim.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`

	// node is where the trial runs, or ran last.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// route is OwnNetwork where the trial runner mounts, and Clone where the driver mounts a clone of the volume for each pass.
	// +optional
	Route TrialRoute `json:"route,omitempty"`

	// before is the list that the volume had when the trial began, as mount gets it; by clones, as the volume had it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	Before []string `json:"before,omitempty"`

	// after is the candidate's, in the same way.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	After []string `json:"after,omitempty"`

	// rounds is how many rounds are complete.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Rounds int32 `json:"rounds"`

	// roundsWanted is how many are to be run, as far as that is known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RoundsWanted int32 `json:"roundsWanted,omitempty"`

	// roundsReason says why so many.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	RoundsReason string `json:"roundsReason,omitempty"`

	// results are what the rounds have shown, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Results []TrialResult `json:"results,omitempty"`

	// passes are what was measured. Each began on a fresh mount: attributes, names and data were cold on the client. Of the server's
	// caches nothing is known.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=120
	Passes []TrialPass `json:"passes,omitempty"`

	// samples are, for Observe, what the nodes have counted that it asks: at most 16 of those that have the volume mounted.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=16
	Samples []TrialSample `json:"samples,omitempty"`

	// nodesOmitted is how many more nodes have the volume mounted, and are not asked.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodesOmitted int32 `json:"nodesOmitted,omitempty"`

	// recommendations are what would help by those samples, at most 32; or one that says why nothing is recommended.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Recommendations []TrialRecommendation `json:"recommendations,omitempty"`
}

// StorageClientTrial compares a list of mount options with the one that a volume has, on mounts that are nobody's; or, with the workload
// Observe, says what would help the work that the volume's own mounts do.
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
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is compared.
	// +required
	Spec StorageClientTrialSpec `json:"spec,omitzero"`

	// status says how far the trial is, and what it has shown.
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
