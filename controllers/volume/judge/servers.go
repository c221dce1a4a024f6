package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// connection is what the first mount of a server on a node fixes for all later ones of the same version.
type connection struct {
	version, proto string
	nconnect       int
}

// demand is what one volume asks of its server. It has no server where the volume asks nothing.
type demand struct {
	server string
	connection
}

// Servers knows how many connections each volume asks its server for: with the list that it is about to get, so that two
// volumes that are both yet to be written are in each other's way before either of them is.
type Servers struct {
	demands map[string]map[connection][]string
	// messages are those for servers whose volumes disagree.
	messages map[string]string
}

// NewServers knows no volume yet.
func NewServers() *Servers {
	return &Servers{demands: map[string]map[connection][]string{}, messages: map[string]string{}}
}

// Add counts a volume by what was judged of it alone. All volumes are added before any is judged among them.
func (s *Servers) Add(volume *Judged) {
	s.add(volume.Volume.Name, volume.demand)
}

func (s *Servers) add(volume string, d demand) {
	if d.server == "" {
		return
	}
	if s.demands[d.server] == nil {
		s.demands[d.server] = map[connection][]string{}
	}
	s.demands[d.server][d.connection] = append(s.demands[d.server][d.connection], volume)
}

// Judge blocks a volume to which a profile brings another number of connections than other volumes of its server have.
func (s *Servers) Judge(volume *Judged) Verdict {
	v, d := volume.Verdict, volume.demand
	if d.server == "" || v.Action != ActionWrite && v.State != StateUpToDate || !volume.bringsNconnect {
		return v
	}
	for other := range s.demands[d.server] {
		if d.mayShare(other) && d.nconnect != other.nconnect {
			out := blockedFor(v1alpha1.VolumeReasonConflict, s.messageFor(d.server))
			out.Profiles, out.rules, out.Contested = v.Profiles, v.rules, true
			return out
		}
	}
	return v
}

// messageFor names the server, the numbers and the volumes.
func (s *Servers) messageFor(server string) string {
	if message, ok := s.messages[server]; ok {
		return message
	}
	byNumber := map[int][]string{}
	for c, volumes := range s.demands[server] {
		byNumber[c.nconnect] = append(byNumber[c.nconnect], volumes...)
	}
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		parts = append(parts, fmt.Sprintf("nconnect=%d (%s)", n, text.List(byNumber[n])))
	}
	s.messages[server] = fmt.Sprintf("volumes of server %s would have different nconnect: %s: the first mount on a node fixes it for all: "+
		"give all volumes of the server one value", server, strings.Join(parts, ", "))
	return s.messages[server]
}

// mayShare says whether mounts of one server can share connections. A version that is left open becomes one of NFSv4 on
// all servers that have it.
func (c connection) mayShare(other connection) bool {
	a, b := cmp.Or(c.version, "4"), cmp.Or(other.version, "4")
	return c.proto == other.proto && (a == b || a == "4" && strings.HasPrefix(b, "4.") || b == "4" && strings.HasPrefix(a, "4."))
}

// listAfter is the volume's list once the verdict is carried out.
func listAfter(pv *corev1.PersistentVolume, v Verdict) []string {
	if v.Action == ActionWrite || v.Action == ActionRestore {
		return v.Options
	}
	return pv.Spec.MountOptions
}

// demandOf names no server where the volume names none, says nothing of nconnect, or cannot be mounted any more.
func demandOf(pv *corev1.PersistentVolume, options []string) demand {
	if pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed {
		return demand{}
	}
	volume := describeSource(pv)
	source := volume.Source()
	if source.Options() != mountoptions.NFS {
		return demand{}
	}
	transport := mountoptions.Transport(volume.Hands(options))
	if transport.Nconnect == 0 {
		return demand{}
	}
	return demand{strings.ToLower(source.Server), connection{version: transport.Version, proto: transport.Proto, nconnect: transport.Nconnect}}
}

func bringsNconnect(v Verdict) bool {
	for _, options := range v.Carried {
		if slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "nconnect=") }) {
			return true
		}
	}
	return false
}
