package profile

import (
	"sync"
	"time"
)

// pacer spaces the passes over each profile. It is the one thing kept in memory: to forget it costs a pass.
type pacer struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// timeLeft is how long a profile's next pass has to wait; not positive: it may go.
func (p *pacer) timeLeft(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.last[name]
	if !known {
		return 0
	}
	return last.Add(passEvery).Sub(now)
}

func (p *pacer) markPass(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	p.last[name] = now
}

func (p *pacer) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, name)
}
