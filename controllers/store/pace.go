package store

import "time"

// Pace spaces what is done again and again. The zero value lets it begin.
type Pace struct{ last time.Time }

// Left returns for how long the next one has to wait, with this much time between two; 0: it may begin. A clock that went back keeps
// nothing waiting.
func (p *Pace) Left(every time.Duration, now time.Time) time.Duration {
	if left := p.last.Add(every).Sub(now); left > 0 && left <= every {
		return left
	}
	return 0
}

// Begin returns what Left does, and notes the time if the next one begins.
func (p *Pace) Begin(every time.Duration, now time.Time) time.Duration {
	left := p.Left(every, now)
	if left == 0 {
		p.last = now
	}
	return left
}
