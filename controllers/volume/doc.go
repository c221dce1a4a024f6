// Package volume brings the mount options that profiles declare to existing PersistentVolumes, and puts the volumes' own
// options back. There is one request for all volumes: a pass reads a snapshot from the cache, asks the planner (package
// plan) what to write, and writes it, one patch a volume.
//
// A batch begins by what the API server has, and not the cache: the pass then reads the volumes live, and the events that
// tell of failed mounts, and plans again. Each patch carries the resource version of what was decided upon, so that of two
// managers, or of us and somebody else, one loses and reads again. Nothing is kept from one pass to the next that a
// decision rests on, but for which writes the API server refused.
//
// The rooms below are for whoever judges volumes: judge and plan are pure, snapshot reads what they go by.
package volume
