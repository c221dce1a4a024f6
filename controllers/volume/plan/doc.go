// Package plan decides how changed mount options reach PersistentVolumes, and how the volumes' own come back. It is pure:
// a Snapshot is all that it goes by, and it knows neither client nor clock.
//
//	For(Snapshot) Plan                         // the next writes, and a note for every volume
//	Summarize(profile, Snapshot) Summary       // what a profile's status tells of its volumes
//	StaleMounts(summary.Volumes, clientNodes)  // which mounts are from before a change
//	Snapshot.Mounted()                         // what nodes are told of the volumes that they have mounted
//
// Each of them judges volumes by the package judge.
//
// Options that a volume is to lose, since no rule selects it any more or since a pod could not mount it, go at once.
// Options that it is to get come in batches: the canary of an option set first, which is one volume and goes alone, then
// no more at a time than the profile's share, and nothing while a batch soaks or after a FailedMount. What stands on the
// volumes is the only memory of this: volumes of a batch carry its mark. A batch that could not be written in one pass is
// joined by the next, for a minute.
package plan
