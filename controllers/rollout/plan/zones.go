package plan

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// zones are, for each profile, the zones in which nodes of it are out of service through our doing.
type zones map[string][]string

// findBusyZones goes through all disrupted nodes.
func (p *planner) findBusyZones() zones {
	out := zones{}
	for _, n := range p.states {
		if p.occupiesZone(n) {
			out.addNode(n)
		}
	}
	return out
}

func (z zones) addNode(n *nodeState) {
	for _, name := range n.Profiles {
		if !slices.Contains(z[name], n.zone) {
			z[name] = append(z[name], n.zone)
		}
	}
}

// occupiesZone reports whether other zones have to wait for a node: while it is drained no longer than ZonePatience, with
// its permit no longer than drain, boot and settling may take, and not where it has failed or serves nothing yet.
func (p *planner) occupiesZone(n *nodeState) bool {
	if !n.isDisrupted() || n.hasFailed() || n.Vacant {
		return false
	}
	rules := p.rulesFor(n)
	since, may := n.disruptedSince(), toDuration(rules.Drain.TimeoutSeconds)
	switch {
	case n.permit != nil:
		may += toDuration(rules.Reboot.TimeoutSeconds) + toDuration(rules.SettleSeconds)
	case n.Mark == nil:
		// It is cordoned in this pass at the earliest.
		since = p.Now
		fallthrough
	default:
		may = min(may, ZonePatience)
	}
	end := since.Add(may)
	if !p.Now.Before(end) {
		return false
	}
	p.wakeAt(end)
	return true
}

// checkZones refuses a node while nodes of another zone are out of service for a profile that needs its reboot.
func (p *planner) checkZones(n *nodeState) (reason, message string) {
	if n.Vacant {
		return "", ""
	}
	for _, name := range n.need.profiles {
		for _, zone := range p.busy[name] {
			if zone != n.zone {
				return v1alpha1.RolloutReasonWaitingForZone, fmt.Sprintf("Waiting for %s to finish (StorageClientProfile %s)", zoneInWords(zone), name)
			}
		}
	}
	return "", ""
}

func zoneInWords(zone string) string {
	if zone == "" {
		return "the nodes without a zone"
	}
	return "zone " + zone
}
