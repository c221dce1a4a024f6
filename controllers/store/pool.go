// Package store keeps what the manager remembers of the cluster's objects.
package store

import "sync"

// Limits of a pool: beyond them it forgets values that were not shared for that long.
const (
	maxTexts = 1 << 16
	maxLists = 1 << 10
	maxNodes = 1 << 13
)

// Pool keeps one copy of equal values, which nothing changes. A value that is not shared again is dropped after two generations.
// The zero value is no pool: use NewPool. (Package unique drops a string as soon as nothing holds its handle; the objects of a cache hold
// strings.)
type Pool[V any] struct {
	size       int
	mutex      sync.Mutex
	young, old map[string]V
}

// NewPool returns a pool of at most two generations of size values each.
func NewPool[V any](size int) *Pool[V] { return &Pool[V]{size: size} }

// Share returns the one value of a key. It calls create if there is none yet.
func (p *Pool[V]) Share(key string, create func() V) V {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if known, found := p.young[key]; found {
		return known
	}
	value, found := p.old[key]
	if !found {
		value = create()
	}
	if p.young == nil || len(p.young) >= p.size {
		p.young, p.old = map[string]V{}, p.young
	}
	p.young[key] = value
	return value
}

// replace makes another value the one of a key that was just shared.
func (p *Pool[V]) replace(key string, value V) V {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.young[key] = value
	return value
}
