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
// Options that it is to get come in batches: the canary of a set of options first, which is one volume and goes alone, then
// no more at a time than the profile's share, and nothing while a batch soaks or after a FailedMount. The second volume of a set
// waits for evidence that the first one's list works: a mount that was made with it, as a client node or Snapshot.Evidence tells,
// unless the profile has the soak be enough. What stands on the volumes is the only memory of this: volumes of a batch carry its
// mark, and the mark what has shown its set to work. A batch that could not be written in one pass is joined by the next, for a
// minute.
package plan
