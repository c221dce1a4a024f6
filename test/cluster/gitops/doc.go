// Package gitops runs Argo CD and Flux on a real control plane with the manager and simulated nodes. "make test-gitops" builds and runs
// its tests, which are behind the build tag gitops.
package gitops
