package v1alpha1

// Reasons of status.rollout. They use the same word as the profile's conditions if the conditions have one.
const (
	// RolloutReasonNothingToDo is set when no reboot is due.
	RolloutReasonNothingToDo = "NothingToDo"
	// RolloutReasonRestoredAtNextBoot is set when only removed settings wait for a boot, and no profile sets restoreReboot.
	RolloutReasonRestoredAtNextBoot = "RestoredAtNextBoot"
	// RolloutReasonEffectiveAtNextBoot is set when only settings wait for a boot that no plan hash covers, such as read-only module
	// parameters. No approval covers them either, so the rollout does not reboot nodes for them.
	RolloutReasonEffectiveAtNextBoot = "EffectiveAtNextBoot"
	// RolloutReasonApplying is set when the agent has not reported on the desired settings yet.
	RolloutReasonApplying = "Applying"
	// RolloutReasonAgentSilent is set when the agent has not reported since the node's last boot.
	RolloutReasonAgentSilent = "AgentSilent"
	// RolloutReasonSettingsChanging is set when the desired settings that require a reboot have not reached the StorageClientNode
	// yet.
	RolloutReasonSettingsChanging = "SettingsChanging"
	// RolloutReasonSettingsFailed is set when the node would fail after a reboot: a setting has failed, or neither a boot nor time
	// would make it effective. The message names the setting and the file that prevents it.
	RolloutReasonSettingsFailed = "SettingsFailed"
	// RolloutReasonNodeUnavailable is set when the node is not Ready.
	RolloutReasonNodeUnavailable = "NodeUnavailable"
	// RolloutReasonNodeDeleting is set when the Node is being deleted.
	RolloutReasonNodeDeleting = "NodeDeleting"
	// RolloutReasonNodeLeaving is set when a taint on the Node announces its removal by an autoscaler or a cloud provider.
	RolloutReasonNodeLeaving = "NodeLeaving"
	// RolloutReasonNodeInMaintenance is set when another controller's condition MaintenanceInProgress on the Node is True.
	RolloutReasonNodeInMaintenance = "NodeInMaintenance"
	// RolloutReasonCordonedByOthers is set when another controller or user has cordoned the node.
	RolloutReasonCordonedByOthers = "CordonedByOthers"
	// RolloutReasonCordonLost is set when another controller or user uncordoned a node that the rollout had cordoned.
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
	// RolloutReasonCanaryFailed is set when the node's canary has failed. No other node follows, regardless of the profile's
	// failureThreshold. Correct the settings, or retry the same settings: kubectl storageclient retry PROFILE.
	RolloutReasonCanaryFailed = "CanaryFailed"
	// RolloutReasonFailureThreshold is set when the number of failed nodes reaches a profile's failureThreshold and the profile
	// stops.
	RolloutReasonFailureThreshold = ReasonFailureThreshold
	// RolloutReasonConfigMapImmutable is set while the ConfigMap with the claims or the failures is immutable. The manager cannot
	// claim any node.
	RolloutReasonConfigMapImmutable = ReasonConfigMapImmutable
	// RolloutReasonLastControlPlaneNode is set when no other control-plane node exists or is in service.
	RolloutReasonLastControlPlaneNode = "LastControlPlaneNode"
	// RolloutReasonWaitingForControlPlane is set while another control-plane node is out of service. Control-plane nodes are
	// disrupted one at a time.
	RolloutReasonWaitingForControlPlane = "WaitingForControlPlane"
	// RolloutReasonManagerNodeLast is set when the node of the manager waits for the other nodes.
	RolloutReasonManagerNodeLast = "ManagerNodeLast"
	// RolloutReasonOnlyManagerNode is set on the node of the manager when no other node in service can run the manager.
	RolloutReasonOnlyManagerNode = "OnlyManagerNode"
	// RolloutReasonOnlySchedulableNode is set when no other node in service accepts pods without tolerations.
	RolloutReasonOnlySchedulableNode = "OnlySchedulableNode"
	// RolloutReasonClaimed is set when the node is about to be cordoned.
	RolloutReasonClaimed = "Claimed"
	// RolloutReasonLeavingLoadBalancers is set while external load balancers have time to remove the node before its drain.
	RolloutReasonLeavingLoadBalancers = "LeavingLoadBalancers"
	// RolloutReasonDraining is set when pods are being evicted or terminate, and the drain has lasted for 15 seconds.
	RolloutReasonDraining = "Draining"
	// RolloutReasonDrainBlocked is set when a PodDisruptionBudget or a rule of the drain keeps a pod on the node.
	RolloutReasonDrainBlocked = "DrainBlocked"
	// RolloutReasonDrainError is set when the API server does not return the list of pods on the node. The drain continues, with its
	// usual timeout.
	RolloutReasonDrainError = "DrainError"
	// RolloutReasonBackingOff is set while the rollout delays the next drain of a node, after drains that finished without a reboot.
	RolloutReasonBackingOff = "BackingOff"
	// RolloutReasonWaitingForPods is set when pods of Jobs, or pods that waitForPodSelector selects, are still running.
	RolloutReasonWaitingForPods = "WaitingForPods"
	// RolloutReasonMountsBusy is set when the pods are gone and some of their mounts are still in use.
	RolloutReasonMountsBusy = "MountsBusy"
	// RolloutReasonVolumesInUse is set when the pods are gone and the Node still reports volumes in use or attached, so that their pods
	// cannot start on other nodes yet. The wait takes up to 2 minutes. The message names the volumes.
	RolloutReasonVolumesInUse = "VolumesInUse"
	// RolloutReasonStorageUnreachable is set when a storage server does not respond to the node. Pods that use it cannot terminate,
	// so the node is not drained, and a drain in progress waits. The message names the server and the pods.
	RolloutReasonStorageUnreachable = "StorageUnreachable"
	// RolloutReasonDrainTimedOut is set when a drain did not finish within rollout.drain.timeoutSeconds.
	RolloutReasonDrainTimedOut = "DrainTimedOut"
	// RolloutReasonPermitGiven is set when the agent may reboot the node, and stays set during the reboot.
	RolloutReasonPermitGiven = "PermitGiven"
	// RolloutReasonHostBusy is set when the agent has a reboot permit and an activity on its host must not be interrupted. This is a
	// running package manager, or a program that inhibits shutdown. The message names it.
	RolloutReasonHostBusy = "HostBusy"
	// RolloutReasonRebootStarted is set when the agent has requested the reboot from its host, after the permit has waited for the
	// host.
	RolloutReasonRebootStarted = "RebootStarted"
	// RolloutReasonPermitRefused is set when the agent or its host rejected the reboot.
	RolloutReasonPermitRefused = "PermitRefused"
	// RolloutReasonWaitingForNode is set when the node has rebooted and is not healthy yet.
	RolloutReasonWaitingForNode = "WaitingForNode"
	// RolloutReasonSettling is set when the node is healthy after its reboot and must stay healthy for rollout.settleSeconds.
	RolloutReasonSettling = "Settling"
	// RolloutReasonRebootWithoutEffect is set when the node came back and a setting has failed or still needs a reboot.
	RolloutReasonRebootWithoutEffect = "RebootWithoutEffect"
	// RolloutReasonRebootTimedOut is set when the node was not back and healthy within rollout.reboot.timeoutSeconds, or its agent did
	// not use the reboot permit in that time. In the second case, the node returns to service, and the rollout tries again later,
	// unless rollout.failureThreshold has stopped it.
	RolloutReasonRebootTimedOut = "RebootTimedOut"
	// RolloutReasonAttemptsUsedUp is set when the node still needs a reboot after three permits for the same boot hash.
	RolloutReasonAttemptsUsedUp = "AttemptsUsedUp"
	// RolloutReasonNodeLost is set on a recorded failure when the Node was deleted or replaced while it had a reboot permit.
	RolloutReasonNodeLost = "NodeLost"
	// RolloutReasonAccepted is set when the node returns to service with its settings verified after the reboot.
	RolloutReasonAccepted = "Accepted"
)

// Reasons for the state of a PersistentVolume. They are stable: events, logs and the profile's status contain them unchanged.
const (
	// VolumeReasonNotSelected is set when no active profile selects the volume and the volume has nothing from the operator.
	VolumeReasonNotSelected = "VolumeNotSelected"
	// VolumeReasonIgnored is set when the volume is being deleted, or it or its PersistentVolumeClaim has the ignore annotation.
	VolumeReasonIgnored = "VolumeIgnored"
	// VolumeReasonHeld is set when a profile whose options the volume has is paused, in mode Plan or stalled.
	VolumeReasonHeld = "VolumeHeld"
	// VolumeReasonUpToDate is set when the volume has the declared options.
	VolumeReasonUpToDate = "VolumeUpToDate"
	// VolumeReasonKeepsOwnValue is set when the volume has the declared options, except for original values that win over the
	// profile. They win because of onConflict, or because the declared value would weaken the mount. The message names both values.
	VolumeReasonKeepsOwnValue = "VolumeKeepsOwnValue"
	// VolumeReasonOptionsMerged is set when the declared options are written.
	VolumeReasonOptionsMerged = "VolumeOptionsMerged"
	// VolumeReasonConflict is set when another controller or user changed the options that the operator wrote, or profiles of equal
	// priority disagree. It is also set when the operator's annotations were removed again after it had restored them. Another cause
	// is nconnect: it stays unchanged if volumes of one server would get different values.
	VolumeReasonConflict = "VolumeConflict"
	// VolumeReasonDeclaredElsewhere is set when the volume's options are managed in Git and gitOpsOwned is ReportOnly.
	VolumeReasonDeclaredElsewhere = "VolumeDeclaredElsewhere"
	// VolumeReasonLegacyAnnotation is set when the annotation volume.beta.kubernetes.io/mount-options overrides spec.mountOptions.
	VolumeReasonLegacyAnnotation = "VolumeLegacyAnnotation"
	// VolumeReasonNoClass is set when a rule uses the options of a StorageClass, and the class does not exist or the volume has none.
	// The volume stays unchanged.
	VolumeReasonNoClass = "VolumeNoClass"
	// VolumeReasonWrongProtocol is set when options belong to another protocol or file system than the volume, or the volume's
	// protocol or file system is unknown.
	VolumeReasonWrongProtocol = "VolumeWrongProtocol"
	// VolumeReasonNoMount is set when the volume is a raw block device, or of a kind that does not support mount options.
	VolumeReasonNoMount = "VolumeNoMount"
	// VolumeReasonInvalidOptions is set when declared options conflict with the volume's original options. It is also set when the
	// volume's driver would change the options, or drop the options of its backend, and when mount rejects the original options themselves.
	VolumeReasonInvalidOptions = "VolumeInvalidOptions"
	// VolumeReasonRestored is set when the volume's original options are restored.
	VolumeReasonRestored = "VolumeRestored"
	// VolumeReasonFailedMount is set when a pod could not mount the volume with the written options. The original options are
	// restored, and no other volume gets the new options until a rule that declares them changes.
	VolumeReasonFailedMount = "VolumeFailedMount"
	// VolumeReasonReleased is set when the operator's annotations are removed and the options stay.
	VolumeReasonReleased = "VolumeReleased"
)
