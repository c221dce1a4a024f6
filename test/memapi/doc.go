// Package memapi is an API server in memory for simulations. It stores typed objects, and serves a client.Client by the rules that
// reconcilers rely on: resource versions and conflicts, generations, the status subresource, finalizers, selectors, and evictions that
// PodDisruptionBudgets limit. Clients may see an earlier state of any kind. Their calls may be rejected, be late, or fail although they
// took effect.
//
// It is fast because it does not encode objects: stored objects are replaced, never changed. It supports only the kinds and requests that
// the rollout and the node controller use, and returns an error for all others. It does not support server-side apply, which no reconciler
// of the manager uses. It stores times unchanged, so the clock of a simulation must use whole seconds, as in the API. It is not safe for
// concurrent use.
package memapi
