package gitops

import (
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A StorageClientNode has no health script. kstatus is based on the conditions that its agent reports.
func TestANodeThatFailedIsNotCurrent(t *testing.T) {
	for name, test := range map[string]struct {
		ready, stalled string
		want           status.Status
	}{
		"all read back":        {"True", "False", status.CurrentStatus},
		"a reboot is due":      {"False", "False", status.InProgressStatus},
		"a setting has failed": {"False", "True", status.FailedStatus},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := []any{}
			if test.ready != "" {
				conditions = append(conditions, map[string]any{"type": "Ready", "status": test.ready}, map[string]any{"type": "Stalled", "status": test.stalled})
			}
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "tuning.storageclient.dev/v1alpha1", "kind": "StorageClientNode", "metadata": map[string]any{"name": "n", "generation": int64(3)},
				"status": map[string]any{"observedGeneration": int64(3), "conditions": conditions},
			}}
			if got, err := status.Compute(object); err != nil || got.Status != test.want {
				t.Errorf("got %v (%v), want %s", got, err, test.want)
			}
		})
	}
}
