package v1alpha1

// Reasons of status.rollout. Where the profile's conditions have a word for it, it is the same word.
const (
	// RolloutReasonNothingToDo surfaces when no setting waits for a boot.
	RolloutReasonNothingToDo = "NothingToDo"
	// RolloutReasonRestoredAtNextBoot surfaces when only removals wait for a boot, and no profile asks for a reboot to be rid of them.
	RolloutReasonRestoredAtNextBoot = "RestoredAtNextBoot"
	// RolloutReasonEffectiveAtNextBoot surfaces when only settings wait for a boot that no plan hash covers, module parameters
	// that cannot be written: no approval speaks of them, so no node is rebooted for them.
	RolloutReasonEffectiveAtNextBoot = "EffectiveAtNextBoot"
	// RolloutReasonApplying surfaces when the agent has not reported the declared settings yet.
	RolloutReasonApplying = "Applying"
	// RolloutReasonAgentSilent surfaces when the agent has not reported since the node's last boot.
	RolloutReasonAgentSilent = "AgentSilent"
	// RolloutReasonSettingsChanging surfaces when the declared boot settings have not reached the StorageClientNode yet.
	RolloutReasonSettingsChanging = "SettingsChanging"
	// RolloutReasonSettingsFailed surfaces when a setting has failed, so that the node would not be accepted after a boot.
	RolloutReasonSettingsFailed = "SettingsFailed"
	// RolloutReasonNodeUnavailable surfaces when the node is not Ready.
	RolloutReasonNodeUnavailable = "NodeUnavailable"
	// RolloutReasonNodeDeleting surfaces when the Node is being deleted.
	RolloutReasonNodeDeleting = "NodeDeleting"
	// RolloutReasonCordonedByOthers surfaces when the node is unschedulable without our annotation.
	RolloutReasonCordonedByOthers = "CordonedByOthers"
	// RolloutReasonCordonLost surfaces when somebody made a node schedulable that we had cordoned.
	RolloutReasonCordonLost = "CordonLost"
	// RolloutReasonNodePaused surfaces when the Node carries the paused annotation.
	RolloutReasonNodePaused = "NodePaused"
	// RolloutReasonNodeIgnored surfaces when the Node carries the ignore annotation.
	RolloutReasonNodeIgnored = "NodeIgnored"
	// RolloutReasonNeverDisrupt surfaces when the Node carries the never-disrupt annotation.
	RolloutReasonNeverDisrupt = "NeverDisrupt"
	// RolloutReasonRebootPolicyNever surfaces when a profile that needs the reboot says Never.
	RolloutReasonRebootPolicyNever = "RebootPolicyNever"
	// RolloutReasonProfileGone surfaces when a setting that needs the reboot comes from a profile that is not there.
	RolloutReasonProfileGone = "ProfileGone"
	// RolloutReasonWaitingForApproval surfaces when a profile's plan waits for its approval.
	RolloutReasonWaitingForApproval = ReasonWaitingForApproval
	// RolloutReasonWaitingForBudget surfaces when others hold the budget.
	RolloutReasonWaitingForBudget = ReasonWaitingForBudget
	// RolloutReasonWaitingForWindow surfaces outside the windows of a profile that needs the reboot.
	RolloutReasonWaitingForWindow = ReasonWaitingForWindow
	// RolloutReasonWindowsDisjoint surfaces when the windows of the profiles that need the reboot are never open together.
	RolloutReasonWindowsDisjoint = "WindowsDisjoint"
	// RolloutReasonWaitingForZone surfaces while nodes of another zone are out of service.
	RolloutReasonWaitingForZone = "WaitingForZone"
	// RolloutReasonWaitingForCanary surfaces when the canary goes first, or soaks.
	RolloutReasonWaitingForCanary = "WaitingForCanary"
	// RolloutReasonFailureThreshold surfaces when as many nodes have failed as the profile allows.
	RolloutReasonFailureThreshold = ReasonFailureThreshold
	// RolloutReasonLastControlPlaneNode surfaces when no other control-plane node is Ready.
	RolloutReasonLastControlPlaneNode = "LastControlPlaneNode"
	// RolloutReasonManagerNodeLast surfaces when the manager's own node waits for the others.
	RolloutReasonManagerNodeLast = "ManagerNodeLast"
	// RolloutReasonClaimed surfaces when the node is about to be cordoned.
	RolloutReasonClaimed = "Claimed"
	// RolloutReasonLeavingLoadBalancers surfaces when external load balancers are given time to let go of the node before its drain.
	RolloutReasonLeavingLoadBalancers = "LeavingLoadBalancers"
	// RolloutReasonDraining surfaces when pods are being evicted, or terminate.
	RolloutReasonDraining = "Draining"
	// RolloutReasonDrainBlocked surfaces when a PodDisruptionBudget or the drain's own rules keep a pod on the node.
	RolloutReasonDrainBlocked = "DrainBlocked"
	// RolloutReasonWaitingForPods surfaces when pods of Jobs, or pods that waitForPodSelector selects, still run.
	RolloutReasonWaitingForPods = "WaitingForPods"
	// RolloutReasonMountsBusy surfaces when the pods are gone and mounts of theirs are not.
	RolloutReasonMountsBusy = "MountsBusy"
	// RolloutReasonDrainTimedOut surfaces when a drain did not end in time.
	RolloutReasonDrainTimedOut = "DrainTimedOut"
	// RolloutReasonPermitGiven surfaces when the agent may reboot the node.
	RolloutReasonPermitGiven = "PermitGiven"
	// RolloutReasonRebootStarted surfaces when the agent has asked its host for the reboot.
	RolloutReasonRebootStarted = "RebootStarted"
	// RolloutReasonPermitRefused surfaces when the agent, or its host, refused the reboot.
	RolloutReasonPermitRefused = "PermitRefused"
	// RolloutReasonWithdrawingPermit surfaces when a permit is to be withdrawn and the agent has not answered yet.
	RolloutReasonWithdrawingPermit = "WithdrawingPermit"
	// RolloutReasonWaitingForNode surfaces when the node has a new boot ID and does not look well yet.
	RolloutReasonWaitingForNode = "WaitingForNode"
	// RolloutReasonSettling surfaces when the node looks well and has to go on doing so for a while.
	RolloutReasonSettling = "Settling"
	// RolloutReasonRebootWithoutEffect surfaces when the node came back and a setting still waits for a boot, or failed.
	RolloutReasonRebootWithoutEffect = "RebootWithoutEffect"
	// RolloutReasonRebootTimedOut surfaces when the node was not back and well in time.
	RolloutReasonRebootTimedOut = "RebootTimedOut"
	// RolloutReasonAttemptsUsedUp surfaces when MaxAttempts permits have been given for the boot hash.
	RolloutReasonAttemptsUsedUp = "AttemptsUsedUp"
	// RolloutReasonAccepted surfaces on Uncordon when the node came back as declared.
	RolloutReasonAccepted = "Accepted"
)

// Reasons why a PersistentVolume stands as it does. They are stable: events, logs and the profile's status carry them unchanged.
const (
	// VolumeReasonNotSelected surfaces when no acting profile selects the volume and it carries nothing of ours.
	VolumeReasonNotSelected = "VolumeNotSelected"
	// VolumeReasonIgnored surfaces when the volume is being deleted, or it or its claim carries the annotation ignore.
	VolumeReasonIgnored = "VolumeIgnored"
	// VolumeReasonHeld surfaces when a profile whose options the volume carries is paused, in mode Plan or stalled.
	VolumeReasonHeld = "VolumeHeld"
	// VolumeReasonUpToDate surfaces when the volume carries the declared options.
	VolumeReasonUpToDate = "VolumeUpToDate"
	// VolumeReasonOptionsMerged surfaces when the declared options are written.
	VolumeReasonOptionsMerged = "VolumeOptionsMerged"
	// VolumeReasonConflict surfaces when somebody else changed the options that we wrote, profiles of equal priority disagree, or
	// volumes of one server would have different nconnect.
	VolumeReasonConflict = "VolumeConflict"
	// VolumeReasonDeclaredElsewhere surfaces when the volume's options are declared in Git and gitOpsOwned is ReportOnly.
	VolumeReasonDeclaredElsewhere = "VolumeDeclaredElsewhere"
	// VolumeReasonLegacyAnnotation surfaces when the annotation volume.beta.kubernetes.io/mount-options overrides spec.mountOptions.
	VolumeReasonLegacyAnnotation = "VolumeLegacyAnnotation"
	// VolumeReasonWrongProtocol surfaces when options are of another protocol or file system than the volume, or the volume
	// does not tell which it is.
	VolumeReasonWrongProtocol = "VolumeWrongProtocol"
	// VolumeReasonNoMount surfaces when the volume is a raw block device, or of a kind that takes no mount options.
	VolumeReasonNoMount = "VolumeNoMount"
	// VolumeReasonInvalidOptions surfaces when declared options and the volume's own do not go together, or its driver does not
	// hand them to mount as they are.
	VolumeReasonInvalidOptions = "VolumeInvalidOptions"
	// VolumeReasonRestored surfaces when the volume's original options are put back.
	VolumeReasonRestored = "VolumeRestored"
	// VolumeReasonFailedMount surfaces when a pod could not mount the volume with the options that were written: its original
	// options are put back, and no other volume gets the new ones until the profile's volume rules change.
	VolumeReasonFailedMount = "VolumeFailedMount"
	// VolumeReasonReleased surfaces when our annotations go and the options stay.
	VolumeReasonReleased = "VolumeReleased"
)
