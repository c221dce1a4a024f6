package memapi

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// table contains the objects of one kind, sorted by name.
type table []client.Object

func compareKey(object client.Object, key types.NamespacedName) int {
	return cmp.Or(cmp.Compare(object.GetNamespace(), key.Namespace), cmp.Compare(object.GetName(), key.Name))
}

func (t table) find(key types.NamespacedName) (int, bool) {
	return slices.BinarySearchFunc(t, key, compareKey)
}

// get returns the object of a name. Nil if there is none.
func (t table) get(key types.NamespacedName) client.Object {
	if at, found := t.find(key); found {
		return t[at]
	}
	return nil
}

// set replaces the object of a name, or removes it if object is nil.
func (t *table) set(key types.NamespacedName, object client.Object) {
	at, found := t.find(key)
	switch {
	case found && object == nil:
		*t = slices.Delete(*t, at, at+1)
	case found:
		(*t)[at] = object
	case object != nil:
		*t = slices.Insert(*t, at, object)
	}
}

// change is one write in the form of a watch event.
type change struct {
	key types.NamespacedName
	// object is nil if the object was removed.
	object client.Object
}

// Cache contains the objects that a process has seen so far, by kind.
type Cache struct {
	server *Server
	tables [kinds]table
	seen   [kinds]int
}

// NewCache returns a cache that has seen everything so far.
func (s *Server) NewCache() *Cache {
	c := &Cache{server: s}
	for kind := range kinds {
		c.tables[kind], c.seen[kind] = slices.Clone(s.tables[kind]), len(s.changes[kind])
	}
	return c
}

// Behind returns the number of changes of a kind that the cache has not seen.
func (c *Cache) Behind(kind Kind) int { return len(c.server.changes[kind]) - c.seen[kind] }

// Advance applies the next changes of a kind to the cache, at most all of them.
func (c *Cache) Advance(kind Kind, count int) {
	for ; count > 0 && c.Behind(kind) > 0; count-- {
		next := c.server.changes[kind][c.seen[kind]]
		c.tables[kind].set(next.key, next.object)
		c.seen[kind]++
	}
}

// Sync applies all changes to the cache.
func (c *Cache) Sync() {
	for kind := range kinds {
		c.Advance(kind, c.Behind(kind))
	}
}

// Get returns the last version of an object that the cache has seen. It must not be changed. Nil if there is none.
func (c *Cache) Get(kind Kind, namespace, name string) client.Object {
	return c.tables[kind].get(types.NamespacedName{Namespace: namespace, Name: name})
}

// All returns the objects of a kind that the cache has seen. They must not be changed.
func (c *Cache) All(kind Kind) []client.Object { return c.tables[kind] }
