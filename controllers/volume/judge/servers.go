package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// connection is the kind of connection that a volume requests. The first mount of a server on a node sets nconnect for all later ones of the kind.
type connection struct {
	version, proto string
	nconnect       int
}

// demand is the request of one volume to its server. nconnect is zero if the mount options do not set it. server is empty if the volume
// requests nothing.
type demand struct {
	server string
	connection
}

// Servers holds the number of connections that each volume requests from its server, after pending writes. Thus two pending volumes that
// conflict are detected before either is written.
type Servers struct {
	demands map[string]map[connection][]string
	// messages describe servers whose volumes disagree. silent describe volumes without nconnect, by the request that would share connections with
	// them.
	messages map[string]string
	silent   map[demand]string
}

// NewServers returns an empty Servers.
func NewServers() *Servers {
	return &Servers{demands: map[string]map[connection][]string{}, messages: map[string]string{}, silent: map[demand]string{}}
}

// Add adds a volume by its own verdict. Callers add all volumes before they call Evaluate.
func (s *Servers) Add(volume *Evaluation) {
	d := volume.demand
	if d.server == "" {
		return
	}
	asking := mapOf(s.demands, d.server)
	asking[d.connection] = append(asking[d.connection], volume.Volume.Name)
}

// Evaluate withholds only nconnect from a volume if a profile sets another number of connections than other volumes of its server have. The message
// names volumes without nconnect, because the order of mounts is unknown. The caller must not change the verdict: it may be the volume's.
func (s *Servers) Evaluate(volume *Evaluation) *Verdict {
	v, d := &volume.Verdict, volume.demand
	if d.server == "" || v.Action != ActionWrite && v.State != StateUpToDate || volume.withCurrentNconnect == nil {
		return v
	}
	for other := range s.demands[d.server] {
		if d.mayShare(other) && other.nconnect != 0 && d.nconnect != other.nconnect {
			contested := volume.withCurrentNconnect().contestedBy(s.messageFor(d.server))
			return &contested
		}
	}
	silent := s.silentMessageFor(d)
	if silent == "" {
		return v
	}
	changed := *v
	changed.Message += "; " + silent
	return &changed
}

// contestedBy returns the verdict without the declared nconnect. If there is no other change to write, the missing nconnect blocks the volume.
func (v Verdict) contestedBy(message string) Verdict {
	v.Contested = true
	switch {
	case v.Action == ActionWrite:
		v.Message += "; nconnect unchanged: " + message
	case v.State == StateUpToDate:
		v.State, v.Reason, v.Message, v.Exceptions = StateBlocked, v1alpha1.VolumeReasonConflict, message, nil
	}
	return v
}

func (s *Servers) messageFor(server string) string {
	if message, ok := s.messages[server]; ok {
		return message
	}
	byNumber := map[int][]string{}
	for c, volumes := range s.demands[server] {
		if c.nconnect != 0 {
			byNumber[c.nconnect] = append(byNumber[c.nconnect], volumes...)
		}
	}
	parts := lists.Each(slices.Sorted(maps.Keys(byNumber)), func(n int) string { return fmt.Sprintf("nconnect=%d (%s)", n, text.List(byNumber[n])) })
	s.messages[server] = fmt.Sprintf("nconnect differs between volumes of server %s: %s; the first mount on a node sets it for all; "+
		"use one value for all volumes of the server", server, strings.Join(parts, ", "))
	return s.messages[server]
}

// silentMessageFor names volumes without nconnect that may share connections with the request. If they are mounted first, all of them use one
// connection. Empty if there are none.
func (s *Servers) silentMessageFor(d demand) string {
	if message, ok := s.silent[d]; ok {
		return message
	}
	var volumes []string
	for other, names := range s.demands[d.server] {
		if other.nconnect == 0 && d.mayShare(other) {
			volumes = append(volumes, names...)
		}
	}
	switch len(volumes) {
	case 0:
		s.silent[d] = ""
	case 1:
		s.silent[d] = fmt.Sprintf("PersistentVolume %s of server %s has no nconnect; a node that mounts it first uses one connection for all",
			volumes[0], d.server)
	default:
		s.silent[d] = fmt.Sprintf("PersistentVolumes %s of server %s have no nconnect; a node that mounts one of them first uses one connection for all",
			text.List(volumes), d.server)
	}
	return s.silent[d]
}

// mayShare reports whether mounts of one server can share connections. An unspecified version becomes a version of NFSv4 on all servers that
// support it.
func (c connection) mayShare(other connection) bool {
	a, b := cmp.Or(c.version, "4"), cmp.Or(other.version, "4")
	return c.proto == other.proto && (a == b || a == "4" && strings.HasPrefix(b, "4.") || b == "4" && strings.HasPrefix(a, "4."))
}

func optionsAfter(pv *corev1.PersistentVolume, v Verdict) []string {
	if v.Action == ActionWrite || v.Action == ActionRestore {
		return v.Options
	}
	return pv.Spec.MountOptions
}

// demandOf returns the request of a volume. It has no server if the volume has none or can no longer be mounted.
func demandOf(pv *corev1.PersistentVolume, options []string) demand {
	if pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed {
		return demand{}
	}
	volume := describeSource(pv)
	source := volume.Source()
	if source.Protocol != v1alpha1.ProtocolNFS {
		return demand{}
	}
	transport := source.Options().Transport(volume.PassedOptions(options))
	return demand{source.Server, connection{version: transport.Version, proto: transport.Proto, nconnect: transport.Nconnect}}
}

// VolumeIndex holds the server requests of all volumes, by volume. A new volume is evaluated among thousands without reading them. It is safe for
// concurrent use.
type VolumeIndex struct {
	mutex   sync.RWMutex
	volumes map[string]demand
	// requests are the sorted names of the volumes with the same request, by server.
	requests map[string]map[connection][]string
	// sources are volumes that can give evidence, by option set, as found by the last search, until they change.
	sources sync.Map
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

// NoteSource records that a volume can give evidence for an option set.
func (o *VolumeIndex) NoteSource(set, volume string) { o.sources.Store(set, volume) }

// HasSource reports whether a volume is known that can give evidence for an option set.
func (o *VolumeIndex) HasSource(set string) bool {
	_, known := o.sources.Load(set)
	return known
}

// Remove removes a deleted volume.
func (o *VolumeIndex) Remove(name string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.remove(name)
}

// remove requires the lock of mutex.
func (o *VolumeIndex) remove(name string) {
	o.sources.Range(func(set, source any) bool { return source != name || o.sources.CompareAndDelete(set, source) })
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
	if volume.withCurrentNconnect == nil {
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
