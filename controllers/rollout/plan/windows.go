package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/windows"
)

// opening is whether the windows of some profiles are open together, and when that may change.
type opening struct {
	open  bool
	again time.Time
}

// checkWindows keeps a node in service unless a window is open in every profile that needs its reboot.
func (p *planner) checkWindows(n *nodeState) (reason, message string) {
	var with []string
	for _, name := range p.mayNeed(n) {
		if profile := p.profiles[name]; profile != nil && len(profile.Windows) > 0 {
			with = append(with, name)
		}
	}
	if len(with) == 0 {
		return "", ""
	}
	found := p.openingOf(with)
	if !found.again.IsZero() {
		p.wakeAt(found.again)
	}
	switch whose := "StorageClientProfile " + text.List(with); {
	case found.open:
		return "", ""
	case !found.again.IsZero():
		return v1alpha1.RolloutReasonWaitingForWindow, fmt.Sprintf("Outside the windows of %s; the next one opens at %s", whose, formatTime(found.again))
	case len(with) == 1:
		return v1alpha1.RolloutReasonWindowsDisjoint, fmt.Sprintf("No window of %s opens in the coming years", whose)
	default:
		return v1alpha1.RolloutReasonWindowsDisjoint, fmt.Sprintf("The windows of %s are never open together, and all of them need the reboot", whose)
	}
}

// mayNeed are the profiles that need the node's reboot, sorted, and while the agent has not reported, all that may.
func (p *planner) mayNeed(n *nodeState) []string {
	if n.need.kind != needUnknown {
		return n.need.names
	}
	out := slices.Clone(n.need.names)
	for _, name := range n.Profiles {
		if profile := p.profiles[name]; profile != nil && len(profile.BootKeys) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// openingOf asks the windows of some profiles once a pass.
func (p *planner) openingOf(profiles []string) opening {
	key := strings.Join(profiles, " ")
	found, known := p.openings[key]
	if !known {
		var sets []windows.Set
		for _, name := range profiles {
			sets = append(sets, p.profiles[name].Windows)
		}
		found.open, found.again = windows.Meet(sets, p.Now)
		p.openings[key] = found
	}
	return found
}
