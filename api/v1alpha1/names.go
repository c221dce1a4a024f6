package v1alpha1

// Names that the manager, the agent, the manifests and the users share.
const (
	// ManagerNamespace holds the manager and the rollout budget. Pod Security "restricted".
	ManagerNamespace = "storage-client-system"
	// AgentNamespace holds the node agent. Pod Security "privileged".
	AgentNamespace = "storage-client-agent"
	// TrialNamespace holds the PersistentVolumeClaims and Pods of clones. Pod Security "restricted".
	TrialNamespace = "storage-client-trial"
	// ClonePrefix begins the names of clones: a PersistentVolume of the same source as another one, with its PersistentVolumeClaim and Pod
	// in the namespace for trials, made for one probe.
	ClonePrefix = "storage-client-trial-"
	// AgentDaemonSet is the name of the one DaemonSet that runs the node agent.
	AgentDaemonSet = "storage-client-node-agent"
	// AgentServiceAccount is the service account that the node agent runs as, in the agent's namespace.
	AgentServiceAccount = "storage-client-node-agent"
	// TrialDaemonSet is the name of the DaemonSet that runs the trial runner, in the agent's namespace.
	TrialDaemonSet = "storage-client-trial-runner"
	// AgentPolicy is the ValidatingAdmissionPolicy, and its binding, that fence an agent to its own StorageClientNode.
	AgentPolicy = "storage-client-node-agent"
	// ApprovalPolicy is the ValidatingAdmissionPolicy, and its binding, that ask for the verb approve.
	ApprovalPolicy = "storage-client-approval"
	// TrialPolicy is the ValidatingAdmissionPolicy, and its binding, that ask for the verb try.
	TrialPolicy = "storage-client-trial-options"
	// ApproverRole is the ClusterRole of those who approve plans and write nothing else.
	ApproverRole = "storage-client-approver"
	// ManagerDeployment is the name of the manager's Deployment and of its service account.
	ManagerDeployment = "storage-client-manager"
	// ManagerLease is the Lease in the manager's namespace that says which of its Pods leads.
	ManagerLease = "storage-client-manager"
	// BudgetConfigMap holds one claim for each node that we disrupt, in the manager's namespace.
	BudgetConfigMap = "storage-client-rollout"
	// FailuresConfigMap holds what is remembered of failed nodes, by profile, in the manager's namespace.
	FailuresConfigMap = "storage-client-failures"
	// VolumesConfigMapPrefix begins the names of the ConfigMaps that hold what is remembered of changed PersistentVolumes, in the
	// manager's namespace. A number follows.
	VolumesConfigMapPrefix = "storage-client-volumes-"

	// ManagedLabel is "true" on every Node that the agent runs on.
	ManagedLabel = "tuning.storageclient.dev/managed"
	// TrialLabel is "true" on a Node for as long as a trial is to run there: the trial runner runs on these alone. On a clone it says
	// what it was made for, and everything else leaves that alone.
	TrialLabel = "tuning.storageclient.dev/trial"
	// PausedAnnotation set to "true" on a profile, a Node or the manager's namespace keeps anything new from starting there.
	PausedAnnotation = "tuning.storageclient.dev/paused"
	// IgnoreAnnotation set to "true" keeps the operator from changing a Node, a PersistentVolume or what a PersistentVolumeClaim is bound to.
	IgnoreAnnotation = "tuning.storageclient.dev/ignore"
	// NeverDisruptAnnotation set to "true" on a Node keeps it from being cordoned, drained or rebooted. Live settings are still applied.
	NeverDisruptAnnotation = "tuning.storageclient.dev/never-disrupt"
	// DisruptionAnnotation marks a cordon as ours. It is written and removed in the same patch as spec.unschedulable.
	DisruptionAnnotation = "tuning.storageclient.dev/disruption"
	// DisruptionGuardsAnnotation on a Node lists the annotations and labels that we set on it for a disruption because they were
	// missing: JSON lists "annotations" and "labels". It is set and removed in the same patch as they are.
	DisruptionGuardsAnnotation = "tuning.storageclient.dev/disruption-guards"
	// ApprovedPlanAnnotation on a profile approves the plan whose hash it holds.
	ApprovedPlanAnnotation = "tuning.storageclient.dev/approved-plan"
	// RetryAnnotation on a profile forgets failures, once for each new value: anything new, such as the time, for all nodes, or
	// the same followed by a slash and the name of one.
	RetryAnnotation = "tuning.storageclient.dev/retry"
	// ServerLimitsAnnotation on a profile gives the limits of one server, e.g. "connections=3000,requests=10000"; advice compares
	// them with the load that the profile's nodes may cause.
	ServerLimitsAnnotation = "tuning.storageclient.dev/server-limits"
	// ServerChunkAnnotation on a profile is the size in KiB of the chunks that its servers read ahead; advice compares it
	// with rsize and read-ahead.
	ServerChunkAnnotation = "tuning.storageclient.dev/server-chunk-kib"
	// UntunedTaint is the default key of the taint that is removed once a Node is tuned.
	UntunedTaint = "tuning.storageclient.dev/untuned"
	// OriginalMountOptionsAnnotation holds a PersistentVolume's own mount options, as a JSON list.
	OriginalMountOptionsAnnotation = "tuning.storageclient.dev/original-mount-options"
	// AppliedMountOptionsAnnotation holds the list that we wrote last, as a JSON list.
	AppliedMountOptionsAnnotation = "tuning.storageclient.dev/applied-mount-options"
	// ProfilesAnnotation names the profiles whose options a PersistentVolume carries, separated by commas.
	ProfilesAnnotation = "tuning.storageclient.dev/profiles"
	// MountOptionsStepAnnotation is the mark of a PersistentVolume that carries a list of ours: JSON with since (when its batch was
	// written), written (when the list was), set (the hash of the set of options: what is declared for it, and who mounts it), rules
	// (those of the set, as profile/rule), unproven (nothing had shown the set to work by then), evidence (what has, since or before),
	// probed (a probe has, which holds for the volume's server alone) and created (the volume was created with the list, and belongs to no batch).
	MountOptionsStepAnnotation = "tuning.storageclient.dev/mount-options-step"
	// FailedMountOptionsAnnotation is set on a PersistentVolume whose options were restored because a pod could not mount it: JSON
	// with set and rules, as in the mark, driver, options and the event's message. The ConfigMaps storage-client-volumes-N keep other
	// volumes from the options of that set. The annotation does so for the release before.
	FailedMountOptionsAnnotation = "tuning.storageclient.dev/failed-mount-options"
	// Finalizer stays on a profile until every reachable node and volume is restored.
	Finalizer = "tuning.storageclient.dev/restore"

	// TunedNodeCondition is the type of the condition that the manager keeps on each managed Node.
	TunedNodeCondition = "tuning.storageclient.dev/Tuned"
	// StorageReachableNodeCondition is the type of the condition that the manager keeps on each managed Node: False while a storage
	// server that the node has mounts of does not answer it.
	StorageReachableNodeCondition = "tuning.storageclient.dev/StorageReachable"

	// ManagerFieldManager owns what the manager writes.
	ManagerFieldManager = "storage-client-manager"
	// AgentFieldManager owns what a node agent writes.
	AgentFieldManager = "storage-client-node-agent"
	// VolumesFieldManager owns the mount options that we write into PersistentVolumes.
	VolumesFieldManager = "storage-client-volumes"
	// PluginFieldManager owns what the kubectl plugin writes, and what people write with the commands that we print. Flux removes what
	// field managers own whose names begin with "kubectl".
	PluginFieldManager = "storageclient-plugin"

	// FromNconnect as tcpMaxSlotTableEntries derives the limit from the node's largest declared nconnect.
	FromNconnect = "FromNconnect"
)

// True is the value of our annotations and labels that are on.
const True = "true"
