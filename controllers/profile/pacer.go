package profile

import (
	"sync"
	"time"
)

// pacer spaces the looks at each profile. It is the one thing kept in memory: to forget it costs a look.
type pacer struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// left is how long a profile's next look has to wait; not positive: it may go.
func (p *pacer) left(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.last[name]
	if !known {
		return 0
	}
	return last.Add(lookEvery).Sub(now)
}

func (p *pacer) note(name string, now time.Time) {
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
