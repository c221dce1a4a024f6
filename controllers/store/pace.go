package store

import "time"

// Pace spaces repeated work. The zero value allows the first run.
type Pace struct{ last time.Time }

// Left returns the time until the next run, at the given interval; 0: it may start. A clock that was set back does not delay a run.
func (p *Pace) Left(every time.Duration, now time.Time) time.Duration {
	if left := p.last.Add(every).Sub(now); left > 0 && left <= every {
		return left
	}
	return 0
}

// Begin returns the result of Left, and records the time if the next run starts.
func (p *Pace) Begin(every time.Duration, now time.Time) time.Duration {
	left := p.Left(every, now)
	if left == 0 {
		p.last = now
	}
	return left
}
