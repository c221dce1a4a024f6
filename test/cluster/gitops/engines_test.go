//go:build gitops

package gitops

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// TestEngines starts one cluster for all stories. Each story uses separate objects and removes its profiles.
func TestEngines(t *testing.T) {
	w := start(t)
	a := w.startArgoCD(t)
	f := w.startFlux(t, gate)
	t.Run("Argo CD shows a node that failed, and its way back", func(t *testing.T) { failureStory(t, a) })
	t.Run("Argo CD applies a profile from its first sync to its deletion", func(t *testing.T) { profileStory(t, a) })
	t.Run("Argo CD and the operator write the same volumes", func(t *testing.T) { volumesStory(t, a) })
	t.Run("Flux applies a profile and a volume", func(t *testing.T) { fluxStory(t, f) })
	t.Run("Argo CD manages the operator from its manifests", func(t *testing.T) { operatorStory(t, a, manifests) })
	t.Run("Argo CD manages the operator from its chart", func(t *testing.T) { operatorStory(t, a, chart) })
	a.startServer(t)
	t.Run("a sync with waves waits for the profile", func(t *testing.T) { wavesStory(t, a) })
	t.Run("a sync with waves fails with its profile", func(t *testing.T) { failedWavesStory(t, a) })
	t.Run("an ApplicationSet starts with the canary pool", func(t *testing.T) { rollingStory(t, a) })
}
