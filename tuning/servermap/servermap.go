// Package servermap sums up what the nodes of a cluster are to each of their storage servers: who mounts from it, over how many
// connections, with which options, and who gets no answer.
package servermap

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/text"
)

// sessionSlots is how many requests an NFSv4.1 or 4.2 client may have in flight unless it is told otherwise (fs/nfs/super.c).
const sessionSlots = 64

// sessionSlotsKey is the setting that tells it otherwise.
const sessionSlotsKey = "module/nfs/max_session_slots"

// compared are the options that mounts of one server had better agree on. Kernel and server agree on the size of requests, so that
// rsize and wsize may differ for reasons of their own.
var compared = []string{"vers", "nconnect", "hard", "soft", "timeo", "retrans", "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax", "nocto", "noac", "sec", "proto"}

// Server is what the cluster is to one storage server.
type Server struct {
	// Server is its host name or address as the mounts have it, Protocol NFS or SMB.
	Server   string                  `json:"server"`
	Protocol v1alpha1.ServerProtocol `json:"protocol"`
	// Nodes is how many nodes have mounts of it, Connections how many connections they have to it together.
	Nodes       int `json:"nodes"`
	Connections int `json:"connections"`
	// RequestsPossible is how many requests they may have in flight together: of each connection its slots, with NFSv4.1 and 4.2 of each
	// node its session's. 0 for SMB, where the server grants credits.
	RequestsPossible int64 `json:"requestsPossible,omitempty"`
	// ConnectionsLimit and RequestsLimit are the least that profiles declare for a server (annotation server-limits); 0 for none.
	ConnectionsLimit int64 `json:"connectionsLimit,omitempty"`
	RequestsLimit    int64 `json:"requestsLimit,omitempty"`
	// Versions are the protocol versions in use, Volumes the volumes.
	Versions []string `json:"versions,omitempty"`
	Volumes  []string `json:"volumes,omitempty"`
	// Failing are the nodes that get no answer, or not to all requests, with the state; Forgotten those whose client it keeps forgetting.
	Failing   []Failing `json:"failing,omitempty"`
	Forgotten []string  `json:"forgotten,omitempty"`
	// Stale are the nodes that have mounts whose files it does not know any more.
	Stale []string `json:"stale,omitempty"`
	// Namesakes are nodes with mounts of it whose NFSv4 clients introduce themselves alike.
	Namesakes []Namesakes `json:"namesakes,omitempty"`
	// Variants are the options that its mounts do not agree on.
	Variants []Variant `json:"variants,omitempty"`
}

// Failing is one node that a server does not answer.
type Failing struct {
	Node    string               `json:"node"`
	State   v1alpha1.ServerState `json:"state"`
	Reason  string               `json:"reason,omitempty"`
	Message string               `json:"message,omitempty"`
	Since   string               `json:"since,omitempty"`
}

// Variant is one option and how many mounts have each of its values; "-" stands for mounts without it.
type Variant struct {
	Option string         `json:"option"`
	Mounts map[string]int `json:"mounts"`
}

// String names option and values.
func (v Variant) String() string {
	var parts []string
	for _, value := range slices.Sorted(maps.Keys(v.Mounts)) {
		parts = append(parts, value+" on "+text.Count(v.Mounts[value], "mount"))
	}
	return v.Option + ": " + strings.Join(parts, ", ")
}

// Exceeds says which limit the nodes may exceed; empty where none.
func (s Server) Exceeds() string {
	switch {
	case s.ConnectionsLimit > 0 && int64(s.Connections) > s.ConnectionsLimit:
		return strconv.Itoa(s.Connections) + " connections of " + strconv.FormatInt(s.ConnectionsLimit, 10)
	case s.RequestsLimit > 0 && s.RequestsPossible > s.RequestsLimit:
		return strconv.FormatInt(s.RequestsPossible, 10) + " requests in flight of " + strconv.FormatInt(s.RequestsLimit, 10)
	}
	return ""
}

type serverKey struct {
	server   string
	protocol v1alpha1.ServerProtocol
}

// tally is one server on its way.
type tally struct {
	Server
	nodes    map[string]bool
	versions map[string]bool
	volumes  map[string]bool
	options  map[string]map[string]int
	names    nodesByName
	mounts   int
}

// Build sums up what agents have reported, servers that fail nodes first, then by name. Where servers are not reported, as by an agent of
// an earlier release, what is known of the mounts has to do.
func Build(clientNodes []v1alpha1.StorageClientNode, profiles []v1alpha1.StorageClientProfile) []Server {
	found := map[serverKey]*tally{}
	of := func(server string, protocol v1alpha1.ServerProtocol) *tally {
		key := serverKey{server, protocol}
		if found[key] == nil {
			found[key] = &tally{
				Server: Server{Server: server, Protocol: protocol},
				nodes:  map[string]bool{}, versions: map[string]bool{}, volumes: map[string]bool{}, options: map[string]map[string]int{}, names: nodesByName{},
			}
		}
		return found[key]
	}
	for i := range clientNodes {
		addNode(&clientNodes[i], of)
	}
	connections, requests := leastLimits(profiles)
	servers := make([]Server, 0, len(found))
	for _, t := range found {
		servers = append(servers, t.sum(connections, requests))
	}
	slices.SortFunc(servers, func(a, b Server) int {
		return cmp.Or(compareBool(len(b.Failing) > 0, len(a.Failing) > 0), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Protocol, b.Protocol))
	})
	return servers
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func addNode(clientNode *v1alpha1.StorageClientNode, of func(string, v1alpha1.ServerProtocol) *tally) {
	reported := map[serverKey]bool{}
	for _, s := range clientNode.Status.Servers {
		t := of(s.Server, s.Protocol)
		t.nodes[clientNode.Name], reported[serverKey{s.Server, s.Protocol}] = true, true
		if s.Protocol == v1alpha1.ServerNFS {
			t.names.add(clientNode)
		}
		t.Connections += int(s.Connections)
		if s.State.IsFailing() {
			failing := Failing{Node: clientNode.Name, State: s.State, Reason: s.Reason, Message: s.Message}
			if s.Since != nil {
				failing.Since = s.Since.UTC().Format("2006-01-02T15:04:05Z")
			}
			t.Failing = append(t.Failing, failing)
		}
		if s.Reason == v1alpha1.ServerReasonStaleHandles {
			t.Stale = append(t.Stale, clientNode.Name)
		}
		if s.Forgetting {
			t.Forgotten = append(t.Forgotten, clientNode.Name)
		}
	}
	// Mounts of one version share their connections.
	clients := map[string]bool{}
	for i := range clientNode.Status.Mounts {
		m := &clientNode.Status.Mounts[i]
		protocol, network := protocolOf(m.Protocol)
		if !network || m.Server == "" {
			continue
		}
		t := of(m.Server, protocol)
		t.addMount(m)
		t.nodes[clientNode.Name] = true
		client := m.Server + " " + m.Protocol
		if clients[client] {
			continue
		}
		clients[client] = true
		if !reported[serverKey{m.Server, protocol}] {
			t.Connections += int(m.Connections)
		}
		t.RequestsPossible += requestsOf(clientNode, m)
	}
}

func (t *tally) addMount(m *v1alpha1.MountStatus) {
	t.mounts++
	t.versions[m.Protocol] = true
	if m.Volume != "" {
		t.volumes[m.Volume] = true
	}
	for _, option := range m.Options {
		name, value, hasValue := strings.Cut(option, "=")
		if !slices.Contains(compared, name) {
			continue
		}
		if !hasValue {
			value = "set"
		}
		if t.options[name] == nil {
			t.options[name] = map[string]int{}
		}
		t.options[name][value]++
	}
}

// requestsOf is how many requests the client of a mount may have in flight.
func requestsOf(clientNode *v1alpha1.StorageClientNode, m *v1alpha1.MountStatus) int64 {
	switch m.Protocol {
	case "NFSv4.1", "NFSv4.2":
		for _, s := range clientNode.Status.Settings {
			if n, err := strconv.ParseInt(s.Observed, 10, 64); s.Key == sessionSlotsKey && err == nil {
				return n
			}
		}
		return sessionSlots
	}
	return int64(m.Connections) * int64(m.SlotLimit)
}

func protocolOf(protocol string) (of v1alpha1.ServerProtocol, network bool) {
	switch {
	case strings.HasPrefix(protocol, "NFS"):
		return v1alpha1.ServerNFS, true
	case strings.HasPrefix(protocol, "SMB"):
		return v1alpha1.ServerSMB, true
	}
	return "", false
}

// sum finishes a server.
func (t *tally) sum(connections, requests int64) Server {
	s := t.Server
	s.Nodes, s.ConnectionsLimit, s.RequestsLimit = len(t.nodes), connections, requests
	s.Versions, s.Volumes = slices.Sorted(maps.Keys(t.versions)), slices.Sorted(maps.Keys(t.volumes))
	slices.SortFunc(s.Failing, func(a, b Failing) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(s.Forgotten)
	slices.Sort(s.Stale)
	s.Namesakes = t.names.findNamesakes()
	for _, option := range slices.Sorted(maps.Keys(t.options)) {
		values, with := t.options[option], 0
		for _, n := range values {
			with += n
		}
		if with < t.mounts {
			values["-"] = t.mounts - with
		}
		if len(values) > 1 {
			s.Variants = append(s.Variants, Variant{Option: option, Mounts: values})
		}
	}
	return s
}

// leastLimits are the least that the profiles' annotations declare for a server; 0 for none. One that cannot be read is the advice's to
// tell.
func leastLimits(profiles []v1alpha1.StorageClientProfile) (connections, requests int64) {
	least := func(a, b int64) int64 {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	for i := range profiles {
		declared := profiles[i].Annotations[v1alpha1.ServerLimitsAnnotation]
		if declared == "" {
			continue
		}
		if limits, err := advice.ParseLimits(declared); err == nil {
			connections, requests = least(connections, limits["connections"]), least(requests, limits["requests"])
		}
	}
	return connections, requests
}
