// Package rollout disrupts nodes: it claims budget, cordons, drains, permits a reboot, and returns nodes to service. It reads a snapshot, package
// plan decides on steps and notes, and it applies them.
//
// It plans from the cache, reads the affected objects live, and plans again: a stale cache only costs a pass. Before a node is claimed, all nodes
// are read live. Each write contains the resource version on which the decision was based. If two managers, or the operator and another client,
// write concurrently, one fails and plans again.
package rollout
