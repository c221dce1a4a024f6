// Package volume writes the mount options that profiles declare to existing PersistentVolumes, and restores the original options. There is one
// request for all volumes: a pass reads a snapshot from the cache, gets the next writes from the planner (package plan), and writes one patch
// per volume.
//
// A batch starts only after a live read: the pass reads the volumes and the events about failed mounts from the API server, and plans again.
// Each patch carries the resource version of the evaluated object. Thus one of two concurrent writers fails and reads again: two managers, or
// the operator and another client. Between passes, decisions depend only on one fact in memory: the writes that the API server rejected.
//
// The packages below evaluate volumes: volume/judge and plan are pure, snapshot reads their input.
package volume
