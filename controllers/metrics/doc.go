// Package metrics tells Prometheus how profiles, nodes and the rollout stand. What stands is read from the manager's
// cache at each scrape, so that it never differs from the objects; what happens is counted from the changes of
// StorageClientNodes. Only the manager that leads reports: sums over replicas count nothing twice.
//
// Labels are bounded: profiles, and the words of the API. The one that names nodes is for those that have failed, and
// for so many at most. docs/reference.md is made from the declarations here.
package metrics
