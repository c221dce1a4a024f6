//go:build race

package agent

// The race detector makes a pass ten times slower, and a pass changes the host from a single goroutine.
const faultStep = 40
