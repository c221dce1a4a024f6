// Package metrics exports the state of profiles, nodes and the rollout to Prometheus. States are read from the manager's cache at each scrape, so
// that they never differ from the objects. Events are counted from the changes of StorageClientNodes. Only the leading manager reports: sums over
// replicas count everything once.
//
// Labels are bounded: profiles, and the words of the API. Only one label names nodes; it covers failed nodes, up to a maximum. docs/reference.md is
// generated from the declarations here.
package metrics
