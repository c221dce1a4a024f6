package store

// Basis is what a value was made from.
type Basis[B any] interface {
	// IsSame reports whether the same would be made from the other one, which is newer.
	IsSame(newer B) bool
}

// Memo keeps a value for each key as long as the value's basis stays the same. It is for any number of goroutines. The zero value keeps the
// values of all keys: see Limit.
type Memo[B Basis[B], V any] struct{ pool Pool[made[B, V]] }

type made[B, V any] struct {
	from  B
	value V
}

// Get returns the value of a key. It calls create if there is none, or one that was made from something else. The memo keeps the newest
// basis: a comparison by version is short.
func (m *Memo[B, V]) Get(key string, from B, create func() V) V {
	return m.pool.Update(key, func(known made[B, V], found bool) made[B, V] {
		if found && known.from.IsSame(from) {
			return made[B, V]{from, known.value}
		}
		return made[B, V]{from, create()}
	}).value
}

// Limit has the memo keep the values of so many keys, and of as many that were not asked for since.
func (m *Memo[B, V]) Limit(keys int) { m.pool.Limit(keys) }
