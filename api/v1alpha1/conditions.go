package v1alpha1

// Condition types of a StorageClientProfile.
const (
	// ConditionReady is True when every matched node and volume has the declared values. Exceptions do not count: the reason
	// ReadyWithExceptions names them.
	ConditionReady = "Ready"
	// ConditionMountsEffective is True when no running pod uses a stale mount, which still has options from before a change. Ready
	// does not depend on it.
	ConditionMountsEffective = "MountsEffective"
	// ConditionReconciling is True while nodes or volumes are still changing to the declared values.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when the rollout cannot continue until a user resolves the problem in the message. True means a
	// problem. Never True together with Reconciling.
	ConditionStalled = "Stalled"
	// ConditionPaused is True when a field, an annotation or mode Plan prevents new changes by the profile.
	ConditionPaused = "Paused"
	// ConditionConflict is True when another profile, or another controller or user that sets a volume's options, declares a
	// different value. True means a problem.
	ConditionConflict = "Conflict"
)

// Reasons of profile conditions.
const (
	// ReasonPending is set while the manager has not evaluated the profile yet. The condition is Unknown.
	// No action needed: the evaluation takes seconds.
	ReasonPending = "Pending"
	// ReasonUpToDate is set on Ready=True when every node and volume has the declared values.
	// No action needed.
	ReasonUpToDate = "UpToDate"
	// ReasonReadyWithExceptions is set on Ready=True when the rollout is complete with exceptions, and onUnsupported is Report.
	// Exceptions are settings that are Clamped, Unsupported or Shadowed, and nodes that the rollout currently does not reboot. Volumes
	// that keep their original value, or that another tool manages, are also exceptions. The message names them. Check status.settings
	// of these nodes. Remove the setting for them, or the line in the file, or reboot the nodes by hand. For volumes, set onConflict or
	// gitOpsOwned of the rule. You can also accept the exception.
	ReasonReadyWithExceptions = "ReadyWithExceptions"
	// ReasonExceptions is set on Ready=False and Stalled=True when onUnsupported is Fail and Ready would otherwise be True with
	// reason ReadyWithExceptions.
	// Follow the advice for ReadyWithExceptions, or set onUnsupported: Report.
	ReasonExceptions = "Exceptions"
	// ReasonNothingMatched is set on Ready=True when no node and no volume matches.
	// If you expected matches, check nodeSelector, includeControlPlane and the selectors of the volume rules.
	ReasonNothingMatched = "NothingMatched"
	// ReasonPlanMode is set on Ready=False and Paused=True while mode is Plan.
	// Review the plan, then set mode: Enforce.
	ReasonPlanMode = "PlanMode"
	// ReasonRebootPending is set on Ready=False when reboots are due and the plan needs approval. It is also set on Stalled=True when
	// a problem blocks all reboots until a user resolves it, such as windows that are never open together.
	// Approve the plan (kubectl storageclient approve NAME), or resolve the problem in the message.
	ReasonRebootPending = "RebootPending"
	// ReasonRollingOut is set while nodes or volumes are still being changed.
	// No action needed: status.rollout of each StorageClientNode names the event that the node waits for.
	ReasonRollingOut = "RollingOut"
	// ReasonWaitingForWindow is set on Reconciling while every remaining step is waiting for a window.
	// Wait for the window, or widen rollout.windows.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonWaitingForApproval is set on Reconciling while every remaining step is waiting for the plan to be approved.
	// Review the plan (kubectl storageclient plan NAME), then approve it (kubectl storageclient approve NAME).
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonWaitingForBudget is set on Reconciling while nodes are waiting because other nodes use up the budget.
	// Wait, or return the nodes in the message to service. To allow more nodes out of service at the same time, raise maxUnavailable.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonWaitingForEvidence is set on Reconciling while every remaining step is waiting for a pod to mount a volume with its new
	// options. Until then, no other volume gets these options.
	// Restart one of the pods in the message. To continue without a mount, set rollout.volumes.onNoEvidence: Proceed.
	ReasonWaitingForEvidence = "WaitingForEvidence"
	// ReasonRestoring is set while a deleted profile's nodes and volumes are restored to their original values.
	// Wait: the message names the remaining nodes and volumes. To leave the values in place instead, set deletionPolicy: Retain.
	ReasonRestoring = "Restoring"
	// ReasonInvalid is set on Stalled when the profile is invalid. No part of it is applied.
	// Correct the field that the message names.
	ReasonInvalid = "Invalid"
	// ReasonFailureThreshold is set on Stalled when the number of failed nodes reaches rollout.failureThreshold, or a pod could not
	// mount a changed volume. After failed settings, it is set once no reboot continues.
	// Check the failed nodes, then correct the settings or raise failureThreshold. After a failed mount, correct the volume rules.
	ReasonFailureThreshold = "FailureThresholdReached"
	// ReasonNodesFailed is set on Ready=False when at least one node has failed and failureThreshold is not reached, or reboots
	// continue. It is also set on Stalled=True once no other change is in progress.
	// Check status.rollout and status.settings of the nodes in the message.
	ReasonNodesFailed = "NodesFailed"
	// ReasonFenceMissing is set on Stalled when the cluster lacks the admission policy that fences the agent, or the policy fails a
	// test. New nodes get no agent; existing agents stay.
	// Apply the operator's manifest again: config/agent contains the policy, config/rbac the right to test it. The policy needs
	// Kubernetes 1.30 or newer.
	ReasonFenceMissing = "FenceMissing"
	// ReasonConfigMapImmutable is set on Stalled when the ConfigMap with the rollout's claims or failures is immutable. Nodes wait for
	// a reboot or their return to service, because the manager cannot claim or release nodes or record failures.
	// Run the commands in the message: they save the ConfigMap and create it again without immutable.
	ReasonConfigMapImmutable = "ConfigMapImmutable"
	// ReasonPausedByField is set on Paused when spec.paused is true.
	// To resume, unset spec.paused.
	ReasonPausedByField = "PausedByField"
	// ReasonPausedByAnnotation is set on Paused when the profile or the manager's namespace has the annotation.
	// To resume, remove the annotation tuning.storageclient.dev/paused from the object in the message.
	ReasonPausedByAnnotation = "PausedByAnnotation"
	// ReasonNotPaused is set on Paused=False: the profile is not paused.
	// No action needed.
	ReasonNotPaused = "NotPaused"
	// ReasonIdle is set on Reconciling=False when no work is left.
	// No action needed.
	ReasonIdle = "Idle"
	// ReasonProgressing is set on Stalled=False: the rollout does not need a user's action.
	// No action needed.
	ReasonProgressing = "Progressing"
	// ReasonSettingConflict is set on Conflict when profiles of equal priority declare different values for the same setting of a
	// node. It is also set on Stalled=True once no other change is in progress.
	// Give one of the profiles in the message a higher priority, or remove the setting from the other. Until then, the current value
	// stays.
	ReasonSettingConflict = "SettingConflict"
	// ReasonVolumeConflict is set on Conflict when volumes are blocked. Another controller or user changed their options, profiles
	// disagree, or the volumes do not support the options. The reason is also set on Stalled=True once no other change is in
	// progress.
	// Follow the message for each volume.
	ReasonVolumeConflict = "VolumeConflict"
	// ReasonNoConflict is set on Conflict=False: all declarations agree.
	// No action needed.
	ReasonNoConflict = "NoConflict"
	// ReasonStaleMounts is set on MountsEffective=False when running pods use stale mounts.
	// Restart the pods on the nodes in the message. Connection options change once the node has no mount of the server left.
	ReasonStaleMounts = "StaleMounts"
	// ReasonAllEffective is set on MountsEffective=True: every mount has the current options.
	// No action needed.
	ReasonAllEffective = "AllEffective"
)

// Condition types of a StorageClientNode, written by its agent. They use the reasons of the Node condition
// tuning.storageclient.dev/Tuned.
const (
	// ClientNodeConditionReady is True when every setting was read back with its desired value, except for exceptions, or was
	// restored as requested.
	ClientNodeConditionReady = "Ready"
	// ClientNodeConditionStalled is True when a setting could not be applied or restored. True means a problem. Never True together with Ready.
	ClientNodeConditionStalled = "Stalled"
)

// Reasons of the Node condition tuning.storageclient.dev/Tuned.
const (
	// NodeReasonTuned is set on Tuned=True when every setting was read back with its desired value.
	// No action needed.
	NodeReasonTuned = "Tuned"
	// NodeReasonTunedWithExceptions is set on Tuned=True when some settings are Clamped, Unsupported or Shadowed and all others were
	// read back.
	// Check status.settings of the StorageClientNode. Remove the setting for this node, or the line in the other file that overrides
	// the operator's file, or accept the exception.
	NodeReasonTunedWithExceptions = "TunedWithExceptions"
	// NodeReasonAgentSilent is set on Tuned=Unknown after 30 seconds in which the agent's pod was not Ready, or has not reported
	// since the node's last boot.
	// Check the node's agent pod in the namespace storage-client-agent.
	NodeReasonAgentSilent = "AgentSilent"
	// NodeReasonFenceMissing is set on Tuned=Unknown when the node gets no agent because the admission policy that fences agents is
	// not effective.
	// Follow the message: usually, apply the operator's manifest again.
	NodeReasonFenceMissing = "FenceMissing"
	// NodeReasonApplying is set on Tuned=False after 30 seconds in which the agent has not reported the current settings, or not
	// confirmed them over new connections. Until then, the condition refers to the previous settings, which its message names.
	// No action needed: the agent applies a change within seconds, or the message names the server that does not respond.
	NodeReasonApplying = "Applying"
	// NodeReasonRebootPending is set on Tuned=False when some settings take effect at the next boot.
	// Wait for the rollout: status.rollout of the StorageClientNode contains the reason for the wait.
	NodeReasonRebootPending = "RebootPending"
	// NodeReasonSettingsFailed is set on Tuned=False when some settings could not be applied.
	// Read the message in status.settings of the StorageClientNode, and the agent's log.
	NodeReasonSettingsFailed = "SettingsFailed"
	// NodeReasonDrifted is set on Tuned=False when another program or user changed some settings.
	// Find the other writer of the value, and let only one of the two set it.
	NodeReasonDrifted = "Drifted"
	// NodeReasonRestoring is set on Tuned=False while the node is restored to its original values.
	// No action needed.
	NodeReasonRestoring = "Restoring"
	// NodeReasonRestored is set on a StorageClientNode's Ready=True when the node has its original values again.
	// No action needed.
	NodeReasonRestored = "Restored"
)

// Reasons of the Node condition tuning.storageclient.dev/StorageReachable.
const (
	// StorageReasonReachable is set on StorageReachable=True when no storage server that the node has mounts of has had pending
	// requests for a minute or longer. Servers without requests count as reachable.
	// No action needed.
	StorageReasonReachable = "Reachable"
	// StorageReasonServerSilent is set on StorageReachable=False when a storage server has not responded to the node for a minute or
	// longer.
	// Follow the message. status.servers of the StorageClientNode contains the servers, their volumes and pods.
	StorageReasonServerSilent = "ServerSilent"
	// StorageReasonServerStuck is set on StorageReachable=False when requests of the node have been pending for a minute or longer,
	// while their server responds to others.
	// Follow the message. status.servers of the StorageClientNode contains the servers, their volumes and pods.
	StorageReasonServerStuck = "ServerStuck"
	// StorageReasonStaleHandles is set on StorageReachable=False when a storage server responds, but a mount has stale handles. Every
	// request for files that the mount already had has failed for a minute or longer.
	// Check the server's export, then restart the pods that status.servers of the StorageClientNode lists.
	StorageReasonStaleHandles = "StaleHandles"
	// StorageReasonAgentSilent is set on StorageReachable=Unknown after 30 seconds in which the agent's pod was not Ready, or has not
	// reported since the node's last boot.
	// Check the node's agent pod in the namespace storage-client-agent.
	StorageReasonAgentSilent = "AgentSilent"
)

// Reasons of a server in status.servers of a StorageClientNode.
const (
	// ServerReasonAnswering is set on Answering when the server has responded within five minutes.
	// No action needed.
	ServerReasonAnswering = "Answering"
	// ServerReasonReconnecting is set on Answering when a Silent server responds to new connections again, but not yet on the
	// connections of the mounts.
	// Wait: the kernel tries again within three minutes.
	ServerReasonReconnecting = "Reconnecting"
	// ServerReasonNotAsked is set on Idle when the node sends no requests to the server.
	// No action needed.
	ServerReasonNotAsked = "NotAsked"
	// ServerReasonConnectionRefused is set on Silent when the server's host is up but rejects connections.
	// Check whether the storage service runs on the server.
	ServerReasonConnectionRefused = "ConnectionRefused"
	// ServerReasonUnreachable is set on Silent when no connection to the server can be made.
	// Check the server, the network and firewalls.
	ServerReasonUnreachable = "Unreachable"
	// ServerReasonNoAnswer is set on Silent when the server accepts connections but does not respond, or has not been tested over a
	// new connection yet.
	// Check the server's threads, file systems and disks.
	ServerReasonNoAnswer = "NoAnswer"
	// ServerReasonTunnelGone is set on Silent when mounts use a process on the node that no longer listens, as with EFS and Azure
	// Files over TLS.
	// Restart the driver's pod on the node.
	ServerReasonTunnelGone = "TunnelGone"
	// ServerReasonTunnelTaken is set on Silent when only a process of a user other than root listens on the port of a tunnel.
	// Stop that process, then restart the driver's pod on the node.
	ServerReasonTunnelTaken = "TunnelTaken"
	// ServerReasonSessionDown is set on Silent when SMB has no session with the server.
	// Check the server and the network, and whether the credentials are still valid.
	ServerReasonSessionDown = "SessionDown"
	// ServerReasonTransportStuck is set on Stuck when some connections of the mounts get no response while others do.
	// Check firewalls and load balancers between node and server: one of them may have dropped the state of a connection.
	ServerReasonTransportStuck = "TransportStuck"
	// ServerReasonStaleHandles is set on Answering when every request of a mount for files that it already had fails with stale
	// handles. The usual cause is an export that was created again, moved or removed.
	// Check the server's export, then restart the pods that use it.
	ServerReasonStaleHandles = "StaleHandles"
	// ServerReasonRequestsStuck is set on Stuck when some requests get no response while others over the same connections do.
	// Check the server's file systems and disks.
	ServerReasonRequestsStuck = "RequestsStuck"
)
