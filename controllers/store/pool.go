package store

import "sync"

// Sizes of a generation. See NewPool.
const (
	maxTexts = 1 << 16
	maxLists = 1 << 10
	maxNodes = 1 << 13
)

// Pool keeps one immutable value for each key. It is safe for concurrent use. The zero value keeps all values: use NewPool or Limit. Package unique
// does not fit: it drops a string without a handle, and cached objects only contain strings.
type Pool[V any] struct {
	mutex      sync.Mutex
	size       int
	young, old map[string]V
}

// NewPool returns a pool of two generations of at most size values each. A full young generation replaces the old one. Values that were used in the
// meantime are in both.
func NewPool[V any](size int) *Pool[V] { return &Pool[V]{size: size} }

// Share returns the value of a key. It calls create if there is none yet.
func (p *Pool[V]) Share(key string, create func() V) V {
	return p.Update(key, func(known V, found bool) V {
		if found {
			return known
		}
		return create()
	})
}

// Update replaces the value of a key by the result of change, and returns it.
func (p *Pool[V]) Update(key string, change func(known V, found bool) V) V {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known, found := p.young[key]
	if found {
		p.young[key] = change(known, true)
		return p.young[key]
	}
	known, found = p.old[key]
	value := change(known, found)
	if p.young == nil || p.size > 0 && len(p.young) >= p.size {
		p.young, p.old = map[string]V{}, p.young
	}
	p.young[key] = value
	return value
}

// Limit sets the size of a generation, at least 1. See NewPool.
func (p *Pool[V]) Limit(size int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.size = max(size, 1)
}
