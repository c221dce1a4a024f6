package v1alpha1

// Condition types of a StorageClientProfile.
const (
	// ConditionReady is True when every matched node and volume has what the profile declares, exceptions aside: reason ReadyWithExceptions names those.
	ConditionReady = "Ready"
	// ConditionMountsEffective is True when no running pod uses a stale mount, one with options from before a change. Ready does not depend on it.
	ConditionMountsEffective = "MountsEffective"
	// ConditionReconciling is True while nodes or volumes are still being brought to what the profile declares.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when nothing more happens before a person has seen to what the message says. True means a problem. Never True together with Reconciling.
	ConditionStalled = "Stalled"
	// ConditionPaused is True when a field, an annotation or mode Plan keeps the profile from starting anything new.
	ConditionPaused = "Paused"
	// ConditionConflict is True when another profile, or somebody else who sets a volume's options, wants a different value. True means a problem.
	ConditionConflict = "Conflict"
)

// Reasons of profile conditions.
const (
	// ReasonPending is set while the manager has not evaluated the profile yet; the condition is Unknown.
	// Nothing to do: it takes seconds.
	ReasonPending = "Pending"
	// ReasonUpToDate is set on Ready=True when every node and volume has what the profile declares.
	// Nothing to do.
	ReasonUpToDate = "UpToDate"
	// ReasonReadyWithExceptions is set on Ready=True when nothing more happens, some things are not as declared, and onUnsupported is Report:
	// settings that are Clamped, Unsupported or Shadowed, nodes that nobody reboots as things stand, and volumes that keep a value of
	// their own or are managed elsewhere. The message names them. Check status.settings of these nodes; remove the setting for them, or
	// the line in the file; reboot the nodes by hand; set onConflict or gitOpsOwned of the rule; or accept the exception.
	ReasonReadyWithExceptions = "ReadyWithExceptions"
	// ReasonExceptions is set on Ready=False and Stalled=True where Ready would be True with reason ReadyWithExceptions, and onUnsupported is Fail.
	// Do what that reason says, or set onUnsupported: Report.
	ReasonExceptions = "Exceptions"
	// ReasonNothingMatched is set on Ready=True when no node and no volume matches.
	// If you expected some, check nodeSelector, includeControlPlane and the selectors of the volume rules.
	ReasonNothingMatched = "NothingMatched"
	// ReasonPlanMode is set on Ready=False and Paused=True while mode is Plan.
	// Review the plan, then set mode: Enforce.
	ReasonPlanMode = "PlanMode"
	// ReasonRebootPending is set on Ready=False when reboots are due and the plan needs approval, and also on Stalled=True when none of them
	// begins before somebody has seen to what the message says, such as windows that are never open together.
	// Approve the plan (kubectl storageclient approve NAME), or do what the message says.
	ReasonRebootPending = "RebootPending"
	// ReasonRollingOut is set while nodes or volumes are still being changed.
	// Nothing to do: status.rollout of each StorageClientNode says what the node is waiting for.
	ReasonRollingOut = "RollingOut"
	// ReasonWaitingForWindow is set on Reconciling while every remaining step is waiting for a window.
	// Wait for the window, or widen rollout.windows.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonWaitingForApproval is set on Reconciling while every remaining step is waiting for the plan to be approved.
	// Review the plan (kubectl storageclient plan NAME), then approve it (kubectl storageclient approve NAME).
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonWaitingForBudget is set on Reconciling while nodes are waiting because other nodes use up the budget.
	// Wait, or return the nodes in the message to service. If more nodes may be out of service at a time, raise maxUnavailable.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonWaitingForEvidence is set on Reconciling while every remaining step is waiting for a pod to mount a volume with the options
	// that were written to it: no other volume gets them before.
	// Restart one of the pods in the message. To go on without a mount, set rollout.volumes.onNoEvidence: Proceed.
	ReasonWaitingForEvidence = "WaitingForEvidence"
	// ReasonRestoring is set while a deleted profile's nodes and volumes get their original values back.
	// Wait: the message names what is left. To leave the values in place instead, set deletionPolicy: Retain.
	ReasonRestoring = "Restoring"
	// ReasonInvalid is set on Stalled when the profile is invalid; nothing is applied.
	// Correct the field that the message names.
	ReasonInvalid = "Invalid"
	// ReasonFailureThreshold is set on Stalled when as many nodes have failed as rollout.failureThreshold allows, or a pod could
	// not mount a changed volume.
	// Check the failed nodes, then correct the boot settings or raise failureThreshold. After a failed mount, correct the volume rules.
	ReasonFailureThreshold = "FailureThresholdReached"
	// ReasonNodesFailed is set on Ready=False when at least one node has failed and failureThreshold is not reached, and on Stalled=True
	// once nothing else is on its way.
	// Check status.rollout and status.settings of the nodes in the message.
	ReasonNodesFailed = "NodesFailed"
	// ReasonFenceMissing is set on Stalled when the cluster lacks the admission policy that fences the agent, or the policy does not
	// hold when it is tried. No node gets an agent; the agents that are there stay.
	// Apply the operator's manifest again: config/agent has the policy, config/rbac the right to try it. It needs Kubernetes 1.30 or newer.
	ReasonFenceMissing = "FenceMissing"
	// ReasonConfigMapImmutable is set on Stalled when somebody has made the ConfigMap with the rollout's claims or failures immutable, and
	// nodes wait for a reboot or to return to service. Nothing can be claimed, released or remembered.
	// Type what the message says: it saves the ConfigMap, and creates it anew without immutable.
	ReasonConfigMapImmutable = "ConfigMapImmutable"
	// ReasonPausedByField is set on Paused when spec.paused is true.
	// To resume, unset spec.paused.
	ReasonPausedByField = "PausedByField"
	// ReasonPausedByAnnotation is set on Paused when the profile or the manager's namespace has the annotation.
	// To resume, remove the annotation tuning.storageclient.dev/paused from the object in the message.
	ReasonPausedByAnnotation = "PausedByAnnotation"
	// ReasonNotPaused is set on Paused=False: nothing pauses the profile.
	// Nothing to do.
	ReasonNotPaused = "NotPaused"
	// ReasonIdle is set on Reconciling=False when no work is left.
	// Nothing to do.
	ReasonIdle = "Idle"
	// ReasonProgressing is set on Stalled=False: the rollout needs nobody.
	// Nothing to do.
	ReasonProgressing = "Progressing"
	// ReasonSettingConflict is set on Conflict, and on Stalled=True once nothing else is on its way, when profiles of equal priority want different values for the same setting of a node.
	// Give one of the profiles in the message a higher priority, or remove the setting from the other. Until then the value in force stays.
	ReasonSettingConflict = "SettingConflict"
	// ReasonVolumeConflict is set on Conflict, and on Stalled=True once nothing else is on its way, when volumes are blocked: somebody else
	// changed their options, profiles disagree, or they cannot take them.
	// Do what the message says of each volume.
	ReasonVolumeConflict = "VolumeConflict"
	// ReasonNoConflict is set on Conflict=False: nobody wants a different value.
	// Nothing to do.
	ReasonNoConflict = "NoConflict"
	// ReasonStaleMounts is set on MountsEffective=False when running pods use stale mounts.
	// Restart the pods on the nodes in the message. Connection options change once no mount of the server is left on the node.
	ReasonStaleMounts = "StaleMounts"
	// ReasonAllEffective is set on MountsEffective=True: every mount has the current options.
	// Nothing to do.
	ReasonAllEffective = "AllEffective"
)

// Condition types of a StorageClientNode, written by its agent. Their reasons are those of the Node condition tuning.storageclient.dev/Tuned.
const (
	// ClientNodeConditionReady is True when every setting was read back with the value wanted, exceptions aside, or restored as asked.
	ClientNodeConditionReady = "Ready"
	// ClientNodeConditionStalled is True when a setting could not be applied or restored. True means a problem. Never True together with Ready.
	ClientNodeConditionStalled = "Stalled"
)

// Reasons of the Node condition tuning.storageclient.dev/Tuned.
const (
	// NodeReasonTuned is set on Tuned=True when every setting was read back with the value wanted.
	// Nothing to do.
	NodeReasonTuned = "Tuned"
	// NodeReasonTunedWithExceptions is set on Tuned=True when some settings are Clamped, Unsupported or Shadowed and all others were read back.
	// Check status.settings of the StorageClientNode. Remove the setting for this node, or the file's line that wins over ours, or
	// accept the exception.
	NodeReasonTunedWithExceptions = "TunedWithExceptions"
	// NodeReasonAgentSilent is set on Tuned=Unknown when for half a minute the agent's pod has not been Ready, or has not reported since the
	// node's last boot.
	// Check the node's agent pod in the namespace storage-client-agent.
	NodeReasonAgentSilent = "AgentSilent"
	// NodeReasonFenceMissing is set on Tuned=Unknown when the node gets no agent because the fence around agents does not hold.
	// Do what the message says: mostly, apply the operator's manifest again.
	NodeReasonFenceMissing = "FenceMissing"
	// NodeReasonApplying is set on Tuned=False when for half a minute the agent has not reported the current settings, or confirmed them all
	// over new connections. Until then the condition speaks of the settings before, which its message names.
	// Nothing to do: the agent applies a change within seconds, or the message says what does not answer.
	NodeReasonApplying = "Applying"
	// NodeReasonRebootPending is set on Tuned=False when some settings take effect at the next boot.
	// Wait for the rollout: status.rollout of the StorageClientNode says what holds the reboot back.
	NodeReasonRebootPending = "RebootPending"
	// NodeReasonSettingsFailed is set on Tuned=False when some settings could not be applied.
	// Read the message in status.settings of the StorageClientNode, and the agent's log.
	NodeReasonSettingsFailed = "SettingsFailed"
	// NodeReasonDrifted is set on Tuned=False when something else changed some settings.
	// Find out what else writes the value, and let only one of the two set it.
	NodeReasonDrifted = "Drifted"
	// NodeReasonRestoring is set on Tuned=False while the node gets its original values back.
	// Nothing to do.
	NodeReasonRestoring = "Restoring"
	// NodeReasonRestored is set on a StorageClientNode's Ready=True when the node has its original values back.
	// Nothing to do.
	NodeReasonRestored = "Restored"
)

// Reasons of the Node condition tuning.storageclient.dev/StorageReachable.
const (
	// StorageReasonReachable is set on StorageReachable=True when no storage server that the node has mounts of owes it an answer for a
	// minute or longer. A server that is asked nothing counts as well.
	// Nothing to do.
	StorageReasonReachable = "Reachable"
	// StorageReasonServerSilent is set on StorageReachable=False when a storage server has answered the node nothing for a minute or longer.
	// Do what the message says. status.servers of the StorageClientNode has the servers, their volumes and pods.
	StorageReasonServerSilent = "ServerSilent"
	// StorageReasonServerStuck is set on StorageReachable=False when requests of the node have waited for a minute or longer, though their
	// server answers others.
	// Do what the message says. status.servers of the StorageClientNode has the servers, their volumes and pods.
	StorageReasonServerStuck = "ServerStuck"
	// StorageReasonStaleHandles is set on StorageReachable=False when a storage server answers, but every request of a mount for files that
	// it had has ended with an error for a minute or longer.
	// Check the server's export, then restart the pods that status.servers of the StorageClientNode lists.
	StorageReasonStaleHandles = "StaleHandles"
	// StorageReasonAgentSilent is set on StorageReachable=Unknown when for half a minute the agent's pod has not been Ready, or has not
	// reported since the node's last boot.
	// Check the node's agent pod in the namespace storage-client-agent.
	StorageReasonAgentSilent = "AgentSilent"
)

// Reasons of a server in status.servers of a StorageClientNode.
const (
	// ServerReasonAnswering is set on Answering when the server has answered within five minutes.
	// Nothing to do.
	ServerReasonAnswering = "Answering"
	// ServerReasonReconnecting is set on Answering when a server that was Silent answers new connections again, and those of the mounts
	// have yet to notice.
	// Wait: the kernel tries again within three minutes.
	ServerReasonReconnecting = "Reconnecting"
	// ServerReasonNotAsked is set on Idle when nothing is asked of the server.
	// Nothing to do.
	ServerReasonNotAsked = "NotAsked"
	// ServerReasonConnectionRefused is set on Silent when the server's host is up and nothing takes connections there.
	// Check whether the storage service runs on the server.
	ServerReasonConnectionRefused = "ConnectionRefused"
	// ServerReasonUnreachable is set on Silent when no connection to the server can be made.
	// Check the server, the network and firewalls.
	ServerReasonUnreachable = "Unreachable"
	// ServerReasonNoAnswer is set on Silent when the server takes connections and answers nothing, or has not been asked over a new one yet.
	// Check the server's threads, file systems and disks.
	ServerReasonNoAnswer = "NoAnswer"
	// ServerReasonTunnelGone is set on Silent when mounts go through a process of the node, as with EFS and Azure Files over TLS, and
	// nothing listens there.
	// Restart the driver's pod on the node.
	ServerReasonTunnelGone = "TunnelGone"
	// ServerReasonSessionDown is set on Silent when SMB has no session with the server.
	// Check the server and the network, and whether the credentials still hold.
	ServerReasonSessionDown = "SessionDown"
	// ServerReasonTransportStuck is set on Stuck when some connections of the mounts get no answer, and others do.
	// Check firewalls and load balancers between node and server: one may have forgotten a connection.
	ServerReasonTransportStuck = "TransportStuck"
	// ServerReasonStaleHandles is set on Answering when every request of a mount for files that it had ends with an error: stale handles,
	// most often after an export was made anew, moved or taken away.
	// Check the server's export, then restart the pods that use it.
	ServerReasonStaleHandles = "StaleHandles"
	// ServerReasonRequestsStuck is set on Stuck when some requests get no answer, and others over the same connections do.
	// Check the server's file systems and disks.
	ServerReasonRequestsStuck = "RequestsStuck"
)
