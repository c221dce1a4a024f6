package serverhealth

import (
	"slices"
	"time"

	"github.com/storageclient/operator/tuning/counters"
)

const (
	// staleAfter is the minimum time and staleRequests the minimum number for which all requests by handle must fail. A file that another client
	// removed fails a few. The kubelet requests the free space of each volume once a minute: this fails only if the handle of the root is stale.
	staleAfter    = SilentAfter
	staleRequests = 3
	// staleFor is the time after the last failure for which a mount counts as stale. A mount without requests does not stay stale.
	staleFor = 10 * time.Minute
)

// staleMount is the state of one mount with failing requests by handle.
type staleMount struct {
	last counters.HandleRequests
	// firstAt is the first failure after the last success, lastAt the last failure, and failed the number of failures.
	firstAt, lastAt time.Time
	failed          uint64
}

// noteHandles records the counters of requests by handle. The first reading only sets the baseline.
func (m *memory) noteHandles(now time.Time, reading Reading) {
	found := map[string]staleMount{}
	for _, current := range reading.Handles {
		s, known := m.stale[current.MountPoint]
		newRequests, newErrors := current.Ended-s.last.Ended, current.InErrors-s.last.InErrors
		switch {
		// A lower count belongs to another mount at the same path.
		case !known, current.Ended < s.last.Ended, current.InErrors < s.last.InErrors, newErrors < newRequests:
			s = staleMount{}
		case newErrors > 0:
			if s.firstAt.IsZero() {
				s.firstAt = now
			}
			s.lastAt, s.failed = now, s.failed+newErrors
		}
		s.last = current
		found[current.MountPoint] = s
	}
	m.stale = found
}

// staleMounts returns the sorted mount points whose file handles the server no longer recognizes.
func (m *memory) staleMounts(now time.Time) (points []string) {
	for point, s := range m.stale {
		if s.failed >= staleRequests && s.lastAt.Sub(s.firstAt) >= staleAfter && now.Sub(s.lastAt) < staleFor {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}
