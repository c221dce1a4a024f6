// Package rollout disrupts nodes: it claims budget, cordons, drains, permits a reboot, and returns nodes to service. It
// reads a snapshot, has package plan decide on steps and notes, and applies them.
//
// It plans from the cache, reads live what the plan touches, and plans again: a stale cache costs a pass and nothing
// else. Before a node is claimed, all of them are read live. Each write carries the resource version of what was
// decided upon, so that of two managers, or of us and somebody else, one loses and plans again.
package rollout
