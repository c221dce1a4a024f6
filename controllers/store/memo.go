package store

// Basis is the source of a value.
type Basis[B any] interface {
	// IsSame reports whether the newer basis would produce the same value.
	IsSame(newer B) bool
}

// Memo keeps a value for each key while the value's basis is unchanged. It is safe for concurrent use. The zero value keeps all values: use Limit.
type Memo[B Basis[B], V any] struct{ pool Pool[made[B, V]] }

type made[B, V any] struct {
	from  B
	value V
}

// Get returns the value of a key. It calls create if there is no value, or if its basis has changed. It compares with the basis that the value was
// made from, not with the last one: IsSame need not be transitive.
func (m *Memo[B, V]) Get(key string, from B, create func() V) V {
	return m.pool.Update(key, func(known made[B, V], found bool) made[B, V] {
		if found && known.from.IsSame(from) {
			return known
		}
		return made[B, V]{from, create()}
	}).value
}

// Limit sets the size of a generation, in keys. See NewPool.
func (m *Memo[B, V]) Limit(keys int) { m.pool.Limit(keys) }
