package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/servermap"
)

const (
	// maxServers is the maximum number of storage servers in the metrics, maxNamesakes the maximum number of client names that nodes share.
	maxServers   = 200
	maxNamesakes = 100
)

type serverKey struct {
	server   string
	protocol v1alpha1.ServerProtocol
}

type serverTally struct {
	states                  map[v1alpha1.ServerState]int
	connections, forgetting int
	stale                   int
	failing                 bool
}

func (t *tally) addServers(clientNode *v1alpha1.StorageClientNode) {
	for _, s := range clientNode.Status.Servers {
		key := serverKey{servermap.NameOn(clientNode.Name, s.Server), s.Protocol}
		server := t.servers[key]
		if server == nil {
			server = &serverTally{states: map[v1alpha1.ServerState]int{
				v1alpha1.ServerAnswering: 0, v1alpha1.ServerIdle: 0, v1alpha1.ServerSilent: 0, v1alpha1.ServerStuck: 0,
			}}
			t.servers[key] = server
		}
		server.states[s.State]++
		server.connections += int(s.Connections)
		server.failing = server.failing || fleet.IsFailing(s)
		if s.Forgetting {
			server.forgetting++
		}
		if fleet.IsStale(s) {
			server.stale++
		}
	}
}

func (s sink) addServers(servers map[serverKey]*serverTally) {
	rank := func(key serverKey) int {
		if servers[key].failing || servers[key].forgetting > 0 || servers[key].stale > 0 {
			return 0
		}
		return 1
	}
	keys := slices.SortedFunc(maps.Keys(servers), func(a, b serverKey) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.server, b.server), cmp.Compare(a.protocol, b.protocol))
	})
	for _, key := range keys[:min(len(keys), maxServers)] {
		server, protocol := servers[key], string(key.protocol)
		for state, count := range server.states {
			s.gauge("storageclient_server_nodes", float64(count), key.server, protocol, string(state))
		}
		s.gauge("storageclient_server_connections", float64(server.connections), key.server, protocol)
		s.gauge("storageclient_server_forgetting_nodes", float64(server.forgetting), key.server, protocol)
		s.gauge("storageclient_server_stale_nodes", float64(server.stale), key.server, protocol)
	}
}

// addServerMap adds the data of the plugin's server map, for servers whose volumes managed nodes mount.
func (s sink) addServerMap(clientNodes []v1alpha1.StorageClientNode, profiles []*v1alpha1.StorageClientProfile) {
	servers := servermap.Build(clientNodes, profiles)
	for _, server := range servers[:min(len(servers), maxServers)] {
		protocol := string(server.Protocol)
		s.gauge("storageclient_server_volumes", float64(len(server.Volumes)), server.Server, protocol)
		s.gauge("storageclient_server_requests_possible", float64(server.RequestsPossible), server.Server, protocol)
		s.gauge("storageclient_server_option_variants", float64(len(server.Variants)), server.Server, protocol)
		for _, version := range server.Versions {
			s.gauge("storageclient_server_protocol_version_info", 1, server.Server, protocol, version)
		}
		for resource, limit := range map[string]int64{"connections": server.ConnectionsLimit, "requests": server.RequestsLimit} {
			if limit > 0 {
				s.gauge("storageclient_server_limit", float64(limit), server.Server, protocol, resource)
			}
		}
	}
	namesakes := servermap.FindDuplicateClientIDs(clientNodes)
	for _, same := range namesakes[:min(len(namesakes), maxNamesakes)] {
		s.gauge("storageclient_nfs_client_namesakes", float64(len(same.Nodes)), same.Name)
	}
}
