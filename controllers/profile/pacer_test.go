package profile

import (
	"testing"
	"time"
)

func TestPacerSpacesThePassesOverEachProfile(t *testing.T) {
	var paced pacer
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if left := paced.timeLeft("a", now); left > 0 {
		t.Errorf("the first pass waits %s", left)
	}
	paced.markPass("a", now)
	if left := paced.timeLeft("a", now.Add(500*time.Millisecond)); left != 1500*time.Millisecond {
		t.Errorf("half a second later %s are left, want 1.5s", left)
	}
	if left := paced.timeLeft("b", now); left > 0 {
		t.Errorf("another profile waits %s", left)
	}
	if left := paced.timeLeft("a", now.Add(passEvery)); left > 0 {
		t.Errorf("after %s there are still %s left", passEvery, left)
	}
	paced.forget("a")
	if left := paced.timeLeft("a", now); left > 0 {
		t.Errorf("a profile that is gone is remembered for %s", left)
	}
}
