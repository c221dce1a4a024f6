package plan

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestForClaimsNothingWhileAConfigMapIsImmutable(t *testing.T) {
	f := cluster("a")
	f.Immutable = []string{"system/storage-client-rollout"}
	next := For(f.Snapshot)
	note := next.Notes["a"]
	if len(next.Steps) > 0 || note.Reason != v1alpha1.RolloutReasonConfigMapImmutable || !strings.Contains(note.Message, "system/storage-client-rollout, which is immutable") {
		t.Errorf("%v, %s: %s", lines(next), note.Reason, note.Message)
	}
}

func TestWithRefusal(t *testing.T) {
	note := v1alpha1.RolloutStatus{Message: strings.Repeat("m", MaxMessage)}
	once := WithRefusal(note, errors.New(strings.Repeat("e", MaxMessage)))
	if twice := WithRefusal(once, errors.New("no")); utf8.RuneCountInString(once.Message) > MaxMessage || Refusal(twice) != "no" {
		t.Errorf("%d characters, refusal %q", utf8.RuneCountInString(once.Message), Refusal(twice))
	}
	if got := Refusal(note); got != "" {
		t.Errorf("a note without one says %q", got)
	}
}
