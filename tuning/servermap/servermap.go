// Package servermap summarizes how the nodes of a cluster use each storage server: mounts, connections, options and missing responses.
package servermap

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// sessionSlots is the default number of requests in flight of an NFSv4.1 or 4.2 client (fs/nfs/super.c).
const sessionSlots = 64

const sessionSlotsKey = "module/nfs/max_session_slots"

// compared are the options that should be equal on all mounts of a server. rsize and wsize are missing because kernel and server
// negotiate them, so they can differ for valid reasons.
var compared = []string{"vers", "nconnect", "hard", "soft", "timeo", "retrans", "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax",
	"nocto", "noac", "sec", "proto"}

// Server describes the use of one storage server by the cluster.
type Server struct {
	// Server is the host name or address in the mounts. Protocol is NFS or SMB.
	Server   string                  `json:"server"`
	Protocol v1alpha1.ServerProtocol `json:"protocol"`
	// Nodes is the number of nodes with mounts of the server. Connections is the total number of their connections.
	Nodes       int `json:"nodes"`
	Connections int `json:"connections"`
	// RequestsPossible is the maximum number of requests in flight. Each connection has its slots; with NFSv4.1 and 4.2, each node has
	// the slots of its session. Zero for SMB, where the server grants credits.
	RequestsPossible int64 `json:"requestsPossible,omitempty"`
	// ConnectionsLimit and RequestsLimit are the lowest limits that profiles declare (annotation server-limits). Zero if there are none.
	ConnectionsLimit int64 `json:"connectionsLimit,omitempty"`
	RequestsLimit    int64 `json:"requestsLimit,omitempty"`
	// Versions are the protocol versions in use. Volumes are the mounted volumes.
	Versions []string `json:"versions,omitempty"`
	Volumes  []string `json:"volumes,omitempty"`
	// Failing are nodes without a response to some or all requests. Forgotten are nodes whose client state the server keeps losing.
	Failing   []Failing `json:"failing,omitempty"`
	Forgotten []string  `json:"forgotten,omitempty"`
	// Stale are nodes with mounts whose file handles the server no longer recognizes.
	Stale []string `json:"stale,omitempty"`
	// DuplicateClientIDs are nodes with mounts of the server that have duplicate NFSv4 client IDs.
	DuplicateClientIDs []DuplicateClientID `json:"namesakes,omitempty"`
	// Variants are the options that differ between its mounts.
	Variants []Variant `json:"variants,omitempty"`
}

// Failing is one node that gets no response from a server.
type Failing struct {
	Node    string               `json:"node"`
	State   v1alpha1.ServerState `json:"state"`
	Reason  string               `json:"reason,omitempty"`
	Message string               `json:"message,omitempty"`
	Since   string               `json:"since,omitempty"`
}

// Variant contains the number of mounts for each value of an option; "-" stands for mounts without the option.
type Variant struct {
	Option string         `json:"option"`
	Mounts map[string]int `json:"mounts"`
}

// String returns the option with its values.
func (v Variant) String() string {
	parts := lists.Each(slices.Sorted(maps.Keys(v.Mounts)), func(value string) string { return value + " on " + text.Count(v.Mounts[value], "mount") })
	return v.Option + ": " + strings.Join(parts, ", ")
}

// Exceeds describes the limit that the nodes may exceed. Empty if there is none.
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

type tally struct {
	Server
	nodes    map[string]bool
	versions map[string]bool
	volumes  map[string]bool
	options  map[string]map[string]int
	names    nodesByName
	mounts   int
}

// Build summarizes the reports of all agents. Servers with failing nodes come first, then by name. A node
// reports at most 64 servers: the connections to all others are counted by its mounts.
func Build(clientNodes []v1alpha1.StorageClientNode, profiles []*v1alpha1.StorageClientProfile) []Server {
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
	connections, requests := lowestLimits(profiles)
	servers := make([]Server, 0, len(found))
	for _, t := range found {
		servers = append(servers, t.sum(connections, requests))
	}
	slices.SortFunc(servers, func(a, b Server) int {
		return cmp.Or(min(1, len(b.Failing))-min(1, len(a.Failing)), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Protocol, b.Protocol))
	})
	return servers
}

// NameOn returns the name of a server, with the node if it is a tunnel: the same name on another node leads to another server.
func NameOn(node, server string) string {
	if counters.IsTunnel(server) {
		return server + " on " + node
	}
	return drivers.ServerIdentity(server)
}

func addNode(clientNode *v1alpha1.StorageClientNode, of func(string, v1alpha1.ServerProtocol) *tally) {
	reported := map[serverKey]bool{}
	for _, s := range clientNode.Status.Servers {
		s.Server = NameOn(clientNode.Name, s.Server)
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
		server := NameOn(clientNode.Name, m.Server)
		t := of(server, protocol)
		t.addMount(m)
		t.nodes[clientNode.Name] = true
		client := server + " " + m.Protocol
		if clients[client] {
			continue
		}
		clients[client] = true
		if !reported[serverKey{server, protocol}] {
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

// requestsOf returns the maximum number of requests in flight of a mount's client.
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

func (t *tally) sum(connections, requests int64) Server {
	s := t.Server
	s.Nodes, s.ConnectionsLimit, s.RequestsLimit = len(t.nodes), connections, requests
	s.Versions, s.Volumes = slices.Sorted(maps.Keys(t.versions)), slices.Sorted(maps.Keys(t.volumes))
	slices.SortFunc(s.Failing, func(a, b Failing) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(s.Forgotten)
	slices.Sort(s.Stale)
	s.DuplicateClientIDs = t.names.findDuplicates()
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

// lowestLimits returns the lowest limits in the annotations of the profiles. Zero if there are none. It ignores invalid annotations,
// which package advice reports.
func lowestLimits(profiles []*v1alpha1.StorageClientProfile) (connections, requests int64) {
	lowest := func(a, b int64) int64 {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	for _, profile := range profiles {
		if limits, err := advice.ParseLimits(profile.Annotations[v1alpha1.ServerLimitsAnnotation]); err == nil {
			connections, requests = lowest(connections, limits["connections"]), lowest(requests, limits["requests"])
		}
	}
	return connections, requests
}

// DuplicateClientID are nodes with duplicate NFSv4 client IDs. A server that both nodes mount confuses them after a restart and discards the
// state of the other node.
type DuplicateClientID struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// FindDuplicateClientIDs finds duplicates among all nodes, sorted by client ID. It checks all nodes because every new pod can change the
// servers of a node.
func FindDuplicateClientIDs(clientNodes []v1alpha1.StorageClientNode) []DuplicateClientID {
	nodes := nodesByName{}
	for i := range clientNodes {
		nodes.add(&clientNodes[i])
	}
	return nodes.findDuplicates()
}

// nodesByName maps NFSv4 client IDs to nodes. A node can be listed several times.
type nodesByName map[string][]string

func (n nodesByName) add(clientNode *v1alpha1.StorageClientNode) {
	if name := clientNode.Status.NFS4ClientName; name != "" {
		n[name] = append(n[name], clientNode.Name)
	}
}

func (n nodesByName) findDuplicates() []DuplicateClientID {
	return lists.Pick(slices.Sorted(maps.Keys(n)), func(name string) (DuplicateClientID, bool) {
		nodes := lists.Distinct(n[name])
		return DuplicateClientID{Name: name, Nodes: nodes}, len(nodes) > 1
	})
}
