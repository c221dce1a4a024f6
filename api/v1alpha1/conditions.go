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
	ReasonPending = "Pending"
	// ReasonUpToDate surfaces on Ready when every node and volume carries what was declared.
	ReasonUpToDate = "UpToDate"
	// ReasonReadyWithExceptions surfaces on Ready=True when some settings are Clamped or Unsupported and onUnsupported is Report.
	ReasonReadyWithExceptions = "ReadyWithExceptions"
	// ReasonExceptions surfaces on Ready=False when some settings are Clamped or Unsupported and onUnsupported is Fail.
	ReasonExceptions = "Exceptions"
	// ReasonNothingMatched surfaces on Ready=True when no node and no volume matches.
	ReasonNothingMatched = "NothingMatched"
	// ReasonPlanMode surfaces on Ready=False and Paused=True while mode is Plan.
	ReasonPlanMode = "PlanMode"
	// ReasonRebootPending surfaces on Ready=False when a reboot is due that the policy Never or a missing approval holds back.
	ReasonRebootPending = "RebootPending"
	// ReasonRollingOut surfaces while nodes or volumes are still on their way.
	ReasonRollingOut = "RollingOut"
	// ReasonWaitingForWindow surfaces on Reconciling while every remaining step waits for a maintenance window.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonWaitingForApproval surfaces on Reconciling while every remaining step waits for the approval of the plan.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonWaitingForBudget surfaces on Reconciling while nodes wait for others that hold the budget.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonRestoring surfaces while a profile that is being deleted puts nodes and volumes back.
	ReasonRestoring = "Restoring"
	// ReasonUnsupportedField surfaces on Stalled when the profile uses a field that this build does not honour.
	ReasonUnsupportedField = "UnsupportedField"
	// ReasonInvalid surfaces on Stalled when the profile fails the validation against the catalogue; nothing of it is applied.
	ReasonInvalid = "Invalid"
	// ReasonFailureThreshold surfaces on Stalled when as many nodes have failed as rollout.failureThreshold allows.
	ReasonFailureThreshold = "FailureThresholdReached"
	// ReasonNodesFailed surfaces on Ready=False when at least one node has failed and the threshold is not reached.
	ReasonNodesFailed = "NodesFailed"
	// ReasonFenceMissing surfaces on Stalled when the cluster lacks the admission policy that fences the agent; the agent is not rolled out.
	ReasonFenceMissing = "FenceMissing"
	// ReasonPausedByField surfaces on Paused when spec.paused is set.
	ReasonPausedByField = "PausedByField"
	// ReasonPausedByAnnotation surfaces on Paused when the profile or the manager's namespace carries the annotation.
	ReasonPausedByAnnotation = "PausedByAnnotation"
	// ReasonNotPaused surfaces on Paused=False.
	ReasonNotPaused = "NotPaused"
	// ReasonIdle surfaces on Reconciling=False when there is nothing left to do.
	ReasonIdle = "Idle"
	// ReasonProgressing surfaces on Stalled=False.
	ReasonProgressing = "Progressing"
	// ReasonSettingConflict surfaces on Conflict when profiles of equal priority want different values for one key of a node.
	ReasonSettingConflict = "SettingConflict"
	// ReasonVolumeConflict surfaces on Conflict when a volume's options were changed by somebody else, or are declared elsewhere.
	ReasonVolumeConflict = "VolumeConflict"
	// ReasonNoConflict surfaces on Conflict=False.
	ReasonNoConflict = "NoConflict"
	// ReasonStaleMounts surfaces on MountsEffective=False when running pods use mounts with old options.
	ReasonStaleMounts = "StaleMounts"
	// ReasonAllEffective surfaces on MountsEffective=True.
	ReasonAllEffective = "AllEffective"
)

// Reasons of the Node condition tuning.storageclient.dev/Tuned.
const (
	// NodeReasonTuned surfaces on Tuned=True: every setting was read back with the declared value.
	NodeReasonTuned = "Tuned"
	// NodeReasonTunedWithExceptions surfaces on Tuned=True: some settings are Clamped or Unsupported, all others were read back.
	NodeReasonTunedWithExceptions = "TunedWithExceptions"
	// NodeReasonAgentSilent surfaces on Tuned=Unknown: the agent's pod is not Ready, or it has not reported since the node's last boot.
	NodeReasonAgentSilent = "AgentSilent"
	// NodeReasonApplying surfaces on Tuned=False: the agent has not reported the declared settings yet.
	NodeReasonApplying = "Applying"
	// NodeReasonRebootPending surfaces on Tuned=False: some settings take effect at the next boot.
	NodeReasonRebootPending = "RebootPending"
	// NodeReasonSettingsFailed surfaces on Tuned=False: some settings could not be applied.
	NodeReasonSettingsFailed = "SettingsFailed"
	// NodeReasonDrifted surfaces on Tuned=False: some settings no longer have the declared value.
	NodeReasonDrifted = "Drifted"
	// NodeReasonRestoring surfaces on Tuned=False: the node is being put back.
	NodeReasonRestoring = "Restoring"
)
