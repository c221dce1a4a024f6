package write

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestAFieldThatTheServerDropsIsNotWrittenAgain(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	tuned := func(at time.Time) v1alpha1.RolloutStatus {
		return v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate, Tuned: &v1alpha1.RolloutTuned{Hash: "h", Since: metav1.NewTime(at)}}
	}
	var d Dropped
	stored := v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate}
	if d.Covers(stored, tuned(at), at) {
		t.Error("a difference that was never written is covered")
	}
	if diff := cmp.Diff([]string{"tuned"}, d.Learn(tuned(at), stored, at)); diff != "" {
		t.Errorf("dropped fields (-want +got):\n%s", diff)
	}
	later := at.Add(15 * time.Second)
	if got := d.Learn(tuned(later), stored, later); len(got) > 0 {
		t.Errorf("got %v again, want it reported once", got)
	}
	if !d.Covers(stored, tuned(later), later) {
		t.Error("the dropped field is written again")
	}
	changed := tuned(later)
	changed.Message = "m"
	if d.Covers(stored, changed, later) || d.Covers(changed, stored, later) {
		t.Error("another field, or its removal, is not written")
	}
	for name, now := range map[string]time.Time{"after an hour": later.Add(droppedFor), "after the clock went back": later.Add(-droppedFor)} {
		if d.Covers(stored, tuned(now), now) {
			t.Errorf("%s: the field is not written although the definitions may be newer", name)
		}
	}
}
