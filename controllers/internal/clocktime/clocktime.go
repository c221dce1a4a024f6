// Package clocktime reads times that objects store. A clock that jumped ahead, or that was set back since, leaves times in the future: a wait that
// counts from such a time would not end. A time that these functions change must be written again, because it would change again with each read.
package clocktime

import "time"

// MaxSkew is the largest difference between the clocks of the API server, a node and a controller for which their times count.
const MaxSkew = 10 * time.Minute

// IsAhead reports whether a time is further in the future than the clocks may differ.
func IsAhead(stored, now time.Time) bool { return stored.After(now.Add(MaxSkew)) }

// Past returns the time at which something happened. A stored time that is ahead counts as now.
func Past(stored, now time.Time) time.Time {
	if IsAhead(stored, now) {
		return now
	}
	return stored
}

// End returns the time at which a wait ends that lasts at most for the given time. The zero time stays: there is no wait.
func End(stored, now time.Time, longest time.Duration) time.Time {
	if end := now.Add(longest); stored.After(end) {
		return end
	}
	return stored
}
