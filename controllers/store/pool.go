package store

import "sync"

// Limits of pools: beyond them a pool forgets values that were not shared for that long.
const (
	maxTexts = 1 << 16
	maxLists = 1 << 10
	maxNodes = 1 << 13
)

// Pool keeps one value for each key, which nothing changes. It is for any number of goroutines. The zero value keeps all values: use NewPool
// or Limit. (Package unique drops a string as soon as nothing holds its handle; the objects of a cache hold strings.)
type Pool[V any] struct {
	mutex      sync.Mutex
	size       int
	young, old map[string]V
}

// NewPool returns a pool of at most two generations of size values each. A value that is not shared again is dropped after these.
func NewPool[V any](size int) *Pool[V] { return &Pool[V]{size: size} }

// Share returns the one value of a key. It calls create if there is none yet.
func (p *Pool[V]) Share(key string, create func() V) V {
	return p.Update(key, func(known V, found bool) V {
		if found {
			return known
		}
		return create()
	})
}

// Update keeps what change makes of the value of a key, and returns it.
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

// Limit has the pool keep two generations of size values each from now on.
func (p *Pool[V]) Limit(size int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.size = max(size, 1)
}
