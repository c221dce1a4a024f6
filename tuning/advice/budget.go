package advice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// ServerBudget is the ID of the rule that reports the load of the servers.
const ServerBudget = "server-budget"

// Load is the maximum load on one server if all nodes of a profile mount from it.
type Load struct {
	// Server is the host name or address.
	Server string `json:"server"`
	// Nodes is the number of selected nodes.
	Nodes int64 `json:"nodes"`
	// Connections is the number of nodes times nconnect.
	Connections int64 `json:"connections"`
	// Requests is the maximum number of requests in flight. With NFSv3 and 4.0, each connection has its slots. With 4.1 and 4.2, each
	// node has the slots of its session. Versions that mount negotiates count as 4.1 and 4.2.
	Requests int64 `json:"requests"`
}

// Loads returns the maximum load on each server, most requests first. The values are computed, not measured.
func Loads(in Input) []Load { return newScope(in).loads() }

func (s *scope) loads() []Load {
	byServer := map[string]Load{}
	nodes := int64(len(s.Nodes))
	for _, server := range s.Servers {
		nconnect := int64(max(1, server.Nconnect))
		load := byServer[server.Name]
		load.Server, load.Nodes = server.Name, nodes
		load.Connections = max(load.Connections, nodes*nconnect)
		load.Requests = max(load.Requests, nodes*s.inFlight(server.Version, nconnect))
		byServer[server.Name] = load
	}
	loads := slices.AppendSeq(make([]Load, 0, len(byServer)), maps.Values(byServer))
	slices.SortFunc(loads, func(a, b Load) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Server, b.Server))
	})
	return loads
}

// inFlight returns the maximum number of requests in flight from one node to a server.
func (s *scope) inFlight(version string, nconnect int64) int64 {
	if version == "3" || version == "4.0" {
		return nconnect * cmp.Or(s.slots(), kernelSlots)
	}
	for _, n := range text.Numbers(s.settings["module/nfs/max_session_slots"]) {
		return n
	}
	return kernelSessionSlots
}

func serverBudget(s *scope) {
	loads := s.loads()
	if len(loads) == 0 || loads[0].Nodes == 0 {
		return
	}
	parts := lists.Each(loads, func(load Load) string {
		return fmt.Sprintf("%s gets up to %d connections and %d requests in flight", load.Server, load.Connections, load.Requests)
	})
	s.add("", fmt.Sprintf("if all %d nodes mount from it: %s", loads[0].Nodes, text.InOrder(parts, ", ")))
}

func serverBudgetExceeded(s *scope) {
	text := s.Profile.Annotations[v1alpha1.ServerLimitsAnnotation]
	if text == "" {
		return
	}
	field := "metadata.annotations[" + v1alpha1.ServerLimitsAnnotation + "]"
	limits, err := ParseLimits(text)
	if err != nil {
		s.add(field, err.Error())
		return
	}
	over := func(server, resource string, load, limit int64) {
		if limit > 0 && load > limit {
			s.add(field, fmt.Sprintf("%s may get %d %s, but its limit is %d", server, load, resource, limit))
		}
	}
	for _, load := range s.loads() {
		over(load.Server, "connections", load.Connections, limits["connections"])
		over(load.Server, "requests in flight", load.Requests, limits["requests"])
	}
}

// ParseLimits parses the annotation server-limits: connections and requests in flight of one server, each at least 1.
func ParseLimits(text string) (map[string]int64, error) {
	limits := map[string]int64{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if (name != "connections" && name != "requests") || err != nil || n < 1 {
			return nil, fmt.Errorf("%q must be connections=N or requests=N, e.g. connections=3000,requests=10000", part)
		}
		limits[name] = n
	}
	return limits, nil
}
