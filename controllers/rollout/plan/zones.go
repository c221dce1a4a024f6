package plan

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// zones are, for each profile, the zones in which nodes of it are out of service through our doing.
type zones map[string][]string

// busyZones looks at all nodes that we hold.
func (p *planner) busyZones() zones {
	out := zones{}
	for _, v := range p.views {
		if p.holdsZone(v) {
			out.add(v)
		}
	}
	return out
}

func (z zones) add(v *view) {
	for _, name := range v.Profiles {
		if !slices.Contains(z[name], v.zone) {
			z[name] = append(z[name], v.zone)
		}
	}
}

// holdsZone reports whether other zones have to wait for a node: while it is drained no longer than ZonePatience, with
// its permit no longer than drain, boot and settling may take, and not where it has failed or serves nothing yet.
func (p *planner) holdsZone(v *view) bool {
	if !v.held() || v.failed() || v.Vacant {
		return false
	}
	rules := p.lead(v)
	since, may := v.heldSince(), seconds(rules.Drain.TimeoutSeconds)
	switch {
	case v.permit != nil:
		may += seconds(rules.Reboot.TimeoutSeconds) + seconds(rules.SettleSeconds)
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
	p.wake(end)
	return true
}

// otherZone holds a node back while nodes of another zone are out of service for a profile that needs its reboot.
func (p *planner) otherZone(v *view) (reason, message string) {
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
