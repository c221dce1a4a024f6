package judge

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// VolumeIndex holds the server requests of all volumes, by volume. A new volume is evaluated among thousands without reading them. It is safe for
// concurrent use.
type VolumeIndex struct {
	mutex   sync.RWMutex
	volumes map[string]demand
	// requests are the sorted names of the volumes with the same request, by server.
	requests map[string]map[connection][]string
}

// NewVolumeIndex returns a VolumeIndex of the given volumes.
func NewVolumeIndex(volumes []*corev1.PersistentVolume) *VolumeIndex {
	o := &VolumeIndex{volumes: map[string]demand{}, requests: map[string]map[connection][]string{}}
	for _, pv := range volumes {
		o.Update(pv)
	}
	return o
}

// Update records the current version of a volume.
func (o *VolumeIndex) Update(pv *corev1.PersistentVolume) {
	next := demandOf(pv, pv.Spec.MountOptions)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.remove(pv.Name)
	o.volumes[pv.Name] = next
	if next.server != "" {
		names := mapOf(o.requests, next.server)
		at, _ := slices.BinarySearch(names[next.connection], pv.Name)
		names[next.connection] = slices.Insert(names[next.connection], at, pv.Name)
	}
}

// Remove removes a deleted volume.
func (o *VolumeIndex) Remove(name string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.remove(name)
}

// remove requires the lock of mutex.
func (o *VolumeIndex) remove(name string) {
	previous, known := o.volumes[name]
	if !known {
		return
	}
	delete(o.volumes, name)
	if previous.server != "" {
		names := o.requests[previous.server]
		at, _ := slices.BinarySearch(names[previous.connection], name)
		if names[previous.connection] = slices.Delete(names[previous.connection], at, at+1); len(names[previous.connection]) == 0 {
			delete(names, previous.connection)
		}
		if len(names) == 0 {
			delete(o.requests, previous.server)
		}
	}
}

// serversFor returns the requests of all volumes for the volume's server, including the volume.
func (o *VolumeIndex) serversFor(volume *Evaluation) *Servers {
	servers := NewServers()
	if !volume.bringsNconnect {
		return servers
	}
	o.mutex.RLock()
	for c, names := range o.requests[volume.demand.server] {
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
