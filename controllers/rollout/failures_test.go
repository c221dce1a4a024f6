package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

// TestAPoisonLosesNoMoreMachinesThanTheThreshold has a boot argument that no machine survives, and a cloud that replaces each
// machine that has been down for ten minutes, under its name or under another.
func TestAPoisonLosesNoMoreMachinesThanTheThreshold(t *testing.T) {
	for _, renamed := range []bool{true, false} {
		for _, threshold := range []int32{1, 3} {
			t.Run(fmt.Sprintf("renamed %t, threshold %d", renamed, threshold), func(t *testing.T) {
				w := newWorld(1)
				w.quiet, w.verbose, w.calmly = true, true, true
				w.repairAfter, w.renames = 10*time.Minute, renamed
				var all []string
				for i := range 40 {
					all = append(all, fmt.Sprintf("n%02d", i))
				}
				p := w.addProfile("eda", func(r *v1alpha1.Rollout) { r.FailureThreshold = ptr.To(threshold) }, all...)
				p.bootsAs = bootNever
				for _, name := range all {
					w.addNode(name)
				}
				for end := w.now.Add(8 * time.Hour); w.now.Before(end); {
					w.playCalmly()
				}
				if w.broken != nil {
					t.Error(w.broken)
				}
				if w.lost != int(threshold) {
					t.Errorf("%d machines were lost, want %d", w.lost, threshold)
				}
			})
		}
	}
}

func (m *manager) writeFailures(_ context.Context, failures map[string]v1alpha1.ProfileFailures) error {
	m.intrudeAt("failures")
	if m.recalledRV != m.failuresRV {
		return conflict("failures")
	}
	m.failuresRV++
	m.failures, m.recalled, m.recalledRV = failures, failures, m.failuresRV
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		m.narrate("%s: failures of %s: %s", m.name, name, failures[name].Encode())
	}
	return nil
}
