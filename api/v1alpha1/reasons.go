package v1alpha1

// Reasons of status.rollout. Where the profile's conditions have a word for it, it is the same word.
const (
	// RolloutReasonNothingToDo is set when no reboot is due.
	RolloutReasonNothingToDo = "NothingToDo"
	// RolloutReasonRestoredAtNextBoot is set when only removed settings wait for a boot, and no profile asks for a reboot to restore them.
	RolloutReasonRestoredAtNextBoot = "RestoredAtNextBoot"
	// RolloutReasonEffectiveAtNextBoot is set when only settings wait for a boot that no plan hash covers, such as module
	// parameters that cannot be written: no approval covers them either, so no node is rebooted for them.
	RolloutReasonEffectiveAtNextBoot = "EffectiveAtNextBoot"
	// RolloutReasonApplying is set when the agent has not reported on the wanted settings yet.
	RolloutReasonApplying = "Applying"
	// RolloutReasonAgentSilent is set when the agent has not reported since the node's last boot.
	RolloutReasonAgentSilent = "AgentSilent"
	// RolloutReasonSettingsChanging is set when the wanted boot settings have not reached the StorageClientNode yet.
	RolloutReasonSettingsChanging = "SettingsChanging"
	// RolloutReasonSettingsFailed is set when the node would not be accepted after a reboot: a setting has failed, or neither a boot
	// nor time would bring it. The message names it, and the file that is in the way.
	RolloutReasonSettingsFailed = "SettingsFailed"
	// RolloutReasonNodeUnavailable is set when the node is not Ready.
	RolloutReasonNodeUnavailable = "NodeUnavailable"
	// RolloutReasonNodeDeleting is set when the Node is being deleted.
	RolloutReasonNodeDeleting = "NodeDeleting"
	// RolloutReasonNodeLeaving is set when a taint on the Node says that an autoscaler or a cloud is about to take the node away.
	RolloutReasonNodeLeaving = "NodeLeaving"
	// RolloutReasonNodeInMaintenance is set when somebody else's condition MaintenanceInProgress on the Node is True.
	RolloutReasonNodeInMaintenance = "NodeInMaintenance"
	// RolloutReasonCordonedByOthers is set when somebody else has cordoned the node.
	RolloutReasonCordonedByOthers = "CordonedByOthers"
	// RolloutReasonCordonLost is set when somebody uncordoned a node that the rollout had cordoned.
	RolloutReasonCordonLost = "CordonLost"
	// RolloutReasonNodePaused is set when the Node has the paused annotation.
	RolloutReasonNodePaused = "NodePaused"
	// RolloutReasonNodeIgnored is set when the Node has the ignore annotation.
	RolloutReasonNodeIgnored = "NodeIgnored"
	// RolloutReasonNeverDisrupt is set when the Node has the never-disrupt annotation.
	RolloutReasonNeverDisrupt = "NeverDisrupt"
	// RolloutReasonRebootPolicyNever is set when a profile that needs the reboot has reboot policy Never.
	RolloutReasonRebootPolicyNever = "RebootPolicyNever"
	// RolloutReasonProfileGone is set when a setting that needs the reboot comes from a profile that does not exist.
	RolloutReasonProfileGone = "ProfileGone"
	// RolloutReasonWaitingForApproval is set when a profile's plan needs approval.
	RolloutReasonWaitingForApproval = ReasonWaitingForApproval
	// RolloutReasonWaitingForBudget is set when other nodes use up the budget.
	RolloutReasonWaitingForBudget = ReasonWaitingForBudget
	// RolloutReasonWaitingForWindow is set outside the windows of a profile that needs the reboot.
	RolloutReasonWaitingForWindow = ReasonWaitingForWindow
	// RolloutReasonWindowsDisjoint is set when the windows of the profiles that need the reboot are never open together.
	RolloutReasonWindowsDisjoint = "WindowsDisjoint"
	// RolloutReasonWaitingForZone is set while nodes of another zone are out of service.
	RolloutReasonWaitingForZone = "WaitingForZone"
	// RolloutReasonWaitingForCanary is set when the node waits for the canary, or for its soak to end.
	RolloutReasonWaitingForCanary = "WaitingForCanary"
	// RolloutReasonCanaryFailed is set when the node's canary has failed: no other node goes, whatever the profile's failureThreshold.
	// Correct the boot settings, or have the same ones tried again: kubectl storageclient retry PROFILE.
	RolloutReasonCanaryFailed = "CanaryFailed"
	// RolloutReasonFailureThreshold is set when as many nodes of a profile have failed as its failureThreshold says: it stops.
	RolloutReasonFailureThreshold = ReasonFailureThreshold
	// RolloutReasonConfigMapImmutable is set while the ConfigMap with the claims or the failures is immutable: no node can be claimed.
	RolloutReasonConfigMapImmutable = ReasonConfigMapImmutable
	// RolloutReasonLastControlPlaneNode is set when there is no other control-plane node, or every other one is out of service.
	RolloutReasonLastControlPlaneNode = "LastControlPlaneNode"
	// RolloutReasonWaitingForControlPlane is set while another control-plane node is out of service: they go one at a time.
	RolloutReasonWaitingForControlPlane = "WaitingForControlPlane"
	// RolloutReasonManagerNodeLast is set when the manager's own node waits for the others.
	RolloutReasonManagerNodeLast = "ManagerNodeLast"
	// RolloutReasonClaimed is set when the node is about to be cordoned.
	RolloutReasonClaimed = "Claimed"
	// RolloutReasonLeavingLoadBalancers is set when external load balancers get time to drop the node before its drain.
	RolloutReasonLeavingLoadBalancers = "LeavingLoadBalancers"
	// RolloutReasonDraining is set when pods are being evicted or terminate, and a drain has lasted for a quarter of a minute.
	RolloutReasonDraining = "Draining"
	// RolloutReasonDrainBlocked is set when a PodDisruptionBudget or a rule of the drain keeps a pod on the node.
	RolloutReasonDrainBlocked = "DrainBlocked"
	// RolloutReasonDrainError is set when the API server does not say which pods are on the node. The drain goes on, and times out as any other.
	RolloutReasonDrainError = "DrainError"
	// RolloutReasonBackingOff is set while a node is left alone after drains that ended without a reboot.
	RolloutReasonBackingOff = "BackingOff"
	// RolloutReasonWaitingForPods is set when pods of Jobs, or pods that waitForPodSelector selects, are still running.
	RolloutReasonWaitingForPods = "WaitingForPods"
	// RolloutReasonMountsBusy is set when the pods are gone and some of their mounts are still in use.
	RolloutReasonMountsBusy = "MountsBusy"
	// RolloutReasonStorageUnreachable is set when a storage server does not answer the node: pods that use it cannot end, so the node is not
	// drained, and a drain that is under way waits. The message names server and pods.
	RolloutReasonStorageUnreachable = "StorageUnreachable"
	// RolloutReasonDrainTimedOut is set when a drain did not finish within rollout.drain.timeoutSeconds.
	RolloutReasonDrainTimedOut = "DrainTimedOut"
	// RolloutReasonPermitGiven is set when the agent may reboot the node, and stays while it does.
	RolloutReasonPermitGiven = "PermitGiven"
	// RolloutReasonHostBusy is set when the agent has a reboot permit and something on its host must not be interrupted: a package
	// manager at work, or a program that inhibits shutdown. The message names it.
	RolloutReasonHostBusy = "HostBusy"
	// RolloutReasonRebootStarted is set when the agent has asked its host for the reboot, after the permit has waited for the host.
	RolloutReasonRebootStarted = "RebootStarted"
	// RolloutReasonPermitRefused is set when the agent, or its host, refused the reboot.
	RolloutReasonPermitRefused = "PermitRefused"
	// RolloutReasonWithdrawingPermit is set when a permit is outdated and the agent has to answer before it is withdrawn.
	RolloutReasonWithdrawingPermit = "WithdrawingPermit"
	// RolloutReasonWaitingForNode is set when the node has rebooted and is not healthy yet.
	RolloutReasonWaitingForNode = "WaitingForNode"
	// RolloutReasonSettling is set when the node is healthy after its reboot and has to stay so for rollout.settleSeconds.
	RolloutReasonSettling = "Settling"
	// RolloutReasonRebootWithoutEffect is set when the node came back and a setting has failed or still needs a reboot.
	RolloutReasonRebootWithoutEffect = "RebootWithoutEffect"
	// RolloutReasonRebootTimedOut is set when the node was not back and healthy within rollout.reboot.timeoutSeconds.
	RolloutReasonRebootTimedOut = "RebootTimedOut"
	// RolloutReasonAttemptsUsedUp is set when the node still needs a reboot after three permits for the same boot hash.
	RolloutReasonAttemptsUsedUp = "AttemptsUsedUp"
	// RolloutReasonNodeLost is set on a remembered failure when the Node was deleted or replaced while it had a reboot permit.
	RolloutReasonNodeLost = "NodeLost"
	// RolloutReasonAccepted is set when the node returns to service with its settings verified after the reboot.
	RolloutReasonAccepted = "Accepted"
)

// Reasons why a PersistentVolume stands as it does. They are stable: events, logs and the profile's status carry them unchanged.
const (
	// VolumeReasonNotSelected is set when no acting profile selects the volume and nothing on it is ours.
	VolumeReasonNotSelected = "VolumeNotSelected"
	// VolumeReasonIgnored is set when the volume is being deleted, or it or its PersistentVolumeClaim has the ignore annotation.
	VolumeReasonIgnored = "VolumeIgnored"
	// VolumeReasonHeld is set when a profile whose options the volume carries is paused, in mode Plan or stalled.
	VolumeReasonHeld = "VolumeHeld"
	// VolumeReasonUpToDate is set when the volume has the declared options.
	VolumeReasonUpToDate = "VolumeUpToDate"
	// VolumeReasonKeepsOwnValue is set when the volume has the declared options but for values of its own that it keeps against the
	// profile, by onConflict or since the declared value would make the mount weaker. The message names both values.
	VolumeReasonKeepsOwnValue = "VolumeKeepsOwnValue"
	// VolumeReasonOptionsMerged is set when the declared options are written.
	VolumeReasonOptionsMerged = "VolumeOptionsMerged"
	// VolumeReasonConflict is set when somebody else changed the options that we wrote, or removed our annotations again after they had
	// been put back, profiles of equal priority disagree, or nconnect is left as it is since volumes of one server would get different values of it.
	VolumeReasonConflict = "VolumeConflict"
	// VolumeReasonDeclaredElsewhere is set when the volume's options are declared in Git and gitOpsOwned is ReportOnly.
	VolumeReasonDeclaredElsewhere = "VolumeDeclaredElsewhere"
	// VolumeReasonLegacyAnnotation is set when the annotation volume.beta.kubernetes.io/mount-options overrides spec.mountOptions.
	VolumeReasonLegacyAnnotation = "VolumeLegacyAnnotation"
	// VolumeReasonNoClass is set when a rule takes its options from a StorageClass that does not exist, or the volume has none. Nothing
	// is changed.
	VolumeReasonNoClass = "VolumeNoClass"
	// VolumeReasonWrongProtocol is set when options are of another protocol or file system than the volume, or the
	// volume does not show which it is.
	VolumeReasonWrongProtocol = "VolumeWrongProtocol"
	// VolumeReasonNoMount is set when the volume is a raw block device, or of a kind that takes no mount options.
	VolumeReasonNoMount = "VolumeNoMount"
	// VolumeReasonInvalidOptions is set when declared options and the volume's own do not go together, its driver does not pass
	// them to mount as they are, or it would drop its backend's for them.
	VolumeReasonInvalidOptions = "VolumeInvalidOptions"
	// VolumeReasonRestored is set when the volume's original options are put back.
	VolumeReasonRestored = "VolumeRestored"
	// VolumeReasonFailedMount is set when a pod could not mount the volume with the options that were written: its original
	// options are put back, and no other volume gets the new ones until a rule that declares them changes.
	VolumeReasonFailedMount = "VolumeFailedMount"
	// VolumeReasonReleased is set when our annotations are removed and the options stay.
	VolumeReasonReleased = "VolumeReleased"
)
