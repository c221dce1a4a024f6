package waits

const (
	final   = "final state; a change of the settings or the kubectl command retry starts again"
	onePass = "lasts one pass"

	inDrain  = "the drain's timeout, {rollout.drain.timeoutSeconds}"
	unused   = inReboot + ", and then {controllers/rollout/plan.overduePause}"
	inReboot = "{rollout.reboot.timeoutSeconds}"
	backOff  = "the node returns to service; the next attempt follows after {controllers/rollout/plan.BackOff}, then twice as long each time, up to {controllers/rollout/plan.MaxBackOff}"
	noReboot = "the node is rebooted in its turn"
	others   = "no limit: it ends with the other nodes"
	noAction = "wait"
)

// Pages that several reasons share.
var (
	draining = page{"a cordoned node, for its pods to leave and its mounts to be free", inDrain, backOff,
		"finish or delete the pods that the message names, or change their PodDisruptionBudget"}
	inactive      = page{subject: "the nodes and volumes of a profile that is paused, in mode Plan or invalid", then: "the changes continue"}
	stoppedByUser = page{subject: "a node that a user keeps from reboots", then: noReboot}
	lastNode      = page{subject: "a node without which the cluster could not run its pods or its control plane", then: noReboot}
	silentAgent   = page{subject: "a node, for the report of its agent", limit: "until the agent reports", then: "the settings of the node are known again"}
	agentReport   = page{"a node, for the report of its agent", "in a drain, " + inDrain + "; otherwise until the agent reports", "the rollout of the node continues", ""}
	liveFailure   = page{subject: "all nodes without new live settings, after as many failed nodes as `rollout.failureThreshold` allows", then: "the live change continues",
		do: "check the failed nodes, or change the settings"}
	liveCanary = page{"nodes without new live settings, for the canary to stay healthy", "the longer of {rollout.canary.soakSeconds} and `--min-live-soak`, once the canary has confirmed the settings",
		"the other nodes follow", "if the canary does not confirm, resolve the reason in the message, or annotate its Node with `tuning.storageclient.dev/ignore=true`"}
	turnOfTrial = page{"a trial, for earlier trials or probes to finish", "{controllers/trial/plan.maxTurn} for each of them", "the trial starts; its own timeout does not run before", noAction}
)

// rollout contains the reasons of the notes of nodes, by the name of the constant.
var rollout = map[string]wait{
	"RolloutReasonNothingToDo":         {finished: final},
	"RolloutReasonRestoredAtNextBoot":  {finished: final},
	"RolloutReasonEffectiveAtNextBoot": {finished: final},
	"RolloutReasonSettingsFailed":      {finished: final},
	"RolloutReasonRebootWithoutEffect": {finished: final},
	"RolloutReasonNodeLost":            {finished: final},
	"RolloutReasonAccepted":            {finished: onePass},
	"RolloutReasonClaimed":             {finished: onePass},
	"RolloutReasonApplying":            {action: "The agent has not reported the desired settings yet; if it stays silent, check its Pod", page: agentReport},
	"RolloutReasonAgentSilent":         {action: "The agent has not reported since the node's last boot; check its Pod", page: agentReport},
	"RolloutReasonSettingsChanging": {action: "see its condition Tuned",
		page: page{"a node, for its new settings", "see the live settings below", "the rollout of the node continues", ""}},
	"RolloutReasonNodeUnavailable": {action: "bring ", page: page{subject: "a node that is not Ready", then: noReboot}},
	"RolloutReasonNodeDeleting":    {action: "it uses up budget until it is gone; if the Node stays, remove its finalizers", page: page{subject: "a Node that is being deleted", then: "its place in the budget is free"}},
	"RolloutReasonNodeLeaving":     {action: " if the node stays", page: page{subject: "a node that an autoscaler or a cloud will remove", then: "the node is gone; if it stays, it is rebooted in its turn"}},
	"RolloutReasonNodeInMaintenance": {action: "or delete its Node if it will not return",
		page: page{subject: "a node, for the maintenance by another controller", then: noReboot}},
	"RolloutReasonCordonedByOthers": {action: "or delete its Node if it will not return",
		page: page{subject: "a node that another user or controller has cordoned", then: noReboot}},
	"RolloutReasonCordonLost": {bound: "RetryAfter",
		page: page{"a node that another user or controller has uncordoned during its drain", "{controllers/rollout/plan.BackOff} at first, up to {controllers/rollout/plan.MaxBackOff}", "the next attempt follows", "to keep the node in service, annotate it with `tuning.storageclient.dev/never-disrupt=true`"}},
	"RolloutReasonNodePaused":         {action: "The Node has the annotation ", page: stoppedByUser},
	"RolloutReasonNodeIgnored":        {action: "The Node has the annotation ", page: stoppedByUser},
	"RolloutReasonNeverDisrupt":       {action: "The Node has the annotation ", page: stoppedByUser},
	"RolloutReasonRebootPolicyNever":  {action: "has reboot policy Never", page: stoppedByUser},
	"RolloutReasonProfileGone":        {action: "which does not exist", page: page{subject: "a node with settings of a missing profile", then: noReboot}},
	"RolloutReasonWaitingForApproval": {action: "needs approval; next: kubectl storageclient approve", page: page{subject: "all nodes of the profile, for the approval of its plan", then: noReboot}},
	"RolloutReasonWaitingForBudget": {action: "or delete its Node if it will not return",
		page: page{subject: "a node, for the nodes that use up the reboot limit", limit: others, then: noReboot}},
	"RolloutReasonWaitingForWindow": {bound: "checkWindows", page: page{"a node, for the next window", "the time in the message", noReboot, "widen `rollout.windows`"}},
	"RolloutReasonWindowsDisjoint":  {action: "are never open together", page: page{subject: "a node whose profiles have no common window", then: noReboot}},
	"RolloutReasonWaitingForZone": {bound: "ZonePatience",
		page: page{"a node, for the nodes of another zone", "{controllers/rollout/plan.ZonePatience} for a drain; with a reboot permit, until the node is back", noReboot, noAction}},
	"RolloutReasonWaitingForCanary": {action: "rollout.canary.nodeSelector must select a node that can be rebooted",
		page: page{subject: "the nodes after the canary", limit: "its reboot, and then {rollout.canary.soakSeconds}", then: noReboot}},
	"RolloutReasonCanaryFailed":     {action: "or retry: kubectl storageclient retry ", page: page{subject: "the nodes after a failed canary", then: "the rollout starts again"}},
	"RolloutReasonFailureThreshold": {action: "or retry: kubectl storageclient retry ", page: page{subject: "all nodes of a profile, after `rollout.failureThreshold` failed nodes", then: "the rollout starts again"}},
	"RolloutReasonConfigMapImmutable": {action: "delete it, and create it again without immutable",
		page: page{subject: "all nodes, for a ConfigMap that the manager can write", then: noReboot}},
	"RolloutReasonLastControlPlaneNode": {action: "reboot it by hand", page: lastNode},
	"RolloutReasonOnlyManagerNode":      {action: "or reboot the node by hand", page: lastNode},
	"RolloutReasonOnlySchedulableNode":  {action: "add a node, or reboot the node by hand", page: lastNode},
	"RolloutReasonWaitingForControlPlane": {action: "or delete its Node if it will not return",
		page: page{subject: "a control-plane node, while another control-plane node is out of service", limit: others, then: noReboot}},
	"RolloutReasonManagerNodeLast": {bound: "isTurnSoon", page: page{"the node of the manager, for the nodes that can be rebooted soon", others, noReboot, noAction}},
	"RolloutReasonLeavingLoadBalancers": {bound: "ExcludeFromLoadBalancersSeconds",
		page: page{"a cordoned node, for load balancers to remove it", "`rollout.drain.excludeFromLoadBalancersSeconds`, without a default", "the drain starts", noAction}},
	"RolloutReasonDraining":       {bound: "drainDeadline", page: draining},
	"RolloutReasonDrainBlocked":   {bound: "drainDeadline", page: draining},
	"RolloutReasonDrainError":     {bound: "drainDeadline", page: draining},
	"RolloutReasonWaitingForPods": {bound: "drainDeadline", page: draining},
	"RolloutReasonMountsBusy":     {bound: "drainDeadline", page: draining},
	"RolloutReasonVolumesInUse": {bound: "volumesPatience",
		page: page{"a drained node, for the volumes of its former pods to be detached", "{controllers/rollout/plan.volumesPatience}", "the node is rebooted", noAction}},
	"RolloutReasonStorageUnreachable": {action: "Not draining, because the drain would hang",
		page: page{subject: "a node, for a storage server", limit: "in a drain, " + inDrain + "; otherwise until the server responds", then: "in a drain, the node returns to service; otherwise it is rebooted in its turn"}},
	"RolloutReasonBackingOff":    {bound: "RetryAfter", page: backingOff},
	"RolloutReasonDrainTimedOut": {bound: "RetryAfter", page: backingOff},
	"RolloutReasonPermitGiven": {bound: "permitDeadline",
		page: page{"a drained node, for its agent to start the reboot", unused, "the permit is withdrawn and the node has failed; " + backOff, "check the log of the agent's Pod"}},
	"RolloutReasonHostBusy": {bound: "permitDeadline",
		page: page{"a drained node, for a package manager or a program that inhibits shutdown", unused, "the permit is withdrawn; " + backOff, "stop the program that the message names"}},
	"RolloutReasonRebootStarted":  {bound: "rebootDeadline", page: rebooting},
	"RolloutReasonWaitingForNode": {bound: "rebootDeadline", page: rebooting},
	"RolloutReasonPermitRefused": {bound: "RefusalPause",
		page: page{"a drained node, after its agent or host rejected the reboot", "{controllers/rollout/plan.RefusalPause}, again and again within " + inDrain, "the next permit follows; after the drain's timeout, " + backOff, "read the reason in the message"}},
	"RolloutReasonSettling": {bound: "SettleSeconds",
		page: page{"a rebooted node, to stay healthy", "{rollout.settleSeconds}; another boot starts it again", "the node returns to service", noAction}},
	"RolloutReasonRebootTimedOut": {action: "check the log of its Pod", page: page{subject: "a node that did not reboot, or did not come back in time", then: "once healthy, the node returns to service; after an unused permit, the next attempt follows on its own"}},
	"RolloutReasonAttemptsUsedUp": {action: "compare desired and observed values in status.settings",
		page: page{subject: "a node that still needs a reboot after {controllers/rollout/plan.MaxAttempts} permits", then: "the rollout of the node starts again"}},

	"ReasonPausedByField":      {action: " is paused", page: inactive},
	"ReasonPlanMode":           {action: " disrupts no node: ", page: inactive},
	"ReasonInvalid":            {action: " disrupts no node: ", page: inactive},
	"ReasonPausedByAnnotation": {action: "Everything is paused by the annotation on the manager's namespace", page: inactive},
}

var (
	backingOff = page{"a node after a drain without a reboot", "{controllers/rollout/plan.BackOff} at first, twice as long each time, up to {controllers/rollout/plan.MaxBackOff}", "the next attempt follows",
		"resolve the reason in the message; changed drain options end the pause"}
	rebooting = page{"a node, to boot and to report its settings", inReboot, "the node has failed and stays cordoned; it is accepted if it becomes healthy later",
		"check the console of the node and the log of its agent's Pod"}
)

// live contains the notes of nodes that wait for live settings or the read-ahead of volumes.
var live = map[string]wait{
	"stopped; settings failed on ":                {action: "; check these nodes, or change the settings", page: liveFailure},
	"; check these nodes, or change the settings": {action: "; check these nodes, or change the settings", partOf: "stopped; settings failed on "},
	"; skipped (agent not started for %d minutes): %s": {bound: "LostAfter",
		page: page{"nodes without new live settings, for an agent that has not started", "{controllers/internal/livegate.LostAfter}", "the node without an agent is skipped", "check the Pod of that agent"}},
	"stopped; settings failed on %s by the word of storage server %s alone; a node without mounts from it must prove them": {action: "a node without mounts from it must prove them",
		page: page{subject: "nodes that mount from the server that alone made settings fail", then: "the live change continues", do: "check the server; add a node without mounts from it to the profile, or change the settings"}},
	"waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings": {action: "rollout.canary.nodeSelector selects no Ready node",
		page: page{subject: "nodes without new live settings, for a canary", then: "the canary gets the settings first", do: "bring a node that `rollout.canary.nodeSelector` selects into service, or change the selector"}},
	"blocked by the failed canary: ": {action: "; check these nodes, or change the settings",
		page: page{subject: "nodes without new live settings, after a failed canary", then: "the live change continues", do: "check the failed nodes, or change the settings"}},
	// The canary proves the settings in its soak, fails, or does not confirm them.
	"waiting for the canary: %s%s":                  {bound: "unconfirmedOf", page: liveCanary},
	"waiting for the canary":                        {bound: "Soak", page: liveCanary},
	"; not confirmed on : ":                         {action: "; resolve it, or annotate the Node with ", partOf: "waiting for the canary: %s%s"},
	"; resolve it, or annotate the Node with =true": {action: "; resolve it, or annotate the Node with ", partOf: "waiting for the canary: %s%s"},
	"waiting until the node and its agent are Ready": {action: "the node and its agent are Ready",
		page: page{subject: "a node without new live settings that is not Ready, or whose agent is not", then: "the node gets the settings in its turn", do: "check the node, and the Pod of its agent"}},
	// The nodes ahead confirm the settings, fail, or are named.
	"queued; at most %s at a time": {bound: "unconfirmedOf",
		page: page{"a node without new live settings, for the nodes ahead", "no limit: it ends once they confirm or fail; `rollout.maxConcurrentLive` of them change at a time", "the node gets the settings", "resolve the reason of the node that the message names"}},
	"queued; at most %s in the cluster at a time; see the condition Tuned of the Nodes": {action: "see the condition Tuned of the Nodes",
		page: page{"a node without new live settings, for nodes of any profile", "no limit: it ends once they confirm or fail; `--max-concurrent-live` of them change at a time", "the node gets the settings", "check the Nodes whose condition `Tuned` is not True"}},
}

// trials contains the first words of the messages of trials with the reason Waiting.
var trials = map[string]wait{
	"Waiting: ": {bound: "isTimedOut", page: page{"a trial, for the object that the message names", "`spec.timeoutSeconds` of the trial, {api/v1alpha1.DefaultTrialTimeoutSeconds} by default", "the trial fails with the reason `TimedOut`", "resolve the problem in the message"}},
	"Requesting samples from ": {bound: "isTimedOut",
		page: page{"a trial, for samples of nodes", "`spec.timeoutSeconds` of the trial, {api/v1alpha1.DefaultTrialTimeoutSeconds} by default", "the trial uses the samples that it has, or fails", noAction}},
	"Waiting for probes to finish":        {bound: "maxTurn", page: turnOfTrial},
	"Waiting for its turn":                {bound: "maxTurn", page: turnOfTrial},
	"Waiting for another trial to finish": {bound: "maxTurn", page: turnOfTrial},
	"Waiting for earlier trials in namespace %s: at most %d are in the queue": {bound: "maxTurn", page: turnOfTrial},
	"Waiting for a node that nodeSelector allows, that is in service, and that has an agent and no other trial; " +
		"a profile that selects a node brings its agent, except in mode Plan": {bound: "isTimedOut",
		page: page{"a trial, for a node", "`spec.timeoutSeconds` of the trial, {api/v1alpha1.DefaultTrialTimeoutSeconds} by default", "the trial fails with the reason `TimedOut`", "select a node of a profile with an agent"}},
}

// pending contains the messages of volumes that wait for their new mount options (reason VolumeOptionsMerged).
var pending = map[string]wait{
	"The API server rejected the last write; next attempt at : ": {bound: "rejectionRetryInterval",
		page: page{"a volume, after the API server rejected its write", "{controllers/volume.rejectionRetryInterval}", "the write is tried again; other volumes do not wait for it", "allow the write for the manager's account in the policy or webhook that the manager's log names"}},
	"StorageClientProfile : another batch comes first":                          {bound: "SoakSeconds", page: batch},
	"StorageClientProfile %s: another batch comes first":                        {bound: "SoakSeconds", page: batch},
	"canary PersistentVolume  soaks ":                                           {bound: "SoakSeconds", page: batch},
	"StorageClientProfile %s: %s":                                               {finished: "one of the other messages, with the name of the profile"},
	"no pod has mounted PersistentVolume  since it got these options":           {action: "restart one of its pods", page: evidence},
	"no pod has mounted any of PersistentVolumes  since they got these options": {action: "restart one of its pods", page: evidence},
	"StorageClientProfile %s: these options are stopped: PersistentVolume %s could not be mounted with them": {action: "no volume gets these options until a rule that declares them changes",
		page: page{subject: "all volumes that need the options of a volume that could not be mounted", then: "the new options go to one volume first", do: "change the rule"}},
	"Waiting for a probe of these options: an isolated mount from server ": {bound: "maxProbeWait",
		page: page{"volumes of a server, for the result of a probe", "{controllers/trial/plan.maxProbeWait} for a free node, then {controllers/trial/plan.maxProbe}", "without a result, one volume is the canary", "set `rollout.volumes.probe: Never`"}},
	"These options are stopped: ": {bound: "rejectedRetryDelay",
		page: page{"volumes of a server that rejects the options", "{controllers/trial/plan.rejectedRetryDelay}", "the options are probed again", "change the rule, or the server"}},
	"a probe could not mount them from ": {bound: "rejectedRetryDelay", partOf: "These options are stopped: "},
	"; not probed: ":                     {finished: "a remark about a volume that does not wait for a probe"},
	"A pod could not mount the volume with %s: %s; original options not restored: %s": {action: "Activate the profile",
		page: page{subject: "a volume that a pod cannot mount, while its profile is paused or in mode Plan", then: "its original options are restored", do: "resume the profile"}},
	"PersistentVolume %s could not be mounted with %s": {action: "no volume gets these options until a rule that declares them changes", partOf: "StorageClientProfile %s: these options are stopped: PersistentVolume %s could not be mounted with them"},
	"; original options restored until a pod shows whether they work: restart a pod that uses the volume": {action: "restart a pod that uses the volume",
		page: page{subject: "other volumes with the same options, for a further pod to mount the failed volume: the options of the first one's mount are unknown", then: "the options are stopped, or applied again",
			do: "restart a pod that uses the volume"}},
	"; original options restored until a pod shows whether they work": {bound: "NoPodWaits",
		page: page{"other volumes with the same options, for a pod to mount the failed volume with its original options", "no limit: it ends once a pod mounts the volume, or no pod waits for it anymore", "the options are stopped, or applied again", "restart or delete the pod that waits for the volume"}},
}

var (
	batch    = page{"a volume, for the volumes that got the options before it", "{rollout.volumes.soakSeconds} for each batch", "the next batch of `rollout.volumes.maxPerStep` follows", noAction}
	evidence = page{subject: "volumes, for a pod to mount a changed volume (`WaitingForEvidence`)", then: "the next batch follows", do: "restart a pod of that volume, or set `rollout.volumes.onNoEvidence: Proceed`"}
	differs  = page{subject: "a volume that keeps its mount options, because the operator must not or cannot change them", then: "the volume gets its options in its turn"}
)

// volumes contains the reasons of volumes, by the name of the constant.
var volumes = map[string]wait{
	"VolumeReasonNotSelected":       {finished: final},
	"VolumeReasonUpToDate":          {finished: final},
	"VolumeReasonKeepsOwnValue":     {finished: "an exception: the rule allows the difference"},
	"VolumeReasonDeclaredElsewhere": {action: "or set gitOpsOwned: Patch", page: differs},
	"VolumeReasonOptionsMerged":     {finished: "its messages are the rows of pending"},
	"VolumeReasonRestored":          {finished: onePass},
	"VolumeReasonReleased":          {finished: onePass},
	"VolumeReasonIgnored":           {action: "To tune the volume, remove the annotation ", page: differs},
	"VolumeReasonHeld":              {action: "Activate the profile", page: page{subject: "a volume, for its profile to be active", then: "the volume gets its options in its turn"}},
	"VolumeReasonConflict":          {action: "give one of the profiles a higher priority", page: differs},
	"VolumeReasonLegacyAnnotation":  {action: "move its options there and remove the annotation", page: differs},
	"VolumeReasonNoClass":           {action: "Create the StorageClass", page: differs},
	"VolumeReasonWrongProtocol":     {action: "name protocols or fsTypes in the rule's selector", page: differs},
	"VolumeReasonNoMount":           {action: "exclude the volume from the rule's selector", page: differs},
	"VolumeReasonInvalidOptions":    {action: "Change the rule's options", page: differs},
	"VolumeReasonFailedMount":       {action: "Change the rule; until then, no volume gets these options", page: page{subject: "a volume with its original options, after a failed mount", then: "the new options go to one volume first"}},
}

// conditions contains the reasons of the conditions Tuned and StorageReachable of Nodes, by the name of the constant.
var conditions = map[string]wait{
	"NodeReasonTuned":               {finished: final},
	"NodeReasonTunedWithExceptions": {finished: final},
	"NodeReasonRestored":            {finished: final},
	"StorageReasonReachable":        {finished: final},
	"NodeReasonAgentSilent":         {action: "Check the agent's Pod on the node", page: silentAgent},
	"StorageReasonAgentSilent":      {action: "Check the agent's Pod on the node", page: silentAgent},
	"NodeReasonFenceMissing":        {action: "Apply the operator's manifest again", page: page{subject: "a node without an agent, for the admission policy that fences agents", then: "the node gets its agent"}},
	"NodeReasonApplying": {action: "check the nodes and servers that it names",
		page: page{subject: "a node, for its agent to apply and confirm the settings, or for its turn", limit: "see the live settings above", then: "the settings are effective"}},
	"NodeReasonRebootPending": {bound: "findObstacle",
		page: page{"a node, for its reboot", "see the rollout above", "the settings are effective", "read `status.rollout` of its StorageClientNode"}},
	"NodeReasonSettingsFailed": {action: "Read the message in `status.settings`", page: page{subject: "a node with failed settings", then: "the agent applies the corrected settings"}},
	"NodeReasonDrifted":        {action: "Find the program or user that writes the value", page: page{subject: "a node whose values another program or user has changed", then: "the agent sets the declared value again"}},
	"NodeReasonRestoring": {action: "check the nodes and servers that it names",
		page: page{subject: "a node, for its original values", limit: "seconds, once the agent reports and the profile is not paused", then: "the node is no longer managed"}},
	"StorageReasonServerSilent": {action: " does not respond", page: server},
	"StorageReasonServerStuck":  {action: " has overdue requests", page: server},
	"StorageReasonStaleHandles": {action: " returns stale file handles", page: server},
}

var server = page{subject: "a node with mounts, for a storage server", then: "drains and reboots of the node continue", do: "check the server that the message names; after stale handles, restart the pods of its mounts"}
