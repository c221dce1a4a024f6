package judge

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Others holds the server requests of all volumes, by volume. A new volume is evaluated among thousands without reading them. It is safe for
// concurrent use.
type Others struct {
	mutex   sync.RWMutex
	volumes map[string]demand
	// asking are the sorted names of the volumes with the same request, by server.
	asking map[string]map[connection][]string
}

// NewOthers returns Others with the given volumes.
func NewOthers(volumes []*corev1.PersistentVolume) *Others {
	o := &Others{volumes: map[string]demand{}, asking: map[string]map[connection][]string{}}
	for _, pv := range volumes {
		o.Keep(pv)
	}
	return o
}

// Keep records the current version of a volume.
func (o *Others) Keep(pv *corev1.PersistentVolume) {
	next := demandOf(pv, pv.Spec.MountOptions)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.forget(pv.Name)
	o.volumes[pv.Name] = next
	if next.server != "" {
		names := mapOf(o.asking, next.server)
		at, _ := slices.BinarySearch(names[next.connection], pv.Name)
		names[next.connection] = slices.Insert(names[next.connection], at, pv.Name)
	}
}

// Forget removes a deleted volume.
func (o *Others) Forget(name string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.forget(name)
}

// forget requires the lock of mutex.
func (o *Others) forget(name string) {
	was, known := o.volumes[name]
	if !known {
		return
	}
	delete(o.volumes, name)
	if was.server != "" {
		names := o.asking[was.server]
		at, _ := slices.BinarySearch(names[was.connection], name)
		if names[was.connection] = slices.Delete(names[was.connection], at, at+1); len(names[was.connection]) == 0 {
			delete(names, was.connection)
		}
		if len(names) == 0 {
			delete(o.asking, was.server)
		}
	}
}

// serversFor returns the requests of all volumes for the volume's server, including the volume.
func (o *Others) serversFor(volume *Judged) *Servers {
	servers := NewServers()
	if !volume.bringsNconnect {
		return servers
	}
	o.mutex.RLock()
	for c, names := range o.asking[volume.demand.server] {
		mapOf(servers.demands, volume.demand.server)[c] = slices.Clone(names)
	}
	o.mutex.RUnlock()
	servers.Add(volume)
	return servers
}

func mapOf[K comparable, V any](all map[string]map[K]V, key string) map[K]V {
	if all[key] == nil {
		all[key] = map[K]V{}
	}
	return all[key]
}
