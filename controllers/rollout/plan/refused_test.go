package plan

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestForClaimsNothingWhileAConfigMapIsImmutable(t *testing.T) {
	f := cluster("a")
	f.Immutable = []string{"system/storage-client-rollout"}
	next := For(f.Snapshot)
	note := next.Notes["a"]
	if len(next.Steps) > 0 || note.Reason != v1alpha1.RolloutReasonConfigMapImmutable || !strings.Contains(note.Message, "system/storage-client-rollout, which is immutable") {
		t.Errorf("got %v, %s: %s; want no steps, and the ConfigMap in the message", lines(next), note.Reason, note.Message)
	}
}

func TestWithRefusal(t *testing.T) {
	note := v1alpha1.RolloutStatus{Message: "m"}
	once := WithRefusal(note, errors.New(strings.Repeat("e", 2*MaxMessage)))
	if twice := WithRefusal(once, errors.New("no")); utf8.RuneCountInString(once.Refusal) > MaxMessage || twice.Refusal != "no" || twice.Message != "m" {
		t.Errorf("got %d characters, then %+v; want a short rejection, and then the new one", utf8.RuneCountInString(once.Refusal), twice)
	}
}

// The planner does not use the rejection of an earlier write: the next note omits it.
func TestForLeavesARefusalOut(t *testing.T) {
	f := cluster("a")
	f.Paused = true
	f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.ReasonPausedByAnnotation, time.Minute).Refusal = "forbidden"
	if note := For(f.Snapshot).Notes["a"]; note.Refusal != "" || note.Reason != v1alpha1.ReasonPausedByAnnotation {
		t.Errorf("got %+v, want a pause without the rejection", note)
	}
	// A note that is otherwise unchanged.
	f.node("a").ClientNode.Status.Hash, f.node("a").ApplyingSince = "h0", noon
	if note, noted := For(f.Snapshot).Notes["a"]; !noted || note.Refusal != "" || note.Reason != v1alpha1.ReasonPausedByAnnotation {
		t.Errorf("while the agent applies: got a note %t, %+v; want a pause without the rejection", noted, note)
	}
}
