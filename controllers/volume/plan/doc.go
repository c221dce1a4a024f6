// Package plan decides how changed mount options reach PersistentVolumes, and how the original options are restored. It is pure: a Snapshot is
// its only input, and it uses neither a client nor a clock.
//
//	For(Snapshot) Plan                         // the next writes, and a note for every volume
//	Summarize(profile, Snapshot) Summary       // the volumes in a profile's status
//	StaleMounts(summary.Volumes, clientNodes)  // mounts from before a change
//	Snapshot.Mounted()                         // the mounted volumes in the specs of nodes
//
// Each of them uses package judge to evaluate volumes.
//
// The plan removes options at once if no rule selects the volume any longer, or if a pod could not mount it. It adds options in batches. The
// canary of an option set comes first: one volume, alone. Later batches are limited to the share of the profile. No batch starts while another
// one soaks, or after a FailedMount.
//
// The second volume of a set waits for evidence that the options of the first one work: a mount that was made with them. A StorageClientNode
// or Snapshot.Evidence reports it. A profile may instead accept the soak.
//
// The volumes hold most of this state: each volume of a batch carries its mark, which includes the evidence for the set. If a batch does not
// fit in one pass, the next pass may join it for a minute.
package plan
