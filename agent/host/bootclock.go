package host

import (
	"fmt"
	"strings"
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

const uptimeFile = "/proc/uptime"

// Uptime returns the time since the boot in the host's /proc. Zero if the host does not have the file.
func (f FS) Uptime() (time.Duration, error) {
	data, err := f.ReadIfThere(uptimeFile)
	if err != nil || len(data) == 0 {
		return 0, err
	}
	seconds, _, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	up, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", uptimeFile, err)
	}
	return up, nil
}
