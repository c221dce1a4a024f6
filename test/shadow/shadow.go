// Package shadow compares the session of a rollout's pass with a new one.
package shadow

import (
	"reflect"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/controllers/rollout/plan"
)

// Diff returns the differences between the plan of a new session of the whole cluster and the plan of this session; empty if there are none. It
// ignores counts of evictions, which continue during the pass.
func Diff(session *plan.Session, whole plan.Snapshot) string {
	plans := [2]plan.Plan{plan.NewSession(whole).Plan(), session.Plan()}
	for _, p := range plans {
		for i, step := range p.Steps {
			if write, ok := step.(plan.WriteNote); ok {
				write.Note.Evictions = 0
				p.Steps[i] = write
			}
		}
		for node, note := range p.Notes {
			note.Evictions = 0
			p.Notes[node] = note
		}
	}
	if reflect.DeepEqual(plans[0], plans[1]) {
		return ""
	}
	return cmp.Diff(plans[0], plans[1])
}
