package host

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CLOCK_BOOTTIME is never behind CLOCK_MONOTONIC, which stops while the machine is suspended. The wall clock is decades ahead.
func TestTheBootClockCountsFromTheBoot(t *testing.T) {
	var monotonic unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
		t.Fatal(err)
	}
	first, err := SystemBootClock{}.SinceBoot()
	if err != nil {
		t.Fatal(err)
	}
	second, err := SystemBootClock{}.SinceBoot()
	if err != nil {
		t.Fatal(err)
	}
	const decades = 20 * 365 * 24 * time.Hour
	if first < time.Duration(monotonic.Nano()) || second < first || second > decades {
		t.Errorf("since the boot: %s, then %s; CLOCK_MONOTONIC before: %s", first, second, time.Duration(monotonic.Nano()))
	}
}
