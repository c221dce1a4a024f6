// Package rollout disrupts nodes: it claims budget, cordons, drains, permits a reboot, and returns nodes to service. It
// gathers what the API objects say, asks the planner (package plan) what to do, and does it.
//
// It plans from the cache, reads live what the plan touches, and plans again: a stale cache costs a pass and nothing
// else. Before a node is claimed, all of them are read live. Each write carries the resource version of what was
// decided upon, so that of two managers, or of us and somebody else, one loses and looks again.
package rollout
