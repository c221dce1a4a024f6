// Package plan decides what the rollout does next. It has no client, no clock and no memory: a Snapshot of
// what the API objects say goes in, ordered steps and a note for every node come out, and whoever applied only
// some of the steps, or none, asks again.
//
// What cannot be observed again is written ahead into status.rollout (step WriteNote): that an attempt begins,
// that a node failed, that a drain timed out. Everything else, the boot ID above all, is read each time.
//
// Decisions that are not in the API's documentation:
//
//   - A claim is acted upon only once the API server has taken it.
//   - Budget that a pass frees is spent once the API server has accepted the release, by the same pass or the next.
//   - Somebody uncordons a node that we drain (the annotation is still there): the node is theirs. The mark and the
//     claim go, and it may be claimed again after BackOff. If the agent already has a permit, the node is cordoned again
//     until the agent has answered, since it may go down at any moment; then the permit is withdrawn and the node returned to them.
//   - Somebody takes our annotation off a cordoned node: the cordon is theirs from then on.
//   - A failure is kept until the boot hash changes, the node has the wanted settings after all or somebody asks for a retry. It is
//     remembered in an object that outlives the node (failures.go), and written there before any step that takes away what it follows
//     from. A Node that goes while it has a permit has failed, unless others had marked it for removal while it was Ready: who
//     takes a node away that is down after its permit may do so because of it. The claim tells of the permit from before it is given, so
//     that no crash loses a failure; the Node's UID keeps each from counting twice. A crash between the two, and the Node deleted before
//     the next pass, count as a failure although no permit was given: that is rare, and the safe side.
//   - A retry is honoured once for each value. Notes of nodes that are there start anew first, then what is remembered is forgotten, and
//     until then nothing new begins. Permits are counted for a
//     boot hash and never forgiven while it stays: MaxAttempts reboots at most, whatever happens in between.
//   - A drain that timed out, a cordon that was taken away and a refused permit are no failures of the node.
//   - A drain that ended without a reboot has its node left alone, twice as long each time (backoff.go), and other nodes are the canary before
//     it. What people or the clock end, a pause or a window, does not count. Pods that run to their end pass a node over once.
//   - The canary of a change are the first nodes of those that get the same boot settings from a profile, so that each
//     combination of settings has its evidence. Nodes that cannot be disrupted are passed over, unless we have begun with them.
//   - A disruption may begin as long as a window is open, however short the rest of it. What has no permit when it closes
//     is released; what has one finishes.
//   - Zones in turn: no node of a profile is claimed while nodes of it are disrupted in another zone. Who cannot go delays
//     nobody, and a drain keeps other zones waiting for ZonePatience at most. Nodes without a zone come last.
//   - A node with a taint by which others say that they are about to take it away is as good as gone: it is neither claimed nor a
//     canary and uses up budget. What we have begun on it stays as it is, but a reboot that goes wrong is a failure all the same.
//   - A node that serves nothing yet (untuned taint, no pods) is claimed before all others and whatever its zone. It needs
//     budget, canary, window and approval like any other.
package plan
