package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/windows"
)

// opening contains whether the windows of some profiles are open together, and the time at which that may change.
type opening struct {
	open bool
	next time.Time
}

// checkWindows rejects a node unless a window is open in every profile that needs its reboot, or may need it while the agent has not reported.
func (p *planner) checkWindows(n *nodeState) (reason, message string) {
	names := n.need.names
	if n.need.kind == needUnknown {
		names = lists.Distinct(names, n.Profiles)
	}
	var profiles []string
	var sets []windows.Set
	for _, name := range names {
		profile := p.profiles[name]
		if profile != nil && len(profile.Windows) > 0 && (len(profile.BootKeys) > 0 || slices.Contains(n.need.names, name)) {
			profiles, sets = append(profiles, name), append(sets, profile.Windows)
		}
	}
	if len(profiles) == 0 {
		return "", ""
	}
	key := strings.Join(profiles, " ")
	found, known := p.openings[key]
	if !known {
		found.open, found.next = windows.Meet(sets, p.Now)
		p.openings[key] = found
	}
	if !found.next.IsZero() {
		p.wakeAt(found.next)
	}
	switch owners := "StorageClientProfile " + text.List(profiles); {
	case found.open:
		return "", ""
	case !found.next.IsZero():
		return v1alpha1.RolloutReasonWaitingForWindow, fmt.Sprintf("Outside the windows of %s; the next one opens at %s", owners, formatTime(found.next))
	case len(profiles) == 1:
		return v1alpha1.RolloutReasonWindowsDisjoint, fmt.Sprintf("No window of %s opens in the coming years", owners)
	default:
		return v1alpha1.RolloutReasonWindowsDisjoint, fmt.Sprintf("The windows of %s are never open together, and all of them need the reboot", owners)
	}
}
