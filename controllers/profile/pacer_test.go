package profile

import (
	"testing"
	"time"
)

func TestPacerSpacesTheLooksAtEachProfile(t *testing.T) {
	var looks pacer
	if left := looks.left("a", now); left > 0 {
		t.Errorf("the first look waits %s", left)
	}
	looks.note("a", now)
	if left := looks.left("a", now.Add(500*time.Millisecond)); left != 1500*time.Millisecond {
		t.Errorf("half a second later %s are left, want 1.5s", left)
	}
	if left := looks.left("b", now); left > 0 {
		t.Errorf("another profile waits %s", left)
	}
	if left := looks.left("a", now.Add(lookEvery)); left > 0 {
		t.Errorf("after %s there are still %s left", lookEvery, left)
	}
	looks.forget("a")
	if left := looks.left("a", now); left > 0 {
		t.Errorf("a profile that is gone is remembered for %s", left)
	}
}
