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

// Users apply the newer definitions a minute after the event. The next write stores the field.
func TestAFieldThatIsStoredAgainIsNoLongerDropped(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	tuned := func(hash string) v1alpha1.RolloutStatus {
		return v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate, Tuned: &v1alpha1.RolloutTuned{Hash: hash, Since: metav1.NewTime(at)}}
	}
	var d Dropped
	d.Learn(tuned("a"), v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate}, at)
	if got := d.Learn(tuned("b"), tuned("b"), at.Add(time.Minute)); len(got) > 0 {
		t.Errorf("got %v dropped, want none", got)
	}
	if d.Covers(tuned("b"), tuned("c"), at.Add(2*time.Minute)) || d.Covers(v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate}, tuned("c"), at.Add(2*time.Minute)) {
		t.Error("the API server stores the field, but a change is not written")
	}
}

// nested is a status with a newer field inside an object, and inside the items of a list.
type nested struct {
	Plan  item   `json:"plan"`
	Items []item `json:"items,omitempty"`
}

type item struct {
	Hash  string `json:"hash"`
	Newer string `json:"newer,omitempty"`
	// Plain is a newer field that is present in each status.
	Plain int64 `json:"plain"`
}

// The definitions have an object, but not all of its fields. The other fields stay writable.
func TestADroppedFieldInsideAnotherHidesNoChange(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	newer, older := item{"a", "x", 9007199254740993}, item{Hash: "a"}
	var d Dropped
	names := d.Learn(nested{newer, []item{newer, newer}}, nested{older, []item{older, older}}, at)
	if diff := cmp.Diff([]string{"items[].newer", "items[].plain", "plan.newer", "plan.plain"}, names); diff != "" {
		t.Errorf("dropped fields (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct {
		desired nested
		covered bool
	}{
		"the dropped fields":    {nested{item{"a", "y", 1}, []item{newer, {"a", "z", 2}}}, true},
		"a field of the object": {nested{item{"b", "x", 1}, []item{newer, newer}}, false},
		"a field of an item":    {nested{newer, []item{newer, {"b", "x", 1}}}, false},
		"another item":          {nested{newer, []item{newer, newer, newer}}, false},
		"the items":             {nested{newer, nil}, false},
	} {
		if got := d.Covers(nested{older, []item{older, older}}, test.desired, at.Add(time.Minute)); got != test.covered {
			t.Errorf("%s: covered %t, want %t", name, got, test.covered)
		}
	}
	var none Dropped
	if names := none.Learn(nested{newer, nil}, nested{item{"b", "y", 9007199254740992}, nil}, at); len(names) > 0 {
		t.Errorf("got %v dropped, which have another value", names)
	}
	if none.Covers(nested{newer, nil}, nested{item{"a", "x", 9007199254740992}, nil}, at) {
		t.Error("a large number that differs by 1 is not written")
	}
}

// The API server stores the replacement character for bytes that are no UTF-8.
func TestInvalidUTF8IsNoDroppedField(t *testing.T) {
	written, stored := v1alpha1.RolloutStatus{Message: "a\xff"}, v1alpha1.RolloutStatus{Message: "a\uFFFD"}
	var d Dropped
	if names := d.Learn(written, stored, time.Unix(1, 0)); len(names) > 0 || !d.Covers(stored, written, time.Unix(1, 0)) {
		t.Errorf("got %v dropped, want an equal status", names)
	}
}
