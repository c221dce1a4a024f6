//go:build !race

package agent

// faultStep is the distance between the changes of the host that fail.
const faultStep = 1
