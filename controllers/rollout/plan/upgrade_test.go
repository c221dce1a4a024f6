package plan

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// formerStatus is the status of a node as the agent and manager of the previous release wrote it. No setting has waitsFor. The
// note contains the response of the API server in its message, and lacks the fields that were added later.
const formerStatus = `{
	"observedGeneration": 3, "hash": "h1", "bootID": "a-1", "rebootRequired": true, "rebootRequiredBy": ["kernelArgument/ihash_entries"],
	"settings": [
		{"key": "kernelArgument/ihash_entries", "desired": "1", "takesEffect": "Reboot", "state": "Pending", "message": "staged; takes effect at the next boot"},
		{"key": "sysctl/net.core.rmem_max", "desired": "16777216", "observed": "16777216", "takesEffect": "Live", "state": "InSync"}
	],
	"rollout": {
		"phase": "Waiting", "reason": "WaitingForBudget", "since": "2026-09-01T11:00:00Z", "bootHash": "h1",
		"message": "Waiting for its turn [trying again: nodes \"a\" is forbidden: no]"
	}
}`

// The manager adopts the status from the previous release. The soak starts when it first sees the settings, and it repeats the
// request that the API server rejected.
func TestForTakesOverFromTheReleaseBefore(t *testing.T) {
	f := cluster("a")
	f.Paused = true
	c := f.node("a").ClientNode
	c.Spec.Settings = append(c.Spec.Settings, v1alpha1.NodeSetting{Key: "sysctl/net.core.rmem_max", Value: "16777216", Profile: "eda"})
	c.Status = v1alpha1.StorageClientNodeStatus{}
	if err := json.Unmarshal([]byte(formerStatus), &c.Status); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.RolloutStatus{
		Phase: v1alpha1.RolloutWaiting, Reason: v1alpha1.ReasonPausedByAnnotation, Message: "Everything is paused by the annotation on the manager's namespace",
		Since: &metav1.Time{Time: noon.Add(-time.Hour)}, BootHash: "h1", Tuned: &v1alpha1.RolloutTuned{Hash: "h1", Since: metav1.NewTime(noon)},
	}
	if diff := cmp.Diff(want, For(f.Snapshot).Notes["a"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.Paused = false
	if got, want := lines(For(f.Snapshot)), []string{"claim a for eda"}; !cmp.Equal(want, got) {
		t.Errorf("next steps: got %q, want %q", got, want)
	}
	// The agent of the previous release confirms a setting that the note does not count yet.
	f.Paused = true
	c.Status.Settings[1].State, c.Status.Settings[1].Message = v1alpha1.SettingPending, "set, proving over new connections until 12:00:00 UTC"
	if note := For(f.Snapshot).Notes["a"]; note.Tuned != nil {
		t.Errorf("got a soak since %+v, want none before the setting is confirmed", note.Tuned)
	}
}
