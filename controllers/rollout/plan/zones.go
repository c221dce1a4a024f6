package plan

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// zones are, for each profile, the zones in which nodes of it are out of service through our doing.
type zones map[string][]string

// findBusyZones looks at all nodes that we hold.
func (p *planner) findBusyZones() zones {
	out := zones{}
	for _, v := range p.states {
		if p.occupiesZone(v) {
			out.addNode(v)
		}
	}
	return out
}

func (z zones) addNode(v *nodeState) {
	for _, name := range v.Profiles {
		if !slices.Contains(z[name], v.zone) {
			z[name] = append(z[name], v.zone)
		}
	}
}

// occupiesZone reports whether other zones have to wait for a node: while it is drained no longer than ZonePatience, with
// its permit no longer than drain, boot and settling may take, and not where it has failed or serves nothing yet.
func (p *planner) occupiesZone(v *nodeState) bool {
	if !v.isDisrupted() || v.hasFailed() || v.Vacant {
		return false
	}
	rules := p.rulesFor(v)
	since, may := v.disruptedSince(), toDuration(rules.Drain.TimeoutSeconds)
	switch {
	case v.permit != nil:
		may += toDuration(rules.Reboot.TimeoutSeconds) + toDuration(rules.SettleSeconds)
	case v.Mark == nil:
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

// checkZones holds a node back while nodes of another zone are out of service for a profile that needs its reboot.
func (p *planner) checkZones(v *nodeState) (reason, message string) {
	if v.Vacant {
		return "", ""
	}
	for _, name := range v.need.profiles {
		for _, zone := range p.busy[name] {
			if zone != v.zone {
				return v1alpha1.RolloutReasonWaitingForZone, fmt.Sprintf("Nodes of StorageClientProfile %s are out of service in %s, which is finished first", name, zoneInWords(zone))
			}
		}
	}
	return "", ""
}

func zoneInWords(zone string) string {
	if zone == "" {
		return "no zone"
	}
	return "zone " + zone
}
