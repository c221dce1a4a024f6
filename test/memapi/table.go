package memapi

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// table holds the objects of one kind in the order of their names.
type table []client.Object

func compareKey(object client.Object, key types.NamespacedName) int {
	return cmp.Or(cmp.Compare(object.GetNamespace(), key.Namespace), cmp.Compare(object.GetName(), key.Name))
}

func (t table) find(key types.NamespacedName) (int, bool) {
	return slices.BinarySearchFunc(t, key, compareKey)
}

// get is the object of that name, nil if there is none.
func (t table) get(key types.NamespacedName) client.Object {
	if at, found := t.find(key); found {
		return t[at]
	}
	return nil
}

// set puts an object in place of the one of its name; nil removes that.
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

// change is one write, as a watch would tell of it.
type change struct {
	key types.NamespacedName
	// object is nil where the object went.
	object client.Object
}

// Cache is what a process has seen of the objects so far, kind by kind.
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

// Behind is how many changes of a kind the cache has not seen.
func (c *Cache) Behind(kind Kind) int { return len(c.server.changes[kind]) - c.seen[kind] }

// Advance has the cache see the next changes of a kind, and no more than there are.
func (c *Cache) Advance(kind Kind, count int) {
	for ; count > 0 && c.Behind(kind) > 0; count-- {
		next := c.server.changes[kind][c.seen[kind]]
		c.tables[kind].set(next.key, next.object)
		c.seen[kind]++
	}
}

// Sync has the cache see everything.
func (c *Cache) Sync() {
	for kind := range kinds {
		c.Advance(kind, c.Behind(kind))
	}
}

// Get is an object as the cache has seen it last, nil if there is none. It is not to be changed.
func (c *Cache) Get(kind Kind, namespace, name string) client.Object {
	return c.tables[kind].get(types.NamespacedName{Namespace: namespace, Name: name})
}

// All are the objects of a kind as the cache has seen them. They are not to be changed.
func (c *Cache) All(kind Kind) []client.Object { return c.tables[kind] }
