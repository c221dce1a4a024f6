package volume

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// connection is what the first mount of a server on a node fixes for all later ones of the same version.
type connection struct {
	version, proto string
	nconnect       int
}

// asking is what one volume asks of its server.
type asking struct {
	server string
	connection
}

// servers knows how many connections each volume asks its server for: with the list that it is about to get, so that two
// volumes that are both yet to be written are in each other's way before either of them is.
type servers struct {
	of    map[string]asking
	asked map[string]map[connection]map[string]bool
	// told holds the message for a server, until something changes there.
	told map[string]string
}

func newServers() *servers {
	return &servers{of: map[string]asking{}, asked: map[string]map[connection]map[string]bool{}, told: map[string]string{}}
}

// put remembers a volume by what is decided for it.
func (s *servers) put(pv *corev1.PersistentVolume, d Decision) {
	server, asks := connectionOf(pv, listAfter(pv, d))
	if s.of[pv.Name] == (asking{server, asks}) {
		return
	}
	s.drop(pv.Name)
	if server == "" {
		return
	}
	if s.asked[server] == nil {
		s.asked[server] = map[connection]map[string]bool{}
	}
	if s.asked[server][asks] == nil {
		s.asked[server][asks] = map[string]bool{}
	}
	s.asked[server][asks][pv.Name] = true
	s.of[pv.Name] = asking{server, asks}
	delete(s.told, server)
}

// drop forgets a volume.
func (s *servers) drop(volume string) {
	was, known := s.of[volume]
	if !known {
		return
	}
	delete(s.of, volume)
	delete(s.told, was.server)
	delete(s.asked[was.server][was.connection], volume)
	if len(s.asked[was.server][was.connection]) == 0 {
		delete(s.asked[was.server], was.connection)
	}
	if len(s.asked[was.server]) == 0 {
		delete(s.asked, was.server)
	}
}

// judge blocks a volume that has been put, and to which a profile brings another number of connections than other volumes of its server have.
func (s *servers) judge(pv *corev1.PersistentVolume, d Decision) Decision {
	if d.Action != ActionWrite && d.State != StateUpToDate || !carriesNconnect(d) {
		return d
	}
	asks, known := s.of[pv.Name]
	if !known {
		return d
	}
	for other := range s.asked[asks.server] {
		if asks.meets(other) && asks.nconnect != other.nconnect {
			out := blocked(v1alpha1.VolumeReasonConflict, s.message(asks.server))
			out.Profiles, out.rules, out.contested = d.Profiles, d.rules, true
			return out
		}
	}
	return d
}

// message names the server, the numbers and the volumes.
func (s *servers) message(server string) string {
	if message, ok := s.told[server]; ok {
		return message
	}
	byNumber := map[int][]string{}
	for asks, volumes := range s.asked[server] {
		byNumber[asks.nconnect] = slices.AppendSeq(byNumber[asks.nconnect], maps.Keys(volumes))
	}
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		slices.Sort(byNumber[n])
		parts = append(parts, fmt.Sprintf("nconnect=%d (%s)", n, text.List(byNumber[n])))
	}
	s.told[server] = fmt.Sprintf("volumes of server %s would have different nconnect: %s: the first mount on a node fixes it for all: "+
		"give all volumes of the server one value", server, strings.Join(parts, ", "))
	return s.told[server]
}

// meets says whether mounts of one server can share connections. A version that is left open becomes one of NFSv4 on
// all servers that have it.
func (c connection) meets(other connection) bool {
	a, b := cmp.Or(c.version, "4"), cmp.Or(other.version, "4")
	return c.proto == other.proto && (a == b || a == "4" && strings.HasPrefix(b, "4.") || b == "4" && strings.HasPrefix(a, "4."))
}

// listAfter is the volume's list once the decision is carried out.
func listAfter(pv *corev1.PersistentVolume, d Decision) []string {
	if d.Action == ActionWrite || d.Action == ActionRestore {
		return d.Options
	}
	return pv.Spec.MountOptions
}

// connectionOf returns no server where the volume names none, says nothing of nconnect, or cannot be mounted any more.
func connectionOf(pv *corev1.PersistentVolume, options []string) (server string, asks connection) {
	if pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed {
		return "", connection{}
	}
	volume := describe(pv)
	source := volume.Source()
	if source.Options() != mountoptions.NFS {
		return "", connection{}
	}
	transport := mountoptions.Transport(volume.Hands(options))
	if transport.Nconnect == 0 {
		return "", connection{}
	}
	return strings.ToLower(source.Server), connection{version: transport.Version, proto: transport.Proto, nconnect: transport.Nconnect}
}

func carriesNconnect(d Decision) bool {
	for _, options := range d.Carried {
		if slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "nconnect=") }) {
			return true
		}
	}
	return false
}
