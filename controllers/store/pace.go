package store

import "time"

// Pace spaces repeated work. The zero value allows the first run.
type Pace struct{ last time.Time }

// Remaining returns the time until the next run, at the given interval. Zero if the run may start. A clock that was set back does not delay a run.
func (p *Pace) Remaining(every time.Duration, now time.Time) time.Duration {
	if remaining := p.last.Add(every).Sub(now); remaining > 0 && remaining <= every {
		return remaining
	}
	return 0
}

// Begin returns the result of Remaining, and records now if the run may start.
func (p *Pace) Begin(every time.Duration, now time.Time) time.Duration {
	remaining := p.Remaining(every, now)
	if remaining == 0 {
		p.last = now
	}
	return remaining
}

// Sooner returns the shortest of some waits. It ignores waits that are not positive, because 0 means forever; 0 if there is no other.
func Sooner(waits ...time.Duration) (shortest time.Duration) {
	for _, wait := range waits {
		if wait > 0 && (shortest == 0 || wait < shortest) {
			shortest = wait
		}
	}
	return shortest
}
