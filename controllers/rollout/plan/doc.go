// Package plan decides the next steps of the rollout. It has no client, no clock and no memory. Its input is a Snapshot of the API objects; its
// output is ordered steps and a note for every node. A caller that applied only some of the steps, or none, makes a new plan.
//
// Facts that cannot be observed again are written ahead into status.rollout (step WriteNote). These are the start of an attempt, the failure of a
// node, and the timeout of a drain. All other facts, most importantly the boot ID, are read each time.
//
// This table contains every change of a node's phase (status.rollout.phase; "none" before the first note). The tests read it from here, and fail for a
// change without a row and for a row without a change. The last column lists the steps that may accompany the change, apart from writes of notes,
// guards, maintenance conditions and existing claims. A drain that finishes within drainNoteDelay is never written as a phase.
//
//	from                        | to                          | because                                                                 | steps
//	none, Waiting, UpToDate     | Applying                    | the agent has not reported the desired settings                         | -
//	none, Applying, Waiting     | UpToDate                    | no reboot is due                                                        | -
//	none                        | Waiting                     | a reboot is due; the reason is the obstacle                             | ReleaseClaim
//	Applying, UpToDate          | Waiting                     | a reboot is due; the reason is the obstacle                             | -
//	none, Waiting, UpToDate     | Failed                      | all permits for this boot hash are used up                              | -
//	none, Waiting, Failed       | Claimed                     | its turn: approval, window, budget and canary allow it                  | AddClaim
//	none, Waiting, Claimed      | Draining                    | the API server has accepted the claim                                   | Cordon, Drain
//	Draining                    | Rebooting                   | pods and mounts are gone                                                | GivePermit
//	Draining                    | Waiting                     | the drain timed out, or a user removed the cordon                       | Uncordon, ReleaseClaim
//	none, Draining              | Releasing                   | a rule or a person stopped the disruption, or others remove the Node    | -
//	Draining                    | Failed                      | all permits for this boot hash are used up                              | -
//	Draining, Rebooting, Failed | Settling                    | the node has booted and has every desired value                         | -
//	Rebooting                   | Draining                    | the permit was rejected, or the desired settings have changed           | ClearPermit, Drain
//	Rebooting                   | Waiting                     | the permit was not used in time, or a user removed the cordon           | ClearPermit, Uncordon, ReleaseClaim
//	Rebooting                   | Releasing                   | a person stopped the disruption, or others remove the Node              | ClearPermit
//	Rebooting                   | UpToDate                    | the node has booted, and a user owns its cordon                         | ClearPermit, ReleaseClaim
//	Rebooting                   | Failed                      | the node is late, the boot had no effect, or the agent could not reboot | ClearPermit, Uncordon, ReleaseClaim
//	Releasing                   | Applying, UpToDate, Waiting | the node is back in service                                             | Uncordon, ReleaseClaim
//	Settling                    | UpToDate                    | it stayed healthy for settleSeconds                                     | ClearPermit, Uncordon, ReleaseClaim
//	Settling                    | Rebooting                   | it is no longer healthy                                                 | -
//	Settling                    | Failed                      | it is no longer healthy, and late                                       | -
//	Failed                      | Rebooting                   | a retry of a node that is still drained                                 | GivePermit
//	Failed                      | UpToDate                    | it has the desired settings after all                                   | -
//	Failed                      | Waiting                     | the boot hash has changed, or a user requested a retry                  | -
//
// Decisions that are not in the API's documentation:
//
//   - A claim takes effect only after the API server has accepted it.
//   - Budget that a pass frees is used after the API server has accepted the release, by the same pass or the next.
//   - If a user uncordons a node during its drain (the annotation is still there), the user owns the node. The annotation and the claim are
//     removed, and the node may be claimed again after BackOff. A permit that the agent has not used is withdrawn before.
//   - If a user removes the operator's annotation from a cordoned node, the user owns the cordon from then on.
//   - A failure is kept until the boot hash changes, the node has the desired settings after all, or a user requests a retry. It is recorded in
//     an object that outlives the node (failures.go), before any step that removes the facts from which it is derived.
//   - A Node that disappears while it has a permit has failed, unless others had marked it for removal while it was Ready. A later mark does not
//     count, because a node that is down may be removed because of the reboot. The claim names the permit before it is given, so that no crash
//     loses a failure. The UID of the Node prevents a second count. If the manager crashes between the two writes and the Node is deleted before
//     the next pass, this counts as a failure although no permit was given. That is rare, and the safe choice.
//   - A retry is honored once for each value. The notes of existing nodes are reset first, then the recorded failures are cleared. Until then no
//     new disruption starts. Permits are counted for each boot hash, and the count is never reset while the hash stays: a node gets at most
//     MaxAttempts reboots.
//   - A timed-out drain, a removed cordon and a rejected permit are no failures of the node.
//   - After a drain that finished without a reboot, the node gets a pause that doubles each time (backoff.go), and other nodes are preferred as
//     canary. A drain that a pause or a window stopped does not count. Pods that run to completion postpone a node once.
//   - The canary of a change consists of the first nodes with the same boot hash in a profile, so that each combination of settings has its
//     evidence. Nodes that cannot be disrupted are skipped, unless their disruption has already started.
//   - A disruption may start while a window is open, regardless of the time that is left. When the window closes, nodes without a permit are
//     released, and nodes with a permit finish, unless it is overdue. Until the reboot has started, every other rule of a user ends the permit.
//   - The withdrawal of a permit and the announcement of its reboot name the version that was read, so one of them meets a conflict.
//   - Zones in turn: no node of a profile is claimed while nodes of the profile are disrupted in another zone. A node that cannot be rebooted
//     delays no other node, and a drain keeps other zones waiting for at most ZonePatience. Nodes without a zone come last.
//   - A node whose taint announces its removal by others counts as gone: it is neither claimed nor a canary, and it uses up budget. A disruption
//     that has already started on it is not continued, but a failed reboot is still recorded as a failure.
//   - A node that serves nothing yet (untuned taint, no pods) is claimed before all others, regardless of its zone. It needs budget, canary,
//     window and approval like any other node.
package plan
