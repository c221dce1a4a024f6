// Package memapi is an API server in memory for simulations: it holds typed objects, and answers a client.Client by the rules that
// reconcilers rely on: resource versions and conflicts, generations, status as a resource of its own, finalizers, selectors, and
// evictions that PodDisruptionBudgets hold back. Clients may see the past of any kind, and their calls may be refused, answered late,
// or fail although they took effect.
//
// It is fast, since nothing is encoded: what is stored is never changed, only replaced. It knows the kinds and the requests that the
// rollout and the node controller use, and no others: everything else is an error that says so. Server-side apply is among what it
// does not know; no reconciler of the manager uses it. Times are kept as they are, so a simulation's clock goes in whole seconds, as
// the API's times do. It is for one goroutine.
package memapi
