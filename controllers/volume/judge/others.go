package judge

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Others is what volumes ask their servers for, and which of them could not be mounted: kept by volume, so that a new one is judged
// among thousands without reading them. Several may use it at once.
type Others struct {
	mutex   sync.RWMutex
	volumes map[string]other
	// asking are the volumes that ask a server for the same, sorted; failed those that could not be mounted with a set of options.
	asking map[string]map[connection][]string
	failed map[string]map[string]*FailedMount
}

// other is what is kept of one volume.
type other struct {
	demand
	failed *FailedMount
}

// NewOthers knows these volumes.
func NewOthers(volumes []*corev1.PersistentVolume) *Others {
	o := &Others{volumes: map[string]other{}, asking: map[string]map[connection][]string{}, failed: map[string]map[string]*FailedMount{}}
	for _, pv := range volumes {
		o.Keep(pv)
	}
	return o
}

// Keep knows a volume as it is now.
func (o *Others) Keep(pv *corev1.PersistentVolume) {
	next := other{demand: demandOf(pv, pv.Spec.MountOptions)}
	if failed := FailedMountOf(pv); failed.Stops() {
		next.failed = failed
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.forget(pv.Name)
	o.volumes[pv.Name] = next
	if next.server != "" {
		names := mapOf(o.asking, next.server)
		at, _ := slices.BinarySearch(names[next.connection], pv.Name)
		names[next.connection] = slices.Insert(names[next.connection], at, pv.Name)
	}
	if next.failed != nil {
		mapOf(o.failed, next.failed.Set)[pv.Name] = next.failed
	}
}

// Forget is for a volume that is gone.
func (o *Others) Forget(name string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.forget(name)
}

// forget is called with the mutex held.
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
		dropEmpty(o.asking, was.server)
	}
	if was.failed != nil {
		delete(o.failed[was.failed.Set], name)
		dropEmpty(o.failed, was.failed.Set)
	}
}

// serversFor knows who asks the volume's server for what, and the volume with them.
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

// failedWith is the first volume that could not be mounted with a set of options, nil if there is none.
func (o *Others) failedWith(set string) (first *FailedSet) {
	o.mutex.RLock()
	defer o.mutex.RUnlock()
	for name, failed := range o.failed[set] {
		if first == nil || name < first.Volume {
			first = &FailedSet{FailedMount: *failed, Volume: name}
		}
	}
	return first
}

func mapOf[K comparable, V any](all map[string]map[K]V, key string) map[K]V {
	if all[key] == nil {
		all[key] = map[K]V{}
	}
	return all[key]
}

func dropEmpty[K comparable, V any](all map[string]map[K]V, key string) {
	if len(all[key]) == 0 {
		delete(all, key)
	}
}
