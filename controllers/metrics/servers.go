package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
)

// maxServers bounds how many storage servers are told of.
const maxServers = 200

// serverKey names one server.
type serverKey struct {
	server   string
	protocol v1alpha1.ServerProtocol
}

// serverTally is what all nodes come to for one server.
type serverTally struct {
	states                  map[v1alpha1.ServerState]int
	connections, forgetting int
	failing                 bool
}

func (t *tally) addServers(clientNode *v1alpha1.StorageClientNode) {
	for _, s := range clientNode.Status.Servers {
		key := serverKey{s.Server, s.Protocol}
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
	}
}

func (s sink) addServers(servers map[serverKey]*serverTally) {
	rank := func(key serverKey) int {
		if servers[key].failing || servers[key].forgetting > 0 {
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
			s.gauge(serverNodes, float64(count), key.server, protocol, string(state))
		}
		s.gauge(serverConnections, float64(server.connections), key.server, protocol)
		s.gauge(serverForgetting, float64(server.forgetting), key.server, protocol)
	}
}
