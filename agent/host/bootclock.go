package host

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// BootClock measures the time since the machine booted, including suspended time. Unlike the wall clock, it cannot be set.
type BootClock interface {
	// SinceBoot returns the time since the boot.
	SinceBoot() (time.Duration, error)
}

// SystemBootClock is the kernel's CLOCK_BOOTTIME.
type SystemBootClock struct{}

// SinceBoot implements BootClock.
func (SystemBootClock) SinceBoot() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
