package v1alpha1

// Condition types of a StorageClientProfile.
const (
	// ConditionReady is True when every matched node and volume carries what the profile declares.
	ConditionReady = "Ready"
	// ConditionMountsEffective is True when no running pod still uses a mount with old options. It never holds Ready back.
	ConditionMountsEffective = "MountsEffective"
	// ConditionReconciling is True while nodes or volumes are on their way to what the profile declares. Abnormal-true.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when nothing more will happen until somebody acts. Abnormal-true, never True together with Reconciling.
	ConditionStalled = "Stalled"
	// ConditionPaused is True when a field, an annotation or mode Plan keeps the profile from beginning anything.
	ConditionPaused = "Paused"
	// ConditionConflict is True when another profile, or another author of a volume's options, wants a different value.
	ConditionConflict = "Conflict"
)

// Reasons of profile conditions.
const (
	// ReasonPending surfaces at the first visit, before anything has been observed; the status is Unknown.
	// Nothing to do: the manager visits it within seconds.
	ReasonPending = "Pending"
	// ReasonUpToDate surfaces on Ready when every node and volume carries what was declared.
	// Nothing to do.
	ReasonUpToDate = "UpToDate"
	// ReasonReadyWithExceptions surfaces on Ready=True when some settings are Clamped or Unsupported and onUnsupported is Report.
	// Look at status.settings of the nodes that the message names, and take the setting out or leave it so.
	ReasonReadyWithExceptions = "ReadyWithExceptions"
	// ReasonExceptions surfaces on Ready=False when some settings are Clamped or Unsupported and onUnsupported is Fail.
	// Take the setting out for these nodes, or set onUnsupported: Report.
	ReasonExceptions = "Exceptions"
	// ReasonNothingMatched surfaces on Ready=True when no node and no volume matches.
	// Check nodeSelector, includeControlPlane and the volumes' selectors where you expected some.
	ReasonNothingMatched = "NothingMatched"
	// ReasonPlanMode surfaces on Ready=False and Paused=True while mode is Plan.
	// Read the plan, then set mode: Enforce.
	ReasonPlanMode = "PlanMode"
	// ReasonRebootPending surfaces on Ready=False when a reboot is due that the policy Never or a missing approval holds back,
	// or settings wait for a boot that no node is rebooted for.
	// Approve the plan (kubectl storageclient approve NAME), or leave it so under Never: the values come with the next boot.
	ReasonRebootPending = "RebootPending"
	// ReasonRollingOut surfaces while nodes or volumes are still on their way.
	// Nothing to do; status.rollout of each StorageClientNode says what it waits for.
	ReasonRollingOut = "RollingOut"
	// ReasonWaitingForWindow surfaces on Reconciling while every remaining step waits for a maintenance window.
	// Wait for the window, or widen rollout.windows.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonWaitingForApproval surfaces on Reconciling while every remaining step waits for the approval of the plan.
	// Look at the plan (kubectl storageclient plan NAME) and approve it.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonWaitingForBudget surfaces on Reconciling while nodes wait for others that hold the budget.
	// Wait, or return the nodes that the message names to service; raise maxUnavailable where more may be out at a time.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonRestoring surfaces while a profile that is being deleted puts nodes and volumes back.
	// Wait; the message names what is left, and deletionPolicy: Retain lets go without restoring.
	ReasonRestoring = "Restoring"
	// ReasonInvalid surfaces on Stalled when the profile fails the validation against the catalogue; nothing of it is applied.
	// Correct the field that the message names, as it says.
	ReasonInvalid = "Invalid"
	// ReasonFailureThreshold surfaces on Stalled when as many nodes have failed as rollout.failureThreshold allows, or a pod
	// could not mount a changed volume.
	// Look at the failed nodes, correct the boot settings, or raise failureThreshold; correct the volume rules.
	ReasonFailureThreshold = "FailureThresholdReached"
	// ReasonNodesFailed surfaces on Ready=False when at least one node has failed and the threshold is not reached.
	// Look at status.rollout and status.settings of the nodes that the message names.
	ReasonNodesFailed = "NodesFailed"
	// ReasonFenceMissing surfaces on Stalled when the cluster lacks the admission policy that fences the agent; the agent is not rolled out.
	// Install the ValidatingAdmissionPolicy and its binding from config/agent; Kubernetes 1.30 or newer is needed.
	ReasonFenceMissing = "FenceMissing"
	// ReasonPausedByField surfaces on Paused when spec.paused is set.
	// Unset spec.paused to go on.
	ReasonPausedByField = "PausedByField"
	// ReasonPausedByAnnotation surfaces on Paused when the profile or the manager's namespace carries the annotation.
	// Remove the annotation tuning.storageclient.dev/paused from where the message says to go on.
	ReasonPausedByAnnotation = "PausedByAnnotation"
	// ReasonNotPaused surfaces on Paused=False.
	// Nothing to do.
	ReasonNotPaused = "NotPaused"
	// ReasonIdle surfaces on Reconciling=False when there is nothing left to do.
	// Nothing to do.
	ReasonIdle = "Idle"
	// ReasonProgressing surfaces on Stalled=False.
	// Nothing to do.
	ReasonProgressing = "Progressing"
	// ReasonSettingConflict surfaces on Conflict when profiles of equal priority want different values for one key of a node.
	// Give one of the named profiles a higher priority, or take the key out of the other; until then what is in force stays.
	ReasonSettingConflict = "SettingConflict"
	// ReasonVolumeConflict surfaces on Conflict when a volume's options were changed by somebody else, or are declared elsewhere.
	// Declare the options where the volume is declared, set gitOpsOwned: Patch, or set the volume's options as last written.
	ReasonVolumeConflict = "VolumeConflict"
	// ReasonNoConflict surfaces on Conflict=False.
	// Nothing to do.
	ReasonNoConflict = "NoConflict"
	// ReasonStaleMounts surfaces on MountsEffective=False when running pods use mounts with old options.
	// Restart the pods on the nodes that the message names; connections change when the last mount of the server has left the node.
	ReasonStaleMounts = "StaleMounts"
	// ReasonAllEffective surfaces on MountsEffective=True.
	// Nothing to do.
	ReasonAllEffective = "AllEffective"
)

// Reasons of the Node condition tuning.storageclient.dev/Tuned.
const (
	// NodeReasonTuned surfaces on Tuned=True: every setting was read back with the declared value.
	// Nothing to do.
	NodeReasonTuned = "Tuned"
	// NodeReasonTunedWithExceptions surfaces on Tuned=True: some settings are Clamped or Unsupported, all others were read back.
	// Look at status.settings of the StorageClientNode, and take the setting out or leave it so.
	NodeReasonTunedWithExceptions = "TunedWithExceptions"
	// NodeReasonAgentSilent surfaces on Tuned=Unknown: the agent's pod is not Ready, or it has not reported since the node's last boot.
	// Look at the agent's pod of this node in the namespace storage-client-agent.
	NodeReasonAgentSilent = "AgentSilent"
	// NodeReasonApplying surfaces on Tuned=False: the agent has not reported the declared settings yet.
	// Nothing to do: the agent applies a change within seconds.
	NodeReasonApplying = "Applying"
	// NodeReasonRebootPending surfaces on Tuned=False: some settings take effect at the next boot.
	// Wait for the rollout; status.rollout of the StorageClientNode says what holds the reboot back.
	NodeReasonRebootPending = "RebootPending"
	// NodeReasonSettingsFailed surfaces on Tuned=False: some settings could not be applied.
	// Look at status.settings of the StorageClientNode for the message, and at the agent's log.
	NodeReasonSettingsFailed = "SettingsFailed"
	// NodeReasonDrifted surfaces on Tuned=False: some settings no longer have the declared value.
	// Find who else writes the value, and let one of the two own it.
	NodeReasonDrifted = "Drifted"
	// NodeReasonRestoring surfaces on Tuned=False: the node is being put back.
	// Nothing to do.
	NodeReasonRestoring = "Restoring"
)
