// Package drain takes one pass over a node's pods: it evicts what may be evicted and reports what is left. It never
// waits; whoever drains a node comes back until the result says that it is done.
package drain
